//! Fuzzing: everything that comes in from outside, given to whoever reads it, and what must hold whatever it is.
//!
//! A [`Target`] is one such reader. `src/bin/` has a program for each; `./dev fuzz TARGET` builds
//! it for libFuzzer, which chooses inputs by code coverage, starts it with the target's seeds, and
//! keeps what it finds. Built in the ordinary way the same program only runs the files that it is
//! given, and without any the seeds.

pub mod api;
#[cfg(feature = "cli")]
pub mod capture;
pub mod datapath;
pub mod engine;
#[cfg(feature = "cli")]
pub mod exec;
pub mod genl;
pub mod netlink;
pub mod node;
pub mod text;
pub mod words;

use sidestep_testkit::random::Random;
use text::Vocabulary;

/// A fuzz target.
pub trait Target {
    /// Its name: that of its program, and what `./dev fuzz` takes.
    const NAME: &'static str;

    /// Ready for inputs.
    fn new() -> Self;

    /// Gives it one input. Panics if something does not hold that must.
    fn run(&mut self, input: &[u8]);

    /// Inputs to begin with: a name for a file, and the bytes.
    fn seeds(&self) -> Vec<(String, Vec<u8>)>;

    /// The words that its inputs are made of, if they are text.
    fn vocabulary(&self) -> Option<&Vocabulary> {
        None
    }

    /// Changes an input that is no longer than `limit`, and stays so. `engine` runs it and does not
    /// interpret the bytes.
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
