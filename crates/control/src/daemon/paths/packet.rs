//! Probes as packets (RFC 7881, RFC 5881).

use std::net::Ipv6Addr;

use sidestep_wire::{Ends, Ipv6, Protocol, Udp};

use super::session::State;

/// RFC 7881 3.
const SBFD_PORT: u16 = 7784;
/// RFC 5881 4: a packet that returns to its sender.
const ECHO_PORT: u16 = 3785;
/// RFC 6335 6: the dynamic ports.
const FIRST_PORT: u16 = 49152;
/// CS6 (RFC 4594 3.1), as other implementations of BFD.
const TRAFFIC_CLASS: u8 = 0xc0;

/// Everything that a probe depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    /// Discriminators of this end and of the other one; equal for a loopback.
    pub discriminators: (u32, u32),
    /// Number of the flow: each has a port and so a flow label of its own.
    pub flow: u16,
    /// Bytes of the packet.
    pub size: usize,
    pub multiplier: u8,
    /// In microseconds.
    pub interval: u32,
    pub state: State,
}

impl Probe {
    /// Returns the packet.
    pub fn emit(&self) -> Vec<u8> {
        let (own, remote) = self.discriminators;
        let is_loopback = own == remote;
        // RFC 5880 4.1: version 1; the state, and for S-BFD the flag Demand.
        let state = match self.state {
            _ if is_loopback => UP,
            State::Up => UP | DEMAND,
            State::Init | State::Lost | State::RemoteAdminDown => DOWN | DEMAND,
        };
        let numbers = [own, remote, self.interval, 0, 0].map(u32::to_be_bytes);
        let first = [1 << 5, state, self.multiplier, 24];
        let mut data = [&first[..], &numbers.concat()].concat();
        data.resize(
            self.size.saturating_sub(Ipv6::LENGTH + Udp::LENGTH).max(24),
            0,
        );
        let udp = Udp {
            source_port: FIRST_PORT + (own as u16).wrapping_add(self.flow * 1000) % 16384,
            destination_port: if is_loopback { ECHO_PORT } else { SBFD_PORT },
        };
        let ends = Ends::new(self.source, self.destination);
        let header = Ipv6 {
            traffic_class: TRAFFIC_CLASS,
            hop_limit: 255,
            ..Ipv6::new(self.source, self.destination, Protocol::UDP)
        };
        header.emit(&udp.emit(&data, ends))
    }
}

const UP: u8 = 3 << 6;
const DOWN: u8 = 1 << 6;
const DEMAND: u8 = 1 << 1;

#[cfg(test)]
mod tests {
    use super::*;

    const PROBE: Probe = Probe {
        source: Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 2),
        discriminators: (7, 1001),
        flow: 0,
        size: 72,
        multiplier: 3,
        interval: 10_000,
        state: State::Init,
    };

    #[test]
    fn a_probe_of_s_bfd_has_the_fields_of_the_rfc() {
        let packet = PROBE.emit();
        assert_eq!(packet.len(), 72);
        assert_eq!(packet[..8], [0x6c, 0, 0, 0, 0, 32, 17, 255]);
        assert_eq!(packet[40..46], [0xc0, 7, 0x1e, 0x68, 0, 32]);
        let expected = [
            0x20, 0x42, 3, 24, 0, 0, 0, 7, 0, 0, 3, 0xe9, 0, 0, 0x27, 0x10, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(packet[48..], expected);
        let up = Probe {
            state: State::Up,
            size: 1280,
            ..PROBE
        };
        assert_eq!(up.emit()[49], 0xc2);
        assert_eq!(up.emit().len(), 1280);
    }

    #[test]
    fn a_loopback_probe_is_addressed_to_its_sender() {
        let probe = Probe {
            destination: PROBE.source,
            discriminators: (7, 7),
            ..PROBE
        };
        let packet = probe.emit();
        assert_eq!(packet[8..24], packet[24..40]);
        assert_eq!(packet[42..44], [0x0e, 0xc9]);
        assert_eq!(packet[49], 0xc0, "no Demand: nobody negotiates");
    }

    #[test]
    fn each_flow_has_a_port_of_its_own() {
        let ports: std::collections::BTreeSet<_> = (0..8)
            .map(|flow| Probe { flow, ..PROBE }.emit()[40..42].to_vec())
            .collect();
        assert_eq!(ports.len(), 8);
    }
}
