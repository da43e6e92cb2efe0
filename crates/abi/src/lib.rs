//! The structures shared with the packet path: the Rust side of `datapath/abi.h`, `report.h` and `sample.h`, generated at build time, and the
//! table of reasons of `datapath/reason.h`.

#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    clippy::pedantic
)]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
include!(concat!(env!("OUT_DIR"), "/reasons.rs"));

/// Whoever has what is in it can sign.
impl std::fmt::Debug for sidestep_hmac_key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("sidestep_hmac_key")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Why a packet was dropped or left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Stable number: counter slot.
    pub number: u32,
    /// Stable name.
    pub name: &'static str,
    /// RFC section or manual page; `-` where there is none.
    pub source: &'static str,
    /// One sentence for people.
    pub sentence: &'static str,
}

impl Reason {
    /// The reason with that number.
    pub fn from_number(number: u32) -> Option<&'static Self> {
        REASONS.iter().find(|reason| reason.number == number)
    }

    /// The reason with that name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        REASONS.iter().find(|reason| reason.name == name)
    }

    /// Whether it ends the packet's way (else the kernel gets the packet).
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
