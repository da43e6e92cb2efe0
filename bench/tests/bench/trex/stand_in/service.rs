//! Responses of the TRex stand-in.

use std::fmt;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::Wire;
use sidestep_testkit::lab::mac_text;

/// State of a server.
pub(super) struct Service {
    pub asked: Vec<(String, Value)>,
    /// Owners of the ports; empty if free.
    pub owners: [String; 2],
    /// Whether the server supports service mode and captures.
    pub captures: bool,
    sessions: [u64; 2],
    in_service_mode: [bool; 2],
    streams: Vec<(Vec<u8>, f64)>,
    wire: Box<dyn Wire>,
    macs: [[u8; 6]; 2],
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("owners", &self.owners)
            .finish_non_exhaustive()
    }
}

impl Service {
    pub fn new(wire: Box<dyn Wire>, macs: [[u8; 6]; 2]) -> Self {
        Self {
            asked: Vec::new(),
            owners: Default::default(),
            captures: true,
            sessions: [0; 2],
            in_service_mode: [false; 2],
            streams: Vec::new(),
            wire,
            macs,
        }
    }

    /// Returns the result or the error of a method.
    pub fn answer(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.asked.push((method.to_owned(), params.clone()));
        if method == "api_sync_v2" {
            let fits = params["name"] == "STL" && params["major"] == 5;
            let answer = json!({ "api_h": "key" });
            return fits
                .then_some(answer)
                .ok_or_else(|| "Version mismatch".to_owned());
        }
        if params["api_h"] != "key" {
            return Err("API handler provided mismatch".into());
        }
        match method {
            "get_version" => Ok(json!({ "version": "v0 (stand-in)" })),
            "get_supported_cmds" if self.captures => {
                Ok(json!(["acquire", "service", "capture", "push_pkts"]))
            }
            "get_supported_cmds" => Ok(json!(["acquire"])),
            "get_system_info" => {
                let ports = self.macs.iter().enumerate();
                let ports: Vec<Value> = ports
                    .map(|(index, mac)| json!({ "index": index, "hw_mac": mac_text(*mac) }))
                    .collect();
                Ok(json!({ "port_count": ports.len(), "ports": ports }))
            }
            "service" | "capture" | "push_pkts" if !self.captures => Err("Method not found".into()),
            "capture" => self.capture(params),
            _ => {
                let port = params["port_id"].as_u64().filter(|port| *port < 2);
                let port = port.ok_or_else(|| "port id should be 0 to 1".to_owned())?;
                self.of_port(method, port as usize, params)
            }
        }
    }

    fn of_port(&mut self, method: &str, port: usize, params: &Value) -> Result<Value, String> {
        let handler = format!("handler of {}", self.owners[port]);
        match method {
            "acquire" => return self.acquire(port, params),
            "get_port_status" => {
                let state = if port == 0 && self.wire.is_sending() {
                    "TX"
                } else {
                    "STREAMS"
                };
                return Ok(json!({ "owner": self.owners[port], "state": state }));
            }
            "get_port_stats" => {
                let [sent, received] = self.wire.counters();
                return Ok(match port {
                    0 => json!({ "opackets": sent, "ipackets": 0 }),
                    _ => json!({ "opackets": 0, "ipackets": received }),
                });
            }
            "push_pkts" => return self.push(port, params),
            _ if self.owners[port].is_empty() || params["handler"] != handler.as_str() => {
                return Err("incorrect or missing port handler".into());
            }
            "release" => self.owners[port].clear(),
            "service" => {
                let enabled = params["enabled"].as_bool();
                self.in_service_mode[port] = enabled.ok_or("field 'enabled' is missing")?;
            }
            "remove_all_streams" => self.streams.clear(),
            "add_stream" => self.add_stream(&params["stream"])?,
            "start_traffic" => {
                if self.in_service_mode[port] {
                    return Err("port is in service mode".into());
                }
                let seconds = params["duration"].as_f64().unwrap_or(0.0);
                let duration = Duration::from_secs_f64(seconds);
                let factor = self.factor(&params["mul"])?;
                let streams = self.streams.iter().cloned();
                let streams = streams.map(|(frame, rate)| (frame, rate * factor));
                self.wire.start(streams.collect(), duration);
            }
            "stop_traffic" => self.wire.stop(),
            _ => return Err("Method not found".into()),
        }
        Ok(json!({}))
    }

