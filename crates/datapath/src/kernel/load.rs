//! Loads the packet path into the kernel: with new tables, with the tables of a dead instance, or
//! in place of them.

use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use crate::abi::SIDESTEP_ABI_VERSION;
use flate2::bufread::GzDecoder;
use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, OpenObject};

use super::fib;
use super::grace::{Background, GracePeriod};
use super::log::captured;
use super::maps::Maps;
use super::pins::{Folder, table_name};
use super::report::Reports;
use super::unused::Unused;
use super::{
    Descriptor, Features, Kernel, KernelError, Origin, Table, Target, attach, features, privilege,
};

use crate::image::Limits;

// Objects of `build.rs`, compressed by gzip.
const XDP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o.gz"));
const TC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o.gz"));
const XDP_TRACED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp_traced.bpf.o.gz"));
const TC_TRACED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc_traced.bpf.o.gz"));
const MEASURE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/measure.bpf.o.gz"));
const GATE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gate.bpf.o.gz"));
const PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe.bpf.o.gz"));

/// Map that describes the running kernel to `datapath/env_tc.h`.
const ENVIRONMENT: &str = ".rodata.env";

/// The programs of one hook.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) program: Descriptor,
    /// Does nothing, for comparison.
    pub(super) empty: Descriptor,
}

impl Hook {
    /// Loads the plain programs on these tables (in the order of [`Table::ALL`]).
    fn load(target: Target, features: Features, tables: &[MapHandle]) -> Result<Self, KernelError> {
        let object = load_hook(target, false, features, tables, &[])?;
        Ok(Self {
            program: program(&object, program_name(target))?,
            empty: program(&object, &format!("{}_empty", program_name(target)))?,
        })
    }

    fn open(folder: &Folder, target: Target) -> Result<Self, KernelError> {
        let name = pin_name(target);
        Ok(Self {
            program: folder.open_pin(&name)?,
            empty: folder.open_pin(&format!("{name}_empty"))?,
        })
    }

    fn pin(&self, folder: &Folder, target: Target) -> Result<(), KernelError> {
        let name = pin_name(target);
        folder.pin(&name, self.program.as_fd())?;
        folder.pin(&format!("{name}_empty"), self.empty.as_fd())
    }

    fn unpin(folder: &Folder, target: Target) -> Result<(), KernelError> {
        let name = pin_name(target);
        folder.unpin(&name)?;
        folder.unpin(&format!("{name}_empty"))
    }
}

/// All hooks.
pub(super) const HOOKS: [Target; 3] = [Target::Xdp, Target::Tc, Target::BehindXdp];

/// Name of the packet path in an object.
pub(super) fn program_name(target: Target) -> &'static str {
    match target {
        Target::Xdp => "sidestep_xdp",
        Target::Tc | Target::BehindXdp => "sidestep_tc",
    }
}

fn pin_name(target: Target) -> String {
    format!("program-{target}")
}

/// The programs of the hooks that are in use. The verifier takes about a second for each.
#[derive(Debug, Default)]
pub(super) struct Programs {
    xdp: OnceLock<Hook>,
    tc: OnceLock<Hook>,
    behind_xdp: OnceLock<Hook>,
    /// Threads that load programs.
    loading: Mutex<Vec<(Target, Loading)>>,
}

type Loading = JoinHandle<Result<Hook, KernelError>>;

impl Programs {
    fn hook(&self, target: Target) -> &OnceLock<Hook> {
        match target {
            Target::Xdp => &self.xdp,
            Target::Tc => &self.tc,
            Target::BehindXdp => &self.behind_xdp,
        }
    }

    /// Begins to load the programs of a hook in a thread. [`Programs::load`] waits for it.
    fn begin(&self, target: Target, features: Features, tables: Vec<MapHandle>) -> io::Result<()> {
        let thread = thread::Builder::new().name(format!("load-{target}"));
        let load = move || Hook::load(target, features, &tables);
        self.loading().push((target, thread.spawn(load)?));
        Ok(())
    }

