//! Traffic for measurements: a generator at one end, a counting sink at the other.
//!
//! On a veth pair the generator, the path under test and the sink all run in the loop of the generator's CPU, so a rate
//! is that of the whole loop.

pub mod generator;
pub mod redirect;
pub mod sink;
pub mod tally;
pub mod trial;

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{Object, ObjectBuilder, OpenObject};

pub use generator::{Flows, Generator, Template};
pub use redirect::Redirect;
pub use sink::{Counts, Hook, Rate, Sink};
pub use tally::Tally;
pub use trial::{Latency, Load, Trial};

use crate::{Error, Namespace};

/// Makes a veth receive XDP redirects without joining packets as GRO does: its NAPI runs while this is held.
#[derive(Debug)]
pub struct Napi {
    _link: OwnedFd,
}

impl Napi {
    /// Attaches an XDP program that passes everything to the stack.
    ///
    /// # Errors
    /// No such interface, another XDP program is there, or BPF is not allowed.
    pub fn attach(namespace: &Namespace, ifname: &str) -> Result<Self, Error> {
        let object = load(open(SINK)?)?;
        let link = attach_xdp(program(&object, "pass")?, namespace, ifname)?;
        Ok(Self { _link: link })
    }
}

/// An embedded object, before its maps and programs are in the kernel.
fn open(bytes: &[u8]) -> Result<OpenObject, Error> {
    ObjectBuilder::default()
        .open_memory(bytes)
        .map_err(|source| Error::bpf("open an embedded BPF object", source))
}

/// Writes the read-only `config` of an object that is not loaded yet.
fn configure(object: &mut OpenObject, source: &str, config: &[u8]) -> Result<(), Error> {
    let mut rodata = object
        .maps_mut()
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    match rodata.as_mut().and_then(|map| map.initial_value_mut()) {
        Some(value) if value.len() == config.len() => {
            value.copy_from_slice(config);
            Ok(())
        }
        _ => Err(Error::Usage(format!(
            "{source}.bpf.c and {source}.rs disagree about `config`"
        ))),
    }
}

fn load(object: OpenObject) -> Result<Object, Error> {
    object
        .load()
        .map_err(|source| Error::bpf("load the lab's BPF programs", source))
}

fn program<'a>(object: &'a Object, name: &str) -> Result<BorrowedFd<'a>, Error> {
    let found = object.progs().find(|program| program.name() == name);
    let program =
        found.ok_or_else(|| Error::Usage(format!("no BPF program {name} in the object")))?;
    // SAFETY: the descriptor belongs to the object, which outlives the borrow.
    Ok(unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) })
}

/// Attaches in the driver, never in the generic path, which would be another measurement. Detached when closed.
fn attach_xdp(
    program: BorrowedFd<'_>,
    namespace: &Namespace,
    ifname: &str,
) -> Result<OwnedFd, Error> {
    let ifindex = namespace.ifindex(ifname)?;
    let started = Instant::now();
    let attach = || {
        // SAFETY: plain data, all zeros is a value of it.
        let mut options: libbpf_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of_val(&options) as _;
        options.flags = libbpf_sys::XDP_FLAGS_DRV_MODE;
        let (fd, ifindex, kind) = (program.as_raw_fd(), ifindex as i32, libbpf_sys::BPF_XDP);
        // SAFETY: an open descriptor, and options that live until the call has returned.
        let link = unsafe { libbpf_sys::bpf_link_create(fd, ifindex, kind, &raw const options) };
        if link < 0 {
            return Err(io::Error::from_raw_os_error(-link));
        }
        // SAFETY: a new descriptor that nobody else knows.
        Ok(unsafe { OwnedFd::from_raw_fd(link) })
    };
    let attached = namespace.run(|| {
        loop {
            match attach() {
                // The program that was there is still held by a child of another thread, which will close it by exec.
                Err(busy)
                    if busy.raw_os_error() == Some(libc::EBUSY) && started.elapsed() < HELD =>
                {
                    thread::sleep(Duration::from_millis(1));
                }
                attached => return attached,
            }
        }
    })?;
    attached.map_err(|source| {
        Error::os(
            format!("attach XDP to {ifname} of {}", namespace.name()),
            source,
        )
    })
}

/// How long a child may take from fork to exec on a busy machine.
const HELD: Duration = Duration::from_millis(500);

const GENERATOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/generator.bpf.o"));
const REDIRECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));
const SINK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sink.bpf.o"));
const TALLY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tally.bpf.o"));
