//! `torch.cuda.gds` without cuFile: real files, past the page cache and through it, and everything that can be wrong.
#![expect(clippy::print_stdout, reason = "a test says by which way it was served")]

#[allow(dead_code, reason = "not every program of tests uses all of it")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use aten_cuda::Storage;
use cuda_storage::Error;
use cuda_storage::gds::{GdsFile, OpenFlags, gds_deregister_buffer, gds_register_buffer};
use support::{Folder, bytes, on_device, read_back, simulated};

/// A file that is made, read and written: as Python's `os.O_RDWR | os.O_CREAT` on Linux.
const NEW: OpenFlags = OpenFlags(0o102);

/// Saves and loads at every kind of place, and compares with what other programs see of the file.
fn round_trips(path: &Path) {
    let whole = bytes(9 << 20, 1);
    let storage = on_device(&whole);
    for (length, offset) in [(0, 0), (1, 0), (1, 4095), (4096, 4096), (4097, 1), (9 << 20, 0), (5_000_001, 12_345)] {
        let _ = fs::remove_file(path);
        let file = GdsFile::new(path, NEW).expect("the file can be made");
        let part = on_device(&whole[..length]);
        file.save_storage(&part, offset).expect("it is written");
        let seen = fs::read(path).expect("it is there");
        let before = usize::try_from(offset).expect("small").min(seen.len());
        assert!(seen[before..] == whole[..length], "{length} bytes at {offset}");
        assert!(seen[..before].iter().all(|&byte| byte == 0));

        let back = on_device(&vec![0x55; length]);
        file.load_storage(&back, offset).expect("it is read");
        assert!(read_back(&back) == whole[..length], "{length} bytes at {offset}");
    }
    let file = GdsFile::new(path, OpenFlags::RDWR).expect("it is there");
    file.save_storage(&storage, 0).expect("it is written");
    // In the middle of what is there: the bytes around stay.
    let middle = bytes(10_000, 2);
    file.save_storage(&on_device(&middle), 100_001).expect("it is written");
    let seen = fs::read(path).expect("it is there");
    assert!(seen[..100_001] == whole[..100_001] && seen[100_001..110_001] == middle[..]);
    assert!(seen[110_001..] == whole[110_001..]);
    println!("{}: {}", path.display(), file.route());
}

#[test]
fn a_disk_gives_back_what_was_saved() {
    let _simulated = simulated();
    let folder = Folder::new("gds-disk");
    round_trips(&folder.file("file"));
}

#[test]
fn memory_as_a_file_system_works_too() {
    let _simulated = simulated();
    let shared = PathBuf::from("/dev/shm");
    if !shared.is_dir() {
        println!("not run: there is no /dev/shm");
        return;
    }
    let folder = Folder::beneath(shared, "gds-memory");
    round_trips(&folder.file("file"));
}

#[test]
fn the_route_is_told_with_its_reason() {
    let _simulated = simulated();
    let folder = Folder::new("gds-route");
    let mut file = GdsFile::new(folder.file("file"), NEW).expect("the file can be made");
    let route = file.route();
    assert!(!route.is_direct);
    assert!(route.why.starts_with("the driver was given as a table of functions, and no cuFile with it"), "{route}");
    assert_eq!(route.page_cache, route.why.contains("O_DIRECT"), "{route}");
    assert_eq!((file.flags(), file.filename()), (NEW, folder.file("file").as_path()));
    assert_eq!(file.handle(), usize::try_from(file.fd()).ok());
    file.deregister_handle().expect("it is registered");
    assert_eq!(file.handle(), None);
}

#[test]
fn texts_are_torchs() {
    let _simulated = simulated();
    let folder = Folder::new("gds-texts");
    let mut file = GdsFile::new(folder.file("file"), NEW).expect("the file can be made");
    let storage = on_device(b"some");
    let text = |outcome: Result<(), Error>| outcome.expect_err("it is refused").to_string();
    assert_eq!(text(file.register_handle()), "Cannot register a handle that is already registered.");
    file.deregister_handle().expect("it is registered");
    assert_eq!(text(file.deregister_handle()), "Cannot deregister a handle that is not registered.");
    assert_eq!(text(file.load_storage(&storage, 0)), "Cannot load data from a file that is not registered.");
    assert_eq!(text(file.save_storage(&storage, 0)), "Cannot save data to a file that is not registered.");
    file.register_handle().expect("it is not registered");
    file.save_storage(&storage, 0).expect("it is written");

    gds_register_buffer(&storage).expect("it is not registered");
    assert_eq!(text(gds_register_buffer(&storage)), "cuFileBufRegister failed: device pointer already registered");
    gds_deregister_buffer(&storage).expect("it is registered");
    assert_eq!(text(gds_deregister_buffer(&storage)), "cuFileBufDeregister failed: device pointer lookup failure");
}

