//! `sidestep replay`: runs captured packets through the native target, with the tables that the
//! node would have in the kernel. It needs no privileges and no interfaces.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use sidestep_control::compile::{CompileError, Compiled, Compiler};
use sidestep_control::pcap::PcapFilter;
use sidestep_datapath::{FRAME_MAX, Limits, Native, Verdict};
use sidestep_model::node::{IfIndex, Mac, Node};
use thiserror::Error;

pub mod capture_read;
pub mod capture_write;
pub mod explain;
pub mod report;

use crate::explain::{Explanation, Names};
use crate::style::Style;
use crate::{Outcome, node_file, tables};
use capture_read::{CaptureError, CaptureReader, Interface, Link};
use capture_write::CaptureWriter;
use explain::{Printer, json_line};
use report::{NotReplayed, Report};

/// Size of the file buffers, in bytes.
const BUFFER: usize = 1 << 18;

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Node file (YAML) with ports, neighbors, routes and rules
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Capture to replay: pcap or pcapng with Ethernet frames, or of `tcpdump -i any`; `-` is standard
    /// input
    #[arg(long = "in", value_name = "FILE")]
    pub input: PathBuf,
    /// Write forwarded packets to a pcapng file, one interface per port [default: count only]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Ingress port of all packets [default: the interface name in the pcapng file]
    #[arg(long, value_name = "NAME")]
    pub port: Option<String>,
    /// Print every step of each packet, with RFC sections
    #[arg(long)]
    pub explain: bool,
    /// Print JSON; with --explain, one line per packet and the report as the last line
    #[arg(short, long)]
    pub json: bool,
}

/// Error that ends a replay.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The capture is invalid.
    #[error("{}: {source}", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The error in it.
        source: CaptureError,
    },
    /// The ingress port of a packet is unknown.
    #[error("{}: packet {packet} (byte {offset}): {problem}; the ports of the node are {ports}", .path.display())]
    UnknownPort {
        /// The capture.
        path: PathBuf,
        /// Number of the packet, from 1.
        packet: u64,
        /// Offset in the file.
        offset: u64,
        /// Content of the capture, and advice.
        problem: String,
        /// Ports of the node.
        ports: String,
    },
    /// `--port` names no port.
    #[error("--port {given}: no such port; the ports of the node are {ports}")]
    NoSuchPort {
        /// The name.
        given: String,
        /// Ports of the node.
        ports: String,
    },
    /// The capture does not have the packet, or only a part of it.
    #[error("{}: packet {packet}: {problem}", .path.display())]
    Packet {
        /// The capture.
        path: PathBuf,
        /// Number of the packet, from 1.
        packet: u64,
        /// Problem.
        problem: String,
    },
    /// No packet of the capture matches the filter.
    #[error("{}: no packet that arrived matches the filter, from packet {from} on; the capture has {number}", .path.display())]
    NoMatch {
        /// The capture.
        path: PathBuf,
        /// Number of the first candidate, from 1.
        from: u64,
        /// Number of packets, in words.
        number: String,
    },
    /// The node cannot be compiled.
    #[error("{}: {source}", .path.display())]
    Compile {
        /// The node file.
        path: PathBuf,
        /// Error of the compiler.
        source: CompileError,
    },
    /// Standard output has the report.
    #[error("--out -: standard output has the report; name a file")]
    OutIsStdout,
    /// The output would overwrite the input.
    #[error("{}: the same file for --in and --out", .0.display())]
    SameFile(PathBuf),
    /// A file cannot be opened or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Stdout(#[from] io::Error),
}

/// A node with the packets that it has processed.
pub struct Replay {
    node: Node,
    compiled: Compiled,
    native: Native,
    /// Ingress port of all packets, if one is given.
    port: Option<IfIndex>,
    packets: u64,
    not_replayed: [NotReplayed; 4],
}

/// Outputs for each packet.
pub struct Sinks<'a, W: Write> {
    /// Output for forwarded packets.
    pub capture: Option<CaptureWriter<W>>,
    /// Output for explanations.
    pub explain: Option<(Printer, &'a mut dyn Write)>,
}

