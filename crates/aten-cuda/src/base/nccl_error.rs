//! What can go wrong with collectives of NCCL. Of arguments the texts are torch's, where it has one.

use std::time::Duration;

use c10_core::DeviceIndex;
use cuda_sys::LibraryVersion;

use super::dtype::DType;

/// Why a collective, or what belongs to one, failed.
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// use aten_cuda::{Error, NcclError, nccl};
///
/// let missing = nccl::unique_id().unwrap_err();
/// assert!(matches!(missing, Error::Nccl(cause) if matches!(*cause, NcclError::Absent { .. })));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// There is no NCCL.
    #[error("NCCL is not there: {reason}")]
    Absent {
        /// What was looked for, and what was found.
        reason: String,
    },
    /// The NCCL that was found is too old.
    #[error("NCCL {found} from {origin} has no {function}; a newer one is needed")]
    TooOld {
        /// The function that it lacks.
        function: &'static str,
        /// Its version.
        found: LibraryVersion,
        /// Where it was loaded from.
        origin: String,
    },
    /// A call failed, or work that was under way.
    #[error("NCCL error in {call}: {status}{}", told(last_error))]
    Failed {
        /// The function, or what was under way.
        call: &'static str,
        /// What NCCL answered.
        status: cuda_sys::ncclResult_t,
        /// What NCCL says of its last error; empty where it says nothing.
        last_error: String,
    },
    /// Something took too long.
    #[error("{what} was not done after {} s", after.as_secs_f64())]
    TimedOut {
        /// What, with the rank.
        what: String,
        /// The time that it had.
        after: Duration,
    },
    /// A communicator is used that was aborted, finalized, or has failed to begin.
    #[error("{call} on a communicator that {how}")]
    Ended {
        /// What was asked for.
        call: &'static str,
        /// How it ended.
        how: &'static str,
    },
    /// A communicator is in a group or has clones, where it has to be the only one.
    #[error("{call} on a communicator that is in a group or has clones")]
    Shared {
        /// What was asked for.
        call: &'static str,
    },
    /// There is no such rank.
    #[error("{name} {rank} is out of range of {ranks} ranks")]
    Rank {
        /// What the rank is: `rank`, `root` or `peer`.
        name: &'static str,
        /// Its number.
        rank: usize,
        /// How many ranks there are.
        ranks: usize,
    },
    /// A function of devices is given nothing.
    #[error("input sequence can't be empty")]
    NoInputs,
    /// A function of devices is given more or fewer outputs than inputs.
    #[error(
        "inputs and outputs sequences have to be of the same length, but got input of length {inputs} and output of \
         length {outputs}"
    )]
    Lengths {
        /// How many inputs.
        inputs: usize,
        /// How many outputs.
        outputs: usize,
    },
    /// Streams or communicators are not as many as the inputs.
    #[error("number of {what} is not equal to number of inputs: {found} and {inputs}")]
    Companions {
        /// `streams` or `communicators`.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many inputs.
        inputs: usize,
    },
    /// A tensor is on the host.
    #[error("input and output elements have to be cuda dense Tensors")]
    NotOnDevice,
    /// Tensors are of different dtypes.
    #[error("all inputs and outputs must be of the same Tensor dtype: {one} and {other}")]
    Dtypes {
        /// One.
        one: DType,
        /// Another.
        other: DType,
    },
    /// A tensor has gaps, or its elements in another order.
    #[error("all inputs and outputs must be contiguous")]
    NotContiguous,
    /// Inputs have different sizes.
    #[error("all inputs must have the same number of elements: {one} and {other}")]
    Sizes {
        /// Elements of the first.
        one: i64,
        /// Elements of another.
        other: i64,
    },
    /// An output has another number of elements than the collective makes.
    #[error("output must be of size input_size * size_multiplier: it has {found} elements, and {expected} are made")]
    OutputSize {
        /// Its elements.
        found: i64,
        /// Those that are made.
        expected: i64,
    },
    /// An input and its output are on different devices.
    #[error("input and output must be on the same device: {input} and {output}")]
    Devices {
        /// The input's.
        input: DeviceIndex,
        /// The output's.
        output: DeviceIndex,
    },
    /// A tensor is on another device than the communicator.
    #[error("a tensor is on device {tensor}, and the communicator on device {communicator}")]
    OtherDevice {
        /// The tensor's.
        tensor: DeviceIndex,
        /// The communicator's.
        communicator: DeviceIndex,
    },
    /// Two inputs are on one device.
    #[error("inputs must be on unique devices: device {device} has two")]
    SharedDevice {
        /// The device.
        device: DeviceIndex,
    },
    /// NCCL does not reduce such elements.
    #[error("NCCL does not reduce elements of {dtype} by {op}")]
    Reduction {
        /// The dtype.
        dtype: DType,
        /// The operation.
        op: &'static str,
    },
}

fn told(last_error: &str) -> String {
    if last_error.is_empty() { String::new() } else { format!(": {last_error}") }
}
