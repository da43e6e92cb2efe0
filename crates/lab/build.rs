//! Compiles `bpf/*.bpf.c` with clang; the objects are embedded by `traffic`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// Sources, without `.bpf.c`.
const PROGRAMS: [&str; 3] = ["generator", "redirect", "sink"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = find_clang();
    for program in PROGRAMS {
        let source = format!("bpf/{program}.bpf.c");
        println!("cargo:rerun-if-changed={source}");
        compile(
            &clang,
            Path::new(&source),
            &out.join(format!("{program}.bpf.o")),
        );
    }
}

/// `$CLANG`, else the first of the usual names that runs.
fn find_clang() -> String {
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

fn compile(clang: &str, source: &Path, object: &Path) {
    let mut command = Command::new(clang);
    command.args([
        "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror",
    ]);
    // libbpf-sys' own headers first; those of libbpf-dev in /usr/include are found without being asked for.
    if let Some(include) = env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(include);
    }
    // Debian keeps <asm/types.h> in a directory of the host architecture, which `-target bpf` does not look into.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    command
        .arg("-idirafter")
        .arg(format!("/usr/include/{arch}-linux-gnu"));
    command.arg("-c").arg(source).arg("-o").arg(object);
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
