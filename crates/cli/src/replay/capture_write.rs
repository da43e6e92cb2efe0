//! Writing of captures: one pcapng section with an interface for each port of the node, in
//! nanoseconds, little-endian.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::capture_read::link;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/* Option codes. */
const SHB_USERAPPL: u16 = 4;
const EPB_FLAGS: u16 = 2;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;

/// `if_tsresol`: 10^-9 seconds.
const NANOSECONDS: u8 = 9;
/// Snap length that tcpdump writes; it truncates nothing.
const SNAP_LENGTH: u32 = 262_144;

/// Direction of a packet at its interface: the values of `epb_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The packet arrived.
    Inbound = 1,
    /// The packet left.
    Outbound = 2,
}

/// Writer of a capture.
pub struct CaptureWriter<W: Write> {
    out: W,
    /// Interface index of the node to interface number of the file.
    interfaces: BTreeMap<u32, u32>,
    /// Buffer for the current block.
    block: Vec<u8>,
}

impl<W: Write> CaptureWriter<W> {
    /// Writes the section header and the interfaces. `ports` has the index and name of each
    /// interface, in the order of the file.
    pub fn new<'a>(out: W, ports: impl IntoIterator<Item = (u32, &'a str)>) -> io::Result<Self> {
        let mut writer = Self {
            out,
            interfaces: BTreeMap::new(),
            block: Vec::new(),
        };
        let mut body = Vec::new();
        body.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        body.extend(1_u16.to_le_bytes());
        body.extend(0_u16.to_le_bytes());
        // Section Length: unspecified.
        body.extend((-1_i64).to_le_bytes());
        option(
            &mut body,
            SHB_USERAPPL,
            concat!("sidestep ", env!("CARGO_PKG_VERSION")).as_bytes(),
        );
        end_of_options(&mut body);
        writer.write_block(SECTION_HEADER, &[&body])?;
        for (ifindex, name) in ports {
            writer.add_interface(ifindex, name)?;
        }
        Ok(writer)
    }

    /// Writes a further interface, before its first packet.
    pub fn add_interface(&mut self, ifindex: u32, name: &str) -> io::Result<()> {
        let mut body = Vec::new();
        body.extend(link::ETHERNET.to_le_bytes());
        body.extend([0; 2]);
        body.extend(SNAP_LENGTH.to_le_bytes());
        option(&mut body, IF_NAME, name.as_bytes());
        option(&mut body, IF_TSRESOL, &[NANOSECONDS]);
        end_of_options(&mut body);
        self.write_block(INTERFACE_DESCRIPTION, &[&body])?;
        let number = self.interfaces.len() as u32;
        self.interfaces.insert(ifindex, number);
        Ok(())
    }

    /// Writes a frame of that port. `timestamp`: nanoseconds since 1970-01-01 00:00 UTC.
    pub fn write(&mut self, ifindex: u32, timestamp: u64, frame: &[u8]) -> io::Result<()> {
        self.write_head(ifindex, timestamp, frame, frame.len() as u32, None)
    }

    /// As [`Self::write`], for the first bytes of a frame with this length, and with its direction.
    pub fn write_head(
        &mut self,
        ifindex: u32,
        timestamp: u64,
        frame: &[u8],
        length: u32,
        direction: Option<Direction>,
    ) -> io::Result<()> {
        let interface = *self.interfaces.get(&ifindex).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("interface index {ifindex} is no port of this capture"),
            )
        })?;
        let mut head = [0; 20];
        let fields = [
            interface,
            (timestamp >> 32) as u32,
            timestamp as u32,
            frame.len() as u32,
            length,
        ];
        for (bytes, field) in head.chunks_exact_mut(4).zip(fields) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        let mut options = Vec::new();
        if let Some(direction) = direction {
            option(&mut options, EPB_FLAGS, &(direction as u32).to_le_bytes());
            end_of_options(&mut options);
        }
        let padding = &[0; 3][..frame.len().next_multiple_of(4) - frame.len()];
        self.write_block(ENHANCED_PACKET, &[&head, frame, padding, &options])
    }

    /// Flushes all data to the operating system.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_block(&mut self, kind: u32, body: &[&[u8]]) -> io::Result<()> {
        let unpadded: usize = body.iter().map(|part| part.len()).sum();
        let length = (12 + unpadded.next_multiple_of(4)) as u32;
        self.block.clear();
        self.block.extend(kind.to_le_bytes());
        self.block.extend(length.to_le_bytes());
        for part in body {
            self.block.extend_from_slice(part);
        }
        self.block.resize(length as usize - 4, 0);
        self.block.extend(length.to_le_bytes());
        self.out.write_all(&self.block)
    }
}

/// Appends an option, padded to 4 bytes. Interface names are always short enough for the format.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn end_of_options(body: &mut Vec<u8>) {
    option(body, 0, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
    use pcap_parser::{Block, PcapBlockOwned, PcapError, PcapNGReader};

    #[test]
    fn another_reader_finds_the_interfaces_and_the_packets_with_their_times() {
        let mut writer = CaptureWriter::new(Vec::new(), [(7, "eth0"), (3, "a-longer-name")])
            .expect("into memory");
        let sent = [
            (3, 1_700_000_000_123_456_789, vec![1; 61]),
            (7, u64::MAX, vec![2; 14]),
            (7, 0, vec![]),
        ];
        for (ifindex, timestamp, frame) in &sent {
            writer
                .write(*ifindex, *timestamp, frame)
                .expect("into memory");
        }
        assert!(writer.write(9, 0, &[]).is_err(), "no such port");
        writer.add_interface(4, "late").expect("into memory");
        let outbound = Some(Direction::Outbound);
        writer
            .write_head(4, 5, &[3; 61], 1500, outbound)
            .expect("into memory");
        let file = writer.finish().expect("into memory");

        let (mut names, mut found) = (vec![], vec![]);
        let mut reader = PcapNGReader::new(1 << 16, file.as_slice()).expect("a section header");
        loop {
            let length = match reader.next() {
                Ok((length, PcapBlockOwned::NG(block))) => {
                    match block {
                        Block::InterfaceDescription(idb) => {
                            assert_eq!(
                                (idb.linktype.0, idb.ts_resolution()),
                                (1, Some(1_000_000_000))
                            );
                            names.push(idb.if_name().expect("a name").expect("UTF-8").to_owned());
                        }
                        Block::EnhancedPacket(epb) => {
                            let timestamp = u64::from(epb.ts_high) << 32 | u64::from(epb.ts_low);
                            let interface = [7, 3, 4][epb.if_id as usize];
                            found.push((interface, timestamp, epb.packet_data().to_vec()));
                            let flags = epb.options.iter().find(|option| option.code.0 == 2);
                            let flags = flags.map(|option| option.value.to_vec());
                            let late = interface == 4;
                            assert_eq!(flags, late.then(|| vec![2, 0, 0, 0]));
                            assert_eq!(epb.origlen == 1500, late);
                        }
                        _ => {}
                    }
                    length
                }
                Err(PcapError::Eof) => break,
                Err(PcapError::Incomplete(_)) => {
                    reader.refill().expect("memory");
                    continue;
                }
                Ok(_) => panic!("a block outside the pcapng format"),
                Err(error) => panic!("{error}"),
            };
            reader.consume(length);
        }
        assert_eq!(names, ["eth0", "a-longer-name", "late"]);
        assert_eq!(found[..3], sent);
        assert_eq!(found[3..], [(4, 5, vec![3; 61])]);
    }
}
