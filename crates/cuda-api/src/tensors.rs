//! Types of tensors and of storages on CUDA devices (`torch.cuda.FloatTensor`, `torch.cuda.FloatStorage` and their
//! families), which torch keeps for old programs.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::{FloatTensor, LongTensor, torch};
//!
//! let tensor = FloatTensor::from_slice(&[1.0, 2.0, 3.0], &[3])?;
//! assert!(FloatTensor::is_instance(&tensor) && !LongTensor::is_instance(&tensor));
//! assert_eq!(FloatTensor::new(&[2, 3])?.sizes(), [2, 3]);
//! # Ok::<(), torch::Error>(())
//! ```

use aten_cuda::{Complex32, Complex64, bf16, f16};

pub use aten_cuda::{TypedElement, TypedStorage, TypedTensor};

/// Tensors of `torch.bfloat16` on a CUDA device (`torch.cuda.BFloat16Tensor`).
pub type BFloat16Tensor = TypedTensor<bf16>;

/// Tensors of `torch.bool` on a CUDA device (`torch.cuda.BoolTensor`).
pub type BoolTensor = TypedTensor<bool>;

/// Tensors of `torch.uint8` on a CUDA device (`torch.cuda.ByteTensor`).
pub type ByteTensor = TypedTensor<u8>;

/// Tensors of `torch.int8` on a CUDA device (`torch.cuda.CharTensor`).
pub type CharTensor = TypedTensor<i8>;

/// Tensors of `torch.float64` on a CUDA device (`torch.cuda.DoubleTensor`).
pub type DoubleTensor = TypedTensor<f64>;

/// Tensors of `torch.float32` on a CUDA device (`torch.cuda.FloatTensor`).
pub type FloatTensor = TypedTensor<f32>;

/// Tensors of `torch.float16` on a CUDA device (`torch.cuda.HalfTensor`).
pub type HalfTensor = TypedTensor<f16>;

/// Tensors of `torch.int32` on a CUDA device (`torch.cuda.IntTensor`).
pub type IntTensor = TypedTensor<i32>;

/// Tensors of `torch.int64` on a CUDA device (`torch.cuda.LongTensor`).
pub type LongTensor = TypedTensor<i64>;

/// Tensors of `torch.int16` on a CUDA device (`torch.cuda.ShortTensor`).
pub type ShortTensor = TypedTensor<i16>;

/// Memory of `torch.bfloat16` on a CUDA device (`torch.cuda.BFloat16Storage`).
pub type BFloat16Storage = TypedStorage<bf16>;

/// Memory of `torch.bool` on a CUDA device (`torch.cuda.BoolStorage`).
pub type BoolStorage = TypedStorage<bool>;

/// Memory of `torch.uint8` on a CUDA device (`torch.cuda.ByteStorage`).
pub type ByteStorage = TypedStorage<u8>;

/// Memory of `torch.int8` on a CUDA device (`torch.cuda.CharStorage`).
pub type CharStorage = TypedStorage<i8>;

/// Memory of `torch.complex128` on a CUDA device (`torch.cuda.ComplexDoubleStorage`).
pub type ComplexDoubleStorage = TypedStorage<Complex64>;

/// Memory of `torch.complex64` on a CUDA device (`torch.cuda.ComplexFloatStorage`).
pub type ComplexFloatStorage = TypedStorage<Complex32>;

/// Memory of `torch.float64` on a CUDA device (`torch.cuda.DoubleStorage`).
pub type DoubleStorage = TypedStorage<f64>;

/// Memory of `torch.float32` on a CUDA device (`torch.cuda.FloatStorage`).
pub type FloatStorage = TypedStorage<f32>;

/// Memory of `torch.float16` on a CUDA device (`torch.cuda.HalfStorage`).
pub type HalfStorage = TypedStorage<f16>;

/// Memory of `torch.int32` on a CUDA device (`torch.cuda.IntStorage`).
pub type IntStorage = TypedStorage<i32>;

/// Memory of `torch.int64` on a CUDA device (`torch.cuda.LongStorage`).
pub type LongStorage = TypedStorage<i64>;

/// Memory of `torch.int16` on a CUDA device (`torch.cuda.ShortStorage`).
pub type ShortStorage = TypedStorage<i16>;
