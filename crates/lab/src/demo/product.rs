//! Sidestep as an operator uses it: by its command line, in the namespace of a router.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Error;
use super::topology::PORTS;
use crate::Namespace;

/// The `sidestep` program.
#[derive(Clone, Debug)]
pub struct Sidestep {
    path: PathBuf,
}

/// What a router would do with one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The steps as `sidestep explain` tells them.
    pub text: String,
    /// The port by which the frame leaves.
    pub egress: String,
    /// The frame as it leaves, from its destination MAC on.
    pub frame: Vec<u8>,
}

/// What one port has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Frames that came in.
    pub received: u64,
    /// Of them, sent on.
    pub forwarded: u64,
    /// Of them, left to the kernel.
    pub kernel: u64,
    /// Of them, dropped.
    pub dropped: u64,
}

/// Where in the kernel Sidestep runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before there is a socket buffer.
    Xdp,
    /// On socket buffers.
    Tc,
}

impl Mode {
    /// XDP, where the kernel tells which veth takes redirects.
    pub fn of_this_kernel() -> Self {
        // No /proc: then nothing else of the demo works either.
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self::of_release(&release)
    }

    /// 6.3 brought `xdp_features` (net/core/netdev-genl.c).
    fn of_release(release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next()?.parse::<u32>().ok();
        let version = (number().unwrap_or_default(), number().unwrap_or_default());
        if version >= (6, 3) {
            Self::Xdp
        } else {
            Self::Tc
        }
    }

    /// As `--mode` and `show ports` have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Tc => "tc",
        }
    }

    /// What starts Sidestep on a router, as it is printed.
    pub fn command(self) -> String {
        let (mode, ports) = (self.word(), PORTS.join(" "));
        format!("sidestep run --mode {mode} --detach {ports}")
    }
}

impl Sidestep {
    /// `$SIDESTEP`, else the program next to this one.
    ///
    /// # Errors
    /// It is at neither place.
    pub fn find() -> Result<Self, Error> {
        let path = crate::program::find()?;
        Ok(Self { path })
    }

    /// Where the program is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts it on both ports of a router and returns when it forwards.
    ///
    /// # Errors
    /// It refuses.
    pub fn start(&self, router: &Namespace, mode: Mode) -> Result<(), Error> {
        let words = ["run", "--mode", mode.word(), "--detach", PORTS[0], PORTS[1]];
        self.text(router, &words).map(drop)
    }

    /// Detaches and ends it.
    ///
    /// # Errors
    /// It does not run there.
    pub fn stop(&self, router: &Namespace) -> Result<(), Error> {
        self.text(router, &["stop"]).map(drop)
    }

    /// What a command prints.
    ///
    /// # Errors
    /// It refuses; the message is its own.
    pub fn text(&self, router: &Namespace, words: &[&str]) -> Result<String, Error> {
        let path = self.path.to_string_lossy();
        let all: Vec<&str> = [&*path].into_iter().chain(words.iter().copied()).collect();
        Ok(router.exec(&all)?)
    }

    /// What a command prints as JSON.
    fn json(&self, router: &Namespace, words: &[&str]) -> Result<Value, Error> {
        let text = self.text(router, &[words, &["-j"]].concat())?;
        serde_json::from_str(&text)
            .map_err(|error| unexpected(words, &format!("{error}: {}", text.trim_end())))
    }

    /// Runs a frame through the live tables of a router, without sending it.
    ///
    /// # Errors
    /// It would not be forwarded.
    pub fn explain(
        &self,
        router: &Namespace,
        port: &str,
        frame: &[u8],
    ) -> Result<Explained, Error> {
        let hex = hex::encode(frame);
        let words = ["explain", "--port", port, "--frame", &hex];
        let value = self.json(router, &words)?;
        let shown = words[..3].join(" ");
        let (Some(egress), Some(out)) = (
            value["egress"].as_str(),
            value["frame"]
                .as_str()
                .and_then(|text| hex::decode(text).ok()),
        ) else {
            return Err(Error::Wrong(format!(
                "{}: `sidestep {shown}` does not forward the packet: {}",
                router.name(),
                value["verdict"]
            )));
        };
        Ok(Explained {
            text: self.text(router, &words)?,
            egress: egress.to_owned(),
            frame: out,
        })
    }

    /// What the ports of a router have counted, together.
    ///
    /// # Errors
    /// The answer has no such counters.
    pub fn tally(&self, router: &Namespace) -> Result<Tally, Error> {
        let words = ["show", "counters"];
        let value = self.json(router, &words)?;
        let ports = value["ports"]
            .as_array()
            .ok_or_else(|| unexpected(&words, "no list `ports`"))?;
        let sum = |field: &str| {
            let values = ports.iter().map(|port| port[field].as_u64());
            values
                .sum::<Option<u64>>()
                .ok_or_else(|| unexpected(&words, &format!("no number `{field}`")))
        };
        Ok(Tally {
            received: sum("received_packets")?,
            forwarded: sum("forwarded")?,
            kernel: sum("kernel")?,
            dropped: sum("dropped")?,
        })
    }

    /// The target of each port of a router, and why it is that: `eth0 xdp: …`.
    ///
    /// # Errors
    /// The answer has no ports.
    pub fn targets(&self, router: &Namespace) -> Result<Vec<(String, String)>, Error> {
        let words = ["show", "ports"];
        let value = self.json(router, &words)?;
        let ports = value.as_array().filter(|ports| !ports.is_empty());
        let ports = ports.ok_or_else(|| unexpected(&words, "no ports"))?;
        let word = |port: &Value, field: &str| port[field].as_str().unwrap_or("?").to_owned();
        Ok(ports
            .iter()
            .map(|port| (word(port, "name"), word(port, "target")))
            .collect())
    }
}

fn unexpected(words: &[&str], what: &str) -> Error {
    Error::Product(format!("`sidestep {} -j`: {what}", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xdp_is_chosen_from_the_kernel_on_that_tells_which_veth_takes_redirects() {
        let modes = ["6.18.44-fc", "6.3.0", "6.2.16", "6.1.0-50-cloud-amd64", ""];
        let expected = [Mode::Xdp, Mode::Xdp, Mode::Tc, Mode::Tc, Mode::Tc];
        assert_eq!(modes.map(Mode::of_release), expected);
    }
}
