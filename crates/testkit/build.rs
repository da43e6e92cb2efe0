//! Compiles `bpf/*.bpf.c` with clang; `traffic` embeds the objects.

use std::env;
use std::path::{Path, PathBuf};

#[path = "build/bpf.rs"]
mod bpf;

/// Sources, without `.bpf.c`.
const PROGRAMS: [&str; 5] = ["generator", "receiver", "redirect", "sink", "tally"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=bpf/stamp.h");
    let clang = bpf::find_clang();
    for program in PROGRAMS {
        bpf::compile(
            &clang,
            &["-Wno-unused-parameter"],
            Path::new(&format!("bpf/{program}.bpf.c")),
            &out.join(format!("{program}.bpf.o")),
        );
    }
}
