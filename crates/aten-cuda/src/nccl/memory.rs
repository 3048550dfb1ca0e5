//! Memory that NCCL allocates, for pools, and buffers that are registered with a communicator.
//!
//! Collectives on registered buffers need no copies through NCCL's own. NCCL can register any memory, and its own best.
//!
//! **Invariants:** what is given back was given. A registered tensor's memory stays as long as its registration.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use c10_core::{
    Allocation, AllocatorError, DeviceIndex, MemoryError, MemoryResource, NotDeallocated, Runtime, StreamView,
};
use cuda_sys::Nccl;

use super::asked::check_dense;
use super::communicator::Communicator;
use super::library::{self, Handle};
use crate::base::error::Result;
use crate::base::nccl_error::NcclError;
use crate::tensor::Tensor;

/// Memory of NCCL (`ncclMemAlloc`): the allocator of a pool whose tensors NCCL registers best
/// (`torch.cuda.MemPool(backend.mem_allocator)`). Each allocation is one call of NCCL; a pool asks for whole segments.
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default());
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::nccl::{Communicator, Memory, ReduceOp};
/// use aten_cuda::{DType, Tensor};
/// use c10_core::{CUDAPluggableAllocator, MemPool, MemPoolOptions, Runtime};
///
/// let allocator = CUDAPluggableAllocator::from_resource(Memory::new()?);
/// let pool = MemPool::with_allocator(&allocator, MemPoolOptions::default())?;
/// let tensor = {
///     let _inside = Runtime::current().mem_pools().enter(&pool, 0)?;
///     Tensor::ones(&[1024], DType::F32, "cuda:0")?
/// };
/// let comms = Communicator::init_all(&[0])?;
/// let registered = comms[0].register(&tensor)?;
/// comms[0].all_reduce(&tensor, &tensor, ReduceOp::Sum)?;
/// assert_eq!(tensor.to_vec::<f32>()?, [1.0; 1024]);
/// drop(registered);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub struct Memory {
    library: Arc<Nccl>,
    runtime: Runtime,
    /// Bytes and devices of what was given, by address.
    given: Mutex<BTreeMap<u64, (u64, DeviceIndex)>>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("library", &self.library).finish_non_exhaustive()
    }
}

impl Memory {
    /// Memory of the NCCL that the current runtime uses. Keeps the runtime alive.
    ///
    /// # Errors
    /// There is no NCCL, or a version before 2.19, which has no memory of its own.
    pub fn new() -> Result<Self> {
        let runtime = Runtime::current();
        let library = library::find(&runtime)?;
        let functions = library.functions();
        let lacks =
            [("ncclMemAlloc", functions.ncclMemAlloc.is_none()), ("ncclMemFree", functions.ncclMemFree.is_none())];
        if let Some((function, _)) = lacks.into_iter().find(|(_, lacks)| *lacks) {
            let (found, origin) = (library.version(), library.origin().to_owned());
            return Err(NcclError::TooOld { function, found, origin }.into());
        }
        Ok(Self { library, runtime, given: Mutex::default() })
    }

    fn given(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, DeviceIndex)>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryResource for Memory {
    fn allocate(&self, bytes: u64, stream: StreamView) -> c10_core::Result<Allocation> {
        let device = stream.device();
        if bytes == 0 {
            return Ok(Allocation::empty(device));
        }
        let asked =
            self.runtime.with_library(device, || Ok::<_, c10_core::Error>(library::allocate(&self.library, bytes)))?;
        match asked {
            Ok(address) => {
                self.given().insert(address, (bytes, device));
                Ok(library::allocation(address, bytes, device))
            }
            Err(error) => {
                tracing::warn!(%error, bytes, device, "NCCL gave no memory");
                Err(AllocatorError::NoMemory { device, requested: bytes }.into())
            }
        }
    }

    fn deallocate(&self, memory: Allocation, _: StreamView) -> std::result::Result<(), NotDeallocated> {
        let (address, known) = (memory.address(), (memory.bytes(), memory.device()));
        if address == 0 {
            return Ok(());
        }
        let refused = |memory| NotDeallocated { memory, error: MemoryError::InvalidPointer { address }.into() };
        if self.given().get(&address) != Some(&known) {
            return Err(refused(memory));
        }
        self.given().remove(&address);
        let free = || Ok::<_, c10_core::Error>(library::free(&self.library, address));
        match self.runtime.with_library(known.1, free) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::warn!(%error, address, "NCCL did not take memory back");
                self.given().insert(address, known);
                Err(refused(memory))
            }
            Err(error) => {
                self.given().insert(address, known);
                Err(NotDeallocated { memory, error })
            }
        }
    }
}

/// A tensor that is registered with a communicator, for as long as this lives.
#[must_use = "dropping it takes the registration back"]
#[derive(Debug)]
pub struct Registration {
    handle: Arc<Handle>,
    token: usize,
    /// Keeps the memory.
    tensor: Tensor,
}

impl Registration {
    /// The tensor.
    #[must_use]
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A communicator that has ended has no registrations.
        let _ = self.handle.deregister(self.token);
    }
}

impl Communicator {
    /// Registers the memory of a tensor (`ncclCommRegister`): collectives on it may go without copies. Each rank registers
    /// its own. It stays registered until the value is dropped or the communicator ends.
    ///
    /// ```
    /// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default());
    /// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
    /// use aten_cuda::nccl::Communicator;
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let comm = Communicator::init_all(&[0])?.remove(0);
    /// let registered = comm.register(&Tensor::ones(&[64], DType::F32, "cuda:0")?)?;
    /// assert_eq!(registered.tensor().numel(), 64);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// The tensor is on the host or another device, has gaps or no elements; NCCL is older than 2.19, or its error.
    pub fn register(&self, tensor: &Tensor) -> Result<Registration> {
        check_dense(tensor, tensor.dtype())?;
        let device = tensor.device().index.unwrap_or(0);
        if device != self.device() {
            return Err(NcclError::OtherDevice { tensor: device, communicator: self.device() }.into());
        }
        let token = self.0.register(tensor)?;
        Ok(Registration { handle: Arc::clone(&self.0), token, tensor: tensor.clone() })
    }
}