impl<W: Write> Sinks<'_, W> {
    /// Explains a packet, if requested. If the reader closes standard output (`| head`), the
    /// capture is still written.
    fn explain(
        &mut self,
        print: impl FnOnce(Printer, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), ReplayError> {
        let Some((printer, out)) = &mut self.explain else {
            return Ok(());
        };
        match print(*printer, *out) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && self.capture.is_some() => {
                self.explain = None;
                Ok(())
            }
            other => Ok(other?),
        }
    }
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let node = node_file::read(&args.config)?;
    let mut replay = Replay::new(node, args.port.as_deref(), &args.config)?;
    let on_file = |path: &Path, source| ReplayError::File {
        path: path.into(),
        source,
    };
    let mut reader = open(&args.input)?;
    let capture = args.out.as_ref().map(|path| {
        if path == Path::new("-") {
            return Err(ReplayError::OutIsStdout);
        }
        if is_same_file(path, &args.input) {
            return Err(ReplayError::SameFile(path.clone()));
        }
        let writer = File::create(path)
            .and_then(|file| replay.writer(BufWriter::with_capacity(BUFFER, file)));
        writer.map_err(|source| on_file(path, source))
    });
    let out_path = args.out.clone().unwrap_or_default();
    let printer = Printer {
        json: args.json,
        style: if args.json {
            Style::Plain
        } else {
            Style::of_stdout()
        },
    };
    let mut sinks = Sinks {
        capture: capture.transpose()?,
        explain: if args.explain {
            Some((printer, &mut *out))
        } else {
            None
        },
    };
    let result = replay.all(&mut reader, &mut sinks, &args.input, &out_path);
    // Results up to the error are kept and reported.
    let finished = sinks
        .capture
        .map_or(Ok(()), |capture| capture.finish().map(drop));
    let result = result.and(finished.map_err(|source| on_file(&out_path, source)));
    let mut report = replay.report();
    report.out = args.out.as_ref().map(|path| path.display().to_string());
    report.error = result.as_ref().err().map(ToString::to_string);
    if args.json {
        json_line(out, &report)?;
    } else {
        report.print(out)?;
    }
    Ok(result?)
}

/// A capture, or standard input.
type Input = BufReader<Box<dyn Read>>;

/// Opens a capture; `-` is standard input.
fn open(path: &Path) -> Result<CaptureReader<Input>, ReplayError> {
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        let file = File::open(path).map_err(|source| ReplayError::File {
            path: path.into(),
            source,
        })?;
        Box::new(file)
    };
    CaptureReader::new(BufReader::with_capacity(BUFFER, input)).map_err(|source| {
        ReplayError::Capture {
            path: path.into(),
            source,
        }
    })
}

/// A packet of a capture.
pub struct Captured {
    /// Its number, from 1.
    pub number: u64,
    /// Where it was captured.
    pub interface: Interface,
    /// Link layer.
    pub link: Link,
    /// The frame.
    pub frame: Vec<u8>,
}

impl Captured {
    /// Sets the destination of a frame to its interface, whose address the capture omits.
    pub fn address_to(&mut self, port: Mac) {
        if self.link == Link::ToInterface {
            self.frame[..6].copy_from_slice(&port.0);
        }
    }
}

/// Returns one packet of a capture: packet `from`, or the first one from there on that arrived and
/// matches the filter. Packets count from 1.
///
/// # Errors
/// The capture cannot be read up to the packet, ends before it, or has only a part of it.
pub fn captured(
    path: &Path,
    from: u64,
    filter: Option<&PcapFilter>,
) -> Result<Captured, ReplayError> {
    let mut reader = open(path)?;
    let mut packets = 0;
    let wrong = |packet, problem| ReplayError::Packet {
        path: path.into(),
        packet,
        problem,
    };
    loop {
        let packet = reader
            .next_packet()
            .map_err(|source| ReplayError::Capture {
                path: path.into(),
                source,
            })?;
        let Some(packet) = packet else {
            let number = tables::count(packets, "packet");
            return Err(if filter.is_some() && from <= packets {
                let path = path.into();
                ReplayError::NoMatch { path, from, number }
            } else {
                wrong(from, format!("the capture has {number}, counted from 1"))
            });
        };
        packets = packet.number;
        if packets < from {
            continue;
        }
        let (length, all) = (packet.data.len(), packet.original_length);
        if let Some(filter) = filter {
            let matches = filter.matches(packet.data, all as usize);
            let matches = matches.map_err(|error| wrong(packets, format!("filter: {error}")))?;
            let is_other = matches!(packet.link, Link::Other(_));
            if packet.is_outbound || is_other || !matches {
                continue;
            }
        }
        let problem = if packet.is_outbound {
            "it left by its interface; expected a packet that arrived".into()
        } else if let Link::Other(link_type) = packet.link {
            format!("its link type is {link_type}; expected an Ethernet frame")
        } else if packet.is_truncated() {
            format!("the capture has only {length} of its {all} bytes")
        } else if length > FRAME_MAX {
            format!("{length} bytes; expected at most {FRAME_MAX}")
        } else {
            return Ok(Captured {
                number: packets,
                interface: packet.interface.clone(),
                link: packet.link,
                frame: packet.data.to_vec(),
            });
        };
        return Err(wrong(packets, problem));
    }
}

