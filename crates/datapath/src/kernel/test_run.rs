//! One frame through a kernel target, without an interface: `BPF_PROG_TEST_RUN`.
//!
//! In such a run the frame arrives on the loopback interface, whose index is 1 in every network
//! namespace. The kernel does not report the target of a redirect. The caller therefore has a port
//! 1 in the tables and compares the `sent_packets` counters before and after.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::{Kernel, KernelError, Target, sys};
use crate::FRAME_MAX;

/// Interface index that a frame of a test run arrives on.
pub const TEST_RUN_IFINDEX: u32 = 1;

/// Space for headers in front of the longest frame.
const GROWTH: usize = 1024;

/// Return code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sent out of an interface.
    Forward,
    /// Punted to the kernel.
    Kernel,
    /// Dropped.
    Drop,
    /// A return code that the packet path never gives.
    Unknown(u32),
}

/// Result of a test run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// Result of the last run.
    pub action: Action,
    /// The frame as it is after the last run.
    pub frame: Vec<u8>,
    /// Mean time of one run by the kernel's clock, including the call of the program and the loop
    /// around it.
    pub duration: Duration,
}

impl Kernel {
    /// Runs the program of `target` on `frame` as if it had arrived on interface 1
    /// ([`TEST_RUN_IFINDEX`]). With `repeat` above 1, each run gets the frame that the previous run
    /// left. To measure, see [`Kernel::program_time`].
    ///
    /// # Errors
    /// [`KernelError::TestRun`]: the kernel takes frames of 14 bytes and more; in XDP more than 3.5
    /// KiB go into fragments, in TC they are refused.
    pub fn test_run(
        &self,
        target: Target,
        frame: &[u8],
        repeat: u32,
    ) -> Result<TestRun, KernelError> {
        test_run(self.program(target)?, target, frame, repeat)
    }
}

pub(super) fn test_run(
    program: BorrowedFd<'_>,
    target: Target,
    frame: &[u8],
    repeat: u32,
) -> Result<TestRun, KernelError> {
    let failed = |source| KernelError::TestRun { target, source };
    if frame.len() > FRAME_MAX {
        let text = format!(
            "a frame of {} bytes; at most {FRAME_MAX} are possible",
            frame.len()
        );
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, text)));
    }
    let mut out = vec![0; frame.len() + GROWTH];
    let result = sys::test_run(program, frame, &mut out, repeat).map_err(failed)?;
    out.truncate(result.length);
    Ok(TestRun {
        action: action(target, result.action),
        frame: out,
        duration: Duration::from_nanos(result.nanoseconds.into()),
    })
}

/// The return codes of `linux/bpf.h` (`enum xdp_action`) and `linux/pkt_cls.h` (`TC_ACT_*`).
fn action(target: Target, code: u32) -> Action {
    let [forward, kernel, drop] = match target {
        // REDIRECT, UNSPEC (-1), SHOT.
        Target::Tc | Target::BehindXdp => [7, u32::MAX, 2],
        Target::Xdp => [
            libbpf_sys::XDP_REDIRECT,
            libbpf_sys::XDP_PASS,
            libbpf_sys::XDP_DROP,
        ],
    };
    match code {
        code if code == forward => Action::Forward,
        code if code == kernel => Action::Kernel,
        code if code == drop => Action::Drop,
        code => Action::Unknown(code),
    }
}
