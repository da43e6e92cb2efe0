//! Conformance: the golden vectors, live, through any engine that commands can configure.
//!
//! Each vector file describes a router and packets for it, with the bytes that the RFCs ask for. For
//! each file, the router is built in a namespace, the engine takes over its ports ([`plane`]), and
//! each packet is sent and what leaves is compared ([`judge`]). [`results`] counts by clause.

pub mod fragments;
pub mod judge;
pub mod page;
pub mod plane;
pub mod results;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sidestep_testkit::linux::{Output, Sut, on_one_cpu};
use sidestep_testkit::vectors::{Answer, Case, Expect, Node, VectorFile};
use sidestep_testkit::{Error, Napi};
use sidestep_wire::Ethernet;

use judge::{Finding, judge};
use plane::Plane;
use results::{Outcome, Results};

/// Selection of cases, and the time for each.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only cases whose name, group or citation contains this text.
    pub only: Option<String>,
    /// Time that a packet may take; none: the engine runs in the kernel, in the order of the frames.
    pub patience: Option<Duration>,
}

/// Time for a packet through an engine in the kernel, where no marker can follow it.
const SHORTLY: Duration = Duration::from_millis(20);

/// LIMIT: time for an expected message or fragment, which a part of the engine outside the kernel may
/// send.
const BEHIND: Duration = Duration::from_secs(1);

/// Whether a case is about the engine, and its frames fit the link. A packet that the expected
/// router leaves to its operating system says nothing about another one.
fn is_asked(node: &Node, case: &Case) -> bool {
    let fits = |port: &str, frame: &[u8]| {
        let mut ports = node.ports.iter();
        let found = ports.find(|(name, _)| name == port);
        found.is_some_and(|(_, port)| frame.len() <= port.mtu as usize + Ethernet::LENGTH)
    };
    let mut earlier = case.earlier.iter();
    let is_punted = matches!(case.expect, Expect::Kernel(_)) && case.fragments.is_empty();
    // A Linux receiver drops a tagged frame that ends with its tag.
    let ends_with_tag = matches!(&case.expect, Expect::Forward { frame, .. }
        if frame.len() < Ethernet::LENGTH + 6 && frame.get(12..14) == Some(&[0x81, 0x00]));
    !is_punted
        && !ends_with_tag
        && fits(&case.port, &case.frame)
        && earlier.all(|(port, frame)| fits(port, frame))
}

/// Runs the cases of these files. `told` is called after each file with its number of cases.
///
/// # Errors
/// A router cannot be built, or the run was interrupted.
pub fn run(
    files: &[VectorFile],
    plane: &dyn Plane,
    options: &Options,
    stop: &AtomicBool,
    mut told: impl FnMut(&str, usize),
) -> Result<Results, Error> {
    let mut results = Results::new(plane.name(), plane.facts()?);
    for file in files {
        let wanted = |case: &&Case| {
            let words = options.only.as_deref().unwrap_or_default();
            let mut cited = case.rfc.iter().map(String::as_str);
            case.name.contains(words)
                || file.group.contains(words)
                || cited.any(|rfc| rfc.contains(words))
        };
        let cases: Vec<&Case> = file.cases.iter().filter(wanted).collect();
        let (asked, left): (Vec<&Case>, _) =
            cases.iter().partition(|case| is_asked(&file.node, case));
        results.left += left.len();
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if !asked.is_empty() {
            let outcomes = on_one_cpu(|| of_file(file, &asked, plane, options))??;
            results.outcomes.extend(outcomes);
        }
        told(&file.group, asked.len());
    }
    Ok(results)
}

/// Runs these cases of one file.
fn of_file(
    file: &VectorFile,
    cases: &[&Case],
    plane: &dyn Plane,
    options: &Options,
) -> Result<Vec<Outcome>, Error> {
    let outcome = |case: &Case, finding| Outcome::new(&file.group, case, finding);
    let sut = Sut::build(&file.node)?;
    sut.reach_senders(&file.node)?;
    // The receivers of XDP redirects.
    let ports = file.node.ports.iter();
    let ports = ports.filter(|(_, port)| port.vlan.is_none());
    let _receivers = ports
        .map(|(name, _)| Napi::attach(sut.tester()?, name))
        .collect::<Result<Vec<_>, Error>>()?;
    let up = plane.up(file, &sut)?;
    // The port of a service that gets frames takes markers for such frames.
    let takes_frames = file
        .node
        .routes
        .iter()
        .any(|line| line.contains(" inner l2"));
    let patience = options.patience.or(takes_frames.then_some(SHORTLY));
    let ask = |case: &&Case| {
        if let Some(why) = plane
            .lacks(case)
            .or_else(|| up.lacks(&file.node, &case.frame))
        {
            return Ok(outcome(case, Finding::NotSupported(why)));
        }
        let exchange = |port: &str, frame: &[u8]| match patience {
            Some(patience) => sut.exchange_within(port, frame, patience),
            None => sut.exchange(port, frame),
        };
        for (port, frame) in &case.earlier {
            exchange(port, frame)?;
        }
        let mut found = exchange(&case.port, &case.frame)?;
        match case.answer {
            Some(Answer::Silence) => found.extend(sut.more_within(SHORTLY, |_| false)?),
            Some(Answer::Message { .. }) => more(&sut, case, &file.node, &mut found)?,
            None if !case.fragments.is_empty() => more(&sut, case, &file.node, &mut found)?,
            None => {}
        }
        Ok(outcome(case, judge(&file.node, case, &found)))
    };
    cases.iter().map(ask).collect()
}

/// Waits until what left is right.
fn more(sut: &Sut, case: &Case, node: &Node, found: &mut Vec<Output>) -> Result<(), Error> {
    let so_far = found.clone();
    let is_right = |later: &[Output]| {
        let all = [&so_far, later].concat();
        judge(node, case, &all) == Finding::Pass
    };
    if !is_right(&[]) {
        found.extend(sut.more_within(BEHIND, is_right)?);
    }
    Ok(())
}
