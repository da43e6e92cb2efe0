//! Files are put together here by hand, from the drafts, not by our own writer.

use super::*;

/// Puts 16, 32 and 64 bit fields of one byte order together.
#[derive(Clone)]
struct Bytes {
    order: Order,
    out: Vec<u8>,
}

impl Bytes {
    fn new(order: Order) -> Self {
        Self { order, out: vec![] }
    }

    fn u16(mut self, value: u16) -> Self {
        let bytes = if self.order == Order::Little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        };
        self.out.extend(bytes);
        self
    }

    fn u32(mut self, value: u32) -> Self {
        let bytes = if self.order == Order::Little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        };
        self.out.extend(bytes);
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.out.extend(bytes);
        self
    }

    fn block(self, kind: u32, body: &Self) -> Self {
        let mut body = body.out.clone();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = body.len() as u32 + 12;
        self.u32(kind).u32(length).bytes(&body).u32(length)
    }

    fn part(&self) -> Self {
        Self::new(self.order)
    }

    fn option(self, code: u16, value: &[u8]) -> Self {
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        self.u16(code)
            .u16(value.len() as u16)
            .bytes(value)
            .bytes(&padding)
    }

    fn section(self) -> Self {
        let body = self
            .part()
            .u32(0x1a2b_3c4d)
            .u16(1)
            .u16(0)
            .u32(u32::MAX)
            .u32(u32::MAX);
        self.block(0x0a0d_0d0a, &body)
    }

    /// An interface with that snap length and these options.
    fn interface(self, link_type: u16, snap_length: u32, options: &[(u16, &[u8])]) -> Self {
        let mut body = self.part().u16(link_type).u16(0).u32(snap_length);
        for (code, value) in options {
            body = body.option(*code, value);
        }
        self.block(1, &body)
    }

    fn enhanced(self, interface: u32, ticks: u64, original: u32, data: &[u8]) -> Self {
        let body = self
            .part()
            .u32(interface)
            .u32((ticks >> 32) as u32)
            .u32(ticks as u32);
        let body = body.u32(data.len() as u32).u32(original).bytes(data);
        self.block(6, &body)
    }
}

/// A packet as it was read, with its interface's name.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    offset: u64,
    interface: Option<String>,
    timestamp: Option<u64>,
    original_length: u32,
    data: Vec<u8>,
}

fn read(file: &[u8]) -> (Vec<Seen>, Option<CaptureError>) {
    // One byte at a time: the worst that a pipe can do.
    struct Slow<'a>(&'a [u8]);
    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }
    let mut seen = vec![];
    let mut reader = match CaptureReader::new(Slow(file)) {
        Ok(reader) => reader,
        Err(error) => return (seen, Some(error)),
    };
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) => {
                assert_eq!(packet.number, seen.len() as u64 + 1);
                seen.push(Seen {
                    offset: packet.offset,
                    interface: packet.interface.name.clone(),
                    timestamp: packet.timestamp,
                    original_length: packet.original_length,
                    data: packet.data.to_vec(),
                });
            }
            Ok(None) => return (seen, None),
            Err(error) => return (seen, Some(error)),
        }
    }
}

fn pcap(order: Order, magic: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = Bytes::new(order)
        .u32(magic)
        .u16(2)
        .u16(4)
        .u32(0)
        .u32(0)
        .u32(65535)
        .u32(1);
    for (seconds, fraction, data) in packets {
        let length = data.len() as u32;
        file = file
            .u32(*seconds)
            .u32(*fraction)
            .u32(length)
            .u32(length + 1)
            .bytes(data);
    }
    file.out
}

/// A file with everything that a file can have, in one section of each byte order.
fn pcapng() -> Vec<u8> {
    let little = Bytes::new(Order::Little).section();
    let little = little.interface(1, 0, &[(2, b"eth0"), (9, &[9]), (0, b"")]);
    let little = little.enhanced(0, 1_700_000_000_123_456_789, 3, &[1, 2, 3]);
    let name_resolution = little.part().u32(0);
    let little = little.block(4, &name_resolution);
    let simple = little.part().u32(5).bytes(&[5; 5]);
    let little = little.block(3, &simple);
    let big = Bytes::new(Order::Big).section();
    let big = big.interface(1, 4, &[(2, b"left\0")]);
    let big = big.interface(1, 0, &[(14, &10_i64.to_be_bytes()), (9, &[0x80 | 1])]);
    let simple = big.part().u32(6).bytes(&[6; 4]);
    let big = big.block(3, &simple);
    let obsolete = big
        .part()
        .u16(1)
        .u16(0xffff)
        .u32(0)
        .u32(3)
        .u32(2)
        .u32(9)
        .bytes(&[7; 2]);
    let big = big.block(2, &obsolete);
    [little.out, big.out].concat()
}

