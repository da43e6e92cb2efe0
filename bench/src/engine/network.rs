//! The network of a measurement: a router between a generator and a sink.

use std::fmt::Write as _;

use super::behavior::Behavior;
use sidestep_testkit::lab::mac_text;
use sidestep_testkit::offload::Offload;
use sidestep_testkit::traffic::Template;
use sidestep_testkit::{Error, Lab, LinkEnd, Namespace};

/// The namespaces, with a configured router.
#[derive(Debug)]
pub struct Network {
    lab: Lab,
    ways_in: &'static [&'static str],
    ports: Vec<String>,
}

impl Network {
    /// Builds generator -- router -- sink. The router gets addresses, static neighbors, a route to
    /// the segments and the tunnel source, which all behaviors share, and the routes and rules of
    /// this behavior. If the behavior has a service, two links join it to the router.
    ///
    /// # Errors
    /// The kernel or `ip` refuses something.
    pub fn routed(behavior: &Behavior) -> Result<Self, Error> {
        let queues = behavior.queues;
        let mut network = Self::wired(&SYSCTLS, queues)?;
        if behavior.service.is_some() {
            network.serve(queues)?;
        }
        network.idle(behavior.idle)?;
        let router = network.router()?;
        for port in &network.ports {
            router.sysctl(&format!("net/ipv6/conf/{port}/seg6_enabled"), "1")?;
        }
        configure(router, behavior)?;
        Ok(network)
    }

    /// Builds generator -- router -- sink for a data plane that takes packets from the ports
    /// itself. The router's kernel receives these packets too and drops them. `queues` is the
    /// number of queues per port; 0 means 1.
    ///
    /// # Errors
    /// The kernel refuses something.
    pub fn bypassed(queues: u32) -> Result<Self, Error> {
        Self::wired(&BYPASSED, queues)
    }

    fn wired(sysctls: &[(&str, &str)], queues: u32) -> Result<Self, Error> {
        let mut lab = Lab::new(NAME)?;
        lab.node(GENERATOR)?.node(ROUTER)?.node(SINK)?;
        set(lab.namespace(ROUTER)?, sysctls)?;
        link(
            &mut lab,
            (GENERATOR, PORT, GENERATOR_MAC),
            (ROUTER, PORTS[0], ROUTER_MACS[0]),
            queues,
        )?;
        link(
            &mut lab,
            (ROUTER, PORTS[1], ROUTER_MACS[1]),
            (SINK, PORT, SINK_MAC),
            queues,
        )?;
        Ok(Self {
            lab,
            ways_in: &PORTS[..1],
            ports: PORTS.map(str::to_owned).into(),
        })
    }

    /// Adds a service at [`SERVICE_PORTS`]. It runs End for packets to its SID, and forwards all
    /// others from its first interface to its second one.
    fn serve(&mut self, queues: u32) -> Result<(), Error> {
        self.lab.node(SERVICE)?;
        set(self.service()?, &SYSCTLS)?;
        for (number, (port, ifname)) in SERVICE_PORTS.iter().zip(SERVICE_IFNAMES).enumerate() {
            let macs = [SERVICE_PORT_MACS[number], SERVICE_MACS[number]];
            link(
                &mut self.lab,
                (ROUTER, port, macs[0]),
                (SERVICE, ifname, macs[1]),
                queues,
            )?;
            self.ports.push((*port).to_owned());
        }
        let service = self.service()?;
        service.sysctl("net/ipv6/conf/eth0/seg6_enabled", "1")?;
        let [at_router, at_service] = service_lines();
        apply(service, &["ip", "-batch", "-"], &at_service)?;
        apply(self.router()?, &["ip", "-batch", "-"], &at_router)?;
        self.ways_in = &WAYS_IN;
        Ok(())
    }

