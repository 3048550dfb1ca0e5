//! The commands as a user types them, on a simulated machine and on files.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use memory_viz::{Block, BlockState, Segment, Snapshot, file};

fn run(words: &[&str]) -> (u8, String) {
    let args = std::iter::once("torch-cuda").chain(words.iter().copied()).map(OsString::from);
    let mut out = Vec::new();
    let code = cuda_cli::run(args, &mut out).unwrap();
    (code, String::from_utf8(out).unwrap())
}

fn sample(name: &str, size: u64) -> PathBuf {
    let block = Block {
        address: 4096,
        size,
        requested_size: size - 24,
        state: BlockState::ActiveAllocated,
        ..Block::default()
    };
    let segment = Segment { address: 4096, total_size: size, blocks: vec![block], ..Segment::default() };
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    file::write_pickle(&Snapshot { segments: vec![segment], ..Snapshot::default() }, &path).unwrap();
    path
}

#[test]
fn info_lists_the_devices_of_the_machine() {
    let _sim = testkit::simulated_runtime();
    let (code, text) = run(&["info"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("the devices are simulated") && text.contains("cuda:0  "), "{text}");
    assert!(text.contains(" free\n"), "{text}");
}

#[test]
fn a_snapshot_is_told_compared_and_shown() {
    let (before, after) = (sample("cli-before.pickle", 1024), sample("cli-after.pickle", 4096));
    let (before, after) = (before.to_str().unwrap(), after.to_str().unwrap());
    let (code, text) = run(&["snapshot", after]);
    assert_eq!(code, 0);
    assert!(text.contains("4.0 KiB in 1 block\n"), "{text}");
    let (_, text) = run(&["snapshot", after, "--compare", before]);
    assert!(text.contains("+3.0 KiB, +0 blocks"), "{text}");
    let (_, text) = run(&["snapshot", after, "--lines", "memory"]);
    assert_eq!(text, "stream_0;active_allocated;<non-python> 4072\nstream_0;active_allocated;<gaps> 24\n");
    let page = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli.html");
    let (code, text) = run(&["viz", after, "-o", page.to_str().unwrap(), "--compare", before]);
    assert_eq!((code, text.trim()), (0, page.to_str().unwrap()));
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("cli-before.pickle"));
}

#[test]
fn errors_are_one_sentence_and_an_exit_code() {
    let program = || Command::new(env!("CARGO_BIN_EXE_torch-cuda"));
    let told = |command: &mut Command| {
        let output = command.output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, _, error) = told(program().args(["snapshot", "/nowhere.pickle"]));
    assert_eq!((code, error.lines().count()), (1, 1));
    assert!(error.starts_with("torch-cuda: cannot read /nowhere.pickle: "), "{error}");
    let broken = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("broken.pickle");
    std::fs::write(&broken, b"\x80\x04}").unwrap();
    let (code, _, error) = told(program().arg("viz").arg(&broken));
    assert_eq!(code, 1);
    assert!(error.contains("broken.pickle: not a snapshot that can be read: the file is cut short (byte 3"), "{error}");
    let (code, _, error) = told(program().arg("dance"));
    assert_eq!(code, 2);
    assert!(error.contains("dance"), "{error}");
    let (code, out, _) = told(program().arg("doctor").env("CUDA_SYS_LIBCUDA", "/nowhere/libcuda.so.1"));
    assert_eq!(code, 1);
    assert!(out.contains("missing  driver: ") && out.contains("/nowhere/libcuda.so.1"), "{out}");
    let (code, out, _) = told(program().args(["completions", "bash"]));
    assert_eq!(code, 0);
    assert!(out.contains("_torch__cuda()"), "{out}");
}
