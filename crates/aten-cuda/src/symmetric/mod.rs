//! Memory at the same offset on all devices of a process, which all of them reach, and what kernels do by it: sums over all
//! devices, barriers, copies to and from other devices (`torch.distributed._symmetric_memory`, in one process).
//!
//! A [`Symmetric`] belongs to some devices; the place of a device among them is its rank. A call that all ranks take part
//! in queues one kernel on the current stream of each device and waits for nothing. The kernels wait for each other: each
//! begins when its own stream comes to it, and is done when all have come and done their part. No stream waits for another.
//! Multicast of NVLink switches is not used.
//!
//! Sums are added in the order of the ranks on every device, so that all have the same bits: floats of 16 bits as floats of
//! 32 bits that are rounded once, integers modulo their range, booleans by or. Up to 64 KiB each device sends its elements to
//! all others and adds all of them; larger tensors are cut into a part for each device, which adds it, and then takes the
//! other parts.
//!
//! # When a device does not come
//! The kernels of the others wait: as long as the timeout says ([`Symmetric::set_timeout`]; without one, for ever), and a
//! wait that takes longer is a trap, which ends the context of that device. [`Symmetric::abort`] ends all waits from the
//! host: the kernels end without their results, and the memory cannot be used for such calls any more. A call that fails on
//! one device after it was queued on another does so by itself. The simulated driver reports kernels that wait for each other
//! for ever.
//!
//! ```
//! # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
//! use aten_cuda::symmetric::Symmetric;
//! use aten_cuda::{DType, Tensor};
//!
//! let symmetric = Symmetric::new(1024, &[0, 1])?;
//! let (one, two) = (Tensor::full(&[5], 1, DType::F32, "cuda:0")?, Tensor::full(&[5], 2, DType::F32, "cuda:1")?);
//! symmetric.all_reduce_(&[&one, &two])?;
//! assert_eq!((one.to_vec::<f32>()?, two.to_vec::<f32>()?), (vec![3.0; 5], vec![3.0; 5]));
//! # Ok::<(), aten_cuda::Error>(())
//! ```
//!
//! **Invariants:** a call is queued on all ranks or ends the use of the memory. Calls of several threads are queued one after
//! another, in one order on all devices. The calls of a rank run one after another, on whatever streams they are.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c10_core::{DeviceArg, DeviceIndex, Runtime, Stream, SymmetricMemory};

use crate::base::comm_error::CommError;
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::{checked_numel, contiguous_strides, is_non_overlapping_and_dense};
use crate::launch::library::symmetric as kernels;
use crate::launch::library::symmetric::{Kind, Launches, Part, Region};
use crate::storage::Storage;
use crate::tensor::{Context, Tensor};

/// Memory at the same offset on some devices of this process, and sums, barriers and copies by it.
///
/// Beside what was asked for each device has about 4 MiB, and 256 KiB for each rank, that the kernels use. The memory is
/// given back when this and the tensors of it are dropped and the work with them is done.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::symmetric::Symmetric;
/// use aten_cuda::{DType, Tensor};
///
/// let symmetric = Symmetric::new(64, &[0, 1])?;
/// let there = symmetric.tensor(1, &[4], DType::I32, 0)?;
/// symmetric.put(0, &Tensor::arange(0, 4, 1, Some(DType::I32), "cuda:0")?, 1, 0)?;
/// symmetric.barrier()?;
/// assert_eq!(there.to_vec::<i32>()?, [0, 1, 2, 3]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub struct Symmetric {
    memory: SymmetricMemory,
    devices: Vec<DeviceIndex>,
    bytes: usize,
    launches: Vec<Launches>,
    limit_ns: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Where the last call of each rank was queued.
    last: Vec<Option<Stream>>,
    /// Streams of each device on which waits are ended.
    aside: Vec<Stream>,
    is_aborted: bool,
}

