//! The generator's BPF program: its parameters and its counters.

use std::os::fd::{AsFd as _, OwnedFd};

use libbpf_rs::{Map, MapCore as _, MapFlags, Object};

use super::receiver::Receiver;
use super::stamp::Stamp;
use super::stream::{Stream, Template, header_length, word};
use super::{GENERATOR, configure, load, open, program};
use crate::Error;

/// The loaded bpf/generator.bpf.c, with one stream for one interface.
#[derive(Debug)]
pub(super) struct Program {
    object: Object,
    frame: Vec<u8>,
}

impl Program {
    /// Loads the program for copies of one template, without stamps.
    pub fn of_template(template: &Template, ifindex: u32) -> Result<Self, Error> {
        let mut config = Config::new(ifindex, template);
        config.header_length = template.frame().len().min(Template::HEADER_MAX) as u32;
        let checksum = |offset| word(template.frame(), offset);
        let checksum = template.flows().checksum.map_or(0, checksum);
        config.templates[0] = ConfigTemplate::new(template, checksum, [0; Stamp::LENGTH]);
        Self::load(&config, template.frame(), &[], None)
    }

    /// Loads the program for a stream. All generators of a trial share the gate of the `first` one.
    pub fn of_stream(stream: &Stream, ifindex: u32, first: Option<&Self>) -> Result<Self, Error> {
        let (templates, schedule) = (stream.templates(), stream.schedule());
        let (shortest, longest) = (&templates[0], &templates[templates.len() - 1]);
        let mut config = Config::new(ifindex, longest);
        config.header_length = header_length(shortest) as u32;
        config.count = templates.len() as u32;
        config.stamped = 1;
        config.slots = schedule.len() as u32;
        for (place, template) in config.templates.iter_mut().zip(templates) {
            let end = template.frame().len();
            let behind = longest.frame()[..end].last_chunk().copied();
            let checksum = |offset| template.checksum_without_stamp(offset);
            let checksum = template.flows().checksum.map_or(0, checksum);
            *place = ConfigTemplate::new(template, checksum, behind.unwrap_or_default());
            place.odd = template.stamp_is_odd().into();
        }
        Self::load(&config, longest.frame(), schedule, first)
    }

    fn load(
        config: &Config,
        frame: &[u8],
        schedule: &[u32],
        first: Option<&Self>,
    ) -> Result<Self, Error> {
        let mut object = open(GENERATOR)?;
        configure(&mut object, "generator", config.bytes())?;
        let refused = |source| Error::bpf("load a generator's schedule", source);
        if let Some(mut map) = object.maps_mut().find(|map| map.name() == "schedule") {
            map.set_max_entries(schedule.len().max(1) as u32)
                .map_err(refused)?;
        }
        if let Some(first) = first {
            let shared = first.gate()?;
            let refused = |source| Error::bpf("share a generator's gate", source);
            let mut maps = object.maps_mut();
            let mut own = maps
                .find(|map| map.name() == GATE)
                .ok_or_else(|| disagree(GATE))?;
            own.reuse_fd(shared.as_fd()).map_err(refused)?;
        }
        let object = load(object)?;
        if !schedule.is_empty() {
            let map = object.maps().find(|map| map.name() == "schedule");
            let map =
                map.ok_or_else(|| Error::Usage("generator.bpf.c has no map `schedule`".into()))?;
            let keys: Vec<u8> = (0..schedule.len() as u32)
                .flat_map(u32::to_ne_bytes)
                .collect();
            let values: Vec<u8> = schedule
                .iter()
                .copied()
                .flat_map(u32::to_ne_bytes)
                .collect();
            let count = schedule.len() as u32;
            map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)
                .map_err(refused)?;
        }
        Ok(Self {
            object,
            frame: frame.to_owned(),
        })
    }

    /// Returns the frame that each run starts with.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Returns a new file descriptor of the program.
    pub fn descriptor(&self) -> Result<OwnedFd, Error> {
        let program = program(&self.object, "generator")?;
        program
            .try_clone_to_owned()
            .map_err(|source| Error::os("duplicate a program's descriptor", source))
    }

    /// Closes the gate before the next trial of the generators that share it. No run may be in
    /// progress.
    pub fn close_gate(&mut self) -> Result<(), Error> {
        self.gate()?
            .update(&0u32.to_ne_bytes(), &[0; GATE_LENGTH], MapFlags::ANY)
            .map_err(|source| Error::bpf("close the generators' gate", source))
    }

    /// Returns the number of generators that have reached the gate since it was closed.
    #[cfg(test)]
    pub fn waiting(&self) -> Result<usize, Error> {
        let gate = self.gate()?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let gate = gate.map_err(|source| Error::bpf("read the generators' gate", source))?;
        let gate = gate.ok_or_else(|| disagree(GATE))?;
        let (seen, _) = gate[8..].as_chunks::<8>();
        Ok(seen
            .iter()
            .filter(|it| u64::from_ne_bytes(**it) > 0)
            .count())
    }

    fn gate(&self) -> Result<Map<'_>, Error> {
        let map = self.object.maps().find(|map| map.name() == GATE);
        map.ok_or_else(|| disagree(GATE))
    }

    /// Sets the parameters of the next run. No run may be in progress.
    pub fn set(&mut self, state: &State) -> Result<(), Error> {
        self.state_map()?
            .update(&0u32.to_ne_bytes(), state.bytes(), MapFlags::ANY)
            .map_err(|source| Error::bpf("set the generator's parameters", source))
    }

    /// Returns the counters of a run, also during the run.
    pub fn state(&self) -> Result<State, Error> {
        let value = self
            .state_map()?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| Error::bpf("read the generator's counters", source))?;
        value
            .and_then(|value| State::read(&value))
            .ok_or_else(|| disagree("state"))
    }

    fn state_map(&self) -> Result<Map<'_>, Error> {
        let is_state = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".bss");
        let map = self.object.maps().find(|map| is_state(map.name()));
        map.ok_or_else(|| disagree("state"))
    }
}

