//! Concurrent lookups of several threads, with the method of the study of the kernel's scaling:
//! random routes, a million lookups per thread, twelve iterations without the fastest and the
//! slowest.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use sidestep_testkit::random::Random;

use super::Bench;
use super::book::{Page, routes_axis};
use super::plan;
use super::point::{ADDRESSES, Ready};
use super::subject::{Order, Trouble, Way};
use super::traffic::{Addresses, Mix};
use crate::cpu;
use crate::result::{Axis, Better, Point};

/// Number of passes over the addresses per thread: a million lookups.
const PASSES: u32 = (1_000_000 / ADDRESSES + 1) as u32;
/// Numbers of concurrent threads.
pub(super) const THREADS: [usize; 4] = [1, 2, 4, 8];

impl Bench<'_> {
    /// Measures a point of the scenario.
    ///
    /// # Errors
    /// The run was interrupted.
    pub(super) fn threads(&mut self, point: &plan::Point) -> Result<(), Trouble> {
        let routes = point.routes(&self.table, self.options.seed);
        let mut ready = self.load(point, &routes)?;
        self.verify(point, &routes, &mut ready)?;
        let random = &mut Random::new(self.options.seed);
        let addresses = Addresses::draw(Mix::Uniform, &routes, ADDRESSES, random);
        if let Some(harness) = &self.environment.harness {
            harness.put(&addresses)?;
        }
        for threads in THREADS {
            let mut times = vec![Vec::new(); ready.len()];
            for iteration in 1..=self.options.iterations() {
                let what = format!(
                    "{threads} threads, {} routes, iteration {iteration}",
                    point.size
                );
                self.progress.step(&what);
                for (it, times) in ready.iter().zip(&mut times) {
                    self.stop().check()?;
                    times.push(self.at_once(it, &addresses, threads)?);
                }
            }
            for (it, times) in ready.iter().zip(times) {
                let of = Point::of(point.size as f64, without_extremes(times));
                let page = page(threads, self.cpus.all.len());
                self.book.put(&page, it.kind.name, it.kind.name, of);
            }
        }
        Ok(())
    }

    /// Returns the nanoseconds per lookup without the loop, as the mean of the threads.
    fn at_once(&self, it: &Ready, addresses: &Addresses, threads: usize) -> Result<f64, Trouble> {
        let begin = Barrier::new(threads);
        let passes = if self.options.quick { 1 } else { PASSES };
        let all = 0..addresses.len();
        let one = |number: usize| -> Result<f64, Trouble> {
            cpu::pin(self.cpus.all[number % self.cpus.all.len()]);
            let way = Way::plain(Order::Independent);
            begin.wait();
            let nothing = self.time_nothing(it.kind, addresses, all.clone(), way.order)?;
            begin.wait();
            let mut time = Duration::ZERO;
            for _ in 0..passes {
                time += it.subject.time(addresses, all.clone(), way)?;
            }
            let each = time.as_secs_f64() / f64::from(passes) - nothing.as_secs_f64();
            Ok(each * 1e9 / addresses.len() as f64)
        };
        let times: Result<Vec<f64>, Trouble> = thread::scope(|scope| {
            let one = &one;
            let running: Vec<_> = (0..threads)
                .map(|number| scope.spawn(move || one(number)))
                .collect();
            let ended = running.into_iter().map(|thread| {
                let panicked = |_| Err(Trouble::Refused("a thread ended early".into()));
                thread.join().unwrap_or_else(panicked)
            });
            ended.collect()
        });
        Ok(times?.iter().sum::<f64>() / threads as f64)
    }
}

/// Removes the lowest and the highest value, unless nothing would remain.
fn without_extremes(mut times: Vec<f64>) -> Vec<f64> {
    if times.len() > 2 {
        times.sort_by(f64::total_cmp);
        times.pop();
        times.remove(0);
    }
    times
}

fn page(threads: usize, cpus: usize) -> Page {
    let (plural, note) = match threads {
        1 => ("thread", ""),
        _ if threads <= cpus => ("threads", ""),
        _ => ("threads", OVERSUBSCRIBED),
    };
    Page {
        id: format!("threads-{threads}"),
        title: format!("Random routes: {threads} {plural}"),
        note,
        x: routes_axis(),
        y: Axis::log("time of a lookup", "ns").better(Better::Lower),
    }
}

const OVERSUBSCRIBED: &str = "There are more threads than processors, so a lookup's time includes the turns of other threads.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_and_the_slowest_iteration_do_not_count() {
        assert_eq!(without_extremes(vec![5.0, 1.0, 3.0, 9.0]), [3.0, 5.0]);
        assert_eq!(without_extremes(vec![5.0, 1.0]), [5.0, 1.0]);
    }
}
