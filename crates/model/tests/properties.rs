//! Properties of the grammar: no input panics, and every printed item parses to an equal one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use sidestep_model::behavior::attribute::{Attribute, Flavor};
use sidestep_model::behavior::check::linux_can_express;
use sidestep_model::behavior::endpoint::BEHAVIORS;
use sidestep_model::behavior::headend::HEADENDS;
use sidestep_model::behavior::proxy::{
    Chain, FLOWS, FLOWS_MIN, INTERVAL_MAX, INTERVAL_MIN, InnerType, Liveness, OnDown, Probe,
};
use sidestep_model::behavior::{Behavior, Proxy, Seg6Encap, Seg6Local};
use sidestep_model::config::File;
use sidestep_model::grammar::{Context, Names, Style, Words, neighbor, route, rule};
use sidestep_model::node::{IfIndex, Mac, Neighbor, TableId};
use sidestep_model::route::{
    Encap, Family, NextHop, Owner, Route, RouteKey, RouteKind, Rule, RuleAction,
};
use sidestep_model::vlan::VlanTableId;

struct Three;

impl Names for Three {
    fn ifindex(&self, name: &str) -> Option<IfIndex> {
        let number = self.interfaces().iter().position(|known| known == name)?;
        Some(IfIndex(number as u32 + 1))
    }

    fn name(&self, ifindex: IfIndex) -> Option<String> {
        self.interfaces()
            .get(ifindex.0.checked_sub(1)? as usize)
            .cloned()
    }

    fn interfaces(&self) -> Vec<String> {
        ["eth0", "eth1", "eth2"].map(str::to_owned).to_vec()
    }
}

fn ctx() -> Context<'static> {
    Context {
        names: &Three,
        family: None,
        owner: Owner::Kernel,
    }
}

fn unicast6() -> impl Strategy<Value = Ipv6Addr> {
    (0xfc00..0xfdff_u16, any::<u64>())
        .prop_map(|(high, low)| Ipv6Addr::from(u128::from(high) << 112 | u128::from(low)))
}

fn unicast4() -> impl Strategy<Value = Ipv4Addr> {
    any::<[u8; 3]>().prop_map(|[b, c, d]| Ipv4Addr::new(10, b, c, d))
}

fn unicast(family: Family) -> BoxedStrategy<IpAddr> {
    match family {
        Family::V4 => unicast4().prop_map(IpAddr::V4).boxed(),
        Family::V6 => unicast6().prop_map(IpAddr::V6).boxed(),
    }
}

fn prefix(family: Family) -> BoxedStrategy<IpNet> {
    match family {
        Family::V4 => (any::<u32>(), 0..=32_u8)
            .prop_map(|(address, length)| {
                IpNet::V4(Ipv4Net::new_assert(address.into(), length)).trunc()
            })
            .boxed(),
        Family::V6 => (any::<u128>(), 0..=128_u8)
            .prop_map(|(address, length)| {
                IpNet::V6(Ipv6Net::new_assert(address.into(), length)).trunc()
            })
            .boxed(),
    }
}

fn table() -> impl Strategy<Value = TableId> {
    prop_oneof![
        Just(TableId::MAIN),
        Just(TableId::LOCAL),
        (1..=u32::MAX).prop_map(TableId)
    ]
}

fn dev() -> impl Strategy<Value = IfIndex> {
    (1..=3_u32).prop_map(IfIndex)
}

fn family() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::V4), Just(Family::V6)]
}

fn seg6(family: Family) -> impl Strategy<Value = Encap> {
    let row = prop::sample::select(HEADENDS)
        .prop_filter("family", move |row| row.families.contains(&family));
    (
        row,
        vec(unicast6(), 1..=16),
        of(1..=u32::MAX),
        of(unicast6()),
        of(table()),
    )
        .prop_map(|(row, segments, hmac, tunsrc, lookup)| {
            Encap::Seg6(Seg6Encap {
                hmac: hmac.filter(|_| row.hmac),
                tunsrc: tunsrc.filter(|_| row.tunsrc),
                lookup: lookup.filter(|_| row.lookup),
                ..Seg6Encap::new(row.mode, segments)
            })
        })
}

