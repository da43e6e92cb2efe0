//! Messages of libbpf and the verifier, kept for the error message instead of printed.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

/// Number of lines to keep. The verdict of the verifier is at the end.
const LINES: usize = 30;

static TEXT: Mutex<String> = Mutex::new(String::new());
/// libbpf has one printer per process.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `body` and returns its result with the last lines that libbpf printed meanwhile.
pub(super) fn captured<R>(body: impl FnOnce() -> R) -> (R, String) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    TEXT.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let previous = set_print(Some((PrintLevel::Warn, |_, text| {
        TEXT.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_str(&text);
    })));
    let result = body();
    set_print(previous);
    let text = TEXT.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: Vec<&str> = text.lines().collect();
    (
        result,
        lines[lines.len().saturating_sub(LINES)..].join("\n"),
    )
}
