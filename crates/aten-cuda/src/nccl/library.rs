//! NCCL: where it comes from, its communicators, and the calls.
//!
//! All communicators are made so that no call of theirs waits (`blocking = 0`): what a call has begun is asked for until it
//! is done, has failed, or the time is over. Calls with one communicator come one after another; who ends it waits for those
//! under way, and none begins after that.
//!
//! # Safety
//! A communicator is used under its lock and until it is ended, which happens once. The library reads and writes elements of
//! contiguous tensors, as many as [`Asked`] has counted; the storages are handed to the runtime, which orders their use, and
//! a group holds them until its work is queued.
#![expect(unsafe_code, reason = "calls of NCCL")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c10_core::{Allocation, DeviceIndex, LibraryStream, Runtime};
use cuda_sys::nccl::types::{ncclComm, ncclComm_t, ncclConfig_t, ncclUniqueId};
use cuda_sys::{CallError, Nccl, NcclError as CallFailure, ncclResult_t};

use super::asked::{Asked, Function};
use super::devices::Cache;
use super::looks::Looks;
use crate::base::error::Result;
use crate::base::nccl_error::NcclError;
use crate::blas::Slot;
use crate::tensor::Tensor;

/// How long a communicator that is to end waits for a group that it is in.
const GROUP_PATIENCE: Duration = Duration::from_secs(10);

/// What a runtime keeps for NCCL.
#[derive(Debug, Default)]
pub(super) struct Kept {
    library: Slot<Nccl>,
    pub(super) cache: Cache,
}

/// Has a runtime use this library from now on, or none. Forgets the communicators that are kept.
pub(super) fn set(runtime: &Runtime, nccl: Option<Nccl>) {
    let kept = runtime.extension::<Kept>();
    kept.cache.clear();
    kept.library.set(nccl);
}

/// The library of a runtime, which is looked for where that was not done.
pub(super) fn find(runtime: &Runtime) -> Result<Arc<Nccl>> {
    let found = runtime.extension::<Kept>().library.find(runtime, Nccl::load, "libnccl.so", Nccl::load_from);
    Ok(found.map_err(|reason| NcclError::Absent { reason })?)
}

/// What NCCL says of its last error; nothing in versions that say nothing.
fn last_error(library: &Nccl, comm: ncclComm_t) -> String {
    // SAFETY: the communicator is alive or null, which stands for none.
    let text = unsafe { library.ncclGetLastError(comm) };
    text.map_or_else(|_| String::new(), own)
}

/// A text of the library as one of our own.
fn own(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a text that ends, in memory that the library never gives back.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A call that failed; `None` for one that has begun and goes on.
fn failure(library: &Nccl, comm: ncclComm_t, cause: CallFailure) -> Option<NcclError> {
    match cause {
        CallError::Missing(missing) => Some(NcclError::TooOld {
            function: missing.function.symbol,
            found: library.version(),
            origin: library.origin().to_owned(),
        }),
        CallError::Failed { status: ncclResult_t::ncclInProgress, .. } => None,
        CallError::Failed { call, status } => {
            Some(NcclError::Failed { call, status, last_error: last_error(library, comm) })
        }
    }
}

/// Whether a call goes on; else what failed.
fn goes_on(library: &Nccl, comm: ncclComm_t, answer: std::result::Result<(), CallFailure>) -> Result<bool> {
    match answer.map_err(|cause| failure(library, comm, cause)) {
        Ok(()) => Ok(false),
        Err(None) => Ok(true),
        Err(Some(error)) => Err(error.into()),
    }
}

/// A new identity for ranks that want to come together.
pub(super) fn new_identity(library: &Nccl) -> Result<[u8; 128]> {
    let mut id = ncclUniqueId { internal: [0; 128] };
    // SAFETY: the identity outlives the call.
    let answer = unsafe { library.ncclGetUniqueId(&mut id) };
    goes_on(library, ptr::null_mut(), answer)?;
    Ok(id.internal.map(c_char::cast_unsigned))
}

/// Begins a group of calls of the thread.
pub(super) fn begin_group(library: &Nccl) -> Result<()> {
    // SAFETY: nothing is passed.
    goes_on(library, ptr::null_mut(), unsafe { library.ncclGroupStart() }).map(drop)
}

/// Ends a group; whether what it has begun goes on.
pub(super) fn end_group(library: &Nccl) -> Result<bool> {
    // SAFETY: nothing is passed; what the calls of the group were given is held by the group.
    goes_on(library, ptr::null_mut(), unsafe { library.ncclGroupEnd() })
}

/// Memory of the current device; its address.
pub(super) fn allocate(library: &Nccl, bytes: u64) -> Result<u64> {
    let mut pointer = ptr::null_mut();
    // SAFETY: the pointer outlives the call.
    let answer = unsafe { library.ncclMemAlloc(&mut pointer, usize::try_from(bytes).unwrap_or(usize::MAX)) };
    goes_on(library, ptr::null_mut(), answer)?;
    Ok(pointer.expose_provenance() as u64)
}

/// Memory that [`allocate`] has given.
pub(super) fn allocation(address: u64, bytes: u64, device: DeviceIndex) -> Allocation {
    // SAFETY: the library has allocated so many bytes there, at the granularity of mapped memory, and nobody else has them.
    unsafe { Allocation::from_raw(address, bytes, device) }
}

/// Gives memory back that [`allocate`] has given.
pub(super) fn free(library: &Nccl, address: u64) -> Result<()> {
    let pointer = ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0));
    // SAFETY: the memory was given by this library, and whoever had it has given it back.
    let answer = unsafe { library.ncclMemFree(pointer) };
    goes_on(library, ptr::null_mut(), answer).map(drop)
}

