//! cuBLAS and cuBLASLt: where they come from, their handles and workspaces, and the calls.
//!
//! Reading order: this file (which libraries a runtime has), `workspace` (memory that calls may use), `handle` (what a call
//! goes through), `gemm` (products by cuBLAS), `lt` (products by cuBLASLt), `bytes` (those of
//! matrices of bytes).
//!
//! **Invariants:** a library is looked for once for each runtime, and only beside the driver that the runtime uses: a
//! library of the system does not know a simulated device. Without it, nothing here is called.

pub(super) mod bytes;
pub(super) mod gemm;
pub(super) mod handle;
pub(super) mod lt;
pub(super) mod workspace;

use std::sync::{Arc, Mutex, PoisonError};

use c10_core::{LibrarySource, Runtime};
use cuda_sys::{Cublas, CublasLt, LoadError};

/// The libraries of a runtime.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    cublas: Slot<Cublas>,
    lt: Slot<CublasLt>,
}

/// A library, once it was looked for or given.
#[derive(Debug)]
pub(crate) struct Slot<T>(Mutex<Option<Looked<T>>>);

/// What came of looking for a library.
type Looked<T> = Result<Arc<T>, String>;

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Slot<T> {
    /// The library, which is looked for where that was not done.
    fn get(&self, look: impl FnOnce() -> Looked<T>) -> Looked<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(look).clone()
    }

    /// The library of a runtime, which is looked for beside its driver where that was not done; else why it is not there.
    pub(crate) fn find(
        &self,
        runtime: &Runtime,
        search: impl FnOnce() -> Result<T, LoadError>,
        file: &str,
        open: impl FnOnce(std::path::PathBuf) -> Result<T, LoadError>,
    ) -> Result<Arc<T>, String> {
        self.get(|| look(runtime, search, file, open))
    }

    /// Uses this one from now on, or none.
    pub(crate) fn set(&self, library: Option<T>) {
        let given = library.map(Arc::new).ok_or_else(|| "the program has chosen to do without it".to_owned());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
    }
}

impl Libraries {
    pub(super) fn cublas(&self, runtime: &Runtime) -> Looked<Cublas> {
        self.cublas.get(|| look(runtime, Cublas::load, "libcublas.so", Cublas::load_from))
    }

    pub(super) fn lt(&self, runtime: &Runtime) -> Looked<CublasLt> {
        self.lt.get(|| look(runtime, CublasLt::load, "libcublasLt.so", CublasLt::load_from))
    }

    /// Uses these from now on.
    pub(super) fn set(&self, cublas: Option<Cublas>, lt: Option<CublasLt>) {
        self.cublas.set(cublas);
        self.lt.set(lt);
    }
}

/// Looks for a library where the runtime's driver is from.
fn look<T>(
    runtime: &Runtime,
    search: impl FnOnce() -> Result<T, LoadError>,
    file: &str,
    open: impl FnOnce(std::path::PathBuf) -> Result<T, LoadError>,
) -> Looked<T> {
    let _span = tracing::debug_span!("load_library", name = file).entered();
    let found = match runtime.library_source() {
        LibrarySource::Beside(folder) if !is_named(file) => open(beside(&folder, file)),
        LibrarySource::Beside(_) | LibrarySource::System => search(),
        _ => return Err("the driver was given as a table of functions, and no library with it".to_owned()),
    };
    found.map(Arc::new).map_err(|error| error.to_string())
}

/// The library beside a driver; beside the simulated driver that is the simulated library, which serves for all but NCCL.
fn beside(folder: &std::path::Path, file: &str) -> std::path::PathBuf {
    let simulated = folder.join(if file == "libnccl.so" { "libnccl_sim.so" } else { "libcublas_sim.so" });
    if simulated.exists() { simulated } else { folder.join(file) }
}

/// Whether the environment names a file for a library.
fn is_named(file: &str) -> bool {
    let stem = file.trim_end_matches(".so").to_uppercase();
    std::env::var_os(format!("CUDA_SYS_{stem}")).is_some_and(|path| !path.is_empty())
}
