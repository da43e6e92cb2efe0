//! Other names of interfaces (`ip link property add … altname`), as the kernel reports them.

use std::net::IpAddr;
use std::time::Duration;

use crate::support::frames::{ethernet, udp};
use crate::support::ip::Ip;
use crate::support::{ROUTER, Star, begin, counters};

/// Time limit for a packet through a router on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);
/// A name that is longer than an interface's own may be.
const LONG: &str = "enp0s5-with-more-than-15-bytes";

fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    star.ip().all([
        "link property add dev eth0 altname enp0s5",
        &format!("link property add dev eth1 altname {LONG}"),
    ]);
    star
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
    let daemon = star.run(&["--mode", "tc", "enp0s5", LONG, "eth2"]);
    assert!(
        daemon.began.contains("eth0 (tc), eth1 (tc)"),
        "{}",
        daemon.began
    );
    assert!(leaves_by_c(), "Sidestep");
    assert_eq!(counters(router, "eth0").punted, 0);
}
