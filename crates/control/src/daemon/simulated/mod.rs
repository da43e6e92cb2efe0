//! A simulated node: an instance over a kernel and a packet path in memory, in virtual time. It
//! runs the daemon's decisions without root.

mod commands;
mod mirror;
mod path;
mod paths;
mod system;
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv6Addr;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value;
use sidestep_datapath::kernel::{Origin, PIN_ROOT, Target};
use sidestep_datapath::{Image, Limits, Native, SessionId, Verdict};
use sidestep_model::config::{File, Overlay};
use sidestep_model::node::{IfIndex, Mac, Node};
use sidestep_testkit::differential::headers::{bare_ipv6, ethernet};
use tempfile::TempDir;

use super::changes;
use super::config::{Configuration, Phase, Program};
use super::instance::{Instance, Overview};
use super::parts::Clients;
use super::{DaemonError, Mode, Options, PacketFormatter};
use crate::api::{Incoming, Request};
pub(crate) use commands::{config_text, request};
pub(crate) use mirror::MemoryMirror;
pub(crate) use path::MemoryPath;
pub(crate) use system::{Simulated, World};

/// The kernel's part of a node with three ports.
pub(crate) const STAR: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00:a::1/64", "10.0.1.1/24"], seg6_enabled: true}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc00:b::1/64", "10.0.2.1/24"], seg6_enabled: true}
  eth2: {mac: "02:00:00:00:00:03", addresses: ["fc00:c::1/64", "10.0.3.1/24"], seg6_enabled: true}
neighbors:
- "fc00:a::2 lladdr 02:00:00:00:00:11 dev eth0"
- "fc00:b::2 lladdr 02:00:00:00:00:12 dev eth1"
- "fc00:c::2 lladdr 02:00:00:00:00:13 dev eth2"
- "10.0.2.2 lladdr 02:00:00:00:00:12 dev eth1"
routes: ["fc00:bb::/32 via fc00:b::2 dev eth1"]
tunsrc: "fc00:5::1"
"#;

/// The program of the daemon: its log and its node file.
#[derive(Default)]
pub(crate) struct Console {
    pub log: Vec<String>,
    /// Ports and content of the node file, if it exists.
    pub file: Option<(Vec<String>, String)>,
    pub phases: Vec<Phase>,
}

impl Program for Console {
    fn read_configuration(&self) -> Result<Configuration, String> {
        let (ports, text) = self.file.as_ref().ok_or("node.yaml: No such file")?;
        let file = File::parse(text).map_err(|error| format!("node.yaml: {error}"))?;
        let named = file.port_names().map(str::to_owned);
        let ports = ports.iter().cloned().chain(named).collect();
        let configuration = Configuration { ports, file };
        configuration
            .check_ports()
            .map_err(|error| error.to_string())?;
        Ok(configuration)
    }

    fn log(&mut self, line: &str) {
        self.log.push(line.to_owned());
    }

    fn enter(&mut self, phase: Phase, _: &dyn Overview) {
        self.phases.push(phase);
    }

    fn turn(&mut self) {}

    fn tick(&mut self, _: &dyn Overview) {}
}

/// Remains of an instance that died: the kernel, the packet path and its files.
pub(crate) struct Left {
    mirror: MemoryMirror,
    path: MemoryPath,
    console: Console,
    world: Rc<World>,
    directory: TempDir,
}

impl Left {
    fn of(dead: Simulation) -> Self {
        let mut path = dead.instance.tables.kernel;
        path.origin = Some(Origin::Adopted);
        Self {
            mirror: dead.instance.mirror,
            path,
            console: dead.console,
            world: dead.world,
            directory: dead.directory,
        }
    }

    pub fn image(&self) -> &Image {
        &self.path.image
    }

    /// Lets further writes succeed.
    pub fn repair(&mut self) {
        self.path.fail_always(false);
    }

    /// Starts an instance.
    pub fn start(self, options: Options) -> Result<Simulation, DaemonError> {
        let (mut started, without) = self.prepare(options)?;
        started.instance.bring_up_with(without)?;
        started.instance.save_changes();
        Ok(started)
    }

