//! Verification of one packet before a measurement.

use std::time::Duration;

use super::behavior::Behavior;
use super::network::{Network, PORT};
use super::plane::{Plane, Standing};
use sidestep_testkit::Napi;
use sidestep_testkit::hexdiff::diff;
use sidestep_testkit::{Error, FrameSocket};

/// Sends the behavior's packet and compares the frame at the sink byte for byte. If Sidestep runs,
/// its counters must show that Sidestep forwarded the packet.
///
/// # Errors
/// Another frame or no frame arrives, or the kernel forwarded it.
pub fn verify(plane: Plane, standing: &Standing, behavior: &Behavior) -> Result<(), Error> {
    let network = standing.network();
    let wrong =
        |what: String| Error::Wrong(format!("{} on {}: {what}", behavior.name, plane.name()));
    let _napi = Napi::attach(network.sink()?, PORT)?;
    standing
        .ready(&behavior.sent)
        .map_err(|error| wrong(error.to_string()))?;
    let before = standing.tallies()?;
    compare(plane, behavior, exchange(network, &behavior.sent)?)?;
    let after = standing.tallies()?;
    let mut ports = before.iter().zip(&after);
    if ports.any(|(before, after)| after.forwarded == before.forwarded) {
        return Err(wrong("the kernel forwarded it, not Sidestep".into()));
    }
    Ok(())
}

/// Checks the frame that a data plane sent; `None` if it sent no frame.
///
/// # Errors
/// The data plane had to send another frame.
pub(super) fn compare(
    plane: Plane,
    behavior: &Behavior,
    found: Option<Vec<u8>>,
) -> Result<(), Error> {
    let wrong = |what: &str| {
        let (behavior, plane) = (&behavior.name, plane.name());
        Error::Wrong(format!("{behavior} on {plane}: {what}"))
    };
    let Some(found) = found else {
        return Err(wrong("the router sent no packet"));
    };
    let expected = plane.expected(behavior);
    let computed = behavior.computed_label && plane != Plane::Linux;
    if same(expected, &found, computed) {
        return Ok(());
    }
    Err(wrong(&format!(
        "the router sent another packet\n{}",
        diff(expected, &found)
    )))
}

/// Sends a frame, and returns the frame that arrives at the sink, or `None`. The sink's port must
/// accept XDP redirects.
///
/// # Errors
/// A port no longer exists.
pub fn exchange(network: &Network, frame: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let near = FrameSocket::open(network.generator()?, PORT)?;
    let far = FrameSocket::open(network.sink()?, PORT)?;
    near.send(frame)?;
    far.receive(PATIENCE)
}

/// Returns whether both frames are equal. A computed flow label may have any value but 0.
pub(super) fn same(expected: &[u8], found: &[u8], computed_label: bool) -> bool {
    if !computed_label {
        return expected == found;
    }
    let (Some(label), true) = (found.get(LABEL), expected.len() == found.len()) else {
        return false;
    };
    let some = [label[0] & 0x0f, label[1], label[2]] != [0; 3];
    let mut found = found.to_vec();
    found[LABEL.start] &= 0xf0;
    found[LABEL.start + 1..LABEL.end].fill(0);
    some && expected == found
}

/// The flow label and the lower half of the Traffic Class, in a frame without VLAN tag.
const LABEL: std::ops::Range<usize> = 15..18;

/// Time limit for a packet on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::{Case, Flows, Size};
    use sidestep_testkit::root_or_skip;

    #[test]
    fn a_wrong_byte_is_reported() {
        if !root_or_skip() {
            return;
        }
        let case = Case {
            behavior: "h.encaps".to_owned(),
            sids: 3,
            size: Size::Bytes(64),
            flows: Flows::Uniform(1),
            rules: 0,
            routes: 0,
            cores: 1,
        };
        let mut behavior = Behavior::of(&case, 64).expect("a behavior");
        let network = Arc::new(Network::routed(&behavior).expect("network"));
        let linux = Standing::linux(&network, &behavior).expect("linux");
        verify(Plane::Linux, &linux, &behavior).expect("as it has to be");
        *behavior.from_linux.last_mut().expect("a frame") ^= 1;
        let error = verify(Plane::Linux, &linux, &behavior).expect_err("one bit is wrong");
        let error = error.to_string();
        assert!(
            error.contains("h.encaps, 3 SIDs") && error.contains("another packet"),
            "{error}"
        );
    }

    #[test]
    fn a_computed_label_is_not_zero_and_all_other_bytes_are_compared() {
        let expected: Vec<u8> = [vec![0; 14], vec![0x60, 0, 0, 0, 9]].concat();
        let mut found = expected.clone();
        assert!(same(&expected, &found, false));
        assert!(!same(&expected, &found, true), "label 0");
        found[15] = 0x0a;
        assert!(same(&expected, &found, true));
        assert!(!same(&expected, &found, false));
        found[15] = 0x1a;
        assert!(!same(&expected, &found, true), "traffic class");
        found[15] = 0x0a;
        found[18] = 8;
        assert!(!same(&expected, &found, true), "behind the label");
        assert!(!same(&expected, &found[..16], true), "cut short");
    }
}
