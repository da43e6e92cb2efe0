//! The traffic generator: XDP live frames (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18) from one
//! pinned thread into one interface. The run itself reports nothing: count at the [`super::Sink`]. What was sent is known
//! when it has stopped.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::thread::JoinHandleExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use libbpf_rs::{MapCore as _, MapFlags, Object};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet};
use nix::unistd::Pid;

use super::{GENERATOR, configure, load, open, program};
use crate::{Error, Namespace};

/// How the packets of one generator differ: a big-endian 16-bit word that counts up and starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows {
    /// How many values the word takes, from the template's own upwards.
    pub count: u32,
    /// Offset of the word in the frame (a UDP source port).
    pub offset: usize,
    /// Offset of the Internet checksum that covers the word, to be kept right.
    pub checksum: Option<usize>,
}

impl Flows {
    /// Every packet is the template.
    pub const ONE: Self = Self {
        count: 1,
        offset: 0,
        checksum: None,
    };
}

/// What to send: a frame from its destination MAC on (without FCS) and how its copies differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    frame: Vec<u8>,
    flows: Flows,
}

impl Template {
    /// LIMIT: bytes from the front of the frame that are written anew in each packet. What a path changes behind them
    /// (a decapsulation never does) stays changed. `HEADER_MAX` of bpf/generator.bpf.c.
    pub const HEADER_MAX: usize = 256;
    /// LIMIT: the longest frame: what the kernel's live frames leave of a page.
    pub const FRAME_MAX: usize = 3000;

    /// Checks a frame and its flows.
    ///
    /// # Errors
    /// The frame is shorter than 14 or longer than [`Self::FRAME_MAX`] bytes; a varying word or checksum is not within
    /// the first [`Self::HEADER_MAX`] bytes; no flow; or the word would wrap around.
    pub fn new(frame: &[u8], flows: Flows) -> Result<Self, Error> {
        if !(14..=Self::FRAME_MAX).contains(&frame.len()) {
            let allowed = Self::FRAME_MAX;
            return Err(Error::Usage(format!(
                "a template of {} bytes; allowed are 14 to {allowed}",
                frame.len()
            )));
        }
        let header = frame.len().min(Self::HEADER_MAX);
        if flows.count > 1 {
            for offset in std::iter::once(flows.offset).chain(flows.checksum) {
                if offset + 2 > header {
                    return Err(Error::Usage(format!(
                        "a word at byte {offset} of a header of {header} bytes"
                    )));
                }
            }
        }
        let room = 0x1_0000 - u32::from(word(frame, flows.offset));
        if flows.count == 0 || flows.count > room {
            let count = flows.count;
            return Err(Error::Usage(format!(
                "{count} flows; allowed are 1 to {room}, where the word ends"
            )));
        }
        Ok(Self {
            frame: frame.to_owned(),
            flows,
        })
    }

    /// A template of one flow.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn one_flow(frame: &[u8]) -> Result<Self, Error> {
        Self::new(frame, Flows::ONE)
    }

    fn config(&self, ifindex: u32) -> Config {
        let mut header = [0; Self::HEADER_MAX];
        let length = self.frame.len().min(header.len());
        header[..length].copy_from_slice(&self.frame[..length]);
        Config {
            header,
            ifindex,
            header_length: length as u32,
            flows: self.flows.count,
            flow_offset: self.flows.offset as u32,
            checksum_offset: self.flows.checksum.unwrap_or(0) as u32,
            flow_base: word(&self.frame, self.flows.offset).into(),
            checksum_base: self
                .flows
                .checksum
                .map_or(0, |offset| word(&self.frame, offset).into()),
            reserved: 0,
        }
    }
}

/// A running generator; stopped when dropped.
#[derive(Debug)]
pub struct Generator {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64, Error>>>,
}

