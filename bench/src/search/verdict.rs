//! Verdict on a rate, from as many trials as necessary.

use sidestep_testkit::traffic::trial::{Disorder, Trial};

use super::{PACING, Parameters};

/// The trials at a rate so far.
#[derive(Debug)]
pub struct Verdict<'a> {
    parameters: &'a Parameters,
    /// Trials that lost at most beta.
    low: Vec<Trial>,
    /// Trials that lost more than beta.
    high: Vec<Trial>,
}

impl<'a> Verdict<'a> {
    /// Returns a verdict without trials.
    pub fn new(parameters: &'a Parameters) -> Self {
        Self {
            parameters,
            low: Vec::new(),
            high: Vec::new(),
        }
    }

    /// Records a trial. Returns `None` until the remaining trials cannot change the verdict. Then
    /// returns whether the rate passes, with the sums of the deciding trials. A trial with little
    /// loss and a much lower offered rate than another is repeated. The number of trials is at most
    /// twice the requested one.
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

/// Merges the trials at one rate into one.
fn together(trials: &[Trial]) -> Trial {
    Trial {
        load: trials[0].load,
        seconds: trials.iter().map(|trial| trial.seconds).sum(),
        sent: trials.iter().map(|trial| trial.sent).sum(),
        received: trials.iter().map(|trial| trial.received).sum(),
        // Each trial reports its own disorder.
        disorder: Disorder::default(),
        latency: None,
    }
}
