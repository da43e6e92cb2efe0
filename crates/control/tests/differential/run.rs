//! The whole run: nodes, packets, answers, and what there is to say in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sidestep_datapath::kernel::Target;
use sidestep_testkit::differential::packet::{Arrival, Class};
use sidestep_testkit::differential::scenario::Scenario;
use sidestep_testkit::linux::Output;
use sidestep_testkit::random::Random;
use sidestep_testkit::vectors::Expect;

use crate::bench::Bench;
use crate::common::{TEST_RUN_MIN, TestRuns, describe, show, without_padding};
use crate::failure::Failure;
use crate::judge::Judgement;
use crate::options::Options;

/// Results.
pub struct Run<'a> {
    options: &'a Options,
    runs: Vec<TestRuns>,
    nodes: usize,
    classes: BTreeMap<Class, usize>,
    same: BTreeMap<&'static str, usize>,
    topics: BTreeMap<&'static str, usize>,
    left: BTreeMap<(Class, String), usize>,
    unseen: usize,
    pushed: usize,
    on_targets: usize,
    refused: BTreeSet<String>,
    history: usize,
    /// How often a packet took a step of this kind and was sent, by Linux too.
    steps: BTreeMap<&'static str, usize>,
    /// Failures by kind: count and first case.
    failures: BTreeMap<String, (usize, Failure)>,
}

