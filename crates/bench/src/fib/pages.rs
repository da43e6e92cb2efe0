//! The pictures of a scenario: one for each thing that is measured at its points.

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

/// Time of lookups.
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

/// Time of a whole table's insertion.
pub fn insertion_page(point: &plan::Point) -> Page {
    let note = "From an empty table to all routes, each subject in its fastest way: where it takes many at once, many at once.";
    page(
        point,
        "insertion",
        "whole table put in",
        note,
        Axis::log("time", "s").better(Better::Lower),
    )
}

/// Memory.
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

/// Time of a single change.
pub fn latency_page(point: &plan::Point) -> Page {
    let note = "One route taken out or put in; median, up to the 99th percentile.";
    page(
        point,
        "change-time",
        "a single change",
        note,
        Axis::log("time of a change", "us").better(Better::Lower),
    )
}

/// Changes a second, alone or during lookups.
pub fn rate_page(point: &plan::Point, loaded: bool) -> Page {
    let y = Axis::log("changes", "1/s").better(Better::Higher);
    if loaded {
        let note = "Another processor looks up meanwhile, without end; waiting for its lookups to leave old memory is in it.";
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
