//! A batch of changes of candidate paths (RFC 9256 2.2) by one owner.

mod next_hop;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sidestep_model::behavior::{EncapMode, Seg6Encap};
use sidestep_model::grammar::policy::is_binding_sid;
use sidestep_model::policy::{
    Candidate, ControllerPath, LISTS_MAX, PREFERENCE_DEFAULT, PathId, PathOwner, PolicyId,
    SegmentList, WEIGHT_MAX,
};
use sidestep_model::protection::{PROTECTIONS_MAX, Protected, Protection};
use sidestep_model::route::Family;
use thiserror::Error;

pub use next_hop::{NextHop, NextHopBackup};

/// LIMIT: operations of one batch.
pub const OPERATIONS_MAX: usize = 10_000;

/// Changes of candidate paths by one owner. They take effect together, or none does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyBatch {
    /// Owner of all paths of the batch.
    pub owner: PathOwner,
    /// Withdraw all other paths of the owner.
    #[serde(default)]
    pub complete: bool,
    /// Changes, at most [`OPERATIONS_MAX`], each of another path.
    pub operations: Vec<Operation>,
    /// Backups of next hops, at most [`PROTECTIONS_MAX`], each of another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next_hops: Vec<NextHop>,
}

/// Returns a segment list as an encapsulation.
fn checked_list(segments: &[Ipv6Addr]) -> Result<Seg6Encap, FieldError> {
    let encap = Seg6Encap {
        mode: EncapMode::Encap,
        segments: segments.to_vec(),
        hmac: None,
        tunsrc: None,
        lookup: None,
    };
    let checked = encap.check(Family::V6);
    checked.map_err(|wrong| {
        let problem = format!("{}; expected {}", wrong.problem, wrong.expected);
        FieldError::new("segments", problem)
    })?;
    Ok(encap)
}

/// A change of one candidate path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Kind of change.
    pub action: Action,
    /// Color of the policy.
    pub color: u32,
    /// Endpoint of the policy.
    pub endpoint: IpAddr,
    /// Discriminator of the path.
    pub discriminator: u32,
    /// The path, except for `withdraw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate_path: Option<CandidatePath>,
}

/// Kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Adds a path, which must not exist.
    Add,
    /// Adds a path or replaces it.
    Replace,
    /// Removes a path if it exists.
    Withdraw,
}

/// Content of a candidate path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CandidatePath {
    /// Preference.
    #[serde(default = "preference")]
    pub preference: u32,
    /// Binding SID of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding_sid: Option<Ipv6Addr>,
    /// Headend behavior of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<HeadendMode>,
    /// Whether the policy drops packets while it is invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_upon_invalid: Option<bool>,
    /// Segment lists, 1 to [`LISTS_MAX`].
    pub segment_lists: Vec<WeightedList>,
}

/// Headend behavior of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeadendMode {
    /// H.Encaps.
    #[serde(rename = "encap")]
    Encap,
    /// H.Encaps.Red.
    #[serde(rename = "encap.red")]
    EncapRed,
}

impl HeadendMode {
    fn of_model(self) -> EncapMode {
        match self {
            Self::Encap => EncapMode::Encap,
            Self::EncapRed => EncapMode::EncapRed,
        }
    }
}

/// A segment list with its weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightedList {
    /// Segments in order of travel.
    pub segments: Vec<Ipv6Addr>,
    /// Weight, 1 to [`WEIGHT_MAX`].
    #[serde(default = "weight")]
    pub weight: u16,
}

fn preference() -> u32 {
    PREFERENCE_DEFAULT
}

fn weight() -> u16 {
    1
}

/// An invalid field of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// Path of the field, as `operations[0].color`.
    pub field: String,
    /// The problem, with the accepted values.
    pub problem: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// Returns the error with the path of the object that the field is in.
    fn within(self, parent: &str) -> Self {
        Self::new(format!("{parent}.{}", self.field), self.problem)
    }
}

/// Identity of a candidate path on this node.
pub(crate) type PathKey = (PolicyId, PathId);

/// A checked operation: the path is its new content, or none to withdraw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub action: Action,
    pub key: PathKey,
    pub path: Option<ControllerPath>,
}

