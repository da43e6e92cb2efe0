//! Measures the packet path without interfaces, by `BPF_PROG_TEST_RUN` on golden vectors. The frame is
//! restored before each run, and the time of an empty program is subtracted (see
//! `sidestep_datapath::kernel::ProgramTime`).
//!
//! Three further columns are measured while `sidestep trace` runs. Column "other port": the packet
//! enters another port than the filter selects. Column "printed": every packet matches, and ten per
//! second are printed. Column "kept", the worst case: every packet may match until its verdict is
//! known, so its head and steps are kept.
//!
//! SR proxies are measured in both directions. "back" is a packet from the service, after the tables
//! have learned from earlier packets. A valid HMAC is in the cache; a wrong one is computed each time.
//!
//! `cargo run --release -p sidestep-control --example program_time
//! [PACKETS [--untraced] [BEHAVIOR...]]` as root. BEHAVIOR selects rows whose name contains it;
//! `--untraced` prints the first column only.

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::Path;

use common::{TestRuns, compile};
use sidestep_datapath::abi::Reason;
use sidestep_datapath::kernel::{Sampling, Target, TraceFilter};
use sidestep_model::config;
use sidestep_model::node::Node;
use sidestep_testkit::vectors::{Case, Expect, VectorFile};

/// A vector to measure.
struct Row {
    behavior: &'static str,
    group: &'static str,
    /// Name of the case. `None`: the first case with at least 78 bytes that is forwarded from
    /// interface 1.
    case: Option<&'static str>,
    /// Changes the text of the vector's node.
    node: fn(&str) -> String,
}

const fn first(group: &'static str, behavior: &'static str) -> Row {
    Row {
        behavior,
        group,
        case: None,
        node: str::to_owned,
    }
}

const fn named(group: &'static str, case: &'static str, behavior: &'static str) -> Row {
    Row {
        case: Some(case),
        ..first(group, behavior)
    }
}

const ROWS: &[Row] = &[
    first("forward_ipv6", "plain IPv6"),
    first("forward_ipv4", "plain IPv4"),
    first("end", "End"),
    first("end_x", "End.X"),
    first("end_t", "End.T"),
    first("end_dx2", "End.DX2"),
    first("end_dx4", "End.DX4"),
    first("end_dx6", "End.DX6"),
    first("end_dt_table", "End.DT4/6/46"),
    first("end_dt6", "End.DT6"),
    first("h_encaps", "H.Encaps"),
    first("h_encaps_red", "H.Encaps.Red"),
    first("h_encaps_l2", "H.Encaps.L2"),
    first("h_insert", "H.Insert"),
    named(
        "hmac_verify",
        "hmac_missing_where_it_is_not_required",
        "HMAC, none",
    ),
    named("hmac_verify", "hmac_sha256_over_1_segment", "HMAC over 1"),
    named("hmac_verify", "hmac_sha256_over_2_segments", "HMAC over 2"),
    named("hmac_verify", "hmac_sha256_over_4_segments", "HMAC over 4"),
    named(
        "hmac_verify",
        "hmac_sha256_over_10_segments",
        "HMAC over 10",
    ),
    named(
        "hmac_verify",
        "hmac_sha256_with_a_wrong_bit_in_octet_0",
        "HMAC, wrong",
    ),
    named(
        "hmac_verify",
        "hmac_sha1_with_a_wrong_bit_in_octet_0",
        "SHA-1, wrong",
    ),
    named(
        "hmac_sign",
        "hmac_signs_sha256_h_encaps_of_1",
        "HMAC, Encaps 1",
    ),
    named("hmac_sign", "hmac_signs_sha256_h_encaps_of_10", "of 10"),
    named(
        "hmac_sign",
        "hmac_signs_sha256_h_insert_of_1",
        "HMAC, Insert 1",
    ),
    named("hmac_sign", "hmac_signs_sha256_h_insert_of_9", "of 9"),
    named("end_as", "end_as_of_ipv6", "End.AS"),
    named("end_as", "end_as_back_of_ipv6", "End.AS, back"),
    named("end_ad", "end_ad_of_ipv6", "End.AD"),
    Row {
        node: |text| text.replace("nh6 fc02::1 dev", "nh6 fc02::1 age 1 dev"),
        ..named("end_ad", "end_ad_of_ipv6", "End.AD, age 1")
    },
    named("end_ad", "end_ad_back_of_ipv6", "End.AD, back"),
    named("end_ad_flows", "end_ad_flows_of_ipv6", "End.AD, flows"),
    named(
        "end_ad_flows",
        "end_ad_flows_back_by_the_chain_of_one_flow",
        "flows, back",
    ),
    Row {
        node: |text| beside(text, 80),
        ..named("end_ad", "end_ad_back_of_ipv6", "of 80, back")
    },
    Row {
        node: |text| beside(text, 160),
        ..named("end_ad", "end_ad_back_of_ipv6", "of 160, back")
    },
    Row {
        node: |text| beside(text, 1000),
        ..named("end_ad", "end_ad_back_of_ipv6", "of 1,000, back")
    },
    named(
        "end_am",
        "end_am_shows_the_service_the_last_segment",
        "End.AM",
    ),
    named(
        "end_am",
        "end_am_back_restores_the_active_segment",
        "End.AM, back",
    ),
];