    /// Adds the ports `idle1`, `idle2`, …, each with an address and a neighbor. Their other ends
    /// are in the generator's namespace.
    fn idle(&mut self, count: usize) -> Result<(), Error> {
        let peer = self.generator()?.name();
        let mut batch = String::new();
        for number in 1..=count {
            // Writing to a String never fails, here and below.
            let _ = writeln!(
                batch,
                "link add idle{number} type veth peer name idle{number} netns {peer}\n\
                 link set idle{number} up\n\
                 address add fd00::{number:x}:1/112 dev idle{number}\n\
                 neighbor add fd00::{number:x}:2 lladdr 02:00:00:00:00:20 nud permanent dev idle{number}"
            );
        }
        apply(self.router()?, &["ip", "-batch", "-"], &batch)?;
        self.ports.extend((1..=count).map(|n| format!("idle{n}")));
        Ok(())
    }

    /// Builds generator -- sink without a router, with this number of queues per port; 0 means 1.
    ///
    /// # Errors
    /// The kernel refuses something.
    pub fn bare(queues: u32) -> Result<Self, Error> {
        let mut lab = Lab::new(NAME)?;
        lab.node(GENERATOR)?.node(SINK)?;
        link(
            &mut lab,
            (GENERATOR, PORT, GENERATOR_MAC),
            (SINK, PORT, SINK_MAC),
            queues,
        )?;
        Ok(Self {
            lab,
            ways_in: &[],
            ports: Vec::new(),
        })
    }

    /// Returns the ports through which a packet enters the router, in order of its path.
    pub fn ways_in(&self) -> &'static [&'static str] {
        self.ways_in
    }

    /// Returns all ports of the router.
    pub fn ports(&self) -> &[String] {
        &self.ports
    }

    /// Returns the namespace that sends on [`PORT`].
    ///
    /// # Errors
    /// None in practice: every network has a generator.
    pub fn generator(&self) -> Result<&Namespace, Error> {
        self.lab.namespace(GENERATOR)
    }

    /// Returns the namespace that forwards between [`SERVICE_IFNAMES`].
    ///
    /// # Errors
    /// The network has no service.
    pub fn service(&self) -> Result<&Namespace, Error> {
        self.lab.namespace(SERVICE)
    }

    /// Returns the namespace that forwards between [`PORTS`].
    ///
    /// # Errors
    /// The network is [`Self::bare`] and has no router.
    pub fn router(&self) -> Result<&Namespace, Error> {
        self.lab.namespace(ROUTER)
    }

    /// Returns the namespace that receives on [`PORT`].
    ///
    /// # Errors
    /// None in practice: every network has a sink.
    pub fn sink(&self) -> Result<&Namespace, Error> {
        self.lab.namespace(SINK)
    }
}

/// Sets sysctls that interfaces created later inherit.
fn set(namespace: &Namespace, sysctls: &[(&str, &str)]) -> Result<(), Error> {
    let mut sysctls = sysctls.iter();
    sysctls.try_for_each(|(path, value)| namespace.sysctl(path, value))
}

/// Joins two ports as in all networks, with all offloads off. The lab has another name, so it does
/// not remove the leftovers of a killed run, whose Sidestep must be stopped first.
///
/// # Errors
/// The kernel refuses something.
pub fn two_ports() -> Result<Lab, Error> {
    let mut lab = Lab::new("ports")?;
    lab.node(GENERATOR)?.node(SINK)?;
    let ends = [(GENERATOR, PORT, GENERATOR_MAC), (SINK, PORT, SINK_MAC)];
    link(&mut lab, ends[0], ends[1], 1)?;
    Ok(lab)
}

fn link(lab: &mut Lab, near: End, far: End, queues: u32) -> Result<(), Error> {
    let end = |(node, ifname, mac): End| LinkEnd {
        node,
        ifname,
        mac: Some(mac),
    };
    lab.link_with([end(near), end(far)], MTU, queues.max(1))?;
    for (node, ifname, _) in [near, far] {
        lab.offload(node, ifname, Offload::OFF)?;
    }
    Ok(())
}

