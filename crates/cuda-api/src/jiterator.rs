//! `torch.cuda.jiterator`: elementwise functions as CUDA C++.
//!
//! A function is a template over one type. It is called for each element of the tensors, which are broadcast and converted to
//! the dtype that they have in common. What is arithmetic without loops, pointers and complex numbers is translated, and
//! needs no compiler; NVRTC compiles the rest when it is first called for dtypes and layouts.
//!
//! ```
//! # testkit::make_default(testkit::Config::default()).unwrap();
//! use cuda_api::{jiterator, torch};
//!
//! let code = "template <typename T> T fused(T x, T y, T alpha) { return x > T(0) ? x * y + alpha : y; }";
//! // SAFETY: the function touches nothing but its arguments.
//! let fused = unsafe { jiterator::create_jit_fn(code, &[("alpha", 1.0.into())]) }?;
//! let (x, y) = (torch::randn(&[64, 1], torch::float32, "cuda")?, torch::randn(&[64], torch::float16, "cuda")?);
//! let made = fused.call([&x, &y], &[("alpha", 0.5.into())])?;
//! assert_eq!((made.sizes(), made.dtype()), (&[64, 64][..], torch::float32));
//! # Ok::<(), torch::Error>(())
//! ```

pub use aten_cuda::jiterator::{CodeParser, JittedFunction, Untranslated, create_jit_fn, create_multi_output_jit_fn};
