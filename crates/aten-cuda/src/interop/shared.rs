//! Tensors whose memory several processes use (`torch.multiprocessing`, for tensors on CUDA devices).
//!
//! [`Tensor::share`] describes a tensor for another process; its bytes go through a pipe, a socket or a file, and
//! [`Tensor::from_shared`] makes the tensor there. Nothing is copied. How the memory is kept and given back, and what happens
//! when a process ends, is [`c10_core::SharedBuffer`]'s part; here is how a tensor lies in it.
//!
//! **Invariants:** the whole storage is shared, whatever part of it the tensor is a view of, so that two views of a storage
//! are views of one storage again where they arrive. What a description says of a view was checked when it was read: it lies
//! inside the memory.

use std::fmt;

use c10_core::{Device, DeviceBuffer, IpcError, SharedBuffer};

use crate::base::dtype::DType;
use crate::base::error::{Error, Result, invalid};
use crate::base::layout::check_inside;
use crate::base::shape::Dims;
use crate::storage::Storage;
use crate::tensor::{Signs, Tensor};

/// A description of a tensor for another process; made by [`Tensor::share`].
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// use aten_cuda::{DType, SharedTensor, Tensor};
///
/// let tensor = Tensor::arange(0, 6, 1, Some(DType::F32), "cuda")?.view(&[2, 3])?.t()?;
/// let bytes = tensor.share()?.to_bytes(); // For a pipe to the other process.
/// let shared = SharedTensor::from_bytes(&bytes)?;
/// assert_eq!((shared.dtype(), shared.sizes(), shared.strides()), (DType::F32, &[3, 2][..], &[1, 3][..]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SharedTensor {
    dtype: DType,
    sizes: Dims,
    strides: Dims,
    offset: i64,
    signs: Signs,
    is_parameter: bool,
    memory: SharedBuffer,
}

/// What the bytes of a shared tensor begin with; the last one is the version.
const MAGIC: [u8; 4] = [b'T', b'S', b'H', 1];
/// As many dimensions as a tensor may have that is shared; torch has the same limit for tensors that it iterates over.
const MOST_DIMS: usize = 64;

const CONJUGATE: u8 = 1;
const NEGATIVE: u8 = 2;
const PARAMETER: u8 = 4;

fn wrong_bytes() -> Error {
    c10_core::Error::Ipc(IpcError::InvalidBytes).into()
}

impl SharedTensor {
    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes.
    #[must_use]
    pub fn sizes(&self) -> &[i64] {
        &self.sizes
    }

    /// The strides in elements.
    #[must_use]
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// The place of the first element in the storage, in elements.
    #[must_use]
    pub fn storage_offset(&self) -> i64 {
        self.offset
    }

    /// The device in the process that shares it.
    #[must_use]
    pub fn device(&self) -> Device {
        Device::cuda(self.memory.device_index())
    }

    /// The memory of the whole storage.
    #[must_use]
    pub fn memory(&self) -> &SharedBuffer {
        &self.memory
    }

    /// The same as bytes, for a pipe or a file. A byte for the version stands among the first four.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let name = self.dtype.torch_name().as_bytes();
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.signs.is_conj, CONJUGATE)
            | flag(self.signs.is_neg, NEGATIVE)
            | flag(self.is_parameter, PARAMETER);
        // Names of dtypes are short, and `Tensor::share` has counted the dimensions.
        let short = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
        let mut bytes = MAGIC.to_vec();
        bytes.extend([flags, short(name.len())]);
        bytes.extend(name);
        bytes.push(short(self.sizes.len()));
        for number in self.sizes.iter().chain(&self.strides).chain([&self.offset]) {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.memory.to_bytes());
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`c10_core::IpcError::InvalidBytes`] for any other bytes, those of another version among them, and for a view that is
    /// not inside its memory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).ok_or_else(wrong_bytes)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut bytes = bytes.strip_prefix(&MAGIC)?;
        let [flags, length] = take(&mut bytes)?;
        let (name, mut bytes) = bytes.split_at_checked(length.into())?;
        let dtype = DType::ALL.into_iter().find(|dtype| dtype.torch_name().as_bytes() == name)?;
        let [rank] = take(&mut bytes)?;
        let rank = usize::from(rank);
        let mut number = || take(&mut bytes).map(i64::from_le_bytes);
        let sizes: Dims = (0..rank).map(|_| number()).collect::<Option<_>>()?;
        let strides: Dims = (0..rank).map(|_| number()).collect::<Option<_>>()?;
        let offset = number()?;
        let signs = Signs { is_conj: flags & CONJUGATE != 0, is_neg: flags & NEGATIVE != 0 };
        let has_signs = !signs.is_conj || dtype.is_complex();
        let has_signs = has_signs && (!signs.is_neg || dtype.is_complex() || dtype.is_floating_point());
        if rank > MOST_DIMS || flags > CONJUGATE | NEGATIVE | PARAMETER || !has_signs {
            return None;
        }
        let memory = SharedBuffer::from_bytes(bytes).ok()?;
        check_inside(memory.len(), dtype, &sizes, &strides, offset).ok()?;
        Some(Self { dtype, sizes, strides, offset, signs, is_parameter: flags & PARAMETER != 0, memory })
    }
}

