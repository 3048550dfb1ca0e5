//! What can go wrong when tensors go from device to device. The texts are torch's, where it has one.

use c10_core::{Device, DeviceIndex};

use crate::base::dtype::DType;

/// Why tensors are not broadcast, added, scattered or gathered.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{CommError, DType, Error, Tensor, comm};
///
/// let refused = comm::broadcast(&Tensor::ones(&[2], DType::F32, "cuda")?, &[0, -2]).unwrap_err();
/// assert!(matches!(refused, Error::Comm(cause) if *cause == CommError::NegativeDevice { device: -2 }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// A device's number is below zero.
    #[error("Expected non-negative device index, but got {device}")]
    NegativeDevice {
        /// The number.
        device: DeviceIndex,
    },
    /// An output is not on a CUDA device.
    #[error("Expected all output tensors to be CUDA tensors, but output tensor at index {index} has device '{device}'")]
    OutputDevice {
        /// Which output, counted from 0.
        index: usize,
        /// Its device.
        device: Device,
    },
    /// An output of a broadcast has other sizes than the source.
    #[error(
        "Expected all output tensors to have same shape as the source tensor {expected:?}, but output tensor at index \
         {index} has shape {found:?}"
    )]
    OutputShape {
        /// Which output, counted from 0.
        index: usize,
        /// Its sizes.
        found: Vec<i64>,
        /// The source's.
        expected: Vec<i64>,
    },
    /// A tensor of a coalesced broadcast is not on the first device.
    #[error("All tensors must be on devices[0]: {first}")]
    NotOnFirst {
        /// The first device.
        first: DeviceIndex,
    },
    /// There is no device to broadcast coalesced tensors to.
    #[error("Expected at least one device to broadcast to")]
    NoDevices,
    /// There is nothing to add.
    #[error("reduce_add expects at least one input")]
    NoInputs,
    /// A tensor to be added is on the host.
    #[error("reduce_add expects all inputs to be on GPUs")]
    InputOnHost,
    /// Tensors to be added have different sizes.
    #[error("input {index} has invalid size: got {}, but expected {}", by_x(found), by_x(expected))]
    InputSize {
        /// Which input, counted from 0.
        index: usize,
        /// Its sizes.
        found: Vec<i64>,
        /// Those of the first.
        expected: Vec<i64>,
    },
    /// None of the tensors to be added is where their sum is wanted.
    #[error("reduce_add expects destination to be on the same GPU with one of the tensors")]
    Destination,
    /// There is no device to scatter to.
    #[error("Expected at least one device to scatter to")]
    ScatterToNone,
    /// There are more or fewer sizes of chunks than devices.
    #[error(
        "Expected devices and chunk_sizes to be of same length, but got len(devices) = {devices} and len(chunk_sizes) = \
         {chunks}"
    )]
    ChunkCount {
        /// How many devices.
        devices: usize,
        /// How many sizes.
        chunks: usize,
    },
    /// There is no output to scatter to.
    #[error("Expected at least one output tensor to scatter to")]
    ScatterToNoOutput,
    /// An output of a scatter has sizes that do not fit the source.
    #[error(
        "Output tensor at index {index} has incorrect shape: {found:?}. Expected same shape except for scatter dim {dim} \
         as the source tensor: {source_sizes:?}"
    )]
    ScatterShape {
        /// Which output, counted from 0.
        index: usize,
        /// Its sizes.
        found: Vec<i64>,
        /// The dimension.
        dim: usize,
        /// The source's sizes.
        source_sizes: Vec<i64>,
    },
    /// The outputs of a scatter have together more or fewer places than the source.
    #[error(
        "Total size for output tensors along scatter dim {dim} does not match the source tensor size at dim {dim}. \
         Expected {expected}, but got total size {found}"
    )]
    ScatterTotal {
        /// The dimension.
        dim: usize,
        /// Places of the source.
        expected: i64,
        /// Places of all outputs.
        found: i64,
    },
    /// A stream is of another device than its chunk goes to.
    #[error(
        "Expected the device associated with the stream at index {index} (was {found}) to match the device supplied at \
         that index (expected {expected})"
    )]
    StreamDevice {
        /// Which stream, counted from 0.
        index: usize,
        /// Its device.
        found: DeviceIndex,
        /// The chunk's.
        expected: DeviceIndex,
    },
    /// There is nothing to gather.
    #[error("Expected at least one tensor to gather from")]
    GatherFromNone,
    /// A tensor to be gathered is on the host.
    #[error("Expected all input tensors to be CUDA tensors, but tensor at index {index} has device '{device}'")]
    GatherDevice {
        /// Which tensor, counted from 0.
        index: usize,
        /// Its device.
        device: Device,
    },
    /// Tensors to be gathered have different numbers of dimensions. torch's text lacks the same blank.
    #[error(
        "Expected all input tensors to have the same number of dimensions, but tensor at index {index}has {found} \
         dimensions, (expected {expected})"
    )]
    GatherRank {
        /// Which tensor, counted from 0.
        index: usize,
        /// Its dimensions.
        found: usize,
        /// Those of the first.
        expected: usize,
    },
    /// A tensor to be gathered has other sizes elsewhere than the first.
    #[error("Input tensor at index {index} has invalid shape {found:?}, but expected {expected:?}")]
    GatherShape {
        /// Which tensor, counted from 0.
        index: usize,
        /// Its sizes.
        found: Vec<i64>,
        /// Those that it would need.
        expected: Vec<i64>,
    },
    /// The output of a gather has other sizes than all tensors together.
    #[error("Expected out tensor to have shape {expected:?}, but got {found:?}")]
    GatherOutput {
        /// The output's sizes.
        found: Vec<i64>,
        /// Those of all tensors together.
        expected: Vec<i64>,
    },
    /// Values of several devices are not of one kind or length, so that they cannot be joined.
    #[error("All {what} must have the same number of elements")]
    Uneven {
        /// What they are.
        what: &'static str,
    },
    /// As many replicas, inputs and devices are needed.
    #[error(
        "Expected as many inputs and devices as modules ({modules}), but got {inputs} inputs and {devices} devices"
    )]
    ParallelCounts {
        /// How many replicas.
        modules: usize,
        /// How many inputs.
        inputs: usize,
        /// How many devices.
        devices: usize,
    },
    /// There are more devices than one memory at the same offset may have.
    #[error("{found} devices cannot have memory at the same offset, at most {most} can")]
    TooManyRanks {
        /// How many devices.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// There is no device of such a rank.
    #[error("there is no rank {rank} among {ranks}")]
    NoSuchRank {
        /// The rank.
        rank: usize,
        /// How many there are.
        ranks: usize,
    },
    /// There are more or fewer tensors than ranks.
    #[error("{found} tensors were given for {ranks} ranks")]
    TensorsOfRanks {
        /// How many tensors.
        found: usize,
        /// How many ranks.
        ranks: usize,
    },
    /// A tensor is on another device than its rank's.
    #[error("the tensor of rank {rank} must be on cuda:{expected}, but is on {found}")]
    DeviceOfRank {
        /// The rank.
        rank: usize,
        /// Where the tensor is.
        found: Device,
        /// The rank's device.
        expected: DeviceIndex,
    },
    /// The tensor of a rank has other sizes or another dtype than that of rank 0.
    #[error("the tensor of rank {rank} has sizes {:?} and dtype {}, that of rank 0 {:?} and {}", found.0, found.1, expected.0, expected.1)]
    UnlikeTensor {
        /// The rank.
        rank: usize,
        /// Its sizes and dtype.
        found: (Vec<i64>, DType),
        /// Those of rank 0.
        expected: (Vec<i64>, DType),
    },
    /// Tensors of a dtype are not added over devices.
    #[error("tensors of dtype {dtype} are not added over devices")]
    NoSums {
        /// The dtype.
        dtype: DType,
    },
    /// A tensor is not inside the memory for tensors, or does not begin at a multiple of its element's size.
    #[error(
        "{bytes} bytes at {place} are not a tensor's in memory of {all} bytes at the same offset on several devices"
    )]
    OutsideSymmetric {
        /// The first byte.
        place: usize,
        /// Bytes of the tensor.
        bytes: usize,
        /// Bytes of the memory.
        all: usize,
    },
    /// Waits of kernels were ended, because a device did not come or the program asked for it.
    #[error(
        "the devices of this memory wait for each other no more: a call failed on one of them or waits were ended by the \
         program; make the memory anew"
    )]
    Aborted,
}

/// Sizes as torch writes them in this text: `2x3`.
fn by_x(sizes: &[i64]) -> String {
    sizes.iter().map(i64::to_string).collect::<Vec<_>>().join("x")
}
