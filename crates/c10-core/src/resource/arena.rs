//! An arena: large pieces of a resource, cut into what is asked for.
//!
//! **Invariants:** every byte of a chunk is either live or in exactly one free part, and free parts that touch are one. A
//! chunk belongs to one stream, and so does all that is cut from it: no stream ever gets memory that another one used.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::{AllocatorError, Error, MemoryError, Result};
use crate::resource::{Allocation, MemoryResource, NotDeallocated, StreamView};
use crate::sync::Mutex;
use crate::sync::lock;

/// Addresses and sizes are multiples of it.
const UNIT: u64 = 512;

/// Takes large chunks and cuts them; what is given back serves the next request of the same stream without asking anybody.
///
/// For many small requests over a resource that is slow or coarse, such as the driver. The best fitting free part is
/// taken, and neighbours are joined. Memory must be given back on the stream it was allocated for
/// ([`crate::AllocatorError::OtherStream`]). Chunks stay until [`Self::release`], until memory runs out beneath, or until the
/// arena is dropped; a chunk of which something is still taken then is lost.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{ArenaResource, DriverResource, MemoryResource, Runtime, StatisticsResource, Stream};
///
/// let driver = StatisticsResource::new(DriverResource::new(&Runtime::current()));
/// let arena = ArenaResource::new(driver, 1 << 20);
/// let stream = Stream::new(None, 0)?;
/// for _ in 0..100 {
///     arena.deallocate(arena.allocate(3000, stream.view())?, stream.view())?;
/// }
/// assert_eq!(arena.upstream().stats().allocations.allocated, 1, "one chunk served all requests");
/// assert_eq!(arena.release()?, 1 << 20);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ArenaResource<R: MemoryResource> {
    upstream: R,
    chunk: u64,
    books: Mutex<Books>,
}

/// A piece of the resource beneath.
#[derive(Debug)]
struct Chunk {
    memory: Allocation,
    stream: StreamView,
    /// Free parts: bytes by address.
    free: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
struct Books {
    /// By address.
    chunks: BTreeMap<u64, Chunk>,
    /// All free parts of a stream's chunks, the smallest first: bytes, address, and address of the chunk.
    free: BTreeMap<StreamView, BTreeSet<(u64, u64, u64)>>,
    /// What is taken: bytes asked for, bytes cut off, and the chunk, by address.
    live: BTreeMap<u64, (u64, u64, u64)>,
}

impl Books {
    /// Cuts a request off the best fitting part.
    fn cut(&mut self, bytes: u64, room: u64, stream: StreamView) -> Option<u64> {
        let (size, address, chunk) = *self.free.get(&stream)?.range((room, 0, 0)..).next()?;
        self.remove_part(chunk, address, size);
        if size > room {
            self.add_part(chunk, address + room, size - room);
        }
        self.live.insert(address, (bytes, room, chunk));
        Some(address)
    }

    /// Enters a part as free and joins it with its neighbours.
    fn give(&mut self, chunk: u64, mut address: u64, mut size: u64) {
        let Some(parts) = self.chunks.get(&chunk).map(|chunk| &chunk.free) else { return };
        let before = parts.range(..address).next_back().map(|(at, size)| (*at, *size));
        let after = parts.range(address..).next().map(|(at, size)| (*at, *size));
        if let Some((at, other)) = before.filter(|(at, other)| at + other == address) {
            self.remove_part(chunk, at, other);
            (address, size) = (at, size + other);
        }
        if let Some((at, other)) = after.filter(|(at, _)| address + size == *at) {
            self.remove_part(chunk, at, other);
            size += other;
        }
        self.add_part(chunk, address, size);
    }

    fn add_part(&mut self, chunk: u64, address: u64, size: u64) {
        if let Some(owner) = self.chunks.get_mut(&chunk) {
            owner.free.insert(address, size);
            self.free.entry(owner.stream).or_default().insert((size, address, chunk));
        }
    }

    fn remove_part(&mut self, chunk: u64, address: u64, size: u64) {
        if let Some(owner) = self.chunks.get_mut(&chunk) {
            owner.free.remove(&address);
            self.free.entry(owner.stream).or_default().remove(&(size, address, chunk));
        }
    }

    /// Enters a new chunk, which is free.
    fn add_chunk(&mut self, memory: Allocation, stream: StreamView) {
        let (address, bytes) = (memory.address(), memory.bytes());
        self.chunks.insert(address, Chunk { memory, stream, free: BTreeMap::new() });
        self.add_part(address, address, bytes);
    }

