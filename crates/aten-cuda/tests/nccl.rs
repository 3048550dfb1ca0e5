//! Collectives by the simulated NCCL: over the devices of a process and over ranks of threads, in graphs, with bad input and
//! with failures, and random programs beside plain loops.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to say where")]

use std::time::Duration;

use aten_cuda::comm::{self, Movement, Pattern, Route};
use aten_cuda::nccl::{self, Calls, Communicator, Options, ReduceOp, UniqueId, Using};
use aten_cuda::{Complex32, DType, Element, Error, NcclError, Tensor};
use c10_core::{CUDAGraph, CUDAPluggableAllocator, CaptureMode, Device, MemPool, MemPoolOptions, Runtime, Stream};
use testkit::{CUresult, Config, Fault, ReportKind, SimulatedRuntime};

type Result<T> = std::result::Result<T, Error>;

/// A machine with so many devices, and NCCL.
fn machine(devices: u32) -> SimulatedRuntime {
    with(Config::default().devices(devices).seed(5))
}

fn with(config: Config) -> SimulatedRuntime {
    let rig = SimulatedRuntime::new(config);
    nccl::set_library(Some(cuda_sim::nccl()));
    rig
}

/// Closes a machine on which nothing is left and nothing was misused.
#[track_caller]
fn close(rig: SimulatedRuntime) {
    nccl::set_library(None);
    let mut reports = rig.machine().reports();
    reports.retain(|report| report.kind != ReportKind::NotSupported || report.call != "cuModuleLoadDataEx");
    assert!(reports.is_empty(), "{reports:?}");
    let machine = rig.machine().clone();
    rig.close_clean();
    assert_eq!(machine.live().library_handles, 0);
}

fn on<T: Element>(device: usize, values: &[T]) -> Tensor {
    let length = i64::try_from(values.len()).unwrap();
    Tensor::from_slice(values, &[length]).unwrap().to_device(cuda(device)).unwrap()
}

fn cuda(device: usize) -> Device {
    Device::cuda(i32::try_from(device).unwrap())
}

fn refs(tensors: &[Tensor]) -> Vec<&Tensor> {
    tensors.iter().collect()
}

fn using() -> Using<'static> {
    Using::default()
}

