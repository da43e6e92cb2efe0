//! Commands that reproduce a case by hand: they build the network, configure the router, and start
//! the data plane.

use super::behavior::{Behavior, RULES_FROM, RULES_TABLE, Service};
use super::network::{
    BYPASSED, GENERATOR, GENERATOR_MAC, MTU, PORT, PORTS, ROUTER, ROUTER_MACS, SERVICE,
    SERVICE_IFNAMES, SERVICE_MACS, SERVICE_PORT_MACS, SERVICE_PORTS, SINK, SINK_MAC, SYSCTLS,
    router_lines, service_lines,
};
use super::plane::Plane;
use sidestep_testkit::lab::{QUIET, mac_text};

/// Returns the commands. Namespaces have the names of their nodes.
pub fn of(plane: Plane, behavior: &Behavior) -> Vec<String> {
    let service = behavior.service.map(|_| (SERVICE, &SYSCTLS[..]));
    let mut commands = nodes(&SYSCTLS, service);
    let mut ports = PORTS.to_vec();
    commands.extend(links(behavior.queues));
    if behavior.service.is_some() {
        for number in 0..2 {
            commands.extend(link(
                (ROUTER, SERVICE_PORTS[number], SERVICE_PORT_MACS[number]),
                (SERVICE, SERVICE_IFNAMES[number], SERVICE_MACS[number]),
                behavior.queues,
            ));
        }
        commands.push(sysctl(SERVICE, "net/ipv6/conf/eth0/seg6_enabled", "1"));
        for (node, lines) in [ROUTER, SERVICE].into_iter().zip(service_lines()) {
            commands.extend(lines.lines().map(|line| format!("ip -n {node} {line}")));
        }
        ports.extend(SERVICE_PORTS);
    }
    let router = Router::LAB;
    commands.extend(router.configured(behavior, &ports));
    commands.extend(service_program(plane, behavior));
    commands.extend(router.started(plane, behavior, &ports));
    commands
}

/// The router that commands configure.
#[derive(Clone, Copy, Debug)]
pub struct Router<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// The Ethernet address of all its neighbors.
    pub sink: [u8; 6],
    /// The program of Sidestep.
    pub sidestep: &'a str,
}

impl Router<'_> {
    const LAB: Self = Self {
        namespace: ROUTER,
        sink: SINK_MAC,
        sidestep: "sidestep",
    };

    /// Returns the commands that configure a router with these ports for a behavior, for any
    /// engine.
    pub fn configured(&self, behavior: &Behavior, ports: &[&str]) -> Vec<String> {
        let node = self.namespace;
        let enabled = ports
            .iter()
            .map(|port| sysctl(node, &format!("net/ipv6/conf/{port}/seg6_enabled"), "1"));
        let mut commands: Vec<String> = enabled.collect();
        let beside = behavior.routes.len() - behavior.beside as usize;
        let needed = Behavior {
            routes: behavior.routes[..beside].to_vec(),
            ..behavior.clone()
        };
        let (devices, others): (Vec<String>, Vec<String>) = router_lines(&needed, self.sink)
            .into_iter()
            .partition(|line| line.starts_with("link "));
        if let Some(key) = behavior.key {
            let (id, algorithm, secret) = (key.id, key.algorithm, key.secret);
            commands.push(format!(
                "echo '{secret}' | ip netns exec {node} setsid --wait ip sr hmac set {id} {algorithm}"
            ));
        }
        commands.extend(devices.iter().map(|line| format!("ip -n {node} {line}")));
        let sysctls = behavior.sysctls.iter();
        commands.extend(sysctls.map(|(path, value)| sysctl(node, path, value)));
        commands.extend(others.iter().map(|line| format!("ip -n {node} {line}")));
        commands.extend(routes_beside(node, behavior));
        commands.extend(rules(node, behavior));
        commands
    }

    /// Returns the commands that start Sidestep and add its Sidestep-only routes. Empty for Linux.
    pub fn started(&self, plane: Plane, behavior: &Behavior, ports: &[&str]) -> Vec<String> {
        let mode = match plane {
            Plane::Linux => return Vec::new(),
            Plane::Tc => "tc",
            Plane::Xdp => "xdp-always",
        };
        let program = format!("ip netns exec {} {}", self.namespace, self.sidestep);
        let run = format!("{program} run --mode {mode} --detach {}", ports.join(" "));
        let own = behavior.own.iter();
        let own = own.map(|route| format!("{program} route add {route}"));
        std::iter::once(run).chain(own).collect()
    }
}

