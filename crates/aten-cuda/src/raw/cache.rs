//! Compiled code on disk, under torch's variables and file names, shared between processes.
//!
//! A file is the code as the driver takes it, then the kernels' names, then a footer: a mark, both lengths, and a hash over
//! all that stands before it. A file whose footer does not fit is not used, and is written again.
//!
//! **Invariants:** a file appears whole under its name or not at all, since it is written under another name and renamed.
//! Nothing here makes a compilation fail: what cannot be read or written is as if there were no cache, and is told once.
//! Files without the footer, which may be torch's own, are never removed. Only regular files are opened, and no
//! symbolic link in the folder redirects a write: the folder may be writable by other users.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use regular_files::Links;

use crate::raw::sha1::sha1_hex;

/// How many bytes of compiled code are kept on disk where nothing else was said: 512 MiB.
const LIMIT_BYTES: u64 = 512 << 20;

/// Size limit of a cache file in bytes. The largest kernels have a few MiB.
const FILE_MAX: u64 = 256 << 20;

/// What a file of this cache ends with, before the two lengths and the hash.
const MARK: &[u8; 8] = b"ATENJIT1";

/// Bytes of the footer: the mark, the length of the code, the length of the names, and a hash of 128 bits.
const FOOTER: usize = 8 + 8 + 8 + 16;

/// What names of files in the folder contain.
const COMPILERS: [&str; 2] = ["_nvrtc", "_driver"];

static LIMIT: AtomicU64 = AtomicU64::new(LIMIT_BYTES);
static HAS_WARNED: AtomicBool = AtomicBool::new(false);

/// Sets how many bytes of compiled code are kept on disk at most; beyond that, files that were not used for longest are
/// removed when the next one is written. 512 MiB at first. For the whole process.
///
/// ```
/// aten_cuda::raw::set_cache_limit(64 << 20);
/// assert_eq!(aten_cuda::raw::cache_limit(), 64 << 20);
/// ```
pub fn set_cache_limit(bytes: u64) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// How many bytes of compiled code are kept on disk at most; see [`set_cache_limit`].
///
/// ```
/// assert!(aten_cuda::raw::cache_limit() > 0);
/// ```
#[must_use]
pub fn cache_limit() -> u64 {
    LIMIT.load(Ordering::Relaxed)
}

/// The folder of compiled code, by torch's rules: none with `USE_PYTORCH_KERNEL_CACHE=0`, else what
/// `PYTORCH_KERNEL_CACHE_PATH` names, else `torch/kernels` beneath `XDG_CACHE_HOME` or `$HOME/.cache`.
///
/// ```
/// if let Some(folder) = aten_cuda::raw::cache_folder() {
///     assert!(!folder.as_os_str().is_empty());
/// }
/// ```
#[must_use]
pub fn cache_folder() -> Option<PathBuf> {
    folder_of(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

fn folder_of(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if variable("USE_PYTORCH_KERNEL_CACHE").is_some_and(|value| value == Path::new("0")) {
        return None;
    }
    let own = variable("PYTORCH_KERNEL_CACHE_PATH");
    let shared = || variable("XDG_CACHE_HOME").map(|folder| folder.join("torch/kernels"));
    own.or_else(shared).or_else(|| variable("HOME").map(|home| home.join(".cache/torch/kernels")))
}

/// What a file is named after.
#[derive(Clone, Debug)]
pub(crate) struct FileKey<'a> {
    /// Name of the kernel or function.
    pub(crate) name: &'a str,
    /// Compute capability, as `9.0`.
    pub(crate) architecture: String,
    /// The compiler with its version, as `nvrtc13.0`.
    pub(crate) compiler: String,
    /// Whether it is machine code, else PTX.
    pub(crate) is_machine: bool,
    /// The text, with whatever else decides what comes of it.
    pub(crate) text: &'a str,
}

impl FileKey<'_> {
    /// torch's file name: `<name>_arch<M.m>_nvrtc<M.m>_<ptx|sass>_<length>_<sha1>`. Code that the driver has compiled has
    /// `driver` for `nvrtc`.
    fn file_name(&self) -> String {
        let is_plain = |sign: &char| sign.is_ascii_alphanumeric() || *sign == '_';
        let name: String = self.name.chars().filter(is_plain).take(64).collect();
        let kind = if self.is_machine { "sass" } else { "ptx" };
        let (length, digest) = (self.text.len(), sha1_hex(self.text.as_bytes()));
        format!("{name}_arch{}_{}_{kind}_{length}_{digest}", self.architecture, self.compiler)
    }
}

/// Code with the names of its kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) code: Vec<u8>,
    pub(crate) names: Vec<String>,
}

