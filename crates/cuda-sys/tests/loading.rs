//! What loading says when there is no driver, a stub, something else, or an old driver.
#![expect(unsafe_code, reason = "hand-made function tables stand in for drivers")]

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::process::Command;

use cuda_sys::cublas::types::cublasStatus_t;
use cuda_sys::driver::Functions;
use cuda_sys::nccl::types::ncclConfig_t;
use cuda_sys::{
    CUfileOpError, CUresult, Cublas, CublasLt, CudaVersion, Cufft, Cufile, Cusolver, Driver, DriverError,
    LibraryVersion, Nccl, NvJitLink, Nvml, Nvrtc, Outcome,
};

/// Compiles C source into a shared object in a folder of its own and returns its path.
fn shared_object(name: &str, folder: &str, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).join(folder);
    std::fs::create_dir_all(&folder).expect("a folder below the target folder");
    let (input, output) = (folder.join("library.c"), folder.join("libcuda.so.1"));
    std::fs::write(&input, source).expect("a writable folder");
    let status = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&output).arg(&input).status();
    assert!(status.expect("gcc is needed to build Rust programs, too").success());
    output
}

fn only_outcome(error: cuda_sys::LoadError) -> Outcome {
    assert_eq!(error.attempts.len(), 1, "one file, one attempt: {error}");
    error.attempts.into_iter().next().expect("one attempt").outcome
}

#[test]
fn a_missing_file_is_reported_with_its_path_and_the_loaders_words() {
    let error = Driver::load_from("/nonexistent/libcuda.so.1").expect_err("no such file");
    assert!(error.is_not_installed());
    let text = error.to_string();
    assert!(text.contains("/nonexistent/libcuda.so.1: /nonexistent/libcuda.so.1: cannot open"), "{text}");
    assert!(text.contains("set CUDA_SYS_LIBCUDA to a library's path"), "{text}");
}

/// Set in the process that loads by the variable.
const CHILD: &str = "CUDA_SYS_TEST_LOADS";

/// Loads what the variable names, in the process that is made for it; does nothing in others.
#[test]
fn loads_by_the_variable() {
    if std::env::var_os(CHILD).is_some() {
        let error = Driver::load().expect_err("no driver is named");
        assert!(error.is_overridden && !error.is_not_installed());
        println!("{error}");
    }
}