fn seen(
    offset: u64,
    interface: Option<&str>,
    timestamp: Option<u64>,
    original_length: u32,
    data: &[u8],
) -> Seen {
    Seen {
        offset,
        interface: interface.map(str::to_owned),
        timestamp,
        original_length,
        data: data.to_vec(),
    }
}

#[test]
fn pcap_is_read_in_both_byte_orders_and_units() {
    for order in [Order::Little, Order::Big] {
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            let file = pcap(order, magic, &[(1, 5, &[1; 3]), (u32::MAX, 999_999, &[])]);
            let (packets, error) = read(&file);
            assert!(error.is_none(), "{error:?}");
            let last = u64::from(u32::MAX) * 1_000_000_000 + 999_999 * unit;
            let expected = [
                seen(24, None, Some(1_000_000_000 + 5 * unit), 4, &[1; 3]),
                seen(43, None, Some(last), 1, &[]),
            ];
            assert_eq!(packets, expected);
        }
    }
}

#[test]
fn pcapng_is_read_with_sections_of_both_byte_orders_and_all_packet_blocks() {
    let (packets, error) = read(&pcapng());
    assert!(error.is_none(), "{error:?}");
    let expected = [
        seen(
            68,
            Some("eth0"),
            Some(1_700_000_000_123_456_789),
            3,
            &[1, 2, 3],
        ),
        seen(120, Some("eth0"), None, 5, &[5; 5]),
        seen(244, Some("left"), None, 6, &[6; 4]),
        seen(264, None, Some(11_500_000_000), 9, &[7; 2]),
    ];
    assert_eq!(packets, expected);
}

/// Cuts `file` behind every byte: the packets that are whole are read; then there is nothing wrong
/// where a record ends (`ends`), and an error with the offset of the record elsewhere.
fn cut_at_every_byte(file: &[u8], ends: &[usize]) {
    let (whole, error) = read(file);
    assert!(error.is_none(), "{error:?}");
    for length in 0..file.len() {
        let (packets, error) = read(&file[..length]);
        assert!(whole.starts_with(&packets), "cut at {length}");
        if ends.contains(&length) {
            assert!(error.is_none(), "cut at {length}: {error:?}");
            continue;
        }
        let error = error.unwrap_or_else(|| panic!("cut at {length}: no error"));
        if length < 4 {
            assert!(
                matches!(error, CaptureError::NotACapture(_)),
                "cut at {length}: {error}"
            );
            continue;
        }
        let start = ends
            .iter()
            .rev()
            .find(|end| **end < length)
            .copied()
            .unwrap_or(0);
        assert_eq!(
            error.offset(),
            Some(start as u64),
            "cut at {length}: {error}"
        );
        assert!(
            error
                .to_string()
                .ends_with(&format!("the file ends at byte {length}")),
            "{error}"
        );
    }
}

#[test]
fn a_pcap_file_cut_anywhere_gives_its_whole_packets_and_the_offset_of_the_cut_one() {
    for order in [Order::Little, Order::Big] {
        let file = pcap(
            order,
            0xa1b2_c3d4,
            &[(1, 2, &[1; 20]), (3, 4, &[2; 7]), (5, 6, &[])],
        );
        cut_at_every_byte(&file, &[24, 60, 83]);
    }
}

#[test]
fn a_pcapng_file_cut_anywhere_gives_its_whole_packets_and_the_offset_of_the_cut_block() {
    cut_at_every_byte(&pcapng(), &[28, 68, 104, 120, 144, 172, 204, 244, 264]);
}