/// The cause of a refusal by this layer.
#[track_caller]
fn cause<T>(answer: Result<T>) -> NcclError {
    match answer {
        Err(Error::Nccl(cause)) => *cause,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[track_caller]
fn refused<T>(answer: Result<T>, text: &str) {
    assert_eq!(cause(answer).to_string(), text);
}

#[test]
fn every_dtype_is_moved_and_those_that_can_be_are_added() -> Result<()> {
    let rig = machine(2);
    for dtype in DType::ALL {
        let value = |value: i64, device: &str| Tensor::full(&[3], value, DType::F32, device)?.to_dtype(dtype);
        let (one, two) = (value(1, "cuda:0")?, value(1, "cuda:1")?);
        let out = [Tensor::zeros(&[6], dtype, "cuda:0")?, Tensor::zeros(&[6], dtype, "cuda:1")?];
        nccl::all_gather(&[&one, &two], &refs(&out), &using())?;
        for out in &out {
            assert_eq!(out.to_dtype(DType::F32)?.to_vec::<f32>()?, [1.0; 6], "{dtype}");
        }
        let added = nccl::all_reduce(&[&one, &two], None, nccl::SUM, &using());
        if dtype == DType::I16 {
            refused(added, "NCCL does not reduce elements of torch.int16 by sum");
            continue;
        }
        added?;
        let sum = if dtype == DType::Bool { 1.0 } else { 2.0 };
        assert_eq!(two.to_dtype(DType::F32)?.to_vec::<f32>()?, [sum; 3], "{dtype}");
    }
    close(rig);
    Ok(())
}

#[test]
fn tensors_that_nccl_takes_are_contiguous_and_on_devices_of_their_own() -> Result<()> {
    let rig = machine(2);
    let (one, two) = (on(0, &[1.0_f32; 4]).view(&[2, 2])?, on(1, &[1.0_f32; 4]).view(&[2, 2])?);
    assert!(nccl::is_available(&[&one, &two]) && nccl::is_available(&[]));
    assert!(!nccl::is_available(&[&one, &one.narrow(0, 0, 1)?]), "one device");
    assert!(!nccl::is_available(&[&one, &two.t()?]), "gaps");
    assert!(!nccl::is_available(&[&one, &Tensor::ones(&[2], DType::F32, "cpu")?]), "the host");
    assert_eq!((nccl::version()?, nccl::loaded_library()?.0.as_str()), ((2, 28, 9), "2.28.9"));
    nccl::set_library(None);
    assert!(!nccl::is_available(&[&one, &two]), "no NCCL");
    drop((one, two));
    close(rig);
    Ok(())
}

#[test]
fn complex_numbers_are_pairs_of_real_ones() -> Result<()> {
    let rig = machine(2);
    let values = |device: usize, im: f32| on(device, &[Complex32::new(1.0, im), Complex32::new(0.0, 2.0 * im)]);
    let tensors = [values(0, 1.0), values(1, 3.0)];
    nccl::all_reduce(&refs(&tensors), None, ReduceOp::Avg, &using())?;
    assert_eq!(tensors[0].to_vec::<Complex32>()?, [Complex32::new(1.0, 2.0), Complex32::new(0.0, 4.0)]);
    let largest = nccl::all_reduce(&refs(&tensors), None, ReduceOp::Max, &using());
    refused(largest, "NCCL does not reduce elements of torch.complex64 by max");
    drop(tensors);
    close(rig);
    Ok(())
}

#[test]
fn bad_input_is_refused_in_torchs_words() -> Result<()> {
    let rig = machine(2);
    let (one, two) = (on(0, &[1.0_f32, 2.0]), on(1, &[1.0_f32, 2.0]));
    let reduce = |tensors: &[&Tensor]| nccl::all_reduce(tensors, None, nccl::SUM, &using());
    refused(reduce(&[]), "input sequence can't be empty");
    refused(reduce(&[&one, &one]), "inputs must be on unique devices: device 0 has two");
    let host = Tensor::ones(&[2], DType::F32, "cpu")?;
    refused(reduce(&[&one, &host]), "input and output elements have to be cuda dense Tensors");
    let wide = two.to_dtype(DType::F64)?;
    let text = "all inputs and outputs must be of the same Tensor dtype: torch.float32 and torch.float64";
    refused(reduce(&[&one, &wide]), text);
    let long = on(1, &[1.0_f32; 4]);
    refused(reduce(&[&one, &long]), "all inputs must have the same number of elements: 2 and 4");
    refused(reduce(&[&one, &long.view(&[2, 2])?.t()?.narrow(0, 0, 1)?]), "all inputs and outputs must be contiguous");
    let lengths = nccl::all_reduce(&[&one, &two], Some(&[&one]), nccl::SUM, &using());
    let text =
        "inputs and outputs sequences have to be of the same length, but got input of length 2 and output of length 1";
    refused(lengths, text);
    let crossed = nccl::all_reduce(&[&one, &two], Some(&[&two, &one]), nccl::SUM, &using());
    refused(crossed, "input and output must be on the same device: 0 and 1");
    let gathered = nccl::all_gather(&[&one, &two], &[&one, &two], &using());
    refused(gathered, "output must be of size input_size * size_multiplier: it has 2 elements, and 4 are made");
    let scattered = nccl::reduce_scatter(&[&one, &two], &[&one, &two], nccl::SUM, &using());
    refused(scattered, "output must be of size input_size * size_multiplier: it has 2 elements, and 1 are made");
    refused(nccl::broadcast(&[&one, &two], 2, &using()), "root 2 is out of range of 2 ranks");
    refused(nccl::reduce(&[&one, &two], None, 9, nccl::SUM, &using()), "root 9 is out of range of 2 ranks");
    let few = Using { streams: &[None], comms: &[] };
    refused(nccl::broadcast(&[&one, &two], 0, &few), "number of streams is not equal to number of inputs: 1 and 2");
    let side = Stream::new(1, 0)?;
    let crossed = Using { streams: &[Some(&side), None], comms: &[] };
    refused(nccl::broadcast(&[&one, &two], 0, &crossed), "input and output must be on the same device: 0 and 1");
    refused(Communicator::init_all(&[1, 1]), "inputs must be on unique devices: device 1 has two");
    refused(Communicator::init_all::<i32>(&[]), "input sequence can't be empty");
    assert!(Communicator::init_all(&[0, 7]).unwrap_err().to_string().contains("invalid device"));
    let comms = Communicator::init_all(&[0, 1])?;
    refused(comms[0].send(&one, 2), "peer 2 is out of range of 2 ranks");
    refused(comms[0].send(&two, 1), "a tensor is on device 1, and the communicator on device 0");
    let id = nccl::unique_id()?;
    refused(Communicator::init_rank(2, &id, 2, 0, &Options::default()), "rank 2 is out of range of 2 ranks");
    // Nothing of all that has reached the tensors.
    assert_eq!((one.to_vec::<f32>()?, two.to_vec::<f32>()?), (vec![1.0, 2.0], vec![1.0, 2.0]));
    drop((one, two, wide, long, comms, side));
    close(rig);
    Ok(())
}

#[test]
fn without_nccl_or_with_an_older_one_it_is_said_what_is_missing() {
    let rig = machine(1);
    nccl::set_library(None);
    refused(nccl::version(), "NCCL is not there: the program has chosen to do without it");
    nccl::set_library(Some(cuda_sim::nccl_without(&["ncclCommInitRankConfig", "ncclCommFinalize"])));
    let text = "NCCL 2.28.9 from function table has no ncclCommInitRankConfig; a newer one is needed";
    refused(Communicator::init_all(&[0]), text);
    nccl::set_library(Some(cuda_sim::nccl_without(&["ncclCommFinalize"])));
    let comm = Communicator::init_all(&[0]).unwrap().remove(0);
    let old = cause(comm.finalize(Duration::from_secs(1)));
    assert!(matches!(old, NcclError::TooOld { function: "ncclCommFinalize", .. }), "{old}");
    refused(comm.async_error(), "work under way on a communicator that was aborted");
    close(rig);
}

#[test]
fn a_graph_has_collectives_as_nodes() -> Result<()> {
    let rig = machine(2);
    let comms = Communicator::init_all(&[0, 1])?;
    let tensors = [on(0, &[1.0_f32]), on(1, &[2.0_f32])];
    let sides = [Stream::new(0, 0)?, Stream::new(1, 0)?];
    let runtime = Runtime::current();
    let mut graphs = [CUDAGraph::new(), CUDAGraph::new()];
    for (device, side) in sides.iter().enumerate() {
        side.wait_stream(&runtime.streams().current(i32::try_from(device).unwrap())?)?;
    }
    // Each device has a graph of its own, as each rank has.
    for (rank, comm) in comms.iter().enumerate() {
        let _current = sides[rank].guard();
        graphs[rank].capture_begin(None, CaptureMode::ThreadLocal)?;
        comm.all_reduce(&tensors[rank], &tensors[rank], nccl::SUM)?;
        graphs[rank].capture_end()?;
    }
    assert_eq!(tensors[0].to_vec::<f32>()?, [1.0]);
    for _ in 0..2 {
        for (graph, side) in graphs.iter_mut().zip(&sides) {
            let _current = side.guard();
            graph.replay()?;
        }
    }
    for side in &sides {
        side.synchronize()?;
    }
    assert_eq!([tensors[0].to_vec::<f32>()?, tensors[1].to_vec::<f32>()?], [[6.0], [6.0]]);
    drop((graphs, tensors, comms, sides, runtime));
    close(rig);
    Ok(())
}

#[test]
fn memory_of_a_dropped_tensor_is_not_given_away_before_its_group_ends() -> Result<()> {
    let rig = machine(2);
    let comms = Communicator::init_all(&[0, 1])?;
    let into = [on(0, &[0.0_f32; 64]), on(1, &[0.0_f32; 64])];
    nccl::group(|| {
        for (rank, comm) in comms.iter().enumerate() {
            let device = cuda(rank);
            let sent = Tensor::full(&[64], 7, DType::F32, device)?;
            comm.send(&sent, 1 - rank)?;
            drop(sent);
            drop(Tensor::full(&[64], 9, DType::F32, device)?);
            comm.recv(&into[rank], 1 - rank)?;
        }
        Ok(())
    })?;
    assert_eq!([into[0].to_vec::<f32>()?, into[1].to_vec::<f32>()?], [[7.0; 64], [7.0; 64]]);
    drop((comms, into));
    close(rig);
    Ok(())
}

#[test]
fn tensors_of_a_pool_of_nccls_memory_are_registered_and_go_back() -> Result<()> {
    let rig = machine(2);
    let comms = Communicator::init_all(&[0, 1])?;
    let (runtime, allocator) = (Runtime::current(), CUDAPluggableAllocator::from_resource(nccl::Memory::new()?));
    let pool = MemPool::with_allocator(&allocator, MemPoolOptions::default())?;
    let handles = rig.machine().live().library_handles;
    let of_pool = {
        let _inside = runtime.mem_pools().enter(&pool, 0)?;
        Tensor::full(&[100_000], 2, DType::F32, cuda(0))?
    };
    assert_eq!(rig.machine().live().library_handles, handles + 1, "a segment of NCCL's");
    let tensors = [of_pool, Tensor::full(&[100_000], 2, DType::F32, cuda(1))?];
    let registered = [comms[0].register(&tensors[0])?, comms[1].register(&tensors[1])?];
    nccl::group(|| (0..2).try_for_each(|rank| comms[rank].all_reduce(&tensors[rank], &tensors[rank], nccl::SUM)))?;
    assert!(tensors[1].to_vec::<f32>()?.iter().all(|value| *value == 4.0));
    refused(comms[0].register(&tensors[1]), "a tensor is on device 1, and the communicator on device 0");
    let none = cause(comms[0].register(&Tensor::zeros(&[0], DType::F32, cuda(0))?));
    assert!(matches!(none, NcclError::Failed { call: "ncclCommRegister", .. }), "{none}");
    let calls =
        |name| rig.machine().library_calls().iter().filter(|call| call.symbol == name && call.status == 0).count();
    assert_eq!((calls("ncclCommRegister"), calls("ncclCommDeregister")), (2, 0));
    drop((registered, tensors));
    assert_eq!(calls("ncclCommDeregister"), 2);
    drop(pool);
    runtime.memory().empty_cache()?;
    assert_eq!((calls("ncclMemAlloc"), calls("ncclMemFree")), (1, 1));
    // Without memory, also after cached memory was released, the pool says so in torch's words.
    for occurrence in 1..=3 {
        rig.machine().inject(Fault { call: "ncclMemAlloc", occurrence, code: CUresult(1) });
    }
    let pool = MemPool::with_allocator(&allocator, MemPoolOptions::default())?;
    let refused = {
        let _inside = runtime.mem_pools().enter(&pool, 0)?;
        Tensor::zeros(&[8], DType::F32, cuda(0)).unwrap_err()
    };
    assert!(refused.to_string().contains("out of memory"), "{refused}");
    nccl::set_library(Some(cuda_sim::nccl_without(&["ncclMemAlloc"])));
    let old = cause(nccl::Memory::new());
    assert!(matches!(old, NcclError::TooOld { function: "ncclMemAlloc", .. }), "{old}");
    drop((pool, allocator, comms, runtime));
    close(rig);
    Ok(())
}

/// Runs a rank in each of several threads.
fn in_threads(rig: &SimulatedRuntime, ranks: usize, run: impl Fn(usize, &UniqueId) -> Result<()> + Sync) {
    let id = nccl::unique_id().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (simulation, run) = (rig.simulation().clone(), &run);
            scope.spawn(move || {
                let _entered = simulation.enter();
                run(rank, &id).unwrap();
            });
        }
    });
}

