//! TRex as a [`Driver`]: a generator on a separate machine, controlled over its stateless
//! interface. It has been tried with TRex 3.08. The tests use a server that was written from TRex's
//! documentation.
//!
//! TRex counts all frames at its ports, including foreign ones. It does not stamp packets, so
//! latency is not measured. With more than one flow, a checksum that covers the varying word
//! remains that of the first flow.
//!
//! - [`About`]: description of a server.
//! - [`Trex`]: two of its ports; trials ([`Driver`]), and one packet ([`Trex::exchange`]).

mod about;
mod capture;
pub mod owner;
mod rpc;
pub mod zmtp;

use std::thread;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

pub use about::About;
use owner::Owner;
use rpc::Rpc;
use sidestep_testkit::Error;
use sidestep_testkit::traffic::Interrupt;
use sidestep_testkit::traffic::driver::{Driver, LATE_MAX};
use sidestep_testkit::traffic::source::{check, nanoseconds, pace_interval};
use sidestep_testkit::traffic::stream::{Distribution, Template};
use sidestep_testkit::traffic::trial::{Disorder, Load, Trial};

/// A server with two acquired ports, which are released on drop.
#[derive(Debug)]
pub struct Trex {
    rpc: Rpc,
    ports: [Port; 2],
    templates: Vec<(Template, u32)>,
    interrupt: Option<Interrupt>,
}

/// A port and its handler, which proves ownership.
#[derive(Debug)]
struct Port {
    id: u32,
    handler: String,
}

