//! `./dev fuzz fpm`
#![cfg_attr(fuzzing, no_main)]

sidestep_fuzz::fuzz_target!(sidestep_fuzz::fpm::Fpm);
