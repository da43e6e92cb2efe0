//! Upper limit for any XDP data plane: a program that writes a constant header and redirects.

use super::{REDIRECT, configure, load, open, program};
use crate::attach::Attachment;
use crate::{Error, Namespace};

/// Forwards frames from one port to another with a constant header; detached when dropped.
#[derive(Debug)]
pub struct Redirect {
    _attached: Attachment,
}

impl Redirect {
    /// Bytes that can be pushed: an IPv6 header and an SRH of one segment. `PUSH` of
    /// bpf/redirect.bpf.c.
    pub const PUSH: usize = 64;

    /// Attaches to `ingress`. `header` begins with an Ethernet header (14 bytes). Its addresses
    /// replace those of each frame. If [`Self::PUSH`] more bytes follow, they are pushed between
    /// the Ethernet header and the packet. The other end of `egress` must take XDP redirects.
    ///
    /// # Errors
    /// A header of another length, no such interface, another XDP program is there, or BPF is not
    /// allowed.
    pub fn attach(
        namespace: &Namespace,
        ingress: &str,
        egress: &str,
        header: &[u8],
    ) -> Result<Self, Error> {
        let push = header.len().wrapping_sub(ETHERNET);
        if push != 0 && push != Self::PUSH {
            let (length, long) = (header.len(), ETHERNET + Self::PUSH);
            return Err(Error::Usage(format!(
                "a constant header of {length} bytes; allowed are {ETHERNET} and {long}"
            )));
        }
        let mut config = Config {
            header: [0; 80],
            push: push as u32,
            ifindex: namespace.ifindex(egress)?,
        };
        config.header[..header.len()].copy_from_slice(header);
        let mut object = open(REDIRECT)?;
        configure(&mut object, "redirect", config.bytes())?;
        let object = load(object)?;
        let attached = Attachment::xdp(program(&object, "redirect")?, namespace, ingress)?;
        Ok(Self {
            _attached: attached,
        })
    }
}

/// `struct config` of bpf/redirect.bpf.c.
#[repr(C)]
struct Config {
    header: [u8; 80],
    push: u32,
    ifindex: u32,
}

impl Config {
    fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C) of u32 and u8 whose sizes leave no padding, all of it initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

const _: () = assert!(size_of::<Config>() == 80 + 2 * 4);
const _: () = assert!(ETHERNET + Redirect::PUSH <= 80);

const ETHERNET: usize = 14;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Napi;
    use crate::{FrameSocket, Lab, root_or_skip};

    #[test]
    fn a_frame_leaves_with_the_constant_header_and_what_was_pushed() {
        if !root_or_skip() {
            return;
        }
        let mut lab = Lab::new("redirect").expect("lab");
        lab.node("a")
            .and_then(|lab| lab.node("r"))
            .and_then(|lab| lab.node("b"))
            .and_then(|lab| lab.link("a", "eth0", "r", "eth0"))
            .and_then(|lab| lab.link("r", "eth1", "b", "eth0"))
            .expect("three nodes");
        let [a, r, b] = ["a", "r", "b"].map(|node| lab.namespace(node).expect("node"));
        let _napi = Napi::attach(b, "eth0").expect("NAPI");
        let (near, far) = (FrameSocket::open(a, "eth0"), FrameSocket::open(b, "eth0"));
        let (near, far) = (near.expect("near"), far.expect("far"));
        let sent: Vec<u8> = (0..100).collect();
        let header: Vec<u8> = (100..178).collect();
        let changed = [&header[..12], &sent[12..]].concat();
        let pushed = [&header[..], &sent[14..]].concat();
        for (header, expected) in [(&header[..14], changed), (&header[..], pushed)] {
            let _redirect = Redirect::attach(r, "eth0", "eth1", header).expect("attach");
            near.send(&sent).expect("send");
            let received = far.receive(Duration::from_secs(2)).expect("receive");
            assert_eq!(received, Some(expected));
        }
        assert!(Redirect::attach(r, "eth0", "eth1", &header[..20]).is_err());
    }
}