    /// Gives chunks back that are wholly free. Goes on after a failure and returns the first; else the bytes.
    fn release(&mut self, upstream: &impl MemoryResource) -> Result<u64> {
        let unused = |chunk: &Chunk| chunk.free.get(&chunk.memory.address()) == Some(&chunk.memory.bytes());
        let unused: Vec<u64> =
            self.chunks.iter().filter(|(_, chunk)| unused(chunk)).map(|(address, _)| *address).collect();
        let (mut released, mut failed) = (0, None);
        for address in unused {
            let Some(Chunk { memory, stream, .. }) = self.chunks.get_mut(&address).map(|chunk| Chunk {
                memory: std::mem::replace(&mut chunk.memory, Allocation::empty(chunk.stream.device())),
                stream: chunk.stream,
                free: BTreeMap::new(),
            }) else {
                continue;
            };
            let bytes = memory.bytes();
            match upstream.deallocate(memory, stream) {
                Ok(()) => {
                    self.remove_part(address, address, bytes);
                    self.chunks.remove(&address);
                    released += bytes;
                }
                Err(NotDeallocated { memory, error }) => {
                    self.chunks.entry(address).and_modify(|chunk| chunk.memory = memory);
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(released), Err)
    }
}

impl<R: MemoryResource> ArenaResource<R> {
    /// Cuts chunks of `chunk` bytes of `upstream`, rounded up to 512; a larger request gets a chunk of its own size.
    pub fn new(upstream: R, chunk: u64) -> Self {
        let chunk = chunk.max(UNIT).checked_next_multiple_of(UNIT).unwrap_or(u64::MAX - (UNIT - 1));
        Self { upstream, chunk, books: Mutex::default() }
    }

    /// Gives chunks back of which nothing is taken, and says how many bytes they had. Each goes back on its own stream, so
    /// that nothing is waited for.
    ///
    /// # Errors
    /// The first of the resource beneath; the chunks that it refused stay.
    pub fn release(&self) -> Result<u64> {
        lock(&self.books).release(&self.upstream)
    }

    /// Bytes of all chunks.
    #[must_use]
    pub fn held(&self) -> u64 {
        lock(&self.books).chunks.values().map(|chunk| chunk.memory.bytes()).sum()
    }

    /// What is beneath.
    pub fn upstream(&self) -> &R {
        &self.upstream
    }

    /// A chunk for a request. Where there is no memory, unused chunks go back, and a chunk of just that size is asked for.
    fn take_chunk(&self, books: &mut Books, room: u64, stream: StreamView) -> Result<()> {
        let memory = match self.upstream.allocate(self.chunk.max(room), stream) {
            Err(error) if error.is_out_of_memory() || error.driver_is_out_of_memory() => {
                books.release(&self.upstream)?;
                self.upstream.allocate(room, stream)?
            }
            taken => taken?,
        };
        books.add_chunk(memory, stream);
        Ok(())
    }
}

impl<R: MemoryResource> MemoryResource for ArenaResource<R> {
    fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation> {
        let device = stream.device();
        if bytes == 0 {
            return Ok(Allocation::empty(device));
        }
        let room = bytes.checked_next_multiple_of(UNIT);
        let room = room.ok_or(Error::Memory(MemoryError::RequestTooLarge { requested: bytes }))?;
        let mut books = lock(&self.books);
        if let Some(address) = books.cut(bytes, room, stream) {
            return Ok(Allocation::new(address, bytes, device));
        }
        self.take_chunk(&mut books, room, stream)?;
        let address = books.cut(bytes, room, stream);
        // A chunk is at least as large as the request; a resource that gives less than it was asked for is refused here.
        let address = address.ok_or(AllocatorError::NoMemory { device, requested: bytes })?;
        Ok(Allocation::new(address, bytes, device))
    }

    fn deallocate(&self, memory: Allocation, stream: StreamView) -> Result<(), NotDeallocated> {
        let address = memory.address();
        if address == 0 {
            return Ok(());
        }
        let mut books = lock(&self.books);
        let found = books.live.get(&address).filter(|(bytes, ..)| *bytes == memory.bytes()).copied();
        let Some((_, room, chunk)) = found else {
            return Err(NotDeallocated { memory, error: MemoryError::InvalidPointer { address }.into() });
        };
        if books.chunks.get(&chunk).is_none_or(|chunk| chunk.stream != stream) {
            return Err(NotDeallocated { memory, error: AllocatorError::OtherStream { address }.into() });
        }
        books.live.remove(&address);
        books.give(chunk, address, room);
        Ok(())
    }
}

impl<R: MemoryResource> Drop for ArenaResource<R> {
    fn drop(&mut self) {
        // What is refused now stays taken: nobody is left who could try again.
        let _ = self.release();
    }
}
