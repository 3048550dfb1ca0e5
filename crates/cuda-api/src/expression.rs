//! Functions of the user's own, built of expressions: one kernel each, without a compiler but the driver's.
//!
//! What `torch.cuda.jiterator` makes of C++ is made here of a Rust closure ([`jit_fn!`](crate::jit_fn!)) or of a text for
//! configuration files ([`JitFunction::parse`]), by the same rules of promotion and broadcasting.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::expression::JitFunction;
//! use cuda_api::{jit_fn, torch};
//!
//! let x = torch::full(&[2, 3], 2, torch::bfloat16, "cuda")?;
//! let y = torch::full(&[3], 3, torch::bfloat16, "cuda")?;
//! let function = jit_fn!(|x, y| x * y + x)?;
//! assert_eq!(function.one(&[&x, &y])?.to_dtype(torch::float32)?.to_vec::<f32>()?, [8.0; 6]);
//!
//! let parsed = JitFunction::parse("gated(x, gate, scale=1.0) = x * sigmoid(gate) * scale, scale * x")?;
//! let [gated, scaled] = parsed.arrays([&x, &y], &[0.5.into()])?;
//! assert_eq!((gated.sizes(), scaled.sizes()), (&[2, 3][..], &[2, 3][..]));
//! # Ok::<(), torch::Error>(())
//! ```

pub use aten_cuda::expression::{
    Expr, ExprFn, ExprResults, ExpressionError, JitFunction, MOST_NODES, MOST_PARAMETERS, MOST_TENSORS, MOST_TEXT,
    ParseError, ParseErrorKind, jit_fn, parse_error,
};