#[test]
fn ranks_of_threads_come_together_by_an_identity() {
    let rig = machine(4);
    in_threads(&rig, 4, |rank, id| {
        let device = i32::try_from(rank).unwrap();
        let comm = Communicator::init_rank(4, id, rank, device, &Options::default())?;
        let mine = on(rank, &[u8::try_from(rank).unwrap()]);
        let all = Tensor::zeros(&[4], DType::U8, cuda(rank))?;
        for _ in 0..5 {
            comm.all_gather(&mine, &all)?;
            comm.all_reduce(&mine, &mine, ReduceOp::Max)?;
        }
        comm.wait(&Runtime::current().streams().current(device)?, Duration::from_secs(60))?;
        assert_eq!(all.to_vec::<u8>()?, [3; 4]);
        comm.finalize(Duration::from_secs(60))
    });
    close(rig);
}

#[test]
fn ranks_that_do_not_come_end_the_waiting_in_time() -> Result<()> {
    let rig = machine(2);
    let (id, short) = (nccl::unique_id()?, Options::default().with_timeout(Duration::from_millis(30)));
    let late = Communicator::init_rank(2, &id, 0, 0, &short);
    refused(late, "ncclCommInitRankConfig of rank 0 of 2 was not done after 0.03 s");
    // The same identity serves afterwards, since the rank has left.
    in_threads(&rig, 2, |rank, _| {
        Communicator::init_rank(2, &id, rank, i32::try_from(rank).unwrap(), &Options::default()).map(drop)
    });
    close(rig);
    Ok(())
}

