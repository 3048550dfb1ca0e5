//! What the variables `TORCH_NCCL_*` do.

use std::sync::Arc;
use std::time::Duration;

use aten_cuda::{DType, Tensor};
use cuda_dist::{Error, HashStore, InitOptions, P2POp, ProcessGroup, ReduceOp, Settings};

use super::{options, ranks};

fn alone(change: impl Fn(Settings) -> Settings, size: usize, timeout: Duration) -> ProcessGroup {
    let options = options(timeout);
    let settings = Some(change(options.settings.clone().unwrap()));
    let options = InitOptions { settings, ..options };
    ProcessGroup::with_store(Arc::new(HashStore::new()), 0, size, &options).unwrap()
}

#[test]
fn a_nan_is_found_before_it_goes() {
    let group = alone(|settings| Settings { nan_check: true, ..settings }, 2, Duration::from_secs(60));
    let nan = Tensor::from_slice(&[1.0, f32::NAN], &[2]).unwrap();
    let error = group.all_reduce(&nan, ReduceOp::Sum).unwrap_err();
    assert_eq!(error.to_string(), "rank 0 called all_reduce #1 of float32 [2] (sum), and some of its values are NaN");
    let half = nan.to(DType::BF16).unwrap();
    assert!(matches!(group.reduce(&half, 1, ReduceOp::Sum), Err(Error::NotANumber { rank: 0, .. })));
    assert!(matches!(group.batch_isend_irecv(&[P2POp::isend(&nan, 1)]), Err(Error::NotANumber { .. })));
    // What is not given may be anything, and whole numbers have no NaN.
    group.irecv(&nan, Some(1), 0).unwrap();
    group.broadcast(&nan, 1).unwrap();
    let whole = Tensor::zeros(&[2], DType::I64, "cpu").unwrap();
    assert_eq!(group.all_reduce(&whole, ReduceOp::Sum).unwrap().call().sequence, 2);
    let unchecked = alone(|settings| settings, 2, Duration::from_secs(60));
    unchecked.all_reduce(&nan, ReduceOp::Sum).unwrap();
}

#[test]
fn works_are_timed_where_that_is_asked_for() {
    for enable_timing in [true, false] {
        let group = alone(|settings| Settings { enable_timing, ..settings }, 1, Duration::from_secs(60));
        let work = group.barrier().unwrap();
        work.wait().unwrap();
        assert_eq!(work.duration().unwrap().is_some(), enable_timing);
    }
}

#[test]
fn the_flight_recorder_says_what_was_called_and_what_has_not_ended() {
    let prefix = std::env::temp_dir().join(format!("cuda-dist-flight-{}-", std::process::id()));
    let path = format!("{}0", prefix.display());
    let record = |settings| Settings {
        dump_on_timeout: true,
        debug_info_file: prefix.display().to_string(),
        trace_buffer_size: 3,
        ..settings
    };
    let group = alone(record, 2, Duration::from_millis(200));
    let tensor = Tensor::zeros(&[2, 5], DType::F32, "cpu").unwrap();
    group.isend(&tensor, 1, 0).unwrap().wait().unwrap();
    assert!(matches!(group.all_reduce(&tensor, ReduceOp::Max).unwrap().wait(), Err(Error::Timeout(_))));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for part in [
        "\"rank\":0,\"world_size\":2",
        "\"collective_seq_id\":0,\"p2p_seq_id\":1",
        "\"profiling_name\":\"store:send\"",
        "\"collective_seq_id\":1,\"p2p_seq_id\":0",
        "\"profiling_name\":\"store:all_reduce\"",
        "\"input_sizes\":[[2, 5]],\"input_dtypes\":[\"float32\"]",
        "\"state\":\"completed\"",
        "\"state\":\"scheduled\"",
        "\"last_enqueued_collective\":1,\"last_completed_collective\":-1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Without the variable nothing is written.
    let silent = |settings| Settings { dump_on_timeout: false, ..record(settings) };
    let group = alone(silent, 2, Duration::from_millis(100));
    assert!(group.barrier().unwrap().wait().is_err());
    assert!(!std::path::Path::new(&path).exists());
}

#[test]
fn ranks_that_wait_on_the_host_find_the_same() {
    let mut options = options(Duration::from_secs(60));
    options.settings = options.settings.map(|settings| Settings { blocking_wait: true, ..settings });
    ranks(2, &options, |group| {
        let tensor = Tensor::from_slice(&[2_i64], &[1]).unwrap();
        let work = group.all_reduce(&tensor, ReduceOp::Product).unwrap();
        work.wait().unwrap();
        assert!(work.is_completed());
        assert_eq!(tensor.to_vec::<i64>().unwrap(), [4]);
    });
}
