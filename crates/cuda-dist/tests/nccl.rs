//! Groups over the simulated NCCL: a thread for each rank, with a device of its own on one simulated machine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use aten_cuda::{Device, Tensor, nccl};
use c10_core::{CUDAGraph, CaptureMode, Stream};
use cuda_dist::{
    BackendKind, Error, GroupOptions, HashStore, InitOptions, PrefixStore, ProcessGroup, ReduceOp, Settings, Store,
};
use testkit::{CUresult, Fault};

const DEVICES: usize = 4;

/// The machine of all tests of this program.
fn machine() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let config = testkit::Config::default().devices(8).nccl_timeout(Duration::from_secs(60));
        testkit::make_default(config).unwrap();
        nccl::set_library(Some(cuda_sim::nccl()));
    });
}

/// Ends the work of all ranks, and then waits past NCCL: whoever drops a group aborts its communicator, and others that still
/// look whether their work is done would find that.
fn meet(group: &ProcessGroup) {
    group.barrier().unwrap().wait().unwrap();
    group.monitored_barrier(Duration::from_secs(60), true).unwrap();
}

/// Runs each rank on a thread of its own, and a device; what they found.
fn ranks<T: Send>(size: usize, timeout: Duration, rank: impl Fn(ProcessGroup) -> T + Sync) -> Vec<T> {
    let settings = Settings { beat: Duration::from_millis(20), ..Settings::default() };
    ranks_with(&settings, size, timeout, rank)
}

fn ranks_with<T: Send>(
    settings: &Settings,
    size: usize,
    timeout: Duration,
    rank: impl Fn(ProcessGroup) -> T + Sync,
) -> Vec<T> {
    ranks_by(|_, store| Arc::new(store), settings, size, timeout, rank)
}

/// Each rank has a way of its own to the store.
fn ranks_by<T: Send>(
    way: fn(usize, HashStore) -> Arc<dyn Store>,
    settings: &Settings,
    size: usize,
    timeout: Duration,
    rank: impl Fn(ProcessGroup) -> T + Sync,
) -> Vec<T> {
    machine();
    // Two groups at once would wait for each other on the default streams of the devices, which they share.
    static ONE_GROUP: Mutex<()> = Mutex::new(());
    let _alone = ONE_GROUP.lock().unwrap_or_else(PoisonError::into_inner);
    let store = HashStore::new();
    thread::scope(|scope| {
        let start = |number: usize| {
            let part = PrefixStore::new("0/", Arc::new(PrefixStore::new("default_pg", way(number, store.clone()))));
            let options = InitOptions {
                backend: BackendKind::Nccl,
                device: Some(Device::cuda(i32::try_from(number).unwrap())),
                timeout,
                settings: Some(settings.clone()),
                ..InitOptions::default()
            };
            let rank = &rank;
            scope.spawn(move || rank(ProcessGroup::with_store(Arc::new(part), number, size, &options).unwrap()))
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        let found = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let id = store.get("default_pg/0//cuda//0", Duration::ZERO).unwrap();
        assert_eq!(id.len(), 128, "where PyTorch looks for NCCL's identity");
        found
    })
}

fn on(rank: usize, values: &[f32]) -> Tensor {
    let length = i64::try_from(values.len()).unwrap();
    Tensor::from_slice(values, &[length]).unwrap().to_device(Device::cuda(i32::try_from(rank).unwrap())).unwrap()
}

#[test]
fn devices_compute_together_in_the_order_of_streams() {
    ranks(DEVICES, Duration::from_secs(60), |group| {
        let (rank, size) = (group.rank(), group.size());
        let value = rank as f32 + 1.0;
        assert_eq!(group.backend(), "nccl");
        // What is read was written by the current stream just before, and what is written is read by it just after.
        let tensor = on(rank, &[value; 4]).mul(10).unwrap();
        group.all_reduce(&tensor, ReduceOp::Sum).unwrap().wait().unwrap();
        assert_eq!(tensor.add(1).unwrap().to_vec::<f32>().unwrap(), [101.0; 4]);
        let tensor = on(rank, &[value]);
        group.broadcast(&tensor, 2).unwrap().wait().unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [3.0]);
        let tensor = on(rank, &[value]);
        group.reduce(&tensor, 1, ReduceOp::Max).unwrap().wait().unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [if rank == 1 { size as f32 } else { value }]);
        let gathered = on(rank, &[0.0; DEVICES]);
        group.all_gather_into_tensor(&gathered, &on(rank, &[value])).unwrap().wait().unwrap();
        assert_eq!(gathered.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
        let part = on(rank, &[0.0]);
        group.reduce_scatter_tensor(&part, &gathered, ReduceOp::Avg).unwrap().wait().unwrap();
        assert_eq!(part.to_vec::<f32>().unwrap(), [value]);
        meet(&group);
        group.destroy().unwrap();
    });
}

