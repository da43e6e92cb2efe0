//! Properties that hold for every frame.
//!
//! - Every frame is counted once as received, once by its verdict, once by its reason if it has
//!   one, and once at its egress if it is forwarded.
//! - A dropped or punted frame is unmodified, except for reasons that document otherwise and for
//!   drops after headers were pushed halfway.
//! - A forwarded or decapsulated packet is complete, has right lengths and checksum, fits the MTU,
//!   and equals the trace's decisions byte for byte ([`super::redo`]).
//! - The kernel gets a packet as it arrived only if it may ([`super::before_punt`]).
//! - Every lookup returned the longest matching prefix of the node's list.
//! - A packet that passed a SID with `require-hmac` had a valid HMAC.
//! - Reports and ICMP errors about a packet quote its own bytes only.
//! - Bytes around the frame are neither written nor read.

use sidestep_control::fragment::fragments;
use sidestep_control::icmp::Kind;
use sidestep_control::icmp::answer::answer;
use sidestep_datapath::abi::{
    SIDESTEP_COPY_BYTES, SIDESTEP_HEADER_MAX, SIDESTEP_LEARNED_MAX, SIDESTEP_POLICY_ENCAPS,
    SIDESTEP_REPORT_BYTES, SIDESTEP_ROUTE_REQUIRE_HMAC, SIDESTEP_TRACE_BEHAVIOR,
    SIDESTEP_TRACE_DECAP, SIDESTEP_TRACE_FORWARD, SIDESTEP_TRACE_HMAC, SIDESTEP_TRACE_LEARN,
    SIDESTEP_TRACE_LOOKUP, SIDESTEP_TRACE_PARSED, SIDESTEP_TRACE_PORT, SIDESTEP_TRACE_PORT_HOP,
    SIDESTEP_TRACE_PUSH, SIDESTEP_TRACE_RESTORE, SIDESTEP_TRACE_SOURCE, sidestep_port_counters,
};
use sidestep_datapath::{
    AdjacencyId, Copied, FRAME_MAX, FibKey, Image, Native, Oversized, PolicyId, Report, RouteId,
    Trace, Verdict, ViewId,
};
use sidestep_wire::{Protocol, checksum};

use super::before_punt;
use super::redo::{Expected, Learned, redo};

/// Fill bytes of the buffer around a frame in the first and second run.
const FILLS: [u8; 2] = [0x00, 0xa5];

/// A node under test.
pub struct Bench {
    name: String,
    image: Image,
    native: Native,
    /// Buffers that contain only one of the [`FILLS`], because comparing slices is faster than
    /// comparing bytes.
    filled: [Vec<u8>; 2],
    segment_size: u32,
    forwarded: u64,
    learned: Learned,
}

/// Result of a run.
#[derive(PartialEq)]
struct Outcome {
    verdict: Verdict,
    frame: Vec<u8>,
    trace: Vec<Trace>,
    report: Option<Report>,
    oversized: Option<Oversized>,
    copies: Vec<Copied>,
}

impl Outcome {
    /// Returns whether the proxy of the pushed headers learned from the same packet.
    fn teaches_its_own_proxy(&self) -> bool {
        let with = |kind| self.trace.iter().filter(move |step| step.kind == kind);
        with(SIDESTEP_TRACE_RESTORE)
            .any(|restored| with(SIDESTEP_TRACE_LEARN).any(|learned| learned.a == restored.a))
    }
}

type Found = Result<(), &'static str>;

fn check(holds: bool, what: &'static str) -> Found {
    if holds { Ok(()) } else { Err(what) }
}

impl Bench {
    /// Returns a node with these tables. The name is for messages about violated properties.
    pub fn new(name: &str, image: Image) -> Self {
        Self {
            name: name.into(),
            native: Native::new(&image),
            image,
            filled: FILLS.map(|fill| vec![fill; 2 * FRAME_MAX]),
            segment_size: 0,
            forwarded: 0,
            learned: Learned::new(),
        }
    }

    /// Returns the tables of the node.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Returns the number of frames that were forwarded so far.
    pub fn forwarded(&self) -> u64 {
        self.forwarded
    }

