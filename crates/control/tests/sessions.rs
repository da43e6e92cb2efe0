//! Sessions of paths on every target: which answers count (RFC 7880 7.3), and the backup of a list whose
//! path is down.

#[allow(dead_code, reason = "the other tests use the rest")]
mod common;

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use common::{TestRuns, compile, describe, show};
use sidestep_datapath::abi::{SIDESTEP_ADJACENCY_DOWN, sidestep_session};
use sidestep_datapath::kernel::Target;
use sidestep_datapath::{Image, Native, SessionId};
use sidestep_model::config;
use sidestep_model::liveness::WatchedList;
use sidestep_model::node::Node;
use sidestep_testkit::root_or_skip;
use sidestep_wire::{Ends, Ipv6, Protocol, Udp};

const NODE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"], seg6_enabled: true}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc01::2/64"], seg6_enabled: true}
  eth2: {mac: "02:00:00:00:00:03", addresses: ["fc02::2/64"], seg6_enabled: true}
neighbors:
- fc01::1 lladdr 02:00:00:00:00:11 dev eth1
- fc02::1 lladdr 02:00:00:00:00:12 dev eth2
- fc01::6 lladdr 02:00:00:00:00:11 dev eth1
- fc01::7 lladdr 02:00:00:00:00:11 dev eth1
routes:
- fc0a::/16 via fc01::1 dev eth1
- fc0b::/16 via fc02::1 dev eth2
- fc0f::d6/128 encap seg6local action End.DT6 table 254 dev eth0
- 2001:db8::/32 policy gold
- 2001:db8:2::/48 policy silver
- 2001:db8:3::/48 policy lead
- 2001:db8:4::/48 nexthop via fc01::1 dev eth1 nexthop via fc02::1 dev eth2
- 2001:db8:5::/48 via fc01::1 dev eth1
- 2001:db8:6::/48 via fc01::6 dev eth1
- 2001:db8:7::/48 via fc01::7 dev eth1
- 2001:db8:8::/48 encap seg6 mode encap segs fc0c::1 dev eth1
- fc0c::/16 via fc01::6 dev eth1
protections:
- eth1 via fc01::6 by segs fc0b::6
- eth1 via fc01::7 by via fc02::1 dev eth2
policies:
- gold color 1 endpoint ::1 preference 200 segs fc0a::1 preference 100 segs fc0b::1
- silver color 2 endpoint ::1 segs fc0a::2 weight 1 segs fc0b::2 weight 3
- lead color 3 endpoint ::1 preference 200 segs fc0a::2 preference 100 segs fc0b::2
"#;

/// Sessions: of S-BFD, and a loopback.
const SBFD: u32 = 1;
const LOOPBACK: u32 = 2;
/// Discriminators of the sessions, and of the reflector.
const OF_SBFD: u32 = 0x8000_0001;
const OF_LOOPBACK: u32 = 0x8000_0002;
const REMOTE: u32 = 1001;

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn node() -> Node {
    let file = config::File::parse(NODE).expect("a node file");
    let mut node = file.node().expect("a node");
    node.watched.sessions = [(OF_SBFD, SBFD), (OF_LOOPBACK, LOOPBACK)].into();
    let list = WatchedList {
        path: "west".into(),
        session: SBFD,
        is_down: false,
    };
    node.watched.lists = [(vec![address("fc0a::1")], list)].into();
    node
}

fn sessions() -> [(SessionId, sidestep_session); 2] {
    let of = |discriminator, remote| sidestep_session {
        discriminator,
        remote,
        source: address("fc00::2").octets(),
        ..Default::default()
    };
    [
        (SessionId(SBFD), of(OF_SBFD, REMOTE)),
        (SessionId(LOOPBACK), of(OF_LOOPBACK, OF_LOOPBACK)),
    ]
}

/// An answer: its addresses and ports, the byte with the state, and its discriminators.
#[derive(Clone, Copy)]
struct Answer {
    from: &'static str,
    ports: [u16; 2],
    state: u8,
    mine: u32,
    yours: u32,
    version: u8,
    length: u8,
}

