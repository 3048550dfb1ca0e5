//! What can go wrong with tensors.
//!
//! Where torch has a text for it, the text is torch's first line.

use std::fmt;
use std::sync::Arc;

use c10_core::Device;

use crate::base::amp_error::AmpError;
use crate::base::comm_error::CommError;
use crate::base::dtype::DType;
use crate::base::expression_error::ExpressionError;
use crate::base::jit_error::JitError;
use crate::base::linalg_error::LinalgError;
use crate::base::nccl_error::NcclError;
use crate::base::random_error::RandomError;
use crate::base::tune_error::TuneError;

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operation does not fit its tensors.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Random numbers cannot be drawn so, or a generator not be set so.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// A region of autocast cannot be entered, or a gradient scaler not be called so.
    #[error(transparent)]
    Amp(#[from] AmpError),
    /// Products cannot be tuned so, or a file of results not be used.
    #[error(transparent)]
    Tune(Box<TuneError>),
    /// The runtime or the device failed.
    #[error(transparent)]
    Runtime(c10_core::Error),
    /// The runtime or the device failed in an operation, which is named with its tensors.
    #[error(transparent)]
    Operation(Box<OperationError>),
    /// A library that computes products failed.
    #[error(transparent)]
    Library(Box<LibraryError>),
    /// A matrix cannot be factorised, or a signal not be transformed.
    #[error(transparent)]
    Linalg(Box<LinalgError>),
    /// Tensors cannot go from device to device so.
    #[error(transparent)]
    Comm(Box<CommError>),
    /// A collective of NCCL failed, or cannot be asked for so.
    #[error(transparent)]
    Nccl(Box<NcclError>),
    /// A function of expressions cannot be built, read or called so.
    #[error(transparent)]
    Expression(Box<ExpressionError>),
    /// A program of the user's own was not compiled, linked or launched.
    #[error(transparent)]
    Jit(Box<JitError>),
    /// A program of an operation is wrong.
    #[error(transparent)]
    Graph(#[from] kernel_ir::GraphError),
    /// An error of another crate, such as a file transfer, a collective, or the body of a closure.
    #[error(transparent)]
    External(ExternalError),
}

/// Error of another crate, shared by the clones of the [`Error`] that holds it.
///
/// ```
/// let failed = std::fs::read("/nonexistent/file").unwrap_err();
/// let error = aten_cuda::Error::external(failed);
/// assert_eq!(error.downcast_ref::<std::io::Error>().unwrap().kind(), std::io::ErrorKind::NotFound);
/// assert!(error.downcast_ref::<std::fmt::Error>().is_none());
/// ```
#[derive(Clone, Debug)]
pub struct ExternalError(Arc<dyn std::error::Error + Send + Sync>);

impl fmt::Display for ExternalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ExternalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Refuses floats of 8 bits, of which torch has no kernel of this name.
pub(crate) fn refuse_float8(kernel: &str, dtype: DType) -> Result<()> {
    if dtype.is_float8() {
        return Err(TensorError::NotImplemented { kernel: kernel.to_owned(), dtype }.into());
    }
    Ok(())
}

impl From<JitError> for Error {
    fn from(error: JitError) -> Self {
        Self::Jit(Box::new(error))
    }
}

impl From<CommError> for Error {
    fn from(error: CommError) -> Self {
        Self::Comm(Box::new(error))
    }
}

impl From<NcclError> for Error {
    fn from(error: NcclError) -> Self {
        Self::Nccl(Box::new(error))
    }
}

impl From<LinalgError> for Error {
    fn from(error: LinalgError) -> Self {
        Self::Linalg(Box::new(error))
    }
}

impl From<ExpressionError> for Error {
    fn from(error: ExpressionError) -> Self {
        Self::Expression(Box::new(error))
    }
}

impl From<dense_factors::OutOfMemory> for Error {
    fn from(error: dense_factors::OutOfMemory) -> Self {
        Self::Runtime(c10_core::MemoryError::HostAllocation { bytes: error.bytes }.into())
    }
}

impl From<TuneError> for Error {
    fn from(error: TuneError) -> Self {
        Self::Tune(Box::new(error))
    }
}

/// What a kernel of this crate has refused becomes the error that the host would have given.
impl From<c10_core::Error> for Error {
    fn from(error: c10_core::Error) -> Self {
        if let c10_core::Error::DeviceAssertion(refused) = &error
            && let Some(own) = refused.cause::<Self>()
        {
            return own.clone();
        }
        Self::Runtime(error)
    }
}

/// A call to cuBLAS or cuBLASLt that did not succeed. The text is torch's, and names the arguments as torch does; their
/// values follow on a second line.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}\nwith {values}", cause.when_calling(arguments))]
pub struct LibraryError {
    /// What the library said, with the function's name.
    #[source]
    pub cause: cuda_sys::CublasError,
    /// The arguments by their names.
    pub arguments: &'static str,
    /// The values of those that shape the product.
    pub values: String,
}

/// The runtime or the device failed in an operation.
///
/// ```
/// # testkit::make_default(testkit::Config::default().capacity(1 << 30)).unwrap();
/// use aten_cuda::{DType, Error, Tensor};
///
/// let one = Tensor::ones(&[1], DType::F32, "cuda")?;
/// let error = one.expand(&[1 << 30])?.exp().unwrap_err();
/// assert!(error.runtime().is_some_and(|cause| cause.is_out_of_memory()));
/// assert!(error.to_string().contains("\nin exp of torch.float32 [1073741824] on cuda:0"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OperationError {
    /// What the runtime or the device said.
    pub cause: c10_core::Error,
    /// The operation, after those that it is made of.
    pub steps: Vec<Step>,
}

