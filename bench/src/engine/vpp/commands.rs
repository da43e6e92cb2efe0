//! Translates the Linux configuration of a case into commands of VPP's CLI.

use super::super::behavior::Behavior;
use super::super::customer::TUNSRC;
use super::super::network::{ADDRESSES, NEXT_HOPS, PORTS, ROUTER_MACS, SINK_MAC, TO_SEGMENTS};
use sidestep_testkit::lab::mac_text;

/// Returns the commands in order: ports, addresses, neighbors, tables, routes.
///
/// # Errors
/// VPP does not support the behavior, or not in the required form.
pub(super) fn of(behavior: &Behavior) -> Result<Vec<String>, String> {
    let own = behavior.clone().without_devices();
    if own.service.is_some() {
        return Err("VPP is set up without a service; its SR proxies are not supported".into());
    }
    if own.key.is_some() {
        return Err("VPP has no HMAC of an SRH".into());
    }
    if !own.rules.is_empty() {
        return Err("VPP has no rules like Linux's; its access lists are not supported".into());
    }
    let mut commands = ports();
    let needed = own.routes.len() - own.beside as usize;
    let lines = TO_SEGMENTS
        .into_iter()
        .chain(own.own.iter().map(String::as_str))
        .chain(own.routes[..needed].iter().map(String::as_str));
    let lines: Vec<Line> = lines.map(Line::of).collect();
    commands.extend(lines.iter().filter_map(Line::table));
    for line in &lines {
        commands.extend(line.commands()?);
    }
    // The prefixes are consecutive.
    if let Some(first) = own.routes.get(needed) {
        let (prefix, by) = Line::of(first).plain()?;
        let count = own.beside;
        commands.push(format!("ip route add {prefix} count {count} {by}"));
    }
    Ok(commands)
}

/// Returns the commands for the ports, and for the configuration that all behaviors share.
fn ports() -> Vec<String> {
    let sink = mac_text(SINK_MAC);
    let mut commands = Vec::new();
    for (port, mac) in PORTS.iter().zip(ROUTER_MACS) {
        // The ports have no offloads. With offloads, VPP 25.10 sends frames without their first ten
        // bytes.
        commands.push(format!(
            "create host-interface name {port} hw-addr {} cksum-gso-disable",
            mac_text(mac)
        ));
        commands.push(format!("set interface state {} up", host(port)));
    }
    commands.extend(ADDRESSES.iter().filter_map(|address| {
        let (address, port) = address.split_once(" dev ")?;
        Some(format!("set interface ip address {} {address}", host(port)))
    }));
    commands.extend(NEXT_HOPS.map(|address| {
        let port = host(PORTS[1]);
        format!("set ip neighbor {port} {address} {sink} static")
    }));
    commands
}

/// Returns VPP's name of a port.
fn host(port: &str) -> String {
    format!("host-{port}")
}

