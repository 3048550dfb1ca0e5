//! Groups of threads over a store in the process: results against plain loops, and what is refused.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod messages;
mod objects;
mod settings;
mod subgroups;
#[path = "../support/mod.rs"]
mod support;

use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use aten_cuda::{DType, Tensor};
use cuda_dist::{Error, ErrorHandling, HashStore, InitOptions, Life, ProcessGroup, ReduceOp, Settings};
use support::{SIZES, run_programs};

fn options(timeout: Duration) -> InitOptions {
    let settings = Settings { beat: Duration::from_millis(20), ..Settings::default() };
    InitOptions { timeout, settings: Some(settings), ..InitOptions::default() }
}

/// The machine of all tests of this program, whose device is used to see that it is refused.
fn machine() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(testkit::make_default(testkit::Config::default()).unwrap()));
}

/// Runs each rank on a thread of its own; what they found.
fn ranks<T: Send>(size: usize, options: &InitOptions, rank: impl Fn(ProcessGroup) -> T + Sync) -> Vec<T> {
    let store = HashStore::new();
    thread::scope(|scope| {
        let start = |number: usize| {
            let (store, rank) = (store.clone(), &rank);
            scope.spawn(move || rank(ProcessGroup::with_store(Arc::new(store), number, size, options).unwrap()))
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn random_programs_agree_with_plain_loops() {
    for size in SIZES {
        ranks(size, &options(Duration::from_secs(60)), |group| {
            run_programs(&group);
            group.monitored_barrier(Duration::from_secs(60), false).unwrap();
        });
    }
}

#[test]
fn ten_thousand_groups_leave_nothing() {
    ranks(1, &options(Duration::from_secs(60)), |group| support::make_ten_thousand(&group));
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    machine();
    let group = ProcessGroup::with_store(Arc::new(HashStore::new()), 0, 1, &options(Duration::from_secs(60))).unwrap();
    let tensor = Tensor::zeros(&[3], DType::F32, "cpu").unwrap();
    let on_device = tensor.cuda(None).unwrap();
    let error = group.all_reduce(&on_device, ReduceOp::Sum).unwrap_err();
    assert!(
        matches!(error, Error::Unsupported { backend: "store", .. }) && error.to_string().contains("cuda:0"),
        "{error}"
    );
    let refused = group.all_reduce(&tensor, ReduceOp::BXor).unwrap_err().to_string();
    assert!(refused.contains("float32 cannot be made one by bxor"), "{refused}");
    let whole = Tensor::zeros(&[3], DType::I64, "cpu").unwrap();
    for op in [ReduceOp::PremulSum(2.0), ReduceOp::PremulSum(f64::NAN)] {
        assert!(matches!(group.reduce(&whole, 0, op), Err(Error::Argument(_))));
    }
    let large = Tensor::zeros(&[(1 << 20) + 1], DType::F64, "cpu").unwrap();
    assert!(matches!(group.broadcast(&large, 0), Err(Error::Unsupported { .. })));
    assert!(matches!(group.broadcast(&tensor, 1), Err(Error::Argument(_))));
    assert!(matches!(group.reduce(&tensor, 9, ReduceOp::Sum), Err(Error::Argument(_))));
    let two = Tensor::zeros(&[2], DType::F32, "cpu").unwrap();
    assert!(matches!(group.all_gather_into_tensor(&two, &tensor), Err(Error::Argument(_))));
    assert!(matches!(group.reduce_scatter_tensor(&two, &tensor, ReduceOp::Sum), Err(Error::Argument(_))));
    lists_that_cannot_be(&group, &tensor, &two);
    let nobody = ProcessGroup::with_store(Arc::new(HashStore::new()), 2, 2, &options(Duration::from_secs(1)));
    assert!(matches!(nobody, Err(Error::Argument(_))));
    // Nothing of this counts as a collective.
    assert_eq!(group.barrier().unwrap().call().sequence, 1);
    let empty = Tensor::zeros(&[0, 4], DType::F32, "cpu").unwrap();
    group.all_reduce(&empty, ReduceOp::Sum).unwrap().wait().unwrap();
}

/// Of one rank.
fn lists_that_cannot_be(group: &ProcessGroup, tensor: &Tensor, two: &Tensor) {
    let lists: [&[Tensor]; 3] = [&[], std::slice::from_ref(two), &[tensor.clone(), tensor.clone()]];
    let whole = Tensor::zeros(&[3], DType::I64, "cpu").unwrap();
    for list in lists {
        assert!(matches!(group.all_gather(list, tensor), Err(Error::Argument(_))));
        assert!(matches!(group.reduce_scatter(tensor, list, ReduceOp::Sum), Err(Error::Argument(_))));
        assert!(matches!(group.gather(tensor, Some(list), 0), Err(Error::Argument(_))));
        assert!(matches!(group.scatter(tensor, Some(list), 0), Err(Error::Argument(_))));
        assert!(matches!(group.all_to_all(list, std::slice::from_ref(tensor)), Err(Error::Argument(_))));
    }
    assert!(matches!(group.scatter(tensor, None, 0), Err(Error::Argument(_))));
    assert!(matches!(group.gather(tensor, None, 1), Err(Error::Argument(_))));
    let own = std::slice::from_ref(tensor);
    assert!(matches!(group.all_to_all(own, std::slice::from_ref(&whole)), Err(Error::Argument(_))));
    for splits in [&[2_usize][..], &[], &[usize::MAX, 4]] {
        let error = group.all_to_all_single(tensor, tensor, Some(splits), None).unwrap_err().to_string();
        assert!(error.contains("the output has 3 rows for 1 ranks"), "{error}");
    }
    assert!(matches!(group.all_to_all_single(tensor, &whole, None, None), Err(Error::Argument(_))));
    let scalar = Tensor::zeros(&[], DType::F32, "cpu").unwrap();
    assert!(matches!(group.all_to_all_single(&scalar, &scalar, None, None), Err(Error::Argument(_))));
}

#[test]
fn numbers_are_scaled_before_they_are_summed() {
    let sums = ranks(3, &options(Duration::from_secs(60)), |group| {
        let tensor = Tensor::from_slice(&[group.rank() as f32 + 1.0], &[1]).unwrap();
        group.all_reduce(&tensor, ReduceOp::PremulSum(0.5)).unwrap().wait().unwrap();
        tensor.to_vec::<f32>().unwrap()[0]
    });
    assert_eq!(sums, [3.0; 3]);
}

#[test]
fn a_pair_that_exchanges_other_sizes_is_named() {
    let texts = ranks(2, &options(Duration::from_secs(60)), |group| {
        let input = Tensor::zeros(&[4], DType::F32, "cpu").unwrap();
        // Rank 0 wants two elements from rank 1, which gives it three.
        let own = if group.rank() == 0 { [2, 2] } else { [3, 1] };
        let gets = if group.rank() == 0 { [2, 2] } else { [2, 1] };
        let output = Tensor::zeros(&[gets[0] + gets[1]], DType::F32, "cpu").unwrap();
        let [own, gets] = [own, gets.map(|length| usize::try_from(length).unwrap())];
        let outcome = group.all_to_all_single(&output, &input, Some(&gets), Some(&own)).unwrap().wait();
        outcome.err().map(|error| error.to_string()).unwrap_or_default()
    });
    assert!(texts[0].contains("has 12 bytes from rank 1, and 8 were to come"), "{texts:?}");
}

#[test]
fn each_difference_between_calls_is_named() {
    let differences = ranks(2, &options(Duration::from_secs(60)), |group| {
        let sizes = [3 + group.rank() as i64];
        let tensor = Tensor::zeros(&sizes, DType::F32, "cpu").unwrap();
        let Err(Error::Mismatch { rank, other_rank, difference, .. }) = group.broadcast(&tensor, 0).unwrap().wait()
        else {
            panic!("the sizes differ")
        };
        assert_eq!((rank, other_rank), (group.rank(), 1 - group.rank()));
        // The group is given up, so that nobody goes on with the wrong number of calls.
        let begin = Instant::now();
        while group.barrier().is_ok() {
            assert!(begin.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(5));
        }
        difference
    });
    assert_eq!(differences, ["the sizes are [3] and [4]", "the sizes are [4] and [3]"]);
}

#[test]
fn a_wait_has_its_own_time_and_the_work_goes_on() {
    ranks(2, &options(Duration::from_secs(60)), |group| {
        if group.rank() == 1 {
            thread::sleep(Duration::from_millis(300));
            return group.barrier().unwrap().wait().unwrap();
        }
        let work = group.barrier().unwrap();
        let error = work.wait_timeout(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(&error, Error::NotDone { rank: 0, .. }), "{error}");
        assert!(!work.is_completed() && work.exception().is_none());
        work.wait().unwrap();
        assert!(work.is_completed());
    });
}

#[test]
fn who_has_left_is_said_to_have_left() {
    let texts = ranks(2, &options(Duration::from_millis(300)), |group| {
        group.barrier().unwrap().wait().unwrap();
        if group.rank() == 1 {
            return group.destroy().map(|()| String::new()).unwrap();
        }
        let Err(Error::Timeout(report)) = group.barrier().unwrap().wait() else { panic!("nobody else came") };
        assert_eq!((report.missing(), report.others[0].life), (vec![1], Life::Left));
        report.to_string()
    });
    assert!(
        texts[0].contains("rank 1 last called barrier #1, which is done there, and has left the group"),
        "{}",
        texts[0]
    );
}

#[test]
fn destroying_a_group_ends_what_is_under_way() {
    let group = ProcessGroup::with_store(Arc::new(HashStore::new()), 0, 2, &options(Duration::from_secs(60))).unwrap();
    let work = group.barrier().unwrap();
    let begin = Instant::now();
    group.destroy().unwrap();
    assert!(matches!(work.wait(), Err(Error::Destroyed)));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn without_handling_the_group_goes_on() {
    let mut options = options(Duration::from_millis(200));
    let settings = Settings {
        error_handling: ErrorHandling::NoHandling,
        propagate_error: false,
        ..options.settings.clone().unwrap()
    };
    options.settings = Some(Settings { desync_debug: false, ..settings });
    let group = ProcessGroup::with_store(Arc::new(HashStore::new()), 0, 2, &options).unwrap();
    let Err(Error::Timeout(report)) = group.barrier().unwrap().wait() else { panic!("rank 1 is not there") };
    assert_eq!((report.missing(), report.others[0].life), (Vec::new(), Life::NotAsked));
    assert_eq!(group.barrier().unwrap().call().sequence, 2);
}
