//! Completion in the shell: what bash offers on a line of the command.

use std::path::Path;
use std::process::Command;

/// Returns bash's completions for the last of these words, sorted.
fn offered(line: &[&str]) -> Vec<String> {
    let program = Path::new(crate::common::program());
    let folder = program.parent().expect("a folder").display();
    let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    let last = words.len() - 1;
    let script = format!(
        "PATH={folder}:$PATH\n\
         source <(sidestep completion bash)\n\
         COMP_WORDS=({}) COMP_CWORD={last}\n\
         _sidestep_words sidestep {} {}\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words[last],
        words[last - 1],
    );
    let output = Command::new("bash").args(["-c", &script]).output();
    let output = output.expect("bash starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    words.sort();
    words
}

#[test]
fn bash_completes_the_words_of_routes_rules_entries_and_filters() {
    for (line, expected) in [
        ("sidestep ru", "rule run"),
        ("sidestep rule add seg6", "seg6local-behaviour"),
        (
            "sidestep rule add seg6local-behaviour End.A",
            "End.AD End.AM End.AS",
        ),
        ("sidestep rule add iif veth0 ta", ""),
        ("sidestep rule add iif veth0 loo", "lookup"),
        ("sidestep rule del lookup m", "main"),
        ("sidestep vlan add ", "dev table untagged vid"),
        ("sidestep vlan replace table 10 vid 7 i", "inner"),
        ("sidestep route add fc00::1/128 en", "encap"),
        (
            "sidestep route add fc00::1/128 encap seg6local action End.A",
            "End.AD End.AM End.AS",
        ),
        ("sidestep route show --st", "--statistics"),
        ("sidestep route g", "get"),
        ("sidestep route get fc00::1 i", "iif"),
        ("sidestep route get fc00::1 iif eth0 ", "from"),
        ("sidestep route get fc00::1 --j", "--json"),
        ("sidestep trace ver", "verdict"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(offered(&words).join(" "), expected, "{line}");
    }
}
