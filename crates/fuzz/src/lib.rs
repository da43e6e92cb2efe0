//! Fuzzing: passes arbitrary input to each parser of external data, and checks properties that hold
//! for any input.
//!
//! A [`Target`] is one such parser. `src/bin/` has a program for each; `./dev fuzz TARGET` builds
//! it for libFuzzer, which chooses inputs by code coverage, starts it with the seeds of the target,
//! and stores inputs with new coverage. In an ordinary build, the same program only runs the given
//! files, or the seeds without arguments.

pub mod api;
#[cfg(feature = "cli")]
pub mod capture;
pub mod datapath;
pub mod engine;
#[cfg(feature = "cli")]
pub mod exec;
pub mod fpm;
pub mod genl;
pub mod netlink;
pub mod node;
pub mod text;
pub mod words;

use sidestep_testkit::random::Random;
use text::Vocabulary;

/// A fuzz target.
pub trait Target {
    /// Name of the target, for its program and for `./dev fuzz`.
    const NAME: &'static str;

    /// Returns a target that is ready for inputs.
    fn new() -> Self;

    /// Runs one input. Panics if a property is violated.
    fn run(&mut self, input: &[u8]);

    /// Returns the initial inputs, each with a file name and its bytes.
    fn seeds(&self) -> Vec<(String, Vec<u8>)>;

    /// Returns the words that text inputs consist of, or `None` for binary inputs.
    fn vocabulary(&self) -> Option<&Vocabulary> {
        None
    }

    /// Changes an input of at most `limit` bytes, and does not exceed the limit. `engine` runs it
    /// and does not interpret the bytes.
    fn mutate(
        &mut self,
        input: &mut Vec<u8>,
        limit: usize,
        random: &mut Random,
        engine: &dyn Fn(&mut Vec<u8>, usize),
    ) {
        match self.vocabulary() {
            Some(words) => words.mutate(input, limit, random, engine),
            None => engine(input, limit),
        }
    }
}
