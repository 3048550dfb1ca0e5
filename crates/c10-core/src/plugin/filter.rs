//! A filter of streams as C++ passes it: a `std::function<bool(cudaStream_t)>`.
//!
//! It has no name in C. Its layout is libstdc++'s, against which PyTorch for Linux is built, and so allocators for it, and
//! which has not changed since GCC 4: two words of the functor, a function that copies and destroys it, and one that calls it.
//!
//! **Invariant:** the first word is the address of a boxed filter that belongs to the object; each copy has its own.
//!
//! # Safety
//! The functions here are called by C++ code with objects of this layout that [`StdFunction::new`] made, or copies of them.
#![expect(unsafe_code, reason = "an object of C++ by its layout")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use crate::base::panics::{caught, discard};
use crate::plugin::hooks::StreamFilter;

type Functor = [usize; 2];
type Manager = unsafe extern "C" fn(*mut Functor, *const Functor, c_int) -> bool;
type Invoker = unsafe extern "C" fn(*const Functor, *mut *mut c_void) -> bool;

/// What the manager is asked to do.
const TYPE: c_int = 0;
const FUNCTOR: c_int = 1;
const CLONE: c_int = 2;
const DESTROY: c_int = 3;

/// A `std::function<bool(cudaStream_t)>` as libstdc++ lays it out.
#[repr(C)]
pub(super) struct StdFunction {
    functor: Functor,
    manager: Option<Manager>,
    invoker: Option<Invoker>,
}

impl StdFunction {
    /// An object that asks `filter`.
    pub(super) fn new(filter: StreamFilter) -> Self {
        Self { functor: boxed(filter), manager: Some(manage), invoker: Some(invoke) }
    }
}

impl Drop for StdFunction {
    fn drop(&mut self) {
        // C++ code may have moved out of it, which leaves no manager.
        if self.manager.take().is_some() {
            let (target, nothing) = (&raw mut self.functor, ptr::null());
            // SAFETY: the object has its boxed filter.
            unsafe { manage(target, nothing, DESTROY) };
        }
    }
}

fn boxed(filter: StreamFilter) -> Functor {
    [Box::into_raw(Box::new(filter)).expose_provenance(), 0]
}

/// The boxed filter of an object.
///
/// # Safety
/// The functor is one that [`boxed`] made and that was not destroyed.
unsafe fn filter_of<'a>(functor: *const Functor) -> &'a StreamFilter {
    // SAFETY: the caller's promise.
    let [address, _] = unsafe { *functor };
    // SAFETY: the address is that of a boxed filter, which lives as long as the object.
    unsafe { &*ptr::with_exposed_provenance::<StreamFilter>(address) }
}

/// Copies, destroys, or tells of an object.
unsafe extern "C" fn manage(target: *mut Functor, source: *const Functor, what: c_int) -> bool {
    match what {
        // No type of C++ describes it, and none is its functor.
        // SAFETY: C++ hands over a place for two words.
        TYPE | FUNCTOR => unsafe { *target = [0, 0] },
        CLONE => {
            // SAFETY: C++ copies from an object that exists.
            let filter = unsafe { filter_of(source) };
            let copy = boxed(Arc::clone(filter));
            // SAFETY: C++ hands over a place for the copy.
            unsafe { *target = copy };
        }
        DESTROY => {
            // SAFETY: C++ destroys an object that exists, once.
            let [address, _] = unsafe { *target };
            // SAFETY: the box belongs to this object alone.
            discard(unsafe { Box::from_raw(ptr::with_exposed_provenance_mut::<StreamFilter>(address)) });
        }
        _ => {}
    }
    false
}

/// Asks the filter about a stream.
unsafe extern "C" fn invoke(functor: *const Functor, stream: *mut *mut c_void) -> bool {
    // SAFETY: C++ calls an object that exists.
    let filter = unsafe { filter_of(functor) };
    // SAFETY: C++ passes the argument by its address.
    let stream = unsafe { *stream };
    caught(|| filter(stream.expose_provenance())).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls the object as `std::function` does.
    fn ask(function: &StdFunction, stream: usize) -> bool {
        let mut argument = ptr::with_exposed_provenance_mut::<c_void>(stream);
        // SAFETY: the object exists, and the argument outlives the call.
        unsafe { function.invoker.unwrap()(&raw const function.functor, &raw mut argument) }
    }

    #[test]
    fn copies_have_a_filter_of_their_own() {
        let filter: StreamFilter = Arc::new(|stream| stream == 16);
        let watched = Arc::downgrade(&filter);
        let first = StdFunction::new(filter);
        let mut copy = StdFunction { functor: [0, 0], manager: first.manager, invoker: first.invoker };
        // SAFETY: the place is that of the copy, and the source exists.
        unsafe { manage(&raw mut copy.functor, &raw const first.functor, CLONE) };
        drop(first);
        assert!(ask(&copy, 16) && !ask(&copy, 17));
        drop(copy);
        assert_eq!(watched.strong_count(), 0, "the last copy drops the filter");
    }

    #[test]
    fn an_object_that_was_moved_from_is_left_alone_and_a_panic_takes_no_stream() {
        let mut function = StdFunction::new(Arc::new(|_| panic!("a filter of the test")));
        assert!(!ask(&function, 16));
        let (moved, manager) = (function.functor, function.manager.take());
        drop(function);
        drop(StdFunction { functor: moved, manager, invoker: None });
    }
}