    fn loading(&self) -> std::sync::MutexGuard<'_, Vec<(Target, Loading)>> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the programs of a hook, unless they are loaded. Returns whether it has loaded them.
    pub(super) fn load(
        &self,
        target: Target,
        features: Features,
        tables: &[MapHandle],
    ) -> Result<bool, KernelError> {
        let hook = self.hook(target);
        if hook.get().is_some() {
            return Ok(false);
        }
        let begun = {
            let mut loading = self.loading();
            let place = loading.iter().position(|(of, _)| *of == target);
            place.map(|place| loading.swap_remove(place).1)
        };
        let loaded = match begun.map(JoinHandle::join) {
            Some(Ok(loaded)) => loaded?,
            Some(Err(_)) | None => Hook::load(target, features, tables)?,
        };
        Ok(hook.set(loaded).is_ok())
    }

    /// Opens the pinned programs.
    fn open(folder: &Folder) -> Result<Self, KernelError> {
        let programs = Self::default();
        let names = folder.names()?;
        for target in HOOKS {
            if names.contains(&pin_name(target)) {
                let _ = programs.hook(target).set(Hook::open(folder, target)?);
            }
        }
        Ok(programs)
    }

    /// Pins the loaded programs, and removes pins of others.
    pub(super) fn pin(&self, folder: &Folder) -> Result<(), KernelError> {
        for target in HOOKS {
            match self.hook(target).get() {
                Some(hook) => hook.pin(folder, target)?,
                None => Hook::unpin(folder, target)?,
            }
        }
        Ok(())
    }

    /// Returns the hooks whose programs are loaded.
    pub(super) fn loaded(&self) -> impl Iterator<Item = Target> {
        let loaded = |target: &Target| self.hook(*target).get().is_some();
        HOOKS.into_iter().filter(loaded)
    }
}

impl Kernel {
    /// Begins to load the programs of a hook, for which the verifier needs about a second. The first
    /// attachment waits for them.
    ///
    /// # Errors
    /// There is no thread or no descriptor. The attachment then loads the programs.
    pub fn begin_to_load(&self, target: Target) -> Result<(), KernelError> {
        if self.programs.hook(target).get().is_some() {
            return Ok(());
        }
        let tables = self.maps.duplicates()?;
        let begun = self.programs.begin(target, self.features, tables);
        begun.map_err(|source| KernelError::System {
            operation: "start a thread that loads programs",
            source,
        })
    }

    /// Returns the plain programs of a hook. The first call loads and pins them.
    pub(super) fn hook(&self, target: Target) -> Result<&Hook, KernelError> {
        if self
            .programs
            .load(target, self.features, self.maps.handles())?
        {
            self.programs.pin(&self.folder)?;
        }
        Ok(self.programs.hook(target).get().expect("it is loaded"))
    }
}

pub(super) fn load(
    limits: Limits,
    prefixes: usize,
    pin_root: &Path,
) -> Result<Kernel, KernelError> {
    privilege::check()?;
    let folder = Folder::create(pin_root)?;
    let (origin, tables) = match open_tables(&folder) {
        Ok(tables) if tables.limits(limits.fib) == limits => (Origin::Adopted, Some(tables)),
        // The pins are incomplete or their names do not match their objects, so no process can
        // adopt them.
        Ok(_)
        | Err(KernelError::Version { .. } | KernelError::Shape { .. } | KernelError::Pin { .. }) => {
            (Origin::Replaced, None)
        }
        Err(KernelError::NothingPinned { .. }) => (Origin::Fresh, None),
        Err(error) => return Err(error),
    };
    // Do everything that may fail before a pin changes.
    let features = Features::probe()?;
    let maps = match tables {
        Some(tables) => tables,
        None => Maps::new(new_tables(limits, fib::lines_for(prefixes, limits))?)?,
    };
    let programs = Programs::default();
    for target in attach::hooks(&folder)? {
        programs.load(target, features, maps.handles())?;
    }
    let grace_period = GracePeriod::new()?;
    let reports = Reports::open(maps.handle(Table::Reports))?;
    if origin != Origin::Adopted {
        folder.clear()?;
        for table in Table::ALL {
            folder.pin(&table_name(table), maps.handle(table).as_fd())?;
        }
    }
    programs.pin(&folder)?;
    folder.write_instance()?;
    let attached = attach::open(&folder)?;
    let kernel = Kernel {
        folder,
        origin,
        limits,
        fib_lines_max: fib::lines_max(limits),
        maps,
        programs,
        features,
        gate: OnceLock::new(),
        attached,
        grace_period,
        background: Background::default(),
        unused: Unused::default(),
        tracer: None,
        reports,
    };
    if origin == Origin::Adopted {
        // The same tables, so the new program may take over at once. A port where the switch fails
        // keeps the old program.
        kernel.switch()?;
    }
    Ok(kernel)
}

