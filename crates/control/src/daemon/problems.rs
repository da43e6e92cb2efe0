//! The checks of `sidestep doctor` in the daemon.

use std::collections::BTreeSet;

use super::{Instance, NodeMirror, PacketPath, System};
use crate::doctor;
use crate::doctor::facts::{self, Facts, Port};
use crate::report::Problem;

impl<S: System> Instance<S> {
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
            self.system.keep_start(&start);
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
        let survey = self.system.survey(node, &ports);
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
            replaced: self.system.is_replaced(),
            version: self.configured.options.version.into(),
            pid: std::process::id(),
            arguments: self.configured.options.arguments.clone(),
            mode: self.configured.options.mode,
        };
        let mut facts = Facts {
            ports,
            survey,
            host: self.system.host(
                &self.configured.options.pin_root,
                self.ports.private_bpffs,
                lacks,
            ),
            daemon: Some(daemon),
            lost_sids: self.mirror.lost_sids(),
            ..Facts::new(node, self.mirror.node(), &self.tables.compiled)
        };
        examine(&mut facts)
    }
}
