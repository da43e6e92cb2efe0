//! Control plane: compiles the node into the tables of the packet path and keeps them up to date.

pub mod api;
pub mod compile;
pub mod daemon;
pub mod doctor;
pub mod fragment;
pub mod icmp;
mod link_address;
pub mod packet;
pub mod pcap;
pub mod report;
pub mod trace;