/// Parses a JSON document, with the path of a wrong field in the error.
///
/// # Errors
/// The text is not JSON, or a field is unknown, repeated, missing or invalid.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut input = serde_json::Deserializer::from_str(text);
    let parsed = serde_path_to_error::deserialize(&mut input).map_err(|error| {
        let field = error.path().to_string();
        match field.as_str() {
            "." => error.into_inner().to_string(),
            _ => format!("{field}: {}", error.into_inner()),
        }
    })?;
    input.end().map_err(|error| error.to_string())?;
    Ok(parsed)
}

impl PolicyBatch {
    /// Returns the checked operations.
    ///
    /// # Errors
    /// The first invalid field.
    pub(crate) fn changes(&self) -> Result<Vec<Change>, FieldError> {
        if self.owner == PathOwner::CONFIGURED {
            let problem = "AS 0 and address :: are those of the node's own configuration; expected \
                           another originator";
            return Err(FieldError::new("owner.originator", problem));
        }
        let count = self.operations.len();
        if count > OPERATIONS_MAX {
            let problem = format!("too many operations ({count}); expected up to {OPERATIONS_MAX}");
            return Err(FieldError::new("operations", problem));
        }
        let mut seen = BTreeMap::new();
        let mut all = Vec::with_capacity(count);
        for (number, operation) in self.operations.iter().enumerate() {
            let place = format!("operations[{number}]");
            let change = operation.change(self.owner);
            let change = change.map_err(|error| error.within(&place))?;
            if let Some(other) = seen.insert(change.key, number) {
                let problem = format!("operations[{other}] changes the same candidate path");
                return Err(FieldError::new("discriminator", problem).within(&place));
            }
            all.push(change);
        }
        Ok(all)
    }

    /// Returns the checked backups of next hops; none where they are withdrawn.
    ///
    /// # Errors
    /// The first invalid field.
    pub(crate) fn backups(&self) -> Result<BTreeMap<Protected, Option<Protection>>, FieldError> {
        let count = self.next_hops.len();
        if count > PROTECTIONS_MAX {
            let problem = format!("too many next hops ({count}); expected up to {PROTECTIONS_MAX}");
            return Err(FieldError::new("next_hops", problem));
        }
        let mut all = BTreeMap::new();
        for (number, next_hop) in self.next_hops.iter().enumerate() {
            let place = format!("next_hops[{number}]");
            let backup = next_hop.backup.as_ref().map(NextHopBackup::checked);
            let backup = backup.transpose().map_err(|error| error.within(&place))?;
            if all.insert(next_hop.key(), backup).is_some() {
                let problem = "an earlier item changes the same next hop";
                return Err(FieldError::new("dev", problem).within(&place));
            }
        }
        Ok(all)
    }
}

impl Operation {
    fn change(&self, owner: PathOwner) -> Result<Change, FieldError> {
        let id = PolicyId {
            color: self.color,
            endpoint: self.endpoint,
        };
        let path = PathId {
            owner,
            discriminator: self.discriminator,
        };
        let content = match (self.action, &self.candidate_path) {
            (Action::Withdraw, None) => None,
            (Action::Withdraw, Some(_)) => {
                let problem = "`withdraw` takes no candidate path";
                return Err(FieldError::new("candidate_path", problem));
            }
            (_, Some(content)) => {
                let checked = content.checked(path);
                Some(checked.map_err(|error| error.within("candidate_path"))?)
            }
            (_, None) => {
                let problem = "missing; `add` and `replace` need the candidate path";
                return Err(FieldError::new("candidate_path", problem));
            }
        };
        Ok(Change {
            action: self.action,
            key: (id, path),
            path: content,
        })
    }
}

