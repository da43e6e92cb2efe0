//! Forwarding rate for socket buffers: a packet socket sends into a veth, a router forwards, and the
//! stack of a host receives. One CPU runs all three, so a rate includes the sender's system calls.
//!
//! `cargo run -p sidestep-testkit --example socket_buffers -- SIDESTEP [SECONDS [ROUNDS]]` as root.
//! SIDESTEP is the path of the program. The data planes take turns in each round. A rate is the
//! median of the rounds, and a ratio is the median of the ratios of each round.

use std::error::Error;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sidestep_testkit::{Lab, Namespace};
use sidestep_wire::{Ends, EtherType, Ethernet, Ipv6, Protocol, Srh, Udp};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A data plane under measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plane {
    /// The kernel alone.
    Linux,
    /// Sidestep in TC with this value of `--redirect-peer`.
    Sidestep(&'static str),
    /// A TC program that only calls this helper.
    Bare(u32),
}

const PLANES: [(&str, Plane); 5] = [
    ("Linux", Plane::Linux),
    ("TC, redirect-peer off", Plane::Sidestep("off")),
    ("TC, redirect-peer auto", Plane::Sidestep("auto")),
    (
        "bare bpf_redirect",
        Plane::Bare(libbpf_sys::BPF_FUNC_redirect),
    ),
    (
        "bare bpf_redirect_peer",
        Plane::Bare(libbpf_sys::BPF_FUNC_redirect_peer),
    ),
];

/// Configuration of the router.
const LINES: [&str; 7] = [
    "address add fc00:a::1/64 dev eth0",
    "address add fc00:b::1/64 dev eth1",
    "sr tunsrc set fc00:5::1",
    "-6 route add fc00:bb::/32 via fc00:b::2 dev eth1",
    "-6 route add fc0c::/16 encap seg6 mode encap segs fc00:bb::e dev eth1",
    "-6 route add fc0f::e/128 encap seg6local action End dev eth0",
    "-6 route add fc0f::d6/128 encap seg6local action End.DT6 table main dev eth0",
];

/// Number of frames of one system call.
const BATCH: usize = 64;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let sidestep = args.next().ok_or("usage: SIDESTEP [SECONDS [ROUNDS]]")?;
    let seconds: f64 = args.next().unwrap_or("0.5".into()).parse()?;
    let rounds: usize = args.next().unwrap_or("5".into()).parse()?;
    let lab = lab()?;
    let cases = cases(&lab)?;
    let mut cpu = CpuSet::new();
    cpu.set(1)?;
    // By round, plane and case.
    let mut rates = Vec::new();
    for _ in 0..rounds {
        let mut of_planes = Vec::new();
        for (name, plane) in PLANES {
            let _running = Running::start(plane, lab.namespace("r")?, &sidestep)?;
            sched_setaffinity(Pid::from_raw(0), &cpu)?;
            let rate = |(case, frame): &(&str, Vec<u8>)| {
                let found = rate(&lab, frame, Duration::from_secs_f64(seconds));
                found.map_err(|error| format!("{name}, {case}: {error}"))
            };
            let of_plane: std::result::Result<Vec<f64>, String> = cases.iter().map(rate).collect();
            of_planes.push(of_plane?);
        }
        rates.push(of_planes);
    }
    for (case, (of, _)) in cases.iter().enumerate() {
        println!("{of}");
        for (plane, (name, _)) in PLANES.iter().enumerate() {
            let rate = median(rates.iter().map(|round| round[plane][case]));
            let to_linux = median(
                rates
                    .iter()
                    .map(|round| round[plane][case] / round[0][case]),
            );
            println!(
                "  {name:24} {:6.3} Mpps  {to_linux:5.2} times Linux",
                rate / 1e6
            );
        }
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Returns hosts `a` and `b` at `eth0` and `eth1` of a router. The hosts discard IPv6 packets.
fn lab() -> Result<Lab> {
    let mut lab = Lab::new("socketbuffers")?;
    for (host, port) in [("a", "eth0"), ("b", "eth1")] {
        lab.node(host)?;
        lab.namespace(host)?
            .sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        if port == "eth0" {
            lab.node("r")?;
        }
        lab.link(host, "eth0", "r", port)?;
    }
    let router = lab.namespace("r")?;
    for setting in [
        "net/ipv6/conf/all/forwarding",
        "net/ipv6/conf/all/seg6_enabled",
    ] {
        router.sysctl(setting, "1")?;
    }
    for port in ["eth0", "eth1"] {
        router.sysctl(&format!("net/ipv6/conf/{port}/seg6_enabled"), "1")?;
    }
    let mac = sidestep_testkit::lab::mac_text(lab.mac("b", "eth0")?);
    let neighbor = format!("neighbor add fc00:b::2 lladdr {mac} dev eth1 nud permanent");
    for line in LINES.into_iter().chain([neighbor.as_str()]) {
        let words: Vec<&str> = ["ip"].into_iter().chain(line.split(' ')).collect();
        router.exec(&words)?;
    }
    Ok(lab)
}

/// Returns frames that leave by `eth1`.
fn cases(lab: &Lab) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let source: Ipv6Addr = "fc00:a::2".parse()?;
    let udp = |to: Ipv6Addr| {
        let header = Udp {
            source_port: 40_000,
            destination_port: 5_000,
        };
        header.emit(&[0; 16], Ends::new(source, to))
    };
    let packet = |to, next, payload: &[u8]| Ipv6::new(source, to, next).emit(payload);
    let last: Ipv6Addr = "fc00:bb::1".parse()?;
    let [encaps, end, end_dt6]: [Ipv6Addr; 3] =
        ["fc0c::1".parse()?, "fc0f::e".parse()?, "fc0f::d6".parse()?];
    let segments = Srh::new(Protocol::UDP, 1, vec![last, end]).emit(&udp(last));
    let inner = packet(last, Protocol::UDP, &udp(last));
    let (to, from) = (lab.mac("r", "eth0")?, lab.mac("a", "eth0")?);
    let header = Ethernet {
        destination: to,
        source: from,
        ethertype: EtherType::IPV6,
    };
    let packets = [
        ("plain IPv6", inner.clone()),
        ("H.Encaps", packet(encaps, Protocol::UDP, &udp(encaps))),
        ("End", packet(end, Protocol::ROUTING, &segments)),
        ("End.DT6", packet(end_dt6, Protocol::IPV6, &inner)),
    ];
    Ok(packets
        .map(|(name, packet)| (name, header.emit(&packet)))
        .into())
}

/// A running data plane; dropping ends it.
struct Running {
    link: Option<OwnedFd>,
    daemon: Option<Child>,
}

impl Running {
    fn start(plane: Plane, router: &Namespace, sidestep: &str) -> Result<Self> {
        let mut running = Self {
            link: None,
            daemon: None,
        };
        match plane {
            Plane::Linux => {}
            Plane::Sidestep(setting) => {
                let mut command = router.command(sidestep);
                command.args([
                    "run",
                    "--mode",
                    "tc",
                    "--redirect-peer",
                    setting,
                    "eth0",
                    "eth1",
                ]);
                running.daemon = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
                let started = Instant::now();
                while router.exec(&[sidestep, "show", "ports"]).is_err() {
                    if started.elapsed() > Duration::from_secs(10) {
                        return Err("sidestep did not start".into());
                    }
                }
            }
            Plane::Bare(helper) => {
                let program = redirect(helper, router.ifindex("eth1")?)?;
                let (program, ingress) = (program.as_raw_fd(), router.ifindex("eth0")? as i32);
                let attach = || unsafe {
                    // SAFETY: an open descriptor, and no options.
                    libbpf_sys::bpf_link_create(
                        program,
                        ingress,
                        libbpf_sys::BPF_TCX_INGRESS,
                        std::ptr::null(),
                    )
                };
                running.link = Some(descriptor(router.run(attach)?)?);
            }
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = kill(Pid::from_raw(daemon.id() as i32), Signal::SIGTERM);
            let _ = daemon.wait();
        }
    }
}

/// Loads `return helper(ifindex, 0)`.
fn redirect(helper: u32, ifindex: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain data, for which zeros are a value.
    let mut code: [libbpf_sys::bpf_insn; 4] = unsafe { std::mem::zeroed() };
    for (register, (instruction, value)) in code.iter_mut().zip([ifindex, 0]).enumerate() {
        instruction.code = (libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K) as u8;
        instruction.set_dst_reg(register as u8 + 1);
        instruction.imm = value as i32;
    }
    code[2].code = (libbpf_sys::BPF_JMP | libbpf_sys::BPF_CALL) as u8;
    code[2].imm = helper as i32;
    code[3].code = (libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT) as u8;
    // SAFETY: terminated strings, and instructions that live until the call has returned.
    descriptor(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"redirect".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr(),
            code.len() as _,
            std::ptr::null_mut(),
        )
    })
}

