//! Measures all tables side by side at one point. The tables take turns in each round, so that a
//! disturbance of the machine affects all of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use sidestep_testkit::random::Random;

use super::Bench;
use super::changes;
use super::limits::Depth;
use super::oracle::Oracle;
use super::pages::{insertion_page, latency_page, lookup_page, memory_page, rate_page};
use super::plan;
use super::routes::Route;
use super::subject::{self, Kind, Order, Place, Subject, Trouble, Way, time_nothing};
use super::traffic::{Addresses, Mix, edges};
use crate::cpu;
use crate::memory::heap_bytes;
use crate::result::Point;

/// Addresses of each mix: the number of destinations that a busy router has at a time. Lookups
/// iterate over them repeatedly. Their mebibyte occupies a part of the caches, as packets do.
pub(super) const ADDRESSES: usize = 1 << 16;
const _: () = assert!(ADDRESSES * Mix::ALL.len() <= subject::ADDRESSES);
/// Addresses whose answers are compared.
pub(super) const COMPARED: usize = 50_000;
/// Minimum number of lookups per round.
const LOOKUPS: usize = 1 << 12;

/// A table that is built and has passed the comparison.
pub(super) struct Ready {
    pub(super) kind: Kind,
    pub(super) subject: Box<dyn Subject>,
}

