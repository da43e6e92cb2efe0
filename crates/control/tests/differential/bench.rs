//! Both data planes with one node, and one packet at a time.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_control::compile::Compiled;
use sidestep_datapath::abi::{
    SIDESTEP_POLICY_ENCAPS, SIDESTEP_POLICY_ENCAPS_L2, SIDESTEP_ROUTE_END,
    SIDESTEP_ROUTE_END_B6_ENCAPS, SIDESTEP_ROUTE_END_B6_INSERT, SIDESTEP_ROUTE_END_DT6,
    SIDESTEP_ROUTE_END_DX2, SIDESTEP_ROUTE_END_DX4, SIDESTEP_ROUTE_END_DX6, SIDESTEP_ROUTE_END_T,
    SIDESTEP_ROUTE_END_X, SIDESTEP_TRACE_BEHAVIOR, SIDESTEP_TRACE_CSID, SIDESTEP_TRACE_POP,
    SIDESTEP_TRACE_PUSH,
};
use sidestep_datapath::{Native, PolicyId, Trace, Verdict};
use sidestep_model::config;
use sidestep_model::node::Node;
use sidestep_testkit::differential::packet::Arrival;
use sidestep_testkit::differential::scenario::Scenario;
use sidestep_testkit::linux::{Output, Sut};
use sidestep_testkit::vectors::{self, Expect};

use crate::arrived::is_own_error;
use crate::case::Case;
use crate::common::{XDP_HEADROOM, compile, describe};
use crate::judge::{Judgement, judge};

/// Both data planes with one node.
pub struct Bench {
    sut: Sut,
    own: BTreeSet<IpAddr>,
    pub node: Node,
    pub compiled: Compiled,
    native: Native,
    seg6_flowlabel: i32,
    pub text: String,
}

/// Result of Sidestep for a packet.
pub struct Ours {
    pub expect: Expect,
    trace: Vec<Trace>,
}

impl Bench {
    /// A node on both. Returns the lines that Linux refuses; neither data plane has them.
    pub fn build(scenario: &Scenario) -> (Self, Scenario, Vec<String>) {
        let parsed = |text: &str| vectors::Node::parse(text).expect("a node file");
        let mut scenario = scenario.clone();
        let mut sut = Sut::build(&parsed(&scenario.text())).expect("Linux takes the node");
        let refused: Vec<String> = sut
            .refused()
            .iter()
            .map(|refused| format!("{}: {}", refused.line, refused.reason.replace('\n', " ")))
            .collect();
        if !refused.is_empty() {
            let words = |line: &str| {
                sut.refused()
                    .iter()
                    .any(|refused| refused.line.ends_with(line))
            };
            let kept: Vec<_> = scenario
                .lines
                .iter()
                .filter(|line| !words(line.words()))
                .cloned()
                .collect();
            scenario = scenario.with_lines(&kept);
            sut = Sut::build(&parsed(&scenario.text())).expect("Linux takes the node");
        }
        let text = scenario.text();
        let node = config::File::parse(&text)
            .and_then(|file| file.node())
            .unwrap_or_else(|error| {
                panic!("Linux takes this node, and the node file does not: {error}\n{text}")
            });
        let compiled = compile(&node);
        let own = node.addresses.iter().map(|(_, net)| net.addr()).collect();
        let bench = Self {
            sut,
            own,
            native: Native::new(&compiled.image),
            node,
            compiled,
            seg6_flowlabel: scenario.seg6_flowlabel,
            text,
        };
        (bench, scenario, refused)
    }

    pub fn ifindex(&self, port: &str) -> u32 {
        self.node
            .link_by_name(port)
            .expect("a port of the scenario")
            .ifindex
            .0
    }

    pub fn ours(&mut self, port: &str, frame: &[u8]) -> Ours {
        let verdict = self.native.run(self.ifindex(port), frame);
        let changed = ["fragmented", "rewritten"];
        let left = matches!(verdict, Verdict::Punt(reason) if !changed.contains(&reason.name));
        assert!(
            !left || self.native.frame() == frame,
            "left to the kernel, changed: {frame:02x?}"
        );
        Ours {
            expect: describe(&self.node, verdict, self.native.frame()),
            trace: self.native.trace().to_vec(),
        }
    }

    /// The same with the headroom of XDP: the verdict, and the frame afterwards.
    pub fn short(&mut self, arrival: &Arrival) -> (Expect, Vec<u8>) {
        self.native.set_headroom(XDP_HEADROOM);
        let verdict = self.native.run(self.ifindex(&arrival.port), &arrival.frame);
        self.native.set_headroom(usize::MAX);
        let frame = self.native.frame().to_vec();
        (describe(&self.node, verdict, &frame), frame)
    }

    pub fn linux(&self, port: &str, frame: &[u8]) -> Vec<Output> {
        let mut outputs = self.sut.exchange(port, frame).expect("Linux is asked");
        outputs.retain(|(_, frame)| !is_own_error(frame, &self.own));
        outputs
    }

    pub fn judge(&self, frame: &[u8], ours: &Ours, linux: &[Output]) -> Judgement {
        let case = Case {
            frame,
            ours: &ours.expect,
            trace: &ours.trace,
            compiled: &self.compiled,
            seg6_flowlabel: self.seg6_flowlabel,
            node: &self.node,
            own: &self.own,
        };
        judge(&case, linux)
    }

    /// Events of a packet, without duplicates.
    pub fn steps(&self, ours: &Ours) -> BTreeSet<&'static str> {
        let name = |step: &Trace| match step.kind {
            SIDESTEP_TRACE_BEHAVIOR => behavior(step.a),
            SIDESTEP_TRACE_CSID => "next C-SID",
            SIDESTEP_TRACE_POP => "PSP",
            SIDESTEP_TRACE_PUSH => headend(self.compiled.image.policies[&PolicyId(step.a)].kind),
            _ => "forwarded",
        };
        ours.trace.iter().map(name).collect()
    }

    /// Runs a packet up to the comparison. Punted packets are not sent to Linux.
    pub fn ask(&mut self, port: &str, frame: &[u8]) -> (Ours, Vec<Output>, Judgement) {
        let ours = self.ours(port, frame);
        let linux = match ours.expect {
            Expect::Kernel(_) => Vec::new(),
            _ => self.linux(port, frame),
        };
        let judgement = self.judge(frame, &ours, &linux);
        (ours, linux, judgement)
    }
}

fn behavior(action: u32) -> &'static str {
    match action {
        SIDESTEP_ROUTE_END => "End",
        SIDESTEP_ROUTE_END_X => "End.X",
        SIDESTEP_ROUTE_END_T => "End.T",
        SIDESTEP_ROUTE_END_DX2 => "End.DX2",
        SIDESTEP_ROUTE_END_DX4 => "End.DX4",
        SIDESTEP_ROUTE_END_DX6 => "End.DX6",
        SIDESTEP_ROUTE_END_DT6 => "End.DT6",
        SIDESTEP_ROUTE_END_B6_ENCAPS => "End.B6.Encaps",
        SIDESTEP_ROUTE_END_B6_INSERT => "End.B6",
        _ => "another behavior",
    }
}

fn headend(kind: u8) -> &'static str {
    match u32::from(kind) {
        SIDESTEP_POLICY_ENCAPS => "pushed around a packet",
        SIDESTEP_POLICY_ENCAPS_L2 => "pushed around a frame",
        _ => "inserted",
    }
}
