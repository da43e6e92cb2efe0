//! Text tables of what is counted; the same structures are JSON with `-j`.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use sidestep_control::report::{PortCounters, Reason, Route};

/// A table with these column heads, without lines; columns named in `right` are numbers.
pub fn table(heads: &[&str], right: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(heads.to_vec());
    for (index, head) in heads.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if right.contains(head) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

/// Counters of interfaces.
pub fn port_counters(ports: &[PortCounters]) -> Table {
    let heads = [
        "port",
        "received",
        "bytes",
        "forwarded",
        "kernel",
        "dropped",
        "sent",
        "sent bytes",
    ];
    let mut table = table(&heads, &heads[1..]);
    for port in ports {
        let numbers = [
            port.received_packets,
            port.received_bytes,
            port.forwarded,
            port.kernel,
            port.dropped,
            port.sent_packets,
            port.sent_bytes,
        ];
        table.add_row(
            std::iter::once(port.name.clone()).chain(numbers.map(|number| number.to_string())),
        );
    }
    table
}

/// Counters of routes.
pub fn routes(routes: &[Route]) -> Table {
    let mut table = table(
        &["packets", "bytes", "errors", "route"],
        &["packets", "bytes", "errors"],
    );
    for route in routes {
        let numbers = [route.packets, route.bytes, route.errors].map(|number| number.to_string());
        table.add_row(numbers.into_iter().chain([route.route.clone()]));
    }
    table
}

/// How often each reason was given.
pub fn reasons(reasons: &[Reason]) -> Table {
    let mut table = table(
        &["packets", "verdict", "reason", "source", "what it means"],
        &["packets"],
    );
    for reason in reasons {
        let packets = reason.packets.to_string();
        table.add_row([
            &packets,
            &reason.verdict,
            &reason.name,
            &reason.source,
            &reason.sentence,
        ]);
    }
    table
}
