//! Requests on the control socket: reports, and changes of the overlay.

use nix::time::ClockId;
use serde_json::Value;
use sidestep_datapath::Native;
use sidestep_model::grammar::{Style, domain, rule, vlan};

use super::commands;
use super::{Instance, NodeMirror, PacketPath, System};
use crate::api::Request;
use crate::report;

/// Returns the value of a report.
pub(super) fn json(report: impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(report).map_err(|error| error.to_string())
}

impl<S: System> Instance<S> {
    /// Serves a request. The event loop serves those that are not requests for one value.
    pub(super) fn answer(&mut self, request: &Request) -> Result<Value, String> {
        match request {
            Request::ShowStatus => {
                self.examine();
                json(self.status_report())
            }
            Request::ShowRepairs { code } => json(self.repairs(code)),
            Request::ShowPorts => json(self.ports_report()),
            Request::ShowCounters => json(self.counters_report()?),
            Request::ShowDrops => json(self.drops_report()?),
            Request::ShowLimits => json(self.limits_report()),
            Request::ShowIcmp => json(self.icmp_report()),
            Request::ShowFragments => json(self.fragments_report()),
            Request::ShowFpm => json(self.fpm_report()),
            Request::ShowRoutes { all } => json(self.routes_report(*all)?),
            Request::GetRoute {
                destination,
                from,
                port,
            } => json(self.selected_route(*destination, *from, port)?),
            Request::Change { noun, verb, args } => self.change_entry(*noun, *verb, args),
            Request::Batch { changes } => self.change_batch(changes),
            Request::ShowVlans => {
                let node = self.mirror.node();
                let vlans = self.configured.own.vlans.iter();
                json(
                    vlans
                        .map(|(key, dev)| vlan::print(key, *dev, node))
                        .collect::<report::Vlans>(),
                )
            }
            Request::ShowDomain => {
                let entries = self.configured.own.domain.entries();
                json(
                    entries
                        .map(|it| domain::print(&it))
                        .collect::<report::Domain>(),
                )
            }
            Request::ShowReflectors => json(self.reflectors_report()?),
            Request::ShowPaths => json(self.paths_report()),
            Request::ShowProtections => json(self.protections_report()),
            Request::PolicyBatch { batch } => json(self.apply_policy_batch(batch)?),
            Request::ShowEthers => json(self.ethers_report()?),
            Request::ShowPolicies => json(self.policies_report()?),
            Request::ShowRules => {
                let node = self.mirror.node();
                let rules = self.configured.own.rules.iter();
                json(
                    rules
                        .map(|rule| rule::with_own_names(rule, node))
                        .map(|rule| rule::print(&rule, node, Style::Add))
                        .collect::<report::Rules>(),
                )
            }
            Request::SetHmac {
                key,
                algorithm,
                secret,
            } => self.change_own(|own, _| commands::set_hmac(own, *key, *algorithm, &secret.0)),
            Request::DelHmac { key } => self.change_own(|own, _| commands::del_hmac(own, *key)),
            Request::ShowHmac => json(self.hmac_report()),
            Request::Explain { port, frame } => self.explain(port, frame),
            Request::SetOam { rate } => self.change_own(|own, _| {
                own.oam_rate = *rate;
                Ok(())
            }),
            Request::ShowOam => json(self.oam_report()),
            Request::ShowConfig => json(self.config_entries()),
            Request::DiffConfig { config } => json(self.config_difference(config)?),
            Request::ApplyConfig { config, confirm } => json(self.apply_config(config, *confirm)?),
            Request::ConfirmConfig => self.confirm_config(),
            Request::AddPort { name } => json(self.add_port(name)?),
            Request::DelPort { name } => self.del_port(name),
            Request::Trace { .. }
            | Request::ListenOam
            | Request::Monitor
            | Request::ShowMetrics
            | Request::ReloadConfig
            | Request::Stop { .. } => Ok(Value::Null),
        }
    }

    fn explain(&self, port: &str, frame: &str) -> Result<Value, String> {
        let ingress = self.attached_port(port)?;
        let bytes = hex::decode(frame).map_err(|error| format!("frame: {error}"))?;
        Ok((self.clients.formatter.explain)(
            self.node(),
            &self.tables.compiled.index,
            self.native(),
            ingress.ifindex.0,
            &bytes,
        ))
    }

    /// Returns a native target with the live tables and the learned headers.
    pub(super) fn native(&self) -> Native {
        let mut native = Native::new(&self.tables.compiled.image);
        native.set_now(self.system.nanoseconds(ClockId::CLOCK_MONOTONIC));
        for &index in self.tables.compiled.image.learned.keys() {
            native.set_knowledge(&self.tables.kernel.knowledge(index));
        }
        native
    }
}