/// Name of the map that all generators of a trial share.
const GATE: &str = "gate_of_all";
/// Bytes of `struct gate` of bpf/generator.bpf.c.
const GATE_LENGTH: usize = 8 + 8 * Receiver::SOURCES_MAX as usize;

fn disagree(what: &str) -> Error {
    Error::Usage(format!(
        "generator.bpf.c and program.rs disagree about `{what}`"
    ))
}

/// `struct template` of bpf/generator.bpf.c.
#[repr(C)]
#[derive(Clone, Copy)]
struct ConfigTemplate {
    header: [u8; Template::HEADER_MAX],
    behind: [u8; Stamp::LENGTH],
    length: u32,
    checksum_base: u32,
    odd: u32,
    reserved: u32,
}

impl ConfigTemplate {
    const NONE: Self = Self {
        header: [0; Template::HEADER_MAX],
        behind: [0; Stamp::LENGTH],
        length: 0,
        checksum_base: 0,
        odd: 0,
        reserved: 0,
    };

    fn new(template: &Template, checksum_base: u16, behind: [u8; Stamp::LENGTH]) -> Self {
        let mut new = Self::NONE;
        let length = template.frame().len().min(Template::HEADER_MAX);
        new.header[..length].copy_from_slice(&template.frame()[..length]);
        new.behind = behind;
        new.length = template.frame().len() as u32;
        new.checksum_base = checksum_base.into();
        new
    }
}

/// `struct config` of bpf/generator.bpf.c.
#[repr(C)]
struct Config {
    templates: [ConfigTemplate; Stream::TEMPLATES_MAX],
    count: u32,
    ifindex: u32,
    header_length: u32,
    flows: u32,
    flow_offset: u32,
    flow_base: u32,
    checksum_offset: u32,
    stamped: u32,
    slots: u32,
    reserved: u32,
}

impl Config {
    fn new(ifindex: u32, template: &Template) -> Self {
        let flows = template.flows();
        Self {
            templates: [ConfigTemplate::NONE; Stream::TEMPLATES_MAX],
            count: 1,
            ifindex,
            header_length: 0,
            flows: flows.count,
            flow_offset: flows.offset as u32,
            flow_base: word(template.frame(), flows.offset).into(),
            checksum_offset: flows.checksum.unwrap_or(0) as u32,
            stamped: 0,
            slots: 0,
            reserved: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C) of u32 and u8 whose sizes leave no padding, all of it initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// `state` of bpf/generator.bpf.c.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub made: u64,
    pub first: u64,
    pub began: u64,
    pub now: u64,
    pub ended: u64,
    pub duration: u64,
    pub interval: u64,
    pub due: u64,
    pub next_flow: u32,
    pub slot: u32,
    pub trial: u32,
    pub timed: u32,
    pub generators: u32,
    pub number: u32,
}

impl State {
    fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C) of u64 and u32 whose sizes leave no padding, all of it initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Self>() {
            return None;
        }
        // SAFETY: the length matches, and every bit pattern is a valid value of the structure.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }
}

const _: () = assert!(size_of::<ConfigTemplate>() == Template::HEADER_MAX + 32);
const _: () =
    assert!(size_of::<Config>() == Stream::TEMPLATES_MAX * size_of::<ConfigTemplate>() + 40);
const _: () = assert!(size_of::<State>() == 88);