#[test]
fn random_programs_agree_with_plain_loops() {
    for size in support::SIZES {
        ranks(size, Duration::from_secs(60), |group| {
            support::run_programs(&group);
            meet(&group);
        });
    }
    // Not beside the others: ranks of two groups would wait for each other on the devices' default streams.
    for size in [2, 4] {
        ranks_with(&direct(), size, Duration::from_secs(60), |group| {
            support::run_programs(&group);
            meet(&group);
        });
    }
}

#[test]
fn ten_thousand_communicators_leave_nothing() {
    ranks(1, Duration::from_secs(60), |group| support::make_ten_thousand(&group));
}

#[test]
fn parts_have_communicators_of_their_own() {
    ranks(3, Duration::from_secs(60), |whole| {
        let rank = whole.rank();
        let part = match whole.new_group(&[2, 0], &GroupOptions::default()) {
            Ok(part) => part,
            Err(Error::NotInGroup { rank: 1, ranks }) => {
                assert_eq!((ranks, rank), (vec![0, 2], 1));
                whole.monitored_barrier(Duration::from_secs(60), true).unwrap();
                return meet(&whole);
            }
            Err(error) => panic!("{error}"),
        };
        // Where PyTorch looks for the identity of the first group of some ranks.
        assert!(whole.store().check(&["1//cuda//0"]).unwrap());
        let tensor = on(rank, &[rank as f32]);
        part.all_reduce(&tensor, ReduceOp::Max).unwrap().wait().unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [2.0]);
        // By the store the same ranks move tensors of the host.
        let by_store = GroupOptions { backend: Some(BackendKind::Store), ..GroupOptions::default() };
        let on_host = part.new_group(&[0, 1], &by_store).unwrap();
        assert_eq!((part.backend(), on_host.backend(), on_host.device()), ("nccl", "store", None));
        on_host.barrier().unwrap().wait().unwrap();
        part.barrier().unwrap().wait().unwrap();
        on_host.destroy().unwrap();
        // It waits for the other rank, and the last to leave removes what the group has in the store.
        part.destroy().unwrap();
        whole.monitored_barrier(Duration::from_secs(60), true).unwrap();
        assert!(!whole.store().check(&["1//cuda_dist/left"]).unwrap());
        meet(&whole);
    });
}

#[test]
fn what_nccl_has_not_is_refused_and_scales_are_its_own() {
    ranks(2, Duration::from_secs(60), |group| {
        let rank = group.rank();
        let tensor = on(rank, &[rank as f32 + 1.0]);
        let work = group.all_reduce(&tensor, ReduceOp::PremulSum(0.5)).unwrap();
        work.wait().unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.5]);
        assert_eq!(work.duration().unwrap(), None, "nobody asked for it");
        let whole = tensor.to(aten_cuda::DType::I64).unwrap();
        let unsupported = |error: Error| matches!(error, Error::Unsupported { backend: "nccl", .. });
        assert!(unsupported(group.all_reduce(&whole, ReduceOp::BAnd).unwrap_err()));
        assert!(unsupported(group.send(&tensor, 1 - rank, 3).unwrap_err()), "a tag");
        assert!(unsupported(group.recv(&tensor, None, 0).unwrap_err()), "from anyone");
        meet(&group);
    });
}

