//! Routing header of any type, RFC 8200 4.4.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  Next Header  |  Hdr Ext Len  |  Routing Type | Segments Left |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                       type-specific data                      |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::options::extension_length;
use crate::srh::field;
use crate::{Protocol, RoutingType, SrhError, SrhView};

header! {
    /// A received Routing header.
    view RoutingView, extension_length;
    /// The common fields of a Routing header. [`Srh`](crate::Srh) is the form to emit.
    #[derive(Copy)]
    owned Routing;

    /// Type of the header that follows.
    next_header: Protocol = |header| Protocol(header[field::NEXT_HEADER]);
    /// Routing Type.
    routing_type: RoutingType = |header| RoutingType(header[field::ROUTING_TYPE]);
    /// Segments Left.
    segments_left: u8 = |header| header[field::SEGMENTS_LEFT];
}

impl<'a> RoutingView<'a> {
    /// The header as an SRH.
    ///
    /// # Errors
    /// Another Routing Type, or fields that contradict each other.
    pub fn srh(&self) -> Result<SrhView<'a>, SrhError> {
        SrhView::check(*self)
    }
}
