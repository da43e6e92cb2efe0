//! `sidestep exec` with real programs: curl, iperf3 and Python, over routers of Linux and of
//! Sidestep. Every frame at the server is verified.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Namespace;
use sidestep_testkit::capability::skip;

use crate::support::frames::{TCP, UDP};
use crate::support::line::{Line, all_by, all_plain};
use crate::support::{Daemon, begin, text_of};

/// The path: the SID of the router next to the client, then the SID of the other router.
const SEGMENTS: &str = "fc00:1::e,fc00:2::e";
/// Two addresses of the server.
const SERVER: &str = "2001:db8:b::2";
const OTHER: &str = "2001:db8:b::3";
const PYTHON: &str = "/usr/bin/python3";
/// Length of an HTTP response, which takes many full packets.
const ANSWER: usize = 300_000;

/// Returns the command `sidestep exec WORDS` on the client.
fn started_by(line: &Line, words: &[&str]) -> Command {
    crate::support::sidestep(line.node("a"), &[&["exec"], words].concat())
}

/// Runs a Python program with `sidestep exec`. It must exit with 0. Returns its output.
fn python(line: &Line, options: &[&str], program: &str) -> String {
    let program = format!("{PRELUDE}\n{program}");
    let output = started_by(line, &[options, &["--", PYTHON, "-c", &program]].concat()).output();
    finished(&output.expect("it starts"))
}

fn finished(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        text_of(output)
    );
    assert_eq!(text_of(output), "");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A server that returns the same bytes for every request, until it is dropped.
struct Http {
    address: SocketAddr,
    done: std::sync::Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

fn body() -> Vec<u8> {
    (0..ANSWER)
        .map(|at| b"0123456789abcdef"[at * 7 % 16])
        .collect()
}

impl Http {
    fn start(namespace: &Namespace) -> Self {
        let listener = namespace
            .run(|| TcpListener::bind("[::]:0"))
            .expect("entered")
            .expect("listen");
        let address = listener.local_addr().expect("an address");
        let done = std::sync::Arc::new(AtomicBool::new(false));
        let ends = std::sync::Arc::clone(&done);
        listener
            .set_nonblocking(true)
            .expect("a listener that does not wait");
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Acquire) {
                let Ok((mut stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(2));
                    continue;
                };
                stream.set_nonblocking(false).expect("a stream that waits");
                stream
                    .set_read_timeout(Some(crate::support::PATIENCE))
                    .expect("a timeout");
                let mut request = Vec::new();
                let mut chunk = [0; 4096];
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut chunk) {
                        Ok(0) | Err(_) => break,
                        Ok(more) => request.extend(&chunk[..more]),
                    }
                }
                // Ignore errors of a client that has disconnected.
                let _ = write!(
                    stream,
                    "HTTP/1.0 200 OK\r\nContent-Length: {ANSWER}\r\n\r\n"
                );
                let _ = stream.write_all(&body());
            }
        });
        Self {
            address,
            done,
            thread: Some(thread),
        }
    }

    fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Common start of the Python programs.
const PRELUDE: &str = r#"
import ctypes, os, socket, struct, sys, threading
IN, OUT = ("2001:db8:b::2", 4000), ("2001:db8:b::3", 4000)
RTHDR = (socket.IPPROTO_IPV6, socket.IPV6_RTHDR)
def udp(): return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
def header(s): return s.getsockopt(*RTHDR, 1024)
"#;

/// Opens a UDP socket at the server that receives all datagrams and replies to none.
fn sink(line: &Line) -> UdpSocket {
    line.node("b")
        .run(|| UdpSocket::bind("[::]:4000"))
        .expect("entered")
        .expect("a socket")
}