impl Generator {
    /// Sends `template` out of `ifname` as fast as one CPU can, from a thread pinned to `cpu`, until stopped. The other
    /// end of a veth must take XDP redirects: a [`super::Sink`], a [`super::Napi`], any XDP program, or GRO.
    ///
    /// # Errors
    /// No such interface or CPU, BPF is not allowed, or the kernel has no live frames (before 5.18).
    pub fn start(
        namespace: &Namespace,
        ifname: &str,
        template: &Template,
        cpu: usize,
    ) -> Result<Self, Error> {
        install_wake_handler()?;
        let ifindex = namespace.ifindex(ifname)?;
        let mut object = open(GENERATOR)?;
        let config = template.config(ifindex);
        configure(&mut object, "generator", config.bytes())?;
        let object = load(object)?;

        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let frame = template.frame.clone();
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        // The thread enters the namespace itself: redirects are looked up where the run is called from.
        let handle = namespace.handle();
        let body = move || {
            let prepared = handle.enter().and_then(|()| pin(cpu));
            let failed = prepared.is_err();
            // The starter waits for this message.
            let _ = ready.send(prepared);
            if failed {
                Ok(0)
            } else {
                run(&object, &frame, &stop)?;
                made(&object)
            }
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

    /// Ends the run. Returns how many frames it has made: with each of `count` flows in its turn, from the first on. All
    /// but those that did not fit the ring of a veth have been taken.
    ///
    /// # Errors
    /// What ended it before: the kernel refused live frames.
    pub fn stop(mut self) -> Result<u64, Error> {
        self.end()
    }

    /// Whether it still sends; if not, [`Self::stop`] says why.
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    fn end(&mut self) -> Result<u64, Error> {
        let Some(thread) = self.thread.take() else {
            return Ok(0);
        };
        self.stopping.store(true, Ordering::Release);
        while !thread.is_finished() {
            // Again and again: a signal between the look at `stopping` and the system call would be lost.
            // SAFETY: the thread has not been joined, so its id is valid.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), wake_signal()) };
            thread::sleep(Duration::from_millis(1));
        }
        thread
            .join()
            .unwrap_or_else(|_| Err(Error::Usage("the generator's thread panicked".into())))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // Whoever wants to know calls stop().
        let _ = self.end();
    }
}

fn pin(cpu: usize) -> Result<(), Error> {
    let mut set = CpuSet::new();
    let pinned = set
        .set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|source| Error::os(format!("pin the generator to CPU {cpu}"), source))
}

/// One endless call, ended by a signal: each call waits twice for an RCU grace period, which at small repeat counts is
/// most of the time.
fn run(object: &Object, frame: &[u8], stop: &AtomicBool) -> Result<(), Error> {
    let program = program(object, "generator")?;
    while !stop.load(Ordering::Acquire) {
        // SAFETY: plain data, all zeros is a value of it.
        let mut options: libbpf_sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of_val(&options) as _;
        options.data_in = frame.as_ptr().cast();
        options.data_size_in = frame.len() as u32;
        options.repeat = i32::MAX;
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

/// The frames that the program of one generator has made: `state.made` of bpf/generator.bpf.c.
fn made(object: &Object) -> Result<u64, Error> {
    let is_state = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".bss");
    let map = object.maps().find(|map| is_state(map.name()));
    let map = map.ok_or_else(|| Error::Usage("generator.bpf.c has no state".into()))?;
    let state = map
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| Error::bpf("count what the generator made", source))?;
    let made = state.and_then(|state| Some(*state.first_chunk()?));
    made.map(u64::from_ne_bytes).ok_or_else(|| {
        Error::Usage("generator.bpf.c and generator.rs disagree about `state`".into())
    })
}

/// A signal that does nothing but interrupt a system call; without a handler it would end the process.
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
        // SAFETY: the handler does nothing, so it is safe at any moment. Not SA_RESTART: the call shall end.
        if unsafe { libc::sigaction(wake_signal(), &raw const action, std::ptr::null_mut()) } != 0 {
            result = Err(Error::last_os("install the generator's signal handler"));
        }
    });
    result
}

/// A real-time signal: the usual ones are the program's own.
fn wake_signal() -> libc::c_int {
    libc::SIGRTMIN() + 7
}

