//! Ether devices: frames of any kind between two sites, and how devices are created, followed and
//! removed.

use std::time::Duration;

use nix::sys::signal::Signal;
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::lab::mac_text;
use sidestep_testkit::{Lab, LinkEnd, Namespace};

use crate::support::hosts::transfer;
use crate::support::ip::Ip;
use crate::support::node_file::NodeFile;
use crate::support::{Daemon, begin, eventually, left, output, printed, report, text_of};

pub const SECOND: Duration = Duration::from_secs(1);
/// MTU of the core. It leaves 9,418 bytes to the frames of a device.
const CORE_MTU: u32 = 9500;
pub const SITES: [&str; 2] = ["1", "2"];

/// Host `h1` - pe1 - p - pe2 - host `h2`. Each edge has a bridge with the port `cust` to its host.
/// Sidestep runs at the edges; `p` is Linux.
pub struct Sites {
    pub lab: Lab,
}

impl Sites {
    pub fn new(topic: &str) -> Self {
        let mut lab = Lab::new(topic).expect("a lab");
        for node in ["h1", "pe1", "p", "pe2", "h2"] {
            lab.node(node).expect("a namespace");
        }
        for router in ["pe1", "p", "pe2"] {
            // Solicitations without a packet come from the link-local address.
            lab.namespace(router)
                .and_then(|router| router.sysctl("net/ipv6/conf/default/addr_gen_mode", "0"))
                .expect("link-local addresses");
        }
        for host in ["h1", "h2"] {
            let silent = "net/ipv6/conf/default/disable_ipv6";
            let host = lab.namespace(host).expect("a host");
            host.sysctl(silent, "1").expect("a sysctl");
        }
        for (node, ifname, peer, peer_ifname) in [
            ("h1", "eth0", "pe1", "cust"),
            ("pe1", "core", "p", "left"),
            ("p", "right", "pe2", "core"),
            ("pe2", "cust", "h2", "eth0"),
        ] {
            let end = |node, ifname| LinkEnd {
                node,
                ifname,
                mac: None,
            };
            lab.link_with([end(node, ifname), end(peer, peer_ifname)], CORE_MTU, 1)
                .expect("a cable");
        }
        let sites = Self { lab };
        for router in ["pe1", "p", "pe2"] {
            left::remove(sites.node(router));
            let forwarding = "net/ipv6/conf/all/forwarding";
            sites
                .node(router)
                .sysctl(forwarding, "1")
                .expect("a sysctl");
        }
        let lines = |lines: &str| lines.lines().map(str::trim).map(str::to_owned).collect();
        let core: Vec<String> = lines(
            "address add fc00:12::2/64 dev left
             address add fc00:23::2/64 dev right
             route add fc00:1::/32 via fc00:12::1
             route add fc00:2::/32 via fc00:23::1",
        );
        Ip::new(sites.node("p")).all(core.iter().map(String::as_str));
        for (site, link) in SITES.iter().zip(["12", "23"]) {
            let edge: Vec<String> = lines(&format!(
                "address add fc00:{link}::1/64 dev core
                 address add fc00:{site}::1/128 dev lo
                 sr tunsrc set fc00:{site}::1
                 route add default via fc00:{link}::2
                 link add br0 type bridge
                 link set cust master br0
                 link set br0 up"
            ));
            Ip::new(sites.edge(site)).all(edge.iter().map(String::as_str));
        }
        sites
    }

    pub fn node(&self, name: &str) -> &Namespace {
        self.lab.namespace(name).expect("a node")
    }

    pub fn edge(&self, site: &str) -> &Namespace {
        self.node(&format!("pe{site}"))
    }

    /// Starts Sidestep at an edge, with its device `lan0` in the bridge.
    fn start(&self, site: &str) -> Daemon {
        self.start_with(site, &["core"])
    }

    /// Starts Sidestep with these arguments, likewise.
    pub fn start_with(&self, site: &str, arguments: &[&str]) -> Daemon {
        let edge = self.edge(site);
        let daemon = Daemon::start(edge, arguments);
        let other = if site == "1" { "2" } else { "1" };
        let list = format!("fc00:{other}::d2");
        printed(edge, &["ether", "add", "lan0", "segs", &list]);
        Ip::new(edge).all(["link set lan0 master br0 up"]);
        let sid = format!(
            "route add fc00:{site}::d2/128 encap seg6local action End.DT2U l2dev lan0 dev core"
        );
        printed(edge, &sid.split(' ').collect::<Vec<_>>());
        daemon
    }

