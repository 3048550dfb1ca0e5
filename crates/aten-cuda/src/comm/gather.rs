//! Tensors of several devices joined on one.

use c10_core::{Device, DeviceIndex, DeviceType, Runtime};

use super::transfer::{copy, copy_all};
use super::{as_real, not_negative};
use crate::base::comm_error::CommError;
use crate::base::error::{Result, invalid};
use crate::base::shape::{self, Dims, channels_last_strides, contiguous_strides, wrap_dim};
use crate::tensor::{Context, Tensor, ToDevice, empty_strided, is_host};

/// Where [`gather`] joins tensors: `None` for the current CUDA device, the number of a device, a [`Device`] or a text. The
/// number -1 is the host, with a warning, as in torch.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::comm::GatherDestination;
///
/// assert_eq!(Option::<i32>::None.gather_device()?.to_string(), "cuda:0");
/// assert_eq!((1_i32.gather_device()?.to_string(), "cpu".gather_device()?.to_string()), ("cuda:1".into(), "cpu".into()));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub trait GatherDestination {
    /// The device.
    ///
    /// # Errors
    /// The text or the number names none, or the runtime cannot start.
    fn gather_device(self) -> Result<Device>;
}

impl GatherDestination for Option<DeviceIndex> {
    fn gather_device(self) -> Result<Device> {
        match self {
            Some(-1) => {
                c10_core::warn(
                    "Using -1 to represent CPU tensor is deprecated. Please use a device object or string instead, e.g., \
                     \"cpu\".",
                );
                Ok(Device { kind: DeviceType::Cpu, index: None })
            }
            Some(index) => Ok(Device::cuda(not_negative(index)?)),
            None => Ok(Device::cuda(Runtime::with_current(Runtime::current_device)?)),
        }
    }
}

impl GatherDestination for DeviceIndex {
    fn gather_device(self) -> Result<Device> {
        Some(self).gather_device()
    }
}

impl GatherDestination for Device {
    fn gather_device(self) -> Result<Device> {
        self.to_device()
    }
}

impl GatherDestination for &str {
    fn gather_device(self) -> Result<Device> {
        self.to_device()
    }
}

/// The tensors one after another along `dim` (`torch.cuda.comm.gather`). They are on CUDA devices, and have the same sizes
/// elsewhere. The result lies row by row, or with its channels last where all tensors do so; it has the first one's dtype.
///
/// On a CUDA device the copies are queued on its current stream, after what is queued on those of the tensors' devices, and
/// large ones go on at once. On the host they are waited for.
///
/// Complex tensors are gathered as real ones with a last dimension of two.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let parts = [Tensor::zeros(&[2, 1], DType::F32, "cuda:0")?, Tensor::ones(&[2, 2], DType::F32, "cuda:1")?];
/// let all = comm::gather(&[&parts[0], &parts[1]], -1, None)?;
/// assert_eq!((all.device().to_string().as_str(), all.sizes()), ("cuda:0", &[2, 3][..]));
/// assert_eq!(all.to_vec::<f32>()?, [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There are no tensors, one is on the host or has other sizes, there is no such dimension or device, there is not enough
/// memory, or a device failed.
pub fn gather(tensors: &[&Tensor], dim: i64, destination: impl GatherDestination) -> Result<Tensor> {
    let tensors = real(tensors)?;
    let device = destination.gather_device()?;
    let (at, sizes) = joined(&tensors, dim)?;
    let is_last = |tensor: &Tensor| shape::has_channels_last(tensor.sizes(), tensor.strides());
    // Only tensors of four dimensions have this layout by torch's word for images.
    let all_last = tensors.iter().all(|tensor| tensor.dim() == 4 && is_last(tensor));
    let strides = if all_last { channels_last_strides(&sizes) } else { contiguous_strides(&sizes) };
    let run = || {
        let out = empty_strided(&sizes, &strides, tensors[0].dtype(), device)?;
        fill(&out, &tensors, at)?;
        Ok(out)
    };
    run().of("gather", &tensors.iter().collect::<Vec<_>>())
}

/// Copies the tensors one after another along `dim` into `out` (`torch.cuda.comm.gather(tensors, out=out)`), which may be
/// on the host.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let (out, part) = (Tensor::zeros(&[4], DType::F64, "cpu")?, Tensor::ones(&[2], DType::F32, "cuda:1")?);
/// comm::gather_out(&[&part, &part], &out, 0)?;
/// assert_eq!(out.to_vec::<f64>()?, [1.0; 4]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// As for [`gather`], or the output has other sizes than all tensors together.
pub fn gather_out(tensors: &[&Tensor], out: &Tensor, dim: i64) -> Result<()> {
    let tensors = real(tensors)?;
    let (at, sizes) = joined(&tensors, dim)?;
    if out.sizes() != &*sizes {
        return Err(CommError::GatherOutput { found: out.sizes().to_vec(), expected: sizes.to_vec() }.into());
    }
    fill(out, &tensors, at).of("gather", &tensors.iter().collect::<Vec<_>>())
}

fn real(tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
    tensors.iter().map(|tensor| as_real(tensor)).collect()
}

/// The dimension, and the sizes of all tensors together.
fn joined(tensors: &[Tensor], dim: i64) -> Result<(usize, Dims)> {
    let first = tensors.first().ok_or(CommError::GatherFromNone)?;
    let at = wrap_dim(dim, first.dim())?;
    if first.is_cuda() && first.dim() == 0 {
        return Err(invalid(format!("Dimension specified as {dim} but tensor has no dimensions")));
    }
    let mut expected = Dims::from_slice(first.sizes());
    let mut total = 0_i64;
    for (index, tensor) in tensors.iter().enumerate() {
        if !tensor.is_cuda() {
            return Err(CommError::GatherDevice { index, device: tensor.device() }.into());
        }
        if tensor.dim() != expected.len() {
            return Err(CommError::GatherRank { index, found: tensor.dim(), expected: expected.len() }.into());
        }
        expected[at] = tensor.sizes()[at];
        if tensor.sizes() != &*expected {
            return Err(
                CommError::GatherShape { index, found: tensor.sizes().to_vec(), expected: expected.to_vec() }.into()
            );
        }
        total = total.saturating_add(expected[at]);
    }
    expected[at] = total;
    Ok((at, expected))
}

/// Copies the tensors to their places.
fn fill(out: &Tensor, tensors: &[Tensor], at: usize) -> Result<()> {
    let dim = i64::try_from(at).unwrap_or(0);
    let lengths: Vec<i64> = tensors.iter().map(|tensor| tensor.sizes()[at]).collect();
    let places = out.split_with_sizes(&lengths, dim)?;
    if is_host(out.device()) {
        return places.iter().zip(tensors).try_for_each(|(place, tensor)| place.copy_(tensor).map(drop));
    }
    if let ([place], [tensor]) = (&places[..], tensors) {
        return copy(place, tensor);
    }
    copy_all(&places.into_iter().zip(tensors.iter().cloned()).collect::<Vec<_>>())
}
