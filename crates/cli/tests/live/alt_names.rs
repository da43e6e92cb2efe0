//! Other names of interfaces (`ip link property add … altname`): each command takes them, and
//! reports have the interface's own name.

use std::net::IpAddr;
use std::time::Duration;

use sidestep_control::api::Request;
use sidestep_control::report;

use crate::support::frames::{ethernet, udp};
use crate::support::ip::Ip;
use crate::support::node_file::NodeFile;
use crate::support::{
    ROUTER, Star, begin, counters, eventually, hex, output, printed, report, text_of,
};

/// Time limit for a packet through a router on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);
/// A name that is longer than an interface's own may be.
const LONG: &str = "enp0s5-with-more-than-15-bytes";

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    star.ip().all([
        "link property add dev eth0 altname enp0s5",
        &format!("link property add dev eth1 altname {LONG}"),
    ]);
    star
}

fn port_names(star: &Star) -> Vec<(String, String)> {
    let ports: report::Ports = report(star.router(), Request::ShowPorts);
    let ports = ports.into_iter();
    ports.map(|port| (port.name, port.target)).collect()
}

#[test]
fn an_altname_is_a_name_in_every_command() {
    let Some(_turn) = begin() else { return };
    let star = star("livealtname");
    let router = star.router();
    let daemon = star.run(&["--mode", "tc", "enp0s5", LONG, "eth0"]);
    assert!(daemon.began.contains("eth0 (tc)"), "{}", daemon.began);
    let both = [("eth0", "tc"), ("eth1", "tc")].map(|(name, target)| (name.into(), target.into()));
    assert_eq!(port_names(&star), both);

    for line in [
        "route add 2001:db8:77::/64 encap seg6 mode encap segs fc00:b::2 dev enp0s5",
        "route add fc00:1::d2/128 encap seg6local action End.DX2 oif enp0s5 dev enp0s5",
        "vlan add table 10 vid 100 dev enp0s5",
        "domain add inside enp0s5",
        "rule add iif enp0s5 table 100",
        "route get fc00:b::2 iif enp0s5",
        "port del enp0s5",
        "port add enp0s5",
    ] {
        printed(router, &words(line));
    }
    let again = output(router, &words("port add enp0s5"));
    assert_eq!(text_of(&again), "sidestep: port enp0s5: exists already");
    assert_eq!(port_names(&star).len(), 2);

    let frame = ethernet(
        star.mac(ROUTER, "eth0"),
        star.mac("a", "eth0"),
        &udp(ip("fc00:a::2"), ip("fc00:b::2"), 64, b"x"),
    );
    let explained = printed(
        router,
        &["explain", "--port", "enp0s5", "--frame", &hex(&frame)],
    );
    assert!(explained.contains("eth0, frame of"), "{explained}");
    let metrics: report::Metrics = report(router, Request::ShowMetrics);
    assert!(metrics.ports.iter().any(|port| port.name == "eth0"));
    assert!(metrics.ports.iter().all(|port| port.name != "enp0s5"));

    let shown = printed(router, &["rule", "show"]);
    assert!(shown.contains("iif eth0"), "{shown}");
    printed(router, &words("rule del iif eth0 table 100"));
    printed(router, &words("domain del inside enp0s5"));
}

#[test]
fn an_altname_in_a_node_file_is_waited_for() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("livealtfile");
    let router = star.router();
    let file = NodeFile::new("ports: [enp0s5, eth1]\n");
    let _daemon = star.run(&["--mode", "tc", "--config", &file.text()]);
    let waiting = [("enp0s5", "none"), ("eth1", "tc")];
    let is = |expected: [(&str, &str); 2]| {
        let expected = expected.map(|(name, target)| (name.to_owned(), target.to_owned()));
        eventually("the ports", || {
            (port_names(&star) == expected).then_some(())
        });
    };
    is(waiting);
    star.ip().all(["link property add dev eth0 altname enp0s5"]);
    is([("eth0", "tc"), ("eth1", "tc")]);
    let difference = output(router, &["config", "diff", &file.text()]);
    assert!(difference.status.success(), "{}", text_of(&difference));
    star.ip().all(["link property del dev eth0 altname enp0s5"]);
    is(waiting);
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn a_rule_of_the_kernel_with_an_altname_selects_the_packets_that_it_selects_in_linux() {
    let Some(_turn) = begin() else { return };
    let star = star("livealtrule");
    let router = star.router();
    star.ip().all([
        "route add 2001:db8:e::/48 via fc00:b::2 dev eth1",
        "route add 2001:db8:e::/48 via fc00:c::2 dev eth2 table 100",
    ]);
    Ip::six(router).all(["rule add pref 100 iif enp0s5 lookup 100"]);
    let (from, b, c) = (star.socket("a"), star.socket("b"), star.socket("c"));
    let packet = udp(ip("fc00:a::2"), ip("2001:db8:e::1"), 64, b"x");
    let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet);
    let leaves_by_c = || {
        from.send(&frame).expect("send");
        let at_c = c.receive(PATIENCE).expect("receive").is_some();
        assert!(b.receive_now().expect("receive").is_none());
        at_c
    };
    assert!(leaves_by_c(), "Linux");
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1", "eth2"]);
    assert!(leaves_by_c(), "Sidestep");
    assert_eq!(counters(router, "eth0").punted, 0);
}
