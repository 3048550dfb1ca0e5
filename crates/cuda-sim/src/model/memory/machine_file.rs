//! A machine that several processes share: a small file that says what each of them holds of every device.
//!
//! The file begins with what the machine is; then come slots, one for each process, with its number, when it began, and for each
//! device the bytes that it holds and whether it has a context and work there. Whoever takes memory holds the file's lock while
//! it looks at the others and writes what it has from then on. Nobody else writes to a slot that is taken.
//!
//! **Invariants:** a process may be killed at any moment. The system drops its lock, words of a slot are written one at a time,
//! and a slot counts only while the process that took it lives: one with its number that began when it says. So what a killed
//! process held is free at once. A file that is no machine's is never written to.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What a file of this kind begins with, the version of its form at the end.
const MAGIC: u64 = u64::from_le_bytes(*b"simmach1");
/// The part of it that all versions have.
const MAGIC_OF_ALL: u64 = 0x00ff_ffff_ffff_ffff;

const WORD: u64 = 8;
/// Words of the beginning: the magic, the number of devices, the bytes of each.
const HEAD: u64 = 8;
/// The most devices of a machine.
const DEVICES: u64 = 16;
/// Words of a slot: the process, when it began, and two for each device.
const SLOT: u64 = 2 + 2 * DEVICES;
const SLOTS: u64 = 64;
const FILE_BYTES: u64 = WORD * (HEAD + SLOT * SLOTS);

/// What a process has on a device, as bits: a context, and work to be done.
const HAS_CONTEXT: u64 = 1;
const HAS_WORK: u64 = 2;

/// Why a file cannot be a machine that processes share.
#[derive(Debug)]
pub struct MachineFileError {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Io(io::Error),
    NoMachine,
    Version(char),
    Short(u64),
    Other { devices: u64, bytes: u64, processes: Vec<u32> },
    Full,
}

impl fmt::Display for MachineFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.reason {
            Reason::Io(error) => write!(f, "the file {path} of a shared machine cannot be used: {error}"),
            Reason::NoMachine => {
                write!(f, "{path} is no file of a shared machine; name one that is not there, and it is made")
            }
            Reason::Version(version) => {
                write!(f, "{path} is a shared machine in the form of version {version}; remove it if nobody uses it")
            }
            Reason::Short(bytes) => {
                write!(f, "{path} is cut short: {bytes} of {FILE_BYTES} bytes are there; remove it if nobody uses it")
            }
            Reason::Other { devices, bytes, processes } => write!(
                f,
                "{path} is a machine with {devices} devices of {bytes} bytes, which processes {processes:?} use; ask for the same \
                 or name another file"
            ),
            Reason::Full => write!(f, "{path} is used by {SLOTS} processes, and there is no room for more"),
        }
    }
}

impl std::error::Error for MachineFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            Reason::Io(error) => Some(error),
            Reason::NoMachine | Reason::Version(_) | Reason::Short(_) | Reason::Other { .. } | Reason::Full => None,
        }
    }
}

/// What another process has on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) pid: u32,
    pub(crate) bytes: u64,
    pub(crate) has_context: bool,
    pub(crate) has_work: bool,
}

/// This process's slot in the file of a machine.
#[derive(Debug)]
pub(crate) struct MachineFile {
    file: File,
    slot: u64,
    pid: u32,
    /// What was told last of each device.
    told: Vec<u64>,
}

impl MachineFile {
    /// Takes a slot in a file, which is made if it is not there.
    pub(crate) fn open(path: &Path, devices: u32, bytes: u64) -> Result<Self, MachineFileError> {
        Self::claimed(path, devices, bytes).map_err(|reason| MachineFileError { path: path.to_owned(), reason })
    }

