//! Finds and opens a shared library, and says exactly what was tried when it fails.
//!
//! Knows no library by name: each library's module hands in a [`LibraryInfo`] and a probe that accepts or refuses
//! what was opened. A library is never closed once accepted.
//!
//! # Safety
//! Opening a library runs its initialisers. What is opened is either the file the user named or the driver by its
//! well-known names.

use std::error::Error;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use crate::places;
use crate::table::Address;
use crate::version::LibraryVersion;

/// `RTLD_NOLOAD` of Linux: take a library only if it is loaded already.
const RTLD_NOLOAD: i32 = 4;

/// How a library is searched for.
#[derive(Debug)]
pub(crate) struct LibraryInfo {
    /// Name for messages.
    pub(crate) name: &'static str,
    /// Environment variable that names a file to open instead of searching.
    pub(crate) override_variable: &'static str,
    /// File names the system's loader is asked for, in order.
    pub(crate) sonames: &'static [&'static str],
    /// Folders outside the system's search path.
    pub(crate) folders: &'static [&'static str],
    /// Folders of the library inside a Python's `site-packages`; none for a library that comes with the driver.
    pub(crate) wheels: &'static [&'static str],
    /// A function of the library, whose address tells the file that was loaded.
    pub(crate) landmark: &'static str,
}

/// An open library that has not been accepted yet; closed when dropped.
#[derive(Debug)]
pub(crate) struct Library(Handle);

/// A library that was accepted.
#[derive(Debug)]
pub(crate) struct Loaded<V> {
    pub(crate) library: Library,
    pub(crate) version: V,
    pub(crate) origin: String,
}

/// One place that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// What was tried: a path or a name, and by which rule.
    pub place: String,
    /// Why it did not do.
    pub outcome: Outcome,
}

/// Why a place did not do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The system's loader could not open it; its own text.
    NotOpened(String),
    /// It is a stub of the CUDA toolkit, good only for linking.
    Stub,
    /// It opened, but lacks a function every version has.
    MissingSymbol(&'static str),
    /// It opened and answered with an error.
    Refused(String),
    /// It opened and is of a version that these bindings are not for.
    TooOld {
        /// Its version.
        found: LibraryVersion,
        /// The first major version that will do.
        needs: u32,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpened(text) => f.write_str(text),
            Self::Stub => f.write_str("is a stub library of the CUDA toolkit, not a driver"),
            Self::MissingSymbol(symbol) => write!(f, "opened, but has no {symbol}"),
            Self::Refused(text) => write!(f, "opened, but answered {text}"),
            Self::TooOld { found, needs } => write!(f, "opened, but is version {found}; at least {needs} is needed"),
        }
    }
}

/// A library could not be loaded; lists every attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The library looked for.
    pub library: &'static str,
    /// Environment variable that can name a file.
    pub override_variable: &'static str,
    /// Whether that variable named the file, so that nothing else was tried.
    pub is_overridden: bool,
    /// What was tried, in order.
    pub attempts: Vec<Attempt>,
}

impl LoadError {
    fn new(info: &LibraryInfo, attempts: Vec<Attempt>) -> Self {
        Self { library: info.name, override_variable: info.override_variable, is_overridden: false, attempts }
    }

    /// An error of a single attempt.
    pub(crate) fn single(info: &LibraryInfo, place: &str, outcome: Outcome) -> Self {
        Self::new(info, vec![Attempt { place: place.to_owned(), outcome }])
    }

    /// Whether every attempt failed because there was no such file, as on a machine without a driver. `false` where the
    /// environment variable named the file: what is installed was not looked for.
    #[must_use]
    pub fn is_not_installed(&self) -> bool {
        !self.is_overridden && self.attempts.iter().all(|attempt| matches!(attempt.outcome, Outcome::NotOpened(_)))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_overridden {
            write!(f, "{} names a file that cannot be used as {}:", self.override_variable, self.library)?;
        } else {
            write!(f, "could not load {}; tried:", self.library)?;
        }
        for attempt in &self.attempts {
            write!(f, "\n  {}: {}", attempt.place, attempt.outcome)?;
        }
        let variable = self.override_variable;
        if self.is_overridden {
            write!(f, "\nunset {variable} to use what is installed, or set it to the path of a library that works")
        } else {
            write!(f, "\nset {variable} to a library's path to use that one")
        }
    }
}

impl Error for LoadError {}

/// Accepts or refuses an open library.
pub(crate) type Probe<'a, V> = &'a mut dyn FnMut(&Library) -> Result<V, Outcome>;

/// Searches for a library in the order that [`LibraryInfo`] gives.
pub(crate) fn search<V>(info: &LibraryInfo, probe: Probe<'_, V>) -> Result<Loaded<V>, LoadError> {
    if let Some(path) = std::env::var_os(info.override_variable).filter(|path| !path.is_empty()) {
        return open(info, &path, probe).map_err(|error| LoadError { is_overridden: true, ..error });
    }
    let mut attempts = Vec::new();
    for (place, file, flags) in candidates(info) {
        match try_open(info, &file, flags, probe) {
            Ok(loaded) => return Ok(loaded),
            Err(outcome) => attempts.push(Attempt { place, outcome }),
        }
    }
    Err(LoadError::new(info, attempts))
}

/// Opens one file.
pub(crate) fn open<V>(info: &LibraryInfo, path: &OsStr, probe: Probe<'_, V>) -> Result<Loaded<V>, LoadError> {
    try_open(info, path, RTLD_NOW | RTLD_LOCAL, probe)
        .map_err(|outcome| LoadError::single(info, &path.to_string_lossy(), outcome))
}

