//! A capture of any size is replayed in the same memory. A program of its own: its peak memory is that of the replay.

mod common;

use std::io::{self, Read, Write};
use std::path::Path;

use sidestep_cli::replay::capture_read::CaptureReader;
use sidestep_cli::replay::{Replay, Sinks};

use common::{named_group, pcapng};

/// A capture of this size that repeats the same packets.
struct Endless {
    head: Vec<u8>,
    block: Vec<u8>,
    at: u64,
    end: u64,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut length = 0;
        while length < buffer.len() && self.at < self.end {
            let head = self.head.len() as u64;
            let rest = match self.at.checked_sub(head) {
                None => &self.head[self.at as usize..],
                Some(at) => &self.block[(at % self.block.len() as u64) as usize..],
            };
            let count = rest.len().min(buffer.len() - length);
            buffer[length..length + count].copy_from_slice(&rest[..count]);
            length += count;
            self.at += count as u64;
        }
        Ok(length)
    }
}

/// Counts bytes.
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The most memory that this process ever had, in KiB (`VmHWM`, proc(5)).
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .expect("since Linux 2.6.9");
    line.split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

#[test]
fn three_hundred_megabytes_take_the_memory_of_one() {
    let (cases, node) = named_group("end");
    let node = sidestep_model::config::File::parse(&node)
        .and_then(|file| file.node())
        .expect("a right node");
    let mut replay = Replay::new(node, None, Path::new("node.yaml")).expect("compiles");

    let mut frame = cases[0].input.bytes();
    let one = pcapng(&[("eth0", 1, frame.clone())]);
    let head = one.len() - (32 + frame.len().next_multiple_of(4));
    // A full packet: padding of the link behind the IPv6 packet is cut on the way.
    frame.resize(1400, 0);
    let one = pcapng(&[("eth0", 1, frame)]);
    let mut run = |megabytes: u64| {
        let block = one[head..].to_vec();
        let count = (megabytes << 20) / block.len() as u64;
        let end = head as u64 + count * block.len() as u64;
        let mut reader = CaptureReader::new(Endless {
            head: one[..head].to_vec(),
            block,
            at: 0,
            end,
        })
        .expect("a capture");
        let mut sinks = Sinks {
            capture: Some(replay.writer(Count(0)).expect("a counter")),
            explain: None,
        };
        replay
            .all(&mut reader, &mut sinks, Path::new("in"), Path::new("out"))
            .expect("all of it is right");
        assert!(reader.buffered() <= 4096, "{}", reader.buffered());
        let written = sinks
            .capture
            .map(|capture| capture.finish().expect("a counter").0);
        assert!(written.is_some_and(|written| written > count * 110));
        count
    };
    let first = run(1);
    let before = peak();
    let second = run(300);
    let grown = peak() - before;
    assert!(grown < 4096, "{grown} KiB more for 300 times the packets");
    assert_eq!(replay.report().forwarded, first + second);
}
