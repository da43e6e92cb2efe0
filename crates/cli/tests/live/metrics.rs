//! `sidestep metrics` and the HTTP endpoint: requests, Debian's Prometheus, dashboard and alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{panic, thread};

use serde_json::Value;
use sidestep_control::api::Request;
use sidestep_control::report;

use crate::support::{
    Star, begin, constant, counters, eventually, output, printed, report, text_of,
};

/// Default address of the endpoint.
const ADDRESS: &str = "127.0.0.1:10143";
const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/monitoring");

const SIDS: [&str; 3] = [
    "route add fc00:5:e::/128 encap seg6local action End dev eth0",
    "route add fc00:5:e::/128 encap seg6local action End dev eth1 metric 2048",
    "route add fc00:5:d6::/128 encap seg6local action End.DX6 nh6 fc00:b::2 dev eth1",
];

fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    let ip = &mut star.ip();
    ip.run("link set dev lo up");
    ip.all(constant::ROUTES);
    ip.all(SIDS);
    star
}

/// Path of one of Debian's programs of Prometheus. `./dev` unpacks them.
fn debian(program: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_sidestep")).ancestors().nth(2);
    let path = target.expect("a folder").join("prometheus/usr/bin");
    let path = path.join(program);
    assert!(
        path.exists(),
        "{}: `./dev setup lint` unpacks it",
        path.display()
    );
    path
}

/// Sends a request to the endpoint. Returns its response.
fn exchange(star: &Star, request: &[u8]) -> String {
    let exchange = || {
        let mut stream = TcpStream::connect(ADDRESS).expect("the endpoint listens");
        stream.write_all(request).expect("send");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response
    };
    star.router().run(exchange).expect("the namespace")
}

fn get(star: &Star, headers: &str) -> String {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    exchange(star, request.as_bytes())
}

/// Names of the metrics and samples of a scrape, each sample with its labels and value.
fn samples(text: &str) -> BTreeMap<&str, u64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let mut all = BTreeMap::new();
    for sample in samples {
        let (name, value) = sample.rsplit_once(' ').expect("a sample");
        let value = value.parse().expect("a number");
        assert_eq!(all.insert(name, value), None, "{name} twice");
    }
    all
}

#[test]
fn metrics_have_the_counters_and_the_problems() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("livemetrics");
    star.ip().run("link set dev eth2 down");
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1", "eth2"]);
    let policy = "policy add gold color 1 endpoint fc00:b::2 segs fc00:b::2";
    printed(star.router(), &policy.split(' ').collect::<Vec<_>>());
    let status: report::Status = report(star.router(), Request::ShowStatus);
    let errors = status.problems.iter();
    let errors = errors.filter(|problem| problem.severity == report::Severity::Error);
    let errors = errors.count() as u64;
    assert!(errors > 0, "eth2 is down");
    let text = printed(star.router(), &["metrics"]);
    let all = samples(&text);
    for (name, value) in [
        ("sidestep_problems{severity=\"error\"}", errors),
        ("sidestep_port_attached{port=\"eth1\",target=\"tc\"}", 1),
        ("sidestep_port_up{port=\"eth1\"}", 1),
        ("sidestep_port_up{port=\"eth2\"}", 0),
        // Two routes to one SID, with different metrics.
        (
            "sidestep_sid_packets_total{sid=\"fc00:5:e::/128\",table=\"254\",behavior=\"End\"}",
            0,
        ),
        ("sidestep_drops_total{reason=\"hop_limit\"}", 0),
        ("sidestep_policy_valid{policy=\"gold\"}", 1),
        (
            "sidestep_policy_list_packets_total{policy=\"gold\",preference=\"100\",list=\"0\"}",
            0,
        ),
        ("sidestep_fragments_sent_total", 0),
        ("sidestep_fragments_suppressed_total{port=\"eth0\"}", 0),
        ("sidestep_oam_suppressed_total{port=\"eth0\"}", 0),
        ("sidestep_icmp_not_relayed_total", 0),
        ("sidestep_table_left_out{table=\"routes\"}", 0),
        ("sidestep_hmac_keys", 0),
        ("sidestep_routes", 4),
        ("sidestep_punted_routes", 0),
    ] {
        assert_eq!(all.get(name), Some(&value), "{name}:\n{text}");
    }
    // Every sample follows the type of its metric.
    let mut name = "";
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        if let ["#", "TYPE", metric, kind] = words[..] {
            assert_eq!(kind == "counter", metric.ends_with("_total"), "{line}");
            name = metric;
        } else if !line.starts_with('#') {
            assert_eq!(line.split(['{', ' ']).next(), Some(name), "{line}");
        }
    }
    let mut promtool = star
        .router()
        .command(debian("promtool").to_str().expect("UTF-8"));
    let checked = promtool.args(["check", "metrics"]);
    let checked = checked.stdin(std::process::Stdio::piped());
    let mut child = checked
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let stdin = child.stdin.take().expect("piped");
    { stdin }.write_all(text.as_bytes()).expect("written");
    let checked = child.wait_with_output().expect("promtool ends");
    assert!(
        checked.status.success() && checked.stderr.is_empty(),
        "{}",
        text_of(&checked)
    );
}

