//! The order in which things are shown.

use std::net::IpAddr;

use super::super::Error;
use super::super::crossing::{carried_it_itself, cross, parsed};
use super::super::product::Sidestep;
use super::super::screen::Screen;
use super::super::stage::Stage;
use super::super::topology::{Between, decapsulation4, execute, instruct, named};
use super::change::{Change, Ends, during};
use super::functions::{WINDOW, arriving, connects, dropped};
use super::topology::{
    A4, A6, B4, B6, BLOCKED, LIMIT, LIMITED, NODES, PICTURE, ROUTERS, SHORT, WHOLE, commands,
    ports, proxies, steer,
};
use crate::program::Interrupt;
use crate::{FrameSocket, Lab, Namespace};

/// One telling.
#[derive(Clone, Copy, Debug)]
pub struct Story<'a> {
    lab: &'a Lab,
    sidestep: &'a Sidestep,
    screen: &'a Screen,
    interrupt: &'a Interrupt,
}

impl<'a> Story<'a> {
    /// A story on a stage.
    ///
    /// # Errors
    /// The stage is empty.
    pub fn new(
        stage: &'a Stage,
        screen: &'a Screen,
        interrupt: &'a Interrupt,
    ) -> Result<Self, Error> {
        Ok(Self {
            lab: stage.lab()?,
            sidestep: stage.sidestep(),
            screen,
            interrupt,
        })
    }

    /// From the empty network to the closing line, which is returned.
    ///
    /// # Errors
    /// Something did not hold, or somebody wants it to end.
    pub fn tell(&self) -> Result<String, Error> {
        self.network()?;
        self.start()?;
        self.screen.heading("Through both functions, both ways");
        cross(self.lab, ["a", "b"], [B6, B4], self.screen, self.interrupt)?;
        cross(self.lab, ["b", "a"], [A6, A4], self.screen, self.interrupt)?;
        carried_it_itself(self.lab, self.sidestep, &ROUTERS, self.screen)?;
        let blocked = self.firewall()?;
        let limited = self.limiter()?;
        self.counters()?;
        let changes = self.changes()?;
        Ok(closing(blocked, limited, changes))
    }

    fn network(&self) -> Result<(), Error> {
        let screen = self.screen;
        screen.heading("The network");
        let way = decapsulation4(self.lab.namespace("pe2")?);
        screen.quote(&named(PICTURE, way));
        screen.note(
            "Every box is a network namespace, every line a veth pair with its offloads on, as containers have them. The \
             edges wrap packets into SRv6: the segments are the firewall's, the rate limiter's, and the other edge's; on \
             the way back in the opposite order.",
        );
        screen.heading("The configuration: plain ip and nft commands, executed as shown");
        for node in NODES {
            instruct(self.lab, node, &commands(node, way), screen, self.interrupt)?;
        }
        Ok(())
    }

    fn start(&self) -> Result<(), Error> {
        let screen = self.screen;
        screen.heading("Sidestep on four nodes, and what Linux does not have: the SR proxies");
        for router in ROUTERS {
            self.interrupt.check()?;
            let words = [&["run", "--detach"], ports(router)].concat();
            self.tell_sidestep(router, &words)?;
        }
        for (node, proxy) in proxies() {
            let words: Vec<&str> = ["route", "add"]
                .into_iter()
                .chain(proxy.split(' '))
                .collect();
            self.tell_sidestep(node, &words)?;
        }
        Ok(())
    }

    fn tell_sidestep(&self, router: &str, words: &[&str]) -> Result<(), Error> {
        self.screen
            .command(router, &format!("sidestep {}", words.join(" ")));
        let namespace = self.lab.namespace(router)?;
        self.sidestep.text(namespace, words).map(drop)
    }

    /// Returns how many packets the firewall dropped.
    fn firewall(&self) -> Result<u64, Error> {
        let screen = self.screen;
        screen.heading("What the firewall blocks, and what it lets pass");
        let (a, b) = (self.lab.namespace("a")?, self.lab.namespace("b")?);
        for (from, to, names, addresses) in [(a, b, "a > b", [B6, B4]), (b, a, "b > a", [A6, A4])] {
            for address in addresses {
                for (port, expected) in [(BLOCKED, false), (BLOCKED + 1, true)] {
                    self.interrupt.check()?;
                    let connected = connects(from, to, parsed(address)?, port)?;
                    if connected != expected {
                        return Err(Error::Wrong(format!(
                            "{names}: TCP to {address} port {port}: connected: {connected}"
                        )));
                    }
                    let came = if expected { "connected" } else { "blocked" };
                    screen.good(&format!("{names}: TCP to {address} port {port}: {came}"));
                }
            }
        }
        self.dropped("fw")
    }

