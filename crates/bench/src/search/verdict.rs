//! Whether a rate passes, by as many trials as that takes.

use sidestep_testkit::traffic::trial::{Disorder, Trial};

use super::{PACING, Parameters};

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
    /// the trials that say so, together. A trial that loses little, in which much less was offered than in another one, says nothing
    /// of the rate and is made again; but there are no more than twice as many as were asked for.
    pub fn add(&mut self, trial: &Trial) -> Option<(bool, Trial)> {
        let passes = self.parameters.passes(trial);
        let side = if passes {
            &mut self.low
        } else {
            &mut self.high
        };
        side.push(trial.clone());
        let all = self.parameters.trials as usize;
        let may_exceed = self.parameters.may_exceed() as usize;
        if self.high.len() > may_exceed {
            return Some((false, together(&self.high)));
        }
        let rates = self.low.iter().chain(&self.high).map(Trial::sent_rate);
        let least = rates.fold(0.0, f64::max) * (1.0 - PACING);
        let full = self.low.iter().filter(|it| it.sent_rate() >= least);
        let full: Vec<Trial> = full.cloned().collect();
        if full.len() >= all - may_exceed {
            return Some((true, together(&full)));
        }
        let (low, high) = (self.low.len(), self.high.len());
        (low + high >= 2 * all).then(|| {
            let counted = (full.len() + high) as f64;
            let passes = high as f64 <= self.parameters.exceed * counted;
            let side = if passes { &full } else { &self.high };
            (passes, together(side))
        })
    }
}

/// Trials at one rate as one; a single one is itself.
fn together(trials: &[Trial]) -> Trial {
    Trial {
        load: trials[0].load,
        seconds: trials.iter().map(|trial| trial.seconds).sum(),
        sent: trials.iter().map(|trial| trial.sent).sum(),
        received: trials.iter().map(|trial| trial.received).sum(),
        // Each is told with its own trial.
        disorder: Disorder::default(),
        latency: None,
    }
}
