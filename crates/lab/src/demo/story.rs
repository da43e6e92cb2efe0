//! The order in which things are shown.

use std::net::Ipv6Addr;

use super::crossing::{carried_it_itself, cross};
use super::frame::{Udp, headers};
use super::product::{Mode, Sidestep};
use super::screen::Screen;
use super::stage::Stage;
use super::throughput::{FRAME, Throughput, measure, mpps};
use super::topology::{
    A6, B4, B6, Decapsulation4, HOST_PORT, ROUTERS, configure, decapsulation4,
    deliver_complete_frames, picture,
};
use super::{Error, frame};
use crate::Lab;
use crate::frames::FrameSocket;
use crate::program::Interrupt;
use crate::traffic::Napi;

/// One telling.
#[derive(Clone, Copy, Debug)]
pub struct Story<'a> {
    lab: &'a Lab,
    sidestep: &'a Sidestep,
    screen: &'a Screen,
    interrupt: &'a Interrupt,
    /// Every port here is a veth between complete frames, where XDP is right; `--mode auto` would choose TC on a veth.
    mode: Mode,
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
            mode: Mode::of_this_kernel(),
        })
    }

    /// From the empty network to the closing line, which is returned. At the end Sidestep runs if it is to `stay`.
    ///
    /// # Errors
    /// Something did not hold, or somebody wants it to end.
    pub fn tell(&self, stay: bool) -> Result<String, Error> {
        self.network()?;
        self.screen.heading("Linux alone");
        self.cross()?;
        let before = self.linux_throughput()?;
        self.start()?;
        self.cross()?;
        self.screen.note(
            "The answers' hop limit is one less: both edges decrement it, as RFC 8986 5.1 asks of the headend too, \
             where Linux leaves it.",
        );
        carried_it_itself(self.lab, self.sidestep, &ROUTERS, self.screen)?;
        self.way_of_a_packet()?;
        self.counters()?;
        self.screen.heading("The same small packets, with Sidestep");
        let sidestep = self.throughput()?;
        self.stop()?;
        let after = self.linux_throughput()?;
        let closing = self.side_by_side([before, after], sidestep);
        if stay {
            self.start()?;
        }
        Ok(closing)
    }

    fn network(&self) -> Result<(), Error> {
        let screen = self.screen;
        screen.heading("The network");
        let way = decapsulation4(self.lab.namespace("pe2")?);
        screen.quote(&picture(way));
        screen.note(
            "Every box is a network namespace, every line a veth pair. Two customers, IPv6 and IPv4; pe1 and pe2 wrap \
             their packets into SRv6 with two segments: p, then the other edge.",
        );
        screen.heading("The configuration: plain ip commands, executed as shown");
        match way {
            Decapsulation4::Dx4 => screen.note(
                "IPv4 ends in End.DX4: Linux has End.DT4 only with a VRF device, and this kernel has none \
                 (CONFIG_NET_VRF).",
            ),
            Decapsulation4::Dt4 => screen.note(
                "IPv4 ends in End.DT4 with `vrftable`, the only form Linux has; hence the VRF device.",
            ),
        }
        configure(self.lab, way, screen, self.interrupt)?;
        deliver_complete_frames(self.lab, true)?;
        screen.note(
            "Hosts a and b: checksum and segmentation offload off, as a network card would deliver complete frames \
             (XDP sees no offload state); GRO on, so that their veths take what XDP redirects.",
        );
        Ok(())
    }

    /// The first veth behind the generator has to take XDP redirects, as it does with Sidestep on it.
    fn linux_throughput(&self) -> Result<Throughput, Error> {
        let _napi = Napi::attach(self.lab.namespace("pe1")?, "eth0")?;
        self.throughput()
    }

    /// Ping and TCP, both families.
    fn cross(&self) -> Result<(), Error> {
        cross(self.lab, ["a", "b"], [B6, B4], self.screen, self.interrupt)
    }

    fn throughput(&self) -> Result<Throughput, Error> {
        let result = measure(self.lab, &self.udp(&[0; FRAME - 62])?, self.interrupt)?;
        self.screen.good(&format!(
            "{FRAME}-byte UDP packets a > b, one flow, counted at b: {} in XDP, {} at TC ingress",
            mpps(result.at_xdp),
            mpps(result.at_tc),
        ));
        Ok(result)
    }

    fn start(&self) -> Result<(), Error> {
        let screen = self.screen;
        screen.heading("Sidestep on the three routers; nothing else is configured");
        if self.mode == Mode::Tc {
            screen.note(
                "In TC, not in XDP: only kernels from 6.3 on tell whether a veth takes XDP redirects, and Sidestep \
                 does not guess.",
            );
        }
        for router in ROUTERS {
            self.interrupt.check()?;
            screen.command(router, &self.mode.command());
            let namespace = self.lab.namespace(router)?;
            self.sidestep.start(namespace, self.mode)?;
            let targets = self.sidestep.targets(namespace)?;
            let asked = self.mode.word();
            if let Some((port, target)) = targets.iter().find(|(_, target)| target != asked) {
                return Err(Error::Wrong(format!(
                    "{router}: {port} got the target {target}; asked was {asked}"
                )));
            }
        }
        Ok(())
    }

    fn stop(&self) -> Result<(), Error> {
        let screen = self.screen;
        screen.heading("Linux alone, once more");
        for router in ROUTERS {
            self.interrupt.check()?;
            screen.command(router, "sidestep stop");
            self.sidestep.stop(self.lab.namespace(router)?)?;
        }
        Ok(())
    }

    fn way_of_a_packet(&self) -> Result<(), Error> {
        let screen = self.screen;
        screen.heading("The way of one packet: `sidestep explain` on each router");
        let mut frame = self.udp(b"one packet's way")?;
        let sent = frame.clone();
        screen.strong("  host a sends");
        self.show_headers(&frame);
        for router in ROUTERS {
            self.interrupt.check()?;
            let namespace = self.lab.namespace(router)?;
            let explained = self.sidestep.explain(namespace, "eth0", &frame)?;
            screen.strong(&format!(
                "  {router}, in by eth0, out by {}",
                explained.egress
            ));
            screen.quote(explained.text.trim_matches('\n'));
            frame = explained.frame;
        }
        screen.strong("  host b receives");
        self.show_headers(&frame);
        self.really_arrives(&sent, &frame)?;
        screen.good(
            "the same packet, really sent by host a, arrived at host b with exactly these bytes",
        );
        Ok(())
    }

    fn show_headers(&self, frame: &[u8]) {
        for line in headers(frame) {
            self.screen.line(&format!("    {line}"));
        }
    }

    /// Sends a frame at host a and compares what host b receives.
    fn really_arrives(&self, sent: &[u8], expected: &[u8]) -> Result<(), Error> {
        let (a, b) = (self.lab.namespace("a")?, self.lab.namespace("b")?);
        let (near, far) = (
            FrameSocket::open(a, HOST_PORT)?,
            FrameSocket::open(b, HOST_PORT)?,
        );
        near.send(sent)?;
        while let Some(frame) = far.receive(PATIENCE)? {
            self.interrupt.check()?;
            if frame == expected {
                return Ok(());
            }
            // Anything else that a host says meanwhile is not UDP to port 9.
            if frame.get(54..58) == expected.get(54..58) {
                let difference = crate::hexdiff::diff(expected, &frame);
                return Err(Error::Wrong(format!(
                    "host b received other bytes than `sidestep explain` told:\n{difference}"
                )));
            }
        }
        Err(Error::Wrong(
            "the packet that was sent did not arrive at host b".into(),
        ))
    }

    fn counters(&self) -> Result<(), Error> {
        self.screen.heading("The counters");
        for router in ROUTERS {
            let namespace = self.lab.namespace(router)?;
            for words in [["show", "counters"], ["show", "drops"]] {
                self.interrupt.check()?;
                self.screen
                    .command(router, &format!("sidestep {}", words.join(" ")));
                let text = self.sidestep.text(namespace, &words)?;
                self.screen.quote(text.trim_matches('\n'));
            }
            self.screen.line("");
        }
        Ok(())
    }

    /// Linux was measured before and after; its better figure counts.
    fn side_by_side(&self, linux: [Throughput; 2], sidestep: Throughput) -> String {
        let screen = self.screen;
        screen.heading("Side by side");
        let [before, after] = linux.map(|throughput| throughput.better());
        let packets = [before.max(after), sidestep.better()];
        let ratio = times(packets[1] / packets[0]);
        let row = |title: &str, show: &dyn Fn(f64) -> String| {
            let [linux, sidestep] = packets.map(show);
            vec![title.to_owned(), linux, sidestep, ratio.clone()]
        };
        screen.table(&[
            ["", "Linux alone", "Sidestep", "ratio"]
                .map(str::to_owned)
                .to_vec(),
            row(&format!("{FRAME}-byte packets a > b, per second"), &mpps),
            row("one packet, generator and sink included", &|packets| {
                format!("{:.0} ns", 1e9 / packets)
            }),
        ]);
        screen.note(
            "One CPU runs generator, three routers and sink. Each data plane is given the better of the two places to \
             count at host b, and the best of several trials; Linux also the better of before and after.",
        );
        if before.max(after) > UNSTEADY * before.min(after) {
            screen.note(&format!(
                "This machine does other things too: Linux alone made {} before and {} after. Where it is idle, the \
                 figures are higher and the ratio is steadier.",
                mpps(before),
                mpps(after),
            ));
        }
        format!(
            "Result: Sidestep {}, Linux alone {}: {ratio}; same network, same ip commands.",
            mpps(packets[1]),
            mpps(packets[0]),
        )
    }

    /// A UDP packet from host a to host b.
    fn udp(&self, payload: &[u8]) -> Result<Vec<u8>, Error> {
        let address = |text: &str| -> Result<Ipv6Addr, Error> {
            text.parse()
                .map_err(|_| Error::Usage(format!("{text}: no IPv6 address")))
        };
        let udp = Udp {
            destination: self.lab.mac("pe1", "eth0")?,
            source: self.lab.mac("a", HOST_PORT)?,
            from: address(A6)?,
            to: address(B6)?,
            port: frame::DISCARD,
            payload,
        };
        Ok(udp.frame())
    }
}

/// `3.3 times`.
fn times(ratio: f64) -> String {
    format!("{ratio:.1} times")
}

/// Two figures of the same thing that differ by more are told.
const UNSTEADY: f64 = 1.2;
/// For one frame over three routers.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