/// An operation with the tensors that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The operation's name in torch.
    pub operation: &'static str,
    /// Dtype, sizes and device of each tensor.
    pub operands: Vec<(DType, Vec<i64>, Device)>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        for (at, (dtype, sizes, device)) in self.operands.iter().enumerate() {
            write!(f, "{} {dtype} {sizes:?} on {device}", if at == 0 { " of" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause.to_string();
        f.write_str(cause.trim_end())?;
        self.steps.iter().try_for_each(|step| write!(f, "\nin {step}"))
    }
}

impl std::error::Error for OperationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl c10_core::RuntimeCause for Error {
    fn runtime_cause(&self) -> Option<&c10_core::Error> {
        self.runtime()
    }
}

impl Error {
    /// Wraps an error of another crate and keeps its text and its sources.
    #[must_use]
    pub fn external(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::External(ExternalError(Arc::new(error)))
    }

    /// Returns the error that [`Self::external`] wrapped, if it has type `E`.
    #[must_use]
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        if let Self::External(error) = self { error.0.downcast_ref() } else { None }
    }

    /// What the runtime or the device said, where it was they that failed.
    #[must_use]
    pub fn runtime(&self) -> Option<&c10_core::Error> {
        match self {
            Self::Runtime(cause) => Some(cause),
            Self::Operation(failed) => Some(&failed.cause),
            _ => None,
        }
    }

    /// Whether memory ran out; see [`c10_core::Error::is_out_of_memory`].
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.runtime().is_some_and(c10_core::Error::is_out_of_memory)
    }

    /// Adds the dimension, and the kernel that torch has for it, to an index-out-of-range error.
    pub(crate) fn in_dimension(mut self, at: usize, of: IndexKernel) -> Self {
        if let Self::Tensor(TensorError::IndexOutOfRange { dim, kernel, .. }) = &mut self {
            (*dim, *kernel) = (Some(at), of);
        }
        self
    }

    /// An error of the runtime, in an operation or in a part of one.
    pub(crate) fn in_step(self, step: Step) -> Self {
        match self {
            Self::Runtime(cause) => Self::Operation(Box::new(OperationError { cause, steps: vec![step] })),
            Self::Operation(mut failed) => {
                if failed.steps.last() != Some(&step) {
                    failed.steps.push(step);
                }
                Self::Operation(failed)
            }
            other => other,
        }
    }
}

