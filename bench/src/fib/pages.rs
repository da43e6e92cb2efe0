//! The plots of a scenario, one per metric.

use super::book::{Page, routes_axis};
use super::plan;
use super::subject::Order;
use crate::result::{Axis, Better};

fn page(point: &plan::Point, what: &str, title: &str, note: &'static str, y: Axis) -> Page {
    Page {
        id: format!("{}-{what}", point.group()),
        title: format!("{}: {title}", point.title()),
        note,
        x: routes_axis(),
        y,
    }
}

/// Plot of the time per lookup.
pub fn lookup_page(point: &plan::Point, mix: &str, order: Order) -> Page {
    let what = format!("{}-{}", mix, order.name())
        .to_lowercase()
        .replace(' ', "-");
    let title = format!("lookups {}, {mix} mix", order.name());
    page(
        point,
        &what,
        &title,
        "",
        Axis::log("time of a lookup", "ns").better(Better::Lower),
    )
}

/// Plot of the time to build a whole table.
pub fn insertion_page(point: &plan::Point) -> Page {
    let note = "From an empty table to all routes, with each table's fastest method, such as many routes per call.";
    page(
        point,
        "insertion",
        "whole table built",
        note,
        Axis::log("time", "s").better(Better::Lower),
    )
}

/// Plot of the memory per route.
pub fn memory_page(point: &plan::Point) -> Page {
    let note = "All that came with the table: what lookups read, what the writer keeps, and room to grow. Of the kernel's by its own \
                books, where they say more than 1 MiB.";
    page(
        point,
        "memory",
        "memory",
        note,
        Axis::log("memory of a route", "bytes").better(Better::Lower),
    )
}

/// Plot of the time of a single change.
pub fn latency_page(point: &plan::Point) -> Page {
    let note = "Removal or insertion of one route; median, with a bar up to the 99th percentile.";
    page(
        point,
        "change-time",
        "a single change",
        note,
        Axis::log("time of a change", "us").better(Better::Lower),
    )
}

/// Plot of the changes per second, alone or during lookups.
pub fn rate_page(point: &plan::Point, loaded: bool) -> Page {
    let y = Axis::log("changes", "1/s").better(Better::Higher);
    if loaded {
        let note = "Another processor makes lookups continuously. The time includes waiting for them before memory is reused.";
        page(
            point,
            "change-rate-loaded",
            "changes a second during lookups",
            note,
            y,
        )
    } else {
        page(point, "change-rate", "changes a second", "", y)
    }
}
