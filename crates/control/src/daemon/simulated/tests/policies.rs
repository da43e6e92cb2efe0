//! SR policies: validity, candidate paths of controllers, fallbacks and refusals.

use serde_json::{Value, json};

use super::{SECOND, refused};
use crate::api::{Request, parse_request};
use crate::daemon::simulated::{STAR, Simulation};
use crate::report;

const FAR: &str = "2001:db8:e::1";
/// Policy of the batches. Routes name it before it exists.
const NAME: &str = "color-100-fc00-c--2";

fn start() -> Simulation {
    let mut node = Simulation::with(STAR, &["eth0", "eth1", "eth2"], "");
    node.ip("route add 2001:db8:e::/48 via fc00:a::2 dev eth0");
    node
}

fn policies(node: &mut Simulation) -> report::Policies {
    node.report(Request::ShowPolicies)
}

fn owner(origin: &str) -> Value {
    json!({"protocol_origin": origin, "originator": {"asn": 65001, "address": "192.0.2.1"}})
}

/// Returns an operation that installs a path through one host.
fn through(host: &str, preference: u32) -> Value {
    let segments = json!([format!("fc00:{host}::2")]);
    json!({"action": "replace", "color": 100, "endpoint": "fc00:c::2", "discriminator": 7,
           "candidate_path": {"preference": preference, "segment_lists": [{"segments": segments}]}})
}

fn batch(origin: &str, operations: &[Value]) -> Value {
    json!({"owner": owner(origin), "operations": operations})
}

/// Applies a batch. Returns the result of each operation.
fn apply(node: &mut Simulation, batch: &Value) -> Result<Vec<String>, String> {
    apply_text(node, &batch.to_string())
}

/// As [`apply`], for a batch that may not be well-formed.
fn apply_text(node: &mut Simulation, batch: &str) -> Result<Vec<String>, String> {
    let line =
        format!("{{\"version\":1,\"request\":{{\"op\":\"policy_batch\",\"batch\":{batch}}}}}");
    let request = parse_request(&line)?;
    let found: report::PolicyBatch = serde_json::from_value(node.ask(request)?).expect("a report");
    let result = |it: &report::PolicyResult| {
        let result = serde_json::to_value(it.result).expect("JSON");
        format!("{} {}", it.policy, result.as_str().expect("a word"))
    };
    let results = found.results.iter().map(result);
    let gone = found
        .withdrawn
        .iter()
        .map(|path| format!("{} withdrawn", path.discriminator));
    Ok(results.chain(gone).collect())
}

#[test]
fn a_policy_falls_back_to_the_ip_route_or_drops_as_it_says() {
    for (words, expected) in [
        ("", "forward eth0"),
        ("drop-upon-invalid ", "drop policy_invalid"),
    ] {
        let mut node = start();
        assert_eq!(node.verdict(FAR), "forward eth0");
        node.all([
            &format!("policy add gold color 100 endpoint fc00:c::2 {words}segs fc00:b::2")[..],
            "route add 2001:db8:e::/48 policy gold",
        ]);
        assert_eq!(node.outer_destination(FAR), "fc00:b::2");
        node.ip("neigh del fc00:b::2");
        assert_eq!(node.verdict(FAR), expected);
        assert_eq!(policies(&mut node)[0].active, None);
        node.ip("neigh add fc00:b::2 lladdr 02:00:00:00:00:12 dev eth1 nud reachable");
        assert_eq!(node.outer_destination(FAR), "fc00:b::2");
        node.all(["route del 2001:db8:e::/48", "policy del gold"]);
        assert_eq!(node.verdict(FAR), "forward eth0");
    }
}

#[test]
fn shares_follow_the_weights_of_the_valid_lists() {
    let mut node = start();
    node.all([
        "policy add gold color 100 endpoint fc00:c::2 segs fc00:b::2 weight 3 segs fc00:c::2 weight 1",
        "route add 2001:db8:e::/48 policy gold",
    ]);
    let shares = |node: &mut Simulation| {
        let lists = policies(node).remove(0).candidates.remove(0).lists;
        lists
            .into_iter()
            .map(|list| (list.share, list.invalid))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        shares(&mut node),
        [(Some((192, 256)), None), (Some((64, 256)), None)]
    );
    node.ip("neigh del fc00:c::2");
    let why = Some("neighbor fc00:c::2 is not resolved".to_owned());
    assert_eq!(shares(&mut node), [(Some((256, 256)), None), (None, why)]);
    assert_eq!(node.outer_destination(FAR), "fc00:b::2");
    node.ip("neigh add fc00:c::2 lladdr 02:00:00:00:00:13 dev eth2 nud reachable");
    assert_eq!(
        shares(&mut node),
        [(Some((192, 256)), None), (Some((64, 256)), None)]
    );
}

