//! Packets of a stream one after the other, written into memory: what bpf/generator.bpf.c does, for sources in user space.

use super::stamp::Stamp;
use super::stream::{Stream, word};

/// The packets of one offer.
#[derive(Debug)]
pub(super) struct Packets<'a> {
    stream: &'a Stream,
    checksums: Vec<u16>,
    trial: u16,
    sent: u64,
}

impl<'a> Packets<'a> {
    /// Packets of this trial, from the first one on.
    pub fn new(stream: &'a Stream, trial: u16) -> Self {
        let checksums = stream.templates().iter().map(|template| {
            let offset = template.flows().checksum;
            offset.map_or(0, |offset| template.checksum_without_stamp(offset))
        });
        Self {
            stream,
            checksums: checksums.collect(),
            trial,
            sent: 0,
        }
    }

    /// How many were written.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Writes the next packet and returns its length. `holds` is the template that the memory holds a packet of already.
    pub fn write(&mut self, memory: &mut [u8], holds: &mut Option<usize>, time: u64) -> usize {
        let (which, flow) = self.turn();
        let template = &self.stream.templates()[which];
        let (frame, flows) = (template.frame(), template.flows());
        if *holds != Some(which) {
            memory[..frame.len()].copy_from_slice(frame);
            *holds = Some(which);
        }
        let stamp = Stamp {
            trial: self.trial,
            sequence: self.sent,
            time,
        };
        let stamp = stamp.bytes();
        let stamp_at = frame.len() - Stamp::LENGTH;
        memory[stamp_at..frame.len()].copy_from_slice(&stamp);
        if flows.count > 1 {
            let value = word(frame, flows.offset) + flow;
            memory[flows.offset..][..2].copy_from_slice(&value.to_be_bytes());
        }
        if let Some(offset) = flows.checksum {
            let mut sum = u32::from(!self.checksums[which]) + u32::from(flow);
            let (pairs, _) = stamp.as_chunks::<2>();
            for pair in pairs {
                // RFC 1071 2 (B): at an odd byte, the sum has its bytes swapped.
                let value = u16::from_be_bytes(*pair);
                let swapped = template.stamp_is_odd();
                sum += u32::from(if swapped { value.swap_bytes() } else { value });
            }
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            // RFC 768: 0 would mean no checksum.
            let checksum = match !(sum as u16) {
                0 => 0xffff,
                checksum => checksum,
            };
            memory[offset..][..2].copy_from_slice(&checksum.to_be_bytes());
        }
        self.sent += 1;
        frame.len()
    }

    /// The template and the flow that have their turn.
    fn turn(&self) -> (usize, u16) {
        let schedule = self.stream.schedule();
        if schedule.is_empty() {
            let flows = self.stream.templates()[0].flows().count;
            return (0, (self.sent % u64::from(flows)) as u16);
        }
        let turn = schedule[(self.sent % schedule.len() as u64) as usize];
        ((turn >> 16) as usize, turn as u16)
    }
}
