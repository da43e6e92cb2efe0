//! Header sets of dynamic proxies, read while packets write them (`datapath/table/learned.h`).

use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::abi::{
    SIDESTEP_FLOW_SETS, SIDESTEP_FLOW_WAYS, SIDESTEP_HEADER_SETS, SIDESTEP_LEARNED,
    SIDESTEP_LEARNED_SLOTS, sidestep_flow, sidestep_flow_set, sidestep_headers, sidestep_learned,
};

/// Words of 8 bytes of a record.
pub(crate) const WORDS: usize = size_of::<sidestep_learned>() / 8;
const VERSION: usize = offset_of!(sidestep_learned, version) / 8;
const HEADERS: usize = offset_of!(sidestep_learned, headers) / 8;
const PLACE: usize = size_of::<sidestep_headers>() / 8;

/// In a set of flows, and in a flow.
const SET_BUSY: usize = offset_of!(sidestep_flow_set, busy) / 8;
const EVICTED: usize = offset_of!(sidestep_flow_set, evicted) / 8;
const FLOWS: usize = offset_of!(sidestep_flow_set, flows) / 8;
const FLOW: usize = size_of::<sidestep_flow>() / 8;
const SEQUENCE: usize = offset_of!(sidestep_flow, sequence) / 8;
const CHAIN: usize = offset_of!(sidestep_flow, header_set) / 8;

/// All that a dynamic proxy has learned, in one moment of packets that teach it:
/// [`crate::Kernel::knowledge`] reads it, [`crate::Native::set_knowledge`] goes by it.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// The words of its sets of flows, by their index.
    pub(crate) flow_sets: Vec<(u32, Vec<u64>)>,
    /// Its own record and those of its flows, by their index.
    pub(crate) records: Vec<(u32, sidestep_learned)>,
}

impl Knowledge {
    /// Reads the state of the proxy with that record; `record` and `flow_set` have the words of
    /// each.
    pub(crate) fn of<'a>(
        proxy: u32,
        record: impl Fn(u32) -> &'a [AtomicU64],
        flow_set: impl Fn(u32) -> &'a [AtomicU64],
    ) -> Self {
        let own = read(record(proxy));
        // Flows first, as `read_chains` wants.
        let flow_sets = flow_sets(&own).map(|set| (set, read_flows(flow_set(set))));
        let flow_sets = flow_sets.collect();
        let chains = chains(&own).map(|chain| (chain, read_chains(record(chain))));
        let records = std::iter::once((proxy, own)).chain(chains).collect();
        Self { flow_sets, records }
    }
}

/// Reads a record as if no CPU were writing it. Its current headers are whole; the others, which
/// packets may be writing, are not read.
///
/// # Panics
/// If there are not as many words as a record has.
pub(crate) fn read(words: &[AtomicU64]) -> sidestep_learned {
    assert_eq!(words.len(), WORDS);
    let mut record = sidestep_learned::default();
    loop {
        let version = words[VERSION].load(Ordering::Acquire);
        let place = HEADERS + PLACE * (version % u64::from(SIDESTEP_LEARNED_SLOTS)) as usize;
        copy(words, 0..HEADERS, &mut record);
        copy(words, place..place + PLACE, &mut record);
        fence(Ordering::Acquire);
        // As learned_untouched has it.
        let passed = words[VERSION].load(Ordering::Relaxed) - version;
        if passed < u64::from(SIDESTEP_LEARNED_SLOTS) - 1 {
            record.version = version;
            record.busy = 0;
            return record;
        }
    }
}

/// The record in these words, for flows that were read before it. They name versions: of those of
/// them that the record then still has (`header_set_is_current`), the headers are whole.
fn read_chains(words: &[AtomicU64]) -> sidestep_learned {
    assert_eq!(words.len(), WORDS);
    let mut record = sidestep_learned::default();
    copy(words, 0..WORDS, &mut record);
    fence(Ordering::Acquire);
    record.version = words[VERSION].load(Ordering::Relaxed);
    record.busy = 0;
    record
}

/// Copies these words of a record.
fn copy(words: &[AtomicU64], range: Range<usize>, record: &mut sidestep_learned) {
    let to = std::ptr::from_mut(record).cast::<u64>();
    for (at, word) in words.iter().enumerate().take(range.end).skip(range.start) {
        debug_assert!(at < WORDS);
        // SAFETY: `at` is less than WORDS; any bit pattern is a value of the integers that the
        // record is made of.
        unsafe { to.add(at).write(word.load(Ordering::Relaxed)) };
    }
}

