//! A network of namespaces: nodes and veth links. The names of the namespaces identify their owner.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::net::if_::InterfaceFlags;

use crate::Error;
use crate::netns::{DIRECTORY, Namespace, remove};
use crate::offload::Offload;

/// A set of namespaces joined by veth links. Drop removes all of them. After a crash or Ctrl-C,
/// [`Lab::sweep`] removes them.
///
/// ```no_run
/// # fn main() -> Result<(), sidestep_testkit::Error> {
/// let mut lab = sidestep_testkit::Lab::new("demo")?;
/// lab.node("pe1")?.node("p")?;
/// lab.link("pe1", "eth1", "p", "eth0")?;
/// lab.namespace("p")?.exec(&["ip", "address", "add", "fc00::1/64", "dev", "eth0"])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Lab {
    name: String,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    name: String,
    namespace: Namespace,
    interfaces: Vec<(String, [u8; 6])>,
}

/// One end of a veth link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnd<'a> {
    /// Node.
    pub node: &'a str,
    /// Interface name there.
    pub ifname: &'a str,
    /// Its Ethernet address. The default is `02:53:53:00:NODE:PORT`, both numbered from 1 in
    /// creation order.
    pub mac: Option<[u8; 6]>,
}

impl Lab {
    /// Creates an empty lab, after removing leftovers of a dead process' lab with the same name.
    ///
    /// # Errors
    /// `name` contains characters other than lower-case letters, digits, `_` and `.`.
    pub fn new(name: &str) -> Result<Self, Error> {
        check_word(name)?;
        sweep(Some(name));
        // Several labs of one process (tests in threads) may have the same name.
        let name = match MADE.fetch_add(1, Ordering::Relaxed) {
            0 => name.to_owned(),
            made => format!("{name}.{made}"),
        };
        Ok(Self {
            name,
            nodes: Vec::new(),
        })
    }

    /// Removes the namespaces of all labs whose process is dead, with the processes inside. Returns
    /// their names.
    pub fn sweep() -> Vec<String> {
        sweep(None)
    }

    /// As [`Self::sweep`], for the labs of this name only.
    pub fn sweep_of(name: &str) -> Vec<String> {
        sweep(Some(name))
    }

    /// Returns the namespaces that [`Self::sweep_of`] would remove.
    pub fn leftovers_of(name: &str) -> Vec<String> {
        leftovers(Some(name)).collect()
    }

    /// Adds a node: a namespace `ss-LAB-PID-NODE` whose interfaces send nothing by themselves (no
    /// duplicate address detection, no router solicitation, no link-local address).
    ///
    /// # Errors
    /// The name exists or contains characters other than lower-case letters, digits, `_` and `.`,
    /// or the kernel refuses.
    pub fn node(&mut self, name: &str) -> Result<&mut Self, Error> {
        check_word(name)?;
        let namespace = Namespace::create(&format!(
            "{PREFIX}-{}-{}-{name}",
            self.name,
            std::process::id()
        ))?;
        for (path, value) in QUIET {
            namespace.sysctl(path, value)?;
        }
        self.nodes.push(Node {
            name: name.to_owned(),
            namespace,
            interfaces: Vec::new(),
        });
        Ok(self)
    }

    /// Returns a lab of nodes `a` and `b`, joined by `eth0` at either end, with this number of
    /// queues (see [`Self::link_with`]).
    ///
    /// # Errors
    /// As [`Self::new`], [`Self::node`] and [`Self::link_with`].
    pub fn pair(name: &str, queues: u32) -> Result<Self, Error> {
        let mut lab = Self::new(name)?;
        let ends = ["a", "b"].map(|node| LinkEnd {
            node,
            ifname: "eth0",
            mac: None,
        });
        lab.node("a")?.node("b")?.link_with(ends, 1500, queues)?;
        Ok(lab)
    }

    /// Joins two nodes by a veth link of MTU 1500, both ends up, with fixed Ethernet addresses.
    ///
    /// # Errors
    /// As [`Self::link_with`].
    pub fn link(
        &mut self,
        node: &str,
        ifname: &str,
        peer: &str,
        peer_ifname: &str,
    ) -> Result<&mut Self, Error> {
        let ends = [
            LinkEnd {
                node,
                ifname,
                mac: None,
            },
            LinkEnd {
                node: peer,
                ifname: peer_ifname,
                mac: None,
            },
        ];
        self.link_with(ends, 1500, 1)
    }