    /// Returns how many packets the limiter dropped.
    fn limiter(&self) -> Result<u64, Error> {
        let screen = self.screen;
        screen.heading("What the rate limiter lets pass");
        let (a, b) = (self.lab.namespace("a")?, self.lab.namespace("b")?);
        for address in [B6, B4] {
            let to = parsed(address)?;
            let all = self.datagrams([a, b], to, LIMITED + 1)?;
            let limited = self.datagrams([a, b], to, LIMITED)?;
            screen.good(&format!(
                "{DATAGRAMS} datagrams to {address} in a second: port {} all, port {LIMITED} {limited}",
                LIMITED + 1
            ));
            let (rate, burst) = LIMIT;
            if all != DATAGRAMS || limited < rate / 2 || limited > (rate + burst) * 2 {
                return Err(Error::Wrong(format!(
                    "{address}: {all} and {limited} datagrams arrived, at a limit of {rate} per second"
                )));
            }
        }
        self.dropped("lim")
    }

    fn datagrams(&self, ends: [&Namespace; 2], to: IpAddr, port: u16) -> Result<u32, Error> {
        arriving(ends[0], ends[1], to, port, DATAGRAMS, self.interrupt)
    }

    fn dropped(&self, function: &str) -> Result<u64, Error> {
        let count = dropped(self.lab.namespace(function)?)?;
        self.screen.good(&format!(
            "{function} counted {count} dropped packets itself (nft list counters)"
        ));
        if count == 0 {
            return Err(Error::Wrong(format!("{function} dropped nothing")));
        }
        Ok(count)
    }

    fn counters(&self) -> Result<(), Error> {
        let screen = self.screen;
        screen.heading("The counters of the NFV nodes");
        for node in ["nfv1", "nfv2"] {
            for words in [&["route", "show", "-s"][..], &["show", "drops"]] {
                self.interrupt.check()?;
                screen.command(node, &format!("sidestep {}", words.join(" ")));
                let text = self.sidestep.text(self.lab.namespace(node)?, words)?;
                screen.quote(text.trim_matches('\n'));
            }
        }
        Ok(())
    }

    /// Without the rate limiter, and with it again.
    fn changes(&self) -> Result<[Change; 2], Error> {
        let screen = self.screen;
        screen.heading("The chain changes while packets go through it");
        screen.note(
            "Only the edge is told. The proxies learn the new headers from the first packet that has them.",
        );
        let without = self.change("the rate limiter is left out", SHORT)?;
        let with = self.change("and is back", WHOLE)?;
        Ok([without, with])
    }

    fn change(&self, what: &str, chain: Between<'_>) -> Result<Change, Error> {
        let ends = Ends {
            from: self.lab.namespace("a")?,
            to: self.lab.namespace("b")?,
            address: parsed(B6)?,
            behind: FrameSocket::open(self.lab.namespace("pe2")?, "eth0")?,
        };
        let (edge, command) = (self.lab.namespace("pe1")?, steer(chain));
        self.screen.command("pe1", &command);
        let segments = chain[0][0].split(',').count() as u8 + 1;
        let change = during(&ends, segments, self.interrupt, || execute(edge, &command))?;
        let Change {
            took,
            sent,
            arrived,
        } = change;
        self.screen.good(&format!(
            "{what}: {:.1} ms from the start of the command to the first packet that came out with {segments} segments; \
             {arrived} of {sent} packets arrived",
            took.as_secs_f64() * 1e3,
        ));
        Ok(change)
    }
}

fn closing(blocked: u64, limited: u64, changes: [Change; 2]) -> String {
    let slowest = changes.map(|change| change.took).into_iter().max();
    let lost: usize = changes.iter().map(|it| it.sent - it.arrived).sum();
    format!(
        "Result: two functions that know nothing of SRv6 in one chain, both ways, IPv6 and IPv4: {blocked} packets \
         blocked, {limited} beyond the limit; a changed chain learned in {:.1} ms, {lost} packets lost.",
        slowest.unwrap_or_default().as_secs_f64() * 1e3,
    )
}

/// Sent in one [`WINDOW`].
const DATAGRAMS: u32 = 500;
const _: () = assert!(WINDOW.as_secs() == 1);
