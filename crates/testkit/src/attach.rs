//! Attaches programs at the end of a path: in the driver's XDP, or at TC ingress.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHookBuilder};
use serde::{Deserialize, Serialize};

use crate::netns::Handle;
use crate::{Error, Namespace};

/// Hook of a program at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// XDP in the driver: receives XDP redirects and packets of the stack.
    Xdp,
    /// TC ingress: the cheapest sink for socket buffers. With an XDP sink on a veth, the kernel
    /// converts each to an XDP frame, with a copy if the headroom is used up. XDP redirects arrive
    /// only if something else runs NAPI.
    Tc,
}

/// An attached program, detached on drop.
#[derive(Debug)]
pub struct Attachment(Kind);

#[derive(Debug)]
enum Kind {
    Xdp {
        _link: OwnedFd,
    },
    Tc {
        program: OwnedFd,
        ifindex: i32,
        namespace: Handle,
    },
}

impl Attachment {
    /// Attaches XDP in the driver, never in the generic path, which has another speed.
    ///
    /// # Errors
    /// The interface does not exist or already has an XDP program, or BPF is not allowed.
    pub fn xdp(
        program: BorrowedFd<'_>,
        namespace: &Namespace,
        ifname: &str,
    ) -> Result<Self, Error> {
        let ifindex = namespace.ifindex(ifname)?;
        let started = Instant::now();
        let attach = || {
            // SAFETY: plain data, all zeros is a value of it.
            let mut options: libbpf_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
            options.sz = size_of_val(&options) as _;
            options.flags = libbpf_sys::XDP_FLAGS_DRV_MODE;
            let (fd, ifindex, kind) = (program.as_raw_fd(), ifindex as i32, libbpf_sys::BPF_XDP);
            // SAFETY: an open descriptor, and options that live until the call has returned.
            let link =
                unsafe { libbpf_sys::bpf_link_create(fd, ifindex, kind, &raw const options) };
            if link < 0 {
                return Err(io::Error::from_raw_os_error(-link));
            }
            // SAFETY: a new descriptor without another owner.
            Ok(unsafe { OwnedFd::from_raw_fd(link) })
        };
        let attached = namespace.run(|| {
            loop {
                match attach() {
                    // A child of another thread still holds the previous program and closes it at
                    // exec.
                    Err(busy)
                        if busy.raw_os_error() == Some(libc::EBUSY) && started.elapsed() < HELD =>
                    {
                        thread::sleep(Duration::from_millis(1));
                    }
                    attached => return attached,
                }
            }
        })?;
        let link = attached.map_err(|source| {
            let what = format!("attach XDP to {ifname} of {}", namespace.name());
            Error::os(what, source)
        })?;
        Ok(Self(Kind::Xdp { _link: link }))
    }

    /// Attaches at TC ingress.
    ///
    /// # Errors
    /// The interface does not exist, or BPF is not allowed.
    pub fn tc(program: BorrowedFd<'_>, namespace: &Namespace, ifname: &str) -> Result<Self, Error> {
        let ifindex = namespace.ifindex(ifname)? as i32;
        let attach = || -> libbpf_rs::Result<()> {
            let mut hook = TcHookBuilder::new(program)
                .ifindex(ifindex)
                .hook(TC_INGRESS);
            hook.create()?;
            hook.attach().map(drop)
        };
        let attached = namespace.run(attach)?;
        attached.map_err(|source| {
            let what = format!("attach TC to {ifname} of {}", namespace.name());
            Error::bpf(what, source)
        })?;
        let program = program.try_clone_to_owned();
        Ok(Self(Kind::Tc {
            program: program
                .map_err(|source| Error::os("duplicate a program's descriptor", source))?,
            ifindex,
            namespace: namespace.handle(),
        }))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Kind::Tc {
            program,
            ifindex,
            namespace,
        } = &self.0
        {
            // Destroying both hooks at once removes the qdisc of create(). If the interface is
            // gone, the qdisc is gone too.
            let destroy = || {
                TcHookBuilder::new(program.as_fd())
                    .ifindex(*ifindex)
                    .hook(TC_INGRESS | TC_EGRESS)
                    .destroy()
            };
            let _ = namespace.run(destroy);
        }
    }
}

/// Maximum time from fork to exec of a child on a busy machine.
const HELD: Duration = Duration::from_millis(500);
