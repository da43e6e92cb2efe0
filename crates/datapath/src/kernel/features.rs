//! Optional features of the running kernel, detected by trial. A distribution may backport a
//! feature to an old kernel, or build a new kernel without it.

use std::os::fd::AsFd as _;

use libbpf_sys::{BPF_FUNC_xdp_get_buff_len, BPF_TCX_INGRESS};

use super::{Descriptor, KernelError, load, sys};

/// The oldest version that all tests run on (`./dev test-kernel`).
pub(super) const OLDEST: &str = "6.1";

/// Optional features of the running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `bpf_skb_adjust_room` takes an IPv6 header off an IPv4 packet (Linux 6.3). Without it, TC
    /// does so in two steps.
    pub decap_l3: bool,
    /// TC programs are attached by links (tcx, Linux 6.6). Without tcx, a filter of a clsact qdisc
    /// attaches them.
    pub tcx: bool,
}

impl Features {
    /// Probes all features.
    pub(super) fn probe() -> Result<Self, KernelError> {
        let probe = load::load_probe()?;
        let program = load::program(&probe, "sidestep_decap")?;
        Ok(Self {
            decap_l3: returns_0(&program)?,
            tcx: sys::tcx_programs(LOOPBACK, BPF_TCX_INGRESS).is_ok(),
        })
    }
}

/// Returns the first feature that the packet path requires and this kernel lacks.
pub(super) fn lacks() -> Option<&'static str> {
    let needed = [(
        BPF_FUNC_xdp_get_buff_len,
        "XDP for frames in fragments (the BPF helper bpf_xdp_get_buff_len, Linux 5.18)",
    )];
    needed
        .into_iter()
        .find(|(helper, _)| !sys::xdp_has_helper(*helper))
        .map(|(_, words)| words)
}

/// Returns whether a program of `datapath/probe.bpf.c` ran successfully.
fn returns_0(program: &Descriptor) -> Result<bool, KernelError> {
    let frame = ipv4_in_ipv6();
    let run = sys::test_run(program.as_fd(), &frame, &mut vec![0; frame.len()], 1);
    run.map(|run| run.action == 0)
        .map_err(|source| KernelError::System {
            operation: "run the probing program",
            source,
        })
}

/// Returns an Ethernet frame with an empty IPv4 packet in IPv6.
fn ipv4_in_ipv6() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
    frame.extend([0x60, 0, 0, 0, 0, 20, 4, 64]);
    frame.extend([0; 32]);
    frame.extend([0x45, 0, 0, 20]);
    frame.extend([0; 16]);
    frame
}

/// Index of the loopback device of every network namespace.
const LOOPBACK: u32 = 1;