#[test]
fn the_endpoint_serves_get_of_metrics_only_and_survives_bad_clients() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("livehttp");
    let daemon = star.run(&["--mode", "tc", "--metrics", "eth0"]);
    let status: report::Status = report(star.router(), Request::ShowStatus);
    assert_eq!(
        status.metrics.as_deref(),
        Some("http://127.0.0.1:10143/metrics")
    );
    let response = get(&star, "");
    let (head, text) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", text.len())));
    // Both outputs have the same metrics.
    let printed = printed(star.router(), &["metrics"]);
    let names = |text| {
        samples(text)
            .into_keys()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(text), names(&printed));
    let response = get(
        &star,
        "Accept: application/openmetrics-text; version=1.0.0\r\n",
    );
    assert!(response.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0;"));
    assert!(response.ends_with("\n# EOF\n"));
    for (request, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
        (
            b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "405",
        ),
        (b"\x16\x03\x01\x02\x00\x01", "400"),
        (
            format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(20_000)).as_bytes(),
            "431",
        ),
    ] {
        let response = exchange(&star, request);
        assert_eq!(response.split(' ').nth(1), Some(expected), "{response}");
    }
    // More silent clients than threads delay a scrape, until their time is over.
    let silent = || {
        (0..6)
            .map(|_| TcpStream::connect(ADDRESS).expect("it listens"))
            .collect()
    };
    let silent: Vec<_> = star.router().run(silent).expect("the namespace");
    assert!(get(&star, "").starts_with("HTTP/1.1 200 OK"));
    drop(silent);
    drop(daemon);

    // An address in use: nothing is started.
    let used = star
        .router()
        .run(|| std::net::TcpListener::bind("[::1]:9999"))
        .expect("entered");
    let used = used.expect("a socket");
    let refused = output(
        star.router(),
        &["run", "--mode", "tc", "--metrics=[::1]:9999", "eth0"],
    );
    let expected = "sidestep: metrics at [::1]:9999: Address already in use (os error 98)";
    assert_eq!(
        (refused.status.code(), text_of(&refused).as_str()),
        (Some(1), expected)
    );
    drop(used);
    let refused = output(star.router(), &["run", "--metrics=9999", "eth0"]);
    assert_eq!(refused.status.code(), Some(2));
    let expected = "expected ADDRESS:PORT, such as 127.0.0.1:10143";
    assert!(
        text_of(&refused).contains(expected),
        "{}",
        text_of(&refused)
    );

    // The key of the node file.
    let file = std::env::temp_dir().join(format!("sidestep-metrics-{}.yaml", std::process::id()));
    fs::write(&file, "ports: [eth0]\nmetrics: \"[::1]:9999\"\n").expect("a file");
    let daemon = star.run(&["--mode", "tc", "--config", file.to_str().expect("UTF-8")]);
    fs::remove_file(&file).expect("the file");
    let status: report::Status = report(star.router(), Request::ShowStatus);
    assert_eq!(status.metrics.as_deref(), Some("http://[::1]:9999/metrics"));
    let curl = star
        .router()
        .exec(&["curl", "-sSf", "http://[::1]:9999/metrics"]);
    assert!(curl.expect("curl").contains("sidestep_build_info"));
    drop(daemon);
}

