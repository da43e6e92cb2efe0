//! Tests of the TRex driver with a stand-in server.

pub mod stand_in;

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sidestep_bench::trex::owner::Owner;
use sidestep_bench::trex::zmtp::GREETING;
use sidestep_bench::trex::{About, Trex};
use sidestep_testkit::root_or_skip;
use sidestep_testkit::traffic::{Distribution, Driver as _, Flows, Load, Template};
use stand_in::{StandIn, Wire};

/// Ports that count without sending. This number of ten packets arrive. The counter of sent packets
/// lags.
#[derive(Debug, Default)]
struct Counting {
    of_ten: u64,
    sent: u64,
    late: u64,
    ends: Option<Instant>,
    /// Length and packets per second of each stream of the last start.
    started: Arc<Mutex<Vec<(usize, f64)>>>,
}

impl Wire for Counting {
    fn line_rate(&self) -> f64 {
        LINE_RATE
    }

    fn start(&mut self, frames: Vec<(Vec<u8>, f64)>, duration: Duration) {
        let rate: f64 = frames.iter().map(|(_, rate)| rate).sum();
        let rates = frames.iter().map(|(frame, rate)| (frame.len(), *rate));
        *self.started.lock().expect("no panic") = rates.collect();
        self.late = self.sent;
        self.sent += (rate * duration.as_secs_f64()).round() as u64;
        self.ends = Some(Instant::now() + duration);
    }

    fn is_sending(&self) -> bool {
        self.ends.is_some_and(|ends| Instant::now() < ends)
    }

    fn stop(&mut self) {
        self.ends = None;
    }

    fn counters(&self) -> [u64; 2] {
        let up_to_date = |ends: Instant| Instant::now() > ends + LATE;
        let sent = match self.ends {
            Some(ends) if !up_to_date(ends) => self.late,
            _ => self.sent,
        };
        [sent, self.sent / 10 * self.of_ten]
    }

    fn capture(&mut self) {}

    fn push(&mut self, _: &[u8]) {}

    fn captured(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// Returns a server whose ports count, and its address.
fn counting(of_ten: u64) -> (StandIn, String) {
    let wire = Counting {
        of_ten,
        ..Counting::default()
    };
    let server = StandIn::start(wire, MACS).expect("a server");
    let address = server.address().to_string();
    (server, address)
}

fn templates() -> [(Template, u32); 2] {
    let flows = Flows {
        count: 16,
        offset: 54,
        checksum: None,
    };
    [(78, 3), (590, 1)].map(|(length, share)| {
        (
            Template::new(&vec![5; length], flows).expect("template"),
            share,
        )
    })
}

/// Line rate in bits per second: 100,000 packets per second of [`templates`].
const LINE_RATE: f64 = 100_000.0 * 8.0 * (3.0 * (78.0 + 24.0) + (590.0 + 24.0)) / 4.0;
const LATE: Duration = Duration::from_millis(200);
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]];

#[test]
fn a_trial_starts_streams_at_their_shares_and_counts_at_both_ports() {
    let (server, address) = counting(9);
    let mut trex =
        Trex::connect(&address, [0, 1], &templates(), Distribution::Uniform).expect("connect");
    assert!(
        server
            .owners()
            .iter()
            .all(|owner| owner.starts_with("sidestep-"))
    );
    let duration = Duration::from_millis(100);
    for (load, sent) in [(Load::Rate(4000.0), 400), (Load::Maximum, 10_000)] {
        let trial = trex.trial(load, duration, false).expect("trial");
        assert_eq!((trial.sent, trial.received), (sent, sent / 10 * 9));
        assert!((trial.seconds - 0.1).abs() < 1e-9);
    }
    assert!(
        trex.trial(Load::Maximum, duration, true).is_err(),
        "no latency"
    );
    drop(trex);
    assert_eq!(server.owners(), [String::new(), String::new()]);
    let asked = server.asked();
    let methods: Vec<&str> = asked.iter().map(|(method, _)| &method[..]).collect();
    let first = ["api_sync_v2", "get_port_status", "acquire"];
    assert_eq!(methods[..3], first);
    assert_eq!(
        methods[methods.len() - 4..],
        ["stop_traffic", "remove_all_streams", "release", "release"]
    );
    let streams: Vec<&Value> = asked
        .iter()
        .filter(|(method, _)| method == "add_stream")
        .map(|(_, params)| params)
        .collect();
    assert_eq!(streams.len(), 4);
    // The streams are equal at every load; the factor scales the mix.
    for (stream, share) in streams.iter().zip([3.0, 1.0, 3.0, 1.0]) {
        let rate = &stream["stream"]["mode"]["rate"];
        assert_eq!(*rate, json!({ "type": "pps", "value": share }));
    }
    let started = asked.iter().filter(|(method, _)| method == "start_traffic");
    let multipliers: Vec<&Value> = started.map(|(_, params)| &params["mul"]).collect();
    assert_eq!(
        multipliers,
        [
            &json!({ "type": "pps", "op": "abs", "value": 4000.0 }),
            &json!({ "type": "percentage", "op": "abs", "value": 100.0 })
        ]
    );
    let flow = &streams[0]["stream"]["vm"]["instructions"][0];
    assert_eq!(
        (&flow["min_value"], &flow["max_value"]),
        (&json!("1285"), &json!("1300"))
    );
    assert_eq!(streams[0]["port_id"], 0);
}

