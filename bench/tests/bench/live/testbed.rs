//! `sidestep-bench run` on a testbed. A stand-in replaces TRex, with ports in a namespace. `ssh` is
//! a program that runs its command in another namespace, the machine under test, or OpenSSH with a
//! server in that namespace.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sidestep_testkit::capability::skip;
use sidestep_testkit::offload::Offload;
use sidestep_testkit::{Lab, LinkEnd, root_or_skip};

use crate::program::{BENCH, Folder, router, stderr, stdout};
use crate::trex::stand_in::{Cable, StandIn};

/// Two machines, joined by two links.
struct Testbed {
    // Rust drops fields in this order: the server before its ports.
    trex: StandIn,
    lab: Lab,
    folder: Folder,
    ports: [String; 2],
}

impl Testbed {
    fn new() -> Self {
        // Names outside namespaces derive from the ports.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let ports = ["i", "o"].map(|end| format!("tb{}{end}{number}", std::process::id()));
        let mut lab = Lab::new("testbed").expect("lab");
        lab.node("trex")
            .and_then(|lab| lab.node("dut"))
            .expect("two machines");
        for (near, far) in ["eth0", "eth1"].into_iter().zip(&ports) {
            let ends = [("trex", near), ("dut", far)].map(|(node, ifname)| LinkEnd {
                node,
                ifname,
                mac: None,
            });
            lab.link_with(ends, 2000, 1).expect("a link");
            for (node, ifname) in [("trex", near), ("dut", far)] {
                lab.offload(node, ifname, Offload::OFF).expect("offloads");
            }
        }
        let macs = ["eth0", "eth1"].map(|port| lab.mac("trex", port).expect("a port"));
        let namespace = lab.namespace("trex").expect("trex");
        let cable = Cable::open(namespace, ["eth0", "eth1"]).expect("a cable");
        let trex = StandIn::start(cable, macs).expect("a server");
        let testbed = Self {
            trex,
            lab,
            folder: Folder::new(),
            ports,
        };
        let enter = format!("{SSH}exec {} sh -c \"$*\"\n", testbed.enter());
        testbed.reach(&enter);
        testbed
    }

