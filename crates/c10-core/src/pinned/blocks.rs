//! All pinned blocks, found by number without a lock.
//!
//! Blocks are in chunks, each twice as long as the one before. A chunk is made when it is first needed and never moves.
//!
//! **Invariants:** one thread at a time gives a number to new memory; size, address, device and origin of a block change
//! only then. `next` is read and written under the flag of the block's shard. `handles` counts the owners of a block that
//! is handed out.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError};

use crate::base::device::DeviceIndex;
use crate::base::handles::StreamRef;
use crate::pinned::class::SizeClass;
use crate::sync::{Mutex, MutexGuard};

/// Blocks of the first chunk; a power of two.
const FIRST_CHUNK: usize = 64;
/// As many chunks as numbers of 32 bits can need.
const CHUNKS: usize = 27;

/// Number of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BlockId(pub(crate) u32);

impl BlockId {
    /// The number of no block.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// The block, if this is one.
    #[inline]
    pub(crate) fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// Where a block's memory comes from, and so how it is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Origin {
    /// The driver made it.
    Driver,
    /// The system's, registered with the driver.
    Registered,
    /// The program's, registered with the driver.
    Own,
    /// A part of the reserved segment.
    Reserve,
}

/// What is known of a block's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    pub(crate) class: SizeClass,
    pub(crate) address: usize,
    pub(crate) device: DeviceIndex,
    pub(crate) origin: Origin,
}

/// Flag in the owner count, set while the last owner leaves: no other owner can join then.
const LEAVING: u32 = 1 << 31;

/// Block of pinned memory.
#[derive(Debug)]
pub(crate) struct Block {
    next: AtomicU32,
    handles: AtomicU32,
    /// Whether `streams` has any.
    used: AtomicBool,
    class: AtomicU8,
    origin: AtomicU8,
    device: AtomicI32,
    address: AtomicUsize,
    /// Streams that use the block: it is handed out again only when they have passed the work queued until it was freed.
    streams: Mutex<Vec<StreamRef>>,
    /// How many streams a block that was given back still waits for.
    waits: AtomicU32,
    /// Held while the host reads and writes the memory, so that threads do not race.
    access: Mutex<()>,
}

