//! `sidestep policy apply`: candidate paths of controllers, changed together or not at all.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use sidestep_model::behavior::{EncapMode, SIGNED_MAX};
use sidestep_model::config::{Overlay, claims};
use sidestep_model::grammar::{Style, route};
use sidestep_model::node::{Node, TableId};
use sidestep_model::policy::{ControllerPath, PathId, PathOwner, PolicyId};
use sidestep_model::protection::Backup;
use sidestep_model::route::Route;

use super::{Instance, System};
use crate::api::policy_batch::{Action, Change, FieldError, PathKey, PolicyBatch};
use crate::report;

impl<S: System> Instance<S> {
    /// Applies a batch of changes of candidate paths. Without a change, nothing is compiled.
    pub(super) fn apply_policy_batch(
        &mut self,
        batch: &PolicyBatch,
    ) -> Result<report::PolicyBatch, String> {
        let mut own = self.configured.own.clone();
        let applied = apply(&mut own, self.node(), batch).map_err(|error| error.to_string())?;
        let there = &self.configured.own;
        if own.paths != there.paths || own.backups != there.backups {
            self.exchange(self.configured.options.ports.clone(), own)?;
        }
        Ok(applied)
    }
}

/// Applies a batch to the overlay. On an error the overlay has to be discarded.
fn apply(
    own: &mut Overlay,
    node: &Node,
    batch: &PolicyBatch,
) -> Result<report::PolicyBatch, FieldError> {
    let changes = batch.changes()?;
    let mut withdrawn = Vec::new();
    if batch.complete {
        let kept: BTreeMap<PathKey, Action> =
            changes.iter().map(|it| (it.key, it.action)).collect();
        own.paths.retain(|key, _| {
            let goes = key.1.owner == batch.owner && !kept.contains_key(key);
            if goes {
                withdrawn.push(report::Path::from(*key));
            }
            !goes
        });
    }
    let mut outcomes = Vec::with_capacity(changes.len());
    for (number, change) in changes.iter().enumerate() {
        let place = |field: &str| format!("operations[{number}].{field}");
        let there = own.paths.get(&change.key);
        outcomes.push(match (change.action, there, &change.path) {
            (Action::Add, Some(_), _) => {
                let problem = "the candidate path exists already; expected `replace`";
                return Err(FieldError::new(place("action"), problem));
            }
            (_, there, path) if there == path.as_ref() => report::Outcome::Unchanged,
            (_, None, _) => report::Outcome::Added,
            (_, _, Some(_)) => report::Outcome::Replaced,
            (_, _, None) => report::Outcome::Withdrawn,
        });
        match &change.path {
            Some(path) => own.paths.insert(change.key, path.clone()),
            None => own.paths.remove(&change.key),
        };
    }
    change_backups(own, node, batch)?;
    check(own, node, &changes)?;
    let names: BTreeMap<PolicyId, &String> = own
        .policies
        .iter()
        .map(|(name, it)| (it.id, name))
        .collect();
    let results = changes.iter().zip(outcomes).map(|(change, result)| {
        let id = change.key.0;
        let policy = names
            .get(&id)
            .map_or_else(|| id.name(), ToString::to_string);
        report::PolicyResult { policy, result }
    });
    Ok(report::PolicyBatch {
        results: results.collect(),
        withdrawn,
    })
}

/// Changes the backups of next hops.
fn change_backups(own: &mut Overlay, node: &Node, batch: &PolicyBatch) -> Result<(), FieldError> {
    let changes = batch.backups()?;
    if batch.complete {
        let is_of_another = |owner: &PathOwner| *owner != batch.owner;
        own.backups.retain(|_, (owner, _)| is_of_another(owner));
    }
    for (number, next_hop) in batch.next_hops.iter().enumerate() {
        let refused = |field: &str, problem: String| {
            Err(FieldError::new(
                format!("next_hops[{number}].{field}"),
                problem,
            ))
        };
        let key = next_hop.key();
        let Some(protection) = changes.get(&key).cloned().flatten() else {
            let there = own.backups.get(&key);
            if there.is_some_and(|(owner, _)| *owner == batch.owner) {
                own.backups.remove(&key);
            }
            continue;
        };
        let other = match &protection.by {
            Backup::NextHop { dev, .. } => Some(dev),
            Backup::List(_) => None,
        };
        for (field, dev) in [("dev", Some(&key.dev)), ("backup.dev", other)] {
            if let Some(dev) = dev.filter(|dev| node.link_by_name(dev).is_none()) {
                return refused(field, format!("there is no interface {dev}"));
            }
        }
        match own.backups.get(&key) {
            Some((owner, _)) if *owner != batch.owner => {
                return refused("dev", "another owner has its backup".into());
            }
            _ => own.backups.insert(key, (batch.owner, protection)),
        };
    }
    let checked = own.check_protections();
    checked.map_err(|problem| FieldError::new("next_hops", problem))
}