#[test]
fn a_mix_stays_the_same_mix_at_the_highest_load() {
    let wire = Counting {
        of_ten: 10,
        ..Counting::default()
    };
    let started = Arc::clone(&wire.started);
    let server = StandIn::start(wire, MACS).expect("a server");
    let address = server.address().to_string();
    // The IMIX of twelve packets.
    let templates = [(78, 7), (590, 4), (1514, 1)].map(|(length, share)| {
        let template = Template::one_flow(&vec![5; length]);
        (template.expect("template"), share)
    });
    let trex = Trex::connect(&address, [0, 1], &templates, Distribution::Uniform);
    let mut trex = trex.expect("connect");
    let duration = Duration::from_millis(50);
    for load in [Load::Maximum, Load::Rate(1200.0)] {
        trex.trial(load, duration, false).expect("trial");
        let started = started.lock().expect("no panic").clone();
        let lengths: Vec<usize> = started.iter().map(|(length, _)| *length).collect();
        assert_eq!(lengths, [78, 590, 1514]);
        let one = started[2].1;
        for ((_, rate), share) in started.iter().zip([7.0, 4.0, 1.0]) {
            assert!((rate / one - share).abs() < 1e-9, "{load:?}: {started:?}");
        }
        let bits = started
            .iter()
            .map(|(length, rate)| (length + 24) as f64 * 8.0 * rate);
        let bits: f64 = bits.sum();
        match load {
            Load::Maximum => assert!((bits / LINE_RATE - 1.0).abs() < 1e-9, "the line is full"),
            Load::Rate(_) => assert!((one - 100.0).abs() < 1e-9, "{started:?}"),
        }
    }
}

#[test]
fn a_few_foreign_frames_are_ignored_and_many_fail_the_trial() {
    // Of ten sent packets, eleven arrive.
    let trial = |rate| {
        let (_server, address) = counting(11);
        let trex = Trex::connect(&address, [0, 1], &templates(), Distribution::Uniform);
        let duration = Duration::from_millis(100);
        trex.expect("connect")
            .trial(Load::Rate(rate), duration, false)
    };
    let few = trial(1_000.0).expect("ten are others'");
    assert_eq!((few.sent, few.received), (100, 100));
    let many = trial(2_000.0).expect_err("twenty are too many").to_string();
    assert!(
        many.starts_with("220 frames came by port 1 of TRex, and 200 were sent by port 0"),
        "{many}"
    );
}

#[test]
fn errors_of_the_server_are_reported_with_the_reason() {
    let (server, address) = counting(10);
    server.acquired_by("somebody");
    let refused = Trex::connect(&address, [0, 1], &templates(), Distribution::Uniform);
    let text = refused.expect_err("taken").to_string();
    assert_eq!(
        text,
        format!("TRex at {address}, acquire: port is already taken by 'somebody'")
    );
    assert!(Trex::connect(&address, [0, 1], &templates(), Distribution::Zipf).is_err());
    assert!(Trex::connect(&address, [0, 1], &[], Distribution::Uniform).is_err());
}

#[test]
fn ports_of_a_dead_process_are_taken_over() {
    let mut child = std::process::Command::new("true").spawn().expect("true");
    child.wait().expect("it ends");
    let dead = Owner {
        process: child.id(),
        ..Owner::this()
    };
    let (server, address) = counting(10);
    server.acquired_by(&dead.to_string());
    let trex = Trex::connect(&address, [0, 1], &templates(), Distribution::Uniform);
    let _trex = trex.expect("a dead process measures nothing");
    assert_eq!(server.owners()[0], Owner::this().to_string());
}

#[test]
fn a_server_reports_version_addresses_and_capture_support() {
    let (server, address) = counting(10);
    let about = About::ask(&address).expect("an answer");
    assert_eq!(about.version, "v0 (stand-in)");
    assert_eq!(about.macs, MACS.map(Some));
    assert!(about.captures);
    server.without_captures();
    assert!(!About::ask(&address).expect("an answer").captures);
}

#[test]
fn one_packet_is_captured_as_it_arrived() {
    if !root_or_skip() {
        return;
    }
    let mut lab = sidestep_testkit::Lab::new("trexwire").expect("lab");
    lab.node("trex")
        .and_then(|lab| lab.link("trex", "eth0", "trex", "eth1"))
        .expect("a link");
    let trex = lab.namespace("trex").expect("trex");
    let cable = stand_in::Cable::open(trex, ["eth0", "eth1"]).expect("a cable");
    let server = StandIn::start(cable, MACS).expect("a server");
    let address = server.address().to_string();
    let trex = Trex::connect(&address, [0, 1], &templates(), Distribution::Uniform);
    let mut trex = trex.expect("connect");
    let frame: Vec<u8> = (0..=99).collect();
    let patience = Duration::from_secs(3);
    let found = trex.exchange(&frame, patience).expect("exchange");
    assert_eq!(found, Some(frame));
    let trial = trex.trial(Load::Rate(10_000.0), Duration::from_millis(200), false);
    let trial = trial.expect("trial");
    assert_eq!(trial.sent, trial.received, "{trial:?}");
    assert!((1_900..=2_000).contains(&trial.sent), "{trial:?}");
}

#[test]
fn a_peer_without_zmtp_3_is_refused() {
    let listener = TcpListener::bind("[::1]:0").expect("listen");
    let address = listener.local_addr().expect("address").to_string();
    let thread = std::thread::spawn(move || {
        use std::io::Write as _;
        let (mut client, _) = listener.accept().expect("accept");
        // As long as a greeting, but not one.
        let _ = client.write_all(&[b'H'; GREETING]);
    });
    let refused = Trex::connect(&address, [0, 1], &templates(), Distribution::Uniform);
    let text = refused.expect_err("no ZMTP").to_string();
    assert!(text.ends_with("no greeting of ZMTP 3"), "{text}");
    thread.join().expect("server");
}
