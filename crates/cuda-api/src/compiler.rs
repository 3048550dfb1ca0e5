//! Functions of tensors that are traced once, fused into few kernels, and run as those (`torch.compile`).
//!
//! [How it works](https://docs.rs/aten-cuda), what is guarded and what ends a graph stands in `docs/compile.md`. The functions
//! are in [`torch`](crate::torch) too.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::compiler::{CompileMode, CompileOptions, Compiled};
//! use cuda_api::torch::{self, Tensor};
//!
//! let mut options = CompileOptions::default();
//! options.fullgraph = true;
//! options.mode = CompileMode::ReduceOverhead;
//! let f: Compiled = torch::compile_with(|x: &[Tensor]| Ok(vec![x[0].mul(2)?.add(&x[1])?.relu()?]), options);
//! let a = torch::full(&[2, 3], 3, torch::float32, "cuda")?;
//! let b = torch::full(&[2, 3], -5, torch::float32, "cuda")?;
//! for _ in 0..3 {
//!     assert_eq!(f.call(&[&a, &b])?[0].to_vec::<f32>()?, [1.0; 6]);
//! }
//! let report = f.report();
//! assert_eq!((report.programs.len(), report.programs[0].kernels.len()), (1, 1), "{report}");
//! # Ok::<(), torch::Error>(())
//! ```

pub use aten_cuda::compile::{
    CompileMode, CompileOptions, Compiled, Declined, EpilogueReport, Foldability, GraphBreak, GuardFailure, Kept,
    KernelReport, ProgramReport, Report, break_causes, compile, compile_with, foldabilities, foldability,
};
