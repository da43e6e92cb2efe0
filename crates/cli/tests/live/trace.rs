//! `sidestep trace` on a live router: it prints what `explain` prints, only for selected packets.
//! The plain programs return however it ends, without loss.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use nix::sys::signal::Signal;
use serde_json::Value;
use sidestep_cli::replay::capture_read::CaptureReader;
use sidestep_testkit::Napi;

use crate::support::frames::{ETHERNET, IPV6, ROUTING, TCP, ethernet, ipv6, srh, udp};
use crate::support::left::{pin_folder, traces};
use crate::support::tracer::Tracer;
use crate::support::{
    PATIENCE, ROUTER, Star, begin, counters, eventually, hex, output, printed, target_of, text_of,
};

const MODES: [&str; 2] = ["tc", "xdp-always"];

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn from_a(star: &Star, packet: &[u8]) -> Vec<u8> {
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), packet)
}

/// Returns a packet from host `a` to `b`, without SRv6.
fn plain(star: &Star) -> Vec<u8> {
    let ends: [IpAddr; 2] = ["fc00:a::2", "fc00:b::2"].map(|text| text.parse().expect("address"));
    from_a(star, &udp(ends[0], ends[1], 64, b"plain"))
}

/// Returns a packet from host `a` to the router's End SID and on to `b`, with this number of data
/// bytes in a UDP datagram.
fn to_end(star: &Star, data: usize) -> Vec<u8> {
    let ends: [IpAddr; 2] = ["fc01::1", "fc01::2"].map(|text| text.parse().expect("address"));
    let inner = udp(ends[0], ends[1], 64, &vec![0x5a; data]);
    let segments = ["fc00:5::e", "fc00:b::2"].map(address);
    let payload = [srh(IPV6, &segments, 1), inner].concat();
    from_a(
        star,
        &ipv6(address("fc00:a::2"), segments[0], ROUTING, 64, &payload),
    )
}

/// Returns a packet to the End SID without an SRH, which is dropped as `no_srh`, with a TCP
/// payload.
fn without_srh(star: &Star) -> Vec<u8> {
    let ends = ["fc00:a::2", "fc00:5::e"].map(address);
    from_a(star, &ipv6(ends[0], ends[1], TCP, 64, &[0; 20]))
}

/// Returns a packet without a route, for which the kernel sends an error.
fn no_route(star: &Star) -> Vec<u8> {
    let ends: [IpAddr; 2] = ["fc00:a::2", "2001:db8::1"].map(|text| text.parse().expect("address"));
    from_a(star, &udp(ends[0], ends[1], 64, b"lost"))
}

fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    star.ip()
        .run("route add fc00:5::e/128 encap seg6local action End dev eth0");
    star
}

/// Returns the packet paths of the router's ports: ID and number of maps. A traced program has more
/// maps than a plain one.
fn programs(star: &Star) -> Vec<(u32, u32)> {
    let found = traces(star.router(), &["eth0", "eth1"]);
    let ids = if found.xdp.is_empty() {
        found.tc
    } else {
        let deferred = ("deferred frames".to_owned(), behind_the_gate(star));
        found.xdp.into_iter().chain([deferred]).collect()
    };
    let ids = ids.into_iter().map(|(_, id)| id);
    ids.map(|id| (id, maps(id))).collect()
}

/// Returns the ID of the packet path that the gate at TC leads to.
fn behind_the_gate(star: &Star) -> u32 {
    let path = pin_folder(star.router()).join("gate-next");
    let next = MapHandle::from_pinned_path(path).expect("XDP ports have a gate");
    let id = next.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let id = id.expect("read").expect("a program");
    u32::from_ne_bytes(id.try_into().expect("an ID"))
}

