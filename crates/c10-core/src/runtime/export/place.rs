//! Where processes that export their figures are found: a folder with a Unix socket for each, named after the process.
//!
//! **Invariants:** the default folder belongs to this user, and nobody else may write or look into it. A name has the
//! number of a process and the time of its start, so that a process which takes the number later is not mistaken for
//! the one that ended. Only a socket whose process has ended is ever removed by others.

use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::base::error::{ExportError, Result};
use crate::base::process::start_of;

/// The variable that names another folder.
const FOLDER_VARIABLE: &str = "TORCH_CUDA_EXPORT_FOLDER";

/// How the name of a socket ends.
const SUFFIX: &str = ".sock";

/// A process that exports, or exported, its figures; listed by [`figure_exports`].
///
/// ```
/// use c10_core::{Runtime, figure_exports};
///
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// let export = Runtime::current().export_figures()?;
/// let listed = figure_exports()?;
/// assert!(listed.iter().any(|listed| listed.pid == std::process::id() && listed.is_alive));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFigures {
    /// Number of the process.
    pub pid: u32,
    /// The socket that answers with the figures.
    pub socket: PathBuf,
    /// Whether that process still runs.
    pub is_alive: bool,
}

/// The processes of this user that export their figures, and those that have ended without taking back their socket,
/// by their numbers. Torch has no such thing.
///
/// ```
/// for process in c10_core::figure_exports()? {
///     println!("{} {}", process.pid, process.socket.display());
/// }
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// [`ExportError`]: the folder cannot be read, or others may write into it. A folder that is not there is empty.
pub fn figure_exports() -> Result<Vec<ExportedFigures>> {
    let folder = folder();
    match folder.check() {
        Ok(()) => list(&folder.path),
        Err(Refused::System(error)) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(refused) => Err(refused.of(&folder.path)),
    }
}

/// A folder, and whether it must be private because nobody chose it.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    must_be_private: bool,
}

/// Why a folder is not used.
enum Refused {
    System(io::Error),
    Unsafe(&'static str),
}

impl Refused {
    fn of(self, folder: &Path) -> crate::base::error::Error {
        let folder = folder.to_owned();
        match self {
            Self::System(reason) => ExportError::Folder { folder, reason: reason.into() },
            Self::Unsafe(why) => ExportError::Unsafe { folder, why },
        }
        .into()
    }
}

/// The folder that the environment names, else one of this user's run-time folder, else one beside temporary files.
pub(super) fn folder() -> Folder {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = named(FOLDER_VARIABLE) {
        return Folder { path, must_be_private: false };
    }
    let path = match named("XDG_RUNTIME_DIR") {
        Some(folder) => folder.join("torch-cuda"),
        None => std::env::temp_dir().join(own_user().map_or("torch-cuda".into(), |user| format!("torch-cuda-{user}"))),
    };
    Folder { path, must_be_private: true }
}

/// This process's user, as the system shows its folder.
fn own_user() -> io::Result<u32> {
    std::fs::metadata("/proc/self").map(|of| of.uid())
}

impl Folder {
    /// Makes the folder if it is not there, and checks it.
    pub(super) fn make(&self) -> Result<()> {
        let made = std::fs::DirBuilder::new().mode(0o700).create(&self.path);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Refused::System(error)),
            _ => self.check(),
        }
        .map_err(|refused| refused.of(&self.path))
    }

    fn check(&self) -> Result<(), Refused> {
        if !self.must_be_private {
            return std::fs::metadata(&self.path).map(|_| ()).map_err(Refused::System);
        }
        // A link may lead anywhere, so it is looked at itself.
        let of = std::fs::symlink_metadata(&self.path).map_err(Refused::System)?;
        if !of.is_dir() {
            return Err(Refused::Unsafe("it is no folder"));
        }
        if of.uid() != own_user().map_err(Refused::System)? {
            return Err(Refused::Unsafe("it belongs to another user"));
        }
        if of.mode() & 0o077 == 0 { Ok(()) } else { Err(Refused::Unsafe("others may use it")) }
    }
}

fn list(folder: &Path) -> Result<Vec<ExportedFigures>> {
    let entries = std::fs::read_dir(folder).map_err(|error| Refused::System(error).of(folder))?;
    let mut found: Vec<_> = entries.filter_map(|entry| exported(&entry.ok()?.path())).collect();
    found.sort_by(|one, other| (one.pid, &one.socket).cmp(&(other.pid, &other.socket)));
    Ok(found)
}

/// What the name of a socket tells; nothing for other files.
fn exported(path: &Path) -> Option<ExportedFigures> {
    let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    let mut parts = name.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (pid, started, _) = (parts.next()??, parts.next()??, parts.next()??);
    let pid = u32::try_from(pid).ok()?;
    Some(ExportedFigures { pid, socket: path.to_owned(), is_alive: start_of(&pid.to_string()) == Some(started) })
}

/// The name of the socket with a number of this process.
pub(super) fn own_name(number: u64) -> String {
    let mut name = std::process::id().to_string();
    let _ = write!(name, "-{}-{number}{SUFFIX}", start_of("self").unwrap_or(0));
    name
}

/// Removes the sockets of processes that have ended.
pub(super) fn sweep(folder: &Path) {
    let ended = list(folder).unwrap_or_default().into_iter().filter(|listed| !listed.is_alive);
    // One that another process has removed meanwhile is gone all the same.
    ended.for_each(|listed| drop(std::fs::remove_file(listed.socket)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_process_and_its_start() {
        let own = exported(Path::new("/x").join(own_name(3)).as_path()).unwrap();
        assert!(own.is_alive && own.pid == std::process::id(), "{own:?}");
        let before = exported(Path::new(&format!("/x/{}-1-0.sock", std::process::id()))).unwrap();
        assert!(!before.is_alive, "an earlier process with the number of this one");
        for other in ["/x/1-2.sock", "/x/a-2-0.sock", "/x/1-2-0", "/x/1-2-x.sock", "/x/99999999999-1-0.sock"] {
            assert_eq!(exported(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_folder_that_others_may_use_is_refused() {
        let path = std::env::temp_dir().join(format!("c10-open-folder-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o755).create(&path).unwrap();
        let private = Folder { path: path.clone(), must_be_private: true };
        assert!(private.make().unwrap_err().to_string().contains("others may use it"));
        assert!(Folder { path: path.clone(), must_be_private: false }.make().is_ok());
        let link = path.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let refused = Folder { path: link, must_be_private: true }.make().unwrap_err();
        assert!(refused.to_string().contains("it is no folder"), "{refused}");
        std::fs::remove_dir_all(path).unwrap();
    }
}