    /// Returns the interface at a position among the ports. The last position is an interface that
    /// is not a port. The position is taken modulo their number.
    pub fn port(&self, place: u8) -> u32 {
        let ports = &self.image.ports;
        let place = usize::from(place) % (ports.len() + 1);
        ports.keys().nth(place).map_or(0xffff, |&ifindex| ifindex)
    }

    /// Bytes in front of a frame that behaviors may push headers into.
    pub fn set_headroom(&mut self, bytes: usize) {
        self.native.set_headroom(bytes);
    }

    /// Sets the segment size of segmentation offload in bytes of payload; 0 for no segmentation.
    pub fn set_segment_size(&mut self, bytes: u32) {
        self.segment_size = bytes;
        self.native.set_segment_size(bytes);
    }

    /// Runs one frame. Panics if a property is violated.
    pub fn run(&mut self, ifindex: u32, frame: &[u8]) {
        let frame = &frame[..frame.len().min(FRAME_MAX)];
        let result = self.once(ifindex, frame, 0);
        // If a list contains a dynamic proxy twice in a row, the second run starts with the headers
        // that the first one learned.
        assert!(
            result.teaches_its_own_proxy() || result == self.once(ifindex, frame, 1),
            "depends on bytes that are not the packet's: {}",
            self.case(ifindex, frame)
        );
        let judged = self.judge(frame, &result);
        let judged = judged.and_then(|()| match result.verdict {
            Verdict::Punt(reason) if result.frame == frame => {
                before_punt::check(&self.image, ifindex, frame, reason.name)
            }
            _ => Ok(()),
        });
        if let Err(what) = judged {
            panic!(
                "{what}: {}\n{:?} {}",
                self.case(ifindex, frame),
                result.verdict,
                hex::encode(&result.frame)
            );
        }
    }

    /// Returns a description of the case for messages about violated properties.
    fn case(&self, ifindex: u32, frame: &[u8]) -> String {
        format!(
            "{} interface {ifindex} frame {}",
            self.name,
            hex::encode(frame)
        )
    }

    fn once(&mut self, ifindex: u32, frame: &[u8], fill: usize) -> Outcome {
        self.native.fill(FILLS[fill]);
        let before = Counted::of(&self.native, &self.image);
        let verdict = self.native.run(ifindex, frame);
        for outside in self.native.surroundings(frame.len()) {
            assert!(
                *outside == self.filled[fill][..outside.len()],
                "written outside the frame: {}",
                self.case(ifindex, frame)
            );
        }
        let sent = self.native.frame().len();
        let mut after = Counted::of(&self.native, &self.image);
        if let Err(what) = after.follows(&before, ifindex, verdict, frame.len(), sent) {
            panic!("{what}: {} {verdict:?}", self.case(ifindex, frame));
        }
        Outcome {
            verdict,
            frame: self.native.frame().to_vec(),
            trace: self.native.trace().to_vec(),
            report: self.native.report(),
            oversized: self.native.oversized(),
            copies: self.native.copies(),
        }
    }

    fn judge(&mut self, arrived: &[u8], result: &Outcome) -> Found {
        for step in &result.trace {
            check(
                !matches!(
                    step.kind,
                    SIDESTEP_TRACE_LOOKUP | SIDESTEP_TRACE_SOURCE | SIDESTEP_TRACE_PORT_HOP
                ) || step.b == longest_match(&self.image, step.a, step.address),
                "not the longest match",
            )?;
        }
        quotes_itself(arrived, result)?;
        // A proxy also learns from packets that are dropped later.
        let expected = redo(arrived, &result.trace, &self.image, &mut self.learned);
        match result.verdict {
            Verdict::Forward { ifindex } => {
                self.forwarded += 1;
                self.sent(arrived, result, ifindex)?;
                if is_segmented_later(result) {
                    return check(result.frame == arrived, "modified before its segmentation");
                }
                is_authentic(&self.image, &result.trace)?;
                as_decided(expected, result)
            }
            Verdict::Punt(reason) if reason.name == "rewritten" => {
                check(
                    result.frame[..12] == arrived[..12],
                    "punted with other MAC addresses",
                )?;
                is_packet(&result.frame)?;
                as_decided(expected, result)
            }
            Verdict::Punt(reason) if reason.name == "fragmented" => {
                is_fragmented(result)?;
                as_decided(expected, result)
            }
            // Padding that the link added after the packet may be missing.
            Verdict::Punt(reason) | Verdict::Drop(reason)
                if ["headroom", "no_headroom"].contains(&reason.name) =>
            {
                check(
                    (arrived.starts_with(&result.frame) || committed(&result.trace) > 0)
                        && (result.frame == arrived || is_packet(&result.frame).is_ok()),
                    "modified although it was not sent",
                )
            }
            Verdict::Drop(reason) if reason.name == "rewrite" => Ok(()),
            // Headers were pushed halfway, so the packet cannot be unmodified.
            Verdict::Drop(_) if committed(&result.trace) > 0 => is_packet(&result.frame),
            Verdict::Punt(_) | Verdict::Drop(_) => {
                check(result.frame == arrived, "modified, but not sent")
            }
        }
    }

