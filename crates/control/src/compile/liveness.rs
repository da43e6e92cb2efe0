//! Liveness of paths: a view of the BFD discriminators of the node.

use sidestep_datapath::ViewId;
use sidestep_datapath::abi::{SIDESTEP_ROUTE_REFLECT, sidestep_route};

use super::error::CompileError;
use super::hmac::of_number;
use super::index::Counted;
use super::keys::ViewKey;
use super::record::record;
use super::routes::RouteCompiler;

impl RouteCompiler<'_> {
    /// Returns the view of discriminators, or `NONE` without any.
    pub(super) fn discriminators(&mut self) -> Result<ViewId, CompileError> {
        let node = self.node;
        if node.reflectors.is_empty() {
            return Ok(ViewId::NONE);
        }
        let view = self
            .store
            .indices
            .views
            .index_of(&ViewKey::Discriminators)?;
        for (&discriminator, reflector) in &node.reflectors {
            let counter = self.store.counter(Counted::Reflector(discriminator));
            let route = self.store.unowned(sidestep_route {
                inner: u8::from(!reflector.admin_down),
                counter,
                ..record(SIDESTEP_ROUTE_REFLECT)
            })?;
            self.store
                .put_prefix(of_number(view, discriminator, 32), Some(route));
        }
        Ok(view)
    }
}
