//! Traffic from one host through the router to another, as fast as one CPU can send. Every packet
//! is counted.

use std::collections::BTreeMap;

use sidestep_testkit::traffic::{Flows, Generator, Tally, Template};

use super::frames::{ETHERNET, ethernet, udp};
use super::{HOSTS, PORTS, ROUTER, Star, queue_counter, reasons};

/// Destinations that share the upper byte of their number.
pub const BLOCK: u32 = 256;

/// Returns the prefix of one destination for changes by netlink: `fc0d:NUMBER::/32`. Its packets go
/// to `fc0d:NUMBER::1`.
pub fn prefix(number: u32) -> (std::net::Ipv6Addr, u8) {
    ([0xfc0d, number as u16, 0, 0, 0, 0, 0, 0].into(), 32)
}

/// Returns the prefix of a block's destinations, as an argument of `ip`.
pub fn block(number: u8) -> String {
    format!("fc0d:{number:x}00::/24")
}

/// Attaches a counter at a host. Create it before the daemon starts, because Sidestep redirects XDP
/// frames only to a veth that accepts them.
pub fn tally(star: &Star, host: &str) -> Tally {
    Tally::attach(star.host(host), "eth0", KIND).expect("a tally")
}

/// A generator at one host, and a counter at another.
#[derive(Debug)]
pub struct Flood<'a> {
    star: &'a Star,
    from: &'static str,
    destinations: u32,
    tally: &'a Tally,
    generator: Generator,
    spilled: u64,
    kinds: BTreeMap<[u8; 2], u64>,
}

/// Result of a [`Flood`].
#[derive(Debug)]
pub struct Arrived {
    /// Sent packets; the destinations take turns.
    pub sent: u64,
    destinations: u32,
    /// Packets that did not fit the ring of a veth, before or after the router.
    pub spilled: u64,
    /// Packets that the router has punted or dropped since its start: verdict, reason, count.
    pub not_forwarded: Vec<(String, String, u64)>,
    /// By block and the last byte of the destination MAC address; a wrapped packet's block is the
    /// third byte of the first segment. Packets of the router itself are included.
    pub kinds: BTreeMap<[u8; 2], u64>,
}

impl<'a> Flood<'a> {
    /// Starts sending from one host to this number of destinations in turn. Their packets leave for
    /// the host of `tally`.
    pub fn start(star: &'a Star, from: &'static str, tally: &'a Tally, destinations: u32) -> Self {
        let (first, _) = prefix(0);
        let source = format!("fc00:{from}::2").parse().expect("an address");
        let to_first = std::net::Ipv6Addr::from(u128::from(first) | 1).into();
        let packet = udp(source, to_first, 64, b"one of very many");
        let frame = ethernet(
            star.mac(ROUTER, port_of(from)),
            star.mac(from, "eth0"),
            &packet,
        );
        let flows = Flows {
            count: destinations,
            offset: ETHERNET + 24 + 2,
            checksum: Some(ETHERNET + 40 + 6),
        };
        let template = Template::new(&frame, flows).expect("a template");
        let (spilled, kinds) = (spilled(star, from), tally.count().expect("counts"));
        let generator =
            Generator::start(star.host(from), "eth0", &template, 0).expect("a generator");
        Self {
            star,
            from,
            destinations,
            tally,
            generator,
            spilled,
            kinds,
        }
    }

    /// Stops sending.
    pub fn stop(self) -> Arrived {
        let sent = self.generator.stop().expect("it was running");
        let mut kinds = self.tally.count().expect("counts");
        // Wait for packets in flight.
        loop {
            let later = self.tally.count().expect("counts");
            if later == kinds {
                break;
            }
            kinds = later;
        }
        for (kind, before) in self.kinds {
            *kinds.entry(kind).or_default() -= before;
        }
        Arrived {
            sent,
            destinations: self.destinations,
            spilled: spilled(self.star, self.from) - self.spilled,
            not_forwarded: reasons(self.star.router()),
            kinds,
        }
    }
}

impl Arrived {
    /// Asserts that nothing was lost: each packet has arrived by one of the next hops that
    /// `of_block` returns for its block, unless it did not fit a ring. Returns the number of
    /// packets that did not arrive by the first of them.
    pub fn assert_none_lost(&self, of_block: impl Fn(u8) -> Vec<[u8; 2]>) -> u64 {
        assert_eq!(self.not_forwarded, [], "all by itself");
        let blocks = self.destinations.div_ceil(BLOCK) as u8;
        let (mut arrived, mut by_others) = (0, 0);
        for block in 0..blocks {
            let kinds = of_block(block);
            let count = |kind| self.kinds.get(kind).copied().unwrap_or(0);
            let counts: Vec<u64> = kinds.iter().map(count).collect();
            let (sent, found) = (self.sent_to(block), counts.iter().sum::<u64>());
            assert!(
                found == sent || self.spilled > 0 && found < sent,
                "block {block}: {sent} sent; by next hops {kinds:x?} {counts:?}"
            );
            arrived += found;
            by_others += found - counts[0];
        }
        assert_eq!(arrived + self.spilled, self.sent, "all of them");
        by_others
    }

    fn sent_to(&self, block: u8) -> u64 {
        let first = u32::from(block) * BLOCK;
        let destinations = u64::from(BLOCK.min(self.destinations - first));
        let (rounds, rest) = (
            self.sent / u64::from(self.destinations),
            self.sent % u64::from(self.destinations),
        );
        rounds * destinations + rest.saturating_sub(first.into()).min(destinations)
    }
}

/// Returns the third byte of the destination address, which is the block, and the last byte of the
/// MAC address.
const KIND: [u8; 2] = [(ETHERNET + 24 + 2) as u8, 5];

/// Returns the redirected frames that did not fit the ring of a veth's peer, before or after the
/// router.
fn spilled(star: &Star, from: &str) -> u64 {
    let router = PORTS.map(|port| (star.router(), port));
    let devices = [(star.host(from), "eth0")].into_iter().chain(router);
    let of_device = |(namespace, device)| queue_counter(namespace, device, "tx", "xdp_xmit_errors");
    devices.map(of_device).sum()
}

/// Returns the router's port to a host.
fn port_of(host: &str) -> &'static str {
    let place = HOSTS.iter().position(|it| *it == host);
    PORTS[place.expect("a host")]
}