/// A line of `ip route add`: a prefix, and arguments. Most are a keyword with a value.
struct Line<'a> {
    prefix: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Self {
        let mut words = line.split(' ');
        Self {
            prefix: words.next().unwrap_or_default(),
            words: words.collect(),
        }
    }

    /// Returns the value after this keyword.
    fn value(&self, word: &str) -> Option<&'a str> {
        let at = self.words.iter().position(|it| *it == word)?;
        self.words.get(at + 1).copied()
    }

    fn needed(&self, word: &str) -> Result<&'a str, String> {
        self.value(word)
            .ok_or_else(|| format!("the route to {} has no {word}", self.prefix))
    }

    fn is_ipv4(&self) -> bool {
        self.prefix.contains('.')
    }

    /// Returns the on-link neighbor for a next hop. VPP does not resolve a next hop through another
    /// route.
    fn neighbor(next_hop: &str) -> String {
        let [v6, v4] = NEXT_HOPS;
        let neighbor = if next_hop.contains('.') { v4 } else { v6 };
        format!("{} {neighbor}", host(PORTS[1]))
    }

    /// Returns the command that creates the table of the route, unless it is the main table.
    fn table(&self) -> Option<String> {
        let plain = self.value("via").is_some();
        let table = self.value("table").filter(|_| plain)?;
        let ip = if self.is_ipv4() { "ip" } else { "ip6" };
        Some(format!("{ip} table add {table}"))
    }

    fn commands(&self) -> Result<Vec<String>, String> {
        match self.value("encap") {
            Some("seg6") => self.steered(),
            Some("seg6local") => self.local(),
            _ => {
                let (prefix, by) = self.plain()?;
                Ok(vec![format!("ip route add {prefix} {by}")])
            }
        }
    }

    /// Translates a route without SRv6: returns table and prefix, and the next hop.
    fn plain(&self) -> Result<(String, String), String> {
        let (via, port) = (self.needed("via")?, host(self.needed("dev")?));
        let table = self.value("table").map(|it| format!("table {it} "));
        let prefix = format!("{}{}", table.unwrap_or_default(), self.prefix);
        Ok((prefix, format!("via {via} {port}")))
    }

    /// Translates a headend: an SR policy, and the traffic that is steered into it.
    fn steered(&self) -> Result<Vec<String>, String> {
        if self.value("hmac").is_some() {
            return Err("VPP has no HMAC of an SRH".into());
        }
        let segments = self.segments("segs")?;
        let mode = self.needed("mode")?;
        let l2 = mode.starts_with("l2");
        let policy = match mode {
            "inline" => policy(BSID, &segments, Push::Insert)?,
            "encap" | "l2encap" => policy(BSID, &segments, Push::Whole { l2 })?,
            _ => policy(BSID, &segments, Push::Reduced)?,
        };
        let what = if l2 {
            format!("l2 {}", host(PORTS[0]))
        } else {
            format!("l3 {}", self.prefix)
        };
        let steer = format!("sr steer {what} via bsid {BSID}");
        Ok(policy.into_iter().chain([steer]).collect())
    }

    /// Translates a SID.
    fn local(&self) -> Result<Vec<String>, String> {
        let action = self.needed("action")?;
        let (sid, _) = self.prefix.split_once('/').unwrap_or_default();
        let flavor = self.value("flavors");
        let words = match (action, flavor) {
            ("End", None) => "end".to_owned(),
            ("End", Some("psp")) => "end psp".to_owned(),
            ("End" | "End.X", Some("next-csid")) => return self.container(action),
            (_, Some(flavor)) => {
                return Err(format!(
                    "VPP has no {action} with {}",
                    flavor.to_uppercase()
                ));
            }
            ("End.X", None) => format!("end.x {}", Self::neighbor(self.needed("nh6")?)),
            ("End.T", None) => format!("end.t {}", self.needed("table")?),
            ("End.DX2", None) => format!("end.dx2 {}", host(self.needed("oif")?)),
            ("End.DX4", None) => format!("end.dx4 {}", Self::neighbor(self.needed("nh4")?)),
            ("End.DX6", None) => format!("end.dx6 {}", Self::neighbor(self.needed("nh6")?)),
            ("End.DT4", None) => format!("end.dt4 {}", self.decapsulated_into()?),
            ("End.DT6", None) => format!("end.dt6 {}", self.decapsulated_into()?),
            ("End.B6.Encaps", None) => {
                return policy(sid, &self.segments("segs")?, Push::Whole { l2: false });
            }
            _ => return Err(format!("VPP has no {action}")),
        };
        Ok(vec![format!("sr localsid address {sid} behavior {words}")])
    }

    /// Translates NEXT-C-SID (RFC 9800), which VPP calls uN and uA.
    fn container(&self, action: &str) -> Result<Vec<String>, String> {
        let length = self.needed("nflen")?;
        let words = match action {
            "End.X" => format!("ua {length} {}", Self::neighbor(self.needed("nh6")?)),
            _ => format!("un {length}"),
        };
        let prefix = self.prefix;
        Ok(vec![format!(
            "sr localsid prefix {prefix} behavior {words}"
        )])
    }

    /// Returns the number of a table; VPP's main table is 0.
    fn decapsulated_into(&self) -> Result<&'a str, String> {
        let table = self.needed("table")?;
        Ok(if table == MAIN { "0" } else { table })
    }

    fn segments(&self, word: &str) -> Result<Vec<&'a str>, String> {
        Ok(self.needed(word)?.split(',').collect())
    }
}

/// How a policy adds its segments to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Push {
    /// H.Encaps, or H.Encaps.L2 for a frame.
    Whole { l2: bool },
    /// H.Encaps.Red or H.Encaps.L2.Red.
    Reduced,
    /// H.Insert.
    Insert,
}

/// Returns the commands that create an SR policy with one segment list.
fn policy(bsid: &str, segments: &[&str], push: Push) -> Result<Vec<String>, String> {
    let count = segments.len();
    match push {
        Push::Whole { .. } if count == 1 => {
            return Err("VPP pushes one segment without an SRH (the reduced form)".into());
        }
        Push::Reduced if count > 1 => {
            return Err("VPP has the reduced form with one segment only".into());
        }
        _ => {}
    }
    let pushed = match push {
        Push::Whole { .. } => IPV6 + SRH + SEGMENT * count,
        Push::Reduced => IPV6,
        Push::Insert => SRH + SEGMENT * (count + 1),
    };
    // The removed Ethernet header of a packet leaves space; a frame keeps its header.
    let room = match push {
        Push::Whole { l2: true } => HEADROOM - ETHERNET,
        _ => HEADROOM,
    };
    if pushed > room {
        return Err(format!(
            "VPP has {room} bytes in front of a packet by default; {count} segments need {pushed}"
        ));
    }
    let next = segments.join(" next ");
    let how = if push == Push::Insert {
        "insert"
    } else {
        "encap"
    };
    Ok(vec![
        // VPP copies this address into a policy when the policy is created.
        format!("set sr encaps source addr {TUNSRC}"),
        format!("set sr encaps hop-limit {HOP_LIMIT}"),
        format!("sr policy add bsid {bsid} next {next} {how}"),
    ])
}

/// Binding SID of the policy. No packet has it as destination.
const BSID: &str = "fc0e::1";
/// Hop Limit of an outer header. Forwarding decrements it, so the sent packet has 64.
const HOP_LIMIT: u8 = 65;
/// Linux's main table.
const MAIN: &str = "254";
/// LIMIT: bytes in front of a packet in VPP's buffers: `PRE_DATA_SIZE`, 128 by default. VPP does
/// not check this limit.
const HEADROOM: usize = 128;
const IPV6: usize = 40;
const SRH: usize = 8;
const SEGMENT: usize = 16;
const ETHERNET: usize = 14;

#[cfg(test)]
mod tests;