/// An operation that does not fit its tensors.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// A size is below zero.
    #[error("Trying to create tensor with negative dimension {size}: {sizes:?}")]
    NegativeSize {
        /// The size.
        size: i64,
        /// All sizes.
        sizes: Vec<i64>,
    },
    /// The number of bytes does not fit into 63 bits.
    #[error("Storage size calculation overflowed with sizes={sizes:?}")]
    TooLarge {
        /// The sizes.
        sizes: Vec<i64>,
    },
    /// The number of elements, a stride, or the distance between two elements overflows 63 bits when counted in bytes.
    #[error("Storage size calculation overflowed with sizes={sizes:?} and strides={strides:?}")]
    ReachTooLarge {
        /// Requested sizes.
        sizes: Vec<i64>,
        /// Requested strides; a stride that overflows is saturated.
        strides: Vec<i64>,
    },
    /// Deterministic algorithms are asked for, and the operation has none.
    #[error(
        "{operation} does not have a deterministic implementation, but you set \
         'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation, or you can use \
         the 'warn_only=True' option, if that's acceptable for your application. You can also file an issue at \
         https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this operation."
    )]
    NotDeterministic {
        /// The operation.
        operation: &'static str,
    },
    /// Sizes do not broadcast.
    #[error(
        "The size of tensor a ({first}) must match the size of tensor b ({second}) at non-singleton dimension {dim}"
    )]
    Broadcast {
        /// The size of the first tensor.
        first: i64,
        /// The size of the second tensor.
        second: i64,
        /// The dimension, counted in the result.
        dim: usize,
    },
    /// A dimension does not exist.
    #[error("Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")]
    DimOutOfRange {
        /// What was given.
        dim: i64,
        /// The lowest one.
        low: i64,
        /// The highest one.
        high: i64,
    },
    /// A tensor cannot be expanded to the sizes.
    #[error(
        "The expanded size of the tensor ({expanded}) must match the existing size ({existing}) at non-singleton \
         dimension {dim}.  Target sizes: {target:?}.  Tensor sizes: {sizes:?}"
    )]
    Expand {
        /// The wanted size.
        expanded: i64,
        /// The size that there is.
        existing: i64,
        /// The dimension.
        dim: usize,
        /// The wanted sizes.
        target: Vec<i64>,
        /// The sizes that there are.
        sizes: Vec<i64>,
    },
    /// The sizes are for another number of elements.
    #[error("shape '{}' is invalid for input of size {numel}", list(shape))]
    InvalidShape {
        /// The wanted sizes.
        shape: Vec<i64>,
        /// The number of elements that there are.
        numel: i64,
    },
    /// A view of these sizes would need a copy.
    #[error(
        "view size is not compatible with input tensor's size and stride (at least one dimension spans across two \
         contiguous subspaces). Use .reshape(...) instead."
    )]
    ViewNeedsCopy,
    /// An operation is not there for a dtype.
    #[error("\"{kernel}\" not implemented for '{}'", dtype.scalar_type_name())]
    NotImplemented {
        /// The name that torch gives the kernel.
        kernel: String,
        /// The dtype.
        dtype: DType,
    },
    /// There are no complex numbers of two floats of 8 bits.
    #[error("Unknown Complex ScalarType for {}", dtype.scalar_type_name())]
    Float8Complex {
        /// The dtype.
        dtype: DType,
    },
    /// Floats of 8 bits have no dtype in common with others.
    #[error(
        "Promotion for Float8 Types is not supported, attempted to promote {} and {}",
        first.scalar_type_name(),
        second.scalar_type_name()
    )]
    Float8Promotion {
        /// One dtype.
        first: DType,
        /// The other one.
        second: DType,
    },
    /// Tensors of one operation are on several devices.
    #[error("Expected all tensors to be on the same device, but found at least two devices, {first} and {second}!")]
    Devices {
        /// The device of one tensor.
        first: String,
        /// The device of another.
        second: String,
    },
    /// The result cannot be kept in the dtype of the output.
    #[error("result type {} can't be cast to the desired output type {}", from.scalar_type_name(), to.scalar_type_name())]
    CannotCast {
        /// The dtype of the result.
        from: DType,
        /// The dtype of the output.
        to: DType,
    },
    /// The output has other sizes than the result.
    #[error("output with shape {output:?} doesn't match the broadcast shape {result:?}")]
    OutputShape {
        /// The output's sizes.
        output: Vec<i64>,
        /// The result's sizes.
        result: Vec<i64>,
    },
    /// Several elements of the output lie at one place.
    #[error(
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. \
         Please clone() the tensor before performing the operation."
    )]
    InternalOverlap,
    /// The output and an input share only a part of their memory.
    #[error(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory \
         location. Please clone() the tensor before performing the operation."
    )]
    PartialOverlap,
    /// A scalar does not fit into a dtype.
    #[error("value cannot be converted to type {} without overflow", dtype.conversion_name())]
    Overflow {
        /// Target dtype.
        dtype: DType,
    },
    /// A tensor with other than one element has no single value.
    #[error("a Tensor with {numel} elements cannot be converted to Scalar")]
    NotOneElement {
        /// The number of elements.
        numel: i64,
    },
    /// The elements have another dtype.
    #[error("expected elements of {wanted} but the tensor has {found}")]
    WrongDType {
        /// The dtype that was asked for.
        wanted: DType,
        /// The dtype that the tensor has.
        found: DType,
    },
    /// The memory belonged to a traced function that failed before it had contents.
    #[error("the tensor has no values: the traced function that made it failed before they were computed")]
    Abandoned,
    /// The tensor is the result of a call of a compiled function that launches CUDA graphs, and a later call has written over
    /// its memory.
    #[error(
        "the tensor has no values any more: it is the result of a compiled function with CUDA graphs, and a later call of \
         that function has written over its memory; make a copy before the next call of what has to last"
    )]
    Overwritten,
    /// A view reaches outside the storage.
    #[error(
        "setStorage: sizes {sizes:?}, strides {strides:?}, storage offset {offset}, and itemsize {itemsize} requiring a \
         storage size of {required} are out of bounds for storage of size {available}"
    )]
    OutOfStorage {
        /// Sizes of the view.
        sizes: Vec<i64>,
        /// Strides of the view.
        strides: Vec<i64>,
        /// The place of its first element.
        offset: i64,
        /// Bytes of an element.
        itemsize: usize,
        /// Bytes that it would need.
        required: i64,
        /// Bytes that there are.
        available: usize,
    },
    /// An index does not exist. On a device this is found by the kernel, and told by the next call that waits for the
    /// device, or the next operation with indices there.
    #[error("{}", index_text(operation, (*element, *index), *dim, *size, *kernel))]
    IndexOutOfRange {
        /// The operation's name in torch.
        operation: &'static str,
        /// The place of the index in the memory of the tensor of indices, counted from its first element.
        element: i64,
        /// The index.
        index: i64,
        /// Dimension of the index; `None` if the device found the index.
        dim: Option<usize>,
        /// How many places the dimension has.
        size: i64,
        /// The kernel of torch's that finds such an index, which decides the text.
        kernel: IndexKernel,
    },
    /// The host was to divide an integer by zero. On a device the quotient and the rest are those of CUDA's kernels.
    #[error("ZeroDivisionError\n{operation}(): an element of the divisor is 0")]
    ZeroDivision {
        /// The operation's name.
        operation: &'static str,
    },
    /// A captured function is given, or gave, another tensor than it was captured with.
    #[error(
        "{what} {index} is a tensor of {} with the shape {:?}, but the graph was captured with one of {} with the shape \
         {:?}",
        found.0, found.1, expected.0, expected.1
    )]
    Graphed {
        /// What the tensor is: an argument or a gradient.
        what: &'static str,
        /// Which one, counted from 0.
        index: usize,
        /// Its dtype and sizes.
        found: (DType, Vec<i64>),
        /// Those of the capture.
        expected: (DType, Vec<i64>),
    },
    /// A target of a cross entropy is no class. On a device this is told as [`Self::IndexOutOfRange`] is.
    #[error("Target {class} is out of bounds. cross_entropy() has {classes} classes (element {element} of the target)")]
    TargetOutOfRange {
        /// The place of the target in the memory of its tensor, counted from the first element.
        element: i64,
        /// The target.
        class: i64,
        /// The number of classes.
        classes: i64,
    },
    /// What the operation was given is wrong in another way, which the text tells.
    #[error("{0}")]
    Invalid(String),
}