#[test]
fn what_is_registered_lives_until_it_is_deregistered() {
    let simulated = simulated();
    let (storage, address) = {
        let storage = on_device(&[1; 4096]);
        gds_register_buffer(&storage).expect("it is not registered");
        (storage.clone(), storage.data_ptr())
    };
    drop(storage);
    let stats = simulated.runtime.runtime().memory().stats(c10_core::DeviceIndex(0)).expect("the device is there");
    assert_eq!(stats.allocated_bytes.all.current, 4096, "cuFile may still write there");
    let other = on_device(&[2; 4096]);
    assert_ne!(other.data_ptr(), address);
}

#[test]
fn a_file_that_is_too_short_changes_nothing() {
    let _simulated = simulated();
    let folder = Folder::new("gds-short");
    let path = folder.file("file");
    fs::write(&path, bytes(10_000, 3)).expect("it is written");
    let file = GdsFile::new(&path, OpenFlags::RDONLY).expect("it is there");
    let storage = on_device(&[7; 5000]);
    let error = file.load_storage(&storage, 5001).expect_err("a byte is missing");
    assert!(matches!(error, Error::Short { wanted: 10_001, found: 10_000, .. }), "{error}");
    assert_eq!(read_back(&storage), [7; 5000]);
    let error = file.load_storage(&storage, u64::MAX - 1).expect_err("there is no such place");
    assert!(matches!(error, Error::Position { .. }), "{error}");
    file.load_storage(&storage, 5000).expect("all bytes are there");
}

#[test]
fn what_the_system_refuses_is_told() {
    let _simulated = simulated();
    let folder = Folder::new("gds-refused");
    let path = folder.file("file");
    let error = GdsFile::new(&path, OpenFlags::RDONLY).expect_err("there is no file");
    assert!(matches!(error, Error::Io { verb: "open", .. }), "{error}");
    fs::write(&path, bytes(8192, 4)).expect("it is written");
    let storage = on_device(&[7; 8192]);
    let only_read = GdsFile::new(&path, OpenFlags::RDONLY).expect("it is there");
    let error = only_read.save_storage(&storage, 0).expect_err("it is open for reading");
    assert!(matches!(error, Error::Io { verb: "write", .. }), "{error}");
    let only_written = GdsFile::new(&path, OpenFlags::WRONLY).expect("it is there");
    let error = only_written.load_storage(&storage, 0).expect_err("it is open for writing");
    assert!(matches!(error, Error::Io { verb: "read", .. }), "{error}");
    only_written.save_storage(&storage, 1).expect("edges are written too");
    let appended = GdsFile::new(&path, OpenFlags(NEW.0 | 0o2000)).expect_err("writes would land at the end");
    assert!(matches!(appended, Error::Io { verb: "open", .. }), "{appended}");
    let taken = OpenFlags::RDWR | OpenFlags::CREAT | OpenFlags::EXCL;
    assert!(GdsFile::new(&path, taken).is_err());
    let empty = GdsFile::new(&path, OpenFlags::RDWR | OpenFlags::TRUNC).expect("it is there");
    assert_eq!(fs::metadata(empty.filename()).expect("it is there").len(), 0);

    let full = GdsFile::new("/dev/full", OpenFlags::RDWR).expect("Linux has it");
    let error = full.save_storage(&storage, 0).expect_err("it is always full");
    assert!(matches!(error, Error::Full { .. }), "{error}");
}

