//! Errors of the compiler, and reasons to punt a route.

use sidestep_datapath::abi::{PUNT_unsupported, SIDESTEP_PORTS, sidestep_reason};
use thiserror::Error;

use super::allocator::TableFull;

/// Why a node cannot be compiled. Nothing of it is applied then; what ran before runs on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompileError {
    /// A table is full.
    #[error("the table of {table} is full: it holds {limit} (see `sidestep show limits`)")]
    Full {
        /// Which.
        table: &'static str,
        /// Its size.
        limit: u32,
    },
    /// A port is not an interface of the node.
    #[error("no interface with index {0} exists, so it cannot be a port")]
    NoSuchPort(u32),
    /// Two ports share a slot of the port table.
    #[error(
        "ports {0} and {1}: their interface indices are equal modulo {SIDESTEP_PORTS}; attach only one of them, or \
         recreate one interface"
    )]
    PortSlot(String, String),
}

impl From<TableFull> for CompileError {
    fn from(full: TableFull) -> Self {
        Self::Full {
            table: full.table,
            limit: full.limit,
        }
    }
}

/// Why a route gets no record of its own: Sidestep punts its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    /// The packet path cannot express the route.
    Unsupported {
        /// Reason that packets are punted with.
        reason: sidestep_reason,
        /// Explanation for the operator.
        text: String,
    },
    /// A table is full.
    Full(TableFull),
}

impl From<TableFull> for Skip {
    fn from(full: TableFull) -> Self {
        Self::Full(full)
    }
}

/// Returns [`Skip::Unsupported`] with the general reason.
pub(super) fn unsupported<T>(text: impl Into<String>) -> Result<T, Skip> {
    Err(Skip::Unsupported {
        reason: PUNT_unsupported,
        text: text.into(),
    })
}
