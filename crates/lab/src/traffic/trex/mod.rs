//! TRex as a [`Driver`]: a generator on a machine of its own, driven over its stateless interface. It has been tried on a
//! server that was written from TRex's documentation for the tests, not on a TRex.
//!
//! TRex counts frames at its ports, so what else arrives there counts too; it does not stamp packets, and latency is not
//! measured. Where flows are more than one, a checksum that covers the varying word stays that of the first.

mod rpc;
mod zmtp;

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::driver::{Driver, LATE_MAX, SILENCE};
use super::source::{check, nanoseconds, pace_interval};
use super::stream::{Distribution, Template};
use super::trial::{Load, Trial};
use crate::Error;
use crate::program::Interrupt;
use rpc::Rpc;

/// A server with two of its ports acquired; they are released when it is dropped.
#[derive(Debug)]
pub struct Trex {
    rpc: Rpc,
    ports: [Port; 2],
    templates: Vec<(Template, u32)>,
    interrupt: Option<Interrupt>,
}

/// A port, and the key to it.
#[derive(Debug)]
struct Port {
    id: u32,
    handler: String,
}

/// What a port has counted.
#[derive(Clone, Copy, Debug)]
struct Counters {
    sent: u64,
    received: u64,
}

impl Trex {
    /// Connects to `server` (`host:port`, the port is usually [`PORT`]) and acquires the port that sends and the one that
    /// receives. Templates come as often as their shares say, each flow in its turn.
    ///
    /// # Errors
    /// Nobody answers there, the server is of another version, a port is somebody else's, or no template or share is given.
    pub fn connect(
        server: &str,
        ports: [u32; 2],
        templates: &[(Template, u32)],
        distribution: Distribution,
    ) -> Result<Self, Error> {
        if distribution != Distribution::Uniform {
            return Err(Error::Usage(
                "TRex sends each flow in its turn; Zipf is for our own generator".into(),
            ));
        }
        if templates.is_empty() || templates.iter().any(|(_, share)| *share == 0) {
            return Err(Error::Usage(
                "TRex needs at least one template, each with a share above 0".into(),
            ));
        }
        let mut trex = Self {
            rpc: Rpc::connect(server)?,
            ports: ports.map(|id| Port {
                id,
                handler: String::new(),
            }),
            templates: templates.to_owned(),
            interrupt: None,
        };
        for at in [SENDS, RECEIVES] {
            let port = json!({
                "port_id": ports[at], "user": USER, "session_id": std::process::id(), "force": false,
            });
            let handler = trex.rpc.call("acquire", port)?;
            trex.ports[at].handler = trex.rpc.text("acquire", &handler)?;
        }
        Ok(trex)
    }

