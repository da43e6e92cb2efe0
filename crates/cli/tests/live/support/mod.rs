//! Helpers of the live tests: a router in a namespace with a neighbor at each port, the program
//! running on it, and checks for leftovers.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod constant;
pub mod flood;
pub mod frames;
pub mod hosts;
pub mod ip;
pub mod judged;
pub mod left;
pub mod line;
pub mod memory;
pub mod node_file;
pub mod service;
pub mod tables;
pub mod tracer;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sidestep_control::api::{self, ApiError, Request};
use sidestep_control::report;
use sidestep_mirror::Mirror;
use sidestep_testkit::capability::{skip, test_name};
use sidestep_testkit::lab::mac_text;
use sidestep_testkit::{FrameSocket, Lab, Namespace};

use frames::Mac;

/// Time limit for operations that are not measured, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The router of a [`Star`].
pub const ROUTER: &str = "r";
/// Neighbors at the router's ports: `a` at `eth0`, and so on.
pub const HOSTS: [&str; 3] = ["a", "b", "c"];
/// The router's ports.
pub const PORTS: [&str; 3] = ["eth0", "eth1", "eth2"];

/// Returns a field of `/proc/PID/status`, or of the same file of a thread (proc(5)).
pub fn status_field(process: impl AsRef<Path>, name: &str) -> Option<String> {
    let status = fs::read_to_string(process.as_ref().join("status")).ok()?;
    let mut fields = status.lines().filter_map(|line| line.split_once(':'));
    fields.find_map(|(field, value)| (field == name).then(|| value.trim().to_owned()))
}

/// Returns a counter of a veth, summed up over the queues of a direction (`ethtool -S`): `xdp_xmit`
/// of `tx` counts what XDP has sent.
pub fn queue_counter(namespace: &Namespace, device: &str, direction: &str, counter: &str) -> u64 {
    let shown = namespace.exec(&["ethtool", "-S", device]);
    let shown = shown.expect("statistics");
    let counts = shown.lines().filter_map(|line| {
        let (name, count) = line.trim().split_once(": ")?;
        let (queue, of_queue) = name.split_once("_queue_")?;
        let (_, of_queue) = of_queue.split_once('_')?;
        (queue == direction && of_queue == counter).then_some(count)
    });
    counts
        .map(|count| count.parse::<u64>().expect("a number"))
        .sum()
}

/// Permission of a test to run, in parallel with others or alone in this process.
pub enum Turn {
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

/// Begins a test on this machine's kernel. Returns `None` if it cannot run here. Mounts a BPF file
/// system. Tests that measure time wait until the others of this process have ended;
/// `tests/tiers.toml` lists them.
pub fn begin() -> Option<Turn> {
    static TURN: RwLock<()> = RwLock::new(());
    static BPFFS: Once = Once::new();
    if !sidestep_testkit::root_or_skip() {
        return None;
    }
    // A failed test does not make the others fail.
    let turn = if measures_time(&test_name()) {
        Turn::Alone(TURN.write().unwrap_or_else(PoisonError::into_inner))
    } else {
        Turn::Shared(TURN.read().unwrap_or_else(PoisonError::into_inner))
    };
    BPFFS.call_once(mount_bpffs);
    Some(turn)
}

/// Returns whether list `alone` of `tests/tiers.toml` contains this test of the program `live`.
fn measures_time(test: &str) -> bool {
    let tiers = include_str!("../../../../../tests/tiers.toml");
    let list = tiers.split("\nalone = [").nth(1).expect("a list");
    let list = list.split("\n]").next().unwrap_or_default();
    let names = list.split('"').skip(1).step_by(2);
    let prefixes = names.filter_map(|name| name.strip_prefix("sidestep::live::"));
    prefixes.into_iter().any(|prefix| test.starts_with(prefix))
}

/// Returns those of these modes that transmit to a veth themselves. Before Linux 6.3 a veth does
/// not report whether it accepts XDP redirects, so XDP leaves the packets to TC. Omitted modes are
/// reported as skipped.
pub fn modes<'a>(modes: &[&'a str]) -> Vec<&'a str> {
    let reports = Mirror::open()
        .expect("the kernel's configuration")
        .reports_xdp_features();
    let (here, out): (Vec<_>, Vec<_>) = modes
        .iter()
        .partition(|mode| reports || **mode != "xdp-always");
    if !out.is_empty() {
        skip(&format!(
            "{} only; this kernel does not report whether a veth takes XDP redirects (Linux 6.3)",
            here.join(", ")
        ));
    }
    here
}

/// Returns the target of the ports in this mode.
pub fn target_of(mode: &str) -> &str {
    mode.strip_suffix("-always").unwrap_or(mode)
}

