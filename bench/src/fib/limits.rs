//! Lower bound for a lookup from the machine's memory latency.

use sidestep_testkit::random::Random;

use super::Bench;
use super::book::Page;
use super::latency::{Chain, Pages};
use super::subject::Trouble;
use crate::cpu;
use crate::result::{Axis, Cell, Point, Table};

/// Memory layout of a Sidestep table, and time of its lookups.
#[derive(Debug)]
pub struct Depth {
    pub title: String,
    pub subject: &'static str,
    pub routes: usize,
    /// Bytes that lookups read.
    pub walked: u64,
    /// Lines that a lookup reads in sequence: mean and maximum.
    pub lines: f64,
    pub most: f64,
    /// Nanoseconds per dependent lookup.
    pub dependent: Option<f64>,
}

impl Bench<'_> {
    pub(super) fn latency_sizes(&self) -> Vec<usize> {
        let most = if self.options.quick { 20 } else { 27 };
        (14..=most).map(|power| 1 << power).collect()
    }

    /// Memory latency over the measured sizes.
    pub(super) fn latency(&mut self) -> Result<(), Trouble> {
        let page = Page {
            id: "memory-latency".into(),
            title: "The memory of this machine".into(),
            note: "A chain of loads over memory of that size; each address depends on the previous load. A BPF map has 4 KiB pages.",
            x: Axis::log("size of the memory", "bytes"),
            y: Axis::log("time of a load", "ns"),
        };
        for bytes in self.latency_sizes() {
            self.progress.step("the memory's latency");
            for (pages, series) in [(Pages::Small, "4 KiB pages"), (Pages::Huge, "2 MiB pages")] {
                self.stop().check()?;
                let random = &mut Random::new(self.options.seed);
                let rounds = cpu::on(self.cpus.measured, || -> Result<Vec<f64>, Trouble> {
                    let mut chain = Chain::new(bytes, pages, random)?;
                    Ok((0..3).map(|_| chain.latency()).collect())
                })?;
                let point = Point::of(bytes as f64, rounds);
                if pages == Pages::Small {
                    self.latencies.push((bytes, point.value));
                }
                self.book.put(&page, series, series, point);
            }
        }
        Ok(())
    }

    /// Time of Sidestep's lookups next to the bound from memory latency.
    pub(super) fn tables(&self) -> Vec<Table> {
        let rows = self.depths.iter().map(|depth| {
            let load = self.latency_of(depth.walked as f64);
            let mut row = vec![
                Cell::Text(depth.title.clone()),
                Cell::Text(depth.subject.into()),
            ];
            row.extend([
                Cell::Number(depth.routes as f64),
                Cell::Number(depth.walked as f64 / f64::from(1 << 20)),
                Cell::Number(depth.lines),
                Cell::Number(depth.most),
                Cell::Number(load),
                Cell::Number(self.latency_of_levels(depth)),
            ]);
            row.push(
                depth
                    .dependent
                    .map_or(Cell::Text(String::new()), Cell::Number),
            );
            row
        });
        let heads = [
            "scenario",
            "subject",
            "routes",
            "walked MiB",
            "lines a lookup",
            "at most",
            "latency ns",
            "of all lines ns",
            "measured ns",
        ];
        vec![Table {
            id: "depth".into(),
            title: "What a lookup reads".into(),
            note: "Lines of 64 bytes, each found by the one before. Latency: of memory of that size with 4 KiB pages, any of it \
                   equally likely. Of all lines: their sum, where the lowest level is in memory of all that size, the next in an \
                   eighth of it, and so on: what a lookup after the last has to wait at least. Measured: the same, with the search \
                   within each line."
                .into(),
            heads: heads.map(Into::into).to_vec(),
            rows: rows.collect(),
        }]
    }

    /// Latency of a load from memory of this size in nanoseconds, interpolated between the measured
    /// sizes.
    fn latency_of(&self, bytes: f64) -> f64 {
        let larger = self
            .latencies
            .iter()
            .position(|(size, _)| *size as f64 >= bytes);
        match larger {
            None => self.latencies.last().map_or(0.0, |(_, latency)| *latency),
            Some(0) => self.latencies[0].1,
            Some(at) => {
                let ((below, low), (above, high)) = (self.latencies[at - 1], self.latencies[at]);
                let share = (bytes / below as f64).ln() / (above as f64 / below as f64).ln();
                low + (high - low) * share
            }
        }
    }

    /// Returns the sum of the latencies of a lookup's lines. Each level has an eighth of the lines
    /// of the level below.
    fn latency_of_levels(&self, depth: &Depth) -> f64 {
        let levels = depth.lines.round() as i32;
        let size = |level: i32| depth.walked as f64 / 8_f64.powi(level);
        (0..levels).map(|level| self.latency_of(size(level))).sum()
    }
}
