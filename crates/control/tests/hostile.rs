//! Frames that nobody would send in good faith, on the native target: cut, flipped, spliced, noise, and whole packets of
//! nested headers whose fields lie. What has to hold for each of them is in [`Bench::run`]; what exactly becomes of a
//! packet is the vectors' business.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use sidestep_abi::{
    SIDESTEP_HEADER_MAX, SIDESTEP_ROUTE_END_DX2, SIDESTEP_ROUTE_END_DX2V, SIDESTEP_ROUTE_OURS,
    SIDESTEP_TRACE_BEHAVIOR, SIDESTEP_TRACE_FORWARD,
};
use sidestep_control::compile::Compiler;
use sidestep_datapath::{FRAME_MAX, FibKey, Image, Limits, Native, Trace, Verdict};
use sidestep_lab::vectors::VectorFile;
use sidestep_model::config;

/// Bytes of a frame that are cut at and flipped one by one: every header of the longest vector.
const HEADERS: usize = 14 + 40 + 8 + 16 * 16 + 40;
/// Made-up packets per node.
const PACKETS: usize = 1500;
/// What the buffer around a frame holds in the first and in the second run of it.
const FILLS: [u8; 2] = [0x00, 0xa5];

/// splitmix64: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `limit` - 1; 0 if `limit` is 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// A node under test.
struct Bench {
    name: String,
    image: Image,
    native: Native,
    /// Buffers of nothing but each of the [`FILLS`]: slices are compared at once, bytes are not.
    filled: [Vec<u8>; 2],
}

/// What a run made of a frame.
#[derive(PartialEq)]
struct Outcome {
    verdict: Verdict,
    frame: Vec<u8>,
    trace: Vec<Trace>,
}

impl Bench {
    fn new(name: &str, image: Image) -> Self {
        Self {
            name: name.into(),
            native: Native::new(&image),
            image,
            filled: FILLS.map(|fill| vec![fill; 2 * FRAME_MAX]),
        }
    }

    fn once(&mut self, ifindex: u32, frame: &[u8], fill: usize) -> Outcome {
        self.native.fill(FILLS[fill]);
        let before = self.native.port_counters(ifindex);
        let verdict = self.native.run(ifindex, frame);
        for outside in self.native.surroundings(frame.len()) {
            assert!(
                *outside == self.filled[fill][..outside.len()],
                "written outside the frame: {}",
                self.case(ifindex, frame)
            );
        }
        let after = self.native.port_counters(ifindex);
        assert_eq!(after.received_packets, before.received_packets + 1);
        assert_eq!(
            after.received_bytes,
            before.received_bytes + frame.len() as u64
        );
        assert_eq!(
            after.received_packets,
            after.forwarded + after.kernel + after.dropped,
            "received is the sum of the verdicts: {}",
            self.case(ifindex, frame)
        );
        Outcome {
            verdict,
            frame: self.native.frame().to_vec(),
            trace: self.native.trace().to_vec(),
        }
    }

    /// For whoever has to find out what went wrong.
    fn case(&self, ifindex: u32, frame: &[u8]) -> String {
        format!("{} interface {ifindex} frame {}", self.name, hex(frame))
    }

    fn run(&mut self, ifindex: u32, frame: &[u8]) {
        let result = self.once(ifindex, frame, 0);
        assert!(
            result == self.once(ifindex, frame, 1),
            "depends on bytes that are not the packet's: {}",
            self.case(ifindex, frame)
        );
        let found = match result.verdict {
            Verdict::Forward { ifindex: egress } => self.forwarded(frame, &result, egress),
            Verdict::Kernel(reason) if reason.name == "decapsulated" => {
                if result.frame[..12] == frame[..12] {
                    is_packet(&result.frame)
                } else {
                    Err("other MAC addresses for the kernel")
                }
            }
            Verdict::Kernel(_) | Verdict::Drop(_) if result.frame != frame => {
                Err("changed, and not sent")
            }
            Verdict::Kernel(_) | Verdict::Drop(_) => Ok(()),
        };
        if let Err(what) = found {
            panic!(
                "{what}: {}
{:?} {}",
                self.case(ifindex, frame),
                result.verdict,
                hex(&result.frame)
            );
        }
    }

