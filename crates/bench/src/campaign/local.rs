//! The engines of this machine, or of the testbed that it drives, for a campaign.

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

/// Every engine that there is, on the CPUs that the campaign names, otherwise on those that suit
/// it, and for a case of several cores on the last others that this process may use. The process
/// itself moves to the rest, if there is any. On a testbed, its machines report their features.
///
/// # Errors
/// The campaign names a CPU that this process may not use, or a machine of its testbed cannot be had.
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

/// The CPUs of generator, system and sink, and those of more cores. This process moves away from them.
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
                let allowed = "one CPU for all three: this kernel does not tell who polls a port (Linux 6.8), or a PID namespace hides it";
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
    // Where the cores take all CPUs, it keeps off those that every case uses.
    let some_left = allowed.iter().any(|cpu| !all.contains(cpu));
    cpu::leave(if some_left { &all } else { &placed });
    Ok((placement, more_cores))
}

/// Engines of commands have names of their own.
fn check_names(campaign: &Campaign) -> Result<(), ConfigError> {
    let known = engine::all(&Options::default());
    for commands in &campaign.commands {
        let name = &commands.value.name;
        if known.iter().any(|engine| engine.name() == name) {
            return Err(wrong(
                commands,
                "an engine of this name is there already",
                name,
                "",
            ));
        }
    }
    Ok(())
}

/// CPUs of the case that has most of them.
fn most_cores(campaign: &Campaign) -> usize {
    let cores = campaign.groups.iter().flat_map(|group| &group.cores);
    cores.map(|cores| cores.value as usize).fold(1, usize::max)
}

/// The behaviors that campaigns may name.
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
    /// In a campaign's spelling.
    pub behavior: String,
    /// In the RFC's.
    pub title: String,
    /// How many segments it takes: least and most.
    pub sids: (u32, u32),
    /// Engines, and why each cannot do it here, if it cannot.
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
        // Why not with one segment, if with no other number either.
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

/// For trials that must lose packets under overload, the generator has a CPU of its own. On a
/// shared CPU it waits for the system, and the result is the rate of the loop. The last ones are
/// taken: the first has most of a machine's interrupts.
fn suitable(campaign: &Campaign, allowed: &[usize]) -> Placement {
    let mut finds = campaign
        .groups
        .iter()
        .flat_map(|group| campaign.finds(group));
    let searched = finds.any(|find| find != Find::Mrr);
    // Several cores have all three on each.
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

/// Total of the requested packets.
const SIZE: u32 = 64;
