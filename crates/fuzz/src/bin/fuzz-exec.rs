//! `./dev fuzz exec`
#![cfg_attr(fuzzing, no_main)]

sidestep_fuzz::fuzz_target!(sidestep_fuzz::exec::Exec);
