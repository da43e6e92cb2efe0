//! Routes that FRR sends by FPM (Forwarding Plane Manager): zebra's plugin `dplane_fpm_nl`.
//!
//! A frame is a header of four bytes and one or more netlink messages, as zebra sends them to the
//! kernel. A stream has no acknowledgments and no end of the replay. zebra replays all nexthop
//! objects and then all routes when it connects. It never replays a deletion, so that routes of an
//! earlier session are stale until the next session has sent them again.

mod decode;
#[doc(hidden)]
pub mod encode;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::ops::Range;

use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::{NextHop, Route, RouteKey};
use thiserror::Error;

pub use self::decode::decode;
use crate::link::LinkState;
use crate::object::{Object, Objects, Source};
use crate::route::is_unresolved;
use crate::state::State;
use crate::wire::messages;
use crate::{Mirror, OnUrgent};

/// Length of the header of a frame: version, type, length of the frame.
pub const HEADER: usize = 4;
/// Maximum length of a frame, by the size of its length field.
pub const FRAME_MAX: usize = u16::MAX as usize;
/// LIMIT: routes of FPM.
pub const ROUTES_MAX: usize = 1 << 20;
/// LIMIT: nexthop objects of FPM.
pub const OBJECTS_MAX: usize = 1 << 18;

/// Shortest frame: a header with one netlink header.
const FRAME_MIN: usize = HEADER + 16;

/// A malformed or unexpected frame.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("byte {offset}: {what}")]
pub struct FpmError {
    /// Position in the frame.
    pub offset: usize,
    /// Problem, with the allowed values.
    pub what: String,
}

impl FpmError {
    fn new(offset: usize, what: impl Into<String>) -> Self {
        Self {
            offset,
            what: what.into(),
        }
    }
}

/// Changes of one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    updates: Vec<Update>,
    /// Number of netlink messages.
    pub messages: u64,
    /// Number of messages about MPLS and MAC addresses, which Sidestep does not mirror.
    pub ignored: u64,
    /// Netlink port ID of the sender (`nlmsg_pid`). A restarted zebra has another one.
    pub sender: u32,
    /// Routes that the frame adds or replaces, and the places of their messages in it.
    pub routes: Vec<(RouteKey, Range<usize>)>,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Update {
    Route(Route),
    /// FRR has no such route, or the kernel has it.
    Withdraw(RouteKey),
    Object(Object),
    Remove(u32),
}

/// Numbers of routes and nexthop objects of FPM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Routes.
    pub routes: usize,
    /// Routes of an earlier session that the present one has not sent.
    pub stale_routes: usize,
    /// Nexthop objects.
    pub objects: usize,
    /// Nexthop objects of an earlier session that the present one has not sent.
    pub stale_objects: usize,
}

/// Routes and nexthop objects of FPM beside the routes themselves.
#[derive(Debug, Default)]
pub(crate) struct FpmState {
    pub objects: Objects,
    keys: BTreeSet<RouteKey>,
    stale_routes: BTreeSet<RouteKey>,
    stale_objects: BTreeSet<u32>,
}

/// Returns the length of the frame at the beginning of a stream, or `None` if its header is
/// incomplete.
///
/// # Errors
/// The header is not one of netlink by FPM.
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, FpmError> {
    let [version, kind, length @ ..] = match bytes.first_chunk::<HEADER>() {
        Some(header) => *header,
        None => return Ok(None),
    };
    if version != 1 {
        let what = format!("FPM version {version}; expected 1");
        return Err(FpmError::new(0, what));
    }
    if kind != 1 {
        let what =
            format!("FPM message type {kind}; expected 1 (netlink, the module dplane_fpm_nl)");
        return Err(FpmError::new(1, what));
    }
    let length = usize::from(u16::from_be_bytes(length));
    if length < FRAME_MIN {
        let what = format!("frame of {length} bytes; expected at least {FRAME_MIN}");
        return Err(FpmError::new(2, what));
    }
    Ok(Some(length))
}