/// Returns the node with this number of services, each with a port and a SID of its own.
fn beside(node: &str, services: usize) -> String {
    let (mut ports, mut routes) = (String::new(), String::new());
    for n in 1..services {
        // Writing to a String never fails.
        let _ = writeln!(
            ports,
            "  vnf{n}: {{mac: \"02:00:00:01:{:02x}:{:02x}\", addresses: [\"fd00::{n:x}:1/112\"], seg6_enabled: true}}",
            n >> 8,
            n & 0xff
        );
        let _ = writeln!(
            routes,
            "- \"fc0f::1:{n:x}/128 encap seg6local action End.AD oif vnf{n} nh6 fd00::{n:x}:2 dev vnf{n}\""
        );
    }
    node.replace("neighbors:\n", &format!("{ports}neighbors:\n"))
        .replace("routes:\n", &format!("routes:\n{routes}"))
}

fn ifindex(node: &Node, port: &str) -> Result<u32, Box<dyn Error>> {
    let link = node.link_by_name(port);
    Ok(link.ok_or_else(|| format!("no port {port}"))?.ifindex.0)
}

fn choose<'a>(row: &Row, node: &Node, file: &'a VectorFile) -> Result<&'a Case, Box<dyn Error>> {
    let fits = |case: &&Case| match row.case {
        Some(name) => case.name == name,
        None => {
            case.frame.len() >= 78
                && ifindex(node, &case.port).ok() == Some(1)
                && matches!(case.expect, Expect::Forward { .. })
        }
    };
    let case = file.cases.iter().find(fits);
    Ok(case.ok_or_else(|| format!("{}: no such vector in {}", row.behavior, row.group))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let packets = arguments
        .next()
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let (options, only): (Vec<String>, Vec<String>) =
        arguments.partition(|argument| argument == "--untraced");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let mut runs = TestRuns::load("time", Target::Xdp);
    println!(
        "{:<14} {:>8} {:>12} {:>8} {:>8}  vector",
        "behavior", "ns", "other port", "printed", "kept"
    );
    let other_port = TraceFilter {
        ifindex: Some(u32::MAX),
        ..TraceFilter::default()
    };
    let never = TraceFilter {
        reason: Reason::from_name("jumbogram"),
        ..TraceFilter::default()
    };
    let traces = [other_port, TraceFilter::default(), never];
    let sampling = Sampling {
        rate: NonZeroU32::new(10).ok_or("not 0")?,
        bytes: 512,
    };
    let chosen =
        |row: &&Row| only.is_empty() || only.iter().any(|part| row.behavior.contains(&**part));
    for row in ROWS.iter().filter(chosen) {
        let file = VectorFile::read(&directory.join(format!("{}.yaml", row.group)))?;
        let node = config::File::parse(&(row.node)(&file.node_text))?.node()?;
        let case = choose(row, &node, &file)?;
        let ingress = ifindex(&node, &case.port)?;
        runs.enter(&compile(&node).image, ingress);
        for (port, frame) in &case.earlier {
            runs.go_to(ifindex(&node, port)?);
            runs.run(frame).ok_or("a test run takes it")?;
        }
        runs.go_to(ingress);
        let kernel = runs.kernel();
        let time = kernel.program_time(Target::Xdp, &case.frame, packets)?;
        print!("{:<14} {:>8.1}", row.behavior, time.nanoseconds());
        let traces = if options.is_empty() { &traces[..] } else { &[] };
        for (filter, width) in traces.iter().zip([12, 8, 8]) {
            kernel.trace_start(filter, sampling)?;
            let time = kernel.program_time(Target::Xdp, &case.frame, packets)?;
            kernel.trace_stop()?;
            print!(" {:>width$.1}", time.nanoseconds());
        }
        println!("  {}", case.name);
    }
    Ok(())
}
