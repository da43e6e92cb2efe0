//! Links that stop running, before the kernel notifies of it.
//!
//! The kernel notifies of a lost carrier after it has updated all routes: 60 ms with 200,000. A
//! thread reads the flags of the links meanwhile. Unlike other requests, that needs no RTNL lock
//! (`dev_ifsioc_locked` in `net/core/dev_ioctl.c`), and the flags change first (`linkwatch_do_dev`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use sidestep_model::node::IfIndex;

/// Shortest time between two readings.
const INTERVAL: Duration = Duration::from_millis(2);
/// Times longer than a reading to wait for the next one, so that many links take 2 % of a CPU.
const SHARE: u32 = 50;

/// Links by index, with their names.
pub(crate) type Links = BTreeMap<IfIndex, String>;

/// Watches links with a thread, which ends with this value.
pub(crate) struct Carriers {
    shared: Arc<Shared>,
    /// Receives the index of each link that stops running.
    stopped: UnixDatagram,
}

#[derive(Default)]
struct Shared {
    watched: Mutex<Watched>,
    changed: Condvar,
}

#[derive(Default)]
struct Watched {
    links: Arc<Links>,
    on_stop: Option<Arc<OnStop>>,
    is_over: bool,
}

/// Called by the thread with each link that has stopped, before anyone else knows.
pub type OnStop = dyn Fn(IfIndex) + Send + Sync;

impl Carriers {
    /// Starts the thread, for links of the calling thread's network namespace.
    pub fn start() -> io::Result<Self> {
        let (stopped, reporter) = UnixDatagram::pair()?;
        stopped.set_nonblocking(true)?;
        reporter.set_nonblocking(true)?;
        let kind = (AddressFamily::Inet, SockType::Datagram);
        let socket = socket(kind.0, kind.1, SockFlag::SOCK_CLOEXEC, None)?;
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("carriers".into())
            .spawn(move || watch(&of_thread, &socket, &reporter))?;
        Ok(Self { shared, stopped })
    }

    /// Watches these links and no others. Without links the thread sleeps.
    pub fn watch(&self, links: Links) {
        let mut watched = self.shared.lock();
        if *watched.links != links {
            watched.links = Arc::new(links);
            self.shared.changed.notify_one();
        }
    }

    /// From now on, the thread calls this with each link that stops running.
    pub fn on_stop(&self, on_stop: Option<Arc<OnStop>>) {
        self.shared.lock().on_stop = on_stop;
    }

    /// Returns the links that have stopped running since the last call.
    pub fn stopped(&self) -> Vec<IfIndex> {
        let mut all = Vec::new();
        let mut ifindex = [0; 4];
        while matches!(self.stopped.recv(&mut ifindex), Ok(4)) {
            all.push(IfIndex(u32::from_ne_bytes(ifindex)));
        }
        all
    }
}

impl AsFd for Carriers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stopped.as_fd()
    }
}

impl Drop for Carriers {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        // The content is valid at any time.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls [`Watched::on_stop`].
    fn stop(&self, link: IfIndex) {
        let on_stop = self.lock().on_stop.clone();
        if let Some(on_stop) = on_stop {
            on_stop(link);
        }
    }

    /// Returns the links to watch, when there are any. Returns none at the end.
    fn links(&self) -> Option<Arc<Links>> {
        let idle = |watched: &mut Watched| watched.links.is_empty() && !watched.is_over;
        let watched = self.changed.wait_while(self.lock(), idle);
        let watched = watched.unwrap_or_else(PoisonError::into_inner);
        (!watched.is_over).then(|| Arc::clone(&watched.links))
    }
}

/// Reports links that stop running until the end.
fn watch(shared: &Shared, socket: &OwnedFd, reporter: &UnixDatagram) {
    let mut running = BTreeSet::new();
    while let Some(links) = shared.links() {
        let begun = Instant::now();
        running.retain(|link| links.contains_key(link));
        for (link, name) in &*links {
            match is_running(socket, name) {
                Some(true) => _ = running.insert(*link),
                Some(false) if running.remove(link) => {
                    shared.stop(*link);
                    // If the socket is full, the notification follows.
                    let _ = reporter.send(&link.0.to_ne_bytes());
                }
                Some(false) => {}
                None => _ = running.remove(link),
            }
        }
        thread::sleep(INTERVAL.max(begun.elapsed() * SHARE));
    }
}

/// Whether a link is operationally up (`IFF_RUNNING`, `netdevice(7)`). Returns none if it does not
/// exist.
fn is_running(socket: &OwnedFd, name: &str) -> Option<bool> {
    // SAFETY: plain data, all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last octet stays zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request is a structure of that type, which lives until the call has returned.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFFLAGS as _,
            &raw mut request,
        )
    };
    // SAFETY: the kernel has set this member.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    (result == 0).then_some(i32::from(flags) & libc::IFF_RUNNING != 0)
}

#[cfg(test)]
mod tests {
    use sidestep_testkit::{Lab, root_or_skip};

    use super::*;

    /// Returns the links that stop running within this time.
    fn stopped_within(carriers: &Carriers, limit: Duration) -> Vec<IfIndex> {
        let begun = Instant::now();
        let mut all = carriers.stopped();
        while all.is_empty() && begun.elapsed() < limit {
            thread::sleep(INTERVAL);
            all = carriers.stopped();
        }
        all
    }

    #[test]
    fn a_watched_link_that_stops_running_is_reported_once() {
        if !root_or_skip() {
            return;
        }
        let lab = Lab::pair("carriers", 1).expect("a lab");
        let [a, b] = ["a", "b"].map(|node| lab.namespace(node).expect("a node"));
        let eth0 = IfIndex(a.ifindex("eth0").expect("a link"));
        let carriers = a
            .run(Carriers::start)
            .expect("a namespace")
            .expect("a thread");
        let set = |state| {
            b.exec(&["ip", "link", "set", "eth0", state])
                .expect("a state")
        };
        let long = Duration::from_secs(5);
        carriers.watch(Links::from([(eth0, "eth0".into())]));
        assert_eq!(stopped_within(&carriers, 20 * INTERVAL), []);
        set("down");
        assert_eq!(stopped_within(&carriers, long), [eth0]);
        assert_eq!(stopped_within(&carriers, 20 * INTERVAL), []);
        set("up");
        thread::sleep(20 * INTERVAL);
        set("down");
        assert_eq!(stopped_within(&carriers, long), [eth0]);
        set("up");
        thread::sleep(20 * INTERVAL);
        carriers.watch(Links::new());
        thread::sleep(20 * INTERVAL);
        set("down");
        assert_eq!(stopped_within(&carriers, 20 * INTERVAL), []);
    }
}