    /// A port has an owner until it is released or taken by force. The same session may acquire it
    /// again.
    fn acquire(&mut self, port: usize, params: &Value) -> Result<Value, String> {
        let user = params["user"].as_str().unwrap_or_default();
        let session = params["session_id"].as_u64().unwrap_or(0);
        let owner = &self.owners[port];
        let same = (owner.as_str(), self.sessions[port]) == (user, session);
        if !owner.is_empty() && params["force"] != true && !same {
            return Err(format!("port is already taken by '{owner}'"));
        }
        (self.owners[port], self.sessions[port]) = (user.to_owned(), session);
        Ok(format!("handler of {user}").into())
    }

    /// Returns the factor for the rates of all streams.
    fn factor(&self, mul: &Value) -> Result<f64, String> {
        if mul["op"] != "abs" {
            return Err("bad op of 'mul': only abs is known here".into());
        }
        let value = mul["value"].as_f64().ok_or("field 'value' is missing")?;
        let packets: f64 = self.streams.iter().map(|(_, rate)| rate).sum();
        let bits = |(frame, rate): &(Vec<u8>, f64)| line_bits(frame) * rate;
        let bits: f64 = self.streams.iter().map(bits).sum();
        match mul["type"].as_str() {
            Some("raw") => Ok(value),
            Some("pps") => Ok(value / packets),
            Some("percentage") => Ok(self.wire.line_rate() * value / 100.0 / bits),
            _ => Err("bad type of 'mul'".into()),
        }
    }

    fn add_stream(&mut self, stream: &Value) -> Result<(), String> {
        let frame = stream["packet"]["binary"]
            .as_str()
            .and_then(|text| BASE64_STANDARD.decode(text).ok());
        let frame = frame.ok_or("field 'binary' is no base64")?;
        let rate = &stream["mode"]["rate"];
        let value = rate["value"].as_f64().ok_or("field 'value' is missing")?;
        let rate = match rate["type"].as_str() {
            Some("pps") => value,
            Some("percentage") => self.wire.line_rate() * value / 100.0 / line_bits(&frame),
            _ => return Err("bad type of rate".into()),
        };
        self.streams.push((frame, rate));
        Ok(())
    }

    fn push(&mut self, port: usize, params: &Value) -> Result<Value, String> {
        if !self.in_service_mode[port] || port != 0 {
            return Err("port 0 in service mode only".into());
        }
        for packet in params["pkts"].as_array().into_iter().flatten() {
            let frame = packet["binary"]
                .as_str()
                .and_then(|text| BASE64_STANDARD.decode(text).ok());
            self.wire.push(&frame.ok_or("field 'binary' is no base64")?);
        }
        Ok(json!({ "sent": 1 }))
    }

    fn capture(&mut self, params: &Value) -> Result<Value, String> {
        match params["command"].as_str() {
            Some("start") if !self.in_service_mode[1] => {
                Err("start_capture is available only under service mode".into())
            }
            Some("start") => {
                self.wire.capture();
                Ok(json!({ "capture_id": 1, "start_ts": 0.0 }))
            }
            Some("fetch") => {
                let frames = self.wire.captured();
                let packets = frames.iter().map(
                    |frame| json!({ "port": 1, "origin": "RX", "binary": BASE64_STANDARD.encode(frame) }),
                );
                let packets: Vec<Value> = packets.collect();
                Ok(json!({ "pending": 0, "start_ts": 0.0, "pkts": packets }))
            }
            Some("stop") => Ok(json!({ "pkt_count": 1 })),
            Some("remove") => Ok(json!({})),
            _ => Err("field 'command' is none of those there are".into()),
        }
    }
}

/// Returns the bits that a frame occupies on the line, with FCS, preamble and gap.
fn line_bits(frame: &[u8]) -> f64 {
    ((frame.len() + 24) * 8) as f64
}
