//! `sidestep doctor`: seeds faults, finds each by its code, and repairs it by the command that the
//! problem names.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sidestep_control::api::Request;
use sidestep_control::report::{self, Problem, Severity};

use crate::common::program;
use crate::support::frames::{destination6, ethernet, udp};
use crate::support::{ROUTER, Star, begin, eventually, made, output, printed, report, text_of};

/// A fault: its code, and the shell command that seeds it.
type Fault = (&'static str, &'static str);

/// Runs a shell command on the router, with the program in PATH.
fn shell(star: &Star, script: &str) {
    let program = Path::new(program());
    let folder = program.parent().expect("a folder").display();
    let path = std::env::var("PATH").unwrap_or_default();
    // A secret on standard input, for `sidestep hmac set`.
    let script = format!("export PATH={folder}:{path}; echo secret | {{ {script}; }}");
    let output = star
        .router()
        .command("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .output()
        .expect("sh starts");
    assert!(output.status.success(), "{script}: {}", text_of(&output));
}

/// Problems that `doctor` prints. The exit status is checked against them.
fn doctor(star: &Star, args: &[&str]) -> Vec<Problem> {
    let args: Vec<&str> = ["doctor", "-j"].iter().chain(args).copied().collect();
    let output = output(star.router(), &args);
    let problems: Vec<Problem> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{args:?}: {error}: {}", text_of(&output)));
    let expected = match problems.first().map(|problem| problem.severity) {
        None | Some(Severity::Note) => 0,
        Some(Severity::Warning) => 1,
        Some(Severity::Error) => 2,
    };
    assert_eq!(output.status.code(), Some(expected), "{problems:?}");
    problems
}

fn find(problems: &[Problem], code: &str) -> Option<Problem> {
    problems
        .iter()
        .find(|problem| problem.code == code)
        .cloned()
}

/// Adds a route by command.
const TYPED: &str = "sidestep route add fc00:77::/32 via fc00:b::2 dev eth1";

/// Seeds a fault, finds it, and executes its repair. Then it is gone. With a daemon, the ports are
/// attached then, and a route that was added by command is there.
fn seed_and_repair(star: &Star, args: &[&str], (code, seed): Fault) {
    assert_eq!(find(&doctor(star, args), code), None, "before {seed}");
    shell(star, seed);
    let with_daemon = star.call(Request::ShowPorts).is_ok();
    if with_daemon {
        shell(
            star,
            &format!("sidestep route show | grep -q 'fc00:77::/32 ' || {TYPED}"),
        );
    }
    let found = eventually(code, || find(&doctor(star, args), code));
    let repair = found.repair.clone();
    shell(
        star,
        &repair.unwrap_or_else(|| panic!("{found:?} has no repair")),
    );
    eventually(&format!("{code} is repaired"), || {
        find(&doctor(star, args), code).is_none().then_some(())
    });
    if with_daemon {
        assert_forwards(star, code);
        let ports: report::Ports = report(star.router(), Request::ShowPorts);
        assert!(
            ports.iter().all(|port| port.target != "none"),
            "{code}: {ports:?}"
        );
        let routes = printed(star.router(), &["route", "show"]);
        assert!(routes.contains("fc00:77::/32 "), "{code}: {routes}");
    }
}

/// Checks that a packet of the plain route and one of the headend cross the router.
fn assert_forwards(star: &Star, after: &str) {
    let (from, to) = (star.socket("a"), star.socket("b"));
    for destination in ["fc00:b::2", "2001:db8:b::1"] {
        let [source, destination]: [IpAddr; 2] =
            ["fc00:a::2", destination].map(|text| text.parse().expect("an address"));
        let packet = udp(source, destination, 64, b"x");
        let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet);
        let arrived = eventually(&format!("a packet to {destination} after {after}"), || {
            from.send(&frame).expect("send");
            to.receive(Duration::from_millis(200)).expect("receive")
        });
        // The segment of the headend is the host, too.
        let outer: Ipv6Addr = "fc00:b::2".parse().expect("an address");
        assert_eq!(
            destination6(&arrived),
            Some(outer),
            "{destination} after {after}"
        );
        to.drain().expect("receive");
    }
}

