//! A router in namespaces, the tables it needs, and frames for it. Everything is removed when
//! dropped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sidestep_datapath::abi::{
    SIDESTEP_ADJACENCY_VALID, SIDESTEP_ADJACENCY_XDP, SIDESTEP_PORT_FORWARD6, SIDESTEP_PORT_SEG6,
    SIDESTEP_ROUTE_END, SIDESTEP_ROUTE_END_DX6, SIDESTEP_ROUTE_FORWARD, SIDESTEP_ROUTE_HEADEND,
    sidestep_adjacency, sidestep_policy, sidestep_port, sidestep_route,
};
use sidestep_datapath::kernel::{Kernel, KernelError};
use sidestep_datapath::{AdjacencyId, CounterId, FibKey, Image, Limits, PolicyId, RouteId, ViewId};
use sidestep_testkit::Lab;

/// Small tables: quick to make.
pub const LIMITS: Limits = Limits {
    fib: 64,
    routes: 16,
    groups: 4,
    adjacencies: 8,
    policies: 4,
    route_counters: 16,
};

/// MAC of the port.
pub const PORT: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// MAC of the egress interface.
pub const EGRESS: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// MAC of the next hop.
pub const NEIGHBOR: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
/// The SID of the End behavior.
pub const SID: [u8; 16] = *b"\xfc\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\x01";
/// Somewhere behind the next hop.
pub const FAR: [u8; 16] = *b"\xfc\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\x09";

/// A router `r` with `eth0` to `a` and `eth1` to `b`, and a pin root of its own.
pub struct Router {
    pub lab: Lab,
    pin_root: PathBuf,
}

impl Router {
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut lab = Lab::new(name).expect("lab");
        for node in ["a", "r", "b"] {
            lab.node(node).expect("node");
        }
        lab.link("a", "eth0", "r", "eth0").expect("link");
        lab.link("r", "eth1", "b", "eth0").expect("link");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let pin_root = format!("/sys/fs/bpf/sidestep-test-{}-{number}", std::process::id()).into();
        Self { lab, pin_root }
    }

    pub fn pin_root(&self) -> &Path {
        &self.pin_root
    }

    /// Runs the test's body in the router's namespace.
    pub fn run(&self, body: impl FnOnce() + Send) {
        let namespace = self.lab.namespace("r").expect("r");
        namespace.run(body).expect("enter the router's namespace");
    }

    pub fn load(&self) -> Kernel {
        Kernel::load(LIMITS, &self.pin_root).expect("load")
    }

    pub fn ifindex(&self, ifname: &str) -> u32 {
        let namespace = self.lab.namespace("r").expect("r");
        namespace.ifindex(ifname).expect("interface")
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let pin_root = self.pin_root.clone();
        if let Ok(namespace) = self.lab.namespace("r") {
            let removed: Result<_, KernelError> = match namespace.run(|| Kernel::remove(&pin_root))
            {
                Ok(removed) => removed,
                Err(error) => panic!("{error}"),
            };
            if !std::thread::panicking() {
                removed.expect("remove the pins");
                assert!(!pin_root.exists(), "{} is left behind", pin_root.display());
            }
        }
    }
}

/// Everything but headends: port, next hop, a route to [`FAR`] and the SID.
pub fn image(ingress: u32, egress: u32) -> Image {
    let mut image = Image::default();
    image.ports.insert(
        ingress,
        sidestep_port {
            ifindex: ingress,
            flags: SIDESTEP_PORT_SEG6 | SIDESTEP_PORT_FORWARD6,
            view6: ViewId(1),
            view4: ViewId(2),
            mac: PORT,
            ..Default::default()
        },
    );
    image.adjacencies.insert(AdjacencyId(1), adjacency(egress));
    image
        .routes
        .insert(RouteId(1), route(SIDESTEP_ROUTE_FORWARD, 1));
    image
        .routes
        .insert(RouteId(2), route(SIDESTEP_ROUTE_END, 2));
    image
        .routes
        .insert(RouteId(3), route(SIDESTEP_ROUTE_END_DX6, 3));
    image.fib.insert(prefix(&FAR, 16), RouteId(1));
    image.fib.insert(prefix(&SID, 128), RouteId(2));
    image.fib.insert(prefix(&sid(6), 128), RouteId(3));
    image
}

