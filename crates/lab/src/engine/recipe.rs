//! A case as an operator would type it: the commands that build the network, configure the router, and start the data plane.

use super::behavior::Behavior;
use super::network::{
    GENERATOR, GENERATOR_MAC, MTU, PORT, PORTS, ROUTER, ROUTER_MACS, SERVICE, SERVICE_IFNAMES,
    SERVICE_MACS, SERVICE_PORT_MACS, SERVICE_PORTS, SINK, SINK_MAC, SYSCTLS, router_lines,
    service_lines,
};
use super::plane::Plane;
use crate::lab::mac_text;

/// The commands; namespaces have the names of their nodes.
pub fn of(plane: Plane, behavior: &Behavior) -> Vec<String> {
    let mut commands = Vec::new();
    let mut nodes = vec![GENERATOR, ROUTER, SINK];
    nodes.extend(behavior.service.map(|_| SERVICE));
    for node in nodes {
        commands.push(format!("ip netns add {node}"));
        if [ROUTER, SERVICE].contains(&node) {
            commands.extend(SYSCTLS.map(|(path, value)| sysctl(node, path, value)));
        }
    }
    let mut ports = PORTS.to_vec();
    commands.extend(link(
        (GENERATOR, PORT, GENERATOR_MAC),
        (ROUTER, PORTS[0], ROUTER_MACS[0]),
    ));
    commands.extend(link(
        (ROUTER, PORTS[1], ROUTER_MACS[1]),
        (SINK, PORT, SINK_MAC),
    ));
    if behavior.service.is_some() {
        for number in 0..2 {
            commands.extend(link(
                (ROUTER, SERVICE_PORTS[number], SERVICE_PORT_MACS[number]),
                (SERVICE, SERVICE_IFNAMES[number], SERVICE_MACS[number]),
            ));
        }
        commands.push(sysctl(SERVICE, "net/ipv6/conf/eth0/seg6_enabled", "1"));
        for (node, lines) in [ROUTER, SERVICE].into_iter().zip(service_lines()) {
            commands.extend(lines.lines().map(|line| format!("ip -n {node} {line}")));
        }
        ports.extend(SERVICE_PORTS);
    }
    for port in &ports {
        commands.push(sysctl(
            ROUTER,
            &format!("net/ipv6/conf/{port}/seg6_enabled"),
            "1",
        ));
    }
    let sysctls = behavior.sysctls.iter();
    let sysctls: Vec<String> = sysctls
        .map(|(path, value)| sysctl(ROUTER, path, value))
        .collect();
    if let Some(key) = behavior.key {
        let (id, algorithm, secret) = (key.id, key.algorithm, key.secret);
        commands.push(format!(
            "echo '{secret}' | ip netns exec {ROUTER} setsid --wait ip sr hmac set {id} {algorithm}"
        ));
    }
    let (devices, others): (Vec<String>, Vec<String>) = router_lines(behavior)
        .into_iter()
        .partition(|line| line.starts_with("link "));
    commands.extend(devices.iter().map(|line| format!("ip -n {ROUTER} {line}")));
    commands.extend(sysctls);
    commands.extend(others.iter().map(|line| format!("ip -n {ROUTER} {line}")));
    let family = if behavior.ipv4_rules { "-4" } else { "-6" };
    let rules = behavior.rules.iter();
    commands.extend(rules.map(|rule| format!("ip -n {ROUTER} {family} rule add {rule}")));
    commands.extend(sidestep(plane, behavior, &ports));
    commands
}

/// Starts Sidestep, and gives it the routes that Linux has not.
fn sidestep(plane: Plane, behavior: &Behavior, ports: &[&str]) -> Vec<String> {
    let mode = match plane {
        Plane::Linux => return Vec::new(),
        Plane::Tc => "tc",
        Plane::Xdp => "xdp",
    };
    let ports = ports.join(" ");
    let own = behavior.own.iter();
    let own = own.map(|route| format!("ip netns exec {ROUTER} sidestep route add {route}"));
    [format!(
        "ip netns exec {ROUTER} sidestep run --mode {mode} --detach {ports}"
    )]
    .into_iter()
    .chain(own)
    .collect()
}

fn sysctl(node: &str, path: &str, value: &str) -> String {
    format!("ip netns exec {node} sysctl -qw {path}={value}")
}

/// Joins two ports: node, interface, Ethernet address.
fn link(near: (&str, &str, [u8; 6]), far: (&str, &str, [u8; 6])) -> Vec<String> {
    let macs = [near, far].map(|end| mac_text(end.2));
    let mut commands = vec![format!(
        "ip -n {} link add {} mtu {MTU} address {} type veth peer name {} mtu {MTU} address {} netns {}",
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
