//! Description of a TRex server. Reading it acquires no port and changes nothing.

use serde_json::{Value, json};

use super::rpc::Rpc;
use sidestep_testkit::Error;
use sidestep_testkit::lab::mac_of;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Version as the server reports it.
    pub version: String,
    /// Ethernet address of each port, by number; `None` if the server does not report it.
    pub macs: Vec<Option<[u8; 6]>>,
    /// Whether it can send single packets and capture the arriving ones: [`super::Trex::exchange`].
    pub captures: bool,
}

impl About {
    /// Queries the server at `host:port`.
    ///
    /// # Errors
    /// The server does not respond or has another version.
    pub fn ask(server: &str) -> Result<Self, Error> {
        let mut rpc = Rpc::connect(server)?;
        let version = rpc.call("get_version", json!({}))?;
        let version = rpc.text("get_version", &version["version"])?;
        let info = rpc.call("get_system_info", json!({}))?;
        let ports = info["ports"].as_array();
        let ports = ports.ok_or_else(|| rpc.wrong("get_system_info", "a reply without ports"))?;
        let mut macs = vec![None; ports.len()];
        for (position, port) in ports.iter().enumerate() {
            let number = port["index"].as_u64().map_or(position, |it| it as usize);
            if let Some(place) = macs.get_mut(number) {
                *place = port["hw_mac"].as_str().and_then(mac_of);
            }
        }
        let methods = rpc.call("get_supported_cmds", json!({}))?;
        let methods = methods.as_array().map_or(&[][..], Vec::as_slice);
        let has = |method: &&str| methods.iter().any(|known| known == &Value::from(*method));
        Ok(Self {
            version,
            macs,
            captures: ["service", "capture", "push_pkts"].iter().all(has),
        })
    }
}