fn seg6local() -> impl Strategy<Value = Encap> {
    let values = (
        table(),
        unicast4(),
        unicast6(),
        dev(),
        vec(unicast6(), 1..=16),
    );
    let choices = (
        any::<bool>(),
        any::<[bool; 6]>(),
        (1..=8_u8, 1..=8_u8),
        any::<[bool; 12]>(),
        any::<[bool; 2]>(),
    );
    let rows = prop::sample::select(BEHAVIORS);
    let any_words = (rows, values, proxy(), choices).prop_map(|(row, values, proxy, choices)| {
        let (table, nh4, nh6, dev, segments) = values;
        let (first, flavors, (block, function), optional, [count, require_hmac]) = choices;
        let mut local = Seg6Local::new(row.behavior);
        let chosen = row.one_of.get(usize::from(!first));
        let optional = row.optional.iter().zip(optional);
        let optional = optional.filter_map(|(attribute, wanted)| wanted.then_some(attribute));
        for attribute in row.required.iter().chain(chosen).chain(optional) {
            match attribute {
                Attribute::Table => local.table = Some(table),
                Attribute::Vrftable => local.vrftable = Some(table),
                Attribute::Nh4 => local.nh4 = Some(nh4),
                Attribute::Nh6 => local.nh6 = Some(nh6),
                Attribute::Iif => local.iif = Some(dev),
                Attribute::Oif => local.oif = Some(dev),
                Attribute::L2dev => local.l2dev = Some(dev),
                Attribute::Vlantable => local.vlantable = Some(VlanTableId(table.0)),
                Attribute::Srh => local.segments.clone_from(&segments),
                Attribute::Flavors | Attribute::RequireHmac | Attribute::Count => {}
                Attribute::Chain => local.proxy.chain = proxy.chain,
                Attribute::Src => local.proxy.src = proxy.src,
                Attribute::Nheth => local.proxy.nheth = proxy.nheth,
                Attribute::Inner => local.proxy.inner = proxy.inner,
                Attribute::Age => local.proxy.age = proxy.age,
                Attribute::Flows => local.proxy.flows = proxy.flows,
                Attribute::Liveness => local.proxy.liveness = proxy.liveness,
                Attribute::OnDown => local.proxy.on_down = proxy.on_down,
            }
        }
        if local.proxy.chain == Some(Chain::FromVnf) {
            local = Seg6Local::new(row.behavior);
            (local.iif, local.proxy.chain) = (Some(dev), Some(Chain::FromVnf));
        }
        for (flavor, wanted) in row.flavors.iter().zip(flavors) {
            match flavor {
                Flavor::Psp => local.flavors.psp = wanted,
                Flavor::Usp => local.flavors.usp = wanted,
                Flavor::Usd => local.flavors.usd = wanted,
                Flavor::NextCsid => {
                    local.flavors.next_csid = wanted.then_some((block * 8, function * 8));
                }
                // The two exclude each other, since they share `lblen` and `nflen`.
                Flavor::ReplaceCsid if local.flavors.next_csid.is_none() => {
                    let csid = if first { 16 } else { 32 };
                    local.flavors.replace_csid = wanted.then_some((block * 8, csid));
                }
                Flavor::ReplaceCsid => {}
                Flavor::Nat => local.flavors.nat = wanted,
            }
        }
        local.count = count;
        local.require_hmac = require_hmac;
        local
    });
    any_words
        .prop_filter("a SID that cannot be", |local| local.check().is_ok())
        .prop_map(Encap::Seg6Local)
}

/// All attributes of a proxy.
fn proxy() -> impl Strategy<Value = Proxy> {
    let chain = prop::sample::select(&[Chain::Inbound, Chain::FromVnf]);
    let inner = prop::sample::select(&[InnerType::Ipv6, InnerType::Ipv4, InnerType::L2]);
    let probe = prop::sample::select(&[Probe::Icmp, Probe::Arp, Probe::Link]);
    let on_down = prop::sample::select(&[OnDown::Drop, OnDown::Bypass]);
    let flows = prop::option::of(FLOWS_MIN..=FLOWS);
    let learning = (any::<u32>(), flows);
    let liveness = (probe, INTERVAL_MIN..=INTERVAL_MAX, on_down);
    (
        chain,
        unicast6(),
        any::<[u8; 6]>(),
        inner,
        learning,
        liveness,
    )
        .prop_map(
            |(chain, src, nheth, inner, (age, flows), (probe, interval, on_down))| Proxy {
                chain: Some(chain),
                src: Some(src),
                nheth: Some(Mac(nheth)),
                inner: Some(inner),
                age: Some(age),
                flows,
                liveness: Some(Liveness { probe, interval }),
                on_down: Some(on_down),
            },
        )
}

fn encap(family: Family) -> BoxedStrategy<Option<Encap>> {
    match family {
        Family::V4 => of(seg6(family)).boxed(),
        Family::V6 => of(prop_oneof![seg6(family), seg6local()]).boxed(),
    }
}