/// Returns the frame that reports to zebra whether a route is installed. `message` is the message of
/// the route in a decoded frame. zebra finds the route by its prefix, table and protocol, and reads
/// the flag (`netlink_route_notify_read_ctx`).
#[must_use]
pub fn reply(message: &[u8], is_installed: bool) -> Vec<u8> {
    let length = (HEADER + message.len()) as u16;
    let mut frame = vec![1, 1];
    frame.extend(length.to_be_bytes());
    frame.extend(message);
    // zebra skips a message that is not a request.
    let flags = HEADER + offset_of!(libc::nlmsghdr, nlmsg_flags);
    frame[flags..flags + 2].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    let flags = HEADER + size_of::<libc::nlmsghdr>() + RTM_FLAGS;
    let report = if is_installed {
        RTM_F_OFFLOAD
    } else {
        RTM_F_OFFLOAD_FAILED
    };
    frame[flags..flags + 4].copy_from_slice(&report.to_ne_bytes());
    frame
}

// include/uapi/linux/rtnetlink.h.
/// Offset of `rtm_flags` in `struct rtmsg`.
const RTM_FLAGS: usize = 8;
const RTM_F_OFFLOAD: u32 = 0x4000;
const RTM_F_OFFLOAD_FAILED: u32 = 0x2000_0000;

/// Applies a stream of frames to the node of a kernel's datagram, for tests and fuzzing. Returns
/// the node before the first problem, and the problem.
#[doc(hidden)]
pub fn node_of(kernel: &[u8], stream: &[u8]) -> (Node, Result<(), FpmError>) {
    let mut state = State::default();
    messages(kernel).for_each(|message| state.apply(&message));
    let result = apply_stream(&mut state, stream);
    state.resolve_objects();
    (state.node, result)
}

fn apply_stream(state: &mut State, mut stream: &[u8]) -> Result<(), FpmError> {
    while let Some(length) = frame_length(stream)? {
        let Some(frame) = stream.get(..length) else {
            break;
        };
        state.apply_fpm(decode(frame)?)?;
        stream = &stream[length..];
    }
    Ok(())
}

impl Mirror {
    /// Applies a frame as a whole. The changes are part of the next [`Mirror::process_with`];
    /// `urgent` is called as there.
    ///
    /// # Errors
    /// The frame would exceed a limit. Nothing is applied.
    pub fn apply_fpm(&mut self, frame: Frame, urgent: &mut OnUrgent<'_>) -> Result<(), FpmError> {
        self.state.apply_fpm(frame)?;
        self.state.report(urgent);
        Ok(())
    }

    /// Marks all routes and nexthop objects of FPM stale, because the session has ended.
    pub fn mark_fpm_stale(&mut self) {
        self.state.mark_fpm_stale();
    }

    /// Removes the stale routes and nexthop objects of FPM. The changes are part of the next
    /// [`Mirror::process_with`].
    pub fn sweep_fpm(&mut self) {
        self.state.sweep_fpm();
    }

    /// Returns the numbers of routes and nexthop objects of FPM.
    pub fn fpm_counts(&self) -> Counts {
        self.state.fpm.counts()
    }
}

impl State {
    /// Applies a frame as a whole.
    ///
    /// # Errors
    /// It would exceed a limit.
    pub(crate) fn apply_fpm(&mut self, frame: Frame) -> Result<(), FpmError> {
        self.fpm.fit(&frame)?;
        for update in frame.updates {
            self.fpm_update(update);
        }
        Ok(())
    }

    pub(crate) fn mark_fpm_stale(&mut self) {
        let fpm = &mut self.fpm;
        fpm.stale_routes.clone_from(&fpm.keys);
        fpm.stale_objects = fpm.objects.ids().collect();
    }

    pub(crate) fn sweep_fpm(&mut self) {
        let routes = std::mem::take(&mut self.fpm.stale_routes).into_iter();
        let objects = std::mem::take(&mut self.fpm.stale_objects).into_iter();
        let updates = routes.map(Update::Withdraw);
        for update in updates.chain(objects.map(Update::Remove)) {
            self.fpm_update(update);
        }
    }

