//! Backups of next hops in a batch.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use sidestep_model::behavior::{EncapMode, Seg6Encap};
use sidestep_model::protection::{Backup, Protected, Protection};

use super::{FieldError, HeadendMode, checked_list};

/// A next hop whose backup changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextHop {
    /// Name of the egress.
    pub dev: String,
    /// Address of the next hop; without it, all next hops of the egress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The backup. `null` withdraws it.
    #[serde(deserialize_with = "Option::deserialize")]
    pub backup: Option<NextHopBackup>,
}

/// The backup of a next hop: a segment list, or another next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextHopBackup {
    /// Segments in order of travel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<Ipv6Addr>>,
    /// Headend behavior of the segment list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<HeadendMode>,
    /// Address of the other next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Egress of the other next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// Name of the path whose failure also takes the next hop out of use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl NextHop {
    /// Returns its identity.
    pub(crate) fn key(&self) -> Protected {
        Protected {
            dev: self.dev.clone(),
            via: self.via,
        }
    }
}

impl NextHopBackup {
    pub(super) fn checked(&self) -> Result<Protection, FieldError> {
        let by = match (&self.segments, self.via, &self.dev) {
            (Some(segments), None, None) => Backup::List(Seg6Encap {
                mode: self.mode.map_or(EncapMode::Encap, HeadendMode::of_model),
                ..checked_list(segments).map_err(|error| error.within("backup"))?
            }),
            (None, Some(via), Some(dev)) if self.mode.is_none() => Backup::NextHop {
                dev: dev.clone(),
                via,
            },
            _ => {
                let problem = "not a backup; expected `segments`, with or without `mode`, or `via` and \
                               `dev`";
                return Err(FieldError::new("backup", problem));
            }
        };
        let path = self.path.clone();
        Ok(Protection { by, path })
    }
}
