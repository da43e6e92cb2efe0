//! RCU grace periods: the caller waits, or another thread waits while changes continue.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::KernelError;

/// Waits for RCU grace periods. After an update of a map in a map, the kernel waits for every
/// program that may still use the old map (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c, Linux
/// 4.20, made for this use).
#[derive(Debug)]
pub struct GracePeriod {
    outer: MapHandle,
    inner: MapHandle,
}

impl GracePeriod {
    /// Creates the maps that the wait needs.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> Result<Self, KernelError> {
        let failed = |source: libbpf_rs::Error| KernelError::System {
            operation: "make the maps that wait for a grace period",
            source: io::Error::other(source),
        };
        let mut options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let inner = MapHandle::create(MapType::Array, Some("sidestep_inner"), 4, 4, 1, &options)
            .map_err(failed)?;
        options.inner_map_fd = inner.as_fd().as_raw_fd() as u32;
        let outer = MapHandle::create(
            MapType::ArrayOfMaps,
            Some("sidestep_outer"),
            4,
            4,
            1,
            &options,
        )
        .map_err(failed)?;
        Ok(Self { outer, inner })
    }

    /// Returns when every program that ran at the call has ended.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self) -> Result<(), KernelError> {
        let fd = self.inner.as_fd().as_raw_fd().to_ne_bytes();
        self.outer
            .update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(|source| KernelError::System {
                operation: "wait for a grace period",
                source: io::Error::other(source),
            })
    }
}

/// Thread that waits for grace periods, one at a time.
#[derive(Debug, Default)]
pub(super) struct Background {
    waiter: Option<Waiter>,
    is_waiting: bool,
}

#[derive(Debug)]
struct Waiter {
    begin: Sender<()>,
    ended: Receiver<Result<(), KernelError>>,
}

impl Background {
    /// Returns whether a grace period has begun whose end was not yet reported.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Begins a grace period.
    pub(super) fn begin(&mut self) -> Result<(), KernelError> {
        let waiter = match self.waiter.take() {
            Some(waiter) => waiter,
            None => Waiter::start()?,
        };
        self.is_waiting = waiter.begin.send(()).is_ok();
        self.waiter = Some(waiter).filter(|_| self.is_waiting);
        Ok(())
    }

    /// Checks whether the grace period has ended. Returns true once per grace period.
    pub(super) fn has_ended(&mut self) -> Result<bool, KernelError> {
        let Some(waiter) = &self.waiter else {
            return Ok(false);
        };
        match waiter.ended.try_recv() {
            Ok(passed) => {
                self.is_waiting = false;
                passed.map(|()| true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            // The thread has ended: the next grace period uses a new one.
            Err(TryRecvError::Disconnected) => {
                *self = Self::default();
                Ok(false)
            }
        }
    }
}

impl Waiter {
    /// The thread ends when the request channel is closed.
    fn start() -> Result<Self, KernelError> {
        let grace_period = GracePeriod::new()?;
        let (begin, asked) = channel();
        let (end, ended) = channel();
        let wait = move || {
            while asked.recv().is_ok() {
                if end.send(grace_period.wait()).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("grace".into())
            .spawn(wait)
            .map_err(|source| KernelError::System {
                operation: "start the thread that waits for grace periods",
                source,
            })?;
        Ok(Self { begin, ended })
    }
}
