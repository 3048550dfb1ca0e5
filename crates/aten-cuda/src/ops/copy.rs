//! Fills, copies and conversions.

use c10_core::{Device, DeviceBuffer, PinnedBuffer, Runtime};
use kernel_ir::Graph;

use crate::autocast::{self, Policies};
use crate::base::dtype::DType;
use crate::base::dtype_key::packed;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::layout::checked_reach;
use crate::base::scalar::Scalar;
use crate::base::shape::{self, Dims, contiguous_strides, is_non_overlapping_and_dense};
use crate::launch::{self, ProgramKey, Work};
use crate::ops::pointwise::{element_limit, scalar_bits, store};
use crate::storage::Storage;
use crate::tensor::{Context, Destination, Signs, Tensor, ToDevice, check_overlap, empty_strided, is_host, may_mix};

/// Whether a copy between the host and a device is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Yes,
    No,
}

impl Tensor {
    /// Sets every element to a value (`fill_`); expanded tensors are allowed.
    ///
    /// # Errors
    /// The dtype cannot represent the value, or the device failed.
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<&Self> {
        let value = value.into();
        value.check_fits(element_limit(self.dtype(), self.numel(), is_host(self.device())))?;
        let (ty, parts) = (self.dtype().compute_type(), self.dtype().parts());
        let key = ProgramKey::new("fill", self.dtype() as u64);
        let program = launch::program(key, || {
            let mut graph = Graph::new();
            for _ in 0..parts {
                let given = graph.scalar(ty);
                let converted = graph.convert(given, self.dtype().part());
                graph.output(converted);
            }
            graph.finish()
        })?;
        self.storage().note_write();
        // Writes each repeated element once.
        let target = &self.without_repeats()?;
        let scalars = scalar_bits(value, ty, parts);
        let work = Work { key, program, outputs: &[target], inputs: &[], scalars: &scalars };
        launch::run(&work, target.sizes())?;
        Ok(self)
    }

    /// Sets every element to zero (`zero_`); expanded tensors are allowed.
    ///
    /// # Errors
    /// The device failed.
    pub fn zero_(&self) -> Result<&Self> {
        self.fill_(0)
    }

    /// The pairs of a last dimension of two floats as complex numbers, as a view (`torch.view_as_complex`).
    ///
    /// # Errors
    /// The dtype is no float with complex numbers, the last dimension has not two elements side by side, or a pair does not
    /// begin where a complex number may.
    pub fn view_as_complex(&self) -> Result<Self> {
        let policies = const { Policies::of("view_as_complex") };
        match autocast::cast(policies, [self])? {
            Some((_inside, [cast])) => cast.pairs_as_complex(),
            None => self.pairs_as_complex(),
        }
    }

    /// Copies another tensor's elements, converted and broadcast, from whatever device (`copy_`). Between two devices the
    /// copy runs after the work of the current streams of both, and later work there runs after it. Between the host and a
    /// device the call waits until the copy is done.
    ///
    /// # Errors
    /// The sizes do not broadcast to this tensor's, there is not enough memory for a copy on the way, or a device
    /// failed.
    pub fn copy_(&self, source: &Self) -> Result<&Self> {
        self.copy_as(source, Waiting::Yes)
    }

    /// [`Self::copy_`] without waiting (`copy_(non_blocking=True)`): a copy between the host and a device is queued on
    /// the device's current stream. A pageable source is read before the call returns. A pinned source is read when the
    /// copy runs, even if its dtype or layout changes, since the device does the conversion; a pinned target has its
    /// elements only after the copy has run. The copy keeps both alive until then. A copy to pageable memory waits
    /// nevertheless, as in torch. A pinned view whose elements fill less than half of the bytes that it spans is also
    /// read before the call returns, unless the copy is captured.
    ///
    /// While the current stream is capturing, host memory must be pinned.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let host = Tensor::from_slice(&[1.0_f32, 2.0], &[2])?.pin_memory()?;
    /// let device = Tensor::empty(&[2], DType::F32, "cuda")?;
    /// device.copy_non_blocking_(&host)?;
    /// let back = Tensor::empty_pinned(&[2], DType::F32)?;
    /// back.copy_non_blocking_(&device.mul(10)?)?;
    /// aten_cuda::synchronize(None)?;
    /// assert_eq!(back.to_vec::<f32>()?, [10.0, 20.0]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::copy_`].
    pub fn copy_non_blocking_(&self, source: &Self) -> Result<&Self> {
        self.copy_as(source, Waiting::No)
    }

