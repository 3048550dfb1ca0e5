//! The runtimes that are bound to a thread, innermost last.
//!
//! **Invariants:** `COUNT` is the length of `BOUND`, and lies apart from it so that a thread without bound runtimes, the
//! usual case, looks at one number that no destructor follows. While a thread is being torn down `BOUND` may be gone;
//! then nothing is bound.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;

use crate::base::ids::RuntimeId;
use crate::runtime::handle::Runtime;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static BOUND: RefCell<Vec<Runtime>> = const { RefCell::new(Vec::new()) };
}

/// The innermost runtime bound to this thread.
#[inline]
pub(crate) fn bound() -> Option<Runtime> {
    if COUNT.with(Cell::get) == 0 { None } else { innermost() }
}

fn innermost() -> Option<Runtime> {
    BOUND.try_with(|bound| bound.borrow().last().cloned()).ok().flatten()
}

/// Changes what is bound to this thread; nothing while the thread is being torn down.
fn change<R>(change: impl FnOnce(&mut Vec<Runtime>) -> R) -> Option<R> {
    let changed = BOUND.try_with(|bound| {
        let bound = &mut *bound.borrow_mut();
        let result = change(bound);
        COUNT.with(|count| count.set(bound.len()));
        result
    });
    changed.ok()
}

/// Keeps a runtime the current one of this thread until it is dropped.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::Runtime;
///
/// let other = Runtime::on_system_driver();
/// let guard = other.bind();
/// assert_eq!(Runtime::current(), other);
/// drop(guard);
/// assert_eq!(Runtime::current(), Runtime::default_runtime());
/// ```
#[must_use = "the runtime is current only while the guard lives"]
pub struct RuntimeGuard {
    runtime: RuntimeId,
    /// Ties the guard to its thread.
    thread: PhantomData<*const ()>,
}

impl RuntimeGuard {
    pub(crate) fn new(runtime: &Runtime) -> Self {
        change(|bound| bound.push(runtime.clone()));
        Self { runtime: runtime.id(), thread: PhantomData }
    }
}

impl fmt::Debug for RuntimeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeGuard").field("runtime", &self.runtime.0).finish()
    }
}

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        let innermost = |bound: &mut Vec<Runtime>| {
            bound.iter().rposition(|runtime| runtime.id() == self.runtime).map(|position| bound.remove(position))
        };
        let removed = change(innermost);
        // Dropped only here, after the borrow: dropping the last handle of a runtime may look at this thread again.
        drop(removed);
    }
}