/// A kernel of torch's that finds an index out of range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexKernel {
    /// One that visits element by element.
    #[default]
    Elements,
    /// The host's `index_add` along the first or the last of several dimensions.
    Slices,
    /// The host's `index_select` along the second dimension.
    Blocks,
}

/// Returns the text of an index-out-of-range error: torch's text on the first line if the dimension is known, then the
/// element.
fn index_text(
    operation: &str,
    (element, index): (i64, i64),
    dim: Option<usize>,
    size: i64,
    kernel: IndexKernel,
) -> String {
    let place = format!("element {element} of the index");
    let Some(dim) = dim else {
        return format!("{operation}(): index {index} is out of bounds for dimension with size {size} ({place})");
    };
    let bounds = format!("index {index} is out of bounds for dimension {dim} with size {size}");
    match (operation, kernel) {
        (_, IndexKernel::Slices) => format!("{bounds}\n{operation}(): {place}"),
        (_, IndexKernel::Blocks) => {
            format!("INDICES element is out of DATA bounds, id={index} axis_dim={size}\n{operation}(): {place}")
        }
        ("index_select" | "index_add" | "embedding", _) => {
            format!("index out of range in self\n{operation}(): {bounds} ({place})")
        }
        ("index_copy", _) => format!("index_copy_(): {bounds}\n({place})"),
        _ => format!("{bounds}\n{operation}(): {place}"),
    }
}

fn list(sizes: &[i64]) -> String {
    format!("{sizes:?}")
}

/// An error with a text of its own.
pub(crate) fn invalid(text: impl Into<String>) -> Error {
    TensorError::Invalid(text.into()).into()
}

/// What cannot fail gives no error.
impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
