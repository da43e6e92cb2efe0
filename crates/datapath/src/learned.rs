//! What dynamic proxies have learned, read while packets teach them (`datapath/table/learned.h`).

use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use sidestep_abi::{
    SIDESTEP_CHAINS, SIDESTEP_FLOW_SETS, SIDESTEP_FLOW_WAYS, SIDESTEP_LEARNED,
    SIDESTEP_LEARNED_PLACES, sidestep_flow, sidestep_flow_set, sidestep_headers, sidestep_learned,
};

/// Words of 8 bytes of a record.
pub(crate) const WORDS: usize = size_of::<sidestep_learned>() / 8;
const VERSION: usize = offset_of!(sidestep_learned, version) / 8;
const HEADERS: usize = offset_of!(sidestep_learned, headers) / 8;
const PLACE: usize = size_of::<sidestep_headers>() / 8;

/// In a set of flows, and in a flow.
const EVICTED: usize = offset_of!(sidestep_flow_set, evicted) / 8;
const FLOWS: usize = offset_of!(sidestep_flow_set, flows) / 8;
const FLOW: usize = size_of::<sidestep_flow>() / 8;
const CHAIN: usize = offset_of!(sidestep_flow, chain) / 8;

/// The record in these words, as nobody has it in work. Its current headers are whole; the others, which packets may be
/// writing, are not read.
///
/// # Panics
/// If there are not as many words as a record has.
pub(crate) fn read(words: &[AtomicU64]) -> sidestep_learned {
    assert_eq!(words.len(), WORDS);
    let mut record = sidestep_learned::default();
    let to = (&raw mut record).cast::<u64>();
    let copy = |range: Range<usize>| {
        for at in range {
            // SAFETY: `at` is less than WORDS; any bit pattern is a value of the integers that the record is made of.
            unsafe { to.add(at).write(words[at].load(Ordering::Relaxed)) };
        }
    };
    loop {
        let version = words[VERSION].load(Ordering::Acquire);
        let place = HEADERS + PLACE * (version % u64::from(SIDESTEP_LEARNED_PLACES)) as usize;
        copy(0..HEADERS);
        copy(place..place + PLACE);
        fence(Ordering::Acquire);
        // As learned_untouched has it.
        let passed = words[VERSION].load(Ordering::Relaxed) - version;
        if passed < u64::from(SIDESTEP_LEARNED_PLACES) - 1 {
            record.version = version;
            record.busy = 0;
            return record;
        }
    }
}

/// Writes a record that no packet meets meanwhile, as far as there are words.
pub(crate) fn write(words: &[AtomicU64], record: &sidestep_learned) {
    let from = std::ptr::from_ref(record).cast::<u64>();
    for (at, word) in words.iter().enumerate().take(WORDS) {
        // SAFETY: `at` is less than WORDS; the record is made of integers without padding.
        word.store(unsafe { from.add(at).read() }, Ordering::Relaxed);
    }
}

/// The outer headers that what comes back gets, without what is each packet's own: traffic class, flow label and Payload
/// Length are 0. None: nothing was learned yet.
pub fn current(learned: &sidestep_learned) -> Option<&[u8]> {
    let place = (learned.version % u64::from(SIDESTEP_LEARNED_PLACES)) as usize;
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

/// Counts the flows of a proxy; `set` has the words of each set in the tables of flows. None: it tells none apart.
pub(crate) fn flows<'a>(
    proxy: &sidestep_learned,
    set: impl Fn(u32) -> &'a [AtomicU64],
) -> Option<Flows> {
    let table = proxy.table.checked_sub(1).filter(|_| proxy.flows != 0)?;
    let mut flows = Flows {
        limit: proxy.flows,
        ..Flows::default()
    };
    let first = table * SIDESTEP_FLOW_SETS;
    for words in (first..first + proxy.flows / SIDESTEP_FLOW_WAYS).map(set) {
        flows.evicted += words[EVICTED].load(Ordering::Relaxed);
        let chains = words[FLOWS + CHAIN..].iter().step_by(FLOW);
        flows.used += chains
            .filter(|chain| chain.load(Ordering::Relaxed) != 0)
            .count() as u32;
    }
    Some(flows)
}

/// Places of the learned headers that the flows of a proxy share; none: it tells no flows apart.
pub(crate) fn chains(proxy: &sidestep_learned) -> Range<u32> {
    let first = SIDESTEP_LEARNED + 1 + proxy.table.saturating_sub(1) * SIDESTEP_CHAINS;
    first..first + if proxy.table == 0 { 0 } else { SIDESTEP_CHAINS }
}
