//! Compiles `bpf/*.bpf.c` with clang, and `c/dpdk.c` where libdpdk is installed; the objects are embedded.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../crates/testkit/build/bpf.rs"]
mod bpf;
#[path = "../crates/cli/build/version.rs"]
mod version;

/// Sources, without `.bpf.c`.
const PROGRAMS: [&str; 4] = ["linux", "lpm_trie", "nothing", "sidestep"];

/// The packet path's headers.
const DATAPATH: &str = "../datapath";

/// The golden vectors.
const VECTORS: &str = "../vectors";

fn main() {
    version::set(&[".", "../crates", "../datapath"]);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    for header in [
        "bpf/harness.bpf.h",
        "../datapath/table/fib6.h",
        "../datapath/wire/bytes.h",
        "c/dpdk.c",
    ] {
        println!("cargo:rerun-if-changed={header}");
    }
    let clang = bpf::find_clang();
    for program in PROGRAMS {
        bpf::compile(
            &clang,
            &["-I", DATAPATH, "-Wno-unused-parameter"],
            Path::new(&format!("bpf/{program}.bpf.c")),
            &out.join(format!("{program}.bpf.o")),
        );
    }
    vectors(&out.join("vectors.json.gz"));
    let object = out.join("dpdk.so");
    if !dpdk(&clang, &object) {
        // Nothing inside: the bench then says how to get it.
        fs::write(&object, []).expect("OUT_DIR is writable");
    }
}

/// Writes names and contents of the golden vectors, compressed.
fn vectors(to: &Path) {
    println!("cargo:rerun-if-changed={VECTORS}");
    let mut names: Vec<PathBuf> = fs::read_dir(VECTORS)
        .expect("the vectors are there")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    names.sort();
    let texts: Vec<(String, String)> = names
        .iter()
        .map(|path| {
            let name = path
                .file_name()
                .expect("a file")
                .to_string_lossy()
                .into_owned();
            (name, fs::read_to_string(path).expect("a readable file"))
        })
        .collect();
    let file = fs::File::create(to).expect("OUT_DIR is writable");
    let encoder = flate2::write::GzEncoder::new(file, flate2::Compression::best());
    serde_json::to_writer(encoder, &texts).expect("OUT_DIR is writable");
}

/// A shared object, so that the program starts also where DPDK is not. Whether libdpdk is there.
fn dpdk(clang: &str, object: &Path) -> bool {
    let asked = Command::new("pkg-config")
        .args(["--cflags", "libdpdk"])
        .output();
    let Some(asked) = asked.ok().filter(|asked| asked.status.success()) else {
        return false;
    };
    let flags = String::from_utf8_lossy(&asked.stdout);
    let built = Command::new(clang)
        .args(["-shared", "-fPIC", "-O2", "-std=gnu17", "-Wall", "-Wextra"])
        .args(flags.split_whitespace())
        .args(["c/dpdk.c", "-lrte_fib", "-lrte_lpm", "-lrte_eal", "-o"])
        .arg(object)
        .status();
    let built = built.is_ok_and(|status| status.success());
    if !built {
        println!(
            "cargo:warning=DPDK is installed, but c/dpdk.c does not build with it: the bench will be without"
        );
    }
    built
}
