//! Files of tensors: onto a device and back, by every way, and files that lie.
#![cfg(feature = "safetensors")]

#[allow(dead_code, reason = "not every program of tests uses all of it")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use aten_cuda::{DType, Tensor};
use cuda_storage::gds::{GdsFile, OpenFlags};
use cuda_storage::safetensors::{HeaderError, load, load_file, load_file_with, metadata, save, save_file};
use cuda_storage::{Error, Options, PageCache, Requests};
use support::{Folder, bytes, simulated};

fn some_of_each_dtype() -> Result<BTreeMap<String, Tensor>, aten_cuda::Error> {
    let whole = Tensor::arange(0, 12, 1, None, "cpu")?.view(&[3, 4])?;
    let mut tensors = BTreeMap::new();
    for dtype in DType::ALL.into_iter().filter(|dtype| ![DType::C32, DType::C128].contains(dtype)) {
        tensors.insert(format!("{dtype}"), whole.to_dtype(dtype)?.t()?.cuda(None)?);
    }
    tensors.insert("empty".to_owned(), Tensor::zeros(&[0, 2], DType::F16, "cpu")?);
    tensors.insert("one".to_owned(), Tensor::full(&[], 5, DType::I8, "cuda")?);
    tensors.insert("turned".to_owned(), tensors["torch.complex64"].conj());
    let large = bytes(3 << 20, 1);
    tensors.insert("large".to_owned(), Tensor::from_bytes(&large, &[3 << 18], DType::F32)?.cuda(None)?);
    tensors.insert("part".to_owned(), tensors["large"].slice(0, Some(5), Some(1005), 1)?);
    Ok(tensors)
}

fn named(tensors: &BTreeMap<String, Tensor>) -> impl Iterator<Item = (&str, &Tensor)> {
    tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
}

fn assert_same(loaded: &BTreeMap<String, Tensor>, saved: &BTreeMap<String, Tensor>, is_cuda: bool) {
    assert!(loaded.keys().eq(saved.keys()));
    for (name, tensor) in loaded {
        let saved = &saved[name];
        assert_eq!((tensor.dtype(), tensor.sizes(), tensor.is_cuda()), (saved.dtype(), saved.sizes(), is_cuda));
        assert!(tensor.to_bytes().expect("it is read") == saved.to_bytes().expect("it is read"), "{name}");
    }
}

#[test]
fn files_hold_what_was_saved_by_every_way() -> Result<(), Error> {
    let _simulated = simulated();
    let folder = Folder::new("tensors-ways");
    let (path, tensors) = (folder.file("all.safetensors"), some_of_each_dtype()?);
    let texts = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    save_file(named(&tensors), &path, &texts)?;
    assert_same(&load_file(&path, "cpu")?, &tensors, false);
    for page_cache in [PageCache::Auto, PageCache::Use, PageCache::Bypass] {
        let small = Options::default().threads(3).chunk_bytes(4096);
        for options in [Options::default(), small, small.requests(Requests::Threads)] {
            let loaded = load_file_with(&path, "cuda", &options.page_cache(page_cache))?;
            assert_same(&loaded.tensors, &tensors, true);
            assert!(page_cache != PageCache::Use || loaded.route.page_cache, "{}", loaded.route);
            println!("{page_cache:?}: {}", loaded.route);
        }
    }
    let file = fs::read(&path).expect("the file is there");
    assert_eq!(metadata(&file)?, texts);
    assert_eq!(save(named(&tensors), &texts)?, file);
    assert_same(&load(&file, "cuda")?, &tensors, true);
    assert_same(&load(&file, "cpu")?, &tensors, false);
    assert_eq!(fs::read_dir(path.parent().expect("a folder")).expect("it is read").count(), 1);
    Ok(())
}

