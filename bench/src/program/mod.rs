//! The program under test.

mod product;

pub(crate) use product::find;
pub use product::sha256;
