//! Snapshot files: read, told apart by their first byte, and written so that a good file is never lost.
//!
//! Invariant: a file that is written is either the old one or the whole new one, whenever the program or the disk
//! gives up. The new one is written beside it under another name, brought to the disk, and then takes its place.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::json::{self, JsonWriter};
use crate::limits::Limits;
use crate::model::Snapshot;
use crate::pickle::{self, Pickler};
use crate::schema;

/// Reads a snapshot file, pickle or JSON, with the default limits.
///
/// # Errors
/// The file is not a regular file, cannot be read, is truncated, is not a snapshot, or is too large.
pub fn read(path: &Path) -> Result<Snapshot> {
    read_with(path, &Limits::default())
}

/// Reads a snapshot file, pickle or JSON.
///
/// # Errors
/// As [`read`].
pub fn read_with(path: &Path, limits: &Limits) -> Result<Snapshot> {
    let failed = |source| Error::Io { verb: "read", path: path.to_owned(), source };
    let limit = limits.bytes_max.min(u64::from(u32::MAX));
    match regular_files::read(path, limit) {
        Ok(bytes) => parse_with(&bytes, limits),
        Err(regular_files::Error::TooLarge { limit, .. }) => {
            Err(Error::Limit { what: "bytes", limit, field: "bytes_max" })
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// Reads the bytes of a snapshot file, pickle or JSON, with the default limits.
///
/// # Errors
/// They are cut short, are something else, or are too many.
pub fn parse(bytes: &[u8]) -> Result<Snapshot> {
    parse_with(bytes, &Limits::default())
}

/// Reads the bytes of a snapshot file, pickle or JSON.
///
/// # Errors
/// As [`parse`].
pub fn parse_with(bytes: &[u8], limits: &Limits) -> Result<Snapshot> {
    let limit = limits.bytes_max.min(u64::from(u32::MAX));
    if bytes.len() as u64 > limit {
        return Err(Error::Limit { what: "bytes", limit, field: "bytes_max" });
    }
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_json = !pickle::is_pickle(bytes) && matches!(first, Some(b'{' | b'['));
    let tree = if is_json { json::read(bytes, limits)? } else { pickle::read(bytes, limits)? };
    schema::snapshot(&tree, limits)
}

/// Writes a snapshot as a pickle that PyTorch's tools and its page read (`torch.cuda.memory._dump_snapshot`).
///
/// # Errors
/// The system refuses to write; a file that was there is left as it was.
pub fn write_pickle(snapshot: &Snapshot, path: &Path) -> Result<()> {
    replace(path, |out| pickle_to(snapshot, out))
}

/// Writes a snapshot as JSON, with the keys of the pickle.
///
/// # Errors
/// As [`write_pickle`].
pub fn write_json(snapshot: &Snapshot, path: &Path) -> Result<()> {
    replace(path, |out| json_to(snapshot, out))
}

/// Writes a text, such as the viewer's page.
///
/// # Errors
/// As [`write_pickle`].
pub fn write_text(text: &str, path: &Path) -> Result<()> {
    replace(path, |out| out.write_all(text.as_bytes()))
}

/// Writes a file of any content, which `write` writes: it takes the place of the old one when it is whole.
///
/// ```
/// use std::io::Write;
///
/// let path = std::env::temp_dir().join(format!("memory-viz-{}.txt", std::process::id()));
/// memory_viz::file::write_with(&path, |out| out.write_all(b"whole"))?;
/// assert_eq!(std::fs::read(&path).unwrap(), b"whole");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), memory_viz::Error>(())
/// ```
///
/// # Errors
/// Those of `write`; as [`write_pickle`].
pub fn write_with(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    replace(path, write)
}

/// Writes a snapshot as a pickle to anything that takes bytes. They come in small pieces: buffer them.
///
/// # Errors
/// Those of the writer.
pub fn pickle_to(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut pickler = Pickler::new(out)?;
    schema::emit(snapshot, &mut pickler)?;
    pickler.finish().map(drop)
}

/// Writes a snapshot as JSON to anything that takes bytes. They come in small pieces: buffer them.
///
/// # Errors
/// Those of the writer.
pub fn json_to(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut writer = JsonWriter::new(out);
    schema::emit(snapshot, &mut writer)?;
    writer.finish().map(drop)
}

/// Writes a file beside the one at a path and puts it in its place once it is whole.
fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let failed = |source| Error::Io { verb: "write", path: path.to_owned(), source };
    // A link stays a link: what it leads to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
        // A device or a pipe has no content that could be lost, and must not be replaced by a file.
        return regular_files::open_sink(&path).and_then(|file| filled(file, write)).map_err(failed);
    }
    let replaced = regular_files::replace(&path, |file| filled(file.try_clone()?, write));
    replaced.map_err(|error| failed(error.into()))
}

/// Writes through a buffer and flushes the buffer.
fn filled(file: File, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    write(&mut out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("memory-viz-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
        let folder = folder("fails");
        let path = folder.join("snapshot.pickle");
        write_pickle(&Snapshot::default(), &path).unwrap();
        let before = fs::read(&path).unwrap();
        let outcome = replace(&path, |out| {
            out.write_all(b"half of a file")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert!(matches!(outcome, Err(Error::Io { verb: "write", .. })), "{outcome:?}");
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn special_and_huge_files_are_refused_at_once() {
        let folder = folder("special");
        let (fifo, huge) = (folder.join("fifo"), folder.join("huge"));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        File::create(&huge).unwrap().set_len(1 << 40).unwrap();
        for (path, says) in [(&*fifo, "a FIFO"), (Path::new("/dev/zero"), "a character device"), (&folder, "directory")]
        {
            let error = read(path).unwrap_err();
            assert!(matches!(error, Error::Io { verb: "read", .. }) && error.to_string().contains(says), "{error}");
        }
        assert!(matches!(read(&huge), Err(Error::Limit { what: "bytes", .. })));
        assert!(matches!(write_text("x", &fifo), Err(Error::Io { verb: "write", .. })), "no process reads it");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_full_device_is_an_error_and_stays_a_device() {
        let full = Path::new("/dev/full");
        if full.exists() {
            assert!(matches!(write_pickle(&Snapshot::default(), full), Err(Error::Io { .. })));
            assert!(!fs::metadata(full).unwrap().is_file());
        }
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = folder("link");
        let (path, link) = (folder.join("real.json"), folder.join("link.json"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_json(&Snapshot::default(), &link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read(&path).unwrap(), Snapshot::default());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = write_text("", Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nowhere/at/all: "), "{error}");
    }
}
