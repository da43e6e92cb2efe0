//! The gate at TC of a port with XDP: it leaves the frames that XDP has deferred to the packet path
//! (`datapath/gate.bpf.c`). All ports of an instance share the program array that names the packet
//! path.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use super::pins::{Folder, GATE_NEXT, pin_error};
use super::{Descriptor, Kernel, KernelError, Target, load};

/// Name of the program.
pub(super) const GATE_PROGRAM: &str = "sidestep_gate";

#[derive(Debug)]
pub(super) struct Gate {
    program: Descriptor,
    /// Program array of one entry. The kernel empties it when neither a process nor a pin has it.
    next: MapHandle,
}

impl Gate {
    /// Loads the gate on the pinned program array, or on a new one, which it pins.
    fn load(folder: &Folder) -> Result<Self, KernelError> {
        let next = folder.open_map(GATE_NEXT).ok();
        let object = load::load_gate(next.as_ref())?;
        let program = load::program(&object, GATE_PROGRAM)?;
        let next = if let Some(next) = next {
            next
        } else {
            let next = load::map(&object, "gate_next")?;
            folder.pin(GATE_NEXT, next.as_fd())?;
            next
        };
        Ok(Self { program, next })
    }

    /// Makes this program the packet path of deferred frames, on all ports at once.
    fn lead_to(&self, program: BorrowedFd<'_>) -> libbpf_rs::Result<()> {
        let descriptor = program.as_raw_fd().to_ne_bytes();
        self.next
            .update(&0u32.to_ne_bytes(), &descriptor, MapFlags::ANY)
    }
}

impl Kernel {
    /// Returns the program that a hook of a port runs: the packet path, or the gate in front of it.
    pub(super) fn attachable(&self, hook: Target) -> Result<BorrowedFd<'_>, KernelError> {
        let path = self.program(hook)?;
        if hook != Target::BehindXdp {
            return Ok(path);
        }
        if self.gate.get().is_none() {
            let _ = self.gate.set(Gate::load(&self.folder)?);
        }
        let gate = self.gate.get().expect("it is loaded");
        gate.lead_to(path).map_err(|source| {
            let place = self.folder.path().join(GATE_NEXT);
            pin_error("write", &place, std::io::Error::other(source))
        })?;
        Ok(gate.program.as_fd())
    }
}