    /// Waits until frames cross in both directions.
    pub fn joined(&self) {
        for site in SITES {
            eventually("a carrier", || device(self.edge(site)).up.then_some(()));
        }
        let [a, b] = ["h1", "h2"].map(|host| self.socket(host));
        let frame = frame(b"\x88\xb5joined", 60);
        for (from, to) in [(&a, &b), (&b, &a)] {
            eventually("a frame of the other site", || {
                from.send(&frame).expect("send");
                to.receive(Duration::from_millis(50)).expect("receive")
            });
        }
        std::thread::sleep(Duration::from_millis(50));
    }

    pub fn socket(&self, host: &str) -> sidestep_testkit::FrameSocket {
        let socket = sidestep_testkit::FrameSocket::open(self.node(host), "eth0");
        let mut socket = socket.expect("a packet socket");
        // The tests send ARP and LLDP.
        socket.keep_noise(true);
        socket
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        for site in SITES {
            left::remove(self.edge(site));
        }
    }
}

/// The device `lan0`.
fn device(edge: &Namespace) -> report::Ether {
    let devices: report::Ethers = report(edge, Request::ShowEthers);
    let found = devices.into_iter().find(|device| device.name == "lan0");
    found.unwrap_or_default()
}

/// A frame between two locally administered addresses: type and payload, padded to this length.
pub fn frame(rest: &[u8], length: usize) -> Vec<u8> {
    let addresses = [[2, 0, 0, 0, 0, 0x99], [2, 0, 0, 0, 0, 0x11]].concat();
    let mut frame = [&addresses[..], rest].concat();
    let pattern = (0..).map(|number: usize| number as u8);
    frame.extend(pattern.take(length.saturating_sub(frame.len())));
    frame
}

pub fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let broadcast = |mut frame: Vec<u8>| {
        frame[..6].fill(0xff);
        frame
    };
    vec![
        ("an unknown type", frame(b"\x88\xb5", 60)),
        (
            "ARP",
            broadcast(frame(b"\x08\x06\x00\x01\x08\x00\x06\x04", 42)),
        ),
        ("an LLC frame", frame(b"\x00\x30\x42\x42\x03", 62)),
        ("a tag", frame(b"\x81\x00\xa0\x2a\x08\x00", 68)),
        ("a priority tag", frame(b"\x81\x00\xa0\x00\x08\x06", 68)),
        ("a service tag", frame(b"\x88\xa8\x00\x64\x88\xb5", 68)),
        (
            "two tags",
            frame(b"\x88\xa8\x00\x64\x81\x00\x00\xc8\x86\xdd", 72),
        ),
        (
            "three tags",
            frame(
                b"\x88\xa8\x00\x64\x81\x00\x00\xc8\x81\x00\x0f\xfe\x08\x00",
                76,
            ),
        ),
        ("a group", {
            let mut frame = frame(b"\x88\xb5", 60);
            frame[..6].copy_from_slice(&[0x01, 0, 0x5e, 0, 0, 9]);
            frame
        }),
        ("a jumbo frame", frame(b"\x88\xb5", 9216)),
        (
            "a jumbo frame with a tag",
            frame(b"\x81\x00\x00\x2a\x88\xb5", 9216),
        ),
    ]
}

#[test]
fn every_frame_crosses_two_bridges_and_a_core_unchanged() {
    let Some(_turn) = begin() else { return };
    let sites = Sites::new("liveether");
    let _daemons = SITES.map(|site| sites.start(site));
    sites.joined();
    let [a, b] = ["h1", "h2"].map(|host| sites.socket(host));
    for (from, to) in [(&a, &b), (&b, &a)] {
        to.drain().expect("receive");
        for (kind, frame) in frames() {
            from.send(&frame).expect("send");
            let found = to.receive(SECOND).expect("receive");
            assert_eq!(found.as_ref(), Some(&frame), "{kind}");
        }
    }
    let sent = device(sites.edge("1")).encapsulated_packets;
    assert!(sent >= frames().len() as u64, "{sent}");
    let table = printed(sites.edge("1"), &["ether", "show", "-s"]);
    assert!(table.contains("lan0 segs fc00:2::d2"), "{table}");
}