    /// Properties of every forwarded frame.
    fn sent(&self, arrived: &[u8], result: &Outcome, egress: u32) -> Found {
        let frame = &result.frame[..];
        let last = result.trace.last().ok_or("sent without a step")?;
        check(last.kind == SIDESTEP_TRACE_FORWARD, "sent before the end")?;
        let adjacency = self
            .image
            .adjacencies
            .get(&AdjacencyId(last.a))
            .ok_or("sent to no next hop")?;
        check(adjacency.ifindex == egress, "sent out of another interface")?;
        check(frame.len() >= 14, "shorter than its Ethernet header")?;
        let payload = &frame[14..];
        check(payload.len() == last.b as usize, "not the planned length")?;
        // A frame that exceeds the MTU must consist of segments that fit. One tag does not count.
        let has_tag = matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]);
        let mtu = u32::from(adjacency.mtu) + if has_tag { 4 } else { 0 };
        check(
            last.b <= mtu || self.segment_size != 0 && self.segment_size < u32::from(adjacency.mtu),
            "longer than the MTU",
        )?;
        let longest = 14 + SIDESTEP_HEADER_MAX.max(SIDESTEP_LEARNED_MAX) as usize;
        check(
            frame.len() <= arrived.len() + longest * (1 + committed(&result.trace)),
            "grew by more than the longest header",
        )?;
        let headers = [
            SIDESTEP_TRACE_PARSED,
            SIDESTEP_TRACE_DECAP,
            SIDESTEP_TRACE_PUSH,
            SIDESTEP_TRACE_RESTORE,
        ];
        let mut steps = result.trace.iter().rev();
        let header = steps.find(|step| headers.contains(&step.kind));
        if header.is_some_and(|step| {
            step.kind == SIDESTEP_TRACE_DECAP && step.a == u32::from(Protocol::ETHERNET.0)
        }) {
            // A frame of the customer may contain anything.
            return Ok(());
        }
        // A frame that was not parsed: between stations of a bridge, or to an ether device.
        let port = self.image.ports.get(&egress);
        if is_segmented_later(result) && port.is_some_and(|port| port.bridge != 0) {
            return check(frame == arrived, "changed beside the bridge");
        }
        if is_segmented_later(result) {
            return check(self.segment_size != 0, "sent for segmentation without need");
        }
        is_packet(frame)?;
        let outer = &frame[14..];
        check(hop_limit(outer) != 0, "hop limit 0")?;
        // RFC 2473 3.1: the packet is forwarded before it is encapsulated.
        let policy = header.filter(|step| step.kind == SIDESTEP_TRACE_PUSH);
        let policy = policy.and_then(|step| self.image.policies.get(&PolicyId(step.a)));
        let inner = policy
            .filter(|policy| u32::from(policy.kind) == SIDESTEP_POLICY_ENCAPS)
            .and_then(|policy| outer.get(usize::from(policy.length)..));
        check(
            inner.is_none_or(|inner| hop_limit(inner) != 0),
            "hop limit 0 inside",
        )
    }
}

/// Whether the frame of an attached interface goes to its ether device, which segments it.
fn is_segmented_later(result: &Outcome) -> bool {
    let kinds: Vec<_> = result.trace.iter().map(|step| step.kind).collect();
    kinds == [SIDESTEP_TRACE_PORT, SIDESTEP_TRACE_FORWARD]
}