impl Stored {
    fn bytes(&self) -> Vec<u8> {
        let names = self.names.join("\n");
        let mut bytes = self.code.clone();
        bytes.extend_from_slice(names.as_bytes());
        let hash = crate::raw::fingerprint(&bytes);
        bytes.extend_from_slice(MARK);
        bytes.extend_from_slice(&(self.code.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(names.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&hash.to_le_bytes());
        bytes
    }

    /// What is in a file; nothing if the file is not whole.
    fn parse(mut bytes: Vec<u8>) -> Option<Self> {
        let footer = *bytes.last_chunk::<FOOTER>()?;
        let (mark, rest) = footer.split_first_chunk::<8>()?;
        let number = |at: usize| Some(u64::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let (code, names) = (usize::try_from(number(0)?).ok()?, usize::try_from(number(8)?).ok()?);
        bytes.truncate(bytes.len() - FOOTER);
        let hash = u128::from_le_bytes(*rest.get(16..)?.first_chunk()?);
        let fits = mark == MARK && code.checked_add(names) == Some(bytes.len());
        if !fits || crate::raw::fingerprint(&bytes) != hash {
            return None;
        }
        let names = String::from_utf8(bytes.split_off(code)).ok()?;
        Some(Self { code: bytes, names: names.lines().map(str::to_owned).collect() })
    }
}

/// What the cache has for a key. A file that is there and not whole is told of, and counts as none.
pub(crate) fn read(key: &FileKey<'_>) -> Option<Stored> {
    let path = cache_folder()?.join(key.file_name());
    match read_file(&path) {
        Ok(stored) => stored,
        Err(error) => {
            if !is_missing(&error) {
                tracing::warn!(path = %path.display(), %error, "a file of compiled kernels cannot be read");
            }
            None
        }
    }
}

/// Returns the content of a file; `None` if it is corrupt.
///
/// # Errors
/// The file cannot be opened or read, is not a regular file, or is too large.
fn read_file(path: &Path) -> regular_files::Result<Option<Stored>> {
    let file = regular_files::open(path)?;
    let stored = Stored::parse(regular_files::read_open(&file, FILE_MAX)?);
    if stored.is_none() {
        tracing::warn!(path = %path.display(), "a file of compiled kernels is corrupt, and is made again");
    } else {
        // Files that were used last are removed last. A folder that cannot be written to stays as it is.
        let _ = file.set_modified(SystemTime::now());
    }
    Ok(stored)
}

/// Whether an error means that the cache has no file for a key.
fn is_missing(error: &regular_files::Error) -> bool {
    matches!(error, regular_files::Error::Io(error) if error.kind() == std::io::ErrorKind::NotFound)
}

/// Keeps code for a key, where there is a folder for it.
pub(crate) fn write(key: &FileKey<'_>, stored: &Stored) {
    let Some(folder) = cache_folder() else { return };
    if let Err(error) = write_in(&folder, &key.file_name(), &stored.bytes())
        && !HAS_WARNED.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(
            folder = %folder.display(),
            %error,
            "compiled kernels cannot be written to the cache folder, and are compiled again in each process; \
             PYTORCH_KERNEL_CACHE_PATH names another folder"
        );
    }
}

fn write_in(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(name);
    let (mut file, unfinished) = regular_files::create_beside(&path)?;
    let moved = file.write_all(bytes).and_then(|()| std::fs::rename(&unfinished, &path));
    if moved.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    moved?;
    shrink(folder, cache_limit());
    Ok(())
}

/// Removes files that were not used for longest until the rest has no more bytes than the limit. One process at a time does
/// this; others go on.
fn shrink(folder: &Path, limit: u64) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .flatten()
        .filter(|entry| COMPILERS.iter().any(|compiler| entry.file_name().to_string_lossy().contains(compiler)))
        .filter_map(|entry| {
            let facts = entry.metadata().ok()?;
            Some((facts.modified().ok()?, facts.len(), entry.path()))
        })
        .collect();
    let mut bytes: u64 = files.iter().map(|(_, len, _)| len).sum();
    if bytes <= limit {
        return;
    }
    let Ok(turn) = regular_files::append_or_create(&folder.join(".lock"), Links::Refuse) else { return };
    if turn.try_lock().is_err() {
        return;
    }
    files.sort();
    for (_, len, path) in files {
        if bytes <= limit {
            break;
        }
        if is_own(&path) && std::fs::remove_file(&path).is_ok() {
            bytes -= len;
        }
    }
}

/// Whether a file ends as files of this cache do.
fn is_own(path: &Path) -> bool {
    let begins = || -> regular_files::Result<[u8; MARK.len()]> {
        let file = regular_files::open(path)?;
        let mut mark = [0; MARK.len()];
        file.read_exact_at(&mut mark, file.metadata()?.len().saturating_sub(FOOTER as u64))?;
        Ok(mark)
    };
    begins().is_ok_and(|mark| mark == *MARK)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use regular_files::{Error, Kind};

    use super::*;

    fn stored(code: &[u8]) -> Stored {
        Stored { code: code.to_vec(), names: vec!["_Z1fi".to_owned(), "g".to_owned()] }
    }

    /// An empty folder of a test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("aten-cuda-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a writable folder");
        folder
    }

