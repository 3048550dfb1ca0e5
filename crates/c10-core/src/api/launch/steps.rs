//! Code that is there soon and good later. The driver compiles a text without optimising it; a thread has it, or another
//! text of the same kernels, compiled as usual meanwhile, and launches run that as soon as it is there.
//!
//! A driver that loads a text lets no thread launch anything before it is compiled, and its linker does not hold up
//! launches: so the module is loaded from what the linker makes.
//!
//! **Invariants:** a launch gives the same whichever code it runs, as far as the texts do. What is captured runs the better
//! one, because a graph keeps what it has captured. Whatever becomes of the thread, nobody waits for it in vain.
//!
//! # Safety
//! The image that is loaded is what the driver's linker has made.
#![expect(unsafe_code, reason = "loads code that the driver has made")]

use std::ffi::CString;
use std::sync::{Arc, LazyLock, OnceLock, PoisonError};
use std::thread;

use crate::api::launch::{Function, Loaded, Module};
use crate::base::device::DeviceIndex;
use crate::base::error::{ModuleError, Result};
use crate::base::process;
use crate::runtime::Runtime;
use crate::sync::lock;
use crate::sync::places::Places;
use crate::sync::{Condvar, Mutex};

/// Half of the processors: the others are for whoever compiles the next first text.
static COMPILING: LazyLock<Places> =
    LazyLock::new(|| Places::new(thread::available_parallelism().map_or(1, |count| count.get() / 2)));

/// The texts of a module that is compiled in steps ([`Module::from_ptx_in_steps`]): kernels of the same names and parameters
/// that do the same.
///
/// ```
/// let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
/// assert_eq!(c10_core::TextSteps::of(text).block_factor, 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextSteps<'a> {
    /// What launches run at first, as the driver compiles it without optimising: a short text is there sooner.
    pub first: &'a str,
    /// How many times as many threads its blocks have as a launch says, along the first dimension; 0 counts as 1.
    pub block_factor: u32,
    /// What launches run later, as the driver compiles it usually.
    pub last: &'a str,
}

impl<'a> TextSteps<'a> {
    /// The same text in both steps.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        Self { first: text, block_factor: 1, last: text }
    }
}

/// The code that a module gets later.
pub(super) struct Later {
    block_factor: u32,
    thread: Arc<Ended>,
    code: OnceLock<Arc<Loaded>>,
}

/// Whether the thread has ended, with better code or without.
#[derive(Default)]
struct Ended {
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl Later {
    fn new(block_factor: u32) -> Self {
        Self { block_factor, thread: Arc::default(), code: OnceLock::new() }
    }

    /// How many times as many threads a block of the code before it has.
    pub(super) fn block_factor(&self) -> u32 {
        self.block_factor
    }

    /// Waits until the thread has ended. A forked child has no such thread.
    pub(super) fn wait(&self) {
        if !process::in_bad_fork() {
            drop(self.thread.changed.wait_while(lock(&self.thread.has_ended), |ended| !*ended));
        }
    }

    /// Has a function run the better code, once that is there. Where the function cannot be had, it stays as it is.
    pub(super) fn improve(&self, function: &Function) {
        let Some(code) = self.code.get() else { return };
        let Some(runtime) = Runtime::upgrade(&code.home) else { return };
        match (Module { runtime, loaded: Arc::clone(code) }).kernel(&function.name) {
            Ok(better) => drop(function.better.set(better.function.handle)),
            Err(error) => tells_that_it_stays(&error),
        }
    }
}

fn tells_that_it_stays(error: &dyn std::fmt::Display) {
    tracing::warn!(%error, "a kernel stays as it was compiled first");
}

/// Ends the wait of others when the thread ends, in whichever way.
struct Ends(Arc<Ended>);

impl Drop for Ends {
    fn drop(&mut self) {
        *lock(&self.0.has_ended) = true;
        self.0.changed.notify_all();
    }
}

impl Module {
    /// Loads the first text as [`Self::from_ptx`] does, from code that the driver has not optimised
    /// (`CU_JIT_OPTIMIZATION_LEVEL` 0). For a long text that takes the driver about 0.6 of the time. A thread has the driver
    /// compile the last text as usual meanwhile; launches run that code as soon as it is there, and what is captured waits
    /// for it. `made` gets the machine code then, in the thread. Where the thread fails, the first code stays. As many
    /// threads compile at once as half of the processors; others wait for their turn.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{Module, Runtime, TextSteps};
    ///
    /// let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
    /// let module = Module::from_ptx_in_steps(&Runtime::current(), 0, TextSteps::of(text), |_| {})?;
    /// assert_eq!(module.kernel("nothing")?.name(), "nothing");
    /// module.wait_for_code();
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::from_ptx`].
    pub fn from_ptx_in_steps(
        runtime: &Runtime,
        device: DeviceIndex,
        TextSteps { first, block_factor, last }: TextSteps<'_>,
        made: impl FnOnce(&[u8]) + Send + 'static,
    ) -> Result<Self> {
        let ended = CString::new(first).map_err(|_| ModuleError::ZeroByte)?;
        let later = Later::new(block_factor.max(1));
        let ends = Ends(Arc::clone(&later.thread));
        let module = Self::load(runtime, device, (Some(first), Some(later)), |ready| {
            ready.api.module_from_ptx_quickly(device, &ended)
        })?;
        let (own, text) = (module.clone(), last.to_owned());
        let work = move || {
            // Dropped last: whoever has waited may be the one who ends the runtime, and finds no module that is still held.
            let _ends = ends;
            let (own, made) = (own, made);
            let _place = COMPILING.take();
            match own.compile_better(&text) {
                Ok(code) => made(&code),
                Err(error) => tells_that_it_stays(&error),
            }
        };
        if let Err(error) = thread::Builder::new().name("compile".to_owned()).spawn(work) {
            tells_that_it_stays(&error);
        }
        Ok(module)
    }

    /// Waits until launches run the code that is to stay ([`Self::from_ptx_in_steps`]). At once for other modules.
    pub fn wait_for_code(&self) {
        self.loaded.later.iter().for_each(Later::wait);
    }

    /// Compiles the text as usual, and has all functions run that.
    fn compile_better(self, text: &str) -> Result<Vec<u8>> {
        let Self { runtime, loaded } = &self;
        let code = Self::compile_ptx(runtime, loaded.device, text)?;
        // SAFETY: the driver's linker made the image and told its length.
        let better = unsafe { Self::from_image(runtime, loaded.device, &code) }?;
        let Some(later) = &loaded.later else { return Ok(code) };
        let functions = loaded.functions.lock().unwrap_or_else(PoisonError::into_inner);
        later.code.get_or_init(|| better.loaded);
        functions.values().for_each(|function| later.improve(function));
        Ok(code)
    }
}