fn maps(program: u32) -> u32 {
    // SAFETY: no pointers.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(program) };
    // The program may just have been replaced.
    if fd < 0 {
        return 0;
    }
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: an open descriptor, which is closed and used no more, and a buffer of the size given.
    let result = unsafe {
        let result = libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut size);
        libc::close(fd);
        result
    };
    assert_eq!(result, 0, "program {program}");
    info.nr_map_ids
}

/// Returns the output of `sidestep explain` for a frame.
fn explained(star: &Star, frame: &[u8]) -> String {
    printed(
        star.router(),
        &["explain", "--port", "eth0", "--frame", &hex(frame)],
    )
}

#[test]
fn a_packet_is_told_as_explain_tells_its_frame_whatever_its_verdict() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in MODES {
        let star = star("livetold");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let a = star.socket("a");
        let b = star.socket("b");
        let frames = [
            plain(&star),
            to_end(&star, 100),
            to_end(&star, 1_000),
            without_srh(&star),
            no_route(&star),
        ];
        let mut tracer = Tracer::start(router, &["src", "fc00:a::2"]);
        assert_eq!(
            tracer.began,
            format!(
                "tracing on eth0 ({0}), eth1 ({0}); Ctrl-C ends it\n",
                target_of(mode)
            )
        );
        for (number, frame) in frames.iter().enumerate() {
            a.send(frame).expect("send");
            let (title, shown) = tracer.packet();
            let begin = format!("packet {} by eth0 ({}), time ", number + 1, target_of(mode));
            assert!(title.starts_with(&begin), "{title}");
            assert_eq!(shown, explained(&star, frame), "{mode}");
        }
        // The packets left unmodified by the trace.
        let out: Vec<_> = (0..3)
            .map(|_| b.receive(PATIENCE).expect("receive").expect("a frame"))
            .collect();
        assert_eq!(out[0][ETHERNET + 7], 63, "hop limit");
        assert_eq!(out[2].len(), frames[2].len());

        let shown = explained(&star, &frames[1]);
        for words in ["End ", "advance ", "forwarded    by eth1", "fc00:5::e/128"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        assert!(explained(&star, &frames[3]).contains("dropped      no_srh: "));
        assert!(explained(&star, &frames[4]).contains("punted       route_miss: "));
    }
}

#[test]
fn the_filter_excludes_and_the_count_ends_it_with_the_plain_programs_back() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in MODES {
        let star = star("livefilter");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let a = star.socket("a");
        let frames = [
            plain(&star),
            to_end(&star, 10),
            without_srh(&star),
            no_route(&star),
        ];
        let plain_programs = programs(&star);
        // Number of traced frames. A test without a network compares the filters of both packet
        // paths.
        let every = if mode == "tc" { 1 } else { 4 };
        let cases = [
            (&["port", "eth0", "src", "fc00:a::2"][..], &[0, 1, 2, 3][..]),
            (&["src", "fc00:a::2", "sid", "fc00:5::/64"], &[1, 2]),
            (&["dst", "fc00:b::/64"], &[0]),
            (&["sid", "fc00:b::2"], &[0, 1]),
            (&["proto", "udp", "src", "fc00:a::2"], &[0, 1, 3]),
            (&["proto", "tcp"], &[2]),
            (&["proto", "43"], &[1]),
            (&["verdict", "forward"], &[0, 1]),
            (&["verdict", "drop"], &[2]),
            (&["verdict", "punt", "src", "fc00:a::2"], &[3]),
            (&["reason", "no_srh"], &[2]),
        ];
        for (words, shown) in cases.into_iter().step_by(every) {
            let count = shown.len().to_string();
            let options = ["-j", "--count", &count];
            let words: Vec<_> = options.iter().chain(words).copied().collect();
            let mut tracer = Tracer::start(router, &words);
            let instead = programs(&star);
            for (plain, instead) in plain_programs.iter().zip(&instead) {
                assert!(
                    plain.0 != instead.0 && plain.1 < instead.1,
                    "{mode} {words:?}"
                );
            }
            for frame in &frames {
                a.send(frame).expect("send");
            }
            for number in shown {
                let packet = tracer.json();
                assert_eq!(packet["frame"], hex(&frames[*number]), "{mode} {words:?}");
                assert_eq!(packet["bytes"], frames[*number].len());
                assert_eq!(
                    (&packet["port"], &packet["target"]),
                    (&"eth0".into(), &target_of(mode).into())
                );
            }
            let (status, rest, end) = tracer.end();
            assert!(status.success() && rest.is_empty(), "{status} {rest}");
            assert!(end.ends_with(" shown"), "{end}");
            assert_eq!(programs(&star), plain_programs, "{mode} {words:?}");
        }
    }
}