pub(super) fn adopt(pin_root: &Path) -> Result<Kernel, KernelError> {
    privilege::check()?;
    let folder = Folder::open(pin_root)?.ok_or_else(|| KernelError::NothingPinned {
        folder: pin_root.to_owned(),
    })?;
    let maps = open_tables(&folder)?;
    let programs = Programs::open(&folder)?;
    folder.write_instance()?;
    let attached = attach::open(&folder)?;
    let grace_period = GracePeriod::new()?;
    let reports = Reports::open(maps.handle(Table::Reports))?;
    let limits = maps.limits(Limits::default().fib);
    let features = Features::probe()?;
    Ok(Kernel {
        limits,
        fib_lines_max: fib::lines_max(limits),
        folder,
        origin: Origin::Adopted,
        maps,
        programs,
        features,
        gate: OnceLock::new(),
        attached,
        grace_period,
        background: Background::default(),
        unused: Unused::default(),
        tracer: None,
        reports,
    })
}

pub(super) fn remove(pin_root: &Path) -> Result<bool, KernelError> {
    privilege::check()?;
    let Some(folder) = Folder::open(pin_root)? else {
        return Ok(false);
    };
    attach::detach_pinned(&folder)?;
    folder.clear()?;
    folder.remove()?;
    Ok(true)
}

pub(super) fn remove_orphans(pin_root: &Path, is_there: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut removed = Vec::new();
    for (inode, folder) in Folder::orphans(pin_root, is_there) {
        if attach::any_alive(&folder).unwrap_or(true) {
            continue;
        }
        let gone = attach::detach_pinned(&folder)
            .and_then(|()| folder.clear())
            .and_then(|()| folder.remove());
        if gone.is_ok() {
            removed.push(inode);
        }
    }
    removed
}

/// Opens the pinned tables, if they have this version and shape.
fn open_tables(folder: &Folder) -> Result<Maps, KernelError> {
    match folder.version()? {
        None => {
            return Err(KernelError::NothingPinned {
                folder: folder.path().to_owned(),
            });
        }
        Some(SIDESTEP_ABI_VERSION) => {}
        Some(found) => {
            let folder = folder.path().to_owned();
            return Err(KernelError::Version {
                folder,
                found,
                expected: SIDESTEP_ABI_VERSION,
            });
        }
    }
    let open = |table: Table| {
        let map = folder.open_table(table)?;
        table
            .check(&map)
            .map_err(|(found, expected)| KernelError::Shape {
                folder: folder.path().to_owned(),
                table,
                found,
                expected,
            })?;
        Ok(map)
    };
    Maps::new(
        Table::ALL
            .into_iter()
            .map(open)
            .collect::<Result<_, KernelError>>()?,
    )
}

/// Loads the object for measurements. It is loaded for each use and never pinned.
pub(super) fn load_measure() -> Result<Object, KernelError> {
    load_object("the measuring program", MEASURE, fib::LINES, |_| Ok(()))
}

