//! `sidestep top` in batch mode and `show --watch`: rates under traffic.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::frames::{ethernet, udp};
use crate::support::{
    ROUTER, Star, begin, constant, eventually, output, printed, sidestep, status_field, text_of,
    wait,
};

/// Frames of each kind per second.
const RATE: u32 = 2000;

/// Frames from host `a`: one that is encapsulated, and one that is dropped.
fn frames(star: &Star) -> [Vec<u8>; 2] {
    let ends = ["fc00:a::2", "fc0c::1"].map(|text| text.parse().expect("an address"));
    let packet = udp(ends[0], ends[1], 64, b"rate");
    let frame = |packet: &[u8]| ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), packet);
    let mut wrong = packet.clone();
    // The version of the IPv6 header.
    wrong[0] = 0x40;
    let mut wrong = frame(&wrong);
    // The EtherType of IPv6.
    wrong[12..14].copy_from_slice(&[0x86, 0xdd]);
    [frame(&packet), wrong]
}

/// Sends the frames at their rate until `done`.
fn send(star: &Star, frames: &[Vec<u8>], done: &AtomicBool) {
    let socket = star.socket("a");
    let began = Instant::now();
    for number in 1.. {
        if done.load(Ordering::Acquire) {
            return;
        }
        for frame in frames {
            socket.send(frame).expect("send");
        }
        // A late frame does not delay the next ones.
        let due = began + Duration::from_secs(1) * number / RATE;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Returns the element of a list whose field has this value.
fn named<'a>(list: &'a Value, field: &str, name: &str) -> &'a Value {
    let mut elements = list.as_array().expect("a list").iter();
    let found = elements.find(|it| it[field].as_str().is_some_and(|it| it.starts_with(name)));
    found.unwrap_or_else(|| panic!("{name} in {list:#}"))
}

#[test]
fn batch_mode_prints_the_rates_of_the_traffic() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livetop");
    star.ip().all(constant::ROUTES);
    let refused = output(star.router(), &["top", "-b"]);
    assert!(text_of(&refused).contains("sidestep is not running"));
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let refused = output(star.router(), &["top"]);
    assert!(text_of(&refused).contains("--batch and --json print lines"));
    let frames = frames(&star);
    let done = AtomicBool::new(false);
    let (json, text) = thread::scope(|scope| {
        scope.spawn(|| send(&star, &frames, &done));
        let json = output(star.router(), &["top", "-j", "-d", "1", "--count", "3"]);
        let text = output(star.router(), &["top", "-b", "-d", "0.5", "--count", "1"]);
        done.store(true, Ordering::Release);
        (json, text)
    });
    assert!(json.status.success(), "{}", text_of(&json));
    let json = String::from_utf8(json.stdout).expect("UTF-8");
    let lines: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 3);
    let number = |value: &Value| value.as_f64().expect("a number");
    // Frames per second in all intervals.
    let mean = |of: &dyn Fn(&Value) -> f64| lines.iter().map(of).sum::<f64>() / 3.0;
    let rate = f64::from(RATE);
    let assert_near = |what: &str, found: f64, expected: f64| {
        let error = (found - expected).abs() / expected;
        assert!(error < 0.05, "{what}: {found}, not {expected}:\n{json}");
    };
    let port = |name: &'static str, field: &'static str| {
        mean(&move |line| number(&named(&line["ports"], "name", name)[field]))
    };
    assert_near("received", port("eth0", "received_pps"), 2.0 * rate);
    assert_near("dropped", port("eth0", "dropped_pps"), rate);
    assert_near("forwarded", port("eth0", "forwarded_pps"), rate);
    assert_near("sent", port("eth1", "sent_pps"), rate);
    let bits = 8.0 * frames[0].len() as f64;
    assert_near(
        "received bits",
        port("eth0", "received_bps"),
        2.0 * rate * bits,
    );
    // H.Encaps with one segment adds 64 bytes.
    assert_near(
        "sent bits",
        port("eth1", "sent_bps"),
        rate * (bits + 8.0 * 64.0),
    );
    let route = mean(&|line| number(&named(&line["routes"], "route", "fc0c::/16 ")["pps"]));
    assert_near("route", route, rate);
    let drops = mean(&|line| number(&named(&line["reasons"], "verdict", "drop")["pps"]));
    assert_near("reason", drops, rate);

    assert!(text.status.success(), "{}", text_of(&text));
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    for expected in [
        "\nport  ",
        "\neth0  ",
        "  route\n",
        "  drop     ipv6_header ",
    ] {
        assert!(text.contains(expected), "{expected:?} in:\n{text}");
    }
    // Without traffic, only the ports are printed.
    let idle = printed(star.router(), &["top", "-b", "-d", "0.1", "--count", "1"]);
    assert!(
        idle.contains("\neth0  ") && !idle.contains("route"),
        "{idle}"
    );
}

