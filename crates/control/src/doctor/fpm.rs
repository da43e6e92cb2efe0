//! Checks of the FPM session.

use super::facts::Facts;
use super::{Code, Family};
use crate::daemon::is_exposed;
use crate::report::Problem;

const FPM_NO_SESSION: Code = Code::warning(
    "fpm_no_session",
    "the FPM listener is on, and no zebra is connected",
);
const FPM_SESSION_FAILED: Code = Code::warning(
    "fpm_session_failed",
    "the last FPM session ended with an error",
);
const FPM_EXPOSED: Code = Code::warning(
    "fpm_exposed",
    "other hosts can connect to the FPM listener and change routes: FPM has no authentication",
);

pub(super) const FAMILY: Family = Family {
    codes: &[FPM_NO_SESSION, FPM_SESSION_FAILED, FPM_EXPOSED],
    check,
};

/// Seconds after which a new session has proved to work.
const PROVED: u64 = 30;

fn check(facts: &Facts<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    let Some(fpm) = facts.daemon.as_ref().and_then(|it| it.fpm.as_ref()) else {
        return found;
    };
    if fpm.peer.is_none() {
        let stale = match fpm.sweep_within {
            Some(_) => format!(
                "; {} stale routes stay for {} s after the last session",
                fpm.stale_routes, fpm.hold
            ),
            None => String::new(),
        };
        found.push(FPM_NO_SESSION.without_command(format!(
            "no zebra is connected to {}: start zebra with `-M dplane_fpm_nl` and configure `fpm \
             address`{stale}",
            fpm.address
        )));
    }
    let is_proved = fpm.connected_for.is_some_and(|it| it >= PROVED);
    if let (Some(error), false) = (&fpm.last_error, is_proved) {
        found.push(
            FPM_SESSION_FAILED.without_command(format!("the last FPM session ended: {error}")),
        );
    }
    if is_exposed(&fpm.address) {
        found.push(FPM_EXPOSED.without_command(format!(
            "other hosts can connect to the FPM listener {} and change routes",
            fpm.address
        )));
    }
    found
}
