//! Structures and constants shared with the packet path, generated from `datapath/abi.h`,
//! `report.h` and `sample.h` when this crate is built, and the table of reasons of
//! `datapath/reason.h`.

use std::fmt;

pub use generated::*;

#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    clippy::pedantic
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));
}

include!(concat!(env!("OUT_DIR"), "/reasons.rs"));

/// Index into one of the tables. Index 0 means "none".
pub trait TableIndex: Copy + Ord + Into<u32> + From<u32> {}

macro_rules! table_index {
    ($($name:ident)*) => {$(
        impl $name {
            /// The index that means "none".
            pub const NONE: Self = Self(0);

            /// Whether this is index 0, which means "none".
            pub fn is_none(self) -> bool {
                self == Self::NONE
            }

            /// Whether this is an index other than 0.
            pub fn is_some(self) -> bool {
                self != Self::NONE
            }
        }

        impl TableIndex for $name {}

        impl From<u32> for $name {
            fn from(index: u32) -> Self {
                Self(index)
            }
        }

        impl From<$name> for u32 {
            fn from(index: $name) -> Self {
                index.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

table_index!(
    RouteId GroupId AdjacencyId PolicyId ViewId CounterId HeaderSetId KeySlot FlowTableId
    SessionId
);

impl sidestep_port {
    /// Returns the views that packets of this port are looked up in; some may be `NONE`.
    pub fn views(&self) -> [ViewId; 7] {
        [
            self.view6,
            self.view4,
            self.local_addrs6,
            self.local_addrs4,
            self.domain,
            self.hmac_keys,
            self.discriminators,
        ]
    }
}

impl sidestep_policy {
    /// Returns the view of the first segment, which may be `NONE`.
    pub fn views(&self) -> [ViewId; 1] {
        [self.view]
    }
}

impl sidestep_route {
    /// Returns the views that the behavior looks packets up in; some may be `NONE`.
    pub fn views(&self) -> [ViewId; 2] {
        [self.view6, self.view4]
    }
}

/// The field `policy` holds another index for some actions.
impl sidestep_route {
    /// Returns the policy record of a headend or of a binding SID.
    pub fn policy_id(&self) -> PolicyId {
        match u32::from(self.action) {
            SIDESTEP_ROUTE_END_AD
            | SIDESTEP_ROUTE_RETURN_AD
            | SIDESTEP_ROUTE_HMAC_KEY
            | SIDESTEP_ROUTE_SESSION => PolicyId::NONE,
            _ => PolicyId(self.policy),
        }
    }

    /// Returns the header set of End.AD.
    pub fn header_set(&self) -> HeaderSetId {
        match u32::from(self.action) {
            SIDESTEP_ROUTE_END_AD | SIDESTEP_ROUTE_RETURN_AD => HeaderSetId(self.policy),
            _ => HeaderSetId::NONE,
        }
    }

    /// Returns the slot of the HMAC key that the route of an HMAC Key ID names.
    pub fn key_slot(&self) -> KeySlot {
        match u32::from(self.action) {
            SIDESTEP_ROUTE_HMAC_KEY => KeySlot(self.policy),
            _ => KeySlot::NONE,
        }
    }
}

/// Omits the hash states, which are enough to sign packets.
impl fmt::Debug for sidestep_hmac_key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("sidestep_hmac_key")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Reason for a drop or a punt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Stable number, which is also the counter slot.
    pub number: u32,
    /// Stable name.
    pub name: &'static str,
    /// RFC section or manual page, or `-`.
    pub source: &'static str,
    /// Explanation in one sentence.
    pub sentence: &'static str,
}

impl Reason {
    /// Returns the reason with this number.
    pub fn from_number(number: u32) -> Option<&'static Self> {
        REASONS.iter().find(|reason| reason.number == number)
    }

    /// Returns the reason with this name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        REASONS.iter().find(|reason| reason.name == name)
    }

    /// Whether the reason explains a drop. The other reasons explain a punt.
    pub fn is_drop(&self) -> bool {
        self.number < 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_table_has_every_number_of_the_c_enum() {
        assert_eq!(
            Reason::from_name("blackhole").unwrap().number,
            DROP_blackhole
        );
        assert_eq!(Reason::from_name("not_ip").unwrap().number, PUNT_not_ip);
        assert_eq!(
            Reason::from_name("jumbogram").unwrap().number,
            PUNT_jumbogram
        );
        let mut numbers: Vec<_> = REASONS.iter().map(|r| r.number).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), REASONS.len());
        assert!(numbers.iter().all(|&n| n < SIDESTEP_REASONS));
    }
}
