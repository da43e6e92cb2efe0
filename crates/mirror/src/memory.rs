//! A mirror without a kernel, for tests of what follows a mirror.

use sidestep_model::node::Node;

use crate::fpm::{Counts, FpmError, Frame};
use crate::link::{LinkState, Settings};
use crate::state::State;
use crate::{Changes, OnUrgent};

/// A node that frames of FPM change as in [`crate::Mirror`]. The caller changes everything else.
#[derive(Debug, Default)]
pub struct Memory(State);

impl Memory {
    /// Returns a mirror of this node.
    pub fn new(node: Node) -> Self {
        let mut state = State::default();
        for link in node.links.values() {
            let known = LinkState {
                ifindex: link.ifindex,
                name: link.name.clone(),
                alt_names: link.alt_names.clone(),
                mac: link.mac,
                mtu: link.mtu,
                kind: link.kind.clone(),
                software: true,
                master: link.master,
                flags: libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_LOWER_UP,
                settings: Settings::default(),
                bridge: None,
            };
            state.links.insert(link.ifindex, known);
        }
        state.node = node;
        Self(state)
    }

    /// Returns the node.
    pub fn node(&self) -> &Node {
        &self.0.node
    }

    /// Returns the node for changes, which the caller notes.
    pub fn node_mut(&mut self) -> &mut Node {
        &mut self.0.node
    }

    /// Returns the changes by frames since the last call.
    pub fn take_changes(&mut self) -> Changes {
        self.0.take_changes()
    }

    /// As [`crate::Mirror::apply_fpm`].
    ///
    /// # Errors
    /// As there.
    pub fn apply_fpm(&mut self, frame: Frame, urgent: &mut OnUrgent<'_>) -> Result<(), FpmError> {
        self.0.apply_fpm(frame)?;
        self.0.report(urgent);
        Ok(())
    }

    /// As [`crate::Mirror::mark_fpm_stale`].
    pub fn mark_fpm_stale(&mut self) {
        self.0.mark_fpm_stale();
    }

    /// As [`crate::Mirror::sweep_fpm`].
    pub fn sweep_fpm(&mut self) {
        self.0.sweep_fpm();
    }

    /// As [`crate::Mirror::fpm_counts`].
    pub fn fpm_counts(&self) -> Counts {
        self.0.fpm.counts()
    }
}
