//! NCCL: where it comes from, its communicators, and the calls.
//!
//! Ranks are connected by communicators no call of which waits (`blocking = 0`): what a call has begun is asked for until it
//! is done, has failed, or the time is over. Direct calls go to another one, which waits (`blocking = 1`) and shares its
//! means with the first. Calls with one communicator come one after another; who ends it waits for those under way, or
//! interrupts them, and none begins after that.
//!
//! # Safety
//! A communicator is used in turn and until it is ended, which happens once; only whether something has failed is asked
//! meanwhile, under a lock that its end takes too. The library reads and writes elements of
//! contiguous tensors, as many as [`Asked`] has counted; the storages are handed to the runtime, which orders their use, and
//! a group holds them until its work is queued.
#![expect(unsafe_code, reason = "calls of NCCL")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use c10_core::{Allocation, DeviceIndex, DeviceType, LibraryStream, Runtime, Stream, StreamId};
use cuda_sys::nccl::types::{
    NCCL_REVOKE_DEFAULT, NCCL_SHRINK_ABORT, NCCL_SHRINK_DEFAULT, NCCL_SPLIT_NOCOLOR, ncclComm, ncclComm_t,
    ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t, ncclUniqueId,
};
use cuda_sys::{CallError, Nccl, NcclError as CallFailure, ncclResult_t};

use super::asked::{Asked, Function};
use super::devices::Cache;
use super::looks::Looks;
use super::options::Options;
use crate::base::error::Result;
use crate::base::nccl_error::NcclError;
use crate::blas::Slot;
use crate::tensor::Tensor;

/// How long a communicator that is to end waits for a group that it is in.
const GROUP_PATIENCE: Duration = Duration::from_secs(10);

/// How long it waits for a call that is under way, before that is interrupted.
const CALL_PATIENCE: Duration = Duration::from_secs(1);

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

/// Has the thread's group end without doing anything, as one of its calls is refused.
pub(super) fn spoil_group(library: &Nccl) {
    let (none, no_comm, stream) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let (kind, op) = (ncclDataType_t::ncclUint8, ncclRedOp_t::ncclSum);
    // SAFETY: there is no communicator, so that the call is refused before it looks at anything else.
    let refused = unsafe { library.ncclAllReduce(none, none, 0, kind, op, no_comm, stream) };
    debug_assert!(refused.is_err(), "a call without a communicator is refused");
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

/// What ranks wait for that come together, and those that split one off or leave some out.
const JOINING: &str = "ncclCommInitRankConfig";
const DERIVING: &str = "ncclCommSplit or ncclCommShrink";

/// How a communicator ended; 0 while it lives.
const ENDS: [&str; 4] = ["", "was aborted", "was finalized", "has not begun"];
const ABORTED: u8 = 1;
const FINALIZED: u8 = 2;
const NOT_BEGUN: u8 = 3;

/// Where the library writes communicators, the second time when all ranks have come.
#[derive(Debug, Default)]
struct Slots {
    /// The one that the ranks are connected by.
    root: AtomicPtr<ncclComm>,
    /// The one that calls go to, where that is another: split off the first one, whose means it shares.
    calls: AtomicPtr<ncclComm>,
}

/// What calls take turns in.
#[derive(Debug, Default)]
struct Turn {
    /// Groups under way that it is in.
    groups: u32,
    /// Streams that have work of it, by their handles, where calls are direct: its end waits for them.
    streams: Vec<(usize, StreamId)>,
}

/// A communicator: one rank of several.
pub(super) struct Handle {
    library: Arc<Nccl>,
    /// Memory that is left behind where the library may still write to it.
    slots: ManuallyDrop<Box<Slots>>,
    turn: Mutex<Turn>,
    /// Held where a communicator is asked how it is without taking a turn, and where it is ended.
    alive: Mutex<()>,
    left_group: Condvar,
    /// One of [`ENDS`].
    ended: AtomicU8,
    /// Its rank and how many there are; known when it has joined.
    seat: OnceLock<(usize, usize)>,
    connect: Connect,
    pub(super) device: DeviceIndex,
    pub(super) timeout: Duration,
    /// What it is made from, until it has joined.
    parent: Mutex<Option<Arc<Handle>>>,
    options: Options,
    /// The process that made it: a forked child must not use it.
    process: u32,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Communicator");
        text.field("rank", &self.rank()).field("ranks", &self.ranks()).field("device", &self.device);
        text.finish_non_exhaustive()
    }
}