/// Hop limit or TTL of the packet that begins here.
fn hop_limit(packet: &[u8]) -> u8 {
    let at = if packet.first().is_some_and(|first| first >> 4 == 6) {
        7
    } else {
        8
    };
    packet.get(at).copied().unwrap_or_default()
}

/// Checks that the daemon gets the frame that would leave, and sends fragments of it that fit.
fn is_fragmented(result: &Outcome) -> Found {
    let oversized = result.oversized.as_ref().ok_or("no oversized frame")?;
    check(
        oversized.frame == result.frame,
        "another frame is handed over",
    )?;
    is_packet(&oversized.frame)?;
    let Some(frames) = fragments(oversized, 1) else {
        // The headers of the tunnel exceed an MTU that IPv6 does not permit.
        return check(oversized.mtu < 1280, "cannot be fragmented");
    };
    for frame in &frames {
        check(
            frame.len() - 14 <= oversized.mtu as usize,
            "longer than the MTU",
        )?;
        is_packet(frame)?;
    }
    check(frames.len() > 1, "nothing to fragment")
}

/// Checks that reports, and the ICMP message from a report, contain only bytes of the frame, in
/// their order. Headers that were pushed halfway are not part of the frame.
fn quotes_itself(arrived: &[u8], result: &Outcome) -> Found {
    if committed(&result.trace) > 0 {
        return Ok(());
    }
    let is_part = |packet: &[u8], length: u32, most: u32| {
        let whole = packet.len() == length.min(most) as usize;
        let mut places = arrived.windows(packet.len().max(1));
        whole && places.any(|part| part == packet)
    };
    for copy in &result.copies {
        check(
            is_part(&copy.packet, copy.length, SIDESTEP_COPY_BYTES),
            "copy differs from the packet as it arrived",
        )?;
    }
    let Some(report) = &result.report else {
        return Ok(());
    };
    check(
        is_part(&report.packet, report.length, SIDESTEP_REPORT_BYTES),
        "report differs from the packet as it arrived",
    )?;
    let Some(message) = answer(report) else {
        return Ok(());
    };
    // Offset of the quoted packet, after type, code, checksum and the type-specific word.
    let quote = message.bytes.get(8..).ok_or("a message without its head")?;
    let from = if message.kind == Kind::EchoReply {
        report.value as usize + 8
    } else {
        0
    };
    let own = report.packet.get(from..).unwrap_or_default();
    check(own.starts_with(quote), "the ICMP error quotes other bytes")
}

/// Checks that a packet that passed a SID with `require-hmac` had a valid HMAC in the SRH at that
/// SID, not only in an outer one.
fn is_authentic(image: &Image, trace: &[Trace]) -> Found {
    let at_sid = |step: &Trace| {
        let route = image.routes.get(&RouteId(step.b));
        let requires = |flags: u8| u32::from(flags) & SIDESTEP_ROUTE_REQUIRE_HMAC != 0;
        step.kind == SIDESTEP_TRACE_BEHAVIOR && route.is_some_and(|route| requires(route.flags))
    };
    let is_lookup = |step: &Trace| step.kind == SIDESTEP_TRACE_LOOKUP;
    let is_right = |step: &Trace| step.kind == SIDESTEP_TRACE_HMAC && step.b == 0;
    for sid in (0..trace.len()).filter(|&at| at_sid(&trace[at])) {
        let is_new =
            |step: &Trace| [SIDESTEP_TRACE_PARSED, SIDESTEP_TRACE_DECAP].contains(&step.kind);
        let begin = trace[..sid].iter().rposition(is_new).unwrap_or(0);
        // Results after a decapsulation and before the next lookup belong to the outer packet.
        let begin = (begin..sid)
            .find(|&at| is_lookup(&trace[at]))
            .unwrap_or(sid);
        let end = (sid..trace.len()).find(|&at| is_lookup(&trace[at]));
        let steps = &trace[begin..end.unwrap_or(trace.len())];
        check(
            steps.iter().any(is_right),
            "without the HMAC that its SID requires",
        )?;
    }
    Ok(())
}

