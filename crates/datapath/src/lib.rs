//! The packet path of `datapath/`, compiled for three targets: [`Native`] runs it in this process,
//! without privileges; [`kernel`] loads it into the kernel for XDP and TC.

pub mod abi;
pub mod delta;
pub mod event;
pub mod image;
pub mod kernel;
pub mod learned;
mod native;
mod report;

pub use abi::{
    AdjacencyId, CounterId, FlowTableId, GroupId, HeaderSetId, KeySlot, PolicyId, RouteId,
    SessionId, TableIndex, ViewId,
};
pub use delta::Delta;
pub use event::TraceEvent;
pub use image::{EMPTY_VIEW, FibKey, Image, Limits, StationKey, VIEWS};
pub use kernel::{Kernel, KernelError, Target};
pub use native::{FRAME_MAX, Native, Trace, Verdict, VerdictKind};
pub use report::{Copied, Oversized, Report};