    /// Returns a testbed reached by OpenSSH. Each connection has its own server there, on stdin and
    /// stdout instead of a port.
    fn over_openssh() -> Self {
        let testbed = Self::new();
        let folder = &testbed.folder;
        for key in ["host", "client"] {
            let arguments = ["-q", "-t", "ed25519", "-N", "", "-f", &folder.path(key)];
            let made = Command::new("ssh-keygen").args(arguments).status();
            assert!(made.expect("ssh-keygen").success());
        }
        let server = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPermitRootLogin prohibit-password\nUsePAM yes\nPidFile none\n",
            folder.path("host"),
            folder.path("client.pub"),
        );
        let server = folder.write("sshd_config", server);
        let client = format!(
            "Host dut\nIdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\nStrictHostKeyChecking accept-new\n\
             ProxyCommand {} {SSHD} -i -f {server}\n",
            folder.path("client"),
            folder.path("known_hosts"),
            testbed.enter(),
        );
        let client = folder.write("ssh_config", client);
        testbed.reach(&format!(
            "#!/bin/sh\nexec /usr/bin/ssh -F {client} \"$@\"\n"
        ));
        testbed
    }

    /// Prefix of commands that run on the machine under test.
    fn enter(&self) -> String {
        let machine = self.lab.namespace("dut").expect("dut").name();
        format!("nsenter --net=/run/netns/{machine}")
    }

    /// The fake `ssh` of these tests.
    fn reach(&self, ssh: &str) {
        let path = self.folder.write("ssh", ssh);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
    }

    /// Returns a campaign file with these groups.
    fn campaign(&self, rest: &str) -> String {
        let [port_in, port_out] = &self.ports;
        let address = self.trex.address();
        let text = format!(
            "\
schema: 1
title: Two machines
engines: [linux, sidestep-tc, sidestep-xdp]
find: [mrr]
search: {{trial: 200ms}}
runs: 1
testbed:
  trex: {{host: {}, port: {}, transmit: 0, receive: 1}}
  system: {{ssh: root@dut, ports: [{port_in}, {port_out}], sidestep: {}}}
{rest}",
            address.ip(),
            address.port(),
            router().display()
        );
        self.folder.write("two.yaml", text)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(BENCH);
        command
            .arg("run")
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.folder.path("")));
        command
    }

    /// Runs a campaign into `results`.
    fn run(&self, file: &str) -> Output {
        let results = self.folder.path("results");
        let output = self.command(&[file, "-o", &results]).output();
        output.expect("sidestep starts")
    }

    /// Starts a campaign without waiting for its end.
    fn begin(&self, file: &str) -> Child {
        let results = self.folder.path("results");
        let mut command = self.command(&[file, "-o", &results]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        child.expect("sidestep starts")
    }

    /// Waits until there are more than `before` records, and the next engine is set up.
    fn is_under_way(&self, child: &mut Child, before: usize) {
        let begun = Instant::now();
        while self.records().len() <= before + 2 || !Path::new(&self.traces()[1]).exists() {
            assert!(begun.elapsed() < Duration::from_secs(120), "it never began");
            assert!(matches!(child.try_wait(), Ok(None)), "it has ended");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the number of requests to TRex to start traffic, without single packets.
    fn starts(&self) -> usize {
        let asked = self.trex.asked();
        asked.iter().filter(|it| it.0 == "start_traffic").count()
    }

    fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path("results/trials.jsonl"));
        let text = text.unwrap_or_default();
        text.lines().flat_map(serde_json::from_str).collect()
    }

    fn report(&self) -> Value {
        let text = fs::read_to_string(self.folder.path("results/report.json"));
        serde_json::from_str(&text.expect("a report")).expect("JSON")
    }

    /// State on the machine under test during a measurement.
    fn traces(&self) -> [String; 2] {
        let name = format!("sidestep-bench-{}", self.ports[0]);
        ["/run", "/run/netns"].map(|folder| format!("{folder}/{name}"))
    }

    /// Checks that the machine under test is as before.
    fn is_clean(&self) {
        let begun = Instant::now();
        let [folder, namespace] = self.traces();
        loop {
            let shown = |port: &String| {
                let dut = self.lab.namespace("dut").expect("dut");
                let shown = dut.exec(&["ip", "-br", "link", "show", "dev", port, "up"]);
                shown.is_ok_and(|text| text.contains(port.as_str()))
            };
            let left = [&folder, &namespace].map(|path| Path::new(path).exists());
            if left == [false, false] && self.ports.iter().all(shown) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{left:?}");
            thread::sleep(Duration::from_millis(20));
        }
        let dut = self.lab.namespace("dut").expect("dut");
        let routes = dut.exec(&["ip", "-6", "route", "show"]).expect("routes");
        assert!(!routes.contains("fc0"), "{routes}");
    }
}

/// A folder that is removed on drop if it did not exist before.
struct MadeFolder(Option<&'static str>);

impl MadeFolder {
    fn new(path: &'static str) -> Self {
        Self(fs::create_dir(path).is_ok().then_some(path))
    }
}

impl Drop for MadeFolder {
    fn drop(&mut self) {
        // Harmless if it remains: the service creates it itself.
        let _ = self.0.map(fs::remove_dir);
    }
}

/// Returns the child process of `parent` with this name.
fn child_of(parent: u32, name: &str) -> u32 {
    let of = parent.to_string();
    let found = Command::new("pgrep").args(["-x", "-P", &of, name]).output();
    let found = String::from_utf8(found.expect("pgrep").stdout);
    found.expect("text").trim().parse().expect("one process")
}

/// OpenSSH's server. It requires an absolute path.
const SSHD: &str = "/usr/sbin/sshd";
/// The empty folder to which sshd changes its root before authentication. The service creates it,
/// but may not run here.
const SSHD_ROOT: &str = "/run/sshd";

/// A fake `ssh` that skips options and the host, and runs the command after them.
const SSH: &str = "\
#!/bin/sh
while :; do case $1 in -o) shift 2 ;; --) shift; break ;; *) shift ;; esac; done
shift
";

