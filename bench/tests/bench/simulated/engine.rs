//! Engines that are simulated systems.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sidestep_bench::campaign::plan::Vocabulary;
use sidestep_bench::engine::{Case, Engine, Standing};
use sidestep_bench::machine::Ticks;
use sidestep_testkit::Error;
use sidestep_testkit::traffic::Hook;
use sidestep_testkit::traffic::trial::{Disorder, Latency, Load, Trial};

use crate::simulated::Simulated;

/// Shared state of all engines of a test.
#[derive(Clone)]
pub struct World {
    /// Number of completed trials.
    pub trials: Rc<Cell<usize>>,
    /// Number of completed setups.
    pub set_ups: Rc<Cell<usize>>,
    /// Number of trials after which the interrupt flag is set.
    pub interrupt_after: Rc<Cell<Option<usize>>>,
    /// The interrupt flag.
    pub interrupted: Arc<AtomicBool>,
    /// The engine that cannot be set up.
    pub broken: Rc<Cell<Option<&'static str>>>,
    /// The engine that loses all packets.
    pub dead: Rc<Cell<Option<&'static str>>>,
    /// The engine that reorders packets and duplicates some.
    pub disorderly: Rc<Cell<Option<&'static str>>>,
    /// CPU time of the machine.
    pub ticks: Rc<Cell<Ticks>>,
    /// Number of the next trials during which the host takes half of the processors' time.
    pub disturbed: Rc<Cell<usize>>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            trials: Rc::default(),
            set_ups: Rc::default(),
            interrupt_after: Rc::default(),
            interrupted: Arc::default(),
            broken: Rc::default(),
            dead: Rc::default(),
            disorderly: Rc::default(),
            ticks: Rc::new(Cell::new(Ticks::new(0, 0))),
            disturbed: Rc::default(),
        }
    }
}

impl World {
    /// Lets 100 ticks pass, of which the host takes 50 during a disturbed trial.
    fn pass(&self) {
        let left = self.disturbed.get();
        self.disturbed.set(left.saturating_sub(1));
        self.ticks
            .set(self.ticks.get().later(100, if left > 0 { 50 } else { 0 }));
    }
}

/// An engine with this name and capacity in packets per second for plain IPv6. The capacity for
/// other behaviors is half of it, and with 80 rules half of that.
pub struct Fake {
    name: &'static str,
    capacity: f64,
    world: World,
}

/// Returns two engines. `slow` forwards 200,000 packets per second; `fast` forwards 900,000 and
/// does not support `end.as`. The generator sends 1,000,000.
pub fn engines(world: &World) -> Vec<Box<dyn Engine>> {
    let engine = |name, capacity| {
        let world = world.clone();
        Box::new(Fake {
            name,
            capacity,
            world,
        }) as Box<dyn Engine>
    };
    vec![
        engine("none", 1e9),
        engine("slow", 200_000.0),
        engine("fast", 900_000.0),
    ]
}

/// Returns the behaviors of these engines.
pub fn vocabulary() -> Vocabulary {
    let behaviors = [
        ("ipv6", 0..=0),
        ("end", 1..=10),
        ("end.as", 1..=10),
        ("end.ad", 1..=10),
        ("service.end", 2..=10),
    ];
    Vocabulary {
        behaviors: behaviors.map(|(name, sids)| (name.to_owned(), sids)).into(),
    }
}

impl Engine for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("version".into(), "1".into())])
    }

    fn refuses(&self, case: &Case) -> Option<String> {
        if case.cores > 2 {
            return Some(format!("no {} cores", case.cores));
        }
        let unknown = match (self.name, case.behavior.as_str()) {
            ("none", behavior) => behavior != "ceiling",
            (_, "end.ad") => true,
            ("fast", behavior) => behavior == "end.as",
            _ => false,
        };
        unknown.then(|| format!("no {}", case.behavior))
    }

    fn set_up(&self, case: &Case) -> Result<Box<dyn Standing + '_>, Error> {
        self.world.set_ups.set(self.world.set_ups.get() + 1);
        if self.world.broken.get() == Some(self.name) {
            return Err(Error::Usage("its first packet was wrong".into()));
        }
        let behavior = if case.behavior == "ipv6" || self.name == "none" {
            1.0
        } else {
            0.5
        };
        let rules = 1.0 + f64::from(case.rules) / 80.0;
        let loss = if self.world.dead.get() == Some(self.name) {
            1.0
        } else {
            0.0
        };
        let mut disorder = Disorder::default();
        if self.world.disorderly.get() == Some(self.name) {
            (disorder.reordered, disorder.duplicated) = (7, 1);
        }
        Ok(Box::new(Up {
            is_ceiling: self.name == "none",
            disorder,
            system: Simulated {
                generator: 1e6,
                loss: Box::new(move |_| loss),
                ..Simulated::of(self.capacity * behavior / rules)
            },
            world: self.world.clone(),
        }))
    }

    fn recipe(&self, case: &Case) -> Vec<String> {
        vec![format!("set up {} {}", self.name, case.behavior)]
    }
}

struct Up {
    is_ceiling: bool,
    disorder: Disorder,
    system: Simulated,
    world: World,
}

impl Standing for Up {
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error> {
        let made = self.world.trials.get() + 1;
        self.world.trials.set(made);
        if self
            .world
            .interrupt_after
            .get()
            .is_some_and(|after| made >= after)
        {
            self.world.interrupted.store(true, Ordering::Release);
            return Err(Error::Usage("a signal".into()));
        }
        if !self.is_ceiling {
            self.world.pass();
        }
        let Ok(trial) = self.system.measure(duration, load);
        let latency = latency.then(|| Latency {
            samples: 4,
            p50: 2_000.0,
            p99: 8_000.0,
            p999: 8_000.0,
            max: 7_900.0,
            jitter: 1_500.0,
            histogram: vec![(2_000.0, 2), (4_000.0, 3), (8_000.0, 4)],
        });
        Ok(Trial {
            latency,
            disorder: self.disorder,
            ..trial
        })
    }

    fn sink(&self) -> Option<Hook> {
        Some(if self.world.set_ups.get().is_multiple_of(2) {
            Hook::Tc
        } else {
            Hook::Xdp
        })
    }
}