/// Returns the input of `ip -batch` on the router besides routes: addresses, neighbors, the tunnel
/// source, then those of the behavior. All neighbors are at `sink`.
pub fn router_lines(behavior: &Behavior, sink: [u8; 6]) -> Vec<String> {
    let sink = mac_text(sink);
    let mut lines = behavior.devices.clone();
    lines.extend(ADDRESSES.map(|address| format!("address add {address}")));
    lines.extend(
        NEXT_HOPS
            .map(|address| format!("neighbor add {address} lladdr {sink} nud permanent dev eth1")),
    );
    let routes = behavior.routes.iter().map(String::as_str);
    let routes = TO_SEGMENTS.into_iter().chain(routes);
    lines.extend(routes.map(|route| format!("route add {route}")));
    lines.push("sr tunsrc set fc01::2".to_owned());
    lines
}

/// Returns the input of `ip -batch` for a service: on the router and in the service.
pub fn service_lines() -> [String; 2] {
    let mut lines = [String::new(), String::new()];
    for (number, (port, ifname)) in SERVICE_PORTS.iter().zip(SERVICE_IFNAMES).enumerate() {
        let net = format!("fd00:{}:", number + 1);
        let ends = [
            (*port, 1, 2, SERVICE_MACS[number]),
            (ifname, 2, 1, SERVICE_PORT_MACS[number]),
        ];
        for (lines, (ifname, own, other, mac)) in lines.iter_mut().zip(ends) {
            let mac = mac_text(mac);
            let _ = writeln!(
                lines,
                "address add {net}:{own}/64 dev {ifname}\n\
                 neighbor add {net}:{other} lladdr {mac} nud permanent dev {ifname}"
            );
        }
    }
    for route in SERVICE_ROUTES {
        let _ = writeln!(lines[1], "route add {route}");
    }
    lines
}

fn configure(router: &Namespace, behavior: &Behavior) -> Result<(), Error> {
    // Create the VRF before setting its strict mode, and set the mode before adding routes.
    let (devices, others): (Vec<String>, Vec<String>) = router_lines(behavior, SINK_MAC)
        .into_iter()
        .partition(|line| line.starts_with("link "));
    apply(router, &["ip", "-batch", "-"], &text(&devices))?;
    for (path, value) in &behavior.sysctls {
        router.sysctl(path, value)?;
    }
    if let Some(key) = behavior.key {
        router.set_hmac(key.id, key.algorithm, key.secret)?;
    }
    apply(router, &["ip", "-batch", "-"], &text(&others))?;
    let family = if behavior.ipv4_rules { "-4" } else { "-6" };
    let rules: Vec<String> = behavior
        .rules
        .iter()
        .map(|rule| format!("rule add {rule}"))
        .collect();
    apply(router, &["ip", family, "-batch", "-"], &text(&rules))
}

fn text(lines: &[String]) -> String {
    lines
        .iter()
        .flat_map(|line| [line.as_str(), "\n"])
        .collect()
}

fn apply(router: &Namespace, ip: &[&str], batch: &str) -> Result<(), Error> {
    let applied = router.exec_with_input(ip, batch)?;
    if applied.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&applied.stderr);
    let last = stderr.trim_end();
    Err(Error::Wrong(format!("`{}` refuses: {last}", ip.join(" "))))
}

/// Node, interface name, and Ethernet address.
type End = (&'static str, &'static str, [u8; 6]);

/// Name of the lab. Namespaces are `ss-engine-PID-NODE`, and `ss-engine.N-PID-NODE` for further
/// networks of a process.
pub const NAME: &str = "engine";
/// The router's node name.
pub const ROUTER: &str = "router";
/// Interface name at the generator and at the sink.
pub const PORT: &str = "eth0";
/// Interfaces of the router: ingress, egress.
pub const PORTS: [&str; 2] = ["eth0", "eth1"];
/// MAC of the generator's interface.
pub const GENERATOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
/// MACs of the router's interfaces.
pub const ROUTER_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x01], [2, 0, 0, 0, 0, 0x02]];
/// MAC of the sink's interface.
pub const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x12];