/// A router with a SID, a headend and a tunnel source of its own.
fn router(topic: &str) -> Star {
    let star = Star::new(topic);
    star.ip().all([
        "address add fc00:5::1/128 dev lo",
        "route add fc00:5:e::/128 encap seg6local action End dev eth0",
        "route add fc00:5:d4::/128 encap seg6local action End.DX4 nh4 10.0.2.2 dev eth0",
        "route add 2001:db8:b::/64 encap seg6 mode encap segs fc00:b::2 dev eth1",
        "link set dev eth1 mtu 1564",
    ]);
    star
}

#[test]
fn faults_of_a_running_node_are_found_and_repaired() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = router("livedoctor");
    let start = "sidestep run --detach --mode tc --require-seg6-enabled eth0 eth1 eth2";
    shell(&star, start);
    assert_eq!(doctor(&star, &[]), [], "a healthy node");
    // The table exists once it has been read, and filters nothing.
    shell(
        &star,
        "python3 -c 'import ctypes, socket; s = socket.socket(2, 3, 255); \
         b = ctypes.create_string_buffer(b\"filter\", 84); n = ctypes.c_uint(84); \
         ctypes.CDLL(None).getsockopt(s.fileno(), 0, 64, b, ctypes.byref(n))'",
    );
    assert_eq!(doctor(&star, &[]), [], "with an empty table of iptables");
    let faults: [Fault; 17] = [
        (
            "port_without_address",
            "ip -6 address flush dev eth2 && ip -6 neighbor flush dev eth2",
        ),
        (
            "forwarding6_off",
            "sysctl -qw net.ipv6.conf.all.forwarding=0",
        ),
        (
            "forwarding4_off",
            "sysctl -qw net.ipv4.conf.eth0.forwarding=0",
        ),
        (
            "ipv6_disabled",
            "sysctl -qw net.ipv6.conf.eth2.disable_ipv6=1",
        ),
        ("seg6_off", "sysctl -qw net.ipv6.conf.eth0.seg6_enabled=0"),
        (
            "rp_filter_strict",
            "sysctl -qw net.ipv4.conf.eth0.rp_filter=1",
        ),
        ("port_down", "ip link set dev eth2 down"),
        ("mtu_headroom", "ip link set dev eth1 mtu 1500"),
        ("mtu_below_1280", "ip link set dev eth1 mtu 1300"),
        ("mtu_without_ipv6", "ip link set dev eth2 mtu 1000"),
        ("tunsrc_not_local", "ip sr tunsrc set fc00:99::1"),
        (
            "big_tcp",
            "ip link set dev eth2 gso_max_size 196608 gro_max_size 196608",
        ),
        (
            "sid_not_in_kernel",
            "sidestep route add fc00:6::e/128 encap seg6local action End dev eth0",
        ),
        (
            "rule_punts",
            "ip -6 rule add fwmark 5 lookup main priority 999",
        ),
        (
            "hmac_no_keys",
            "sysctl -qw net.ipv6.conf.eth0.seg6_require_hmac=1",
        ),
        (
            "hmac_key_missing",
            "ip -6 route add 2001:db8:7::/64 encap seg6 mode encap segs fc00:b::2 hmac 7 dev eth1",
        ),
        (
            "source_unclear",
            "ip sr tunsrc set :: && ip address del fc00:b::1/64 dev eth1 && \
             ip -6 route add fc00:b::/64 dev eth1",
        ),
    ];
    for fault in faults {
        seed_and_repair(&star, &[], fault);
    }
    // No command removes a packet filter.
    for (code, seed) in [
        (
            "nftables_bypassed",
            "nft add table inet f && \
             nft add chain inet f c '{ type filter hook forward priority 0; policy drop; }'",
        ),
        (
            "nat_bypassed",
            "nft add table ip n && nft add chain ip n c '{ type nat hook postrouting priority \
             100; }' && \
             nft add rule ip n c masquerade",
        ),
    ] {
        shell(&star, seed);
        let found = eventually(code, || find(&doctor(&star, &[]), code));
        assert_eq!(found.repair, None, "{found:?}");
        shell(&star, "nft flush ruleset");
        eventually(code, || {
            find(&doctor(&star, &[]), code).is_none().then_some(())
        });
    }
    shell(&star, "sidestep stop");
}