/// Nanoseconds per lookup, one value per round.
type Times = BTreeMap<(usize, &'static str, Way), Vec<f64>>;

impl Bench<'_> {
    /// Measures a point. The book also records what could not be measured.
    ///
    /// # Errors
    /// Interrupted.
    pub(super) fn point(&mut self, point: &plan::Point) -> Result<(), Trouble> {
        let routes = point.routes(&self.table, self.options.seed);
        let random = &mut Random::new(self.options.seed);
        for order in Order::ALL {
            for mix in Mix::ALL {
                self.book.open(&lookup_page(point, mix.name(), order));
            }
        }
        let mut ready = self.load(point, &routes)?;
        self.verify(point, &routes, &mut ready)?;
        let mixes = Mix::ALL.map(|mix| {
            let mut addresses = Addresses::draw(mix, &routes, ADDRESSES, random);
            addresses.place = mix as usize * ADDRESSES;
            (mix, addresses)
        });
        if let Some(harness) = &self.environment.harness {
            for (_, addresses) in &mixes {
                harness.put(addresses)?;
            }
        }
        self.lookups(point, &ready, &mixes)?;
        self.note_depths(point, &routes, &ready, &mixes[0].1);
        for it in &mut ready {
            self.changes(point, &routes, it, &mixes[0].1)?;
        }
        Ok(())
    }

    /// Builds every table, several times if that is fast, and keeps the last ones.
    pub(super) fn load(
        &mut self,
        point: &plan::Point,
        routes: &[Route],
    ) -> Result<Vec<Ready>, Trouble> {
        const AGAIN_BELOW: Duration = Duration::from_secs(2);
        let kinds = self.options.against.clone();
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); kinds.len()];
        let mut built: Vec<Option<(Box<dyn Subject>, u64)>> = kinds.iter().map(|_| None).collect();
        for round in 0..self.options.builds() {
            for (i, kind) in kinds.iter().enumerate() {
                self.progress.step(&format!(
                    "{}: {} takes {} routes",
                    point.title(),
                    kind.name,
                    routes.len()
                ));
                let slow = times[i]
                    .iter()
                    .any(|time| *time > AGAIN_BELOW.as_secs_f64());
                if round > 0 && (slow || built[i].is_none()) {
                    continue;
                }
                // Drop the previous table first, because two may not fit into memory.
                built[i] = None;
                match self.build(*kind, routes) {
                    Ok((subject, bytes, time)) => {
                        times[i].push(time.as_secs_f64());
                        built[i] = Some((subject, bytes));
                    }
                    Err(Trouble::Interrupted) => return Err(Trouble::Interrupted),
                    Err(why) => self.book.refuse(kind.name, &at(point), &why),
                }
            }
        }
        let mut ready = Vec::new();
        for ((kind, times), built) in kinds.into_iter().zip(times).zip(built) {
            let Some((subject, bytes)) = built else {
                continue;
            };
            let x = point.size as f64;
            self.book.put(
                &insertion_page(point),
                kind.name,
                kind.name,
                Point::of(x, times),
            );
            // The kernel's memory statistics include pages of other users.
            if kind.place == Place::Process || bytes > 1 << 20 {
                let each = bytes as f64 / point.size as f64;
                self.book.put(
                    &memory_page(point),
                    kind.name,
                    kind.name,
                    Point::of(x, vec![each]),
                );
            }
            ready.push(Ready { kind, subject });
        }
        Ok(ready)
    }

    /// Builds a table, and returns it with its size in bytes and the time to build it.
    fn build(
        &self,
        kind: Kind,
        routes: &[Route],
    ) -> Result<(Box<dyn Subject>, u64, Duration), Trouble> {
        let stop = self.stop();
        cpu::on(self.cpus.measured, || {
            let before = heap_bytes();
            let mut subject = kind.open(&self.environment, routes)?;
            let begun = Instant::now();
            subject.load(routes, &stop)?;
            let time = begun.elapsed();
            let bytes = heap_bytes().saturating_sub(before) + subject.outside_heap();
            Ok((subject, bytes, time))
        })
    }

    /// Excludes tables whose results differ from the linear search, and reports them.
    pub(super) fn verify(
        &mut self,
        point: &plan::Point,
        routes: &[Route],
        ready: &mut Vec<Ready>,
    ) -> Result<(), Trouble> {
        let oracle = Oracle::new(routes);
        let sample = edges(routes, COMPARED, &mut Random::new(self.options.seed));
        if let Some(harness) = &self.environment.harness {
            harness.put(&sample)?;
        }
        let expected: Vec<u32> = sample
            .numbers
            .iter()
            .map(|number| oracle.lookup(*number))
            .collect();
        let book = &mut self.book;
        ready.retain(|it| {
            let wrong = match it.subject.answers(&sample) {
                Err(trouble) => Some(trouble.to_string()),
                Ok(answers) => difference(&sample, &expected, &answers),
            };
            if let Some(why) = &wrong {
                book.refuse(it.kind.name, &at(point), why);
            }
            wrong.is_none()
        });
        self.compared += sample.len() * ready.len();
        Ok(())
    }

    fn lookups(
        &mut self,
        point: &plan::Point,
        ready: &[Ready],
        mixes: &[(Mix, Addresses)],
    ) -> Result<(), Trouble> {
        let mut times = Times::new();
        for round in 0..self.options.rounds() {
            self.progress.step(&format!(
                "{}: {} routes, round {}",
                point.title(),
                point.size,
                round + 1
            ));
            for (i, it) in ready.iter().enumerate() {
                for (mix, addresses) in mixes {
                    for way in it.subject.ways() {
                        self.stop().check()?;
                        let time = self.time(it, addresses, way, round)?;
                        times.entry((i, mix.name(), way)).or_default().push(time);
                    }
                }
            }
        }
        for ((i, mix, way), rounds) in times {
            let kind = ready[i].kind;
            let series = [kind.name, way.variant].join(" ");
            let point_of = Point::of(point.size as f64, rounds);
            if kind.is_ours() && mix == Mix::Uniform.name() && way.order == Order::Dependent {
                self.dependent
                    .insert((point.group(), point.size, kind.name), point_of.value);
            }
            self.book.put(
                &lookup_page(point, mix, way.order),
                series.trim(),
                kind.name,
                point_of,
            );
        }
        Ok(())
    }

    /// Measures one round: nanoseconds per lookup, without the time of the empty loop.
    fn time(
        &self,
        it: &Ready,
        addresses: &Addresses,
        way: Way,
        round: usize,
    ) -> Result<f64, Trouble> {
        cpu::on(self.cpus.measured, || {
            let length = addresses.len();
            let each = |time: Duration, count: usize| time.as_secs_f64() * 1e9 / count as f64;
            let first = it.subject.time(addresses, 0..LOOKUPS, way)?;
            let wanted = self.options.round().as_secs_f64() * 1e9 / each(first, LOOKUPS).max(0.1);
            let wanted = (wanted as usize).max(LOOKUPS) & !63;
            let (range, warm) = if wanted * 2 > length {
                (0..length, 0..length)
            } else {
                // Each round uses another part of the addresses, and yet another one for the
                // warm-up.
                let from = round * wanted % (length / 2 - wanted + 1);
                (
                    from..from + wanted,
                    from + length / 2..from + length / 2 + wanted,
                )
            };
            it.subject.time(addresses, warm, way)?;
            let (mut time, mut passes) = (Duration::ZERO, 0);
            while passes == 0 || passes * range.len() < wanted {
                time += it.subject.time(addresses, range.clone(), way)?;
                passes += 1;
            }
            let nothing = self.time_nothing(it.kind, addresses, range.clone(), way.order)?;
            let time = each(time, passes * range.len()) - each(nothing, range.len());
            // Negative if a disturbance affected the loop.
            Ok(time)
        })
    }

    /// Returns the time of the loop without lookups, in the process or in BPF: the minimum of
    /// several runs. A disturbance makes this loop longer, and the lookups that it is subtracted
    /// from would appear too short.
    pub(super) fn time_nothing(
        &self,
        kind: Kind,
        addresses: &Addresses,
        range: Range<usize>,
        order: Order,
    ) -> Result<Duration, Trouble> {
        const TRIES: usize = 3;
        let mut quickest = Duration::MAX;
        for _ in 0..TRIES {
            let time = match kind.place {
                Place::Process => time_nothing(addresses, range.clone(), order),
                Place::Bpf => {
                    let harness = self.environment.harness()?;
                    harness.time_nothing(addresses, range.clone(), order)?
                }
            };
            quickest = quickest.min(time);
        }
        Ok(quickest)
    }

    /// Records the depth of Sidestep's tables, for the table that explains their times.
    fn note_depths(
        &mut self,
        point: &plan::Point,
        routes: &[Route],
        ready: &[Ready],
        addresses: &Addresses,
    ) {
        for it in ready {
            let depths = addresses
                .numbers
                .iter()
                .take(COMPARED)
                .map_while(|number| it.subject.depth(*number));
            let depths: Vec<f64> = depths.map(f64::from).collect();
            let Some(walked) = it.subject.walked().filter(|_| !depths.is_empty()) else {
                continue;
            };
            let dependent = self
                .dependent
                .get(&(point.group(), point.size, it.kind.name));
            self.depths.push(Depth {
                title: point.title(),
                subject: it.kind.name,
                routes: routes.len(),
                walked,
                lines: depths.iter().sum::<f64>() / depths.len() as f64,
                most: depths.iter().copied().fold(0.0, f64::max),
                dependent: dependent.copied(),
            });
        }
    }

    fn changes(
        &mut self,
        point: &plan::Point,
        routes: &[Route],
        it: &mut Ready,
        addresses: &Addresses,
    ) -> Result<(), Trouble> {
        let (name, x) = (it.kind.name, point.size as f64);
        self.progress.step(&format!(
            "{}: {name}, {} routes, changes",
            point.title(),
            routes.len()
        ));
        let (length, stop, cpus) = (self.options.changes(), self.stop(), self.cpus.clone());
        let random = &mut Random::new(self.options.seed);
        let subject = &mut *it.subject;
        let alone = cpu::on(cpus.measured, || {
            changes::measure(subject, routes, length, &stop, random)
        });
        let alone = match alone {
            Err(Trouble::Interrupted) => return Err(Trouble::Interrupted),
            Err(why) => {
                self.book
                    .refuse(name, &format!("{}, changes", at(point)), &why);
                return Ok(());
            }
            Ok(alone) => alone,
        };
        let mut latency = Point::of(x, vec![alone.percentile(0.5)]);
        (latency.rounds, latency.high) = (Vec::new(), alone.percentile(0.99));
        self.book.put(&latency_page(point), name, name, latency);
        self.book.put(
            &rate_page(point, false),
            name,
            name,
            Point::of(x, vec![alone.rate]),
        );
        let Some(reader) = it.subject.apart().filter(|_| cpus.other != cpus.measured) else {
            return Ok(());
        };
        let subject = &mut *it.subject;
        let (loaded, _) = changes::under_load(&*reader, addresses, cpus.other, || {
            cpu::on(cpus.measured, || {
                changes::measure(subject, routes, length, &stop, random)
            })
        });
        let loaded = loaded?;
        self.book.put(
            &rate_page(point, true),
            name,
            name,
            Point::of(x, vec![loaded.rate]),
        );
        Ok(())
    }
}

/// Returns the first wrong answer and the number of wrong answers, as text.
fn difference(sample: &Addresses, expected: &[u32], answers: &[u32]) -> Option<String> {
    let wrong = || {
        (expected.iter().zip(answers).zip(&sample.numbers))
            .filter(|((right, answer), _)| right != answer)
    };
    let ((right, answer), number) = wrong().next()?;
    let address = std::net::Ipv6Addr::from_bits(*number);
    Some(format!(
        "wrong answers to {} of {} addresses, the first to {address}: next hop {answer} instead of {right}",
        wrong().count(),
        expected.len(),
    ))
}

fn at(point: &plan::Point) -> String {
    format!("{}, {} routes", point.title(), point.size)
}