/// The current stream of a device.
fn stream(device: i32) -> Stream {
    Runtime::current().streams().current(device).unwrap()
}

/// What a communicator of two says when its work is waited for, after something has gone wrong in it.
fn told_after(run: impl Fn(&[Communicator], &[Tensor]) -> Result<()>) -> String {
    let rig = with(Config::default().devices(2).nccl_timeout(Duration::from_millis(40)));
    let tensors = [on(0, &[1.0_f32; 8]), on(1, &[1.0_f32; 8])];
    let comms = Communicator::init_all(&[0, 1]).unwrap();
    run(&comms, &tensors).unwrap();
    let told = cause(comms[0].wait(&stream(0), Duration::from_secs(60))).to_string();
    let later = cause(comms[0].all_reduce(&tensors[0], &tensors[0], nccl::SUM)).to_string();
    assert_eq!(later.split_once(": "), told.replace("work under way", "ncclAllReduce").split_once(": "));
    assert_eq!([0, 1].map(|rank| tensors[rank].to_vec::<f32>().unwrap()), [[1.0; 8], [1.0; 8]]);
    drop((comms, tensors));
    close(rig);
    told
}

#[test]
fn ranks_that_ask_for_different_things_are_named() {
    let told = told_after(|comms, tensors| {
        comms[0].all_reduce(&tensors[0], &tensors[0], nccl::SUM)?;
        comms[1].broadcast(None, &tensors[1], 0)
    });
    let parts = [
        "NCCL error in work under way: ncclInvalidUsage",
        "rank 0 called AllReduce(8 float32, sum)",
        "rank 1 called Broadcast(8 float32, root 0)",
    ];
    assert!(parts.iter().all(|part| told.contains(part)), "{told}");
}

#[test]
fn a_rank_that_goes_is_named() {
    let told = told_after(|comms, tensors| {
        comms[0].all_reduce(&tensors[0], &tensors[0], nccl::SUM)?;
        comms[1].abort()?;
        comms[1].abort()?;
        refused(comms[1].send(&tensors[1], 0), "ncclSend on a communicator that was aborted");
        Ok(())
    });
    assert!(told.contains("ncclRemoteError") && told.contains("rank 1 was aborted"), "{told}");
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let told = told_after(|comms, tensors| comms[0].all_reduce(&tensors[0], &tensors[0], nccl::SUM));
    assert!(told.contains("rank 1 has called nothing yet last"), "{told}");
    let told = told_after(|comms, tensors| {
        nccl::group(|| comms[0].send(&tensors[0], 1))?;
        comms[1].recv(&tensors[1].narrow(0, 0, 4)?, 0)
    });
    assert!(told.contains("rank 0 called Send(8 float32, to rank 1), rank 1 called Recv(4 float32, from"), "{told}");
}

#[test]
fn a_device_that_fails_is_told_of_to_all() {
    let told = told_after(|comms, tensors| {
        cuda_sim::Machine::current().inject(Fault { call: "ncclAsync", occurrence: 2, code: CUresult(6) });
        nccl::group(|| (0..2).try_for_each(|rank| comms[rank].all_reduce(&tensors[rank], &tensors[rank], nccl::SUM)))
    });
    assert!(told.contains("ncclRemoteError") && told.contains("a fault was injected"), "{told}");
}