#[test]
fn however_a_trace_ends_the_plain_programs_come_back() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in MODES {
        let star = star("liveend");
        let router = star.router();
        let daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let plain_programs = programs(&star);

        // Only one trace runs at a time; the first one continues.
        let first = Tracer::start(router, &[]);
        let second = output(router, &["trace"]);
        assert_eq!(
            text_of(&second),
            "sidestep: another trace is running; only one can run at a time"
        );
        assert_eq!(second.status.code(), Some(1));
        assert_ne!(programs(&star), plain_programs);

        // After Ctrl-C, the plain programs are back when the command returns.
        first.signal(Signal::SIGINT);
        let (status, _, end) = first.end();
        assert!(status.success(), "{status}");
        assert!(end.ends_with("shown"), "{end}");
        assert_eq!(programs(&star), plain_programs);

        // The client dies.
        let killed = Tracer::start(router, &[]);
        killed.signal(Signal::SIGKILL);
        eventually("the plain programs", || {
            (programs(&star) == plain_programs).then_some(())
        });

        // Its output pipe is closed, as with `| head -1`.
        let mut deaf = Tracer::start(router, &["src", "fc00:a::2"]);
        let a = star.socket("a");
        a.send(&plain(&star)).expect("send");
        deaf.packet();
        deaf.out = None;
        eventually("its end", || {
            a.send(&plain(&star)).expect("send");
            deaf.child.try_wait().expect("our child")
        });
        eventually("the plain programs", || {
            (programs(&star) == plain_programs).then_some(())
        });

        // The daemon dies: traced programs keep forwarding, and the next daemon replaces them by
        // plain ones.
        let orphan = Tracer::start(router, &["src", "fc00:a::2"]);
        daemon.signal(Signal::SIGKILL);
        let (status, _, end) = orphan.end();
        assert_eq!(
            (status.code(), &end[..]),
            (
                Some(1),
                "sidestep: the daemon has exited, and the trace has ended"
            )
        );
        drop(daemon);
        let left = programs(&star);
        assert!(left[0].1 > plain_programs[0].1, "{left:?}");
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let b = star.socket("b");
        a.send(&plain(&star)).expect("send");
        let out = b.receive(PATIENCE).expect("receive");
        assert_eq!(out.expect("a frame at b")[ETHERNET + 7], 63);
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let now = programs(&star);
        assert_eq!(now[0].1, plain_programs[0].1, "{now:?}");
        assert_eq!(now[1].1, plain_programs[1].1, "{now:?}");
        let forwarded = counters(router, "eth0").forwarded;
        a.send(&plain(&star)).expect("send");
        eventually("it is counted", || {
            (counters(router, "eth0").forwarded > forwarded).then_some(())
        });
    }
}

