//! JSON-RPC 2.0 with a TRex server, by its documented interface (TRex, "The TRex RPC Server").

use std::time::Duration;

use serde_json::{Value, json};

use super::zmtp::Requester;
use sidestep_testkit::Error;

/// A connection to a server with a supported version.
#[derive(Debug)]
pub(super) struct Rpc {
    server: String,
    requester: Requester,
    api_handle: String,
    requests: u64,
}

impl Rpc {
    /// Connects to `host:port`, and agrees on the version of the stateless interface.
    ///
    /// # Errors
    /// The server does not respond or requires another version.
    pub fn connect(server: &str) -> Result<Self, Error> {
        let requester = Requester::connect(server, PATIENCE)
            .map_err(|source| Error::os(format!("connect to TRex at {server}"), source))?;
        let mut rpc = Self {
            server: server.to_owned(),
            requester,
            api_handle: String::new(),
            requests: 0,
        };
        let (major, minor) = VERSION;
        let version = json!({ "name": "STL", "major": major, "minor": minor });
        let answer = rpc.call("api_sync_v2", version)?;
        rpc.api_handle = rpc.text("api_sync_v2", &answer["api_h"])?;
        Ok(rpc)
    }

    /// Calls a method and returns its result. `params` is an object.
    ///
    /// # Errors
    /// The connection breaks, or the server refuses.
    pub fn call(&mut self, method: &str, mut params: Value) -> Result<Value, Error> {
        self.requests += 1;
        if !self.api_handle.is_empty() {
            params["api_h"] = self.api_handle.clone().into();
        }
        let id = self.requests;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let answer = self
            .requester
            .ask(request.to_string().as_bytes())
            .map_err(|source| {
                Error::os(format!("ask TRex at {} to {method}", self.server), source)
            })?;
        let mut answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| self.wrong(method, &format!("a reply that is not JSON: {error}")))?;
        if let Some(error) = answer.get("error") {
            let reason = error.get("specific_err").or(error.get("message"));
            let reason = reason.and_then(Value::as_str).unwrap_or("no reason given");
            return Err(self.wrong(method, reason));
        }
        if answer["id"] != id {
            return Err(self.wrong(method, "a reply to another request"));
        }
        Ok(answer["result"].take())
    }

    /// Returns a text that a reply must contain.
    pub fn text(&self, method: &str, value: &Value) -> Result<String, Error> {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| self.wrong(method, "a reply without the requested value"))
    }

    /// Error of the server.
    pub fn wrong(&self, method: &str, reason: &str) -> Error {
        Error::Wrong(format!("TRex at {}, {method}: {reason}", self.server))
    }
}

/// Time limit of a reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// Version of the stateless interface (STL) of TRex 3: major and minor.
const VERSION: (u32, u32) = (5, 1);