/// Runs curl, iperf3 and Python across these routers. Every packet must visit the segments and
/// arrive.
fn cross(line: &Line, place: &str) {
    let (server, http) = (line.node("b"), Http::start(line.node("b")));
    let url = format!("http://[{SERVER}]:{}/", http.port());
    let curl = ["curl", "-s", "--max-time", "20", &url];
    let exec = ["--segs", SEGMENTS, "--"];

    let (output, arrived) = line.arriving(|| {
        started_by(line, &[&exec[..], &curl[..]].concat())
            .output()
            .expect("curl (Debian package curl)")
    });
    finished(&output);
    assert_eq!(
        output.stdout,
        body(),
        "{place}: curl's output is the answer, and nothing else"
    );
    all_by(&arrived, SEGMENTS, |packet| packet.port == http.port());
    // If it is missing, the test continues without it.
    let (output, arrived) = line.arriving(|| {
        line.node("a")
            .command(curl[0])
            .args(&curl[1..])
            .output()
            .expect("curl")
    });
    finished(&output);
    all_plain(&arrived, |packet| packet.port == http.port());

    for udp in [&[][..], &["-u", "-b", "20M"]] {
        let mut listening = server
            .spawn(&["iperf3", "-s", "-1", "-B", SERVER, "-p", "5201"])
            .expect("iperf3 (Debian package iperf3)");
        listens(server, 5201);
        let words = [
            &exec[..],
            &["iperf3", "-6", "-c", SERVER, "-p", "5201", "-n", "2M", "-J"],
            udp,
        ]
        .concat();
        let (output, arrived) =
            line.arriving(|| started_by(line, &words).output().expect("it starts"));
        let report: serde_json::Value =
            serde_json::from_str(&finished(&output)).expect("iperf3's report");
        // iperf3 reports only the bytes that were read before the sender finished.
        let sum = |name: &str| report["end"][name]["bytes"].as_u64().unwrap_or_default();
        let (sent, received) = if udp.is_empty() {
            (sum("sum_sent"), sum("sum_received"))
        } else {
            (sum("sum"), sum("sum"))
        };
        assert!(sent > 2_000_000 && received > 0, "{place}: {report}");
        let protocol = if udp.is_empty() { TCP } else { UDP };
        all_by(&arrived, SEGMENTS, |packet| {
            packet.port == 5201 && packet.protocol == protocol
        });
        all_by(&arrived, SEGMENTS, |packet| packet.port == 5201);
        crate::support::wait(listening.child()).expect("iperf3 -1 ends");
    }

    let _sink = sink(line);
    let (_, arrived) = line.arriving(|| python(line, &exec[..2], CALLS));
    let mut payloads: Vec<_> = arrived
        .iter()
        .filter(|it| it.port == 4000)
        .map(|it| it.payload.clone())
        .collect();
    payloads.sort();
    let expected = [
        "connected",
        "mmsg 1",
        "mmsg 2",
        "sendmsg",
        "sendto",
        "thread 0",
        "thread 1",
        "thread 2",
    ];
    assert_eq!(
        payloads,
        expected.map(|text| text.as_bytes().to_vec()),
        "{place}"
    );
    all_by(&arrived, SEGMENTS, |packet| packet.port == 4000);
}

/// All system calls that can send a datagram.
const CALLS: &str = r#"
s = udp(); s.sendto(b"sendto", IN)
s = udp(); s.sendmsg([b"send", b"msg"], [], 0, IN)
s = udp(); s.connect(IN); s.send(b"connected")
s = udp()
class iovec(ctypes.Structure): _fields_ = [("base", ctypes.c_char_p), ("len", ctypes.c_size_t)]
class msghdr(ctypes.Structure): _fields_ = [("name", ctypes.c_char_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(iovec)),
    ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int)]
class mmsghdr(ctypes.Structure): _fields_ = [("hdr", msghdr), ("len", ctypes.c_uint)]
def name(to): return struct.pack("=HHI16sI", socket.AF_INET6, socket.htons(to[1]), 0, socket.inet_pton(socket.AF_INET6, to[0]), 0)
def sendmmsg(s, messages):
    vector = (mmsghdr * len(messages))()
    for at, (data, to) in enumerate(messages):
        vector[at].hdr = msghdr(name(to) if to else None, 28 if to else 0, ctypes.pointer(iovec(data, len(data))), 1)
    return ctypes.CDLL(None, use_errno=True).sendmmsg(s.fileno(), vector, len(messages), 0)
