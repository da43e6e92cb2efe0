//! The prefix table in its BPF map: written here, walked by the programs, and moved to a longer map
//! when it is full.
//!
//! A map cannot grow, and its size is a constant of the programs that the verifier sees. A longer
//! map therefore needs new programs: the table is copied, the ports are switched to the new
//! programs one by one, and only then does the table change again. Both the old and the new
//! programs find the same routes.

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapHandle};
use sidestep_fib::layout::LINE_WORDS;
use sidestep_fib::{Fib, Full};

use super::load::{self, Programs};
use super::mapping::Mapping;
use super::maps::duplicate;
use super::pins::table_name;
use super::{Kernel, KernelError, Table};
use crate::abi::{RouteId, ViewId};
use crate::image::Limits;
use crate::native::typed;

/// Bytes of a line.
const LINE: usize = LINE_WORDS * 8;
/// Minimum lines of a new table: 8 MiB, for some 200,000 prefixes while they are inserted, which
/// retires lines. A full table doubles. New programs take the verifier about a second, in which no
/// table changes.
pub(super) const LINES: u32 = 1 << 17;

/// Size of the map's value in bytes for a number of lines.
pub(super) fn value_size(lines: u32) -> u32 {
    lines * LINE as u32
}

/// Lines of the table in this map.
pub(super) fn lines(map: &MapHandle) -> u32 {
    map.value_size() / LINE as u32
}

/// Returns the lines of a new table for this many prefixes, twice as many as they need: a change of
/// all prefixes writes them beside the old ones.
pub(super) fn lines_for(prefixes: usize, limits: Limits) -> u32 {
    let lines = u32::try_from(prefixes / 3 * 2).unwrap_or(u32::MAX);
    lines.clamp(LINES, lines_max(limits)).next_power_of_two()
}

/// Largest number of lines for a table with this many prefixes. Each prefix may need a /64 with its
/// own tree, and the old and the new tree exist at the same time. A map's value has less than 2
/// GiB.
pub(super) fn lines_max(limits: Limits) -> u32 {
    (limits.fib.saturating_mul(4))
        .clamp(LINES, 1 << 24)
        .next_power_of_two()
}

/// Returns whether a value of this size can be the table.
pub(super) fn is_table(bytes: usize) -> bool {
    bytes.is_power_of_two() && bytes >= sidestep_fib::VIEW_LINES * LINE
}

impl Kernel {
    /// Changes the prefix table. If it is full, frees or adds lines and tries again.
    pub(super) fn change_fib<T>(
        &mut self,
        mut change: impl FnMut(&mut Fib<Mapping>) -> Result<T, Full>,
    ) -> Result<T, KernelError> {
        loop {
            match change(&mut self.maps.fib) {
                Ok(done) => return Ok(done),
                Err(full) if self.is_worth_waiting(&full) => self.reclaim_lines()?,
                Err(full) => match self.grow(&full) {
                    // Memory for a longer table is exhausted, so wait for lines that become free.
                    Err(_) if full.held > 0 => self.reclaim_lines()?,
                    grown => grown?,
                },
            }
        }
    }

    /// Returns whether to wait for free lines instead of growing the table.
    fn is_worth_waiting(&self, full: &Full) -> bool {
        full.is_worth_waiting() || (full.held > 0 && self.longer(full).is_none())
    }

    /// Returns the lines of the next longer table, or `None` if it would exceed the limit.
    fn longer(&self, full: &Full) -> Option<u32> {
        let lines = (full.lines + full.wanted).next_power_of_two();
        u32::try_from(lines)
            .ok()
            .filter(|lines| *lines <= self.fib_lines_max)
    }

    /// Waits for a grace period; lines that were retired before the call are then free.
    pub(super) fn reclaim_lines(&mut self) -> Result<(), KernelError> {
        self.maps.fib.begin_grace();
        self.synchronize()?;
        self.maps.fib.end_grace();
        Ok(())
    }

    /// Moves the prefix table to a map that is long enough. The old table stays in use after an
    /// error.
    fn grow(&mut self, full: &Full) -> Result<(), KernelError> {
        let lines = self.longer(full).ok_or(KernelError::Full {
            table: Table::Fib,
            limit: self.fib_lines_max,
            wanted: (full.lines + full.wanted) as u32,
        })?;
        // The programs of a trace search the old table.
        if self.trace_fd().is_some() {
            self.trace_stop()?;
        }
        let handle = load::new_fib(lines, self.maps.handles())?;
        let mut tables = self.maps.duplicates()?;
        tables[Table::Fib as usize] = duplicate(&handle)?;
        let programs = Programs::default();
        for target in self.programs.loaded() {
            programs.load(target, self.features, &tables)?;
        }
        let longer = Mapping::of_value(&handle)?;
        self.maps.fib.copy_to(&longer);
        let before = std::mem::replace(&mut self.programs, programs);
        if let Err(error) = self.switch() {
            self.programs = before;
            // If this fails too, both maps have the same content until the next change.
            let _ = self.switch();
            return Err(error);
        }
        // The kernel frees the old memory when the last old program has ended, because programs
        // hold references to their maps.
        drop(self.maps.fib.move_to(longer));
        self.maps.replace_fib(handle);
        self.folder.pin(
            &table_name(Table::Fib),
            self.maps.handle(Table::Fib).as_fd(),
        )?;
        self.programs.pin(&self.folder)
    }

    /// Returns the content of a view as packets see it: the start of each interval of addresses,
    /// and its route index (0: none).
    pub fn intervals(&self, view: ViewId) -> Vec<(u128, RouteId)> {
        let intervals = sidestep_fib::walk::intervals(self.maps.fib.memory(), view.0);
        typed(intervals)
    }

    /// Returns the usage of the prefix table.
    pub fn fib_usage(&self) -> sidestep_fib::Usage {
        self.maps.fib.usage()
    }
}