#[test]
fn any_byte_may_be_wrong_and_an_error_is_never_before_the_packets_that_were_given() {
    for file in [
        pcapng(),
        pcap(
            Order::Big,
            0xa1b2_c3d4,
            &[(1, 2, &[1; 20]), (3, 4, &[2; 7])],
        ),
    ] {
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, file[at] ^ 1] {
                let mut damaged = file.clone();
                damaged[at] = value;
                let (packets, error) = read(&damaged);
                if let (Some(last), Some(offset)) =
                    (packets.last(), error.and_then(|error| error.offset()))
                {
                    assert!(
                        offset > last.offset,
                        "byte {at} is {value}: error at {offset}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_field_that_is_wrong_is_named_with_its_own_offset() {
    // Byte to change, its value, the offset that is named, and words of the message.
    let cases: [(usize, u8, u64, &str); 10] = [
        (8, 0, 8, "Byte-Order Magic is 0x1a2b3c00"),
        (12, 2, 12, "pcapng version 2"),
        (4, 27, 4, "Section Header Block of 27 bytes"),
        (
            32,
            16,
            32,
            "Interface Description Block of 16 bytes; it has to be a multiple of 4 and at least 20",
        ),
        (46, 99, 44, "option 2 of 99 bytes runs past the end"),
        (
            64,
            44,
            64,
            "the Interface Description Block that begins at byte 28 ends with length 44, not 40",
        ),
        (
            74,
            0xff,
            72,
            "Enhanced Packet Block of 16711716 bytes; at most 1048576 is believed",
        ),
        (
            76,
            1,
            76,
            "a packet of interface 1; this section has described 1 of them so far",
        ),
        (83, 0xff, 80, "the timestamp is before 1970 or after 2554"),
        (
            88,
            5,
            88,
            "packet of 5 bytes in a block that has room for 4",
        ),
    ];
    for (at, value, offset, words) in cases {
        let mut file = pcapng();
        file[at] = value;
        // Nanoseconds leave no room for a date that is too late; seconds do.
        if offset == 80 {
            file[56] = 0;
        }
        let error = read(&file)
            .1
            .unwrap_or_else(|| panic!("byte {at} as {value}: no error"));
        assert_eq!(error.offset(), Some(offset), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let mut file = pcap(Order::Little, 0xa1b2_c3d4, &[(1, 2, &[1; 20])]);
    file[34] = 0x7f;
    assert_eq!(read(&file).1.and_then(|e| e.offset()), Some(32));
    file[4] = 3;
    assert_eq!(read(&file).1.and_then(|e| e.offset()), Some(4));
}

#[test]
fn what_is_no_capture_is_said_to_be_none() {
    for (file, words) in [
        (&b""[..], "the file is empty"),
        (b"GET ", "begins with 47 45 54 20"),
        (&[0x1f, 0x8b, 8, 0, 0], "gzip"),
        (&[0x0a, 0x0d], "begins with 0a 0d"),
    ] {
        let error = read(file).1.expect("no capture").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_block_of_a_kind_that_does_not_matter_may_be_of_any_size() {
    let mut file = Bytes::new(Order::Little).section().interface(1, 0, &[]);
    let big = file.part().bytes(&vec![0xaa; 3 << 20]);
    file = file.block(0x4000_0bad, &big).enhanced(0, 0, 1, &[1]);
    let mut reader = CaptureReader::new(file.out.as_slice()).expect("a capture");
    assert_eq!(
        reader
            .next_packet()
            .expect("right")
            .expect("one packet")
            .data,
        [1]
    );
    assert!(reader.buffered() < 4096);
}

#[test]
fn a_packet_is_outbound_if_its_flags_have_this_direction() {
    let cases: [(&[(u16, u32)], bool); 6] = [
        (&[], false),
        (&[(2, 2)], true),
        (&[(2, 1)], false),
        // A comment comes first, and further bits are set.
        (&[(1, 0x6162_6364), (2, 0x1_0002)], true),
        // The options end before the flags.
        (&[(0, 0), (2, 2)], false),
        (&[(7, 0), (2, 3)], false),
    ];
    for order in [Order::Little, Order::Big] {
        for (options, expected) in cases {
            let file = Bytes::new(order).section().interface(1, 0, &[]);
            // One packet of 5 bytes, padded to 8.
            let mut body = file.part().u32(0).u32(0).u32(0).u32(5).u32(5);
            body = body.bytes(&[9; 5]).bytes(&[0; 3]);
            for (code, value) in options {
                let length = if *code == 0 { 0 } else { 4 };
                body = body.u16(*code).u16(length);
                body = if length == 0 { body } else { body.u32(*value) };
            }
            let file = file.block(6, &body).out;
            let mut reader = CaptureReader::new(file.as_slice()).expect("a capture");
            let packet = reader.next_packet().expect("no damage").expect("a packet");
            assert_eq!(packet.is_outbound, expected, "{order:?} {options:?}");
            assert_eq!(packet.data, [9; 5]);
        }
    }
}