impl Symmetric {
    /// Memory of so many bytes on each of the devices, at most 16, for tensors ([`Self::tensor`]), with all that sums and
    /// barriers need. It holds whatever was there before. Waits until the devices are ready for it.
    ///
    /// # Errors
    /// There are no devices, more than 16, one twice or one that does not exist; one does not reach another's memory; there
    /// is not enough memory; a current stream captures; or a device failed.
    pub fn new<D: DeviceArg + Clone>(bytes: usize, devices: &[D]) -> Result<Self> {
        let runtime = Runtime::current();
        let devices: Vec<DeviceIndex> =
            devices.iter().map(|device| device.clone().resolve(&runtime)).collect::<c10_core::Result<_>>()?;
        if devices.len() > kernels::RANKS {
            return Err(CommError::TooManyRanks { found: devices.len(), most: kernels::RANKS }.into());
        }
        let head = kernels::head(devices.len());
        let memory = runtime.memory().symmetric(head.saturating_add(bytes), &devices)?;
        let users: Vec<u8> =
            (0..devices.len()).flat_map(|rank| (memory.part(rank).address() + head as u64).to_le_bytes()).collect();
        for (rank, &device) in devices.iter().enumerate() {
            let stream = runtime.streams().current(device)?;
            memory.part(rank).fill(0..kernels::cleared(devices.len()), 0, &stream)?;
            memory.part(rank).copy_from_slice(0, &users)?;
        }
        // Others write to a device's memory from now on.
        devices.iter().try_for_each(|&device| runtime.streams().current(device)?.synchronize())?;
        let aside = devices.iter().map(|&device| Stream::new_unpooled(device, 0)).collect::<c10_core::Result<_>>()?;
        let launches = devices.iter().map(|&device| Launches::new(device)).collect();
        let state = State { last: vec![None; devices.len()], aside, is_aborted: false };
        Ok(Self { memory, devices, bytes, launches, limit_ns: AtomicU64::new(0), state: Mutex::new(state) })
    }

    /// The devices, by their ranks.
    #[must_use]
    pub fn devices(&self) -> &[DeviceIndex] {
        &self.devices
    }