/// The format's own crate reads what is written here, and what it writes is read here.
#[test]
fn the_formats_own_crate_agrees() -> Result<(), Error> {
    let _simulated = simulated();
    let tensors = some_of_each_dtype()?;
    let file = save(named(&tensors), &BTreeMap::new())?;
    let theirs = safetensors::SafeTensors::deserialize(&file).expect("it is such a file");
    assert_eq!(theirs.len(), tensors.len());
    for (name, tensor) in &tensors {
        let view = theirs.tensor(name).expect("it has all names");
        assert!(view.data() == tensor.to_bytes()?, "{name}");
        assert!(view.shape().iter().map(|&size| i64::try_from(size).unwrap_or(-1)).eq(tensor.sizes().iter().copied()));
    }
    let views = theirs.tensors();
    let again = safetensors::serialize(views.iter().map(|(name, view)| (name.as_str(), view)), None);
    assert_same(&load(&again.expect("it is written"), "cuda")?, &tensors, true);
    Ok(())
}

#[test]
fn a_large_tensor_is_freed_alone() -> Result<(), Error> {
    let simulated = simulated();
    let folder = Folder::new("tensors-freed");
    let path = folder.file("all.safetensors");
    let large = Tensor::zeros(&[1 << 20], DType::F32, "cuda")?;
    let small = Tensor::zeros(&[16], DType::F32, "cuda")?;
    save_file([("a", &large), ("b", &large), ("c", &small), ("d", &small)], &path, &BTreeMap::new())?;
    drop((large, small));
    let stats = || simulated.runtime.runtime().memory().stats(c10_core::DeviceIndex(0)).expect("the device is there");
    let allocated = || stats().allocated_bytes.all.current;
    let before = allocated();
    let mut loaded = load_file(&path, "cuda")?;
    assert!(loaded["c"].storage().is_same(loaded["d"].storage()), "small ones share");
    assert!(!loaded["a"].storage().is_same(loaded["b"].storage()));
    let all = allocated() - before;
    loaded.remove("a");
    assert_eq!(all - (allocated() - before), 4 << 20);
    Ok(())
}

