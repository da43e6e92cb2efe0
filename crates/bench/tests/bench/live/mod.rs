//! Measurements in network namespaces of this machine. They need root.

mod campaign;
mod engines;
mod fib;
mod interrupted;
mod testbed;
