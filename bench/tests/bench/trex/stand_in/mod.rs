//! A stand-in for a TRex server, for tests: the methods that `Trex` and `About` use, written from
//! TRex's documentation and from its server's replies. It tracks port owners, refuses what TRex
//! refuses without ownership, and sends each stream's packet unmodified: fields that vary per flow
//! stay constant.

mod cable;
mod service;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use sidestep_bench::trex::zmtp::{
    COMMAND, GREETING, MORE, greeting, read_frame, ready, write_frame,
};
use sidestep_testkit::Error;

pub use cable::Cable;
use service::Service;

/// The link between a server's two ports: 0 sends, 1 receives.
pub trait Wire: Send {
    /// Line rate of port 0 in bits per second, including inter-frame gaps.
    fn line_rate(&self) -> f64;

    /// Starts sending these frames at these rates (packets per second) for this duration.
    fn start(&mut self, frames: Vec<(Vec<u8>, f64)>, duration: Duration);

    /// Returns whether it is still sending.
    fn is_sending(&self) -> bool;

    /// Stops sending.
    fn stop(&mut self);

    /// Returns the packets sent by port 0 and received by port 1.
    fn counters(&self) -> [u64; 2];

    /// Starts a capture on port 1.
    fn capture(&mut self);

    /// Sends one frame from port 0.
    fn push(&mut self, frame: &[u8]);

    /// Returns the captured packets since the last call, or since [`Self::capture`].
    fn captured(&mut self) -> Vec<Vec<u8>>;
}

/// A server that listens until it is dropped.
#[derive(Debug)]
pub struct StandIn {
    address: SocketAddr,
    service: Arc<Mutex<Service>>,
}

impl StandIn {
    /// Listens on a loopback port that the kernel chooses. `macs` are the addresses of the server's
    /// ports.
    ///
    /// # Errors
    /// The kernel refuses to listen.
    pub fn start(wire: impl Wire + 'static, macs: [[u8; 6]; 2]) -> Result<Self, Error> {
        let refused = |source| Error::os("listen as a TRex", source);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let service = Arc::new(Mutex::new(Service::new(Box::new(wire), macs)));
        let shared = Arc::downgrade(&service);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Some(service) = shared.upgrade() else {
                    return;
                };
                // The thread ends when the client disconnects.
                thread::spawn(move || serve(&service, client));
            }
        });
        Ok(Self { address, service })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all called methods with their parameters.
    pub fn asked(&self) -> Vec<(String, Value)> {
        lock(&self.service).asked.clone()
    }

    /// Returns the owner of each port; empty if free.
    pub fn owners(&self) -> [String; 2] {
        lock(&self.service).owners.clone()
    }

    /// Acquires both ports for an owner.
    pub fn acquired_by(&self, name: &str) {
        lock(&self.service).owners = [name.to_owned(), name.to_owned()];
    }

    /// Disables service mode and captures, as in an old server.
    pub fn without_captures(&self) {
        lock(&self.service).captures = false;
    }
}

/// Serves one client until it disconnects.
fn serve(service: &Mutex<Service>, mut client: TcpStream) -> io::Result<()> {
    client.write_all(&greeting())?;
    client.read_exact(&mut [0; GREETING])?;
    let (flags, body) = read_frame(&mut client)?;
    if (flags, &body) != (COMMAND, &ready("REQ")) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    write_frame(&mut client, COMMAND, &ready("REP"))?;
    loop {
        let delimiter = read_frame(&mut client)?;
        if delimiter != (MORE, Vec::new()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (_, body) = read_frame(&mut client)?;
        let request: Value = serde_json::from_slice(&body)?;
        let method = request["method"].as_str().unwrap_or_default();
        let answer = lock(service).answer(method, &request["params"]);
        let answer = match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }),
            Err(reason) => json!({ "jsonrpc": "2.0", "id": request["id"],
                "error": { "code": -32000, "message": "refused", "specific_err": reason } }),
        };
        write_frame(&mut client, MORE, &[])?;
        write_frame(&mut client, 0, answer.to_string().as_bytes())?;
    }
}

fn lock(service: &Mutex<Service>) -> MutexGuard<'_, Service> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}
