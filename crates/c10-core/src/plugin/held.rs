//! What an allocator has given: by address, and as figures.
//!
//! **Invariants:** an address is here from the call that gave it until the call that gives it back succeeded, and no longer;
//! the figures are those of what is here.

use std::collections::BTreeMap;

use crate::base::device::DeviceIndex;
use crate::base::error::{AllocatorError, MemoryError, Result};
use crate::base::ids::PoolId;
use crate::caching::{BlockInfo, BlockState, DeviceStats, Owner, SegmentInfo, SegmentType};
use crate::resource::{Allocation, StreamView};
use crate::sync::lock;
use crate::sync::{Mutex, MutexGuard};

/// One piece of memory that the allocator gave.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) memory: Allocation,
    pub(super) stream: StreamView,
    pub(super) owner: Owner,
    /// Other streams that have used it, in the order in which that was noted.
    pub(super) used_on: Vec<StreamView>,
}

/// All pieces, by address.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    pieces: BTreeMap<u64, Piece>,
    stats: BTreeMap<DeviceIndex, DeviceStats>,
}

/// Requests up to this many bytes count as small, as those of the caching allocator do.
const SMALL: u64 = 1 << 20;

impl Books {
    /// Counts a piece that came (1) or went (-1).
    fn count(&mut self, memory: &Allocation, by: i64) {
        let bytes = by * i64::try_from(memory.bytes()).unwrap_or(i64::MAX);
        let stats = self.stats.entry(memory.device()).or_insert_with(unlimited);
        let is_small = memory.bytes() <= SMALL;
        for figure in [&mut stats.allocation, &mut stats.segment, &mut stats.active] {
            figure.count(is_small, by);
        }
        for figure in
            [&mut stats.allocated_bytes, &mut stats.reserved_bytes, &mut stats.active_bytes, &mut stats.requested_bytes]
        {
            figure.count(is_small, bytes);
        }
        let calls = if by > 0 { &mut stats.num_device_alloc } else { &mut stats.num_device_free };
        *calls += 1;
    }
}

impl Held {
    fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.0)
    }

    /// Enters memory that was given; the memory comes back where its address is here already.
    pub(super) fn enter(&self, memory: Allocation, stream: StreamView, owner: Owner) -> Result<u64, Allocation> {
        let (address, mut books) = (memory.address(), self.books());
        if books.pieces.contains_key(&address) {
            return Err(memory);
        }
        books.count(&memory, 1);
        books.pieces.insert(address, Piece { memory, stream, owner, used_on: Vec::new() });
        Ok(address)
    }

    /// Takes a piece out, of which this is the owner.
    pub(super) fn take(&self, address: u64, owner: Owner) -> Result<Piece> {
        let mut books = self.books();
        match books.pieces.get(&address) {
            None => return Err(MemoryError::InvalidPointer { address }.into()),
            Some(piece) if piece.owner != owner => return Err(MemoryError::OwnedByBuffer { address }.into()),
            Some(_) => {}
        }
        let piece = books.pieces.remove(&address).ok_or(MemoryError::InvalidPointer { address })?;
        books.count(&piece.memory, -1);
        Ok(piece)
    }

    /// Enters a piece again that was not taken back.
    pub(super) fn put_back(&self, piece: Piece) {
        let mut books = self.books();
        books.count(&piece.memory, 1);
        books.pieces.insert(piece.memory.address(), piece);
    }

    /// Notes that a stream other than its own uses a piece.
    pub(super) fn record(&self, address: u64, stream: StreamView) -> Result<()> {
        let mut books = self.books();
        let piece = books.pieces.get_mut(&address).ok_or(MemoryError::InvalidPointer { address })?;
        if piece.stream != stream && !piece.used_on.contains(&stream) {
            piece.used_on.push(stream);
        }
        Ok(())
    }

    /// Whether memory at this address is handed out, and to whom.
    pub(super) fn owner(&self, address: u64) -> Option<Owner> {
        self.books().pieces.get(&address).map(|piece| piece.owner)
    }

    /// Everything that is here, and nothing is here afterwards.
    pub(super) fn take_all(&self) -> Vec<Piece> {
        let mut books = self.books();
        let pieces: Vec<Piece> = std::mem::take(&mut books.pieces).into_values().collect();
        pieces.iter().for_each(|piece| books.count(&piece.memory, -1));
        pieces
    }

    pub(super) fn count_out_of_memory(&self, device: DeviceIndex) {
        self.books().stats.entry(device).or_insert_with(unlimited).num_ooms += 1;
    }

    /// The figures of a device: each piece is a segment and a block of its own.
    pub(super) fn stats(&self, device: DeviceIndex) -> DeviceStats {
        self.books().stats.get(&device).copied().unwrap_or_else(unlimited)
    }

    /// Changes the figures of a device.
    pub(super) fn change_stats(&self, device: DeviceIndex, change: impl FnOnce(&mut DeviceStats)) {
        change(self.books().stats.entry(device).or_insert_with(unlimited));
    }

    /// What is wrong with the figures, if anything.
    pub(super) fn inconsistency(&self) -> Option<String> {
        let books = self.books();
        let wrong = |device: DeviceIndex, stats: &DeviceStats| {
            let held = books.pieces.values().filter(|piece| piece.memory.device() == device);
            let bytes: i64 = held.map(|piece| i64::try_from(piece.memory.bytes()).unwrap_or(i64::MAX)).sum();
            let counted = stats.allocated_bytes.all.current;
            let is_right = stats.is_valid() && counted == bytes;
            (!is_right)
                .then(|| format!("the allocator of device {device} holds {bytes} bytes, and {counted} are counted"))
        };
        books.stats.iter().find_map(|(device, stats)| wrong(*device, stats))
    }

    /// Each piece as a segment with one block, by device and address.
    pub(super) fn snapshot(&self) -> Vec<SegmentInfo> {
        let books = self.books();
        let mut segments: Vec<SegmentInfo> = books.pieces.values().map(describe).collect();
        segments.sort_by_key(|segment| (segment.device, segment.address));
        segments
    }
}

/// Figures of nothing. No option limits what is split, since nothing is.
fn unlimited() -> DeviceStats {
    DeviceStats { max_split_size: -1, ..DeviceStats::default() }
}

fn describe(piece: &Piece) -> SegmentInfo {
    let (address, size) = (piece.memory.address(), piece.memory.bytes());
    SegmentInfo {
        device: piece.memory.device(),
        address,
        total_size: size,
        allocated_size: size,
        active_size: size,
        requested_size: size,
        stream: piece.stream.cuda_stream() as u64,
        segment_type: if size <= SMALL { SegmentType::Small } else { SegmentType::Large },
        pool: PoolId(0, 0),
        is_expandable: false,
        blocks: vec![BlockInfo { address, size, requested_size: size, state: BlockState::ActiveAllocated }],
    }
}

/// The error for memory that was given twice.
pub(super) fn given_twice(memory: &Allocation) -> AllocatorError {
    AllocatorError::GivenTwice { address: memory.address() }
}
