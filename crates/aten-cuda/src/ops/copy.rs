//! Fills, copies and conversions.

use kernel_ir::Graph;

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::base::scalar::Scalar;
use crate::base::shape::{Dims, contiguous_strides, is_non_overlapping_and_dense};
use crate::launch::{self, ProgramKey, Work};
use crate::ops::pointwise::{scalar_bits, store};
use crate::tensor::{Context, Tensor, ToDevice, empty_strided, is_host};

impl Tensor {
    /// Sets every element to a value (`fill_`).
    ///
    /// # Errors
    /// Several elements lie at one place, or the device failed.
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<&Self> {
        let (ty, parts) = (self.dtype().compute_type(), self.dtype().parts());
        let key = ProgramKey { operation: "fill", variant: self.dtype() as u64 };
        let program = launch::program(key, || {
            let mut graph = Graph::new();
            for _ in 0..parts {
                let given = graph.scalar(ty);
                let converted = graph.convert(given, self.dtype().part());
                graph.output(converted);
            }
            graph.finish()
        })?;
        crate::ops::pointwise::check_overlap(self, &[])?;
        let scalars = scalar_bits(value.into(), ty, parts);
        let work = Work { key, program, outputs: &[self], inputs: &[], scalars: &scalars };
        launch::run(&work, self.sizes())?;
        Ok(self)
    }

    /// Sets every element to zero (`zero_`).
    ///
    /// # Errors
    /// Several elements lie at one place, or the device failed.
    pub fn zero_(&self) -> Result<&Self> {
        self.fill_(0)
    }

    /// Copies another tensor's elements, converted and broadcast, from whatever device (`copy_`).
    ///
    /// # Errors
    /// The sizes do not broadcast to this tensor's, there is not enough memory for a copy on the way, or a device
    /// failed.
    pub fn copy_(&self, source: &Self) -> Result<&Self> {
        let run = || {
            let source = source.expand(self.sizes())?;
            crate::ops::pointwise::check_overlap(self, &[])?;
            if self.device() == source.device() {
                let overlaps = crate::ops::pointwise::check_overlap(self, &[&source]).is_err();
                let source = if overlaps {
                    convert(&source, source.dtype(), &contiguous_strides(source.sizes()))?
                } else {
                    source
                };
                copy_on_device(self, &source)?;
            } else {
                copy_across(self, &source)?;
            }
            Ok(self)
        };
        run().of("copy_", &[self, source])
    }

    /// The elements in another dtype; the tensor itself where it has that dtype already (`to(dtype)`).
    ///
    /// # Errors
    /// There is not enough memory, or the device failed.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        convert(self, dtype, &preserved_strides(self))
    }

    /// The elements on another device; the tensor itself where it is there already (`to(device)`).
    ///
    /// # Errors
    /// The device does not exist, there is not enough memory, or a device failed.
    pub fn to_device(&self, device: impl ToDevice) -> Result<Self> {
        let device = device.to_device()?;
        if device == self.device() {
            return Ok(self.clone());
        }
        let run = || {
            let made = empty_strided(self.sizes(), &preserved_strides(self), self.dtype(), device)?;
            copy_across(&made, self)?;
            Ok(made)
        };
        run().of("to", &[self])
    }

    /// The elements on a CUDA device, the current one for `None` (`cuda`).
    ///
    /// # Errors
    /// The device does not exist, there is not enough memory, or a device failed.
    pub fn cuda(&self, device: impl c10_core::DeviceArg) -> Result<Self> {
        let index = c10_core::Runtime::with_current(|runtime| device.resolve(runtime))?;
        self.to_device(c10_core::Device::cuda(index))
    }

    /// The elements on the host, after the work of the current stream (`cpu`).
    ///
    /// # Errors
    /// The device failed.
    pub fn cpu(&self) -> Result<Self> {
        self.to_device("cpu")
    }

    /// A copy with memory of its own and the same layout, as far as that has no gaps (`clone`).
    ///
    /// # Errors
    /// There is not enough memory, or the device failed.
    #[doc(alias = "clone")]
    pub fn copy(&self) -> Result<Self> {
        convert(self, self.dtype(), &preserved_strides(self))
    }

    /// The elements one after another, the last dimension fastest; the tensor itself where they are (`contiguous`).
    ///
    /// # Errors
    /// There is not enough memory, or the device failed.
    pub fn contiguous(&self) -> Result<Self> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        convert(self, self.dtype(), &contiguous_strides(self.sizes()))
    }
}