    /// Bytes for tensors on each device.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Ends the context of a device that waits for longer in a kernel for another, by a trap; `None` lets it wait for
    /// ever, as it does at first. Calls that are queued from now on follow it. The time counts from when the kernel first
    /// looks at the clock, after some looks in vain.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        let nanoseconds = timeout.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
        self.limit_ns.store(nanoseconds, Ordering::Relaxed);
    }

    /// Where the memory for tensors of each rank begins, as addresses of 64 bits in memory of a rank's device: for kernels
    /// of the program, which reach all of it. It is not to be written.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn table(&self, rank: usize) -> Result<Tensor> {
        self.check_rank(rank)?;
        let storage = Storage::from_buffer(self.memory.part(rank).clone());
        let ranks = i64::try_from(self.devices.len()).unwrap_or(i64::MAX);
        Tensor::from_storage(storage, DType::I64, &[ranks], &[1], 0)
    }

    /// A contiguous tensor of a rank's memory, on its device, from a byte on. Tensors of the same sizes, dtype and
    /// place on several ranks lie at the same offset.
    ///
    /// # Errors
    /// There is no such rank, the place is no multiple of the element's size, or the tensor is not inside the memory.
    pub fn tensor(&self, rank: usize, sizes: &[i64], dtype: DType, place: usize) -> Result<Tensor> {
        self.check_rank(rank)?;
        let count = usize::try_from(checked_numel(sizes)?).unwrap_or(usize::MAX);
        let bytes = count.saturating_mul(dtype.itemsize());
        if !place.is_multiple_of(dtype.itemsize()) || place.saturating_add(bytes) > self.bytes {
            return Err(CommError::OutsideSymmetric { place, bytes, all: self.bytes }.into());
        }
        let first = (kernels::head(self.devices.len()) + place) / dtype.itemsize();
        let storage = Storage::from_buffer(self.memory.part(rank).clone());
        let offset = i64::try_from(first).unwrap_or(i64::MAX);
        Tensor::from_storage(storage, dtype, sizes, &contiguous_strides(sizes), offset)
    }

    /// Adds tensors of the same sizes and dtype, one on each rank's device, and writes the sum to each of them
    /// (`torch.distributed.all_reduce`). See the module for the order and the rounding. Queued on the current streams of the
    /// devices; one kernel each, where all lie alike and without gaps in memory.
    ///
    /// # Errors
    /// As for [`Self::all_reduce_out`].
    pub fn all_reduce_(&self, tensors: &[&Tensor]) -> Result<()> {
        self.all_reduce_out(tensors, tensors)
    }

    /// As [`Self::all_reduce_`], with the sums written to other tensors of the same sizes and dtype.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
    /// use aten_cuda::symmetric::Symmetric;
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let symmetric = Symmetric::new(0, &[1, 0])?;
    /// let of = |device: &str| Tensor::ones(&[2, 3], DType::BF16, device);
    /// let (inputs, outputs) = ([of("cuda:1")?, of("cuda:0")?], [of("cuda:1")?, of("cuda:0")?]);
    /// symmetric.all_reduce_out(&[&inputs[0], &inputs[1]], &[&outputs[0], &outputs[1]])?;
    /// assert_eq!(outputs[1].to_dtype(DType::F32)?.to_vec::<f32>()?, [2.0; 6]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// There are more or fewer tensors than ranks; one is not on its rank's device or has other sizes or another dtype;
    /// floats of 8 bits; calls were ended ([`Self::abort`]); or a device failed.
    pub fn all_reduce_out(&self, inputs: &[&Tensor], outputs: &[&Tensor]) -> Result<()> {
        let run = || {
            let kind = self.check_tensors(inputs, outputs)?;
            if inputs[0].numel() == 0 {
                return Ok(());
            }
            if inputs.iter().chain(outputs).all(|tensor| lies_like(tensor, inputs[0])) {
                return self.queue_sums(kind, inputs, outputs);
            }
            let packed = inputs.iter().map(|input| input.packed()).collect::<Result<Vec<Tensor>>>()?;
            let make = |input: &Tensor| Tensor::uninitialized(input.sizes(), input.dtype(), input);
            let made = packed.iter().map(make).collect::<Result<Vec<Tensor>>>()?;
            let lists: [Vec<&Tensor>; 2] = [packed.iter().collect(), made.iter().collect()];
            self.queue_sums(kind, &lists[0], &lists[1])?;
            outputs.iter().zip(&made).try_for_each(|(output, made)| output.copy_non_blocking_(made).map(drop))
        };
        run().of("all_reduce", inputs)
    }

    /// Waits on the current stream of each device until those of all others have come here. What kernels wrote to the
    /// memory before, on any of the devices, can be read after it on all of them.
    ///
    /// # Errors
    /// Calls were ended ([`Self::abort`]), or a device failed.
    pub fn barrier(&self) -> Result<()> {
        let runtime = Runtime::current();
        self.launches.iter().try_for_each(|launches| launches.prepare_barrier().map(drop))?;
        self.queue_on_all(&runtime, |rank, region| self.launches[rank].queue_barrier(&runtime, region))
    }

    /// Copies a tensor of the device of rank `from` to the memory of rank `to`, from a byte on: by a kernel on the current
    /// stream of the tensor's device. Others may read it after a [`Self::barrier`].
    ///
    /// # Errors
    /// There is no such rank, the tensor is on another device, it is not inside the memory, or a device failed.
    pub fn put(&self, from: usize, tensor: &Tensor, to: usize, place: usize) -> Result<()> {
        let runtime = Runtime::current();
        let (region, place) = (self.region(from)?, self.check_copy((from, tensor), to, place)?);
        let packed = tensor.packed()?;
        match part_of(&packed) {
            Some(part) => self.launches[from].put(&runtime, region, part, (to, place)),
            None => Ok(()),
        }
    }

    /// Copies from the memory of rank `from`, from a byte on, to a tensor of the device of rank `to`: by a kernel on the
    /// current stream of the tensor's device. What others wrote there may be read after a [`Self::barrier`].
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
    /// use aten_cuda::symmetric::Symmetric;
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let symmetric = Symmetric::new(64, &[0, 1])?;
    /// symmetric.tensor(1, &[3], DType::F64, 8)?.fill_(2.5)?;
    /// symmetric.barrier()?;
    /// let here = Tensor::zeros(&[3], DType::F64, "cuda:0")?;
    /// symmetric.get(0, &here, 1, 8)?;
    /// assert_eq!(here.to_vec::<f64>()?, [2.5; 3]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::put`].
    pub fn get(&self, to: usize, tensor: &Tensor, from: usize, place: usize) -> Result<()> {
        let runtime = Runtime::current();
        let (region, place) = (self.region(to)?, self.check_copy((to, tensor), from, place)?);
        let is_plain = tensor.is_contiguous() && tensor.plain_storage().is_ok();
        let made =
            if is_plain { tensor.clone() } else { Tensor::uninitialized(tensor.sizes(), tensor.dtype(), tensor)? };
        let Some(part) = part_of(&made) else { return Ok(()) };
        self.launches[to].get(&runtime, region, part, (from, place))?;
        made.storage().note_write();
        if is_plain { Ok(()) } else { tensor.copy_non_blocking_(&made).map(drop) }
    }

    /// Ends all waits of kernels: those that are queued end soon, without their results, and calls of all ranks are refused
    /// from now on. For when a device is known not to come.
    ///
    /// # Errors
    /// The driver refuses what ends them.
    pub fn abort(&self) -> Result<()> {
        abort(&self.memory, &mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_rank(&self, rank: usize) -> Result<()> {
        let ranks = self.devices.len();
        if rank < ranks { Ok(()) } else { Err(CommError::NoSuchRank { rank, ranks }.into()) }
    }

    fn region(&self, rank: usize) -> Result<Region<'_>> {
        self.check_rank(rank)?;
        Ok(Region { memory: &self.memory, rank, limit_ns: self.limit_ns.load(Ordering::Relaxed) })
    }

    /// Checks tensors of all ranks; how their elements are added.
    fn check_tensors(&self, inputs: &[&Tensor], outputs: &[&Tensor]) -> Result<Kind> {
        let ranks = self.devices.len();
        if let Some(list) = [inputs, outputs].into_iter().find(|list| list.len() != ranks) {
            return Err(CommError::TensorsOfRanks { found: list.len(), ranks }.into());
        }
        let first = inputs[0];
        for list in [inputs, outputs] {
            for (rank, tensor) in list.iter().enumerate() {
                self.check_place(rank, tensor)?;
                if tensor.sizes() != first.sizes() || tensor.dtype() != first.dtype() {
                    let found = (tensor.sizes().to_vec(), tensor.dtype());
                    let expected = (first.sizes().to_vec(), first.dtype());
                    return Err(CommError::UnlikeTensor { rank, found, expected }.into());
                }
            }
        }
        Kind::of(first.dtype()).ok_or_else(|| CommError::NoSums { dtype: first.dtype() }.into())
    }

    fn check_place(&self, rank: usize, tensor: &Tensor) -> Result<()> {
        let expected = self.devices[rank];
        let found = tensor.device();
        if tensor.is_cuda() && found.index.is_none_or(|index| index == expected) {
            return Ok(());
        }
        Err(CommError::DeviceOfRank { rank, found, expected }.into())
    }

    /// Checks a copy between a tensor of one rank and the memory of another; the place in its region.
    fn check_copy(&self, (rank, tensor): (usize, &Tensor), other: usize, place: usize) -> Result<usize> {
        self.check_rank(other)?;
        self.check_place(rank, tensor)?;
        let bytes = tensor.nbytes();
        if place.saturating_add(bytes) > self.bytes {
            return Err(CommError::OutsideSymmetric { place, bytes, all: self.bytes }.into());
        }
        Ok(kernels::head(self.devices.len()) + place)
    }

    /// Queues a sum of tensors that lie alike.
    fn queue_sums(&self, kind: Kind, inputs: &[&Tensor], outputs: &[&Tensor]) -> Result<()> {
        let runtime = Runtime::current();
        let (ranks, bytes) = (self.devices.len(), inputs[0].nbytes());
        let sums = self.launches.iter().map(|launches| launches.sum(kind, bytes, ranks));
        let sums = sums.collect::<Result<Vec<_>>>()?;
        self.queue_on_all(&runtime, |rank, region| {
            let (Some(from), Some(to)) = (part_of(inputs[rank]), part_of(outputs[rank])) else { return Ok(()) };
            self.launches[rank].queue_sum(&runtime, region, &sums[rank], from, to)
        })?;
        outputs.iter().for_each(|output| output.storage().note_write());
        Ok(())
    }

    /// Queues a kernel of each rank. Where one cannot be queued after others were, their waits are ended.
    fn queue_on_all(&self, runtime: &Runtime, queue: impl Fn(usize, Region<'_>) -> Result<()>) -> Result<()> {
        let mut state = self.lock();
        if state.is_aborted {
            return Err(CommError::Aborted.into());
        }
        for rank in 0..self.devices.len() {
            self.follow_last(runtime, &mut state, rank)?;
        }
        for rank in 0..self.devices.len() {
            let queued = self.region(rank).and_then(|region| queue(rank, region));
            if let Err(error) = queued {
                if rank > 0 {
                    // The error above is the one to return.
                    let _ = abort(&self.memory, &mut state);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Has the current stream of a rank wait for the one of the last call, where that is another.
    fn follow_last(&self, runtime: &Runtime, state: &mut State, rank: usize) -> Result<()> {
        let stream = runtime.streams().current(self.devices[rank])?;
        let last = &mut state.last[rank];
        if last.as_ref() == Some(&stream) {
            return Ok(());
        }
        if let Some(last) = last.as_ref()
            && !stream.is_capturing()?
            && !last.is_capturing()?
        {
            stream.wait_stream(last)?;
        }
        *last = Some(stream);
        Ok(())
    }
}

impl fmt::Debug for Symmetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symmetric").field("devices", &self.devices).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Ends all waits, on every device even if it fails on one.
fn abort(memory: &SymmetricMemory, state: &mut State) -> Result<()> {
    state.is_aborted = true;
    let mut ended = Ok(());
    for (rank, stream) in state.aside.iter().enumerate() {
        let filled = memory.part(rank).fill(kernels::ABORTED, 1, stream);
        ended = ended.and(filled.map_err(Error::from));
    }
    ended
}

/// Whether a tensor's elements lie in memory as those of another, without gaps.
fn lies_like(tensor: &Tensor, other: &Tensor) -> bool {
    tensor.strides() == other.strides()
        && is_non_overlapping_and_dense(tensor.sizes(), tensor.strides())
        && tensor.plain_storage().is_ok()
}

/// The bytes of a tensor that lies without gaps; nothing where it has none.
fn part_of(tensor: &Tensor) -> Option<Part<'_>> {
    let buffer = tensor.storage().buffer().filter(|_| tensor.nbytes() > 0)?;
    Some((buffer, tensor.byte_offset()..tensor.byte_offset() + tensor.nbytes()))
}