#[test]
fn the_end_of_a_communicator_waits_for_its_work_and_not_for_others() -> Result<()> {
    let rig = with(Config::default().devices(2));
    let tensors = [on(0, &[1.0_f32; 8]), on(1, &[1.0_f32; 8])];
    let comms = Communicator::init_all(&[0, 1])?;
    nccl::group(|| (0..2).try_for_each(|rank| comms[rank].all_reduce(&tensors[rank], &tensors[rank], nccl::SUM)))?;
    comms.iter().try_for_each(|comm| comm.finalize(Duration::from_secs(60)))?;
    assert!(stream(0).query()? && stream(1).query()?);
    refused(comms[0].finalize(Duration::from_secs(60)), "ncclCommFinalize on a communicator that was finalized");
    let comms = Communicator::init_all(&[0, 1])?;
    comms[0].all_reduce(&tensors[0], &tensors[0], nccl::SUM)?;
    let late = comms[0].finalize(Duration::from_millis(20));
    refused(late, "ncclCommFinalize of rank 0 of 2 was not done after 0.02 s");
    stream(0).synchronize()?;
    assert_eq!(tensors[0].to_vec::<f32>()?, [2.0; 8], "the second one had no effect");
    drop((comms, tensors));
    close(rig);
    Ok(())
}

#[test]
fn each_call_that_fails_is_told_and_leaves_nothing() {
    let calls = ["ncclGetUniqueId", "ncclGroupStart", "ncclCommInitRankConfig", "ncclAllReduce", "ncclGroupEnd"];
    let run = || -> Result<Vec<f32>> {
        let tensors = [on(0, &[1.0_f32; 2]), on(1, &[2.0_f32; 2])];
        nccl::all_reduce(&refs(&tensors), None, nccl::SUM, &using())?;
        tensors[1].to_vec::<f32>()
    };
    for call in calls {
        for occurrence in 1..=2 {
            let rig = machine(2);
            rig.machine().inject(Fault { call, occurrence, code: CUresult(3) });
            match run() {
                Err(error) => assert!(error.to_string().contains("ncclInternalError"), "{call}: {error}"),
                Ok(found) => assert!(found == [3.0; 2] && call == "ncclGetUniqueId", "{call} {occurrence}"),
            }
            rig.machine().clear_faults();
            // A group that did not begin or end leaves the thread in none: the next one works.
            assert_eq!(run().unwrap_or_else(|error| panic!("{call} {occurrence}: {error}")), [3.0; 2]);
            close(rig);
        }
    }
}

#[test]
fn thousands_of_communicators_leave_nothing() -> Result<()> {
    let rig = machine(2);
    for round in 0..5_000 {
        let comms = Communicator::init_all(&[0, 1])?;
        if round % 3 == 0 {
            comms[0].abort()?;
        } else if round % 3 == 1 {
            comms.iter().try_for_each(|comm| comm.finalize(Duration::from_secs(60)))?;
        }
    }
    close(rig);
    Ok(())
}

fn direct() -> Options {
    Options::default().with_calls(Calls::Direct)
}

#[test]
fn direct_calls_do_what_polled_ones_do() {
    let rig = machine(3);
    for options in [Options::default(), direct()] {
        in_threads(&rig, 3, |rank, id| {
            let device = i32::try_from(rank).unwrap();
            let comm = Communicator::init_rank(3, id, rank, device, &options)?;
            let mine = on(rank, &[1.0_f32 + rank as f32]);
            for _ in 0..5 {
                comm.all_reduce(&mine, &mine, nccl::SUM)?;
            }
            comm.wait(&stream(device), Duration::from_secs(60))?;
            assert_eq!(mine.to_vec::<f32>()?, [486.0]);
            comm.finalize(Duration::from_secs(60))
        });
    }
    let splits = rig.machine().library_calls().iter().filter(|call| call.symbol == "ncclCommSplit").count();
    assert_eq!(splits, 3, "one for each rank whose calls are direct");
    close(rig);
}

#[test]
fn ranks_of_direct_calls_end_their_waiting_in_time_too() -> Result<()> {
    let rig = machine(2);
    let short = direct().with_timeout(Duration::from_millis(30));
    let late = Communicator::init_rank(2, &nccl::unique_id()?, 0, 0, &short);
    refused(late, "ncclCommInitRankConfig of rank 0 of 2 was not done after 0.03 s");
    in_threads(&rig, 2, |rank, id| {
        let (device, options) = (i32::try_from(rank).unwrap(), if rank == 0 { short } else { Options::default() });
        let joined = Communicator::init_rank(2, id, rank, device, &options);
        if rank == 0 {
            refused(joined, "ncclCommSplit of rank 0 of 2 was not done after 0.03 s");
        }
        Ok(())
    });
    nccl::set_library(Some(cuda_sim::nccl_without(&["ncclCommSplit"])));
    let old = cause(Communicator::init_rank(1, &nccl::unique_id()?, 0, 0, &direct()));
    assert!(matches!(old, NcclError::TooOld { function: "ncclCommSplit", .. }), "{old}");
    close(rig);
    Ok(())
}

#[test]
fn a_direct_call_that_waits_is_interrupted_by_an_abort() -> Result<()> {
    let rig = machine(2);
    let id = nccl::unique_id()?;
    let comms = nccl::group(|| {
        let join = |rank: usize| Communicator::init_rank(2, &id, rank, i32::try_from(rank).unwrap(), &direct());
        (0..2).map(join).collect::<Result<Vec<_>>>()
    })?;
    for comms in [comms, Communicator::init_all(&[0, 1])?] {
        std::thread::scope(|scope| {
            let (simulation, comm) = (rig.simulation().clone(), comms[0].clone());
            let before = rig.machine().live().library_handles;
            // The other rank does not split.
            let waits = scope.spawn(move || {
                let _entered = simulation.enter();
                refused(comm.split(Some(0), 0, &direct()), "ncclCommSplit on a communicator that was aborted");
            });
            // It is in the call when its part of the meeting has come.
            while rig.machine().live().library_handles == before && !waits.is_finished() {
                std::thread::yield_now();
            }
            comms[0].abort().unwrap();
            waits.join().unwrap();
        });
        refused(comms[0].async_error(), "work under way on a communicator that was aborted");
        drop(comms);
    }
    close(rig);
    Ok(())
}