    fn fpm_update(&mut self, update: Update) {
        match update {
            Update::Route(route) => self.fpm_route(route),
            Update::Withdraw(key) => {
                self.fpm.stale_routes.remove(&key);
                if self.fpm.keys.remove(&key) {
                    let (node, changed) = (&mut self.node, &mut self.changed_routes);
                    self.routes.set_fpm(node, key, None, changed);
                }
            }
            Update::Object(object) => {
                self.fpm.stale_objects.remove(&object.id);
                self.object(Source::Fpm, object, true);
            }
            Update::Remove(id) => {
                self.fpm.stale_objects.remove(&id);
                self.object(Source::Fpm, Object::named(id), false);
            }
        }
    }

    fn fpm_route(&mut self, mut route: Route) {
        let key = route.key;
        if is_unresolved(&route) {
            self.fpm.objects.resolve(&mut route);
        }
        let links = &self.links;
        for hop in route.next_hops.make_mut() {
            hop.dead = is_dead(links, hop);
        }
        self.fpm.keys.insert(key);
        self.fpm.stale_routes.remove(&key);
        let (node, changed) = (&mut self.node, &mut self.changed_routes);
        self.routes.set_fpm(node, key, Some(route), changed);
    }

    /// Updates the routes of FPM after a link has changed, or after all may have. The kernel does
    /// this for its own routes.
    pub(crate) fn mark_fpm_dead(&mut self, link: Option<IfIndex>) {
        let uses = |hop: &NextHop| link.is_none_or(|link| hop.dev == Some(link));
        for object in self
            .fpm
            .objects
            .ids()
            .map(|id| (Source::Fpm, id))
            .collect::<Vec<_>>()
        {
            let hops = self.fpm.objects.next_hops(object.1);
            if hops.as_ref().is_some_and(|hops| hops.iter().any(uses)) {
                self.note_object(object, hops);
            }
        }
        let routes = self.fpm.keys.iter().filter(|key| {
            let route = self.routes.fpm(&self.node, key);
            route.is_some_and(|it| it.nhid.is_none() && it.next_hops.iter().any(uses))
        });
        for key in routes.copied().collect::<Vec<_>>() {
            let (node, changed) = (&mut self.node, &mut self.changed_routes);
            let is_dead = |hop: &NextHop| is_dead(&self.links, hop);
            self.routes.mark_fpm(node, key, is_dead, changed);
        }
    }
}

/// Whether the link of a next hop is absent, down, or without carrier.
pub(crate) fn is_dead(links: &BTreeMap<IfIndex, LinkState>, hop: &NextHop) -> bool {
    let is_running = |dev: IfIndex| links.get(&dev).is_some_and(LinkState::is_running);
    hop.dev.is_some_and(|dev| !is_running(dev))
}

impl FpmState {
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            routes: self.keys.len(),
            stale_routes: self.stale_routes.len(),
            objects: self.objects.len(),
            stale_objects: self.stale_objects.len(),
        }
    }

    /// Checks that the routes and nexthop objects of a frame fit.
    fn fit(&self, frame: &Frame) -> Result<(), FpmError> {
        let (mut routes, mut objects) = (self.keys.len(), self.objects.len());
        for update in &frame.updates {
            match update {
                Update::Route(route) => routes += usize::from(!self.keys.contains(&route.key)),
                Update::Object(object) => {
                    objects += usize::from(!self.objects.contains(object.id));
                }
                Update::Withdraw(_) | Update::Remove(_) => {}
            }
        }
        let beyond = |limit: usize, what: &str| {
            let what = format!("more {what} than {limit}, the limit");
            Err(FpmError::new(0, what))
        };
        if routes > ROUTES_MAX {
            return beyond(ROUTES_MAX, "routes");
        }
        if objects > OBJECTS_MAX {
            return beyond(OBJECTS_MAX, "nexthop objects");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
