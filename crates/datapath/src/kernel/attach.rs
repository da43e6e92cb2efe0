//! Ports: a pinned link attaches the program to an interface, so that it outlives this process.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_sys::{BPF_TCX_INGRESS, BPF_XDP, XDP_FLAGS_DRV_MODE};

use super::gate::GATE_PROGRAM;
use super::load::HOOKS;
use super::log::captured;
use super::pins::{Folder, Kind, attachment_name, parse_attachment};
use super::{Descriptor, Kernel, KernelError, Target, sys};

/// Names of the TC programs, which identify those of other instances.
const TC_PROGRAMS: [&str; 2] = ["sidestep_tc", GATE_PROGRAM];

/// Attachment to one hook of a port.
#[derive(Debug)]
pub(super) struct Attachment {
    /// `None` for a clsact filter, which has no link.
    link: Option<Descriptor>,
}

impl Attachment {
    fn kind(&self) -> Kind {
        if self.link.is_some() {
            Kind::Link
        } else {
            Kind::Filter
        }
    }
}

impl Kernel {
    /// Attaches the packet path to the interface with that index, in the calling thread's network
    /// namespace. If it is already attached there, the program is replaced in place without packet
    /// loss. A different target replaces the previous one. With XDP, TC is attached for the frames
    /// that XDP defers.
    ///
    /// # Errors
    /// [`KernelError::ForeignXdp`] or [`KernelError::ForeignTc`] if a foreign program is attached
    /// (it stays attached), [`KernelError::Attach`] if the interface does not exist or its driver
    /// does not support the target.
    pub fn attach(&mut self, ifindex: u32, target: Target) -> Result<(), KernelError> {
        let hooks = target.hooks();
        let others = HOOKS.into_iter().filter(|hook| !hooks.contains(hook));
        for hook in others {
            self.detach_hook(ifindex, hook)?;
        }
        for &hook in hooks {
            // A port without its other hooks would process some frames only.
            self.attach_hook(ifindex, hook).inspect_err(|_| {
                let _ = self.detach(ifindex);
            })?;
        }
        Ok(())
    }

    /// Attaches the packet path at TC to an interface that no other program uses, by a filter. PERF: a
    /// tcx link waits for a grace period, 12 ms for each interface.
    ///
    /// # Errors
    /// As for [`Kernel::attach`].
    pub fn attach_alone(&mut self, ifindex: u32) -> Result<(), KernelError> {
        let hook = Target::Tc;
        if self.update(ifindex, hook)? {
            return Ok(());
        }
        let attachment = self.attach_filter(ifindex, hook)?;
        self.keep(ifindex, hook, attachment)
    }

    fn attach_hook(&mut self, ifindex: u32, hook: Target) -> Result<(), KernelError> {
        if self.update(ifindex, hook)? {
            return Ok(());
        }
        self.detach_hook(ifindex, hook)?;
        let attachment = match hook {
            Target::Xdp => self.attach_xdp(ifindex)?,
            Target::Tc | Target::BehindXdp => self.attach_tc(ifindex, hook)?,
        };
        self.keep(ifindex, hook, attachment)
    }

    /// Pins a new attachment.
    fn keep(
        &mut self,
        ifindex: u32,
        hook: Target,
        attachment: Attachment,
    ) -> Result<(), KernelError> {
        let name = attachment_name(attachment.kind(), hook, ifindex);
        let pinned = match &attachment.link {
            Some(link) => self.folder.pin(&name, link.as_fd()),
            None => self
                .attachable(hook)
                .and_then(|program| self.folder.pin(&name, program)),
        };
        // An unpinned link would disappear with this process: the caller detaches it.
        self.attached.insert((ifindex, hook), attachment);
        pinned
    }

    /// Detaches the packet path from the interface. Does nothing if it is not attached, or if the
    /// interface is gone.
    ///
    /// # Errors
    /// [`KernelError::Attach`] or [`KernelError::Pin`].
    pub fn detach(&mut self, ifindex: u32) -> Result<(), KernelError> {
        let detached = HOOKS.map(|hook| self.detach_hook(ifindex, hook));
        detached.into_iter().fold(Ok(()), Result::and)
    }

    fn detach_hook(&mut self, ifindex: u32, hook: Target) -> Result<(), KernelError> {
        let Some(attachment) = self.attached.remove(&(ifindex, hook)) else {
            return Ok(());
        };
        detach(&self.folder, (ifindex, hook), &attachment)
    }

    /// Detaches the packet path from all interfaces, and removes the pins and the folder. Nothing
    /// is left in the kernel.
    ///
    /// # Errors
    /// The first error. The remaining steps are still carried out.
    pub fn detach_all(mut self) -> Result<(), KernelError> {
        let attached = std::mem::take(&mut self.attached);
        let detached = attached
            .iter()
            .map(|(&place, attachment)| detach(&self.folder, place, attachment));
        let first = detached.fold(Ok(()), Result::and);
        first.and(self.folder.clear()).and(self.folder.remove())
    }

