//! The sample client of the SR policy API: policies and steered routes of a BGP peer, with traffic.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::process::{Child, Stdio};

use crate::policy::Bench;
use crate::support::{PATIENCE, begin, eventually, printed};

const CLIENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/examples/bgp_sr_policy.py"
);
/// AFI 2 with the SAFIs of unicast and SR Policy.
const UNICAST: [u8; 3] = [0, 2, 1];
const SR_POLICY: [u8; 3] = [0, 2, 73];
/// Path attributes.
const MP_REACH_NLRI: u8 = 14;
const MP_UNREACH_NLRI: u8 = 15;
const EXTENDED_COMMUNITIES: u8 = 16;
const TUNNEL_ENCAPSULATION: u8 = 23;

/// The client and its BGP session.
struct Session {
    client: Child,
    peer: TcpStream,
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

impl Session {
    fn establish(bench: &Bench) -> Self {
        let router = bench.star.router();
        bench.star.ip().run("link set dev lo up");
        let listener = router.run(|| TcpListener::bind("127.0.0.1:179"));
        let listener = listener.expect("the namespace").expect("a free port");
        let client = router
            .command("/usr/bin/python3")
            .args([CLIENT, "127.0.0.1", "65000", "192.0.2.254"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the client starts");
        let (peer, _) = listener.accept().expect("the client connects");
        peer.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut session = Self { client, peer };
        assert_eq!(session.read(), 1, "OPEN");
        // Version, AS 65001, hold time, BGP identifier, no capabilities.
        session.send(1, &[4, 0xfd, 0xe9, 0, 90, 192, 0, 2, 1, 0]);
        assert_eq!(session.read(), 4, "KEEPALIVE");
        session.send(4, &[]);
        assert_eq!(session.read(), 4, "KEEPALIVE");
        session
    }

    /// Reads a message and returns its type.
    fn read(&mut self) -> u8 {
        let mut header = [0; 19];
        self.peer.read_exact(&mut header).expect("a message");
        let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
        let mut body = vec![0; length - header.len()];
        self.peer.read_exact(&mut body).expect("a message");
        header[18]
    }

    fn send(&mut self, kind: u8, body: &[u8]) {
        let length = (body.len() as u16 + 19).to_be_bytes();
        let message = [&[0xff; 16], &length[..], &[kind], body].concat();
        self.peer.write_all(&message).expect("the session is up");
    }

    fn update(&mut self, attributes: &[Vec<u8>]) {
        let attributes = attributes.concat();
        let length = (attributes.len() as u16).to_be_bytes();
        self.send(2, &[&[0, 0], &length[..], &attributes].concat());
    }

    /// Announces a policy through host `b`, and a prefix with its color.
    fn announce(&mut self) {
        let list = [&[13, 18, 0, 0], &address("fc00:b::2")[..]].concat();
        let list = [&[128, 0, list.len() as u8 + 1, 0], &list[..]].concat();
        let tunnel = [&[0, 15, 0, list.len() as u8], &list[..]].concat();
        let next_hop = [&[16], &address("fc00:c::2")[..], &[0]].concat();
        self.update(&[
            attribute(MP_REACH_NLRI, &[&SR_POLICY, &next_hop[..], &policy()]),
            attribute(TUNNEL_ENCAPSULATION, &[&tunnel]),
        ]);
        self.update(&[
            attribute(MP_REACH_NLRI, &[&UNICAST, &next_hop[..], &prefix()]),
            attribute(EXTENDED_COMMUNITIES, &[&[3, 0x0b, 0, 0, 0, 0, 0, 100]]),
        ]);
    }
}

fn address(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().expect("an address").octets()
}

fn attribute(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    let length = (value.len() as u16).to_be_bytes();
    [&[0x90, kind], &length[..], &value].concat()
}

/// NLRI of an SR policy: distinguisher 7, color 100 (RFC 9830 2.1).
fn policy() -> Vec<u8> {
    let numbers = [192, 0, 0, 0, 7, 0, 0, 0, 100];
    [&numbers, &address("fc00:c::2")[..]].concat()
}

fn prefix() -> Vec<u8> {
    [&[48], &address("2001:db8:e::")[..6]].concat()
}

#[test]
fn policies_and_colors_of_a_bgp_feed_steer_packets() {
    let Some(_turn) = begin() else {
        return;
    };
    let bench = Bench::new("livepolicybgp");
    let line = "route add 2001:db8:e::/48 via fc00:a::2 dev eth0";
    bench.star.ip().run(line);
    let _daemon = bench.star.run(&["--mode", "tc", "eth0", "eth1", "eth2"]);
    let arrive = |host: &'static str, why: &str| {
        eventually(why, || bench.all_by(0, host).then_some(()));
    };
    let mut session = Session::establish(&bench);
    arrive("a", "no route has a color yet");
    session.announce();
    arrive("b", "the policy of the feed");
    let shown = printed(bench.star.router(), &["policy", "show"]);
    let path = "preference 100 bgp AS 65001 192.0.2.1 discriminator 7: active";
    assert!(shown.contains(path), "{shown}");

    session.update(&[attribute(MP_UNREACH_NLRI, &[&SR_POLICY, &policy()])]);
    arrive("a", "the policy is withdrawn, and the route stays");
    session.announce();
    arrive("b", "the policy is announced again");
    session.update(&[attribute(MP_UNREACH_NLRI, &[&UNICAST, &prefix()])]);
    arrive("a", "the prefix is withdrawn");
    session.announce();
    arrive("b", "the prefix is announced again");
    let ended = session.peer.shutdown(std::net::Shutdown::Both);
    ended.expect("the session was up");
    arrive("a", "the session has ended");
    eventually("the policy is withdrawn", || {
        let shown = printed(bench.star.router(), &["policy", "show"]);
        (shown.trim() == "none").then_some(())
    });
}
