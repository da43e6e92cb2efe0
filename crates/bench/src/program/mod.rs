//! The program under test and the signals that end a measurement.

mod interrupt;
mod product;

pub use interrupt::Interrupt;
pub(crate) use product::find;
pub use product::sha256;