fn next_hop(family: Family) -> impl Strategy<Value = NextHop> {
    let via = prop_oneof![
        3 => unicast(family),
        // RFC 8950: IPv4 via an IPv6 next hop. The reverse does not exist.
        1 => unicast(Family::V6),
    ];
    (
        of(via),
        of(dev()),
        1..=256_u16,
        any::<bool>(),
        encap(family),
    )
        .prop_map(|(via, dev, weight, onlink, encap)| NextHop {
            via,
            dev: dev.or(via.is_none().then_some(IfIndex(1))),
            weight,
            onlink,
            dead: false,
            encap,
        })
}

const KINDS: &[RouteKind] = &[
    RouteKind::Unicast,
    RouteKind::Local,
    RouteKind::Broadcast,
    RouteKind::Anycast,
    RouteKind::Multicast,
    RouteKind::Blackhole,
    RouteKind::Unreachable,
    RouteKind::Prohibit,
    RouteKind::Throw,
];

fn a_route() -> impl Strategy<Value = Route> {
    family().prop_flat_map(move |family| {
        let key = (
            prefix(family),
            of(prefix(family)),
            table(),
            0..64_u8,
            1..=u32::MAX,
        );
        let rest = (
            of(unicast(family)),
            of(1..=65535_u32),
            of(1..=u32::MAX),
            any::<u8>(),
        );
        let kind = prop_oneof![3 => Just(RouteKind::Unicast), 1 => prop::sample::select(KINDS)];
        (key, rest, kind, vec(next_hop(family), 1..=4), dev()).prop_map(
            move |(key, rest, kind, hops, dev)| {
                let (prefix, from, table, dscp, metric) = key;
                let (prefsrc, mtu, nhid, protocol) = rest;
                let on_link = NextHop {
                    dev: Some(dev),
                    ..NextHop::new()
                };
                let (nhid, mut next_hops) = match kind {
                    RouteKind::Unicast if hops.len() < 4 => (None, hops),
                    RouteKind::Unicast => (nhid.or(Some(7)), vec![]),
                    RouteKind::Local
                    | RouteKind::Broadcast
                    | RouteKind::Anycast
                    | RouteKind::Multicast => (None, vec![on_link]),
                    _ => (None, vec![]),
                };
                if let [only] = next_hops.as_mut_slice() {
                    only.weight = 1;
                }
                Route {
                    key: RouteKey {
                        table,
                        prefix,
                        from: from.filter(|from| family == Family::V6 && from.prefix_len() > 0),
                        tos: if family == Family::V4 { dscp << 2 } else { 0 },
                        metric,
                    },
                    kind,
                    next_hops: next_hops.into(),
                    prefsrc,
                    mtu,
                    nhid,
                    protocol,
                    owner: Owner::Kernel,
                }
            },
        )
    })
}

fn a_rule() -> impl Strategy<Value = Rule> {
    family().prop_flat_map(|family| {
        let prefixes = (of(prefix(family)), of(prefix(family)));
        let names = (of("[a-z]{1,8}[0-9]{0,7}"), of("[a-z]{1,15}"));
        let action = prop_oneof![
            table().prop_map(RuleAction::Table),
            Just(RuleAction::Blackhole),
            Just(RuleAction::Unreachable),
            Just(RuleAction::Prohibit),
            Just(RuleAction::Table(TableId(0))),
            Just(RuleAction::Proxies(Behavior::EndAd)),
        ];
        (prefixes, names, action, any::<bool>(), any::<u32>()).prop_map(
            move |((from, to), (iif, oif), action, invert, priority)| Rule {
                family,
                priority,
                invert,
                iif,
                oif,
                from: from.filter(|net| net.prefix_len() > 0),
                to: to.filter(|net| net.prefix_len() > 0),
                suppress_prefixlength: None,
                l3mdev: action == RuleAction::Table(TableId(0)),
                action,
                unsupported: vec![],
                owner: Owner::Kernel,
            },
        )
    })
}

