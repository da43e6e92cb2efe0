//! Checks of the ether devices.

use sidestep_model::ether::{Ether, PathState, port_name};

use super::facts::Facts;
use super::{Code, Family};
use crate::report::Problem;

const ETHER_INVALID: Code = Code::error(
    "ether_invalid",
    "an ether device has no carrier, because its segment list or policy is invalid",
);
const ETHER_LOOP: Code = Code::error(
    "ether_loop",
    "the last segment of an ether device is a SID of this node that sends frames back into it",
);
const ETHER_MTU: Code = Code::warning(
    "ether_mtu",
    "the MTU of an ether device is larger than its underlay carries: longer frames are dropped",
);
const ETHER_NO_SID: Code = Code::warning(
    "ether_no_sid",
    "no SID sends frames into an ether device: it only sends",
);
const ETHER_UNUSED: Code = Code::note(
    "ether_unused",
    "an ether device is in no bridge, and has no address and no attached interface",
);

pub(super) const FAMILY: Family = Family {
    codes: &[
        ETHER_LOOP,
        ETHER_INVALID,
        ETHER_MTU,
        ETHER_NO_SID,
        ETHER_UNUSED,
    ],
    check,
};

fn check(facts: &Facts<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    let sids = facts.node.ether_sids();
    for (name, device) in &facts.node.ethers {
        let state = facts.node.path_of(device);
        found.extend(mtu(facts, name, device, &state));
        if let Some(why) = state.invalid {
            let sentence = format!("ether device {name} has no carrier: {why}");
            found.push(ETHER_INVALID.without_command(sentence));
        }
        let sids = sids.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        if let Some(segment) = device.returning_segment(sids) {
            let sentence = format!("ether device {name}: {segment} sends its frames back into it");
            found.push(ETHER_LOOP.without_command(sentence));
        }
        found.extend(sids.is_empty().then(|| no_sid(name)));
        found.extend(unused(facts, name, device));
    }
    found
}

fn mtu(facts: &Facts<'_>, name: &str, device: &Ether, state: &PathState) -> Option<Problem> {
    let port = facts.node.link_by_name(&port_name(name))?;
    let underlay = state.underlay?;
    let largest = device.mtu_within(underlay, state.segments);
    let mtu = device.mtu.filter(|mtu| *mtu > largest)?;
    let sentence = format!(
        "ether device {name} has an MTU of {mtu}; that of its underlay, {underlay}, leaves \
         {largest} (port {})",
        port.name
    );
    Some(ETHER_MTU.problem(sentence, format!("sidestep ether set {name} mtu {largest}")))
}

fn no_sid(name: &str) -> Problem {
    ETHER_NO_SID.without_command(format!(
        "no SID sends frames into ether device {name}: add one with `sidestep route add PREFIX \
         encap seg6local action End.DT2U l2dev {name} dev DEV`"
    ))
}

/// A device in another network namespace is not seen.
fn unused(facts: &Facts<'_>, name: &str, device: &Ether) -> Option<Problem> {
    let link = facts.node.link_by_name(name)?;
    let mut addresses = facts.node.addresses.iter();
    let has_address = addresses.any(|(dev, _)| *dev == link.ifindex);
    if link.master.is_some() || has_address || device.attached.is_some() {
        return None;
    }
    Some(ETHER_UNUSED.without_command(format!(
        "ether device {name} is in no bridge and has no address: use it as any interface (`ip link \
         set {name} master BRIDGE up`), or attach an interface"
    )))
}