    /// Returns the ports with their targets, by interface index. After an adoption the attachments
    /// of the previous process are included.
    pub fn attached(&self) -> Vec<(u32, Target)> {
        let hooks = self.attached.keys().copied();
        hooks
            .filter(|(_, hook)| Target::ALL.contains(hook))
            .collect()
    }

    /// Replaces an attached program by the program of this process. Returns false if there is none,
    /// or if the interface of the link is gone.
    pub(super) fn update(&self, ifindex: u32, hook: Target) -> Result<bool, KernelError> {
        let Some(Attachment { link }) = self.attached.get(&(ifindex, hook)) else {
            return Ok(false);
        };
        let program = self.attachable(hook)?;
        let updated = match link {
            Some(link) if !alive(link.as_fd(), ifindex) => return Ok(false),
            Some(link) => sys::link_update(link.as_fd(), program),
            None => filter_attach(program, ifindex),
        };
        updated.map_err(|source| error("attach", ifindex, hook, source))?;
        if link.is_none() {
            self.folder
                .pin(&attachment_name(Kind::Filter, hook, ifindex), program)?;
        }
        Ok(true)
    }

    fn attach_xdp(&self, ifindex: u32) -> Result<Attachment, KernelError> {
        let target = Target::Xdp;
        let failed = |source| error("attach", ifindex, target, source);
        if let Some(program) = sys::xdp_program(ifindex).map_err(failed)? {
            return Err(KernelError::ForeignXdp {
                ifindex,
                id: program.id,
                name: name(program.id),
                mode: program.mode,
            });
        }
        let program = self.program(target)?;
        let link = sys::link_create(program, ifindex, BPF_XDP, XDP_FLAGS_DRV_MODE);
        let link = link.map_err(failed)?;
        Ok(Attachment { link: Some(link) })
    }

    fn attach_tc(&self, ifindex: u32, hook: Target) -> Result<Attachment, KernelError> {
        // Kernels without tcx reject the query. Such a kernel has no tcx program either.
        for id in sys::tcx_programs(ifindex, BPF_TCX_INGRESS).unwrap_or_default() {
            let name = name(id);
            if TC_PROGRAMS.contains(&name.as_str()) {
                return Err(KernelError::ForeignTc { ifindex, id, name });
            }
        }
        match sys::link_create(self.attachable(hook)?, ifindex, BPF_TCX_INGRESS, 0) {
            Ok(link) => Ok(Attachment { link: Some(link) }),
            // Before 6.6 the attach type is unknown: EINVAL.
            Err(source) if source.raw_os_error() == Some(libc::EINVAL) => {
                self.attach_filter(ifindex, hook)
            }
            Err(source) => Err(error("attach", ifindex, hook, source)),
        }
    }

    /// Attaches to TC without tcx.
    pub(super) fn attach_filter(
        &self,
        ifindex: u32,
        hook: Target,
    ) -> Result<Attachment, KernelError> {
        filter_attach(self.attachable(hook)?, ifindex)
            .map_err(|source| error("attach", ifindex, hook, source))?;
        Ok(Attachment { link: None })
    }
}

/// Returns the pinned attachments. Removes pins of attachments whose interface is gone.
pub(super) fn open(folder: &Folder) -> Result<BTreeMap<(u32, Target), Attachment>, KernelError> {
    let mut attached = BTreeMap::new();
    for name in folder.names()? {
        let Some((kind, hook, ifindex)) = parse_attachment(&name) else {
            continue;
        };
        let link = match kind {
            // A filter disappears with its interface, but its pin does not.
            Kind::Filter if !captured(|| sys::filter_exists(ifindex)).0 => {
                folder.unpin(&name)?;
                continue;
            }
            Kind::Filter => None,
            Kind::Link => {
                let link = folder.open_pin(&name)?;
                if !alive(link.as_fd(), ifindex) {
                    folder.unpin(&name)?;
                    continue;
                }
                Some(link)
            }
        };
        attached.insert((ifindex, hook), Attachment { link });
    }
    Ok(attached)
}

/// Returns the hooks of the pinned attachments.
pub(super) fn hooks(folder: &Folder) -> Result<BTreeSet<Target>, KernelError> {
    let names = folder.names()?;
    let attachments = names.iter().filter_map(|name| parse_attachment(name));
    Ok(attachments.map(|(_, hook, _)| hook).collect())
}

