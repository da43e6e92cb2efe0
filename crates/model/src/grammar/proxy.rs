//! Parser and printer of the attributes of SR proxies.

use super::words::Words;
use crate::behavior::Proxy;
use crate::behavior::attribute::Attribute;
use crate::behavior::check::join;
use crate::behavior::proxy::{
    FLOWS, FLOWS_MIN, INTERVAL, INTERVAL_MAX, INTERVAL_MIN, Liveness, Vocabulary,
};
use crate::error::ConfigError;

/// Parses the value of a proxy attribute.
pub(super) fn parse(
    attribute: Attribute,
    words: &mut Words,
    proxy: &mut Proxy,
) -> Result<(), ConfigError> {
    let keyword = attribute.keyword();
    match attribute {
        Attribute::Chain => proxy.chain = Some(one_of(words, keyword)?),
        Attribute::Src => proxy.src = Some(words.address6(keyword)?),
        Attribute::Nheth => {
            let expected = "an Ethernet address such as 02:00:00:00:00:01";
            proxy.nheth = Some(words.parsed(keyword, expected, |text| text.parse().ok())?);
        }
        Attribute::Inner => proxy.inner = Some(one_of(words, keyword)?),
        Attribute::Age => proxy.age = Some(words.number(keyword, 0, u32::MAX)?),
        Attribute::Flows => proxy.flows = Some(flows(words)?),
        Attribute::Liveness => {
            let probe = one_of(words, keyword)?;
            let interval = match words.take_if("interval") {
                Some(_) => words.number("interval", INTERVAL_MIN, INTERVAL_MAX)?,
                None => INTERVAL,
            };
            proxy.liveness = Some(Liveness { probe, interval });
        }
        Attribute::OnDown => proxy.on_down = Some(one_of(words, keyword)?),
        _ => unreachable!("{keyword} is no attribute of a proxy: the caller handles it"),
    }
    Ok(())
}

/// `flows` has an optional number.
fn flows(words: &mut Words) -> Result<u32, ConfigError> {
    let is_number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    if words.peek().is_some_and(|word| is_number(word.text)) {
        words.number("flows", FLOWS_MIN, FLOWS)
    } else {
        Ok(FLOWS)
    }
}

fn one_of<T: Vocabulary>(words: &mut Words, keyword: &str) -> Result<T, ConfigError> {
    let expected = join(T::WORDS.iter().map(|(_, word)| *word), " or ");
    words.parsed(keyword, &expected, T::from_word)
}