    /// Starts an instance that cannot come up.
    fn fail(self, options: Options) -> (String, Self) {
        let (mut started, without) = self.prepare(options).expect("a good configuration");
        let error = started.instance.bring_up_with(without);
        let error = error.expect_err("a start that fails").to_string();
        (error, Self::of(started))
    }

    fn prepare(self, mut options: Options) -> Result<(Simulation, Without), DaemonError> {
        let Self {
            mut mirror,
            path,
            console,
            world,
            directory,
        } = self;
        mirror.read_again();
        let has_pins = path.origin.is_some();
        let node = mirror.kernel();
        let mut initial = changes::initial(&mut options, node, directory.path(), |_| has_pins)?;
        let without = initial.without.take();
        let fpm = initial.own.fpm.map(super::listen_fpm).transpose()?;
        let clients = Clients::new(formatter(), None, fpm);
        let (system, now) = (Simulated(world.clone()), world.now());
        let connected = (mirror, path);
        let instance = Instance::new(system, connected, (initial, options), clients, now);
        let prepared = Simulation {
            instance,
            console,
            world,
            directory,
        };
        Ok((prepared, without))
    }
}

/// Ports and overlay without the changes of the instance that died.
type Without = Option<(Vec<String>, Overlay)>;

/// A running instance on a simulated node.
pub(crate) struct Simulation {
    pub instance: Instance<Simulated>,
    pub console: Console,
    pub world: Rc<World>,
    directory: TempDir,
}

fn options(ports: &[&str], config: File) -> Options {
    Options {
        ports: ports.iter().map(|name| (*name).to_owned()).collect(),
        mode: Mode::Auto,
        config,
        config_path: None,
        limits: Limits::default(),
        pin_root: PIN_ROOT.into(),
        receive_buffer: 0,
        group: None,
        version: "simulated",
        arguments: Vec::new(),
    }
}

/// The kernel's part of a node.
fn node_of(text: &str) -> Node {
    let node = File::parse(text).and_then(|file| file.node());
    node.expect("a node")
}

fn formatter() -> PacketFormatter {
    PacketFormatter {
        explain: |_, _, _, _, _| Value::Null,
        headers: |_| (Value::Null, String::new()),
        sample: |_, _, _, _| None,
    }
}

impl Simulation {
    /// Starts an instance at `eth0` and `eth1` of [`STAR`].
    pub fn new() -> Self {
        Self::with(STAR, &["eth0", "eth1"], "")
    }

    /// Starts an instance with this node file at a node with this configuration of the kernel.
    ///
    /// # Panics
    /// The start fails.
    pub fn with(node: &str, ports: &[&str], file: &str) -> Self {
        let config = if file.is_empty() {
            File::default()
        } else {
            File::parse(file).expect("a node file")
        };
        let mut options = options(ports, config);
        let named = options.config.port_names().map(str::to_owned);
        options.ports.extend(named.collect::<Vec<_>>());
        options.config_path = (!file.is_empty()).then(|| "node.yaml".into());
        let mut started = Self::start(node_of(node), options).expect("a start");
        let ports = ports.iter().map(|name| (*name).to_owned()).collect();
        started.console.file = (!file.is_empty()).then(|| (ports, file.to_owned()));
        started
    }

    /// Starts an instance.
    pub fn start(node: Node, options: Options) -> Result<Self, DaemonError> {
        let world = Rc::new(World::default());
        let mirror = MemoryMirror::new(world.clone(), node);
        let left = Left {
            mirror,
            path: MemoryPath::default(),
            console: Console::default(),
            world,
            directory: TempDir::new()?,
        };
        left.start(options)
    }

    /// Ends the instance as a crash does, and starts another one with these options, which adopts
    /// the packet path.
    pub fn crash(self, options: Options) -> Result<Self, DaemonError> {
        Left::of(self).start(options)
    }

    /// As [`Self::crash`], for a start that fails. Returns the error and the remains.
    pub fn crash_and_fail(self, options: Options) -> (String, Left) {
        Left::of(self).fail(options)
    }

    /// The file with the changes by commands, if there is one.
    pub fn saved(&self) -> Option<String> {
        std::fs::read_to_string(self.directory.path().join("changes.json")).ok()
    }

    /// Options of the running instance, for another start.
    pub fn options(&self) -> Options {
        self.instance.configured.options.clone()
    }

