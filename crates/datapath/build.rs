//! Compiles the packet path for XDP, TC and as a native library with one clang, each BPF target
//! also as the traced program. Generates the Rust side of the C headers.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use object::build::elf::{Builder, SectionData};

fn main() {
    let source = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .join("../../datapath");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("set by cargo"));
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CLANG");

    let clang = clang();
    let build = &|target: &str, object: &str, define| {
        let code = source.join(format!("{target}.bpf.c"));
        let binary = out.join(format!("{object}.bpf.o"));
        bpf(&clang, &source, &code, define, &binary);
        remove_debug_information(&binary);
        compress(&out, object);
    };
    // Each of the large ones takes half a minute.
    std::thread::scope(|scope| {
        for (target, object, define) in [
            ("xdp", "xdp_traced", Some("-DSIDESTEP_TRACED")),
            ("tc", "tc_traced", Some("-DSIDESTEP_TRACED")),
            ("xdp", "xdp", None),
            ("tc", "tc", None),
            ("measure", "measure", None),
            ("gate", "gate", None),
            ("probe", "probe", None),
        ] {
            scope.spawn(move || build(target, object, define));
        }
        compile_native(&clang, &source);
    });
    generate_abi(&source, &out);
    generate_native(&source, &out);
    std::fs::write(
        out.join("reasons.rs"),
        reasons(&std::fs::read_to_string(source.join("reason.h")).expect("reason.h")),
    )
    .expect("OUT_DIR is writable");
}

