//! `torch.cuda.gds`: files that storages of a device are read from and written to.
//!
//! **Invariants:** the handle of a file is given back before the file is closed. Memory that is registered stays alive
//! until it is deregistered.

use std::ops::BitOr;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use aten_cuda::Storage;
use c10_core::{DeviceBuffer, Runtime};
use cuda_sys::Cufile;

use crate::cufile::{self, Direction, Handle};
use crate::disk::{Access, DiskFile};
use crate::error::{Error, Result};
use crate::options::Options;
#[cfg(feature = "safetensors")]
use crate::options::PageCache;
use crate::plan::Piece;
use crate::route::{Requests, Route};
use crate::transfer;

/// How a file is opened: the numbers of the system's `open`, as Python's `os.O_RDWR | os.O_CREAT`.
///
/// ```
/// use cuda_storage::gds::OpenFlags;
///
/// assert_eq!(OpenFlags::RDWR | OpenFlags::CREAT, OpenFlags(0o102));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlags(pub i32);

impl OpenFlags {
    /// Only for reading.
    pub const RDONLY: Self = Self(libc::O_RDONLY);
    /// Only for writing.
    pub const WRONLY: Self = Self(libc::O_WRONLY);
    /// For reading and writing.
    pub const RDWR: Self = Self(libc::O_RDWR);
    /// A file that is not there is made.
    pub const CREAT: Self = Self(libc::O_CREAT);
    /// A file that is there is refused, with [`Self::CREAT`].
    pub const EXCL: Self = Self(libc::O_EXCL);
    /// What a file has is thrown away.
    pub const TRUNC: Self = Self(libc::O_TRUNC);

    fn access(self) -> Access {
        let mode = self.0 & libc::O_ACCMODE;
        let others = self.0 & !(libc::O_ACCMODE | libc::O_DIRECT);
        Access { is_read: mode != libc::O_WRONLY, is_write: mode != libc::O_RDONLY, others }
    }
}

impl BitOr for OpenFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A file that storages of a device are read from and written to (`torch.cuda.gds.GdsFile`).
///
/// A transfer is done when its function returns. It begins after the work that is queued on the current stream of the
/// storage's device; work on other streams that uses the memory is the caller's to order.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::Storage;
/// use cuda_storage::gds::{GdsFile, OpenFlags};
///
/// # let path = std::env::temp_dir().join(format!("cuda-storage-gds-{}", std::process::id()));
/// let storage = Storage::new(1024, "cuda".parse()?)?;
/// let mut file = GdsFile::new(&path, OpenFlags::RDWR | OpenFlags::CREAT)?;
/// file.save_storage(&storage, 4096)?;
/// assert_eq!(std::fs::metadata(&path)?.len(), 4096 + 1024);
///
/// file.deregister_handle()?;
/// let error = file.load_storage(&storage, 0).unwrap_err();
/// assert_eq!(error.to_string(), "Cannot load data from a file that is not registered.");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct GdsFile {
    // Fields are dropped in this order: cuFile forgets the file before it is closed.
    registered: Option<Registered>,
    file: DiskFile,
    flags: OpenFlags,
}

/// How a registered file is served.
#[derive(Debug)]
enum Registered {
    Cufile(Handle),
    /// Through pinned buffers; why.
    Pinned(String),
}

impl GdsFile {
    /// Opens a file with `flags` and `O_DIRECT`, and registers it. A file system without `O_DIRECT` gets the flags alone.
    /// New files can be read and written by everybody whom the process's mask allows that.
    ///
    /// # Errors
    /// The system's, or cuFile's where it says that the call was wrong; the flags have `O_APPEND`, by which every write
    /// ends up at the end.
    pub fn new(filename: impl AsRef<Path>, flags: OpenFlags) -> Result<Self> {
        if flags.0 & libc::O_APPEND != 0 {
            // The system would put every write at the end of the file, wherever it was meant to be.
            return Err(Error::io("open", filename.as_ref(), std::io::ErrorKind::InvalidInput.into()));
        }
        let file = DiskFile::open(filename.as_ref(), flags.access())?;
        let mut file = Self { registered: None, file, flags };
        file.register_handle()?;
        Ok(file)
    }

    /// The name that the file was opened by.
    #[must_use]
    pub fn filename(&self) -> &Path {
        self.file.path()
    }

