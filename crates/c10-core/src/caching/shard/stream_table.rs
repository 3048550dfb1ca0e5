//! From a stream to its shard of the default pool, without a lock.
//!
//! An open-addressed table whose entries are written once: a stream keeps its shard as long as the allocator lives.
//! Streams beyond its size share a map behind a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError};

use crate::base::handles::StreamHandle;
use crate::caching::shard::Shard;
use crate::sync::Mutex;

const ENTRIES: usize = 1 << ENTRY_BITS;
const ENTRY_BITS: u32 = 8;
/// Entries looked at before the map is.
const PROBES: usize = 16;

type Entry = (StreamHandle, Arc<Shard>);

/// The table.
#[derive(Debug)]
pub(crate) struct StreamTable {
    entries: Box<[OnceLock<Entry>; ENTRIES]>,
    others: Mutex<BTreeMap<StreamHandle, Arc<Shard>>>,
}

/// Where a stream is looked for first: handles are addresses, or small numbers.
#[inline]
fn begin(stream: StreamHandle) -> usize {
    let handle = stream.0 as u64;
    ((handle >> 4 ^ handle >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ENTRY_BITS)) as usize
}

impl StreamTable {
    pub(crate) fn new() -> Self {
        Self { entries: Box::new([const { OnceLock::new() }; ENTRIES]), others: Mutex::default() }
    }

    /// The entries a stream may be in.
    #[inline]
    fn probe(&self, stream: StreamHandle) -> impl Iterator<Item = &OnceLock<Entry>> {
        (begin(stream)..).take(PROBES).map(|at| &self.entries[at % ENTRIES])
    }

    /// The shard of a stream.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a part of the hot paths")]
    pub(crate) fn get(&self, stream: StreamHandle) -> Option<&Arc<Shard>> {
        let (of, shard) = self.entries[begin(stream)].get()?;
        if *of == stream { Some(shard) } else { self.get_next(stream) }
    }

    #[cold]
    fn get_next(&self, stream: StreamHandle) -> Option<&Arc<Shard>> {
        let mut known = self.probe(stream).map_while(OnceLock::get);
        known.find(|(of, _)| *of == stream).map(|(_, shard)| shard)
    }

    /// The shard of a stream that found no place in the table.
    #[cold]
    pub(crate) fn get_other(&self, stream: StreamHandle) -> Option<Arc<Shard>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).get(&stream).cloned()
    }

    /// Notes the shard of a stream. One thread at a time.
    pub(crate) fn set(&self, stream: StreamHandle, shard: &Arc<Shard>) {
        let mut entries = self.probe(stream).map(|entry| entry.get_or_init(|| (stream, Arc::clone(shard))));
        if entries.all(|(of, _)| *of != stream) {
            self.others.lock().unwrap_or_else(PoisonError::into_inner).insert(stream, Arc::clone(shard));
        }
    }
}