#[test]
fn settings_of_streams_events_and_numbers() {
    machine();
    let settings = Settings { enable_timing: true, high_priority: true, nan_check: true, ..Settings::default() };
    let (backend, settings) = (BackendKind::Nccl, Some(settings));
    let options = InitOptions { backend, settings, ..InitOptions::default() };
    let group = ProcessGroup::with_store(Arc::new(HashStore::new()), 0, 1, &options).unwrap();
    let tensor = on(0, &[1.0, 2.0]);
    let work = group.all_reduce(&tensor, ReduceOp::Sum).unwrap();
    work.wait().unwrap();
    while !work.is_completed() {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(work.duration().unwrap().is_some());
    let nan = on(0, &[1.0, f32::NAN]);
    assert!(matches!(group.all_reduce(&nan, ReduceOp::Sum), Err(Error::NotANumber { .. })));
}

#[test]
fn a_message_that_does_not_come_is_named() {
    let texts = ranks(2, Duration::from_millis(600), |group| {
        let tensor = on(group.rank(), &[1.0]);
        if group.rank() == 1 {
            thread::sleep(Duration::from_millis(1500));
            return String::new();
        }
        let work = group.irecv(&tensor, Some(1), 0).unwrap();
        while !work.is_completed() {
            thread::sleep(Duration::from_millis(5));
        }
        work.exception().unwrap().to_string()
    });
    assert!(texts[0].starts_with("rank 0: recv #1 of float32 [1] (from rank 1) did not end"), "{}", texts[0]);
    assert!(texts[0].contains("it was never sent by rank 1"), "{}", texts[0]);
}

#[test]
fn a_rank_that_does_not_call_is_named() {
    let begin = Instant::now();
    let texts = ranks(2, Duration::from_millis(800), |group| {
        group.barrier().unwrap().wait().unwrap();
        if group.rank() == 1 {
            thread::sleep(Duration::from_secs(2));
            return String::new();
        }
        let work = group.all_reduce(&on(0, &[1.0]), ReduceOp::Sum).unwrap();
        // Only streams are ordered by this.
        work.wait().unwrap();
        while !work.is_completed() {
            thread::sleep(Duration::from_millis(5));
        }
        let Some(Error::Timeout(report)) = work.exception() else { panic!("{:?}", work.exception()) };
        assert_eq!(report.missing(), [1]);
        assert!(group.barrier().is_err(), "the group was given up");
        report.to_string()
    });
    assert!(texts[0].contains("rank 0: all_reduce #2 of float32 [1] (sum) did not end"), "{}", texts[0]);
    assert!(texts[0].contains("rank 1 last called barrier #1, which is done there"), "{}", texts[0]);
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn ranks_that_call_different_collectives_are_named() {
    let texts = ranks(2, Duration::from_secs(20), |group| {
        let tensor = on(group.rank(), &[1.0, 2.0]);
        let work =
            if group.rank() == 0 { group.all_reduce(&tensor, ReduceOp::Sum) } else { group.broadcast(&tensor, 0) };
        let work = match work {
            Ok(work) => work,
            Err(error) => return error.to_string(),
        };
        let begin = Instant::now();
        while !work.is_completed() && begin.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(5));
        }
        work.exception().unwrap().to_string()
    });
    for text in texts {
        assert!(text.contains("rank 0 called AllReduce(2 float32, sum)"), "{text}");
        assert!(text.contains("rank 1 called Broadcast(2 float32, root 0)"), "{text}");
    }
}

