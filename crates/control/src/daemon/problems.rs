//! The checks of `sidestep doctor` in the daemon.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::Daemon;
use crate::doctor;
use crate::doctor::facts::{self, Facts, Host, Port};
use crate::report::Problem;

impl Daemon {
    /// Result of the last checks.
    pub fn problems(&self) -> &BTreeSet<Problem> {
        &self.health.examined
    }

    /// Makes all checks.
    pub(super) fn examine(&mut self) {
        let (found, start) =
            self.with_facts(|facts| (doctor::examine(facts), facts.start("", None)));
        self.health.examined = found;
        if start != self.configured.start_command {
            // Only a hint for `doctor` after a crash.
            let _ = fs::write(facts::start_file(), &start);
            self.configured.start_command = start;
        }
    }

    /// Returns the repairs of all findings of a kind.
    pub(super) fn repairs(&self, code: &str) -> Vec<String> {
        self.with_facts(|facts| {
            facts.separate = true;
            doctor::repairs(facts, code)
        })
    }

    fn with_facts<T>(&self, examine: impl FnOnce(&mut Facts<'_>) -> T) -> T {
        let node = self.node();
        let port = |name: &String| Port {
            name: name.clone(),
            target: self.ports.attached.get(name).map(|port| port.target),
            refused: self.ports.refused.get(name).cloned(),
        };
        let ports: Vec<_> = self.requested_names().iter().map(port).collect();
        // Without the survey the other checks still work.
        let survey = facts::survey(node, &ports).unwrap_or_default();
        let full = self.tables.compiled.index.full_tables().into_iter();
        let full = full.map(|table| {
            let sentence = self.tables.compiler.full(table);
            let sentence = format!("{sentence}; the kernel forwards what does not fit");
            (table.to_owned(), sentence)
        });
        let lacks = facts::lacks(
            self.tables.kernel.features(),
            self.mirror.reports_xdp_features(),
        );
        let daemon = facts::Daemon {
            failed: self.health.problem.clone(),
            reload: self.configured.state.failed.clone(),
            unconfirmed: self.configured.state.trial.is_some(),
            icmp: self.senders.icmp.problem().map(str::to_owned),
            fragments: self.senders.fragmenter.problem().map(str::to_owned),
            liveness: self.watchers.liveness.problem(),
            metrics: self.configured.own.metrics,
            fpm: self.fpm_report(),
            full: full.collect(),
            limits: self.limits_report(),
            replaced: is_replaced(),
            version: self.options.version.into(),
            pid: std::process::id(),
            arguments: self.options.arguments.clone(),
            mode: self.options.mode,
        };
        let mut facts = Facts {
            ports,
            survey,
            host: Host::read(
                &self.options.pin_root,
                self.ports.private_bpffs,
                None,
                lacks,
            ),
            daemon: Some(daemon),
            lost_sids: self.mirror.lost_sids(),
            ..Facts::new(node, self.mirror.node(), &self.tables.compiled)
        };
        examine(&mut facts)
    }
}

/// Whether the file of this program was replaced or removed.
fn is_replaced() -> bool {
    let target = fs::read_link("/proc/self/exe");
    target.is_ok_and(|target| is_deleted(&target))
}

fn is_deleted(target: &Path) -> bool {
    target.to_string_lossy().ends_with(" (deleted)")
}