/// Interfaces of the router to a service, and from it.
pub const SERVICE_PORTS: [&str; 2] = ["vnf0", "vnf1"];
/// The service's interfaces on these two links.
pub const SERVICE_IFNAMES: [&str; 2] = ["eth0", "eth1"];
/// MACs of [`SERVICE_PORTS`].
pub const SERVICE_PORT_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x03], [2, 0, 0, 0, 0, 0x04]];
/// MACs of [`SERVICE_IFNAMES`].
pub const SERVICE_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x13], [2, 0, 0, 0, 0, 0x14]];

/// The generator's node name.
pub const GENERATOR: &str = "generator";
/// The sink's node name.
pub const SINK: &str = "sink";
/// The service's node name.
pub const SERVICE: &str = "service";
/// MTU of all links in bytes, without the Ethernet header: the longest frame of the generator. It
/// leaves space for outer headers around a packet of 1500 bytes, and one page holds such a frame,
/// as XDP on veth requires.
pub const MTU: u32 = (Template::FRAME_MAX - 14) as u32;

/// Ethernet addresses on the path of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Macs {
    /// Address of the sending port.
    pub generator: [u8; 6],
    /// Addresses of the router's ports: ingress, egress.
    pub router: [[u8; 6]; 2],
    /// Address of the receiving port.
    pub sink: [u8; 6],
}

impl Macs {
    /// MACs of the links between namespaces, which all frames of behaviors use.
    pub const LAB: Self = Self {
        generator: GENERATOR_MAC,
        router: ROUTER_MACS,
        sink: SINK_MAC,
    };

    fn all(&self) -> [[u8; 6]; 4] {
        [self.generator, self.router[0], self.router[1], self.sink]
    }

    /// Replaces the addresses of [`Self::LAB`] in a frame with these, in its Ethernet header and in
    /// an inner one.
    pub fn put(&self, frame: &mut [u8]) {
        let mut at = 0;
        while let Some(window) = frame.get_mut(at..at + 6) {
            let mut of_lab = Self::LAB.all().into_iter().zip(self.all());
            let found = of_lab.find(|(lab, _)| window == lab);
            at += match found {
                Some((_, own)) => {
                    window.copy_from_slice(&own);
                    own.len()
                }
                None => 1,
            };
        }
    }
}

const WAYS_IN: [&str; 2] = [PORTS[0], SERVICE_PORTS[1]];

/// Addresses of the router's ports.
pub const ADDRESSES: [&str; 4] = [
    "fc00::2/64 dev eth0",
    "10.0.0.2/24 dev eth0",
    "fc01::2/64 dev eth1",
    "10.1.0.2/24 dev eth1",
];

/// Addresses of the sink, the next hop of all packets.
pub const NEXT_HOPS: [&str; 2] = ["fc01::1", "10.1.0.1"];

/// Routes to the next segments of all behaviors.
pub const TO_SEGMENTS: [&str; 1] = ["fc0b::/16 via fc01::1 dev eth1"];

/// Routes of a service: its SID, and the prefixes that it forwards to.
const SERVICE_ROUTES: [&str; 4] = [
    "fc0f::1/128 encap seg6local action End dev eth0",
    "fc0b::/16 via fd00:2::1 dev eth1",
    "fc0c::/16 via fd00:2::1 dev eth1",
    "2001:db8:d::/48 via fd00:2::1 dev eth1",
];

/// Sysctls that make a namespace a router. `seg6_enabled` is the smaller of `all` and the port's.
pub const SYSCTLS: [(&str, &str); 8] = [
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/conf/default/forwarding", "1"),
    ("net/ipv6/conf/all/seg6_enabled", "1"),
    ("net/ipv4/conf/all/forwarding", "1"),
    ("net/ipv4/conf/default/forwarding", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/send_redirects", "0"),
];

/// Sysctls that keep the kernel of a namespace from processing packets.
pub const BYPASSED: [(&str, &str); 4] = [
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    ("net/ipv4/conf/all/forwarding", "0"),
    ("net/ipv4/conf/default/forwarding", "0"),
];
