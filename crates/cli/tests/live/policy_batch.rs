//! Candidate paths of controllers on a live router: batches take effect as a whole, the owner of
//! each path alone changes it, and refused batches leave traffic, tables and other clients alone.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};
use sidestep_control::api::Request;
use sidestep_control::report;

use crate::policy::{Bench, FLOWS};
use crate::support::left::run_folder;
use crate::support::{begin, eventually, modes, output, printed, report, text_of};

/// Policy of the batches. Routes name it before it exists.
const NAME: &str = "color-100-fc00-c--2";

fn owner(origin: &str) -> Value {
    json!({"protocol_origin": origin, "originator": {"asn": 65001, "address": "192.0.2.1"}})
}

/// Returns an operation that installs a path through one host.
fn through(host: &str, preference: u32) -> Value {
    let segments = json!([format!("fc00:{host}::2")]);
    json!({"action": "replace", "color": 100, "endpoint": "fc00:c::2", "discriminator": 7, "candidate_path":
        {"preference": preference, "segment_lists": [{"segments": segments}]}})
}

fn batch(origin: &str, operations: &[Value]) -> Value {
    json!({"owner": owner(origin), "operations": operations})
}

impl Bench {
    /// Sends a request as any program does, and returns the line of the reply.
    fn request(&self, request: &str) -> String {
        let mut reply = String::new();
        let mut socket = BufReader::new(self.connected());
        writeln!(socket.get_mut(), "{{\"version\":1,\"request\":{request}}}").expect("a request");
        socket.read_line(&mut reply).expect("a reply");
        reply
    }

    fn connected(&self) -> UnixStream {
        let path = run_folder(self.star.router()).join("control.sock");
        UnixStream::connect(path).expect("the daemon listens")
    }

    /// Applies a batch by the command, and returns its output.
    fn apply(&self, batch: &Value) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("batch.json");
        fs::write(&path, batch.to_string()).expect("a file");
        let path = path.to_str().expect("UTF-8");
        printed(self.star.router(), &["policy", "apply", path])
    }

    /// Returns the error of a batch.
    fn refused(&self, batch: &str) -> String {
        let reply = self.request(&format!("{{\"op\":\"policy_batch\",\"batch\":{batch}}}"));
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        reply["error"]["message"]
            .as_str()
            .expect("an error")
            .to_owned()
    }

    fn compilations(&self) -> u64 {
        let status: report::Status = report(self.star.router(), Request::ShowStatus);
        status.compilations
    }
}

#[test]
fn controllers_change_candidate_paths_in_one_batch() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let bench = Bench::new("livebatch");
        bench
            .star
            .ip()
            .run("route add 2001:db8:e::/48 via fc00:a::2 dev eth0");
        let _daemon = bench.star.run(&["--mode", mode, "eth0", "eth1", "eth2"]);
        bench.sidestep(&format!("route add 2001:db8:e::/48 policy {NAME}"));
        assert!(
            bench.all_by(0, "a"),
            "{mode}: the policy does not exist yet"
        );
        let text = bench.apply(&batch("bgp", &[through("b", 100)]));
        assert_eq!(text, format!("policy {NAME} discriminator 7: added\n"));
        assert!(bench.all_by(0, "b"), "{mode}: the path of the batch");
        is_idempotent(&bench, mode);
        refuses_as_a_whole(&bench, mode);
        belongs_to_owners(&bench, mode);
        joins_the_configuration(&bench, mode);
    }
}

/// The same batch again changes neither tables nor counters.
fn is_idempotent(bench: &Bench, mode: &str) {
    let counted = || bench.policy().candidates.remove(0).lists[0].packets;
    let (compilations, packets) = (bench.compilations(), counted());
    assert_eq!(packets, u64::from(FLOWS), "{mode}");
    let text = bench.apply(&batch("bgp", &[through("b", 100)]));
    assert_eq!(text, format!("policy {NAME} discriminator 7: unchanged\n"));
    assert_eq!(
        (bench.compilations(), counted()),
        (compilations, packets),
        "{mode}"
    );
    // A path with another preference is still the same path.
    bench.apply(&batch("bgp", &[through("b", 150)]));
    assert_eq!(counted(), packets, "{mode}: counters stay");
}