const ANSWER: Answer = Answer {
    from: "fc0a::b",
    ports: [7784, 50_000],
    state: 0xc0,
    mine: REMOTE,
    yours: OF_SBFD,
    version: 0x20,
    length: 24,
};
const BACK: Answer = Answer {
    from: "fc00::2",
    ports: [50_000, 3785],
    mine: OF_LOOPBACK,
    yours: OF_LOOPBACK,
    ..ANSWER
};

impl Answer {
    fn from(self, from: &'static str) -> Self {
        Self { from, ..self }
    }

    fn ports(self, ports: [u16; 2]) -> Self {
        Self { ports, ..self }
    }

    fn state(self, state: u8) -> Self {
        Self { state, ..self }
    }

    /// With these discriminators.
    fn between(self, mine: u32, yours: u32) -> Self {
        Self {
            mine,
            yours,
            ..self
        }
    }

    /// With this first byte and this length.
    fn first(self, version: u8, length: u8) -> Self {
        Self {
            version,
            length,
            ..self
        }
    }

    fn packet(self) -> Vec<u8> {
        let numbers = [self.mine, self.yours, 10_000, 1000, 0].map(u32::to_be_bytes);
        let first = [self.version, self.state, 3, self.length];
        let (from, to) = (address(self.from), address("fc00::2"));
        let udp = Udp {
            source_port: self.ports[0],
            destination_port: self.ports[1],
        };
        let data = [&first[..], &numbers.concat()].concat();
        Ipv6::new(from, to, Protocol::UDP).emit(&udp.emit(&data, Ends::new(from, to)))
    }
}

fn frame(packet: &[u8]) -> Vec<u8> {
    let head = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0x10, 0x86, 0xdd];
    [&head[..], packet].concat()
}

/// In a tunnel that a SID of this node decapsulates.
fn in_a_tunnel(packet: &[u8]) -> Vec<u8> {
    Ipv6::new(address("fc0a::9"), address("fc0f::d6"), Protocol::IPV6).emit(packet)
}

/// Name, packet, verdict, and the session that it answers with the state.
type Case = (&'static str, Vec<u8>, &'static str, Option<(u32, u64)>);

fn cases() -> Vec<Case> {
    let taken = |name, packet, session, state| {
        let answered = Some((session, state));
        (name, packet, "drop probe_answer", answered)
    };
    let refused = |name, answer: Answer| (name, answer.packet(), "drop bfd", None);
    let left = |name, answer: Answer| (name, answer.packet(), "kernel local", None);
    let tunnel = |answer: Answer| in_a_tunnel(&answer.packet());
    vec![
        taken("an answer", ANSWER.packet(), SBFD, 3),
        taken("in a tunnel", tunnel(ANSWER), SBFD, 3),
        taken("AdminDown", ANSWER.state(0).packet(), SBFD, 0),
        taken("with Final", ANSWER.state(0xd0).packet(), SBFD, 3),
        taken("from elsewhere", ANSWER.from("fc0a::c").packet(), SBFD, 3),
        taken("a loop", BACK.packet(), LOOPBACK, 3),
        taken("a loop in a tunnel", tunnel(BACK), LOOPBACK, 3),
        refused("state Down", ANSWER.state(0x40)),
        refused("state Init", ANSWER.state(0x80)),
        refused("Demand, as a probe", ANSWER.state(0xc2)),
        refused("another reflector", ANSWER.between(1002, OF_SBFD)),
        refused("another port", ANSWER.ports([7785, 3785])),
        refused("version 0", ANSWER.first(0, 24)),
        refused("too long", ANSWER.first(0x20, 25)),
        refused("S-BFD to a loop", ANSWER.between(REMOTE, OF_LOOPBACK)),
        refused("a loop of another node", BACK.from("fc0a::b")),
        refused("a loop to S-BFD", BACK.between(OF_LOOPBACK, OF_SBFD)),
        left("no session", ANSWER.between(REMOTE, 7)),
        left("neither port", ANSWER.ports([1, 2])),
    ]
}

