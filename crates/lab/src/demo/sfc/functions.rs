//! What the functions do to packets, seen from the hosts and from the functions themselves.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::Error;
use crate::Namespace;
use crate::program::Interrupt;

/// Whether a connection to a port comes about. Somebody listens there.
///
/// # Errors
/// Nobody can listen there, or the connection fails otherwise than by silence.
pub fn connects(
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    port: u16,
) -> Result<bool, Error> {
    let failed = |source| crate::Error::os(format!("TCP to {address} port {port}"), source);
    let target = SocketAddr::new(address, port);
    let _listener = to.run(|| TcpListener::bind(target))?.map_err(failed)?;
    match from.run(|| TcpStream::connect_timeout(&target, SILENCE))? {
        Ok(_) => Ok(true),
        Err(source) if source.kind() == io::ErrorKind::TimedOut => Ok(false),
        Err(source) => Err(failed(source).into()),
    }
}

/// Sends datagrams to a port, evenly over [`WINDOW`]; returns how many arrive.
///
/// # Errors
/// They cannot be sent.
pub fn arriving(
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    port: u16,
    datagrams: u32,
    interrupt: &Interrupt,
) -> Result<u32, Error> {
    let failed = |source| crate::Error::os(format!("UDP to {address} port {port}"), source);
    let target = SocketAddr::new(address, port);
    let receiver = to.run(|| UdpSocket::bind(target))?.map_err(failed)?;
    receiver.set_nonblocking(true).map_err(failed)?;
    let anywhere = SocketAddr::new(unspecified(address), 0);
    let sender = from.run(|| UdpSocket::bind(anywhere))?.map_err(failed)?;
    let count = || std::iter::from_fn(|| receiver.recv(&mut [0; 64]).ok()).count() as u32;
    let (started, mut arrived) = (Instant::now(), 0);
    for number in 0..datagrams {
        let due = WINDOW * number / datagrams;
        interrupt.sleep(due.saturating_sub(started.elapsed()))?;
        sender.send_to(b"sfc", target).map_err(failed)?;
        arrived += count();
    }
    interrupt.sleep(SILENCE)?;
    Ok(arrived + count())
}

/// The address to send from, of the family of another.
pub fn unspecified(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    }
}

/// Packets that the rule of a function has dropped.
///
/// # Errors
/// It has no such rule.
pub fn dropped(function: &Namespace) -> Result<u64, Error> {
    let text = function.exec(&["nft", "-j", "list", "counter", "inet", "filter", "dropped"])?;
    packets(&text).ok_or_else(|| Error::Wrong(format!("nft said: {}", text.trim_end())))
}

fn packets(text: &str) -> Option<u64> {
    let value: Value = serde_json::from_str(text).ok()?;
    let parts = value["nftables"].as_array()?;
    parts
        .iter()
        .find_map(|part| part["counter"]["packets"].as_u64())
}

/// How long datagrams are sent for.
pub const WINDOW: Duration = Duration::from_secs(1);
/// After this time nothing comes any more.
const SILENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nft_prints_is_read() {
        let text = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"counter":
            {"family": "inet", "name": "dropped", "table": "filter", "handle": 2, "packets": 7, "bytes": 420}}]}"#;
        assert_eq!(packets(text), Some(7));
        assert_eq!(packets("Error: No such file or directory"), None);
    }
}
