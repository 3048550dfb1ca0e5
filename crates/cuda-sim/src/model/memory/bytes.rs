//! The bytes behind simulated device memory, and copies between them and the program's own memory.
//!
//! A [`Backing`] is a memory file, made and mapped when it is first touched, so that a large allocation costs nothing
//! until then. A [`Bytes`] is a place where bytes can be read and written: inside a backing, or in the program's own
//! memory.
//!
//! # Safety
//! - Reads and writes inside a backing are checked against its length, and the mapping lives as long as the backing.
//! - [`Bytes::host`] is the one way to name host memory. What may be behind it: memory that this crate allocated, or
//!   memory that the program passed to a copy, set or wait function, whose contract demands that it stays valid until
//!   that work is done.
#![expect(unsafe_code, reason = "simulated memory holds real bytes")]

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::written::Written;
use crate::model::shared::{self, HandleKind, SharedHandle};

/// What memory contains that nobody has written: noticed when it is used, unlike zero.
pub(crate) const POISON: u8 = 0xA5;

/// Size of a page of the host.
pub(crate) const PAGE: u64 = 4096;

/// Up to this size memory is filled with poison when it is first touched; more would cost real memory.
pub(crate) const POISON_BYTES_MAX: usize = 1 << 20;

/// Bytes of one stretch of physical device memory.
#[derive(Debug)]
pub(crate) struct Backing {
    length: usize,
    mapping: OnceLock<io::Result<Mapping>>,
    /// A bit for each byte: whether somebody has written it; `None` where nobody asks.
    written: Option<OnceLock<io::Result<Mapping>>>,
    /// Whether others may write here unseen.
    is_shared: AtomicBool,
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
    file: Option<OwnedFd>,
}

// SAFETY: the mapping is plain memory owned by this value; all access goes through raw copies that the machine's lock
// orders.
unsafe impl Send for Mapping {}
// SAFETY: as above; sharing a reference gives no more than those copies.
unsafe impl Sync for Mapping {}

impl Backing {
    /// Memory that nobody has touched. `tracked`: it is noted which bytes are written.
    pub(crate) fn new(length: usize, tracked: bool) -> Arc<Self> {
        let written = tracked.then(OnceLock::new);
        Arc::new(Self { length, mapping: OnceLock::new(), written, is_shared: AtomicBool::new(false) })
    }

    /// A descriptor of the memory file of its own; `None` when the system has no more of them.
    pub(crate) fn file(&self) -> Option<OwnedFd> {
        self.is_shared.store(true, Ordering::Relaxed);
        self.mapping().ok()?.file.as_ref()?.try_clone().ok()
    }

    /// Whether other processes or host threads may change the bytes concurrently.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// The bytes of a file that another process made; `None` when they cannot be mapped.
    pub(crate) fn of_file(file: File, length: usize) -> Option<Arc<Self>> {
        let mapping = Mapping::of_file(Some(OwnedFd::from(file)), length).ok()?;
        let is_shared = AtomicBool::new(true);
        Some(Arc::new(Self { length, mapping: OnceLock::from(Ok(mapping)), written: None, is_shared }))
    }

    /// A handle of the memory file for other processes, good as long as this value lives; `None` as for [`Self::file`].
    pub(crate) fn share(&self) -> Option<SharedHandle> {
        self.is_shared.store(true, Ordering::Relaxed);
        let file = self.mapping().ok()?.file.as_ref()?;
        let inode = File::from(file.try_clone().ok()?).metadata().ok()?.ino();
        Some(SharedHandle { file_bytes: self.length as u64, ..SharedHandle::of(file, inode)? })
    }

    /// A descriptor for the program of a memory file that carries a label; `None` as for [`Self::file`].
    pub(crate) fn hand_out(&self, handle: SharedHandle, kind: HandleKind) -> Option<OwnedFd> {
        let file = File::from(self.file()?);
        shared::label(&file, &handle, kind).ok()?;
        Some(OwnedFd::from(file))
    }