impl CandidatePath {
    fn checked(&self, path: PathId) -> Result<ControllerPath, FieldError> {
        if let Some(sid) = self.binding_sid.filter(|sid| !is_binding_sid(*sid)) {
            let problem = format!("{sid} cannot be a SID; expected an IPv6 unicast address");
            return Err(FieldError::new("binding_sid", problem));
        }
        let count = self.segment_lists.len();
        if count == 0 || count > LISTS_MAX {
            let problem = format!("{count} segment lists; expected 1 to {LISTS_MAX}");
            return Err(FieldError::new("segment_lists", problem));
        }
        let lists = self.segment_lists.iter().enumerate().map(|(number, list)| {
            let place = format!("segment_lists[{number}]");
            list.checked().map_err(|error| error.within(&place))
        });
        Ok(ControllerPath {
            candidate: Candidate {
                path,
                preference: self.preference,
                lists: lists.collect::<Result<_, _>>()?,
            },
            binding_sid: self.binding_sid,
            mode: self.mode.map(HeadendMode::of_model),
            drop_upon_invalid: self.drop_upon_invalid,
        })
    }
}

impl WeightedList {
    fn checked(&self) -> Result<SegmentList, FieldError> {
        if self.weight == 0 {
            let problem = format!("0 is no weight; expected 1 to {WEIGHT_MAX}");
            return Err(FieldError::new("weight", problem));
        }
        Ok(SegmentList {
            segments: checked_list(&self.segments)?.segments,
            weight: self.weight,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn batch() -> Value {
        json!({
            "owner": {"protocol_origin": "bgp", "originator": {"asn": 65001, "address": "192.0.2.1"}},
            "operations": [
                {"action": "replace", "color": 100, "endpoint": "fc00:3::1", "discriminator": 7, "candidate_path":
                    {"preference": 200, "segment_lists": [{"segments": ["fc00:2::e", "fc00:3::d6"], "weight": 3}]}},
                {"action": "withdraw", "color": 100, "endpoint": "fc00:3::1", "discriminator": 8},
            ],
            "next_hops": [
                {"dev": "eth1", "via": "fe80::1", "backup": {"segments": ["fc00:2::e", "fc00:3::d6"], "mode": "encap.red"}},
                {"dev": "eth1", "backup": {"via": "fe80::2", "dev": "eth2", "path": "west"}},
                {"dev": "eth3", "backup": null},
            ],
        })
    }

    /// Returns the error of the batch with another value at this place. `null` removes the field.
    fn error(place: &str, value: Value) -> String {
        let mut batch = batch();
        let (parent, field) = place.rsplit_once('/').expect("a place");
        let parent = batch.pointer_mut(parent).expect("it is there");
        match (parent, field.parse::<usize>()) {
            (Value::Array(list), Ok(index)) => list[index] = value,
            (Value::Object(object), _) if value.is_null() => drop(object.remove(field)),
            (Value::Object(object), _) => drop(object.insert(field.into(), value)),
            _ => panic!("{place}"),
        }
        match parse::<PolicyBatch>(&batch.to_string()) {
            Ok(batch) => batch
                .changes()
                .and_then(|_| batch.backups())
                .expect_err(place)
                .to_string(),
            Err(error) => error,
        }
    }

    #[test]
    fn a_batch_is_read_and_written() {
        let parsed: PolicyBatch = parse(&batch().to_string()).expect("well-formed");
        let changes = parsed.changes().expect("valid");
        let path = changes[0].path.as_ref().expect("a path");
        assert_eq!(path.candidate.preference, 200);
        assert_eq!(path.candidate.lists[0].weight, 3);
        assert_eq!(changes[1].path, None);
        let backups = parsed.backups().expect("valid");
        assert_eq!(backups.values().flatten().count(), 2);
        let again = serde_json::to_string(&parsed).expect("JSON");
        assert_eq!(parse(&again), Ok(parsed));
    }

    #[test]
    fn an_error_of_a_backup_names_the_field() {
        for (place, value, expected) in [
            (
                "/next_hops/0/dev",
                Value::Null,
                "next_hops[0]: missing field `dev`",
            ),
            (
                "/next_hops/2/backup",
                json!({}),
                "next_hops[2].backup: not a backup",
            ),
            (
                "/next_hops/1/backup/dev",
                Value::Null,
                "next_hops[1].backup: not a backup",
            ),
            (
                "/next_hops/1/backup/mode",
                json!("encap"),
                "next_hops[1].backup: not a backup",
            ),
            (
                "/next_hops/0/backup/segments",
                json!(vec!["fc00::1"; 17]),
                "next_hops[0].backup.segments: too many segments (17)",
            ),
            (
                "/next_hops/2",
                json!({"dev": "eth3"}),
                "next_hops[2]: missing field `backup`",
            ),
            (
                "/next_hops/2",
                json!({"dev": "eth1", "backup": null}),
                "next_hops[2].dev: an earlier item changes the same",
            ),
        ] {
            let found = error(place, value);
            assert!(found.starts_with(expected), "{place}: {found}");
        }
    }

    #[test]
    fn an_error_names_the_field() {
        let path = "/operations/0/candidate_path";
        let list = format!("{path}/segment_lists/0");
        let (segments, weight) = (format!("{list}/segments"), format!("{list}/weight"));
        let lists = format!("{path}/segment_lists");
        let withdraw = json!({"action": "withdraw", "color": 100, "endpoint": "fc00:3::1", "discriminator": 7});
        for (place, value, expected) in [
            (
                "/colour",
                json!(1),
                "colour: unknown field `colour`, expected one of `owner`",
            ),
            ("/owner", Value::Null, "missing field `owner`"),
            ("/owner/asn", json!(1), "owner.asn: unknown field `asn`"),
            (
                "/owner/protocol_origin",
                json!("isis"),
                "owner.protocol_origin: unknown variant `isis`",
            ),
            (
                "/owner/originator/address",
                json!("r1"),
                "owner.originator.address: invalid IP address",
            ),
            (
                "/owner",
                json!({"protocol_origin": "configuration", "originator": {"asn": 0, "address": "::"}}),
                "owner.originator: AS 0 and address ::",
            ),
            (
                "/operations/0/owner",
                json!({}),
                "operations[0].owner: unknown field `owner`",
            ),
            (
                "/operations/0/color",
                json!(4_294_967_296_u64),
                "operations[0].color: invalid value",
            ),
            (
                "/operations/1/action",
                json!("delete"),
                "operations[1].action: unknown variant `delete`",
            ),
            (
                "/operations/1/candidate_path",
                batch()["operations"][0]["candidate_path"].clone(),
                "operations[1].candidate_path: `withdraw` takes no",
            ),
            (path, Value::Null, "operations[0].candidate_path: missing"),
            (
                "/operations/1",
                withdraw,
                "operations[1].discriminator: operations[0] changes the same",
            ),
            (
                &lists,
                json!([]),
                "operations[0].candidate_path.segment_lists: 0 segment lists; expected 1 to 256",
            ),
            (
                &segments,
                json!([]),
                "operations[0].candidate_path.segment_lists[0].segments: no segment",
            ),
            (
                &segments,
                json!(vec!["fc00::1"; 17]),
                "operations[0].candidate_path.segment_lists[0].segments: too many segments (17); expected 1 to 16",
            ),
            (
                &segments,
                json!(["fc00::1", "x"]),
                "operations[0].candidate_path.segment_lists[0].segments[1]: invalid",
            ),
            (
                &weight,
                json!(0),
                "operations[0].candidate_path.segment_lists[0].weight: 0 is no weight",
            ),
            (
                "/operations/0/candidate_path/binding_sid",
                json!("ff02::1"),
                "operations[0].candidate_path.binding_sid: ff02::1 cannot be a SID",
            ),
        ] {
            let found = error(place, value);
            assert!(found.starts_with(expected), "{place}: {found}");
        }
        let many = vec![batch()["operations"][1].clone(); OPERATIONS_MAX + 1];
        let found = error("/operations", Value::Array(many));
        assert_eq!(
            found,
            "operations: too many operations (10001); expected up to 10000"
        );
    }

    #[test]
    fn a_batch_has_one_owner() {
        let text = batch().to_string();
        let twice = text.replacen(
            '{',
            r#"{"owner":{"protocol_origin":"pcep","originator":{"asn":1,"address":"::1"}},"#,
            1,
        );
        let found = parse::<PolicyBatch>(&twice).expect_err("two owners");
        assert!(found.starts_with("duplicate field `owner`"), "{found}");
        let found = parse::<PolicyBatch>(&format!("{text} {text}")).expect_err("two batches");
        assert!(found.starts_with("trailing characters"), "{found}");
    }
}
