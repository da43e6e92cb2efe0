//! A sink that counts packets by two of their bytes, otherwise like [`super::Sink`].

use std::collections::BTreeMap;

use libbpf_rs::{MapCore as _, MapFlags, Object};

use super::{TALLY, configure, load, open, program};
use crate::attach::Attachment;
use crate::{Error, Namespace};

/// A sink in XDP that counts packets by two of their bytes; detached when dropped.
#[derive(Debug)]
pub struct Tally {
    object: Object,
    place: String,
    _attached: Attachment,
}

impl Tally {
    /// Attaches to an interface. From now on, counts all packets by the bytes at these offsets, and
    /// drops them.
    ///
    /// # Errors
    /// No such interface, another XDP program is there, the driver has no XDP, or BPF is not
    /// allowed.
    pub fn attach(namespace: &Namespace, ifname: &str, offsets: [u8; 2]) -> Result<Self, Error> {
        let mut object = open(TALLY)?;
        let config = offsets
            .map(|offset| u32::from(offset).to_ne_bytes())
            .concat();
        configure(&mut object, "tally", &config)?;
        let object = load(object)?;
        let attached = Attachment::xdp(program(&object, "tally")?, namespace, ifname)?;
        Ok(Self {
            object,
            place: format!("{ifname} of {}", namespace.name()),
            _attached: attached,
        })
    }

    /// Returns the packets by their two bytes since the tally was attached, summed over the CPUs.
    /// Packets that lack one of the bytes are not included.
    ///
    /// # Errors
    /// The kernel refuses to read the map.
    pub fn count(&self) -> Result<BTreeMap<[u8; 2], u64>, Error> {
        let map = self.object.maps().find(|map| map.name() == "kinds");
        let map = map.ok_or_else(|| Error::Usage("tally.bpf.c has no map `kinds`".into()))?;
        let mut found = BTreeMap::new();
        for kind in 0..=u16::MAX {
            let values = map
                .lookup_percpu(&u32::from(kind).to_ne_bytes(), MapFlags::ANY)
                .map_err(|source| Error::bpf(format!("count at {}", self.place), source))?;
            let counts = values.into_iter().flatten();
            let counts = counts.map(|it| u64::from_ne_bytes(it.try_into().unwrap_or_default()));
            let sum: u64 = counts.sum();
            if sum > 0 {
                found.insert(kind.to_be_bytes(), sum);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::traffic::{Flows, Generator, Template};
    use crate::{Lab, root_or_skip};

    /// Number of flows: more than a byte has values.
    const FLOWS: u32 = 300;

    #[test]
    fn every_generated_packet_is_counted_by_its_flow() {
        if !root_or_skip() {
            return;
        }
        let mut lab = Lab::new("tally").expect("lab");
        lab.node("a")
            .and_then(|lab| lab.node("b"))
            .and_then(|lab| lab.link("a", "eth0", "b", "eth0"))
            .expect("two nodes");
        let [near, far] = ["a", "b"].map(|node| lab.namespace(node).expect("node"));
        // An unused EtherType (IEEE Std 802, local experimental), then the variable part.
        let frame = [&[2; 12][..], &[0x88, 0xb5, 0, 250], &[0; 50]].concat();
        let flows = Flows {
            count: FLOWS,
            offset: 14,
            checksum: None,
        };
        let template = Template::new(&frame, flows).expect("template");
        let tally = Tally::attach(far, "eth0", [13, 15]).expect("tally");
        let generator = Generator::start(near, "eth0", &template, 0).expect("start");
        // Wait until each flow has had a turn, even on a slow machine.
        let counted = || {
            let mut found = tally.count().expect("count");
            found.retain(|kind, _| kind[0] == 0xb5);
            found
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while counted().values().sum::<u64>() <= FLOWS.into() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        let made = generator.stop().expect("stop");
        let flows = u64::from(FLOWS);
        let mut expected = BTreeMap::new();
        for flow in 0..flows {
            let of_flow = made / flows + u64::from(flow < made % flows);
            *expected.entry([0xb5, (250 + flow) as u8]).or_insert(0) += of_flow;
        }
        let found = counted();
        assert!(made > flows && found == expected, "{made}: {found:?}");
    }
}