/// Runs the cases, backups and links on a target.
trait Bench {
    fn run(&mut self, frame: &[u8]) -> String;
    fn session(&mut self, index: u32) -> sidestep_session;
    fn set(&mut self, index: u32, session: &sidestep_session);
    /// Lets exactly these links be down.
    fn down(&mut self, links: &[u32]);
}

/// Returns the ports by which 32 flows to a network leave.
fn ports_of(bench: &mut impl Bench, network: &str) -> String {
    let to = address(&format!("{network}::1"));
    let mut ports = BTreeSet::new();
    for flow in 1..=32 {
        let packet = Ipv6 {
            flow_label: flow,
            ..Ipv6::new(address("fc00::1"), to, Protocol::NO_NEXT_HEADER)
        };
        let found = bench.run(&frame(&packet.emit(b"")));
        let port = found.strip_prefix("forward ").unwrap_or(&found);
        let end = port.find(" 02").unwrap_or(port.len());
        ports.insert(port[..end].to_owned());
    }
    ports.into_iter().collect::<Vec<_>>().join(" ")
}

/// Routes with other ways, and one without.
const NETWORKS: [&str; 5] = [
    "2001:db8:1",
    "2001:db8:2",
    "2001:db8:3",
    "2001:db8:4",
    "2001:db8:5",
];

/// Networks behind protected next hops: by a list, by another next hop, and a list by a list.
const PROTECTED: [&str; 3] = ["2001:db8:6", "2001:db8:7", "2001:db8:8"];

/// Compares what leaves by the backups of next hops.
fn judge_protections(place: &str, bench: &mut impl Bench) {
    let from = address("fc00::1");
    for network in PROTECTED {
        assert_eq!(ports_of(bench, network), "eth1", "{place}, {network}");
    }
    bench.down(&[2]);
    let to = PROTECTED.map(|network| address(&format!("{network}::1")));
    let found = to.map(|to| {
        let packet = Ipv6::new(from, to, Protocol::NO_NEXT_HEADER).emit(b"");
        let found = bench.run(&frame(&packet));
        let sent = found.strip_prefix("forward eth2 ").unwrap_or(&found);
        // Destination, payload length and hop limit of each header.
        let bytes: Vec<u8> = (0..sent.len() / 2)
            .map_while(|at| u8::from_str_radix(&sent[2 * at..2 * at + 2], 16).ok())
            .collect();
        let mut headers = vec![];
        let mut rest = bytes.get(14..).unwrap_or_default();
        while let Some(head) = rest.first_chunk::<40>() {
            let to: [u8; 16] = head[24..].try_into().expect("sixteen bytes");
            headers.push(format!("{} {}", Ipv6Addr::from(to), head[7]));
            let srh = if head[6] == 43 {
                8 + 8 * usize::from(rest[41])
            } else {
                0
            };
            rest = &rest[40 + srh..];
        }
        headers.join(", ")
    });
    let expected = [
        "fc0b::6 64, 2001:db8:6::1 63",
        "2001:db8:7::1 63",
        "fc0b::6 64, fc0c::1 63, 2001:db8:8::1 63",
    ];
    assert_eq!(found, expected, "{place}");
    bench.down(&[]);
}

/// Compares the ports of each network while these links are down.
fn judge_links(place: &str, bench: &mut impl Bench) {
    let (both, one) = (
        ["eth1", "eth1 eth2", "eth1", "eth1 eth2", "eth1"],
        ["eth1"; 5],
    );
    let mut other = ["eth2"; 5];
    // Without another way, the packet path decides as for any next hop.
    other[4] = "eth1";
    for (down, expected) in [
        (&[][..], both),
        (&[2][..], other),
        (&[][..], both),
        (&[3][..], one),
    ] {
        bench.down(down);
        let found = NETWORKS.map(|network| ports_of(bench, network));
        assert_eq!(found, expected, "{place}, {down:?}");
    }
    bench.down(&[]);
}

