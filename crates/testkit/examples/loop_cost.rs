//! What the laboratory itself costs: generator and sink with nothing between, and Linux' forwarding between them with
//! the sink at either hook. Every figure is the loop of one CPU: `cargo run --release -p sidestep-testkit --example loop_cost`.

use std::time::Duration;

use sidestep_testkit::offload::Offload;
use sidestep_testkit::traffic::{
    Driver as _, Generator, Hook, LiveFrames, Load, Local, Napi, Receiver, Sink, Stream, Template,
};
use sidestep_testkit::{Error, Lab, root_or_skip};

const WINDOW: Duration = Duration::from_secs(2);

fn main() -> Result<(), Error> {
    if !root_or_skip() {
        return Ok(());
    }
    bare()?;
    for hook in [Hook::Xdp, Hook::Tc] {
        through_linux(
            &format!("Linux plain IPv6, {hook:?} sink"),
            "2001:db8::/32 via fc01::1 dev eth1",
            hook,
        )?;
        let encap = "2001:db8::/32 encap seg6 mode encap segs fc0b::1 via fc01::1 dev eth1";
        through_linux(
            &format!("Linux H.Encaps, 1 segment, {hook:?} sink"),
            encap,
            hook,
        )?;
    }
    Ok(())
}

fn bare() -> Result<(), Error> {
    let mut lab = Lab::new("loop")?;
    lab.node("a")?.node("b")?.link("a", "eth0", "b", "eth0")?;
    let sink = Sink::attach(lab.namespace("b")?, "eth0")?;
    let template = Template::one_flow(&frame(lab.mac("b", "eth0")?, lab.mac("a", "eth0")?))?;
    let generator = Generator::start(lab.namespace("a")?, "eth0", &template, 0)?;
    report("generator to XDP sink", &sink)?;
    generator.stop()?;
    drop(sink);
    stamped(&lab, &template)
}

/// What stamps cost, and how exact pace and latency are.
fn stamped(lab: &Lab, template: &Template) -> Result<(), Error> {
    let stream = Stream::of(template.clone())?;
    let receiver = Receiver::attach(lab.namespace("b")?, "eth0", Hook::Xdp)?;
    let source = LiveFrames::open(lab.namespace("a")?, "eth0", &stream, 0)?;
    let mut local = Local::new(source, receiver);
    for (what, load, latency) in [
        ("the same with stamps", Load::Maximum, false),
        ("the same with stamps and times", Load::Maximum, true),
        ("at 1 Mpps", Load::Rate(1e6), true),
        ("at 10 kpps", Load::Rate(1e4), true),
    ] {
        let trial = local.trial(load, WINDOW, latency)?;
        let (millions, nanoseconds) = (trial.sent_rate() / 1e6, 1e9 / trial.sent_rate());
        print!("{what:45} {millions:6.2} Mpps  {nanoseconds:6.0} ns/packet");
        if let Some(latency) = &trial.latency {
            print!(", {} ns median, {} ns p99", latency.p50, latency.p99);
        }
        println!("; {} lost", trial.sent - trial.received);
    }
    Ok(())
}

fn through_linux(title: &str, route: &str, hook: Hook) -> Result<(), Error> {
    let mut lab = Lab::new("loop")?;
    lab.node("a")?.node("r")?.node("b")?;
    lab.link("a", "eth0", "r", "eth0")?
        .link("r", "eth1", "b", "eth0")?;
    for (node, ifname) in [("a", "eth0"), ("r", "eth0"), ("r", "eth1"), ("b", "eth0")] {
        lab.offload(node, ifname, Offload::OFF)?;
    }
    let router = lab.namespace("r")?;
    router.sysctl("net/ipv6/conf/all/forwarding", "1")?;
    router.exec(&["ip", "address", "add", "fc00::2/64", "dev", "eth0"])?;
    router.exec(&["ip", "address", "add", "fc01::2/64", "dev", "eth1"])?;
    router.exec(&[
        "ip",
        "neighbor",
        "add",
        "fc01::1",
        "lladdr",
        "02:53:53:00:03:01",
        "nud",
        "permanent",
        "dev",
        "eth1",
    ])?;
    router.exec(&[
        "ip",
        "route",
        "add",
        "fc0b::/16",
        "via",
        "fc01::1",
        "dev",
        "eth1",
    ])?;
    router.exec(&["ip", "sr", "tunsrc", "set", "fc01::2"])?;
    let words: Vec<&str> = ["ip", "route", "add"]
        .into_iter()
        .chain(route.split(' '))
        .collect();
    router.exec(&words)?;
    let _napi = Napi::attach(router, "eth0")?;
    let sink = Sink::attach_at(lab.namespace("b")?, "eth0", hook)?;
    let template = Template::one_flow(&frame(lab.mac("r", "eth0")?, lab.mac("a", "eth0")?))?;
    let generator = Generator::start(lab.namespace("a")?, "eth0", &template, 0)?;
    report(title, &sink)?;
    generator.stop()?;
    Ok(())
}

fn report(what: &str, sink: &Sink) -> Result<(), Error> {
    let rate = sink.measure(WINDOW)?;
    let (millions, nanoseconds) = (
        rate.packets_per_second() / 1e6,
        rate.nanoseconds_per_packet(),
    );
    println!("{what:45} {millions:6.2} Mpps  {nanoseconds:6.0} ns/packet");
    Ok(())
}

/// 78 bytes: UDP over IPv6, 16 bytes of payload.
fn frame(destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
    let mut frame = [
        &destination[..],
        &source,
        &[0x86, 0xdd],
        &[0x60, 0, 0, 0, 0, 24, 17, 64],
    ]
    .concat();
    frame.extend([0xfc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend([0x10, 0, 0, 9, 0, 24, 0xff, 0xff]);
    frame.extend([0; 16]);
    frame
}