/// Returns the commands for a network as [`super::network::Network::bypassed`] builds it.
pub fn bypassed(queues: u32) -> Vec<String> {
    let mut commands = nodes(&BYPASSED, None);
    commands.extend(links(queues));
    commands
}

/// Returns the commands that create generator, router, sink, and optionally another node.
/// Forwarding nodes have sysctls.
fn nodes(router: &[(&str, &str)], other: Option<(&str, &[(&str, &str)])>) -> Vec<String> {
    let all = [(GENERATOR, &[][..]), (ROUTER, router), (SINK, &[])];
    let mut commands = Vec::new();
    for (node, sysctls) in all.into_iter().chain(other) {
        commands.push(format!("ip netns add {node}"));
        commands.push(format!("ip -n {node} link set lo up"));
        let sysctls = QUIET.iter().chain(sysctls);
        commands.extend(sysctls.map(|(path, value)| sysctl(node, path, value)));
    }
    commands
}

/// Returns the commands that link generator, router and sink.
fn links(queues: u32) -> Vec<String> {
    let generator = (GENERATOR, PORT, GENERATOR_MAC);
    let [port_in, port_out] = [0, 1].map(|n| (ROUTER, PORTS[n], ROUTER_MACS[n]));
    let mut commands = link(generator, port_in, queues);
    commands.extend(link(port_out, (SINK, PORT, SINK_MAC), queues));
    commands
}

/// Returns one command that adds all extra routes of a case.
fn routes_beside(node: &str, behavior: &Behavior) -> Option<String> {
    let last = behavior.beside.checked_sub(1)?;
    let route = behavior.routes.last()?;
    let (prefix, by) = route.split_once(' ')?;
    let (pattern, numbers) = if prefix.contains('.') {
        (
            "%d.%d.%d.0/24",
            "$((20 + (n >> 16))) $((n >> 8 & 255)) $((n & 255))",
        )
    } else {
        ("fd01:%x:%x::/48", "$((n >> 16)) $((n & 65535))")
    };
    let line = format!("route add {pattern} {by}");
    Some(in_a_loop(node, (0, last), &line, numbers, ""))
}

/// Returns the commands that add the rules. One command adds all rules that match nothing.
fn rules(node: &str, behavior: &Behavior) -> Vec<String> {
    let family = if behavior.ipv4_rules { " -4" } else { " -6" };
    let absent = |rule: &&String| rule.starts_with("iif absent");
    let count = behavior.rules.iter().filter(absent).count() as u32;
    let line = format!("rule add iif absent%d priority %d lookup {RULES_TABLE}");
    let numbers = format!("$n $(({RULES_FROM} - 1 + n))");
    let absent_ones = (count > 0).then(|| in_a_loop(node, (1, count), &line, &numbers, family));
    let others = behavior.rules.iter().filter(|rule| !absent(rule));
    let others = others.map(|rule| format!("ip -n {node}{family} rule add {rule}"));
    absent_ones.into_iter().chain(others).collect()
}

/// Returns a shell loop that formats `line` for each number and passes the lines to `ip -batch`.
fn in_a_loop(
    node: &str,
    (first, last): (u32, u32),
    line: &str,
    numbers: &str,
    family: &str,
) -> String {
    format!(
        "for n in $(seq {first} {last}); do printf '{line}\\n' {numbers}; done | ip -n {node}{family} -batch -"
    )
}

