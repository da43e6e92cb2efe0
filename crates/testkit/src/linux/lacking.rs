//! Features that the kernel under test lacks: unsupported routes, and the frames that need them.

use std::net::IpAddr;

/// If set, the kernel may be older than the vectors: unsupported parts of a node are reported as
/// skipped.
pub const OLDER: &str = "SIDESTEP_OLDER_KERNEL";

/// A route that this kernel does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lacking {
    /// The route in Linux' words.
    pub(super) route: String,
    destination: Destination,
    pub(super) why: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Destination {
    /// The bytes of the destination prefix.
    Prefix(Vec<u8>),
    /// A C-SID, which may be at any position of a container (RFC 9800 section 4).
    CSid { block: Vec<u8>, function: Vec<u8> },
}

impl Lacking {
    /// `block` is the number of bytes of the Locator-Block if the node has C-SIDs. This SID may
    /// then be at any position of a container.
    pub(super) fn new(route: &str, block: Option<usize>, why: String) -> Self {
        let mut words = route.split_whitespace();
        let prefix = words.find(|word| word.contains([':', '.']) && word.contains('/'));
        let (address, length) = prefix
            .and_then(|prefix| prefix.split_once('/'))
            .unwrap_or_default();
        let mut bytes = match address.parse() {
            Ok(IpAddr::V6(address)) => address.octets().to_vec(),
            Ok(IpAddr::V4(address)) => address.octets().to_vec(),
            // All frames need a default route or a route of another type.
            Err(_) => Vec::new(),
        };
        bytes.truncate(length.parse::<usize>().unwrap_or_default() / 8);
        let destination = if let Some(block) = block {
            let function = bytes.split_off(block.min(bytes.len()));
            Destination::CSid {
                block: bytes,
                function,
            }
        } else {
            Destination::Prefix(bytes)
        };
        Self {
            route: route.to_owned(),
            destination,
            why,
        }
    }

    /// Returns whether the frame contains the route's destination, in a header or in a segment
    /// list.
    pub(super) fn concerns(&self, frame: &[u8]) -> bool {
        match &self.destination {
            Destination::Prefix(bytes) => {
                bytes.is_empty() || frame.windows(bytes.len()).any(|window| window == bytes)
            }
            Destination::CSid { block, function } => frame.windows(16).any(|address| {
                address.strip_prefix(&block[..]).is_some_and(|places| {
                    places
                        .chunks(function.len().max(1))
                        .any(|place| place == function)
                })
            }),
        }
    }
}

/// Returns the number of bytes of the Locator-Block if the node has C-SIDs.
pub(super) fn block(routes: &[String]) -> Option<usize> {
    let route = routes.iter().find(|route| route.contains("next-csid"))?;
    Some(number_after(route, "lblen").unwrap_or(32) / 8)
}

/// Returns the route in the syntax of Linux. There, End.DT4 and End.DT46 need a VRF device, and the
/// table is an argument of `vrftable`.
pub(super) fn in_linux_words(route: &str) -> String {
    let mut words: Vec<&str> = route.split_whitespace().collect();
    let action = words.iter().position(|word| *word == "action");
    if let Some(action) = action
        && let Some([behavior, word, table]) = words.get_mut(action + 1..action + 4)
        && matches!(*behavior, "End.DT4" | "End.DT46")
        && *word == "table"
        && table.parse::<u32>().is_ok()
    {
        *word = "vrftable";
    }
    words.join(" ")
}

/// Returns the table of the VRF device that the route needs.
pub(super) fn vrf_table(route: &str) -> Option<usize> {
    number_after(route, "vrftable")
}

/// Returns an attribute of the route that is missing in the output of `ip route show`: older
/// kernels ignore attributes that a behavior does not have there.
pub(super) fn left_out(route: &str, shown: &str) -> Option<&'static str> {
    let is_in = |text: &str, word: &str| text.split_whitespace().any(|found| found == word);
    ["flavors", "oif"]
        .into_iter()
        .find(|word| is_in(route, word) && !is_in(shown, word))
}

fn number_after(route: &str, word: &str) -> Option<usize> {
    let mut words = route.split_whitespace();
    words.find(|found| *found == word)?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(route: &str) -> Lacking {
        Lacking::new(route, block(&[route.to_owned()]), "it is old".into())
    }

    #[test]
    fn a_frame_needs_a_route_whose_destination_it_contains() {
        let sid = lacking("fc0f::1/128 encap seg6local action End flavors psp dev eth0");
        let mut frame = vec![0; 40];
        assert!(!sid.concerns(&frame));
        frame[20..22].copy_from_slice(&[0xfc, 0x0f]);
        frame[35] = 1;
        assert!(sid.concerns(&frame));
        frame[35] = 2;
        assert!(!sid.concerns(&frame));
        assert!(lacking("default via fc00::1").concerns(&frame));
        assert!(lacking("blackhole 0.0.0.0/16 table 100").concerns(&frame));
    }

    #[test]
    fn a_c_sid_may_be_at_any_position_of_its_container() {
        let sid = lacking(
            "fcbb:bb00:22::/48 encap seg6local action End.X nh6 fc02::1 flavors next-csid lblen 32 nflen 16",
        );
        let container = |text: &str| {
            let address: std::net::Ipv6Addr = text.parse().expect("an address");
            let mut frame = vec![1; 3];
            frame.extend(address.octets());
            frame
        };
        assert!(sid.concerns(&container("fcbb:bb00:22:33::")));
        assert!(sid.concerns(&container("fcbb:bb00:11:33:22::")));
        assert!(!sid.concerns(&container("fcbb:bb00:11:33::2:2000")));
        assert!(!sid.concerns(&container("fcbb:bb01:22::")));
    }

    #[test]
    fn the_table_of_end_dt46_becomes_a_vrftable() {
        let route = "fc0f::46/128 encap seg6local action End.DT46 table 100 dev eth0";
        let theirs = in_linux_words(route);
        assert_eq!(
            theirs,
            "fc0f::46/128 encap seg6local action End.DT46 vrftable 100 dev eth0"
        );
        assert_eq!((vrf_table(route), vrf_table(&theirs)), (None, Some(100)));
        for same in [
            "fc0f::46/128 encap seg6local action End.DT6 table 100 dev eth0",
            "fc0f::44/128 encap seg6local action End.DT4 table local dev eth0",
            "2001:db8::/48 via fc02::1 dev eth2 table 100",
        ] {
            assert_eq!(in_linux_words(same), same);
        }
    }

    #[test]
    fn an_attribute_that_the_kernel_ignored_is_found() {
        let route = "fc0f::1/128 encap seg6local action End.X nh6 fc01::1 oif eth1 dev eth0";
        let shown = "fc0f::1  encap seg6local action End.X nh6 fc01::1 dev eth0 metric 1024";
        assert_eq!(left_out(route, shown), Some("oif"));
        assert_eq!(left_out(route, route), None);
    }
}