/// Checks that the frame equals the decisions byte for byte.
fn as_decided(expected: Option<Expected>, result: &Outcome) -> Found {
    let expected = expected.ok_or("the trace is inconsistent")?;
    if expected.which_srh_is_unknown {
        return Ok(());
    }
    let mut found = result.frame.clone();
    for at in expected.labels {
        let label = found.get_mut(at + 1..at + 4).ok_or("too short")?;
        check(
            u32::from_be_bytes([0, label[0] & 15, label[1], label[2]]) != 0,
            "no flow label",
        )?;
        label[0] &= 0xf0;
        label[1..].fill(0);
    }
    if let Some(at) = expected.ipv4_checksum
        && found.get(at..at + 2) == Some(&[0xff, 0xff])
    {
        // 0 and 0xffff are the same number in one's complement.
        found[at..at + 2].fill(0);
    }
    check(
        found == expected.frame,
        "differs from the decisions of the trace",
    )
}

/// The counters that a frame can change.
struct Counted {
    ports: Vec<(u32, sidestep_port_counters)>,
    reasons: Vec<u64>,
}

impl Counted {
    fn of(native: &Native, image: &Image) -> Self {
        let ports = image.ports.keys();
        Self {
            ports: ports
                .map(|&ifindex| (ifindex, native.port_counters(ifindex)))
                .collect(),
            reasons: native.reason_counters().to_vec(),
        }
    }

    /// Checks the counters after a frame: without the frame's own counts they equal the counters
    /// before it.
    fn follows(
        &mut self,
        before: &Self,
        ingress: u32,
        verdict: Verdict,
        arrived: usize,
        sent: usize,
    ) -> Found {
        for (ifindex, port) in &mut self.ports {
            if *ifindex == ingress {
                port.received_packets = port.received_packets.wrapping_sub(1);
                port.received_bytes = port.received_bytes.wrapping_sub(arrived as u64);
                let counter = match verdict {
                    Verdict::Forward { .. } => &mut port.forwarded,
                    Verdict::Punt(_) => &mut port.punted,
                    Verdict::Drop(_) => &mut port.dropped,
                };
                *counter = counter.wrapping_sub(1);
            }
            if verdict == (Verdict::Forward { ifindex: *ifindex }) {
                port.sent_packets = port.sent_packets.wrapping_sub(1);
                port.sent_bytes = port.sent_bytes.wrapping_sub(sent as u64);
            }
        }
        if let Verdict::Punt(reason) | Verdict::Drop(reason) = verdict {
            let counter = &mut self.reasons[reason.number as usize];
            *counter = counter.wrapping_sub(1);
        }
        check(
            self.ports == before.ports,
            "not counted exactly once at its ports",
        )?;
        check(
            self.reasons == before.reasons,
            "not counted exactly once by its reason",
        )
    }
}

/// Returns the route of the longest prefix that contains the address, or 0, by comparison with all
/// prefixes.
pub(super) fn longest_match(image: &Image, view: u32, address: [u8; 16]) -> u32 {
    let differs = |key: &FibKey| u128::from_be_bytes(key.address) ^ u128::from_be_bytes(address);
    image
        .fib
        .iter()
        .filter(|(key, _)| {
            key.view == ViewId(view) && differs(key).leading_zeros() >= u32::from(key.length)
        })
        .max_by_key(|(key, _)| key.length)
        .map_or(0, |(_, &route)| route.0)
}

/// Returns how often headers were pushed halfway, after which the packet is parsed again.
fn committed(trace: &[Trace]) -> usize {
    let parsed = |step: &&Trace| step.kind == SIDESTEP_TRACE_PARSED;
    trace.iter().filter(parsed).count().saturating_sub(1)
}

/// Checks that a frame carries exactly one IP packet.
fn is_packet(frame: &[u8]) -> Found {
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
            let header = payload
                .first()
                .map_or(0, |first| usize::from(first & 15) * 4);
            check(
                header >= 20 && payload.len() >= header && payload[0] >> 4 == 4,
                "no IPv4 header",
            )?;
            let length = usize::from(u16::from_be_bytes([payload[2], payload[3]]));
            check(length == payload.len(), "Total Length is not the packet's")?;
            check(checksum::checksum(&payload[..header]) == 0, "IPv4 checksum")
        }
        _ => Err("neither IPv6 nor IPv4"),
    }
}
