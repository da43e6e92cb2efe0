//! Runs a [`Target`]: libFuzzer if built by `./dev fuzz` (`--cfg fuzzing`), otherwise a plain
//! program.
//!
//! libFuzzer comes with clang; its interface is three C functions (`LLVMFuzzerInitialize`,
//! `LLVMFuzzerTestOneInput`, `LLVMFuzzerCustomMutator`), which [`fuzz_target`](crate::fuzz_target)
//! defines.

use std::error::Error;
use std::path::{Path, PathBuf};

use crate::Target;

/// Environment variable with a folder. If it is set, the program writes the seeds there instead of
/// fuzzing.
pub const SEEDS: &str = "SIDESTEP_FUZZ_SEEDS";

/// Runs the files and the files of the folders, or the seeds without arguments. A violated property
/// panics.
pub fn replay<T: Target>(paths: &[String]) -> Result<usize, Box<dyn Error>> {
    let mut target = T::new();
    if paths.is_empty() {
        let seeds = target.seeds();
        for (_, input) in &seeds {
            target.run(input);
        }
        return Ok(seeds.len());
    }
    let mut inputs = 0;
    for path in paths {
        for file in files(Path::new(path)).map_err(|error| format!("{path}: {error}"))? {
            target.run(&std::fs::read(&file).map_err(|error| format!("{path}: {error}"))?);
            inputs += 1;
        }
    }
    Ok(inputs)
}

/// Returns the file, or the files in the folder.
fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    std::fs::read_dir(path)?
        .map(|entry| Ok(entry?.path()))
        .collect()
}

/// Writes each seed to a file with its name.
pub fn write_seeds<T: Target>(folder: &Path) -> std::io::Result<usize> {
    let seeds = T::new().seeds();
    std::fs::create_dir_all(folder)?;
    for (name, input) in &seeds {
        std::fs::write(folder.join(name), input)?;
    }
    Ok(seeds.len())
}

/// The program of a [`Target`].
#[macro_export]
macro_rules! fuzz_target {
    ($target:ty) => {
        #[cfg(not(fuzzing))]
        fn main() -> Result<(), Box<dyn std::error::Error>> {
            let paths: Vec<String> = std::env::args().skip(1).collect();
            let inputs = $crate::engine::replay::<$target>(&paths)?;
            println!(
                "{}: {inputs} inputs, no violated property",
                <$target as $crate::Target>::NAME
            );
            Ok(())
        }

        #[cfg(fuzzing)]
        #[doc(hidden)]
        mod libfuzzer {
            use super::*;
            use $crate::engine::libfuzzer;

            std::thread_local! {
                static TARGET: std::cell::RefCell<$target> =
                    std::cell::RefCell::new(<$target as $crate::Target>::new());
            }

            #[unsafe(no_mangle)]
            extern "C" fn LLVMFuzzerInitialize(_: *mut i32, _: *mut *mut *mut u8) -> i32 {
                libfuzzer::write_seeds_and_exit::<$target>();
                TARGET.with(|_| ());
                0
            }

            /// # Safety
            /// libFuzzer passes its input.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> i32 {
                // SAFETY: as above.
                let input = unsafe { libfuzzer::input(data, size) };
                TARGET.with_borrow_mut(|target| $crate::Target::run(target, input));
                0
            }

            /// # Safety
            /// libFuzzer passes a buffer of `limit` bytes, `size` of them in use.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn LLVMFuzzerCustomMutator(
                data: *mut u8,
                size: usize,
                limit: usize,
                seed: u32,
            ) -> usize {
                // SAFETY: as above.
                let buffer = unsafe { std::slice::from_raw_parts_mut(data, limit) };
                TARGET.with_borrow_mut(|target| libfuzzer::mutate(target, buffer, size, seed))
            }
        }
    };
}

/// The Rust side of libFuzzer's interface.
#[cfg(fuzzing)]
pub mod libfuzzer {
    use super::{SEEDS, Target, write_seeds};
    use sidestep_testkit::random::Random;

    unsafe extern "C" {
        fn LLVMFuzzerMutate(data: *mut u8, size: usize, limit: usize) -> usize;
    }

    /// Writes the seeds and exits, if [`SEEDS`] is set.
    pub fn write_seeds_and_exit<T: Target>() {
        let Some(folder) = std::env::var_os(SEEDS) else {
            return;
        };
        match write_seeds::<T>(folder.as_ref()) {
            Ok(seeds) => {
                println!("{}: {seeds} seeds", T::NAME);
                std::process::exit(0);
            }
            Err(error) => {
                eprintln!("{}: {error}", folder.display());
                std::process::exit(1);
            }
        }
    }

    /// Returns the bytes that libFuzzer passed.
    ///
    /// # Safety
    /// `data` is `size` bytes, or anything if `size` is 0.
    pub unsafe fn input<'a>(data: *const u8, size: usize) -> &'a [u8] {
        if size == 0 {
            return &[];
        }
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(data, size) }
    }

    /// Changes the first `size` bytes of `buffer`. Returns the new number of bytes.
    pub fn mutate<T: Target>(target: &mut T, buffer: &mut [u8], size: usize, seed: u32) -> usize {
        let engine = |input: &mut Vec<u8>, limit: usize| {
            let size = input.len();
            input.resize(limit.max(size), 0);
            // SAFETY: the vector has at least `limit` bytes.
            let size = unsafe { LLVMFuzzerMutate(input.as_mut_ptr(), size, limit) };
            input.truncate(size);
        };
        let limit = buffer.len();
        let mut input = buffer[..size].to_vec();
        target.mutate(&mut input, limit, &mut Random::new(seed.into()), &engine);
        let size = input.len().min(limit);
        buffer[..size].copy_from_slice(&input[..size]);
        size
    }
}
