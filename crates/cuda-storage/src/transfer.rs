//! Reading and writing by several threads, each with two slots: while one is copied, the other is read or written.
//!
//! **Invariants:** no copy is under way when a function returns without an error. After one, what is under way keeps its
//! memory until it is done.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use c10_core::{DeviceIndex, Runtime, Stream};

use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::plan::{Chunk, Piece, cut, part};
use crate::slot::Slot;

/// One transfer, as its threads share it.
pub(crate) struct Transfer<'a> {
    pub(crate) file: &'a DiskFile,
    pub(crate) pieces: &'a [Piece<'a>],
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) runtime: Runtime,
    pub(crate) device: DeviceIndex,
    /// The current stream of the thread that asked.
    pub(crate) current: Stream,
    pub(crate) chunk: usize,
    next: AtomicUsize,
    is_over: AtomicBool,
}

/// Refuses work while the current stream of a device captures a graph, and returns that stream.
///
/// # Errors
/// [`Error::Capturing`], or the driver's.
pub(crate) fn current(runtime: &Runtime, device: DeviceIndex) -> Result<Stream> {
    let current = runtime.streams().current(device)?;
    if current.is_capturing()? { Err(Error::Capturing) } else { Ok(current) }
}

impl<'a> Transfer<'a> {
    /// A transfer of pieces, which all are in the memory of one device.
    ///
    /// # Errors
    /// The current stream captures, or the runtime cannot start.
    fn new(
        file: &'a DiskFile,
        pieces: &'a [Piece<'a>],
        device: DeviceIndex,
        options: &Options,
        whole: bool,
    ) -> Result<Self> {
        let runtime = Runtime::current();
        let current = current(&runtime, device)?;
        let ranges: Vec<Range<u64>> = pieces.iter().map(|piece| piece.file.clone()).collect();
        let chunks = cut(&ranges, options.chunk(), whole);
        let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Self { file, pieces, chunks, runtime, device, current, chunk: options.chunk(), next, is_over })
    }

    /// The next request that nobody has taken.
    pub(crate) fn next(&self) -> Option<&Chunk> {
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        self.chunks.get(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Room for requests.
    pub(crate) fn slot(&self) -> Result<Slot> {
        Slot::new(&self.runtime, self.device, self.chunk, &self.current)
    }

    /// Lets several threads do the same work, and returns the first error.
    fn by_threads(&self, options: &Options, work: impl Fn(&Self) -> Result<()> + Sync) -> Result<()> {
        let workers = options.workers().min(self.chunks.len());
        let one = || {
            let outcome = work(self);
            if outcome.is_err() {
                self.is_over.store(true, Ordering::Relaxed);
            }
            outcome
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers).map(|_| scope.spawn(one)).collect();
            let own = one();
            let joined = others.into_iter().map(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.fold(own, Result::and)
        })
    }

    /// Copies what a request has read to where it belongs.
    pub(crate) fn spread(&self, chunk: &Chunk, slot: &Slot, found: usize) -> Result<()> {
        let end = chunk.file.start + found as u64;
        for piece in &self.pieces[chunk.pieces.clone()] {
            let (bytes, at) = part(piece, &chunk.file);
            if bytes.end > end {
                return Err(self.file.short(bytes.end, end));
            }
            slot.give(offset(chunk, bytes.start), length(&bytes), piece.buffer, at)?;
        }
        Ok(())
    }

    fn read_some(&self) -> Result<()> {
        let mut slots: Vec<Slot> = Vec::new();
        let mut turn = 0;
        while let Some(chunk) = self.next() {
            if slots.len() <= turn {
                slots.push(self.slot()?);
            }
            let slot = &mut slots[turn];
            slot.wait()?;
            let found = self.file.read(slot.room(length(&chunk.file))?, chunk.file.start)?;
            self.spread(chunk, slot, found)?;
            turn = 1 - turn;
        }
        slots.iter().try_for_each(Slot::wait)
    }

    fn write_some(&self) -> Result<()> {
        let mut slots: Vec<(Slot, Option<&Chunk>)> = Vec::new();
        let mut turn = 0;
        while let Some(chunk) = self.next() {
            if slots.len() <= turn {
                slots.push((self.slot()?, None));
            }
            let (slot, filled) = &mut slots[turn];
            self.write_out(slot, filled.take())?;
            self.gather(chunk, slot)?;
            *filled = Some(chunk);
            turn = 1 - turn;
        }
        // The older one first: its copy was queued before.
        let older = turn.min(slots.len().saturating_sub(1));
        slots.rotate_left(older);
        slots.iter_mut().try_for_each(|(slot, filled)| self.write_out(slot, filled.take()))
    }

    /// Queues the copies that fill a request.
    fn gather(&self, chunk: &Chunk, slot: &Slot) -> Result<()> {
        for piece in &self.pieces[chunk.pieces.clone()] {
            let (bytes, at) = part(piece, &chunk.file);
            slot.take(in_block(chunk) + offset(chunk, bytes.start), length(&bytes), piece.buffer, at)?;
        }
        Ok(())
    }

    /// Writes what a slot was filled with, once the copies are done. Bytes between pieces are not written.
    fn write_out(&self, slot: &mut Slot, filled: Option<&Chunk>) -> Result<()> {
        let Some(chunk) = filled else { return Ok(()) };
        slot.wait()?;
        let room = slot.room(in_block(chunk) + length(&chunk.file))?;
        for run in runs(&self.pieces[chunk.pieces.clone()], &chunk.file) {
            let from = in_block(chunk) + offset(chunk, run.start);
            self.file.write(&room[from..from + length(&run)], run.start)?;
        }
        Ok(())
    }
}

