//! What is asked for: arguments are checked as NCCL checks them, and become parts of batches.

use std::ffi::c_void;

use cuda_sys::cublas::types::CUstream_st;
use cuda_sys::nccl::types::{ncclComm, ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t};

use super::arithmetic::{Kind, Op};
use super::exchange::{Asked, What};
use super::work::Part;
use super::{Answer, INVALID_ARGUMENT, UNHANDLED};
use crate::call::Call;
use crate::claim::Ptr;

/// Numbers of operations that a program makes begin here.
const OWN_OPS: u32 = 5;

/// Names of default streams.
const STREAM_DEFAULT: u64 = 0;
const STREAM_LEGACY: u64 = 1;
const STREAM_PER_THREAD: u64 = 2;

/// What all functions take.
struct Given {
    from: Ptr<c_void>,
    to: Ptr<c_void>,
    count: usize,
    kind: ncclDataType_t,
    op: ncclRedOp_t,
    comm: Ptr<ncclComm>,
    stream: Ptr<CUstream_st>,
}

impl Call<'_> {
    fn kind(&mut self, given: ncclDataType_t) -> Answer<Kind> {
        Kind::of(given.0).ok_or_else(|| self.refuse(INVALID_ARGUMENT, format!("there is no datatype {}", given.0)))
    }

    fn op(&mut self, given: ncclRedOp_t, comm: Ptr<ncclComm>) -> Answer<Op> {
        let own = self.comm(comm)?.factors.get(&given.0).map(|factor| Op::Scaled(*factor));
        let found = Op::of(given.0).or(own);
        found.ok_or_else(|| self.refuse(INVALID_ARGUMENT, format!("there is no operation {}", given.0)))
    }

    /// A rank that an argument names.
    fn other(&mut self, name: &str, rank: i32, comm: Ptr<ncclComm>) -> Answer<usize> {
        let ranks = self.comm(comm)?.ranks;
        let found = usize::try_from(rank).ok().filter(|rank| *rank < ranks);
        found.ok_or_else(|| self.refuse(INVALID_ARGUMENT, format!("{name} {rank} is out of range of {ranks} ranks")))
    }

    fn ask(&mut self, given: &Given, what: impl FnOnce(&mut Self) -> Answer<What>) -> Answer {
        let answer = self.checked(given, what);
        self.note_refusal(answer)
    }

    fn checked(&mut self, given: &Given, what: impl FnOnce(&mut Self) -> Answer<What>) -> Answer {
        self.seat(given.comm)?;
        let what = what(self)?;
        let kind = self.kind(given.kind)?;
        let op = self.op(given.op, given.comm)?;
        let (rank, ranks) = {
            let comm = self.comm(given.comm)?;
            (comm.rank, comm.ranks as u64)
        };
        let count = given.count as u64;
        let is_message = matches!(what, What::Send { .. } | What::Recv { .. });
        if count == 0 && !is_message {
            return Ok(());
        }
        let bytes = count.checked_mul(kind.bytes()).filter(|bytes| bytes.checked_mul(ranks).is_some());
        let Some(bytes) = bytes else {
            return Err(self.refuse(INVALID_ARGUMENT, format!("{count} elements are too many")));
        };
        let (read, written) = match what {
            What::AllReduce => (bytes, bytes),
            What::Reduce { root } => (bytes, if root == rank { bytes } else { 0 }),
            What::Broadcast { root } => (if root == rank { bytes } else { 0 }, bytes),
            What::AllGather => (bytes, bytes * ranks),
            What::ReduceScatter => (bytes * ranks, bytes),
            What::Send { .. } => (bytes, 0),
            What::Recv { .. } => (0, bytes),
        };
        for (name, pointer, bytes) in [("sendbuff", given.from, read), ("recvbuff", given.to, written)] {
            if bytes > 0 && pointer.is_null() {
                return Err(self.refuse(INVALID_ARGUMENT, format!("{name} is null")));
            }
        }
        let asked = Asked { what, count, kind, op };
        let part = Part { asked, input: (given.from.address(), read), output: (given.to.address(), written) };
        let stream = self.comm_stream(given)?;
        self.take(given.comm.address(), stream, part)
    }

    /// The stream of a call: default streams are those of the communicator's device, whichever is current.
    fn comm_stream(&mut self, given: &Given) -> Answer<u64> {
        let context = self.comm(given.comm)?.context;
        let thread = self.thread;
        let found = match given.stream.address() {
            STREAM_DEFAULT | STREAM_LEGACY => self.default_streams(context).map(|defaults| defaults.legacy),
            STREAM_PER_THREAD => self.per_thread_stream(context, thread),
            key => Some(key),
        };
        found.ok_or_else(|| self.refuse(UNHANDLED, "the device has lost its context"))
    }
}

pub(super) fn all_reduce(
    call: &mut Call<'_>,
    from: Ptr<c_void>,
    to: Ptr<c_void>,
    count: usize,
    kind: ncclDataType_t,
    op: ncclRedOp_t,
    comm: Ptr<ncclComm>,
    stream: Ptr<CUstream_st>,
) -> Answer {
    call.ask(&Given { from, to, count, kind, op, comm, stream }, |_| Ok(What::AllReduce))
}

