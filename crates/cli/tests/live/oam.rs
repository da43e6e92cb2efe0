//! The O-flag (RFC 9259 2.1.1) on a live router: each listener gets a copy of each packet with the
//! flag, up to the rate limit.

use std::io::{BufRead as _, BufReader};
use std::net::Ipv6Addr;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Napi;

use crate::support::frames::{ETHERNET, ROUTING, destination6, ethernet, ipv6, srh};
use crate::support::{
    ROUTER, Star, begin, eventually, modes, output, printed, report, sidestep, text_of,
};

const SECOND: Duration = Duration::from_secs(1);
const END: &str = "fc0f::1";

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

/// Returns a packet from host `a` through End to host `b`, with these flags in the SRH.
fn steered(star: &Star, flags: u8) -> Vec<u8> {
    let mut header = srh(59, &[address(END), address("fc00:b::2")], 1);
    header[5] = flags;
    let packet = ipv6(address("fc00:a::2"), address(END), ROUTING, 60, &header);
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
}

/// Starts `sidestep oam listen`, and waits until the daemon has confirmed it.
fn listen(star: &Star, words: &[&str]) -> Child {
    let mut child = sidestep(star.router(), &[&["oam", "listen"], words].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut begun = String::new();
    BufReader::new(child.stderr.as_mut().expect("piped"))
        .read_line(&mut begun)
        .expect("it begins");
    assert!(begun.contains("Ctrl-C"), "{begun}");
    child
}

fn shown(star: &Star) -> report::Oam {
    report(star.router(), Request::ShowOam)
}

fn copied(star: &Star) -> u64 {
    shown(star).copied.values().sum()
}

#[test]
fn who_listens_gets_copies_of_what_has_the_flag_where_it_is_permitted() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = Star::new("liveoam");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        star.ip().run(&format!(
            "route add {END}/128 encap seg6local action End dev eth0"
        ));
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let (a, b) = (star.socket("a"), star.socket("b"));
        let pass = |flags| {
            a.send(&steered(&star, flags)).expect("send");
            let out = b.receive(SECOND).expect("receive").expect("it arrives");
            assert_eq!(destination6(&out), Some(address("fc00:b::2")), "{mode}");
            assert_eq!(out[ETHERNET + 40 + 5], flags, "{mode}: the flags stay");
        };
        // RFC 9259 2.1.1: copies require the operator's permission.
        pass(0x20);
        assert_eq!((shown(&star).rate, copied(&star)), (0, 0), "{mode}");

        printed(router, &["oam", "rate", "100"]);
        let [lines, table] =
            [&["-j", "--count", "2"][..], &["--count", "2"]].map(|it| listen(&star, it));
        let before = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock");
        for flags in [0x20, 0, 0x60] {
            pass(flags);
        }
        let finished = lines.wait_with_output().expect("it ends after two");
        assert!(finished.status.success(), "{mode}: {}", text_of(&finished));
        let copies: Vec<report::OamCopy> = String::from_utf8_lossy(&finished.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).expect("a copy"))
            .collect();
        assert_eq!(copies.len(), 2, "{mode}");
        for (copy, flags) in copies.iter().zip([0x20, 0x60]) {
            let sent = steered(&star, flags);
            assert_eq!(
                copy.packet,
                crate::support::hex(&sent[ETHERNET..]),
                "{mode}"
            );
            assert_eq!((&*copy.port, &*copy.sid), ("eth0", END), "{mode}");
            assert_eq!((copy.segments_left, copy.bytes), (1, 80), "{mode}");
            let after = Duration::from_nanos(copy.timestamp).checked_sub(before);
            assert!(after.is_some_and(|it| it < 30 * SECOND), "{mode}: {copy:?}");
        }
        let finished = table.wait_with_output().expect("it ends after two");
        let answer = String::from_utf8_lossy(&finished.stdout).into_owned();
        assert!(
            answer.contains(" eth0: fc0f::1 segments left 1, 80 bytes from fc00:a::2"),
            "{mode}: {answer}"
        );
        assert_eq!(copied(&star), 2, "{mode}");

        // The new rate of one per second takes effect at once.
        printed(router, &["oam", "rate", "1"]);
        for _ in 0..20 {
            pass(0x20);
        }
        eventually("the counts", || {
            let oam = shown(&star);
            let sum = oam.copied["eth0"] + oam.suppressed["eth0"];
            (sum == 22 && oam.suppressed["eth0"] >= 10).then_some(())
        });
        let table = printed(router, &["oam", "show"]);
        assert!(
            table.contains("eth0") && table.contains("too many"),
            "{table}"
        );

        // A disconnected client is removed, and an invalid request gets an error.
        let mut gone = listen(&star, &[]);
        gone.kill().expect("it listens");
        gone.wait().expect("it has ended");
        printed(router, &["oam", "rate", "0"]);
        let counted = copied(&star);
        pass(0x20);
        assert_eq!(copied(&star), counted, "{mode}: ignored again");
        let refused = output(router, &["oam", "rate", "many"]);
        assert_eq!(refused.status.code(), Some(2), "{}", text_of(&refused));
    }
}