#[test]
fn the_path_with_the_highest_preference_that_is_valid_is_active() {
    let mut node = start();
    node.all([
        "policy add gold color 100 endpoint fc00:c::2 preference 200 segs fc00:b::2 preference 100 segs fc00:c::2",
        "route add 2001:db8:e::/48 policy gold",
    ]);
    let active = |node: &mut Simulation| policies(node)[0].active;
    assert_eq!(
        (active(&mut node), &node.outer_destination(FAR)[..]),
        (Some(200), "fc00:b::2")
    );
    node.ip("link down eth1");
    assert_eq!(
        (active(&mut node), &node.outer_destination(FAR)[..]),
        (Some(100), "fc00:c::2")
    );
    node.ip("link up eth1");
    assert_eq!(
        (active(&mut node), &node.outer_destination(FAR)[..]),
        (Some(200), "fc00:b::2")
    );
}

#[test]
fn a_binding_sid_leads_into_its_policy() {
    let mut node = start();
    node.all(["policy add gold color 100 endpoint fc00:c::2 bsid fc0f::b1 segs fc00:b::2"]);
    assert_eq!(
        node.verdict("fc0f::b1"),
        "drop no_srh",
        "End.B6.Encaps needs an SRH"
    );
    node.all(["policy del gold"]);
    assert_eq!(node.verdict("fc0f::b1"), "punt route_miss");
}

#[test]
fn wrong_policies_and_routes_into_them_are_refused() {
    let mut node = start();
    node.all([
        "policy add gold color 100 endpoint fc00:c::2 bsid fc0f::b1 segs fc00:b::2",
        "route add 2001:db8:e::/48 policy gold",
    ]);
    let shown = node.shown();
    for (line, why) in [
        ("policy del gold", "a route leads into policy gold"),
        ("policy del silver", "there is no policy silver"),
        ("policy del gold fast", "unknown keyword \"fast\""),
        (
            "policy add gold color 1 endpoint ::1 segs fc00::1",
            "already",
        ),
        (
            "policy add silver color 100 endpoint fc00:c::2 segs fc00::1",
            "has that color and endpoint",
        ),
        (
            "policy add silver color 1 endpoint ::1 bsid fc0f::b1 segs fc00::1",
            "has that binding SID",
        ),
        ("route add 2001:db8:f::/48 policy silver", "no such policy"),
        (
            "route add fc0f::b1/128 policy gold",
            "the binding SID of policy gold is",
        ),
        (
            "policy add color-100-fc00-c--2 color 5 endpoint ::1 segs fc00:b::2",
            "the name stands for color 100 endpoint fc00:c::2",
        ),
    ] {
        let found = refused(&mut node, line);
        assert!(found.contains(why), "{line}: {found}");
        assert_eq!(node.shown(), shown);
    }
}

#[test]
fn a_batch_of_a_controller_takes_effect_at_once_and_twice_is_as_once() {
    let mut node = start();
    node.all([&format!("route add 2001:db8:e::/48 policy {NAME}")[..]]);
    assert_eq!(
        node.verdict(FAR),
        "forward eth0",
        "the policy does not exist yet"
    );
    let one = batch("bgp", &[through("b", 100)]);
    assert_eq!(apply(&mut node, &one), Ok(vec![format!("{NAME} added")]));
    assert_eq!(node.outer_destination(FAR), "fc00:b::2");
    let before = node.instance.tables.compilations;
    assert_eq!(
        apply(&mut node, &one),
        Ok(vec![format!("{NAME} unchanged")])
    );
    assert_eq!(node.instance.tables.compilations, before);
    let other = batch("bgp", &[through("b", 150)]);
    assert_eq!(
        apply(&mut node, &other),
        Ok(vec![format!("{NAME} replaced")])
    );
    let running = node.shown();
    assert!(
        !running.contains("150"),
        "paths of controllers are no configuration: {running}"
    );
}

