//! Notifications to systemd, received by a socket in its place.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::support::left::traces;
use crate::support::{Daemon, PATIENCE, Star, begin, printed};

/// Half of this is the period of the keep-alive messages.
const WATCHDOG_USEC: &str = "400000";

/// A socket in systemd's place.
struct Manager {
    folder: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        Self { folder, socket }
    }

    /// Starts the daemon with this node file as a unit with `Type=notify` would.
    fn start(&self, star: &Star, config: &str) -> Daemon {
        Daemon::start_by(star.router(), &["--config", config], |command| {
            command
                .env("NOTIFY_SOCKET", self.folder.path().join("notify"))
                .env("WATCHDOG_USEC", WATCHDOG_USEC)
                .env_remove("WATCHDOG_PID");
        })
    }

    /// Returns the next message.
    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).expect("a message in time");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// Returns the next message that is neither a keep-alive message nor a status line.
    fn next_state(&self) -> String {
        loop {
            let message = self.next();
            if message != "WATCHDOG=1\n" && !message.starts_with("STATUS=") {
                return message;
            }
        }
    }

    /// Waits for a status line that contains these words.
    fn wait_status(&self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.next();
            if message.starts_with("STATUS=") && message.contains(words) {
                return;
            }
            assert!(Instant::now() < deadline, "no status with {words:?}");
        }
    }
}

#[test]
fn systemd_learns_of_the_start_reloads_and_the_end_and_gets_keep_alive_messages() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livesystemd");
    let router = star.router();
    let manager = Manager::new();
    let file = manager.folder.path().join("node.yaml");
    let path = file.to_str().expect("UTF-8");
    fs::write(&file, "ports: [eth0]\nmode: tc\n").expect("written");
    let started = Instant::now();
    let daemon = manager.start(&star, path);

    assert_eq!(manager.next_state(), "READY=1\n");
    assert_eq!(traces(router, &["eth0"]).tc.len(), 1, "it is attached");
    manager.wait_status("forwarding on 1 port; ");

    // From the event loop: none while it stands still. Messages may have waited in the socket since
    // the start.
    let keep_alive = || while manager.next() != "WATCHDOG=1\n" {};
    (0..5).for_each(|_| keep_alive());
    assert!(started.elapsed() > Duration::from_millis(600), "too often");
    daemon.signal(Signal::SIGSTOP);
    let quiet = Some(Duration::from_millis(900));
    manager.socket.set_read_timeout(quiet).expect("set");
    while manager.socket.recv(&mut [0; 64]).is_ok() {}
    manager
        .socket
        .set_read_timeout(Some(PATIENCE))
        .expect("set");
    daemon.signal(Signal::SIGCONT);
    keep_alive();

    // A reload by signal, and one that fails.
    fs::write(&file, "ports: [eth0, eth1]\n").expect("written");
    daemon.signal(Signal::SIGHUP);
    let reloading = manager.next_state();
    let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    let time = time.and_then(|time| time.trim_end().parse::<u64>().ok());
    assert!(time.is_some_and(|time| time > 0), "{reloading}");
    assert_eq!(manager.next_state(), "READY=1\n");
    manager.wait_status("forwarding on 2 ports; ");
    fs::write(&file, "prots: [eth0]\n").expect("written");
    daemon.signal(Signal::SIGHUP);
    assert!(manager.next_state().starts_with("RELOADING=1\n"));
    assert_eq!(manager.next_state(), "READY=1\n");
    manager.wait_status("warning");

    printed(router, &["stop"]);
    assert_eq!(manager.next_state(), "STOPPING=1\n");
}
