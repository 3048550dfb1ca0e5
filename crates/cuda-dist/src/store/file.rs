//! A store in a file that all processes can reach: a log of what was set (torch's `FileStore`, in its format).
//!
//! A record is a key and a value, each as its length (`u32`, little-endian) and its bytes. Keys of users have `/` before
//! them, removed ones `-/`. `refcount/` counts the processes that have the file open, `cleanup/` those that have closed it;
//! the last of them removes it.
//!
//! Invariants:
//! - The file is read and written with its lock (`flock`) held, and a record is written at once.
//! - The file's lock is taken before the log's: a thread that waits for another process holds up no other thread.
//! - A length that is read is not believed beyond the end of the file.
//! - Only a regular file is opened, and the keys and values in memory have at most [`BYTES_MAX`] bytes.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use regular_files::Links;

use super::Store;
use super::table::{Table, number, sum};
use crate::error::{Error, Result};

/// How long one looks away before looking at the file again. Network file systems do not tell of changes.
const PAUSE: Duration = Duration::from_millis(10);

/// Limit of the total bytes of keys and values, equal to that of a TCP store: 256 MiB.
const BYTES_MAX: usize = 256 << 20;

/// A store in a file (torch's `FileStore`, in its format, so that ranks of PyTorch can share it).
///
/// The file has to be fresh for each run. One that an earlier run left behind is refused where that can be seen: as many
/// processes have closed it as there are to be, or its log is damaged.
///
/// ```
/// use std::time::Duration;
///
/// use cuda_dist::{FileStore, Store};
///
/// let path = std::env::temp_dir().join(format!("cuda-dist-doc-{}", std::process::id()));
/// let store = FileStore::open(&path, Some(1))?;
/// store.set("key", b"value")?;
/// assert_eq!(store.get("key", Duration::from_secs(1))?, b"value");
/// drop(store);
/// assert!(!path.exists());
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    world_size: Option<usize>,
    /// One of those that the file counts, and no duplicate of one.
    is_counted: bool,
    read: Mutex<Log>,
}

/// What has been read of the file.
#[derive(Debug)]
struct Log {
    position: u64,
    values: Table,
}

impl Default for Log {
    fn default() -> Self {
        Self { position: 0, values: Table::new(BYTES_MAX) }
    }
}

const REFERENCES: &[u8] = b"refcount/";
const CLOSED: &[u8] = b"cleanup/";

fn user_key(key: &str) -> Vec<u8> {
    ["/", key].concat().into_bytes()
}

impl FileStore {
    /// Opens a store, or makes one. With the number of processes that will, the last one to close it removes the file.
    ///
    /// # Errors
    /// The file cannot be made or read, is no store, or is one that an earlier run left behind.
    pub fn open(path: impl AsRef<Path>, world_size: Option<usize>) -> Result<Self> {
        let store = Self { path: path.as_ref().to_owned(), world_size, is_counted: true, read: Mutex::default() };
        {
            let mut file = store.file(true)?;
            let mut log = store.log();
            store.refresh(&mut log, &mut file)?;
            let count = |key: &[u8]| log.values.get(key).and_then(number).unwrap_or(0);
            let closed = count(CLOSED);
            if closed > 0
                && (count(REFERENCES) <= 0 || world_size.is_some_and(|size| closed >= size.cast_signed() as i64))
            {
                let problem = format!("{closed} processes of an earlier run have closed it");
                return Err(Error::StaleFile { path: store.path.clone(), problem });
            }
            store.add_to(&mut log, &mut file, REFERENCES, 1)?;
        }
        Ok(store)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, verb: &'static str, cause: io::Error) -> Error {
        Error::StoreLost { store: self.path.display().to_string(), verb, cause: Arc::new(cause) }
    }

    /// The file, locked until it is dropped.
    fn file(&self, is_new: bool) -> Result<File> {
        let opened = if is_new {
            regular_files::append_or_create(&self.path, Links::Follow)
        } else {
            regular_files::open_append(&self.path)
        };
        let file = opened.map_err(|cause| {
            let is_special = matches!(cause, regular_files::Error::NotRegular(_));
            if is_special { self.stale(cause.to_string()) } else { self.lost("opened", cause.into()) }
        })?;
        file.lock().map_err(|cause| self.lost("locked", cause))?;
        Ok(file)
    }

    fn stale(&self, problem: String) -> Error {
        Error::StaleFile { path: self.path.clone(), problem }
    }

    /// Reads the records that were added since the last call.
    fn refresh(&self, log: &mut Log, file: &mut File) -> Result<()> {
        let lost = |cause| self.lost("read", cause);
        let mut left = file.metadata().map_err(lost)?.len().saturating_sub(log.position);
        file.seek(SeekFrom::Start(log.position)).map_err(lost)?;
        let mut reader = BufReader::with_capacity(1 << 16, file.take(left));
        while !reader.fill_buf().map_err(lost)?.is_empty() {
            let key = self.piece(log, &mut reader, &mut left)?;
            let value = self.piece(log, &mut reader, &mut left)?;
            let bytes = (2 * size_of::<u32>() + key.len() + value.len()) as u64;
            match key.strip_prefix(b"-") {
                Some(removed) => drop(log.values.delete(removed)),
                None if key.is_empty() => return Err(self.damaged(log)),
                None => log.values.set(&key, value)?,
            }
            log.position += bytes;
        }
        Ok(())
    }