#[test]
fn faults_of_the_command_line_are_repaired_by_another_start() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = router("livedoctorrun");
    let further = "route add 2001:db8:c::/64 encap seg6 mode encap segs fc00:c::2 dev eth2";
    star.ip().run(further);
    star.ip().run("link set dev eth2 mtu 1564");
    let stop = "sidestep stop";
    shell(&star, "sidestep run --detach --mode tc eth0 eth1 eth2");
    let seed = "sidestep stop && sidestep run --detach --mode xdp-always eth0 eth1 eth2";
    seed_and_repair(&star, &[], ("xdp_on_veth", seed));
    seed_and_repair(&star, &[], ("no_xdp_transmit", seed));
    let shaped = "tc qdisc add dev eth1 root tbf rate 1gbit burst 100k latency 50ms; sidestep \
        stop && \
                  sidestep run --detach --mode xdp-always eth0 eth1 eth2";
    seed_and_repair(&star, &[], ("qdisc_bypassed", shaped));
    let small =
        "sidestep stop && sidestep run --detach --mode tc --limit policies=2 eth0 eth1 eth2";
    seed_and_repair(&star, &[], ("table_full", small));
    let segments: Vec<_> = (1..=11)
        .map(|number| format!("fc00:c::{number:x}"))
        .collect();
    let long: &'static str = Box::leak(
        format!(
            "ip -6 route add 2001:db8:d::/64 encap seg6 mode encap segs {} dev eth2; sidestep stop \
             && sidestep run --detach --mode xdp-always eth0 eth1 eth2",
            segments.join(",")
        )
        .into_boxed_str(),
    );
    seed_and_repair(&star, &[], ("xdp_headroom", long));
    shell(&star, stop);

    // A service whose port is left out, in a node file.
    let file = std::env::temp_dir().join(format!("sidestep-doctor-{}.yaml", std::process::id()));
    let routes = "routes:\n- fc00:5:ad::/128 encap seg6local action End.AD oif eth2 nh6 fc00:c::2 \
        dev eth2\n";
    fs::write(&file, routes).expect("a node file");
    let file = file.to_str().expect("UTF-8");
    shell(&star, "sidestep run --detach --mode tc eth0 eth1");
    let seed: &'static str = Box::leak(
        format!("sidestep stop && sidestep run --detach --mode tc --config {file} eth0 eth1")
            .into_boxed_str(),
    );
    seed_and_repair(&star, &[], ("service_port_not_attached", seed));
    let ports: report::Ports = report(star.router(), Request::ShowPorts);
    assert_eq!(ports.len(), 3, "the service's port is attached");
    shell(&star, stop);
    fs::remove_file(file).expect("the node file");
}

#[test]
fn faults_without_a_single_command_are_found_and_end_with_their_cause() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = router("livedoctorno");
    if !made(star.router(), "svc0 type veth peer name svc1") {
        return;
    }
    star.ip().all(["link set svc0 up", "link set svc1 up"]);
    shell(&star, "sidestep run --detach --mode tc eth0 eth1 svc0");
    let host = star.host("a").name().to_owned();
    let service = "sidestep route add fc00:5:ad::/128 encap seg6local action End.AD oif svc0 \
        inner l2 \
                   liveness link dev svc0 && ip link set dev svc1 down";
    let lost_route = "route add fc00:5:d6::/128 encap seg6local action End dev sr0 proto bgp";
    let lost = format!(
        "ip link set sr1 up && ip -6 {lost_route} && ip link set sr0 down && ip link set sr0 up"
    );
    let policy = "sidestep policy add p color 1 endpoint fc00:9::2 segs fc00:9::2";
    let faults = [
        (
            "no_carrier",
            format!("ip -n {host} link set eth0 down"),
            format!("ip -n {host} link set eth0 up"),
        ),
        (
            "service_down",
            service.to_owned(),
            "ip link set dev svc1 up".to_owned(),
        ),
        (
            "policy_invalid",
            policy.to_owned(),
            "ip -6 route add fc00:9::/64 via fc00:b::2".to_owned(),
        ),
        (
            "sid_hidden",
            "ip address add fc00:5:e::/128 dev lo".to_owned(),
            "ip address del fc00:5:e::/128 dev lo".to_owned(),
        ),
        (
            "sids_lost",
            format!("ip link add sr0 type veth peer name sr1 && ip link set sr0 up && {lost}"),
            format!("ip -6 {lost_route}"),
        ),
        (
            "domain_without_inside",
            "sidestep domain add sid-block fc00:5::/32".to_owned(),
            "sidestep domain add inside eth1".to_owned(),
        ),
        (
            "port_missing",
            "ip link del svc0".to_owned(),
            "ip link add svc0 type veth peer name svc1".to_owned(),
        ),
    ];
    for (code, seed, cause) in faults {
        shell(&star, &seed);
        let found = eventually(code, || find(&doctor(&star, &[]), code));
        assert_eq!(found.repair, None, "{found:?}");
        shell(&star, &cause);
        eventually(code, || {
            find(&doctor(&star, &[]), code).is_none().then_some(())
        });
    }
    shell(&star, "sidestep stop");
}