/// A batch with an error changes nothing, and a client that listens stays connected.
fn refuses_as_a_whole(bench: &Bench, mode: &str) {
    let mut listener = BufReader::new(bench.connected());
    let monitor = r#"{"version":1,"request":{"op":"monitor"}}"#;
    writeln!(listener.get_mut(), "{monitor}").expect("a request");
    let mut line = String::new();
    listener.read_line(&mut line).expect("the stream begins");

    let compilations = bench.compilations();
    let good = through("c", 900);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut bad = through("c", 900);
        bad["discriminator"] = json!(8);
        change(&mut bad);
        batch("bgp", &[good.clone(), bad]).to_string()
    };
    let two_owners = batch("bgp", std::slice::from_ref(&good)).to_string();
    let two_owners = two_owners.replacen('{', &format!("{{\"owner\":{},", owner("pcep")), 1);
    let long = with(&|it| {
        it["candidate_path"]["segment_lists"][0]["segments"] = json!(vec!["fc00:c::2"; 17]);
    });
    for (bad, field) in [
        (
            with(&|it| it["colour"] = json!(1)),
            "operations[1].colour: unknown field",
        ),
        (two_owners, "duplicate field `owner`"),
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
        ("[]".into(), "invalid"),
    ] {
        let found = bench.refused(&bad);
        assert!(found.starts_with(field), "{bad}: {found}");
    }
    let mut add = batch("bgp", &[through("c", 900)]);
    add["operations"][0]["action"] = json!("add");
    let found = bench.refused(&add.to_string());
    assert!(
        found.starts_with("operations[0].action: the candidate path exists"),
        "{found}"
    );
    // An address of the router.
    let mut local = batch("bgp", &[through("c", 900)]);
    local["operations"][0]["candidate_path"]["binding_sid"] = json!("fc00:a::1");
    let found = bench.refused(&local.to_string());
    let expected =
        "operations[0].candidate_path.binding_sid: a route takes the packets to fc00:a::1";
    assert!(found.starts_with(expected), "{found}");

    assert_eq!(
        bench.compilations(),
        compilations,
        "{mode}: nothing was compiled"
    );
    assert!(bench.all_by(0, "b"), "{mode}: nothing is half applied");
    bench.neighbor("del", "b", "eth1");
    line.clear();
    listener.read_line(&mut line).expect("the stream continues");
    assert!(line.contains("timestamp"), "{mode}: {line}");
    bench.neighbor("replace", "b", "eth1");
    eventually("the path is valid again", || {
        bench.all_by(0, "b").then_some(())
    });
}

/// Owners have paths of their own; preference and origin select the active one.
fn belongs_to_owners(bench: &Bench, mode: &str) {
    bench.apply(&batch("pcep", &[through("c", 150)]));
    assert!(bench.all_by(0, "b"), "{mode}: BGP precedes PCEP");
    bench.apply(&batch("pcep", &[through("c", 200)]));
    assert!(bench.all_by(0, "c"), "{mode}: the higher preference");
    let shown = printed(bench.star.router(), &["policy", "show"]);
    let active = "  preference 200 pcep AS 65001 192.0.2.1 discriminator 7: active";
    assert!(shown.contains(active), "{shown}");
    let mut empty = batch("bgp", &[]);
    empty["complete"] = json!(true);
    let text = bench.apply(&empty);
    let withdrawn = "policy color 100 endpoint fc00:c::2 discriminator 7: withdrawn\n";
    assert_eq!(text, withdrawn, "{mode}");
    assert_eq!(
        bench.policy().candidates.len(),
        1,
        "{mode}: the path of the other owner stays"
    );
    assert!(bench.all_by(0, "c"), "{mode}");
    let withdraw =
        json!({"action": "withdraw", "color": 100, "endpoint": "fc00:c::2", "discriminator": 7});
    bench.apply(&batch("pcep", &[withdraw]));
    assert!(bench.all_by(0, "a"), "{mode}: the IP route, without a path");
    let shown = printed(bench.star.router(), &["policy", "show"]);
    assert_eq!(shown.trim(), "none", "{mode}");
}

/// Paths join a configured policy, and outlive a change of the configuration.
fn joins_the_configuration(bench: &Bench, mode: &str) {
    bench.sidestep("policy add gold color 100 endpoint fc00:c::2 preference 50 segs fc00:b::2");
    assert!(bench.all_by(0, "b"), "{mode}: the route names the color");
    let text = bench.apply(&batch("bgp", &[through("c", 100)]));
    assert_eq!(text, "policy gold discriminator 7: added\n", "{mode}");
    assert!(bench.all_by(0, "c"), "{mode}");
    let running = printed(bench.star.router(), &["config", "show"]);
    assert!(
        running.contains("gold") && !running.contains("fc00:c::2 weight"),
        "{running}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("node.yaml");
    let running = running.replace("preference 50", "preference 60");
    fs::write(&path, running).expect("a file");
    printed(
        bench.star.router(),
        &["config", "apply", path.to_str().expect("UTF-8")],
    );
    assert!(
        bench.all_by(0, "c"),
        "{mode}: the path of the controller stays"
    );
    let wrong = output(
        bench.star.router(),
        &[
            "policy",
            "add",
            NAME,
            "color",
            "5",
            "endpoint",
            "::1",
            "segs",
            "fc00:b::2",
        ],
    );
    assert!(
        said_is(&wrong, "the name stands for color 100 endpoint fc00:c::2"),
        "{wrong:?}"
    );
}

fn said_is(output: &std::process::Output, expected: &str) -> bool {
    !output.status.success() && text_of(output).contains(expected)
}
