//! HMAC between this program and Linux in both directions, with real hosts. Each side accepts only
//! packets that the other one signed. Keys are changed under traffic. All tests run in TC and in
//! XDP.

use std::io::Write as _;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Namespace;
use sidestep_testkit::Napi;
use sidestep_testkit::offload::Offload;

use crate::support::hosts::{Chain, ROUTERS};
use crate::support::ip::Ip;
use crate::support::{
    Daemon, begin, counters, eventually, modes, printed, reasons, report, sidestep, target_of,
    text_of,
};

/// Commands for End on the middle router.
const MIDDLE: [&str; 5] = [
    "address add fc00:12::2/64 dev eth0",
    "address add fc00:23::2/64 dev eth1",
    "route add fc00:1::/48 via fc00:12::1 dev eth0",
    "route add fc00:3::/48 via fc00:23::3 dev eth1",
    "route add fc00:2::e/128 encap seg6local action End dev eth0",
];
/// Keys 1 and 2 of every router.
const KEYS: [(u32, &str, &str); 2] = [
    (1, "sha256", "known on all routers"),
    (2, "sha1", "another one"),
];

/// Host a, pe1, which signs, p and pe2, which require an HMAC, and host b. The opposite direction
/// is not signed.
fn chain(topic: &str) -> Chain {
    let chain = Chain::new(topic, &MIDDLE, [["fc00:2::e"; 2]; 2]);
    for router in ROUTERS {
        for (id, algorithm, secret) in KEYS {
            chain
                .node(router)
                .set_hmac(id, algorithm, secret)
                .expect("a key of the kernel's");
        }
    }
    for router in ["p", "pe2"] {
        chain
            .node(router)
            .sysctl("net/ipv6/conf/eth0/seg6_require_hmac", "1")
            .expect("a sysctl");
    }
    chain
}

/// Sets the route of pe1 to host b, with these additional arguments for the key.
fn sign(chain: &Chain, words: &str) {
    let route = "route replace 2001:db8:b::/64 encap seg6 mode encap segs fc00:2::e,fc00:3::d6";
    Ip::new(chain.node("pe1")).run(&format!("{route} {words} dev eth1"));
}

/// Daemons on some of the routers; Linux runs on the others.
struct Running {
    _daemons: Vec<Daemon>,
    _napi: Vec<Napi>,
}

/// Starts the program on these routers. For XDP, frames are complete as on a cable, and every other
/// port accepts redirects.
fn start(chain: &Chain, mode: &str, routers: &[&str]) -> Running {
    let all = [("a", &["eth0"][..]), ("b", &["eth0"])];
    let all = all
        .into_iter()
        .chain(ROUTERS.map(|router| (router, &["eth0", "eth1"][..])));
    let linux: Vec<_> = all
        .filter(|(node, _)| mode == "xdp-always" && !routers.contains(node))
        .collect();
    for (node, ports) in &linux {
        chain.offload(&[*node], ports, Offload::OFF);
    }
    // Do this last: a port has no offloads to switch after the other end of its link has an XDP
    // program.
    let mut napi = Vec::new();
    for (node, ports) in linux {
        let attach = |port: &&str| Napi::attach(chain.node(node), port).expect("NAPI");
        napi.extend(ports.iter().map(attach));
    }
    let daemons = routers.iter().map(|router| {
        let daemon = Daemon::start(chain.node(router), &["--mode", mode, "eth0", "eth1"]);
        let began = format!("eth0 ({}", target_of(mode));
        assert!(daemon.began.contains(&began), "{}", daemon.began);
        daemon
    });
    Running {
        _daemons: daemons.collect(),
        _napi: napi,
    }
}

/// Returns whether an echo request gets a reply within this time.
fn answered(chain: &Chain, seconds: &str) -> bool {
    let words = [
        "ping",
        "-n",
        "-q",
        "-c",
        "1",
        "-W",
        seconds,
        "2001:db8:b::2",
    ];
    chain.node("a").exec(&words).is_ok()
}

fn passes(chain: &Chain) {
    eventually("an answer", || answered(chain, "0.3").then_some(()));
    for _ in 0..5 {
        assert!(answered(chain, "3"));
    }
}

fn is_stopped(chain: &Chain) {
    eventually("no answer", || (!answered(chain, "0.3")).then_some(()));
    assert!(!answered(chain, "0.3"));
}

/// Runs `sidestep hmac set`, with the secret on stdin.
fn set(namespace: &Namespace, id: u32, algorithm: &str, secret: &str) {
    let id = id.to_string();
    let mut child = sidestep(namespace, &["hmac", "set", &id, algorithm])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdin = child.stdin.take().expect("piped");
    writeln!(stdin, "{secret}").expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text_of(&output));
}