fn descriptor(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Returns the packets per second that arrive at `b` while `a` sends this frame. All sent packets
/// must arrive.
fn rate(lab: &Lab, frame: &[u8], time: Duration) -> Result<f64> {
    let (a, b) = (lab.namespace("a")?, lab.namespace("b")?);
    let ifindex = a.ifindex("eth0")?;
    let before = received(b)?;
    let (sent, elapsed) = a.run(|| send(ifindex, frame, time))??;
    let arrived = received(b)? - before;
    if arrived < sent {
        return Err(format!("{arrived} of {sent} packets arrived").into());
    }
    Ok(arrived as f64 / elapsed.as_secs_f64())
}

/// Number of packets that `eth0` has received.
fn received(namespace: &Namespace) -> Result<u64> {
    let table = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix("eth0:"));
    let packets = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(packets.ok_or("eth0 is not in /proc/net/dev")?.parse()?)
}

/// Sends copies of a frame by a packet socket. Returns their number.
fn send(ifindex: u32, frame: &[u8], time: Duration) -> io::Result<(u64, Duration)> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let result = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let socket = descriptor(result)?;
    // SAFETY: plain data, for which zeros are a value.
    let (mut address, mut header): (libc::sockaddr_ll, libc::mmsghdr) =
        unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_IPV6 as u16).to_be();
    address.sll_ifindex = ifindex as i32;
    let mut part = libc::iovec {
        iov_base: frame.as_ptr().cast_mut().cast(),
        iov_len: frame.len(),
    };
    header.msg_hdr.msg_name = (&raw mut address).cast();
    header.msg_hdr.msg_namelen = size_of_val(&address) as u32;
    header.msg_hdr.msg_iov = &raw mut part;
    header.msg_hdr.msg_iovlen = 1;
    let mut headers = [header; BATCH];
    let (started, mut sent) = (Instant::now(), 0);
    while started.elapsed() < time {
        // SAFETY: the headers point to the address and the frame, which live longer.
        let result =
            unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), BATCH as u32, 0) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        sent += result as u64;
    }
    Ok((sent, started.elapsed()))
}