#[test]
fn a_scrape_of_ten_thousand_sids_takes_milliseconds() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("livescrape");
    let sid =
        |number| format!("route add fc00:6:{number:x}::/128 encap seg6local action End dev eth0");
    let sids: Vec<String> = (0..10_000).map(sid).collect();
    star.ip().all(sids.iter().map(String::as_str));
    let _daemon = star.run(&["--mode", "tc", "--metrics", "eth0", "eth1"]);
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let began = Instant::now();
        let response = get(&star, "");
        best = best.min(began.elapsed());
        assert!(response.matches("sidestep_sid_packets_total{").count() > 10_000);
    }
    // A release build on an idle machine takes 30 ms; this is a build for tests.
    let limit = Duration::from_millis(150);
    assert!(best < limit, "{} ms", best.as_millis());
}

/// Asks Prometheus for an instant query.
fn query(star: &Star, query: &str) -> Vec<Value> {
    let url = "http://127.0.0.1:9090/api/v1/query";
    let words = [
        "curl",
        "-sS",
        "-G",
        url,
        "--data-urlencode",
        &format!("query={query}"),
    ];
    let reply = star.router().exec(&words).expect("Prometheus replies");
    let reply: Value = serde_json::from_str(&reply).expect("JSON");
    assert_eq!(reply["status"], "success", "{query}: {reply}");
    reply["data"]["result"]
        .as_array()
        .expect("a vector")
        .clone()
}

/// Values of a metric by one label.
fn values(star: &Star, name: &str, label: &str) -> BTreeMap<String, u64> {
    let samples = query(star, name).into_iter();
    let sample = |sample: Value| {
        let label = sample["metric"][label]
            .as_str()
            .expect("a label")
            .to_owned();
        let value: f64 = sample["value"][1]
            .as_str()
            .expect("a value")
            .parse()
            .expect("a number");
        (label, value as u64)
    };
    samples
        .map(sample)
        .filter(|(_, value)| *value > 0)
        .collect()
}

/// Queries of the dashboard, with its variables replaced.
fn dashboard_queries() -> Vec<String> {
    let text = fs::read_to_string(format!("{MONITORING}/dashboard.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let queries = targets.map(|target| target["expr"].as_str().expect("a query"));
    queries
        .map(|query| {
            query
                .replace("$instance", ".*")
                .replace("$__rate_interval", "5s")
        })
        .collect()
}

fn rule_queries() -> Vec<String> {
    let text = fs::read_to_string(format!("{MONITORING}/sidestep.rules.yml")).expect("the rules");
    let rules: Value = serde_saphyr::from_str(&text).expect("YAML");
    let groups = rules["groups"].as_array().expect("groups").iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().expect("rules"));
    rules
        .map(|rule| rule["expr"].as_str().expect("a query").to_owned())
        .collect()
}

/// Names of Sidestep's metrics in a query.
fn names(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("sidestep_"))
}