#[test]
fn putting_traced_and_plain_programs_in_place_loses_no_packet() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in MODES {
        let star = star("liveswap");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let before = counters(router, "eth0");
        let done = AtomicBool::new(false);
        let (sent, arrived) = thread::scope(|scope| {
            let traffic = scope.spawn(|| {
                let (a, b) = (star.socket("a"), star.socket("b"));
                let frame = plain(&star);
                let (mut sent, mut arrived) = (0u64, 0u64);
                let ours = |out: &[u8]| out.len() == frame.len() && out[22..54] == frame[22..54];
                while !done.load(Ordering::Acquire) {
                    a.send(&frame).expect("send");
                    sent += 1;
                    while let Some(out) = b.receive(Duration::ZERO).expect("receive") {
                        arrived += u64::from(ours(&out));
                    }
                    thread::sleep(Duration::from_micros(50));
                }
                while let Some(out) = b.receive(Duration::from_millis(200)).expect("receive") {
                    arrived += u64::from(ours(&out));
                }
                (sent, arrived)
            });
            for _ in 0..10 {
                let tracer = Tracer::start(router, &["dst", "fc00:b::2", "--rate", "1000"]);
                tracer.signal(Signal::SIGINT);
                assert!(tracer.end().0.success());
            }
            done.store(true, Ordering::Release);
            traffic.join().expect("the traffic")
        });
        assert!(sent > 100, "{mode}: {sent} packets while programs changed");
        assert_eq!(arrived, sent, "{mode}");
        // Sidestep forwarded all of them; the kernel forwarded none between two programs.
        let after = counters(router, "eth0");
        assert_eq!(after.forwarded - before.forwarded, sent, "{mode}");
        println!("{mode}: {sent} packets, all arrived, while 10 traces began and ended");
    }
}

#[test]
fn the_rate_bounds_what_is_told_and_packets_go_on() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("liverate");
    let router = star.router();
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let a = star.socket("a");
    // The packet path limits the rate for some filters, and the daemon for others.
    for words in [
        &["--rate", "5", "dst", "fc00:b::2"][..],
        &["--rate", "5", "proto", "udp"],
    ] {
        let forwarded = counters(router, "eth0").forwarded;
        let words: Vec<_> = ["-j"].iter().chain(words).copied().collect();
        let begun = std::time::Instant::now();
        let tracer = Tracer::start(router, &words);
        for _ in 0..500 {
            a.send(&plain(&star)).expect("send");
        }
        eventually("all are forwarded", || {
            (counters(router, "eth0").forwarded == forwarded + 500).then_some(())
        });
        tracer.signal(Signal::SIGINT);
        let (status, rest, end) = tracer.end();
        let most = 5 + 1 + (begun.elapsed().as_secs_f64() * 5.0) as usize;
        let shown = rest.lines().count();
        assert!(status.success());
        assert!((4..=most).contains(&shown), "{words:?}: {shown}, {end}");
    }
}

#[test]
fn a_client_that_does_not_read_loses_samples_and_nothing_waits_for_it() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("livedeaf");
    let router = star.router();
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let a = star.socket("a");
    let tracer = Tracer::start(router, &["-j", "--rate", "1000", "dst", "fc00:b::2"]);
    tracer.signal(Signal::SIGSTOP);
    // Each trace has several kilobytes, more than the daemon buffers for a client.
    for sent in 1..=2_000 {
        a.send(&plain(&star)).expect("send");
        if sent % 200 == 0 {
            eventually("they are forwarded, and the daemon answers", || {
                (counters(router, "eth0").forwarded == sent).then_some(())
            });
        }
    }
    tracer.signal(Signal::SIGINT);
    tracer.signal(Signal::SIGCONT);
    let (status, rest, end) = tracer.end();
    assert!(status.success(), "{status}");
    let shown = format!("{} packets shown; ", rest.lines().count());
    assert!(end.starts_with(&shown), "{end}");
    assert!(
        end.ends_with(" lost because they arrived faster than they were read"),
        "{end}"
    );
}

