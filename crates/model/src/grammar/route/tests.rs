use super::*;
use crate::grammar::Style;
use crate::grammar::tests::{ctx, names};

fn add(line: &str) -> String {
    let route = parse_line(line, &ctx()).unwrap_or_else(|error| panic!("{line}: {error}"));
    let text = print(&route, &names(), Style::Add);
    let again = parse_line(&text, &ctx()).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(again, route, "{line}\n{text}");
    text
}

fn error(line: &str) -> String {
    match parse_line(line, &ctx()) {
        Ok(route) => panic!("{line}: accepted as {route:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn routes_are_parsed_and_printed_as_by_ip() {
    for (line, want) in [
        (
            "fc0a::/16 via fc01::1 dev eth1",
            "fc0a::/16 via fc01::1 dev eth1 metric 1024",
        ),
        (
            "fd09::/64 dev eth2 table 100",
            "fd09::/64 dev eth2 table 100 metric 1024",
        ),
        ("fc00::1 dev eth0 metric 0", "fc00::1 dev eth0 metric 1024"),
        (
            "10.1.0.0/16 via 10.0.0.1 dev eth0",
            "10.1.0.0/16 via 10.0.0.1 dev eth0",
        ),
        (
            "to 10.1.0.1 dev eth0 preference 5 proto static",
            "10.1.0.1 dev eth0 proto static metric 5",
        ),
        (
            "default via fe80::1 dev eth0 onlink",
            "default via fe80::1 dev eth0 metric 1024 onlink",
        ),
        ("default dev eth0", "0.0.0.0/0 dev eth0"),
        ("::/0 dev eth0", "::/0 dev eth0 metric 1024"),
        (
            "10.1.0.0/16 via inet6 fe80::1 dev eth0",
            "10.1.0.0/16 via inet6 fe80::1 dev eth0",
        ),
        (
            "10.1.0.0/16 tos 10 dev eth0 mtu 1400",
            "10.1.0.0/16 tos 0x10 dev eth0 mtu 1400",
        ),
        (
            "blackhole fd00::/8 dev lo",
            "blackhole fd00::/8 metric 1024",
        ),
        ("throw 10.0.0.0/8 table 7", "throw 10.0.0.0/8 table 7"),
        (
            "local fc00::1 dev eth0",
            "local fc00::1 dev eth0 metric 1024",
        ),
        (
            "fd00::/64 from fc00::/7 dev eth0 src fc00::2",
            "fd00::/64 from fc00::/7 dev eth0 src fc00::2 metric 1024",
        ),
        ("fd00::/64 nhid 3", "fd00::/64 nhid 3 metric 1024"),
        (
            "fc00::1 encap seg6local action End.DT6 table 100 dev eth0",
            "fc00::1 encap seg6local action End.DT6 table 100 dev eth0 metric 1024",
        ),
        (
            "fc00::1/128 table 9 encap seg6local action End flavors PSP,next-csid nflen 32 count dev eth0",
            "fc00::1 encap seg6local action End count flavors psp,next-csid lblen 32 nflen 32 dev eth0 table 9 metric 1024",
        ),
        (
            "fc00::1 encap seg6local require-hmac action End.X nh6 fc00::9 flavors psp dev eth0",
            "fc00::1 encap seg6local action End.X nh6 fc00::9 require-hmac flavors psp dev eth0 metric 1024",
        ),
        (
            "fc00::1 encap seg6local action End.B6.Encaps srh segs fc00::5,fc00::6 dev eth0",
            "fc00::1 encap seg6local action End.B6.Encaps srh segs fc00::5,fc00::6 dev eth0 metric 1024",
        ),
        (
            "10.2.0.0/16 encap seg6 mode encap.red segs fc00::5,fc00::6 hmac 0x2a tunsrc fc00::9 lookup 7 dev eth0",
            "10.2.0.0/16 encap seg6 mode encap.red tunsrc fc00::9 segs fc00::5,fc00::6 hmac 42 lookup 7 dev eth0",
        ),
        (
            "fd00::/64 nexthop via fc00::5 dev eth0 weight 3 nexthop encap seg6 mode inline segs fc00::7 via fc01::5",
            "fd00::/64 metric 1024 nexthop via fc00::5 dev eth0 weight 3 nexthop encap seg6 mode inline segs fc00::7 via fc01::5 weight 1",
        ),
        (
            "10.2.0.0/16 nexthop via 10.0.0.1 dev eth0 weight 7",
            "10.2.0.0/16 via 10.0.0.1 dev eth0",
        ),
    ] {
        assert_eq!(add(line), want, "{line}");
    }
}

#[test]
fn output_of_ip_route_show_is_parsed_and_printed() {
    for line in [
        "unreachable fd00:11::/64 dev lo table 9 metric 5 pref medium",
        "fd00:14::/64  encap seg6local action End.DX2 oif eth1 dev eth0 table 77 metric 1024 pref medium",
        "fc01::2 dev eth1 proto kernel metric 256 pref medium",
        "fd00:5::/64  encap seg6 mode encap segs 2 [ fc00::9 fc00::8 ] dev eth0 metric 1024 pref medium",
        "fd00:6::/64  encap seg6 mode encap.red segs 1 [ fc00::9 ] hmac 2A dev eth0 metric 1024 mtu 1400 pref medium",
        "fd00:8::/64  encap seg6 mode inline segs 3 [ fc00::9 fc00::8 :: ] dev eth0 metric 1024 pref medium",
        "fd00:a::/64  encap seg6local action End.B6 segs 2 [ fc00::7 :: ] dev eth0 metric 1024 pref medium",
        "fd00:e::/64 from fc00:7::/32  encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0 metric 1024 pref medium",
        "local fc00::2 dev eth0 table local proto kernel metric 0 pref medium",
        "10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.1",
        "broadcast 10.0.0.255 dev eth0 table local proto kernel scope link src 10.0.0.1",
        "10.98.0.0/16 tos 0x10 via 10.0.0.7 dev eth0 onlink",
        "10.11.0.0/16\n\tnexthop via 10.0.0.7 dev eth0 weight 3\n\tnexthop  encap seg6 mode encap segs 1 [ fc00::9 ] dev eth1 weight 1",
    ] {
        let route = parse_line(line, &ctx()).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(print(&route, &names(), Style::Show), line);
    }
}

fn all_refused(cases: &[(&str, &str)]) {
    for (line, want) in cases {
        let found = error(line);
        assert!(
            found.starts_with(want),
            "{line}\nfound {found}\nwant  {want}"
        );
    }
}

#[test]
fn errors_name_the_place_and_what_is_allowed() {
    all_refused(&[
        (
            "",
            "word 1: missing prefix; expected default, an address or a prefix",
        ),
        (
            "fc00::/64",
            "word 2: missing next hop; expected dev DEV, via ADDRESS or nhid NUMBER",
        ),
        (
            "fc00::/64 dev eth7",
            "word 3: no such interface \"eth7\"; expected one of eth0, eth1, eth2",
        ),
        (
            "fc00::/64 dev",
            "word 3: `dev` needs a value; expected the name of an interface",
        ),
        (
            "fc00::/64 dev eth0 dev eth1",
            "word 4: duplicate keyword \"dev\"; expected `dev` only once",
        ),
        (
            "fc00::/64 dev eth0 oif eth1",
            "word 4: duplicate keyword \"oif\"; expected `dev` only once",
        ),
        (
            "fc00::/64 fc01::/64 dev eth0",
            "word 2: duplicate keyword \"fc01::/64\"; expected `to` only once",
        ),
        (
            "fc00::/64 dev eth0 frob",
            "word 4: unknown keyword \"frob\"; expected from, table,",
        ),
        (
            "fc00::/64 dev eth0 metric -1",
            "word 5: invalid `metric` \"-1\"; expected a number from 0 to 4294967295",
        ),
        (
            "fc00::/64 dev eth0 table 0",
            "word 5: invalid `table` \"0\"; expected main, local, default or",
        ),
        (
            "fc00::1/64 dev eth0",
            "word 1: invalid prefix for given prefix length \"fc00::1/64\"; expected fc00::/64",
        ),
        (
            "fc00::/64 via 10.0.0.1",
            "word 3: `via` of the wrong family \"10.0.0.1\"; expected an IPv6 address",
        ),
        (
            "10.0.0.0/8 via fc00::1",
            "word 3: `via` of the wrong family \"fc00::1\"; expected an IPv4 address, or `inet6`",
        ),
        (
            "fc00::/64 tos 10 dev eth0",
            "word 2: not available for IPv6: \"tos\"",
        ),
        (
            "10.0.0.0/8 from 10.0.0.0/8 dev eth0",
            "word 2: not available for IPv4: \"from\"",
        ),
        (
            "blackhole fc00::/64 via fc00::1",
            "word 3: a route of type blackhole does not accept \"via\"",
        ),
        (
            "fc00::/64 dev eth0 nexthop via fc00::1",
            "word 2: misplaced keyword \"dev\"; expected it behind a `nexthop`",
        ),
        (
            "fc00::/64 policy p nexthop via fc00::1 dev eth0",
            "word 4: a route into a policy does not accept \"nexthop\"",
        ),
        (
            "unreachable fc00::/64 nexthop via fc00::1 dev eth0",
            "word 3: a route of type unreachable does not accept \"nexthop\"",
        ),
        ("fc00::/64 dev lo", "word 3: no such interface \"lo\""),
        (
            "fc00::/64 dev eth0 pref high",
            "word 5: invalid `pref` \"high\"; expected medium",
        ),
        (
            "fc00::/64 encap mpls 100 dev eth0",
            "word 3: unknown encapsulation \"mpls\"; expected seg6 or seg6local",
        ),
    ]);
}

#[test]
fn a_route_has_at_most_256_next_hops() {
    let line = |count: usize| format!("fc00::/16 {}", "nexthop dev eth0 ".repeat(count));
    parse_line(&line(256), &ctx()).expect("256 next hops");
    let error = parse_line(&line(100_000), &ctx())
        .expect_err("too many")
        .to_string();
    assert_eq!(error, "word 770: more than 256 next hops: \"nexthop\"");
}

#[test]
fn errors_about_an_encapsulation_name_the_word() {
    all_refused(&[
        (
            "fc00::1 encap seg6local action End.DT5 dev eth0",
            "word 5: unknown behavior \"End.DT5\"; expected End.T or End.DT6 or End.DT4, perhaps",
        ),
        (
            "fc00::1 encap seg6local action End.DT6 dev eth0",
            "word 4: End.DT6 requires `table` or `vrftable`; expected table TABLE or vrftable TABLE",
        ),
        (
            "fc00::1 encap seg6local action End.X dev eth0",
            "word 4: End.X requires `nh6`; expected nh6 IPV6",
        ),
        (
            "fc00::1 encap seg6local action End nh6 fc00::1 dev eth0",
            "word 6: End does not accept \"nh6\"; expected require-hmac, count, flavors FLAVORS",
        ),
        (
            "fc00::1 dev eth0 encap seg6local action End table 9",
            "word 8: End does not accept \"table\"; expected require-hmac, count, flavors FLAVORS; write the route",
        ),
        (
            "fc00::1 encap seg6local action End.DT6 table 1 table 2 dev eth0",
            "word 8: duplicate keyword \"table\"; expected `table` only once",
        ),
        (
            "fc00::1 encap seg6local action End flavors psp,pps dev eth0",
            "word 7: unknown flavor \"pps\"; expected psp, usp, usd, next-csid, replace-csid",
        ),
        (
            "fc00::1 encap seg6local action End flavors next-csid lblen 33 dev eth0",
            "word 8: impossible length \"lblen\"; expected a multiple of 8 from 8 to 120",
        ),
        (
            "fc00::1 encap seg6local action End flavors next-csid require-hmac dev eth0",
            "word 8: no SRH is read at a C-SID within a container, so next-csid excludes \"require-hmac\"",
        ),
        (
            "fc00::1 encap seg6local action End require-hmac require-hmac dev eth0",
            "word 7: duplicate keyword \"require-hmac\"",
        ),
        (
            "10.0.0.1 encap seg6local action End dev eth0",
            "word 3: `encap seg6local` on an IPv4 route; expected an IPv6 prefix: a SID",
        ),
        (
            "10.0.0.0/8 encap seg6 mode inline segs fc00::1 dev eth0",
            "word 4: inline (H.Insert) is for IPv6 routes only; expected encap or encap.red",
        ),
        (
            "fc00::/64 encap seg6 mode inline segs fc00::1 tunsrc fc00::2 dev eth0",
            "word 8: mode inline does not accept \"tunsrc\"",
        ),
        (
            "fc00::/64 encap seg6 mode encap segs fc00::1,x dev eth0",
            "word 7: invalid segment \"x\"; expected 1 to 16 IPv6 addresses, separated by commas",
        ),
        (
            "fc00::/64 encap seg6 mode encap dev eth0",
            "word 3: missing `segs` after \"seg6\"; expected segs with",
        ),
        (
            "fc00::/64 encap seg6 segs fc00::1 dev eth0",
            "word 3: missing `mode` after \"seg6\"; expected mode encap,",
        ),
    ]);
}

#[test]
fn the_seventeenth_segment_is_one_too_many() {
    let line = |count| {
        format!(
            "fd00::/64 encap seg6 mode encap segs {} dev eth0",
            vec!["fc00::1"; count].join(",")
        )
    };
    add(&line(16));
    assert!(error(&line(17)).contains("too many segments (17)"));
}

#[test]
fn the_context_gives_the_family_of_default() {
    let ctx = Context {
        family: Some(Family::V6),
        ..ctx()
    };
    let route = parse_line("default dev eth0", &ctx).expect("legal");
    assert_eq!(route.key.prefix.to_string(), "::/0");
    assert!(parse_line("10.0.0.0/8 dev eth0", &ctx).is_err());
}
