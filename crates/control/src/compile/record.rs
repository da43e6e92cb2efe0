//! Constructors of route records.

use sidestep_datapath::abi::{
    PUNT_table_full, SIDESTEP_ROUTE_END_AD, SIDESTEP_ROUTE_END_AM, SIDESTEP_ROUTE_END_AS,
    SIDESTEP_ROUTE_PUNT, SIDESTEP_ROUTE_SIDESTEP_ONLY, sidestep_action, sidestep_reason,
    sidestep_route,
};

/// Returns a record with this action.
pub(super) fn record(action: sidestep_action) -> sidestep_route {
    sidestep_route {
        action: action as u8,
        ..Default::default()
    }
}

/// Returns a record that punts packets with this reason.
pub(super) fn punt(reason: sidestep_reason) -> sidestep_route {
    sidestep_route {
        reason: reason as u8,
        ..record(SIDESTEP_ROUTE_PUNT)
    }
}

/// The record of a route that does not fit. Packets of a Sidestep-only route are dropped: the kernel
/// would forward them by another one.
pub(super) fn full_record(own: bool) -> sidestep_route {
    let flags = if own { SIDESTEP_ROUTE_SIDESTEP_ONLY } else { 0 };
    sidestep_route {
        flags: flags as u8,
        ..punt(PUNT_table_full)
    }
}

/// Whether the record is that of an SR proxy's SID.
pub(super) fn is_proxy(record: &sidestep_route) -> bool {
    matches!(
        u32::from(record.action),
        SIDESTEP_ROUTE_END_AS | SIDESTEP_ROUTE_END_AD | SIDESTEP_ROUTE_END_AM
    )
}
