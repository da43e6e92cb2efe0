//! The router with its service routes, and three hosts.

use std::net::Ipv6Addr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use sidestep_testkit::lab::mac_text;
use sidestep_testkit::{Error, Lab, Napi};

use super::traffic::{Observed, Traffic};
use super::{Change, Options};
use crate::engine::product::{Sidestep, punted};

/// Part of the namespace names that identifies this measurement.
pub const LAB: &str = "converge";
/// Links of the router: its port, the host, and the middle of their prefix.
const LINKS: [(&str, &str, &str); 3] = [("eth0", "a", "a"), ("eth1", "b", "b"), ("eth2", "c", "c")];
/// Port that packets arrive by.
const INGRESS: &str = "eth0";
/// Time limit for the first packets through the engine.
const READY: Duration = Duration::from_secs(60);
/// Number of destinations, so that both members of a group are in use.
const DESTINATIONS: usize = 256;

/// A data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The kernel alone.
    Linux,
    /// Sidestep in this mode.
    Sidestep(&'static str),
}

impl Engine {
    /// Returns the engine of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Self, Error> {
        match name {
            "linux" => Ok(Self::Linux),
            "tc" => Ok(Self::Sidestep("tc")),
            "xdp" => Ok(Self::Sidestep("xdp-always")),
            _ => Err(Error::Wrong(format!(
                "no engine {name}: allowed are linux, tc, xdp"
            ))),
        }
    }

    /// Returns the name in results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Sidestep("tc") => "sidestep-tc",
            Self::Sidestep(_) => "sidestep-xdp",
        }
    }

    /// Whether it is Sidestep.
    pub const fn is_sidestep(&self) -> bool {
        matches!(self, Self::Sidestep(_))
    }
}

/// The router and its hosts.
pub struct Network<'a> {
    lab: Lab,
    sidestep: Option<&'a Sidestep>,
    _napi: Vec<Napi>,
}

impl<'a> Network<'a> {
    /// Builds the network, starts the engine, makes the change while packets pass, and removes
    /// everything.
    ///
    /// # Errors
    /// The kernel or the engine refuses, or packets do not arrive before the change.
    pub fn measure(
        engine: &Engine,
        sidestep: Option<&'a Sidestep>,
        change: &Change,
        routes: usize,
        options: &Options,
    ) -> Result<Observed, Error> {
        let mut network = Self::new()?;
        let lines = change.prepare.iter().map(|line| (*line).to_owned());
        let services = (0..routes).map(|n| format!("route add {}/64 {}", prefix(n), change.route));
        network.batch(&lines.chain(services).collect::<Vec<_>>().join("\n"))?;
        if let (Engine::Sidestep(mode), Some(program)) = (engine, sidestep) {
            let ports = LINKS.map(|(port, _, _)| port);
            program.detach(
                network.lab.namespace("r")?,
                mode,
                &json!({ "ports": ports }),
            )?;
            network.sidestep = Some(program);
        }
        let spread = routes.div_ceil(DESTINATIONS).max(1);
        let destinations = (0..routes).step_by(spread);
        let destinations: Vec<Ipv6Addr> = destinations.map(prefix).map(host).collect();
        let traffic = Traffic::new(&network.lab, &destinations, options.rate)?;
        traffic.wait(READY)?;
        let punted = || match network.sidestep {
            Some(program) => punted(&program.counters(network.lab.namespace("r")?)?, INGRESS),
            None => Ok(0),
        };
        // Time for the work of the daemon after its start.
        thread::sleep(Duration::from_millis(500));
        let before = punted()?;
        let words: Vec<&str> = ["ip"]
            .into_iter()
            .chain(change.command.split(' '))
            .collect();
        let node = network.lab.namespace(change.node)?;
        let mut observed = traffic.observe(options.after, || node.exec(&words).map(drop))?;
        observed.punted = punted()? - before;
        Ok(observed)
    }

    fn new() -> Result<Self, Error> {
        let mut lab = Lab::new(LAB)?;
        lab.node("r")?.node("a")?.node("b")?.node("c")?;
        for (port, host, _) in LINKS {
            lab.link("r", port, host, "eth0")?;
        }
        let napi = ["b", "c"].map(|host| Napi::attach(lab.namespace(host)?, "eth0"));
        let napi = napi.into_iter().collect::<Result<_, _>>()?;
        let router = lab.namespace("r")?;
        router.sysctl("net/ipv6/conf/all/forwarding", "1")?;
        for (port, host, middle) in LINKS {
            let address = |last: u8| format!("fc00:{middle}::{last}/64");
            router.exec(&["ip", "address", "add", &address(1), "dev", port])?;
            // The source of solicitations for forwarded packets (`ndisc_send_ns`).
            router.exec(&["ip", "address", "add", "fe80::1/64", "dev", port])?;
            let there = lab.namespace(host)?;
            there.exec(&["ip", "address", "add", &address(2), "dev", "eth0"])?;
            let (via, mac) = (
                format!("fc00:{middle}::2"),
                mac_text(lab.mac(host, "eth0")?),
            );
            router.exec(&["ip", "neighbor", "add", &via, "lladdr", &mac, "dev", port])?;
        }
        router.exec(&["ip", "sr", "tunsrc", "set", "fc00:a::1"])?;
        Ok(Self {
            lab,
            sidestep: None,
            _napi: napi,
        })
    }

    /// Runs lines of `ip` on the router.
    fn batch(&self, lines: &str) -> Result<(), Error> {
        let router = self.lab.namespace("r")?;
        let output = router.exec_with_input(&["ip", "-batch", "-"], lines)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Wrong(text));
        }
        Ok(())
    }
}

impl Drop for Network<'_> {
    fn drop(&mut self) {
        if let (Some(program), Ok(router)) = (self.sidestep, self.lab.namespace("r")) {
            // Removing the namespace is enough if it has ended already.
            let _ = program.stops(router.name()).output();
        }
    }
}

/// Returns the prefix of a service route, of 64 bits.
fn prefix(number: usize) -> Ipv6Addr {
    Ipv6Addr::from((0x2001_0db8_0000_0000 + number as u128) << 64)
}

/// Returns an address in a prefix.
fn host(prefix: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(prefix) | 1)
}

/// Waits until `is_done`, at most this long. Returns whether it is.
pub fn within(
    limit: Duration,
    mut is_done: impl FnMut() -> Result<bool, Error>,
) -> Result<bool, Error> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if is_done()? {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(false)
}
