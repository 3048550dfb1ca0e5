//! Files that are read and written past the page cache where that is possible.
//!
//! **Invariants:** requests past the page cache have positions, sizes and memory in whole blocks. What is not goes through
//! a second descriptor of the same file. A file system that refuses such a request gets it again through the page cache,
//! and the file remembers that.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::options::ALIGN;

/// How a file is opened: the numbers that the system's `open` takes, without how the page cache is treated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) is_read: bool,
    pub(crate) is_write: bool,
    /// Everything but whether it is read or written.
    pub(crate) others: i32,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct DiskFile {
    path: PathBuf,
    file: File,
    access: Access,
    /// Why requests go through the page cache; none where they go past it.
    cached_because: Option<String>,
    /// The same file through the page cache, where `file` goes past it.
    second: OnceLock<File>,
    /// Whether the file system has refused a request past the page cache.
    refused: AtomicBool,
}

impl DiskFile {
    /// Opens a file past the page cache; where the file system has no such thing, through it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(path: &Path, access: Access) -> Result<Self> {
        let failed = |error| Error::io("open", path, error);
        refuse_streams(path).map_err(failed)?;
        let opened = match open(path, access, libc::O_DIRECT) {
            // A file system without it says that the flags are wrong. Whoever created the file has done so by then.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let access = Access { others: access.others & !libc::O_EXCL, ..access };
                (open(path, access, 0).map_err(failed)?, Some("the file system has no O_DIRECT".to_owned()))
            }
            outcome => (outcome.map_err(failed)?, None),
        };
        let (file, cached_because) = opened;
        Ok(Self::of(path, file, access, cached_because))
    }

    /// A file that is open already, through the page cache.
    #[cfg(feature = "safetensors")]
    pub(crate) fn cached(path: &Path, file: File, because: &str) -> Self {
        let access = Access { is_read: true, is_write: true, others: 0 };
        Self::of(path, file, access, Some(because.to_owned()))
    }

    fn of(path: &Path, file: File, access: Access, cached_because: Option<String>) -> Self {
        let (second, refused) = (OnceLock::new(), AtomicBool::new(false));
        Self { path: path.to_owned(), file, access, cached_because, second, refused }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Why requests go through the page cache; none where they go past it.
    pub(crate) fn cached_because(&self) -> Option<String> {
        let refused = || self.is_refused().then(|| "the file system refused a request with O_DIRECT".to_owned());
        self.cached_because.clone().or_else(refused)
    }

    fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Notes that the file system refuses requests past the page cache.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Whether requests go past the page cache.
    pub(crate) fn bypasses(&self) -> bool {
        self.cached_because.is_none() && !self.is_refused()
    }

    /// What the system knows of the file.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        self.file.metadata().map_err(|error| Error::io("look at", &self.path, error))
    }

    /// Refuses bytes that the file does not have. A device has no length of its own.
    ///
    /// # Errors
    /// [`Error::Short`], or the system's.
    pub(crate) fn check_length(&self, wanted: u64) -> Result<()> {
        let metadata = self.metadata()?;
        if metadata.is_file() && metadata.len() < wanted {
            return Err(self.short(wanted, metadata.len()));
        }
        Ok(())
    }

    /// The error of a file that ends too early.
    pub(crate) fn short(&self, wanted: u64, found: u64) -> Error {
        Error::Short { path: self.path.clone(), wanted, found }
    }

    /// The file through the page cache.
    fn through_cache(&self) -> io::Result<&File> {
        if self.cached_because.is_some() {
            return Ok(&self.file);
        }
        if let Some(second) = self.second.get() {
            return Ok(second);
        }
        // The file may have another name by now, or none.
        let own = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let access = Access { others: 0, ..self.access };
        let opened = open(&own, access, 0).or_else(|_| open(&self.path, access, 0))?;
        Ok(self.second.get_or_init(|| opened))
    }

    /// Reads until the memory is full or the file ends, and returns how many bytes there were. `position`, the length
    /// and the address of `to` are whole blocks where the file is read past the page cache.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn read(&self, to: &mut [u8], position: u64) -> Result<usize> {
        let failed = |error| Error::io("read", &self.path, error);
        if self.bypasses() {
            match read_all(&self.file, to, position, ALIGN) {
                Err(error) if is_refusal(&error) => self.refuse(),
                outcome => return outcome.map_err(failed),
            }
        }
        self.through_cache().and_then(|file| read_all(file, to, position, 1)).map_err(failed)
    }

    /// Writes all bytes: whole blocks past the page cache, where the file is written so, the others through it. `from`
    /// is as far from a whole block as `position`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write(&self, from: &[u8], position: u64) -> Result<()> {
        let failed = |error| Error::io("write", &self.path, error);
        if !self.bypasses() {
            return self.through_cache().and_then(|file| file.write_all_at(from, position)).map_err(failed);
        }
        let head = head(position).min(from.len());
        let whole = (from.len() - head) / ALIGN * ALIGN;
        let (head, rest) = from.split_at(head);
        let (whole, tail) = rest.split_at(whole);
        let mut at = position;
        for (bytes, is_whole) in [(head, false), (whole, true), (tail, false)] {
            if !bytes.is_empty() {
                self.write_part(bytes, at, is_whole).map_err(failed)?;
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }

    fn write_part(&self, bytes: &[u8], position: u64, is_whole: bool) -> io::Result<()> {
        if is_whole {
            match self.file.write_all_at(bytes, position) {
                Err(error) if is_refusal(&error) => self.refuse(),
                outcome => return outcome,
            }
        }
        self.through_cache()?.write_all_at(bytes, position)
    }
}