fn del(namespace: &Namespace, id: u32) {
    printed(namespace, &["hmac", "del", &id.to_string()]);
}

fn keys(namespace: &Namespace) -> report::HmacKeys {
    report(namespace, Request::ShowHmac)
}

/// Returns the number of packets that were dropped or punted for this reason.
fn count(namespace: &Namespace, reason: &str) -> u64 {
    let reasons = reasons(namespace);
    let found = reasons.iter().find(|(_, name, _)| name == reason);
    found.map_or(0, |(_, _, packets)| *packets)
}

#[test]
fn what_we_sign_linux_lets_through_and_nothing_else() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        we_sign(mode);
    }
}

fn we_sign(mode: &str) {
    let chain = chain("livehmacsign");
    let _running = start(&chain, mode, &["pe1"]);
    let pe1 = chain.node("pe1");
    is_stopped(&chain);
    for (words, key) in [("hmac 1", 1), ("hmac 2", 2)] {
        sign(&chain, words);
        eventually("a policy that is signed", || {
            keys(pe1)
                .iter()
                .find(|it| it.key == key && it.policies == 1)
                .map(|_| ())
        });
        passes(&chain);
    }
    assert_eq!(count(pe1, "hmac"), 0, "the packet path signs itself");
    assert!(counters(pe1, "eth0").forwarded > 10);
    // A Sidestep-only secret replaces that of the kernel, and is removed again.
    set(pe1, 2, "sha1", "another one?");
    assert_eq!(keys(pe1)[1].owner, "sidestep");
    is_stopped(&chain);
    del(pe1, 2);
    assert_eq!(keys(pe1)[1].owner, "kernel");
    passes(&chain);
    // The kernel sends no notification of a new secret, yet it takes effect.
    pe1.set_hmac(2, "sha1", "a third one").expect("a key");
    is_stopped(&chain);
    for router in ["p", "pe2"] {
        chain
            .node(router)
            .set_hmac(2, "sha1", "a third one")
            .expect("a key");
    }
    passes(&chain);
}

#[test]
fn what_linux_signs_we_let_through_and_nothing_else() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        linux_signs(mode);
    }
}

fn linux_signs(mode: &str) {
    let chain = chain("livehmacverify");
    let _running = start(&chain, mode, &["p", "pe2"]);
    let p = chain.node("p");
    is_stopped(&chain);
    assert!(count(p, "hmac_missing") > 0);
    for words in ["hmac 1", "hmac 2"] {
        sign(&chain, words);
        passes(&chain);
    }
    for router in ["p", "pe2"] {
        assert_eq!(
            count(chain.node(router), "hmac"),
            0,
            "{router} verifies itself"
        );
        assert!(
            counters(chain.node(router), "eth0").forwarded > 5,
            "{router}"
        );
    }
    set(p, 2, "sha1", "another one?");
    is_stopped(&chain);
    assert!(count(p, "hmac_wrong") > 0);
    del(p, 2);
    passes(&chain);
    p.set_hmac(2, "sha1", "").expect("a key less");
    is_stopped(&chain);
    assert!(count(p, "hmac_key") > 0);
    set(p, 2, "sha1", "another one");
    passes(&chain);
    // The endpoint at the end of the segment list verifies too.
    set(chain.node("pe2"), 2, "sha256", "another one");
    is_stopped(&chain);
    assert!(count(chain.node("pe2"), "hmac_wrong") > 0);
}

#[test]
fn a_sid_that_requires_an_hmac_stops_what_has_none_where_its_port_lets_it_pass() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        a_sid_requires(mode);
    }
}

fn a_sid_requires(mode: &str) {
    let chain = chain("livehmacsid");
    for router in ["p", "pe2"] {
        chain
            .node(router)
            .sysctl("net/ipv6/conf/eth0/seg6_require_hmac", "0")
            .expect("a sysctl");
    }
    let _running = start(&chain, mode, &["p"]);
    let p = chain.node("p");
    let steer = |hmac: &str| {
        let route = "route replace 2001:db8:b::/64 encap seg6 mode encap segs fc00:2::f,fc00:3::d6";
        Ip::new(chain.node("pe1")).run(&format!("{route} {hmac} dev eth1"));
    };
    let sid = "fc00:2::f/128 encap seg6local action End require-hmac dev eth0";
    let add: Vec<&str> = ["route", "add"].into_iter().chain(sid.split(' ')).collect();
    passes(&chain);
    printed(p, &add);
    assert!(printed(p, &["route", "show"]).contains("action End require-hmac dev eth0"));
    steer("");
    is_stopped(&chain);
    assert!(count(p, "hmac_missing") > 0);
    // The node's other SID accepts the same packets as before.
    sign(&chain, "");
    passes(&chain);
    steer("hmac 1");
    passes(&chain);
    set(p, 1, "sha256", "not the one of pe1");
    is_stopped(&chain);
    assert!(count(p, "hmac_wrong") > 0);
    del(p, 1);
    passes(&chain);
    // The SID requires an HMAC even if the port ignores HMACs.
    p.sysctl("net/ipv6/conf/eth0/seg6_require_hmac", "-1")
        .expect("a sysctl");
    steer("");
    is_stopped(&chain);
    steer("hmac 2");
    passes(&chain);
}