#[test]
fn a_campaign_on_another_machine_leaves_nothing_behind() {
    if !root_or_skip() {
        return;
    }
    let testbed = Testbed::new();
    let log = testbed.folder.path("down.log");
    let file = testbed.campaign(&format!(
        "\
commands:
- name: mine
  up: 'ip -n \"$ROUTER\" -6 route add 2001:db8:d::/48 via fc01::1 dev \"$PORT_OUT\"'
  down: 'echo \"$BEHAVIOR\" \"$SINK_MAC\" >> {log}'
  info: 'echo program: a script'
groups:
- {{name: plain, behaviors: [ipv6, end.dx6]}}
- {{name: encapsulation, behaviors: [h.encaps], sids: [2], engines: [sidestep-xdp], find: [pdr]}}
- {{name: commands, behaviors: [ipv6], engines: [mine], flows: [16]}}
"
    ));
    let run = testbed.run(&file);
    assert!(run.status.success(), "{}\n{}", stdout(&run), stderr(&run));
    testbed.is_clean();
    assert_eq!(testbed.trex.owners(), [String::new(), String::new()]);
    let records = testbed.records();
    let measured = || {
        records
            .iter()
            .filter(|record| record["record"] == "measured")
    };
    assert_eq!(measured().count(), 8);
    for record in measured() {
        for trial in record["trials"].as_array().expect("trials") {
            let [sent, received] = ["sent", "received"].map(|key| trial[key].as_u64());
            assert!(received > Some(100) && received <= sent, "{record}");
        }
    }
    let report = testbed.report();
    assert_eq!(report["complete"], true);
    assert_eq!(report["refusals"].as_array().map_or(0, Vec::len), 0);
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("Measured on a testbed: TRex at 127.0.0.1"),
        "{notes}"
    );
    let facts = &report["machine"]["facts"];
    let compared = "compared byte by byte, as captured by TRex";
    assert_eq!(facts["sidestep-xdp: one packet"], compared);
    let system = format!("root@dut, {} to {}", testbed.ports[0], testbed.ports[1]);
    assert_eq!(facts["linux: system"], *system);
    for port in &testbed.ports {
        let driver = facts[format!("linux: {port} driver")].as_str();
        assert!(driver.is_some_and(|it| it.starts_with("veth, ")), "{facts}");
        assert!(
            facts[format!("mine: {port} offloads on")].is_string(),
            "{facts}"
        );
    }
    assert_eq!(facts["mine: program"], "a script");
    let sum = Command::new("sha256sum").arg(router()).output();
    let sum = stdout(&sum.expect("coreutils"));
    assert_eq!(
        facts["sidestep-xdp: program sha256"].as_str(),
        sum.split(' ').next(),
        "the router there is the router here"
    );
    // `down` runs before `up`, and to undo it. The sink is TRex's port.
    let sink = sidestep_testkit::lab::mac_text(testbed.lab.mac("trex", "eth1").expect("a port"));
    let undone = fs::read_to_string(&log).expect("down has run");
    assert_eq!(undone, format!("ipv6 {sink}\n").repeat(2));

    let asked = testbed.trex.asked().len();
    let again = testbed.run(&file);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(testbed.records(), records, "nothing is measured twice");
    let since = &testbed.trex.asked()[asked..];
    assert!(
        since.iter().all(|(method, _)| method != "acquire"),
        "{since:?}"
    );
}

#[test]
fn a_real_sshd_undoes_all_when_the_campaign_ends_is_killed_or_the_connection_is_cut() {
    if !root_or_skip() {
        return;
    }
    if !Path::new(SSHD).exists() {
        skip(&format!("there is no {SSHD}"));
        return;
    }
    let _root = MadeFolder::new(SSHD_ROOT);
    let testbed = Testbed::over_openssh();
    let groups = "groups: [{name: plain, behaviors: [ipv6, end], engines: [linux]}]\n";
    let file = testbed.campaign(groups);
    let campaign = fs::read_to_string(&file).expect("a campaign");
    let file = testbed
        .folder
        .write("long.yaml", campaign.replace("trial: 200ms", "trial: 2s"));
    for killed in ["sidestep-bench", "ssh"] {
        let before = testbed.starts();
        let mut child = testbed.begin(&file);
        let begun = Instant::now();
        while testbed.starts() == before {
            assert!(begun.elapsed() < Duration::from_secs(60), "it never began");
            thread::sleep(Duration::from_millis(10));
        }
        let killed = match killed {
            "ssh" => child_of(child.id(), "ssh"),
            _ => child.id(),
        };
        kill(Pid::from_raw(killed as i32), Signal::SIGKILL).expect("it runs");
        let status = child.wait().expect("it ends");
        assert!(!status.success(), "{status}");
        testbed.is_clean();
    }
    // The connection was cut in the first of two measurements; the second one has a new connection.
    let records = testbed.records();
    let kinds = |kind: &str| records.iter().filter(|it| it["record"] == kind).count();
    assert_eq!([kinds("failed"), kinds("measured")], [1, 1], "{records:?}");
    let run = testbed.run(&file);
    assert!(run.status.success(), "{}\n{}", stdout(&run), stderr(&run));
    testbed.is_clean();
    let report = testbed.report();
    assert_eq!(report["complete"], true);
    assert_eq!(report["refusals"].as_array().map_or(0, Vec::len), 0);
    // A refused login reports OpenSSH's message.
    fs::write(testbed.folder.path("client.pub"), "").expect("no key");
    let results = testbed.folder.path("elsewhere");
    let refused = testbed.command(&[&file, "-o", &results]).output();
    let refused = refused.expect("sidestep starts");
    assert_eq!(refused.status.code(), Some(1));
    let printed = stderr(&refused);
    assert!(
        printed.contains("root@dut: ") && printed.contains("Permission denied"),
        "{printed}"
    );
}

