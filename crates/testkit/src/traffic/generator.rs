//! The generator at full speed: one pinned thread sends XDP live frames (`BPF_PROG_TEST_RUN` with
//! `BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18) out of one interface without pacing. Count them at the
//! [`super::Sink`]; the generator itself knows the number of sent packets only after it has
//! stopped. Trials use [`super::LiveFrames`].

use super::program::Program;
use super::run::{BATCH, Run};
use super::stream::Template;
use crate::{Error, Namespace};

/// A running generator; stopped when dropped.
#[derive(Debug)]
pub struct Generator {
    // Declared before the program, which it uses, so that it is dropped first.
    run: Run,
    program: Program,
}

impl Generator {
    /// Sends `template` out of `ifname` as fast as one CPU can, from a thread pinned to `cpu`,
    /// until stopped. The other end of a veth must take XDP redirects: a [`super::Sink`], a
    /// [`crate::Napi`], any XDP program, or GRO.
    ///
    /// # Errors
    /// No such interface or CPU, BPF is not allowed, or the kernel has no live frames (before
    /// 5.18).
    pub fn start(
        namespace: &Namespace,
        ifname: &str,
        template: &Template,
        cpu: usize,
    ) -> Result<Self, Error> {
        let program = Program::of_template(template, namespace.ifindex(ifname)?)?;
        let (descriptor, frame) = (program.descriptor()?, program.frame().to_owned());
        let run = Run::start(descriptor, frame, BATCH, namespace.handle(), cpu)?;
        Ok(Self { run, program })
    }

    /// Ends the run, and returns the number of generated frames. The flows take turns, starting
    /// with the first one. Only frames that did not fit the ring of a veth are lost.
    ///
    /// # Errors
    /// The kernel refused live frames, which ended the run early.
    pub fn stop(mut self) -> Result<u64, Error> {
        self.run.stop()?;
        Ok(self.program.state()?.made)
    }

    /// Returns whether the generator still sends. If not, [`Self::stop`] returns the error.
    pub fn is_running(&self) -> bool {
        self.run.is_running()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Napi;
    use crate::traffic::{Flows, Hook, Sink};
    use crate::{FrameSocket, Lab, root_or_skip};

    const SECOND: Duration = Duration::from_secs(1);

    /// The length is not a multiple of 8, so that all code that copies bytes runs.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0x02; 12];
        frame.extend([0x88, 0xb5]);
        frame.extend(1..=93);
        frame
    }

    fn pair(name: &str) -> Lab {
        let mut lab = Lab::new(name).expect("lab");
        lab.node("a")
            .expect("a")
            .node("b")
            .expect("b")
            .link("a", "eth0", "b", "eth0")
            .expect("link");
        lab
    }

    #[test]
    fn frames_of_all_flows_equal_the_template_with_a_valid_checksum() {
        if !root_or_skip() {
            return;
        }
        let lab = pair("generator");
        let far = lab.namespace("b").expect("b");
        let _napi = Napi::attach(far, "eth0").expect("NAPI");
        let socket = FrameSocket::open(far, "eth0").expect("socket");
        // Adding flows to the sum of this checksum carries into its upper byte and wraps around.
        let mut template = frame();
        template[20..22].copy_from_slice(&[0x00, 0x01]);
        let flows = Flows {
            count: 3,
            offset: 16,
            checksum: Some(20),
        };
        let template_flows = Template::new(&template, flows).expect("template");
        let generator =
            Generator::start(lab.namespace("a").expect("a"), "eth0", &template_flows, 0)
                .expect("start");
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for _ in 0..30 {
            frames.push(
                socket
                    .receive(SECOND)
                    .expect("receive")
                    .expect("a frame within a second"),
            );
        }
        assert!(generator.is_running());
        generator.stop().expect("stop");
        // HC' = ~(~HC + flow): 0x0001, 0x0000 which UDP writes as 0xffff, then the sum wraps:
        // ~(0xfffe + 2) = ~(0x0000 + carry 1) = 0xfffe.
        for (flow, checksum) in [(0u8, 0x0001u16), (1, 0xffff), (2, 0xfffe)] {
            let mut expected = template.clone();
            expected[17] += flow;
            expected[20..22].copy_from_slice(&checksum.to_be_bytes());
            assert!(frames.contains(&expected), "flow {flow}");
            frames.retain(|frame| *frame != expected);
        }
        assert!(frames.is_empty(), "{frames:x?}");
    }

    #[test]
    fn generated_packets_are_counted_at_either_hook_and_none_after_the_stop() {
        if !root_or_skip() {
            return;
        }
        let lab = pair("sink");
        let far = lab.namespace("b").expect("b");
        let template = Template::one_flow(&frame()).expect("template");
        for hook in [Hook::Xdp, Hook::Tc] {
            let _napi = (hook == Hook::Tc).then(|| Napi::attach(far, "eth0").expect("NAPI"));
            let sink = Sink::attach_at(far, "eth0", hook).expect("sink");
            let generator = Generator::start(lab.namespace("a").expect("a"), "eth0", &template, 0)
                .expect("start");
            let rate = sink.measure(Duration::from_millis(50)).expect("measure");
            let made = generator.stop().expect("stop");
            let counted = sink.count().expect("count");
            assert_eq!(
                sink.watch(Duration::from_millis(20))
                    .expect("watch")
                    .counts
                    .packets,
                0
            );
            assert!(counted.packets >= rate.counts.packets);
            assert!(made >= counted.packets - 10, "{made} made, {counted:?}");
            // The node at the other end may have sent packets too (MLD).
            let bytes = counted.packets * frame().len() as u64;
            assert!(counted.bytes.abs_diff(bytes) < 1000, "{counted:?}");
        }
        // Both sinks are detached, so another one can be attached.
        Sink::attach(far, "eth0").expect("sink");
    }

    #[test]
    fn a_missing_interface_is_named() {
        if !root_or_skip() {
            return;
        }
        let lab = pair("missing");
        let template = Template::one_flow(&frame()).expect("template");
        let error = Generator::start(lab.namespace("a").expect("a"), "eth9", &template, 0)
            .expect_err("no eth9");
        assert!(
            error
                .to_string()
                .starts_with("interface eth9 of ss-missing"),
            "{error}"
        );
    }
}
