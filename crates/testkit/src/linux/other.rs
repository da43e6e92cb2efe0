//! Another data plane on the ports of the node: its frames, and the routes that Linux lacks.

use std::thread;
use std::time::{Duration, Instant};

use super::{Output, SUT, Sut, TESTER, ignored, lacking};
use crate::Error;
use crate::netns::Namespace;
use crate::vectors::Node;

impl Sut {
    /// As [`Sut::exchange`], for a data plane outside the kernel: returns the frames that leave within
    /// this time. Its frames may leave after a marker.
    ///
    /// # Errors
    /// The port does not exist, or the frame is longer than its MTU.
    pub fn exchange_within(
        &self,
        port: &str,
        frame: &[u8],
        patience: Duration,
    ) -> Result<Vec<Output>, Error> {
        let known = self.ports.iter().find(|known| known.name == port);
        let ingress = known.ok_or_else(|| Error::Usage(format!("no port {port}")))?;
        for port in &self.ports {
            port.tester.drain()?;
        }
        ingress.tester.send(frame)?;
        self.more_within(patience, |_| false)
    }

    /// Returns the frames that leave within this time, or until they are enough.
    ///
    /// # Errors
    /// A socket fails.
    pub fn more_within(
        &self,
        patience: Duration,
        is_enough: impl Fn(&[Output]) -> bool,
    ) -> Result<Vec<Output>, Error> {
        let until = Instant::now() + patience;
        let mut outputs = Vec::new();
        while Instant::now() < until && !is_enough(&outputs) {
            thread::sleep(Duration::from_millis(1));
            for port in &self.ports {
                while let Some(frame) = port.tester.receive_now()? {
                    outputs.push((port.name.clone(), frame));
                }
            }
            outputs.retain(|output| !self.is_own_noise(output));
        }
        Ok(outputs)
    }

    /// Returns the routes of the node that its kernel lacks or has in part, with reasons. Removes the
    /// latter, so that another data plane can take them.
    ///
    /// # Errors
    /// `ip` cannot print or remove a route.
    pub fn not_in_linux(&self, node: &Node) -> Result<Vec<(String, String)>, Error> {
        let mut lines = Vec::new();
        for line in &node.routes {
            let words = lacking::in_linux_words(line);
            let command = format!("ip route add {words}");
            let refused = self.refused.iter().find(|refused| refused.line == command);
            let lacking = self.lacking.iter().find(|lacking| lacking.route == words);
            let why = if line.ends_with(" owner sidestep") {
                Some("Linux does not have this behavior".to_owned())
            } else if let Some(refused) = refused {
                let reason = refused.reason.replace('\n', " ");
                Some(format!("`{command}`: {reason}"))
            } else if let Some(lacking) = lacking {
                Some(lacking.why.clone())
            } else {
                self.remove_if_ignored(&words)?
            };
            lines.extend(why.map(|why| (line.clone(), why)));
        }
        Ok(lines)
    }

    /// Removes a route if the kernel ignores a part of it, and returns the reason.
    fn remove_if_ignored(&self, route: &str) -> Result<Option<String>, Error> {
        if lacking::left_out(route, "").is_none() {
            return Ok(None);
        }
        let sut = self.lab.namespace(SUT)?;
        let why = ignored(sut, route)?;
        if why.is_some() {
            let command = format!("ip route del {route}");
            sut.exec(&command.split_whitespace().collect::<Vec<_>>())?;
        }
        Ok(why)
    }

    /// Returns the namespace at the other ends of the ports.
    ///
    /// # Errors
    /// None in practice: every lab has it.
    pub fn tester(&self) -> Result<&Namespace, Error> {
        self.lab.namespace(TESTER)
    }
}
