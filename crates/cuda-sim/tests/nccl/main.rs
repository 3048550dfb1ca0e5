//! NCCL of simulated machines: results, order, capture, misuse that is named, ranks that do not come or go.
//!
//! # Safety
//! As in the support module; the pointers given to the library outlive the calls.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

use std::ffi::{CStr, c_void};
use std::ptr;
use std::time::Duration;

use cuda_sim::{Config, Fault, LiveHandles, ReportKind};
use cuda_sys::driver::types::{CUcontext, CUstream, CUstreamCaptureMode};
use cuda_sys::nccl::types::{
    ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t, ncclUniqueId,
};
use cuda_sys::{CUresult, Nccl, NcclError, ncclResult_t};

use support::Rig;

const F32: ncclDataType_t = ncclDataType_t::ncclFloat32;
const SUM: ncclRedOp_t = ncclRedOp_t::ncclSum;

/// Makes one expression of an unsafe call of the library.
macro_rules! nccl {
    ($rig:expr, $function:ident ( $($argument:expr),* $(,)? )) => {
        // SAFETY: see the header.
        unsafe { $rig.library.$function($($argument),*) }
    };
}

mod processes;

/// A device address as a pointer.
fn at<P>(address: u64) -> *mut P {
    ptr::without_provenance_mut(usize::try_from(address).expect("64 bits"))
}

/// A machine whose devices have a context, a stream and a communicator each.
struct Devices {
    rig: Rig,
    library: Nccl,
    contexts: Vec<CUcontext>,
    streams: Vec<CUstream>,
    comms: Vec<ncclComm_t>,
}

impl Devices {
    fn without_comms(devices: u32, config: Config) -> Self {
        let rig = Rig::new(config.devices(devices));
        let (mut contexts, mut streams) = (Vec::new(), Vec::new());
        for device in 0..i32::try_from(devices).expect("few") {
            let mut context = ptr::null_mut();
            call!(rig, cuDevicePrimaryCtxRetain(&mut context, device)).expect("the device has a context");
            call!(rig, cuCtxSetCurrent(context)).expect("it is retained");
            contexts.push(context);
            streams.push(rig.stream(1));
        }
        Self { rig, library: cuda_sim::nccl(), contexts, streams, comms: Vec::new() }
    }

    fn with(devices: u32, config: Config) -> Self {
        let mut made = Self::without_comms(devices, config);
        made.comms = vec![ptr::null_mut(); made.streams.len()];
        let count = i32::try_from(devices).expect("few");
        nccl!(made, ncclCommInitAll(made.comms.as_mut_ptr(), count, ptr::null())).expect("the devices are there");
        made
    }

    fn new(devices: u32) -> Self {
        Self::with(devices, Config::default().seed(11))
    }

    fn on(&self, device: usize) {
        call!(self.rig, cuCtxSetCurrent(self.contexts[device])).expect("it is retained");
    }

