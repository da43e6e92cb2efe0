//! Commands that are refused: the message, and no change.

use crate::api::Request;
use crate::daemon::simulated::{STAR, Simulation};
use crate::report;

#[test]
fn a_route_that_is_wrong_is_refused_with_the_word_at_fault_and_nothing_is_applied() {
    let mut node = Simulation::new();
    node.all(["route add fc0f::46/128 encap seg6local action End.DT46 table 254 dev eth0"]);
    let before: report::Routes = node.report(Request::ShowRoutes { all: true });
    let image = node.instance.tables.kernel.image.clone();
    let keywords = "expected from, table, metric, tos, proto, src, mtu, via, dev, onlink, nhid, \
                    encap, policy, dscp, nexthop or a prefix";
    let not_its_own = "no such route in Sidestep (use `ip route del` for routes of the kernel)";
    let cases = [
        (
            "add fc0f::47/128 encap seg6local action End.DT46 tabel 254 dev eth0",
            format!("word 6: unknown keyword \"tabel\"; {keywords}"),
        ),
        (
            "add fc0f::47/128 encap seg6local action End.DT46 table 254 table 100 dev eth0",
            "word 8: duplicate keyword \"table\"; expected `table` only once".into(),
        ),
        (
            "add fc0f::47/128 encap seg6local action End.DT46 table 254 dev eth0 dev eth1",
            "word 10: duplicate keyword \"dev\"; expected `dev` only once".into(),
        ),
        (
            "add fc0f::47/128 encap seg6local action End.DT46 dev eth0",
            "word 4: End.DT46 requires `table` or `vrftable`; expected table TABLE or vrftable TABLE"
                .into(),
        ),
        (
            "add fc0f::47/128 encap seg6local action End.X dev eth0",
            "word 4: End.X requires `nh6`; expected nh6 IPV6".into(),
        ),
        (
            "add fc0f::47/128 encap seg6local action End.DT46 table 254 dev eth9",
            "word 9: no such interface \"eth9\"; expected one of eth0, eth1, eth2".into(),
        ),
        (
            "add fc0f::47/128 encap seg6local action End.DT64 table 254 dev eth0",
            "word 5: unknown behavior \"End.DT64\"; expected End.DT6 or End.DT4 or End.DT46, perhaps"
                .into(),
        ),
        (
            "add fc0f::/64 encap seg6 mode fast segs fc00::1 dev eth1",
            "word 5: unknown mode \"fast\"; expected encap, encap.red, l2encap, l2encap.red, \
             inline, inline.red"
                .into(),
        ),
        (
            "add fc0f::/64 encap seg6 mode encap dev eth1",
            "word 3: missing `segs` after \"seg6\"; expected segs with 1 to 16 IPv6 addresses, \
             separated by commas"
                .into(),
        ),
        (
            "add fc0f::/64 encap seg6 mode encap segs fc00::1 hmac 0 dev eth1",
            "word 9: invalid `hmac` \"0\"; expected a number from 1 to 4294967295".into(),
        ),
        (
            "add fc0f::1/64 encap seg6local action End dev eth0",
            "word 1: invalid prefix for given prefix length \"fc0f::1/64\"; expected fc0f::/64".into(),
        ),
        (
            "add fc0f::46/128 encap seg6local action End.DT46 table 100 dev eth0",
            "a route with this prefix, table and metric exists already: fc0f::46 encap seg6local \
             action End.DT46 table main dev eth0 metric 1024 (use `replace`)"
                .into(),
        ),
        ("del fc0f::48/128", not_its_own.into()),
        ("del fc00:bb::/32", not_its_own.into()),
    ];
    for (words, message) in cases {
        let found = node.sidestep(&format!("route {words}"));
        assert_eq!(found, Err(message), "{words}");
        let after: report::Routes = node.report(Request::ShowRoutes { all: true });
        assert_eq!(after, before, "{words}");
    }
    assert!(node.instance.tables.kernel.image == image);
}

