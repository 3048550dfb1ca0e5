//! What processes share: files of memory, and events, named by handles of 64 bytes.
//!
//! A handle names the process, the number of a descriptor there, and the file's inode. Another process opens the file
//! through `/proc`, which the system allows to the same user as long as the first one lives and has not closed it; the
//! inode tells a descriptor's number that was used again.
//!
//! A file that the program itself hands on, as a descriptor, carries its handle behind its memory: a label. Whoever has
//! the descriptor has the memory, also when the process that made it is gone.
//!
//! Each process has a clock and a seed of its own. An event is shared as two counters in a file, the recordings queued
//! and the last one reached, which both look at; the order between the processes is that of real time.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Bytes of a handle.
pub(crate) const HANDLE_BYTES: usize = 64;

/// What a handle is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleKind {
    Memory,
    Event,
    /// Physical memory of the virtual memory functions, as a label.
    Physical,
    /// The addresses of a memory pool, as a label.
    Pool,
    /// A part of a memory pool.
    PoolPointer,
}

impl HandleKind {
    /// The kinds that stand behind memory as labels.
    const LABELS: [Self; 2] = [Self::Physical, Self::Pool];

    fn magic(self) -> u64 {
        u64::from_le_bytes(match self {
            Self::Memory => *b"simmem01",
            Self::Event => *b"simevt01",
            Self::Physical => *b"simvmm01",
            Self::Pool => *b"simpol01",
            Self::PoolPointer => *b"simptr01",
        })
    }
}

/// A file of some process, and what there is to know of what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedHandle {
    pub(crate) process: u32,
    pub(crate) descriptor: u32,
    pub(crate) inode: u64,
    pub(crate) device: u32,
    /// Bytes of the whole file.
    pub(crate) file_bytes: u64,
    /// Where the memory begins in the file.
    pub(crate) offset: u64,
    /// Bytes of the memory.
    pub(crate) bytes: u64,
}

impl SharedHandle {
    /// A handle for a file that this process keeps open.
    pub(crate) fn of(file: &impl AsRawFd, inode: u64) -> Option<Self> {
        let descriptor = u32::try_from(file.as_raw_fd()).ok()?;
        let process = std::process::id();
        Some(Self { process, descriptor, inode, device: 0, file_bytes: 0, offset: 0, bytes: 0 })
    }

    /// Writes the handle as the program sees it.
    pub(crate) fn encode(&self, kind: HandleKind) -> [u8; HANDLE_BYTES] {
        let words = [
            kind.magic(),
            u64::from(self.process),
            u64::from(self.descriptor),
            self.inode,
            u64::from(self.device),
            self.file_bytes,
            self.offset,
            self.bytes,
        ];
        let mut bytes = [0; HANDLE_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a handle; `None` for bytes that are none of that kind.
    pub(crate) fn decode(bytes: [u8; HANDLE_BYTES], kind: HandleKind) -> Option<Self> {
        let mut words = bytes.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        let mut next = || words.next();
        if next()? != kind.magic() {
            return None;
        }
        let (process, descriptor) = (u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?);
        let inode = next()?;
        let device = u32::try_from(next()?).ok()?;
        let (file_bytes, offset, bytes) = (next()?, next()?, next()?);
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= file_bytes);
        fits.then_some(Self { process, descriptor, inode, device, file_bytes, offset, bytes })
    }

    /// Whether the calling process made it.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// The file; `None` when the other process is gone or has closed it.
    pub(crate) fn open(&self) -> Option<File> {
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let metadata = file.metadata().ok()?;
        (metadata.ino() == self.inode && metadata.len() == self.file_bytes).then_some(file)
    }
}

/// Writes a label behind the memory of a file.
pub(crate) fn label(file: &File, handle: &SharedHandle, kind: HandleKind) -> io::Result<()> {
    file.set_len(handle.file_bytes + HANDLE_BYTES as u64)?;
    file.write_all_at(&handle.encode(kind), handle.file_bytes)
}

/// The file behind a descriptor of the program's, with its label; `None` when it has none.
pub(crate) fn labelled(descriptor: i32) -> Option<(File, SharedHandle, HandleKind)> {
    let path = format!("/proc/self/fd/{descriptor}");
    let metadata = fs::metadata(&path).ok().filter(Metadata::is_file)?;
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    let file_bytes = metadata.len().checked_sub(HANDLE_BYTES as u64)?;
    let mut bytes = [0; HANDLE_BYTES];
    file.read_exact_at(&mut bytes, file_bytes).ok()?;
    let read = |kind| Some((SharedHandle::decode(bytes, kind)?, kind));
    let (handle, kind) = HandleKind::LABELS.into_iter().find_map(read)?;
    let fits = handle.file_bytes == file_bytes && handle.inode == metadata.ino();
    fits.then_some((file, handle, kind))
}

/// Bytes of an event's file: recordings queued so far, and the last one reached.
pub(crate) const EVENT_BYTES: u64 = 16;

const QUEUED: u64 = 0;
const REACHED: u64 = 8;

/// An event that several processes use.
#[derive(Debug)]
pub(crate) struct SharedEvent {
    file: File,
}

impl SharedEvent {
    pub(crate) fn new(file: File) -> Self {
        Self { file }
    }