pub(super) fn reduce(
    call: &mut Call<'_>,
    from: Ptr<c_void>,
    to: Ptr<c_void>,
    count: usize,
    kind: ncclDataType_t,
    op: ncclRedOp_t,
    root: i32,
    comm: Ptr<ncclComm>,
    stream: Ptr<CUstream_st>,
) -> Answer {
    let given = Given { from, to, count, kind, op, comm, stream };
    call.ask(&given, |call| Ok(What::Reduce { root: call.other("root", root, comm)? }))
}

pub(super) fn broadcast(
    call: &mut Call<'_>,
    from: Ptr<c_void>,
    to: Ptr<c_void>,
    count: usize,
    kind: ncclDataType_t,
    root: i32,
    comm: Ptr<ncclComm>,
    stream: Ptr<CUstream_st>,
) -> Answer {
    let given = Given { from, to, count, kind, op: ncclRedOp_t::ncclSum, comm, stream };
    call.ask(&given, |call| Ok(What::Broadcast { root: call.other("root", root, comm)? }))
}

pub(super) fn bcast(
    call: &mut Call<'_>,
    buffer: Ptr<c_void>,
    count: usize,
    kind: ncclDataType_t,
    root: i32,
    comm: Ptr<ncclComm>,
    stream: Ptr<CUstream_st>,
) -> Answer {
    broadcast(call, buffer, buffer, count, kind, root, comm, stream)
}

pub(super) fn all_gather(
    call: &mut Call<'_>,
    from: Ptr<c_void>,
    to: Ptr<c_void>,
    count: usize,
    kind: ncclDataType_t,
    comm: Ptr<ncclComm>,
    stream: Ptr<CUstream_st>,
) -> Answer {
    let given = Given { from, to, count, kind, op: ncclRedOp_t::ncclSum, comm, stream };
    call.ask(&given, |_| Ok(What::AllGather))
}

pub(super) fn reduce_scatter(
    call: &mut Call<'_>,
    from: Ptr<c_void>,
    to: Ptr<c_void>,
    count: usize,
    kind: ncclDataType_t,
    op: ncclRedOp_t,
    comm: Ptr<ncclComm>,
    stream: Ptr<CUstream_st>,
) -> Answer {
    call.ask(&Given { from, to, count, kind, op, comm, stream }, |_| Ok(What::ReduceScatter))
}

pub(super) fn send(
    call: &mut Call<'_>,
    from: Ptr<c_void>,
    count: usize,
    kind: ncclDataType_t,
    peer: i32,
    comm: Ptr<ncclComm>,
    stream: Ptr<CUstream_st>,
) -> Answer {
    let given = Given { from, to: Ptr::null(), count, kind, op: ncclRedOp_t::ncclSum, comm, stream };
    call.ask(&given, |call| Ok(What::Send { peer: call.other("peer", peer, comm)? }))
}

pub(super) fn recv(
    call: &mut Call<'_>,
    to: Ptr<c_void>,
    count: usize,
    kind: ncclDataType_t,
    peer: i32,
    comm: Ptr<ncclComm>,
    stream: Ptr<CUstream_st>,
) -> Answer {
    let given = Given { from: Ptr::null(), to, count, kind, op: ncclRedOp_t::ncclSum, comm, stream };
    call.ask(&given, |call| Ok(What::Recv { peer: call.other("peer", peer, comm)? }))
}

/// Makes a sum of elements that are multiplied by a factor. Factors that lie on the device are not simulated.
pub(super) fn scaled_sum(
    call: &mut Call<'_>,
    op: Ptr<ncclRedOp_t>,
    factor: Ptr<c_void>,
    kind: ncclDataType_t,
    residence: ncclScalarResidence_t,
    comm: Ptr<ncclComm>,
) -> Answer {
    call.seat(comm)?;
    let kind = call.kind(kind)?;
    op.required().map_err(|_| INVALID_ARGUMENT)?;
    if residence != ncclScalarResidence_t::ncclScalarHostImmediate {
        return Err(call.not_simulated("a factor that lies on the device"));
    }
    let length = usize::try_from(kind.bytes()).unwrap_or(1);
    let bytes = factor.cast::<u8>().read_array(length).map_err(|_| INVALID_ARGUMENT)?;
    let factors = &mut call.comm(comm)?.factors;
    let number = (OWN_OPS..).find(|number| !factors.contains_key(number)).unwrap_or(u32::MAX);
    factors.insert(number, kind.value(&bytes));
    op.write(ncclRedOp_t(number)).map_err(|_| INVALID_ARGUMENT)
}

pub(super) fn forget_sum(call: &mut Call<'_>, op: ncclRedOp_t, comm: Ptr<ncclComm>) -> Answer {
    call.seat(comm)?;
    let removed = call.comm(comm)?.factors.remove(&op.0);
    removed.map(drop).ok_or_else(|| call.refuse(INVALID_ARGUMENT, format!("operation {} was not made", op.0)))
}
