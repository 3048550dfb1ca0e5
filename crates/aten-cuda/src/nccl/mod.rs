//! Collectives by NCCL: of the devices of a process (`torch.cuda.nccl`), and of ranks in several processes.
//!
//! Reading order: this file, `options`, `communicator` (a rank and what it is asked for), `group` (calls that begin together),
//! `devices` (torch's functions over the devices of one process), `asked` (what is checked), `library` (NCCL and its calls),
//! `memory` (memory of NCCL, and buffers that it registers).
//!
//! NCCL is found when it is first asked for: by `CUDA_SYS_LIBNCCL`, beside the driver that was chosen, by its soname or in
//! the folder of its Python package. Nothing else needs it.
//!
//! **Invariants:** no call waits for other ranks without an end, unless the program asks for direct calls, which another
//! thread can interrupt. Nothing that NCCL says is lost: an error has the call, the
//! code and NCCL's last error. Tensors are checked before NCCL sees them.

mod asked;
mod communicator;
mod devices;
mod group;
mod library;
mod looks;
mod memory;
mod options;

use std::fmt;

use c10_core::Runtime;
use cuda_sys::Nccl;

use crate::base::error::Result;
use crate::tensor::Tensor;

pub use communicator::Communicator;
pub use devices::{Using, all_gather, all_reduce, broadcast, reduce, reduce_scatter};
pub use group::group;
pub use memory::{Memory, Registration};
pub use options::{Calls, CtaPolicy, Options};

/// What elements are combined by (`ncclRedOp_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum; of booleans whether any is true.
    #[default]
    Sum,
    /// The product; of booleans whether all are true. Not of complex numbers.
    Product,
    /// The smallest. Not of complex numbers.
    Min,
    /// The largest. Not of complex numbers.
    Max,
    /// The sum, divided by the number of ranks. Not of booleans.
    Avg,
    /// The sum of what each rank has multiplied by its own factor (`ncclRedOpCreatePreMulSum`); of floating-point numbers
    /// alone. Torch's `_make_nccl_premul_sum`.
    PreMulSum(Factor),
}

/// What a rank multiplies its elements by; equal where the bits are.
///
/// ```
/// use aten_cuda::nccl::{Factor, ReduceOp};
///
/// assert_eq!(ReduceOp::premul_sum(0.5), ReduceOp::PreMulSum(Factor::from(0.5)));
/// assert_eq!(Factor::from(0.25).value(), 0.25);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Factor(u64);

impl From<f64> for Factor {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

impl Factor {
    /// The number.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// The sum, as torch names it (`torch.cuda.nccl.SUM`).
pub const SUM: ReduceOp = ReduceOp::Sum;

impl ReduceOp {
    /// The sum of what each rank has multiplied by its factor.
    #[must_use]
    pub fn premul_sum(factor: f64) -> Self {
        Self::PreMulSum(Factor::from(factor))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::PreMulSum(_) => "premul_sum",
        }
    }
}

/// What ranks that want to come together know each other by (`ncclUniqueId`): 128 bytes, which one rank makes and hands to
/// the others.
///
/// ```
/// use aten_cuda::nccl::UniqueId;
///
/// let received = UniqueId::from_bytes([7; 128]);
/// assert_eq!((received.as_bytes()[0], format!("{received:?}").as_str()), (7, "UniqueId(0707070707070707...)"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId([u8; 128]);

impl UniqueId {
    /// The identity that another rank has made.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 128]) -> Self {
        Self(bytes)
    }

    /// What to hand to the other ranks.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 128] {
        &self.0
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(")?;
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("...)")
    }
}

/// Has the current runtime use this NCCL from now on: a simulated one, or none. Forgets the communicators that are kept.
pub fn set_library(nccl: Option<Nccl>) {
    Runtime::with_current(|runtime| library::set(runtime, nccl));
}

/// The version of the NCCL that the current runtime uses, and where it was loaded from; it is looked for where that was not
/// done. Torch has no such thing.
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// let missing = aten_cuda::nccl::loaded_library().unwrap_err();
/// assert!(missing.to_string().starts_with("NCCL is not there: "));
/// ```
///
/// # Errors
/// [`crate::NcclError::Absent`] says what was looked for.
pub fn loaded_library() -> Result<(String, String)> {
    let library = Runtime::with_current(library::find)?;
    Ok((library.version().to_string(), library.origin().to_owned()))
}

/// The version of NCCL (`torch.cuda.nccl.version`): major, minor, patch.
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// assert_eq!(aten_cuda::nccl::version()?, (2, 28, 9));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There is no NCCL.
pub fn version() -> Result<(u32, u32, u32)> {
    let version = Runtime::with_current(library::find)?.version();
    Ok((version.major, version.minor, version.patch))
}

/// A new identity for ranks that want to come together (`ncclGetUniqueId`, `torch.cuda.nccl.unique_id`).
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::nccl;
///
/// assert_ne!(nccl::unique_id()?, nccl::unique_id()?);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There is no NCCL, or NCCL's error.
pub fn unique_id() -> Result<UniqueId> {
    Runtime::with_current(|runtime| Ok(UniqueId(library::new_identity(&*library::find(runtime)?)?)))
}

/// Whether the functions of devices take these tensors (`torch.cuda.nccl.is_available`): there is an NCCL, and they are
/// contiguous, on CUDA devices, and each on a device of its own.
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
/// use aten_cuda::{DType, Tensor, nccl};
///
/// let (one, two) = (Tensor::ones(&[2, 2], DType::F32, "cuda:0")?, Tensor::ones(&[2, 2], DType::F32, "cuda:1")?);
/// assert!(!nccl::is_available(&[&one, &two]));
/// nccl::set_library(Some(cuda_sim::nccl()));
/// assert!(nccl::is_available(&[&one, &two]));
/// assert!(!nccl::is_available(&[&one, &one]) && !nccl::is_available(&[&one.t()?]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[must_use]
pub fn is_available(tensors: &[&Tensor]) -> bool {
    let fits = |index: usize| {
        let tensor = tensors[index];
        let shares = tensors[..index].iter().any(|other| other.device() == tensor.device());
        tensor.is_contiguous() && tensor.is_cuda() && !shares
    };
    (0..tensors.len()).all(fits) && Runtime::with_current(library::find).is_ok()
}
