//! Races between streams, found while the program runs (`torch.cuda._sanitizer`).
//!
//! The sanitizer is told what work does to memory: tensor operations, products, copies and fills tell by themselves, and
//! launches of kernels of the program declare it ([`LaunchBuilder::reads`], [`LaunchBuilder::writes`]). When two pieces of
//! work use the same memory, one of them writes, and nothing puts them in order, it writes a report in torch's words to the
//! error output, and the call that queued the later one returns [`CUDASanitizerErrors`].
//!
//! It is switched on by [`enable_cuda_sanitizer`], or for the whole program by the environment variable
//! `TORCH_CUDA_SANITIZER` with any value.
//!
//! ```
//! # testkit::make_default_exactly(testkit::Config::default()).unwrap();
//! use cuda_api::sanitizer::enable_cuda_sanitizer;
//! use cuda_api::{Error, Stream, torch};
//!
//! enable_cuda_sanitizer();
//! let a = torch::ones(&[4, 2], torch::float32, "cuda")?;
//! let other = Stream::new(None, 0)?;
//! let raced = cuda_api::with_stream(&other, || Ok(a.mul_(5.0).unwrap_err())).unwrap();
//! assert!(raced.to_string().contains("detected 1 errors"));
//!
//! other.wait_stream(&cuda_api::default_stream(None)?)?;
//! cuda_api::with_stream(&other, || Ok(a.mul_(5.0).is_ok()))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Beyond torch, [`Runtime::enable_sanitizer`] takes options: byte ranges can be compared instead of tensors
//! ([`SanitizerMode::Ranges`]), which also finds memory that is reused too early and pinned memory that the host uses
//! during a copy; and races can be collected or counted instead of raised.
//!
//! # What differs from torch
//! - Captured work is not executed: its accesses are attributed to each replay of the graph, on the stream that replays
//!   it. Torch attributes them to the capture, and reports a false race when the results of a replay are read.
//! - An operation that launches several kernels counts as several pieces of work, named after the kernels.
//! - What a kernel of the program does without declaring it is not seen.
//! - Streams that others have made, and that wait for the default stream by themselves, are taken for streams that do not.
//!
//! [`LaunchBuilder::reads`]: c10_core::LaunchBuilder::reads
//! [`LaunchBuilder::writes`]: c10_core::LaunchBuilder::writes

pub use c10_core::{
    AccessType, CUDASanitizerErrors, HandOver, SanitizedAccess, Sanitizer, SanitizerAction, SanitizerMode,
    SanitizerOptions, UnsynchronizedAccessError,
};

use c10_core::Runtime;

/// Switches a sanitizer with torch's rules on; torch's `enable_cuda_sanitizer`. It stays on when what is returned is
/// dropped.
///
/// ```
/// # testkit::make_default_exactly(testkit::Config::default()).unwrap();
/// let sanitizer = cuda_api::sanitizer::enable_cuda_sanitizer();
/// assert_eq!(sanitizer.count(), 0);
/// assert!(sanitizer.disable());
/// ```
#[doc(alias = "_sanitizer")]
pub fn enable_cuda_sanitizer() -> Sanitizer {
    Runtime::current().enable_sanitizer(SanitizerOptions::default())
}
