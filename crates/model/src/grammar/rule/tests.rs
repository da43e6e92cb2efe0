//! Tests of the grammar of rules.

use super::*;
use crate::grammar::tests::{ctx, names};

fn read(line: &str) -> Vec<Rule> {
    parse_line(line, &ctx(), &kernel_rules()).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn words_that_completion_offers_make_a_rule_with_every_action() {
    let value = |keyword: &str| match keyword {
        "from" | "to" => "fd00::/8",
        "iif" | "oif" => "eth0",
        "suppress_prefixlength" | "priority" => "7",
        "lookup" => "main",
        "seg6local-behaviour" => "End.AD",
        _ => "",
    };
    for action in ACTIONS {
        let mut words = Vec::new();
        let mut next = action;
        loop {
            words.extend([next, value(next)].iter().filter(|word| !word.is_empty()));
            match completions(&words).first() {
                Some(&word) => next = word,
                None => break,
            }
        }
        assert!(
            SELECTORS.iter().all(|word| words.contains(word)),
            "{words:?}"
        );
        assert_eq!(read(&words.join(" ")).len(), 1, "{words:?}");
    }
    let proxies = completions(&["iif", "eth0", "seg6local-behaviour"]);
    assert_eq!(proxies, ["End.AS", "End.AD", "End.AM"]);
    assert_eq!(completions(&["iif"]), [""; 0]);
}

#[test]
fn rules_are_parsed_and_printed_as_by_ip() {
    for (line, add, show) in [
        (
            "from fd00::/8 lookup 100",
            "from fd00::/8 lookup 100 priority 32765",
            "32765:\tfrom fd00::/8 lookup 100",
        ),
        (
            "not from fd00::/8 to fd01::1 iif eth0 oif eth9 fwmark 0x1/0x2 ipproto tcp table main pref 7",
            "not from fd00::/8 to fd01::1 fwmark 0x1/0x2 iif eth0 oif eth9 ipproto tcp lookup main priority 7",
            "7:\tnot from fd00::/8 to fd01::1 fwmark 0x1/0x2 iif eth0 oif eth9 ipproto tcp lookup main",
        ),
        (
            "from ::/0 dscp 8 fwmark 7 lookup 103",
            "from ::/0 fwmark 7 dscp 8 lookup 103 priority 32765",
            "32765:\tfrom all fwmark 7 dscp 8 lookup 103",
        ),
        (
            "from ::/0 blackhole order 0x5",
            "from ::/0 blackhole priority 5",
            "5:\tfrom all blackhole",
        ),
        (
            "from 0.0.0.0/0 l3mdev priority 1000",
            "from 0.0.0.0/0 l3mdev priority 1000",
            "1000:\tfrom all lookup [l3mdev-table]",
        ),
        (
            "to 10.0.0.0/8",
            "from all to 10.0.0.0/8 lookup main priority 32765",
            "32765:\tfrom all to 10.0.0.0/8 lookup main",
        ),
        (
            "from ::/0 lookup main suppress_prefixlength 0 pref 7",
            "from ::/0 lookup main suppress_prefixlength 0 priority 7",
            "7:\tfrom all lookup main suppress_prefixlength 0",
        ),
        (
            "from ::/0 seg6local-behaviour End.AD",
            "from ::/0 seg6local-behaviour End.AD priority 32765",
            "32765:\tfrom all seg6local-behaviour End.AD",
        ),
        (
            "to fd00::1 goto 9",
            "from all to fd00::1 goto 9 priority 32765",
            "32765:\tfrom all to fd00::1 goto 9",
        ),
    ] {
        let rules = read(line);
        assert_eq!(rules.len(), 1, "{line}");
        assert_eq!(print(&rules[0], &names(), Style::Add), add);
        assert_eq!(print(&rules[0], &names(), Style::Show), show);
        assert_eq!(read(add), rules);
    }
    let shown = "7:\tnot from fd00::/8 to fd01::1 fwmark 0x1/0x2 iif eth0 lookup 100";
    assert_eq!(print(&read(shown)[0], &names(), Style::Show), shown);
}

#[test]
fn a_rule_without_a_prefix_is_one_for_each_family() {
    let rules = read("iif eth0 lookup 100");
    assert_eq!(
        rules.iter().map(|rule| rule.family).collect::<Vec<_>>(),
        [Family::V4, Family::V6]
    );
    for rule in rules {
        assert_eq!(read(&print(&rule, &names(), Style::Add)), [rule]);
    }
    let ctx = Context {
        family: Some(Family::V6),
        ..ctx()
    };
    let rules = parse_line("iif eth0 lookup 100", &ctx, &kernel_rules()).expect("legal");
    assert_eq!(rules.len(), 1);
}

#[test]
fn the_priority_of_a_rule_without_one_is_the_kernels() {
    // Recorded from a kernel after the same commands.
    let mut rules = kernel_rules();
    for (line, want) in [
        ("from ::/0 iif eth0 lookup 100", 32765),
        ("not from fd00::/8 lookup 100 pref 7", 7),
        ("from ::/0 blackhole", 6),
        ("from ::/0 l3mdev pref 1000", 1000),
        ("from fd00::/8", 5),
    ] {
        for rule in parse_line(line, &ctx(), &rules).expect("legal") {
            assert_eq!(rule.priority, want, "{line}");
            rules
                .entry((rule.family, rule.priority))
                .or_default()
                .push(rule);
        }
    }
    assert_eq!(default_priority(&Rules::new(), Family::V4), 0);
}

#[test]
fn the_priority_has_the_keywords_of_iproute2_and_their_abbreviations() {
    for word in [
        "priority",
        "prio",
        "preference",
        "pref",
        "order",
        "ord",
        "p",
    ] {
        let rules = read(&format!("iif eth0 {word} 7 lookup 100"));
        assert!(rules.iter().all(|rule| rule.priority == 7), "{word}");
    }
    let found = parse_line("prio 7 pref 8", &ctx(), &kernel_rules()).expect_err("twice");
    let want = "word 3: duplicate keyword \"pref\"; expected `priority` only once";
    assert_eq!(found.to_string(), want);
    assert!(parse_line("priorities 7", &ctx(), &kernel_rules()).is_err());
}

#[test]
fn a_rule_is_found_by_the_words_that_added_it() {
    let rules = read("iif eth0 lookup 100 priority 7");
    for (line, want) in [
        ("iif eth0 lookup 100", 2),
        ("priority 7 iif eth0 table 100", 2),
        ("from ::/0 iif eth0 lookup 100", 1),
        ("iif eth0 lookup 100 priority 8", 0),
        ("iif eth1 lookup 100", 0),
        ("lookup 100", 0),
    ] {
        let pattern = Pattern::parse(&mut Words::from_line(line), &ctx()).expect(line);
        let found = rules
            .iter()
            .filter(|rule| pattern.fits(rule, &Node::default()))
            .count();
        assert_eq!(found, want, "{line}");
    }
}

#[test]
fn what_is_wrong_with_a_rule_is_said() {
    for (line, want) in [
        ("", "word 1: missing rule"),
        (
            "from fd00::1/8",
            "word 2: invalid prefix for given prefix length",
        ),
        (
            "from fd00::/8 to 10.0.0.0/8",
            "word 4: `to` of the wrong family",
        ),
        ("from all lookup 0", "word 4: invalid `lookup`"),
        ("lookup 7 blackhole", "word 3: second action \"blackhole\""),
        ("lookup 7 l3mdev", "word 3: second action \"l3mdev\""),
        (
            "blackhole prohibit",
            "word 2: duplicate keyword \"prohibit\"",
        ),
        ("iif a/b", "word 2: invalid `iif`"),
        ("fwmark", "word 2: `fwmark` needs a value"),
        (
            "seg6local-behaviour End.X",
            "word 2: invalid `seg6local-behaviour` \"End.X\"; expected End.AS, End.AD, End.AM",
        ),
        (
            "seg6local-behaviour End.AD table 100",
            "word 1: second action \"seg6local-behaviour\"",
        ),
        ("frob", "word 1: unknown keyword \"frob\""),
    ] {
        let found = parse_line(line, &ctx(), &kernel_rules())
            .expect_err(line)
            .to_string();
        assert!(
            found.starts_with(want),
            "{line}\nfound {found}\nwant  {want}"
        );
    }
}