#[test]
fn tensors_of_other_devices_are_refused() {
    ranks(2, Duration::from_secs(60), |group| {
        let other = on(1 - group.rank(), &[1.0]);
        let error = group.all_reduce(&other, ReduceOp::Sum).unwrap_err();
        assert!(matches!(error, Error::Unsupported { backend: "nccl", .. }), "{error}");
        let host = Tensor::from_slice(&[1.0_f32], &[1]).unwrap();
        assert!(matches!(group.broadcast(&host, 0), Err(Error::Unsupported { backend: "nccl", .. })));
        meet(&group);
    });
}

fn direct() -> Settings {
    Settings { beat: Duration::from_millis(20), direct_calls: true, ..Settings::default() }
}

#[test]
fn direct_calls_end_with_a_rank_that_is_missing() {
    ranks_with(&direct(), 2, Duration::from_millis(1500), |group| {
        let tensor = on(group.rank(), &[1.0; 4]);
        group.all_reduce(&tensor, ReduceOp::Sum).unwrap().wait().unwrap();
        meet(&group);
        if group.rank() == 0 {
            let work = group.all_reduce(&tensor, ReduceOp::Sum).unwrap();
            let error = work.wait_timeout(Duration::from_secs(60)).unwrap_err();
            assert!(matches!(&error, Error::Timeout(report) if report.missing() == [1]), "{error}");
        } else {
            // It lives, and calls nothing.
            thread::sleep(Duration::from_millis(2500));
        }
    });
}

/// A way to a store that takes 50 ms for what has no answer. What is asked after that is answered after it.
#[derive(Debug)]
struct Slow {
    store: HashStore,
    under_way: Arc<Mutex<Vec<thread::JoinHandle<()>>>>,
}

impl Slow {
    /// The store, once it has all that was set this way.
    fn store(&self) -> &HashStore {
        let mut under_way = self.under_way.lock().unwrap();
        under_way.drain(..).for_each(|set| set.join().unwrap());
        &self.store
    }
}

impl Store for Slow {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let (store, key, value) = (self.store.clone(), key.to_owned(), value.to_vec());
        let set = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            store.set(&key, &value).unwrap();
        });
        self.under_way.lock().unwrap().push(set);
        Ok(())
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>, Error> {
        self.store().compare_set(key, expected, desired)
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, Error> {
        self.store().get(key, timeout)
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64, Error> {
        self.store().add(key, amount)
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.store().append(key, value)
    }

    fn check(&self, keys: &[&str]) -> Result<bool, Error> {
        self.store().check(keys)
    }

    fn wait(&self, keys: &[&str], timeout: Duration) -> Result<(), Error> {
        self.store().wait(keys, timeout)
    }

    fn delete_key(&self, key: &str) -> Result<bool, Error> {
        self.store().delete_key(key)
    }

    fn num_keys(&self) -> Result<usize, Error> {
        self.store().num_keys()
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.store().queue_push(key, value)
    }

    fn queue_pop(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, Error> {
        self.store().queue_pop(key, timeout)
    }

    fn queue_len(&self, key: &str) -> Result<usize, Error> {
        self.store().queue_len(key)
    }

    fn duplicate(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(Self { store: self.store.clone(), under_way: Arc::default() }))
    }
}

#[test]
fn ranks_agree_on_direct_calls_though_one_has_a_slow_way_to_the_store() {
    let way = |rank: usize, store: HashStore| -> Arc<dyn Store> {
        if rank == 1 { Arc::new(Slow { store, under_way: Arc::default() }) } else { Arc::new(store) }
    };
    // Ranks that do not agree would wait for each other until the time is over, which is an error.
    ranks_by(way, &direct(), 2, Duration::from_secs(60), |group| {
        let tensor = on(group.rank(), &[1.0]);
        group.all_reduce(&tensor, ReduceOp::Sum).unwrap().wait().unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [2.0]);
        meet(&group);
    });
}

