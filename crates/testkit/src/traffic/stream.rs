//! Stream of a generator: frames, variable fields, mix of sizes, and order of flows.

use sidestep_wire::checksum::Sum;

use super::schedule::schedule;
use super::stamp::Stamp;
use crate::Error;

/// Differences between the packets of one template: a big-endian 16-bit word has a different value
/// for each flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Number of values of the word, starting with the value in the template.
    pub count: u32,
    /// Offset of the word in the frame (a UDP source port).
    pub offset: usize,
    /// Offset of the UDP checksum that covers the word and the stamp, and is updated. `None` if no
    /// checksum covers them, or if it is 0 in IPv4 (RFC 768: no checksum).
    pub checksum: Option<usize>,
}

impl Flows {
    /// One flow: every packet equals the template.
    pub const ONE: Self = Self {
        count: 1,
        offset: 0,
        checksum: None,
    };
}

/// A frame from its destination MAC on (without FCS) and the fields that vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    frame: Vec<u8>,
    flows: Flows,
}

impl Template {
    /// LIMIT: bytes at the start of the frame that are rewritten for each packet. The generator
    /// does not undo changes that a path makes after these bytes (a decapsulation makes none).
    /// `HEADER_MAX` of bpf/generator.bpf.c.
    pub const HEADER_MAX: usize = 320;
    /// LIMIT: longest frame that the kernel's live frames allow in a page.
    pub const FRAME_MAX: usize = 3000;

    /// Checks a frame and its flows.
    ///
    /// # Errors
    /// The frame is shorter than 14 or longer than [`Self::FRAME_MAX`] bytes; a varying word or a
    /// checksum is not within the first [`Self::HEADER_MAX`] bytes; no flow; or the word would wrap
    /// around.
    pub fn new(frame: &[u8], flows: Flows) -> Result<Self, Error> {
        if !(ETHERNET..=Self::FRAME_MAX).contains(&frame.len()) {
            let allowed = Self::FRAME_MAX;
            return Err(Error::Usage(format!(
                "a template of {} bytes; allowed are {ETHERNET} to {allowed}",
                frame.len()
            )));
        }
        let template = Self {
            frame: frame.to_owned(),
            flows,
        };
        template.check_words(frame.len().min(Self::HEADER_MAX))?;
        let room = 0x1_0000 - u32::from(word(frame, flows.offset));
        if flows.count == 0 || flows.count > room {
            let count = flows.count;
            return Err(Error::Usage(format!(
                "{count} flows; allowed are 1 to {room}, where the word ends"
            )));
        }
        Ok(template)
    }

    /// A template of one flow.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn one_flow(frame: &[u8]) -> Result<Self, Error> {
        Self::new(frame, Flows::ONE)
    }

    /// The frame.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Returns the differences between the copies.
    pub fn flows(&self) -> Flows {
        self.flows
    }

    /// Returns the template of one of several generators. Each has a disjoint part of the flows.
    ///
    /// # Errors
    /// There are fewer flows than generators, or no generator.
    pub fn part(&self, number: u32, of: u32) -> Result<Self, Error> {
        let all = self.flows.count;
        if of == 0 || of > all {
            return Err(Error::Usage(format!(
                "{all} flows for {of} generators; each needs one at least"
            )));
        }
        let begin = |number: u32| (u64::from(number) * u64::from(all) / u64::from(of)) as u32;
        let first = begin(number);
        let flows = Flows {
            count: begin(number + 1) - first,
            ..self.flows
        };
        let mut frame = self.frame.clone();
        if first > 0 {
            let put = |frame: &mut [u8], at: usize, value: u16| {
                frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
            };
            let varying = word(&frame, flows.offset) + first as u16;
            put(&mut frame, flows.offset, varying);
            if let Some(checksum) = flows.checksum {
                let sum = Sum::default().add_number(!word(&frame, checksum));
                let sum = sum.add_number(first).checksum();
                // RFC 768: 0 would mean no checksum.
                put(&mut frame, checksum, if sum == 0 { 0xffff } else { sum });
            }
        }
        Self::new(&frame, flows)
    }

    /// Fields that vary must be within the header.
    fn check_words(&self, header: usize) -> Result<(), Error> {
        let varying = (self.flows.count > 1).then_some(self.flows.offset);
        for offset in varying.into_iter().chain(self.flows.checksum) {
            if offset + 2 > header {
                return Err(Error::Usage(format!(
                    "a word at byte {offset} of a header of {header} bytes"
                )));
            }
        }
        Ok(())
    }

    /// Returns the checksum of the first flow with zeros in place of the stamp. RFC 1624: HC' =
    /// ~(~HC + ~m + m').
    pub(super) fn checksum_without_stamp(&self, offset: usize) -> u16 {
        let (covered, stamp) = self.frame.split_at(self.frame.len() - Stamp::LENGTH);
        let mut stamp = stamp.to_owned();
        if self.stamp_is_odd() {
            // Halves of words outside the stamp remain unchanged and count as 0.
            stamp.insert(0, 0);
            stamp.push(0);
        }
        let complement: Vec<u8> = stamp.iter().map(|byte| !byte).collect();
        let sum = Sum::default().add_number(!word(covered, offset));
        sum.add_bytes(&complement).checksum()
    }

    /// Returns true if the stamp starts at an odd offset of the data that the checksum covers.
    pub(super) fn stamp_is_odd(&self) -> bool {
        let checksum = self.flows.checksum.unwrap_or(0);
        (self.frame.len() - checksum) % 2 == 1
    }
}

