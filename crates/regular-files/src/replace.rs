//! Replaces files: a new file is written completely under a temporary name and then renamed.
//!
//! Invariants:
//! - A reader sees the old file or the whole new one, also after a failed write or a power failure.
//! - The temporary file is created with `O_EXCL` and `O_NOFOLLOW`: an existing link or file with its name is neither
//!   followed nor changed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Kind, Result};

/// Creates an empty file in the folder of `path`, under a hidden name that this process has not used before.
///
/// # Errors
/// The folder is not writable.
pub fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    // An earlier process with this id may have left a file behind; the next name is free.
    for _ in 0..ATTEMPTS {
        let beside = beside(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).custom_flags(libc::O_NOFOLLOW);
        match options.open(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => return outcome.map(|file| (file, beside)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Number of names tried for a temporary file.
const ATTEMPTS: usize = 100;

/// Returns an unused name in the folder of `path`.
fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{count}.unfinished", std::process::id()));
    path.with_file_name(name)
}

/// Replaces the file at `path` by one that `write` fills. The new file is flushed to disk before it is renamed; if
/// anything fails, the old file stays and the new one is removed. A link at `path` is replaced, not followed.
///
/// ```
/// use std::io::Write as _;
///
/// let path = std::env::temp_dir().join(format!("regular-files-replace-{}", std::process::id()));
/// regular_files::replace(&path, |file| file.write_all(b"old"))?;
/// let failed = regular_files::replace(&path, |_| Err(std::io::ErrorKind::StorageFull.into()));
/// assert!(failed.is_err());
/// assert_eq!(regular_files::read(&path, 100)?, b"old");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The error of `write`; an error of the folder or the disk; `path` names a directory or another special file.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() && !found.is_symlink() => {
            return Err(Error::NotRegular(Kind::of(found.file_type())));
        }
        Ok(_) | Err(_) => {}
    }
    let (mut file, beside) = create_beside(path)?;
    let written = write(&mut file).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&beside);
    }
    Ok(written?)
}

/// Opens a device or a FIFO for writing. Returns an error for a FIFO that no process reads; a plain `open` would block
/// until there is a reader.
///
/// # Errors
/// No process reads the FIFO, or an error of the system.
pub fn open_sink(path: &Path) -> io::Result<File> {
    let sink = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    // Writes should block for a slow reader. The flag is cleared on the open file: opening the FIFO again would block if
    // its reader had closed it meanwhile.
    let flags = rustix::fs::fcntl_getfl(&sink)?;
    rustix::fs::fcntl_setfl(&sink, flags - rustix::fs::OFlags::NONBLOCK)?;
    Ok(sink)
}