#[test]
fn a_batch_with_an_error_changes_nothing_and_names_the_field() {
    let mut node = start();
    node.all([&format!("route add 2001:db8:e::/48 policy {NAME}")[..]]);
    apply(&mut node, &batch("bgp", &[through("b", 100)])).expect("a good batch");
    let compilations = node.instance.tables.compilations;
    let good = through("c", 900);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut bad = through("c", 900);
        bad["discriminator"] = json!(8);
        change(&mut bad);
        batch("bgp", &[good.clone(), bad])
    };
    let long = with(&|it| {
        it["candidate_path"]["segment_lists"][0]["segments"] = json!(vec!["fc00:c::2"; 17]);
    });
    let add = with(&|it| {
        it["action"] = json!("add");
        it["discriminator"] = json!(7);
    });
    let mut local = batch("bgp", &[through("c", 900)]);
    local["operations"][0]["candidate_path"]["binding_sid"] = json!("fc00:a::1");
    for (bad, field) in [
        (
            with(&|it| it["colour"] = json!(1)),
            "operations[1].colour: unknown field",
        ),
        (
            with(&|it| it["owner"] = owner("pcep")),
            "operations[1].owner: unknown field",
        ),
        (
            with(&|it| it["discriminator"] = json!(7)),
            "operations[1].discriminator: operations[0] changes",
        ),
        (
            long,
            "operations[1].candidate_path.segment_lists[0].segments: too many segments (17)",
        ),
        (add, "operations[1].discriminator: operations[0] changes"),
        (
            local,
            "operations[0].candidate_path.binding_sid: a route takes the packets to fc00:a::1",
        ),
    ] {
        let found = apply(&mut node, &bad).expect_err(field);
        assert!(found.contains(field), "{found}");
        assert_eq!(node.outer_destination(FAR), "fc00:b::2");
    }
    let two_owners = batch("bgp", std::slice::from_ref(&good)).to_string();
    let two_owners = two_owners.replacen('{', &format!("{{\"owner\":{},", owner("pcep")), 1);
    let found = apply_text(&mut node, &two_owners).expect_err("two owners");
    assert!(found.starts_with("duplicate field `owner`"), "{found}");
    apply_text(&mut node, "[]").expect_err("no batch");
    assert_eq!(node.instance.tables.compilations, compilations);
}

#[test]
fn owners_have_paths_of_their_own_and_preference_and_origin_select_one() {
    let mut node = start();
    node.all([&format!("route add 2001:db8:e::/48 policy {NAME}")[..]]);
    apply(&mut node, &batch("bgp", &[through("b", 150)])).expect("BGP");
    apply(&mut node, &batch("pcep", &[through("c", 150)])).expect("PCEP");
    assert_eq!(
        node.outer_destination(FAR),
        "fc00:b::2",
        "BGP precedes PCEP"
    );
    apply(&mut node, &batch("pcep", &[through("c", 200)])).expect("PCEP");
    assert_eq!(
        node.outer_destination(FAR),
        "fc00:c::2",
        "the higher preference"
    );
    let mut empty = batch("bgp", &[]);
    empty["complete"] = json!(true);
    assert_eq!(apply(&mut node, &empty), Ok(vec!["7 withdrawn".into()]));
    assert_eq!(policies(&mut node)[0].candidates.len(), 1);
    let withdraw =
        json!({"action": "withdraw", "color": 100, "endpoint": "fc00:c::2", "discriminator": 7});
    apply(&mut node, &batch("pcep", &[withdraw])).expect("PCEP");
    assert_eq!(node.verdict(FAR), "forward eth0");
    assert_eq!(policies(&mut node).len(), 0);
}