    /// With trials that end early when somebody wants the program to end.
    #[must_use]
    pub fn interrupted_by(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Asks for something that needs the key to a port.
    fn own(&mut self, method: &str, port: usize, mut params: Value) -> Result<Value, Error> {
        params["port_id"] = self.ports[port].id.into();
        params["handler"] = self.ports[port].handler.clone().into();
        self.rpc.call(method, params)
    }

    fn counters(&mut self, port: usize) -> Result<Counters, Error> {
        let id = self.ports[port].id;
        let stats = self.rpc.call("get_port_stats", json!({ "port_id": id }))?;
        // What servers say, and what the documentation calls it.
        let counter = |names: [&str; 2]| {
            let found = names.iter().find_map(|name| stats[*name].as_u64());
            found.ok_or_else(|| {
                let reason = format!("no counter {}", names.join(" or "));
                self.rpc.wrong("get_port_stats", &reason)
            })
        };
        Ok(Counters {
            sent: counter(["opackets", "total_tx_pkts"])?,
            received: counter(["ipackets", "total_rx_pkts"])?,
        })
    }

    fn is_sending(&mut self) -> Result<bool, Error> {
        let port = json!({ "port_id": self.ports[SENDS].id });
        let status = self.rpc.call("get_port_status", port)?;
        Ok(self.rpc.text("get_port_status", &status["state"])? == "TX")
    }

    /// Sends for so long, and returns how long it took.
    fn offer(&mut self, load: Load, duration: Duration) -> Result<Duration, Error> {
        self.own("remove_all_streams", SENDS, json!({}))?;
        let all: u32 = self.templates.iter().map(|(_, share)| share).sum();
        for (number, (template, share)) in self.templates.clone().iter().enumerate() {
            let part = f64::from(*share) / f64::from(all);
            let stream = stream(template, load, part);
            let stream = json!({ "stream_id": number + 1, "stream": stream });
            self.own("add_stream", SENDS, stream)?;
        }
        let started = Instant::now();
        let start = json!({
            "duration": duration.as_secs_f64(),
            "mul": { "type": "raw", "op": "abs", "value": 1.0 },
            "force": true,
            "core_mask": u64::MAX,
        });
        self.own("start_traffic", SENDS, start)?;
        while self.is_sending()? {
            if let Err(interrupted) = check(self.interrupt.as_ref()) {
                self.own("stop_traffic", SENDS, json!({}))?;
                return Err(interrupted);
            }
            if started.elapsed() > duration + OVERTIME {
                self.own("stop_traffic", SENDS, json!({}))?;
                return Err(Error::Timeout {
                    what: "the end of TRex's traffic".into(),
                    milliseconds: (duration + OVERTIME).as_millis(),
                });
            }
            thread::sleep(LOOK);
        }
        Ok(duration)
    }
}

impl Driver for Trex {
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error> {
        if latency {
            return Err(Error::Usage(
                "latency is measured by our own generator only".into(),
            ));
        }
        pace_interval(load)?;
        nanoseconds(duration)?;
        let before = [
            self.counters(SENDS)?.sent,
            self.counters(RECEIVES)?.received,
        ];
        let elapsed = self.offer(load, duration)?;
        let ended = Instant::now();
        let sent = self.counters(SENDS)?.sent - before[0];
        let (mut received, mut last_came) = (0, Instant::now());
        loop {
            let now = self.counters(RECEIVES)?.received - before[1];
            if now != received {
                (received, last_came) = (now, Instant::now());
            }
            if received >= sent
                || last_came.elapsed() > SILENCE.max(UPDATE)
                || ended.elapsed() > LATE_MAX
            {
                break;
            }
            check(self.interrupt.as_ref())?;
            thread::sleep(LOOK);
        }
        Ok(Trial {
            load,
            seconds: elapsed.as_secs_f64(),
            sent,
            received,
            latency: None,
        })
    }
}

impl Drop for Trex {
    fn drop(&mut self) {
        // The server may be gone; who has not acquired a port has nothing to give back.
        for port in [SENDS, RECEIVES] {
            if !self.ports[port].handler.is_empty() {
                if port == SENDS {
                    let _ = self.own("stop_traffic", port, json!({}));
                    let _ = self.own("remove_all_streams", port, json!({}));
                }
                let _ = self.own("release", port, json!({}));
            }
        }
    }
}

/// A template as a stream object, at its part of the load.
fn stream(template: &Template, load: Load, part: f64) -> Value {
    let rate = match load {
        Load::Rate(rate) => json!({ "type": "pps", "value": rate * part }),
        Load::Maximum => json!({ "type": "percentage", "value": 100.0 * part }),
    };
    let flows = template.flows();
    let first = template.frame().get(flows.offset..flows.offset + 2);
    let first = first.map_or(0, |it| u64::from(u16::from_be_bytes([it[0], it[1]])));
    let last = first + u64::from(flows.count) - 1;
    let instructions = if flows.count > 1 {
        json!([
            {
                "type": "flow_var", "name": "flow", "size": 2, "op": "inc", "step": "1",
                "init_value": first.to_string(), "min_value": first.to_string(), "max_value": last.to_string(),
            },
            {
                "type": "write_flow_var", "name": "flow", "pkt_offset": flows.offset, "add_value": 0,
                "is_big_endian": true,
            },
        ])
    } else {
        json!([])
    };
    json!({
        "enabled": true,
        "self_start": true,
        "next_stream_id": -1,
        "action_count": 0,
        "core_id": -1,
        // The MAC addresses of the packet, not of TRex's configuration.
        "flags": 3,
        "isg": 0.0,
        "packet": { "binary": base64(template.frame()), "meta": "" },
        "mode": { "type": "continuous", "rate": rate },
        "vm": { "instructions": instructions },
        "flow_stats": { "enabled": false },
    })
}

/// RFC 4648 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = [0, 1, 2].map(|at| u32::from(group.get(at).copied().unwrap_or(0)));
        let bits = bits[0] << 16 | bits[1] << 8 | bits[2];
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) as usize % 64;
            let is_there = digit <= group.len();
            text.push(if is_there {
                ALPHABET[value].into()
            } else {
                '='
            });
        }
    }
    text
}

/// Where a TRex server listens.
pub const PORT: u16 = 4501;
/// Under this name ports are acquired.
const USER: &str = "sidestep";
/// Index of the port that sends.
const SENDS: usize = 0;
/// Index of the port that receives.
const RECEIVES: usize = 1;
/// How often the server is asked.
const LOOK: Duration = Duration::from_millis(10);
/// TRex's counters may be so old.
const UPDATE: Duration = Duration::from_millis(500);
/// How much longer than asked it may send.
const OVERTIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
