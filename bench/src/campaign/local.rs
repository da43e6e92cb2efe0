//! Selects the engines and CPUs of a campaign, on this machine or on a testbed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::engine::behavior::kinds;
use crate::engine::{self, Case, Engine, Flows, Options, Placement, Size, napi, testbed};
use serde::Serialize;
use sidestep_model::config::yaml::wrong;
use sidestep_model::error::ConfigError;

use super::file::{Campaign, Find};
use super::plan::Vocabulary;
use crate::cpu;

/// Returns all engines. They use the CPUs that the campaign names, or else suitable ones; further
/// cores of a case use the last CPUs that this process may use. The process itself moves to the
/// remaining CPUs, if there are any. The machines of a testbed report their features.
///
/// # Errors
/// The campaign names a CPU that this process may not use, or a machine of its testbed is
/// unavailable.
pub fn engines(
    campaign: &Campaign,
    interrupted: &Arc<AtomicBool>,
) -> Result<Vec<Box<dyn Engine>>, ConfigError> {
    check_names(campaign)?;
    let commands = campaign.commands.iter().map(|it| it.value.clone());
    let options = Options {
        interrupted: Arc::clone(interrupted),
        commands: commands.collect(),
        ..Options::default()
    };
    if let Some(testbed) = &campaign.testbed {
        let engines = testbed::engines(&testbed.value, &options);
        return engines.map_err(|error| wrong(testbed, error.to_string(), "", ""));
    }
    let (placement, more_cores) = placed(campaign)?;
    Ok(engine::all(&Options {
        placement,
        more_cores,
        ..options
    }))
}

/// Returns the CPUs of generator, system and sink, and those of further cores. Moves this process
/// away from them.
fn placed(campaign: &Campaign) -> Result<(Placement, Vec<usize>), ConfigError> {
    let allowed = cpu::allowed();
    let placement = match &campaign.cpus {
        None => suitable(campaign, &allowed),
        Some(given) => {
            for cpu in given.value.cpus() {
                if !allowed.contains(&cpu) {
                    let allowed: Vec<String> = allowed.iter().map(usize::to_string).collect();
                    return Err(wrong(given, "CPU", &cpu.to_string(), &allowed.join(", ")));
                }
            }
            if !given.value.is_shared() && !napi::can_pin() {
                let allowed = "one CPU for all three: before Linux 6.8, or in a PID namespace, the threads that poll a port are unknown";
                return Err(wrong(given, "different CPUs", "", allowed));
            }
            given.value
        }
    };
    let placed = placement.cpus();
    let more_cores = allowed.iter().rev().copied();
    let more_cores = more_cores.filter(|cpu| !placed.contains(cpu));
    let more_cores: Vec<usize> = more_cores.take(most_cores(campaign) - 1).collect();
    let all = [&placed, &more_cores[..]].concat();
    // If the cores use all CPUs, the process only leaves those that every case uses.
    let some_left = allowed.iter().any(|cpu| !all.contains(cpu));
    cpu::leave(if some_left { &all } else { &placed });
    Ok((placement, more_cores))
}

/// Checks that engines of commands have unique names.
fn check_names(campaign: &Campaign) -> Result<(), ConfigError> {
    let known = engine::all(&Options::default());
    for commands in &campaign.commands {
        let name = &commands.value.name;
        if known.iter().any(|engine| engine.name() == name) {
            return Err(wrong(
                commands,
                "an engine with this name already exists",
                name,
                "",
            ));
        }
    }
    Ok(())
}

/// Returns the highest number of CPUs that a case needs.
fn most_cores(campaign: &Campaign) -> usize {
    let cores = campaign.groups.iter().flat_map(|group| &group.cores);
    cores.map(|cores| cores.value as usize).fold(1, usize::max)
}

/// Returns the behaviors that campaigns may name.
pub fn vocabulary() -> Vocabulary {
    let behaviors = kinds()
        .into_iter()
        .map(|kind| (kind.name.to_owned(), kind.sids));
    Vocabulary {
        behaviors: behaviors.collect(),
    }
}

/// A behavior and the engines that support it on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Offer {
    /// Name as in campaigns.
    pub behavior: String,
    /// Name as in the RFC.
    pub title: String,
    /// Minimum and maximum number of segments.
    pub sids: (u32, u32),
    /// Engines, each with the reason if it does not support the behavior here.
    pub engines: Vec<(String, Option<String>)>,
}

/// Returns the behaviors that the engines of this machine support. Nothing is set up.
pub fn offers() -> Vec<Offer> {
    let engines = engine::all(&Options::default());
    let offers = kinds().into_iter().map(|kind| {
        let (least, most) = (*kind.sids.start(), *kind.sids.end());
        let case = |sids| Case {
            behavior: kind.name.into(),
            sids,
            size: Size::Bytes(SIZE.max(kind.least as u32)),
            flows: Flows::Uniform(1),
            rules: 0,
            routes: 0,
            cores: 1,
        };
        // If no number of segments is supported, report the reason for one segment.
        let refuses = |engine: &dyn Engine| {
            let why = engine.refuses(&case(1.clamp(least, most)))?;
            let mut others = least..=most;
            let all = others.all(|sids| engine.refuses(&case(sids)).is_some());
            all.then_some(why)
        };
        let engines = engines
            .iter()
            .map(|engine| (engine.name().to_owned(), refuses(&**engine)));
        Offer {
            behavior: kind.name.into(),
            title: kind.title.into(),
            sids: (least, most),
            engines: engines.collect(),
        }
    });
    offers.collect()
}

/// Returns the default CPUs. Trials that must lose packets under overload need a separate CPU for
/// the generator: on a shared CPU it waits for the system, and the result is the rate of the loop.
/// Uses the last CPUs, because the first one handles most interrupts of a machine.
fn suitable(campaign: &Campaign, allowed: &[usize]) -> Placement {
    let mut finds = campaign
        .groups
        .iter()
        .flat_map(|group| campaign.finds(group));
    let searched = finds.any(|find| find != Find::Mrr);
    // With several cores, each one runs generator, system and sink.
    let apart = searched && most_cores(campaign) == 1 && napi::can_pin();
    let at = |generator, system, sink| Placement {
        generator,
        system,
        sink,
    };
    match *allowed {
        [.., generator, system, sink] if apart => at(generator, system, sink),
        [generator, other] if apart => at(generator, other, other),
        [.., last] => at(last, last, last),
        [] => at(0, 0, 0),
    }
}

/// Size of the packets in the query, in bytes.
const SIZE: u32 = 64;
