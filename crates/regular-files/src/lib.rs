//! Opens, reads and replaces regular files whose names come from users, variables and other processes.
//!
//! Reading order: this file (opening and reading), `error`, `replace` (writing).
//!
//! Invariants:
//! - No function blocks on a FIFO, and none opens a device: the type is checked before the file is opened, and again on
//!   the open file, which is opened with `O_NONBLOCK`. Regular files ignore that flag.
//! - No function reads more bytes than its caller's limit; the size is checked before memory is allocated, and the
//!   allocation is fallible.
//! - Temporary files are created with `O_EXCL` and `O_NOFOLLOW`, so no link redirects them.

mod error;
mod replace;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

pub use error::{Error, Kind, Result};
pub use replace::{create_beside, open_sink, replace};

/// Treatment of a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Links are followed, for names that a user has chosen.
    Follow,
    /// Links are rejected, for predictable names in folders that others can write to.
    Refuse,
}

/// Opens a regular file for reading.
///
/// ```
/// use regular_files::{Error, Kind};
///
/// let error = regular_files::open("/".as_ref()).unwrap_err();
/// assert!(matches!(error, Error::NotRegular(Kind::Directory)), "{error}");
/// ```
///
/// # Errors
/// The path does not name a regular file, or the file cannot be opened.
pub fn open(path: &Path) -> Result<File> {
    open_as(path, OpenOptions::new().read(true), Links::Follow)
}

/// Opens a regular file for reading and for appending.
///
/// # Errors
/// Those of [`open`].
pub fn open_append(path: &Path) -> Result<File> {
    open_as(path, OpenOptions::new().read(true).append(true), Links::Follow)
}

/// Opens a regular file for reading and for appending, and creates it if it does not exist.
///
/// ```
/// use std::io::Write as _;
///
/// use regular_files::Links;
///
/// let path = std::env::temp_dir().join(format!("regular-files-append-{}", std::process::id()));
/// regular_files::append_or_create(&path, Links::Refuse)?.write_all(b"line\n")?;
/// regular_files::append_or_create(&path, Links::Refuse)?.write_all(b"line\n")?;
/// assert_eq!(regular_files::read(&path, 100)?.len(), 10);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of [`open`]; the file cannot be created; the path ends in a link and `links` rejects links.
pub fn append_or_create(path: &Path, links: Links) -> Result<File> {
    open_as(path, OpenOptions::new().read(true).append(true).create(true), links)
}

/// Opens a regular file with these access options.
fn open_as(path: &Path, options: &mut OpenOptions, links: Links) -> Result<File> {
    let (found, no_follow) = match links {
        Links::Follow => (std::fs::metadata(path), 0),
        Links::Refuse => (std::fs::symlink_metadata(path), libc::O_NOFOLLOW),
    };
    match found {
        Ok(found) if !found.is_file() => return Err(Error::NotRegular(Kind::of(found.file_type()))),
        // Opening the file reports every other failure, and creates a file that does not exist.
        Ok(_) | Err(_) => {}
    }
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | no_follow).open(path)?;
    check(&file)?;
    Ok(file)
}

/// Rejects an open file that is not a regular file, and returns the size of one that is.
fn check(file: &File) -> Result<u64> {
    let found = file.metadata()?;
    if found.is_file() { Ok(found.len()) } else { Err(Error::NotRegular(Kind::of(found.file_type()))) }
}

/// Reads a regular file of at most `limit` bytes.
///
/// ```
/// use regular_files::Error;
///
/// // Files of the system have no size; no more than the limit is read.
/// assert!(matches!(regular_files::read("/proc/self/maps".as_ref(), 8), Err(Error::TooLarge { limit: 8, .. })));
/// ```
///
/// # Errors
/// The path does not name a regular file; the file is larger, does not fit into memory, or cannot be read.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    read_open(&open(path)?, limit)
}

/// Reads a text of at most `limit` bytes.
///
/// # Errors
/// Those of [`read`]; the bytes are not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> Result<String> {
    String::from_utf8(read(path, limit)?)
        .map_err(|error| Error::Io(io::Error::new(io::ErrorKind::InvalidData, error.utf8_error())))
}

/// Reads the rest of an open regular file, which has at most `limit` bytes in all.
///
/// # Errors
/// Those of [`read`].
pub fn read_open(mut file: &File, limit: u64) -> Result<Vec<u8>> {
    let bytes = check(file)?;
    if bytes > limit {
        return Err(Error::TooLarge { bytes, limit });
    }
    let mut content = Vec::new();
    let room = usize::try_from(bytes).ok().and_then(|bytes| content.try_reserve_exact(bytes).ok());
    room.ok_or(Error::Memory { bytes })?;
    // One byte more than the limit, to notice a file that grows while it is read.
    file.by_ref().take(limit.saturating_add(1)).read_to_end(&mut content)?;
    let read = content.len() as u64;
    if read > limit { Err(Error::TooLarge { bytes: read, limit }) } else { Ok(content) }
}
