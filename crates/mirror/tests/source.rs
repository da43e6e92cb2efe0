//! The source address of packets that the node sends, compared with the kernel's choice.

mod common;

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use common::{assert_current, in_namespace, index, ip, sysctl, try_ip, two_pairs};
use sidestep_mirror::Mirror;
use sidestep_model::source::select;
use sidestep_testkit::random::Random;

/// First segments, each with the link toward it.
const SEGMENTS: [(&str, &str); 4] = [
    ("fc01::1", "va"),
    ("2001:db8:9::1", "va"),
    ("fc02::1", "vc"),
    ("2001:db8:1::9", "vc"),
];

fn add_segments() {
    for (to, dev) in SEGMENTS {
        ip(&format!("-6 route add {to}/128 via fe80::99 dev {dev}"));
    }
}

/// Returns the source that the kernel chooses for packets to an address.
fn of_kernel(to: &str) -> Option<Ipv6Addr> {
    let output = try_ip(&format!("-6 route get {to}"));
    assert!(output.status.success(), "route get {to}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut words = text.split_whitespace();
    words.find(|word| *word == "src")?;
    words.next()?.parse().ok()
}

/// Compares the sources for all segments. The kernel assigns an address a little later.
fn assert_sources(mirror: &mut Mirror, when: &str) {
    assert_current(mirror, when);
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        mirror.process().expect("process");
        let sources = SEGMENTS.map(|(to, dev)| {
            let segment = to.parse().expect("an address");
            let dev = Some(index(mirror, dev));
            (to, select(mirror.node(), dev, segment), of_kernel(to))
        });
        if sources.iter().all(|(_, own, kernel)| own == kernel) {
            return;
        }
        let candidates = &mirror.node().sources;
        assert!(
            Instant::now() < end,
            "{when}: {sources:?} of {candidates:#?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn sources_are_the_kernels_in_cases_that_have_been_reported() {
    in_namespace(|| {
        two_pairs();
        add_segments();
        let mut mirror = Mirror::open().unwrap();
        for command in [
            "addr add 2001:db8:1::1/64 dev va nodad",
            "addr add 2001:db8:1::5/64 dev va nodad",
            "addr change 2001:db8:1::5/64 dev va preferred_lft 0 valid_lft forever",
            "addr add 2001:db8:1::7/128 dev va nodad",
            "addr add 2001:db8:cafe::1/128 dev lo",
            "addr del fc00:1::1/64 dev va",
            "addr del 2001:db8:1::1/64 dev va",
            "addr del 2001:db8:1::7/128 dev va",
            "addr del 2001:db8:1::5/64 dev va",
            "addr add fc00:cafe::1/128 dev lo",
            "addr add fc00:cafe::2/128 dev lo",
            "addrlabel add prefix fc01::/16 label 1",
            "addrlabel add prefix 2001:db8:cafe::/48 dev lo label 5",
            "addrlabel del prefix fc00::/7 label 5",
        ] {
            ip(&format!("-6 {command}"));
            assert_sources(&mut mirror, command);
        }
        sysctl("ipv6/conf/va/use_oif_addrs_only", "1");
        assert_sources(&mut mirror, "with use_oif_addrs_only");
    });
}

#[test]
fn an_address_under_detection_and_one_kept_on_a_link_that_is_down_are_no_sources() {
    in_namespace(|| {
        two_pairs();
        add_segments();
        let mut mirror = Mirror::open().unwrap();
        ip("-6 addr add fc01::5/64 dev va nodad");
        sysctl("ipv6/conf/va/accept_dad", "1");
        ip("-6 addr add fc01::2/64 dev va");
        ip("-6 addr add fc01::9/64 dev va nodad");
        assert_sources(&mut mirror, "during the detection");
        std::thread::sleep(Duration::from_secs(2));
        assert_sources(&mut mirror, "after the detection");
        sysctl("ipv6/conf/vc/keep_addr_on_down", "1");
        ip("-6 addr add fc02::3/64 dev vc");
        ip("link set vc down");
        assert_current(&mut mirror, "after the link went down");
        ip("link set vc up");
        ip("-6 route replace fc02::1/128 via fe80::99 dev vc");
        ip("-6 route replace 2001:db8:1::9/128 via fe80::99 dev vc");
        assert_sources(&mut mirror, "after the link came back");
    });
}

/// Returns a random command.
fn command(random: &mut Random) -> String {
    let dev = *random.pick(&["lo", "va", "vc", "vd"]);
    let prefix = *random.pick(&[
        "fc01:",
        "fc02:",
        "2001:db8:1:",
        "2001:db8:9:",
        "fe80:",
        "fec0:",
    ]);
    let net = format!(
        "{prefix}:{:x}/{}",
        random.below(6) + 1,
        random.pick(&[16, 48, 64, 128])
    );
    match random.below(8) {
        0..=3 => format!("addr add {net} dev {dev} nodad"),
        4 => format!("addr change {net} dev {dev} nodad preferred_lft 0 valid_lft forever"),
        5 => format!("addr add {net} dev {dev} nodad preferred_lft 0 valid_lft forever"),
        6 => format!("addr del {net} dev {dev}"),
        _ => {
            let verb = random.pick(&["add", "del"]);
            format!("addrlabel {verb} prefix {net} label {}", random.below(3))
        }
    }
}

#[test]
fn sources_are_the_kernels_after_random_commands() {
    in_namespace(|| {
        two_pairs();
        add_segments();
        let mut mirror = Mirror::open().unwrap();
        let mut random = Random::new(6724);
        let mut done = 0;
        while done < 150 {
            let command = command(&mut random);
            if try_ip(&format!("-6 {command}")).status.success() {
                assert_sources(&mut mirror, &format!("after {done}: {command}"));
                done += 1;
            }
        }
    });
}