    fn claimed(path: &Path, devices: u32, bytes: u64) -> Result<Self, Reason> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = options.map_err(Reason::Io)?;
        if !file.metadata().map_err(Reason::Io)?.is_file() {
            return Err(Reason::NoMachine);
        }
        let _lock = Lock::of(&file).map_err(Reason::Io)?;
        prepare(&file, devices.into(), bytes)?;
        let slots = slots(&file).map_err(Reason::Io)?;
        let pid = std::process::id();
        let slot = (0..).zip(&slots).find(|(_, slot)| !slot.is_alive()).map(|(index, _)| index).ok_or(Reason::Full)?;
        let began = began(pid).unwrap_or(0);
        // The number comes last: until then the slot is nobody's.
        put(&file, slot, 0, 0).map_err(Reason::Io)?;
        (2..SLOT).try_for_each(|word| put(&file, slot, word, 0)).map_err(Reason::Io)?;
        put(&file, slot, 1, began).map_err(Reason::Io)?;
        put(&file, slot, 0, pid.into()).map_err(Reason::Io)?;
        Ok(Self { file, slot, pid, told: vec![0; usize::try_from(devices).unwrap_or(0)] })
    }

    /// What other processes have on a device. What cannot be read is nothing.
    pub(crate) fn others(&self, device: u32) -> Vec<Holding> {
        let all = slots(&self.file).unwrap_or_default();
        let others = (0..).zip(all).filter(|(index, slot)| *index != self.slot && slot.is_alive());
        let at = usize::try_from(device).unwrap_or(usize::MAX);
        let holding = |slot: Slot| {
            let (bytes, state) = slot.devices.get(at).copied().unwrap_or_default();
            let (has_context, has_work) = (state & HAS_CONTEXT != 0, state & HAS_WORK != 0);
            Holding { pid: slot.pid, bytes, has_context, has_work }
        };
        others.map(|(_, slot)| holding(slot)).collect()
    }

    /// Takes memory so that this process holds `bytes` of a device, if all processes together then hold no more than `most`.
    pub(crate) fn take(&self, device: u32, bytes: u64, most: u64) -> bool {
        let Ok(_lock) = Lock::of(&self.file) else { return false };
        let others = self.others(device).iter().fold(0_u64, |sum, other| sum.saturating_add(other.bytes));
        bytes.saturating_add(others) <= most && put(&self.file, self.slot, used_word(device), bytes).is_ok()
    }

    /// Says that this process holds fewer bytes of a device now.
    pub(crate) fn give_back(&self, device: u32, bytes: u64) {
        // Where that cannot be written the others see more than there is, until the process ends.
        let _ = put(&self.file, self.slot, used_word(device), bytes);
    }

    /// Says what this process has on a device beside memory.
    pub(crate) fn tell(&mut self, device: u32, has_context: bool, has_work: bool) {
        let state = u64::from(has_context) * HAS_CONTEXT + u64::from(has_work) * HAS_WORK;
        let Some(told) = usize::try_from(device).ok().and_then(|at| self.told.get_mut(at)) else { return };
        if *told != state && put(&self.file, self.slot, used_word(device) + 1, state).is_ok() {
            *told = state;
        }
    }
}

impl Drop for MachineFile {
    fn drop(&mut self) {
        // A forked child has its parent's value, but not its slot.
        if std::process::id() == self.pid {
            let _ = put(&self.file, self.slot, 0, 0);
        }
    }
}

/// The lock of a file for as long as the value lives: one of its own each time, so that no forked child keeps it for long.
struct Lock(#[expect(dead_code, reason = "it is unlocked when it is closed")] File);

impl Lock {
    fn of(file: &File) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let again = OpenOptions::new().read(true).write(true).open(path)?;
        again.lock()?;
        Ok(Self(again))
    }
}

/// What is in a slot.
#[derive(Debug)]
struct Slot {
    pid: u32,
    began: u64,
    /// Bytes and state of each device.
    devices: Vec<(u64, u64)>,
}

impl Slot {
    /// Whether the process that took it lives.
    fn is_alive(&self) -> bool {
        self.pid != 0 && began(self.pid) == Some(self.began)
    }
}

fn used_word(device: u32) -> u64 {
    2 + 2 * u64::from(device)
}

fn put(file: &File, slot: u64, word: u64, value: u64) -> io::Result<()> {
    file.write_all_at(&value.to_le_bytes(), WORD * (HEAD + SLOT * slot + word))
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let whole = bytes.chunks_exact(8);
    whole.map(|word| word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))).collect()
}