#[test]
fn communicators_of_parts_of_the_ranks_are_independent() -> Result<()> {
    let rig = machine(6);
    let devices = [0, 1, 2, 3, 4, 5];
    for options in [Options::default(), direct()] {
        let all = Communicator::init_all_with(&devices, &options)?;
        for seed in 0..12 {
            let mut random = Random(seed);
            let asked: Vec<(Option<u16>, i32)> = (0..6)
                .map(|_| (Some(u16::try_from(random.below(4)).unwrap()), i32::try_from(random.below(3)).unwrap() - 1))
                .map(|(color, key)| (color.filter(|color| *color != 3), key))
                .collect();
            let split = |rank: usize| all[rank].split(asked[rank].0, asked[rank].1, &options);
            let parts = nccl::group(|| (0..6).map(split).collect::<Result<Vec<_>>>())?;
            let tensors: Vec<Tensor> = (0..6).map(|rank| on(rank, &[1_i64 << rank])).collect();
            nccl::group(|| {
                let mut both = parts.iter().zip(&tensors);
                both.try_for_each(|(part, own)| {
                    part.as_ref().map_or(Ok(()), |part| part.all_reduce(own, own, nccl::SUM))
                })
            })?;
            for (rank, (color, key)) in asked.iter().enumerate() {
                let of_color = |other: &usize| color.is_some() && asked[*other].0 == *color;
                let members: Vec<usize> = (0..6).filter(of_color).collect();
                let before = members.iter().filter(|other| (asked[**other].1, **other) < (*key, rank)).count();
                let seat = parts[rank].as_ref().map(|part| (part.rank(), part.size()));
                assert_eq!(seat, color.map(|_| (before, members.len())), "seed {seed}, rank {rank}");
                let sum = if color.is_some() { members.iter().map(|member| 1 << member).sum() } else { 1_i64 << rank };
                assert_eq!(tensors[rank].to_vec::<i64>()?, [sum], "seed {seed}, rank {rank}");
            }
            // One that is aborted leaves the others, and what they came from.
            if let Some(part) = &parts[0] {
                part.abort()?;
            }
            assert!(all.iter().all(|comm| comm.async_error().is_ok()));
        }
    }
    close(rig);
    Ok(())
}

#[test]
fn ranks_that_are_left_go_on_without_those_that_have_gone() -> Result<()> {
    let rig = with(Config::default().devices(3).nccl_timeout(Duration::from_millis(40)));
    for options in [Options::default(), direct()] {
        let all = Communicator::init_all_with(&[0, 1, 2], &options)?;
        let tensors: Vec<Tensor> = (0..3).map(|rank| on(rank, &[1_i64 << rank])).collect();
        nccl::group(|| {
            [0, 2].into_iter().try_for_each(|rank| all[rank].all_reduce(&tensors[rank], &tensors[rank], nccl::SUM))
        })?;
        all[1].abort()?;
        assert!(all[0].wait(&stream(0), Duration::from_secs(60)).is_err());
        let left = nccl::group(|| {
            [0, 2].into_iter().map(|rank| all[rank].shrink(&[1], true, &options)).collect::<Result<Vec<_>>>()
        })?;
        nccl::group(|| {
            [0, 2]
                .into_iter()
                .zip(&left)
                .try_for_each(|(rank, comm)| comm.all_reduce(&tensors[rank], &tensors[rank], nccl::SUM))
        })?;
        assert_eq!([tensors[0].to_vec::<i64>()?, tensors[2].to_vec::<i64>()?], [[5], [5]]);
        refused(all[0].shrink(&[3], false, &options), "excluded rank 3 is out of range of 3 ranks");
    }
    close(rig);
    Ok(())
}

#[test]
fn a_sum_multiplies_each_ranks_elements_by_its_factor() -> Result<()> {
    let rig = machine(2);
    let comms = Communicator::init_all(&[0, 1])?;
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let tensors = [on(0, &[3.0_f64]).to_dtype(dtype)?, on(1, &[5.0_f64]).to_dtype(dtype)?];
        nccl::group(|| {
            let factor = |rank: usize| ReduceOp::premul_sum([0.5, -2.0][rank]);
            (0..2).try_for_each(|rank| comms[rank].all_reduce(&tensors[rank], &tensors[rank], factor(rank)))
        })?;
        assert_eq!(tensors[1].to_dtype(DType::F64)?.to_vec::<f64>()?, [-8.5], "{dtype}");
    }
    let whole = on(0, &[1_i64]);
    refused(
        comms[0].all_reduce(&whole, &whole, ReduceOp::premul_sum(2.0)),
        "NCCL does not reduce elements of torch.int64 by premul_sum",
    );
    drop((comms, whole));
    close(rig);
    Ok(())
}