#[test]
fn memory_of_the_host_is_refused() {
    let _simulated = simulated();
    let folder = Folder::new("gds-host");
    let file = GdsFile::new(folder.file("file"), NEW).expect("the file can be made");
    let host = Storage::from_bytes(b"some").expect("four bytes are there");
    for outcome in [file.load_storage(&host, 0), file.save_storage(&host, 0), gds_register_buffer(&host)] {
        let error = outcome.expect_err("cuFile has no such memory");
        assert_eq!(error.to_string(), "expected a storage of a CUDA device, found one on cpu");
    }
}

#[test]
fn work_of_the_current_stream_comes_first() {
    let _simulated = simulated();
    let folder = Folder::new("gds-order");
    let file = GdsFile::new(folder.file("file"), NEW).expect("the file can be made");
    let storage = on_device(&vec![0; 1 << 20]);
    let stream = c10_core::Stream::new(None, 0).expect("there are streams");
    let buffer = storage.buffer().expect("a device's");
    let _guard = stream.guard();
    stream.sleep(1_000_000).expect("the device works");
    buffer.fill(.., 9, None).expect("it is queued");
    file.save_storage(&storage, 0).expect("it is written");
    assert!(fs::read(file.filename()).expect("it is there").iter().all(|&byte| byte == 9));
    stream.sleep(1_000_000).expect("the device works");
    buffer.fill(.., 3, None).expect("it is queued");
    fs::write(file.filename(), vec![5; 1 << 20]).expect("it is written");
    file.load_storage(&storage, 0).expect("it is read");
    assert!(read_back(&storage).iter().all(|&byte| byte == 5));
}

#[test]
fn a_capture_refuses_files_and_goes_on() {
    let _simulated = simulated();
    let folder = Folder::new("gds-capture");
    let file = GdsFile::new(folder.file("file"), NEW).expect("the file can be made");
    let storage = on_device(&[1; 64]);
    let mut graph = c10_core::CUDAGraph::new();
    let stream = c10_core::Stream::new(None, 0).expect("there are streams");
    let captured = graph.capture(&stream, None, c10_core::CaptureMode::Global, || {
        assert!(matches!(file.save_storage(&storage, 0), Err(Error::Capturing)));
        storage.buffer().expect("a device's").fill(.., 4, None)
    });
    captured.expect("the capture is whole");
    graph.replay().expect("it runs");
    assert_eq!(read_back(&storage), [4; 64]);
}

/// How often a driver function was called, whatever it answered.
fn count(calls: &[(&'static str, testkit::CUresult, u64)], call: &str) -> u64 {
    calls.iter().filter(|row| row.0 == call).map(|row| row.2).sum()
}

#[test]
fn whatever_driver_call_fails_the_next_transfer_is_right() {
    let folder = Folder::new("gds-faults");
    let path = folder.file("file");
    let whole = bytes(5 << 20, 5);
    fs::write(&path, &whole).expect("it is written");
    let seen = {
        let simulated = simulated();
        let storage = on_device(&vec![0; whole.len()]);
        let before = simulated.runtime.machine().calls();
        let file = GdsFile::new(&path, OpenFlags::RDWR).expect("it is there");
        file.load_storage(&storage, 0).expect("it is read");
        file.save_storage(&storage, 0).expect("it is written");
        let after = simulated.runtime.machine().calls();
        let mut names: Vec<&'static str> = after.iter().map(|row| row.0).collect();
        names.dedup();
        let made = |call| count(&after, call) - count(&before, call);
        names.into_iter().map(|call| (call, made(call))).filter(|row| row.1 > 0).collect::<Vec<_>>()
    };
    let mut refused = 0;
    for (call, count) in seen {
        for occurrence in 1..=count {
            let simulated = simulated();
            let storage = on_device(&vec![0; whole.len()]);
            let file = GdsFile::new(&path, OpenFlags::RDWR).expect("it is there");
            let code = testkit::CUresult::CUDA_ERROR_NOT_PERMITTED;
            simulated.runtime.machine().inject(testkit::Fault { call, occurrence, code });
            let outcome = file.load_storage(&storage, 0).and_then(|()| file.save_storage(&storage, 0));
            refused += u32::from(outcome.is_err());
            simulated.runtime.machine().clear_faults();
            file.load_storage(&storage, 0).unwrap_or_else(|error| panic!("after {call} {occurrence}: {error}"));
            assert!(read_back(&storage) == whole, "after {call} {occurrence}");
        }
    }
    assert!(refused > 10, "{refused}");
}
