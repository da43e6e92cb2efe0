//! The YAML file of a campaign: errors name their place, and the files of this repository are
//! valid.

use std::fs;
use std::path::Path;

use crate::simulated::campaign::{CAMPAIGN, measure};
use crate::simulated::engine::World;
use sidestep_bench::campaign::file::{Campaign, Find, TEMPLATE};
use sidestep_bench::campaign::local;

/// Replacement of a word of the campaign, and the expected error.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "schema: 1",
        "schema: 2",
        "line 1, column 9: schema \"2\"; expected 1",
    ),
    ("runs: 3", "run: 3", "line 6, column 1: unknown field `run`"),
    (
        "runs: 3",
        "runs: 0",
        "line 6, column 7: runs \"0\"; expected 1 to 1000",
    ),
    (
        "[slow, fast]",
        "[slow, fats]",
        "line 3, column 17: unknown engine \"fats\"; expected none, slow, fast",
    ),
    (
        "[slow, fast]",
        "[slow, slow]",
        "line 3, column 17: engine twice \"slow\"",
    ),
    (
        "[ipv6, end, end.as]",
        "[ipv6, end.x]",
        "line 9, column 21: unknown behavior \"end.x\"; expected end, end.ad, end.as, ipv6, service.end",
    ),
    (
        "[ipv6, end, end.as]",
        "[ipv6, end, end.ad]",
        "line 9, column 26: no engine supports this (slow: no end.ad; fast: no end.ad) \"end.ad, 1 SID, 64 bytes\"",
    ),
    (
        "[1, 2, 4]",
        "[1, 20]",
        "line 15, column 13: number of SIDs \"20\"; expected 1 to 10 of end",
    ),
    (
        "[1, 2, 4]",
        "[]",
        "line 12, column 9: sids: [] in group \"segments\"; expected at least one",
    ),
    (
        "sids: [1, 2, 4]",
        "sizes: [0]",
        "line 15, column 11: invalid value: integer `0`; expected a size: 1 to 65535 bytes, or imix",
    ),
    (
        "sids: [1, 2, 4]",
        "flows: [zipf]",
        "line 15, column 11: invalid value: string \"zipf\"; expected flows: a number from 1 on, or zipf and a number",
    ),
    (
        "sids: [1, 2, 4]",
        "cores: [9]",
        "line 15, column 11: cores \"9\"; expected 1 to 8",
    ),
    (
        "name: segments",
        "name: behaviors",
        "line 12, column 9: group twice \"behaviors\"",
    ),
    (
        "name: segments",
        "name: Segments",
        "line 12, column 9: name of a group \"Segments\"; expected lower-case letters, digits and -",
    ),
    (
        "beta: 0.005",
        "beta: 1.5",
        "beta \"1.5\"; expected a share of the packets, from 0 to below 1",
    ),
    (
        "trial: 1s",
        "trial: soon",
        "trial \"soon\"; expected a time such as 500ms or 2s",
    ),
    (
        "trial: 1s",
        "trials: 0",
        "trials \"0\"; expected from 1 to 1000, which together take no more than 24 h",
    ),
    (
        "trial: 1s",
        "trials: 11, exceed: 0.9",
        "exceed \"0.9\"; expected a share of the trials, from 0 to 0.5",
    ),
    (
        "trial: 1s",
        "trial: 1s, exceed: 0.5",
        "exceed \"0.5\"; expected a share of the trials, from 0 to 0.5, that is at least one of them",
    ),
    (
        "trial: 1s",
        "trial: 10ms",
        "trial \"10ms at 10000 packets/s\"; expected at least 100 packets, and 1 / beta, at the start rate",
    ),
    (
        "find: [pdr, mrr, curve, latency]",
        "find: []",
        "line 1, column 9: find \"[]\"; expected at least one",
    ),
    (
        "find: [ndr]",
        "find: []",
        "line 12, column 9: find: [] in group \"segments\"; expected at least one",
    ),
    (
        "kpps: 912.5",
        "kpps: .nan",
        "published figure \"NaN\"; expected above 0",
    ),
    (
        "sids: [1, 2, 4]",
        "rates: [100000]",
        "line 15, column 11: rates of group \"segments\"; expected find: curve, the only metric with given rates",
    ),
    (
        "find: [ndr]",
        "find: [curve]\n  rates: [0.5]",
        "line 14, column 11: rate \"0.5\"; expected from 1 to 1000000000 packets/s",
    ),
    (
        "behavior: end, kpps",
        "behavior: end.t, kpps",
        "published figure without a case \"end.t\"; expected a case and a metric of the group",
    ),
    (
        "behavior: end, kpps",
        "behavior: end, find: ndr, kpps",
        "published figure without a case \"end\"; expected a case and a metric of the group",
    ),
    (
        "find: [ndr]",
        "find: [ndr]\n  baseline: ipv4",
        "line 14, column 13: baseline \"ipv4\"; expected a behavior of the group",
    ),
];

#[test]
fn errors_in_a_file_are_reported_before_anything_starts() {
    for &(from, to, expected) in WRONG {
        let text = CAMPAIGN.replacen(from, to, 1);
        assert_ne!(text, CAMPAIGN, "{from}");
        let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
        let target = folder.path().join("results");
        let error = measure(&text, &target, &world).expect_err(to);
        assert!(
            error.contains(expected),
            "{to}: {error}\nand not: {expected}"
        );
        assert!(
            !target.exists() && world.set_ups.get() == 0,
            "nothing has begun"
        );
    }
}

