//! The kernel's routing table, in a network namespace of its own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sidestep_fib::Prefix;
use sidestep_testkit::Namespace;

use super::harness::{Harness, Programs};
use super::netlink::{Change, Routes};
use super::{Reader, Stop, Subject, Trouble, Way};
use crate::fib::LAB;
use crate::fib::routes::{HOPS, Route};
use crate::fib::traffic::Addresses;
use crate::memory::kernel_bytes;

/// Routes per netlink message to the kernel.
const BATCH: usize = 512;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/linux.bpf.o"));

pub struct Linux {
    inside: Arc<Inside>,
    netlink: Routes,
    bytes: u64,
}

/// The namespace, with one interface per next hop, so that the kernel's result identifies the next
/// hop.
struct Inside {
    namespace: Namespace,
    programs: Programs,
    /// Next hop by interface index.
    hops: BTreeMap<u32, u32>,
    /// Interface index by next hop.
    devices: BTreeMap<u32, u32>,
}

impl Linux {
    pub fn new(harness: &Harness) -> Result<Self, Trouble> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let failed = |error| Trouble::of("a network namespace", error);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace::create(&format!("ss-{LAB}-{}-{number}", std::process::id()));
        let namespace = namespace.map_err(failed)?;
        for hop in 1..=HOPS {
            let name = &format!("hop{hop}");
            let peer = &format!("peer{hop}");
            // A dummy device is enough, if the kernel supports it.
            for words in [
                &["ip", "link", "add", name, "type", "veth", "peer", peer][..],
                &["ip", "link", "set", name, "up"],
                &["ip", "link", "set", peer, "up"],
            ] {
                namespace.exec(words).map_err(failed)?;
            }
        }
        // bpf_fib_lookup returns a result only for an interface with forwarding enabled.
        for (sysctl, value) in [
            ("net/ipv6/conf/all/forwarding", "1"),
            // Removes the limit on the number of routes, which the default of Linux 6.3 and newer
            // no longer has.
            ("net/ipv6/route/max_size", "2147483647"),
        ] {
            namespace.sysctl(sysctl, value).map_err(failed)?;
        }
        let mut devices = BTreeMap::new();
        for hop in 1..=HOPS {
            devices.insert(
                hop,
                namespace.ifindex(&format!("hop{hop}")).map_err(failed)?,
            );
        }
        let (mut programs, _) = harness.programs(OBJECT, |_| Ok(()))?;
        programs.ingress = devices[&1];
        let opened = namespace.run(Routes::open).map_err(failed)?;
        Ok(Self {
            netlink: opened.map_err(|error| Trouble::of("netlink", error))?,
            inside: Arc::new(Inside {
                namespace,
                programs,
                hops: devices
                    .iter()
                    .map(|(hop, device)| (*device, *hop))
                    .collect(),
                devices,
            }),
            bytes: 0,
        })
    }

    fn send(&mut self, change: Change, routes: &[Route]) -> Result<(), Trouble> {
        // Next hop 0 stands for a route to remove, whatever its interface is.
        let device = |hop| self.inside.devices.get(&hop).copied().unwrap_or(0);
        let routes = routes.iter().map(|route| (route.prefix, device(route.hop)));
        self.netlink
            .send(change, routes)
            .map_err(|error| Trouble::of("the kernel", error))
    }
}

impl Reader for Inside {
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble> {
        let devices = self.run(|| self.programs.answers(addresses))?;
        let hop = |device| self.hops.get(&device).copied().unwrap_or(0);
        Ok(devices.into_iter().map(hop).collect())
    }

    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble> {
        self.run(|| self.programs.time(addresses, range, way))
    }
}

impl Inside {
    /// A test run uses the routes of the namespace of the calling thread.
    fn run<T: Send>(
        &self,
        closure: impl FnOnce() -> Result<T, Trouble> + Send,
    ) -> Result<T, Trouble> {
        let entered = self.namespace.run(closure);
        entered.map_err(|error| Trouble::of("a network namespace", error))?
    }
}

impl Reader for Linux {
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble> {
        self.inside.answers(addresses)
    }

    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble> {
        self.inside.time(addresses, range, way)
    }
}

impl Subject for Linux {
    fn load(&mut self, routes: &[Route], stop: &Stop) -> Result<(), Trouble> {
        let before = kernel_bytes();
        for some in routes.chunks(BATCH) {
            stop.check()?;
            self.send(Change::Replace, some)?;
        }
        self.bytes = kernel_bytes().saturating_sub(before);
        Ok(())
    }

    fn insert(&mut self, prefix: Prefix, hop: u32) -> Result<(), Trouble> {
        self.send(Change::Replace, &[Route { prefix, hop }])
    }

    fn remove(&mut self, prefix: Prefix) -> Result<(), Trouble> {
        // Removes the route, whatever its interface is.
        self.send(Change::Remove, &[Route { prefix, hop: 0 }])
    }

    fn apart(&self) -> Option<Arc<dyn Reader>> {
        Some(Arc::clone(&self.inside) as Arc<dyn Reader>)
    }

    fn outside_heap(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        // The kernel removes a namespace in the background, and its routes one by one, which would
        // disturb the next measurement. Removing the interfaces removes the routes synchronously.
        // Removing the namespace then removes the rest.
        for hop in 1..=HOPS {
            let _ = self
                .inside
                .namespace
                .exec(&["ip", "link", "del", &format!("hop{hop}")]);
        }
    }
}
