//! Replies to zebra: whether its routes are in the tables of the packet path.

use std::collections::VecDeque;
use std::io::Write;

use sidestep_mirror::fpm::reply;
use sidestep_model::route::RouteKey;

use crate::daemon::lines;

/// LIMIT: bytes of replies that wait for the tables or for zebra.
const WAITING_MAX: usize = 32 << 20;

/// The results of a session's routes.
#[derive(Default)]
pub(super) struct Results {
    /// Routes that are not in the tables yet, with their messages.
    waiting: Vec<(RouteKey, Vec<u8>)>,
    waiting_bytes: usize,
    /// Frames to send.
    unsent: VecDeque<u8>,
    /// Number of routes reported as installed.
    pub installed: u64,
    /// Number of routes reported as not installed.
    pub failed: u64,
}

impl Results {
    /// Adds a route that was received in this message.
    pub fn expect(&mut self, key: RouteKey, message: &[u8]) {
        self.waiting_bytes += message.len();
        self.waiting.push((key, message.to_vec()));
    }

    /// Reports all routes that wait. `fits` returns whether a route is in the tables.
    pub fn report(&mut self, fits: impl Fn(&RouteKey) -> bool) {
        for (key, message) in self.waiting.drain(..) {
            let is_installed = fits(&key);
            self.unsent.extend(reply(&message, is_installed));
            self.installed += u64::from(is_installed);
            self.failed += u64::from(!is_installed);
        }
        self.waiting_bytes = 0;
    }

    /// Sends as much as the socket accepts. An error is that of the next read, too.
    pub fn send(&mut self, stream: impl Write) {
        lines::send(&mut self.unsent, stream);
    }

    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns why the session has to end, if it has.
    pub fn overflow(&self) -> Option<String> {
        let waiting = self.waiting_bytes + self.unsent.len();
        (waiting > WAITING_MAX).then(|| {
            format!(
                "{waiting} bytes of replies wait, at most {WAITING_MAX} may: zebra reads none, or \
                 the tables cannot be updated"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use sidestep_mirror::fpm::encode::Encoder;
    use sidestep_mirror::fpm::{HEADER, decode};

    use super::*;

    /// Offset of `rtm_flags` in a frame with one route.
    const FLAGS: usize = HEADER + 16 + 8;

    fn route(prefix: &str) -> (RouteKey, Vec<u8>) {
        let key = RouteKey::new(prefix.parse().expect("a prefix"));
        let frame = Encoder { sender: 7 }.withdraw(&key, 186);
        (key, frame[HEADER..].to_vec())
    }

    fn flags(frame: &[u8]) -> u32 {
        u32::from_ne_bytes(*frame[FLAGS..].first_chunk().expect("a route"))
    }

    #[test]
    fn a_route_is_reported_once_it_is_in_the_tables() {
        let mut results = Results::default();
        let (first, second) = (route("2001:db8:1::/48"), route("2001:db8:2::/48"));
        results.expect(first.0, &first.1);
        results.expect(second.0, &second.1);
        let mut sent = Vec::new();
        results.send(&mut sent);
        assert!(sent.is_empty(), "nothing is in the tables");
        results.report(|key| *key == first.0);
        results.send(&mut sent);
        let half = sent.len() / 2;
        assert_eq!(
            [flags(&sent[..half]), flags(&sent[half..])],
            [0x4000, 0x2000_0000]
        );
        assert_eq!((results.installed, results.failed), (1, 1));
        assert!(decode(&sent[..half]).is_ok());
        results.report(|_| true);
        assert!(!results.has_unsent());
    }

    #[test]
    fn a_peer_that_reads_nothing_ends_the_session() {
        let mut results = Results::default();
        let (key, message) = route("2001:db8:1::/48");
        while results.overflow().is_none() {
            results.expect(key, &message);
        }
        results.report(|_| true);
        assert!(results.overflow().is_some());
        results.send(std::io::sink());
        assert_eq!(results.overflow(), None);
    }
}
