//! Fills, copies and conversions.

use c10_core::{Device, DeviceBuffer, PinnedBuffer, Runtime};
use kernel_ir::Graph;

use crate::autocast::{self, Policies};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::scalar::Scalar;
use crate::base::shape::{self, Dims, contiguous_strides, is_non_overlapping_and_dense};
use crate::launch::{self, ProgramKey, Work};
use crate::ops::pointwise::{scalar_bits, store};
use crate::storage::Storage;
use crate::tensor::{Context, Destination, Signs, Tensor, ToDevice, empty_strided, is_host};

/// Whether a copy between the host and a device is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Yes,
    No,
}

impl Tensor {
    /// Sets every element to a value (`fill_`).
    ///
    /// # Errors
    /// Several elements lie at one place, a float of 8 bits does not hold the value, or the device failed.
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<&Self> {
        let value = value.into();
        check_holds(self.dtype(), value)?;
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
        crate::ops::pointwise::check_overlap(self, &[])?;
        let scalars = scalar_bits(value, ty, parts);
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

    /// [`Self::copy_`] without waiting (`copy_(non_blocking=True)`): the copy between the host and a device is queued on
    /// the device's current stream. Elements that come from memory which is not pinned are taken before the call returns;
    /// pinned ones are read when the copy runs, and pinned memory that is copied to has the elements after it. Both stay
    /// alive until then. A copy to memory that is not pinned waits all the same, as in torch.
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
            let sizes = shape::broadcast(self.sizes(), source.sizes())?;
            if sizes.as_slice() != self.sizes() {
                let (output, result) = (self.sizes().to_vec(), sizes.to_vec());
                return Err(TensorError::OutputShape { output, result }.into());
            }
            let source = source.expand(self.sizes())?;
            crate::ops::pointwise::check_overlap(self, &[])?;
            if self.device() == source.device() {
                let overlaps = crate::ops::pointwise::check_overlap(self, &[&source]).is_err();
                if overlaps && refuses_overlap(self, &source) {
                    return Err(TensorError::PartialOverlap.into());
                }
                let source = if overlaps {
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

/// Refuses numbers that a float of 8 bits does not hold, as torch does.
fn check_holds(dtype: DType, value: Scalar) -> Result<()> {
    let largest = match dtype {
        DType::F8E4M3FN => 448.0,
        DType::F8E5M2 => 57344.0,
        _ => return Ok(()),
    };
    let number = value.to_f64();
    let is_held = number.is_nan() || number.abs() <= largest || (number.is_infinite() && dtype == DType::F8E5M2);
    if is_held && value.imaginary() == 0.0 {
        return Ok(());
    }
    Err(invalid(format!("value cannot be converted to type {} without overflow", dtype.cpp_name())))
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
    let key = ProgramKey::new("copy", (from as u64) << 4 | to as u64);
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

/// Copies between the host and a device, or between two devices. Elements are converted before they travel, and laid
/// out as the target has them.
fn copy_across(target: &Tensor, source: &Tensor, waiting: Waiting) -> Result<()> {
    let (source, target) = (&source.with_signs(source.signs().towards(target.signs())), &target.as_stored());
    let fits = |tensor: &Tensor| {
        tensor.strides() == target.strides() && tensor.dtype() == target.dtype() && tensor.signs() == Signs::PLAIN
    };
    if !is_non_overlapping_and_dense(target.sizes(), target.strides()) {
        let made = empty_strided(target.sizes(), &contiguous_strides(target.sizes()), target.dtype(), target.device())?;
        copy_across(&made, source, waiting)?;
        return copy_on_device(target, &made);
    }
    let laid_out = if fits(source) { source.clone() } else { convert(source, target.dtype(), target.strides())? };
    let (bytes, at) = (laid_out.nbytes(), target.byte_offset());
    if bytes == 0 {
        return Ok(());
    }
    let range = laid_out.byte_offset()..laid_out.byte_offset() + bytes;
    let wait = |buffer: &DeviceBuffer| match waiting {
        Waiting::Yes => {
            let device = buffer.device_index();
            Ok(Runtime::with_current(|runtime| runtime.streams().current(device)?.synchronize())?)
        }
        Waiting::No => Ok(()),
    };
    let (from, to) = (laid_out.plain_storage()?, target.plain_storage()?);
    if is_constant(target, from, &range)? {
        return Ok(());
    }
    match (from.buffer(), to.buffer(), from.pinned(), to.pinned()) {
        (Some(from), Some(to), ..) => Ok(to.copy_from_buffer(at, from, range, None)?),
        (_, Some(to), Some(from), _) => {
            to.copy_from_pinned(at, from, range, None)?;
            wait(to)
        }
        (Some(from), _, _, Some(to)) => {
            from.copy_to_pinned(range, to, at, None)?;
            wait(from)
        }
        (_, Some(to), ..) if waiting == Waiting::No => {
            let staged = PinnedBuffer::new(bytes)?;
            staged.write(0, &from.read(range.start, bytes)?)?;
            Ok(to.copy_from_pinned(at, &staged, .., None)?)
        }
        (Some(_), ..) => to.write(at, &from.read(range.start, bytes)?),
        _ => {
            let host = from.host().ok_or_else(|| TensorError::Invalid("no host memory".into()))?;
            to.write(at, &host[range])
        }
    }
}

/// Has a trace copy a constant of the traced function from memory of the device, where there is room for it.
fn is_constant(target: &Tensor, from: &Storage, range: &std::ops::Range<usize>) -> Result<bool> {
    if !launch::record::is_on() || !from.is_constant() {
        return Ok(false);
    }
    let Some(host) = from.host() else { return Ok(false) };
    let Some(constant) = launch::record::constant(target, &host[range.clone()])? else { return Ok(false) };
    copy_by_program(target, &constant)?;
    Ok(true)
}

/// New pinned memory with these strides, which fill it without a gap.
fn pinned_strided(sizes: &[i64], strides: &[i64], dtype: DType) -> Result<Tensor> {
    let too_large = || TensorError::TooLarge { sizes: sizes.to_vec() };
    let extent = shape::extent(sizes, strides).ok_or_else(too_large)?;
    let bytes = usize::try_from(extent).ok().and_then(|extent| extent.checked_mul(dtype.itemsize()));
    let storage = Storage::new_pinned(bytes.ok_or_else(too_large)?)?;
    Ok(Tensor::view_of(storage, dtype, Dims::from_slice(sizes), Dims::from_slice(strides), 0))
}

/// Whether torch refuses to write to a tensor that shares memory with a source: both fill their memory without gaps, so
/// that the overlap is certain, and they are not one view.
fn refuses_overlap(out: &Tensor, source: &Tensor) -> bool {
    let dense = |tensor: &Tensor| is_non_overlapping_and_dense(tensor.sizes(), tensor.strides());
    let is_one_view = out.byte_offset() == source.byte_offset() && out.byte_extent() == source.byte_extent();
    dense(out) && dense(source) && !is_one_view
}