/// Distribution of the packets over the flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// Round robin.
    #[default]
    Uniform,
    /// The n-th flow has 1/n of the packets of the first flow (Zipf's law with exponent 1), in a
    /// random order that repeats.
    Zipf,
}

/// A mix of templates that differ in length, each packet with a [`Stamp`] in its last bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    templates: Vec<Template>,
    schedule: Vec<u32>,
}

impl Stream {
    /// LIMIT: templates of a stream. `TEMPLATES_MAX` of bpf/generator.bpf.c.
    pub const TEMPLATES_MAX: usize = 4;

    /// Creates a mix in which each template occurs in proportion to its share: `[(small, 7),
    /// (medium, 4), (large, 1)]` is the IMIX of twelve packets. The stamp overwrites the last 16
    /// bytes of each frame.
    ///
    /// # Errors
    /// There is no template or more than [`Self::TEMPLATES_MAX`]. A share is 0. Two templates have
    /// equal length, different flows, or different payloads. A frame has no room for a stamp after
    /// the variable fields, or is shorter than [`Self::FRAME_MIN`]. The mix has too many turns
    /// ([`super::schedule::TURNS_MAX`]).
    pub fn new(templates: &[(Template, u32)], distribution: Distribution) -> Result<Self, Error> {
        let mut templates: Vec<&(Template, u32)> = templates.iter().collect();
        templates.sort_by_key(|(template, _)| template.frame.len());
        let (Some((shortest, _)), Some((longest, _)), 1..=Self::TEMPLATES_MAX) =
            (templates.first(), templates.last(), templates.len())
        else {
            let (count, max) = (templates.len(), Self::TEMPLATES_MAX);
            return Err(Error::Usage(format!(
                "{count} templates; allowed are 1 to {max}"
            )));
        };
        if shortest.frame.len() < Self::FRAME_MIN {
            let (length, least) = (shortest.frame.len(), Self::FRAME_MIN);
            return Err(Error::Usage(format!(
                "a frame of {length} bytes; with a stamp it has at least {least}"
            )));
        }
        let header = header_length(shortest);
        for pair in templates.windows(2) {
            if pair[0].0.frame.len() == pair[1].0.frame.len() {
                let length = pair[0].0.frame.len();
                return Err(Error::Usage(format!("two templates of {length} bytes")));
            }
        }
        for (template, _) in &templates {
            template.check_words(header)?;
            if template.flows != longest.flows {
                return Err(Error::Usage("templates with different flows".into()));
            }
            let body = &template.frame[header..template.frame.len() - Stamp::LENGTH];
            if body != &longest.frame[header..][..body.len()] {
                let length = template.frame.len();
                return Err(Error::Usage(format!(
                    "the template of {length} bytes differs from the longest one from byte {header} on"
                )));
            }
        }
        let shares: Vec<u32> = templates.iter().map(|(_, share)| *share).collect();
        let schedule = schedule(&shares, longest.flows.count, distribution)?;
        Ok(Self {
            templates: templates.iter().map(|(it, _)| it.clone()).collect(),
            schedule,
        })
    }

