//! Sets the version that `sidestep --version` prints, and the options of the linker.

use std::env;

#[path = "build/version.rs"]
mod version;

fn main() {
    version::set(&["..", "../../datapath"]);
    // On this target rustc links with LLD, which merges functions of equal code: 3 % of the program.
    // Rust gives functions no address of their own. libbpf compares one address, of a function that no
    // other one equals.
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("TARGET", "x86_64-unknown-linux-gnu") && is("PROFILE", "release") {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}
