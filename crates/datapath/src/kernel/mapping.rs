//! A map in this process's memory, which packets read at the same time.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use libbpf_rs::{MapCore as _, MapHandle};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use sidestep_fib::Memory;

use super::KernelError;

/// The values of an array map, accessed only by aligned words of 8 bytes.
pub struct Mapping {
    start: NonNull<AtomicU64>,
    bytes: NonZeroUsize,
}

// SAFETY: only atomics are accessed through the pointer, and the mapping belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the single value of a mappable array map. As memory of a prefix table, its size must be
    /// a multiple of the line size.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn of_value(map: &MapHandle) -> Result<Self, KernelError> {
        Self::new(map, map.value_size() as usize)
    }

    /// Maps that many bytes, a multiple of 8: all values of an array map that can be mapped.
    pub(super) fn new(map: &MapHandle, bytes: usize) -> Result<Self, KernelError> {
        let failed = |source| KernelError::System {
            operation: "map a table into memory",
            source,
        };
        let bytes = NonZeroUsize::new(bytes)
            .filter(|bytes| bytes.get().is_multiple_of(8))
            .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap(
                None,
                bytes,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                map.as_fd(),
                0,
            )
        };
        Ok(Self {
            start: start.map_err(|errno| failed(errno.into()))?.cast(),
            bytes,
        })
    }
}

// SAFETY: one mapping as long as the value lives, aligned to a page.
unsafe impl Memory for Mapping {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is of that many bytes, which the kernel has for it, and only accessed
        // by atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes.get() / 8) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, used nowhere after this. It cannot fail with these
        // arguments.
        let _ = unsafe { munmap(self.start.cast(), self.bytes.get()) };
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
