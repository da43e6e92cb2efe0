//! A node on the targets: compiled, run natively or through `BPF_PROG_TEST_RUN`, its verdicts in the vectors' words.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sidestep_control::compile::{Compiled, Compiler};
use sidestep_datapath::abi::{
    Reason, SIDESTEP_ROUTE_END_DX4, SIDESTEP_ROUTE_END_DX6, SIDESTEP_ROUTE_END_X,
};
use sidestep_datapath::kernel::{Action, Kernel, ReportRate, Target};
use sidestep_datapath::{Image, Limits, Verdict};
use sidestep_model::node::Node;
use sidestep_testkit::hexdiff::plain;
use sidestep_testkit::vectors::Expect;

/// The tables of a node, all of whose links are ports.
pub fn compile(node: &Node) -> Compiled {
    let ports: BTreeSet<_> = node.links.keys().copied().collect();
    Compiler::new(Limits::default())
        .compile(node, &ports)
        .expect("the node compiles")
}

/// Result of a target for a case, in the notation of vectors.
pub fn describe(node: &Node, verdict: Verdict, frame: &[u8]) -> Expect {
    match verdict {
        Verdict::Forward { ifindex } => {
            let port = node.links.values().find(|link| link.ifindex.0 == ifindex);
            Expect::Forward {
                port: port.map_or_else(|| format!("ifindex {ifindex}"), |link| link.name.clone()),
                frame: frame.to_vec(),
            }
        }
        Verdict::Punt(reason) => Expect::Kernel(reason.name.into()),
        Verdict::Drop(reason) => Expect::Drop(reason.name.into()),
    }
}

/// One line.
pub fn show(expect: &Expect) -> String {
    match expect {
        Expect::Forward { port, frame } => {
            format!("forward {port} {}", plain(frame))
        }
        Expect::Drop(reason) => format!("drop {reason}"),
        Expect::Kernel(reason) => format!("kernel {reason}"),
    }
}

/// A kernel target whose tables hold one node at a time.
pub struct TestRuns {
    /// Until it is dropped.
    kernel: Option<Kernel>,
    target: Target,
    pins: PathBuf,
    /// As compiled, and as it is in the kernel.
    compiled: Image,
    image: Image,
    ingress: u32,
}

/// A rate above that of test runs.
pub fn unlimited() -> ReportRate {
    ReportRate {
        per_second: 1_000_000_000,
        burst: 1,
    }
}

impl TestRuns {
    /// Loads the packet path; `name` is the caller's.
    pub fn load(name: &str, target: Target) -> Self {
        let pins = PathBuf::from(format!(
            "/sys/fs/bpf/sidestep-{name}-{}-{}",
            std::process::id(),
            target.name()
        ));
        let kernel =
            Kernel::load(Limits::default(), &pins).expect("the kernel takes the packet path");
        // The verdict on an oversized packet depends on this limit.
        kernel.limit_oversized(unlimited());
        Self {
            kernel: Some(kernel),
            target,
            pins,
            compiled: Image::default(),
            image: Image::default(),
            ingress: 0,
        }
    }

    /// Replaces the tables: frames now arrive at this port of this node. Returns them as they are in the kernel, where that
    /// port is interface 1.
    pub fn enter(&mut self, image: &Image, ingress: u32) -> &Image {
        self.leave();
        self.compiled = image.clone();
        self.go_to(ingress)
    }

    /// Frames now arrive at this port of the same node, which keeps learned headers.
    pub fn go_to(&mut self, ingress: u32) -> &Image {
        let image = with_ingress_1(&self.compiled, ingress);
        let before = std::mem::take(&mut self.image);
        self.kernel()
            .apply(&before, &image)
            .expect("the tables take the node");
        (self.image, self.ingress) = (image, ingress);
        &self.image
    }

    /// Empties the tables.
    pub fn leave(&mut self) {
        let image = std::mem::take(&mut self.image);
        self.kernel()
            .apply(&image, &Image::default())
            .expect("emptying works");
    }

    /// The verdict on a frame, and the frame afterwards. `None` if the kernel accepts no test run of
    /// this frame. Oversized packets of earlier runs are discarded.
    pub fn run(&mut self, frame: &[u8]) -> Option<(Verdict, Vec<u8>)> {
        self.kernel().oversized(10);
        let kernel = self.kernel.as_ref().expect("until it is dropped");
        let before = Before::read(kernel, &self.image);
        let mut run = kernel.test_run(self.target, frame, 1).ok()?;
        let mut after = Before::read(kernel, &self.image);
        // XDP defers the frame: nothing is counted but its arrival.
        if self.target == Target::Xdp && before.same(&after) {
            assert_eq!(run.action, Action::Kernel);
            run = kernel.test_run(Target::Tc, frame, 1).ok()?;
            after = Before::read(kernel, &self.image);
        }
        let mut verdict = before.verdict(&after, run.action);
        if let Verdict::Forward { ifindex } = &mut verdict {
            *ifindex = swapped(*ifindex, self.ingress);
        }
        Some((verdict, run.frame))
    }

