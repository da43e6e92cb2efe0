use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::grammar::Style;
use crate::hmac::Secret;
use crate::node::{LinkKind, Mac};
use crate::route::Family;

pub(super) const FILE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"], mtu: 9000, seg6_enabled: true}
  eth1: {addresses: ["fc01::2/64", "192.0.2.1/24"], forwarding: false}
  eth2:
  eth1.7: {vlan: {link: eth1, id: 7}}
neighbors: ["fc01::1 lladdr 02:00:00:00:00:11 dev eth1"]
routes:
- fc0a::/16 via fc01::1
- "fc00:0:1::/128 encap seg6local action End.DT46 table 100 dev eth0"
- 'fd09::/64 dev eth2 table 100'
rules:
- iif eth0 lookup 100
tunsrc: "fc00::2"
seg6_flowlabel: -1
"#;

pub(super) fn node(text: &str) -> Result<Node, ConfigError> {
    File::parse(text)?.node()
}

fn error(text: &str) -> String {
    node(text).expect_err(text).to_string()
}

fn routes(node: &Node) -> Vec<String> {
    let print = |route: &Route| route::print(route, node, Style::Show);
    node.routes.values().map(print).collect()
}

#[test]
fn a_file_becomes_a_node() {
    let node = node(FILE).expect("legal");
    let [eth0, eth1, _, vlan] = &node.links.values().collect::<Vec<_>>()[..] else {
        panic!("four links");
    };
    assert_eq!(
        (eth0.ifindex, eth0.mtu, eth0.seg6_enabled, eth0.forwarding6),
        (IfIndex(1), 9000, true, true)
    );
    assert_eq!(
        (eth1.mac, eth1.mtu, eth1.forwarding4),
        (Mac([2, 0, 0, 0, 0, 2]), 1500, false)
    );
    let kind = LinkKind::Vlan {
        link: IfIndex(2),
        id: 7,
        protocol: 0x8100,
    };
    assert_eq!((&vlan.kind, vlan.mac), (&kind, eth1.mac));
    assert_eq!(node.neighbors.len(), 1);
    assert_eq!(node.seg6_flowlabel, -1);
    assert_eq!(node.tunsrc, Some("fc00::2".parse().expect("an address")));
    assert_eq!(node.rules[&(Family::V6, 32765)].len(), 1);
    let owner = |prefix: &str| {
        let net = prefix.parse().expect("a prefix");
        node.routes
            .values()
            .find(|route| route.key.prefix == net)
            .map(|route| route.owner)
    };
    // Linux has no End.DT46 with a table.
    assert_eq!(owner("fc00:0:1::/128"), Some(Owner::Sidestep));
    assert_eq!(owner("fd09::/64"), Some(Owner::Kernel));
    assert!(
        routes(&node)
            .contains(&"fc0a::/16 via fc01::1 dev eth1 metric 1024 pref medium".to_owned())
    );
}

