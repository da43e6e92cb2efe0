//! Describes machine, program and run of a report.

use std::collections::BTreeMap;

use crate::result::{Cache, Machine, Report};

/// Returns date, version and duration of the run in one line.
pub fn run(report: &Report) -> String {
    let git = report.git.as_ref().map(|git| format!(" ({git})"));
    let seed = report.seed.map(|seed| format!(" · seed {seed}"));
    format!(
        "{} · Sidestep {}{} · {}{}",
        report.made,
        report.version,
        git.unwrap_or_default(),
        duration(report.seconds),
        seed.unwrap_or_default()
    )
}

/// Returns the command, quoted for a shell.
pub fn command(report: &Report) -> String {
    let words: Vec<String> = report.command.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

/// Returns the facts about the machine: name and value.
pub fn facts(report: &Report) -> Vec<(String, String)> {
    let machine = &report.machine;
    let given = [
        ("Processor", Some(machine.cpu.clone())),
        ("Processors online", Some(machine.cpus.to_string())),
        ("Caches", Some(caches(machine))),
        ("Memory", Some(bytes(machine.memory))),
        ("Hypervisor", machine.hypervisor.clone()),
        (
            "Frequency governor",
            Some(
                machine
                    .governor
                    .clone()
                    .unwrap_or_else(|| "none in the kernel".into()),
            ),
        ),
        ("Kernel", Some(machine.kernel.clone())),
        ("Program (SHA-256)", report.program.clone()),
    ];
    let given = given
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_string(), value?)));
    given
        .chain(together(&machine.facts))
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// Merges equal facts of several engines: `linux, sidestep-xdp: kernel`.
fn together(facts: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut rows: Vec<(Vec<&str>, &str, &String)> = Vec::new();
    for (name, value) in facts {
        let (engine, fact) = match name.split_once(": ") {
            Some((engine, fact)) => (Some(engine), fact),
            None => (None, name.as_str()),
        };
        let mut shared = rows.iter_mut().filter(|(engines, ..)| !engines.is_empty());
        match (
            engine,
            shared.find(|(_, its, of)| (*its, *of) == (fact, value)),
        ) {
            (Some(engine), Some((engines, ..))) => engines.push(engine),
            _ => rows.push((Vec::from_iter(engine), fact, value)),
        }
    }
    let named = |(engines, fact, value): (Vec<&str>, &str, &String)| {
        let name = match engines[..] {
            [] => fact.to_owned(),
            _ => format!("{}: {fact}", engines.join(", ")),
        };
        (name, value.clone())
    };
    rows.into_iter().map(named).collect()
}

/// Returns the first processor's caches in one line.
pub fn caches(machine: &Machine) -> String {
    let caches: Vec<String> = machine.caches.iter().map(cache).collect();
    caches.join(", ")
}

fn cache(cache: &Cache) -> String {
    let kind = match cache.kind.as_str() {
        "Data" => "d",
        "Instruction" => "i",
        _ => "",
    };
    format!("L{}{kind} {}", cache.level, bytes(cache.bytes))
}

/// Formats bytes in the largest binary unit that gives at least 1: `512 KiB`, `15.6 GiB`.
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["bytes", "KiB", "MiB"] {
        if value < 1024.0 {
            return in_unit(value, unit);
        }
        value /= 1024.0;
    }
    in_unit(value, "GiB")
}

fn in_unit(value: f64, unit: &str) -> String {
    let decimals = usize::from(value.fract() != 0.0);
    format!("{value:.decimals$} {unit}")
}

fn duration(seconds: f64) -> String {
    match seconds as u64 {
        whole @ 0..120 => format!("{whole} s"),
        whole @ 120..7200 => format!("{} min {} s", whole / 60, whole % 60),
        whole => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// Quotes a word for a shell if necessary.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./,:=+@%^".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_a_suitable_unit() {
        assert_eq!(
            [bytes(512), bytes(32 << 10), bytes(1 << 20)],
            ["512 bytes", "32 KiB", "1 MiB"]
        );
        assert_eq!(bytes((15 << 30) + (1 << 29)), "15.5 GiB");
        assert_eq!(
            [duration(59.9), duration(125.0), duration(7260.0)],
            ["59 s", "2 min 5 s", "2 h 1 min"]
        );
    }

    #[test]
    fn facts_that_engines_share_are_printed_once() {
        let facts = [
            ("a: kernel", "6.18"),
            ("a: mode", "none"),
            ("b: kernel", "6.18"),
            ("b: mode", "tc"),
            ("kernel", "6.18"),
        ];
        let facts = facts.map(|(name, fact)| (name.to_owned(), fact.to_owned()));
        let lines: Vec<String> = together(&facts.into())
            .into_iter()
            .map(|(name, fact)| format!("{name} = {fact}"))
            .collect();
        assert_eq!(
            lines,
            [
                "a, b: kernel = 6.18",
                "a: mode = none",
                "b: mode = tc",
                "kernel = 6.18"
            ]
        );
    }

    #[test]
    fn a_shell_parses_the_quoted_command() {
        let words = ["a-b_c/d.e:1", "two words", "don't", ""].map(quoted);
        assert_eq!(words, ["a-b_c/d.e:1", "'two words'", r"'don'\''t'", "''"]);
    }
}
