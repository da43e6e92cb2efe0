//! How long one route's change takes until packets meet it, while many are in place: from the request of whoever changes
//! it (the kernel's own share), from the daemon's reading of the notification, and step by step. Then how many changes a
//! second are compiled and published, in batches.
//!
//! `cargo run --release -p sidestep-control --example route_change [ROUTES [CHANGES]]` as root.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sidestep_control::compile::{Compiled, Compiler};
use sidestep_datapath::kernel::Kernel;
use sidestep_datapath::{Delta, Image, Limits};
use sidestep_mirror::Mirror;
use sidestep_model::node::IfIndex;
use sidestep_testkit::Namespace;
use sidestep_testkit::random::Random;
use sidestep_testkit::routes::{Change, Prefix, RouteSocket};

type Failure = Box<dyn Error + Send + Sync>;

/// The two next hops that routes go to and fro between.
const NEXT_HOPS: [&str; 2] = ["fc00:b::2", "fc00:b::3"];

/// A daemon without its event loop.
struct Bench {
    mirror: Mirror,
    compiler: Compiler,
    compiled: Compiled,
    kernel: Kernel,
    releasing: bool,
    released: Instant,
}

/// When each step of a change was done.
struct Steps {
    requested: Duration,
    read: Duration,
    compiled: Duration,
    published: Duration,
}

impl Bench {
    fn start(pins: &std::path::Path, port: u32) -> Result<Self, Failure> {
        let begin = Instant::now();
        let mirror = Mirror::open()?;
        println!("all routes read after   {:?}", begin.elapsed());
        let mut compiler = Compiler::new(Limits::default());
        let begin = Instant::now();
        let first = compiler.compile(mirror.node(), &BTreeSet::from([IfIndex(port)]))?;
        println!("compiled as a whole in  {:?}", begin.elapsed());
        let mut kernel = Kernel::load(Limits::default(), pins)?;
        let begin = Instant::now();
        let delta = Delta::between(&Image::default(), &first.image);
        kernel.publish(&delta, &first.image)?;
        println!("published in            {:?}", begin.elapsed());
        let begin = Instant::now();
        let whole = compiler.attempt(
            mirror.node(),
            &BTreeSet::from([IfIndex(port)]),
            &first.image.fib,
        )?;
        let delta = Delta::between(&first.image, &whole.image);
        assert!(delta.is_empty(), "nothing has changed");
        compiler.accept();
        println!("compiled and compared   {:?}", begin.elapsed());
        Ok(Self {
            mirror,
            compiler,
            compiled: whole,
            kernel,
            releasing: false,
            released: Instant::now(),
        })
    }

    /// What the daemon does with a notification.
    fn follow(&mut self) -> Result<(Duration, Duration, Duration), Failure> {
        let begin = Instant::now();
        let changes = self.mirror.process()?;
        let read = begin.elapsed();
        let (node, compiled) = (self.mirror.node(), &mut self.compiled);
        let change = self
            .compiler
            .update(node, &changes.routes, &changes.neighbors, compiled)?;
        let alone = begin.elapsed();
        for slot in change.new_counters() {
            self.kernel.clear_route_counters(slot)?;
        }
        self.kernel.publish(&change.delta, &compiled.image)?;
        self.compiler.accept();
        let published = begin.elapsed();
        self.release()?;
        Ok((read, alone, published))
    }

    /// As the daemon does it, every 8 ms.
    fn release(&mut self) -> Result<(), Failure> {
        if self.released.elapsed() < Duration::from_millis(8) {
            return Ok(());
        }
        self.released = Instant::now();
        if !self.releasing {
            self.kernel.begin_reclaim()?;
            self.compiler.begin_reclaim();
            self.releasing = true;
        } else if self.kernel.end_reclaim()?.is_some() {
            self.compiler.end_reclaim();
            self.releasing = false;
        }
        Ok(())
    }
}

fn prefix(number: u32) -> Prefix {
    // Spread over the address space as a full view is: neighbors in the table are no neighbors in time.
    let address =
        u128::from(0x2a00_0000_0000 + u64::from(number.wrapping_mul(0x9e37_79b1)) * 4) << 80;
    (Ipv6Addr::from(address), 48)
}

