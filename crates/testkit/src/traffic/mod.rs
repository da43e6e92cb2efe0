//! Traffic for measurements: a generator at one end, a counting sink at the other.
//!
//! On a veth pair, one CPU runs generator, path and sink in one loop, so a rate is that of the
//! loop.

pub mod driver;
pub mod generator;
pub mod histogram;
mod interrupt;
mod program;
pub mod receiver;
pub mod redirect;
mod run;
pub mod schedule;
pub mod sink;
pub mod source;
pub mod stamp;
pub mod stream;
pub mod tally;
pub mod trial;

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use libbpf_rs::{Object, ObjectBuilder, OpenObject};

pub use driver::{Driver, Local};
pub use generator::Generator;
pub use interrupt::Interrupt;
pub use receiver::{Arrivals, Receiver};
pub use redirect::Redirect;
pub use sink::{Counts, Rate, Sink};
pub use source::{LiveFrames, Offer, Offered};
pub use stamp::Stamp;
pub use stream::{Distribution, Flows, Stream, Template};
pub use tally::Tally;
pub use trial::{Disorder, Latency, Load, Trial};

use crate::Error;
pub use crate::attach::Hook;

/// Opens an embedded object, without loading its maps and programs into the kernel.
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

const GENERATOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/generator.bpf.o"));
const RECEIVER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/receiver.bpf.o"));
const REDIRECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));
const SINK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sink.bpf.o"));
const TALLY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tally.bpf.o"));