/// How ranks are connected, and called later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connect {
    /// No call waits.
    Polled,
    /// Connecting does not wait, and a communicator whose calls do is split off.
    Split,
    /// All ranks are in one group of the thread, or come of one whose calls wait: connecting waits too.
    Waiting,
}

/// Who joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer {
    pub(super) identity: [u8; 128],
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) device: DeviceIndex,
    pub(super) connect: Connect,
}

/// What a communicator is made from another by.
#[derive(Debug)]
pub(super) enum Derived {
    /// The ranks that name the same colour, by their keys; none for those without.
    Split(Option<c_int>, c_int),
    /// All but these ranks; whether work under way is aborted.
    Shrunk(Vec<c_int>, bool),
}

fn number(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

impl Handle {
    /// One that nothing is begun with; of a new rank, or made from another.
    fn new(
        library: Arc<Nccl>,
        device: DeviceIndex,
        connect: Connect,
        options: &Options,
        from: std::result::Result<(usize, usize), Arc<Self>>,
    ) -> Self {
        let (seat, parent) = match from {
            Ok(seat) => (OnceLock::from(seat), None),
            Err(parent) => (OnceLock::new(), Some(parent)),
        };
        Self {
            library,
            slots: ManuallyDrop::new(Box::default()),
            turn: Mutex::default(),
            alive: Mutex::default(),
            left_group: Condvar::new(),
            ended: AtomicU8::new(0),
            seat,
            connect,
            device,
            timeout: options.timeout,
            parent: Mutex::new(parent),
            options: *options,
            process: std::process::id(),
        }
    }

    /// Begins to join; [`Self::settle`] waits until all have.
    pub(super) fn join(runtime: &Runtime, library: Arc<Nccl>, new: &Newcomer, options: &Options) -> Result<Self> {
        let &Newcomer { identity, rank, ranks, device, connect } = new;
        let id = ncclUniqueId { internal: identity.map(u8::cast_signed) };
        let made = Self::new(library, device, connect, options, Ok((rank, ranks)));
        let mut config = options.config(connect == Connect::Waiting);
        if connect == Connect::Split {
            config.splitShare = 1;
        }
        let joined = runtime.with_library(device, || {
            let (slot, library) = (made.slots.root.as_ptr(), &made.library);
            // SAFETY: the configuration is copied; the slot lives as long as the communicator.
            let answer = unsafe { library.ncclCommInitRankConfig(slot, number(ranks), id, number(rank), &mut config) };
            goes_on(library, ptr::null_mut(), answer)
        });
        joined.map(|_| made)
    }

    /// Begins to make another from this one; [`Self::settle`] waits until it is made. It stays without a place where this
    /// rank is in none.
    pub(super) fn derive(self: &Arc<Self>, derived: &mut Derived, options: &Options) -> Result<Self> {
        let connect = if self.is_direct() { Connect::Waiting } else { Connect::Polled };
        let made = Self::new(Arc::clone(&self.library), self.device, connect, options, Err(Arc::clone(self)));
        let mut config = options.config(self.is_direct());
        let slot = made.slots.root.as_ptr();
        match derived {
            Derived::Split(color, key) => {
                let chosen = color.unwrap_or(NCCL_SPLIT_NOCOLOR);
                self.call("ncclCommSplit", |library, comm| {
                    // SAFETY: the communicator is alive; the configuration is copied; the slot lives until it has joined.
                    unsafe { library.ncclCommSplit(comm, chosen, *key, slot, &mut config) }
                })?;
            }
            Derived::Shrunk(without, aborts) => {
                let (list, count) = (without.as_mut_ptr(), number(without.len()));
                let flags = if *aborts { NCCL_SHRINK_ABORT } else { NCCL_SHRINK_DEFAULT }.cast_signed();
                self.call("ncclCommShrink", |library, comm| {
                    // SAFETY: as above; the list has so many numbers, and is copied.
                    unsafe { library.ncclCommShrink(comm, list, count, slot, &mut config, flags) }
                })?;
            }
        }
        Ok(made)
    }

    /// Waits until the ranks are connected by what was begun; [`Self::begin_calls`] comes next.
    pub(super) fn settle(&self) -> Result<()> {
        let parent = self.parent.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(parent) = parent else { return self.complete_of(self.first(), JOINING, self.timeout) };
        // One whose ranks have failed may say that after it has made another.
        let made = parent.complete_of(parent.first(), DERIVING, self.timeout);
        made.or_else(|error| if self.first().is_null() { Err(error) } else { Ok(()) })?;
        if !self.first().is_null() {
            let seat = self.ask_seat()?;
            self.seat.get_or_init(|| seat);
        }
        Ok(())
    }

    /// Has calls go to a communicator of their own, for which [`Self::begin_calls`] comes next; whether they did not so far.
    pub(super) fn call_directly(&mut self) -> bool {
        let is_polled = self.connect == Connect::Polled;
        if is_polled {
            self.connect = Connect::Split;
        }
        is_polled
    }

    /// Begins to split the communicator off that calls go to, where that is another.
    pub(super) fn begin_calls(&self) -> Result<()> {
        if self.connect != Connect::Split {
            return Ok(());
        }
        let mut config = self.options.config(true);
        let (root, slot, rank) = (self.living("ncclCommSplit")?, self.slots.calls.as_ptr(), number(self.rank()));
        // SAFETY: the communicator is alive; the configuration is copied; the slot lives as long as the communicator.
        let answer = unsafe { self.library.ncclCommSplit(root, 0, rank, slot, &mut config) };
        goes_on(&self.library, root, answer).map(drop)
    }

    /// Waits for what [`Self::begin_calls`] has begun.
    pub(super) fn settle_calls(&self, timeout: Duration) -> Result<()> {
        if self.connect != Connect::Split {
            return Ok(());
        }
        self.complete_of(self.first(), "ncclCommSplit", timeout)
    }

    /// Its rank; what it cannot be before it has joined.
    pub(super) fn rank(&self) -> usize {
        self.seat.get().map_or(usize::MAX, |seat| seat.0)
    }

    /// How many ranks there are; none before it has joined.
    pub(super) fn ranks(&self) -> usize {
        self.seat.get().map_or(0, |seat| seat.1)
    }

    /// Whether connecting its ranks waits for all of them.
    pub(super) fn connects_by_waiting(&self) -> bool {
        self.connect == Connect::Waiting
    }

    fn is_direct(&self) -> bool {
        self.connect != Connect::Polled
    }

    fn ask_seat(&self) -> Result<(usize, usize)> {
        let (mut rank, mut ranks) = (-1, -1);
        // SAFETY: the communicator is alive; the number outlives the call.
        self.call("ncclCommUserRank", |library, comm| unsafe { library.ncclCommUserRank(comm, &mut rank) })?;
        // SAFETY: as above.
        self.call("ncclCommCount", |library, comm| unsafe { library.ncclCommCount(comm, &mut ranks) })?;
        Ok((usize::try_from(rank).unwrap_or(usize::MAX), usize::try_from(ranks).unwrap_or(0)))
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> MutexGuard<'_, ()> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The communicator that the ranks are connected by.
    fn first(&self) -> ncclComm_t {
        self.slots.root.load(Ordering::Acquire)
    }

    /// How it has ended, for a call that failed or came too late.
    fn end_of(&self, call: &'static str) -> Option<NcclError> {
        match self.ended.load(Ordering::Acquire) {
            0 => None,
            end => Some(NcclError::Ended { call, how: ENDS[usize::from(end)] }),
        }
    }

    /// The communicator that calls go to, if it has not ended.
    fn living(&self, call: &'static str) -> Result<ncclComm_t> {
        if let Some(ended) = self.end_of(call) {
            return Err(ended.into());
        }
        let calls = self.slots.calls.load(Ordering::Acquire);
        let comm = if calls.is_null() { self.first() } else { calls };
        if comm.is_null() {
            return Err(NcclError::Ended { call, how: ENDS[usize::from(NOT_BEGUN)] }.into());
        }
        Ok(comm)
    }

    /// Calls the library with the communicator, if it lives; whether what the call has begun goes on.
    fn call(
        &self,
        call: &'static str,
        run: impl FnOnce(&Nccl, ncclComm_t) -> std::result::Result<(), CallFailure>,
    ) -> Result<bool> {
        let _turn = self.turn();
        let comm = self.living(call)?;
        let answer = goes_on(&self.library, comm, run(&self.library, comm));
        // A call that waited until another thread ended the communicator has failed for that.
        answer.map_err(|error| self.end_of(call).map_or(error, Into::into))
    }

    /// What has become of what was begun: whether it goes on, or what failed.
    pub(super) fn asynchronous(&self, call: &'static str) -> Result<bool> {
        self.asynchronous_of(None, call)
    }

    fn asynchronous_of(&self, comm: Option<ncclComm_t>, call: &'static str) -> Result<bool> {
        // A direct call may be under way for long, and the library is asked besides.
        let _turn = (!self.is_direct()).then(|| self.turn());
        let _alive = self.alive();
        let living = self.living(call)?;
        let comm = comm.unwrap_or(living);
        let mut status = ncclResult_t::ncclSuccess;
        // SAFETY: the communicator is alive, as it ends under the lock; the status outlives the call.
        let asked = unsafe { self.library.ncclCommGetAsyncError(comm, &mut status) };
        let failed =
            || if status == ncclResult_t::ncclSuccess { Ok(()) } else { Err(CallError::Failed { call, status }) };
        goes_on(&self.library, comm, asked.and_then(|()| failed()))
    }

    /// Waits until what was begun is done.
    pub(super) fn complete(&self, call: &'static str, timeout: Duration) -> Result<()> {
        self.complete_while(call, timeout, || self.asynchronous(call))
    }

    fn complete_of(&self, comm: ncclComm_t, call: &'static str, timeout: Duration) -> Result<()> {
        self.complete_while(call, timeout, || self.asynchronous_of(Some(comm), call))
    }

    fn complete_while(&self, call: &'static str, timeout: Duration, goes_on: impl Fn() -> Result<bool>) -> Result<()> {
        let mut looks = Looks::begin();
        while goes_on()? {
            if !looks.again(timeout) {
                let what = format!("{call} of rank {} of {}", self.rank(), self.ranks());
                return Err(NcclError::TimedOut { what, after: timeout }.into());
            }
        }
        Ok(())
    }

    /// Queues what is asked for on a stream; whether it goes on.
    pub(super) fn queue(&self, asked: &Asked<'_>, stream: LibraryStream) -> Result<bool> {
        let symbol = asked.symbol();
        let mut turn = self.turn();
        let comm = self.living(symbol)?;
        let answer = match asked.factor {
            None => self.queue_by(asked, asked.op, comm, stream),
            Some(factor) => self.queue_scaled(asked, factor, comm, stream),
        };
        let queued = goes_on(&self.library, comm, answer);
        let goes_on = queued.map_err(|error| self.end_of(symbol).map_or(error, Into::into))?;
        if self.is_direct() && !stream.is_capturing && turn.streams.last().is_none_or(|last| last.0 != stream.handle) {
            note_stream(&mut turn.streams, self.device, stream.handle);
        }
        Ok(goes_on)
    }

    fn queue_by(
        &self,
        asked: &Asked<'_>,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: LibraryStream,
    ) -> std::result::Result<(), CallFailure> {
        let &Asked { count, kind, .. } = asked;
        let (from, to) = (place(asked.from), place(asked.to));
        let stream = ptr::with_exposed_provenance_mut(stream.handle);
        let (nccl, other) = (&*self.library, number(asked.other));
        match asked.function {
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
        }
    }

    /// As [`Self::queue_by`], with a sum whose elements are multiplied by a factor, which the call copies.
    fn queue_scaled(
        &self,
        asked: &Asked<'_>,
        mut factor: [u8; 8],
        comm: ncclComm_t,
        stream: LibraryStream,
    ) -> std::result::Result<(), CallFailure> {
        let (nccl, host) = (&*self.library, ncclScalarResidence_t::ncclScalarHostImmediate);
        let (mut op, scalar) = (ncclRedOp_t::ncclSum, factor.as_mut_ptr().cast());
        // SAFETY: the communicator is alive; no number of this type has more bytes than the scalar, which is copied.
        unsafe { nccl.ncclRedOpCreatePreMulSum(&mut op, scalar, asked.kind, host, comm) }?;
        let queued = self.queue_by(asked, op, comm, stream);
        // SAFETY: the operation was made with this communicator, and what was queued has a copy.
        let gone = unsafe { nccl.ncclRedOpDestroy(op, comm) };
        queued.and(gone)
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
        self.turn().groups += 1;
    }

    /// A group that it was in has ended.
    pub(super) fn leave_group(&self) {
        self.turn().groups -= 1;
        self.left_group.notify_all();
    }

    /// Ends it at once: work under way goes on without effect. `Ok` where it has ended already.
    pub(super) fn abort(&self) -> Result<()> {
        self.end(ABORTED, |library, comm| {
            // SAFETY: the communicator is alive, and nobody uses it after this.
            unsafe { library.ncclCommAbort(comm) }
        })
    }

    /// Waits for its work, then ends it; what takes longer than `timeout`, or fails, is aborted.
    pub(super) fn finalize(&self, timeout: Duration) -> Result<()> {
        const CALL: &str = "ncclCommFinalize";
        let begin = || {
            self.asynchronous(CALL)?;
            if self.is_direct() {
                // The library itself would wait for the work without an end.
                self.complete_while(CALL, timeout, || self.has_work())?;
            }
            // SAFETY: the communicator is alive.
            self.call(CALL, |library, comm| unsafe { library.ncclCommFinalize(comm) })
        };
        let done = begin().and_then(|goes_on| if goes_on { self.complete(CALL, timeout) } else { Ok(()) });
        if let Err(error) = done {
            // The first error is the one to tell.
            let _ = self.abort();
            return Err(error);
        }
        self.end(FINALIZED, |library, comm| {
            // SAFETY: the communicator is alive, and nobody uses it after this.
            unsafe { library.ncclCommDestroy(comm) }
        })
    }

    /// Whether there is work on one of its streams; what failed elsewhere is told too.
    fn has_work(&self) -> Result<bool> {
        self.asynchronous("ncclCommFinalize")?;
        let streams = self.turn().streams.clone();
        for (_, stream) in streams {
            if !Stream::from_id(stream, self.device, DeviceType::Cuda)?.query()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Its turn when no call and no group is under way.
    fn last_turn(&self) -> Option<MutexGuard<'_, Turn>> {
        let mut looks = Looks::begin();
        let turn = loop {
            match self.turn.try_lock() {
                Ok(turn) => break turn,
                Err(TryLockError::Poisoned(turn)) => break turn.into_inner(),
                Err(TryLockError::WouldBlock) if looks.again(CALL_PATIENCE) => {}
                Err(TryLockError::WouldBlock) => return None,
            }
        };
        let waited = self.left_group.wait_timeout_while(turn, GROUP_PATIENCE, |turn| turn.groups > 0);
        let (turn, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        (!waited.timed_out()).then_some(turn)
    }

    fn end(&self, how: u8, run: impl FnOnce(&Nccl, ncclComm_t) -> std::result::Result<(), CallFailure>) -> Result<()> {
        let turn = match self.last_turn() {
            Some(turn) => turn,
            None if self.end_of("").is_some() => return Ok(()),
            None => {
                self.interrupt()?;
                self.last_turn().ok_or_else(|| self.stuck())?
            }
        };
        let _alive = self.alive();
        let is_first = self.ended.compare_exchange(0, how, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let calls = self.slots.calls.swap(ptr::null_mut(), Ordering::AcqRel);
        let root = self.slots.root.swap(ptr::null_mut(), Ordering::AcqRel);
        drop(turn);
        if !is_first && calls.is_null() && root.is_null() {
            return Ok(());
        }
        if calls.is_null() {
            return goes_on(&self.library, ptr::null_mut(), run(&self.library, root)).map(drop);
        }
        let done = goes_on(&self.library, ptr::null_mut(), run(&self.library, calls));
        // SAFETY: the communicator is alive, has no work, and nobody uses it after this.
        let gone = unsafe { self.library.ncclCommAbort(root) };
        goes_on(&self.library, ptr::null_mut(), gone).and(done).map(drop)
    }

    fn stuck(&self) -> NcclError {
        let what = format!("a call or a group of calls of rank {} of {}", self.rank(), self.ranks());
        NcclError::TimedOut { what, after: GROUP_PATIENCE }
    }

    /// Has a call that is under way in another thread end. The communicator that connects shares its means with the one of
    /// calls, so that aborting the first lets go of the second, which nobody else may touch while it is called.
    fn interrupt(&self) -> Result<()> {
        if !self.is_direct() {
            return Err(self.stuck().into());
        }
        let _alive = self.alive();
        self.ended.store(ABORTED, Ordering::Release);
        let answer = if self.slots.calls.load(Ordering::Acquire).is_null() {
            // SAFETY: the communicator is alive, and made for being told so while it is called.
            unsafe { self.library.ncclCommRevoke(self.first(), NCCL_REVOKE_DEFAULT.cast_signed()) }
        } else {
            let root = self.slots.root.swap(ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: the communicator is alive; it is not called, and nobody uses it after this.
            unsafe { self.library.ncclCommAbort(root) }
        };
        goes_on(&self.library, ptr::null_mut(), answer).map(drop)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // An error cannot be returned here, and no group holds it any more.
        let is_ended = self.process == std::process::id() && self.abort().is_ok();
        if is_ended {
            // SAFETY: this happens once, and threads of the library do not write there after the end.
            unsafe { ManuallyDrop::drop(&mut self.slots) };
        }
    }
}

/// Notes a stream by its handle. One that was made elsewhere may be gone when it is asked, and is left to the library.
fn note_stream(streams: &mut Vec<(usize, StreamId)>, device: DeviceIndex, handle: usize) {
    let current = Runtime::with_current(|runtime| runtime.streams().current(device));
    let own = |stream: &StreamId| stream.0 == 0 || stream.0 % 2 != 0;
    streams.retain(|known| known.0 != handle);
    streams.extend(current.ok().map(|stream| (handle, stream.stream_id())).filter(|(_, stream)| own(stream)));
}

/// Where a tensor lies; null for none.
fn place(tensor: Option<&Tensor>) -> *mut c_void {
    tensor.map_or(ptr::null_mut(), |tensor| {
        ptr::with_exposed_provenance_mut(usize::try_from(tensor.data_ptr()).unwrap_or(0))
    })
}