    /// A handle of it for other processes.
    pub(crate) fn handle(&self) -> Option<SharedHandle> {
        let inode = self.file.metadata().ok()?.ino();
        Some(SharedHandle { file_bytes: EVENT_BYTES, ..SharedHandle::of(&self.file, inode)? })
    }

    /// Number of recordings queued so far.
    pub(crate) fn queued(&self) -> u64 {
        self.read(QUEUED)
    }

    /// Whether a recording was reached, or one queued after it.
    pub(crate) fn has_reached(&self, recording: u64) -> bool {
        self.read(REACHED) >= recording
    }

    /// One more recording is queued; its number.
    pub(crate) fn queue(&self) -> u64 {
        self.locked(|| {
            let number = self.read(QUEUED) + 1;
            self.write(QUEUED, number);
            number
        })
    }

    /// A recording was reached.
    pub(crate) fn reach(&self, recording: u64) {
        self.locked(|| {
            if self.read(REACHED) < recording {
                self.write(REACHED, recording);
            }
        });
    }

    fn locked<R>(&self, action: impl FnOnce() -> R) -> R {
        // A lock that cannot be had is a file system out of order; then the other process may count at the same time.
        let locked = self.file.lock();
        let result = action();
        let _ = locked.and_then(|()| self.file.unlock());
        result
    }

    fn read(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        // A file of memory that is open can be read.
        let _: io::Result<()> = self.file.read_exact_at(&mut bytes, offset);
        u64::from_le_bytes(bytes)
    }

    fn write(&self, offset: u64, value: u64) {
        let _: io::Result<()> = self.file.write_all_at(&value.to_le_bytes(), offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::memory::bytes::memory_file;

    fn event() -> SharedEvent {
        SharedEvent::new(File::from(memory_file(16).expect("a descriptor is left")))
    }

    #[test]
    fn handles_name_files_that_are_open() {
        let event = event();
        let handle = event.handle().expect("the file is open");
        let bytes = handle.encode(HandleKind::Event);
        assert_eq!(SharedHandle::decode(bytes, HandleKind::Event), Some(handle));
        assert_eq!(SharedHandle::decode(bytes, HandleKind::Memory), None);
        assert_eq!(SharedHandle::decode([0; HANDLE_BYTES], HandleKind::Event), None);
        assert!(handle.is_own() && handle.open().is_some());
        let reused = SharedHandle { inode: handle.inode + 1, ..handle };
        assert!(reused.open().is_none(), "the number stands for another file");
        let outside = SharedHandle { offset: 8, bytes: 9, ..handle };
        assert_eq!(SharedHandle::decode(outside.encode(HandleKind::Event), HandleKind::Event), None);
        drop(event);
        assert!(handle.open().is_none());
    }

    #[test]
    fn labels_stand_behind_memory() {
        let file = File::from(memory_file(4096).expect("a descriptor is left"));
        assert!(labelled(file.as_raw_fd()).is_none());
        let inode = file.metadata().expect("the file is open").ino();
        let honest = SharedHandle { file_bytes: 4096, bytes: 4096, ..SharedHandle::of(&file, inode).expect("small") };
        for (wrong, kind) in [
            (SharedHandle { inode: inode + 1, ..honest }, HandleKind::Physical),
            (SharedHandle { bytes: 4097, ..honest }, HandleKind::Physical),
            (honest, HandleKind::Memory),
        ] {
            label(&file, &wrong, kind).expect("the file can be written");
            assert!(labelled(file.as_raw_fd()).is_none(), "{wrong:?}");
        }
        label(&file, &honest, HandleKind::Physical).expect("the file can be written");
        let (again, found, kind) = labelled(file.as_raw_fd()).expect("labelled");
        assert_eq!((found, kind), (honest, HandleKind::Physical));
        assert_eq!(again.metadata().expect("the file is open").ino(), inode);
        assert!(labelled(-1).is_none() && labelled(i32::MAX).is_none());
    }

    #[test]
    fn both_sides_see_the_counters() {
        let ours = event();
        let theirs = SharedEvent::new(ours.handle().and_then(|handle| handle.open()).expect("the file is open"));
        assert!(theirs.has_reached(0));
        assert_eq!((ours.queue(), theirs.queue(), ours.queued()), (1, 2, 2));
        theirs.reach(2);
        ours.reach(1);
        assert!(ours.has_reached(2) && !ours.has_reached(3));
    }
}
