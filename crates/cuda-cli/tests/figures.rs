//! `stats`: of this process, of others that are hostile, and of snapshots.

mod common;

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::thread;

use common::{folder, own_start, program, told};
use cuda_api::{DeviceBuffer, ExportError};
use memory_viz::{Block, BlockState, Segment, SegmentKind, Snapshot, file};

#[test]
fn a_process_that_exports_is_read_while_it_runs() {
    let _sim = testkit::simulated_runtime();
    let _held = DeviceBuffer::new(1000, None).unwrap();
    let export = cuda_api::export_figures().unwrap();
    let own = std::process::id().to_string();
    let place = export.socket().parent().unwrap().to_owned();
    let ask = |words: &[&str]| told(program(words).env("TORCH_CUDA_EXPORT_FOLDER", &place));
    let (code, text, error) = ask(&["stats", &own]);
    assert_eq!((code, error.as_str()), (0, ""));
    let line = text.lines().find(|line| line.starts_with("allocated_bytes") && line.contains(" all ")).unwrap();
    let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells, ["allocated_bytes", "all", "1.0 KiB", "1.0 KiB", "1.0 KiB", "0 B"]);
    let (_, text, _) = ask(&["stats", &own, "--prometheus"]);
    assert!(text == cuda_api::memory_stats_prometheus().unwrap(), "{text}");
    let (_, text, _) = ask(&["stats", &own, "--json"]);
    let figures: serde_json::Value = serde_json::from_str(&text).unwrap();
    let reserved =
        |figure: &&serde_json::Value| figure["metric"] == "torch_cuda_reserved_bytes" && figure["pool"] == "all";
    assert_eq!(figures.as_array().unwrap().iter().find(reserved).unwrap()["value"], 2 << 20);
    let (_, text, _) = ask(&["stats"]);
    let line = text.lines().find(|line| line.contains(&own)).unwrap();
    assert!(line.contains("1.0 KiB") && line.contains("2.0 MiB"), "{text}");
    let (_, text, _) = ask(&["stats", "--prometheus"]);
    assert!(text.contains(&format!("torch_cuda_num_ooms_total{{pid=\"{own}\",device=\"0\"}} 0\n")), "{text}");
    let (code, text, _) = ask(&["top", "--once"]);
    assert!(code == 0 && text.lines().any(|line| line.contains(&own) && line.contains("2.0 MiB")), "{text}");
    drop(export);
    let (code, _, error) = ask(&["stats", &own]);
    assert_eq!(code, 1);
    assert!(error.contains("does not tell its figures: it does not export them"), "{error}");
}

#[test]
fn hostile_processes_are_named_and_nothing_else_happens() {
    let place = folder("hostile");
    let own = std::process::id();
    let socket = |number: u32| place.join(format!("{own}-{}-{number}.sock", own_start()));
    let listener = UnixListener::bind(socket(0)).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"torch_cuda_allocated_bytes{device=\"0\"} 1\n\x1b]0;owned\x07\n");
        }
    });
    let _silent = UnixListener::bind(socket(1)).unwrap();
    // A link to a device, a file, and the socket of a process that has ended.
    std::os::unix::fs::symlink("/dev/zero", socket(2)).unwrap();
    std::fs::write(place.join("1-1-0.sock"), "").unwrap();
    std::fs::write(place.join("x.sock"), "").unwrap();
    let ask = |words: &[&str]| told(program(words).env("TORCH_CUDA_EXPORT_FOLDER", &place));
    let (code, text, error) = ask(&["stats"]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(text.contains(": line 2 of what the process says is no figure"), "{text}");
    assert!(text.contains(": the process does not answer"), "{text}");
    assert!(text.contains(": the process cannot be asked: connection refused"), "{text}");
    assert!(text.contains(": the process has ended"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let (code, text, _) = ask(&["top", "--once"]);
    assert!(code == 0 && text.contains(": the process has ended"), "{text}");
    let (code, _, error) = ask(&["stats", &own.to_string()]);
    assert!(code == 1 && error.contains("no figure"), "{error}");
    let (code, _, error) = ask(&["stats", "7000001"]);
    assert_eq!(code, 1);
    assert!(error.starts_with("torch-cuda: process 7000001 does not tell its figures: it does not export"), "{error}");
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn the_figures_of_a_snapshot_have_the_same_names() {
    let block =
        |address, size, requested_size, state| Block { address, size, requested_size, state, ..Block::default() };
    let blocks = vec![
        block(4096, 512, 500, BlockState::ActiveAllocated),
        block(4608, 512, 100, BlockState::ActivePendingFree),
        block(5120, 1024, 0, BlockState::Inactive),
    ];
    let segment = Segment { address: 4096, total_size: 2048, kind: SegmentKind::Small, blocks, ..Segment::default() };
    let path = folder("stats").join("snapshot.pickle");
    file::write_pickle(&Snapshot { segments: vec![segment], ..Snapshot::default() }, &path).unwrap();
    let name = path.to_str().unwrap();
    let (code, text, _) = told(&mut program(&["stats", name, "--prometheus"]));
    assert_eq!(code, 0);
    for (metric, value) in [
        ("active", 2),
        ("active_bytes", 1024),
        ("allocated_bytes", 512),
        ("allocation", 1),
        ("inactive_split", 1),
        ("inactive_split_bytes", 1024),
        ("requested_bytes", 600),
        ("reserved_bytes", 2048),
        ("segment", 1),
    ] {
        for (pool, value) in [("all", value), ("large_pool", 0), ("small_pool", value)] {
            let line = format!("\ntorch_cuda_{metric}{{device=\"0\",pool=\"{pool}\"}} {value}\n");
            assert!(text.contains(&line), "{line} is missing in {text}");
        }
    }
    let (_, text, _) = told(&mut program(&["stats", name]));
    assert!(text.starts_with("device 0\nFIGURE "), "{text}");
    std::fs::write(&path, b"\x80\x04}").unwrap();
    let (code, _, error) = told(&mut program(&["stats", name]));
    assert!(code == 1 && error.contains("not a snapshot that can be read"), "{error}");
    let (code, _, error) = told(&mut program(&["stats", "/nowhere.pickle"]));
    assert!(code == 1 && error.contains("cannot read /nowhere.pickle"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_trusted_is_refused() {
    let place = folder("open");
    std::os::unix::fs::symlink("/tmp", place.join("torch-cuda")).unwrap();
    let mut command = program(&["stats"]);
    command.env_remove("TORCH_CUDA_EXPORT_FOLDER").env("XDG_RUNTIME_DIR", &place);
    let (code, _, error) = told(&mut command);
    assert!(code == 1 && error.contains("is not used for exports: it is no folder"), "{error}");
    let unsafe_folder = ExportError::Unsafe { folder: place.join("torch-cuda"), why: "it is no folder" };
    assert!(error.contains(&unsafe_folder.to_string()), "{error}");
}
