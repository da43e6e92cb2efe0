//! Tests of the daemon's decisions, on a simulated node.

use std::time::Duration;

use super::Simulation;
use crate::api::Request;
use crate::report;

mod answers;
mod clients;
mod configuration;
mod fpm;
mod interfaces;
mod liveness;
mod monitor;
mod neighbors;
mod notifications;
mod packets;
mod paths;
mod policies;
mod protection;
mod random;
mod refusals;
mod takeover;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the error of a command that must fail.
fn refused(node: &mut Simulation, words: &str) -> String {
    node.sidestep(words).expect_err(words)
}

fn ask_ports(node: &mut Simulation) -> report::Ports {
    node.report(Request::ShowPorts)
}
