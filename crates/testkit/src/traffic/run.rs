//! A call of `BPF_PROG_TEST_RUN` with live frames on a thread pinned to a CPU. It runs until
//! stopped.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::thread::JoinHandleExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet};
use nix::unistd::Pid;

use crate::Error;
use crate::netns::Handle;

/// A run in progress, stopped on drop.
#[derive(Debug)]
pub(super) struct Run {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Run {
    /// Runs `program` on copies of `frame` in this namespace, in which the kernel then looks up
    /// redirects. Redirected frames are flushed once per `batch` runs.
    pub fn start(
        program: OwnedFd,
        frame: Vec<u8>,
        batch: u32,
        namespace: Handle,
        cpu: usize,
    ) -> Result<Self, Error> {
        install_wake_handler()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let (ready, started) = mpsc::sync_channel(1);
        let body = move || {
            let prepared = namespace.enter().and_then(|()| pin(cpu));
            let failed = prepared.is_err();
            // The starter waits for this message.
            let _ = ready.send(prepared);
            if failed {
                return Ok(());
            }
            run(&program, &frame, batch, &stop)
        };
        let thread = thread::Builder::new()
            .name(format!("traffic-{cpu}"))
            .spawn(body);
        let thread = thread.map_err(|source| Error::os("start the generator's thread", source))?;
        started
            .recv()
            .map_err(|_| Error::Usage("the generator's thread ended at once".into()))??;
        Ok(Self {
            stopping,
            thread: Some(thread),
        })
    }

    /// Returns whether the run is still in progress. If not, [`Self::stop`] returns the error.
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Ends the run. No packet is sent afterwards.
    ///
    /// # Errors
    /// The kernel refused live frames, which ended the run early.
    pub fn stop(&mut self) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.stopping.store(true, Ordering::Release);
        while !thread.is_finished() {
            // Send the signal repeatedly: one between the check of `stopping` and the system call
            // would be lost. SAFETY: the thread has not been joined, so its id is valid.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), wake_signal()) };
            thread::sleep(Duration::from_millis(1));
        }
        thread
            .join()
            .unwrap_or_else(|_| Err(Error::Usage("the generator's thread panicked".into())))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Call stop() for the result.
        let _ = self.stop();
    }
}

/// Binds the calling thread to a CPU with the highest ordinary priority, since CPU time of other
/// threads reduces the rate.
pub(super) fn pin(cpu: usize) -> Result<(), Error> {
    let mut set = CpuSet::new();
    let pinned = set
        .set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|source| Error::os(format!("pin the generator to CPU {cpu}"), source))?;
    // SAFETY: a system call without pointers. It sets the nice value of a thread; run without it if
    // the kernel refuses.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    Ok(())
}

/// Makes one endless call that a signal ends. Each call waits twice for an RCU grace period. With
/// small repeat counts this would take most of the time.
fn run(program: &OwnedFd, frame: &[u8], batch: u32, stop: &AtomicBool) -> Result<(), Error> {
    while !stop.load(Ordering::Acquire) {
        // SAFETY: plain data, all zeros is a value of it.
        let mut options: libbpf_sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of_val(&options) as _;
        options.data_in = frame.as_ptr().cast();
        options.data_size_in = frame.len() as u32;
        options.repeat = i32::MAX;
        options.batch_size = batch;
        options.flags = libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES;
        // SAFETY: an open descriptor, and a frame that lives until the call has returned.
        let result =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        if result != 0 && result != -libc::EINTR {
            return Err(Error::os(
                "run the generator with live frames",
                io::Error::from_raw_os_error(-result),
            ));
        }
    }
    Ok(())
}

/// Installs a signal handler that does nothing. The signal interrupts a system call; without a
/// handler it would terminate the process.
fn install_wake_handler() -> Result<(), Error> {
    extern "C" fn nothing(_: libc::c_int) {}
    static INSTALL: Once = Once::new();
    let mut result = Ok(());
    INSTALL.call_once(|| {
        let action = SigAction::new(
            SigHandler::Handler(nothing),
            SaFlags::empty(),
            SigSet::empty(),
        );
        let action: libc::sigaction = action.into();
        // SAFETY: the handler does nothing, so it is safe at any moment. SA_RESTART is not set, so
        // that the system call returns.
        if unsafe { libc::sigaction(wake_signal(), &raw const action, std::ptr::null_mut()) } != 0 {
            result = Err(Error::last_os("install the generator's signal handler"));
        }
    });
    result
}

/// A real-time signal, which the program does not use for anything else.
fn wake_signal() -> libc::c_int {
    libc::SIGRTMIN() + 7
}

/// Frames per batch, the default of the kernel.
pub(super) const BATCH: u32 = 64;
const NICE: libc::c_int = -20;
