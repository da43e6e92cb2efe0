//! Filters in libpcap's language, as classic BPF programs.
//!
//! `tcpdump -ddd` compiles them. The kernel checks and runs them, as filters of a local socket.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use serde::{Deserialize, Serialize};
use sidestep_datapath::FRAME_MAX;

use crate::icmp::socket::set;

/// Instruction of classic BPF: `struct sock_filter` of `linux/filter.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instruction {
    /// Opcode.
    pub code: u16,
    /// Instructions to skip if a condition is true.
    pub jump_true: u8,
    /// Instructions to skip if a condition is false.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

/// Filter for Ethernet frames.
#[derive(Debug)]
pub struct PcapFilter {
    /// Frames enter here, ...
    input: OwnedFd,
    /// ... and those that match arrive here.
    output: OwnedFd,
}

impl PcapFilter {
    /// Loads a program into the kernel.
    ///
    /// # Errors
    /// The kernel refuses the program: it is invalid, or has more than 4096 instructions.
    pub fn new(program: &[Instruction]) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (input, output) = socketpair(AddressFamily::Unix, SockType::Datagram, None, flags)?;
        let length = program.len().try_into();
        let mut program: Vec<_> = program
            .iter()
            .map(|instruction| libc::sock_filter {
                code: instruction.code,
                jt: instruction.jump_true,
                jf: instruction.jump_false,
                k: instruction.operand,
            })
            .collect();
        let value = libc::sock_fprog {
            len: length.map_err(|_| io::Error::from(Errno::EINVAL))?,
            filter: program.as_mut_ptr(),
        };
        set(&output, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &value)?;
        Ok(Self { input, output })
    }

    /// Returns whether a frame matches. `frame` has its first bytes, and `length` is that of the
    /// whole frame. The filter reads the missing bytes as 0.
    ///
    /// # Errors
    /// The frame does not fit into the socket's send buffer.
    pub fn matches(&self, frame: &[u8], length: usize) -> io::Result<bool> {
        let mut whole = frame.to_vec();
        whole.resize(length.clamp(frame.len(), FRAME_MAX.max(frame.len())), 0);
        send(self.input.as_raw_fd(), &whole, MsgFlags::empty())?;
        // A frame that does not match is dropped without an error.
        match recv(self.output.as_raw_fd(), &mut [0], MsgFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the program whose instructions have these fields.
    fn program(instructions: &[(u16, u8, u8, u32)]) -> Vec<Instruction> {
        let instruction = |&(code, jump_true, jump_false, operand)| Instruction {
            code,
            jump_true,
            jump_false,
            operand,
        };
        instructions.iter().map(instruction).collect()
    }

    #[test]
    fn the_kernel_selects_frames_by_type_and_by_their_whole_length() {
        // `tcpdump -ddd -y EN10MB 'ip6 and greater 1000'`
        let filter = PcapFilter::new(&program(&[
            (40, 0, 0, 12),
            (21, 0, 3, 0x86dd),
            (128, 0, 0, 0),
            (53, 0, 1, 1000),
            (6, 0, 0, 262_144),
            (6, 0, 0, 0),
        ]))
        .expect("a valid program");
        let frame = |ethertype: u16| [&[0; 12][..], &ethertype.to_be_bytes()].concat();
        for (ethertype, length, expected) in [
            (0x86dd, 1000, true),
            (0x86dd, 999, false),
            (0x0800, 1000, false),
            (0x86dd, 1 << 20, true),
            (0x86dd, 0, false),
        ] {
            let found = filter.matches(&frame(ethertype), length);
            assert_eq!(found.ok(), Some(expected), "{ethertype:#x} {length}");
        }
    }

    #[test]
    fn the_kernel_refuses_a_program_that_is_invalid() {
        let accept = (6, 0, 0, 1);
        let cases = [
            ("empty", vec![]),
            ("no return", vec![(40, 0, 0, 12)]),
            ("jump out of the program", vec![(21, 9, 9, 0), accept]),
            ("unknown opcode", vec![(0xffff, 0, 0, 0), accept]),
            ("too long", vec![accept; 4097]),
            ("length above 16 bits", vec![accept; 65_537]),
        ];
        for (case, instructions) in cases {
            let error = PcapFilter::new(&program(&instructions)).expect_err(case);
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{case}");
        }
    }
}
