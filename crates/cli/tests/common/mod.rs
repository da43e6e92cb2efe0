//! Helpers of the tests of the `sidestep` program: they run it, and write and read captures with an
//! independent implementation.

#![allow(dead_code, reason = "each test program uses a part")]

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{
    Block, EnhancedPacketBlock, InterfaceDescriptionBlock, Linktype, OptionCode, PcapBlockOwned,
    PcapError, PcapNGOption, PcapNGReader, SectionHeaderBlock, ToVec,
};

/// Path of the program under test: `$SIDESTEP`, or the one that cargo built for the tests.
/// `./dev test --release` sets the variable to the program that ships.
pub fn program() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let built = || env!("CARGO_BIN_EXE_sidestep").to_owned();
        std::env::var("SIDESTEP").unwrap_or_else(|_| built())
    });
    &PROGRAM
}

/// Runs the program.
pub fn sidestep(args: &[&str]) -> Output {
    Command::new(program())
        .args(args)
        .output()
        .expect("the program was built")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// A folder of its own for one test, with files in it.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// The path of a file, as text.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).expect("writable");
        self.path(name)
    }
}

/// The capture of these packets: interface, nanoseconds, frame.
pub fn pcapng(packets: &[(&str, u64, Vec<u8>)]) -> Vec<u8> {
    let mut section = SectionHeaderBlock {
        block_type: 0,
        block_len1: 0,
        bom: 0,
        major_version: 1,
        minor_version: 0,
        section_len: -1,
        options: vec![],
        block_len2: 0,
    };
    let mut file = section.to_vec().expect("a block");
    let mut names: Vec<&str> = packets.iter().map(|(name, ..)| *name).collect();
    names.sort_unstable();
    names.dedup();
    for name in &names {
        let name = PcapNGOption {
            code: OptionCode::IfName,
            len: name.len() as u16,
            value: Cow::Borrowed(name.as_bytes()),
        };
        let mut interface = InterfaceDescriptionBlock {
            block_type: 0,
            block_len1: 0,
            linktype: Linktype::ETHERNET,
            reserved: 0,
            snaplen: 0,
            options: vec![name],
            block_len2: 0,
            if_tsresol: 9,
            if_tsoffset: 0,
        };
        file.extend(interface.to_vec().expect("a block"));
    }
    for (name, time, frame) in packets {
        let mut packet = EnhancedPacketBlock {
            block_type: 0,
            block_len1: 0,
            if_id: names
                .iter()
                .position(|known| known == name)
                .expect("listed") as u32,
            ts_high: (time >> 32) as u32,
            ts_low: *time as u32,
            caplen: frame.len() as u32,
            origlen: frame.len() as u32,
            data: frame,
            options: vec![],
            block_len2: 0,
        };
        file.extend(packet.to_vec().expect("a block"));
    }
    file
}

/// The packets of a capture: interface, nanoseconds, frame.
pub fn read_pcapng(file: &[u8]) -> Vec<(String, u64, Vec<u8>)> {
    let (mut names, mut packets) = (vec![], vec![]);
    let mut reader = PcapNGReader::new(1 << 18, file).expect("a section header");
    loop {
        let length = match reader.next() {
            Ok((length, block)) => {
                match block {
                    PcapBlockOwned::NG(Block::InterfaceDescription(idb)) => {
                        assert_eq!((idb.linktype, idb.if_tsresol), (Linktype::ETHERNET, 9));
                        names.push(idb.if_name().expect("a name").expect("UTF-8").to_owned());
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(epb)) => {
                        assert!(!epb.truncated());
                        let time = u64::from(epb.ts_high) << 32 | u64::from(epb.ts_low);
                        packets.push((
                            names[epb.if_id as usize].clone(),
                            time,
                            epb.packet_data().to_vec(),
                        ));
                    }
                    _ => {}
                }
                length
            }
            Err(PcapError::Eof) => return packets,
            Err(PcapError::Incomplete(_)) => {
                reader.refill().expect("memory");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        reader.consume(length);
    }
}

/// A group of golden cases.
#[derive(serde::Deserialize)]
pub struct Group {
    pub cases: Vec<Case>,
}

/// One golden case.
#[derive(serde::Deserialize)]
pub struct Case {
    pub name: String,
    #[serde(default)]
    pub earlier: Vec<At>,
    #[serde(rename = "in")]
    pub input: At,
    pub expect: Expect,
}

/// A frame at a port.
#[derive(serde::Deserialize)]
pub struct At {
    pub port: String,
    frame: String,
}

impl At {
    pub fn bytes(&self) -> Vec<u8> {
        let digits: Vec<u8> = self.frame.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| {
            u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex")
        };
        digits.chunks(2).map(byte).collect()
    }
}

/// Expected result.
#[derive(serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    Forward(At),
    Drop(String),
    Kernel(String),
}

/// The folder of the golden cases.
pub fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// The cases of a group, and its node as a file of its own.
pub fn group(path: &Path) -> (Vec<Case>, String) {
    let text = fs::read_to_string(path).expect("readable");
    let group: Group =
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let node = text
        .split("\nnode:\n")
        .nth(1)
        .and_then(|rest| rest.split("\ncases:\n").next())
        .expect("node, cases");
    let node: Vec<&str> = node
        .lines()
        .map(|line| line.get(2..).unwrap_or_default())
        .collect();
    (group.cases, node.join("\n") + "\n")
}

/// The cases of the group of that name, and its node.
pub fn named_group(name: &str) -> (Vec<Case>, String) {
    group(&vectors().join(format!("{name}.yaml")))
}