    /// Returns a stream of one length, with its flows in round robin.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of(template: Template) -> Result<Self, Error> {
        Self::new(&[(template, 1)], Distribution::Uniform)
    }

    /// Minimum length of a frame with a stamp. Ethernet pads shorter frames to 60 bytes without
    /// FCS, and the stamp would no longer be at the end.
    pub const FRAME_MIN: usize = 60;

    /// Returns the templates, the shortest first.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// Returns the template and the flow of each turn, as `template << 16 | flow`. Empty for one
    /// template with its flows in round robin.
    pub(super) fn schedule(&self) -> &[u32] {
        &self.schedule
    }
}

/// Returns the number of leading bytes that each packet overwrites, if the rest ends with a stamp.
pub(super) fn header_length(shortest: &Template) -> usize {
    (shortest.frame.len() - Stamp::LENGTH).min(Template::HEADER_MAX)
}

/// Returns the big-endian word at an offset, or 0 beyond the end.
pub(super) fn word(frame: &[u8], offset: usize) -> u16 {
    frame
        .get(offset..offset + 2)
        .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

const ETHERNET: usize = 14;

#[cfg(test)]
mod tests {
    use sidestep_wire::checksum::checksum;

    use super::*;

    fn frame() -> Vec<u8> {
        let mut frame = vec![0x02; 12];
        frame.extend([0x88, 0xb5]);
        frame.extend(1..=93);
        frame
    }

    #[test]
    fn a_template_that_the_generator_cannot_send_is_refused() {
        let flows = |count, offset, checksum| {
            Template::new(
                &frame(),
                Flows {
                    count,
                    offset,
                    checksum,
                },
            )
        };
        assert!(Template::one_flow(&[0; 13]).is_err());
        assert!(Template::one_flow(&[0; 3001]).is_err());
        assert!(flows(0, 14, None).is_err());
        assert!(flows(2, 106, None).is_err(), "one byte too far");
        assert!(flows(2, 14, Some(106)).is_err());
        assert!(
            flows(0xffff, 14, None).is_err(),
            "0x0102 + 0xfffe wraps around"
        );
        assert!(flows(0xfefe, 14, Some(16)).is_ok());
    }

    fn zeros(length: usize) -> (Template, u32) {
        (Template::one_flow(&vec![0; length]).expect("template"), 1)
    }

    fn refusal(templates: &[(Template, u32)]) -> String {
        let refused = Stream::new(templates, Distribution::Uniform);
        refused.expect_err("refused").to_string()
    }

    #[test]
    fn a_stream_that_the_generator_cannot_send_is_refused_with_what_is_allowed() {
        let many: Vec<_> = (60..65).map(zeros).collect();
        assert_eq!(refusal(&many), "5 templates; allowed are 1 to 4");
        assert_eq!(refusal(&[]), "0 templates; allowed are 1 to 4");
        assert!(refusal(&[zeros(59)]).ends_with("has at least 60"));
        assert_eq!(
            refusal(&[zeros(60), zeros(70), zeros(60)]),
            "two templates of 60 bytes"
        );
        let other_body = Template::one_flow(&[1; 80]).expect("template");
        let refused = refusal(&[zeros(60), (other_body, 1), zeros(100)]);
        assert!(refused.contains("80 bytes differs from the longest one from byte 44"));
        let word_in_stamp = Flows {
            count: 2,
            offset: 50,
            checksum: None,
        };
        let template = Template::new(&[0; 64], word_in_stamp).expect("template");
        assert!(refusal(&[(template.clone(), 1)]).contains("word at byte 50"));
        assert!(refusal(&[(template, 1), zeros(70)]).contains("header of 48 bytes"));
    }

    #[test]
    fn generators_share_all_flows_and_checksums_stay_right() {
        let flows = Flows {
            count: 7,
            offset: 14,
            checksum: Some(18),
        };
        for base in [0x1000, 0xfff0] {
            let mut frame = vec![0; 60];
            frame[14..16].copy_from_slice(&u16::to_be_bytes(base));
            frame[18..20].copy_from_slice(&u16::to_be_bytes(!base));
            let whole = Template::new(&frame, flows).expect("template");
            let mut next = base;
            for number in 0..3 {
                let part = whole.part(number, 3).expect("a part");
                assert_eq!(word(part.frame(), 14), next);
                assert_eq!(checksum(part.frame()), 0, "part {number}");
                next += part.flows().count as u16;
            }
            assert_eq!(next - base, 7);
            assert!(whole.part(0, 8).is_err());
        }
    }
}
