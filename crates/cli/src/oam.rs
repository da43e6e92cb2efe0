//! `sidestep oam`: copies of packets with the O-flag, made at SIDs of this node (RFC 9259 2.1.1).

use std::io::Write;

use clap::Subcommand;
use sidestep_control::api::{self, Request};
use sidestep_control::report;

use crate::number::number;
use crate::{Outcome, show, tables};

/// Arguments of `oam`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Set the rate limit for copies of packets with the O-flag
    Rate {
        /// Copies per second and port; 0 ignores the flag
        #[arg(value_name = "N", allow_negative_numbers = true, value_parser = number(0..=u32::MAX))]
        rate: u32,
    },
    /// Show how many packets were copied, and how many copies the rate limit suppressed
    Show {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Print the copies as they are made, one line each
    Listen(Listen),
}

/// Arguments of `oam listen`.
#[derive(Debug, clap::Args)]
pub struct Listen {
    /// Stop after N copies [default: at Ctrl-C]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number(1..=u64::MAX))]
    pub count: Option<u64>,
    /// Print JSON, with the packet in hexadecimal
    #[arg(short, long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(command: &Command, out: &mut dyn Write) -> Outcome {
    match command {
        Command::Rate { rate } => {
            api::call(Request::SetOam { rate: *rate })?;
            Ok(())
        }
        Command::Show { json } => show::show(Request::ShowOam, *json, out, |oam: &report::Oam| {
            vec![tables::oam(oam)]
        }),
        Command::Listen(args) => listen(args, out),
    }
}

fn listen(args: &Listen, out: &mut dyn Write) -> Outcome {
    let (begun, copies) = api::stream(Request::ListenOam)?;
    let oam: report::Oam = serde_json::from_value(begun)?;
    // Standard output carries only the copies, so that a program can read them.
    match oam.rate {
        0 => {
            eprintln!(
                "nothing is copied; enable copies with `sidestep oam rate N`; Ctrl-C ends it"
            );
        }
        rate => eprintln!("copying up to {rate} packets a second and port; Ctrl-C ends it"),
    }
    let most = args.count.map_or(usize::MAX, |count| {
        usize::try_from(count).unwrap_or(usize::MAX)
    });
    let mut printed = 0;
    for copy in copies.take(most) {
        let copy: report::OamCopy = serde_json::from_value(copy?)?;
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&copy)?)?;
        } else {
            writeln!(out, "{}", line(&copy))?;
        }
        // The reader waits for this line.
        out.flush()?;
        printed += 1;
    }
    if printed < most {
        return Err("the daemon has exited".into());
    }
    Ok(())
}

/// Formats a copy: seconds since 1970, port, SID, and the packet.
fn line(copy: &report::OamCopy) -> String {
    const SECOND: u64 = 1_000_000_000;
    format!(
        "{}.{:09} {}: {} segments left {}, {} bytes from {}",
        copy.timestamp / SECOND,
        copy.timestamp % SECOND,
        copy.port,
        copy.sid,
        copy.segments_left,
        copy.bytes,
        source(&copy.packet).unwrap_or_else(|| "?".into())
    )
}

/// Returns the source address of an IPv6 header that is given in hexadecimal.
fn source(packet: &str) -> Option<String> {
    let bytes = hex::decode(packet.get(16..48)?).ok()?;
    let octets: [u8; 16] = bytes.try_into().ok()?;
    Some(std::net::Ipv6Addr::from(octets).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_time_the_port_and_the_packet() {
        let mut packet = [0; 48];
        packet[8..24].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        let copy = report::OamCopy {
            timestamp: 1_700_000_000_000_000_042,
            port: "eth0".into(),
            sid: "fc00:2::e".into(),
            segments_left: 1,
            bytes: 142,
            packet: hex::encode(packet),
        };
        assert_eq!(
            line(&copy),
            "1700000000.000000042 eth0: fc00:2::e segments left 1, 142 bytes from 2001:db8::7"
        );
    }
}