fn mount_bpffs() {
    use nix::mount::{MsFlags, mount};
    use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
    let path = "/sys/fs/bpf";
    if statfs(path).is_ok_and(|stat| stat.filesystem_type() == BPF_FS_MAGIC) {
        return;
    }
    mount(
        Some("bpf"),
        path,
        Some("bpf"),
        MsFlags::empty(),
        None::<&str>,
    )
    .expect("a BPF file system at /sys/fs/bpf");
}

/// A router with three ports and a host at each. Hosts have no IP stack, so they send nothing on
/// their own, and all frames come from the router.
///
/// Host `a` is `fc00:a::2` and `10.0.1.2`, the router there `fc00:a::1` and `10.0.1.1`; `b` has `fc00:b::` and `10.0.2.`,
/// `c` has `fc00:c::` and `10.0.3.`. Neighbors are static.
#[derive(Debug)]
pub struct Star {
    pub lab: Lab,
    abandoned: bool,
}

impl Star {
    pub fn new(topic: &str) -> Self {
        let mut lab = Lab::new(topic).expect("a lab");
        for node in [ROUTER].iter().chain(&HOSTS) {
            lab.node(node).expect("a namespace");
        }
        for host in HOSTS {
            let silent = "net/ipv6/conf/default/disable_ipv6";
            lab.namespace(host)
                .and_then(|host| host.sysctl(silent, "1"))
                .expect("a host without IPv6");
        }
        for (host, port) in HOSTS.iter().zip(PORTS) {
            lab.link(host, "eth0", ROUTER, port).expect("a cable");
        }
        let star = Self {
            lab,
            abandoned: false,
        };
        // A removed namespace may have had the same inode, and a killed daemon may have left its
        // pins.
        left::remove(star.router());
        star.router_sysctls();
        let mut lines = vec!["sr tunsrc set fc00:5::1".to_owned()];
        for (number, (host, port)) in HOSTS.iter().zip(PORTS).enumerate() {
            let four = number + 1;
            let mac = mac_text(star.lab.mac(host, "eth0").expect("a port"));
            lines.push(format!("address add fc00:{host}::1/64 dev {port}"));
            lines.push(format!("address add 10.0.{four}.1/24 dev {port}"));
            for address in [format!("fc00:{host}::2"), format!("10.0.{four}.2")] {
                lines.push(format!(
                    "neighbor add {address} lladdr {mac} dev {port} nud permanent"
                ));
            }
        }
        star.ip().all(lines.iter().map(String::as_str));
        star
    }

    fn router_sysctls(&self) {
        let all = [
            "net/ipv6/conf/all/forwarding",
            "net/ipv4/ip_forward",
            "net/ipv6/conf/all/seg6_enabled",
        ];
        for path in all {
            self.router().sysctl(path, "1").expect("a sysctl");
        }
        for port in PORTS {
            self.seg6_enabled(port, true);
        }
    }

    pub fn seg6_enabled(&self, port: &str, on: bool) {
        let path = format!("net/ipv6/conf/{port}/seg6_enabled");
        let value = if on { "1" } else { "0" };
        self.router().sysctl(&path, value).expect("seg6_enabled");
    }

    pub fn router(&self) -> &Namespace {
        self.lab.namespace(ROUTER).expect("the router")
    }

    pub fn host(&self, name: &str) -> &Namespace {
        self.lab.namespace(name).expect("a host")
    }

    /// Returns a socket for the frames of a host's interface.
    pub fn socket(&self, host: &str) -> FrameSocket {
        FrameSocket::open(self.host(host), "eth0").expect("a packet socket")
    }

    pub fn mac(&self, node: &str, ifname: &str) -> Mac {
        self.lab.mac(node, ifname).expect("an interface")
    }

    /// Starts `ip` on the router.
    pub fn ip(&self) -> ip::Ip {
        ip::Ip::new(self.router())
    }

    /// Removes the namespaces, but keeps leftovers of an instance that was killed in them.
    pub fn abandon(mut self) {
        self.abandoned = true;
    }

    /// Starts the program on the router with these arguments of `run`.
    pub fn run(&self, args: &[&str]) -> Daemon {
        Daemon::start(self.router(), args)
    }

    /// Sends a request to the program on the router.
    pub fn call(&self, request: Request) -> Result<Value, ApiError> {
        call(self.router(), request)
    }
}

impl Drop for Star {
    fn drop(&mut self) {
        if !self.abandoned {
            left::remove(self.router());
        }
    }
}