    /// Gives the real memory behind a range back; it reads as zeros then.
    pub(crate) fn discard(&self, offset: u64, length: u64) {
        let Some(file) = self.mapping.get().and_then(|mapping| mapping.as_ref().ok()?.file.as_ref()) else { return };
        let whole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        if let (Ok(offset), Ok(length)) = (libc::off_t::try_from(offset), libc::off_t::try_from(length)) {
            // SAFETY: the file is open and mapped as a whole; its bytes change, its length does not. A system that
            // cannot do this keeps the memory.
            unsafe { libc::fallocate(file.as_raw_fd(), whole, offset, length) };
        }
    }

    /// Whether a file is the one behind this memory.
    pub(crate) fn is_file(&self, inode: u64) -> bool {
        let file = self.mapping.get().and_then(|mapping| mapping.as_ref().ok()?.file.as_ref()?.try_clone().ok());
        file.and_then(|file| File::from(file).metadata().ok()).is_some_and(|metadata| metadata.ino() == inode)
    }

    /// Whether anybody has read or written here.
    pub(crate) fn is_touched(&self) -> bool {
        self.mapping.get().is_some()
    }

    /// The bytes of a range, for reading and writing while the machine's lock is held; `None` when they are not all there.
    pub(crate) fn cells(&self, offset: usize, length: usize) -> Option<&[Cell<u8>]> {
        if offset.checked_add(length)? > self.length {
            return None;
        }
        let start = self.mapping().ok()?.start.as_ptr().wrapping_add(offset);
        // SAFETY: the range is inside the mapping, which lives as long as `self`; cells may be changed through shared
        // references, and all other access goes through raw copies that the machine's lock orders.
        Some(unsafe { slice::from_raw_parts(start.cast::<Cell<u8>>(), length) })
    }

    /// Which bytes somebody has written; `None` where that is not known.
    pub(crate) fn written(&self) -> Option<Written<'_>> {
        let bytes = self.length.div_ceil(8);
        let written = self.written.as_ref().filter(|_| !self.is_shared())?;
        let mapping = written.get_or_init(|| Mapping::of_file(None, bytes)).as_ref().ok()?;
        // SAFETY: the mapping has so many bytes and lives as long as `self`; all access goes through such cells, which the
        // machine's lock orders.
        Some(Written(unsafe { slice::from_raw_parts(mapping.start.as_ptr().cast::<Cell<u8>>(), bytes) }))
    }

    /// Nobody has written a range, as far as anybody is to know.
    pub(crate) fn forget_written(&self, offset: usize, length: usize) {
        if let Some(written) = self.written() {
            written.set(offset, length, false);
        }
    }

    fn mapping(&self) -> Result<&Mapping, &io::Error> {
        self.mapping.get_or_init(|| Mapping::new(self.length)).as_ref()
    }

    /// Fills a range with poison, if it has been touched at all.
    pub(crate) fn poison(self: &Arc<Self>, offset: usize, length: usize) {
        if self.is_touched() && length <= POISON_BYTES_MAX {
            fill(&Bytes::inside(self, offset), &[POISON], length);
        }
        self.forget_written(offset, length);
    }
}

impl Mapping {
    fn new(length: usize) -> io::Result<Self> {
        let mapping = Self::of_file(memory_file(length).ok(), length)?;
        if length <= POISON_BYTES_MAX * 2 {
            // SAFETY: the mapping just made is `length` bytes long and nobody else knows it.
            unsafe { ptr::write_bytes(mapping.start.as_ptr(), POISON, length) };
        }
        Ok(mapping)
    }

