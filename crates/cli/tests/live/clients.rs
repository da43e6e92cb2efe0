//! Clients that send nothing, or half of a request: they delay no other client and no packet.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use sidestep_control::api::Request;
use sidestep_control::report;

use crate::support::frames::{ethernet, udp};
use crate::support::left::run_folder;
use crate::support::{ROUTER, Star, begin, call, counters, eventually, output, printed, text_of};

/// Connections of each kind.
const IDLE: usize = 100;
/// Longest delay of a request by other clients.
const DELAY: Duration = Duration::from_millis(100);

/// Returns the longest time of ten requests.
fn longest(mut request: impl FnMut()) -> Duration {
    let times = (0..10).map(|_| {
        let begun = Instant::now();
        request();
        begun.elapsed()
    });
    times.max().unwrap_or_default()
}

#[test]
fn idle_connections_delay_no_command_no_scrape_and_no_packet() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("liveclients");
    let router = star.router();
    star.ip().run("link set lo up");
    let _daemon = star.run(&["--mode", "tc", "--metrics=127.0.0.1:10199", "eth0", "eth1"]);
    let command = || {
        call(router, Request::ShowPorts).expect("an answer");
    };
    let scrape = || {
        let text = router.run(|| {
            let mut stream = TcpStream::connect("127.0.0.1:10199").expect("the endpoint");
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("sent");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("a response");
            text
        });
        let text = text.expect("the namespace");
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    };
    let alone = (longest(command), longest(scrape));

    let socket = run_folder(router).join("control.sock");
    let idle: Vec<_> = (0..IDLE)
        .map(|number| {
            let mut stream = UnixStream::connect(&socket).expect("the socket");
            if number % 2 == 0 {
                stream.write_all(b"{\"version\": 1, \"requ").expect("sent");
            }
            stream
        })
        .collect();
    let half_open = router.run(|| {
        let open = |_| TcpStream::connect("127.0.0.1:10199").expect("the endpoint");
        let streams: Vec<_> = (0..IDLE).map(open).collect();
        for mut stream in &streams {
            stream.write_all(b"GET /met").expect("sent");
        }
        streams
    });
    let (from, to) = (star.socket("a"), star.socket("b"));
    let packet = |number: u8| {
        let [from, to]: [IpAddr; 2] = ["fc00:a::2", "fc00:b::2"].map(|it| it.parse().unwrap());
        let packet = udp(from, to, 64, &[number]);
        ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
    };
    let mut number = 0;
    let beside = (
        longest(|| {
            command();
            from.send(&packet(number)).expect("send");
            number += 1;
        }),
        longest(scrape),
    );
    assert!(
        beside.0 < alone.0 + DELAY,
        "a command: {alone:?}, {beside:?}"
    );
    assert!(
        beside.1 < alone.1 + DELAY,
        "a scrape: {alone:?}, {beside:?}"
    );
    for _ in 0..number {
        let arrived = to.receive(Duration::from_secs(2)).expect("receive");
        assert!(arrived.is_some(), "a packet was lost");
    }
    assert_eq!(counters(router, "eth0").forwarded, u64::from(number));
    drop((idle, half_open));
    // A change is made, too.
    printed(router, &["port", "add", "eth2"]);
}

#[test]
fn a_daemon_whose_directory_is_removed_makes_it_again() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("liverunfolder");
    let router = star.router();
    let words = "run --detach --mode tc eth0 eth1";
    printed(router, &words.split(' ').collect::<Vec<_>>());
    let typed = "route add 2001:db8:77::/64 encap seg6 mode encap segs fc00:b::2 dev eth1";
    printed(router, &typed.split(' ').collect::<Vec<_>>());
    let folder = run_folder(router);
    std::fs::remove_dir_all(&folder).expect("the directory of the daemon");
    let status: report::Status = eventually("the socket", || {
        let answer = call(router, Request::ShowStatus).ok()?;
        serde_json::from_value(answer).ok()
    });
    // It holds the lock of its directory.
    let second = output(router, &["run", "--mode", "tc", "eth2"]);
    assert!(
        text_of(&second).contains("runs in this network namespace already"),
        "{}",
        text_of(&second)
    );
    let log = eventually("the log", || {
        std::fs::read_to_string(folder.join("log")).ok()
    });
    assert!(log.contains("were removed; they are made again"), "{log}");
    // A crash afterwards loses nothing.
    let pid = nix::unistd::Pid::from_raw(status.pid as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    let again = printed(router, &words.split(' ').collect::<Vec<_>>());
    assert!(again.contains("took over 1 change by commands"), "{again}");
    printed(router, &["stop"]);
    assert!(!folder.exists());
}