#[test]
fn a_capture_of_a_trace_has_both_frames_and_is_replayed_with_the_same_verdicts() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("livewrite");
    let router = star.router();
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (capture, config) = (path("trace.pcapng"), path("node.yaml"));
    let (a, b) = (star.socket("a"), star.socket("b"));
    // The long frame exceeds the default snapshot length.
    let frames = [to_end(&star, 1_200), without_srh(&star)];
    let words = [
        "-j",
        "--count",
        "2",
        "--write",
        &capture,
        "src",
        "fc00:a::2",
    ];
    let mut tracer = Tracer::start(router, &words);
    for frame in &frames {
        a.send(frame).expect("send");
    }
    let shown = [tracer.json(), tracer.json()];
    assert!(tracer.end().0.success());

    // The frame that arrived, the same frame as `b` received it, and the one that was dropped.
    let left = b.receive(PATIENCE).expect("receive").expect("a frame");
    assert_ne!(left, frames[0]);
    assert_eq!(shown[0]["transmitted"]["port"], "eth1");
    assert_eq!(shown[0]["transmitted"]["bytes"], left.len());
    assert_eq!(shown[0]["transmitted"]["frame"], hex(&left));
    assert_eq!(shown[1]["transmitted"], Value::Null);
    let file = std::fs::read(&capture).expect("a file");
    let mut reader = CaptureReader::new(file.as_slice()).expect("a capture");
    for (number, port, is_outbound, frame) in [
        (0, "eth0", false, &frames[0]),
        (0, "eth1", true, &left),
        (1, "eth0", false, &frames[1]),
    ] {
        let packet = reader.next_packet().expect("no damage").expect("a packet");
        assert_eq!(packet.interface.name.as_deref(), Some(port));
        assert_eq!(packet.is_outbound, is_outbound, "{port}");
        assert_eq!(packet.data, frame, "{port}");
        assert_eq!(packet.timestamp, shown[number]["timestamp"].as_u64());
    }
    assert!(reader.next_packet().expect("no damage").is_none());
    let packet_two = ["explain", "--in", &capture, "--packet", "2"];
    let refused = text_of(&output(router, &packet_two));
    let expected = "packet 2: it left by its interface; expected a packet that arrived";
    assert!(refused.ends_with(expected), "{refused}");

    let mac = |node: &str, port: &str| sidestep_testkit::lab::mac_text(star.mac(node, port));
    let node = format!(
        "ports:
  eth0: {{mac: \"{}\", addresses: [\"fc00:a::1/64\"], seg6_enabled: true}}
  eth1: {{mac: \"{}\", addresses: [\"fc00:b::1/64\"], seg6_enabled: true}}
neighbors:
- fc00:b::2 lladdr {} dev eth1
routes:
- fc00:5::e/128 encap seg6local action End dev eth0
",
        mac(ROUTER, "eth0"),
        mac(ROUTER, "eth1"),
        mac("b", "eth0")
    );
    std::fs::write(&config, node).expect("a file");
    let replayed = printed(
        router,
        &[
            "replay",
            "--config",
            &config,
            "--in",
            &capture,
            "--explain",
            "-j",
        ],
    );
    let lines: Vec<Value> = replayed
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for (shown, replayed) in shown.iter().zip(&lines) {
        for field in ["timestamp", "port", "bytes", "verdict", "before", "after"] {
            assert_eq!(shown[field], replayed[field], "{field}");
        }
        assert!(shown["timestamp"].as_u64() > Some(1_700_000_000_000_000_000));
    }
    assert_eq!(lines.len(), 3, "two packets and the report");
    assert_eq!(lines[2]["not_replayed"][0]["reason"], "outbound");
    assert_eq!(lines[2]["not_replayed"][0]["packets"], 1);
    for (shown, frame) in shown.iter().zip(&frames) {
        assert_eq!(shown["frame"], hex(frame));
    }
}

#[test]
fn a_pcap_expression_selects_packets_and_only_these_count_for_the_rate() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in MODES {
        let star = star("livepcap");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let a = star.socket("a");
        // libpcap's `ip6 proto` sees the first Next Header only.
        let cases = [
            ("udp port 5001 or ip6 proto 43", &[1][..]),
            ("ip6 src fc00:a::2 and tcp", &[2]),
            ("dst host fc00:5::e", &[1, 2]),
            ("ether proto 0x86dd and greater 1000", &[1]),
        ];
        let frames = [plain(&star), to_end(&star, 1_000), without_srh(&star)];
        for (expression, selected) in cases {
            let count = selected.len().to_string();
            let words = [
                "-j",
                "--rate",
                "2",
                "--count",
                &count,
                "--pcap",
                expression,
                "src",
                "fc00:a::2",
            ];
            let mut tracer = Tracer::start(router, &words);
            // More than two packets that do not match, before those that do.
            for _ in 0..20 {
                a.send(&frames[0]).expect("send");
            }
            for frame in &frames {
                a.send(frame).expect("send");
            }
            for number in selected {
                assert_eq!(
                    tracer.json()["frame"],
                    hex(&frames[*number]),
                    "{mode} {expression}"
                );
            }
            assert!(tracer.end().0.success());
        }
    }
}

#[test]
fn explain_takes_the_first_packet_that_arrived_and_matches_a_pcap_expression() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("livefind");
    let router = star.router();
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let capture = folder.path().join("in.pcapng").display().to_string();
    let a = star.socket("a");
    let frames = [plain(&star), to_end(&star, 100), without_srh(&star)];
    let words = ["--count", "3", "--write", &capture, "src", "fc00:a::2"];
    let tracer = Tracer::start(router, &words);
    for frame in &frames {
        a.send(frame).expect("send");
    }
    assert!(tracer.end().0.success());
    // Packets 2 and 4 of the file are the transmitted ones.
    for (options, packet, frame) in [
        (&["--pcap", "ip6"][..], 1, &frames[0]),
        (&["--pcap", "ip6", "--packet", "2"], 3, &frames[1]),
        (&["--pcap", "tcp"], 5, &frames[2]),
    ] {
        let found = output(
            router,
            &[&["explain", "--in", &capture][..], options].concat(),
        );
        assert!(found.status.success(), "{options:?}");
        let chosen = String::from_utf8_lossy(&found.stderr);
        assert_eq!(chosen, format!("packet {packet} of {capture}\n"));
        let found = String::from_utf8_lossy(&found.stdout);
        assert_eq!(found, explained(&star, frame), "{options:?}");
    }
}

#[test]
fn what_is_wrong_with_a_trace_is_said_with_what_is_allowed() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("livewrong");
    let router = star.router();
    let check = |words: &[&str], code: i32, expected: &str| {
        let refused = output(router, words);
        let text = text_of(&refused);
        assert!(text.starts_with(expected), "{words:?}: {text}");
        assert_eq!(refused.status.code(), Some(code), "{words:?}");
    };
    check(
        &["trace"],
        1,
        "sidestep: sidestep is not running in this network namespace",
    );
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let before = programs(&star);
    check(
        &["trace", "port", "eth2"],
        1,
        "sidestep: port eth2: not attached; attached ports are eth0, eth1",
    );
    check(
        &["trace", "host", "fc00::1"],
        1,
        "sidestep: filter: unknown word \"host\"; a term is one of: port IF, ",
    );
    check(
        &["trace", "--pcap", "ip6 and hots"],
        1,
        "sidestep: --pcap \"ip6 and hots\": tcpdump: ",
    );
    check(
        &["trace", "--rate", "0"],
        2,
        "error: invalid value '0' for '--rate <N>': expected a number from 1 to 1000",
    );
    check(
        &["trace", "--count", "0"],
        2,
        "error: invalid value '0' for '--count <N>'",
    );
    check(
        &["trace", "--write", "/nowhere/trace.pcapng"],
        1,
        "sidestep: /nowhere/trace.pcapng: No such file or directory",
    );
    eventually("the plain programs", || {
        (programs(&star) == before).then_some(())
    });
}
