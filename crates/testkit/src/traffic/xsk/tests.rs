use super::*;
use crate::traffic::{Driver as _, Hook, Load, Local, Receiver, Template};
use crate::{Lab, root_or_skip};

fn stream() -> Stream {
    let sizes = [(78, 7), (590, 4), (1514, 1)];
    let templates = sizes.map(|(length, share)| {
        let mut frame = vec![2; 12];
        frame.extend([0x88, 0xb5]);
        frame.resize(length, 0);
        (Template::one_flow(&frame).expect("template"), share)
    });
    Stream::new(&templates, crate::traffic::Distribution::Uniform).expect("stream")
}

fn pair(name: &str) -> Lab {
    let mut lab = Lab::new(name).expect("lab");
    lab.node("a")
        .and_then(|lab| lab.node("b"))
        .and_then(|lab| lab.link("a", "eth0", "b", "eth0"))
        .expect("two nodes");
    lab
}

#[test]
fn a_socket_offers_a_rate_and_the_maximum_and_all_arrive_in_order() {
    if !root_or_skip() {
        return;
    }
    let lab = pair("xsk");
    let [a, b] = ["a", "b"].map(|node| lab.namespace(node).expect("node"));
    let receiver = Receiver::attach(b, "eth0", Hook::Tc).expect("receiver");
    let cpu = nix::sched::sched_getcpu().expect("a CPU");
    let source = AfXdp::open(a, "eth0", 0, Mode::Auto, &stream(), cpu).expect("source");
    assert!(
        !source.is_zero_copy(),
        "a veth without NAPI at its peer has none"
    );
    let mut local = Local::new(source, receiver);
    // Never above what was asked for. How far below is this machine's affair: the CPU is shared with other tests.
    for load in [Load::Rate(20_000.0), Load::Maximum, Load::Rate(100.0)] {
        let trial = local
            .trial(load, Duration::from_millis(300), true)
            .expect("trial");
        let arrivals = local.arrivals();
        assert_eq!(
            (arrivals.duplicated, arrivals.reordered, arrivals.late),
            (0, 0, 0)
        );
        assert_eq!(trial.received, trial.sent, "{trial:?}");
        match load {
            Load::Rate(rate) => {
                let most = rate * 1.05 + 5.0;
                assert!(trial.sent > 0 && trial.sent_rate() < most, "{trial:?}");
            }
            Load::Maximum => assert!(trial.sent > 1_000, "{trial:?}"),
        }
        let latency = trial.latency.expect("latency");
        assert_eq!(latency.samples, trial.received);
        assert!(latency.max < 1e9, "{latency:?}");
    }
    let mean = local.arrivals().bytes as f64 / local.arrivals().packets as f64;
    assert!((100.0..800.0).contains(&mean), "{mean}");
}

#[test]
fn zero_copy_that_a_driver_does_not_have_is_refused_with_the_place() {
    if !root_or_skip() {
        return;
    }
    let lab = pair("xskzero");
    let a = lab.namespace("a").expect("a");
    let refused = AfXdp::open(a, "eth0", 0, Mode::ZeroCopy, &stream(), 0);
    let text = refused.expect_err("veth has no zero copy").to_string();
    assert!(text.contains("queue 0 of eth0 of ss-xskzero"), "{text}");
    let no_queue = AfXdp::open(a, "eth0", 99, Mode::Copy, &stream(), 0);
    assert!(
        no_queue
            .expect_err("no queue")
            .to_string()
            .contains("queue 99")
    );
}
