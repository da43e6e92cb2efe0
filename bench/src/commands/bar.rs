//! Progress of a measurement on the terminal.

use crate::progress::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar with the remaining time. Prints nothing if stderr is not a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// Creates a bar without planned steps.
    pub fn new() -> Self {
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %, {eta} left  {wide_msg}");
        Self(ProgressBar::new(1).with_style(style.expect("the template is a constant")))
    }
}

impl Progress for Bar {
    fn plan(&mut self, steps: usize) {
        self.0.set_length(steps as u64);
    }

    fn step(&mut self, what: &str) {
        self.0.inc(1);
        self.0.set_message(what.to_owned());
    }

    fn pass(&mut self, steps: usize) {
        self.0.inc(steps as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
