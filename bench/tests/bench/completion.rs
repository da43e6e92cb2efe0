//! Completion of commands and options in bash.

use std::path::Path;
use std::process::Command;

use crate::program::BENCH;

/// Returns what bash offers for the last word of a line, sorted.
fn offered(line: &str) -> String {
    let folder = Path::new(BENCH).parent().expect("a folder").display();
    let words: Vec<&str> = line.split(' ').collect();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let last = words.len() - 1;
    let script = format!(
        "PATH={folder}:$PATH\n\
         source <(sidestep-bench completion bash)\n\
         COMP_WORDS=({}) COMP_CWORD={last}\n\
         _sidestep__bench sidestep-bench {} {}\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        quoted[last],
        quoted[last - 1],
    );
    let output = Command::new("bash").args(["-c", &script]).output();
    let output = output.expect("bash starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut offered: Vec<&str> = text.split_whitespace().collect();
    offered.sort_unstable();
    offered.join(" ")
}

#[test]
fn bash_completes_commands_and_options() {
    for (line, expected) in [
        (
            "sidestep-bench ",
            "--help --version -V -h compare completion conform converge fib help init list report run",
        ),
        ("sidestep-bench r", "report run"),
        (
            "sidestep-bench run --",
            "--dry-run --help --json --only --output --quick",
        ),
        ("sidestep-bench fib --sc", "--scenario"),
        ("sidestep-bench fib --scenario slash", "slash128 slash48"),
        ("sidestep-bench list --j", "--json"),
    ] {
        assert_eq!(offered(line), expected, "{line}");
    }
}