    /// Joins two nodes by a veth link with this MTU (bytes, without the Ethernet header) and number
    /// of queues. Returns when both ends are up. A frame from a CPU arrives in the queue with the
    /// CPU's number modulo the queue count, so several CPUs work in parallel.
    ///
    /// # Errors
    /// A node does not exist, an interface name exists, or the kernel refuses the MTU, the queues
    /// or an address.
    pub fn link_with(
        &mut self,
        ends: [LinkEnd<'_>; 2],
        mtu: u32,
        queues: u32,
    ) -> Result<&mut Self, Error> {
        let mut macs = [[0; 6]; 2];
        for (mac, end) in macs.iter_mut().zip(ends) {
            let index = self.index(end.node)?;
            let port = self.nodes[index].interfaces.len() as u8 + 1;
            *mac = end
                .mac
                .unwrap_or([0x02, 0x53, 0x53, 0, index as u8 + 1, port]);
            self.nodes[index]
                .interfaces
                .push((end.ifname.to_owned(), *mac));
        }
        let [near, far] = [self.namespace(ends[0].node)?, self.namespace(ends[1].node)?];
        let (near_mac, far_mac) = (mac_text(macs[0]), mac_text(macs[1]));
        let (mtu, queues) = (mtu.to_string(), queues.to_string());
        // Never use the same index at both ends: the kernel then does not recognize the pair and
        // reports carrier a second late (linkwatch_urgent_event, net/core/link_watch.c).
        let used: usize = self.nodes.iter().map(|node| node.interfaces.len()).sum();
        let (near_index, far_index) = (
            (FIRST_INDEX + used).to_string(),
            (FIRST_INDEX + used + 1).to_string(),
        );
        near.exec(&[
            "ip",
            "link",
            "add",
            ends[0].ifname,
            "index",
            &near_index,
            "address",
            &near_mac,
            "mtu",
            &mtu,
            "numtxqueues",
            &queues,
            "numrxqueues",
            &queues,
            "type",
            "veth", //
            "peer",
            "name",
            ends[1].ifname,
            "index",
            &far_index,
            "address",
            &far_mac,
            "mtu",
            &mtu,
            "numtxqueues",
            &queues,
            "numrxqueues",
            &queues,
            "netns",
            far.name(),
        ])?;
        near.exec(&["ip", "link", "set", ends[0].ifname, "up"])?;
        far.exec(&["ip", "link", "set", ends[1].ifname, "up"])?;
        // A work queue announces the carrier. Until then, routes over the link count as dead.
        wait_running(near, ends[0].ifname)?;
        wait_running(far, ends[1].ifname)?;
        Ok(self)
    }

    /// Returns the namespace of a node.
    ///
    /// # Errors
    /// The node does not exist. The message lists the existing nodes.
    pub fn namespace(&self, node: &str) -> Result<&Namespace, Error> {
        Ok(&self.nodes[self.index(node)?].namespace)
    }

    /// Returns the names of the nodes in creation order.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Returns the Ethernet address of an interface that [`Self::link`] created.
    ///
    /// # Errors
    /// The node or the interface does not exist.
    pub fn mac(&self, node: &str, ifname: &str) -> Result<[u8; 6], Error> {
        let interfaces = &self.nodes[self.index(node)?].interfaces;
        let found = interfaces.iter().find(|(name, _)| name == ifname);
        found.map(|(_, mac)| *mac).ok_or_else(|| {
            let names: Vec<&str> = interfaces.iter().map(|(name, _)| name.as_str()).collect();
            Error::Usage(format!(
                "node {node} has no interface {ifname}; it has: {}",
                names.join(", ")
            ))
        })
    }

    /// Switches offloads of an interface.
    ///
    /// # Errors
    /// No such node or interface, or the driver has no such switch.
    pub fn offload(&self, node: &str, ifname: &str, offload: Offload) -> Result<(), Error> {
        offload.apply(self.namespace(node)?, ifname)
    }

    fn index(&self, node: &str) -> Result<usize, Error> {
        self.nodes
            .iter()
            .position(|known| known.name == node)
            .ok_or_else(|| {
                let names: Vec<&str> = self.nodes().collect();
                Error::Usage(format!(
                    "lab {} has no node {node}; it has: {}",
                    self.name,
                    names.join(", ")
                ))
            })
    }
}

/// Formats an Ethernet address as `02:53:53:00:01:01`.
pub fn mac_text(mac: [u8; 6]) -> String {
    let bytes: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// Parses an Ethernet address in the format of [`mac_text`].
pub fn mac_of(text: &str) -> Option<[u8; 6]> {
    let byte = |part: &str| {
        let digits = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        digits.then(|| u8::from_str_radix(part, 16).ok()).flatten()
    };
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    bytes?.try_into().ok()
}

/// Removes the namespaces of dead processes, of all labs or of one.
fn sweep(lab: Option<&str>) -> Vec<String> {
    leftovers(lab).filter(|name| remove(name).is_ok()).collect()
}

/// Returns the namespaces of dead processes, of all labs or of one.
fn leftovers(lab: Option<&str>) -> impl Iterator<Item = String> {
    // If the directory does not exist, there are no named namespaces yet.
    let entries = fs::read_dir(DIRECTORY).into_iter().flatten();
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(move |name| match owner(name) {
        // Further labs of a process have the name LAB.N.
        Some((found, pid)) => {
            let same = |lab| {
                found
                    .strip_prefix(lab)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            lab.is_none_or(same) && !Path::new("/proc").join(pid.to_string()).exists()
        }
        None => false,
    })
}

/// Returns the lab and the process in a name `ss-LAB-PID-NODE`, or `None` for other namespaces.
fn owner(name: &str) -> Option<(&str, u32)> {
    let mut parts = name.split('-');
    let (prefix, lab, pid, _node) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    (prefix == PREFIX && parts.next().is_none()).then_some((lab, pid.parse().ok()?))
}

fn check_word(word: &str) -> Result<(), Error> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
    if word.is_empty() || !word.chars().all(allowed) {
        return Err(Error::Usage(format!(
            "{word:?}: a lab or node name may contain lower-case letters, digits, `_` and `.`"
        )));
    }
    Ok(())
}

fn wait_running(namespace: &Namespace, ifname: &str) -> Result<(), Error> {
    let started = Instant::now();
    let running = InterfaceFlags::IFF_RUNNING.bits();
    namespace.run(|| {
        while interface_flags(ifname)? & running == 0 {
            if started.elapsed() > CARRIER {
                let what = format!("carrier on {ifname} of {}", namespace.name());
                return Err(Error::Timeout {
                    what,
                    milliseconds: CARRIER.as_millis(),
                });
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    })?
}

/// Returns the flags (`IFF_*`) of an interface of the calling thread's namespace.
fn interface_flags(ifname: &str) -> Result<i32, Error> {
    let failed = |source: std::io::Error| Error::os(format!("flags of {ifname}"), source);
    let addresses = nix::ifaddrs::getifaddrs().map_err(|errno| failed(errno.into()))?;
    let mut found = addresses.filter(|address| address.interface_name == ifname);
    let missing = || failed(std::io::ErrorKind::NotFound.into());
    found
        .next()
        .map(|address| address.flags.bits())
        .ok_or_else(missing)
}

/// Number of labs that this process has created.
static MADE: AtomicU32 = AtomicU32::new(0);

const PREFIX: &str = "ss";
/// Higher than the indices that the kernel assigns in a new namespace.
const FIRST_INDEX: usize = 10;

const CARRIER: Duration = Duration::from_secs(2);

/// Sysctls that are set before the first interface is created, which inherits them: path below
/// `/proc/sys`, value.
pub const QUIET: [(&str, &str); 8] = [
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/dad_transmits", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/autoconf", "0"),
    // 1: create no link-local address.
    ("net/ipv6/conf/default/addr_gen_mode", "1"),
    // Milliseconds between reports of joined groups (MLDv2). The default lets a report go out in
    // the second after the creation, between frames that a test counts.
    (
        "net/ipv6/conf/default/mldv2_unsolicited_report_interval",
        "10",
    ),
    ("net/ipv4/conf/default/send_redirects", "0"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root_or_skip;

    #[test]
    fn a_name_identifies_lab_and_process_and_other_names_are_ignored() {
        assert_eq!(owner("ss-demo-123-pe1"), Some(("demo", 123)));
        assert_eq!(owner("ss-demo-123"), None);
        assert_eq!(owner("ss-my-demo-123-pe1"), None);
        assert_eq!(owner("customer-demo-123-pe1"), None);
    }

    #[test]
    fn names_with_invalid_characters_are_refused() {
        for word in ["", "a-b", "Pe1", "a/b"] {
            assert!(Lab::new(word).is_err(), "{word:?}");
        }
    }

    #[test]
    fn a_link_has_the_given_addresses_and_is_up() {
        if !root_or_skip() {
            return;
        }
        let mut lab = Lab::new("labtest").expect("lab");
        lab.node("a")
            .expect("a")
            .node("b")
            .expect("b")
            .link("a", "eth0", "b", "eth7")
            .expect("link");
        assert_eq!(
            lab.mac("b", "eth7").expect("mac"),
            [0x02, 0x53, 0x53, 0, 2, 1]
        );
        let shown = lab
            .namespace("b")
            .expect("b")
            .exec(&["ip", "-br", "link", "show", "eth7"])
            .expect("ip");
        assert!(
            shown.contains("02:53:53:00:02:01") && shown.contains("LOWER_UP"),
            "{shown}"
        );
        let error = lab.namespace("c").expect_err("there is no c").to_string();
        assert!(error.contains("it has: a, b"), "{error}");
        lab.offload("a", "eth0", Offload::OFF).expect("offload");
    }

    #[test]
    fn leftovers_of_a_dead_process_are_removed_and_those_of_a_live_one_are_not() {
        if !root_or_skip() {
            return;
        }
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let dead = format!("ss-sweeptest-{}-a", child.id());
        child.wait().expect("wait");
        let leftover = Namespace::create(&dead).expect("create");
        let mut lab = Lab::new("sweeptest.other").expect("lab");
        lab.node("a").expect("a");
        let living = lab.namespace("a").expect("a").name().to_owned();
        assert_eq!(sweep(Some("sweeptest")), [dead]);
        assert!(Path::new(DIRECTORY).join(living).exists());
        drop(leftover);
    }
}
