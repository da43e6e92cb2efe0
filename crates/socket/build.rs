//! Compiles the C header for Rust, and the preload library of `sidestep exec`, which the program
//! embeds.

use std::path::PathBuf;

/// Warnings are errors.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-std=gnu11"];

fn main() {
    for folder in ["include", "preload", "src/header.c"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    let mut header = cc::Build::new();
    // `./dev fuzz` builds with sanitizers, as for the packet path.
    if std::env::var_os("CARGO_CFG_FUZZING").is_some() {
        header
            .compiler(std::env::var("CLANG").unwrap_or_else(|_| "clang".into()))
            .flag("-fsanitize=address,undefined,fuzzer-no-link")
            .flag("-fno-sanitize-recover=all")
            .flag("-fno-omit-frame-pointer")
            .flag("-g");
    }
    for flag in WARNINGS {
        header.flag(flag);
    }
    header.file("src/header.c").compile("sidestep_socket");

    let library =
        PathBuf::from(std::env::var("OUT_DIR").expect("set by cargo")).join("libsidestep_exec.so");
    // Programs of this machine load the library, so it is compiled for the host without sanitizers.
    let compiler = cc::Build::new().opt_level(2).debug(false).get_compiler();
    let status = compiler
        .to_command()
        .args(WARNINGS)
        .args(["-shared", "-fPIC", "-s", "-Wl,-z,now", "-Wl,-z,noexecstack"])
        .arg("-o")
        .arg(&library)
        .args(["preload/preload.c", "-ldl", "-pthread"])
        .status()
        .expect("the C compiler starts");
    assert!(
        status.success(),
        "preload/preload.c does not compile: {status}"
    );
}
