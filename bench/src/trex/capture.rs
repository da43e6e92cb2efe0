//! Sends one packet through TRex from one port and captures it at the other. Meanwhile both ports
//! are in TRex's service mode, in which the software receives all packets.

use std::thread;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::{LOOK, RECEIVES, SENDS, Trex};
use sidestep_testkit::Error;
use sidestep_testkit::frames::noise;
use sidestep_testkit::traffic::source::check;

impl Trex {
    /// Sends a frame, and returns the first frame that arrives (without FCS) and is not noise
    /// ([`noise`]). Returns `None` if no frame arrives in time.
    ///
    /// # Errors
    /// The server has no service mode or no captures, or the connection breaks.
    pub fn exchange(&mut self, frame: &[u8], patience: Duration) -> Result<Option<Vec<u8>>, Error> {
        self.service(true)?;
        let exchanged = self.capture(frame, patience);
        let ended = self.service(false);
        let frame = exchanged?;
        ended?;
        // Wait until the counters include this packet, before the next trial starts.
        self.settled()?;
        Ok(frame)
    }

    fn service(&mut self, enabled: bool) -> Result<(), Error> {
        for port in [SENDS, RECEIVES] {
            let mode = json!({ "enabled": enabled, "filtered": false });
            self.own("service", port, mode)?;
        }
        Ok(())
    }

    fn capture(&mut self, frame: &[u8], patience: Duration) -> Result<Option<Vec<u8>>, Error> {
        let [sends, receives] = [SENDS, RECEIVES].map(|port| self.ports[port].id);
        let start = json!({
            "command": "start", "limit": CAPTURED_MAX, "mode": "fixed", "tx": [], "rx": [receives], "filter": "",
        });
        let started = self.rpc.call("capture", start)?;
        let id = started["capture_id"].clone();
        let packet = json!({
            "binary": BASE64_STANDARD.encode(frame), "use_port_dst_mac": false, "use_port_src_mac": false,
        });
        let push = json!({ "port_id": sends, "pkts": [packet], "ipg_usec": 0, "force": true });
        let pushed = self.rpc.call("push_pkts", push);
        let fetched = pushed.and_then(|_| self.fetch(&id, patience));
        for command in ["stop", "remove"] {
            let end = json!({ "command": command, "capture_id": id });
            self.rpc.call("capture", end)?;
        }
        fetched
    }

    fn fetch(&mut self, id: &Value, patience: Duration) -> Result<Option<Vec<u8>>, Error> {
        let begun = Instant::now();
        loop {
            let fetch = json!({ "command": "fetch", "capture_id": id, "pkt_limit": CAPTURED_MAX });
            let fetched = self.rpc.call("capture", fetch)?;
            for packet in fetched["pkts"].as_array().into_iter().flatten() {
                let text = self.rpc.text("capture", &packet["binary"])?;
                let frame = BASE64_STANDARD.decode(&text).ok();
                let frame = frame
                    .ok_or_else(|| self.rpc.wrong("capture", "a packet that is not base64"))?;
                if noise(&frame).is_none() {
                    return Ok(Some(frame));
                }
            }
            if begun.elapsed() >= patience {
                return Ok(None);
            }
            check(self.interrupt.as_ref())?;
            thread::sleep(LOOK);
        }
    }
}

/// Capacity of a capture: the expected packet, and noise before it.
const CAPTURED_MAX: u32 = 100;