#[test]
fn hosts_of_one_lan_find_each_other_and_send_tcp() {
    let Some(_turn) = begin() else { return };
    let sites = Sites::new("liveetherlan");
    let _daemons = SITES.map(|site| sites.start(site));
    sites.joined();
    let hosts = ["h1", "h2"].map(|host| sites.node(host));
    for (host, number) in hosts.iter().zip(SITES) {
        host.sysctl("net/ipv6/conf/eth0/disable_ipv6", "0")
            .expect("a sysctl");
        let address = format!("address add 10.0.0.{number}/24 dev eth0");
        let address6 = format!("address add fd00::{number}/64 dev eth0 nodad");
        // The MTU of the hosts is that of the LAN.
        Ip::new(host).all([&address[..], &address6, "link set eth0 mtu 9000"]);
    }
    for to in ["10.0.0.2", "fd00::2"] {
        let ping = [
            "ping", "-n", "-q", "-c", "3", "-i", "0.05", "-s", "8900", to,
        ];
        let text = hosts[0].exec(&ping).expect("an answer");
        assert!(text.contains("3 received"), "{text}");
        transfer(hosts[0], hosts[1], to.parse().expect("an address"));
    }
    let learned = sites
        .edge("1")
        .exec(&["bridge", "fdb", "show", "dev", "lan0"]);
    let learned = learned.expect("bridge");
    let mac = sites.lab.mac("h2", "eth0").expect("an address");
    let mac = mac_text(mac);
    assert!(learned.contains(&mac), "{learned}");
}

/// Reads a number of an interface: `mtu`, or `operstate` as a word.
fn shown(namespace: &Namespace, name: &str, key: &str) -> Option<String> {
    let text = namespace.exec(&["ip", "-j", "link", "show", name]).ok()?;
    let links: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    Some(links[0][key].to_string())
}

#[test]
fn a_device_follows_its_path_and_ends_with_the_daemon() {
    let Some(_turn) = begin() else { return };
    let sites = Sites::new("liveetherpath");
    let edge = sites.edge("1");
    let daemon = sites.start("1");
    let state = |wanted: &str| {
        eventually(wanted, || {
            let state = shown(edge, "lan0", "operstate")?;
            (state == format!("\"{wanted}\"")).then_some(())
        });
    };
    state("UP");
    assert_eq!(shown(edge, "lan0", "mtu").as_deref(), Some("9418"));
    let mut ip = Ip::new(edge);
    ip.all(["route del default via fc00:12::2"]);
    state("LOWERLAYERDOWN");
    let table = printed(edge, &["ether", "show"]);
    assert!(
        table.contains("no carrier: no route to fc00:2::d2"),
        "{table}"
    );
    let found = printed(edge, &["show", "status"]);
    assert!(found.contains("ether_invalid"), "{found}");
    ip.all(["route add default via fc00:12::2"]);
    state("UP");
    ip.all(["link set core mtu 2000"]);
    eventually("another MTU", || {
        (shown(edge, "lan0", "mtu").as_deref() == Some("1918")).then_some(())
    });
    printed(edge, &["ether", "set", "lan0", "mtu", "1400"]);
    eventually("the MTU as configured", || {
        (shown(edge, "lan0", "mtu").as_deref() == Some("1400")).then_some(())
    });
    let words = device(edge).words;
    assert_eq!(words, "lan0 segs fc00:2::d2 mtu 1400");
    // Another list, while the device stays.
    let index = shown(edge, "lan0", "ifindex");
    printed(edge, &["ether", "set", "lan0", "segs", "fc00:3::d2", "red"]);
    assert_eq!(shown(edge, "lan0", "ifindex"), index);
    assert_eq!(device(edge).words, "lan0 segs fc00:3::d2 red mtu 1400");
    daemon.signal(Signal::SIGTERM);
    daemon.end();
    for name in ["lan0", "s-lan0"] {
        assert_eq!(shown(edge, name, "mtu"), None, "{name}");
    }
}