/// Creates a device. If the kernel lacks its kind, reports the test as skipped and returns false.
pub fn made(router: &Namespace, words: &str) -> bool {
    let words: Vec<&str> = ["ip", "link", "add"]
        .into_iter()
        .chain(words.split(' '))
        .collect();
    match router.exec(&words) {
        Ok(_) => true,
        Err(error) if error.to_string().contains("Unknown device type") => {
            let kind = words.iter().skip_while(|word| **word != "type").nth(1);
            let kind = kind.copied().unwrap_or_default();
            skip(&format!("this kernel has no {kind} devices"));
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Sends a request to the program in a namespace.
pub fn call(namespace: &Namespace, request: Request) -> Result<Value, ApiError> {
    namespace
        .run(|| api::call(request))
        .expect("the namespace can be entered")
}

/// As [`call`], with the reply as a typed report.
pub fn report<T: serde::de::DeserializeOwned>(namespace: &Namespace, request: Request) -> T {
    let value = call(namespace, request).expect("an answer");
    serde_json::from_value(value).expect("the report")
}

/// Returns the counters of one interface.
pub fn counters(namespace: &Namespace, port: &str) -> report::PortCounters {
    let all: report::Counters = report(namespace, Request::ShowCounters);
    let found = all.ports.into_iter().find(|counters| counters.name == port);
    found.unwrap_or_default()
}

/// Packets by reason: verdict (`drop` or `kernel`), name, packets.
pub fn reasons(namespace: &Namespace) -> Vec<(String, String, u64)> {
    let drops: report::Drops = report(namespace, Request::ShowDrops);
    drops
        .into_iter()
        .map(|reason| (reason.verdict, reason.name, reason.packets))
        .collect()
}

/// Returns a command that runs the program in a namespace.
pub fn sidestep(namespace: &Namespace, args: &[&str]) -> Command {
    let mut command = namespace.command(crate::common::program());
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs the program with these arguments and returns its output.
pub fn output(namespace: &Namespace, args: &[&str]) -> Output {
    sidestep(namespace, args)
        .output()
        .expect("the program starts")
}

/// Returns the program's output. It must exit with 0.
pub fn printed(namespace: &Namespace, args: &[&str]) -> String {
    let output = output(namespace, args);
    assert!(output.status.success(), "{args:?}: {}", text_of(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns the program's standard error.
pub fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr)
        .trim_end()
        .to_owned()
}

/// The program in the foreground. Drop stops it, which detaches the ports.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    /// First line of its output.
    pub began: String,
}

impl Daemon {
    /// Starts `sidestep run ARGS`, and returns when it forwards.
    pub fn start(namespace: &Namespace, args: &[&str]) -> Self {
        Self::start_by(namespace, args, |_| {})
    }

    /// As [`Self::start`], with a change of the command, such as its environment.
    pub fn start_by(
        namespace: &Namespace,
        args: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let args: Vec<&str> = ["run"].iter().chain(args).copied().collect();
        let mut command = sidestep(namespace, &args);
        change(&mut command);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut began = String::new();
        let mut stdout = BufReader::with_capacity(1, child.stdout.take().expect("piped"));
        stdout.read_line(&mut began).expect("UTF-8");
        child.stdout = Some(stdout.into_inner());
        let daemon = Self { child, began };
        assert!(
            daemon.began.starts_with("forwarding on "),
            "sidestep {args:?} did not start (its reason stands above)"
        );
        daemon
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    /// Waits for its end and returns its output.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child).expect("it ends in time");
        let mut rest = String::new();
        let mut stdout = self.child.stdout.take().expect("piped");
        stdout.read_to_string(&mut rest).expect("UTF-8");
        (status, rest)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = kill(self.pid(), Signal::SIGTERM);
        // A test may have suspended it.
        let _ = kill(self.pid(), Signal::SIGCONT);
        if wait(&mut self.child).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Waits until a process has ended.
pub fn wait(child: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(2));
    }
    None
}

/// Calls `ask` repeatedly until it returns `Some`.
pub fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, ask)
}

/// Calls `ask` repeatedly until it returns `Some`, for this time.
pub fn eventually_within<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "{what}: not within {} s",
            limit.as_secs()
        );
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the result for a frame at a port by the live tables: verdict, egress, and outgoing frame
/// in hexadecimal.
pub fn explain(namespace: &Namespace, port: &str, frame: &[u8]) -> (String, String, String) {
    let request = Request::Explain {
        port: port.to_owned(),
        frame: hex(frame),
    };
    let answer = call(namespace, request).expect("an explanation");
    let word = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
    (word("verdict"), word("egress"), word("frame"))
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[digit as usize] as char);
    bytes.iter().flat_map(digits).collect()
}

/// Load of the machine, which affects measurements.
pub fn load() -> String {
    let text = std::fs::read_to_string(Path::new("/proc/loadavg")).unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}
