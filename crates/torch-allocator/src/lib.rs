//! The caching allocator of `c10-core` as the C functions that PyTorch's `CUDAPluggableAllocator` calls.
//!
//! PyTorch loads the shared object, asks for memory by [`torch_allocator_alloc`] and gives it back by
//! [`torch_allocator_free`]; the other functions of [`hooks`] are set by the allocator object's setters, those of
//! [`figures`] and [`history`] are what the Python package beside this crate reads. All of them use the process's default runtime, which
//! shares the primary contexts of PyTorch's runtime library. Streams are PyTorch's and are never destroyed here.
//!
//! A process that forks after first use is refused in the child, as PyTorch refuses it. Nothing is called at exit.
//!
//! # Invariants
//! - Nothing unwinds into C. A panic becomes an error like any other.
//! - An error is kept as text ([`figures::torch_allocator_last_error`]). A failed request is raised as an
//!   exception of PyTorch's if its parts were named ([`raise`]), and else answered with null.
//! - No books are kept here: what PyTorch says about size, device and stream when it frees is not needed.

mod answer;
pub mod figures;
mod filter;
pub mod history;
pub mod hooks;
mod last_error;
pub mod raise;
mod streams;
mod text;

pub use answer::torch_allocator_alloc;
pub use hooks::{torch_allocator_free, torch_allocator_record_stream};
pub use raise::torch_allocator_set_raise;
