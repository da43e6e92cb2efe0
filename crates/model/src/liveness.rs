//! Liveness of paths: the reflectors of S-BFD (RFC 7880).

use std::collections::BTreeMap;

/// Reflectors of this node, by discriminator, 1 and up.
pub type Reflectors = BTreeMap<u32, Reflector>;

/// A discriminator that this node reflects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reflector {
    /// Whether answers have the state `AdminDown` (RFC 7880 7.2.3), otherwise `Up`.
    pub admin_down: bool,
}