fn slots(file: &File) -> io::Result<Vec<Slot>> {
    let mut bytes = vec![0; usize::try_from(WORD * SLOT * SLOTS).unwrap_or(0)];
    file.read_exact_at(&mut bytes, WORD * HEAD)?;
    let slot = |words: &[u64]| Slot {
        pid: u32::try_from(words[0]).unwrap_or(0),
        began: words[1],
        devices: words[2..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
    };
    Ok(words(&bytes).chunks_exact(usize::try_from(SLOT).unwrap_or(1)).map(slot).collect())
}

/// Makes a file the machine that is wanted, if it is empty, unfinished, or nobody uses it any more.
fn prepare(file: &File, devices: u64, bytes: u64) -> Result<(), Reason> {
    let length = file.metadata().map_err(Reason::Io)?.len();
    let mut head = vec![0; usize::try_from(length.min(WORD * HEAD)).unwrap_or(0)];
    file.read_exact_at(&mut head, 0).map_err(Reason::Io)?;
    let found = words(&head);
    let magic = found.first().copied().unwrap_or(0);
    if magic == MAGIC {
        if length < FILE_BYTES {
            return Err(Reason::Short(length));
        }
        if found[1..3] == [devices, bytes] {
            return Ok(());
        }
        let alive = slots(file).map_err(Reason::Io)?.into_iter().filter(Slot::is_alive);
        let processes: Vec<u32> = alive.map(|slot| slot.pid).collect();
        if !processes.is_empty() {
            return Err(Reason::Other { devices: found[1], bytes: found[2], processes });
        }
    } else if magic & MAGIC_OF_ALL == MAGIC & MAGIC_OF_ALL {
        return Err(Reason::Version(char::from(magic.to_le_bytes()[7])));
    } else if length > 0 && (magic != 0 || length != FILE_BYTES) {
        return Err(Reason::NoMachine);
    }
    // The magic comes last: without it the file is unfinished.
    let write = |word: u64, value: u64| file.write_all_at(&value.to_le_bytes(), WORD * word);
    let made = if length == 0 { file.set_len(FILE_BYTES) } else { write(0, 0) };
    let emptied = made.and_then(|()| (0..SLOTS).try_for_each(|slot| put(file, slot, 0, 0)));
    let written = emptied.and_then(|()| write(1, devices)).and_then(|()| write(2, bytes));
    written.and_then(|()| write(0, MAGIC)).map_err(Reason::Io)
}

/// When a process that lives began, in the system's own count; none where there is no such process, or it only waits for its
/// parent to hear of its end.
fn began(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses and may hold any character.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
    let began = fields.nth(18)?.parse().ok()?;
    (!has_ended).then_some(began)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("cuda-sim-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn slots_of_the_living_count() {
        let path = path("slots");
        let one = MachineFile::open(&path, 2, 100).expect("a new file");
        let mut two = MachineFile::open(&path, 2, 100).expect("the same file");
        assert!(one.take(1, 60, 100) && !two.take(1, 41, 100) && two.take(1, 40, 100) && two.take(0, 100, 100));
        two.tell(1, true, false);
        let pid = std::process::id();
        assert_eq!(one.others(1), [Holding { pid, bytes: 40, has_context: true, has_work: false }]);
        two.give_back(1, 10);
        assert_eq!(one.others(1)[0].bytes, 10);
        // A process that is gone, and one that has the number of one that is gone.
        for (dead, started) in [(u32::MAX - 1, 5), (1, 1)] {
            put(&one.file, 9, 1, started).expect("it can be written");
            put(&one.file, 9, used_word(1), 99).expect("it can be written");
            put(&one.file, 9, 0, dead.into()).expect("it can be written");
            assert_eq!(one.others(1).len(), 1);
        }
        drop(two);
        assert_eq!(one.others(1), []);
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn files_that_are_none_are_refused_and_left_alone() {
        let path = path("wrong");
        let refused = |bytes: &[u8], text: &str| {
            std::fs::write(&path, bytes).expect("it can be written");
            let error = MachineFile::open(&path, 1, 100).expect_err("it is no machine").to_string();
            assert!(error.contains(text), "{error}");
            assert_eq!(std::fs::read(&path).expect("it is there"), bytes);
        };
        refused(b"a file of the user's own", "is no file of a shared machine");
        refused(b"x", "is no file of a shared machine");
        refused(b"simmach9 and more", "in the form of version 9");
        refused(&[b"simmach1".as_slice(), &[0; 100]].concat(), "is cut short: 108 of");
        assert!(MachineFile::open(Path::new("/"), 1, 100).is_err());
        assert!(MachineFile::open(Path::new("/no/such/folder/file"), 1, 100).is_err());
        // Killed before it was finished, and left behind by a machine of another form.
        let unfinished = vec![0; usize::try_from(FILE_BYTES).expect("few bytes")];
        std::fs::write(&path, unfinished).expect("it can be written");
        drop(MachineFile::open(&path, 1, 100).expect("it is made anew"));
        let other = MachineFile::open(&path, 2, 50).expect("nobody uses it");
        let error = MachineFile::open(&path, 1, 100).expect_err("somebody uses it").to_string();
        let users = format!("with 2 devices of 50 bytes, which processes [{}] use", std::process::id());
        assert!(error.contains(&users), "{error}");
        drop(other);
        let all: Vec<MachineFile> =
            (0..SLOTS).map(|_| MachineFile::open(&path, 1, 9).expect("there is room")).collect();
        let error = MachineFile::open(&path, 1, 9).expect_err("there is none").to_string();
        assert!(error.contains("is used by 64 processes"), "{error}");
        drop(all);
        let _ = std::fs::remove_file(&path);
    }
}