/// Creates empty tables of these sizes, in the order of [`Table::ALL`].
fn new_tables(limits: Limits, lines: u32) -> Result<Vec<MapHandle>, KernelError> {
    let object = create_maps(XDP, |table, map| match table {
        Table::Fib => map.set_value_size(fib::value_size(lines)),
        table => map.set_max_entries(table.entries(limits)),
    })?;
    Table::ALL
        .into_iter()
        .map(|table| map(&object, table.name()))
        .collect()
}

/// Creates a prefix table of that many lines.
pub(super) fn new_fib(lines: u32, tables: &[MapHandle]) -> Result<MapHandle, KernelError> {
    let object = create_maps(XDP, |table, map| match table {
        Table::Fib => map.set_value_size(fib::value_size(lines)),
        table => map.reuse_fd(tables[table as usize].as_fd()),
    })?;
    map(&object, Table::Fib.name())
}

/// Creates the maps of a trace, in the order of [`TRACE_MAPS`].
pub(super) fn new_trace_maps(tables: &[MapHandle]) -> Result<Vec<MapHandle>, KernelError> {
    let object = create_maps(XDP_TRACED, |table, map| {
        map.reuse_fd(tables[table as usize].as_fd())
    })?;
    TRACE_MAPS
        .into_iter()
        .map(|name| map(&object, name))
        .collect()
}

/// Creates the maps of an object without its programs.
fn create_maps(
    compressed: &[u8],
    each: impl FnMut(Table, &mut libbpf_rs::OpenMapMut<'_>) -> libbpf_rs::Result<()>,
) -> Result<Object, KernelError> {
    load_object("the tables", compressed, fib::LINES, |object| {
        for mut program in object.progs_mut() {
            program.set_autoload(false);
        }
        prepare(object, each)
    })
}

/// Maps of a trace: its filter, its ring, and one sample per CPU that is being written.
pub(super) const TRACE_MAPS: [&str; 3] = ["trace_filter", "trace_ring", "trace_drafts"];

/// Loads the programs of a hook on these tables (in the order of [`Table::ALL`]). Traced programs
/// also have maps of a trace (in the order of [`TRACE_MAPS`]).
pub(super) fn load_hook(
    target: Target,
    traced: bool,
    features: Features,
    tables: &[MapHandle],
    trace: &[MapHandle],
) -> Result<Object, KernelError> {
    let (name, compressed) = match (target, traced) {
        (Target::Xdp, false) => ("the XDP program", XDP),
        (Target::Xdp, true) => ("the traced XDP program", XDP_TRACED),
        (_, false) => ("the TC program", TC),
        (_, true) => ("the traced TC program", TC_TRACED),
    };
    let lines = fib::lines(&tables[Table::Fib as usize]);
    load_object(name, compressed, lines, |object| {
        prepare(object, |table, map| {
            map.reuse_fd(tables[table as usize].as_fd())
        })?;
        for mut map in object.maps_mut() {
            let of_trace = TRACE_MAPS.iter().position(|name| map.name() == *name);
            if let Some(shared) = of_trace.and_then(|index| trace.get(index)) {
                map.reuse_fd(shared.as_fd())?;
            }
        }
        if target != Target::Xdp {
            set_environment(object, features, target)?;
        }
        Ok(())
    })
}

/// Loads the gate, on this program array if there is one.
pub(super) fn load_gate(next: Option<&MapHandle>) -> Result<Object, KernelError> {
    load_object("the gate", GATE, fib::LINES, |object| {
        let mut maps = object.maps_mut();
        match (next, maps.find(|map| map.name() == "gate_next")) {
            (Some(next), Some(mut map)) => map.reuse_fd(next.as_fd()),
            _ => Ok(()),
        }
    })
}

/// Loads the object that probes features.
pub(super) fn load_probe() -> Result<Object, KernelError> {
    load_object("the probing program", PROBE, fib::LINES, |_| Ok(()))
}

/// Loads an object of `build.rs`. `lines` is the size of the prefix table, which is a constant of the
/// programs.
fn load_object(
    name: &'static str,
    compressed: &[u8],
    lines: u32,
    prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> Result<Object, KernelError> {
    let elf = decompress(compressed);
    let (result, log) = captured(|| {
        let mut object = ObjectBuilder::default().open_memory(&elf)?;
        set_constant(&mut object, lines)?;
        prepare(&mut object)?;
        object.load()
    });
    result.map_err(|source| refused(name, source, log))
}

/// Returns the ELF file of an object of `build.rs`.
fn decompress(compressed: &[u8]) -> Vec<u8> {
    let mut elf = Vec::new();
    GzDecoder::new(compressed)
        .read_to_end(&mut elf)
        .expect("build.rs has compressed it");
    elf
}

/// Sets `fib_lines`, the only constant in `.rodata` of the programs.
fn set_constant(object: &mut OpenObject, lines: u32) -> libbpf_rs::Result<()> {
    for mut map in object.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(&lines.to_ne_bytes())?;
        }
    }
    Ok(())
}

