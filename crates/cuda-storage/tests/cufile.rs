//! The way by cuFile, with a cuFile of functions that stand here: which calls are made, with what, and what becomes of
//! their answers.
#![expect(unsafe_code, reason = "a cuFile of functions that stand here")]

#[allow(dead_code, reason = "not every program of tests uses all of it")]
mod support;

use std::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use cuda_storage::gds::{GdsFile, OpenFlags, gds_deregister_buffer, gds_register_buffer, set_library};
use cuda_storage::{Error, Requests};
use cuda_sys::cufile::Functions;
use cuda_sys::cufile::types::{CUFileBoolConfigParameter_t, CUfileDescr_t, CUfileDrvProps_t, CUfileHandle_t};
use cuda_sys::{CUfileError_t, CUfileOpError, CUresult, Cufile};
use support::{Folder, bytes, on_device, read_back, simulated};

/// What the functions are to do, and what they were asked for. Tests take turns.
#[derive(Default)]
struct Fake {
    calls: Vec<String>,
    /// The version of nvidia-fs.
    nvfs: u32,
    /// Whether the compatibility mode stays on.
    is_stubborn: bool,
    is_compatible: bool,
    /// What registering a file answers with.
    handle: u32,
    /// What reading and writing answers with; bytes are moved where it is 0.
    transfer: isize,
    /// The most bytes of a call.
    most: usize,
}

static FAKE: Mutex<Option<Fake>> = Mutex::new(None);

fn fake<T>(with: impl FnOnce(&mut Fake) -> T) -> T {
    let mut fake = FAKE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    with(fake.get_or_insert_with(|| Fake { nvfs: 2, most: usize::MAX, is_compatible: true, ..Fake::default() }))
}

fn code(err: u32) -> CUfileError_t {
    CUfileError_t { err: CUfileOpError(err), cu_err: CUresult::CUDA_SUCCESS }
}

unsafe extern "C" fn open() -> CUfileError_t {
    fake(|fake| fake.calls.push("open".to_owned()));
    code(0)
}

unsafe extern "C" fn set(name: CUFileBoolConfigParameter_t, value: bool) -> CUfileError_t {
    fake(|fake| {
        fake.calls.push(format!("set {name:?} {value}"));
        fake.is_compatible = value || fake.is_stubborn;
    });
    code(0)
}

unsafe extern "C" fn properties(to: *mut CUfileDrvProps_t) -> CUfileError_t {
    // SAFETY: the caller's structure, which is zero.
    let to = unsafe { &mut *to };
    fake(|fake| {
        to.nvfs.major_version = fake.nvfs;
        to.nvfs.dcontrolflags = u32::from(fake.is_compatible) << 1;
    });
    code(0)
}

unsafe extern "C" fn register(handle: *mut CUfileHandle_t, file: *mut CUfileDescr_t) -> CUfileError_t {
    // SAFETY: the caller's structure.
    let file = unsafe { (*file).handle };
    // SAFETY: a descriptor, by its type in the structure.
    let fd = unsafe { file.fd };
    fake(|fake| {
        fake.calls.push("register".to_owned());
        if fake.handle == 0 {
            // SAFETY: the caller's place. A descriptor plus one serves as a handle that is not null.
            unsafe { *handle = std::ptr::without_provenance_mut(usize::try_from(fd).expect("it is open") + 1) };
        }
        code(fake.handle)
    })
}

unsafe extern "C" fn deregister(_: CUfileHandle_t) {
    fake(|fake| fake.calls.push("deregister".to_owned()));
}

unsafe extern "C" fn register_buffer(_: *const c_void, length: usize, flags: i32) -> CUfileError_t {
    fake(|fake| fake.calls.push(format!("buffer {length} {flags}")));
    code(0)
}

unsafe extern "C" fn deregister_buffer(_: *const c_void) -> CUfileError_t {
    fake(|fake| fake.calls.push("no buffer".to_owned()));
    code(0)
}

/// The file behind a handle, opened anew: that one takes whole blocks only.
fn behind(handle: CUfileHandle_t) -> File {
    File::open(format!("/proc/self/fd/{}", handle.addr() - 1)).expect("it is open")
}

/// Bytes of the file go into the fake's own memory: that of the simulated device has no address here.
unsafe extern "C" fn read(handle: CUfileHandle_t, base: *mut c_void, size: usize, at: i64, to: i64) -> isize {
    let (answer, most) = fake(|fake| {
        fake.calls.push(format!("read {size} at {at} to {to}"));
        (fake.transfer, fake.most)
    });
    if answer != 0 || base.is_null() {
        return answer;
    }
    let mut room = vec![0; size.min(most)];
    let bytes = behind(handle).read_at(&mut room, at.unsigned_abs()).expect("it is read");
    isize::try_from(bytes).expect("a few")
}

unsafe extern "C" fn write(_: CUfileHandle_t, _: *const c_void, size: usize, at: i64, from: i64) -> isize {
    fake(|fake| {
        fake.calls.push(format!("write {size} at {at} from {from}"));
        if fake.transfer != 0 { fake.transfer } else { isize::try_from(size.min(fake.most)).expect("a few") }
    })
}

