//! One trial of RFC 2544: a load, a duration and the result.

use serde::{Deserialize, Serialize};

/// Offered load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// The highest rate of the generator.
    Maximum,
    /// Packets per second, evenly paced.
    Rate(f64),
}

/// Result of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Requested load.
    pub load: Load,
    /// Measured time in which packets were sent, in seconds.
    pub seconds: f64,
    /// Packets that left the generator.
    pub sent: u64,
    /// Packets that reached the sink, including late ones (RFC 2544 26.1 waits two seconds for
    /// them).
    pub received: u64,
    /// Reordered and duplicated packets.
    #[serde(default, skip_serializing_if = "Disorder::is_none")]
    pub disorder: Disorder,
    /// Latency, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// Packets that arrived out of order or more than once. All 0 if the driver cannot detect them, as
/// with TRex, which only counts packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disorder {
    /// Reordered packets: received after a later one (RFC 4737 3.3).
    pub reordered: u64,
    /// Duplicates, not counted as received.
    pub duplicated: u64,
    /// Packets too late to detect duplicates, not counted as received either.
    pub late: u64,
}

impl Disorder {
    /// Returns true if all are zero.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Time of packets from generator to sink, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Packets that were timed.
    pub samples: u64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// Mean absolute inter-packet delay variation, IPDV (RFC 5481 4.1).
    pub jitter: f64,
    /// The whole distribution: upper bound of each class, and number of packets up to it. Bounds
    /// ascend, and empty classes are omitted.
    pub histogram: Vec<(f64, u64)>,
}

impl Latency {
    /// Returns the 99.9th percentile of packet delay variation, PDV (RFC 5481 4.2), in nanoseconds:
    /// the delay in excess of the fastest packet. The fastest packet counts with the bound of its
    /// class, as percentiles do.
    pub fn pdv999(&self) -> f64 {
        let quickest = self.histogram.first().map_or(0.0, |(bound, _)| *bound);
        self.p999 - quickest
    }
}

impl Trial {
    /// Returns the sent packets per second, which may be less than requested.
    pub fn sent_rate(&self) -> f64 {
        self.sent as f64 / self.seconds
    }

    /// Returns the received packets per second.
    pub fn received_rate(&self) -> f64 {
        self.received as f64 / self.seconds
    }

    /// Returns the share of sent packets that arrived, 0 to 1; 1 if no packet was sent.
    pub fn delivery_ratio(&self) -> f64 {
        if self.sent == 0 {
            return 1.0;
        }
        self.received as f64 / self.sent as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_variation_is_relative_to_the_fastest_packet() {
        let latency = Latency {
            samples: 4,
            p999: 8_000.0,
            histogram: vec![(2_000.0, 2), (4_000.0, 3), (8_000.0, 4)],
            ..Latency::default()
        };
        assert!((latency.pdv999() - 6_000.0).abs() < 1e-9);
        assert!(Latency::default().pdv999().abs() < 1e-9);
    }
}
