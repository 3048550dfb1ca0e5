//! Compiled code on disk: where it lies, that it is found again, and files that are wrong, removed, or cannot be written.
#![expect(unsafe_code, reason = "functions whose text stands here, and a compiler of functions that fail")]
#![expect(clippy::print_stdout, reason = "tests that are skipped say so")]

mod compiler;

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use aten_cuda::jiterator::create_jit_fn;
use aten_cuda::{DType, Error, JitError, Result, Tensor};
use cuda_sys::nvrtc::types::nvrtcProgram;
use cuda_sys::{LibraryVersion, Nvrtc, nvrtcResult};
use testkit::{Config, Simulation};

/// An empty folder of a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel_cache").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a writable folder");
    folder
}

/// The files in a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// A sum by a function of text, on a machine of its own. `None` where there is no compiler.
fn doubled(given: Option<Nvrtc>) -> Option<Result<Vec<f32>>> {
    let _simulated = Simulation::new(Config::default()).here();
    match given {
        Some(given) => aten_cuda::raw::set_compiler(Some(given)),
        None => compiler::compiler()?,
    }
    let call = || {
        // SAFETY: the function touches nothing but its argument.
        let function = unsafe { create_jit_fn("template <typename T> T doubled(T x) { return x + x; }", &[]) }?;
        let function = function.compiled_by_nvrtc();
        function.call([&Tensor::arange(0, 3, 1, Some(DType::F32), "cuda")?], &[])?.to_vec::<f32>()
    };
    Some(call())
}

/// A compiler that knows devices of capability 9.0, says that it is NVRTC 13.0, and compiles nothing.
fn useless() -> Nvrtc {
    unsafe extern "C" fn count(count: *mut c_int) -> nvrtcResult {
        // SAFETY: the caller's place.
        unsafe { *count = 1 };
        nvrtcResult::NVRTC_SUCCESS
    }
    unsafe extern "C" fn architectures(list: *mut c_int) -> nvrtcResult {
        // SAFETY: the caller has room for as many as were counted.
        unsafe { *list = 90 };
        nvrtcResult::NVRTC_SUCCESS
    }
    unsafe extern "C" fn create(
        _: *mut nvrtcProgram,
        _: *const c_char,
        _: *const c_char,
        _: c_int,
        _: *const *const c_char,
        _: *const *const c_char,
    ) -> nvrtcResult {
        nvrtcResult::NVRTC_ERROR_OUT_OF_MEMORY
    }
    let functions = cuda_sys::nvrtc::Functions {
        nvrtcGetNumSupportedArchs: Some(count),
        nvrtcGetSupportedArchs: Some(architectures),
        nvrtcCreateProgram: Some(create),
        ..Default::default()
    };
    // SAFETY: the functions are those above.
    unsafe { Nvrtc::from_functions(functions, LibraryVersion { major: 13, minor: 0, patch: 0 }) }
}

fn is_out_of_memory(result: &Result<Vec<f32>>) -> bool {
    matches!(result, Err(Error::Jit(cause)) if matches!(**cause, JitError::Compiler { .. }))
}

#[test]
fn compiled_code_is_found_again_by_torchs_file_names() {
    let own = folder("again");
    let path = own.to_str().expect("a plain path");
    testkit::with_environment(
        "compiled_code_is_found_again_by_torchs_file_names",
        &[("PYTORCH_KERNEL_CACHE_PATH", path), ("USE_PYTORCH_KERNEL_CACHE", "1")],
        || {
            let own = PathBuf::from(std::env::var_os("PYTORCH_KERNEL_CACHE_PATH").expect("it was set"));
            let Some(made) = doubled(None) else { return };
            assert_eq!(made.expect("a result"), [0.0, 2.0, 4.0]);
            let made = files(&own);
            assert!(!made.is_empty());
            for file in &made {
                let name = file.file_name().and_then(|name| name.to_str()).expect("a plain name");
                assert!(name.starts_with("doubled_arch9.0_nvrtc13.0_"), "{name}");
                assert!(name.contains("_ptx_") || name.contains("_sass_"), "{name}");
            }
            // A compiler that compiles nothing is enough now.
            assert_eq!(doubled(Some(useless())).expect("a compiler").expect("a result"), [0.0, 2.0, 4.0]);
            // Each file that is wrong counts as none.
            for damage in [|bytes: &mut Vec<u8>| bytes[10] ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(100), Vec::clear]
            {
                for file in &made {
                    let mut bytes = std::fs::read(file).expect("a file");
                    damage(&mut bytes);
                    std::fs::write(file, bytes).expect("a writable file");
                }
                assert!(is_out_of_memory(&doubled(Some(useless())).expect("a compiler")));
                assert_eq!(doubled(None).expect("a compiler").expect("it is compiled again"), [0.0, 2.0, 4.0]);
                assert!(doubled(Some(useless())).expect("a compiler").is_ok(), "and written again");
            }
            // With a limit of nothing, nothing stays.
            aten_cuda::raw::set_cache_limit(0);
            made.iter().for_each(|file| std::fs::remove_file(file).expect("a file"));
            assert!(doubled(None).expect("a compiler").is_ok());
            assert!(files(&own).iter().all(|file| file.ends_with(".lock")), "{:?}", files(&own));
        },
    );
}

#[test]
fn the_cache_can_be_switched_off() {
    let own = folder("off");
    let path = own.to_str().expect("a plain path");
    testkit::with_environment(
        "the_cache_can_be_switched_off",
        &[("PYTORCH_KERNEL_CACHE_PATH", path), ("USE_PYTORCH_KERNEL_CACHE", "0")],
        || {
            let own = PathBuf::from(std::env::var_os("PYTORCH_KERNEL_CACHE_PATH").expect("it was set"));
            let Some(made) = doubled(None) else { return };
            assert_eq!(made.expect("a result"), [0.0, 2.0, 4.0]);
            assert!(files(&own).is_empty());
        },
    );
}

#[test]
fn a_folder_that_cannot_be_written_costs_only_time() {
    let own = folder("file").join("file");
    std::fs::write(&own, "").expect("a writable folder");
    let path = own.join("kernels");
    testkit::with_environment(
        "a_folder_that_cannot_be_written_costs_only_time",
        &[("PYTORCH_KERNEL_CACHE_PATH", path.to_str().expect("a plain path"))],
        || {
            let Some(made) = doubled(None) else { return };
            assert_eq!(made.expect("a result"), [0.0, 2.0, 4.0]);
            assert!(is_out_of_memory(&doubled(Some(useless())).expect("a compiler")), "nothing was kept");
        },
    );
}
