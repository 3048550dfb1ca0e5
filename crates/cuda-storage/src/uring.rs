//! Requests past the page cache by `io_uring`: one thread keeps many under way.
//!
//! **Invariant:** while a request is under way, its slot is neither touched nor dropped: whatever fails, [`read`] returns
//! when the kernel is done with all of them.
//!
//! # Safety
//! The kernel writes into the room of a slot, whose address is that of the request. The slots live until no request is
//! under way, and room is looked at only when its request has ended.
#![expect(unsafe_code, reason = "requests that name memory by its address")]

use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use io_uring::{IoUring, opcode, types};

use crate::disk::is_refusal;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::plan::Chunk;
use crate::slot::Slot;
use crate::transfer::Transfer;

/// How many requests are under way for each thread that would read instead.
const DEPTH: usize = 2;

/// Whether the kernel allows rings; asked once.
pub(crate) fn is_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| IoUring::new(2).is_ok())
}

/// A request that is under way, and what has come of it so far.
struct Under<'a> {
    chunk: &'a Chunk,
    found: usize,
}

/// The requests of a transfer.
struct Ring<'a> {
    ring: IoUring,
    transfer: &'a Transfer<'a>,
    slots: Vec<(Slot, Option<Under<'a>>)>,
    under_way: usize,
}

/// Reads what a transfer says.
///
/// # Errors
/// The file ends too early or cannot be read, or the device fails.
pub(crate) fn read<'a>(transfer: &'a Transfer<'a>, options: &Options) -> Result<()> {
    let depth = (options.workers() * DEPTH).min(transfer.chunks.len());
    let entries = u32::try_from(depth.next_power_of_two()).unwrap_or(u32::MAX);
    let ring = IoUring::new(entries).map_err(|error| failed(transfer, error))?;
    let mut slots = Vec::with_capacity(depth);
    for _ in 0..depth {
        slots.push((transfer.slot()?, None));
    }
    let mut ring = Ring { ring, transfer, slots, under_way: 0 };
    let outcome = ring.run();
    ring.drain();
    outcome?;
    ring.slots.iter().try_for_each(|(slot, _)| slot.wait())
}

fn failed(transfer: &Transfer<'_>, error: io::Error) -> Error {
    Error::io("read", transfer.file.path(), error)
}

impl Ring<'_> {
    fn run(&mut self) -> Result<()> {
        for index in 0..self.slots.len() {
            self.begin(index)?;
        }
        while self.under_way > 0 {
            self.ring.submit_and_wait(1).or_else(ignore_interruption).map_err(|error| failed(self.transfer, error))?;
            loop {
                let ended = self.ring.completion().next();
                let Some(ended) = ended else { break };
                self.under_way -= 1;
                let index = usize::try_from(ended.user_data()).unwrap_or(0);
                self.ended(index, ended.result())?;
            }
        }
        Ok(())
    }

    /// Begins the next request that nobody has taken, in a slot that is free once its copies are done.
    fn begin(&mut self, index: usize) -> Result<()> {
        let Some(chunk) = self.transfer.next() else { return Ok(()) };
        self.slots[index].0.wait()?;
        self.slots[index].1 = Some(Under { chunk, found: 0 });
        self.submit(index)
    }

    /// Hands the rest of a slot's request to the kernel.
    fn submit(&mut self, index: usize) -> Result<()> {
        let (slot, Some(under)) = &mut self.slots[index] else { return Ok(()) };
        let bytes = usize::try_from(under.chunk.file.end - under.chunk.file.start).unwrap_or(usize::MAX);
        let rest = &mut slot.room(bytes)?[under.found..];
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let file = types::Fd(self.transfer.file.file().as_raw_fd());
        let position = under.chunk.file.start + under.found as u64;
        let request = opcode::Read::new(file, rest.as_mut_ptr(), length).offset(position);
        let request = request.build().user_data(index as u64);
        // SAFETY: the room is in a slot that lives until no request is under way, and nothing looks at it before.
        let pushed = unsafe { self.ring.submission().push(&request) };
        pushed.map_err(|_| failed(self.transfer, io::Error::other("the ring is full")))?;
        self.under_way += 1;
        Ok(())
    }

    /// Goes on with a slot whose request has ended.
    fn ended(&mut self, index: usize, answer: i32) -> Result<()> {
        let (slot, Some(under)) = &mut self.slots[index] else { return Ok(()) };
        let wanted = usize::try_from(under.chunk.file.end - under.chunk.file.start).unwrap_or(usize::MAX);
        match usize::try_from(answer) {
            Ok(bytes) => {
                under.found += bytes;
                // A file ends where nothing comes, or less than whole blocks.
                let is_end = bytes == 0 || under.found % crate::options::ALIGN != 0;
                if under.found < wanted && !is_end {
                    return self.submit(index);
                }
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(-answer);
                if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
                    return self.submit(index);
                }
                if !is_refusal(&error) {
                    return Err(failed(self.transfer, error));
                }
                self.transfer.file.refuse();
                under.found = self.transfer.file.read(slot.room(wanted)?, under.chunk.file.start)?;
            }
        }
        self.transfer.spread(under.chunk, slot, under.found)?;
        self.begin(index)
    }

    /// Waits until the kernel is done with all requests, whatever becomes of them.
    fn drain(&mut self) {
        while self.under_way > 0 {
            if self.ring.submit_and_wait(1).or_else(ignore_interruption).is_err() {
                // Nothing tells when the kernel is done: its memory is never given back.
                return self.slots.drain(..).map(std::mem::ManuallyDrop::new).for_each(|_kept| ());
            }
            self.under_way -= self.ring.completion().count();
        }
    }
}

/// Also when something panics: no slot may go before the kernel is done with it.
impl Drop for Ring<'_> {
    fn drop(&mut self) {
        self.drain();
    }
}

fn ignore_interruption(error: io::Error) -> io::Result<usize> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) }
}