impl Replay {
    /// Compiles the node. `port` is the ingress port of all packets; without it, the capture names
    /// the port. `config` is the path for error messages.
    pub fn new(node: Node, port: Option<&str>, config: &Path) -> Result<Self, ReplayError> {
        let port = match port {
            None => None,
            Some(name) => match node.link_by_name(name) {
                Some(link) => Some(link.ifindex),
                None => {
                    return Err(ReplayError::NoSuchPort {
                        given: name.into(),
                        ports: port_names(&node),
                    });
                }
            },
        };
        let compiled = Compiler::new(Limits::default())
            .compile(&node, &node.links.keys().copied().collect())
            .map_err(|source| ReplayError::Compile {
                path: config.into(),
                source,
            })?;
        let native = Native::new(&compiled.image);
        let not_replayed = [
            NotReplayed::TRUNCATED_CAPTURE,
            NotReplayed::FRAME_TOO_LONG,
            NotReplayed::OUTBOUND,
            NotReplayed::OTHER_LINK_TYPE,
        ];
        Ok(Self {
            node,
            compiled,
            native,
            port,
            packets: 0,
            not_replayed,
        })
    }

    /// Returns a writer for a capture with the ports of the node.
    pub fn writer<W: Write>(&self, out: W) -> io::Result<CaptureWriter<W>> {
        CaptureWriter::new(
            out,
            self.node
                .links
                .values()
                .map(|link| (link.ifindex.0, link.name.as_str())),
        )
    }

    /// Runs all packets of a capture. Error messages name `input` and `output`.
    pub fn all<R: Read, W: Write>(
        &mut self,
        reader: &mut CaptureReader<R>,
        sinks: &mut Sinks<'_, W>,
        input: &Path,
        output: &Path,
    ) -> Result<(), ReplayError> {
        loop {
            let packet = reader
                .next_packet()
                .map_err(|source| ReplayError::Capture {
                    path: input.into(),
                    source,
                })?;
            let Some(packet) = packet else { return Ok(()) };
            if packet.is_outbound {
                // `trace --write` also writes the packets that left.
                self.packets += 1;
                self.not_replayed[2].packets += 1;
                continue;
            }
            if let Link::Other(_) = packet.link {
                self.packets += 1;
                self.not_replayed[3].packets += 1;
                continue;
            }
            let ingress =
                self.ingress(packet.interface)
                    .map_err(|problem| ReplayError::UnknownPort {
                        path: input.into(),
                        packet: packet.number,
                        offset: packet.offset,
                        problem,
                        ports: port_names(&self.node),
                    })?;
            self.packets += 1;
            let names = Names {
                node: &self.node,
                index: &self.compiled.index,
            };
            let impossible = [packet.is_truncated(), packet.data.len() > FRAME_MAX];
            if let Some(index) = impossible.iter().position(|impossible| *impossible) {
                let reason = &mut self.not_replayed[index];
                reason.packets += 1;
                let (reason, sentence) = (reason.reason, reason.sentence);
                sinks.explain(|printer, out| {
                    printer.not_replayed(out, &packet, &names.port(ingress.0), reason, sentence)
                })?;
                continue;
            }
            self.native.set_now(packet.timestamp.unwrap_or(0));
            let mut addressed = Vec::new();
            let mut frame = packet.data;
            if packet.link == Link::ToInterface {
                let mac = self.node.links.get(&ingress).map(|link| link.mac);
                addressed.extend(mac.unwrap_or_default().0);
                addressed.extend(&frame[6..]);
                frame = &addressed;
            }
            let verdict = self.native.run(ingress.0, frame);
            sinks.explain(|printer, out| {
                let explanation = Explanation::new(names, &self.native, frame, verdict);
                printer.packet(out, &packet, &names.port(ingress.0), &explanation)
            })?;
            if let (Verdict::Forward { ifindex }, Some(capture)) = (verdict, &mut sinks.capture) {
                // A packet without a timestamp (Simple Packet Block) gets 0, because the format
                // requires one.
                let written =
                    capture.write(ifindex, packet.timestamp.unwrap_or(0), self.native.frame());
                written.map_err(|source| ReplayError::File {
                    path: output.into(),
                    source,
                })?;
            }
        }
    }

    /// Returns the report on the packets so far.
    pub fn report(&self) -> Report {
        Report::new(
            &self.node,
            &self.compiled.index,
            &self.native,
            self.packets,
            &self.not_replayed,
        )
    }

    /// Returns the ingress port of a packet that was captured on this interface.
    ///
    /// # Errors
    /// The capture does not name a port of the node.
    fn ingress(&self, interface: &Interface) -> Result<IfIndex, String> {
        if let Some(port) = self.port {
            return Ok(port);
        }
        let number = interface.number;
        let Some(name) = &interface.name else {
            return Err(format!(
                "the capture has no name for interface {number}; use --port NAME"
            ));
        };
        match self.node.link_by_name(name) {
            Some(link) => Ok(link.ifindex),
            None => Err(format!(
                "its interface {name:?} is not a port of the node; use --port NAME"
            )),
        }
    }
}

fn port_names(node: &Node) -> String {
    let names: Vec<_> = node.links.values().map(|link| link.name.as_str()).collect();
    if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    }
}

/// Returns whether both paths lead to the same file.
fn is_same_file(output: &Path, input: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path| {
        fs::metadata(path)
            .map(|metadata| (metadata.dev(), metadata.ino()))
            .ok()
    };
    identity(output).is_some_and(|output| Some(output) == identity(input))
}