assert sendmmsg(s, [(b"mmsg 1", IN), (b"mmsg 2", IN)]) == 2
threads = [threading.Thread(target=lambda n: udp().sendto(b"thread %d" % n, IN), args=(n,)) for n in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]
"#;

/// Waits for a listener on this TCP port.
fn listens(namespace: &Namespace, port: u16) {
    crate::support::eventually(&format!("a listener at {port}"), || {
        let sockets = namespace
            .exec(&["ss", "-Htln", "sport", "=", &port.to_string()])
            .expect("ss");
        (!sockets.is_empty()).then_some(())
    });
}

/// Returns whether curl and iperf3 are installed. If one is not, the test is skipped.
fn has_programs() -> bool {
    for program in ["curl", "iperf3"] {
        let found = Command::new(program).arg("--version").output();
        if let Err(error) = found {
            assert!(
                std::env::var_os(sidestep_testkit::capability::REQUIRE).is_none(),
                "{program}: {error}"
            );
            skip(&format!(
                "{program} cannot be run: {error} (Debian package {program})"
            ));
            return false;
        }
    }
    true
}

#[test]
fn curl_iperf3_and_python_go_by_the_segments_over_routers_of_linux() {
    let Some(_turn) = begin() else {
        return;
    };
    if !has_programs() {
        return;
    }
    cross(&Line::new("liveexeclinux"), "Linux");
}

#[test]
fn curl_iperf3_and_python_go_by_the_segments_over_routers_of_sidestep() {
    let Some(_turn) = begin() else {
        return;
    };
    if !has_programs() {
        return;
    }
    for mode in crate::support::modes(&["tc", "xdp-always"]) {
        over_sidestep(mode);
    }
}

fn over_sidestep(mode: &str) {
    let line = &Line::new("liveexecours");
    let napi = (mode == "xdp-always").then(|| line.complete_frames());
    let daemons = ["r1", "r2"]
        .map(|router| Daemon::start(line.node(router), &["--mode", mode, "eth0", "eth1"]));
    cross(line, mode);
    for router in ["r1", "r2"] {
        let routes: report::Routes =
            crate::support::report(line.node(router), Request::ShowRoutes { all: false });
        assert_eq!(routes.len(), 1, "{routes:?}");
        // The packet path forwarded the packets.
        assert!(
            routes[0].packets > 1000 && routes[0].errors == 0,
            "{mode}: {routes:?}"
        );
        let drops: Vec<_> = crate::support::reasons(line.node(router))
            .into_iter()
            .filter(|(verdict, ..)| verdict == "drop")
            .collect();
        assert!(drops.is_empty(), "{mode}: {drops:?}");
    }
    drop((daemons, napi));
}

/// Uses one socket alternately: unconnected, connected to either destination, and with all calls.
const MIXED: &str = r#"
s = udp()
for n in range(3):
    s.sendto(b"to in", IN); s.sendto(b"to out", OUT)
    s.sendmsg([b"to in"], [], 0, IN); s.sendmsg([b"to out"], [], 0, OUT)
assert sendmmsg(s, [(b"to out", OUT), (b"to in", IN), (b"to in", IN), (b"to out", OUT), (b"to in", IN)]) == 5
ours = header(s)
assert ours
s = udp(); s.connect(IN); s.send(b"to in"); s.sendto(b"to out", OUT); s.send(b"to in")
assert header(s) == ours
s.connect(OUT); s.send(b"to out"); s.sendto(b"to in", IN); s.send(b"to out")
assert header(s) == b""
assert sendmmsg(s, [(b"to out", None), (b"to in", IN), (b"to out", None)]) == 3
s.connect(IN); s.send(b"to in")
for to in IN, OUT:
    t = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try: t.connect((to[0], 4001))
    except ConnectionRefusedError: pass
# Several threads on one socket, each with its destination.
s = udp()
def many(data, to):
    for n in range(300): s.sendto(data, to)
threads = [threading.Thread(target=many, args=args) for args in [(b"to in", IN), (b"to out", OUT), (b"to in", IN), (b"to out", OUT)]]
[t.start() for t in threads]; [t.join() for t in threads]
"#;

