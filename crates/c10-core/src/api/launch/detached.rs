//! Kernels kept by what the runtime itself keeps.

use std::fmt;
use std::sync::Arc;

use crate::api::launch::{Function, Kernel, Loaded, Module};
use crate::base::error::{Error, Result};
use crate::runtime::Runtime;

/// A kernel that keeps its module loaded, but not its runtime alive.
///
/// What a runtime keeps for a crate above ([`Runtime::extension`]) cannot hold a [`Kernel`], which holds the runtime.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Module, Runtime};
///
/// let runtime = Runtime::current();
/// # let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
/// let detached = Module::from_ptx(&runtime, 0, text)?.kernel("nothing")?.detach();
/// assert_eq!(detached.attach(&runtime)?.name(), "nothing");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone)]
pub struct DetachedKernel {
    loaded: Arc<Loaded>,
    function: Arc<Function>,
}

impl Kernel {
    /// The kernel without its runtime.
    #[must_use]
    pub fn detach(&self) -> DetachedKernel {
        DetachedKernel { loaded: Arc::clone(&self.module.loaded), function: Arc::clone(&self.function) }
    }
}

impl DetachedKernel {
    /// The kernel, which holds the runtime again.
    ///
    /// # Errors
    /// The kernel is of another runtime.
    pub fn attach(&self, runtime: &Runtime) -> Result<Kernel> {
        match Runtime::upgrade(&self.loaded.home) {
            Some(home) => runtime.check_same(&home, "kernel")?,
            None => return Err(Error::OtherRuntime { what: "kernel" }),
        }
        let module = Module { runtime: runtime.clone(), loaded: Arc::clone(&self.loaded) };
        Ok(Kernel { module, function: Arc::clone(&self.function) })
    }
}

impl fmt::Debug for DetachedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DetachedKernel").field(&self.function.name).finish()
    }
}
