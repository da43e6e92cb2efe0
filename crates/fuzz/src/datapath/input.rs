//! Format of an input: node, port and circumstances, followed by the frame.
//!
//! ```text
//! 0        4      5         6               7
//! +--------+------+---------+---------------+--------
//! |  node  | port | variant | circumstances | frame
//! +--------+------+---------+---------------+--------
//! ```
//!
//! Circumstances: headroom in the first three bits, segment size in the next two.

use super::nodes::Variant;

/// Bytes before the frame.
pub const HEADER: usize = 7;
/// Bytes in front of a frame that behaviors may push headers into.
pub const HEADROOMS: [usize; 8] = [512, 0, 8, 40, 56, 64, 96, 256];
/// Segment size of segmentation offload in bytes of payload; 0 for no segmentation.
pub const SEGMENT_SIZES: [u32; 4] = [0, 8, 100, 1400];

/// A parsed input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input<'a> {
    /// Hash of the node's group name, so that an input keeps its meaning when vectors are added. A
    /// value between two hashes selects the next one.
    pub node: u32,
    /// Position of the port. Values beyond the last port wrap around.
    pub port: u8,
    /// Changes to the node.
    pub variant: Variant,
    /// One of [`HEADROOMS`].
    pub headroom: usize,
    /// One of [`SEGMENT_SIZES`].
    pub segment_size: u32,
    /// The frame.
    pub frame: &'a [u8],
}

impl<'a> Input<'a> {
    /// Parses an input. Returns `None` if the bytes are too short.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (header, frame) = bytes.split_first_chunk::<HEADER>()?;
        let [a, b, c, d, port, variant, circumstances] = *header;
        Some(Self {
            node: u32::from_be_bytes([a, b, c, d]),
            port,
            variant: Variant::of(variant),
            headroom: HEADROOMS[usize::from(circumstances >> 5)],
            segment_size: SEGMENT_SIZES[usize::from(circumstances >> 3 & 3)],
            frame,
        })
    }

    /// Returns the bytes of the input.
    pub fn bytes(&self) -> Vec<u8> {
        let headroom = HEADROOMS.iter().position(|&it| it == self.headroom);
        let segment_size = SEGMENT_SIZES.iter().position(|&it| it == self.segment_size);
        let circumstances =
            headroom.unwrap_or_default() << 5 | segment_size.unwrap_or_default() << 3;
        let mut bytes = self.node.to_be_bytes().to_vec();
        bytes.extend([self.port, self.variant as u8, circumstances as u8]);
        bytes.extend(self.frame);
        bytes
    }
}

/// Encoding of a node in an input: FNV-1a of its group's name.
pub fn node_hash(group: &str) -> u32 {
    group.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_read_as_it_was_written() {
        let input = Input {
            node: node_hash("end"),
            port: 3,
            variant: Variant::Unresolved,
            headroom: 64,
            segment_size: 100,
            frame: &[1, 2, 3],
        };
        assert_eq!(Input::read(&input.bytes()), Some(input));
        assert_eq!(Input::read(&input.bytes()[..HEADER - 1]), None);
    }
}
