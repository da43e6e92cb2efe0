//! A case that the two data planes do not agree on, made small, and written as a vector.

use std::fmt;

use sidestep_testkit::differential::packet::Arrival;
use sidestep_testkit::differential::scenario::Scenario;
use sidestep_testkit::differential::shrink;
use sidestep_testkit::linux::Output;
use sidestep_testkit::vectors::Expect;

use crate::bench::Bench;
use crate::judge::Judgement;

/// One packet, its node, and both answers.
pub struct Failure {
    seed: u64,
    scenario: Scenario,
    arrival: Arrival,
    ours: Expect,
    linux: Vec<Output>,
}

impl Failure {
    pub fn new(
        seed: u64,
        scenario: &Scenario,
        arrival: &Arrival,
        ours: Expect,
        linux: Vec<Output>,
    ) -> Self {
        Self {
            seed,
            scenario: scenario.clone(),
            arrival: arrival.clone(),
            ours,
            linux,
        }
    }

    /// The kind of disagreement, which has to stay while the case gets smaller.
    fn kind(ours: &Expect, linux: &[Output]) -> (String, usize) {
        let verdict = match ours {
            Expect::Forward { .. } => "forward",
            Expect::Drop(reason) | Expect::Kernel(reason) => reason,
        };
        (verdict.to_owned(), linux.len())
    }

    /// Leaves out lines of the node, then bytes of the packet.
    pub fn shrink(&mut self) {
        let kind = Self::kind(&self.ours, &self.linux);
        let port = self.arrival.port.clone();
        let shows = |bench: &mut Bench, frame: &[u8]| {
            let (ours, linux, judgement) = bench.ask(&port, frame);
            matches!(judgement, Judgement::Wrong(_)) && Self::kind(&ours.expect, &linux) == kind
        };
        let frame = self.arrival.frame.clone();
        let on = |lines: &[_]| {
            shows(
                &mut Bench::build(&self.scenario.with_lines(lines)).0,
                &frame,
            )
        };
        let lines = shrink::items(self.scenario.lines.clone(), on);
        self.scenario = self.scenario.with_lines(&lines);
        let (mut bench, _, _) = Bench::build(&self.scenario);
        self.arrival.frame = shrink::frame(&frame, |frame| shows(&mut bench, frame));
        let (mut bench, _, _) = Bench::build(&self.scenario);
        let (ours, linux, _) = bench.ask(&self.arrival.port, &self.arrival.frame);
        (self.ours, self.linux) = (ours.expect, linux);
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# seed {}, {:?}\nformat: 1\ngroup: found\nabout: \"\"\nnode:",
            self.seed, self.arrival.class
        )?;
        for line in self.scenario.text().lines() {
            writeln!(f, "  {line}")?;
        }
        let outcome = |port: &str, frame: &[u8]| {
            format!(
                "{{forward: {{port: {port}, frame: \"{}\"}}}}",
                hex::encode(frame)
            )
        };
        let ours = match &self.ours {
            Expect::Forward { port, frame } => outcome(port, frame),
            Expect::Drop(reason) => format!("{{drop: {reason}}}"),
            Expect::Kernel(reason) => format!("{{kernel: {reason}}}"),
        };
        let linux = match &self.linux[..] {
            [] => "drop".to_owned(),
            frames => frames
                .iter()
                .map(|(port, frame)| outcome(port, frame))
                .collect::<Vec<_>>()
                .join(" and "),
        };
        let Arrival { port, frame, .. } = &self.arrival;
        writeln!(
            f,
            "cases:\n- name: found\n  in: {{port: {port}, frame: \"{}\"}}",
            hex::encode(frame)
        )?;
        write!(
            f,
            "  expect: {ours}\n  linux: {{differs: {linux}, why: \"\"}}"
        )
    }
}