#[test]
fn a_watched_report_has_totals_and_rates() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livewatch");
    star.ip().all(constant::ROUTES);
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let frames = frames(&star);
    let done = AtomicBool::new(false);
    let watched = thread::scope(|scope| {
        scope.spawn(|| send(&star, &frames, &done));
        let show = |what: &str, format: &[&str]| {
            let args = ["show", what, "--watch=0.5", "--count", "2"];
            output(star.router(), &[&args[..], format].concat())
        };
        let watched = [
            show("counters", &["-j"]),
            show("drops", &["-j"]),
            show("counters", &[]),
        ];
        done.store(true, Ordering::Release);
        watched
    });
    let [counters, drops, text] = watched.map(|output| {
        assert!(output.status.success(), "{}", text_of(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    });
    let json = |text: &str| -> Vec<Value> {
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    };
    let lines = json(&counters);
    assert_eq!(lines.len(), 2);
    let [first, second] = [0, 1].map(|line| named(&lines[line]["ports"], "name", "eth0"));
    let received = |port: &Value| port["received_packets"].as_u64().expect("a counter");
    let rate = second["received_pps"].as_f64().expect("a rate");
    let counted = (received(second) - received(first)) as f64;
    let seconds = lines[1]["seconds"].as_f64().expect("a length");
    // Rates and seconds are rounded to thousandths.
    assert!(
        (rate * seconds - counted).abs() < rate / 1000.0 + 1.0,
        "{rate} /s, {counted} in {seconds} s"
    );
    let route = named(&lines[1]["routes"], "route", "fc0c::/16 ");
    assert!(
        route["packets"].as_u64() > Some(0) && route["pps"].as_f64() > Some(0.0),
        "{route}"
    );
    let drops = json(&drops);
    let drop = named(&drops[1]["reasons"], "name", "ipv6_header");
    assert!(
        drop["packets"].as_u64() > Some(0) && drop["pps"].as_f64() > Some(0.0),
        "{drop}"
    );
    assert_eq!(text.matches("\nport  ").count(), 2, "{text}");

    // Ctrl-C ends it with status 0.
    let mut command = sidestep(star.router(), &["show", "drops", "--watch=60"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let pid = Pid::from_raw(child.id() as i32);
    eventually("it handles the signal", || {
        handles(pid, Signal::SIGINT).then_some(())
    });
    kill(pid, Signal::SIGINT).expect("it runs");
    let status = wait(&mut child).expect("it ends");
    assert_eq!(status.code(), Some(0));
    let refused = output(star.router(), &["show", "ports", "--watch"]);
    assert!(text_of(&refused).contains("expected `show counters` or `show drops`"));
}

/// Whether a process has a handler for a signal, from `SigCgt` of proc(5).
fn handles(pid: Pid, signal: Signal) -> bool {
    let mask = status_field(format!("/proc/{pid}"), "SigCgt");
    let mask = mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as i32 - 1)) != 0)
}
