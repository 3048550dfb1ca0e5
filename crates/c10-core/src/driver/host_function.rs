//! Functions of the program that a stream calls on the host.
//!
//! The driver gets a number for each function, and never a pointer. If it calls a function a second time, or after the
//! function was removed, the number is not found and nothing happens.
//!
//! **Invariants:** a function that was queued by itself is called at most once. A function that a graph calls exists as
//! long as its [`Repeated`]. Panics of a function, and of destructors of what it owns, are caught.
//!
//! # Safety
//! The one unsafe block is a call through the function table. The function that it passes takes any number.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError};

use crate::base::error::Result;
use crate::base::handles::StreamRef;
use crate::base::panics::{caught, discard};
use crate::base::warning::warning;
use crate::driver::Api;
use crate::driver::memory::raw;
use crate::sync::{Mutex, MutexGuard};

/// A function that waits for its turn.
enum HostFunction {
    Once(Box<dyn FnOnce() + Send>),
    Repeated(Arc<dyn Fn() + Send + Sync>),
}

/// The functions, by number. They belong to no runtime: the driver calls them from a thread of its own.
static WAITING: LazyLock<Mutex<HashMap<usize, HostFunction>>> = LazyLock::new(Mutex::default);

fn lock() -> MutexGuard<'static, HashMap<usize, HostFunction>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn insert(function: HostFunction) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    lock().insert(number, function);
    number
}

/// Callback of the driver: calls the function with this number.
extern "C" fn call(number: *mut c_void) {
    let number = number.addr();
    let panicked = caught(|| run(number)).map_or(true, |is_well| !is_well);
    if panicked {
        // A subscriber that receives the warning is the program's code and may panic too.
        let _ = caught(|| warning!("a function that a stream called on the host panicked; the stream goes on"));
    }
}

/// Calls the function with this number, if there is one. Returns `false` if it panicked.
fn run(number: usize) -> bool {
    let mut waiting = lock();
    match waiting.get(&number) {
        None => true,
        Some(HostFunction::Repeated(function)) => {
            let function = Arc::clone(function);
            drop(waiting);
            let called = caught(|| function());
            // This may be the last handle. It is dropped after the panic was caught, since a second panic while
            // unwinding would abort the process.
            discard(function);
            called.is_ok()
        }
        Some(HostFunction::Once(_)) => {
            let function = waiting.remove(&number);
            drop(waiting);
            if let Some(HostFunction::Once(function)) = function {
                return caught(function).is_ok();
            }
            true
        }
    }
}

/// A function that a graph calls at each replay, until this is dropped.
#[derive(Debug)]
pub(crate) struct Repeated(usize);

impl Repeated {
    pub(crate) fn new(function: impl Fn() + Send + Sync + 'static) -> Self {
        Self(insert(HostFunction::Repeated(Arc::new(function))))
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        let function = lock().remove(&self.0);
        // Dropped without the lock: what the function owns may take the lock when it is dropped.
        discard(function);
    }
}

impl Api {
    /// Queues one call of a function.
    pub(crate) fn call_on_host(&self, stream: StreamRef, function: Box<dyn FnOnce() + Send>) -> Result<()> {
        let number = insert(HostFunction::Once(function));
        self.launch_host_function(stream, number).inspect_err(|_| drop(Repeated(number)))
    }

    /// Records a call of a function, which the graph must keep.
    pub(crate) fn capture_call_on_host(&self, stream: StreamRef, function: &Repeated) -> Result<()> {
        self.launch_host_function(stream, function.0)
    }

    fn launch_host_function(&self, stream: StreamRef, number: usize) -> Result<()> {
        self.bind(stream.device)?;
        // SAFETY: the stream is alive; `call` takes any number, from any thread, whenever it is called.
        Ok(unsafe { self.table.cuLaunchHostFunc(raw(stream), Some(call), ptr::without_provenance_mut(number)) }?)
    }
}