    /// The flags that the file was opened with.
    #[must_use]
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// The file's descriptor.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.file.file().as_raw_fd()
    }

    /// cuFile's handle as a number, or the descriptor where cuFile does not serve the file; `None` while it is not
    /// registered.
    #[must_use]
    pub fn handle(&self) -> Option<usize> {
        Some(match self.registered.as_ref()? {
            Registered::Cufile(handle) => handle.raw(),
            Registered::Pinned(_) => usize::try_from(self.fd()).unwrap_or(0),
        })
    }

    /// Registers the file, which [`Self::new`] has done.
    ///
    /// # Errors
    /// It is registered, or cuFile says that the call was wrong.
    pub fn register_handle(&mut self) -> Result<()> {
        if self.registered.is_some() {
            return Err(Error::AlreadyRegistered);
        }
        self.registered = Some(registered(&self.file)?);
        Ok(())
    }

    /// Takes the registration back; dropping the file does so too.
    ///
    /// # Errors
    /// The file is not registered.
    pub fn deregister_handle(&mut self) -> Result<()> {
        self.registered.take().map(drop).ok_or(Error::NotRegistered { verb: "deregister" })
    }

    /// Fills a storage with the bytes of the file from `offset` on.
    ///
    /// # Errors
    /// The file is not registered, ends before the storage is full (torch leaves the rest of the storage as it was, and
    /// says nothing), or cannot be read; the storage is not on a CUDA device; the device fails.
    pub fn load_storage(&self, storage: &Storage, offset: u64) -> Result<()> {
        let buffer = on_device(storage)?;
        let way = self.registered.as_ref().ok_or(Error::NotRegistered { verb: "load" })?;
        let end = end(offset, buffer.len())?;
        self.file.check_length(end)?;
        match way {
            Registered::Cufile(handle) => {
                let done = by_cufile(handle, Direction::Read, buffer, offset)?;
                let found = offset + done as u64;
                if found < end { Err(self.file.short(end, found)) } else { Ok(()) }
            }
            Registered::Pinned(_) => {
                let pieces = [Piece { file: offset..end, buffer, at: 0 }];
                transfer::read(&self.file, &pieces, buffer.device_index(), &Options::default())
            }
        }
    }

    /// Writes the bytes of a storage into the file from `offset` on.
    ///
    /// # Errors
    /// The file is not registered or cannot be written, the disk is full, the storage is not on a CUDA device, or the
    /// device fails. Bytes of the range may have been written.
    pub fn save_storage(&self, storage: &Storage, offset: u64) -> Result<()> {
        let buffer = on_device(storage)?;
        let way = self.registered.as_ref().ok_or(Error::NotRegistered { verb: "save" })?;
        let end = end(offset, buffer.len())?;
        match way {
            Registered::Cufile(handle) => {
                let done = by_cufile(handle, Direction::Write, buffer, offset)?;
                let written = offset + done as u64;
                if written < end {
                    let source = std::io::ErrorKind::WriteZero.into();
                    return Err(Error::io("write", self.filename(), source));
                }
                Ok(())
            }
            Registered::Pinned(_) => {
                let pieces = [Piece { file: offset..end, buffer, at: 0 }];
                transfer::write(&self.file, &pieces, buffer.device_index(), &Options::default())
            }
        }
    }

    /// Which way the file is served, and why.
    #[must_use]
    pub fn route(&self) -> Route {
        match &self.registered {
            Some(Registered::Cufile(_)) => direct(),
            Some(Registered::Pinned(why)) => through_host(&self.file, &Options::default(), why),
            None => through_host(&self.file, &Options::default(), "the file is not registered"),
        }
    }
}

/// Asks cuFile whether it serves a file.
fn registered(file: &DiskFile) -> Result<Registered> {
    let found = cufile::find(&Runtime::current());
    let library = match (found, file.bypasses()) {
        (Err(why), _) => return Ok(Registered::Pinned(why)),
        (Ok(_), false) => return Ok(Registered::Pinned("cuFile needs O_DIRECT".to_owned())),
        (Ok(library), true) => library,
    };
    Ok(match Handle::new(&library, file.file())? {
        Ok(handle) => Registered::Cufile(handle),
        Err(why) => Registered::Pinned(why),
    })
}

fn direct() -> Route {
    Route { is_direct: true, page_cache: false, requests: Requests::Cufile, why: String::new() }
}

/// The route of a file through pinned buffers.
pub(crate) fn through_host(file: &DiskFile, options: &Options, why: &str) -> Route {
    let cached = file.cached_because();
    let why = std::iter::once(why).chain(cached.as_deref()).collect::<Vec<_>>().join("; ");
    Route { is_direct: false, page_cache: cached.is_some(), requests: options.by(cached.is_none()), why }
}