impl Trex {
    /// Connects to `server` (`host:port`, the port is usually [`PORT`]) and acquires the port that
    /// sends and the one that receives. Ports acquired by a dead process of this machine are taken
    /// over. Templates are sent in proportion to their shares, with their flows in round robin.
    ///
    /// # Errors
    /// The server does not respond or has another version, another owner holds a port, or no
    /// template or share is given.
    pub fn connect(
        server: &str,
        ports: [u32; 2],
        templates: &[(Template, u32)],
        distribution: Distribution,
    ) -> Result<Self, Error> {
        if distribution != Distribution::Uniform {
            return Err(Error::Usage(
                "TRex sends flows round robin; only the built-in generator supports Zipf".into(),
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
        let us = Owner::this();
        for at in [SENDS, RECEIVES] {
            let status = json!({ "port_id": ports[at] });
            let status = trex.rpc.call("get_port_status", status)?;
            let before = status["owner"].as_str().and_then(Owner::of);
            let left_behind = before.is_some_and(|owner| owner.is_dead_here());
            let port = json!({
                "port_id": ports[at], "user": us.to_string(), "session_id": us.process, "force": left_behind,
            });
            let handler = trex.rpc.call("acquire", port)?;
            trex.ports[at].handler = trex.rpc.text("acquire", &handler)?;
            if left_behind {
                // Stop traffic and service mode. Ignore errors, because neither may be active.
                let _ = trex.own("stop_traffic", at, json!({}));
                let _ = trex.own(
                    "service",
                    at,
                    json!({ "enabled": false, "filtered": false }),
                );
            }
        }
        Ok(trex)
    }

    /// Makes trials end early when the program is interrupted.
    #[must_use]
    pub fn interrupted_by(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Calls a method that needs the handler of a port.
    fn own(&mut self, method: &str, port: usize, mut params: Value) -> Result<Value, Error> {
        params["port_id"] = self.ports[port].id.into();
        params["handler"] = self.ports[port].handler.clone().into();
        self.rpc.call(method, params)
    }

    /// Returns a counter of a port, by the name that servers use or by the documented name.
    fn counter(&mut self, port: usize, names: [&str; 2]) -> Result<u64, Error> {
        let id = self.ports[port].id;
        let stats = self.rpc.call("get_port_stats", json!({ "port_id": id }))?;
        let found = names.iter().find_map(|name| stats[*name].as_u64());
        found.ok_or_else(|| {
            let reason = format!("no counter {}", names.join(" or "));
            self.rpc.wrong("get_port_stats", &reason)
        })
    }

    /// Returns the packets that the two ports sent and received.
    fn counters(&mut self) -> Result<[u64; 2], Error> {
        Ok([
            self.counter(SENDS, ["opackets", "total_tx_pkts"])?,
            self.counter(RECEIVES, ["ipackets", "total_rx_pkts"])?,
        ])
    }

    /// Returns the final counters of the ports: TRex updates its counters only periodically,
    /// including those of sent packets.
    fn settled(&mut self) -> Result<[u64; 2], Error> {
        let (ended, mut changed) = (Instant::now(), Instant::now());
        let mut counters = self.counters()?;
        while changed.elapsed() < UPDATE && ended.elapsed() < LATE_MAX {
            check(self.interrupt.as_ref())?;
            thread::sleep(LOOK);
            let now = self.counters()?;
            if now != counters {
                (counters, changed) = (now, Instant::now());
            }
        }
        Ok(counters)
    }

    fn is_sending(&mut self) -> Result<bool, Error> {
        let port = json!({ "port_id": self.ports[SENDS].id });
        let status = self.rpc.call("get_port_status", port)?;
        Ok(self.rpc.text("get_port_status", &status["state"])? == "TX")
    }

    /// Sends for a duration, and returns the time that it took.
    fn offer(&mut self, load: Load, duration: Duration) -> Result<Duration, Error> {
        self.own("remove_all_streams", SENDS, json!({}))?;
        for (number, (template, share)) in self.templates.clone().iter().enumerate() {
            let stream = stream(template, *share);
            let stream = json!({ "stream_id": number + 1, "stream": stream });
            self.own("add_stream", SENDS, stream)?;
        }
        let started = Instant::now();
        let start = json!({
            "duration": duration.as_secs_f64(),
            "mul": multiplier(load),
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
                "only the built-in generator measures latency".into(),
            ));
        }
        pace_interval(load)?;
        nanoseconds(duration)?;
        let before = self.counters()?;
        let elapsed = self.offer(load, duration)?;
        let after = self.settled()?;
        let [sent, arrived] =
            [SENDS, RECEIVES].map(|port| after[port].saturating_sub(before[port]));
        // A few foreign frames are no error: they are not duplicates of sent packets.
        let others = arrived.saturating_sub(sent);
        if others > STRANGERS {
            let [sends, receives] = [SENDS, RECEIVES].map(|at| self.ports[at].id);
            return Err(Error::Wrong(format!(
                "{arrived} frames came by port {receives} of TRex, and {sent} were sent by port {sends}: somebody else sends there, or packets \
                 come twice"
            )));
        }
        let received = arrived - others;
        Ok(Trial {
            load,
            seconds: elapsed.as_secs_f64(),
            sent,
            received,
            disorder: Disorder::default(),
            latency: None,
        })
    }
}

impl Drop for Trex {
    fn drop(&mut self) {
        // The server may no longer respond. Without acquired ports there is nothing to release.
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

/// Returns the factor for the rates of all streams. The scaled rates sum to the load, in proportion
/// to their shares. A percentage is of the port's line rate, counting all bits.
fn multiplier(load: Load) -> Value {
    match load {
        Load::Rate(rate) => json!({ "type": "pps", "op": "abs", "value": rate }),
        Load::Maximum => json!({ "type": "percentage", "op": "abs", "value": 100.0 }),
    }
}

/// Returns a template as a stream object. Its rate is its share in packets per second, which
/// [`multiplier`] scales to the load.
fn stream(template: &Template, share: u32) -> Value {
    let rate = json!({ "type": "pps", "value": f64::from(share) });
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
        // Flags: use the MAC addresses of the packet, not those of TRex's configuration.
        "flags": 3,
        "isg": 0.0,
        "packet": { "binary": BASE64_STANDARD.encode(template.frame()), "meta": "" },
        "mode": { "type": "continuous", "rate": rate },
        "vm": { "instructions": instructions },
        "flow_stats": { "enabled": false },
    })
}

/// Default TCP port of a TRex server.
pub const PORT: u16 = 4501;
/// Index of the port that sends.
const SENDS: usize = 0;
/// Index of the port that receives.
const RECEIVES: usize = 1;
/// Interval of queries to the server.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum age of TRex's counters.
const UPDATE: Duration = Duration::from_millis(500);
/// Number of foreign frames that may arrive in a trial: neighbor discovery, LLDP.
const STRANGERS: u64 = 10;
/// Additional time that sending may take.
const OVERTIME: Duration = Duration::from_secs(10);
