//! How long the program alone takes for one packet.
//!
//! `BPF_PROG_TEST_RUN` repeats a program on one buffer without restoring it (`bpf_test_run` in
//! `net/bpf/test_run.c`): the second run of an encapsulation encapsulates again, and the 64th of a
//! plain forward meets a hop limit of 1. So:
//!
//! - XDP ([`Method::Restored`]): `datapath/measure.bpf.c` puts the frame back (place, length and
//!   first bytes), drains the store buffer and tail-calls the program. The same is measured with
//!   the program that does nothing, whose frame is put back just the same, and subtracted. The
//!   difference is the program's time without the tail call. Caches are warm and branches learnt,
//!   as in every such figure: it is the time of a packet of a busy flow.
//! - TC ([`Method::Single`]): an skb that was encapsulated cannot be put back from a program. So
//!   single runs, each a system call of its own on a fresh skb, the clock read around each by the
//!   kernel, less the same of the program that does nothing. Between runs the kernel's own work
//!   cools caches: an upper bound, not to be compared with the figures for XDP.
//!
//! Either way the last frame out is compared with that of a single plain run: figures of anything
//! else are refused.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, Object};

use super::test_run::{TestRun, test_run};
use super::{Kernel, KernelError, Target, load};

/// LIMIT: bytes from the front of a measured frame that are put back: more than any behavior
/// writes. `MEASURE_HEAD_MAX` of `datapath/measure.bpf.c`.
const HEAD_MAX: usize = 512;
/// Rounds; the program and the empty one take turns, so that a change of clock frequency hits both.
const ROUNDS: usize = 9;

/// How a time was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Many runs in one call, the frame put back before each.
    Restored,
    /// Many calls of one run each.
    Single,
}

/// Nanoseconds per packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProgramTime {
    /// Time of the whole loop with the program: mean of the middle half.
    pub with_program: f64,
    /// The same with the program that does nothing.
    pub with_empty: f64,
    /// How it was taken.
    pub method: Method,
}

impl ProgramTime {
    /// Time of the program alone.
    pub fn nanoseconds(&self) -> f64 {
        self.with_program - self.with_empty
    }
}

impl Kernel {
    /// Time of the program of `target` for this frame, arriving on interface 1, over about `repeat`
    /// packets (a million takes a second). Counters count them.
    ///
    /// # Errors
    /// [`KernelError::Unmeasurable`] if the frame cannot be put back: it has bytes behind its IP
    /// packet.
    pub fn program_time(
        &self,
        target: Target,
        frame: &[u8],
        repeat: u32,
    ) -> Result<ProgramTime, KernelError> {
        match target {
            Target::Tc | Target::BehindXdp => self.single(frame, repeat),
            Target::Xdp => self.restored(frame, repeat),
        }
    }

    fn restored(&self, frame: &[u8], repeat: u32) -> Result<ProgramTime, KernelError> {
        let target = Target::Xdp;
        let expected = test_run(self.program(target)?, target, frame, 1)?;
        let object = load::load_measure()?;
        let measure = load::program(&object, "sidestep_measure")?;
        put(&object, "measure_frame", &restore_record(frame))?;

        let each = (repeat as usize / ROUNDS).max(1) as u32;
        let round = |program: BorrowedFd<'_>| -> Result<TestRun, KernelError> {
            put(
                &object,
                "measure_program",
                &program.as_raw_fd().to_ne_bytes(),
            )?;
            test_run(measure.as_fd(), target, frame, each)
        };
        let (mut program, mut empty) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let run = round(self.program(target)?)?;
            if (run.action, &run.frame) != (expected.action, &expected.frame) {
                return Err(KernelError::Unmeasurable {
                    why: format!(
                        "put back, it became {:?} with {} bytes instead of {:?} with {}; has it bytes behind its IP packet?",
                        run.action,
                        run.frame.len(),
                        expected.action,
                        expected.frame.len()
                    ),
                });
            }
            program.push(run.duration.as_nanos() as f64);
            empty.push(round(self.hook(target)?.empty.as_fd())?.duration.as_nanos() as f64);
        }
        Ok(ProgramTime {
            with_program: interquartile_mean(program),
            with_empty: interquartile_mean(empty),
            method: Method::Restored,
        })
    }

    fn single(&self, frame: &[u8], repeat: u32) -> Result<ProgramTime, KernelError> {
        let target = Target::Tc;
        let (mut program, mut empty) = (Vec::new(), Vec::new());
        for _ in 0..repeat.max(1) {
            for (of, times) in [
                (self.program(target)?, &mut program),
                (self.hook(target)?.empty.as_fd(), &mut empty),
            ] {
                times.push(test_run(of, target, frame, 1)?.duration.as_nanos() as f64);
            }
        }
        Ok(ProgramTime {
            with_program: interquartile_mean(program),
            with_empty: interquartile_mean(empty),
            method: Method::Single,
        })
    }
}