fn percentiles(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!(
        "{name:<24}{:>10.1?} {:>10.1?} {:>10.1?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let routes = arguments.next().unwrap_or(Ok(160_000))?;
    let changes = arguments.next().unwrap_or(Ok(10_000))?;
    let namespace = Namespace::create(&format!("ss-change-{}", std::process::id()))?;
    for words in [
        "ip link add eth0 type veth peer name eth1",
        "ip link set eth0 up",
        "ip link set eth1 up",
        "ip addr add fc00:b::1/64 dev eth0 nodad",
        "ip neigh add fc00:b::2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent",
        "ip neigh add fc00:b::3 lladdr 02:00:00:00:00:03 dev eth0 nud permanent",
    ] {
        namespace.exec(&words.split(' ').collect::<Vec<_>>())?;
    }
    namespace.sysctl("net/ipv6/route/max_size", "10000000")?;
    let port = namespace.ifindex("eth0")?;
    let mut socket = RouteSocket::open(&namespace)?;
    let pins = PathBuf::from(format!(
        "/sys/fs/bpf/sidestep-change-{}",
        std::process::id()
    ));
    let done = namespace.run(|| measure(&mut socket, &pins, port, routes, changes))?;
    namespace.run(|| Kernel::remove(&pins))??;
    let _ = std::fs::remove_dir(&pins);
    done
}

fn measure(
    socket: &mut RouteSocket,
    pins: &std::path::Path,
    port: u32,
    routes: u32,
    changes: u32,
) -> Result<(), Failure> {
    let hops: Vec<Ipv6Addr> = NEXT_HOPS
        .iter()
        .map(|hop| hop.parse())
        .collect::<Result<_, _>>()?;
    let begin = Instant::now();
    for number in 0..routes {
        socket.prepare(prefix(number), Change::Replace(hops[0]), port);
        if number % 256 == 255 || number + 1 == routes {
            socket.send()?;
        }
    }
    println!("{routes} routes in the kernel after {:?}", begin.elapsed());
    let mut bench = Bench::start(pins, port)?;

    let mut random = Random::new(1);
    let mut steps = Vec::new();
    for number in 0..changes {
        let prefix = prefix(random.below(routes as usize) as u32);
        // It goes, comes back, and gets another next hop.
        for change in [
            Change::Delete,
            Change::Replace(hops[0]),
            Change::Replace(hops[1]),
        ] {
            let begin = Instant::now();
            socket.prepare(prefix, change, port);
            if socket.send().is_err() && number > 0 {
                continue;
            }
            let requested = begin.elapsed();
            let (read, compiled, published) = bench.follow()?;
            steps.push(Steps {
                requested,
                read,
                compiled: compiled.saturating_sub(read),
                published: published.saturating_sub(compiled),
            });
        }
    }
    println!(
        "{} changes, one at a time   median        p99        max",
        steps.len()
    );
    let each = |of: fn(&Steps) -> Duration| steps.iter().map(of).collect();
    percentiles("the kernel's share", each(|it| it.requested));
    percentiles("reading", each(|it| it.read));
    percentiles("compiling", each(|it| it.compiled));
    percentiles("publishing", each(|it| it.published));
    percentiles(
        "from the notification",
        each(|it| it.read + it.compiled + it.published),
    );
    percentiles(
        "from the request",
        each(|it| it.requested + it.read + it.compiled + it.published),
    );

    let (mut reading, mut working, mut made) = (Duration::ZERO, Duration::ZERO, 0);
    for batch in 0..200u32 {
        for number in 0..1000 {
            let prefix = prefix((batch * 1000 + number).wrapping_mul(7919) % routes);
            let hop = hops[((batch / 2) % 2) as usize];
            socket.prepare(prefix, Change::Replace(hop), port);
        }
        socket.send()?;
        let (read, _, published) = bench.follow()?;
        reading += read;
        working += published.saturating_sub(read);
        made += 1000;
    }
    let rate = |time: Duration| f64::from(made) / time.as_secs_f64() / 1000.0;
    println!(
        "in batches of 1000: {:.0} thousand changes a second compiled and published, {:.0} with reading them",
        rate(working),
        rate(working + reading)
    );
    Ok(())
}