#[test]
fn without_a_daemon_it_checks_the_named_ports_and_the_host() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = router("livedoctoroff");
    let ports = ["--mode", "tc", "eth0", "eth1", "eth2"];
    assert_eq!(doctor(&star, &ports), []);
    let found = doctor(&star, &["--mode", "tc", "eth0", "eth9"]);
    assert!(find(&found, "port_missing").is_some(), "{found:?}");
    for fault in [
        ("port_down", "ip link set dev eth1 down"),
        (
            "forwarding6_off",
            "sysctl -qw net.ipv6.conf.all.forwarding=0",
        ),
    ] {
        seed_and_repair(&star, &ports, fault);
    }

    let xdp = ["--mode", "xdp-always", "eth0"];
    assert_eq!(find(&doctor(&star, &xdp), "foreign_xdp"), None);
    let ifindex = star.router().ifindex("eth0").expect("eth0");
    let attached = star.router().run(|| attach_foreign_xdp(ifindex));
    attached.expect("the namespace can be entered");
    let found = find(&doctor(&star, &xdp), "foreign_xdp").expect("a foreign program");
    shell(&star, &found.repair.expect("a repair"));
    assert_eq!(find(&doctor(&star, &xdp), "foreign_xdp"), None);
}

/// Attaches an XDP program that passes everything, without a link.
fn attach_foreign_xdp(ifindex: u32) {
    let instruction = |code, imm| libbpf_sys::bpf_insn {
        code,
        imm,
        ..Default::default()
    };
    // r0 = XDP_PASS; exit
    let program = [instruction(0xb7, 2), instruction(0x95, 0)];
    // SAFETY: terminated strings, instructions of the count given, and no options.
    let fd = unsafe {
        let fd = libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"foreign".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as _,
            std::ptr::null_mut(),
        );
        assert!(fd >= 0, "a program");
        OwnedFd::from_raw_fd(fd)
    };
    let fd = std::os::fd::AsRawFd::as_raw_fd(&fd);
    let flags = libbpf_sys::XDP_FLAGS_DRV_MODE;
    // SAFETY: an open descriptor, and no options.
    let result = unsafe { libbpf_sys::bpf_xdp_attach(ifindex as i32, fd, flags, std::ptr::null()) };
    assert_eq!(result, 0, "attached");
}

