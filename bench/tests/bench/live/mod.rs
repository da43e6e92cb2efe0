//! Measurements in network namespaces of this machine. They need root.

mod campaign;
mod converge;
mod engines;
mod exec_engine;
mod fib;
mod interrupted;
mod testbed;
mod trial;
mod vpp_engine;