/// Bytes from a position to the next whole block.
fn head(position: u64) -> usize {
    let over = position % ALIGN as u64;
    if over == 0 { 0 } else { ALIGN - usize::try_from(over).unwrap_or(0) }
}

/// Whether a file system says that it cannot do a request past the page cache: its form is wrong, or its memory is.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EFAULT | libc::EOPNOTSUPP))
}

/// Rejects FIFOs and sockets: they have no positions, and opening a FIFO may block. Devices have positions.
fn refuse_streams(path: &Path) -> io::Result<()> {
    let kind = match std::fs::metadata(path) {
        Ok(found) if found.file_type().is_fifo() => regular_files::Kind::Fifo,
        Ok(found) if found.file_type().is_socket() => regular_files::Kind::Socket,
        // Opening the file reports every other failure.
        Ok(_) | Err(_) => return Ok(()),
    };
    Err(regular_files::Error::NotRegular(kind).into())
}

fn open(path: &Path, access: Access, more: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(access.is_read).write(access.is_write).custom_flags(access.others | more);
    options.open(path)
}

/// Reads until the memory is full or the file ends. A file ends where fewer bytes come than whole blocks.
fn read_all(file: &File, to: &mut [u8], position: u64, block: usize) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], position + done as u64) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if done % block != 0 {
            break;
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_WRITE: Access = Access { is_read: true, is_write: true, others: libc::O_CREAT };

    #[test]
    fn a_position_is_completed_to_a_block() {
        assert_eq!([0, 1, 4095, 4096, 4100].map(head), [0, 4095, 1, 0, 4092]);
    }

    #[test]
    fn edges_and_whole_blocks_end_up_in_one_file() {
        let path = std::env::temp_dir().join(format!("cuda-storage-edges-{}", std::process::id()));
        let file = DiskFile::open(&path, READ_WRITE).unwrap();
        let mut room = vec![0; 5 * ALIGN];
        let start = room.as_ptr().align_offset(ALIGN) + 100;
        let bytes = &mut room[start..start + 3 * ALIGN];
        bytes.iter_mut().enumerate().for_each(|(index, byte)| *byte = u8::try_from(index % 251).unwrap());
        file.write(bytes, 100).unwrap();
        let written = std::fs::read(&path).unwrap();
        assert_eq!(written.len(), 100 + 3 * ALIGN);
        assert!(written[..100].iter().all(|&byte| byte == 0) && written[100..] == *bytes);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_full_disk_is_told_as_such() {
        let file = DiskFile::open(Path::new("/dev/full"), READ_WRITE).unwrap();
        let error = file.write(&[1; 10], 0).unwrap_err();
        assert!(matches!(error, Error::Full { .. }), "{error}");
    }
}
