//! Whether a rate passes, by as many trials as that takes.

use sidestep_lab::traffic::trial::Trial;

use super::Parameters;

/// The trials at a rate so far.
#[derive(Debug)]
pub struct Verdict<'a> {
    parameters: &'a Parameters,
    /// Those that lost no more than beta.
    low: Vec<Trial>,
    /// Those that lost more.
    high: Vec<Trial>,
}

impl<'a> Verdict<'a> {
    /// Without any yet.
    pub fn new(parameters: &'a Parameters) -> Self {
        Self {
            parameters,
            low: Vec::new(),
            high: Vec::new(),
        }
    }

    /// Takes down a trial. As soon as those to come cannot change it: whether the rate passes, and what was offered and delivered in
    /// the trials that say so, together.
    pub fn add(&mut self, trial: &Trial) -> Option<(bool, Trial)> {
        let passes = self.parameters.passes(trial);
        let side = if passes {
            &mut self.low
        } else {
            &mut self.high
        };
        side.push(trial.clone());
        let all = self.parameters.trials as usize;
        let may_exceed = (self.parameters.exceed * all as f64).floor() as usize;
        let needed = if passes {
            all - may_exceed
        } else {
            may_exceed + 1
        };
        (side.len() >= needed).then(|| (passes, together(side)))
    }
}

/// Trials at one rate as one; a single one is itself.
fn together(trials: &[Trial]) -> Trial {
    Trial {
        load: trials[0].load,
        seconds: trials.iter().map(|trial| trial.seconds).sum(),
        sent: trials.iter().map(|trial| trial.sent).sum(),
        received: trials.iter().map(|trial| trial.received).sum(),
        latency: None,
    }
}