/// What to try: a text for messages, a file or soname, and flags for the system's loader.
fn candidates(info: &LibraryInfo) -> Vec<(String, OsString, i32)> {
    let mut list = Vec::new();
    for soname in info.sonames {
        list.push((format!("{soname} (already loaded)"), soname.into(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD));
    }
    for soname in info.sonames {
        list.push((format!("{soname} (system search path)"), soname.into(), RTLD_NOW | RTLD_LOCAL));
    }
    let folders = info.folders.iter().map(PathBuf::from);
    let folders: Vec<PathBuf> = if info.wheels.is_empty() {
        folders.collect()
    } else {
        places::toolkits().chain(folders).chain(places::of_wheels(info.wheels)).collect()
    };
    for (folder, soname) in folders.iter().flat_map(|folder| info.sonames.iter().map(move |name| (folder, name))) {
        let path = folder.join(soname);
        list.push((path.display().to_string(), path.into(), RTLD_NOW | RTLD_LOCAL));
    }
    list
}

fn try_open<V>(info: &LibraryInfo, file: &OsStr, flags: i32, probe: Probe<'_, V>) -> Result<Loaded<V>, Outcome> {
    if is_stub_path(Path::new(file)) {
        return Err(Outcome::Stub);
    }
    if is_fifo(Path::new(file)) {
        return Err(Outcome::NotOpened(format!("{}: it is a FIFO, not a library", Path::new(file).display())));
    }
    // SAFETY: opening runs the library's initialisers; see the file header for what may be opened.
    let handle = unsafe { Handle::open(Some(file), flags) }.map_err(|error| Outcome::NotOpened(text_of(&error)))?;
    let library = Library(handle);
    let version = probe(&library)?;
    let origin = library.path(info.landmark).unwrap_or_else(|| PathBuf::from(file));
    if is_stub_path(&origin) {
        return Err(Outcome::Stub);
    }
    Ok(Loaded { library, version, origin: origin.display().to_string() })
}

/// Opens a file in the folder of a library and keeps it open, if it is there and can be opened. Libraries that ask the
/// system's loader for it by its name are given this one from then on.
pub(crate) fn open_beside(library: &Path, name: &str) {
    let Some(path) = library.parent().map(|folder| folder.join(name)).filter(|path| path.is_file()) else { return };
    // SAFETY: opening runs the initialisers of a library that the one beside it would open itself.
    let opened = unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    if let Ok(handle) = opened {
        Library(handle).keep_loaded();
    }
}

/// Whether a path names a FIFO, on which the dynamic loader would block. A name without a folder is not a path: the
/// loader searches the system's folders for it.
fn is_fifo(path: &Path) -> bool {
    let is_path = path.parent().is_some_and(|folder| !folder.as_os_str().is_empty());
    is_path && std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// The toolkit keeps its link-time stubs in folders of this name.
fn is_stub_path(path: &Path) -> bool {
    path.components().any(|component| component.as_os_str() == "stubs")
}

/// The loader's own text is the source of libloading's error, not its `Display`.
pub(crate) fn text_of(error: &libloading::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}

impl Library {
    /// Address of an exported symbol.
    pub(crate) fn symbol(&self, name: &str) -> Option<Address> {
        let name = CString::new(name).ok()?;
        // SAFETY: only the address is taken; giving it a type is the business of whoever knows the symbol.
        let symbol = unsafe { self.0.get::<*mut std::ffi::c_void>(name.as_bytes_with_nul()) }.ok()?;
        NonNull::new(symbol.into_raw())
    }

    /// The file this library was loaded from, where the system can say.
    fn path(&self, landmark: &str) -> Option<PathBuf> {
        let address = self.symbol(landmark)?;
        mapped_file(address.as_ptr() as usize)
    }

    /// Lets the library stay loaded for the life of the process: threads and exit handlers of it may still run.
    pub(crate) fn keep_loaded(self) {
        let _ = self.0.into_raw();
    }
}

/// File mapped at an address, from the kernel's list of mappings.
fn mapped_file(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        let file = line.splitn(6, ' ').nth(5)?.trim_start();
        (range.contains(&address) && file.starts_with('/')).then(|| PathBuf::from(file))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let path = std::env::temp_dir().join(format!("cuda-sys-fifo-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        let info =
            LibraryInfo { name: "n", override_variable: "V", sonames: &[], folders: &[], wheels: &[], landmark: "a" };
        let refused = open::<()>(&info, path.as_os_str(), &mut |_| Err(Outcome::Stub));
        std::fs::remove_file(&path).expect("this test's file");
        let error = refused.expect_err("a FIFO is no library").to_string();
        assert!(error.contains("it is a FIFO, not a library"), "{error}");
    }

    #[test]
    fn stub_folders_are_recognised() {
        assert!(is_stub_path(Path::new("/usr/local/cuda/lib64/stubs/libcuda.so")));
        assert!(!is_stub_path(Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1")));
    }

    #[test]
    fn candidates_start_with_what_is_loaded_and_end_with_folders() {
        let sonames = &["a.so.1", "a.so"];
        let info =
            LibraryInfo { name: "n", override_variable: "V", sonames, folders: &["/f"], wheels: &[], landmark: "a" };
        let places: Vec<String> = candidates(&info).into_iter().map(|(place, ..)| place).collect();
        assert_eq!(
            places,
            [
                "a.so.1 (already loaded)",
                "a.so (already loaded)",
                "a.so.1 (system search path)",
                "a.so (system search path)",
                "/f/a.so.1",
                "/f/a.so"
            ]
        );
    }

    #[test]
    fn the_file_of_an_address_is_found() {
        let here = mapped_file(the_file_of_an_address_is_found as *const () as usize).expect("this test's own file");
        assert_eq!(here, std::env::current_exe().expect("a path"));
    }
}
