//! Random days of a node: commands, changes of the kernel, failures and crashes. Whatever happened,
//! once the failures end, packets leave as from an instance that starts then.

use std::time::Duration;

use sidestep_model::liveness::discriminators;
use sidestep_testkit::random::Random;

use super::SECOND;
use crate::api::Request;
use crate::daemon::Options;
use crate::daemon::simulated::{Simulation, config_text};

/// Number of days, unless `SIMULATION_DAYS` has another one. `SIMULATION_SEED` repeats one day.
const DAYS: u64 = 24;
const STEPS: usize = 60;

const TO: [&str; 10] = [
    "fd00:0::1",
    "fd00:1::1",
    "fd00:2::1",
    "fd00:3::1",
    "fd00:4::1",
    "fd00:5::1",
    "fc00:bb::1",
    "fc0f::b1",
    "fc00:c::2",
    "fc00:b::7",
];

/// A day that has begun. Its story is printed if it ends by a panic.
struct Day {
    /// None during a crash only.
    node: Option<Simulation>,
    random: Random,
    /// Log of the day, printed after a failure.
    story: Vec<String>,
    /// The configuration before one that waits for its confirmation.
    before_trial: Option<String>,
}

impl Drop for Day {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.story.join("\n"));
        }
    }
}

impl Day {
    fn new(seed: u64) -> Self {
        Self {
            node: Some(Simulation::new()),
            random: Random::new(seed),
            story: Vec::new(),
            before_trial: None,
        }
    }

    fn node(&mut self) -> &mut Simulation {
        self.node.as_mut().expect("a node")
    }

    /// Returns the configuration before the present one, if that waits for its confirmation.
    fn take_before_trial(&mut self) -> Option<String> {
        let before = self.before_trial.take();
        let is_trial = self.node().instance.configured.state.trial.is_some();
        before.filter(|_| is_trial)
    }

    fn next_hop(&mut self) -> String {
        let hops = [
            "via fc00:b::2 dev eth1",
            "via fc00:c::2 dev eth2",
            "via fc00:b::9 dev eth1",
            "encap seg6 mode encap segs fc00:bb::e dev eth1",
            "encap seg6 mode encap.red segs fc00:bb::1,fc00:bb::2 dev eth1",
            "encap seg6 mode inline segs fc00:bb::3 dev eth1",
            "encap seg6 mode encap segs fc00:c::2 dev eth2",
            "encap seg6local action End dev eth0",
            "encap seg6local action End.DT6 table main dev eth0",
            "encap seg6local action End.X nh6 fc00:c::2 dev eth0",
        ];
        (*self.random.pick(&hops)).to_owned()
    }

    /// A command of Sidestep.
    fn command(&mut self) -> String {
        let number = self.random.below(6);
        let verb = *self.random.pick(&["add", "replace"]);
        let list = *self.random.pick(&["fc00:b::2", "fc00:c::2", "fc00:bb::e"]);
        let path = self.random.below(3);
        match self.random.below(17) {
            12 | 13 => format!(
                "path {verb} w{path} segs {list} loopback interval 50 hold 100 source fc00:a::1"
            ),
            14 => format!("path del w{path}"),
            15 => format!(
                "protect {verb} {} by {} path w{path}",
                self.random.pick(&["eth1", "eth1 via fc00:b::2", "eth2"]),
                self.random.pick(&[
                    "segs fc00:bb::9",
                    "segs fc00:c::2",
                    "via fc00:a::2 dev eth0"
                ]),
            ),
            16 => format!("protect del {}", self.random.pick(&["eth1", "eth2"])),
            0..=3 => format!("route {verb} fd00:{number}::/32 {}", self.next_hop()),
            4 | 5 => format!("route del fd00:{number}::/32"),
            6 => {
                let list = *self
                    .random
                    .pick(&["fc00:b::2", "fc00:c::2", "fc00:bb::e", "fdff::1"]);
                format!("policy {verb} p{number} color {number} endpoint fc00:c::2 segs {list}")
            }
            7 => format!("policy del p{number}"),
            8 => format!(
                "route {verb} fd00:{number}::/32 policy p{}",
                self.random.below(6)
            ),
            9 => format!("port {} eth2", self.random.pick(&["add", "del"])),
            10 => format!("oam rate {number}"),
            _ => format!(
                "domain {} sid-block fc0{number}::/16",
                self.random.pick(&["add", "del"])
            ),
        }
    }

    /// A change of the kernel's configuration.
    fn of_kernel(&mut self) -> String {
        let number = self.random.below(6);
        let kernel = self.node().instance.mirror.kernel();
        let prefix = format!("fd00:{number}::/32");
        let is_there = kernel
            .routes
            .keys()
            .any(|key| key.prefix.to_string() == prefix);
        let (host, dev) = *self.random.pick(&[
            ("fc00:b::2", "eth1"),
            ("fc00:c::2", "eth2"),
            ("fc00:b::9", "eth1"),
        ]);
        match self.random.below(8) {
            0..=2 => format!("route replace {prefix} {}", self.next_hop()),
            3 if is_there => format!("route del {prefix}"),
            4 => format!("neigh del {host}"),
            5 => {
                let mac = self.random.below(16);
                format!("neigh add {host} lladdr 02:00:00:00:01:{mac:02x} dev {dev} nud reachable")
            }
            6 => format!("link down {dev}"),
            _ => format!("link up {dev}"),
        }
    }

    fn sidestep(&mut self, words: &str) {
        let before = self.node().shown();
        let done = self.node().sidestep(words);
        self.story.push(format!("sidestep {words}: {done:?}"));
        if let Err(error) = done {
            assert_eq!(self.node().shown(), before, "{error}");
        }
    }