    /// The target itself.
    pub fn kernel(&mut self) -> &mut Kernel {
        self.kernel.as_mut().expect("until it is dropped")
    }

    /// Which it is.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Returns true if TC cannot make a frame that the native target sends.
    pub fn is_runt(sent: &[u8]) -> bool {
        sent.len() < TC_RUNT
    }
}

impl Drop for TestRuns {
    fn drop(&mut self) {
        if let Some(kernel) = self.kernel.take() {
            kernel.detach_all().expect("the pins go");
        }
        let _ = std::fs::remove_dir(&self.pins);
    }
}

/// `BPF_PROG_TEST_RUN` builds an skb only from a frame whose IP header, as its `EtherType` has it, is whole.
pub const TEST_RUN_MIN: usize = 14 + 40;
/// XDP keeps 256 bytes of headroom, 40 of them for itself (`struct xdp_frame`). It defers a packet to
/// TC if a behavior adds more, unless a behavior before it has added some.
pub const XDP_HEADROOM: usize = 216;
/// `bpf_skb_adjust_room` leaves no less than an IPv4 header behind the Ethernet header.
const TC_RUNT: usize = 14 + 20;

/// Length of a frame up to the end of its IP packet. Trailing bytes are removed first.
pub fn without_padding(frame: &[u8]) -> usize {
    let field = |at: usize| {
        let bytes = frame.get(at..at + 2).unwrap_or(&[0xff, 0xff]);
        usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let end = match field(12) {
        0x86dd => 14 + 40 + field(14 + 4),
        0x0800 => 14 + field(14 + 2),
        _ => frame.len(),
    };
    end.min(frame.len())
}

/// Maps interface indices for a test run, which arrives on interface 1: that index is swapped with
/// the ingress port's.
pub fn swapped(ifindex: u32, ingress: u32) -> u32 {
    match ifindex {
        1 => ingress,
        other if other == ingress => 1,
        other => other,
    }
}

fn with_ingress_1(image: &Image, ingress: u32) -> Image {
    let mut image = image.clone();
    image.ports = image
        .ports
        .into_iter()
        .map(|(ifindex, mut port)| {
            port.ifindex = swapped(ifindex, ingress);
            (port.ifindex, port)
        })
        .collect();
    for adjacency in image.adjacencies.values_mut() {
        adjacency.ifindex = swapped(adjacency.ifindex, ingress);
    }
    for port in image.stations.values_mut() {
        *port = swapped(*port, ingress);
    }
    // Views by port: their prefixes are interface indices.
    let cross_connects = [
        SIDESTEP_ROUTE_END_X,
        SIDESTEP_ROUTE_END_DX4,
        SIDESTEP_ROUTE_END_DX6,
    ];
    let routes = image.routes.values();
    let of_ports: BTreeSet<_> = routes
        .filter(|route| cross_connects.contains(&route.action.into()))
        .map(|route| route.view6)
        .collect();
    image.fib = std::mem::take(&mut image.fib)
        .into_iter()
        .map(|(mut key, route)| {
            if key.length == 32 && key.view.is_some() && of_ports.contains(&key.view) {
                let ifindex = key.address.first_chunk_mut().expect("16 bytes");
                *ifindex = swapped(u32::from_be_bytes(*ifindex), ingress).to_be_bytes();
            }
            (key, route)
        })
        .collect();
    image
}

/// Counters for results that a test run does not return: egress and reason.
struct Before {
    sent: BTreeMap<u32, u64>,
    reasons: Vec<u64>,
}

impl Before {
    fn read(kernel: &Kernel, image: &Image) -> Self {
        let sent = |ifindex| {
            kernel
                .port_counters(ifindex)
                .expect("counters")
                .sent_packets
        };
        Self {
            sent: image
                .ports
                .keys()
                .map(|&ifindex| (ifindex, sent(ifindex)))
                .collect(),
            reasons: kernel.reason_counters().expect("counters"),
        }
    }

    /// Whether nothing was sent and no reason was counted.
    fn same(&self, after: &Self) -> bool {
        self.sent == after.sent && self.reasons == after.reasons
    }

    fn verdict(&self, after: &Self, action: Action) -> Verdict {
        let reason = || {
            let number = (0..self.reasons.len()).find(|&n| after.reasons[n] > self.reasons[n]);
            Reason::from_number(number.expect("a reason was counted") as u32)
                .expect("it is in the table")
        };
        match action {
            Action::Forward => {
                let egress = self
                    .sent
                    .iter()
                    .find(|(ifindex, sent)| after.sent[*ifindex] > **sent);
                Verdict::Forward {
                    ifindex: *egress.expect("a sent frame was counted").0,
                }
            }
            Action::Kernel => Verdict::Punt(reason()),
            // The daemon gets the packet, and the frame ends.
            Action::Drop if reason().name == "fragmented" => Verdict::Punt(reason()),
            Action::Drop => Verdict::Drop(reason()),
            Action::Unknown(code) => panic!("return code {code}"),
        }
    }
}
