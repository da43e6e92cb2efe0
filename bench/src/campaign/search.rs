//! The key `search` of a campaign file, converted to [`Parameters`].

use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Spanned;
use sidestep_model::config::yaml::wrong;
use sidestep_model::error::ConfigError;

use super::file::Find;
use crate::search::{Parameters, Wrong, packets_min};

/// Rates in packets per second.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    start: Option<Spanned<f64>>,
    line: Option<Spanned<f64>>,
    beta: Option<Spanned<f64>>,
    epsilon: Option<Spanned<f64>>,
    trial: Option<Spanned<String>>,
    trials: Option<Spanned<u32>>,
    exceed: Option<Spanned<f64>>,
    #[serde(skip)]
    quick: bool,
}

impl Search {
    /// Changes the settings to few short trials and a wide interval.
    pub fn hurry(&mut self) {
        self.quick = true;
    }

    /// Returns the parameters of a search for this metric. An NDR is a PDR whose beta is 0.
    ///
    /// # Errors
    /// A value is out of range; the error has its line and column.
    pub fn parameters(&self, find: Find) -> Result<Parameters, ConfigError> {
        let number =
            |given: &Option<Spanned<f64>>, default| given.as_ref().map_or(default, |it| it.value);
        let trial = match &self.trial {
            None => Duration::from_secs(1),
            Some(text) => humantime::parse_duration(&text.value)
                .map_err(|_| wrong(text, "trial", &text.value, "a time such as 500ms or 2s"))?,
        };
        let beta = match find {
            Find::Ndr => 0.0,
            _ => number(&self.beta, 0.005),
        };
        let line = self.line.as_ref().map(|line| line.value);
        let trials = self.trials.as_ref().map_or(1, |trials| trials.value);
        let start = number(&self.start, START);
        let mut exceed = number(&self.exceed, 0.0);
        let (epsilon, trial, trials) = if self.quick {
            let epsilon = number(&self.epsilon, EPSILON).max(0.05);
            // The trial must be long enough for the start rate.
            let telling = Duration::try_from_secs_f64(packets_min(beta) / start);
            let quick = telling.unwrap_or(trial).max(QUICK);
            exceed = if exceed > 0.0 { 0.5 } else { exceed };
            (epsilon, trial.min(quick), trials.min(QUICK_TRIALS))
        } else {
            (number(&self.epsilon, EPSILON), trial, trials)
        };
        Parameters::new(start, line, beta, epsilon, trial)
            .and_then(|it| it.judged_by(trials, exceed))
            .map_err(|why| self.refused(why, trial, start))
    }

    /// Returns the error with the position of its value. Defaults are checked as well.
    fn refused(&self, why: Wrong, trial: Duration, start: f64) -> ConfigError {
        let text = why.to_string();
        let (name, allowed) = text.split_once(": ").unwrap_or((&text, ""));
        let number = |at: &Option<Spanned<f64>>| refused(at.as_ref(), name, allowed);
        let error = match why {
            // The line rate may be below the default start rate.
            Wrong::Start => number(&self.start).or_else(|| {
                let at = self.line.as_ref()?;
                Some(wrong(at, name, &START.to_string(), allowed))
            }),
            Wrong::Line => number(&self.line),
            Wrong::Beta => number(&self.beta),
            Wrong::Epsilon => number(&self.epsilon),
            Wrong::Exceed => number(&self.exceed),
            Wrong::Trial => refused(self.trial.as_ref(), name, allowed),
            Wrong::Trials => refused(self.trials.as_ref(), name, allowed),
            Wrong::Short => match &self.trial {
                Some(at) => {
                    let found =
                        format!("{} at {start} packets/s", humantime::format_duration(trial));
                    Some(wrong(at, name, &found, allowed))
                }
                None => number(&self.start).or_else(|| number(&self.beta)),
            },
        };
        error.unwrap_or_else(|| unreachable!("defaults are allowed"))
    }
}

/// Returns the error for a refused value, if the file contains it.
fn refused<T: ToString>(
    given: Option<&Spanned<T>>,
    name: &str,
    allowed: &str,
) -> Option<ConfigError> {
    let at = given?;
    Some(wrong(at, name, &at.value.to_string(), allowed))
}

/// Defaults: packets per second, and a share of the rate.
const START: f64 = 10_000.0;
const EPSILON: f64 = 0.01;

/// Longest trial of a `--quick` run.
const QUICK: Duration = Duration::from_millis(50);

/// Highest number of trials per rate in a `--quick` run.
const QUICK_TRIALS: u32 = 3;
