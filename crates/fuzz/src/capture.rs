//! Capture files, pcap and pcapng.
//!
//! Each packet is inside the file, the reader uses no more memory than the file has bytes, and
//! reading terminates.

use sidestep_cli::replay::capture_read::CaptureReader;
use sidestep_cli::replay::capture_write::CaptureWriter;

use crate::Target;
use crate::datapath::nodes::vectors;

/// Minimum length of a block or record, which bounds the number of packets.
const RECORD_MIN: usize = 12;
/// Memory that the reader may use in addition to the file's bytes.
const BUFFERED: usize = 1 << 16;

/// Fuzz target for capture files.
pub struct Capture;

impl Target for Capture {
    const NAME: &'static str = "capture";

    fn new() -> Self {
        Self
    }

    fn run(&mut self, input: &[u8]) {
        let Ok(mut reader) = CaptureReader::new(input) else {
            return;
        };
        let mut packets = 0;
        while let Ok(Some(packet)) = reader.next_packet() {
            packets += 1;
            assert_eq!(packet.number, packets);
            assert!(packet.offset < input.len() as u64, "{}", packet.offset);
            assert!(packet.data.len() <= input.len());
            assert!(packets as usize <= input.len() / RECORD_MIN);
            let buffered = reader.buffered();
            assert!(buffered <= 2 * input.len() + BUFFERED, "{buffered}");
        }
    }

    fn seeds(&self) -> Vec<(String, Vec<u8>)> {
        let mut seeds = Vec::new();
        for file in vectors() {
            let frames: Vec<&[u8]> = file
                .cases
                .iter()
                .take(3)
                .map(|case| case.frame.as_slice())
                .collect();
            seeds.push((format!("{}.pcapng", file.group), pcapng(&frames)));
            seeds.push((format!("{}.pcap", file.group), pcap(&frames)));
        }
        seeds
    }
}

fn pcapng(frames: &[&[u8]]) -> Vec<u8> {
    let written = CaptureWriter::new(Vec::new(), [(1, "eth0"), (2, "eth1")]).and_then(|mut to| {
        for frame in frames {
            to.write(1, 1_000_000_007, frame)?;
        }
        to.finish()
    });
    written.expect("a vector is always written to")
}

/// Little-endian, microseconds (draft-ietf-opsawg-pcap).
fn pcap(frames: &[&[u8]]) -> Vec<u8> {
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|it| it.to_le_bytes()).collect() };
    let mut file = words(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 0x4_0000, 1]);
    for frame in frames {
        file.extend(words(&[1, 7, frame.len() as u32, frame.len() as u32]));
        file.extend(*frame);
    }
    file
}