/// [`image`] and a headend: H.Encaps towards [`FAR`] for `fd00::/8`.
pub fn image_with_headend(ingress: u32, egress: u32) -> Image {
    let mut image = image(ingress, egress);
    let mut header = [0; 328];
    header[0] = 0x60;
    header[6] = 43;
    header[7] = 64;
    header[8..24].copy_from_slice(&sid(0));
    header[24..40].copy_from_slice(&FAR);
    header[40..48].copy_from_slice(&[41, 2, 4, 0, 0, 0, 0, 0]);
    header[48..64].copy_from_slice(&FAR);
    let mut policy = sidestep_policy {
        length: 64,
        kind: 1,
        adjacency: AdjacencyId(1),
        first: FAR,
        ..Default::default()
    };
    let room = policy.header.len();
    policy.header.copy_from_slice(&header[..room]);
    image.policies.insert(PolicyId(1), policy);
    let headend = sidestep_route {
        policy: 1,
        ..route(SIDESTEP_ROUTE_HEADEND, 4)
    };
    image.routes.insert(RouteId(4), headend);
    image.fib.insert(prefix(&[0xfd; 16], 8), RouteId(4));
    image
}

pub fn adjacency(egress: u32) -> sidestep_adjacency {
    sidestep_adjacency {
        destination: NEIGHBOR,
        flags: (SIDESTEP_ADJACENCY_VALID | SIDESTEP_ADJACENCY_XDP) as u16,
        source: EGRESS,
        ifindex: egress,
        mtu: 1500,
        ..Default::default()
    }
}

pub fn route(action: u32, counter: u32) -> sidestep_route {
    sidestep_route {
        action: action as u8,
        counter: CounterId(counter),
        adjacency: AdjacencyId(1),
        ..Default::default()
    }
}

/// A prefix of view 1.
pub fn prefix(address: &[u8; 16], length: u8) -> FibKey {
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    FibKey {
        view: ViewId(1),
        address: (u128::from_be_bytes(*address) & mask).to_be_bytes(),
        length,
    }
}

/// The node's SID of that number.
pub fn sid(number: u8) -> [u8; 16] {
    let mut sid = SID;
    sid[15] = number;
    sid
}

/// An IPv6 packet with that next header and payload, hop limit 64, to the port.
pub fn ipv6(destination: &[u8; 16], next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::from(PORT);
    frame.extend([2, 0, 0, 0, 0, 0x99, 0x86, 0xdd]);
    frame.extend(ip(destination, next_header, payload));
    frame
}

fn ip(destination: &[u8; 16], next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    packet.extend(*b"\xfc\x0b\0\0\0\0\0\0\0\0\0\0\0\0\0\x05");
    packet.extend(destination);
    packet.extend(payload);
    packet
}

/// UDP with 8 bytes of header and 8 of payload; the tests ignore its checksum.
pub const UDP: [u8; 16] = *b"\x04\xd2\x16\x2e\x00\x10\x12\x34sidestep";

/// To [`FAR`], without SRv6.
pub fn plain() -> Vec<u8> {
    ipv6(&FAR, 17, &UDP)
}

/// To the SID, with one more segment: [`FAR`].
pub fn to_end() -> Vec<u8> {
    let mut payload = vec![17, 4, 4, 1, 1, 0, 0, 0];
    payload.extend(FAR);
    payload.extend(SID);
    payload.extend(UDP);
    ipv6(&SID, 43, &payload)
}

/// To the SID of End.DX6, without an SRH.
pub fn to_end_dx6() -> Vec<u8> {
    ipv6(&sid(6), 41, &ip(&FAR, 17, &UDP))
}

/// Result for [`plain`], and for [`to_end`] with the other fields: other MACs, hop limit 63.
pub fn forwarded(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&NEIGHBOR);
    frame[6..12].copy_from_slice(&EGRESS);
    frame[21] = 63;
    frame
}

/// Result for [`to_end`].
pub fn ended() -> Vec<u8> {
    let mut frame = forwarded(&to_end());
    frame[38..54].copy_from_slice(&FAR);
    frame[57] = 0;
    frame
}

/// The tables hold that image, whoever wrote it: its records, and for every address the routes of
/// its prefixes.
pub fn assert_holds(kernel: &Kernel, image: &Image) {
    let records = |image: Image| Image {
        fib: BTreeMap::new(),
        ..image
    };
    assert_eq!(records(kernel.image()), records(image.clone()));
    for view in image.views().into_keys() {
        assert_eq!(kernel.intervals(view), image.intervals(view), "view {view}");
    }
}