    fn step(&mut self) {
        match self.random.below(21) {
            20 => {
                let own = &self.node().instance.configured.own;
                let all = discriminators(&own.watched_paths, &own.reflectors).unwrap_or_default();
                let all: Vec<u32> = all.into_values().flatten().collect();
                let dead = all.into_iter().filter(|_| self.random.one_in(2)).collect();
                self.story.push(format!("no answers to {dead:?}"));
                *self.node().world.dead.borrow_mut() = dead;
            }
            0..=6 => {
                let words = self.command();
                self.sidestep(&words);
            }
            7..=11 => {
                let words = self.of_kernel();
                self.story.push(format!("ip {words}"));
                self.node().ip_unread(&words);
                if !self.random.one_in(3) {
                    self.node().turn();
                }
            }
            12 => {
                let wait = Duration::from_millis(self.random.below(2000) as u64);
                self.story
                    .push(format!("notifications are lost for {wait:?}"));
                let resync = self.node().world.now() + wait;
                self.node().instance.mirror.lose(resync);
            }
            13 => {
                let writes = self.random.below(3);
                self.story.push(format!("a write fails after {writes}"));
                self.node().instance.tables.kernel.fail_after(writes);
            }
            14 => {
                let fails = self.random.one_in(2);
                self.story.push(format!("all writes fail: {fails}"));
                self.node().instance.tables.kernel.fail_always(fails);
            }
            15 | 16 => {
                let wait = Duration::from_millis(self.random.below(3000) as u64);
                self.story.push(format!("{wait:?} pass"));
                self.node().run(wait);
            }
            17 => self.apply(),
            18 => self.settle(),
            _ => self.batch(),
        }
    }

    /// Applies the running configuration without some of its lines, for a trial or for good.
    fn apply(&mut self) {
        let before = self.node().shown();
        if self.take_before_trial().is_some() {
            let done = self.node().sidestep("config confirm");
            self.story.push(format!("confirm: {done:?}"));
            assert!(done.is_ok(), "{done:?}");
            return;
        }
        let mut dropped = false;
        let text: Vec<&str> = before
            .lines()
            .filter(|line| {
                let drop = line.starts_with("- fd00:") && self.random.one_in(2);
                dropped |= drop;
                !drop
            })
            .collect();
        let is_empty = |line: &str| line.ends_with(':') && line != "ports:";
        let mut kept = Vec::new();
        for (number, line) in text.iter().enumerate() {
            let next = text.get(number + 1);
            if !is_empty(line) || next.is_some_and(|next| next.starts_with('-')) {
                kept.push(*line);
            }
        }
        let confirm = self.random.one_in(2).then_some(5);
        let request = Request::ApplyConfig {
            config: config_text(&(kept.join("\n") + "\n")),
            confirm,
        };
        let done = self.node().ask(request).map(|_| ());
        self.story
            .push(format!("config apply, {confirm:?}: {done:?}"));
        match done {
            Ok(()) if confirm.is_some() && dropped => self.before_trial = Some(before),
            Ok(()) => {}
            Err(error) => assert_eq!(self.node().shown(), before, "{error}"),
        }
    }

    fn batch(&mut self) {
        let before = self.node().shown();
        let lines: Vec<String> = (0..3)
            .map(|_| self.command())
            .filter(|line| !line.starts_with("port") && !line.starts_with("oam"))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let done = self.node().batch(&lines).map(|_| ());
        self.story.push(format!("batch {lines:?}: {done:?}"));
        if let Err(error) = done {
            assert_eq!(self.node().shown(), before, "{error}");
        }
    }

    /// Ends all failures and lets time pass. Packets leave as from a fresh instance.
    fn settle(&mut self) {
        self.story.push("all failures end".into());
        self.node().instance.tables.kernel.fail_always(false);
        let before_trial = self.take_before_trial();
        self.node().run(SECOND * 8);
        if let Some(before) = before_trial {
            assert_eq!(self.node().shown(), before, "the rollback");
        }
        assert!(!self.node().problems().contains("change_failed"));
        self.node().assert_compiled(TO, "afterwards");
    }

    /// A crash and a start: the configuration by commands is taken over.
    fn crash(&mut self) {
        self.story.push("a crash".into());
        self.node().instance.tables.kernel.fail_always(false);
        let before_trial = self.take_before_trial();
        let expected = before_trial.unwrap_or_else(|| self.node().shown());
        let options = Options {
            ports: vec!["eth0".into(), "eth1".into()],
            ..self.node().options()
        };
        let node = self.node.take().expect("a node");
        self.node = Some(node.crash(options).expect("a start"));
        let taken_over = self.node().instance.configured.taken_over.clone();
        let left_out = taken_over.unwrap_or_default().left_out;
        self.story.push(format!("taken over, without {left_out:?}"));
        assert_eq!(self.node().shown(), expected);
    }
}

fn live(seed: u64) {
    let mut day = Day::new(seed);
    for step in 0..STEPS {
        day.step();
        if step % 20 == 19 {
            day.crash();
        }
    }
    day.settle();
}

#[test]
fn whatever_happens_the_tables_are_those_of_a_fresh_start_in_the_end() {
    let number = |name: &str| {
        let value = std::env::var(name).ok()?;
        Some(value.parse::<u64>().expect(name))
    };
    if let Some(seed) = number("SIMULATION_SEED") {
        return live(seed);
    }
    for seed in 1..=number("SIMULATION_DAYS").unwrap_or(DAYS) {
        let lived = std::panic::catch_unwind(|| live(seed));
        assert!(lived.is_ok(), "SIMULATION_SEED={seed} repeats it");
    }
}