#[test]
fn every_query_of_dashboard_and_alerts_names_metrics_that_exist() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("livequeries");
    let _daemon = star.run(&["--mode", "tc", "eth0"]);
    let text = printed(star.router(), &["metrics"]);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let exist: BTreeSet<_> = types.filter_map(|line| line.split(' ').next()).collect();
    let (panels, alerts) = (dashboard_queries(), rule_queries());
    assert!(panels.len() > 20 && alerts.len() > 10);
    for query in panels.iter().chain(&alerts) {
        for name in names(query) {
            assert!(exist.contains(name), "{name} in {query}");
        }
    }
    let rules = format!("{MONITORING}/sidestep.rules.yml");
    let promtool = debian("promtool");
    star.router()
        .exec(&[promtool.to_str().expect("UTF-8"), "check", "rules", &rules])
        .expect("valid rules");
    // The reference lists every metric.
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/metrics.md"
    );
    let page = fs::read_to_string(page).expect("the page");
    for name in &exist {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/reference/metrics.md lacks {name}"
        );
    }
}

#[test]
fn a_scrape_by_prometheus_under_load_loses_nothing_and_has_the_exact_counters() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("liveprometheus");
    let _daemon = star.run(&["--mode", "tc", "--metrics", "eth0", "eth1", "eth2"]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
         rule_files: [\"{MONITORING}/sidestep.rules.yml\"]\n\
         scrape_configs:\n- job_name: sidestep\n  static_configs: [{{targets: [\"{ADDRESS}\"]}}]\n"
    );
    fs::write(path("prometheus.yml"), config).expect("a file");
    let mut prometheus = star
        .router()
        .command(debian("prometheus").to_str().expect("UTF-8"));
    prometheus
        .args([format!("--config.file={}", path("prometheus.yml"))])
        .args([format!("--storage.tsdb.path={}", path("data"))])
        .args(["--web.listen-address=127.0.0.1:9090", "--log.level=error"]);
    let mut prometheus = prometheus.spawn().expect("Prometheus starts");
    let result = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        eventually("Prometheus is ready", || {
            let ready = ["curl", "-sSf", "http://127.0.0.1:9090/-/ready"];
            star.router().exec(&ready).ok()
        });
        let ((), sent) =
            constant::during(&star, "scrapes", || thread::sleep(Duration::from_secs(4)));
        compare(&star, sent);
    }));
    prometheus.kill().expect("it runs");
    prometheus.wait().expect("it ends");
    result.unwrap_or_else(|failure| panic::resume_unwind(failure));
}

type Count = fn(&report::PortCounters) -> u64;

/// Compares the counters in Prometheus with those of the daemon.
fn compare(star: &Star, sent: u64) {
    let mut up = Vec::new();
    eventually("the last scrape has the last packet", || {
        let ports = values(star, "sidestep_port_received_packets_total", "port");
        let now = counters(star.router(), "eth0").received_packets;
        // A scrape stores its counters and `up` at once, so `up` exists if a counter does.
        up = query(star, "up");
        (now >= 2 * sent && ports.get("eth0") == Some(&now)).then_some(())
    });
    assert_eq!(up[0]["value"][1], "1");
    let shown: report::Counters = report(star.router(), Request::ShowCounters);
    let families: [(&str, Count); 7] = [
        ("received_packets", |it| it.received_packets),
        ("received_bytes", |it| it.received_bytes),
        ("forwarded_packets", |it| it.forwarded),
        ("punted_packets", |it| it.punted),
        ("dropped_packets", |it| it.dropped),
        ("sent_packets", |it| it.sent_packets),
        ("sent_bytes", |it| it.sent_bytes),
    ];
    for (name, count) in families {
        let ports = shown
            .ports
            .iter()
            .map(|port| (port.name.clone(), count(port)));
        let expected: BTreeMap<_, _> = ports.filter(|(_, count)| *count > 0).collect();
        let name = format!("sidestep_port_{name}_total");
        assert_eq!(values(star, &name, "port"), expected, "{name}");
    }
    for query_text in dashboard_queries().iter().chain(&rule_queries()) {
        query(star, query_text);
    }
}