    /// One round of the event loop.
    pub fn turn(&mut self) {
        self.turn_with(None);
    }

    fn turn_with(&mut self, incoming: Option<Incoming>) {
        self.instance.time.now = self.world.now();
        self.instance.turn(&mut self.console);
        if let Some(incoming) = incoming {
            self.instance.serve(incoming, &mut self.console);
        }
        self.instance.end_turn(&mut self.console);
    }

    /// Lets time pass; the event loop runs whenever work is due.
    ///
    /// # Panics
    /// Work is due again and again at one time.
    pub fn run(&mut self, duration: Duration) {
        let end = self.world.now() + duration;
        let mut rounds = 0;
        self.turn();
        while self.next_event() <= end {
            let due = self.next_event();
            let before = self.world.now();
            rounds = if due > before { 0 } else { rounds + 1 };
            assert!(rounds < 1000, "work is always due");
            self.jump(due.saturating_duration_since(before));
            self.turn();
        }
        self.jump(end.saturating_duration_since(self.world.now()));
    }

    /// Time of the next round of the event loop.
    fn next_event(&self) -> Instant {
        let due = self.instance.due();
        self.world.readable().map_or(due, |at| due.min(at))
    }

    /// Lets time pass without a round of the event loop, as while the machine sleeps.
    pub fn jump(&self, duration: Duration) {
        self.world.pass(duration);
    }