/// Reads or writes a whole buffer by cuFile, after the work of the current stream, which cuFile knows nothing of.
fn by_cufile(handle: &Handle, direction: Direction, buffer: &DeviceBuffer, offset: u64) -> Result<usize> {
    let runtime = Runtime::current();
    let device = buffer.device_index();
    transfer::current(&runtime, device)?.synchronize()?;
    runtime.with_library(device, || handle.transfer(direction, buffer, 0, buffer.len(), offset))
}

fn on_device(storage: &Storage) -> Result<&DeviceBuffer> {
    storage.buffer().ok_or_else(|| Error::NotOnDevice { found: storage.device() })
}

/// Where the bytes of a transfer end, which is a position that files can have.
fn end(offset: u64, bytes: usize) -> Result<u64> {
    let end = offset.checked_add(bytes as u64).filter(|&end| i64::try_from(end).is_ok());
    end.ok_or(Error::Position { offset, bytes: bytes as u64 })
}

/// Registers the memory of a storage with cuFile, which then need not do it at each transfer
/// (`torch.cuda.gds.gds_register_buffer`). Where cuFile is not used, it is only noted. The memory stays alive until it is
/// deregistered.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::Storage;
/// use cuda_storage::gds::{gds_deregister_buffer, gds_register_buffer};
///
/// let storage = Storage::new(4096, "cuda".parse()?)?;
/// gds_register_buffer(&storage)?;
/// gds_deregister_buffer(&storage)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// cuFile's; the memory is registered, or not that of a CUDA device.
pub fn gds_register_buffer(storage: &Storage) -> Result<()> {
    cufile::register(&Runtime::current(), storage, on_device(storage)?)
}

/// Takes a registration back (`torch.cuda.gds.gds_deregister_buffer`).
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::Storage;
/// use cuda_storage::gds::gds_deregister_buffer;
///
/// let error = gds_deregister_buffer(&Storage::new(4096, "cuda".parse()?)?).unwrap_err();
/// assert_eq!(error.to_string(), "cuFileBufDeregister failed: device pointer lookup failure");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// cuFile's; the memory is not registered, or not that of a CUDA device.
pub fn gds_deregister_buffer(storage: &Storage) -> Result<()> {
    cufile::deregister(&Runtime::current(), on_device(storage)?)
}

/// Has the current runtime use this cuFile from now on, or none; a driver that was given as a table of functions has none
/// otherwise.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use cuda_storage::gds::{self, GdsFile, OpenFlags};
///
/// gds::set_library(None);
/// let file = GdsFile::new(std::env::current_exe()?, OpenFlags::RDONLY)?;
/// assert!(file.route().why.contains("chosen to do without cuFile"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn set_library(cufile: Option<Cufile>) {
    cufile::set(&Runtime::current(), cufile);
}

/// Reads pieces of a file by whatever way serves it, and says by which.
#[cfg(feature = "safetensors")]
pub(crate) fn read_pieces(path: &Path, pieces: &[Piece<'_>], options: &Options) -> Result<Route> {
    let access = OpenFlags::RDONLY.access();
    let cached = regular_files::open(path).map_err(|error| Error::io("open", path, error.into()))?;
    let bytes = cached.metadata().map_err(|error| Error::io("look at", path, error))?.len();
    let because = match options.page_cache {
        PageCache::Use => Some("as it was asked for"),
        PageCache::Auto if crate::residency::is_cached(&cached, bytes) => Some("most of the file is in the page cache"),
        PageCache::Auto | PageCache::Bypass => None,
    };
    let file = match because {
        Some(because) => DiskFile::cached(path, cached, because),
        None => DiskFile::open(path, access)?,
    };
    let Some(device) = pieces.first().map(|piece| piece.buffer.device_index()) else {
        return Ok(through_host(&file, options, "nothing is read"));
    };
    match registered(&file)? {
        Registered::Cufile(handle) => {
            let runtime = Runtime::current();
            transfer::current(&runtime, device)?.synchronize()?;
            for piece in pieces {
                let bytes = usize::try_from(piece.file.end - piece.file.start).unwrap_or(usize::MAX);
                let read = || handle.transfer(Direction::Read, piece.buffer, piece.at, bytes, piece.file.start);
                let done = runtime.with_library(device, read)?;
                if done < bytes {
                    return Err(file.short(piece.file.end, piece.file.start + done as u64));
                }
            }
            Ok(direct())
        }
        Registered::Pinned(why) => {
            transfer::read(&file, pieces, device, options)?;
            Ok(through_host(&file, options, &why))
        }
    }
}
