//! A veth that receives XDP redirects.

use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};

use crate::attach::Attachment;
use crate::{Error, Namespace};

/// Makes a veth receive XDP redirects until it is dropped. NAPI runs, but does not merge packets as
/// GRO does.
#[derive(Debug)]
pub struct Napi {
    _attached: Attachment,
}

impl Napi {
    /// Attaches an XDP program that passes everything to the stack.
    ///
    /// # Errors
    /// The interface does not exist, has an XDP program already, or BPF is not allowed.
    pub fn attach(namespace: &Namespace, ifname: &str) -> Result<Self, Error> {
        let program = pass()?;
        let attached = Attachment::xdp(program.as_fd(), namespace, ifname)?;
        Ok(Self {
            _attached: attached,
        })
    }
}

/// Loads `return XDP_PASS`.
fn pass() -> Result<OwnedFd, Error> {
    // SAFETY: plain data, for which zeros are a value: two instructions and options.
    let (mut instructions, mut options): (
        [libbpf_sys::bpf_insn; 2],
        libbpf_sys::bpf_prog_load_opts,
    ) = unsafe { std::mem::zeroed() };
    // r0 = XDP_PASS
    instructions[0].code = (libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K) as u8;
    instructions[0].imm = libbpf_sys::XDP_PASS as i32;
    instructions[1].code = (libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT) as u8;
    options.sz = size_of_val(&options) as _;
    options.prog_flags = libbpf_sys::BPF_F_XDP_HAS_FRAGS;
    // SAFETY: terminated strings, and instructions and options that live until the call has returned.
    let program = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"pass".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            (&raw const options).cast_mut(),
        )
    };
    if program < 0 {
        let source = std::io::Error::from_raw_os_error(-program);
        return Err(Error::os(
            "load an XDP program that passes all packets",
            source,
        ));
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}