/// The library's communicator.
#[derive(Debug)]
struct Raw {
    comm: *mut ncclComm,
    /// How it ended; `None` while it lives.
    ended: Option<&'static str>,
    /// Groups under way that it is in.
    groups: u32,
}

// SAFETY: NCCL allows its communicators on any thread, one at a time, which the lock around this sees to.
unsafe impl Send for Raw {}

/// A communicator: one rank of several.
pub(super) struct Handle {
    library: Arc<Nccl>,
    raw: Mutex<Raw>,
    /// Where the library writes the communicator once more when all ranks have come.
    slot: Option<Box<AtomicPtr<ncclComm>>>,
    left_group: Condvar,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) device: DeviceIndex,
    pub(super) timeout: Duration,
    /// The process that made it: a forked child must not use it.
    process: u32,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Communicator");
        text.field("rank", &self.rank).field("ranks", &self.ranks).field("device", &self.device);
        text.finish_non_exhaustive()
    }
}

/// Who joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer {
    pub(super) identity: [u8; 128],
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) device: DeviceIndex,
    pub(super) timeout: Duration,
}

impl Handle {
    /// Begins to join; [`Self::settle`] says when all have.
    pub(super) fn join(runtime: &Runtime, library: Arc<Nccl>, new: &Newcomer) -> Result<Self> {
        let &Newcomer { identity, rank, ranks, device, timeout } = new;
        let id = ncclUniqueId { internal: identity.map(u8::cast_signed) };
        let mut config = ncclConfig_t { blocking: 0, ..ncclConfig_t::initial() };
        let slot = Box::new(AtomicPtr::new(ptr::null_mut()));
        let number = |number: usize| c_int::try_from(number).unwrap_or(c_int::MAX);
        runtime.with_library(device, || {
            // SAFETY: the configuration is copied; the slot lives as long as the communicator.
            let answer =
                unsafe { library.ncclCommInitRankConfig(slot.as_ptr(), number(ranks), id, number(rank), &mut config) };
            goes_on(&library, ptr::null_mut(), answer)
        })?;
        let raw = Mutex::new(Raw { comm: slot.load(Ordering::Acquire), ended: None, groups: 0 });
        let process = std::process::id();
        let (slot, left_group) = (Some(slot), Condvar::new());
        Ok(Self { library, raw, slot, left_group, rank, ranks, device, timeout, process })
    }

    fn raw(&self) -> MutexGuard<'_, Raw> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the library with the communicator, if it lives; whether what the call has begun goes on.
    fn call(
        &self,
        call: &'static str,
        run: impl FnOnce(&Nccl, ncclComm_t) -> std::result::Result<(), CallFailure>,
    ) -> Result<bool> {
        let raw = self.raw();
        if let Some(how) = raw.ended {
            return Err(NcclError::Ended { call, how }.into());
        }
        goes_on(&self.library, raw.comm, run(&self.library, raw.comm))
    }

    /// What has become of what was begun: whether it goes on, or what failed.
    pub(super) fn asynchronous(&self, call: &'static str) -> Result<bool> {
        let mut status = ncclResult_t::ncclSuccess;
        self.call(call, |library, comm| {
            // SAFETY: the communicator is alive; the status outlives the call.
            unsafe { library.ncclCommGetAsyncError(comm, &mut status) }?;
            if status == ncclResult_t::ncclSuccess { Ok(()) } else { Err(CallError::Failed { call, status }) }
        })
    }

    /// Waits until what was begun is done.
    pub(super) fn complete(&self, call: &'static str, timeout: Duration) -> Result<()> {
        let mut looks = Looks::begin();
        while self.asynchronous(call)? {
            if !looks.again(timeout) {
                let what = format!("{call} of rank {} of {}", self.rank, self.ranks);
                return Err(NcclError::TimedOut { what, after: timeout }.into());
            }
        }
        Ok(())
    }