impl fmt::Debug for SharedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedTensor {{ {} {:?} in {:?} }}", self.dtype, self.sizes(), self.memory)
    }
}

/// Takes the first bytes.
fn take<const COUNT: usize>(bytes: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

impl Storage {
    /// Describes the memory for another process (`_share_cuda_`); see [`DeviceBuffer::share`].
    ///
    /// ```
    /// # let simulated = testkit::simulated_runtime();
    /// use aten_cuda::{DType, Storage, Tensor};
    ///
    /// let tensor = Tensor::ones(&[4], DType::F32, "cuda")?;
    /// let shared = tensor.storage().share_cuda()?;
    /// assert_eq!(shared.len(), 16);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// The memory is not on a CUDA device, or as for [`DeviceBuffer::share`].
    #[doc(alias = "_share_cuda_")]
    pub fn share_cuda(&self) -> Result<SharedBuffer> {
        if self.deferred().is_none() && self.present().is_none() {
            return Err(invalid("_share_cuda_: only available on CUDA"));
        }
        Ok(self.buffer().ok_or_else(|| self.without_contents())?.share()?)
    }

    /// The memory that another process has shared (`_new_shared_cuda`); see [`DeviceBuffer::open_shared`].
    ///
    /// ```
    /// # let simulated = testkit::simulated_runtime();
    /// use aten_cuda::{DType, Storage, Tensor};
    ///
    /// let tensor = Tensor::ones(&[4], DType::F32, "cuda")?;
    /// let shared = tensor.storage().share_cuda()?;
    /// // Any process may open it; the one that has shared it gets its own memory back.
    /// assert!(Storage::new_shared_cuda(&shared)?.is_same(tensor.storage()));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`DeviceBuffer::open_shared`].
    #[doc(alias = "_new_shared_cuda")]
    pub fn new_shared_cuda(shared: &SharedBuffer) -> Result<Self> {
        Ok(Self::from_buffer(DeviceBuffer::open_shared(shared)?))
    }
}

impl Tensor {
    /// Describes the tensor for another process, which makes it with [`Self::from_shared`]; both then use the same memory
    /// (`torch.multiprocessing.reductions.reduce_tensor`). Each description is for one receiver.
    ///
    /// Work that is queued on the current stream of the tensor's device now runs before the work of the receiver. This
    /// process keeps the memory until the receiver has dropped it or has ended; [`c10_core::Ipc::collect`] looks whether that
    /// is so, as do further calls of this and an allocation that finds no memory.
    ///
    /// ```
    /// # let simulated = testkit::simulated_runtime();
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let tensor = Tensor::ones(&[4], DType::F32, "cuda")?;
    /// let bytes = tensor.narrow(0, 1, 2)?.share()?.to_bytes();
    /// assert_eq!(bytes[..3], *b"TSH");
    /// assert!(Tensor::ones(&[4], DType::F32, "cpu")?.share().is_err());
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// The tensor is not on a CUDA device or has more than 64 dimensions, or as for [`DeviceBuffer::share`].
    #[doc(alias = "reduce_tensor")]
    pub fn share(&self) -> Result<SharedTensor> {
        if self.dim() > MOST_DIMS {
            return Err(invalid(format!(
                "a tensor of {} dimensions cannot be shared: {MOST_DIMS} at most",
                self.dim()
            )));
        }
        let memory = self.storage().share_cuda()?;
        Ok(SharedTensor {
            dtype: self.dtype(),
            sizes: Dims::from_slice(self.sizes()),
            strides: Dims::from_slice(self.strides()),
            offset: self.storage_offset(),
            signs: self.signs(),
            is_parameter: self.is_parameter(),
            memory,
        })
    }

    /// The tensor that another process has described (`torch.multiprocessing.reductions.rebuild_cuda_tensor`). The current
    /// stream of its device waits here for the work that the sender had queued. Views of one storage are views of one storage
    /// here, too.
    ///
    /// ```
    /// # let simulated = testkit::simulated_runtime();
    /// use aten_cuda::{SharedTensor, Tensor};
    ///
    /// // In the other process: `Tensor::from_shared(&SharedTensor::from_bytes(&bytes)?)?`. Other bytes are refused:
    /// let refused = SharedTensor::from_bytes(b"something else").unwrap_err();
    /// assert_eq!(refused.to_string(), "the bytes are not those of a shared buffer");
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`DeviceBuffer::open_shared`], or the memory is smaller than the description says.
    #[doc(alias = "rebuild_cuda_tensor")]
    pub fn from_shared(shared: &SharedTensor) -> Result<Self> {
        let storage = Storage::new_shared_cuda(&shared.memory)?;
        let made = Self::from_storage(storage, shared.dtype, &shared.sizes, &shared.strides, shared.offset)?;
        let made = made.with_signs(shared.signs);
        Ok(if shared.is_parameter { made.marked_parameter() } else { made })
    }

    /// Whether other processes can be given the memory as it is (`is_shared`): always so on a CUDA device, never on the host.
    ///
    /// ```
    /// # let simulated = testkit::simulated_runtime();
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let tensor = Tensor::ones(&[4], DType::F32, "cuda")?;
    /// assert!(tensor.is_shared() && !tensor.cpu()?.is_shared());
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.is_cuda()
    }
}