#[test]
fn a_captured_collective_runs_with_each_replay() {
    ranks(2, Duration::from_secs(60), |group| {
        let rank = group.rank();
        let tensor = on(rank, &[rank as f32 + 1.0]);
        let side = Stream::new(Device::cuda(i32::try_from(rank).unwrap()), 0).unwrap();
        let _current = side.guard();
        side.synchronize().unwrap();
        let mut graph = CUDAGraph::new();
        graph.capture_begin(None, CaptureMode::ThreadLocal).unwrap();
        group.all_reduce(&tensor, ReduceOp::Sum).unwrap().wait().unwrap();
        graph.capture_end().unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [rank as f32 + 1.0], "nothing has run yet");
        for _ in 0..2 {
            graph.replay().unwrap();
            group.barrier().unwrap().wait().unwrap();
        }
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [6.0]);
        meet(&group);
    });
}

/// Collectives of one rank, of each way that they take; what came.
fn of_one_rank() -> Result<Vec<f32>, Error> {
    let settings =
        Settings { beat: Duration::from_millis(5), enable_timing: true, nan_check: true, ..Settings::default() };
    let (backend, settings) = (BackendKind::Nccl, Some(settings));
    let options = InitOptions { backend, settings, ..InitOptions::default() };
    let group = ProcessGroup::with_store(Arc::new(HashStore::new()), 0, 1, &options)?;
    let collectives = || {
        let input = Tensor::from_slice(&[1.0_f32, 2.0], &[2])?.to_device(Device::cuda(0))?;
        let outputs = [Tensor::zeros(&[2], input.dtype(), input.device())?];
        group.all_reduce(&input, ReduceOp::PremulSum(2.0))?.wait()?;
        group.all_gather(&outputs, &input)?.wait()?;
        group.reduce_scatter(&input, &outputs, ReduceOp::Sum)?.wait()?;
        group.all_to_all(&outputs, &[input])?.wait()?;
        let object = group.all_gather_object(b"object")?;
        assert_eq!(object, [b"object"]);
        group.barrier()?.wait()?;
        Ok(outputs[0].to_vec::<f32>()?)
    };
    let got = collectives();
    group.destroy()?;
    got
}

const ALONE: &str = "CUDA_DIST_TEST_ALONE";

/// In a process of its own, since all threads of a process have one machine. Does nothing otherwise.
#[test]
fn calls_fail_one_after_another() {
    if std::env::var(ALONE).is_err() {
        return;
    }
    let machine = testkit::make_default(testkit::Config::default()).unwrap();
    nccl::set_library(Some(cuda_sim::nccl()));
    let expected = of_one_rank().unwrap();
    assert_eq!(expected, [2.0, 4.0]);
    let calls = || machine.calls().into_iter().filter(|(_, code, _)| *code == CUresult::CUDA_SUCCESS);
    let before: Vec<_> = calls().collect();
    of_one_rank().unwrap();
    let mut failed = 0;
    for (call, _, all) in calls() {
        let count = all - before.iter().find(|(name, ..)| *name == call).map_or(0, |(.., count)| *count);
        for occurrence in BTreeSet::from([1, count / 2]).into_iter().filter(|number| *number > 0) {
            let fault = Fault { call, occurrence, code: CUresult::CUDA_ERROR_NOT_PERMITTED };
            machine.inject(fault);
            match of_one_rank() {
                Ok(got) => assert_eq!(got, expected, "{fault:?}"),
                Err(Error::Tensor(_)) => failed += 1,
                Err(error) => panic!("{fault:?}: {error:?}"),
            }
            machine.clear_faults();
            assert_eq!(of_one_rank().unwrap(), expected, "after {fault:?}");
        }
    }
    assert!(failed > 10, "{failed} failed");
}

#[test]
fn a_call_of_the_driver_that_fails_is_told_and_nothing_hangs() {
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program)
        .args(["--exact", "calls_fail_one_after_another", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
