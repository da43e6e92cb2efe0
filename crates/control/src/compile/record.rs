//! Constructors of route records.

use sidestep_datapath::abi::{
    SIDESTEP_ROUTE_END_AD, SIDESTEP_ROUTE_END_AM, SIDESTEP_ROUTE_END_AS, SIDESTEP_ROUTE_PUNT,
    sidestep_action, sidestep_reason, sidestep_route,
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

/// Whether the record is that of an SR proxy's SID.
pub(super) fn is_proxy(record: &sidestep_route) -> bool {
    matches!(
        u32::from(record.action),
        SIDESTEP_ROUTE_END_AS | SIDESTEP_ROUTE_END_AD | SIDESTEP_ROUTE_END_AM
    )
}