#[test]
fn files_that_lie_are_refused_with_what_is_wrong() {
    let _simulated = simulated();
    let folder = Folder::new("tensors-lies");
    let path = folder.file("lies.safetensors");
    let cause = |file: &[u8]| {
        fs::write(&path, file).expect("it is written");
        let of_file = match load_file(&path, "cuda") {
            Err(Error::Header { path: Some(named), cause }) if named == path => cause,
            outcome => panic!("{outcome:?}"),
        };
        match load(file, "cuda") {
            Err(Error::Header { path: None, cause }) => assert_eq!(cause, of_file),
            outcome => panic!("{outcome:?}"),
        }
        of_file
    };
    let with = |header: &str, data: usize| {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
    };
    assert_eq!(cause(b""), HeaderError::TooShort { bytes: 0 });
    assert_eq!(cause(&[255; 20]), HeaderError::TooLong { bytes: u64::MAX });
    assert_eq!(cause(&[[20, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat()), HeaderError::BeyondFile { header: 20, file: 16 });
    assert!(matches!(cause(&with("{\"x\"", 0)), HeaderError::Json(_)));
    let right = r#"{"x":{"dtype":"F32","shape":[1000],"data_offsets":[0,4000]}}"#;
    assert_eq!(cause(&with(right, 3999)), HeaderError::WrongEnd { tensors: 4000, file: 3999 });
    assert_eq!(cause(&with(right, 4001)), HeaderError::WrongEnd { tensors: 4000, file: 4001 });
    let deep = "[".repeat(100_000);
    assert!(matches!(cause(&with(&deep, 0)), HeaderError::Json(_)));
}

/// Returns the next pseudo-random number.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Returns a pseudo-random number below a limit.
fn below(state: &mut u64, limit: usize) -> usize {
    usize::try_from(random(state) % limit.max(1) as u64).expect("it is below a usize")
}

/// Returns a copy of a file with some bytes, lengths and words changed.
fn damaged(whole: &[u8], state: &mut u64) -> Vec<u8> {
    const WORDS: [&str; 14] = [
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775807",
        "-1",
        "1e3",
        "[]",
        "null",
        "\"a\"",
        "\"F4\"",
        "\"C128\"",
        "{}",
        "\\u0000",
        "\"__metadata__\"",
        "\"dtype\"",
    ];
    let mut bytes = whole.to_vec();
    for _ in 0..1 + random(state) % 3 {
        let at = below(state, bytes.len());
        match random(state) % 6 {
            0 if at < bytes.len() => bytes[at] ^= 1 << (random(state) % 8),
            1 => bytes.truncate(at),
            2 if bytes.len() >= 8 => {
                let length = [0, 1, random(state) % 300, u64::MAX, 1 << 63, 100_000_000, 100_000_001][at % 7];
                bytes[..8].copy_from_slice(&length.to_le_bytes());
            }
            3 => {
                let word = WORDS[below(state, WORDS.len())];
                let end = (at + below(state, 6)).min(bytes.len());
                bytes.splice(at.min(end)..end, word.bytes());
            }
            // Duplicates a part of the header: names, offsets and braces that should occur once.
            4 if at < bytes.len() => {
                let end = (at + below(state, 60)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => bytes.extend(vec![7; below(state, 9)]),
        }
        // Usually sets the length to that of the damaged header, so that its content is parsed.
        if !random(state).is_multiple_of(4) && bytes.len() > 8 {
            let before = u64::from_le_bytes(whole[..8].try_into().expect("eight bytes"));
            let length = (before + bytes.len() as u64).saturating_sub(whole.len() as u64);
            bytes[..8].copy_from_slice(&length.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn damaged_files_are_errors_or_what_the_formats_own_crate_reads() {
    let tensors: Vec<(String, Tensor)> = [DType::F32, DType::U8, DType::I64, DType::Bool]
        .into_iter()
        .zip(0_i64..)
        .map(|(dtype, at)| (format!("t{at}"), Tensor::zeros(&[2, at], dtype, "cpu").expect("there is memory")))
        .collect();
    let texts = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let whole = save(tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)), &texts).expect("it is saved");
    let (mut state, mut read, mut refused) = (0x9e37_79b9_7f4a_7c15, 0, 0);
    for _ in 0..30_000 {
        let bytes = damaged(&whole, &mut state);
        match load(&bytes, "cpu") {
            Err(Error::Header { path: None, .. }) => refused += 1,
            Err(other) => panic!("{other:?} of {bytes:?}"),
            Ok(tensors) => {
                read += 1;
                let theirs = safetensors::SafeTensors::deserialize(&bytes).expect("the format's own crate reads it");
                for (name, tensor) in &tensors {
                    let view = theirs.tensor(name).expect("it has the tensor");
                    assert_eq!(tensor.to_bytes().expect("it is read"), view.data(), "{name}");
                }
            }
        }
    }
    assert!(read > 500 && refused > 5_000, "{read} {refused}");
}

/// Headers with numbers at the ends of their ranges.
#[test]
fn headers_that_overflow_or_overlap_are_refused() {
    let with = |header: &str, data: usize| {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
    };
    let one =
        |shape: &str, offsets: &str| format!(r#"{{"x":{{"dtype":"F64","shape":{shape},"data_offsets":{offsets}}}}}"#);
    let max = u64::MAX;
    for header in [
        one("[2305843009213693952]", "[0,0]"),
        one("[4294967296,4294967296]", "[0,0]"),
        one(&format!("[{max}]"), "[0,8]"),
        one("[1]", &format!("[{max},{max}]")),
        one("[1]", &format!("[{},{max}]", max - 7)),
        one("[1]", "[8,0]"),
        one("[1]", "[8,16]"),
        one("[1]", "[0,8,8]"),
        one("[-1]", "[0,8]"),
        one("[1.0]", "[0,8]"),
        r#"{"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#
            .into(),
        r#"{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"x":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#
            .into(),
        r#"{"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#
            .into(),
    ] {
        let error = load(&with(&header, 8), "cpu").expect_err(&header);
        assert!(matches!(error, Error::Header { .. }), "{header}: {error}");
    }
}

#[test]
fn devices_and_tensors_that_do_not_fit_are_refused() -> Result<(), Error> {
    let _simulated = simulated();
    let folder = Folder::new("tensors-refused");
    let path = folder.file("x.safetensors");
    let missing = load_file(&path, "cuda").expect_err("there is no file");
    assert!(matches!(missing, Error::Io { verb: "open", .. }), "{missing}");
    let tensor = Tensor::zeros(&[3], DType::F32, "cuda")?;
    save_file([("x", &tensor)], &path, &BTreeMap::new())?;
    for device in ["cuda:7", "nonsense"] {
        let error = load_file(&path, device).expect_err("there is no such device");
        assert!(matches!(error, Error::Tensor(_)), "{error}");
    }
    let complex = Tensor::zeros(&[3], DType::C128, "cuda")?;
    let error = save([("a", &complex)], &BTreeMap::new()).expect_err("there is no such dtype");
    assert_eq!(error.to_string(), "safetensors: the format has no torch.complex128, which 'a' is of");
    let error = save([("a", &tensor), ("a", &tensor)], &BTreeMap::new()).expect_err("one name");
    assert_eq!(error.to_string(), "safetensors: two tensors have the name 'a'");
    Ok(())
}

#[test]
fn special_files_are_refused_at_once() {
    let _simulated = simulated();
    let folder = Folder::new("tensors-special");
    let fifo = folder.file("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    for device in ["cpu", "cuda"] {
        for (path, says) in [(fifo.as_path(), "a FIFO"), ("/dev/zero".as_ref(), "a character device")] {
            let error = load_file(path, device).expect_err("it is no regular file");
            assert!(matches!(error, Error::Io { verb: "open", .. }) && error.to_string().contains(says), "{error}");
        }
    }
    let error = GdsFile::new(&fifo, OpenFlags::RDONLY).expect_err("it has no positions");
    assert!(error.to_string().contains("a FIFO"), "{error}");
}

#[test]
fn what_cannot_be_replaced_stays_as_it_was() -> Result<(), Error> {
    let _simulated = simulated();
    let folder = Folder::new("tensors-kept");
    let path = folder.file("x.safetensors");
    let tensor = Tensor::zeros(&[3], DType::F32, "cuda")?;
    save_file([("x", &tensor)], &path, &BTreeMap::new())?;
    let before = fs::read(&path).expect("it is there");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("it is ours");
    let error = save_file([("y", &tensor)], &path, &BTreeMap::new()).expect_err("it is read-only");
    assert!(matches!(error, Error::Io { verb: "write", .. }), "{error}");
    assert_eq!(fs::read(&path).expect("it is there"), before);
    let error = save_file([("y", &tensor)], folder.file("none/x"), &BTreeMap::new()).expect_err("there is no folder");
    assert!(matches!(error, Error::Io { verb: "write", .. }), "{error}");
    assert!(save_file([("y", &tensor)], "/dev/null", &BTreeMap::new()).is_err(), "a device is not replaced");
    Ok(())
}

#[test]
fn a_full_disk_keeps_the_file_that_was_there() {
    let folder = Folder::new("tensors-full");
    let disk = folder.file("disk");
    fs::create_dir_all(&disk).expect("it can be made");
    testkit::with_small_disk("a_full_disk_keeps_the_file_that_was_there", &disk, 1 << 20, &[], |disk| {
        let _simulated = simulated();
        let path = disk.join("x.safetensors");
        let (small, large) = (Tensor::ones(&[64], DType::F32, "cuda"), Tensor::ones(&[1 << 20], DType::F32, "cuda"));
        save_file([("x", &small.expect("there is memory"))], &path, &BTreeMap::new()).expect("there is room");
        let before = fs::read(&path).expect("it is there");
        let large = large.expect("there is memory");
        let error = save_file([("x", &large)], &path, &BTreeMap::new()).expect_err("it is full");
        assert!(matches!(error, Error::Full { .. }), "{error}");
        assert_eq!(fs::read(&path).expect("it is there"), before);
        assert_eq!(fs::read_dir(disk).expect("it is read").count(), 1, "nothing is left of it");
    });
}