fn functions() -> Functions {
    Functions {
        cuFileDriverOpen: Some(open),
        cuFileSetParameterBool: Some(set),
        cuFileDriverGetProperties: Some(properties),
        cuFileHandleRegister: Some(register),
        cuFileHandleDeregister: Some(deregister),
        cuFileBufRegister: Some(register_buffer),
        cuFileBufDeregister: Some(deregister_buffer),
        cuFileRead: Some(read),
        cuFileWrite: Some(write),
        ..Functions::default()
    }
}

/// Runs a test with a fake of its own.
fn with_fake(name: &str, change: impl FnOnce(&mut Fake), test: impl FnOnce(&Folder)) {
    let _simulated = simulated();
    FAKE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    fake(change);
    // SAFETY: the functions above behave as those of cuFile.
    set_library(Some(unsafe { Cufile::from_functions(functions()) }));
    let folder = Folder::new(name);
    std::fs::write(folder.file("file"), bytes(100_000, 1)).expect("it is written");
    test(&folder);
}

/// A file that cuFile serves; `None` where the file system has no `O_DIRECT`, which cuFile needs.
fn opened(folder: &Folder) -> Option<GdsFile> {
    let file = GdsFile::new(folder.file("file"), OpenFlags::RDWR).expect("it is there");
    (!file.route().why.contains("cuFile needs O_DIRECT")).then_some(file)
}

#[test]
fn a_direct_file_is_read_and_written_by_cufile() {
    with_fake(
        "cufile-direct",
        |fake| fake.most = 60_000,
        |folder| {
            let Some(file) = opened(folder) else { return };
            let route = file.route();
            assert!(route.is_direct && !route.page_cache, "{route}");
            assert_eq!(route.requests, Requests::Cufile);
            assert_eq!(route.to_string(), "direct: between disk and device by cuFile");
            assert_eq!(file.handle(), usize::try_from(file.fd() + 1).ok());
            let storage = on_device(&[1; 90_000]);
            file.load_storage(&storage, 7).expect("both calls succeed");
            file.save_storage(&storage, 9).expect("both calls succeed");
            gds_register_buffer(&storage).expect("it succeeds");
            gds_deregister_buffer(&storage).expect("it succeeds");
            drop(file);
            let expected = [
                "set CUFileBoolConfigParameter_t(1) false",
                "open",
                "register",
                "read 90000 at 7 to 0",
                "read 30000 at 60007 to 60000",
                "write 90000 at 9 from 0",
                "write 30000 at 60009 from 60000",
                "buffer 90000 0",
                "no buffer",
                "deregister",
            ];
            assert_eq!(fake(|fake| fake.calls.clone()), expected);
        },
    );
}

#[test]
fn what_cufile_refuses_has_torchs_text() {
    with_fake(
        "cufile-refuses",
        |_| (),
        |folder| {
            let Some(mut file) = opened(folder) else { return };
            let storage = on_device(&[1; 1000]);
            let text = |outcome: Result<(), Error>| outcome.expect_err("it is refused").to_string();
            fake(|fake| fake.transfer = -5022);
            assert_eq!(text(file.load_storage(&storage, 0)), "cuFileRead failed: invalid arguments");
            assert_eq!(text(file.save_storage(&storage, 0)), "cuFileWrite failed: invalid arguments");
            fake(|fake| fake.transfer = -1);
            assert!(text(file.load_storage(&storage, 0)).starts_with("cuFileRead failed: "));
            file.deregister_handle().expect("it is registered");
            fake(|fake| fake.handle = 5028);
            assert_eq!(
                text(file.register_handle()),
                "cuFileHandleRegister failed: file descriptor is already registered"
            );
            assert_eq!(file.handle(), None);
        },
    );
}

#[test]
fn a_file_that_cufile_does_not_serve_goes_through_pinned_memory() {
    with_fake(
        "cufile-unserved",
        |fake| fake.handle = 5008,
        |folder| {
            let Some(file) = opened(folder) else { return };
            let route = file.route();
            assert!(
                !route.is_direct && route.why.contains("GPUDirect Storage not supported on current file"),
                "{route}"
            );
            let storage = on_device(&[0; 100_000]);
            file.load_storage(&storage, 0).expect("it is read");
            assert!(read_back(&storage) == bytes(100_000, 1));
        },
    );
}

#[test]
fn compatibility_is_not_called_direct() {
    for (name, reason) in [("none", "cuFile finds no nvidia-fs"), ("stubborn", "cannot be switched off")] {
        let change = |fake: &mut Fake| {
            fake.nvfs = if name == "none" { 0 } else { 2 };
            fake.is_stubborn = name == "stubborn";
        };
        with_fake(&format!("cufile-{name}"), change, |folder| {
            let file = GdsFile::new(folder.file("file"), OpenFlags::RDONLY).expect("it is there");
            assert!(!file.route().is_direct && file.route().why.contains(reason), "{}", file.route());
            let storage = on_device(&[0; 100_000]);
            file.load_storage(&storage, 0).expect("it is read");
            assert!(read_back(&storage) == bytes(100_000, 1));
            assert!(!fake(|fake| fake.calls.contains(&"register".to_owned())));
        });
    }
}
