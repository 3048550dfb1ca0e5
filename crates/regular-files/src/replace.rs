//! Files that are written: whole under another name beside the old one, which they then replace.
//!
//! Invariants:
//! - A reader sees the old file or the whole new one, also after a failed write or a power failure.
//! - The temporary file is created with `O_EXCL` and `O_NOFOLLOW`: a link or a file under its name is an error, and is
//!   neither followed nor changed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Kind, Result};

/// Creates an empty file beside `path`, in the same folder, under a hidden name that this process has not used before.
///
/// # Errors
/// The folder cannot be written to.
pub fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    // A file of an earlier process with this identifier may be left behind; the next name is free.
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

/// Number of names that are tried for a temporary file.
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

/// Replaces the file at `path` by one that `write` fills. The new file reaches the disk before it takes the name; if
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
/// The error of `write`; the folder or the disk refuses; `path` names a directory or another special file.
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

/// Opens a device or a FIFO for writing. A FIFO that no process reads is an error; a plain `open` would wait for a
/// reader.
///
/// # Errors
/// No process reads the FIFO, or the system refuses.
pub fn open_sink(path: &Path) -> io::Result<File> {
    let probe = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    // Writes should wait for a slow reader, so the file is opened once more while `probe` shows that there is a reader.
    let sink = OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open(path)?;
    drop(probe);
    Ok(sink)
}
