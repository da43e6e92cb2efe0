//! Printer of routes, in the grammar of `ip route add` and `ip route show`.

use std::fmt::Write;

use super::{default_table, rejects};
use crate::grammar::{Names, Style, encap, value};
use crate::node::TableId;
use crate::route::{Family, NextHop, Route, RouteKind};

/// Prints a route on one line, without a line feed. [`Style::Show`] adds a line per `nexthop`.
///
/// LIMIT: `pref` is always printed as `medium`. Only routes from router advertisements can have
/// another preference.
pub fn print(route: &Route, names: &dyn Names, style: Style) -> String {
    // `ip` prints the next hops of a route with `nhid`, but refuses them as input.
    let with_object = style == Style::Show;
    print_with(route, names, style, with_object)
}

/// Like [`print()`] with [`Style::Add`], and with the next hops of the nexthop object.
pub fn print_resolved(route: &Route, names: &dyn Names) -> String {
    print_with(route, names, Style::Add, true)
}

fn print_with(route: &Route, names: &dyn Names, style: Style, with_object: bool) -> String {
    let family = route.family();
    let next_hops: &[NextHop] = match route.nhid {
        Some(_) if !with_object => &[],
        _ => &route.next_hops,
    };
    let mut text = String::new();
    if route.kind != RouteKind::Unicast {
        let _ = write!(text, "{} ", value::kind_text(route.kind));
    }
    text.push_str(&destination(route, next_hops, style));
    if let Some(from) = &route.key.from {
        let _ = write!(text, " from {}", value::prefix_text(from));
    }
    if let Some(nhid) = route.nhid {
        let _ = write!(text, " nhid {nhid}");
    }
    let single = match next_hops {
        [hop] => Some(hop),
        _ => None,
    };
    if let Some(encap) = single.and_then(|hop| hop.encap.as_ref()) {
        text.push_str(encap_lead(style));
        text.push_str(&encap::print(encap, names, style));
    }
    if route.key.tos != 0 {
        let _ = write!(text, " tos 0x{:02x}", route.key.tos);
    }
    if let Some(hop) = single {
        print_gateway(&mut text, hop, family, names);
    } else if style == Style::Show && rejects(route.kind) && family == Family::V6 {
        text.push_str(" dev lo");
    }
    let unsaid = match style {
        Style::Add => default_table(route.kind),
        Style::Show => TableId::MAIN,
    };
    if route.key.table != unsaid {
        let _ = write!(text, " table {}", value::table_text(route.key.table, names));
    }
    if route.protocol != value::PROTOCOL_BOOT {
        let _ = write!(text, " proto {}", value::protocol_text(route.protocol));
    }
    if let Some(scope) = shown_scope(route).filter(|_| style == Style::Show) {
        let _ = write!(text, " scope {scope}");
    }
    if let Some(prefsrc) = route.prefsrc {
        let _ = write!(text, " src {prefsrc}");
    }
    if family == Family::V6 || route.key.metric != 0 {
        let _ = write!(text, " metric {}", route.key.metric);
    }
    if let Some(hop) = single {
        print_flags(&mut text, hop, style);
    }
    if let Some(mtu) = route.mtu {
        let _ = write!(text, " mtu {mtu}");
    }
    if family == Family::V6 && style == Style::Show {
        text.push_str(" pref medium");
    }
    if single.is_none() {
        for hop in next_hops {
            print_nexthop(&mut text, hop, family, names, style);
        }
    }
    text
}

/// Prints one next hop of a route of this family as after `nexthop`, without its weight.
pub fn print_next_hop(hop: &NextHop, family: Family, names: &dyn Names) -> String {
    let mut text = String::new();
    if let Some(encap) = &hop.encap {
        text.push_str(encap_lead(Style::Add));
        text.push_str(&encap::print(encap, names, Style::Add));
    }
    print_gateway(&mut text, hop, family, names);
    text.trim_start().to_owned()
}

fn destination(route: &Route, next_hops: &[NextHop], style: Style) -> String {
    let prefix = &route.key.prefix;
    if prefix.prefix_len() == 0 {
        // `ip route add default` takes the family of the first gateway, else IPv4. If the route has
        // another family, print the prefix.
        let gateway = next_hops.first().and_then(|hop| hop.via);
        if style == Style::Show || gateway.is_some_and(|via| Family::of(&via) == route.family()) {
            return "default".to_owned();
        }
        return prefix.to_string();
    }
    value::prefix_text(prefix)
}

/// `ip` prints two blanks before `encap`.
fn encap_lead(style: Style) -> &'static str {
    match style {
        Style::Add => " ",
        Style::Show => "  ",
    }
}

fn print_gateway(text: &mut String, hop: &NextHop, family: Family, names: &dyn Names) {
    if let Some(via) = hop.via {
        let other = if Family::of(&via) == family {
            ""
        } else {
            "inet6 "
        };
        let _ = write!(text, " via {other}{via}");
    }
    if let Some(dev) = hop.dev {
        let _ = write!(text, " dev {}", value::interface_text(dev, names));
    }
}

fn print_flags(text: &mut String, hop: &NextHop, style: Style) {
    if hop.dead && style == Style::Show {
        text.push_str(" dead");
    }
    if hop.onlink {
        text.push_str(" onlink");
    }
}

fn print_nexthop(
    text: &mut String,
    hop: &NextHop,
    family: Family,
    names: &dyn Names,
    style: Style,
) {
    text.push_str(if style == Style::Show {
        "\n\tnexthop"
    } else {
        " nexthop"
    });
    if let Some(encap) = &hop.encap {
        text.push_str(encap_lead(style));
        text.push_str(&encap::print(encap, names, style));
    }
    print_gateway(text, hop, family, names);
    let _ = write!(text, " weight {}", hop.weight);
    print_flags(text, hop, style);
}

/// Returns the default scope that `ip` gives an IPv4 route. `None` means global, which is not
/// printed.
fn shown_scope(route: &Route) -> Option<&'static str> {
    let on_link = matches!(route.next_hops[..], [ref hop] if hop.via.is_none());
    match route.kind {
        _ if route.family() == Family::V6 => None,
        RouteKind::Local => Some("host"),
        RouteKind::Broadcast | RouteKind::Multicast | RouteKind::Anycast => Some("link"),
        RouteKind::Unicast if on_link && route.nhid.is_none() => Some("link"),
        _ => None,
    }
}