    fn damaged(&self, log: &Log) -> Error {
        self.stale(format!("its log is damaged behind byte {}", log.position))
    }

    /// Reads a length and that number of bytes; the file has `left` more bytes.
    fn piece(&self, log: &Log, reader: &mut impl io::Read, left: &mut u64) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        reader.read_exact(&mut length).map_err(|_| self.damaged(log))?;
        let length = u64::from(u32::from_le_bytes(length));
        *left = left.checked_sub(length + size_of::<u32>() as u64).ok_or_else(|| self.damaged(log))?;
        if length > BYTES_MAX as u64 {
            return Err(self.damaged(log));
        }
        let mut bytes = Vec::new();
        reader.take(length).read_to_end(&mut bytes).map_err(|cause| self.lost("read", cause))?;
        if bytes.len() as u64 == length { Ok(bytes) } else { Err(self.damaged(log)) }
    }

    fn write(&self, log: &mut Log, file: &mut File, key: &[u8], value: &[u8]) -> Result<()> {
        let length = |bytes: &[u8]| {
            let length =
                u32::try_from(bytes.len()).map_err(|_| Error::StoreFull(format!("{} bytes in one", bytes.len())));
            length.map(u32::to_le_bytes)
        };
        // A record that no process could read back must not reach the file.
        log.values.bytes_with(key, value.len())?;
        let record = [&length(key)?[..], key, &length(value)?[..], value].concat();
        file.write_all(&record).map_err(|cause| self.lost("written", cause))?;
        // It is read back with the rest, so that the log is known as others know it.
        self.refresh(log, file)
    }

    fn add_to(&self, log: &mut Log, file: &mut File, key: &[u8], amount: i64) -> Result<i64> {
        let problem = |problem| Error::Value { key: String::from_utf8_lossy(key).into_owned(), problem };
        let sum = sum(log.values.get(key).filter(|text| !text.is_empty()), amount).map_err(problem)?;
        self.write(log, file, key, sum.to_string().as_bytes())?;
        Ok(sum)
    }

    /// Calls `act` with the newest state. The file is locked first: a wait for another process must not hold the log.
    fn with<T>(&self, act: impl FnOnce(&mut Log, &mut File) -> Result<T>) -> Result<T> {
        let mut file = self.file(false)?;
        let mut log = self.log();
        self.refresh(&mut log, &mut file)?;
        act(&mut log, &mut file)
    }

    /// Counts this process as one that has closed the file, and removes it after the last.
    fn close(&self) -> Result<()> {
        let (closed, references) =
            self.with(|log, file| Ok((self.add_to(log, file, CLOSED, 1)?, self.add_to(log, file, REFERENCES, -1)?)))?;
        if references == 0 && self.world_size.is_some_and(|size| closed >= size.cast_signed() as i64) {
            std::fs::remove_file(&self.path).map_err(|cause| self.lost("removed", cause))?;
        }
        Ok(())
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        if self.is_counted
            && let Err(error) = self.close()
        {
            tracing::debug!(%error, "a store's file is left behind");
        }
    }
}

fn no_queues() -> Error {
    let problem = "a store in a file has no queues; one by TCP has".to_owned();
    Error::Unsupported { backend: "file", problem }
}

impl Store for FileStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.with(|log, file| self.write(log, file, &user_key(key), value))
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        let key = user_key(key);
        self.with(|log, file| {
            let now = log.values.get(&key);
            if now.map_or(expected.is_empty(), |now| now == expected) {
                self.write(log, file, &key, desired)?;
                return Ok(desired.to_vec());
            }
            Ok(now.unwrap_or(expected).to_vec())
        })
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        self.wait(&[key], timeout)?;
        Ok(self.log().values.get(&user_key(key)).unwrap_or_default().to_vec())
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.with(|log, file| self.add_to(log, file, &user_key(key), amount))
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        let key = user_key(key);
        self.with(|log, file| {
            let whole = [log.values.get(&key).unwrap_or_default(), value].concat();
            self.write(log, file, &key, &whole)
        })
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        self.with(|log, _| Ok(keys.iter().all(|key| log.values.has(&user_key(key)))))
    }

    fn wait(&self, keys: &[&str], timeout: Duration) -> Result<()> {
        let begin = Instant::now();
        while !self.check(keys)? {
            if begin.elapsed() >= timeout {
                let log = self.log();
                let missing = keys.iter().filter(|key| !log.values.has(&user_key(key)));
                let keys = missing.map(|key| (*key).to_owned()).collect();
                return Err(Error::StoreTimeout { keys, waited: begin.elapsed() });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        let key = user_key(key);
        self.with(|log, file| {
            let was_there = log.values.has(&key);
            self.write(log, file, &[b"-", key.as_slice()].concat(), &[])?;
            Ok(was_there)
        })
    }

    fn num_keys(&self) -> Result<usize> {
        self.with(|log, _| Ok(log.values.keys().filter(|key| key.starts_with(b"/")).count()))
    }

    fn queue_push(&self, _key: &str, _value: &[u8]) -> Result<()> {
        Err(no_queues())
    }

    fn queue_pop(&self, _key: &str, _timeout: Duration) -> Result<Vec<u8>> {
        Err(no_queues())
    }

    fn queue_len(&self, _key: &str) -> Result<usize> {
        Err(no_queues())
    }

    fn duplicate(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self { path: self.path.clone(), world_size: None, is_counted: false, read: Mutex::default() }))
    }
}