/// The strides of a copy: the same where they leave no gap, else the order of memory (`torch.preserve_format`).
pub(crate) fn preserved_strides(tensor: &Tensor) -> Dims {
    if is_non_overlapping_and_dense(tensor.sizes(), tensor.strides()) {
        return Dims::from_slice(tensor.strides());
    }
    crate::iterate::result_strides(tensor.sizes(), &[tensor], false)
}

/// A new tensor on the same device.
pub(crate) fn convert(source: &Tensor, dtype: DType, strides: &[i64]) -> Result<Tensor> {
    let made = empty_strided(source.sizes(), strides, dtype, source.device())?;
    copy_on_device(&made, source)?;
    Ok(made)
}

/// Copies elements, which may change their dtype. Both tensors have the same sizes and device.
fn copy_on_device(target: &Tensor, source: &Tensor) -> Result<()> {
    let (from, to) = (source.dtype(), target.dtype());
    if from == to && !is_host(target.device()) && launch::library::transpose::copy(target, source)? {
        return Ok(());
    }
    let key = ProgramKey { operation: "copy", variant: (from as u64) << 4 | to as u64 };
    let program = launch::program(key, || {
        let mut graph = Graph::new();
        let parts: Vec<_> = (0..from.parts()).map(|_| graph.input(from.part())).collect();
        if from == to {
            parts.into_iter().for_each(|part| graph.output(part));
        } else {
            let real = parts[0];
            let zero = graph.number(from.compute_type(), 0);
            store(&mut graph, (real, parts.get(1).copied().unwrap_or(zero)), from, to);
        }
        graph.finish()
    })?;
    let work = Work { key, program, outputs: &[target], inputs: &[source], scalars: &[] };
    launch::run(&work, target.sizes())
}

/// Copies between the host and a device, or between two devices. Elements are converted before they travel, and laid
/// out as the target has them.
fn copy_across(target: &Tensor, source: &Tensor) -> Result<()> {
    let fits = |tensor: &Tensor| tensor.strides() == target.strides() && tensor.dtype() == target.dtype();
    if !is_non_overlapping_and_dense(target.sizes(), target.strides()) {
        let made = empty_strided(target.sizes(), &contiguous_strides(target.sizes()), target.dtype(), target.device())?;
        copy_across(&made, source)?;
        return copy_on_device(target, &made);
    }
    let laid_out = if fits(source) { source.clone() } else { convert(source, target.dtype(), target.strides())? };
    if target.numel() == 0 {
        return Ok(());
    }
    let bytes = laid_out.nbytes();
    match (laid_out.storage().buffer(), target.storage().buffer()) {
        (Some(from), Some(to)) => {
            let range = laid_out.byte_offset()..laid_out.byte_offset() + bytes;
            to.copy_from_buffer(target.byte_offset(), from, range, None)?;
            Ok(())
        }
        _ if is_host(laid_out.device()) => {
            let host = laid_out.storage().host().ok_or_else(|| TensorError::Invalid("no host memory".into()))?;
            let start = laid_out.byte_offset();
            target.storage().write(target.byte_offset(), &host[start..start + bytes])
        }
        _ => {
            let read = laid_out.storage().read(laid_out.byte_offset(), bytes)?;
            target.storage().write(target.byte_offset(), &read)
        }
    }
}