#[test]
fn the_template_is_a_valid_campaign() {
    let campaign = Campaign::parse(TEMPLATE).expect("what `bench init` writes");
    let known = local::vocabulary().behaviors;
    for group in &campaign.groups {
        for behavior in &group.behaviors {
            assert!(known.contains_key(&behavior.value), "{}", behavior.value);
        }
    }
    // The template without comments is a valid campaign as well.
    let full: String = TEMPLATE
        .lines()
        .map(|line| match line.trim_start().strip_prefix("# ") {
            Some(key) if is_key(key) => {
                format!("{}{key}\n", &line[..line.len() - line.trim_start().len()])
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let error = Campaign::parse(&full).err();
    assert!(error.is_none(), "{error:?}\n{full}");
    assert!(
        full.contains("\n  published:") && full.contains("\n  line: "),
        "{full}"
    );
}

#[test]
fn the_testbed_of_the_template_is_a_valid_campaign_and_other_keys_do_not_fit_it() {
    let text = TEMPLATE
        .replace("# testbed:", "testbed:")
        .replace("#   trex:", "  trex:")
        .replace("#   system:", "  system:");
    let campaign = Campaign::parse(&text).expect("a testbed");
    let testbed = campaign.testbed.expect("it is there").value;
    assert_eq!((testbed.trex.transmit, testbed.trex.receive), (0, 1));
    assert_eq!(testbed.system.ports, ["eth1", "eth2"]);
    let at = |key: &str| {
        text.lines()
            .position(|line| line.starts_with(key))
            .expect(key)
            + 1
    };
    for (from, to, expected) in [
        (
            "# cpus: {",
            "cpus: {",
            format!("line {}, column 7: cpus on a testbed", at("# cpus")),
        ),
        (
            "find: [pdr, mrr]",
            "find: [pdr, latency]",
            format!("line {}, column 13: find on a testbed", at("find")),
        ),
        (
            "  # cores: [1]",
            "  cores: [2]",
            format!(
                "line {}, column 11: cores on a testbed \"2\"",
                at("  # cores")
            ),
        ),
        (
            "  # flows: [1]",
            "  flows: [zipf 8]",
            format!(
                "line {}, column 11: flows on a testbed \"zipf 8\"",
                at("  # flows")
            ),
        ),
        (
            "transmit: 0, receive: 1",
            "transmit: 0, receive: 0",
            format!(
                "line {}, column 3: receive of trex \"0\"; expected another port",
                at("testbed") + 1
            ),
        ),
        (
            "transmit: 0",
            "transit: 0",
            "unknown field `transit`".to_owned(),
        ),
    ] {
        let error = Campaign::parse(&text.replace(from, to)).expect_err(to);
        let error = error.to_string();
        assert!(
            error.contains(&expected),
            "{to}: {error}\nand not: {expected}"
        );
    }
}

#[test]
fn several_cores_share_a_cpu_each() {
    let text = TEMPLATE
        .replace("# cpus: {", "cpus: {")
        .replace("  # cores: [1]", "  cores: [1, 2]");
    let error = Campaign::parse(&text).expect_err("apart").to_string();
    assert!(
        error.contains("column 14: cores with these cpus \"2\""),
        "{error}"
    );
    let shared = text.replace(
        "generator: 0, system: 1, sink: 0",
        "generator: 1, system: 1, sink: 1",
    );
    assert!(Campaign::parse(&shared).is_ok());
}

/// Whether a comment is a line of YAML.
fn is_key(text: &str) -> bool {
    let keys = [
        "note:",
        "line:",
        "cpus:",
        "sizes:",
        "sids:",
        "rules:",
        "routes:",
        "flows:",
        "cores:",
        "rates:",
        "baseline:",
        "engines:",
        "find:",
        "published:",
        "- {source:",
        "commands:",
        "- {name: mine",
    ];
    keys.iter().any(|key| text.starts_with(key))
}

#[test]
fn the_published_campaigns_are_valid_and_use_all_metrics_and_traffic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../campaigns");
    let files = fs::read_dir(folder).expect("campaigns").flatten();
    let files = files.map(|entry| entry.path());
    let (mut finds, mut sends) = (Vec::new(), Vec::new());
    for file in files.filter(|file| file.extension().is_some_and(|it| it == "yaml")) {
        let text = fs::read_to_string(&file).expect("readable");
        let campaign = Campaign::parse(&text);
        let campaign = campaign.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for group in &campaign.groups {
            finds.extend(campaign.finds(group));
            let plan = format!(
                "{:?} {:?} {:?} {:?}",
                group.sizes, group.flows, group.routes, group.cores
            );
            sends.push((group.routes.len() > 1, group.cores.len() > 1, plan));
        }
    }
    for find in [Find::Pdr, Find::Ndr, Find::Mrr, Find::Curve, Find::Latency] {
        assert!(finds.contains(&find), "no campaign finds {find:?}");
    }
    assert!(sends.iter().any(|(routes, _, _)| *routes), "routes");
    assert!(sends.iter().any(|(_, cores, _)| *cores), "cores");
    for word in ["Imix", "Zipf"] {
        assert!(
            sends.iter().any(|(_, _, plan)| plan.contains(word)),
            "{word}: {sends:?}"
        );
    }
}