fn judge(place: &str, bench: &mut impl Bench) {
    for (name, packet, verdict, answered) in cases() {
        for (index, session) in sessions() {
            bench.set(index.0, &session);
        }
        let place = format!("{place}, {name}");
        assert_eq!(bench.run(&frame(&packet)), verdict, "{place}");
        for (index, before) in sessions() {
            let found = bench.session(index.0);
            let state = answered.filter(|(of, _)| *of == index.0);
            assert_eq!(found.answers, u64::from(state.is_some()), "{place}");
            assert_eq!(found.answered != 0, state.is_some(), "{place}");
            let state = state.map_or(0, |(_, state)| state);
            assert_eq!(found.answered & 3, state, "{place}");
            let fields = |it: &sidestep_session| (it.discriminator, it.remote, it.down);
            assert_eq!(fields(&found), fields(&before), "{place}");
        }
    }
    judge_links(place, bench);
    judge_protections(place, bench);
    let (from, to) = (address("fc00::1"), address("2001:db8::1"));
    let packet = Ipv6::new(from, to, Protocol::NO_NEXT_HEADER).emit(b"");
    for (down, port) in [(0, "eth1"), (1, "eth2"), (0, "eth1")] {
        let session = sidestep_session {
            down,
            ..sessions()[0].1
        };
        bench.set(SBFD, &session);
        let found = bench.run(&frame(&packet));
        assert!(
            found.starts_with(&format!("forward {port} ")),
            "{place}: {found}"
        );
    }
}

struct Natively(Node, Native);

impl Bench for Natively {
    fn run(&mut self, frame: &[u8]) -> String {
        // An arrival at time 0 would mean that there is no answer.
        self.1.set_now(1 << 40);
        let verdict = self.1.run(1, frame);
        show(&describe(&self.0, verdict, self.1.frame()))
    }

    fn session(&mut self, index: u32) -> sidestep_session {
        self.1.sessions()[index as usize]
    }

    fn set(&mut self, index: u32, session: &sidestep_session) {
        let mut all = self.1.sessions().to_vec();
        all.resize(LOOPBACK as usize + 1, sidestep_session::default());
        all[index as usize] = *session;
        self.1.set_sessions(all);
    }

    fn down(&mut self, links: &[u32]) {
        let sessions = self.1.sessions().to_vec();
        let mut image = image(&self.0);
        for adjacency in image.adjacencies.values_mut() {
            if links.contains(&adjacency.ifindex) {
                adjacency.flags |= SIDESTEP_ADJACENCY_DOWN as u16;
            }
        }
        self.1 = Native::new(&image);
        self.1.set_sessions(sessions);
    }
}

struct InTheKernel(Node, TestRuns);

impl Bench for InTheKernel {
    fn run(&mut self, frame: &[u8]) -> String {
        let (verdict, frame) = self.1.run(frame).expect("a test run takes it");
        show(&describe(&self.0, verdict, &frame))
    }

    fn session(&mut self, index: u32) -> sidestep_session {
        let all = self.1.kernel().sessions();
        let found = all.into_iter().find(|(found, _)| found.0 == index);
        found.expect("a session").1
    }

    fn set(&mut self, index: u32, session: &sidestep_session) {
        self.1.kernel().create_session(SessionId(index), session);
    }

    fn down(&mut self, links: &[u32]) {
        let image = image(&self.0);
        let kernel = self.1.kernel();
        kernel.resume(&image, image.adjacencies.keys().copied(), []);
        for &link in links {
            kernel.take_down(link);
        }
    }
}

fn image(node: &Node) -> Image {
    compile(node).image
}

#[test]
fn only_answers_of_both_discriminators_count_and_a_dead_list_has_its_backup() {
    let node = node();
    let native = Native::new(&image(&node));
    judge("native", &mut Natively(node, native));
}

#[test]
fn the_kernel_targets_take_the_same_answers_and_backups() {
    if !root_or_skip() {
        return;
    }
    for target in [Target::Xdp, Target::Tc] {
        let node = node();
        let mut runs = TestRuns::load("sessions", target);
        runs.enter(&image(&node), 1);
        judge(target.name(), &mut InTheKernel(node, runs));
    }
}