#[test]
fn a_bpf_file_system_that_is_missing_or_read_only_is_repaired() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = router("livedoctorfs");
    let folder = std::env::temp_dir().join(format!("sidestep-doctor-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder");
    let path = folder.to_str().expect("UTF-8");
    let args = ["--pin-root", path, "--mode", "tc", "eth0"];
    let checked = std::panic::catch_unwind(|| {
        for (code, seed) in [
            ("bpffs_missing", "true".to_owned()),
            ("bpffs_read_only", format!("mount -o remount,ro {path}")),
        ] {
            // Mounts must stay, so this shell has the mount namespace of the test.
            let mount = |script: &str| Command::new("sh").args(["-c", script]).status();
            assert!(mount(&seed).expect("sh starts").success());
            let found = find(&doctor(&star, &args), code).expect(code);
            let repair = found.repair.expect("a repair");
            assert!(mount(&repair).expect("sh starts").success(), "{repair}");
            assert_eq!(find(&doctor(&star, &args), code), None);
        }
    });
    let _ = Command::new("umount").arg(&folder).status();
    fs::remove_dir(&folder).expect("nothing is left in it");
    checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn a_private_bpf_file_system_is_found_and_repaired() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = router("livedoctorprivate");
    shell(
        &star,
        "unshare --mount sh -c 'mount -t bpf bpf /sys/fs/bpf && \
         { sidestep doctor --mode tc eth0 eth1 | grep -q bpffs_private; } && \
         sidestep run --detach --mode tc eth0 eth1'",
    );
    let pins = || {
        let status: report::Status = report(star.router(), Request::ShowStatus);
        Path::new(&status.pins).exists()
    };
    let found = find(&doctor(&star, &[]), "bpffs_private").expect("a private file system");
    assert!(!pins(), "they are in another file system");
    shell(&star, TYPED);
    shell(&star, &found.repair.expect("a repair"));
    assert_eq!(doctor(&star, &[]), []);
    assert!(printed(star.router(), &["route", "show"]).contains("fc00:77::/32 "));
    assert!(pins());
    printed(star.router(), &["stop"]);
}

#[test]
fn a_dead_daemon_and_a_replaced_program_are_found_and_repaired() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = router("livedoctordead");
    let pid = || report::<report::Status>(star.router(), Request::ShowStatus).pid;
    shell(&star, "sidestep run --detach --mode tc eth0 eth1");
    shell(&star, TYPED);
    let killed = Pid::from_raw(pid() as i32);
    kill(killed, Signal::SIGKILL).expect("it runs");
    let ports = ["--mode", "tc", "eth0", "eth1"];
    let dead = |pid: Pid| {
        eventually("it is dead", || {
            // Until the process is gone, its socket accepts.
            let gone = kill(pid, None).is_err();
            gone.then(|| find(&doctor(&star, &ports), "dead_instance"))?
        })
    };
    let found = dead(killed);
    let status = output(star.router(), &["show", "status"]);
    assert!(
        text_of(&status).contains("a daemon died"),
        "{}",
        text_of(&status)
    );
    let start = "sidestep run --detach --mode tc eth0 eth1";
    assert_eq!(found.repair.as_deref(), Some(start));
    shell(&star, start);
    assert_eq!(find(&doctor(&star, &ports), "dead_instance"), None);
    assert!(printed(star.router(), &["route", "show"]).contains("fc00:77::/32 "));

    // One with a root of its own for the pins.
    let own = "sidestep stop && sidestep run --detach --pin-root /sys/fs/bpf/livedoctor --mode tc \
        eth0 eth1";
    shell(&star, own);
    shell(&star, TYPED);
    let killed = Pid::from_raw(pid() as i32);
    kill(killed, Signal::SIGKILL).expect("it runs");
    let found = dead(killed);
    assert!(
        found.sentence.contains("/sys/fs/bpf/livedoctor/"),
        "{found:?}"
    );
    shell(&star, &found.repair.expect("a repair"));
    assert_eq!(find(&doctor(&star, &ports), "dead_instance"), None);
    assert!(printed(star.router(), &["route", "show"]).contains("fc00:77::/32 "));
    shell(
        &star,
        "sidestep stop && sidestep run --detach --mode tc eth0 eth1",
    );
    let _ = fs::remove_dir("/sys/fs/bpf/livedoctor");
    shell(&star, TYPED);
    let killed = Pid::from_raw(pid() as i32);
    kill(killed, Signal::SIGKILL).expect("it runs");
    dead(killed);
    assert_eq!(
        printed(star.router(), &["stop"]),
        "removed the programs and pins of a dead daemon; forwarding is back in the kernel\n"
    );
    assert_eq!(find(&doctor(&star, &ports), "dead_instance"), None);
    let left = crate::support::left::traces(star.router(), &["eth0", "eth1"]);
    assert!(left.are_none(), "{left:?}");

    // An upgrade: the file of the running program is replaced.
    let folder = std::env::temp_dir().join(format!("sidestep-old-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder");
    let old = folder.join("sidestep");
    fs::copy(program(), &old).expect("a copy");
    shell(
        &star,
        &format!("{} run --detach --mode tc eth0 eth1", old.display()),
    );
    assert_eq!(doctor(&star, &[]), []);
    fs::remove_dir_all(&folder).expect("the copy");
    let before = pid();
    let found = find(&doctor(&star, &[]), "program_replaced").expect("a replaced program");
    shell(&star, &found.repair.expect("a repair"));
    assert_ne!(pid(), before);
    assert_eq!(doctor(&star, &[]), []);
    let status: report::Status = report(star.router(), Request::ShowStatus);
    assert_eq!(status.origin, "adopted", "without packet loss");
    printed(star.router(), &["stop"]);
}

