//! One tensor cut into chunks, each on a device of its own.

use c10_core::{Device, DeviceArg, DeviceIndex, Stream};

use super::transfer::copy;
use super::{as_real, device_of, not_negative, resolved};
use crate::base::comm_error::CommError;
use crate::base::error::Result;
use crate::base::shape::wrap_dim;
use crate::ops::preserved_strides;
use crate::tensor::{Context, Tensor, empty_strided};

/// Chunks of the tensor along `dim`, one on each of `devices` (`torch.cuda.comm.scatter`). The source may be on the host. A
/// chunk on the source's device is a view of it; others are copied, with their layout.
///
/// `chunk_sizes` are the places of each chunk, which come to all of them. Without, all chunks have as many as the first,
/// but the last perhaps fewer, so that there can be fewer chunks than devices.
///
/// A chunk is copied on the stream of `streams` at its place, where there is one: that is the current stream of its device
/// from then on until the call ends. Otherwise on the current stream. Streams of chunks that need no copy are not looked at.
/// A complex tensor is scattered as a real one with a last dimension of two.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let source = Tensor::arange(0, 5, 1, Some(DType::F32), "cuda:0")?;
/// let chunks = comm::scatter(&source, &[0, 1], Some(&[1, 4]), 0, &[])?;
/// assert_eq!(chunks[0].data_ptr(), source.data_ptr());
/// assert_eq!(chunks[1].to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There is no device, a number is below zero or names none, there are more or fewer sizes than devices, they come to
/// something else, there is no such dimension, a stream is of another device, there is not enough memory, or a device
/// failed.
pub fn scatter<D: DeviceArg + Clone>(
    tensor: &Tensor,
    devices: &[D],
    chunk_sizes: Option<&[i64]>,
    dim: i64,
    streams: &[Option<Stream>],
) -> Result<Vec<Tensor>> {
    let (tensor, devices) = (as_real(tensor)?, resolved(devices)?);
    if devices.is_empty() {
        return Err(CommError::ScatterToNone.into());
    }
    if let Some(sizes) = chunk_sizes.filter(|sizes| sizes.len() != devices.len()) {
        return Err(CommError::ChunkCount { devices: devices.len(), chunks: sizes.len() }.into());
    }
    wrap_dim(dim, tensor.dim())?;
    let chunks = match chunk_sizes {
        Some(sizes) => tensor.split_with_sizes(sizes, dim)?,
        None => tensor.chunk(i64::try_from(devices.len()).unwrap_or(i64::MAX), dim)?,
    };
    let run = || {
        chunks.iter().zip(&devices).enumerate().map(|(index, (chunk, &device))| moved(chunk, device, (index, streams)))
    };
    run().collect::<Result<Vec<Tensor>>>().of("scatter", &[&tensor])
}

/// A chunk on its device.
fn moved(chunk: &Tensor, device: DeviceIndex, (index, streams): (usize, &[Option<Stream>])) -> Result<Tensor> {
    if device_of(chunk) == Some(device) {
        return Ok(chunk.clone());
    }
    let stream = stream_at(index, streams, device)?;
    let device = Device::cuda(not_negative(device)?);
    let _current = stream.map(Stream::guard);
    let made = empty_strided(chunk.sizes(), &preserved_strides(chunk), chunk.dtype(), device)?;
    copy(&made, chunk)?;
    Ok(made)
}

/// The stream for a chunk, which is of the chunk's device.
fn stream_at(index: usize, streams: &[Option<Stream>], expected: DeviceIndex) -> Result<Option<&Stream>> {
    let Some(stream) = streams.get(index).and_then(Option::as_ref) else { return Ok(None) };
    let found = stream.device_index();
    if found == expected { Ok(Some(stream)) } else { Err(CommError::StreamDevice { index, found, expected }.into()) }
}

/// Copies chunks of the tensor along `dim` into `out` (`torch.cuda.comm.scatter(tensor, out=out)`): as many places as each
/// output has there. See [`scatter`] for streams.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let out = [Tensor::zeros(&[1], DType::F32, "cuda:0")?, Tensor::zeros(&[2], DType::F32, "cuda:1")?];
/// comm::scatter_out(&Tensor::arange(0, 3, 1, Some(DType::F32), "cpu")?, &[&out[0], &out[1]], 0, &[])?;
/// assert_eq!(out[1].to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There is no output, one is on the host or its sizes do not fit, all together have more or fewer places than the source,
/// a stream is of another device, there is not enough memory, or a device failed.
pub fn scatter_out(tensor: &Tensor, out: &[&Tensor], dim: i64, streams: &[Option<Stream>]) -> Result<()> {
    let tensor = as_real(tensor)?;
    if out.is_empty() {
        return Err(CommError::ScatterToNoOutput.into());
    }
    let at = wrap_dim(dim, tensor.dim())?;
    let sizes =
        out.iter().enumerate().map(|(index, out)| places(&tensor, out, (index, at))).collect::<Result<Vec<i64>>>()?;
    let found = sizes.iter().fold(0_i64, |sum, &size| sum.saturating_add(size));
    let expected = tensor.size(dim)?;
    if found != expected {
        return Err(CommError::ScatterTotal { dim: at, expected, found }.into());
    }
    let run = || {
        for (index, (out, chunk)) in out.iter().zip(tensor.split_with_sizes(&sizes, dim)?).enumerate() {
            let stream = stream_at(index, streams, device_of(out).unwrap_or(0))?;
            let _current = stream.map(Stream::guard);
            copy(out, &chunk)?;
        }
        Ok(())
    };
    run().of("scatter", &[&tensor])
}

/// How many places an output has along the dimension of a scatter; its other sizes are the source's.
fn places(tensor: &Tensor, out: &Tensor, (index, at): (usize, usize)) -> Result<i64> {
    if !out.is_cuda() {
        return Err(CommError::OutputDevice { index, device: out.device() }.into());
    }
    let fits =
        out.dim() == tensor.dim() && (0..out.dim()).all(|dim| dim == at || out.sizes()[dim] == tensor.sizes()[dim]);
    match out.sizes().get(at) {
        Some(&places) if fits => Ok(places),
        _ => {
            let (found, source_sizes) = (out.sizes().to_vec(), tensor.sizes().to_vec());
            Err(CommError::ScatterShape { index, found, dim: at, source_sizes }.into())
        }
    }
}
