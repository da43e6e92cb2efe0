//! What the laboratory's programs share: how they end, and why.

mod error;
mod interrupt;

pub use error::Error;
pub(crate) use interrupt::Interrupt;
