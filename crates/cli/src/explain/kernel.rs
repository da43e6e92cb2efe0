//! Ends of punted packets at the Linux kernel, by the reason of the punt. A test compares the table with the recorded ends of
//! all vectors (`vectors/kernel/`).

/// Kinds of ends at the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The kernel forwards the packet.
    Forward,
    /// It sends an ICMP error: to the source, or to itself if it added an outer header before.
    Icmp,
    /// The node processes the packet itself.
    Local,
    /// It drops the packet without a message.
    Drop,
}

use End::{Drop, Forward, Icmp, Local};

/// Reason, sentence, and the kinds of ends that the sentence describes.
type Row = (&'static str, &'static str, &'static [End]);

/// Describes the ends of packets with this reason at the kernel, without a subject: "forwards by its own route".
pub fn at_kernel(reason: &str) -> Option<&'static str> {
    let row = TABLE.iter().find(|(name, ..)| *name == reason);
    row.map(|(_, sentence, _)| *sentence)
}

/// `docs/generate.py` reads this table. Only reasons without a vector have no ends.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    ("not_ip", "replies to ARP; drops other frames, unless a program listens for their EtherType", &[Local, Drop]),
    ("other_host", "drops the frame", &[Drop]),
    ("vlan", "drops the frame, unless it has an interface for that VLAN", &[Drop]),
    ("multicast", "delivers the packet to this node if it is in the group, or drops it", &[Local, Drop]),
    ("link_local", "forwards within the link; sends Destination Unreachable code 2 to a link-local source whose packet is for another link", &[Forward, Icmp]),
    ("bad_source", "drops the packet without a message, unless it is for this node and has no source address", &[Local, Drop]),
    ("local", "delivers the packet to this node", &[Forward, Icmp, Local, Drop]),
    ("hop_limit_exceeded", "sends Time Exceeded to the source", &[Icmp]),
    ("packet_too_big", "sends Packet Too Big or Fragmentation Needed to the source; fragments IPv4 without DF; at End.DX2 drops the frame", &[Forward, Icmp, Drop]),
    ("route_miss", "sends Destination Unreachable; at End.DT4, End.DT6 and End.DT46 with vrftable continues in table main", &[Forward, Icmp]),
    ("route_type", "sends Destination Unreachable with the code of the route type", &[Icmp]),
    ("neighbor", "resolves the next hop, then forwards the packet; without an answer sends Destination Unreachable", &[Forward]),
    ("hop_by_hop", "processes the options and forwards the packet; drops it or sends Parameter Problem if the action bits of an unknown option require that", &[Forward, Icmp, Drop]),
    ("ipv4_options", "processes the options, and forwards the packet or delivers it locally", &[Forward, Icmp, Drop]),
    ("fragment", "decapsulates the first fragment alone, without reassembly", &[Forward]),
    ("ext_chain", "follows all extension headers, and forwards the packet; since Linux 7, drops it if there are too many", &[Forward, Drop]),
    ("routing_header", "drops the packet without a message if Segments Left is not 0, and skips the header otherwise", &[Forward, Drop]),
    ("hmac", "drops the packet, because it cannot sign it either", &[Drop]),
    ("seg6_disabled", "processes the SID all the same, because seg6local ignores seg6_enabled", &[Forward]),
    ("forwarding_off", "drops IPv4; forwards IPv6 if net.ipv6.conf.all.forwarding is 1", &[Forward, Drop]),
    ("reverse_path", "drops the packet if its own reverse path filter does, and forwards it otherwise", &[Forward, Drop]),
    ("rule", "forwards by its own rules", &[Forward]),
    ("unsupported", "forwards by its own route", &[Forward]),
    ("egress", "forwards by its own route", &[]),
    ("headroom", "forwards by its own route", &[]),
    ("rewritten", "delivers the packet to this node, or resolves its next hop or uses its own route and forwards it", &[Forward, Icmp, Drop]),
    ("port_unknown", "forwards by its own route", &[]),
    ("jumbogram", "drops the packet, because no port can carry a jumbogram", &[Drop]),
    ("table_full", "forwards by its own route", &[]),
    ("fragmented", "does not get the packet, because the daemon sends it in fragments", &[]),
    ("frame_segments", "segments the frame and forwards it by its own route", &[]),
    // The ports of the vectors are in no bridge of the kernel.
    ("bridge", "learns the source, and forwards or floods the frame by its bridge", &[Forward, Drop]),
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::Path;

    use sidestep_datapath::abi::REASONS;
    use sidestep_testkit::vectors::{Expect, VectorFile};

    use super::*;

    #[test]
    fn every_punt_reason_has_a_sentence() {
        for reason in REASONS.iter().filter(|reason| !reason.is_drop()) {
            assert!(at_kernel(reason.name).is_some(), "{}", reason.name);
        }
        assert_eq!(at_kernel("no_srh"), None);
    }

    /// Kinds of ends of each vector, on all recorded kernels.
    fn recorded() -> BTreeMap<String, BTreeSet<End>> {
        let mut all: BTreeMap<String, BTreeSet<End>> = BTreeMap::new();
        for entry in fs::read_dir(vectors().join("kernel")).expect("recorded ends") {
            let text = fs::read_to_string(entry.expect("readable").path()).expect("readable");
            let file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            for (name, end) in file["ends"].as_object().expect("ends by vector") {
                let kind = end
                    .as_object()
                    .and_then(|end| end.keys().next())
                    .expect("one key");
                let kind = match kind.as_str() {
                    "forward" => Forward,
                    "icmp" | "icmp_to_itself" => Icmp,
                    "local" => Local,
                    "drop" => Drop,
                    other => panic!("{name}: unknown end {other}"),
                };
                all.entry(name.clone()).or_default().insert(kind);
            }
        }
        all
    }

    fn vectors() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
    }

    #[test]
    fn the_table_describes_all_recorded_ends() {
        let ends = recorded();
        let mut by_reason: BTreeMap<String, BTreeSet<End>> = BTreeMap::new();
        for file in VectorFile::read_all(&vectors()).expect("the vectors are of the format") {
            for case in &file.cases {
                if let (Expect::Kernel(reason), Some(kinds)) = (&case.expect, ends.get(&case.name))
                {
                    by_reason.entry(reason.clone()).or_default().extend(kinds);
                }
            }
        }
        let mut wrong = vec![];
        for (reason, _, kinds) in TABLE {
            let found = by_reason.remove(*reason).unwrap_or_default();
            if !found.is_subset(&kinds.iter().copied().collect()) {
                wrong.push(format!("{reason}: recorded {found:?}, table {kinds:?}"));
            }
        }
        assert!(
            wrong.is_empty() && by_reason.is_empty(),
            "{}",
            wrong.join("\n")
        );
    }
}