    /// Queues what is asked for on a stream; whether it goes on.
    pub(super) fn queue(&self, asked: &Asked<'_>, stream: LibraryStream) -> Result<bool> {
        let &Asked { count, kind, op, other, .. } = asked;
        let (from, to) = (place(asked.from), place(asked.to));
        let stream = ptr::with_exposed_provenance_mut(stream.handle);
        let other = c_int::try_from(other).unwrap_or(c_int::MAX);
        self.call(asked.symbol(), |nccl, comm| match asked.function {
            // SAFETY: communicator and stream are alive; the tensors have as many elements of this type.
            Function::AllReduce => unsafe { nccl.ncclAllReduce(from, to, count, kind, op, comm, stream) },
            // SAFETY: as above.
            Function::Reduce => unsafe { nccl.ncclReduce(from, to, count, kind, op, other, comm, stream) },
            // SAFETY: as above.
            Function::Broadcast => unsafe { nccl.ncclBroadcast(from, to, count, kind, other, comm, stream) },
            // SAFETY: as above.
            Function::AllGather => unsafe { nccl.ncclAllGather(from, to, count, kind, comm, stream) },
            // SAFETY: as above.
            Function::ReduceScatter => unsafe { nccl.ncclReduceScatter(from, to, count, kind, op, comm, stream) },
            // SAFETY: as above.
            Function::Send => unsafe { nccl.ncclSend(from, count, kind, other, comm, stream) },
            // SAFETY: as above.
            Function::Recv => unsafe { nccl.ncclRecv(to, count, kind, other, comm, stream) },
        })
    }

    /// Registers the memory of a tensor; what the registration is known by.
    pub(super) fn register(&self, tensor: &Tensor) -> Result<usize> {
        let mut token = ptr::null_mut();
        let (at, bytes) = (place(Some(tensor)), tensor.nbytes());
        self.call("ncclCommRegister", |library, comm| {
            // SAFETY: the communicator is alive; the tensor has so many bytes, and whoever registers it keeps it.
            unsafe { library.ncclCommRegister(comm, at, bytes, &mut token) }
        })?;
        Ok(token.expose_provenance())
    }

    /// Takes a registration back.
    pub(super) fn deregister(&self, token: usize) -> Result<()> {
        let token = ptr::with_exposed_provenance_mut(token);
        self.call("ncclCommDeregister", |library, comm| {
            // SAFETY: the communicator is alive, and it was registered with it.
            unsafe { library.ncclCommDeregister(comm, token) }
        })
        .map(drop)
    }

    /// A group that it is in begins.
    pub(super) fn enter_group(&self) {
        self.raw().groups += 1;
    }

    /// A group that it was in has ended.
    pub(super) fn leave_group(&self) {
        self.raw().groups -= 1;
        self.left_group.notify_all();
    }

    /// Ends it at once: work under way goes on without effect. `Ok` where it has ended already.
    pub(super) fn abort(&self) -> Result<()> {
        self.end("was aborted", GROUP_PATIENCE, |library, comm| {
            // SAFETY: the communicator is alive, and nobody uses it after this.
            unsafe { library.ncclCommAbort(comm) }
        })
    }

    /// Waits for its work, then ends it; what takes longer than `timeout`, or fails, is aborted.
    pub(super) fn finalize(&self, timeout: Duration) -> Result<()> {
        const CALL: &str = "ncclCommFinalize";
        // SAFETY: the communicator is alive.
        let begun = self.call(CALL, |library, comm| unsafe { library.ncclCommFinalize(comm) });
        let done = begun.and_then(|goes_on| if goes_on { self.complete(CALL, timeout) } else { Ok(()) });
        if let Err(error) = done {
            // The first error is the one to tell.
            let _ = self.abort();
            return Err(error);
        }
        self.end("was finalized", GROUP_PATIENCE, |library, comm| {
            // SAFETY: the communicator is alive, and nobody uses it after this.
            unsafe { library.ncclCommDestroy(comm) }
        })
    }

    fn end(
        &self,
        how: &'static str,
        patience: Duration,
        run: impl FnOnce(&Nccl, ncclComm_t) -> std::result::Result<(), CallFailure>,
    ) -> Result<()> {
        let in_group = |raw: &mut Raw| raw.groups > 0;
        let waited = self.left_group.wait_timeout_while(self.raw(), patience, in_group);
        let (mut raw, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            let what = format!("a group of calls of rank {} of {}", self.rank, self.ranks);
            return Err(NcclError::TimedOut { what, after: patience }.into());
        }
        if raw.ended.is_some() {
            return Ok(());
        }
        raw.ended = Some(how);
        goes_on(&self.library, ptr::null_mut(), run(&self.library, raw.comm)).map(drop)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // An error cannot be returned here, and no group holds it any more.
        let is_ended = self.process == std::process::id() && self.abort().is_ok();
        if let Some(slot) = self.slot.take().filter(|_| !is_ended) {
            // Threads of the library may still write to it.
            Box::leak(slot);
        }
    }
}

/// Where a tensor lies; null for none.
fn place(tensor: Option<&Tensor>) -> *mut c_void {
    tensor.map_or(ptr::null_mut(), |tensor| {
        ptr::with_exposed_provenance_mut(usize::try_from(tensor.data_ptr()).unwrap_or(0))
    })
}