/// Removes DWARF, which clang writes with BTF. The kernel and libbpf read BTF alone.
fn remove_debug_information(binary: &Path) {
    let bytes = std::fs::read(binary).expect("clang has written it");
    let mut elf = Builder::read(bytes.as_slice()).expect("clang writes valid ELF");
    for section in &mut elf.sections {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    elf.delete_orphan_symbols();
    elf.delete_orphan_relocations();
    // clang keeps the names of sections and symbols in one table. The writer has two.
    let names = elf.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = object::elf::SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    elf.write(&mut stripped).expect("removal keeps it valid");
    std::fs::write(binary, stripped).expect("OUT_DIR is writable");
}

/// Writes a gzip copy with the suffix `.gz`. The programs contain this copy, a quarter of the size.
fn compress(out: &Path, object: &str) {
    let bytes = std::fs::read(out.join(format!("{object}.bpf.o"))).expect("clang has written it");
    let file = std::fs::File::create(out.join(format!("{object}.bpf.o.gz")));
    let mut encoder = GzEncoder::new(file.expect("OUT_DIR is writable"), Compression::best());
    encoder.write_all(&bytes).expect("OUT_DIR is writable");
    encoder.finish().expect("OUT_DIR is writable");
}

fn compile_native(clang: &str, source: &Path) {
    let mut native = cc::Build::new();
    // `./dev fuzz` sets these with `--cfg` in RUSTFLAGS and links the runtime: undefined behavior
    // ends the run, and the fuzzer sees each branch. Coverage runs count every line.
    let is_set = |cfg: &str| std::env::var_os(cfg).is_some();
    if is_set("CARGO_CFG_FUZZING") {
        native
            .flag("-fsanitize=address,undefined,fuzzer-no-link")
            .flag("-fno-sanitize-recover=all")
            .flag("-fno-omit-frame-pointer")
            .flag("-g");
    } else if is_set("CARGO_CFG_COVERAGE") {
        native
            .flag("-fprofile-instr-generate")
            .flag("-fcoverage-mapping");
    }
    native
        .compiler(clang)
        .file(source.join("native.c"))
        .include(source)
        .std("c17")
        .flag("-Wno-unused-parameter")
        .warnings_into_errors(true)
        .opt_level(2)
        .compile("sidestep_native");
}

/// Generates the Rust side of `abi.h`, `report.h` and `sample.h`.
fn generate_abi(source: &Path, out: &Path) {
    bindgen::Builder::default()
        // Both include abi.h.
        .header(source.join("report.h").to_string_lossy())
        .header(source.join("sample.h").to_string_lossy())
        .allowlist_item("sidestep_.*|SIDESTEP_.*|DROP_.*|PUNT_.*|REASON_.*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_eq(true)
        .derive_ord(true)
        .derive_hash(true)
        .new_type_alias(INDEX_TYPES)
        .parse_callbacks(Box::new(IndexNames))
        .layout_tests(true)
        .no_debug("sidestep_hmac_.*")
        .generate()
        .expect("datapath/abi.h is valid C (libclang is needed: ./dev setup)")
        .write_to_file(out.join("abi.rs"))
        .expect("OUT_DIR is writable");
}

/// Typedefs of indices, by their Rust names. They become newtypes.
const INDEX_TYPES: &str = "[A-Z][A-Za-z]*(Id|Slot)";

/// Names the index types as Rust does: `sidestep_route_id` becomes `RouteId`.
#[derive(Debug)]
struct IndexNames;

impl bindgen::callbacks::ParseCallbacks for IndexNames {
    fn item_name(&self, item: bindgen::callbacks::ItemInfo<'_>) -> Option<String> {
        let name = item.name.strip_prefix("sidestep_")?;
        if !name.ends_with("_id") && !name.ends_with("_slot") {
            return None;
        }
        let capitalize = |word: &str| word[..1].to_uppercase() + &word[1..];
        Some(name.split('_').map(capitalize).collect())
    }
}

/// Generates the Rust side of `native.h` and `table/fib6.h`.
fn generate_native(source: &Path, out: &Path) {
    bindgen::Builder::default()
        .header(source.join("native.h").to_string_lossy())
        .header(source.join("table/fib6.h").to_string_lossy())
        .raw_line("// Generated from native.h and table/fib6.h.")
        .allowlist_item("sidestep_(native|outcome).*|SIDESTEP_(NATIVE|OUTCOME).*|FIB6_.*")
        // `generate_abi` generates the records.
        .blocklist_type(
            "sidestep_(session|port|route|group|adjacency|policy|hmac_key|hmac_work|hmac_known|learned|station|station_key|headers|flow|flow_set|trace|report)(_counters)?",
        )
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .layout_tests(false)
        .generate()
        .expect("datapath/native.h is valid C (libclang is needed: ./dev setup)")
        .write_to_file(out.join("native.rs"))
        .expect("OUT_DIR is writable");
}

/// Returns `$CLANG`, or the newest clang found. The BPF targets need clang, and the native target
/// uses the same compiler.
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
    // libbpf-sys ships libbpf's headers (bpf_helpers.h). Debian keeps the architecture's UAPI
    // headers in a multiarch folder, which `-target bpf` does not search.
    let libbpf = std::env::var("DEP_BPF_INCLUDE").expect("libbpf-sys exports its include path");
    let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(clang)
        .args([
            "-g",
            "-O2",
            "-target",
            "bpf",
            "-mcpu=v3",
            "-std=gnu17",
            "-fno-addrsig",
        ])
        .args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"])
        // All frames of a call chain share 512 bytes of stack, and Linux 6.1 rounds each frame up
        // to 32 bytes. A program must leave half of the stack to the functions that it calls.
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

/// Returns the reason tables of `reason.h` as Rust source.
fn reasons(header: &str) -> String {
    let mut out = String::from(
        "/// Reasons of punts and drops, by number.\npub const REASONS: &[Reason] = &[\n",
    );
    // The macros may continue an entry on the next line.
    let words = header.split_whitespace().filter(|word| *word != "\\");
    let joined = words.collect::<Vec<_>>().join(" ");
    for entry in joined.split(" X(") {
        if !entry.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let (entry, _) = entry
            .split_once("\")")
            .expect("an entry ends with its sentence");
        let mut fields = entry.splitn(3, ',').map(str::trim);
        let number = fields.next().expect("number");
        let name = fields.next().expect("name");
        let (source, sentence) = fields
            .next()
            .and_then(|rest| rest.split_once("\", "))
            .expect("source and sentence in quotes");
        let _ = writeln!(
            out,
            "Reason {{ number: {number}, name: \"{name}\", source: {source}\", sentence: {sentence}\" }},"
        );
    }
    out.push_str("];\n");
    out
}