    /// Lets time pass until this is so.
    ///
    /// # Panics
    /// It is not so within a minute.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) -> Duration {
        let begun = self.world.now();
        self.turn();
        while !is_so(self) {
            let passed = self.world.now() - begun;
            assert!(passed < Duration::from_secs(60), "{what}: not within 60 s");
            self.run(
                self.next_event()
                    .saturating_duration_since(self.world.now()),
            );
        }
        self.world.now() - begun
    }

    /// Connects a client with this request, which has not been served yet.
    pub fn client(request: Request) -> (UnixStream, Incoming) {
        let (client, daemon) = UnixStream::pair().expect("sockets");
        (client, Incoming::with(daemon, request))
    }

    /// Serves a request without reading its reply.
    pub fn serve(&mut self, request: Request) -> UnixStream {
        let (client, incoming) = Self::client(request);
        self.turn_with(Some(incoming));
        client
    }

    /// Asks as a client of the control socket.
    ///
    /// # Errors
    /// The message of the daemon.
    pub fn ask(&mut self, request: Request) -> Result<Value, String> {
        let mut client = self.serve(request);
        let mut text = String::new();
        client.set_nonblocking(true).expect("a socket");
        // A long reply comes in pieces.
        while !text.ends_with('\n') {
            let mut piece = vec![0; 1 << 16];
            match client.read(&mut piece) {
                Ok(0) => panic!("no reply: {text}"),
                Ok(bytes) => text.push_str(std::str::from_utf8(&piece[..bytes]).expect("text")),
                Err(_) => self.turn(),
            }
        }
        let mut reply: Value = serde_json::from_str(&text).expect("JSON");
        match reply.get_mut("ok") {
            Some(ok) => Ok(ok.take()),
            None => Err(reply["error"]["message"]
                .as_str()
                .expect("a message")
                .to_owned()),
        }
    }

    /// Returns a report.
    pub fn report<T: DeserializeOwned>(&mut self, request: Request) -> T {
        let value = self.ask(request).expect("a report");
        serde_json::from_value(value).expect("the report of this request")
    }

    /// Index of an interface.
    pub fn dev(&self, name: &str) -> IfIndex {
        let kernel = self.instance.mirror.kernel();
        kernel.link_by_name(name).expect("a link").ifindex
    }

    /// Verdict and frame of an IPv6 packet from a neighbor that enters a port, by the tables as
    /// packets find them. Nothing is counted.
    pub fn packet(&self, port: &str, to: &str) -> (Verdict, Vec<u8>) {
        let (dev, mac) = self.port(port);
        let ends = ["fc00:a::2", to].map(|text| text.parse().expect("IPv6"));
        let native = self.run_frame(dev, &bare_ipv6(mac.0, ends[0], ends[1]));
        (native.0, native.1.frame().to_vec())
    }

    /// Sends a packet into a port, with its reports and counters. The event loop has a round.
    /// Returns the verdict and the frame.
    pub fn send(&mut self, port: &str, ethertype: u16, packet: &[u8]) -> (Verdict, Vec<u8>) {
        let (verdict, native) = self.native(port, ethertype, packet);
        self.instance.tables.kernel.note(&native);
        self.turn();
        (verdict, native.frame().to_vec())
    }

    /// As [`Self::send`], without a round of the event loop: the caller notes the packet.
    pub fn unread(&self, port: &str, ethertype: u16, packet: &[u8]) -> Native {
        self.native(port, ethertype, packet).1
    }

    fn native(&self, port: &str, ethertype: u16, packet: &[u8]) -> (Verdict, Native) {
        let (dev, mac) = self.port(port);
        let frame = ethernet(mac.0, [2, 0, 0, 0, 0, 0x11], ethertype, packet);
        self.run_frame(dev, &frame)
    }

    fn port(&self, name: &str) -> (IfIndex, Mac) {
        let dev = self.dev(name);
        (dev, self.instance.mirror.kernel().links[&dev].mac)
    }

    fn run_frame(&self, dev: IfIndex, frame: &[u8]) -> (Verdict, Native) {
        let image = self.instance.tables.kernel.seen();
        let mut native = Native::new(&image);
        native.set_now(self.world.passed().as_nanos() as u64);
        let sessions = self.instance.tables.kernel.sessions.borrow();
        let last = sessions.keys().next_back().map_or(0, |index| index.0);
        let all = (0..=last).map(|index| sessions.get(&SessionId(index)));
        native.set_sessions(all.map(|it| it.copied().unwrap_or_default()).collect());
        drop(sessions);
        let verdict = native.run(dev.0, frame);
        (verdict, native)
    }

    /// Name of the verdict and of its reason, or the egress.
    pub fn verdict(&self, to: &str) -> String {
        match self.packet("eth0", to).0 {
            Verdict::Forward { ifindex } => {
                let links = &self.instance.mirror.kernel().links;
                format!("forward {}", links[&IfIndex(ifindex)].name)
            }
            Verdict::Punt(reason) => format!("punt {}", reason.name),
            Verdict::Drop(reason) => format!("drop {}", reason.name),
        }
    }

    /// Destination of the frame of a packet, or its verdict if it is not forwarded.
    pub fn outer_destination(&self, to: &str) -> String {
        let (verdict, frame) = self.packet("eth0", to);
        let bytes: [u8; 16] = frame[38..54].try_into().expect("a destination");
        match verdict {
            Verdict::Forward { .. } => Ipv6Addr::from(bytes).to_string(),
            other => format!("{other:?}"),
        }
    }

    /// The attached interfaces, by name.
    pub fn attached(&self) -> BTreeMap<String, Target> {
        let links = &self.instance.mirror.kernel().links;
        let ports = self.instance.tables.kernel.ports.iter();
        ports
            .map(|(port, target)| (links[&IfIndex(*port)].name.clone(), *target))
            .collect()
    }

    /// Codes of the problems at the last checks.
    pub fn problems(&mut self) -> BTreeSet<String> {
        let status: crate::report::Status = self.report(Request::ShowStatus);
        status.problems.into_iter().map(|it| it.code).collect()
    }

    /// Asserts that packets to these addresses leave as from an instance that starts now.
    pub fn assert_compiled<'a>(&mut self, to: impl IntoIterator<Item = &'a str>, what: &str) {
        let config = File::parse(&self.shown()).expect("what is shown is a node file");
        let options = Options {
            config,
            ports: self.options().ports,
            ..self.options()
        };
        let kernel = self.instance.mirror.kernel().clone();
        let fresh = Self::start(kernel, options).expect("a start");
        for to in to {
            assert_eq!(
                self.packet("eth0", to),
                fresh.packet("eth0", to),
                "{what}: {to}"
            );
        }
    }

    /// Lines of a stream that have arrived.
    pub fn lines(stream: &UnixStream) -> Vec<Value> {
        stream.set_nonblocking(true).expect("a socket");
        let lines = BufReader::new(stream).lines();
        let lines = lines.map_while(Result::ok);
        lines
            .map(|line| serde_json::from_str(&line).expect("JSON"))
            .collect()
    }
}