impl Block {
    fn new() -> Self {
        Self {
            next: AtomicU32::new(BlockId::NONE.0),
            handles: AtomicU32::new(0),
            used: AtomicBool::new(false),
            class: AtomicU8::new(0),
            origin: AtomicU8::new(Origin::Driver as u8),
            device: AtomicI32::new(0),
            address: AtomicUsize::new(0),
            streams: Mutex::default(),
            waits: AtomicU32::new(0),
            access: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> BlockId {
        BlockId(self.next.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_next(&self, next: BlockId) {
        self.next.store(next.0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn class(&self) -> SizeClass {
        SizeClass(self.class.load(Ordering::Relaxed))
    }

    pub(crate) fn memory(&self) -> Memory {
        let origin = match self.origin.load(Ordering::Relaxed) {
            origin if origin == Origin::Driver as u8 => Origin::Driver,
            origin if origin == Origin::Registered as u8 => Origin::Registered,
            origin if origin == Origin::Own as u8 => Origin::Own,
            _ => Origin::Reserve,
        };
        Memory {
            class: self.class(),
            address: self.address.load(Ordering::Relaxed),
            device: DeviceIndex(self.device.load(Ordering::Relaxed)),
            origin,
        }
    }

    pub(crate) fn set_memory(&self, memory: Memory) {
        self.class.store(memory.class.0, Ordering::Relaxed);
        self.origin.store(memory.origin as u8, Ordering::Relaxed);
        self.device.store(memory.device, Ordering::Relaxed);
        self.address.store(memory.address, Ordering::Relaxed);
    }

    pub(crate) fn access(&self) -> &Mutex<()> {
        &self.access
    }

    /// Makes the caller the only owner of a free block.
    #[inline]
    pub(crate) fn hand_out(&self) {
        self.handles.store(1, Ordering::Relaxed);
    }

    /// Adds an owner; the caller is one, so that there always is another.
    pub(crate) fn add_owner(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds an owner on behalf of a caller that need not be an owner; returns `false` if the block has none or its last
    /// one is leaving.
    pub(crate) fn join(&self) -> bool {
        let joined = |owners: u32| (owners > 0 && owners & LEAVING == 0).then(|| owners + 1);
        self.handles.fetch_update(Ordering::AcqRel, Ordering::Acquire, joined).is_ok()
    }

    /// Removes the caller from the owners and returns `false`; if the caller is the last owner, returns `true`. The
    /// last owner stays an owner until [`Self::disown`], and no other can join.
    #[inline]
    pub(crate) fn leave(&self) -> bool {
        loop {
            let owners = self.handles.load(Ordering::Acquire);
            let left = if owners == 1 { owners | LEAVING } else { owners - 1 };
            if self.handles.compare_exchange(owners, left, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return owners == 1;
            }
        }
    }

    /// Takes the last owner off.
    #[inline]
    pub(crate) fn disown(&self) {
        self.handles.store(0, Ordering::Release);
    }

    pub(crate) fn owners(&self) -> u32 {
        self.handles.load(Ordering::Acquire) & !LEAVING
    }

    fn streams(&self) -> MutexGuard<'_, Vec<StreamRef>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a use on a stream; the caller is an owner.
    pub(crate) fn record(&self, stream: StreamRef) {
        let mut streams = self.streams();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        self.used.store(true, Ordering::Relaxed);
    }

    /// The streams recorded, as an owner sees them.
    pub(crate) fn recorded(&self) -> Vec<StreamRef> {
        self.streams().clone()
    }

    /// Whether streams were recorded; asked by the last owner.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes the recorded streams out. The block waits for each of them from now on, and for the caller's own
    /// [`Self::drop_wait`].
    pub(crate) fn take_streams(&self) -> Vec<StreamRef> {
        let streams = std::mem::take(&mut *self.streams());
        self.used.store(false, Ordering::Relaxed);
        self.waits.store(u32::try_from(streams.len() + 1).unwrap_or(u32::MAX), Ordering::Relaxed);
        streams
    }

    /// Waits for one stream fewer; returns whether that was the last.
    pub(crate) fn drop_wait(&self) -> bool {
        self.waits.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// All blocks.
#[derive(Debug)]
pub(crate) struct Blocks {
    chunks: [OnceLock<Box<[Block]>>; CHUNKS],
    made: AtomicU32,
}

impl Blocks {
    pub(crate) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], made: AtomicU32::new(0) }
    }

    #[inline]
    pub(crate) fn get(&self, block: BlockId) -> &Block {
        let (chunk, offset) = place(block);
        &self.chunks[chunk].get().expect("a chunk is made before its numbers are given out")[offset]
    }

    /// A new number; called under the lock of the books.
    pub(crate) fn make(&self) -> BlockId {
        let block = BlockId(self.made.load(Ordering::Relaxed));
        let (chunk, _) = place(block);
        self.chunks[chunk].get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| Block::new()).collect());
        self.made.store(block.0 + 1, Ordering::Release);
        block
    }

    /// Every number given out so far, the first one last.
    pub(crate) fn all(&self) -> impl Iterator<Item = BlockId> {
        (0..self.made.load(Ordering::Acquire)).rev().map(BlockId)
    }

    /// Forgets who uses the blocks.
    pub(crate) fn clear(&self) {
        for block in self.all().map(|block| self.get(block)) {
            block.take_streams();
            block.handles.store(0, Ordering::Relaxed);
        }
    }

    /// How many numbers were given out so far.
    pub(crate) fn made(&self) -> usize {
        self.made.load(Ordering::Acquire) as usize
    }
}

/// Chunk and place of a block.
#[inline]
fn place(block: BlockId) -> (usize, usize) {
    let position = block.0 as usize + FIRST_CHUNK;
    let chunk = (position.ilog2() - FIRST_CHUNK.ilog2()) as usize;
    (chunk, position - (FIRST_CHUNK << chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_each_other_without_gaps() {
        let mut expected = (0..4).flat_map(|chunk| (0..FIRST_CHUNK << chunk).map(move |offset| (chunk, offset)));
        for number in 0..FIRST_CHUNK * 15 {
            assert_eq!(Some(place(BlockId(u32::try_from(number).unwrap()))), expected.next());
        }
        assert!(place(BlockId(u32::MAX - 1)).0 < CHUNKS);
    }

    #[test]
    fn numbers_name_different_blocks() {
        let blocks = Blocks::new();
        let ids: Vec<BlockId> = (0..1000).map(|_| blocks.make()).collect();
        ids.iter().for_each(|id| blocks.get(*id).set_next(*id));
        assert!(ids.iter().all(|id| blocks.get(*id).next() == *id));
    }
}