#[test]
fn a_file_without_keys_is_an_error_and_empty_lists_and_a_list_of_names_are_valid() {
    for text in ["", "{}", "--- {} # nothing", "\n# nothing\n", "---\n"] {
        let error = node(text).expect_err(text).to_string();
        assert!(error.contains("the file has no key"), "{error}");
    }
    for text in ["ports: []", "ports:\nroutes: []\n"] {
        let node = node(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(node.links.is_empty(), "{text}");
        assert_eq!(node.rules.len(), 5);
    }
    let file = File::parse("ports: [eth0, eth1]").expect("legal");
    assert_eq!(file.port_names().collect::<Vec<_>>(), ["eth0", "eth1"]);
}

#[test]
fn addresses_imply_the_routes_of_the_kernel() {
    let node = node(
        "ports: {eth0: {addresses: [fc00::2/64, fc02::2/127, 10.0.0.1/24, 10.0.0.2/24, 10.0.1.1/32]}, eth1: {}}",
    );
    let shown = routes(&node.expect("legal"));
    for want in [
        "fc00::/64 dev eth0 proto kernel metric 256 pref medium",
        "local fc00::2 dev eth0 table local proto kernel metric 0 pref medium",
        "anycast fc00:: dev eth0 table local proto kernel metric 0 pref medium",
        "fe80::/64 proto kernel metric 256 pref medium\n\tnexthop dev eth0 weight 1\n\tnexthop dev eth1 weight 1",
        "10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.1",
        "local 10.0.0.2 dev eth0 table local proto kernel scope host src 10.0.0.1",
        "local 10.0.1.1 dev eth0 table local proto kernel scope host src 10.0.1.1",
        "broadcast 10.0.0.255 dev eth0 table local proto kernel scope link src 10.0.0.1",
    ] {
        assert!(
            shown.iter().any(|line| line == want),
            "{want} is missing in\n{}",
            shown.join("\n")
        );
    }
    assert!(!shown.iter().any(|line| line.starts_with("anycast fc02::")));
}

#[test]
fn an_error_in_a_line_points_at_the_word_in_the_file() {
    for (text, want) in [
        (
            "ports: [eth0]\nroutes:\n- fc00::/64 dev eth1\n",
            "line 3, column 17: no such interface \"eth1\"; expected one of eth0",
        ),
        (
            "ports: [eth0]\nroutes: [\"fc00::/64  dev eth1\"]\n",
            "line 2, column 26: no such interface",
        ),
        (
            "ports: [eth0]\nroutes:\n  - 'fc00::/64 dev eth0 metric x'\n",
            "line 3, column 32: invalid `metric` \"x\"",
        ),
        (
            "ports: [eth0]\nroutes:\n- fc00::/64\n",
            "line 3, column 12: missing next hop",
        ),
        (
            "rules: [\"from fd00::/8 lookup\"]",
            "line 1, column 30: `lookup` needs a value",
        ),
        (
            "ports: [eth0]\nneighbors: [fc00::1 dev eth0]",
            "line 2, column 29: missing `lladdr`",
        ),
        // Words of a folded scalar have no places of their own, so the error is at its beginning.
        (
            "ports: [eth0]\nroutes:\n- >\n  fc00::/64\n  dev eth1\n",
            "line 4, column 3: no such interface \"eth1\"",
        ),
    ] {
        let found = error(text);
        assert!(
            found.starts_with(want),
            "{text}\nfound {found}\nwant  {want}"
        );
    }
}

#[test]
fn an_error_in_the_yaml_or_in_a_value_has_its_line_and_column() {
    for (text, want) in [
        (
            "port: [eth0]\n",
            "line 1, column 1: unknown field `port`; expected ports, perhaps",
        ),
        (
            "ports:\n  eth0: {mtuu: 1500}\n",
            "line 2, column 10: unknown field `mtuu`; expected one of mac, addresses",
        ),
        ("ports:\n  eth0: {mtu: big}\n", "line 2, column 15: "),
        (
            "ports:\n  eth0: {mtu: 60}\n",
            "line 2, column 15: invalid `mtu` \"60\"; expected a number from 68 to 65535",
        ),
        (
            "ports:\n  eth0: {mac: \"03:00:00:00:00:01\"}\n",
            "line 2, column 15: invalid `mac`",
        ),
        (
            "ports:\n  eth0: {addresses: [\"fc00::2/129\"]}\n",
            "line 2, column 22: invalid address",
        ),
        (
            "ports:\n  eth0: {}\n  eth0: {}\n",
            "line 3, column 3: duplicate",
        ),
        (
            "ports: [eth0, eth0]\n",
            "line 1, column 15: duplicate port \"eth0\"",
        ),
        (
            "ports: [\"a b\"]\n",
            "line 1, column 9: invalid name of a port \"a b\"",
        ),
        (
            "ports:\n  v7: {vlan: {link: eth0, id: 7}}\n",
            "line 2, column 21: no such port \"eth0\"",
        ),
        (
            "ports:\n  e: {}\n  v: {vlan: {link: e, id: 4095}}\n",
            "line 3, column 27: invalid `id` \"4095\"",
        ),
        (
            "ports:\n  e: {}\n  v: {vlan: {link: e, id: 1, protocol: QinQ}}\n",
            "line 3, column 40: invalid `protocol` \"QinQ\"",
        ),
        (
            "tunsrc: ff02::1\n",
            "line 1, column 9: invalid `tunsrc` \"ff02::1\"",
        ),
        (
            "seg6_flowlabel: 2\n",
            "line 1, column 17: invalid `seg6_flowlabel` \"2\"; expected -1, 0 or 1",
        ),
        (
            "ports: 7\n",
            "line 1, column 8: invalid `ports`; expected a map from names",
        ),
        ("routes: [\n", "line 1, column 9: unclosed bracket"),
        (
            "ports: [eth0]\nroutes:\n- a3:: encap seg6 mode encap segs fc00::1 dev eth0\n",
            "line 3, column 3: YAML reads this text as a mapping, because a blank follows a colon: \
             \"a3:: encap seg6 mode encap segs fc00::1 dev eth0\"; \
             expected quotes around it: \"a3:: encap seg6",
        ),
        (
            "neighbors:\n  - fc01:: lladdr 02:00:00:00:00:11 dev eth1\n",
            "line 2, column 5: YAML reads this text as a mapping",
        ),
        (
            "routes:\n- [a]\n",
            "line 2, column 3: invalid value; expected one value",
        ),
    ] {
        let found = error(text);
        assert!(
            found.starts_with(want),
            "{text}\nfound {found}\nwant  {want}"
        );
    }
}

#[test]
fn a_duplicate_route_is_refused_except_implied_ones() {
    let ports = "ports: {eth0: {addresses: [\"10.0.0.1/24\"]}}\n";
    let twice = format!("{ports}routes:\n- 10.1.0.0/16 dev eth0\n- 10.1.0.0/16 via 10.0.0.2\n");
    assert!(error(&twice).starts_with("line 4, column 3: duplicate route: \"10.1.0.0/16\""));
    let connected = format!("{ports}routes:\n- 10.0.0.0/24 via 10.0.0.2\n");
    assert!(error(&connected).contains("duplicate route"));
    let pasted =
        format!("{ports}routes:\n- 10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.1\n");
    assert!(node(&pasted).is_ok());
}

#[test]
fn what_nobody_would_do_is_refused() {
    let with = |route: &str| format!("ports: [eth0]\nroutes:\n- {route}\n");
    // The kernel supports this one.
    let signed = "fc00::1 encap seg6 mode encap segs fc00::5 hmac 1 dev eth0";
    assert!(node(&with(signed)).is_ok());
    assert!(error(&with("fc00::/64 nhid 7")).contains("nexthop objects are the kernel's"));
    assert!(
        error(&with("fc00::/64 via fc01::1"))
            .starts_with("line 3, column 13: no interface is known to reach")
    );
}

#[test]
fn an_overlay_is_resolved_in_the_live_node() {
    let live = node(FILE).expect("legal");
    let text = "ports: [eth0]\nroutes: [\"fd77::1 encap seg6local action End.DT4 table 7 dev eth1\", fd78::/64 via fc01::9]\nrules: [from fd00::/8 lookup 7]\n";
    let overlay = File::parse(text)
        .and_then(|file| file.overlay(&live, &live))
        .expect("legal");
    assert!(
        overlay
            .routes
            .values()
            .all(|route| route.owner == Owner::Sidestep)
    );
    assert_eq!(
        overlay
            .routes
            .values()
            .filter_map(|route| route.next_hops[0].dev)
            .collect::<Vec<_>>(),
        [IfIndex(2); 2]
    );
    assert_eq!(
        (overlay.rules[0].priority, overlay.rules[0].owner),
        (32764, Owner::Sidestep)
    );
}

#[test]
fn a_route_may_name_its_owner() {
    let ports = "ports: {eth0: {addresses: [fc00::2/64]}}\nroutes:\n";
    let live = node(&ports.replace("routes:", "")).expect("legal");
    for (line, replay, run) in [
        ("fc0a::/16 via fc00::1", Owner::Kernel, 1),
        ("fc0a::/16 via fc00::1 owner sidestep", Owner::Sidestep, 1),
        ("fc0a::/16 via fc00::1 owner kernel", Owner::Kernel, 0),
        (
            "fc0a::1 encap seg6local action End flavors usd dev eth0",
            Owner::Sidestep,
            1,
        ),
        (
            "fc0a::1 encap seg6local action End flavors usd dev eth0 owner sidestep",
            Owner::Sidestep,
            1,
        ),
    ] {
        let text = format!("{ports}- {line}\n");
        let node = node(&text).unwrap_or_else(|error| panic!("{line}: {error}"));
        let route = node
            .routes
            .values()
            .find(|route| route.key.prefix.to_string().starts_with("fc0a"));
        assert_eq!(route.map(|route| route.owner), Some(replay), "{line}");
        let overlay = File::parse(&text).and_then(|file| file.overlay(&live, &live));
        assert_eq!(overlay.expect(line).routes.len(), run, "{line}");
    }
    for (line, want) in [
        (
            "fc0a::/16 via fc00::1 owner frr",
            "line 3, column 31: invalid `owner` \"frr\"; expected kernel or sidestep",
        ),
        (
            "fc0a::/16 via fc00::1 owner",
            "line 3, column 25: unknown keyword \"owner\"",
        ),
        (
            "fc0a::1 encap seg6local action End flavors usd dev eth0 owner kernel",
            "line 3, column 65: Linux cannot express this route: \"owner kernel\"; expected owner sidestep",
        ),
    ] {
        let text = format!("{ports}- {line}\n");
        let found = error(&text);
        assert!(
            found.starts_with(want),
            "{line}\nfound {found}\nwant  {want}"
        );
        let overlay = File::parse(&text).and_then(|file| file.overlay(&live, &live));
        assert_eq!(overlay.expect_err(line).to_string(), found);
    }
}

#[test]
fn hmac_secrets_come_from_the_file_and_errors_hide_them() {
    let keys =
        "hmac: {7: {algorithm: sha256, secret: \"hush\"}, 8: {algorithm: sha1, secret_file: k8}}";
    let mut file = File::parse(keys).expect("YAML");
    assert!(file.holds_secrets());
    let found = file.node().expect_err("k8 has not been read").to_string();
    assert!(
        found.contains("no secret is known of HMAC key \"8\""),
        "{found}"
    );
    let refused = file.clone().read_secrets(|_| Err("not there".into()));
    let found = refused.expect_err("it is not there").to_string();
    assert!(
        found.contains("`secret_file`: not there: \"k8\""),
        "{found}"
    );
    file.read_secrets(|path| {
        assert_eq!(path.to_str(), Some("k8"));
        Secret::new(b"still").map_err(|error| error.to_string())
    })
    .expect("both are known");
    let node = file.node().expect("legal");
    assert_eq!(node.hmac_keys[&7].secret, Secret::new(b"hush").unwrap());
    assert_eq!(node.hmac_keys[&8].secret, Secret::new(b"still").unwrap());
    assert!(!format!("{file:?}{node:?}").contains("hush"));
    let long = "x".repeat(65);
    for secret in ["[4711]", "{a: 4711}", "\"\"", &long] {
        let found = File::parse(&format!(
            "hmac: {{7: {{algorithm: sha1, secret: {secret}}}}}"
        ));
        let found = found.expect_err(secret).to_string();
        assert!(!found.contains("47") && !found.contains("xx"), "{found}");
    }
    assert!(error("hmac: {0: {algorithm: sha1, secret: \"x\"}}").contains("HMAC key id"));
}

#[test]
fn a_file_can_be_part_of_another_document() {
    #[derive(serde::Deserialize)]
    struct Vectors {
        node: File,
    }
    let text = "node:\n  ports: {eth0: {}}\n  routes:\n  - fc00::/64 dev eth1\n";
    let vectors: Vectors = serde_saphyr::from_str(text).expect("YAML");
    let found = vectors.node.node().expect_err("no eth1").to_string();
    assert!(
        found.starts_with("line 4, column 19: no such interface"),
        "{found}"
    );
}

#[test]
fn a_binding_sid_has_no_other_use() {
    let with = |sid: &str, route: &str| {
        format!(
            "ports: {{eth0: {{addresses: [fc00::2/64]}}, eth1: {{}}}}\npolicies:\n\
             - p color 1 endpoint ::1 bsid {sid} segs fc00::1\n\
             - q color 2 endpoint ::1 segs fc00::1\n\
             routes:\n- \"{route}\"\n"
        )
    };
    for route in [
        "fc0f::/64 policy q",
        "fc0f::b1/128 policy q table 100",
        "fc0f::b1/128 via fc00::1",
        "fc0f::/64 encap seg6local action End dev eth1",
    ] {
        node(&with("fc0f::b1", route)).unwrap_or_else(|error| panic!("{route}: {error}"));
    }
    for route in [
        "fc0f::b1/128 policy q",
        "fc0f::b1/128 dscp 46 policy q metric 7",
        "fc0f::b1/128 encap seg6local action End dev eth1",
        "local fc0f::/64 dev eth1",
    ] {
        let text = with("fc0f::b1", route);
        let found = error(&text);
        let want = "line 6, column 4: the binding SID of policy p is \"fc0f::b1\"";
        assert!(found.starts_with(want), "{route}: {found}");
        let live = node("ports: {eth0: {}, eth1: {}}").expect("legal");
        let added = File::parse(&text).expect("YAML").overlay(&live, &live);
        assert_eq!(added.expect_err(route).to_string(), found);
    }
    // Existing routes: those of the node's addresses and of the kernel.
    let plain = "fc0a::/16 via fc00::1";
    let want = "line 3, column 26: a route to fc00::2/128 takes the packets to \"fc00::2\"";
    let found = error(&with("fc00::2", plain));
    assert!(found.starts_with(want), "{found}");
    let kernel =
        node("ports: {eth1: {}}\nroutes: [fc0f::b1/128 encap seg6local action End dev eth1]")
            .expect("legal");
    let file = File::parse("policies:\n- p color 1 endpoint ::1 bsid fc0f::b1 segs fc00::1");
    let found = file.expect("YAML").overlay(&kernel, &kernel);
    let found = found.expect_err("the kernel's SID").to_string();
    let want = "line 2, column 26: a route to fc0f::b1/128 takes";
    assert!(found.starts_with(want), "{found}");
}

#[test]
fn errors_of_values_say_what_is_allowed() {
    for (text, want) in [
        (
            "oam_rate: -3",
            "line 1, column 11: invalid value; expected a number from 0 to 4294967295",
        ),
        (
            "ports: {eth0: {mtu: big}}",
            "line 1, column 21: invalid value; expected a number from 0 to 4294967295",
        ),
        (
            "ports: {eth0: {rp_filter: 256}}",
            "line 1, column 27: invalid value; expected a number from 0 to 255",
        ),
        (
            "ports: {a: {}, b: {vlan: {link: a, id: x}}}",
            "line 1, column 40: invalid value; expected a number from 0 to 65535",
        ),
        (
            "seg6_flowlabel: a",
            "line 1, column 17: invalid value; expected a number",
        ),
        (
            "require_seg6_enabled: 7",
            "line 1, column 23: invalid value; expected true or false",
        ),
        (
            "routes: fc00::/64 dev eth0",
            "line 1, column 9: invalid value; expected a list",
        ),
        (
            "hmac: 7",
            "line 1, column 7: invalid value; expected keys with values (`KEY: VALUE`)",
        ),
        (
            "fragment_rate: [1]",
            "line 1, column 16: invalid value; expected one value",
        ),
        (
            "local_srh: [a]",
            "line 1, column 12: invalid value; expected one value",
        ),
        (
            "local_srh: foo",
            "line 1, column 12: unknown value `foo`; expected one of drop, linux",
        ),
        (
            "oam_rate: 1\noam_rate: 2",
            "line 2, column 1: duplicate key `oam_rate`; expected each key once",
        ),
    ] {
        assert_eq!(error(text), want, "{text}");
    }
}

/// `tests/test_schema.py` compares the other keys, which the program lists in its errors.
#[test]
fn the_schema_has_the_keys_of_a_node_file() {
    #[expect(clippy::zero_sized_map_values, reason = "serde reads no set of keys")]
    #[derive(serde::Deserialize)]
    struct Schema {
        properties: BTreeMap<String, serde::de::IgnoredAny>,
    }
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/node-file.schema.json"
    );
    let schema = std::fs::read_to_string(path).expect("a file of the repository");
    // JSON is YAML.
    let schema: Schema = serde_saphyr::from_str(&schema).expect("a schema");
    let error = serde_saphyr::from_str::<File>("nothing: 1").expect_err("no such key");
    let error = error.without_snippet().to_string();
    let (_, known) = error.split_once("expected one of ").expect("the keys");
    let known = known.split(" at line ").next().unwrap_or_default();
    let known: BTreeSet<&str> = known.split(", ").collect();
    let listed: BTreeSet<&str> = schema.properties.keys().map(String::as_str).collect();
    assert_eq!(known, listed);
}