/// Sends datagrams from a to b, a few at a time, until stopped. Returns their number; none may be
/// lost.
fn traffic(chain: &Chain, end: &AtomicBool) -> u64 {
    const AT_A_TIME: u64 = 32;
    let [a, b] = ["a", "b"].map(|host| {
        chain
            .node(host)
            .run(|| UdpSocket::bind((format!("2001:db8:{host}::2").as_str(), 5000)))
            .expect("a namespace")
            .expect("a socket")
    });
    b.set_read_timeout(Some(Duration::from_secs(3)))
        .expect("set");
    let (mut sent, mut buffer) = (0, [0; 8]);
    while !end.load(Ordering::Relaxed) {
        for number in sent..sent + AT_A_TIME {
            a.send_to(&u64::to_be_bytes(number), ("2001:db8:b::2", 5000))
                .expect("sent");
        }
        for number in sent..sent + AT_A_TIME {
            let received = b.recv(&mut buffer);
            assert!(received.is_ok(), "number {number} was lost");
        }
        sent += AT_A_TIME;
    }
    sent
}

#[test]
fn keys_are_changed_under_traffic_without_loss_and_no_secret_is_seen() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        keys_are_changed(mode);
    }
}

fn keys_are_changed(mode: &str) {
    let chain = chain("livehmacrotate");
    let _running = start(&chain, mode, &ROUTERS);
    sign(&chain, "hmac 1");
    passes(&chain);
    let before = lost(&chain);
    let end = AtomicBool::new(false);
    let (sent, rounds) = thread::scope(|scope| {
        let traffic = scope.spawn(|| traffic(&chain, &end));
        let mut last = 1;
        for id in 100..112 {
            // First the verifiers, then the signers; the old key is removed once unused.
            let algorithm = if id % 2 == 0 { "sha256" } else { "sha1" };
            for router in ["pe2", "p", "pe1"] {
                set(chain.node(router), id, algorithm, &format!("topsecret{id}"));
            }
            sign(&chain, &format!("hmac {id}"));
            eventually("the new key in use", || {
                let keys = keys(chain.node("pe1"));
                let unused = keys.iter().all(|key| key.key != last || key.policies == 0);
                unused.then_some(())
            });
            thread::sleep(Duration::from_millis(50));
            for router in ROUTERS {
                if last >= 100 {
                    del(chain.node(router), last);
                }
            }
            last = id;
            if traffic.is_finished() {
                break;
            }
        }
        end.store(true, Ordering::Relaxed);
        (traffic.join().expect("nothing was lost"), last - 99)
    });
    eprintln!("  {mode}: {rounds} changes of the key, {sent} datagrams, none lost");
    assert_eq!(rounds, 12);
    assert!(sent > 100, "{sent}");
    assert_eq!(before, lost(&chain));
    no_secret_is_seen(&chain);
}

/// Returns the drops of all routers, and the packets that were punted because of their HMAC.
fn lost(chain: &Chain) -> Vec<(String, String, u64)> {
    let all = ROUTERS.map(|router| reasons(chain.node(router)));
    let lost = |(verdict, name, _): &(String, String, u64)| verdict == "drop" || name == "hmac";
    all.into_iter().flatten().filter(lost).collect()
}

/// Checks that no output shows a secret.
fn no_secret_is_seen(chain: &Chain) {
    let pe1 = chain.node("pe1");
    for words in [
        &["hmac", "show"][..],
        &["hmac", "show", "-j"],
        &["show", "status", "-j"],
        &["show", "limits", "-j"],
        &["route", "show", "-a", "-s", "-j"],
    ] {
        let shown = printed(pe1, words);
        assert!(
            !shown.contains("topsecret") && !shown.contains("known on all"),
            "{shown}"
        );
        assert!(
            !shown.contains(&crate::support::hex(b"topsecret")),
            "{shown}"
        );
    }
    let folder = crate::support::left::pin_folder(pe1);
    for entry in std::fs::read_dir(&folder).expect("the pins") {
        let entry = entry.expect("a pin");
        let mode = entry.metadata().expect("a pin").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", entry.path().display());
    }
    let mode = std::fs::metadata(&folder)
        .expect("the folder")
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}