    /// What is true of every frame that is sent.
    fn forwarded(&self, arrived: &[u8], result: &Outcome, egress: u32) -> Result<(), &'static str> {
        let check = |holds, what| if holds { Ok(()) } else { Err(what) };
        let frame = &result.frame[..];
        let last = result.trace.last().ok_or("sent without a step")?;
        check(last.kind == SIDESTEP_TRACE_FORWARD, "sent before the end")?;
        let adjacency = self
            .image
            .adjacencies
            .get(&last.a)
            .ok_or("sent to no next hop")?;
        check(adjacency.ifindex == egress, "sent out of another interface")?;
        check(frame.len() >= 14, "shorter than its Ethernet header")?;
        let payload = &frame[14..];
        check(
            payload.len() == last.b as usize,
            "another length than was planned",
        )?;
        check(last.b <= adjacency.mtu, "longer than the MTU")?;
        check(
            frame.len() <= arrived.len() + 14 + SIDESTEP_HEADER_MAX as usize,
            "grew by more than the longest header",
        )?;
        let carries_frames = [SIDESTEP_ROUTE_END_DX2, SIDESTEP_ROUTE_END_DX2V];
        if result
            .trace
            .iter()
            .any(|step| step.kind == SIDESTEP_TRACE_BEHAVIOR && carries_frames.contains(&step.a))
        {
            // A frame of the customer's, whatever is in it; but as it stood in the packet.
            return check(
                arrived
                    .windows(frame.len())
                    .any(|part| part == &result.frame[..]),
                "a frame that was not in the packet",
            );
        }
        check(
            frame[..6] == adjacency.destination,
            "another destination MAC",
        )?;
        check(frame[6..12] == adjacency.source, "another source MAC")?;
        is_packet(frame)?;
        check(
            frame[if frame[12] == 0x86 { 21 } else { 22 }] != 0,
            "hop limit 0",
        )
    }
}