    fn floats(&self, device: usize, values: &[f32]) -> u64 {
        self.on(device);
        let address = self.rig.alloc(values.len() * 4);
        self.rig.write(address, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
        address
    }

    fn read(&self, device: usize, address: u64, count: usize) -> Vec<f32> {
        self.on(device);
        let bytes = self.rig.read(address, count * 4);
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four bytes"))).collect()
    }

    fn group(&self, run: impl Fn(usize) -> Result<(), NcclError>) -> Result<(), NcclError> {
        nccl!(self, ncclGroupStart())?;
        let done = (0..self.comms.len()).try_for_each(run);
        let ended = nccl!(self, ncclGroupEnd());
        done.and(ended)
    }

    fn wait(&self) {
        for stream in &self.streams {
            call!(self.rig, cuStreamSynchronize(*stream)).expect("the work ends");
        }
    }

    fn all_reduce(&self, rank: usize, buffer: u64, count: usize) -> Result<(), NcclError> {
        let (comm, stream) = (self.comms[rank], self.streams[rank].cast());
        nccl!(self, ncclAllReduce(at(buffer), at(buffer), count, F32, SUM, comm, stream))
    }

    fn async_error(&self, rank: usize) -> ncclResult_t {
        let mut found = ncclResult_t::ncclSuccess;
        nccl!(self, ncclCommGetAsyncError(self.comms[rank], &mut found)).expect("the communicator is there");
        found
    }

    fn last_error(&self) -> String {
        let text = nccl!(self, ncclGetLastError(ptr::null_mut())).expect("the function is there");
        // SAFETY: a text that stays until the thread asks again.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    fn close(self) -> LiveHandles {
        for comm in &self.comms {
            nccl!(self, ncclCommDestroy(*comm)).expect("it is there");
        }
        self.rig.machine.live()
    }
}

#[track_caller]
fn refused(rig: &Devices, answer: Result<(), NcclError>, status: ncclResult_t, text: &str) {
    let found = answer.expect_err("it should be refused").status();
    assert_eq!((found, rig.last_error().as_str()), (Some(status), text));
}

#[test]
fn collectives_give_each_rank_its_part() {
    let rig = Devices::new(3);
    let (two, root) = (2, 1);
    let from: Vec<u64> =
        (0..3_u8).map(|rank| rig.floats(rank.into(), &[f32::from(rank), 10.0, 20.0, 1.0, 2.0, 3.0])).collect();
    let to: Vec<u64> = (0..3).map(|rank| rig.floats(rank, &[-1.0; 6])).collect();
    let of =
        |rank: usize| (at::<c_void>(from[rank]), at::<c_void>(to[rank]), rig.comms[rank], rig.streams[rank].cast());
    let after = |run: &dyn Fn(usize) -> Result<(), NcclError>| -> Vec<Vec<f32>> {
        rig.group(run).expect("they fit each other");
        rig.wait();
        (0..3).map(|rank| rig.read(rank, to[rank], 6)).collect()
    };
    let sums = after(&|rank| {
        let (from, to, comm, stream) = of(rank);
        nccl!(rig, ncclAllReduce(from.cast_const(), to, two, F32, SUM, comm, stream))
    });
    assert!(sums.iter().all(|sum| sum[..2] == [3.0, 30.0] && sum[2] == -1.0), "{sums:?}");
    let roots = after(&|rank| {
        let (from, to, comm, stream) = of(rank);
        nccl!(rig, ncclReduce(from.cast_const(), to, 1, F32, ncclRedOp_t::ncclMax, root, comm, stream))
    });
    assert_eq!([roots[0][0], roots[1][0], roots[2][0]], [3.0, 2.0, 3.0]);
    let sent = after(&|rank| {
        let (from, to, comm, stream) = of(rank);
        nccl!(rig, ncclBroadcast(from.cast_const(), to, 1, F32, root, comm, stream))
    });
    assert!(sent.iter().all(|sent| sent[0] == 1.0), "{sent:?}");
    let gathered = after(&|rank| {
        let (from, to, comm, stream) = of(rank);
        nccl!(rig, ncclAllGather(from.cast_const(), to, two, F32, comm, stream))
    });
    assert!(gathered.iter().all(|all| *all == [0.0, 10.0, 1.0, 10.0, 2.0, 10.0]), "{gathered:?}");
    let parts = after(&|rank| {
        let (from, to, comm, stream) = of(rank);
        nccl!(rig, ncclReduceScatter(from.cast_const(), to, two, F32, ncclRedOp_t::ncclAvg, comm, stream))
    });
    let near = |found: f32, wanted: f32| (found - wanted).abs() < 1e-5;
    let wanted = [[1.0, 10.0], [20.0, 1.0], [2.0, 3.0]];
    assert!(parts.iter().zip(wanted).all(|(part, [one, two])| near(part[0], one) && near(part[1], two)), "{parts:?}");
    assert_eq!((rig.rig.machine.reports(), rig.close().library_handles), (vec![], 0));
}

#[test]
fn default_streams_are_those_of_the_communicators_device() {
    let rig = Devices::new(2);
    let buffers: Vec<u64> = (0..2).map(|rank| rig.floats(rank, &[1.0])).collect();
    for name in [0, 1, 2] {
        rig.group(|rank| {
            let (buffer, comm) = (at(buffers[rank]), rig.comms[rank]);
            nccl!(rig, ncclAllReduce(buffer, buffer, 1, F32, SUM, comm, at(name)))
        })
        .expect("each device has such a stream");
        for device in 0..2 {
            rig.on(device);
            call!(rig.rig, cuCtxSynchronize()).expect("the work ends");
        }
    }
    assert_eq!([rig.read(0, buffers[0], 1), rig.read(1, buffers[1], 1)], [[8.0], [8.0]]);
}

#[test]
fn messages_go_around_and_to_oneself() {
    let rig = Devices::new(3);
    let from: Vec<u64> = (0..3_u8).map(|rank| rig.floats(rank.into(), &[f32::from(rank)])).collect();
    let to: Vec<u64> = (0..3).map(|rank| rig.floats(rank, &[-1.0, -1.0])).collect();
    rig.group(|rank| {
        let (comm, stream) = (rig.comms[rank], rig.streams[rank].cast());
        let peer = |step: usize| i32::try_from((rank + step) % 3).expect("few");
        nccl!(rig, ncclSend(at(from[rank]), 1, F32, peer(1), comm, stream))?;
        nccl!(rig, ncclRecv(at(to[rank]), 1, F32, peer(2), comm, stream))?;
        nccl!(rig, ncclSend(at(from[rank]), 1, F32, peer(0), comm, stream))?;
        nccl!(rig, ncclRecv(at(to[rank] + 4), 1, F32, peer(0), comm, stream))
    })
    .expect("each message has a receiver");
    rig.wait();
    let found: Vec<Vec<f32>> = (0..3).map(|rank| rig.read(rank, to[rank], 2)).collect();
    assert_eq!(found, [[2.0, 0.0], [0.0, 1.0], [1.0, 2.0]]);
}

#[test]
fn work_is_in_the_order_of_its_streams_and_of_the_communicator() {
    for seed in 0..20 {
        let rig = Devices::with(2, Config::default().seed(seed));
        let buffers: Vec<u64> = (0..2).map(|rank| rig.floats(rank, &[0.0; 1024])).collect();
        let others: Vec<CUstream> = (0..2).map(|rank| (rig.on(rank), rig.rig.stream(1)).1).collect();
        for (rank, &buffer) in buffers.iter().enumerate() {
            rig.on(rank);
            // The bits of 1.0.
            call!(rig.rig, cuMemsetD32Async(buffer, 0x3f80_0000, 1024, rig.streams[rank])).expect("it is there");
        }
        // Ranks come in different orders, and the second collective is on other streams.
        for (streams, ranks) in [(&rig.streams, [0, 1]), (&others, [1, 0])] {
            for rank in ranks {
                let (buffer, stream) = (at(buffers[rank]), streams[rank].cast());
                nccl!(rig, ncclAllReduce(buffer, buffer, 1024, F32, SUM, rig.comms[rank], stream)).expect("it fits");
            }
        }
        for stream in others {
            call!(rig.rig, cuStreamSynchronize(stream)).expect("the work ends");
        }
        assert_eq!(rig.read(0, buffers[0], 1024), [4.0; 1024], "seed {seed}");
        assert_eq!(rig.read(1, buffers[1], 1024), [4.0; 1024], "seed {seed}");
    }
}

#[test]
fn captured_collectives_run_with_each_launch() {
    let rig = Devices::new(2);
    let buffers: Vec<u64> = (0..2_u8).map(|rank| rig.floats(rank.into(), &[f32::from(rank) + 1.0])).collect();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    for stream in &rig.streams {
        call!(rig.rig, cuStreamBeginCapture_v2(*stream, mode)).expect("it captures");
    }
    rig.group(|rank| rig.all_reduce(rank, buffers[rank], 1)).expect("it is captured");
    let mut captured = [ptr::null_mut(); 2];
    for (stream, graph) in rig.streams.iter().zip(&mut captured) {
        call!(rig.rig, cuStreamEndCapture(*stream, graph)).expect("it was captured");
    }
    let mut graphs = Vec::new();
    for (rank, graph) in captured.into_iter().enumerate() {
        let mut exec = ptr::null_mut();
        rig.on(rank);
        call!(rig.rig, cuGraphInstantiateWithFlags(&mut exec, graph, 0)).expect("it has one node");
        graphs.push(exec);
    }
    assert_eq!(rig.read(0, buffers[0], 1), [1.0], "nothing has run");
    for _ in 0..3 {
        for (graph, stream) in graphs.iter().zip(&rig.streams) {
            call!(rig.rig, cuGraphLaunch(*graph, *stream)).expect("it runs");
        }
    }
    rig.wait();
    // 1 and 2; then 3 and 3, 6 and 6, 12 and 12.
    assert_eq!([rig.read(0, buffers[0], 1), rig.read(1, buffers[1], 1)], [[12.0], [12.0]]);
}

#[test]
fn ranks_that_call_different_collectives_are_named() {
    let rig = Devices::new(2);
    let buffers: Vec<u64> = (0..2).map(|rank| rig.floats(rank, &[1.0; 4])).collect();
    rig.group(|rank| rig.all_reduce(rank, buffers[rank], 4)).expect("the first one fits");
    rig.all_reduce(0, buffers[0], 4).expect("nobody knows of the other yet");
    let (comm, stream) = (rig.comms[1], rig.streams[1].cast());
    nccl!(rig, ncclBroadcast(at(buffers[1]), at(buffers[1]), 4, F32, 0, comm, stream)).expect("as above");
    rig.wait();
    for rank in 0..2 {
        assert_eq!(rig.async_error(rank), ncclResult_t::ncclInvalidUsage);
        let text = rig.last_error();
        for part in
            ["number 1", "rank 0 called AllReduce(4 float32, sum)", "rank 1 called Broadcast(4 float32, root 0)"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
    assert_eq!(rig.read(0, buffers[0], 4), [2.0; 4], "the second one has no effect");
    let refused = rig.all_reduce(0, buffers[0], 4).expect_err("the communicator has failed");
    assert_eq!(refused.status(), Some(ncclResult_t::ncclInvalidUsage));
}

#[test]
fn who_does_not_come_is_named_after_the_time_that_was_set() {
    let rig = Devices::with(3, Config::default().nccl_timeout(Duration::from_millis(30)));
    let buffers: Vec<u64> = (0..3).map(|rank| rig.floats(rank, &[1.0; 4])).collect();
    rig.group(|rank| rig.all_reduce(rank, buffers[rank], 4)).expect("the first one fits");
    rig.all_reduce(0, buffers[0], 2).expect("nobody knows yet");
    rig.all_reduce(2, buffers[2], 2).expect("nobody knows yet");
    rig.wait();
    assert_eq!(rig.async_error(1), ncclResult_t::ncclInvalidUsage);
    let text = rig.last_error();
    for part in [
        "nothing came for 30 ms",
        "rank 0 waits in AllReduce(2 float32, sum) (collectives so far: 2)",
        "rank 2 waits in",
        "rank 1 has called AllReduce(4 float32, sum) (collectives so far: 1) last",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_rank_that_aborts_ends_its_work_and_that_of_the_others() {
    let mut rig = Devices::new(2);
    let buffers: Vec<u64> = (0..2).map(|rank| rig.floats(rank, &[1.0; 4])).collect();
    rig.all_reduce(0, buffers[0], 4).expect("the other may come");
    nccl!(rig, ncclCommAbort(rig.comms[1])).expect("it is there");
    rig.wait();
    assert_eq!(rig.async_error(0), ncclResult_t::ncclRemoteError);
    assert_eq!(rig.last_error(), "rank 1 was aborted while rank 0 waits for it in AllReduce(4 float32, sum)");
    nccl!(rig, ncclCommAbort(rig.comms[0])).expect("it is there");
    rig.comms.clear();
    assert_eq!((rig.read(0, buffers[0], 4), rig.close().library_handles), (vec![1.0; 4], 0));
    // A communicator of its own: what hangs goes on when it is aborted.
    let mut rig = Devices::new(2);
    let buffer = rig.floats(0, &[1.0]);
    rig.all_reduce(0, buffer, 1).expect("the other may come");
    nccl!(rig, ncclCommAbort(rig.comms[0])).expect("it is there");
    rig.wait();
    rig.comms.remove(0);
    assert_eq!((rig.read(0, buffer, 1), rig.async_error(0)), (vec![1.0], ncclResult_t::ncclSuccess));
}

#[test]
fn arguments_are_refused_as_nccl_does() {
    let rig = Devices::new(2);
    let buffer = rig.floats(0, &[1.0; 4]);
    let (comm, stream, other) = (rig.comms[0], rig.streams[0].cast(), rig.streams[1].cast());
    let invalid = ncclResult_t::ncclInvalidArgument;
    let none: *mut c_void = ptr::null_mut();
    let reduce = |kind, op, comm, stream| nccl!(rig, ncclAllReduce(at(buffer), at(buffer), 4, kind, op, comm, stream));
    refused(&rig, reduce(ncclDataType_t(12), SUM, comm, stream), invalid, "there is no datatype 12");
    refused(&rig, reduce(F32, ncclRedOp_t(5), comm, stream), invalid, "there is no operation 5");
    refused(&rig, reduce(F32, SUM, ptr::null_mut(), stream), invalid, "0x0 is no communicator");
    refused(&rig, reduce(F32, SUM, at(0x77), stream), invalid, "0x77 is no communicator");
    let wrong = reduce(F32, SUM, comm, other).expect_err("the stream is of another device");
    assert_eq!(wrong.status(), Some(ncclResult_t::ncclUnhandledCudaError));
    let root = |root| nccl!(rig, ncclBroadcast(at(buffer), at(buffer), 4, F32, root, comm, stream));
    refused(&rig, root(2), invalid, "root 2 is out of range of 2 ranks");
    refused(&rig, root(-1), invalid, "root -1 is out of range of 2 ranks");
    refused(
        &rig,
        nccl!(rig, ncclSend(at(buffer), 1, F32, 7, comm, stream)),
        invalid,
        "peer 7 is out of range of 2 ranks",
    );
    refused(&rig, nccl!(rig, ncclRecv(none, 1, F32, 1, comm, stream)), invalid, "recvbuff is null");
    let huge = nccl!(rig, ncclAllGather(at(buffer), at(buffer), usize::MAX / 4, F32, comm, stream));
    refused(&rig, huge, invalid, &format!("{} elements are too many", usize::MAX / 4));
    refused(&rig, nccl!(rig, ncclGroupEnd()), ncclResult_t::ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    nccl!(rig, ncclAllReduce(none, none, 0, F32, SUM, comm, stream)).expect("nothing is to be done");
    // A group with a refused call is refused as a whole.
    nccl!(rig, ncclGroupStart()).expect("it begins");
    rig.all_reduce(0, buffer, 1).expect("it is taken");
    let _ = root(9).expect_err("there is no such root");
    assert_eq!(nccl!(rig, ncclGroupEnd()).expect_err("one was refused").status(), Some(invalid));
    rig.wait();
    let kinds: Vec<ReportKind> = rig.rig.machine.reports().iter().map(|report| report.kind).collect();
    assert_eq!(kinds, [ReportKind::LibraryHandle, ReportKind::WrongStream]);
}

#[test]
fn memory_that_is_not_there_loses_the_context_and_the_others_are_told() {
    let rig = Devices::new(2);
    let buffer = rig.floats(0, &[1.0; 4]);
    rig.all_reduce(0, buffer, 4).expect("it is queued");
    rig.all_reduce(1, 0x10, 4).expect("it is queued");
    let lost = call!(rig.rig, cuStreamSynchronize(rig.streams[1])).expect_err("the address is wrong");
    assert_eq!(lost.status(), Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
}

#[test]
fn ranks_of_threads_join_by_an_identity() {
    let rig = Devices::without_comms(4, Config::default());
    let mut id = ncclUniqueId { internal: [0; 128] };
    nccl!(rig, ncclGetUniqueId(&mut id)).expect("there are more");
    let machine = &rig.rig.machine;
    std::thread::scope(|scope| {
        for (rank, context) in rig.contexts.iter().map(|context| context.expose_provenance()).enumerate() {
            scope.spawn(move || {
                let _bound = machine.bind();
                let (driver, library) = (cuda_sim::driver().expect("it has a version"), cuda_sim::nccl());
                // SAFETY: see the header.
                unsafe { driver.cuCtxSetCurrent(ptr::with_exposed_provenance_mut(context)) }.expect("it is retained");
                let rank = i32::try_from(rank).expect("few");
                let (mut comm, mut told) = (ptr::null_mut(), [-1; 3]);
                // SAFETY: as above.
                unsafe { library.ncclCommInitRank(&mut comm, 4, id, rank) }.expect("all come");
                // SAFETY: as above.
                unsafe { library.ncclCommCount(comm, &mut told[0]) }.expect("it is there");
                // SAFETY: as above.
                unsafe { library.ncclCommUserRank(comm, &mut told[1]) }.expect("it is there");
                // SAFETY: as above.
                unsafe { library.ncclCommCuDevice(comm, &mut told[2]) }.expect("it is there");
                assert_eq!(told, [4, rank, rank]);
                // SAFETY: as above.
                unsafe { library.ncclCommDestroy(comm) }.expect("it is there");
            });
        }
    });
    assert_eq!(machine.live().library_handles, 0);
}

#[test]
fn who_cannot_join_is_told_why() {
    let rig = Devices::without_comms(3, Config::default().nccl_timeout(Duration::from_millis(20)));
    let mut id = ncclUniqueId { internal: [0; 128] };
    nccl!(rig, ncclGetUniqueId(&mut id)).expect("there are more");
    let mut comm = ptr::null_mut();
    let mut config = ncclConfig_t { blocking: 0, ..ncclConfig_t::initial() };
    let mut join = |device: usize, ranks, rank| {
        rig.on(device);
        nccl!(rig, ncclCommInitRankConfig(&mut comm, ranks, id, rank, &mut config))
    };
    let (argument, usage) = (ncclResult_t::ncclInvalidArgument, ncclResult_t::ncclInvalidUsage);
    refused(&rig, join(0, 3, 3), argument, "rank 3 of 3 ranks is out of range");
    refused(&rig, join(0, 0, 0), argument, "rank 0 of 0 ranks is out of range");
    assert_eq!(join(1, 3, 1).expect_err("others are missing").status(), Some(ncclResult_t::ncclInProgress));
    refused(&rig, join(0, 3, 1), usage, "there are two ranks 1");
    refused(&rig, join(0, 4, 0), usage, "rank 0 says that there are 4 ranks, others say 3");
    refused(&rig, join(1, 3, 0), usage, "rank 1 and rank 0 are both on device 1");
    rig.on(2);
    let late = nccl!(rig, ncclCommInitRank(&mut comm, 3, id, 2));
    refused(&rig, late, ncclResult_t::ncclSystemError, "after 20 ms these of 3 ranks have not come: 0");
    let twice = nccl!(rig, ncclCommInitAll(&mut comm, 2, [1, 1].as_ptr()));
    refused(&rig, twice, usage, "device 1 is named twice");
    let none = nccl!(rig, ncclCommInitAll(&mut comm, 1, [5].as_ptr()));
    refused(&rig, none, argument, "there is no device 5");
    let mut wrong = ncclConfig_t { magic: 1, ..ncclConfig_t::initial() };
    let unmarked = nccl!(rig, ncclCommInitRankConfig(&mut comm, 1, id, 0, &mut wrong));
    refused(&rig, unmarked, argument, "the configuration was not initialised");
}

#[test]
fn injected_failures_are_of_a_call_or_of_work_under_way() {
    let rig = Devices::new(2);
    let buffers: Vec<u64> = (0..2).map(|rank| rig.floats(rank, &[1.0; 4])).collect();
    let fault = |call, code| rig.rig.machine.inject(Fault { call, occurrence: 1, code: CUresult(code) });
    fault("ncclAllReduce", ncclResult_t::ncclSystemError.0);
    let failed = rig.all_reduce(0, buffers[0], 4).expect_err("it was injected");
    assert_eq!(failed.status(), Some(ncclResult_t::ncclSystemError));
    fault("ncclAsync", ncclResult_t::ncclRemoteError.0);
    rig.group(|rank| rig.all_reduce(rank, buffers[rank], 4)).expect("it is queued");
    rig.wait();
    assert_eq!([rig.async_error(0), rig.async_error(1)], [ncclResult_t::ncclRemoteError; 2]);
    assert_eq!(rig.last_error(), "ncclAllReduce failed on its device: a fault was injected");
}

#[test]
fn own_sums_scale_what_each_rank_brings() {
    let rig = Devices::new(2);
    let buffers: Vec<u64> = (0..2).map(|rank| rig.floats(rank, &[1.0, 2.0])).collect();
    let mut ops = [SUM; 2];
    for (rank, op) in ops.iter_mut().enumerate() {
        let mut factor = [0.5_f32, 4.0][rank];
        let residence = ncclScalarResidence_t::ncclScalarHostImmediate;
        let factor = (&raw mut factor).cast();
        nccl!(rig, ncclRedOpCreatePreMulSum(op, factor, F32, residence, rig.comms[rank])).expect("it is read");
    }
    rig.group(|rank| {
        let (buffer, stream) = (at(buffers[rank]), rig.streams[rank].cast());
        nccl!(rig, ncclAllReduce(buffer, buffer, 2, F32, ops[rank], rig.comms[rank], stream))
    })
    .expect("each has its own");
    rig.wait();
    assert_eq!(rig.read(1, buffers[1], 2), [4.5, 9.0]);
    nccl!(rig, ncclRedOpDestroy(ops[0], rig.comms[0])).expect("it was made");
    let again = nccl!(rig, ncclRedOpDestroy(ops[0], rig.comms[0]));
    refused(&rig, again, ncclResult_t::ncclInvalidArgument, "operation 5 was not made");
}

#[test]
fn memory_of_the_library_is_given_back_once_and_registered_where_it_is() {
    let rig = Devices::new(2);
    let (mut memory, mut handle) = (ptr::null_mut(), ptr::null_mut());
    rig.on(0);
    nccl!(rig, ncclMemAlloc(&mut memory, 1 << 20)).expect("there is memory");
    nccl!(rig, ncclCommRegister(rig.comms[0], memory, 1 << 20, &mut handle)).expect("it is allocated");
    nccl!(rig, ncclCommDeregister(rig.comms[0], handle)).expect("it was registered");
    let invalid = Some(ncclResult_t::ncclInvalidArgument);
    let status = |answer: Result<(), NcclError>| answer.expect_err("it is refused").status();
    assert_eq!(status(nccl!(rig, ncclCommDeregister(rig.comms[0], handle))), invalid);
    assert_eq!(status(nccl!(rig, ncclCommRegister(rig.comms[0], memory, 2 << 20, &mut handle))), invalid);
    nccl!(rig, ncclMemFree(memory)).expect("it was allocated");
    assert_eq!(status(nccl!(rig, ncclMemFree(memory))), invalid);
    let handles = rig.close();
    assert_eq!((handles.library_handles, handles.allocations), (0, 0));
}

#[test]
fn thousands_of_communicators_leave_nothing() {
    let mut rig = Devices::without_comms(2, Config::default());
    for round in 0..5_000 {
        rig.comms = vec![ptr::null_mut(); 2];
        nccl!(rig, ncclCommInitAll(rig.comms.as_mut_ptr(), 2, ptr::null())).expect("the devices are there");
        for comm in std::mem::take(&mut rig.comms) {
            let ended =
                if round % 2 == 0 { nccl!(rig, ncclCommDestroy(comm)) } else { nccl!(rig, ncclCommAbort(comm)) };
            ended.expect("it is there");
        }
    }
    assert_eq!(rig.close().library_handles, 0);
}