/// How far a request that is written begins behind a whole block: so far does its memory, too.
fn in_block(chunk: &Chunk) -> usize {
    length(&(chunk.file.start / crate::options::ALIGN as u64 * crate::options::ALIGN as u64..chunk.file.start))
}

/// Where a position is in a request.
fn offset(chunk: &Chunk, position: u64) -> usize {
    length(&(chunk.file.start..position))
}

/// The bytes of a range that lies in memory.
fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}

/// The bytes of pieces in a range of the file, those that touch as one.
fn runs(pieces: &[Piece<'_>], within: &Range<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (bytes, _) in pieces.iter().map(|piece| part(piece, within)).filter(|(bytes, _)| !bytes.is_empty()) {
        match runs.last_mut() {
            Some(last) if last.end == bytes.start => last.end = bytes.end,
            _ => runs.push(bytes),
        }
    }
    runs
}

/// Reads pieces of a file into a device's memory.
///
/// # Errors
/// The file ends too early or cannot be read, or the device fails.
pub(crate) fn read(file: &DiskFile, pieces: &[Piece<'_>], device: DeviceIndex, options: &Options) -> Result<()> {
    let Some(last) = pieces.iter().rfind(|piece| !piece.file.is_empty()) else { return Ok(()) };
    file.check_length(last.file.end)?;
    let transfer = Transfer::new(file, pieces, device, options, file.bypasses())?;
    #[cfg(feature = "io-uring")]
    if options.by(file.bypasses()) == crate::route::Requests::IoUring {
        return crate::uring::read(&transfer, options);
    }
    transfer.by_threads(options, Transfer::read_some)
}

/// Writes pieces of a device's memory into a file.
///
/// # Errors
/// The file cannot be written, or the device fails.
pub(crate) fn write(file: &DiskFile, pieces: &[Piece<'_>], device: DeviceIndex, options: &Options) -> Result<()> {
    if pieces.iter().all(|piece| piece.file.is_empty()) {
        return Ok(());
    }
    let transfer = Transfer::new(file, pieces, device, options, false)?;
    transfer.by_threads(options, Transfer::write_some)
}