#[test]
fn only_what_goes_to_the_prefixes_gets_the_header() {
    let Some(_turn) = begin() else {
        return;
    };
    let line = &Line::new("liveexecto");
    let _sink = sink(line);
    let program = format!(
        "{}\n{MIXED}",
        CALLS
            .split("assert sendmmsg")
            .next()
            .expect("its functions")
    );
    let options = [
        "--segs",
        SEGMENTS,
        "--to",
        "2001:db8:f::/48",
        "--to",
        "2001:db8:b::2/128",
    ];
    let (_, arrived) = line.arriving(|| python(line, &options, &program));
    let count = |text: &[u8]| {
        arrived
            .iter()
            .filter(|packet| packet.payload == text)
            .count()
    };
    assert!(
        count(b"to in") > 600 && count(b"to out") > 600,
        "{} and {}",
        count(b"to in"),
        count(b"to out")
    );
    for packet in &arrived {
        let inside = packet.to == SERVER.parse::<Ipv6Addr>().expect("an address");
        assert!(inside || packet.to == OTHER.parse::<Ipv6Addr>().expect("an address"));
        match &*packet.payload {
            b"to in" => assert!(inside, "{packet:?}"),
            b"to out" => assert!(!inside, "{packet:?}"),
            _ => {}
        }
        let by = packet.header.as_ref().map(|(left, by, _)| (*left, &**by));
        assert_eq!(by, inside.then_some((0, SEGMENTS)), "{packet:?}");
    }
    all_by(&arrived, SEGMENTS, |packet| {
        packet.port == 4001 && packet.to.to_string() == SERVER
    });
    all_plain(&arrived, |packet| {
        packet.port == 4001 && packet.to.to_string() == OTHER
    });
}

#[test]
fn linux_verifies_what_was_signed_with_its_key_and_drops_the_rest() {
    let Some(_turn) = begin() else {
        return;
    };
    let line = &Line::new("liveexechmac");
    for (node, secret) in [
        ("a", "a secret"),
        ("r1", "a secret"),
        ("r2", "a secret"),
        ("b", "a secret"),
    ] {
        set_key(line.node(node), 7, secret);
    }
    set_key(line.node("a"), 8, "another one");
    set_key(line.node("r1"), 8, "not that one");
    for router in ["r1", "r2"] {
        line.node(router)
            .sysctl("net/ipv6/conf/eth0/seg6_require_hmac", "1")
            .expect("a sysctl");
    }
    let _sink = sink(line);
    let send = |options: &[&str], text: &str| {
        let program =
            format!("s = udp(); s.sendto(b'{text}', IN); s.connect(IN); s.send(b'{text}')");
        python(
            line,
            &[&["--segs", SEGMENTS][..], options].concat(),
            &program,
        );
    };
    let ((), arrived) = line.arriving(|| {
        send(&["--hmac", "7"], "signed");
        send(&[], "not signed");
        send(&["--hmac", "8"], "signed with another key");
        // The key does not exist: Linux sends zeros.
        send(&["--hmac", "9"], "signed with no key");
        send(&["--hmac", "7"], "signed");
    });
    let texts: Vec<_> = arrived
        .iter()
        .map(|packet| String::from_utf8_lossy(&packet.payload))
        .collect();
    assert_eq!(texts, ["signed"; 4]);
    for packet in &arrived {
        assert_eq!(packet.header, Some((0, SEGMENTS.to_owned(), true)));
    }
    // The maximum number of signed segments.
    let thirteen = ["fc00:1::e,fc00:2::e"; 7].join(",");
    let thirteen = &thirteen[..13 * 10 - 1];
    let program = "udp().sendto(b'long', IN)";
    let (_, arrived) =
        line.arriving(|| python(line, &["--segs", thirteen, "--hmac", "7"], program));
    all_by(&arrived, thirteen, |packet| packet.payload == b"long");
}

fn set_key(namespace: &Namespace, key: u32, secret: &str) {
    // `ip` reads from the terminal if there is one.
    let words = [
        "setsid",
        "-w",
        "ip",
        "sr",
        "hmac",
        "set",
        &key.to_string(),
        "sha256",
    ];
    let output = namespace.exec_with_input(&words, secret).expect("ip");
    assert!(output.status.success(), "{}", text_of(&output));
}