impl<'a> Run<'a> {
    pub fn new(options: &'a Options) -> Self {
        let load = |target: &Target| TestRuns::load("differential", *target);
        Self {
            options,
            runs: options.targets.iter().map(load).collect(),
            nodes: 0,
            classes: BTreeMap::new(),
            same: BTreeMap::new(),
            topics: BTreeMap::new(),
            left: BTreeMap::new(),
            unseen: 0,
            pushed: 0,
            on_targets: 0,
            refused: BTreeSet::new(),
            history: 0,
            steps: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Node after node, until there were enough packets.
    pub fn finish(mut self) -> Self {
        let mut left = self.options.packets;
        while left > 0 {
            let count = left.min(self.options.per_node);
            self.node(self.options.seed.wrapping_add(self.nodes as u64), count);
            self.nodes += 1;
            left -= count;
        }
        let mut failures = std::mem::take(&mut self.failures);
        for (_, failure) in failures.values_mut().take(self.options.shrink) {
            failure.shrink();
        }
        self.failures = failures;
        self
    }

    fn node(&mut self, seed: u64, count: usize) {
        let mut random = Random::new(seed);
        let (mut bench, scenario, refused) = Bench::build(&Scenario::random(&mut random));
        self.refused.extend(refused);
        let arrivals: Vec<Arrival> = (0..count)
            .map(|_| Arrival::random(&scenario, &mut random))
            .collect();
        let mut answers = Vec::new();
        for arrival in &arrivals {
            *self.classes.entry(arrival.class).or_default() += 1;
            let (ours, linux, judgement) = bench.ask(&arrival.port, &arrival.frame);
            if let (Judgement::Same | Judgement::Differs(_), [_], Expect::Forward { .. }) =
                (&judgement, &linux[..], &ours.expect)
            {
                for step in bench.steps(&ours) {
                    *self.steps.entry(step).or_default() += 1;
                }
            }
            match judgement {
                Judgement::Same => self.agreed(arrival.class, &ours.expect),
                Judgement::Differs(topics) => {
                    *self.same.entry("as documented").or_default() += 1;
                    for topic in topics {
                        *self.topics.entry(topic).or_default() += 1;
                    }
                }
                Judgement::Unseen => self.unseen += 1,
                Judgement::Pushed => self.pushed += 1,
                Judgement::Wrong(what) => self.failed(seed, &scenario, arrival, &what, &linux),
            }
            answers.push(ours.expect);
        }
        self.on_kernel_targets(&mut bench, &arrivals, &answers);
    }

    fn agreed(&mut self, class: Class, ours: &Expect) {
        match ours {
            Expect::Forward { .. } => *self.same.entry("forwarded").or_default() += 1,
            Expect::Drop(_) => *self.same.entry("dropped").or_default() += 1,
            Expect::Kernel(reason) => *self.left.entry((class, reason.clone())).or_default() += 1,
        }
    }

    /// Again, on a node that saw no other packet: Linux keeps the route that a headend's first packet took.
    fn failed(
        &mut self,
        seed: u64,
        scenario: &Scenario,
        arrival: &Arrival,
        what: &str,
        linux: &[Output],
    ) {
        if let Some((count, _)) = self.failures.get_mut(what) {
            *count += 1;
            return;
        }
        let (mut fresh, _, _) = Bench::build(scenario);
        let (ours, alone, judgement) = fresh.ask(&arrival.port, &arrival.frame);
        if let Judgement::Wrong(_) = judgement {
            let failure = Failure::new(seed, scenario, arrival, ours.expect, alone);
            self.failures.insert(what.to_owned(), (1, failure));
        } else if what.contains("push") {
            self.history += 1;
        } else {
            let failure = Failure::new(seed, scenario, arrival, ours.expect, linux.to_vec());
            let what = format!("{what}, only after the packets before it");
            self.failures.insert(what, (1, failure));
        }
    }

    fn on_kernel_targets(&mut self, bench: &mut Bench, arrivals: &[Arrival], answers: &[Expect]) {
        let ports: BTreeSet<&str> = arrivals
            .iter()
            .map(|arrival| arrival.port.as_str())
            .collect();
        for runs in &mut self.runs {
            for port in &ports {
                runs.enter(&bench.compiled.image, bench.ifindex(port));
                let mine = arrivals.iter().zip(answers).step_by(self.options.share);
                for (arrival, native) in mine.filter(|(arrival, _)| arrival.port == *port) {
                    let Some((verdict, frame)) = runs.run(&arrival.frame) else {
                        assert!(
                            arrival.frame.len() < TEST_RUN_MIN || arrival.frame.len() > 1514,
                            "{}",
                            arrival.frame.len()
                        );
                        continue;
                    };
                    self.on_targets += 1;
                    let found = describe(&bench.node, verdict, &frame);
                    // The padding of the link is cut off before the room is asked for.
                    let whole = &arrival.frame[..without_padding(&arrival.frame)];
                    let no_room = match native {
                        Expect::Forward { frame: sent, .. } if runs.target() == Target::Tc => {
                            found == Expect::Kernel("headroom".into())
                                && TestRuns::is_runt(sent)
                                && (frame == whole || frame == arrival.frame)
                        }
                        _ => found != *native && bench.short(arrival) == (found.clone(), frame),
                    };
                    assert!(
                        found == *native || no_room,
                        "{}: not as natively\n{}\nframe {}\nnative {}\nfound {}",
                        runs.target().name(),
                        bench.text,
                        hex::encode(&arrival.frame),
                        show(native),
                        show(&found)
                    );
                }
            }
            runs.leave();
        }
    }

    /// Fails if anything is wrong, or if too little was compared.
    pub fn check(&self) {
        assert!(
            self.failures.is_empty(),
            "{} kinds of failure, see above",
            self.failures.len()
        );
        let left: usize = self.left.values().sum();
        let total: usize = self.classes.values().sum();
        assert!(
            left * 100 <= total * LEFT_MAX,
            "{left} of {total} packets were left to the kernel: nothing is compared there"
        );
        assert!(
            self.history * 100 <= total,
            "{} of {total} packets agreed only when they came alone",
            self.history
        );
        for line in &self.refused {
            assert!(
                line.contains(" encap "),
                "an older kernel does not know each encapsulation, but this? {line}"
            );
        }
        if total >= ENOUGH && self.refused.is_empty() {
            for step in &WANTED {
                let count = self.steps.get(step).copied().unwrap_or(0);
                assert!(
                    count >= AT_LEAST,
                    "{step}: {count} packets compared, too few to say anything"
                );
            }
        }
    }
}

/// Minimum number of comparisons per kind in a run with at least [`ENOUGH`] packets.
const WANTED: [&str; 15] = [
    "forwarded",
    "End",
    "End.X",
    "End.T",
    "End.DX2",
    "End.DX4",
    "End.DX6",
    "End.DT6",
    "End.B6.Encaps",
    "End.B6",
    "next C-SID",
    "PSP",
    "pushed around a packet",
    "pushed around a frame",
    "inserted",
];
const AT_LEAST: usize = 5;
const ENOUGH: usize = 10_000;

/// LIMIT: percent of the packets that may be left to the kernel.
const LEFT_MAX: usize = 45;

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: usize = self.classes.values().sum();
        writeln!(
            f,
            "{total} packets on {} nodes from seed {}: {:?}",
            self.nodes, self.options.seed, self.classes
        )?;
        for (what, count) in &self.same {
            writeln!(f, "{count:8} {what}, as Linux")?;
        }
        writeln!(
            f,
            "{:8} that the tester could not see (like neighbor discovery): not compared",
            self.unseen
        )?;
        writeln!(
            f,
            "{:8} with headers that the node pushed and processed: not compared",
            self.pushed
        )?;
        writeln!(
            f,
            "{:8} otherwise only because of what Linux kept of packets before",
            self.history
        )?;
        writeln!(
            f,
            "{:8} left to the kernel:",
            self.left.values().sum::<usize>()
        )?;
        for ((class, reason), count) in &self.left {
            writeln!(f, "         {count:8} {reason} ({class:?})")?;
        }
        writeln!(f, "sent by both, by what was done:")?;
        for (step, count) in &self.steps {
            writeln!(f, "{count:8} {step}")?;
        }
        writeln!(f, "differences, as documented:")?;
        for (topic, count) in &self.topics {
            writeln!(f, "{count:8} {topic}")?;
        }
        writeln!(f, "{:8} runs on XDP and TC, as natively", self.on_targets)?;
        for line in &self.refused {
            writeln!(f, "not taken by Linux: {line}")?;
        }
        for (what, (count, failure)) in &self.failures {
            writeln!(f, "\nFAILED {count} times: {what}\n{failure}")?;
        }
        Ok(())
    }
}