/// Linux has no command for a redirecting program, so the recipe describes it.
fn service_program(plane: Plane, behavior: &Behavior) -> Option<String> {
    if plane.service(behavior) != Some(Service::Xdp) {
        return None;
    }
    let [ingress, egress] = SERVICE_IFNAMES;
    let macs = [SERVICE_PORT_MACS[1], SERVICE_MACS[1]].map(mac_text);
    Some(format!(
        "# {SERVICE}: an XDP program at {ingress} that redirects all frames to {egress}, with destination {} and source {}",
        macs[0], macs[1]
    ))
}

fn sysctl(node: &str, path: &str, value: &str) -> String {
    format!("ip netns exec {node} sysctl -qw {path}={value}")
}

/// Returns the commands that join two ports: node, interface, Ethernet address.
fn link(near: (&str, &str, [u8; 6]), far: (&str, &str, [u8; 6]), queues: u32) -> Vec<String> {
    let macs = [near, far].map(|end| mac_text(end.2));
    let of_both = match queues {
        0 | 1 => format!("mtu {MTU}"),
        several => format!("mtu {MTU} numtxqueues {several} numrxqueues {several}"),
    };
    let mut commands = vec![format!(
        "ip -n {} link add {} {of_both} address {} type veth peer name {} {of_both} address {} netns {}",
        near.0, near.1, macs[0], far.1, macs[1], far.0
    )];
    for (node, ifname, _) in [near, far] {
        commands.push(format!("ip -n {node} link set {ifname} up"));
        commands.push(format!(
            "ip netns exec {node} ethtool -K {ifname} rx off tx off tso off gso off gro off"
        ));
    }
    commands
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::engine::{Case, Flows, Size};
    use sidestep_testkit::netns::remove;
    use sidestep_testkit::root_or_skip;

    /// Namespaces that a recipe created. Drop removes them.
    struct Made(Vec<String>);

    impl Drop for Made {
        fn drop(&mut self) {
            for name in &self.0 {
                // The namespace may not exist yet.
                let _ = remove(name);
            }
        }
    }

    fn output(command: &str) -> String {
        let output = Command::new("sh").args(["-c", command]).output();
        let output = output.expect("sh");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn a_recipe_configures_what_is_measured() {
        if !root_or_skip() {
            return;
        }
        let case = Case {
            behavior: "end.hmac.sha256".to_owned(),
            sids: 2,
            size: Size::Bytes(64),
            flows: Flows::Uniform(2),
            rules: 12,
            routes: 300,
            cores: 2,
        };
        let behavior = Behavior::of(&case, 64).expect("a behavior");
        let own = |node: &str| format!("ss-recipe-{}-{node}", std::process::id());
        let nodes = [GENERATOR, ROUTER, SINK];
        let _made = Made(nodes.map(own).into());
        for command in of(Plane::Linux, &behavior) {
            // Offloads need ethtool, which this test does not cover.
            if command.contains("ethtool") {
                continue;
            }
            let words = command.split(' ').map(|word| {
                if nodes.contains(&word) {
                    own(word)
                } else {
                    word.to_owned()
                }
            });
            output(&words.collect::<Vec<_>>().join(" "));
        }
        let router = own(ROUTER);
        let measured = crate::engine::network::Network::routed(&behavior).expect("network");
        let theirs = measured.router().expect("a router").name();
        for shown in [
            "-6 route show table all",
            "-6 rule show",
            "-6 address show dev eth1",
        ] {
            let of = |name: &str| {
                let text = output(&format!("ip -n {name} {shown}"));
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.retain(|line| !line.contains("fe80") && !line.contains("multicast"));
                lines.sort();
                lines
            };
            let (ours, theirs) = (of(&router), of(theirs));
            assert!(ours.len() > 1, "{shown}");
            let indices =
                |line: &String| line.starts_with(char::is_numeric) && shown.contains("address");
            let differ: Vec<_> = ours
                .iter()
                .zip(&theirs)
                .filter(|(a, b)| a != b && !indices(a))
                .collect();
            assert!(
                differ.is_empty() && ours.len() == theirs.len(),
                "{shown}: {differ:?}"
            );
        }
    }
}
