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

/// Omits the hash states: anyone who reads them can sign.
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
