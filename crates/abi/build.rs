//! Generates the Rust side of `datapath/abi.h`.

use std::path::PathBuf;

fn main() {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .join("../../datapath");
    println!("cargo::rerun-if-changed={}", root.join("abi.h").display());
    for included in ["reason.h", "report.h", "sample.h"] {
        println!("cargo::rerun-if-changed={}", root.join(included).display());
    }
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("set by cargo"));

    bindgen::Builder::default()
        // Both include abi.h.
        .header(root.join("report.h").to_string_lossy())
        .header(root.join("sample.h").to_string_lossy())
        .allowlist_item("sidestep_.*|SIDESTEP_.*|DROP_.*|PUNT_.*|REASON_.*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_eq(true)
        .derive_ord(true)
        .layout_tests(true)
        .no_debug("sidestep_hmac_.*")
        .generate()
        .expect("datapath/abi.h is valid C (libclang is needed: ./dev setup)")
        .write_to_file(out.join("abi.rs"))
        .expect("OUT_DIR is writable");
    std::fs::write(
        out.join("reasons.rs"),
        reasons(&std::fs::read_to_string(root.join("reason.h")).expect("reason.h")),
    )
    .expect("OUT_DIR is writable");
}

/// The reason tables of `reason.h` as Rust: the C preprocessor could expand them, but not for Rust.
fn reasons(header: &str) -> String {
    let mut out = String::from("pub const REASONS: &[Reason] = &[\n");
    for line in header.lines().map(str::trim) {
        let Some(entry) = line
            .strip_prefix("X(")
            .filter(|e| e.starts_with(|c: char| c.is_ascii_digit()))
        else {
            continue;
        };
        let entry = entry
            .trim_end_matches('\\')
            .trim_end()
            .strip_suffix(')')
            .expect("X(...) closes on its line");
        let mut fields = entry.splitn(3, ',').map(str::trim);
        let number = fields.next().expect("number");
        let name = fields.next().expect("name");
        let (source, sentence) = fields
            .next()
            .and_then(|rest| rest.split_once("\", "))
            .expect("source and sentence in quotes");
        out.push_str(&format!(
            "Reason {{ number: {number}, name: \"{name}\", source: {source}\", sentence: {sentence} }},\n"
        ));
    }
    out.push_str("];\n");
    out
}