    fn copy_as(&self, source: &Self, waiting: Waiting) -> Result<&Self> {
        let run = || {
            check_overlap(self, &[])?;
            let sizes = shape::broadcast(self.sizes(), source.sizes())?;
            if sizes.as_slice() != self.sizes() {
                let (output, result) = (self.sizes().to_vec(), sizes.to_vec());
                return Err(TensorError::OutputShape { output, result }.into());
            }
            let source = source.expand(self.sizes())?;
            if self.device() == source.device() {
                check_overlap(self, &[&source])?;
                let source = if may_mix(self, &source) {
                    convert(&source, source.dtype(), &contiguous_strides(source.sizes()))?
                } else {
                    source
                };
                copy_on_device(self, &source)?;
            } else {
                copy_across(self, &source, waiting)?;
            }
            Ok(self)
        };
        run().of("copy_", &[self, source])
    }

    /// The elements on another device, in another dtype, or as another tensor has them (`to`); the tensor itself where
    /// nothing changes. How copies are ordered and waited for, [`Self::copy_`] says.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let host = Tensor::from_slice(&[1.5_f64, -2.5], &[2])?;
    /// let device = host.to("cuda")?;
    /// assert_eq!(device.to(DType::I32)?.to_vec::<i32>()?, [1, -2]);
    /// let half = host.to(("cuda:0", DType::F16))?;
    /// assert_eq!((half.to(&host)?.dtype(), half.to(&host)?.device()), (DType::F64, host.device()));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// The device does not exist, there is not enough memory, or a device failed.
    pub fn to(&self, destination: impl Destination) -> Result<Self> {
        let (device, dtype) = destination.destination()?;
        let device = device.unwrap_or(self.device());
        let dtype = dtype.unwrap_or(self.dtype());
        // The smaller elements are those that travel.
        if dtype.itemsize() < self.dtype().itemsize() {
            self.to_dtype(dtype)?.moved(device, Waiting::Yes)
        } else {
            self.moved(device, Waiting::Yes)?.to_dtype(dtype)
        }
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

    /// The elements on another device; the tensor itself where it is there already (`to(device)`). How copies are ordered
    /// and waited for, [`Self::copy_`] says.
    ///
    /// # Errors
    /// The device does not exist, there is not enough memory, or a device failed.
    pub fn to_device(&self, device: impl ToDevice) -> Result<Self> {
        self.moved(device.to_device()?, Waiting::Yes)
    }

    /// [`Self::to_device`] without waiting (`to(device, non_blocking=True)`), as [`Self::copy_non_blocking_`] does. On the
    /// host the result is pinned, as in torch, and has its elements when the device's current stream has come so far.
    ///
    /// # Errors
    /// As for [`Self::to_device`].
    pub fn to_device_non_blocking(&self, device: impl ToDevice) -> Result<Self> {
        self.moved(device.to_device()?, Waiting::No)
    }

    /// The elements on a CUDA device, the current one for `None` (`cuda`).
    ///
    /// # Errors
    /// The device does not exist, there is not enough memory, or a device failed.
    pub fn cuda(&self, device: impl c10_core::DeviceArg) -> Result<Self> {
        self.moved(cuda_device(device)?, Waiting::Yes)
    }

    /// [`Self::cuda`] without waiting (`cuda(non_blocking=True)`), as [`Self::copy_non_blocking_`] does.
    ///
    /// # Errors
    /// As for [`Self::cuda`].
    pub fn cuda_non_blocking(&self, device: impl c10_core::DeviceArg) -> Result<Self> {
        self.moved(cuda_device(device)?, Waiting::No)
    }

    /// The elements on the host, after the work of the current stream (`cpu`).
    ///
    /// # Errors
    /// The device failed.
    pub fn cpu(&self) -> Result<Self> {
        self.to_device("cpu")
    }

    fn moved(&self, device: Device, waiting: Waiting) -> Result<Self> {
        if device == self.device() {
            return Ok(self.clone());
        }
        let run = || {
            let strides = preserved_strides(self);
            let made = if is_host(device) && waiting == Waiting::No {
                pinned_strided(self.sizes(), &strides, self.dtype())?
            } else {
                empty_strided(self.sizes(), &strides, self.dtype(), device)?
            };
            copy_across(&made, self, waiting)?;
            Ok(made)
        };
        run().of("to", &[self])
    }

    /// A tensor in pinned memory of the host whose elements are not set (`torch.empty(pin_memory=True)`), filled as
    /// [`Self::empty`] is while deterministic algorithms are used.
    ///
    /// # Errors
    /// A size is negative, there is not enough memory to pin, or the runtime cannot start.
    pub fn empty_pinned(sizes: &[i64], dtype: DType) -> Result<Self> {
        shape::checked_numel(sizes)?;
        pinned_strided(sizes, &contiguous_strides(sizes), dtype)?.with_values()
    }

    /// The elements in pinned memory of the host; the tensor itself where it is in such (`pin_memory`). Devices copy from
    /// it and to it while the program goes on, and reuse the memory only after that.
    ///
    /// # Errors
    /// The tensor is on a device, there is not enough memory to pin, or the runtime cannot start.
    pub fn pin_memory(&self) -> Result<Self> {
        if self.is_pinned() {
            return Ok(self.clone());
        }
        if !is_host(self.device()) {
            let name = self.dtype().scalar_type_name();
            return Err(invalid(format!("cannot pin 'torch.cuda.{name}Tensor' only dense CPU tensors can be pinned")));
        }
        let run = || {
            let made = pinned_strided(self.sizes(), &preserved_strides(self), self.dtype())?;
            copy_on_device(&made, self)?;
            Ok(made)
        };
        run().of("pin_memory", &[self])
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

    /// The elements one after another in memory as they are, the last dimension fastest; the tensor itself where they lie
    /// so.
    pub(crate) fn packed(&self) -> Result<Self> {
        if self.is_contiguous() { self.resolved() } else { self.contiguous() }
    }

    /// Turns signs of all elements as they lie in memory.
    pub(crate) fn turn_signs(&self, signs: Signs) -> Result<()> {
        if signs == Signs::PLAIN {
            return Ok(());
        }
        let stored = self.as_stored();
        copy_by_program(&stored, &stored.with_signs(signs))
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
    let signs = source.signs().towards(target.signs());
    let target = &target.as_stored();
    if source.dtype() == target.dtype()
        && !is_host(target.device())
        // A trace has copies as programs, which may become parts of others.
        && !launch::record::is_on()
        && launch::library::transpose::copy(target, &source.as_stored()).of("copy", &[target, source])?
    {
        return target.turn_signs(signs);
    }
    copy_by_program(target, &source.with_signs(signs))
}

fn copy_by_program(target: &Tensor, source: &Tensor) -> Result<()> {
    let (from, to) = (source.dtype(), target.dtype());
    let key = ProgramKey::new("copy", packed([Some(from), Some(to)]));
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

fn cuda_device(device: impl c10_core::DeviceArg) -> Result<Device> {
    Ok(Device::cuda(Runtime::with_current(|runtime| device.resolve(runtime))?))
}

/// Copies between the host and a device, or between two devices. Pinned memory is transferred in its own layout and
/// converted on the device; pageable memory is converted to the target's dtype and layout before the transfer.
fn copy_across(target: &Tensor, source: &Tensor, waiting: Waiting) -> Result<()> {
    let (source, target) = (&source.with_signs(source.signs().towards(target.signs())), &target.as_stored());
    let is_captured = refuse_pageable_in_capture([target, source])?;
    let fits = |tensor: &Tensor| {
        tensor.strides() == target.strides() && tensor.dtype() == target.dtype() && tensor.signs() == Signs::PLAIN
    };
    if !is_non_overlapping_and_dense(target.sizes(), target.strides()) {
        let made = empty_strided(target.sizes(), &contiguous_strides(target.sizes()), target.dtype(), target.device())?;
        copy_across(&made, source, waiting)?;
        return copy_on_device(target, &made);
    }
    if !fits(source)
        && source.storage().pinned().is_some()
        && let Some(moved) = moved_as_it_lies(source, target.device(), is_captured)?
    {
        copy_on_device(target, &moved)?;
        return target.storage().buffer().map_or(Ok(()), |buffer| wait_for(buffer, waiting));
    }
    let laid_out = if fits(source) { source.clone() } else { convert(source, target.dtype(), target.strides())? };
    let (bytes, at) = (laid_out.nbytes(), target.byte_offset());
    if bytes == 0 {
        return Ok(());
    }
    let range = laid_out.byte_offset()..laid_out.byte_offset() + bytes;
    let (from, to) = (laid_out.plain_storage()?, target.plain_storage()?);
    if is_constant(target, from, &range)? {
        return Ok(());
    }
    match (from.buffer(), to.buffer(), from.pinned(), to.pinned()) {
        (Some(from), Some(to), ..) => Ok(to.copy_from_buffer(at, from, range, None)?),
        (_, Some(to), Some(from), _) => {
            to.copy_from_pinned(at, from, range, None)?;
            wait_for(to, waiting)
        }
        (Some(from), _, _, Some(to)) => {
            from.copy_to_pinned(range, to, at, None)?;
            wait_for(from, waiting)
        }
        (_, Some(to), ..) if waiting == Waiting::No => {
            let staged = PinnedBuffer::new(bytes)?;
            staged.write(0, &from.read(range.start, bytes)?)?;
            Ok(to.copy_from_pinned(at, &staged, .., None)?)
        }
        (_, Some(to), ..) => from.copy_to_device(range, to, at),
        _ => to.write(at, &from.read(range.start, bytes)?),
    }
}

/// Waits for the current stream of a buffer's device if `waiting` asks for it.
fn wait_for(buffer: &DeviceBuffer, waiting: Waiting) -> Result<()> {
    match waiting {
        Waiting::Yes => {
            let device = buffer.device_index();
            Ok(Runtime::with_current(|runtime| runtime.streams().current(device)?.synchronize())?)
        }
        Waiting::No => Ok(()),
    }
}

/// Rejects pageable host memory if the copy would be captured, since a replay could not read it again. Returns whether
/// the copy is captured.
fn refuse_pageable_in_capture(tensors: [&Tensor; 2]) -> Result<bool> {
    let Some(device) = tensors.iter().find_map(|tensor| tensor.device().index) else { return Ok(false) };
    let is_capturing = || Runtime::with_current(|runtime| runtime.streams().current(device)?.is_capturing());
    if launch::record::is_on() || !is_capturing()? {
        return Ok(false);
    }
    let is_pageable =
        |tensor: &&Tensor| is_host(tensor.device()) && tensor.storage().pinned().is_none() && tensor.numel() > 0;
    if tensors.iter().any(is_pageable) {
        return Err(invalid(
            "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned. Please use \
             tensor.pin_memory() or allocate the tensor with pin_memory=True.",
        ));
    }
    Ok(true)
}

/// Largest ratio of bytes spanned to bytes of elements for which the gaps of a view are transferred too.
const MOST_SPREAD: usize = 2;

/// Queues a copy of a pinned view to a device with its dtype, strides and signs; conversions then run on the device, in
/// stream order. Returns `None` if the elements are so far apart that the host should pack them first. In a capture the
/// gaps are always transferred, since each replay reads the pinned memory again.
fn moved_as_it_lies(source: &Tensor, device: Device, is_captured: bool) -> Result<Option<Tensor>> {
    let (Some(pinned), extent) = (source.storage().pinned(), source.byte_extent()) else { return Ok(None) };
    if source.numel() == 0 || (!is_captured && extent > source.nbytes().saturating_mul(MOST_SPREAD)) {
        return Ok(None);
    }
    let storage = Storage::new(extent, device)?;
    let Some(buffer) = storage.buffer() else { return Ok(None) };
    let start = source.byte_offset();
    buffer.copy_from_pinned(0, pinned, start..start + extent, None)?;
    let (sizes, strides) = (Dims::from_slice(source.sizes()), Dims::from_slice(source.strides()));
    let moved = Tensor::view_of(storage, source.dtype(), sizes, strides, 0)?;
    Ok(Some(moved.with_signs(source.signs())))
}

/// Has a trace copy a constant of the traced function from memory of the device, where there is room for it.
fn is_constant(target: &Tensor, from: &Storage, range: &std::ops::Range<usize>) -> Result<bool> {
    if !launch::record::is_on() || !from.is_constant() {
        return Ok(false);
    }
    let bytes = from.read(range.start, range.len())?;
    let Some(constant) = launch::record::constant(target, bytes)? else { return Ok(false) };
    copy_by_program(target, &constant)?;
    Ok(true)
}

/// New pinned memory with these strides, which fill it without a gap.
fn pinned_strided(sizes: &[i64], strides: &[i64], dtype: DType) -> Result<Tensor> {
    let storage = Storage::new_pinned(checked_reach(dtype, sizes, strides)?)?;
    Tensor::view_of(storage, dtype, Dims::from_slice(sizes), Dims::from_slice(strides), 0)
}