/// Whether a frame carries one IP packet and nothing else.
fn is_packet(frame: &[u8]) -> Result<(), &'static str> {
    let check = |holds, what| if holds { Ok(()) } else { Err(what) };
    check(frame.len() >= 14, "no Ethernet header")?;
    let payload = &frame[14..];
    match frame[12..14] {
        [0x86, 0xdd] => {
            check(
                payload.len() >= 40 && payload[0] >> 4 == 6,
                "no IPv6 header",
            )?;
            let length = usize::from(u16::from_be_bytes([payload[4], payload[5]]));
            check(
                length + 40 == payload.len(),
                "Payload Length is not the payload's",
            )
        }
        [0x08, 0x00] => {
            check(payload.len() >= 20 && payload[0] == 0x45, "no IPv4 header")?;
            let length = usize::from(u16::from_be_bytes([payload[2], payload[3]]));
            check(length == payload.len(), "Total Length is not the packet's")?;
            check(ipv4_sum(&payload[..20]) == 0xffff, "IPv4 checksum")
        }
        _ => Err("neither IPv6 nor IPv4"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn ipv4_sum(header: &[u8]) -> u32 {
    let mut sum: u32 = header
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Ingress interface and frame.
type Arrival = (u32, Vec<u8>);

/// Every node of the vectors, with its cases.
fn benches() -> Vec<(Bench, Vec<Arrival>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let files = VectorFile::read_all(&directory).expect("the vector files are of the format");
    files
        .iter()
        .map(|file| {
            let node = config::File::parse(&file.node_text)
                .and_then(|parsed| parsed.node())
                .unwrap_or_else(|e| panic!("{}: {e}", file.group));
            let ports: BTreeSet<_> = node.links.keys().copied().collect();
            let compiled = Compiler::new(Limits::default())
                .compile(&node, &ports)
                .expect("a vector's node compiles");
            let cases = file
                .cases
                .iter()
                .map(|case| {
                    let port = node
                        .link_by_name(&case.port)
                        .expect("checked by the reader");
                    (port.ifindex.0, case.frame.clone())
                })
                .collect();
            (Bench::new(&file.group, compiled.image), cases)
        })
        .collect()
}

#[test]
fn every_vector_cut_at_each_byte_keeps_the_rules() {
    for (mut bench, cases) in benches() {
        for (port, frame) in &cases {
            for length in 0..frame.len().min(HEADERS) {
                bench.run(*port, &frame[..length]);
            }
            bench.run(*port, frame);
        }
    }
}

#[test]
fn every_vector_with_each_byte_changed_keeps_the_rules() {
    let mut random = Random(1);
    for (mut bench, cases) in benches() {
        for (port, frame) in &cases {
            let mut changed = frame.clone();
            for at in 0..frame.len().min(HEADERS) {
                changed[at] = match random.below(4) {
                    0 => frame[at] ^ (1 << random.below(8)),
                    1 => frame[at].wrapping_add(1),
                    2 => !frame[at],
                    _ => random.next() as u8,
                };
                bench.run(*port, &changed);
                changed[at] = frame[at];
            }
        }
    }
}

#[test]
fn vectors_spliced_and_noise_keep_the_rules() {
    let mut random = Random(2);
    for (mut bench, cases) in benches() {
        for _ in 0..PACKETS {
            let (port, first) = random.pick(&cases);
            let (_, second) = random.pick(&cases);
            let at = random.below(first.len().min(HEADERS));
            let from = random.below(second.len().min(HEADERS));
            let mut frame = [&first[..at], &second[from..]].concat();
            for _ in 0..random.below(4) {
                let at = random.below(frame.len());
                if let Some(byte) = frame.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
            if random.one_in(2) {
                make_lengths_right(&mut frame);
            }
            bench.run(*port, &frame);

            let length = random.below(400);
            let mut noise = random.bytes(length);
            let header = first.len().min(length).min(14 + random.below(60));
            noise[..header].copy_from_slice(&first[..header]);
            make_lengths_right(&mut noise);
            bench.run(*port, &noise);
        }
    }
}

/// Payload Length or Total Length and header checksum as the frame's length has them, so that more than the first
/// check is reached.
fn make_lengths_right(frame: &mut [u8]) {
    let Some(length) = frame.len().checked_sub(14) else {
        return;
    };
    match frame[12..14] {
        [0x86, 0xdd] if length >= 40 => {
            frame[18..20].copy_from_slice(&((length - 40) as u16).to_be_bytes());
        }
        [0x08, 0x00] if length >= 20 => {
            frame[16..18].copy_from_slice(&(length as u16).to_be_bytes());
            set_ipv4_checksum(&mut frame[14..34]);
        }
        _ => {}
    }
}

fn set_ipv4_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !(ipv4_sum(header) as u16);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Packets of nested headers toward what a node has routes for.
struct Forge<'a> {
    random: Random,
    addresses6: Vec<[u8; 16]>,
    addresses4: Vec<[u8; 4]>,
    cases: &'a [Arrival],
}

impl<'a> Forge<'a> {
    fn new(image: &Image, cases: &'a [Arrival], seed: u64) -> Self {
        let views4: BTreeSet<u32> = image.ports.values().map(|port| port.view4).collect();
        let (four, six): (Vec<&FibKey>, Vec<&FibKey>) =
            image.fib.keys().partition(|key| views4.contains(&key.view));
        let first_four = |bytes: [u8; 16]| [bytes[0], bytes[1], bytes[2], bytes[3]];
        Self {
            random: Random(seed),
            addresses6: six
                .iter()
                .map(|key| key.address)
                .chain([[0x20; 16]])
                .collect(),
            addresses4: four
                .iter()
                .map(|key| first_four(key.address))
                .chain([[192, 0, 2, 1]])
                .collect(),
            cases,
        }
    }

    fn address6(&mut self) -> [u8; 16] {
        let mut address = *self.random.pick(&self.addresses6);
        if self.random.one_in(3) {
            address[15] ^= 1;
        }
        address
    }

    fn hop_limit(&mut self) -> u8 {
        *self.random.pick(&[0, 1, 2, 3, 64, 64, 64, 255])
    }

    /// A frame for a port of the node.
    fn frame(&mut self) -> Arrival {
        let (port, model) = self.random.pick(self.cases).clone();
        let mut frame = model[..model.len().min(12)].to_vec();
        if self.random.one_in(4) {
            frame.extend([0x08, 0x00]);
            frame.extend(self.ipv4());
        } else {
            frame.extend([0x86, 0xdd]);
            frame.extend(self.ipv6(0));
        }
        if self.random.one_in(4) {
            let padding = self.random.below(30);
            frame.extend(self.random.bytes(padding));
        }
        (port, frame)
    }

    fn ipv4(&mut self) -> Vec<u8> {
        let payload = self.random.below(60);
        let mut packet = vec![0x45, self.random.next() as u8];
        packet.extend((20 + payload as u16).to_be_bytes());
        packet.extend([0, 0, 0, 0, self.hop_limit(), 17, 0, 0, 192, 0, 2, 99]);
        let mut destination = *self.random.pick(&self.addresses4);
        destination[3] ^= u8::from(self.random.one_in(2));
        packet.extend(destination);
        set_ipv4_checksum(&mut packet);
        packet.extend(self.random.bytes(payload));
        packet
    }

    fn ipv6(&mut self, depth: usize) -> Vec<u8> {
        let (next_header, payload) = self.chain(depth, 0);
        let word = 6 << 28 | (self.random.next() as u32 & 0x0fff_ffff);
        let mut length = payload.len();
        if self.random.one_in(20) {
            length = length.wrapping_add(self.random.below(32)).wrapping_sub(16);
        }
        let mut packet = word.to_be_bytes().to_vec();
        packet.extend((length as u16).to_be_bytes());
        packet.extend([next_header, self.hop_limit()]);
        packet.extend([
            0x20, 0x01, 0x0d, 0xb8, 0, 0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        ]);
        packet.extend(self.address6());
        packet.extend(payload);
        packet
    }

    /// Extension headers and what they end in: the first Next Header, and the bytes.
    fn chain(&mut self, depth: usize, position: usize) -> (u8, Vec<u8>) {
        if position < 7 && !self.random.one_in(3) {
            let (next, rest) = self.chain(depth, position + 1);
            let (kind, mut header) = match self.random.below(8) {
                0 if position == 0 => (0, vec![next, 0, 1, 4, 0, 0, 0, 0]),
                1 => (60, vec![next, 0, 1, 4, 0, 0, 0, 0]),
                2 => (43, vec![next, 0, 2, self.random.below(2) as u8, 0, 0, 0, 0]),
                3 if self.random.one_in(4) => (44, vec![next, 0, 0, 1, 0, 0, 0, 7]),
                _ => (43, self.srh(next)),
            };
            if self.random.one_in(30) {
                let at = self.random.below(header.len());
                header[at] = self.random.next() as u8;
            }
            header.extend(rest);
            return (kind, header);
        }
        match self.random.below(5) {
            _ if depth == 3 => (59, Vec::new()),
            0 => (4, self.ipv4()),
            1 | 2 => (41, self.ipv6(depth + 1)),
            3 => {
                let mut frame = self.random.bytes(12);
                frame.extend([0x86, 0xdd]);
                frame.extend(self.ipv6(depth + 1));
                (143, frame)
            }
            _ => {
                let length = self.random.below(40);
                (17, self.random.bytes(length))
            }
        }
    }

    fn srh(&mut self, next: u8) -> Vec<u8> {
        let segments = 1 + self.random.below(5);
        let tlvs = self.random.pick(&[0, 0, 0, 8, 16]) / 8 * 8;
        let left = match self.random.below(6) {
            0 => 0,
            1 => segments,
            2 => segments + 1,
            _ => self.random.below(segments),
        };
        let mut header = vec![
            next,
            (segments * 2 + tlvs / 8) as u8,
            4,
            left as u8,
            (segments - 1) as u8,
            if self.random.one_in(12) { 8 } else { 0 },
            0,
            0,
        ];
        for _ in 0..segments {
            header.extend(self.address6());
        }
        for _ in 0..tlvs / 8 {
            header.extend(*self.random.pick(&[
                [0; 8],
                [4, 6, 0, 0, 0, 0, 0, 0],
                [4, 14, 0, 0, 0, 0, 0, 0],
                [128, 6, 1, 2, 3, 4, 5, 6],
            ]));
        }
        header
    }
}

/// The same node with routes that the kernel does not have: what it cannot do anything with, it does not get.
fn ours_only(image: &Image) -> Image {
    let mut image = image.clone();
    for route in image.routes.values_mut() {
        route.flags |= SIDESTEP_ROUTE_OURS as u8;
    }
    image
}

#[test]
fn made_up_header_chains_keep_the_rules() {
    let mut forwarded = 0;
    for (seed, (mut bench, cases)) in benches().into_iter().enumerate() {
        let image = bench.image.clone();
        let mut ours = Bench::new(&format!("{} ours", bench.name), ours_only(&image));
        let mut forge = Forge::new(&image, &cases, seed as u64);
        for _ in 0..PACKETS {
            let (port, frame) = forge.frame();
            bench.run(port, &frame);
            ours.run(port, &frame);
        }
        forwarded += image
            .ports
            .keys()
            .map(|&port| bench.native.port_counters(port).forwarded)
            .sum::<u64>();
    }
    assert!(
        forwarded > 1000,
        "the packets are good enough to be sent: {forwarded}"
    );
}

#[test]
fn frames_of_the_largest_size_keep_the_rules() {
    for (mut bench, cases) in benches() {
        for (port, frame) in cases.iter().take(4) {
            let mut large = frame.clone();
            for length in [9000, 0xffff, 0xffff + 14, 0xffff + 200] {
                large.resize(length, 0);
                make_lengths_right(&mut large);
                let length = length.min(FRAME_MAX);
                bench.run(*port, &large[..length]);
            }
        }
    }
}