    #[test]
    fn folders_follow_torchs_rules() {
        let of = |set: &[(&str, &str)]| {
            folder_of(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value)))
        };
        let home = ("HOME", "/h");
        assert_eq!(of(&[home]), Some(PathBuf::from("/h/.cache/torch/kernels")));
        assert_eq!(of(&[home, ("XDG_CACHE_HOME", "/x")]), Some(PathBuf::from("/x/torch/kernels")));
        assert_eq!(of(&[home, ("PYTORCH_KERNEL_CACHE_PATH", "/p")]), Some(PathBuf::from("/p")));
        assert_eq!(of(&[home, ("USE_PYTORCH_KERNEL_CACHE", "0")]), None);
        assert_eq!(of(&[home, ("USE_PYTORCH_KERNEL_CACHE", "1")]), of(&[home]));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn files_are_named_as_torch_names_them() {
        let (architecture, compiler) = ("9.0".to_owned(), "nvrtc13.0".to_owned());
        let key = FileKey { name: "f<int>", architecture, compiler, is_machine: true, text: "abc" };
        assert_eq!(key.file_name(), "fint_arch9.0_nvrtc13.0_sass_3_a9993e364706816aba3e25717850c26c9cd0d89d");
        assert!(FileKey { is_machine: false, ..key }.file_name().contains("_ptx_"));
    }

    #[test]
    fn every_changed_byte_and_every_length_is_noticed() {
        let (wanted, whole) = (stored(b"code"), stored(b"code").bytes());
        assert_eq!(Stored::parse(whole.clone()), Some(wanted));
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(Stored::parse(changed), None, "byte {at}");
            assert_eq!(Stored::parse(whole[..at].to_vec()), None, "cut at {at}");
        }
        assert_eq!(Stored::parse([whole.clone(), whole].concat()), None, "two files in one");
    }

    #[test]
    fn the_least_recently_used_files_go_first_and_others_stay() {
        let folder = folder("limit");
        let bytes = stored(&[7; 1000]).bytes();
        for (age, name) in [(3, "a_nvrtc"), (1, "b_nvrtc"), (2, "c_nvrtc")] {
            write_in(&folder, name, &bytes).expect("a writable folder");
            let file = OpenOptions::new().append(true).open(folder.join(name)).expect("the file");
            let long_ago = SystemTime::now() - std::time::Duration::from_secs(age * 1000);
            file.set_modified(long_ago).expect("the file's time");
        }
        std::fs::write(folder.join("torchs_nvrtc"), [0; 1000]).expect("a writable folder");
        shrink(&folder, 2500);
        let left = |name: &str| folder.join(name).exists();
        let found = ["a_nvrtc", "b_nvrtc", "c_nvrtc", "torchs_nvrtc"].map(left);
        std::fs::remove_dir_all(&folder).expect("this test's folder");
        assert_eq!(found, [false, true, false, true]);
    }

    #[test]
    fn writers_at_once_leave_one_whole_file() {
        let folder = folder("writers");
        std::thread::scope(|scope| {
            for writer in 0..4_u8 {
                let folder = &folder;
                scope.spawn(move || {
                    for _ in 0..50 {
                        write_in(folder, "one_nvrtc", &stored(&[writer; 4096]).bytes()).expect("a writable folder");
                    }
                });
            }
            for _ in 0..200 {
                if let Ok(bytes) = std::fs::read(folder.join("one_nvrtc")) {
                    let found = Stored::parse(bytes).expect("a whole file");
                    assert!(found.code.iter().all(|byte| *byte == found.code[0]));
                }
            }
        });
        let files = std::fs::read_dir(&folder).expect("the folder").count();
        std::fs::remove_dir_all(&folder).expect("this test's folder");
        assert_eq!(files, 1, "no unfinished file is left");
    }

    #[test]
    fn special_files_and_links_in_the_folder_cost_nothing_and_redirect_nothing() {
        let folder = folder("special");
        let (fifo, huge, target) = (folder.join("fifo_nvrtc"), folder.join("huge_nvrtc"), folder.join("target"));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
        assert!(matches!(read_file(&fifo), Err(Error::NotRegular(Kind::Fifo))));
        std::os::unix::fs::symlink("/dev/zero", folder.join("zero_nvrtc")).expect("a link");
        let zero = read_file(&folder.join("zero_nvrtc"));
        assert!(matches!(zero, Err(Error::NotRegular(Kind::CharacterDevice))));
        File::create(&huge).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
        assert!(matches!(read_file(&huge), Err(Error::TooLarge { bytes, .. }) if bytes == 1 << 40));
        // Cleaning up reads only the footers of files, and its lock file follows no link.
        assert!(!is_own(&huge) && !is_own(&fifo));
        std::os::unix::fs::symlink(&target, folder.join(".lock")).expect("a link");
        write_in(&folder, "a_nvrtc", &stored(b"code").bytes()).expect("a writable folder");
        shrink(&folder, 0);
        let made = target.exists();
        std::fs::remove_dir_all(&folder).expect("this test's folder");
        assert!(!made, "the link was followed");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_of_its_own() {
        let folder = folder("file");
        let file = folder.join("file");
        std::fs::write(&file, "").expect("a writable folder");
        let error = write_in(&file, "a_nvrtc", b"x").expect_err("a file is no folder");
        std::fs::remove_dir_all(&folder).expect("this test's folder");
        assert!(!error.to_string().is_empty());
    }
}
