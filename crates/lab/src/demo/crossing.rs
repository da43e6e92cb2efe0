//! Real traffic between the hosts, and who carried it.

use std::net::IpAddr;

use super::Error;
use super::ping::{Ping, ping};
use super::product::{Sidestep, Tally};
use super::screen::Screen;
use super::tcp::{Amount, MEBIBYTE, transfer};
use crate::Lab;
use crate::program::Interrupt;

/// Ping and TCP from a host to each of these addresses of the other.
///
/// # Errors
/// An answer is missing, or a byte is not the one that was sent.
pub fn cross(
    lab: &Lab,
    [from, to]: [&str; 2],
    addresses: [&str; 2],
    screen: &Screen,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let (near, far) = (lab.namespace(from)?, lab.namespace(to)?);
    for address in addresses {
        let Ping {
            sent,
            received,
            hop_limit,
            milliseconds,
        } = ping(near, address, interrupt)?;
        screen.good(&format!(
            "ping {from} > {address}: {received} of {sent} answered, {:.3} ms, hop limit {} on return",
            milliseconds.unwrap_or_default(),
            hop_limit.unwrap_or_default(),
        ));
    }
    for address in addresses {
        let done = transfer(near, far, parsed(address)?, TCP, interrupt)?;
        screen.good(&format!(
            "TCP {from} > {address}: {} MiB, every byte checked at {to}, {:.0} MiB/s, {} checksum errors",
            done.bytes / MEBIBYTE,
            done.mebibytes_per_second(),
            done.checksum_errors,
        ));
    }
    Ok(())
}

/// An address of the demo.
///
/// # Errors
/// It is none.
pub fn parsed(address: &str) -> Result<IpAddr, Error> {
    let parsed = address.parse();
    parsed.map_err(|_| Error::Usage(format!("{address}: no address")))
}

/// Ping and TCP prove nothing about Sidestep if the kernel forwarded them.
///
/// # Errors
/// The counters do not add up, or the kernel forwarded half of the packets.
pub fn carried_it_itself(
    lab: &Lab,
    sidestep: &Sidestep,
    routers: &[&str],
    screen: &Screen,
) -> Result<(), Error> {
    let mut parts = Vec::new();
    for router in routers {
        let namespace = lab.namespace(router)?;
        let tally = sidestep.tally(namespace)?;
        let Tally {
            received,
            forwarded,
            kernel,
            dropped,
        } = tally;
        if received != forwarded + kernel + dropped {
            return Err(Error::Wrong(format!(
                "{router}: the counters do not add up: {tally:?}"
            )));
        }
        if forwarded * 2 < received {
            for words in [["show", "ports"], ["show", "drops"]] {
                screen.command(router, &format!("sidestep {}", words.join(" ")));
                screen.quote(&sidestep.text(namespace, &words)?);
            }
            return Err(Error::Wrong(format!(
                "{router}: Sidestep forwarded only {forwarded} of {received} packets"
            )));
        }
        let share = if forwarded == received {
            "all".to_owned()
        } else {
            format!("{forwarded} of")
        };
        parts.push(format!("{router} {share} {received}"));
    }
    screen.good(&format!(
        "forwarded by Sidestep, not by the kernel: {} packets",
        parts.join(", ")
    ));
    Ok(())
}

/// Of each TCP transfer.
const TCP: Amount = Amount {
    bytes: 64 * MEBIBYTE,
    time: std::time::Duration::from_secs(4),
};
