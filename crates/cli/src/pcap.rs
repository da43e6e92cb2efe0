//! Expressions of libpcap's filter language (`--pcap`).

use std::io;
use std::process::{Command, Stdio};

use sidestep_control::pcap::Instruction;

/// Compiles an expression for Ethernet frames with `tcpdump`.
///
/// # Errors
/// `tcpdump` is missing, or refuses the expression.
pub fn compile(expression: &str) -> Result<Vec<Instruction>, String> {
    let failed = |problem: &str| format!("--pcap {expression:?}: {problem}");
    let run = Command::new("tcpdump")
        .args(["-ddd", "-y", "EN10MB", "--", expression])
        .stdin(Stdio::null())
        .output();
    let output = run.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed(
            "tcpdump, which compiles the expression, is not installed; run `apt install tcpdump`",
        ),
        _ => failed(&format!("tcpdump: {error}")),
    })?;
    if !output.status.success() {
        let problem = String::from_utf8_lossy(&output.stderr);
        return Err(failed(problem.trim()));
    }
    let program = parse(&String::from_utf8_lossy(&output.stdout));
    program.ok_or_else(|| failed("unexpected output of `tcpdump -ddd`"))
}

/// Parses the output of `tcpdump -ddd`: the number of instructions, then one instruction per line.
fn parse(dump: &str) -> Option<Vec<Instruction>> {
    let mut lines = dump.lines();
    let count: usize = lines.next()?.trim().parse().ok()?;
    let program: Vec<_> = lines.map(instruction).collect::<Option<_>>()?;
    (program.len() == count).then_some(program)
}

fn instruction(line: &str) -> Option<Instruction> {
    let mut words = line.split_whitespace();
    let instruction = Instruction {
        code: words.next()?.parse().ok()?,
        jump_true: words.next()?.parse().ok()?,
        jump_false: words.next()?.parse().ok()?,
        operand: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(instruction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_tcpdump_is_parsed_completely_or_not_at_all() {
        let found = parse("2\n21 0 17 34525\n6 0 0 4294967295\n").expect("a program");
        let expected = [(21, 0, 17, 34525), (6, 0, 0, u32::MAX)];
        let fields = |it: &Instruction| (it.code, it.jump_true, it.jump_false, it.operand);
        assert_eq!(found.iter().map(fields).collect::<Vec<_>>(), expected);
        for wrong in [
            "",
            "x\n",
            "2\n6 0 0 0\n",
            "1\n6 0 0\n",
            "1\n6 0 0 0 0\n",
            "1\n6 256 0 0\n",
            "(000) ret #0\n",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
