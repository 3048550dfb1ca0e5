//! What can go wrong with random numbers. The texts are torch's, where it has one.

use crate::base::dtype::DType;

/// A call of a generator or a distribution that cannot be answered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RandomError {
    /// A state has neither 16 bytes nor 8.
    #[error("RNG state is wrong size")]
    StateSize {
        /// Bytes of the state.
        bytes: usize,
    },
    /// A state of the host's generator has another size.
    #[error("Expected a CPUGeneratorImplState of size 5056 but found the input RNG state size to be {bytes}")]
    HostStateSize {
        /// Bytes of the state.
        bytes: usize,
    },
    /// A state is none that the host's generator can have.
    #[error("Invalid mt19937 state")]
    HostState,
    /// A state is no tensor of bytes on the host.
    #[error("RNG state must be a torch.ByteTensor")]
    StateKind {
        /// The dtype of the tensor.
        dtype: DType,
    },
    /// The bytes of a state do not lie one after another.
    #[error("RNG state must be contiguous")]
    StateStrided,
    /// An offset is no multiple of 4.
    #[error("offset must be a multiple of 4")]
    Offset {
        /// The offset.
        offset: u64,
    },
    /// A seed is below -2^63, or 2^64 or more.
    #[error("Overflow when unpacking long")]
    Seed {
        /// The seed.
        seed: i128,
    },
    /// There is no device of that number.
    #[error("The device_index is invalid.")]
    DeviceIndex {
        /// The number.
        index: i32,
    },
    /// A generator cannot be asked or set while its device's current stream captures.
    #[error(
        "{call} during CUDA graph capture. If you need this call to be captured, please file an issue. Current \
         cudaStreamCaptureStatus: cudaStreamCaptureStatusActive"
    )]
    Capturing {
        /// What was tried, in torch's words.
        call: &'static str,
    },
    /// During a capture a generator can be seeded only with the seed that it has.
    #[error(
        "CUDAGeneratorImpl::set_current_seed can be called during stream capture only if new seed is the same as the \
         original seed."
    )]
    SeedWhileCapturing,
    /// Captured work draws from a generator that was not registered with the graph.
    #[error("Attempt to increase offset for a CUDA generator not in capture mode.")]
    NotRegistered,
    /// A registered generator is drawn from outside the capture that is under way.
    #[error("Offset increment outside graph capture encountered unexpectedly.")]
    OutsideCapture,
    /// Captured work draws more than the offset of a graph can hold.
    #[error("Increment causes overflow in the offset value.")]
    GraphOffset,
    /// The generator belongs to another device than the tensor.
    #[error("Expected a '{tensor}' generator device but found '{generator}'")]
    Device {
        /// The tensor's device.
        tensor: String,
        /// The generator's device.
        generator: String,
    },
    /// The generator is of another kind of device than the tensor.
    #[error("Expected a '{tensor}' device type for generator but found '{generator}'")]
    DeviceType {
        /// The kind of the tensor's device.
        tensor: &'static str,
        /// The kind of the generator's device.
        generator: &'static str,
    },
    /// A tensor of probabilities holds a number that is none: below zero, infinite or NaN, and for `bernoulli_` above one.
    /// On a device this is found by the kernel, and told by the next call that waits for it.
    #[error("{}{operation}(): probability {value} is out of range (element {element} of the probabilities)", prefix(.operation))]
    Probability {
        /// The operation's name in torch.
        operation: &'static str,
        /// Which element it is, counted in row-major order.
        element: i64,
        /// The number.
        value: f64,
    },
    /// A row of probabilities has none above zero.
    #[error("invalid multinomial distribution (sum of probabilities <= 0): row {row}")]
    SumOfProbabilities {
        /// The row.
        row: i64,
    },
    /// A number of a distribution is out of its range; the text is torch's.
    #[error("{0}")]
    Parameter(String),
}

/// Torch's own text, where it has one.
fn prefix(operation: &str) -> &'static str {
    if operation == "multinomial" { "probability tensor contains either `inf`, `nan` or element < 0: " } else { "" }
}