#[test]
fn entries_of_other_kinds_are_refused_once_they_exist_or_are_gone() {
    let mut node = Simulation::new();
    for (add, again, del, gone) in [
        (
            "vlan add table 10 vid 100 dev eth1",
            "the entry exists already: table 10 vid 100 dev eth1 (use `replace`)",
            "vlan del table 10 vid 100",
            "there is no such entry (see `sidestep vlan show`)",
        ),
        (
            "domain add sid-block fc00:2::/32",
            "the entry exists already: sid-block fc00:2::/32",
            "domain del sid-block fc00:2::/32",
            "there is no such entry (see `sidestep domain show`)",
        ),
        (
            "rule add iif eth0 lookup 100 priority 7",
            "the rule exists already: ",
            "rule del iif eth0 lookup 100 priority 7",
            "no such rule in Sidestep (use `ip rule del` for rules of the kernel)",
        ),
    ] {
        node.all([add]);
        let shown = node.shown();
        let found = node.sidestep(add).expect_err(add);
        assert!(found.starts_with(again), "{found}");
        assert_eq!(node.shown(), shown);
        node.all([del]);
        assert_eq!(node.sidestep(del), Err(gone.into()));
    }
    assert_eq!(node.shown(), "ports:\n- eth0\n- eth1\n");
}

#[test]
fn a_rule_and_its_table_select_the_route_until_they_are_removed() {
    let mut node = Simulation::with(STAR, &["eth0", "eth1", "eth2"], "");
    assert_eq!(node.verdict("fc00:bb::1"), "forward eth1");
    node.all([
        "route add fc00:bb::/32 via fc00:c::2 dev eth2 table 100",
        "rule add iif eth0 lookup 100",
    ]);
    assert_eq!(node.verdict("fc00:bb::1"), "forward eth2");
    node.all(["rule del iif eth0 lookup 100"]);
    assert_eq!(node.verdict("fc00:bb::1"), "forward eth1");
}

#[test]
fn a_route_of_sidestep_that_does_not_fit_is_refused_and_one_of_the_kernel_left_to_it() {
    let text = "ports: [eth0, eth1]\n";
    let mut node = Simulation::with(STAR, &[], text);
    let options = crate::daemon::Options {
        limits: sidestep_datapath::Limits {
            policies: 3,
            ..sidestep_datapath::Limits::default()
        },
        ..node.options()
    };
    let kernel = node.instance.mirror.kernel().clone();
    node = Simulation::start(kernel, options).expect("a start");
    let to = |number: usize| {
        format!("fd00:{number}::/32 encap seg6 mode encap segs fc00:bb::{number} dev eth1")
    };
    node.all([&format!("route add {}", to(1))[..]]);
    node.ip(&format!("route add {}", to(2)));
    let shown = node.shown();
    let found = node
        .sidestep(&format!("route add {}", to(3)))
        .expect_err("no room");
    assert!(found.contains("policies"), "{found}");
    assert_eq!(node.shown(), shown);
    node.ip(&format!("route add {}", to(4)));
    assert_eq!(node.verdict("fd00:4::1").split(' ').next(), Some("punt"));
    assert!(
        node.problems().iter().any(|code| code.contains("full")),
        "{:?}",
        node.problems()
    );
    // Room comes with a grace period after another route has gone.
    node.ip("route del fd00:2::/32");
    node.run(std::time::Duration::from_secs(1));
    assert_eq!(node.verdict("fd00:4::1"), "forward eth1");
}

#[test]
fn a_vlan_table_is_shown_in_order_and_its_entries_are_replaced() {
    let mut node = Simulation::with(STAR, &["eth0", "eth1", "eth2"], "");
    node.all([
        "route add fc0f::d2/128 encap seg6local action End.DX2V vlantable 10 dev eth0",
        "vlan add table 10 vid 100 inner 7 dev eth2",
        "vlan add table 10 vid 100 dev eth1",
        "vlan replace table 10 vid 100 dev eth2",
    ]);
    let shown: report::Vlans = node.report(Request::ShowVlans);
    let expected = [
        "table 10 vid 100 dev eth2",
        "table 10 vid 100 inner 7 dev eth2",
    ];
    assert_eq!(shown, expected);
    node.all(["vlan del table 10 vid 100"]);
    let shown: report::Vlans = node.report(Request::ShowVlans);
    assert_eq!(shown, expected[1..]);
}
