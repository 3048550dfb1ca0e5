//! The function with which PyTorch says which streams take their memory from a pool: a `std::function<bool(cudaStream_t)>`.
//!
//! It has no name in C. Its layout is libstdc++'s, against which PyTorch for Linux is built and which has not changed
//! since GCC 4: two words of the functor, a function that copies and destroys it, and one that calls it.
//!
//! # Safety
//! The caller of [`Filter::copy`] promises that layout. A functor that lies in the two words may be moved, by
//! libstdc++'s own rule. PyTorch's filters only compare and ask the runtime library, on any thread.
#![expect(unsafe_code, reason = "calls a C++ object by its layout")]

use std::ffi::{c_int, c_void};

use crate::last_error::Failure;

type Functor = [usize; 2];
type Manager = unsafe extern "C-unwind" fn(*mut Functor, *const Functor, c_int) -> bool;
type Invoker = unsafe extern "C-unwind" fn(*const Functor, *mut *mut c_void) -> bool;

/// What the manager is asked to do.
const CLONE: c_int = 2;
const DESTROY: c_int = 3;

/// A `std::function<bool(cudaStream_t)>` as libstdc++ lays it out.
#[repr(C)]
#[derive(Debug)]
pub struct StdFunction {
    /// The functor, or a pointer to it.
    pub functor: Functor,
    /// Copies and destroys the functor; null in an empty function.
    pub manager: Option<Manager>,
    /// Calls the functor with the address of its argument.
    pub invoker: Option<Invoker>,
}

/// A copy of PyTorch's function, which is destroyed when this is dropped.
pub(crate) struct Filter {
    functor: Functor,
    manager: Manager,
    invoker: Invoker,
}

// SAFETY: PyTorch calls its filters from any thread, under its allocator's lock or without.
unsafe impl Send for Filter {}
// SAFETY: a filter does not change when it is called.
unsafe impl Sync for Filter {}

impl Filter {
    /// # Errors
    /// The function is missing or empty.
    ///
    /// # Safety
    /// `function` is null or points to a function of that layout.
    pub(crate) unsafe fn copy(function: *const StdFunction) -> Result<Self, Failure> {
        let missing = || Failure::Argument("a pool needs a function that says which streams use it".to_owned());
        // SAFETY: null, or valid by the caller's word.
        let function = unsafe { function.as_ref() }.ok_or_else(missing)?;
        let (manager, invoker) = function.manager.zip(function.invoker).ok_or_else(missing)?;
        let mut functor = Functor::default();
        // SAFETY: the function is not empty, so that its manager copies its functor.
        unsafe { manager(&mut functor, &function.functor, CLONE) };
        Ok(Self { functor, manager, invoker })
    }

    /// Whether the stream of that handle is taken.
    pub(crate) fn takes(&self, handle: usize) -> bool {
        let mut stream = std::ptr::with_exposed_provenance_mut(handle);
        // SAFETY: the functor was made by its manager, and `stream` outlives the call.
        unsafe { (self.invoker)(&self.functor, &mut stream) }
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        let functor: *mut Functor = &mut self.functor;
        // SAFETY: the functor was made by its manager and is given up here.
        unsafe { (self.manager)(functor, functor, DESTROY) };
    }
}