    /// Maps a file that is `length` bytes long, or memory of no file.
    fn of_file(file: Option<OwnedFd>, length: usize) -> io::Result<Self> {
        let descriptor = file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let kind = if file.is_some() { libc::MAP_SHARED } else { libc::MAP_SHARED | libc::MAP_ANONYMOUS };
        // SAFETY: a new mapping at an address of the system's choice, of a file of that length or of no file.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                kind | libc::MAP_NORESERVE,
                descriptor,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { start, length, file })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; nothing refers to it once its only owner is dropped.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A file of so many zero bytes that lies in no folder.
pub(crate) fn memory_file(length: usize) -> io::Result<OwnedFd> {
    // SAFETY: a C string and a flag; makes a new descriptor.
    let descriptor = unsafe { libc::memfd_create(c"cuda-sim device memory".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and has no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let length = libc::off_t::try_from(length).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open; a sparse file of any length costs nothing.
    if unsafe { libc::ftruncate(file.as_raw_fd(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Lets the process open as many files as it may, since every allocation has one.
pub(crate) fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    if read == 0 && limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: a limit within what getrlimit allowed; failing leaves things as they were.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

/// Performs one atomic compare-and-exchange of a word and evaluates to the old word as 64 bits. Returns `None` from the
/// enclosing function if the address is not aligned.
macro_rules! exchange_word {
    ($atomic:ident, $word:ident, $start:expr, $expected:expr, $new:expr) => {{
        let word = $start.cast::<$word>();
        if !word.is_aligned() {
            return None;
        }
        let low = |value: u64| $word::try_from(value & u64::from($word::MAX)).unwrap_or($word::MAX);
        // SAFETY: the word is aligned and valid, checked for device memory and vouched for otherwise; all that share it
        // use atomic operations too, as CUDA's memory model demands.
        let word = unsafe { $atomic::from_ptr(word) };
        let found = word.compare_exchange(low($expected), low($new), Ordering::SeqCst, Ordering::SeqCst);
        u64::from(found.unwrap_or_else(|found| found))
    }};
}

/// A place to read or write bytes.
#[derive(Clone)]
pub(crate) enum Bytes {
    /// Inside simulated device memory.
    Device {
        /// The memory.
        backing: Arc<Backing>,
        /// Where in it, in bytes.
        offset: usize,
    },
    /// In the program's memory.
    Host(u64),
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { backing, offset } => write!(f, "device memory +{offset:#x} of {:#x}", backing.length),
            Self::Host(address) => write!(f, "host memory {address:#x}"),
        }
    }
}

impl Bytes {
    pub(crate) fn inside(backing: &Arc<Backing>, offset: usize) -> Self {
        Self::Device { backing: Arc::clone(backing), offset }
    }

    /// Host memory at an address the program vouches for (see the module's safety section).
    pub(crate) fn host(address: u64) -> Self {
        Self::Host(address)
    }

    /// A pointer to `length` bytes here; `None` when they are not all there.
    fn pointer(&self, length: usize) -> Option<*mut u8> {
        match self {
            Self::Device { backing, offset } => {
                let end = offset.checked_add(length)?;
                if end > backing.length {
                    return None;
                }
                let mapping = backing.mapping().ok()?;
                Some(mapping.start.as_ptr().wrapping_add(*offset))
            }
            Self::Host(address) => Some(ptr::with_exposed_provenance_mut(usize::try_from(*address).ok()?)),
        }
    }
}

/// The bytes of pinned host memory, for the time that `_owner` is borrowed: while the memory stays pinned.
pub(crate) fn host_cells<T>(_owner: &T, address: u64, length: usize) -> Option<&[Cell<u8>]> {
    let start: *const u8 = ptr::with_exposed_provenance(usize::try_from(address).ok()?);
    // SAFETY: the program pinned this memory and vouched for it (see the module's safety section).
    Some(unsafe { slice::from_raw_parts(start.cast::<Cell<u8>>(), length) })
}

/// Notes that bytes were written: all of them, or as far as those are that they were copied from.
fn note_written(to: &Bytes, skip: usize, length: usize, from: Option<&Bytes>) {
    let Bytes::Device { backing, offset } = to else { return };
    let Some(written) = backing.written() else { return };
    let source = match from {
        Some(Bytes::Device { backing, offset }) => backing.written().map(|source| (source, *offset)),
        Some(Bytes::Host(_)) | None => None,
    };
    match source {
        Some((source, start)) => written.copy(offset + skip, source, start, length),
        None => written.set(offset + skip, length, true),
    }
}

/// Copies `length` bytes; the ranges may overlap. False when either side is not there.
pub(crate) fn copy(to: &Bytes, from: &Bytes, length: usize) -> bool {
    let (Some(target), Some(source)) = (to.pointer(length), from.pointer(length)) else { return false };
    // SAFETY: both sides are valid for `length` bytes, checked for device memory and vouched for otherwise.
    unsafe { ptr::copy(source, target, length) };
    note_written(to, 0, length, Some(from));
    true
}

/// Writes `pattern` over and over until `length` bytes are written. False when they are not there.
pub(crate) fn fill(to: &Bytes, pattern: &[u8], length: usize) -> bool {
    let Some(start) = to.pointer(length) else { return false };
    note_written(to, 0, length, None);
    if let [byte] = *pattern {
        // SAFETY: valid for `length` bytes, checked for device memory and vouched for otherwise.
        unsafe { ptr::write_bytes(start, byte, length) };
        return true;
    }
    for (index, &byte) in pattern.iter().cycle().take(length).enumerate() {
        // SAFETY: as above; `index` is below `length`.
        unsafe { start.wrapping_add(index).write(byte) };
    }
    true
}

/// Reads `length` bytes into a vector.
pub(crate) fn read(from: &Bytes, length: usize) -> Option<Vec<u8>> {
    let start = from.pointer(length)?;
    let mut bytes = vec![0; length];
    // SAFETY: the source is valid for `length` bytes and the vector was made that long.
    unsafe { ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), length) };
    Some(bytes)
}

/// Writes all of `bytes`. False when there is no room.
pub(crate) fn write(to: &Bytes, bytes: &[u8]) -> bool {
    let Some(start) = to.pointer(bytes.len()) else { return false };
    // SAFETY: the target is valid for as many bytes.
    unsafe { ptr::copy(bytes.as_ptr(), start, bytes.len()) };
    note_written(to, 0, bytes.len(), None);
    true
}

/// Reads up to 8 bytes that begin `skip` bytes further on, the lowest first.
pub(crate) fn read_word(from: &Bytes, skip: usize, length: usize) -> Option<u64> {
    let (mut word, length) = ([0; 8], length.min(8));
    let start = from.pointer(skip.checked_add(length)?)?.wrapping_add(skip);
    // SAFETY: the source is valid for `skip` and `length` bytes, and the array is as long at least.
    unsafe { ptr::copy_nonoverlapping(start, word.as_mut_ptr(), length) };
    Some(u64::from_le_bytes(word))
}

/// Writes bytes that begin `skip` bytes further on. False when there is no room.
pub(crate) fn write_word(to: &Bytes, skip: usize, bytes: &[u8]) -> bool {
    let Some(start) = skip.checked_add(bytes.len()).and_then(|end| to.pointer(end)) else { return false };
    // SAFETY: the target is valid for `skip` bytes and as many as are written.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.wrapping_add(skip), bytes.len()) };
    note_written(to, skip, bytes.len(), None);
    true
}

/// Atomically writes a word of 1, 2, 4 or 8 bytes if it equals `expected`, and returns the old word. Returns `None` if
/// the word is out of range or not aligned, or for another length.
pub(crate) fn compare_exchange(at: &Bytes, length: usize, expected: u64, new: u64) -> Option<u64> {
    let start = at.pointer(length)?;
    let found = match length {
        1 => exchange_word!(AtomicU8, u8, start, expected, new),
        2 => exchange_word!(AtomicU16, u16, start, expected, new),
        4 => exchange_word!(AtomicU32, u32, start, expected, new),
        8 => exchange_word!(AtomicU64, u64, start, expected, new),
        _ => return None,
    };
    note_written(at, 0, length, None);
    Some(found)
}

/// Host memory that this crate allocated, page-aligned and never moved.
#[derive(Debug)]
pub(crate) struct HostPages {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: plain memory with one owner; what is done with its address is the program's business.
unsafe impl Send for HostPages {}

impl HostPages {
    pub(crate) fn new(length: usize) -> Option<Self> {
        // SAFETY: a new private mapping at an address of the system's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        Some(Self { start: NonNull::new(start.cast())?, length })
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; the program gave it back.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Whether nothing of the process lies in a range of whole pages. Where the system does not say, nothing does.
pub(crate) fn host_range_is_empty(start: u64, length: u64) -> bool {
    let (Ok(at), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else { return false };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping that nobody may touch, and that replaces nothing.
    let mapped = unsafe { libc::mmap(ptr::without_provenance_mut(at), length, libc::PROT_NONE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return io::Error::last_os_error().raw_os_error() != Some(libc::EEXIST);
    }
    let is_there = mapped.addr() == at;
    // SAFETY: exactly the mapping that was made above; nobody was told of it.
    unsafe { libc::munmap(mapped, length) };
    is_there
}

/// Whether the pages of a host range exist, so that touching them cannot end the process.
pub(crate) fn host_range_exists(address: u64, length: usize) -> bool {
    let Some(end) = address.checked_add(length as u64) else { return false };
    let first = address & !(PAGE - 1);
    let pages = end.saturating_sub(first).div_ceil(PAGE).max(1);
    let exists = |page: u64| {
        let Ok(at) = usize::try_from(first + page * PAGE) else { return false };
        // SAFETY: asks for write-back of one page, which changes nothing; the page itself is not touched.
        let status = unsafe { libc::msync(ptr::without_provenance_mut(at), 1, libc::MS_ASYNC) };
        status == 0
    };
    exists(0) && exists(pages - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_memory_costs_nothing_and_is_poisoned_when_small() {
        let large = Backing::new(150 << 30, true);
        assert!(!large.is_touched());
        let end = Bytes::inside(&large, (150 << 30) - 4);
        assert!(write(&end, &[1, 2, 3, 4]));
        assert_eq!(read(&end, 4), Some(vec![1, 2, 3, 4]));
        let small = Backing::new(4096, false);
        assert_eq!(read(&Bytes::inside(&small, 0), 2), Some(vec![POISON; 2]));
    }

    #[test]
    fn ranges_are_checked() {
        let backing = Backing::new(16, false);
        assert!(!write(&Bytes::inside(&backing, 15), &[1, 2]));
        assert!(read(&Bytes::inside(&backing, 17), 0).is_none());
        assert!(!fill(&Bytes::inside(&backing, 0), &[1], 17));
    }

    #[test]
    fn patterns_repeat() {
        let backing = Backing::new(16, false);
        let start = Bytes::inside(&backing, 0);
        assert!(fill(&start, &[1, 2, 3, 4], 8));
        assert_eq!(read(&start, 9), Some(vec![1, 2, 3, 4, 1, 2, 3, 4, POISON]));
    }

    #[test]
    fn a_range_with_memory_in_it_is_not_empty() {
        let pages = HostPages::new(8192).expect("maps");
        assert!(!host_range_is_empty(pages.address() + 4096, 4096));
        assert!(!host_range_is_empty(pages.address() & !0xF_FFFF, 0x10_0000));
        // No layout of x86-64 or AArch64 Linux puts anything here.
        assert!(host_range_is_empty(0x5800_0000_0000, 4096));
    }

    #[test]
    fn host_pages_exist_until_dropped() {
        let pages = HostPages::new(8192).expect("memory is left");
        assert!(host_range_exists(pages.address(), 8192));
        assert!(!host_range_exists(0, 1));
    }
}