/// Returns the printed value of a proxy attribute, if it has one.
pub(super) fn value_text(attribute: Attribute, proxy: &Proxy) -> Option<String> {
    match attribute {
        Attribute::Chain => proxy.chain.map(|chain| chain.to_string()),
        Attribute::Src => proxy.src.map(|address| address.to_string()),
        Attribute::Nheth => proxy.nheth.map(|mac| mac.to_string()),
        Attribute::Inner => proxy.inner.map(|inner| inner.to_string()),
        Attribute::Age => proxy.age.map(|age| age.to_string()),
        Attribute::Flows => proxy
            .flows
            .filter(|&flows| flows != FLOWS)
            .map(|flows| flows.to_string()),
        Attribute::Liveness => proxy
            .liveness
            .map(|Liveness { probe, interval }| format!("{probe} interval {interval}")),
        Attribute::OnDown => proxy.on_down.map(|on_down| on_down.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::behavior::Behavior;
    use crate::behavior::proxy::{Chain, InnerType};
    use crate::grammar::tests::{ctx, names};
    use crate::grammar::{Style, route};
    use crate::node::IfIndex;
    use crate::route::{Encap, Route};

    fn read(line: &str) -> Route {
        route::parse_line(line, &ctx()).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    #[test]
    fn published_lines_are_parsed_and_printed() {
        for (line, add) in [
            // The second kernel implementation uses one route for both directions.
            (
                "fdf1::2/128 encap seg6local action End.AD oif eth1 nh6 fdf1::2 age 5 dev eth1",
                "fdf1::2 encap seg6local action End.AD nh6 fdf1::2 oif eth1 age 5 dev eth1",
            ),
            (
                "fdf1::2/128 encap seg6local action End.AD oif eth1 nheth 02:00:00:00:00:05 age 5 dev eth1",
                "fdf1::2 encap seg6local action End.AD oif eth1 nheth 02:00:00:00:00:05 age 5 dev eth1",
            ),
            // The first implementation uses a route for each direction.
            (
                "fdf1::2/128 encap seg6local action End.AD chain inbound oif eth1 nh6 fdf1::2 age 5 dev eth1",
                "fdf1::2 encap seg6local action End.AD chain inbound nh6 fdf1::2 oif eth1 age 5 dev eth1",
            ),
            (
                "default encap seg6local action End.AD chain fromVNF iif eth1 dev eth1 table 100",
                "::/0 encap seg6local action End.AD chain fromVNF iif eth1 dev eth1 table 100",
            ),
        ] {
            let route = read(line);
            let written = route::print(&route, &names(), Style::Add);
            assert!(written.starts_with(add), "{line}: {written}");
            assert_eq!(read(&written), route);
        }
    }

    #[test]
    fn every_proxy_attribute_is_parsed_and_printed() {
        for words in [
            "End.AS srh segs fc00::1,fc00::2 src fc00::9 oif eth1 inner l2 liveness link interval 250 on-down bypass",
            "End.AS srh segs fc00::1 src fc00::9 nh6 fd00::1 iif eth2 oif eth1",
            "End.AD nh6 fd00::1 oif eth1 inner ipv6 age 0 flows liveness icmp interval 1000 on-down drop",
            "End.AD nh6 fd00::1 oif eth1 flows 512 liveness link interval 1000",
            "End.AD oif eth1 nheth 02:00:00:00:00:05 inner ipv4",
            "End.AM nh6 fd00::1 iif eth2 oif eth1 liveness arp interval 60000 flavors nat",
        ] {
            let route = read(&format!("fc00::a encap seg6local action {words} dev eth1"));
            let written = route::print(&route, &names(), Style::Add);
            assert!(
                written.contains(&format!(" action {words} dev eth1")),
                "{written}"
            );
        }
        let route = read(
            "fc00::a encap seg6local action End.AD oif eth1 nh6 fd00::1 liveness link dev eth1",
        );
        assert!(
            route::print(&route, &names(), Style::Add).contains("liveness link interval 1000 ")
        );
    }

    fn local(words: &str) -> crate::behavior::Seg6Local {
        let route = read(&format!("fc00::a encap seg6local action {words} dev eth1"));
        match route.next_hops[0].encap.clone() {
            Some(Encap::Seg6Local(local)) => local,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_default_inner_type_follows_the_address() {
        let all = [InnerType::Ipv6, InnerType::Ipv4, InnerType::L2];
        for (words, want) in [
            ("End.AD oif eth1", &[InnerType::L2][..]),
            ("End.AD oif eth1 nh6 fd00::1", &[InnerType::Ipv6]),
            ("End.AD oif eth1 nh4 10.0.0.1", &[InnerType::Ipv4]),
            (
                "End.AD oif eth1 nheth 02:00:00:00:00:05",
                &[InnerType::Ipv6],
            ),
            (
                "End.AD oif eth1 nheth 02:00:00:00:00:05 inner ipv4",
                &[InnerType::Ipv4],
            ),
            ("End.AD oif eth1 inner l2", &[InnerType::L2]),
            ("End.AM oif eth1 nh6 fd00::1", &[]),
            ("End.DX6 nh6 fd00::1", &[]),
        ] {
            let local = local(words);
            let seen: Vec<_> = all.into_iter().filter(|inner| local.sees(*inner)).collect();
            assert_eq!(seen, want, "{words}");
        }
        assert_eq!(local("End.AD oif eth1").back(), Some(IfIndex(2)));
        assert_eq!(local("End.AD oif eth1 iif eth2").back(), Some(IfIndex(3)));
        assert_eq!(local("End.DX2 oif eth1").back(), None);
        let back = local("End.AD chain fromVNF iif eth2");
        assert_eq!(
            (back.action, back.proxy.chain),
            (Behavior::EndAd, Some(Chain::FromVnf))
        );
    }

    fn all_refused(cases: &[(&str, &str)]) {
        for (words, want) in cases {
            let line = format!("fc00::a encap seg6local action {words} dev eth0");
            let found = route::parse_line(&line, &ctx())
                .expect_err(words)
                .to_string();
            assert!(
                found.starts_with(want),
                "{words}\nfound {found}\nwant  {want}"
            );
        }
    }

    #[test]
    fn errors_about_a_service_name_the_word() {
        all_refused(&[
            (
                "End.AD nh6 fd00::1",
                "word 4: End.AD requires `oif`; expected oif DEV",
            ),
            (
                "End.AD oif eth1 chain back",
                "word 9: invalid `chain` \"back\"; expected inbound or fromVNF",
            ),
            (
                "End.AD oif eth1 inner ip",
                "word 9: invalid `inner` \"ip\"; expected ipv6 or ipv4 or l2",
            ),
            (
                "End.AD oif eth1 nheth 5",
                "word 9: invalid `nheth` \"5\"; expected an Ethernet address",
            ),
            (
                "End.AD oif eth1 age soon",
                "word 9: invalid `age` \"soon\"; expected a number from 0",
            ),
            (
                "End.AD oif eth1 age 5 age 6",
                "word 10: duplicate keyword \"age\"",
            ),
            (
                "End.AD oif eth1 liveness link interval 9",
                "word 11: invalid `interval` \"9\"; expected a number from 10 to 60000",
            ),
            (
                "End.AD oif eth1 liveness ping",
                "word 9: invalid `liveness` \"ping\"",
            ),
            (
                "End.AD oif eth1 liveness icmp",
                "word 8: icmp requires the address of the service for \"liveness\"; expected nh6 or nh4 as well",
            ),
            (
                "End.AD oif eth1 on-down drop",
                "word 8: `liveness` is required for \"on-down\"; expected liveness {",
            ),
            ("End.AD oif eth1 flows", "word 8: flows require IP packets"),
            (
                "End.AD oif eth1 nh6 fd00::1 flows 7",
                "word 11: invalid `flows` \"7\"; expected a number from 8 to 8192",
            ),
            (
                "End.AD oif eth1 nh6 fd00::1 nheth 02:00:00:00:00:05",
                "word 10: a service has either a MAC address or an IP address \"nheth\"",
            ),
            (
                "End.AD oif eth1 inner l2 nh6 fd00::1",
                "word 10: `inner l2` does not accept \"nh6\"",
            ),
            (
                "End.AD oif eth1 inner ipv6 nh4 10.0.0.1",
                "word 10: `inner ipv6` does not accept \"nh4\"; expected nh6 IPV6 or nheth MAC",
            ),
            (
                "End.AD oif eth1 inner ipv4",
                "word 8: ipv4 requires the address of the service \"inner\"; expected nh4 IPV4 or nheth MAC",
            ),
            (
                "End.AD oif eth1 nh6 ::",
                "word 8: no service has the address :: \"nh6\"",
            ),
            (
                "End.AD oif eth1 nh4 224.0.0.1",
                "word 8: no service has the address 224.0.0.1 \"nh4\"",
            ),
        ]);
    }

    #[test]
    fn missing_or_surplus_proxy_attributes_are_named() {
        all_refused(&[
            (
                "End.AD oif eth1 src fc00::1",
                "word 8: End.AD does not accept \"src\"",
            ),
            (
                "End.AD oif eth1 segs fc00::1",
                "word 8: End.AD does not accept \"segs\"",
            ),
            (
                "End.AS oif eth1 segs fc00::1",
                "word 4: End.AS requires `src`; expected src IPV6",
            ),
            (
                "End.AS oif eth1 src fc00::1",
                "word 4: End.AS requires `srh`",
            ),
            (
                "End.AS oif eth1 segs fc00::1 src ff02::1",
                "word 10: ff02::1 cannot be a source \"src\"",
            ),
            (
                "End.AS oif eth1 segs fc00::1 src fc00::2 age 5",
                "word 12: End.AS does not accept \"age\"",
            ),
            (
                "End.AM oif eth1",
                "word 4: End.AM requires `nh6` or `nheth`",
            ),
            (
                "End.AM oif eth1 nh6 fd00::1 nh4 10.0.0.1",
                "word 10: End.AM does not accept \"nh4\"",
            ),
            (
                "End.AM oif eth1 nh6 fd00::1 flavors usp",
                "word 10: End.AM does not have flavor usp",
            ),
            ("End flavors nat", "word 6: End does not have flavor nat"),
            (
                "End.AD chain fromVNF",
                "word 6: fromVNF requires `iif` \"chain\"; expected iif DEV",
            ),
            (
                "End.AD chain fromVNF iif eth1 age 5",
                "word 10: `chain fromVNF` does not accept \"age\"; expected it at the inbound SID",
            ),
            (
                "End.AM chain fromVNF iif eth1",
                "word 6: End.AM does not accept \"chain\"",
            ),
        ]);
    }
}