#[test]
fn options_that_nccl_refuses_are_told() -> Result<()> {
    let rig = machine(1);
    let few = Options { min_ctas: Some(8), max_ctas: Some(4), ..direct() };
    assert!(cause(Communicator::init_all_with(&[0], &few)).to_string().contains("minCTAs is 8, and maxCTAs 4"));
    let wide = Options { cga_cluster_size: Some(9), ..Options::default() };
    assert!(cause(Communicator::init_all_with(&[0], &wide)).to_string().contains("cgaClusterSize is 9"));
    let good =
        Options { min_ctas: Some(1), max_ctas: Some(64), cta_policy: Some(nccl::CtaPolicy::Efficiency), ..direct() };
    assert_eq!(Communicator::init_all_with(&[0], &good)?[0].size(), 1);
    close(rig);
    Ok(())
}

#[test]
fn a_graph_replays_groups_messages_and_all_collectives() -> Result<()> {
    let rig = machine(2);
    for options in [Options::default(), direct()] {
        let comms = Communicator::init_all_with(&[0, 1], &options)?;
        let values = [on(0, &[1.0_f32, 2.0]), on(1, &[3.0_f32, 4.0])];
        let wide = [on(0, &[0.0_f32; 4]), on(1, &[0.0_f32; 4])];
        // A message of a tensor without dimensions.
        let single = [on(0, &[0.0_f32]).view(&[])?, on(1, &[0.0_f32]).view(&[])?];
        let sides = [Stream::new(0, 0)?, Stream::new(1, 0)?];
        let mut graphs = [CUDAGraph::new(), CUDAGraph::new()];
        for (rank, comm) in comms.iter().enumerate() {
            sides[rank].wait_stream(&stream(i32::try_from(rank).unwrap()))?;
            let _current = sides[rank].guard();
            graphs[rank].capture_begin(None, CaptureMode::ThreadLocal)?;
            comm.all_gather(&values[rank], &wide[rank])?;
            comm.reduce_scatter(&wide[rank], &values[rank], nccl::SUM)?;
            comm.broadcast(None, &wide[rank], 1)?;
            nccl::group(|| {
                comm.send(&values[rank].narrow(0, 0, 1)?.view(&[])?, 1 - rank)?;
                comm.recv(&single[rank], 1 - rank)
            })?;
            comm.all_reduce(&values[rank], &values[rank], ReduceOp::premul_sum(0.5))?;
            graphs[rank].capture_end()?;
        }
        let mut model = [[1.0_f32, 2.0], [3.0, 4.0]];
        for _ in 0..3 {
            for (graph, side) in graphs.iter_mut().zip(&sides) {
                let _current = side.guard();
                graph.replay()?;
            }
            sides.iter().try_for_each(Stream::synchronize)?;
            let gathered = [model[0][0], model[0][1], model[1][0], model[1][1]];
            let scattered = [[2.0 * gathered[0], 2.0 * gathered[1]], [2.0 * gathered[2], 2.0 * gathered[3]]];
            assert_eq!(wide[0].to_vec::<f32>()?, gathered);
            let got = [single[0].to_vec::<f32>()?, single[1].to_vec::<f32>()?];
            assert_eq!(got, [[scattered[1][0]], [scattered[0][0]]]);
            model = [[0, 1].map(|at| 0.5 * (scattered[0][at] + scattered[1][at])); 2];
            assert_eq!([values[0].to_vec::<f32>()?, values[1].to_vec::<f32>()?], model);
        }
    }
    close(rig);
    Ok(())
}

/// Calls of NCCL so far whose name ends so.
fn calls_of(rig: &SimulatedRuntime, name: &str) -> usize {
    rig.machine().library_calls().iter().filter(|call| call.symbol.ends_with(name)).count()
}

#[test]
fn nccl_moves_tensors_of_comm_where_it_is_named_or_was_measured_to_be_quicker() -> Result<()> {
    let rig = machine(3);
    let inputs: Vec<Tensor> = (0..3).map(|rank| on(rank, &[1_i64 << rank; 5])).collect();
    let all = |run: &dyn Fn() -> Result<()>| -> Result<[usize; 3]> {
        let names = ["ncclBroadcast", "ncclReduce", "ncclAllReduce"];
        let before = names.map(|name| calls_of(&rig, name));
        run()?;
        Ok([0, 1, 2].map(|at| calls_of(&rig, names[at]) - before[at]))
    };
    let run = |pattern: Pattern| {
        for copy in comm::broadcast(&inputs[1], &[2, 1, 0])? {
            assert_eq!(copy.to_vec::<i64>()?, [2; 5]);
        }
        assert_eq!(comm::reduce_add(&refs(&inputs), 2)?.to_vec::<i64>()?, [7; 5]);
        let copies: Vec<Tensor> = inputs.iter().map(|input| input.add(0)).collect::<Result<_>>()?;
        comm::all_reduce_(&refs(&copies), pattern)?;
        copies.iter().try_for_each(|copy| copy.to_vec::<i64>().map(|values| assert_eq!(values, [7; 5])))
    };
    assert_eq!(all(&|| run(Pattern::Auto))?, [0; 3], "it is not chosen without a measurement");
    comm::set_route(Route::Nccl);
    assert_eq!(all(&|| run(Pattern::Nccl))?, [3; 3], "each rank calls once");
    nccl::set_library(None);
    assert_eq!(all(&|| run(Pattern::Nccl))?, [0; 3], "there is none");
    nccl::set_library(Some(cuda_sim::nccl()));
    comm::set_route(Route::Auto);
    let measured = comm::measure(&[2, 0, 1], &[40])?;
    let quicker = |movement: Movement| {
        let row = measured.iter().find(|row| row.movement == movement).unwrap();
        3 * usize::from(row.nccl_ns < row.own_ns)
    };
    let expected = [Movement::Broadcast, Movement::ReduceAdd, Movement::AllReduce].map(quicker);
    assert_eq!(all(&|| run(Pattern::Auto))?, expected, "{measured:?}");
    assert_eq!(all(&|| run(Pattern::Ring))?[2], 0, "what is named is done");
    comm::set_route(Route::Direct);
    assert_eq!(all(&|| run(Pattern::Tree))?, [0; 3]);
    comm::set_route(Route::Auto);
    comm::forget_measurements();
    assert_eq!(all(&|| run(Pattern::Auto))?, [0; 3]);
    drop(inputs);
    close(rig);
    Ok(())
}