/// Returns whether a pinned attachment is, or may be, on an interface of any namespace.
pub(super) fn any_alive(folder: &Folder) -> Result<bool, KernelError> {
    for name in folder.names()? {
        let alive = match parse_attachment(&name) {
            None => false,
            // The kernel does not report whether the interface of a filter still exists.
            Some((Kind::Filter, ..)) => true,
            Some((Kind::Link, ..)) => {
                let link = folder.open_pin(&name)?;
                sys::link_info(link.as_fd()).is_ok_and(|info| info.ifindex != 0)
            }
        };
        if alive {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Detaches all pinned attachments, of any version.
pub(super) fn detach_pinned(folder: &Folder) -> Result<(), KernelError> {
    open(folder)?
        .iter()
        .try_for_each(|(&place, attachment)| detach(folder, place, attachment))
}

fn detach(
    folder: &Folder,
    (ifindex, hook): (u32, Target),
    attachment: &Attachment,
) -> Result<(), KernelError> {
    let detached = match &attachment.link {
        // Closing the link is not enough: it is asynchronous, and other processes may hold the
        // link.
        Some(link) if alive(link.as_fd(), ifindex) => sys::link_detach(link.as_fd()),
        Some(_) => Ok(()),
        None => match captured(|| sys::filter_detach(ifindex)).0 {
            // The filter or the whole interface is gone.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::ENODEV | libc::EINVAL)
                ) =>
            {
                Ok(())
            }
            other => other,
        },
    };
    folder.unpin(&attachment_name(attachment.kind(), hook, ifindex))?;
    detached.map_err(|source| error("detach", ifindex, hook, source))
}

/// Attaches a clsact filter. Captures the message of libbpf about an existing qdisc, which is
/// expected.
fn filter_attach(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    captured(|| sys::filter_attach(program, ifindex)).0
}

/// Returns whether the link is still on that interface. The kernel clears the link when the device
/// is removed.
fn alive(link: BorrowedFd<'_>, ifindex: u32) -> bool {
    sys::link_info(link).is_ok_and(|info| info.ifindex == ifindex)
}

fn name(id: u32) -> String {
    // Reading the name needs CAP_SYS_ADMIN, attaching does not.
    sys::program_name(id).unwrap_or_else(|_| "unknown".into())
}

fn error(operation: &'static str, ifindex: u32, target: Target, source: io::Error) -> KernelError {
    let hint = match (source.raw_os_error(), target) {
        (Some(libc::ENODEV), _) => " (no such interface in this network namespace)",
        (Some(libc::EOPNOTSUPP), Target::Xdp) => " (the driver has no native XDP: use tc)",
        (Some(libc::EBUSY | libc::EEXIST), Target::Xdp) => {
            " (another XDP program was attached meanwhile)"
        }
        (Some(libc::EINVAL | libc::ERANGE | libc::E2BIG), Target::Xdp) => {
            " (the driver refused: often the MTU, or too few queues; use tc, or lower the MTU)"
        }
        (Some(libc::EPERM), _) => " (needs CAP_NET_ADMIN and CAP_BPF in the first user namespace)",
        _ => "",
    };
    KernelError::Attach {
        operation,
        ifindex,
        target,
        source,
        hint,
    }
}

#[cfg(test)]
mod tests {
    use sidestep_testkit::root_or_skip;

    use std::num::NonZeroU32;

    use super::*;
    use crate::kernel::scratch::Scratch;
    use crate::kernel::{Sampling, TraceFilter};

    #[test]
    fn without_tcx_a_clsact_filter_does_the_same_and_is_adopted() {
        if !root_or_skip() {
            return;
        }
        let scratch = Scratch::new("filter");
        let loopback = 1;
        let filters = || {
            let words = ["tc", "filter", "show", "dev", "lo", "ingress"];
            scratch.namespace.exec(&words).expect("tc")
        };
        scratch.run(|| {
            let kernel = scratch.load();
            // Attaches through a clsact filter, for kernels without tcx links.
            let attachment = kernel.attach_filter(loopback, Target::Tc).expect("filter");
            let name = attachment_name(attachment.kind(), Target::Tc, loopback);
            kernel
                .folder
                .pin(&name, kernel.program(Target::Tc).expect("load"))
                .expect("pin");
            drop(kernel);
            assert_eq!(
                filters().matches(" name sidestep_tc ").count(),
                1,
                "{}",
                filters()
            );

            let mut kernel = scratch.load();
            assert_eq!(kernel.attached(), [(loopback, Target::Tc)]);
            kernel
                .attach(loopback, Target::Tc)
                .expect("replace the program in place");
            assert_eq!(
                filters().matches(" name sidestep_tc ").count(),
                1,
                "{}",
                filters()
            );

            // A trace replaces the program in place too, and a process that loads the packet path
            // again restores the program without a trace.
            let id = || {
                let words = filters();
                let (_, rest) = words.split_once(" id ").expect("an id");
                rest.split_whitespace().next().map(str::to_owned)
            };
            let plain = id();
            let sampling = Sampling {
                rate: NonZeroU32::MIN,
                bytes: 64,
            };
            kernel
                .trace_start(&TraceFilter::default(), sampling)
                .expect("trace");
            assert_ne!(id(), plain);
            kernel.trace_stop().expect("stop");
            assert_eq!(id(), plain);
            kernel
                .trace_start(&TraceFilter::default(), sampling)
                .expect("trace");
            let traced = id();
            drop(kernel);
            assert_eq!(id(), traced, "it has no owner");
            let mut kernel = scratch.load();
            assert_ne!(id(), traced);
            assert_eq!(
                filters().matches(" name sidestep_tc ").count(),
                1,
                "{}",
                filters()
            );
            kernel.detach(loopback).expect("detach");
            assert_eq!(filters(), "");
        });
    }
}
