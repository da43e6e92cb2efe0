//! What the packet path alone costs a packet: `BPF_PROG_TEST_RUN`, the frame put back before each run, less a program
//! that does nothing (see `sidestep_datapath::kernel::ProgramTime`). The packets are golden vectors. Beside it, what the
//! same packet costs while `sidestep trace` runs: if it comes in by another port than the filter's; if every packet fits and
//! ten a second are told; and at worst, if every packet could fit until its verdict is known, so that the head and the steps
//! of each are kept.
//!
//! `cargo run --release -p sidestep-control --example program_time [PACKETS]` as root.

use std::collections::BTreeSet;
use std::error::Error;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use sidestep_abi::Reason;
use sidestep_control::compile::Compiler;
use sidestep_datapath::kernel::{Kernel, Sampling, Target, TraceFilter};
use sidestep_datapath::{Image, Limits};
use sidestep_lab::vectors::VectorFile;
use sidestep_model::config;

/// Vector, and what it stands for.
const PACKETS: &[(&str, &str)] = &[
    ("forward_ipv6", "plain IPv6"),
    ("forward_ipv4", "plain IPv4"),
    ("end", "End"),
    ("end_x", "End.X"),
    ("end_t", "End.T"),
    ("end_dx2", "End.DX2"),
    ("end_dx4", "End.DX4"),
    ("end_dx6", "End.DX6"),
    ("end_dt_table", "End.DT4/6/46"),
    ("end_dt6", "End.DT6"),
    ("h_encaps", "H.Encaps"),
    ("h_encaps_red", "H.Encaps.Red"),
    ("h_encaps_l2", "H.Encaps.L2"),
    ("h_insert", "H.Insert"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let packets = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let pins = PathBuf::from(format!("/sys/fs/bpf/sidestep-time-{}", std::process::id()));
    let mut kernel = Kernel::load(Limits::default(), &pins)?;
    println!(
        "{:<14} {:>8} {:>12} {:>8} {:>8}  vector",
        "behavior", "ns", "other port", "told", "kept"
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
    for (group, name) in PACKETS {
        let file = VectorFile::read(&directory.join(format!("{group}.yaml")))?;
        let node = config::File::parse(&file.node_text)?.node()?;
        let ports: BTreeSet<_> = node.links.keys().copied().collect();
        let image = Compiler::new(Limits::default())
            .compile(&node, &ports)?
            .image;
        let first = node
            .links
            .values()
            .find(|link| link.ifindex.0 == 1)
            .ok_or("a port 1")?
            .name
            .clone();
        kernel.apply(&Image::default(), &image)?;
        let forwarded = |case: &&sidestep_lab::vectors::Case| {
            case.port == first
                && case.frame.len() >= 78
                && matches!(case.expect, sidestep_lab::vectors::Expect::Forward { .. })
        };
        if let Some(case) = file.cases.iter().find(forwarded) {
            let time = kernel.program_time(Target::Xdp, &case.frame, packets)?;
            print!("{name:<14} {:>8.1}", time.nanoseconds());
            for (filter, width) in traces.iter().zip([12, 8, 8]) {
                kernel.trace_start(filter, sampling)?;
                let time = kernel.program_time(Target::Xdp, &case.frame, packets)?;
                kernel.trace_stop()?;
                print!(" {:>width$.1}", time.nanoseconds());
            }
            println!("  {}", case.name);
        }
        kernel.apply(&image, &Image::default())?;
    }
    kernel.detach_all()?;
    let _ = std::fs::remove_dir(&pins);
    Ok(())
}
