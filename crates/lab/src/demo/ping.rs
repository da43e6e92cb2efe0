//! Echo requests from host to host, by ping(8).

use super::Error;
use crate::Namespace;
use crate::program::Interrupt;

/// What ping(8) found.
#[derive(Clone, Debug, PartialEq)]
pub struct Ping {
    /// Requests sent.
    pub sent: u32,
    /// Answers.
    pub received: u32,
    /// Hop limit or TTL of the answers as they arrived, if there was one.
    pub hop_limit: Option<u8>,
    /// Mean time there and back, in milliseconds, if there was an answer.
    pub milliseconds: Option<f64>,
}

/// Pings `address` from a node. Before it counts, requests are sent until one is answered: neighbors have to be found
/// on every cable.
///
/// # Errors
/// No answer, or one is missing; ping(8) is not there.
pub fn ping(from: &Namespace, address: &str, interrupt: &Interrupt) -> Result<Ping, Error> {
    interrupt.check()?;
    for _ in 0..TRIES {
        interrupt.check()?;
        // No answer here is no news; the counted run tells it.
        if from
            .exec(&["ping", "-n", "-q", "-c", "1", "-W", "0.2", address])
            .is_ok()
        {
            break;
        }
    }
    let output = from.exec(&["ping", "-n", "-c", COUNT, "-i", "0.02", "-W", "1", address])?;
    let ping = parse(&output).ok_or_else(|| Error::Wrong(format!("ping said: {output}")))?;
    if ping.sent == 0 || ping.sent != ping.received {
        let Ping { sent, received, .. } = ping;
        return Err(Error::Wrong(format!(
            "ping {address}: {received} of {sent} answered"
        )));
    }
    Ok(ping)
}

/// Reads what iputils prints.
fn parse(output: &str) -> Option<Ping> {
    let number_before = |line: &str, word: &str| {
        let before = line.split(word).next()?;
        before.split_whitespace().last()?.parse().ok()
    };
    let line = output
        .lines()
        .find(|line| line.contains(" packets transmitted"))?;
    let answers = output.split("ttl=").nth(1);
    let times = output.lines().find(|line| line.starts_with("rtt "));
    Some(Ping {
        sent: number_before(line, " packets transmitted")?,
        received: number_before(line, " received")?,
        hop_limit: answers.and_then(|rest| rest.split_whitespace().next()?.parse().ok()),
        milliseconds: times.and_then(|line| line.split('/').nth(4)?.parse().ok()),
    })
}

const COUNT: &str = "10";
/// Of a fifth of a second each, until the first answer.
const TRIES: u32 = 25;

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERED: &str = "\
PING 10.0.2.2 (10.0.2.2) 56(84) bytes of data.
64 bytes from 10.0.2.2: icmp_seq=1 ttl=63 time=0.496 ms
64 bytes from 10.0.2.2: icmp_seq=2 ttl=63 time=0.113 ms

--- 10.0.2.2 ping statistics ---
2 packets transmitted, 2 received, 0% packet loss, time 111ms
rtt min/avg/max/mdev = 0.113/0.241/0.496/0.180 ms
";

    #[test]
    fn what_ping_prints_is_read() {
        let expected = Ping {
            sent: 2,
            received: 2,
            hop_limit: Some(63),
            milliseconds: Some(0.241),
        };
        assert_eq!(parse(ANSWERED), Some(expected));
        let lost = "5 packets transmitted, 0 received, +3 errors, 100% packet loss, time 82ms\n";
        let expected = Ping {
            sent: 5,
            received: 0,
            hop_limit: None,
            milliseconds: None,
        };
        assert_eq!(parse(lost), Some(expected));
        assert_eq!(parse("ping: unknown host"), None);
    }
}
