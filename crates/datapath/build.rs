//! Compiles the packet path: for XDP and TC with clang, each also as the traced program, and natively with the same
//! clang.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let source = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .join("../../datapath");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("set by cargo"));
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CLANG");

    let clang = clang();
    for (target, object, define) in [
        ("xdp", "xdp", None),
        ("tc", "tc", None),
        ("xdp", "xdp_traced", Some("-DSIDESTEP_TRACED")),
        ("tc", "tc_traced", Some("-DSIDESTEP_TRACED")),
        ("measure", "measure", None),
        ("probe", "probe", None),
    ] {
        bpf(
            &clang,
            &source,
            &source.join(format!("{target}.bpf.c")),
            define,
            &out.join(format!("{object}.bpf.o")),
        );
    }
    let mut native = cc::Build::new();
    // For `./dev fuzz`, which says so by `--cfg` in RUSTFLAGS and brings the runtime: what is undefined ends the run, and
    // the fuzzer sees which way a packet went; or every line is counted.
    let asked = |cfg: &str| std::env::var_os(cfg).is_some();
    if asked("CARGO_CFG_FUZZING") {
        native
            .flag("-fsanitize=address,undefined,fuzzer-no-link")
            .flag("-fno-sanitize-recover=all")
            .flag("-fno-omit-frame-pointer")
            .flag("-g");
    } else if asked("CARGO_CFG_COVERAGE") {
        native
            .flag("-fprofile-instr-generate")
            .flag("-fcoverage-mapping");
    }
    native
        .compiler(&clang)
        .file(source.join("native.c"))
        .include(&source)
        .std("c17")
        .flag("-Wno-unused-parameter")
        .warnings_into_errors(true)
        .opt_level(2)
        .compile("sidestep_native");
    bindgen::Builder::default()
        .header(source.join("native.h").to_string_lossy())
        .header(source.join("table/fib6.h").to_string_lossy())
        .raw_line("// Generated from native.h and table/fib6.h.")
        .allowlist_item("sidestep_(native|outcome).*|SIDESTEP_(NATIVE|OUTCOME).*|FIB6_.*")
        // The records come from the abi crate.
        .blocklist_type(
            "sidestep_(port|route|group|adjacency|policy|hmac_key|hmac_work|hmac_known|learned|headers|flow|flow_set|trace|report)(_counters)?",
        )
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .layout_tests(false)
        .generate()
        .expect("datapath/native.h is valid C (libclang is needed: ./dev setup)")
        .write_to_file(out.join("native.rs"))
        .expect("OUT_DIR is writable");
}

/// `$CLANG`, else the newest clang there is. BPF needs one; the native target takes the same.
fn clang() -> String {
    let named = std::env::var("CLANG").ok();
    named
        .into_iter()
        .chain(["clang-19", "clang-18", "clang-17", "clang-16", "clang"].map(String::from))
        .find(|name| {
            Command::new(name)
                .arg("--version")
                .output()
                .is_ok_and(|o| o.status.success())
        })
        .expect("clang 16 or newer is needed to compile datapath/ (run ./dev setup, or set CLANG)")
}

fn bpf(clang: &str, include: &Path, source: &Path, define: Option<&str>, object: &Path) {
    // libbpf's own headers (bpf_helpers.h), as libbpf-sys ships them; and the architecture's UAPI headers, which
    // Debian keeps in a multiarch folder that `-target bpf` does not search.
    let libbpf = std::env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(clang)
        .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3", "-std=gnu17"])
        .args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"])
        // All calls in a row have 512 bytes of stack together, of which Linux 6.1 counts whole 32 for each: the programs
        // themselves must leave the other half to what they call.
        .arg("-Wframe-larger-than=256")
        .arg(format!("-I{libbpf}"))
        .arg("-isystem")
        .arg(multiarch)
        .arg("-I")
        .arg(include)
        .args(define)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .output()
        .unwrap_or_else(|e| panic!("{clang}: {e}"));
    assert!(
        output.status.success(),
        "{}:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
}