#[test]
fn paths_of_controllers_join_a_configured_policy_and_outlive_its_changes() {
    let mut node = start();
    node.all([
        &format!("route add 2001:db8:e::/48 policy {NAME}")[..],
        "policy add gold color 100 endpoint fc00:c::2 preference 50 segs fc00:b::2",
    ]);
    assert_eq!(
        node.outer_destination(FAR),
        "fc00:b::2",
        "the route names the color"
    );
    let found = apply(&mut node, &batch("bgp", &[through("c", 100)]));
    assert_eq!(found, Ok(vec!["gold added".into()]));
    assert_eq!(node.outer_destination(FAR), "fc00:c::2");
    let running = node.shown().replace("preference 50", "preference 60");
    let config = crate::daemon::simulated::config_text(&running);
    node.ask(Request::ApplyConfig {
        config,
        confirm: Some(5),
    })
    .expect("applied");
    assert_eq!(node.outer_destination(FAR), "fc00:c::2");
    node.run(SECOND * 10);
    assert_eq!(
        node.outer_destination(FAR),
        "fc00:c::2",
        "after the rollback, too"
    );
}

#[test]
fn a_batch_whose_write_fails_leaves_the_paths_as_they_were() {
    let mut node = start();
    node.all([&format!("route add 2001:db8:e::/48 policy {NAME}")[..]]);
    apply(&mut node, &batch("bgp", &[through("b", 100)])).expect("a good batch");
    node.instance.tables.kernel.fail_always(true);
    apply(&mut node, &batch("bgp", &[through("c", 100)])).expect_err("writes that fail");
    node.instance.tables.kernel.fail_always(false);
    assert_eq!(node.outer_destination(FAR), "fc00:b::2");
    node.run(SECOND * 3);
    assert_eq!(node.outer_destination(FAR), "fc00:b::2");
    let again = apply(&mut node, &batch("bgp", &[through("b", 100)]));
    assert_eq!(again, Ok(vec![format!("{NAME} unchanged")]));
}

#[test]
fn a_route_a_policy_and_a_vrf_have_their_own_sources() {
    let text = "\
ports: [eth0, eth1, eth2]
tunsrc: fc00:5::1
vrfs: [table 100 tunsrc fc00:5::100]
policies: [gold color 1 endpoint fc00:b::2 mode encap segs fc00:b::2]
rules: [iif eth0 lookup 100]
routes:
- 2001:db8:e::/48 encap seg6 mode encap segs fc00:b::2 dev eth1 table 100
- 2001:db8:f::/48 encap seg6 mode encap.red segs fc00:b::2,fc00:b::3 dev eth1 table 100
- 2001:db8:d::/48 encap seg6 mode encap segs fc00:b::2 dev eth1
";
    let mut node = Simulation::with(STAR, &[], text);
    let sources = |node: &Simulation| {
        ["2001:db8:e::1", "2001:db8:f::1", "2001:db8:d::1"].map(|to| {
            let (_, frame) = node.packet("eth0", to);
            let source: [u8; 16] = frame[22..38].try_into().expect("a source");
            std::net::Ipv6Addr::from(source).to_string()
        })
    };
    let are = |node: &Simulation, expected: [&str; 3]| assert_eq!(sources(node), expected);
    are(&node, ["fc00:5::100", "fc00:5::100", "fc00:5::1"]);
    assert!(node.shown().contains("table 100 tunsrc fc00:5::100"));
    node.all([
        "route replace 2001:db8:e::/48 encap seg6 mode encap segs fc00:b::2 tunsrc fc00:5::7 dev eth1 table 100",
    ]);
    are(&node, ["fc00:5::7", "fc00:5::100", "fc00:5::1"]);
    node.all(["route replace 2001:db8:f::/48 policy gold table 100"]);
    are(&node, ["fc00:5::7", "fc00:5::100", "fc00:5::1"]);
    node.all([
        "policy replace gold color 1 endpoint fc00:b::2 mode encap tunsrc fc00:5::9 segs fc00:b::2",
    ]);
    are(&node, ["fc00:5::7", "fc00:5::9", "fc00:5::1"]);
    let problem = |node: &mut Simulation| {
        let status: report::Status = node.report(Request::ShowStatus);
        let all = status.problems.into_iter();
        let of =
            |it: &report::Problem| it.code == "tunsrc_not_local" && it.sentence.contains("5::9");
        all.filter(of).count()
    };
    assert_eq!(problem(&mut node), 1, "no interface has the address");
    let eth0 = node.dev("eth0");
    let own = "fc00:5::9/128".parse().expect("an address");
    node.instance.mirror.change(|node| {
        node.addresses.insert((eth0, own));
    });
    node.run(SECOND * 2);
    assert_eq!(problem(&mut node), 0);
}
