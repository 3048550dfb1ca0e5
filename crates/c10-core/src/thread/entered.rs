//! The green contexts that a thread has entered and not left, the last one on top.
//!
//! **Invariant:** only numbers are stored, so that nothing here keeps a runtime or a green context alive.

use std::cell::RefCell;

use crate::base::device::DeviceIndex;
use crate::base::ids::{RuntimeId, StreamKey};

/// What leaving a green context brings back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entered {
    pub(crate) runtime: RuntimeId,
    /// Which green context it is.
    pub(crate) number: u64,
    /// The device that was current before, and its stream then.
    pub(crate) source: (DeviceIndex, StreamKey),
    /// The stream that was current before on the green context's device.
    pub(crate) target: StreamKey,
}

thread_local! {
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// Notes that the thread enters a green context.
pub(crate) fn push(entered: Entered) {
    // A thread that ends leaves nothing any more.
    let _ = ENTERED.try_with(|stack| stack.borrow_mut().push(entered));
}

/// What was entered last; none if that is another green context.
pub(crate) fn last(runtime: RuntimeId, number: u64) -> Option<Entered> {
    let last = ENTERED.try_with(|stack| stack.borrow().last().copied()).ok().flatten();
    last.filter(|entered| (entered.runtime, entered.number) == (runtime, number))
}

/// Forgets what was entered last.
pub(crate) fn pop() {
    let _ = ENTERED.try_with(|stack| stack.borrow_mut().pop());
}

/// Forgets a runtime that has ended.
pub(super) fn forget(runtime: RuntimeId) {
    let _ = ENTERED.try_with(|stack| stack.borrow_mut().retain(|entered| entered.runtime != runtime));
}