fn word(frame: &[u8], offset: usize) -> u16 {
    frame
        .get(offset..offset + 2)
        .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// `struct config` of bpf/generator.bpf.c.
#[repr(C)]
struct Config {
    header: [u8; Template::HEADER_MAX],
    ifindex: u32,
    header_length: u32,
    flows: u32,
    flow_offset: u32,
    checksum_offset: u32,
    flow_base: u32,
    checksum_base: u32,
    reserved: u32,
}

impl Config {
    fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C) of u32 and u8 whose sizes leave no padding, all of it initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

const _: () = assert!(size_of::<Config>() == Template::HEADER_MAX + 8 * 4);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Hook, Napi, Sink};
    use crate::{FrameSocket, Lab, root_or_skip};

    const SECOND: Duration = Duration::from_secs(1);

    /// Not a multiple of 8, so that every store of the generator is used.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0x02; 12];
        frame.extend([0x88, 0xb5]);
        frame.extend(1..=93);
        frame
    }

    fn pair(name: &str) -> Lab {
        let mut lab = Lab::new(name).expect("lab");
        lab.node("a")
            .expect("a")
            .node("b")
            .expect("b")
            .link("a", "eth0", "b", "eth0")
            .expect("link");
        lab
    }

    #[test]
    fn a_template_that_the_generator_cannot_send_is_refused() {
        let flows = |count, offset, checksum| {
            Template::new(
                &frame(),
                Flows {
                    count,
                    offset,
                    checksum,
                },
            )
        };
        assert!(Template::one_flow(&[0; 13]).is_err());
        assert!(Template::one_flow(&[0; 3001]).is_err());
        assert!(flows(0, 14, None).is_err());
        assert!(flows(2, 106, None).is_err(), "one byte too far");
        assert!(flows(2, 14, Some(106)).is_err());
        assert!(
            flows(0xffff, 14, None).is_err(),
            "0x0102 + 0xfffe wraps around"
        );
        assert!(flows(0xfefe, 14, Some(16)).is_ok());
    }

    #[test]
    fn frames_are_the_template_in_every_flow_with_the_checksum_kept_right() {
        if !root_or_skip("frames_are_the_template_in_every_flow_with_the_checksum_kept_right") {
            return;
        }
        let lab = pair("generator");
        let far = lab.namespace("b").expect("b");
        let _napi = Napi::attach(far, "eth0").expect("NAPI");
        let socket = FrameSocket::open(far, "eth0").expect("socket");
        // A checksum that carries into its upper byte and around when flows are added to the sum.
        let mut template = frame();
        template[20..22].copy_from_slice(&[0x00, 0x01]);
        let flows = Flows {
            count: 3,
            offset: 16,
            checksum: Some(20),
        };
        let template_flows = Template::new(&template, flows).expect("template");
        let generator =
            Generator::start(lab.namespace("a").expect("a"), "eth0", &template_flows, 0)
                .expect("start");
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for _ in 0..30 {
            frames.push(
                socket
                    .receive(SECOND)
                    .expect("receive")
                    .expect("a frame within a second"),
            );
        }
        assert!(generator.is_running());
        generator.stop().expect("stop");
        // HC' = ~(~HC + flow): 0x0001, 0x0000, then the sum wraps: ~(0xfffe + 2) = ~(0x0000 + carry 1) = 0xfffe.
        for (flow, checksum) in [(0u8, 0x0001u16), (1, 0x0000), (2, 0xfffe)] {
            let mut expected = template.clone();
            expected[17] += flow;
            expected[20..22].copy_from_slice(&checksum.to_be_bytes());
            assert!(frames.contains(&expected), "flow {flow}");
            frames.retain(|frame| *frame != expected);
        }
        assert!(frames.is_empty(), "{frames:x?}");
    }

    #[test]
    fn what_is_generated_is_counted_at_either_hook_and_nothing_after_the_stop() {
        if !root_or_skip("what_is_generated_is_counted_at_either_hook_and_nothing_after_the_stop") {
            return;
        }
        let lab = pair("sink");
        let far = lab.namespace("b").expect("b");
        let template = Template::one_flow(&frame()).expect("template");
        for hook in [Hook::Xdp, Hook::Tc] {
            let _napi = (hook == Hook::Tc).then(|| Napi::attach(far, "eth0").expect("NAPI"));
            let sink = Sink::attach_at(far, "eth0", hook).expect("sink");
            let generator = Generator::start(lab.namespace("a").expect("a"), "eth0", &template, 0)
                .expect("start");
            let rate = sink.measure(Duration::from_millis(50)).expect("measure");
            let made = generator.stop().expect("stop");
            let counted = sink.count().expect("count");
            assert_eq!(
                sink.watch(Duration::from_millis(20))
                    .expect("watch")
                    .counts
                    .packets,
                0
            );
            assert!(counted.packets >= rate.counts.packets);
            assert!(made >= counted.packets - 10, "{made} made, {counted:?}");
            // The node at the other end may have said a word too (MLD).
            let bytes = counted.packets * frame().len() as u64;
            assert!(counted.bytes.abs_diff(bytes) < 1000, "{counted:?}");
        }
        // Both sinks are gone: the place is free again.
        Sink::attach(far, "eth0").expect("sink");
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        if !root_or_skip("an_interface_that_is_not_there_is_named") {
            return;
        }
        let lab = pair("missing");
        let template = Template::one_flow(&frame()).expect("template");
        let error = Generator::start(lab.namespace("a").expect("a"), "eth9", &template, 0)
            .expect_err("no eth9");
        assert!(
            error
                .to_string()
                .starts_with("interface eth9 of ss-missing"),
            "{error}"
        );
    }
}
