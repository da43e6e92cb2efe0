//! Requests on the daemon's socket.
//!
//! Each request that parses is printed and parsed again, with an equal result. The parser accepts
//! or refuses the route in a request and never panics.

use std::collections::BTreeMap;

use serde_json::json;
use sidestep_control::api::{BatchLine, ConfigText, Noun, Request, VERSION, Verb, parse_request};
use sidestep_model::config::{File, read_own_route};
use sidestep_model::grammar::{Context, Words};
use sidestep_model::node::Node;
use sidestep_model::route::Owner;

use crate::Target;
use crate::datapath::nodes::vectors;
use crate::text::Vocabulary;

/// Fuzz target for requests.
pub struct Api {
    requests: BTreeMap<String, String>,
    vocabulary: Vocabulary,
    live: Node,
}

impl Target for Api {
    const NAME: &'static str = "api";

    fn new() -> Self {
        let mut requests = BTreeMap::new();
        let mut add = |name: String, request: &Request| {
            let line = json!({"version": VERSION, "request": request}).to_string();
            requests.insert(name, line);
        };
        add("ports".into(), &Request::ShowPorts);
        add("counters".into(), &Request::ShowCounters);
        add("drops".into(), &Request::ShowDrops);
        add("limits".into(), &Request::ShowLimits);
        add("routes".into(), &Request::ShowRoutes { all: true });
        add("oam".into(), &Request::SetOam { rate: 100 });
        add("listen".into(), &Request::ListenOam);
        add("stop".into(), &Request::Stop { keep: false });
        add("config".into(), &Request::ShowConfig);
        let config = ConfigText {
            text: "ports: [eth0]\n".into(),
            secrets: Vec::new(),
        };
        let confirm = Some(60);
        add("apply".into(), &Request::ApplyConfig { config, confirm });
        let name = "eth2".to_owned();
        add("port".into(), &Request::AddPort { name });
        let request = r#"{"op": "policy_batch", "batch": {"owner": {"protocol_origin": "bgp",
            "originator": {"asn": 65001, "address": "192.0.2.1"}}, "complete": true, "operations": [
            {"action": "replace", "color": 100, "endpoint": "fc00:3::1", "discriminator": 7,
            "candidate_path": {"preference": 200, "binding_sid": "fc0f::b1", "mode": "encap.red",
            "drop_upon_invalid": true, "segment_lists": [{"segments": ["fc00:2::e"], "weight": 3}]}},
            {"action": "withdraw", "color": 100, "endpoint": "fc00:3::1", "discriminator": 8}]}}"#;
        let batch = serde_json::from_str(request).expect("a request");
        add("policy_batch".into(), &batch);
        let explain = Request::Explain {
            port: "eth0".into(),
            frame: "0200".into(),
        };
        add("explain".into(), &explain);
        let get = Request::GetRoute {
            destination: [192, 0, 2, 1].into(),
            from: None,
            port: "eth0".into(),
        };
        add("route_get".into(), &get);
        let files = vectors();
        let lines = files.iter().flat_map(|file| &file.node.routes);
        for (number, line) in lines.enumerate() {
            let verbs = [Verb::Add, Verb::Replace, Verb::Del];
            let request = Request::Change {
                noun: Noun::Route,
                verb: verbs[number % verbs.len()],
                args: line.split(' ').map(str::to_owned).collect(),
            };
            add(format!("route-{number}"), &request);
        }
        let line = |number: u32, line: &str| BatchLine {
            line: number,
            noun: Noun::Route,
            verb: Verb::Add,
            args: line.split(' ').map(str::to_owned).collect(),
        };
        let lines = files.iter().flat_map(|file| &file.node.routes).take(3);
        let changes = (1..).zip(lines).map(|(number, text)| line(number, text));
        let changes = changes.collect();
        add("batch".into(), &Request::Batch { changes });
        let text = files.first().map_or("", |file| file.node_text.as_str());
        Self {
            vocabulary: Vocabulary::of(requests.values().map(String::as_str)),
            requests,
            live: File::parse(text)
                .and_then(|file| file.node())
                .expect("a vector's node is read"),
        }
    }

    fn run(&mut self, input: &[u8]) {
        let Ok(line) = std::str::from_utf8(input) else {
            return;
        };
        let Ok(request) = parse_request(line) else {
            return;
        };
        let again = json!({"version": VERSION, "request": request}).to_string();
        assert_eq!(parse_request(&again), Ok(request.clone()));
        if let Request::Change {
            noun: Noun::Route,
            args,
            ..
        } = &request
        {
            let ctx = Context {
                names: &self.live,
                family: None,
                owner: Owner::Sidestep,
            };
            let _ = read_own_route(&mut Words::from_args(args), &ctx, &self.live);
        }
    }

    fn seeds(&self) -> Vec<(String, Vec<u8>)> {
        self.requests
            .iter()
            .map(|(name, line)| (name.clone(), line.clone().into_bytes()))
            .collect()
    }

    fn vocabulary(&self) -> Option<&Vocabulary> {
        Some(&self.vocabulary)
    }
}