#[test]
fn a_program_that_sets_a_routing_header_itself_keeps_it() {
    let Some(_turn) = begin() else {
        return;
    };
    let line = &Line::new("liveexecown");
    let _sink = sink(line);
    let mut own = String::from("000404010100000000000000000000000000000000000000");
    write!(
        own,
        "{}",
        hex(&"fc00:2::e"
            .parse::<Ipv6Addr>()
            .expect("an address")
            .octets())
    )
    .expect("a string");
    let program = format!(
        "own = bytes.fromhex('{own}')\n\
         s = udp(); s.setsockopt(*RTHDR, own); s.sendto(b'own', IN); s.connect(IN); s.send(b'own'); assert header(s) == own\n\
         s = udp(); s.connect(IN); s.setsockopt(*RTHDR, own); s.send(b'own'); s.sendto(b'own', IN)\n\
         t = socket.socket(socket.AF_INET6, socket.SOCK_STREAM); t.setsockopt(*RTHDR, own)\n\
         try: t.connect((IN[0], 4001))\n\
         except ConnectionRefusedError: pass\n"
    );
    let (_, arrived) = line.arriving(|| python(line, &["--segs", SEGMENTS], &program));
    assert_eq!(
        arrived
            .iter()
            .filter(|packet| packet.payload == b"own")
            .count(),
        4
    );
    all_by(&arrived, "fc00:2::e", |packet| packet.port == 4000);
    all_by(&arrived, "fc00:2::e", |packet| packet.port == 4001);
}

fn hex(bytes: &[u8]) -> String {
    crate::support::hex(bytes)
}

#[test]
fn programs_that_the_program_starts_go_by_the_segments_too() {
    let Some(_turn) = begin() else {
        return;
    };
    let line = &Line::new("liveexecfork");
    let _sink = sink(line);
    // Three child processes: a fork, another program, and one whose descriptors are all closed
    // before.
    let program = r#"
import subprocess
send = "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'%s', ('2001:db8:b::2', 4000))"
if os.fork() == 0:
    udp().sendto(b"fork", IN); os._exit(0)
assert os.wait()[1] == 0
os.environ["SEND"] = send % "shell"
subprocess.run(["sh", "-c", "exec /usr/bin/python3 -c \"$SEND\""], close_fds=False, check=True)
subprocess.run(["/usr/bin/python3", "-c", send % "closed"], close_fds=True, check=True)
"#;
    let (_, arrived) = line.arriving(|| python(line, &["--segs", SEGMENTS], program));
    let texts: Vec<_> = arrived
        .iter()
        .map(|packet| String::from_utf8_lossy(&packet.payload))
        .collect();
    assert_eq!(texts, ["fork", "shell", "closed"]);
    all_by(&arrived, SEGMENTS, |packet| packet.port == 4000);
}

#[test]
fn what_a_server_accepts_is_answered_without_a_header() {
    let Some(_turn) = begin() else {
        return;
    };
    // The server runs on the client's host, and `b` connects to it and sees its packets.
    let line = &Line::new("liveexecaccept");
    let program = "
l = socket.create_server(('::', 4002), family=socket.AF_INET6)
print('listening', flush=True)
c = l.accept()[0]; c.sendall(b'hello'); assert header(c) == b''";
    let program = format!("{PRELUDE}\n{program}");
    let ((), arrived) = line.arriving(|| {
        let mut server = started_by(line, &["--segs", SEGMENTS, "--", PYTHON, "-c", &program])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        listens(line.node("a"), 4002);
        let mut stream = line
            .node("b")
            .run(|| std::net::TcpStream::connect("[2001:db8:a::2]:4002"))
            .expect("entered")
            .expect("connect");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        assert_eq!(text, "hello");
        assert!(
            crate::support::wait(&mut server)
                .expect("it ends")
                .success()
        );
    });
    all_plain(&arrived, |packet| packet.protocol == TCP);
}