/// `struct measure_frame`: length of the frame, length of the head, head.
fn restore_record(frame: &[u8]) -> Vec<u8> {
    let head = frame.len().min(HEAD_MAX);
    let mut record = Vec::with_capacity(8 + HEAD_MAX + 8);
    record.extend((frame.len() as u32).to_ne_bytes());
    record.extend((head as u32).to_ne_bytes());
    record.extend(&frame[..head]);
    record.resize(8 + HEAD_MAX + 8, 0);
    record
}

/// Sets the only element of a map of the measuring object.
fn put(object: &Object, map: &str, value: &[u8]) -> Result<(), KernelError> {
    let map = object.maps().find(|m| m.name() == map);
    let map = map.expect("datapath/measure.bpf.c has that map: both are in this repository");
    map.update(&0u32.to_ne_bytes(), value, MapFlags::ANY)
        .map_err(|source| KernelError::System {
            operation: "prepare the measuring program",
            source: std::io::Error::other(source),
        })
}

/// Mean of the middle half. Interrupts cause a long upper tail, which affects the mean of all, and
/// a clock may count in steps of 10 ns, which affects the median.
fn interquartile_mean(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let quarter = times.len() / 4;
    let middle = &times[quarter..times.len() - quarter];
    middle.iter().sum::<f64>() / middle.len() as f64
}

#[cfg(test)]
mod tests {
    use crate::abi::{
        RouteId, SIDESTEP_PORT_FORWARD6, SIDESTEP_ROUTE_DROP, ViewId, sidestep_port, sidestep_route,
    };
    use sidestep_testkit::root_or_skip;

    use super::*;
    use crate::image::{FibKey, Image};
    use crate::kernel::Action;
    use crate::kernel::scratch::Scratch;

    #[test]
    fn the_middle_half_decides() {
        let mean = interquartile_mean(vec![1000.0, 10.0, 20.0, 0.0]);
        assert!((mean - 15.0).abs() < f64::EPSILON);
        assert!((interquartile_mean(vec![7.0]) - 7.0).abs() < f64::EPSILON);
    }

    const ATTEMPTS: usize = 8;

    /// A dropped packet is unchanged and can be repeated as it is: both methods must measure the
    /// same time.
    #[test]
    fn a_dropped_packet_takes_as_long_restored_as_repeated() {
        if !root_or_skip() {
            return;
        }
        let mut image = Image::default();
        let flags = SIDESTEP_PORT_FORWARD6;
        image.ports.insert(
            1,
            sidestep_port {
                ifindex: 1,
                flags,
                view6: ViewId(1),
                ..Default::default()
            },
        );
        let action = SIDESTEP_ROUTE_DROP as u8;
        image.routes.insert(
            RouteId(1),
            sidestep_route {
                action,
                reason: 15,
                ..Default::default()
            },
        );
        image.fib.insert(
            FibKey {
                view: ViewId(1),
                address: [0; 16],
                length: 0,
            },
            RouteId(1),
        );

        // A UDP packet from fd00::1 to fd00::2.
        let mut frame = vec![0; 14 + 40 + 8];
        frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, 0]);
        frame[19..22].copy_from_slice(&[8, 17, 64]);
        (frame[22], frame[37], frame[38], frame[53]) = (0xfd, 1, 0xfd, 2);

        let scratch = Scratch::new("same");
        scratch.run(|| {
            let mut kernel = scratch.load();
            kernel.apply(&Image::default(), &image).expect("apply");
            let repeated = |program| {
                let runs = (0..ROUNDS).map(|_| test_run(program, Target::Xdp, &frame, 100_000));
                let runs: Vec<_> = runs.collect::<Result<_, _>>().expect("test run");
                assert!(runs.iter().all(|run| run.action == Action::Drop));
                let times = runs.iter().map(|run| run.duration.as_nanos() as f64);
                interquartile_mean(times.collect())
            };
            // A busy machine disturbs either, but not each time.
            let mut attempts = Vec::new();
            let agree = (0..ATTEMPTS).any(|_| {
                let program = repeated(kernel.program(Target::Xdp).expect("load"));
                let repeated =
                    program - repeated(kernel.hook(Target::Xdp).expect("load").empty.as_fd());
                let restored = kernel.program_time(Target::Xdp, &frame, 900_000);
                let restored = restored.expect("time").nanoseconds();
                attempts.push((repeated, restored));
                (repeated - restored).abs() < 10.0 + repeated / 2.0
            });
            assert!(agree, "ns as it is and put back: {attempts:?}");
        });
    }
}