#[test]
fn a_removed_device_is_forgotten_and_nothing_else() {
    let Some(_turn) = begin() else { return };
    let sites = Sites::new("liveethergone");
    let edge = sites.edge("1");
    let _daemon = sites.start("1");
    let names = || -> Vec<String> {
        let devices: report::Ethers = report(edge, Request::ShowEthers);
        devices.into_iter().map(|device| device.name).collect()
    };
    for name in ["lan1", "lan2"] {
        printed(edge, &["ether", "add", name, "segs", "fc00:2::d1"]);
    }
    assert_eq!(names(), ["lan0", "lan1", "lan2"]);
    Ip::new(edge).all(["link del lan1"]);
    eventually("a forgotten device", || {
        (names() == ["lan0", "lan2"]).then_some(())
    });
    // With the namespace that it was moved to.
    let inside = format!("{}-x", edge.name());
    let netns = |verb: &str| {
        let ip = std::process::Command::new("ip")
            .args(["netns", verb, &inside])
            .status();
        assert!(ip.expect("ip").success());
    };
    netns("add");
    Ip::new(edge).all([&format!("link set lan2 netns {inside}")[..]]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(names(), ["lan0", "lan2"]);
    // No interface of this namespace has the name, and routes may.
    for route in [
        "fc00:1::d3/128 encap seg6local action End.DT2U l2dev lan2 dev core",
        "fc00:1::d4/128 encap seg6local action End.DX2 oif lan2 dev core",
    ] {
        let words = ["route", "add"].into_iter().chain(route.split(' '));
        printed(edge, &words.collect::<Vec<_>>());
    }
    let routes = printed(edge, &["route", "show"]);
    assert!(routes.contains("End.DT2U l2dev lan2 "), "{routes}");
    assert!(routes.contains("End.DX2 oif lan2 "), "{routes}");
    netns("del");
    eventually("a forgotten device", || (names() == ["lan0"]).then_some(()));
    assert!(device(edge).invalid.is_none());
    printed(edge, &["ether", "del", "lan0"]);
    assert_eq!(shown(edge, "s-lan0", "mtu"), None);
    assert_eq!(names(), [""; 0]);
}

#[test]
fn a_device_outlives_a_crash_with_its_bridge_and_what_that_has_learned() {
    let Some(_turn) = begin() else { return };
    let sites = Sites::new("liveethercrash");
    let [first, _second] = SITES.map(|site| sites.start(site));
    sites.joined();
    let edge = sites.edge("1");
    let [a, b] = ["h1", "h2"].map(|host| sites.socket(host));
    let crosses = |what: &str| {
        b.drain().expect("receive");
        let frame = frame(b"\x88\xb5after a crash", 60);
        a.send(&frame).expect("send");
        assert_eq!(b.receive(SECOND).expect("receive"), Some(frame), "{what}");
    };
    let before = shown(edge, "lan0", "ifindex");
    first.signal(Signal::SIGKILL);
    first.end();
    crosses("without a daemon");
    let adopted = Daemon::start(edge, &["core"]);
    assert!(
        adopted.began.contains("took over 2 changes"),
        "{}",
        adopted.began
    );
    crosses("with the next daemon");
    assert_eq!(shown(edge, "lan0", "ifindex"), before);
    let master = shown(edge, "lan0", "master");
    assert_eq!(master.as_deref(), Some("\"br0\""));
    adopted.signal(Signal::SIGKILL);
    adopted.end();
    // A start without it removes it, as does a stop without a daemon.
    printed(edge, &["stop"]);
    assert_eq!(shown(edge, "lan0", "ifindex"), None);
}

#[test]
fn a_node_file_has_devices_and_what_cannot_be_one_is_refused() {
    let Some(_turn) = begin() else { return };
    let sites = Sites::new("liveetherfile");
    let edge = sites.edge("1");
    let text = "ports: [core]
policies: [gold color 1 endpoint fc00:2::1 segs fc00:2::d2]
ethers:
- lan0 policy gold red
- lan1 segs fc00:2::d1 mtu 1500
routes: [fc00:1::d2/128 encap seg6local action End.DT2U l2dev lan0 dev core]
";
    let file = NodeFile::new(text);
    let daemon = Daemon::start(edge, &["--config", file.path().to_str().expect("UTF-8")]);
    eventually("a carrier", || device(edge).invalid.is_none().then_some(()));
    assert_eq!(device(edge).policy.as_deref(), Some("gold"));
    let shown_config = printed(edge, &["config", "show"]);
    assert!(
        shown_config.contains("- lan0 policy gold red"),
        "{shown_config}"
    );
    let refused = |args: &[&str]| {
        let output = output(edge, args);
        assert!(!output.status.success(), "{args:?}");
        text_of(&output)
    };
    for (args, why) in [
        (
            &["ether", "add", "lan0", "segs", "fc00::1"][..],
            "exists already",
        ),
        (
            &["ether", "add", "br0", "segs", "fc00::1"],
            "an interface of this name exists",
        ),
        (
            &["ether", "add", "x", "policy", "silver"],
            "no such policy \"silver\"",
        ),
        (
            &["ether", "add", "x", "segs", "fc00::1", "mtu", "1000"],
            "invalid `mtu`",
        ),
        (
            &["ether", "set", "x", "mtu", "1500"],
            "there is no ether device x",
        ),
        (&["ether", "del", "x"], "expected one of lan0, lan1"),
        (
            &["policy", "del", "gold"],
            "ether device lan0 leads into policy gold",
        ),
        (
            &["ether", "set", "lan0", "segs", "fc00:2::e,fc00:1::d2"],
            "fc00:1::d2 sends frames back into lan0",
        ),
    ] {
        let found = refused(args);
        assert!(found.contains(why), "{args:?}: {found}");
    }
    assert_eq!(shown(edge, "x", "mtu"), None);
    drop(daemon);
    assert_eq!(shown(edge, "lan1", "mtu"), None);
}