/// Checks the attributes that changed paths request for their policies.
fn check(own: &Overlay, node: &Node, changes: &[Change]) -> Result<(), FieldError> {
    let conflicts = BindingConflicts::new(own, node);
    for (number, change) in changes.iter().enumerate() {
        let Some(path) = &change.path else {
            continue;
        };
        let wrong = |(field, problem): (&str, String)| {
            let place = format!("operations[{number}].candidate_path.{field}");
            Err(FieldError::new(place, problem))
        };
        if let Some(disagreement) = disagreement(own, change.key, path) {
            return wrong(disagreement);
        }
        let conflict = path
            .binding_sid
            .and_then(|sid| conflicts.of(change.key.0, sid));
        if let Some(problem) = conflict {
            return wrong(("binding_sid", problem));
        }
    }
    Ok(())
}

/// Returns the attribute that this path requests differently from the configuration of its policy
/// or from another path of it.
fn disagreement(
    own: &Overlay,
    (id, path): PathKey,
    requested: &ControllerPath,
) -> Option<(&'static str, String)> {
    let differs = |bsid: bool, mode: bool, drop: bool| match (bsid, mode, drop) {
        (true, ..) => Some("binding_sid"),
        (_, true, _) => Some("mode"),
        (.., true) => Some("drop_upon_invalid"),
        _ => None,
    };
    if let Some((name, policy)) = own.policies.iter().find(|(_, policy)| policy.id == id) {
        let lengths = requested
            .candidate
            .lists
            .iter()
            .map(|list| list.segments.len());
        // RFC 8986 5.2: the destination address alone holds the first segment.
        let most = SIGNED_MAX + usize::from(policy.mode == EncapMode::EncapRed);
        if policy.hmac.is_some() && lengths.max() > Some(most) {
            let problem = format!("policy {name} signs packets; expected up to {most} segments");
            return Some(("segment_lists", problem));
        }
        let field = differs(
            requested.binding_sid.is_some() && requested.binding_sid != policy.bsid,
            requested.mode.is_some_and(|mode| mode != policy.mode),
            requested
                .drop_upon_invalid
                .is_some_and(|drop| drop != policy.drop_upon_invalid),
        )?;
        return Some((field, format!("the configuration of policy {name} differs")));
    }
    let ends = |path: PathId| (id, path);
    let others = own.paths.range(ends(PathId::MIN)..=ends(PathId::MAX));
    let mut others = others.filter(|(key, _)| key.1 != path);
    others.find_map(|((_, of), other)| {
        let field = differs(
            differ(requested.binding_sid, other.binding_sid),
            differ(requested.mode, other.mode),
            differ(requested.drop_upon_invalid, other.drop_upon_invalid),
        )?;
        let problem = format!("candidate path {of} of the policy differs; expected one value");
        Some((field, problem))
    })
}

fn differ<T: Copy + PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    one.is_some() && other.is_some() && one != other
}

/// Uses of addresses that binding SIDs must not have (RFC 9256 6.2).
struct BindingConflicts<'a> {
    /// Policies by binding SID.
    policies: BTreeMap<Ipv6Addr, Vec<(PolicyId, String)>>,
    /// Routes that may claim the packets to a binding SID.
    routes: Vec<&'a Route>,
    node: &'a Node,
}

impl<'a> BindingConflicts<'a> {
    fn new(own: &'a Overlay, node: &'a Node) -> Self {
        let mut policies: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, policy) in own.all_policies() {
            if let Some(sid) = policy.bsid {
                policies.entry(sid).or_default().push((policy.id, name));
            }
        }
        let routes = node.routes.values().chain(own.routes.values());
        let may_claim = |route: &&Route| {
            let is_host = route.key.prefix.prefix_len() == 128;
            route.key.table == TableId::LOCAL || route.key.table == TableId::MAIN && is_host
        };
        Self {
            policies,
            routes: routes.filter(may_claim).collect(),
            node,
        }
    }

    /// Returns what else uses the binding SID of this policy.
    fn of(&self, id: PolicyId, sid: Ipv6Addr) -> Option<String> {
        let mut policies = self.policies.get(&sid).into_iter().flatten();
        if let Some((_, other)) = policies.find(|(other, _)| *other != id) {
            return Some(format!("policy {other} has {sid}; expected another SID"));
        }
        let route = self.routes.iter().find(|route| claims(route, sid))?;
        let words = route::print(route, self.node, Style::Add);
        Some(format!("a route takes the packets to {sid}: {words}"))
    }
}

/// Checks that the binding SIDs of controllers have no other use, as after a change of the
/// configuration.
///
/// # Errors
/// The policy of the controllers, and what uses its binding SID.
pub(super) fn check_binding_sids(own: &Overlay, node: &Node) -> Result<(), String> {
    if own.paths.is_empty() {
        return Ok(());
    }
    let conflicts = BindingConflicts::new(own, node);
    for ((id, path), content) in &own.paths {
        let conflict = content.binding_sid.and_then(|sid| conflicts.of(*id, sid));
        if let Some(problem) = conflict {
            return Err(format!(
                "candidate path {path} of policy {id}: binding SID: {problem}"
            ));
        }
    }
    Ok(())
}