/// Reads the words of a flow set as if no CPU were writing it. A flow that is being written counts
/// as absent, as for a packet at that moment.
fn read_flows(words: &[AtomicU64]) -> Vec<u64> {
    let sequence = |flow: usize| {
        let word = words[flow + SEQUENCE].load(Ordering::Acquire).to_ne_bytes();
        u32::from_ne_bytes([word[0], word[1], word[2], word[3]])
    };
    let flows = || (FLOWS..words.len()).step_by(FLOW);
    let before: Vec<u32> = flows().map(sequence).collect();
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let mut set: Vec<u64> = words.iter().map(load).collect();
    fence(Ordering::Acquire);
    for (flow, before) in flows().zip(before) {
        if before % 2 == 1 || sequence(flow) != before {
            set[flow + CHAIN] = 0;
        }
    }
    set[SET_BUSY] = 0;
    set
}

/// Writes a record that no packet meets meanwhile, as far as there are words.
pub(crate) fn write(words: &[AtomicU64], record: &sidestep_learned) {
    let from = std::ptr::from_ref(record).cast::<u64>();
    for (at, word) in words.iter().enumerate().take(WORDS) {
        // SAFETY: `at` is less than WORDS; the record is made of integers without padding.
        word.store(unsafe { from.add(at).read() }, Ordering::Relaxed);
    }
}

/// Returns the outer headers for the return path without the fields of each packet: traffic class,
/// flow label and Payload Length are 0. None: nothing was learned yet.
pub fn current(learned: &sidestep_learned) -> Option<&[u8]> {
    let place = (learned.version % u64::from(SIDESTEP_LEARNED_SLOTS)) as usize;
    let headers = &learned.headers[place];
    (learned.version != 0).then_some(headers.bytes.get(..headers.length as usize)?)
}

/// The flows of a proxy that learns by flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flows {
    /// How many there is room for.
    pub limit: u32,
    /// How many there are.
    pub used: u32,
    /// How many made room for others since the proxy is there.
    pub evicted: u64,
}

/// Counts the flows of a proxy; `set` has the words of each set in the tables of flows. Returns
/// `None` if the proxy does not learn per flow.
pub(crate) fn flows<'a>(
    proxy: &sidestep_learned,
    set: impl Fn(u32) -> &'a [AtomicU64],
) -> Option<Flows> {
    if proxy.table.is_none() || proxy.flows == 0 {
        return None;
    }
    let mut flows = Flows {
        limit: proxy.flows,
        ..Flows::default()
    };
    for words in flow_sets(proxy).map(set) {
        flows.evicted += words[EVICTED].load(Ordering::Relaxed);
        let chains = words[FLOWS + CHAIN..].iter().step_by(FLOW);
        flows.used += chains
            .filter(|chain| chain.load(Ordering::Relaxed) != 0)
            .count() as u32;
    }
    Some(flows)
}

/// Flow sets of a proxy; empty if it does not learn per flow.
pub(crate) fn flow_sets(proxy: &sidestep_learned) -> Range<u32> {
    let first = proxy.table.0.saturating_sub(1) * SIDESTEP_FLOW_SETS;
    let sets = proxy.flows / SIDESTEP_FLOW_WAYS;
    first..first + if proxy.table.is_none() { 0 } else { sets }
}

/// Records of header sets that the flows of a proxy share; empty if it does not learn per flow.
pub(crate) fn chains(proxy: &sidestep_learned) -> Range<u32> {
    let first = SIDESTEP_LEARNED + 1 + proxy.table.0.saturating_sub(1) * SIDESTEP_HEADER_SETS;
    first
        ..first
            + if proxy.table.is_none() {
                0
            } else {
                SIDESTEP_HEADER_SETS
            }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn all_header_sets_of_a_shared_record_are_read() {
        let words = words(WORDS);
        for (at, word) in words.iter().enumerate().skip(HEADERS) {
            word.store(at as u64, Ordering::Relaxed);
        }
        words[VERSION].store(6, Ordering::Relaxed);
        let whole = read_chains(&words);
        assert_eq!(whole.version, 6);
        assert!(whole.headers.iter().all(|headers| headers.length != 0));
        // As opposed to that of one chain.
        let current = read(&words);
        let read = current.headers.iter().filter(|it| it.length != 0);
        assert_eq!(read.count(), 1);
    }

    #[test]
    fn a_flow_that_is_being_written_counts_as_absent() {
        let words = words(size_of::<sidestep_flow_set>() / 8);
        words[SET_BUSY].store(1, Ordering::Relaxed);
        for (number, flow) in (FLOWS..words.len()).step_by(FLOW).enumerate() {
            // The field `used` follows the sequence in the same word.
            let sequence = [[u8::from(number == 1), 0, 0, 0], [1, 0, 0, 0]].concat();
            let sequence = u64::from_ne_bytes(sequence.try_into().expect("8 bytes"));
            words[flow + SEQUENCE].store(sequence, Ordering::Relaxed);
            words[flow + CHAIN].store(7, Ordering::Relaxed);
        }
        let set = read_flows(&words);
        let chains = set[FLOWS + CHAIN..].iter().step_by(FLOW);
        assert_eq!(
            chains.copied().collect::<Vec<_>>(),
            [7, 0, 7, 7, 7, 7, 7, 7]
        );
        assert_eq!(set[SET_BUSY], 0, "the lock is the writer's");
    }
}
