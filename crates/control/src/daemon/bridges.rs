//! Frames beside bridges: stations that bridges learn, obstacles, and the renewal of stations whose
//! frames the bridges do not see.

use std::time::{Duration, Instant};

use sidestep_model::node::{IfIndex, Mac};

use super::{Instance, NodeMirror, PacketPath, System};

/// Shortest and longest interval between renewals.
const RENEWAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
/// Renewals within the time after which a bridge forgets a station.
const RENEWALS: u32 = 4;

impl<S: System> Instance<S> {
    /// Surveys what frames beside the bridges would skip. Returns true if a port of a bridge
    /// changed.
    pub(super) fn survey_bridges(&mut self) -> bool {
        let obstacles = self.system.bridge_obstacles(self.mirror.node());
        self.mirror.set_bridge_obstacles(obstacles)
    }

    /// Renews the stations that have sent frames beside their bridge, before the bridge forgets
    /// them.
    pub(super) fn renew_stations(&mut self, now: Instant) {
        let Some(ageing) = self.mirror.ageing() else {
            return;
        };
        let (shortest, longest) = RENEWAL;
        let period = (ageing / RENEWALS).clamp(shortest, longest);
        // The time may have become shorter since then.
        if self
            .watchers
            .ethers
            .renewed
            .is_some_and(|then| now < then + period)
        {
            return;
        }
        self.watchers.ethers.renewed = Some(now);
        // The next renewal tries again.
        for station in self.tables.kernel.take_used_stations().unwrap_or_default() {
            let key = (IfIndex(station.bridge), Mac(station.mac));
            let _ = self.mirror.use_station(key);
        }
    }
}