#[test]
fn a_variable_that_names_no_driver_is_named_with_its_file_and_the_reason() {
    let no_driver = shared_object("overridden", "lib", "int something_else(void) { return 0; }");
    let no_driver = no_driver.to_str().expect("a plain path");
    for (path, reason) in
        [("/nonexistent/cuda.so", "cannot open shared object file"), (no_driver, "has no cuDriverGet")]
    {
        let program = std::env::current_exe().expect("a path");
        let mut child = Command::new(program);
        child.args(["--exact", "loads_by_the_variable", "--nocapture"]).env(CHILD, "1").env("CUDA_SYS_LIBCUDA", path);
        let output = child.output().expect("this program runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(text.contains("CUDA_SYS_LIBCUDA names a file that cannot be used as libcuda"), "{text}");
        assert!(text.contains(&format!("\n  {path}: ")) && text.contains(reason), "{text}");
        assert!(text.contains("unset CUDA_SYS_LIBCUDA"), "{text}");
    }
}

#[test]
fn a_stub_that_answers_34_is_refused() {
    let path = shared_object("answers_34", "lib", "int cuDriverGetVersion(int *v) { (void)v; return 34; }");
    assert_eq!(only_outcome(Driver::load_from(path).expect_err("a stub")), Outcome::Stub);
}

#[test]
fn a_library_in_a_stubs_folder_is_refused_unopened() {
    let source = "__attribute__((constructor)) static void opened(void) { __builtin_trap(); }\nint cuDriverGetVersion(int *v) { *v = 13000; return 0; }";
    let path = shared_object("stub_folder", "stubs", source);
    assert_eq!(only_outcome(Driver::load_from(path).expect_err("a stub")), Outcome::Stub);
}

#[test]
fn a_library_that_is_no_driver_is_refused() {
    let path = shared_object("no_driver", "lib", "int something_else(void) { return 0; }");
    let outcome = only_outcome(Driver::load_from(path).expect_err("no driver"));
    assert_eq!(outcome, Outcome::MissingSymbol("cuDriverGetVersion"));
}

#[test]
fn a_driver_before_get_proc_address_is_resolved_by_symbol() {
    let source =
        "int cuDriverGetVersion(int *v) { *v = 11020; return 0; }\nint cuInit(unsigned f) { return f == 0 ? 0 : 1; }";
    let driver = Driver::load_from(shared_object("by_symbol", "lib", source)).expect("a driver of two functions");
    assert_eq!(driver.version(), CudaVersion(11020));
    assert!(driver.origin().ends_with("by_symbol/lib/libcuda.so.1"), "{}", driver.origin());
    let names: Vec<&str> = driver.functions().available().map(|info| info.symbol).collect();
    assert_eq!(names, ["cuDriverGetVersion", "cuInit"]);
    // SAFETY: this library's cuInit takes flags and touches nothing.
    assert_eq!(unsafe { driver.cuInit(0) }, Ok(()));
    // SAFETY: as above.
    let refused = unsafe { driver.cuInit(1) }.expect_err("flags must be 0");
    assert_eq!(refused.to_string(), "cuInit: invalid argument (CUDA_ERROR_INVALID_VALUE, 1)");
    assert_eq!((refused.call(), refused.status()), ("cuInit", Some(CUresult::CUDA_ERROR_INVALID_VALUE)));
}

#[test]
fn nvml_is_loaded_by_symbol_and_says_what_it_lacks() {
    let error = Nvml::load_from("/nonexistent/libnvidia-ml.so.1").expect_err("no such file");
    assert!(error.is_not_installed() && error.to_string().contains("set CUDA_SYS_LIBNVML to"), "{error}");
    let path = shared_object("no_nvml", "lib", "int cuInit(unsigned f) { return f; }");
    let outcome = only_outcome(Nvml::load_from(path).expect_err("a driver"));
    assert_eq!(outcome, Outcome::MissingSymbol("nvmlInit_v2"));
    let source = "int nvmlInit_v2(void) { return 9; }\nint nvmlShutdown(void) { return 0; }";
    let nvml = Nvml::load_from(shared_object("nvml", "lib", source)).expect("an NVML of two functions");
    assert!(nvml.origin().ends_with("nvml/lib/libcuda.so.1"), "{}", nvml.origin());
    // SAFETY: this library's functions take nothing and touch nothing.
    let refused = unsafe { nvml.nvmlInit_v2() }.expect_err("it answers 9");
    assert_eq!(refused.to_string(), "nvmlInit_v2: Driver Not Loaded (NVML_ERROR_DRIVER_NOT_LOADED, 9)");
    // SAFETY: as above.
    assert_eq!(unsafe { nvml.nvmlShutdown() }, Ok(()));
    let mut count = 0;
    // SAFETY: the library does not have the function, so nothing is called.
    let missing = unsafe { nvml.nvmlDeviceGetCount_v2(&mut count) }.expect_err("not there");
    let text = "nvmlDeviceGetCount_v2 is missing from the loaded library; a newer one may have it";
    assert_eq!((missing.to_string().as_str(), missing.status()), (text, None));
}

/// A cuBLAS of a version, with a product that answers 15.
fn cublas_source(major: u32) -> String {
    format!(
        "int cublasGetProperty(int part, int *value) {{ *value = part == 0 ? {major} : part + 1; return 0; }}\n\
         int cublasDestroy_v2(void *handle) {{ return handle ? 15 : 1; }}"
    )
}

#[test]
fn a_library_of_the_toolkit_says_its_version_and_what_it_lacks() {
    let path = shared_object("cublas", "lib", &cublas_source(13));
    let cublas = Cublas::load_from(path).expect("a cuBLAS of two functions");
    assert_eq!(cublas.version(), LibraryVersion { major: 13, minor: 2, patch: 3 });
    assert!(cublas.origin().ends_with("cublas/lib/libcuda.so.1"), "{}", cublas.origin());
    // SAFETY: this library's function looks at no memory.
    let refused = unsafe { cublas.cublasDestroy_v2(std::ptr::null_mut()) }.expect_err("no handle");
    assert_eq!(refused.status(), Some(cublasStatus_t::CUBLAS_STATUS_NOT_INITIALIZED));
    assert_eq!(refused.to_string(), "cublasDestroy_v2: CUBLAS_STATUS_NOT_INITIALIZED (1)");
    assert_eq!(
        refused.when_calling("handle").to_string(),
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasDestroy( handle )`"
    );
    // SAFETY: the library does not have the function, so nothing is called.
    let missing = unsafe { cublas.cublasCreate_v2(std::ptr::null_mut()) }.expect_err("not there");
    let text = "cublasCreate_v2 is missing from the loaded library; a newer one may have it";
    assert_eq!((missing.to_string().as_str(), missing.status()), (text, None));
    assert_eq!(missing.when_calling("&handle").to_string(), format!("CUDA error: {text}"));
}

#[test]
fn a_library_of_the_toolkit_that_is_too_old_or_another_is_refused() {
    let old = shared_object("old_cublas", "lib", &cublas_source(11));
    let found = LibraryVersion { major: 11, minor: 2, patch: 3 };
    let outcome = only_outcome(Cublas::load_from(old).expect_err("CUDA 11"));
    assert_eq!(outcome, Outcome::TooOld { found, needs: 12 });
    assert_eq!(outcome.to_string(), "opened, but is version 11.2.3; at least 12 is needed");
    let other = shared_object("other_cublas", "lib", &cublas_source(13));
    let outcome = only_outcome(CublasLt::load_from(other).expect_err("another library"));
    assert_eq!(outcome, Outcome::MissingSymbol("cublasLtGetProperty"));
    let fails = shared_object("fails", "lib", "int cufftGetProperty(int part, int *value) { return 5; }");
    let outcome = only_outcome(Cufft::load_from(fails).expect_err("it fails"));
    assert_eq!(outcome, Outcome::Refused("status 5 when asked for its version".to_owned()));
    let error = Cusolver::load_from("/nonexistent/libcusolver.so.12").expect_err("no such file");
    assert!(error.is_not_installed() && error.to_string().contains("set CUDA_SYS_LIBCUSOLVER to"), "{error}");
}

#[test]
fn get_proc_address_is_asked_for_our_own_abi_version() {
    // Answers only for cuInit at 2000 and cuEventElapsedTime at 2000 or 12080, which it tells apart.
    let source = r#"
        #include <string.h>
        int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
        static int init(unsigned f) { (void)f; return 0; }
        static int elapsed_1(float *ms, void *a, void *b) { (void)a; (void)b; *ms = 1; return 0; }
        static int elapsed_2(float *ms, void *a, void *b) { (void)a; (void)b; *ms = 2; return 0; }
        int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long flags, int *status) {
            (void)flags; *out = 0; *status = 1;
            if (!strcmp(name, "cuInit") && version == 2000) { *out = (void *)init; *status = 0; }
            if (!strcmp(name, "cuEventElapsedTime")) { *out = version >= 12080 ? (void *)elapsed_2 : (void *)elapsed_1; *status = 0; }
            return 0;
        }"#;
    let driver = Driver::load_from(shared_object("proc_address", "lib", source)).expect("a driver");
    let (mut old, mut new) = (0.0, 0.0);
    // SAFETY: both functions write one float and ignore the events.
    unsafe { driver.cuEventElapsedTime(&mut old, std::ptr::null_mut(), std::ptr::null_mut()) }.expect("present");
    // SAFETY: as above.
    unsafe { driver.cuEventElapsedTime_v2(&mut new, std::ptr::null_mut(), std::ptr::null_mut()) }.expect("present");
    assert_eq!((old, new), (1.0, 2.0));
    let missing = {
        // SAFETY: the function is missing, so nothing is called.
        unsafe { driver.cuMemAlloc_v2(&mut 0, 1) }.expect_err("this driver does not know it")
    };
    assert!(matches!(missing, DriverError::Missing(_)) && missing.status().is_none());
    assert!(missing.to_string().starts_with("cuMemAlloc_v2 is missing from the loaded driver (CUDA 13.0"), "{missing}");
}

unsafe extern "C" fn version_12_2(version: *mut c_int) -> CUresult {
    // SAFETY: the caller hands in a valid pointer, as cuDriverGetVersion demands.
    unsafe { version.write(12020) };
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn elapsed(
    _: *mut f32,
    _: cuda_sys::driver::types::CUevent,
    _: cuda_sys::driver::types::CUevent,
) -> CUresult {
    CUresult::CUDA_SUCCESS
}

#[test]
fn a_table_loses_what_is_newer_than_its_driver() {
    let functions = Functions {
        cuDriverGetVersion: Some(version_12_2),
        cuEventElapsedTime: Some(elapsed),
        cuEventElapsedTime_v2: Some(elapsed),
        ..Functions::default()
    };
    // SAFETY: the functions behave as their names say, as far as this test calls them.
    let driver = unsafe { Driver::from_functions(functions) }.expect("it has a version");
    assert!(driver.functions().cuEventElapsedTime.is_some());
    // SAFETY: the function is newer than the driver, so nothing is called.
    let missing = unsafe { driver.cuEventElapsedTime_v2(&mut 0.0, std::ptr::null_mut(), std::ptr::null_mut()) };
    let text = missing.expect_err("newer than the driver").to_string();
    assert_eq!(text, "cuEventElapsedTime_v2 needs CUDA 12.8, but the loaded driver supports CUDA 12.2");
}

#[test]
fn a_table_without_a_version_is_refused() {
    // SAFETY: no function is present, so none is called.
    let error = unsafe { Driver::from_functions(Functions::default()) }.expect_err("no version");
    assert_eq!(only_outcome(error), Outcome::MissingSymbol("cuDriverGetVersion"));
}

#[test]
fn every_function_is_known_once_and_sorted() {
    let symbols: Vec<&str> = Functions::ALL.iter().map(|info| info.symbol).collect();
    assert!(symbols.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(Functions::ALL.iter().all(|info| info.version >= CudaVersion(2000) && info.symbol.starts_with(info.base)));
}

#[test]
fn cufile_answers_with_two_codes_or_with_bytes() {
    let error = Cufile::load_from("/nonexistent/libcufile.so.0").expect_err("no such file");
    assert!(error.is_not_installed() && error.to_string().contains("set CUDA_SYS_LIBCUFILE to"), "{error}");
    let path = shared_object("no_cufile", "lib", "int cuInit(unsigned f) { return f; }");
    let outcome = only_outcome(Cufile::load_from(path).expect_err("a driver"));
    assert_eq!(outcome, Outcome::MissingSymbol("cuFileHandleRegister"));
    let source = "struct answer { int code, driver; };\n\
        struct answer cuFileHandleRegister(void **h, void *d) { *h = d; return (struct answer){ 0, 0 }; }\n\
        struct answer cuFileBufRegister(const void *p, unsigned long n, int f) { return (struct answer){ 5011, f }; }\n\
        long cuFileRead(void *h, void *p, unsigned long n, long at, long to) { return at < 0 ? -5022 : (long)n; }\n\
        static void *freed; void cuFileHandleDeregister(void *h) { freed = h; }\n\
        long cuFileUseCount(void) { return freed ? 7 : 0; }";
    let cufile = Cufile::load_from(shared_object("cufile", "lib", source)).expect("a cuFile of five functions");
    assert!(cufile.origin().ends_with("cufile/lib/libcuda.so.1"), "{}", cufile.origin());
    let (mut handle, null) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mut file = 5_u64;
    // SAFETY: this library's function writes the handle and reads nothing.
    unsafe { cufile.cuFileHandleRegister(&mut handle, (&raw mut file).cast()) }.expect("it succeeds");
    assert_eq!(handle, (&raw mut file).cast());
    // SAFETY: this library's functions touch nothing but what belongs to them.
    let refused = unsafe { cufile.cuFileBufRegister(null, 1, 1) }.expect_err("it answers with both codes");
    assert_eq!(refused.status().and_then(|status| status.driver()), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    // SAFETY: as above.
    let read = |at| unsafe { cufile.cuFileRead(handle, null, 9, at, 0) }.expect("the function is there");
    assert_eq!((read(0), CUfileOpError::of_answer(read(0))), (9, None));
    assert_eq!(CUfileOpError::of_answer(read(-1)), Some(CUfileOpError::CU_FILE_INVALID_VALUE));
    // SAFETY: as above.
    unsafe { cufile.cuFileHandleDeregister(handle) }.expect("the function is there");
    // SAFETY: as above.
    assert_eq!(unsafe { cufile.cuFileUseCount() }, Ok(7), "the handle was given back");
    // SAFETY: as above.
    let missing = unsafe { cufile.cuFileDriverOpen() }.expect_err("there is none");
    assert!(missing.to_string().contains("cuFileDriverOpen is missing from the loaded library"), "{missing}");
}

/// A compiler of this version, and its builtins beside it where they have a version.
fn nvrtc(name: &str, major: u32, builtins: Option<&str>) -> PathBuf {
    if let Some(version) = builtins {
        let other = shared_object(name, "builtins", "int builtins(void) { return 1; }");
        let beside = other.parent().and_then(Path::parent).expect("a folder").join("lib");
        std::fs::create_dir_all(&beside).expect("a folder below the target folder");
        std::fs::copy(other, beside.join(format!("libnvrtc-builtins.so.{version}"))).expect("a writable folder");
    }
    let source = format!("int nvrtcVersion(int *major, int *minor) {{ *major = {major}; *minor = 2; return 0; }}");
    shared_object(name, "lib", &source)
}

#[test]
fn the_compiler_tells_its_version_and_opens_its_builtins_from_the_same_folder() {
    for (name, builtins, is_opened) in [("nvrtc-13", "13.2", true), ("nvrtc-other", "13.1", false)] {
        let path = nvrtc(name, 13, Some(builtins));
        let library = Nvrtc::load_from(&path).expect("a compiler");
        assert_eq!(library.version(), LibraryVersion { major: 13, minor: 2, patch: 0 });
        let beside = path.with_file_name(format!("libnvrtc-builtins.so.{builtins}"));
        let mapped = std::fs::read_to_string("/proc/self/maps").expect("this process has mappings");
        assert_eq!(mapped.contains(beside.to_str().expect("a plain path")), is_opened, "{name}");
        // SAFETY: the function is not there.
        let error = unsafe { library.nvrtcDestroyProgram(std::ptr::null_mut()) }.expect_err("it lacks the function");
        assert_eq!(
            error.to_string(),
            "nvrtcDestroyProgram is missing from the loaded library; a newer one may have it"
        );
    }
}

#[test]
fn a_compiler_that_is_too_old_is_refused_with_its_place() {
    let path = nvrtc("nvrtc-11", 11, None);
    let error = Nvrtc::load_from(&path).expect_err("it is too old");
    let text = error.to_string();
    assert!(text.contains(path.to_str().expect("a plain path")), "{text}");
    assert!(text.contains("is version 11.2.0; at least 12 is needed"), "{text}");
    assert!(text.contains("set CUDA_SYS_LIBNVRTC to a library's path"), "{text}");
    let other = NvJitLink::load_from(&path).expect_err("it is another library");
    assert_eq!(only_outcome(other), Outcome::MissingSymbol("nvJitLinkVersion"));
}

#[test]
fn the_linker_tells_its_version() {
    let source = "int nvJitLinkVersion(unsigned *major, unsigned *minor) { *major = 12; *minor = 9; return 0; }";
    let library = NvJitLink::load_from(shared_object("nvjitlink", "lib", source)).expect("a linker");
    assert_eq!(library.version().to_string(), "12.9.0");
    let fails = shared_object("nvjitlink-fails", "lib", "int nvJitLinkVersion(unsigned *a, unsigned *b) { return 4; }");
    let outcome = only_outcome(NvJitLink::load_from(fails).expect_err("it fails"));
    assert_eq!(outcome, Outcome::Refused("status 4 when asked for its version".to_owned()));
}

/// An NCCL that says it is of the version with this number.
fn nccl(name: &str, code: u32) -> PathBuf {
    shared_object(name, "lib", &format!("int ncclGetVersion(int *version) {{ *version = {code}; return 0; }}"))
}

#[test]
fn nccl_tells_its_version_as_one_number() {
    for (code, text) in [(22809, "2.28.9"), (21805, "2.18.5"), (2708, "2.7.8")] {
        let library = Nccl::load_from(nccl(&format!("nccl-{code}"), code)).expect("an NCCL of one function");
        assert_eq!(library.version().to_string(), text);
        // SAFETY: the function is not there.
        let missing = unsafe { library.ncclCommFinalize(std::ptr::null_mut()) }.expect_err("it lacks the function");
        assert_eq!(missing.to_string(), "ncclCommFinalize is missing from the loaded library; a newer one may have it");
    }
    let path = nccl("nccl-1", 1300);
    let text = Nccl::load_from(&path).expect_err("it is too old").to_string();
    assert!(text.contains("is version 1.3.0; at least 2 is needed"), "{text}");
    assert!(text.contains("set CUDA_SYS_LIBNCCL to a library's path"), "{text}");
    let fails = shared_object("nccl-fails", "lib", "int ncclGetVersion(int *version) { return 3; }");
    let outcome = only_outcome(Nccl::load_from(fails).expect_err("it fails"));
    assert_eq!(outcome, Outcome::Refused("status 3 when asked for its version".to_owned()));
}

#[test]
fn a_configuration_of_nccl_says_its_size_and_chooses_nothing() {
    let config = ncclConfig_t::initial();
    assert_eq!((config.size, config.magic, config.version), (80, 0xcafe_beef, 22809));
    assert_eq!((config.blocking, config.nvlinkCentricSched), (i32::MIN, i32::MIN));
    assert!(config.netName.is_null() && config.commName.is_null());
}