/// Numbers that look random and follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// What one rank has, beside its tensor.
type Model = Vec<i64>;

fn combined(all: &[Model], op: ReduceOp) -> Model {
    let ranks = i64::try_from(all.len()).unwrap();
    let column = |index: usize| all.iter().map(move |one| one[index]);
    let sum = |index: usize| column(index).fold(0, i64::wrapping_add);
    let one = |index: usize| {
        if op == ReduceOp::Product {
            column(index).fold(1, i64::wrapping_mul)
        } else if op == ReduceOp::Min {
            column(index).min().unwrap()
        } else if op == ReduceOp::Max {
            column(index).max().unwrap()
        } else if op == ReduceOp::Avg {
            sum(index) / ranks
        } else {
            sum(index)
        }
    };
    (0..all[0].len()).map(one).collect()
}

/// One random step on all ranks: by NCCL, and by loops.
fn step(random: &mut Random, comms: &[Communicator], tensors: &mut [Tensor], models: &mut Vec<Model>) -> Result<()> {
    let ranks = comms.len();
    let ops = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
    let (op, root) = (ops[random.below(ops.len())], random.below(ranks));
    let length = i64::try_from(models[0].len()).unwrap();
    let new = |rank: usize, length: i64| Tensor::zeros(&[length], DType::I64, cuda(rank));
    match random.below(6) {
        0 => {
            nccl::all_reduce(&refs(tensors), None, op, &Using { comms, ..using() })?;
            *models = vec![combined(models, op); ranks];
        }
        1 => {
            nccl::reduce(&refs(tensors), None, root, op, &Using { comms, ..using() })?;
            models[root] = combined(models, op);
        }
        2 => {
            nccl::broadcast(&refs(tensors), root, &Using { comms, ..using() })?;
            *models = vec![models[root].clone(); ranks];
        }
        3 if length < 200 => {
            let to = (0..ranks).map(|rank| new(rank, length * ranks as i64)).collect::<Result<Vec<_>>>()?;
            nccl::all_gather(&refs(tensors), &refs(&to), &Using { comms, ..using() })?;
            tensors.clone_from_slice(&to);
            *models = vec![models.concat(); ranks];
        }
        4 if length % ranks as i64 == 0 => {
            let part = length / ranks as i64;
            let to = (0..ranks).map(|rank| new(rank, part)).collect::<Result<Vec<_>>>()?;
            nccl::reduce_scatter(&refs(tensors), &refs(&to), op, &Using { comms, ..using() })?;
            tensors.clone_from_slice(&to);
            let all = combined(models, op);
            *models = all.chunks(usize::try_from(part).unwrap()).map(<[i64]>::to_vec).collect();
        }
        _ => {
            let (shift, order) = (random.below(ranks), random.below(2));
            let to = (0..ranks).map(|rank| new(rank, length)).collect::<Result<Vec<_>>>()?;
            nccl::group(|| {
                (0..ranks).try_for_each(|rank| {
                    let send = || comms[rank].send(&tensors[rank], (rank + shift) % ranks);
                    let recv = || comms[rank].recv(&to[rank], (rank + ranks - shift) % ranks);
                    if order == 0 { send().and_then(|()| recv()) } else { recv().and_then(|()| send()) }
                })
            })?;
            tensors.clone_from_slice(&to);
            models.rotate_right(shift);
        }
    }
    Ok(())
}

#[test]
fn random_programs_do_what_loops_do() -> Result<()> {
    let programs: u64 = std::env::var("NCCL_PROGRAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    for ranks in 2..=8_usize {
        let rig = machine(u32::try_from(ranks).unwrap());
        let devices: Vec<i32> = (0..i32::try_from(ranks).unwrap()).collect();
        let comms = Communicator::init_all(&devices)?;
        for seed in (0..programs).filter(|seed| seed % 7 == ranks as u64 - 2) {
            let mut random = Random(seed);
            let length = ranks * (1 + random.below(4));
            let mut models: Vec<Model> =
                (0..ranks).map(|_| (0..length).map(|_| random.below(9) as i64 - 4).collect()).collect();
            let mut tensors: Vec<Tensor> = models.iter().enumerate().map(|(rank, model)| on(rank, model)).collect();
            for _ in 0..1 + random.below(5) {
                step(&mut random, &comms, &mut tensors, &mut models)?;
            }
            for (rank, (tensor, model)) in tensors.iter().zip(&models).enumerate() {
                assert_eq!(tensor.to_vec::<i64>()?, *model, "program {seed}, rank {rank} of {ranks}");
            }
        }
        drop(comms);
        close(rig);
    }
    Ok(())
}