/// Words that reach deep into the parsers.
fn word() -> impl Strategy<Value = String> {
    let known: Vec<String> = sidestep_model::behavior::text::completion_words()
        .split(' ')
        .chain([
            "dev",
            "via",
            "nexthop",
            "weight",
            "table",
            "metric",
            "from",
            "src",
            "nhid",
            "default",
            "blackhole",
            "local",
            "inet6",
            "eth0",
            "fc00::1",
            "fc00::/64",
            "10.0.0.0/8",
            "10.0.0.1",
            "[",
            "]",
            "1",
            "2",
            "0x10",
            "not",
            "iif",
            "lookup",
            "priority",
            "l3mdev",
            "goto",
            "lladdr",
            "02:00:00:00:00:01",
            "nud",
            "stale",
            "srh",
            "all",
            "::",
            "7:",
            "onlink",
            "mtu",
            "proto",
            "tos",
        ])
        .map(str::to_owned)
        .collect();
    prop_oneof![8 => prop::sample::select(known), 1 => "\\PC{0,12}", 1 => "[0-9a-f:./,]{0,20}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_route_that_is_written_is_read_back(route in a_route()) {
        let text = route::print(&route, &Three, Style::Add);
        let again = route::parse_line(&text, &ctx());
        prop_assert_eq!(again.as_ref(), Ok(&route), "{}", text);
        prop_assert_eq!(route::print(&again.expect("equal to the route"), &Three, Style::Add), text);
        let _ = linux_can_express(&route);
    }

    #[test]
    fn a_route_that_is_shown_is_read_back(mut route in a_route()) {
        // `ip route show` omits `table main` even where `ip route add` would select another table.
        if route.key.table == TableId::MAIN {
            route.kind = RouteKind::Unicast;
            route.next_hops = vec![NextHop { dev: Some(IfIndex(1)), ..NextHop::new() }].into();
        }
        let ctx = Context { family: Some(route.family()), ..ctx() };
        let text = route::print(&route, &Three, Style::Show);
        let again = route::parse_line(&text, &ctx);
        prop_assert!(again.is_ok(), "{}: {:?}", text, again);
        prop_assert_eq!(route::print(&again.expect("tested"), &Three, Style::Show), text);
    }

    #[test]
    fn a_rule_that_is_written_is_read_back(rule in a_rule()) {
        let rules = rule::kernel_rules();
        let text = rule::print(&rule, &Three, Style::Add);
        prop_assert_eq!(rule::parse_line(&text, &ctx(), &rules), Ok(vec![rule.clone()]), "{}", text);
        let ctx = Context { family: Some(rule.family), ..ctx() };
        let text = rule::print(&rule, &Three, Style::Show);
        prop_assert_eq!(rule::parse_line(&text, &ctx, &rules), Ok(vec![rule]), "{}", text);
    }

    #[test]
    fn a_neighbor_that_is_written_is_read_back(
        address in family().prop_flat_map(unicast), dev in dev(), mac in any::<[u8; 5]>(), permanent in any::<bool>(),
    ) {
        let [b, c, d, e, f] = mac;
        let neighbor = Neighbor { lladdr: Some(Mac([2, b, c, d, e, f])), permanent };
        for style in [Style::Add, Style::Show] {
            let text = neighbor::print(&(dev, address), &neighbor, &Three, style);
            prop_assert_eq!(neighbor::parse_line(&text, &ctx()), Ok(((dev, address), neighbor)), "{}", text);
        }
    }

    #[test]
    fn no_words_panic_a_parser(words in vec(word(), 0..24), line in 1..9_u32, column in 1..9_u32) {
        let rules = rule::kernel_rules();
        let text = words.join(" ");
        for mut words in [Words::from_args(&words), Words::from_line(&text), Words::from_file(&text, line, column)] {
            let start = words.clone();
            if let Ok(route) = route::parse(&mut words, &ctx()) {
                // Accepted input is valid: it can be printed and parsed again.
                let written = route::print(&route, &Three, Style::Add);
                prop_assert!(route::parse_line(&written, &ctx()).is_ok(), "{} -> {}", text, written);
            }
            let _ = rule::parse(&mut start.clone(), &ctx(), &rules);
            let _ = neighbor::parse(&mut start.clone(), &ctx());
        }
    }

    #[test]
    fn no_text_panics_a_parser(text in "\\PC*") {
        let rules = rule::kernel_rules();
        let _ = route::parse_line(&text, &ctx());
        let _ = rule::parse_line(&text, &ctx(), &rules);
        let _ = neighbor::parse_line(&text, &ctx());
        let _ = File::parse(&text).and_then(|file| file.node());
    }

    #[test]
    fn no_file_panics_the_reader(
        words in vec(word(), 0..8), key in prop::sample::select(&["routes", "rules", "neighbors", "ports", "tunsrc"][..]),
        quote in prop::sample::select(&["", "'", "\""][..]),
    ) {
        let line = words.join(" ");
        let text = format!("ports: [eth0, eth1]\n{key}: [{quote}{line}{quote}]\n");
        let _ = File::parse(&text).and_then(|file| file.node());
    }
}
