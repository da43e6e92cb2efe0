//! Compiles BPF programs with clang, for the build script.

use std::env;
use std::path::Path;
use std::process::{Command, exit};

/// Returns `$CLANG`, or the first usual name of clang that runs.
pub fn find_clang() -> String {
    if let Ok(clang) = env::var("CLANG") {
        return clang;
    }
    let names = [
        "clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14",
    ];
    let runs = |name: &&str| {
        Command::new(name)
            .arg("--version")
            .output()
            .is_ok_and(|out| out.status.success())
    };
    let Some(clang) = names.iter().find(|name| runs(name)) else {
        eprintln!(
            "no clang found (looked for {}); install one or set CLANG",
            names.join(", ")
        );
        exit(1);
    };
    (*clang).to_owned()
}

/// Compiles a source file, with these additional arguments of clang.
pub fn compile(clang: &str, arguments: &[&str], source: &Path, object: &Path) {
    println!("cargo:rerun-if-changed={}", source.display());
    let mut command = Command::new(clang);
    command.args([
        "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror",
    ]);
    // Search libbpf-sys' own headers before those of libbpf-dev, which clang finds in /usr/include.
    if let Some(include) = env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(include);
    }
    // Debian has <asm/types.h> in a directory of the host architecture, which `-target bpf` does
    // not search.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    command
        .arg("-idirafter")
        .arg(format!("/usr/include/{arch}-linux-gnu"));
    command
        .args(arguments)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            eprintln!("{clang} could not compile {}: {status}", source.display());
            exit(1);
        }
        Err(error) => {
            eprintln!("cannot run {clang}: {error}");
            exit(1);
        }
    }
}
