//! Figures that other processes may read while this one runs: a thread answers on a Unix socket.
//!
//! A reader connects, gets the text of [`Runtime::figures_text`] and is let go; what it sends is not read. Between two
//! readers the thread sleeps in the system, so exporting costs nothing but the thread.
//!
//! **Invariants:** nothing is exported unless the program or `TORCH_CUDA_EXPORT=1` asks for it. The thread holds
//! the runtime only while it writes the figures down: a last handle that is dropped in that moment ends the runtime on the
//! thread. A reader that does not read is given up after [`PATIENCE`]. A forked child neither answers nor removes the
//! socket of its parent.

mod place;
mod text;

use std::fmt;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::error::{ExportError, Result, StartError};
use crate::base::process;
use crate::base::warning::warning;
use crate::runtime::handle::{Runtime, WeakRuntime};

pub use place::{ExportedFigures, figure_exports};

/// The variable by which a program that knows nothing of exports is made to export.
const VARIABLE: &str = "TORCH_CUDA_EXPORT";

/// How long a reader may take to read.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the thread waits before it tries again, where the system cannot take a reader.
const PAUSE: Duration = Duration::from_millis(100);

/// A process's figures can be read by `torch-cuda top` and `torch-cuda stats` as long as this lives; made by
/// [`Runtime::export_figures`].
///
/// ```
/// use std::io::Read;
/// use std::os::unix::net::UnixStream;
///
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// let export = c10_core::Runtime::current().export_figures()?;
/// let mut text = String::new();
/// UnixStream::connect(export.socket()).unwrap().read_to_string(&mut text).unwrap();
/// assert!(text.contains("torch_cuda_host_allocated_bytes 0\n"));
///
/// let socket = export.socket().to_owned();
/// drop(export);
/// assert!(!socket.exists());
/// # Ok::<(), c10_core::Error>(())
/// ```
#[must_use = "figures are exported only while this lives"]
pub struct FigureExport {
    socket: PathBuf,
    /// The listening socket once more, to end the thread's waiting.
    stop: UnixStream,
    is_over: Arc<AtomicBool>,
    /// The process that exports: a forked child has a copy of this value and must not act on it.
    process: u32,
}

impl FigureExport {
    /// The socket that answers with the figures.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl fmt::Debug for FigureExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FigureExport").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Drop for FigureExport {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.is_over.store(true, Ordering::Release);
        // Neither can fail in a way that matters: the process may have no such socket any more.
        let _ = self.stop.shutdown(Shutdown::Both);
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Runtime {
    /// Lets processes of this user read this runtime's figures, as long as the value lives. Starts nothing but a thread,
    /// which sleeps until somebody asks. The environment variable `TORCH_CUDA_EXPORT=1` does the same for every runtime
    /// that starts. Torch has no such thing.
    ///
    /// The socket lies in the folder that `TORCH_CUDA_EXPORT_FOLDER` names, else in `torch-cuda` of `XDG_RUNTIME_DIR`,
    /// else in a private folder beside temporary files.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// let export = c10_core::Runtime::current().export_figures()?;
    /// assert!(export.socket().exists());
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ExportError`]: the folder cannot be used, or no thread be started. A forked child whose parent had started a
    /// runtime.
    pub fn export_figures(&self) -> Result<FigureExport> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if process::in_bad_fork() {
            return Err(StartError::BadFork.into());
        }
        let folder = place::folder();
        folder.make()?;
        place::sweep(&folder.path);
        let failed = |reason: io::Error| ExportError::Folder { folder: folder.path.clone(), reason: reason.into() };
        let socket = folder.path.join(place::own_name(NEXT.fetch_add(1, Ordering::Relaxed)));
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = UnixStream::from(OwnedFd::from(listener.try_clone().map_err(failed)?));
        let export = FigureExport { socket, stop, is_over: Arc::clone(&is_over), process: std::process::id() };
        let runtime = self.downgrade();
        let thread = std::thread::Builder::new().name("figures".to_owned());
        let started = thread.spawn(move || answer_all(&listener, &runtime, &is_over));
        started.map_err(|reason| ExportError::Thread { reason: reason.into() })?;
        self.set_exports();
        Ok(export)
    }

    /// Exports the figures of a runtime that has started, if the environment asks for it. A failure is a warning: the
    /// program can do its work without.
    pub(super) fn export_if_asked(&self) -> Option<FigureExport> {
        if std::env::var_os(VARIABLE).is_none_or(|value| value != "1") {
            return None;
        }
        self.export_figures().inspect_err(|error| warning!("{VARIABLE}=1 is of no use: {error}")).ok()
    }
}

/// Answers one reader after the other until the export is over or the runtime is gone.
fn answer_all(listener: &UnixListener, runtime: &WeakRuntime, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((reader, _)) => {
                // The runtime is let go before the reader hears a word: whoever then drops it ends it there and then.
                let Some(told) = Runtime::upgrade(runtime).map(|runtime| runtime.figures_text()) else { return };
                // A reader that has gone, or does not read, has no answer and gives no reason to stop.
                let _ = answer(reader, &told.unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if is_over.load(Ordering::Acquire) => return,
            // The process may have too many files open: it may have fewer soon.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn answer(mut reader: UnixStream, text: &str) -> io::Result<()> {
    reader.set_write_timeout(Some(PATIENCE))?;
    reader.write_all(text.as_bytes())
}
