//! What the variables `TORCH_NCCL_*` do.

use std::sync::Arc;
use std::time::Duration;

use aten_cuda::{DType, Tensor};
use cuda_dist::{Error, GroupOptions, HashStore, InitOptions, P2POp, ProcessGroup, ReduceOp, Settings};

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

/// Reads pickles as `torchfrtrace` reads them: Python's own module, and names and kinds of all that it looks at.
const READER: &str = r#"
import ast, pickle, sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        dump = pickle.load(file)
    assert isinstance(dump["comm_lib_version"], str)
    for name, group in dump["pg_config"].items():
        print("group", name, group["name"] == name, group["desc"], ast.literal_eval(group["ranks"]))
    for number, status in sorted(dump["pg_status"].items()):
        print("status", number, *(status[f"last_{what}_collective"] for what in ("enqueued", "started", "completed")))
    for entry in dump["entries"]:
        major, minor = map(int, dump["version"].split("."))
        name, description = entry["process_group"]
        assert (major, minor) >= (2, 7) and isinstance(entry["process_group"], tuple)
        assert entry["frames"] == [] and entry["time_created_ns"] > 1 << 60 and entry["thread_id"].isdigit()
        ended = entry["time_discovered_completed_ns"]
        assert (ended is None) == (entry["state"] != "completed") and (ended or 1 << 62) >= entry["time_created_ns"]
        print(entry["record_id"], entry["pg_id"], name, description, entry["profiling_name"],
              entry["collective_seq_id"], entry["p2p_seq_id"], entry["op_id"],
              entry["input_sizes"], entry["input_dtypes"], entry["output_sizes"], entry["output_dtypes"],
              entry["state"], entry["retired"], entry["is_p2p"], entry["timeout_ms"], "failure" in entry)
"#;

#[expect(clippy::print_stderr, reason = "a test that is left out says why")]
fn read_by_python(path: &str) -> Option<String> {
    let python = |arguments: &[&str]| std::process::Command::new("python3").args(arguments).output();
    if !python(&["--version"]).is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "there is no python3");
        eprintln!("skipped: there is no python3 here");
        return None;
    }
    let output = python(&["-c", READER, path]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A file for each rank, and a recorder with room for three calls.
fn recorded(name: &str) -> (String, impl Fn(Settings) -> Settings) {
    let prefix = std::env::temp_dir().join(format!("cuda-dist-{name}-{}-", std::process::id())).display().to_string();
    let file = prefix.clone();
    let record = move |settings| Settings {
        dump_on_timeout: true,
        debug_info_file: file.clone(),
        trace_buffer_size: 3,
        ..settings
    };
    (format!("{prefix}0"), record)
}

#[test]
fn the_flight_recorder_says_what_was_called_and_what_has_not_ended() {
    let (path, record) = recorded("flight");
    let group = alone(&record, 2, Duration::from_millis(200));
    let tensor = Tensor::zeros(&[2, 5], DType::F32, "cpu").unwrap();
    group.isend(&tensor, 1, 0).unwrap().wait().unwrap();
    assert!(matches!(group.all_reduce(&tensor, ReduceOp::Max).unwrap().wait(), Err(Error::Timeout(_))));
    let read = read_by_python(&path);
    std::fs::remove_file(&path).unwrap();
    if let Some(read) = read {
        let tensor = "[[2, 5]] ['Float'] [[2, 5]] ['Float']";
        let wanted = format!(
            "group 0 True default_pg [0, 1]\nstatus 0 1 -1 -1\n\
             0 0 0 default_pg store:send 0->1 0 1 1 {tensor} completed True True 200 False\n\
             1 0 0 default_pg store:all_reduce 1 1 2 {tensor} scheduled False False 200 False\n"
        );
        assert_eq!(read, wanted);
    }
    // As JSON, torch has texts for numbers of groups, and 0 for what has not come.
    let text = group.flight_record();
    for part in [
        "\"state\":\"scheduled\"",
        "\"time_discovered_completed_ns\":0",
        "\"last_enqueued_collective\":\"1\"",
        "\"call\":\"all_reduce #1 of float32 [2, 5] (max)\"",
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
fn one_recorder_has_the_calls_of_all_groups_of_a_rank() {
    let (path, record) = recorded("groups");
    let options = options(Duration::from_secs(60));
    let options = InitOptions { settings: Some(record(options.settings.clone().unwrap())), ..options };
    ranks(2, &options, |group| {
        // Each rank is in one of two groups.
        let [first, second] = [0, 1].map(|rank| group.new_group(&[rank], &GroupOptions::default()));
        let own = if group.rank() == 0 { first } else { second }.unwrap();
        own.barrier().unwrap().wait().unwrap();
        group.barrier().unwrap().wait().unwrap();
        for group in [&own, &group] {
            assert_eq!(group.flight_record().matches("\"record_id\"").count(), 2);
        }
        if group.rank() == 0 {
            std::fs::write(&path, group.flight_record_pickle()).unwrap();
        }
    });
    let read = read_by_python(&path);
    std::fs::remove_file(&path).unwrap();
    let Some(read) = read else { return };
    let lines: Vec<&str> = read.lines().collect();
    assert_eq!(lines[..2], ["group 0 True default_pg [0, 1]", "group 1 True undefined [0]"], "{read}");
    assert!(lines[4].starts_with("0 1 1 undefined store:barrier 1 0 1 [] [] [] []"), "{read}");
    assert!(lines[5].starts_with("1 0 0 default_pg store:barrier 1 0 1 [] [] [] []"), "{read}");
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
