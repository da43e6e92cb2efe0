//! Common code of the programs: termination and errors.

mod error;
mod interrupt;
mod product;

pub use error::Error;
pub(crate) use interrupt::Interrupt;
pub(crate) use product::find;
pub use product::sha256;