fn prepare(
    object: &mut OpenObject,
    mut each: impl FnMut(Table, &mut libbpf_rs::OpenMapMut<'_>) -> libbpf_rs::Result<()>,
) -> libbpf_rs::Result<()> {
    for mut map in object.maps_mut() {
        // Skip the maps of constants, which are no tables.
        if let Some(table) = Table::ALL
            .into_iter()
            .find(|table| map.name() == table.name())
        {
            each(table, &mut map)?;
        }
    }
    Ok(())
}

/// Sets the constants of `datapath/env_tc.h`: the verifier then skips code that this kernel does
/// not support.
fn set_environment(
    object: &mut OpenObject,
    features: Features,
    target: Target,
) -> libbpf_rs::Result<()> {
    let section = object.maps_mut().find(|map| map.name() == ENVIRONMENT);
    section
        .expect("datapath/env_tc.h has it, as the build shows")
        .set_initial_value(&[
            features.decap_l3.into(),
            (target == Target::BehindXdp).into(),
        ])
}

/// Returns a new handle of a map.
pub(super) fn map(object: &Object, name: &str) -> Result<MapHandle, KernelError> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.expect("the object has that map: both are in this repository");
    MapHandle::try_from(&map).map_err(|source| refused("a map", source, String::new()))
}

/// Returns a new file descriptor of a program.
pub(super) fn program(object: &Object, name: &str) -> Result<Descriptor, KernelError> {
    let program = object.progs().find(|program| program.name() == name);
    let program = program.expect("the object has that program: both are in this repository");
    program
        .as_fd()
        .try_clone_to_owned()
        .map_err(|source| KernelError::System {
            operation: "duplicate a program's descriptor",
            source,
        })
}

/// On an old kernel, the first missing feature explains more than the error of the verifier or
/// libbpf.
fn refused(object: &'static str, source: libbpf_rs::Error, log: String) -> KernelError {
    if let Some(lacks) = features::lacks() {
        return KernelError::TooOld { lacks };
    }
    KernelError::Load {
        object,
        source,
        log,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the names of the maps of an object.
    fn maps(compressed: &[u8]) -> BTreeSet<String> {
        let elf = decompress(compressed);
        let object = ObjectBuilder::default().open_memory(&elf).expect("ELF");
        let names = object
            .maps()
            .map(|map| map.name().to_string_lossy().into_owned());
        names.filter(|name| !name.contains(".rodata")).collect()
    }

    #[test]
    fn the_plain_programs_have_the_tables_and_nothing_of_a_trace() {
        let tables: BTreeSet<_> = Table::ALL.map(|table| table.name().to_owned()).into();
        let of_a_trace = ["trace_drafts", "trace_filter", "trace_ring"].map(str::to_owned);
        for (plain, traced) in [(XDP, XDP_TRACED), (TC, TC_TRACED)] {
            assert_eq!(maps(plain), tables);
            let difference: Vec<_> = maps(traced).difference(&tables).cloned().collect();
            assert_eq!(difference, of_a_trace);
        }
    }
}