#[test]
fn without_captures_packets_are_counted_and_the_report_says_so() {
    if !root_or_skip() {
        return;
    }
    let testbed = Testbed::new();
    testbed.trex.without_captures();
    let file =
        testbed.campaign("groups: [{name: end, behaviors: [end], engines: [sidestep-xdp]}]\n");
    let run = testbed.run(&file);
    assert!(run.status.success(), "{}\n{}", stdout(&run), stderr(&run));
    let fact = testbed.report()["machine"]["facts"]["sidestep-xdp: one packet"].clone();
    let text = fact.as_str().unwrap_or_default();
    assert!(text.ends_with("so bytes were not compared"), "{text}");
    testbed.is_clean();
}

#[test]
fn an_early_end_leaves_nothing_on_either_machine() {
    if !root_or_skip() {
        return;
    }
    let testbed = Testbed::new();
    let file = testbed.campaign("groups: [{name: plain, behaviors: [ipv6, ipv4, end]}]\n");
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let before = testbed.records().len();
        let mut child = testbed.begin(&file);
        testbed.is_under_way(&mut child, before);
        kill(Pid::from_raw(child.id() as i32), signal).expect("it runs");
        child.wait().expect("it ends");
        testbed.is_clean();
    }
    // TRex does not notice the kill; the next run takes its ports over.
    let run = testbed.run(&file);
    assert!(run.status.success(), "{}\n{}", stdout(&run), stderr(&run));
    let records = testbed.records();
    let measured = records
        .iter()
        .filter(|record| record["record"] == "measured");
    assert_eq!(measured.count(), 9);
    testbed.is_clean();
    assert_eq!(testbed.trex.owners(), [String::new(), String::new()]);
}

#[test]
fn missing_features_of_a_machine_are_reported_before_anything_starts() {
    if !root_or_skip() {
        return;
    }
    let testbed = Testbed::new();
    let dut = testbed.lab.namespace("dut").expect("dut");
    let groups = "groups: [{name: plain, behaviors: [ipv6]}]\n";
    let file = testbed.campaign(groups);
    let text = fs::read_to_string(&file).expect("a campaign");
    let [port_in, port_out] = &testbed.ports;
    let refused = |from: &str, to: &str| {
        let file = testbed.folder.write("wrong.yaml", text.replace(from, to));
        let run = testbed.run(&file);
        assert_eq!(run.status.code(), Some(1), "{to}");
        assert!(!Path::new(&testbed.folder.path("results")).exists());
        stderr(&run)
    };
    let printed = refused("receive: 1", "receive: 7");
    let begin = "wrong.yaml: line 8, column 3: TRex at 127.0.0.1:";
    assert!(
        printed.contains(begin) && printed.contains("has no port 7; it has 2"),
        "{printed}"
    );
    let printed = refused(port_out, "nobody0");
    assert!(
        printed.contains("in root@dut") && printed.contains("nobody0"),
        "{printed}"
    );
    let printed = refused("[ipv6]", "[service]");
    assert!(
        printed.contains("a testbed has no service behind its system"),
        "{printed}"
    );
    let printed = refused("[ipv6]", "[ipv6], sizes: [2500]");
    assert!(
        printed.contains("the system's ports have an MTU of 2000"),
        "{printed}"
    );
    let printed = refused("[ipv6]", "[ipv6], engines: [none]");
    assert!(
        printed.contains("unknown engine \"none\"; expected linux, "),
        "{printed}"
    );
    let address = ["ip", "address", "add", "192.0.2.2/24", "dev", port_in];
    dut.exec(&address).expect("an address");
    let printed = refused("receive: 1", "receive: 1 ");
    assert!(
        printed.contains(&format!("{port_in} has an address: ")),
        "{printed}"
    );
    dut.exec(&["ip", "address", "flush", "dev", port_in])
        .expect("none");
    testbed.is_clean();
}