#[test]
fn the_log_and_show_status_have_what_doctor_finds() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = router("livedoctorlog");
    let run = ["run", "--detach", "--mode", "tc", "eth0", "eth1"];
    star.ip().run("link set dev eth1 down");
    let started = output(star.router(), &run);
    assert!(started.status.success(), "{}", text_of(&started));
    let line = "sidestep: error: port_down: port eth1 is down; repair: ip link set dev eth1 up";
    assert!(
        text_of(&started).lines().any(|it| it == line),
        "{}",
        text_of(&started)
    );
    let status: report::Status = report(star.router(), Request::ShowStatus);
    assert!(find(&status.problems, "port_down").is_some());
    assert!(printed(star.router(), &["show", "status"]).contains("port_down: port eth1 is down"));
    let log = crate::support::left::run_folder(star.router()).join("log");
    let has = |text: &str| {
        let log = fs::read_to_string(&log).expect("a log");
        // After the time.
        log.lines()
            .any(|line| line.get(21..) == Some(text))
            .then_some(())
    };
    eventually("it is logged", || {
        has("error   port_down: port eth1 is down; repair: ip link set dev eth1 up")
    });
    star.ip().run("link set dev eth1 up");
    eventually("it is logged", || {
        has("note    resolved: port_down: port eth1 is down")
    });

    // A full file becomes the former one. Its lines are as good as those of the daemon.
    let full = "x".repeat(600 << 10);
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(&log)
        .expect("the log");
    file.write_all(full.as_bytes()).expect("written");
    star.ip().run("link set dev eth1 down");
    let former = log.with_file_name("log.1");
    eventually("the former file and a new one", || {
        (former.exists() && log.exists()).then_some(())
    });
    eventually("a line in the new file", || {
        has("error   port_down: port eth1 is down; repair: ip link set dev eth1 up")
    });
    let length = |path: &Path| fs::metadata(path).map_or(0, |data| data.len());
    assert!(length(&log) < 1000, "{}", length(&log));
    assert!(length(&former) > 600 << 10);
    star.ip().run("link set dev eth1 up");
    printed(star.router(), &["stop"]);
    assert!(!former.exists());
}

#[test]
fn repairs_work_outside_the_namespace_of_n() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = router("livedoctorn");
    let (router, host) = (star.router(), star.host("a"));
    shell(&star, "sidestep run --detach --mode tc eth0 eth1 eth2");
    shell(&star, TYPED);
    let outside = |script: &str| {
        let folder = Path::new(program()).parent().expect("a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        let script = format!("export PATH={folder}:{path}; {script}");
        let output = host
            .command("sh")
            .args(["-c", &script])
            .output()
            .expect("sh starts");
        assert!(output.status.success(), "{script}: {}", text_of(&output));
    };
    for (code, seed) in [
        ("port_down", "ip link set dev eth2 down"),
        (
            "forwarding6_off",
            "sysctl -qw net.ipv6.conf.all.forwarding=0",
        ),
        (
            "xdp_on_veth",
            "sidestep stop --keep && sidestep run --detach --mode xdp-always eth0 eth1 eth2",
        ),
    ] {
        shell(&star, seed);
        let found = eventually(code, || {
            let printed = output(host, &["-n", router.name(), "doctor", "-j"]);
            let problems: Vec<Problem> = serde_json::from_slice(&printed.stdout).ok()?;
            find(&problems, code)
        });
        outside(&found.repair.expect("a repair"));
        eventually(code, || {
            find(&doctor(&star, &[]), code).is_none().then_some(())
        });
        assert!(printed(router, &["route", "show"]).contains("fc00:77::/32 "));
    }
    printed(router, &["stop"]);
}
