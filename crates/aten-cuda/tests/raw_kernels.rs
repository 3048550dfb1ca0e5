//! Kernels of CUDA C++ that NVRTC compiles, on the simulated device: arguments, templates, headers, shared memory, links, and
//! texts that are wrong.
#![expect(unsafe_code, reason = "launches of the kernels whose text stands here")]
#![expect(clippy::print_stdout, reason = "tests that are skipped say so")]

mod compiler;

use std::ffi::{c_char, c_int};

use aten_cuda::raw::{CompileOptions, KernelArg, LinkInput, LinkKind, RawKernel, compile_kernel, link_module};
use aten_cuda::{DType, Error, JitError, Result, Scalar, Tensor};
use cuda_sys::{LibraryVersion, Nvrtc, nvrtcResult};
use testkit::{Config, SimulatedRuntime, Simulation};

/// A simulated machine with NVRTC; `None` where that is not there.
fn fixture() -> Option<SimulatedRuntime> {
    let simulated = Simulation::new(Config::default()).here();
    compiler::compiler().map(|()| simulated)
}

const SCALE: &str = "__global__ void scale(float* x, int count, double by) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) x[at] *= by;
}";

fn plain(source: &str, name: &str) -> Result<RawKernel> {
    compile_kernel(source, name, &CompileOptions::default())
}

fn jit(error: Error) -> JitError {
    let Error::Jit(cause) = error else { panic!("{error}") };
    *cause
}

#[test]
fn a_kernel_of_text_works_on_a_tensor() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let kernel = plain(SCALE, "scale")?;
    let x = Tensor::arange(0, 1000, 1, Some(DType::F32), "cuda")?;
    let tail = x.narrow(0, 500, 500)?;
    // SAFETY: the kernel writes the first 500 elements of the tail.
    unsafe { kernel.launch(2, 256, &[(&tail).into(), 500.into(), 2.5.into()], 0, None) }?;
    let expected: Vec<f32> = (0..1000).map(|at| if at < 500 { at as f32 } else { at as f32 * 2.5 }).collect();
    assert_eq!(x.to_vec::<f32>()?, expected);
    Ok(())
}

#[test]
fn numbers_are_c_ints_and_doubles_and_tensors_are_addresses() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let kernel = plain(SCALE, "scale")?;
    assert_eq!(kernel.kernel().parameter_sizes(), Some(&[8, 4, 8][..]));
    let x = Tensor::ones(&[4], DType::F32, "cuda")?;
    let launch = |args: &[KernelArg<'_>]| {
        // SAFETY: the kernel writes at most the first 4 elements.
        unsafe { kernel.launch(1, 32, args, 0, None) }
    };
    launch(&[(&x).into(), Scalar::Int(4).into(), Scalar::Float(3.0).into()])?;
    launch(&[(&x).into(), Scalar::Bool(true).into(), 2.0.into()])?;
    assert_eq!(x.to_vec::<f32>()?, [6.0, 3.0, 3.0, 3.0]);
    let complex = Scalar::Complex(aten_cuda::Complex64::new(1.0, 0.0));
    let error = jit(launch(&[(&x).into(), 4.into(), complex.into()]).unwrap_err());
    assert!(error.to_string().starts_with("Unsupported argument type"), "{error}");
    let long = jit(launch(&[(&x).into(), Scalar::Int(1 << 31).into(), 2.0.into()]).unwrap_err());
    assert!(matches!(long, JitError::IntRange { value } if value == 1 << 31));
    // Rust's numbers keep their types, which are compared with the parameters'.
    for wrong in
        [&[(&x).into(), 4_i64.into(), 2.0.into()][..], &[(&x).into(), 4.into(), 2.0_f32.into()], &[(&x).into()]]
    {
        assert!(matches!(launch(wrong), Err(Error::Runtime(c10_core::Error::Launch(_)))));
    }
    assert_eq!(x.to_vec::<f32>()?, [6.0, 3.0, 3.0, 3.0], "refused launches do nothing");
    Ok(())
}

#[test]
fn tensors_are_on_the_device_or_pinned() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let kernel = plain(SCALE, "scale")?;
    let host = Tensor::ones(&[4], DType::F32, "cpu")?;
    // SAFETY: the launch is refused.
    let error = unsafe { kernel.launch(1, 32, &[(&host).into(), 4.into(), 2.0.into()], 0, None) };
    assert_eq!(error.unwrap_err().to_string(), "All tensor arguments must be CUDA tensors or pinned CPU tensors");
    let pinned = host.pin_memory()?;
    let part = pinned.narrow(0, 1, 3)?;
    // SAFETY: the kernel writes the 3 elements.
    unsafe { kernel.launch(1, 32, &[(&part).into(), 3.into(), 2.0.into()], 0, None) }?;
    aten_cuda::synchronize(None)?;
    assert_eq!(pinned.to_vec::<f32>()?, [1.0, 2.0, 2.0, 2.0]);
    Ok(())
}

#[test]
fn instances_of_templates_are_asked_for_by_their_arguments() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let code = "template <typename T, int N> __global__ void add(T* x) { x[threadIdx.x] += N; }";
    let x = Tensor::zeros(&[3], DType::I64, "cuda")?;
    for (name, sum) in [("add<long long, 4>", 4), ("add<long long, -1>", 3)] {
        let kernel = plain(code, name)?;
        assert!(kernel.kernel().name().starts_with("_Z3add"), "{kernel:?}");
        // SAFETY: three threads write three elements.
        unsafe { kernel.launch(1, 3, &[(&x).into()], 0, None) }?;
        assert_eq!(x.to_vec::<i64>()?, [sum; 3]);
    }
    assert!(matches!(jit(plain(code, "add<no_type>").unwrap_err()), JitError::Compile(_)));
    assert!(matches!(jit(plain(code, "other<int, 1>").unwrap_err()), JitError::Compile(_)));
    Ok(())
}

#[test]
fn headers_options_and_folders_reach_the_compiler() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("raw_kernels_headers");
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let header = |value: u32| std::fs::write(folder.join("own.h"), format!("#define OWN {value}\n")).expect("a file");
    let code = "#include <own.h>\n#include <cuda_fp16.h>\n__global__ void set(int* x) { *x = OWN + before() + GIVEN; }";
    let options = CompileOptions {
        header_code: "__device__ int before() { return 20; }".to_owned(),
        cuda_include_dirs: vec![folder.clone()],
        nvcc_options: vec!["-DGIVEN=300".to_owned()],
        ..CompileOptions::default()
    };
    // A header that was changed is read again, though compiled code is kept.
    for value in [1, 2, 1] {
        header(value);
        let kernel = compile_kernel(code, "set", &options)?;
        let x = Tensor::zeros(&[1], DType::I32, "cuda")?;
        // SAFETY: one thread writes one element.
        unsafe { kernel.launch(1, 1, &[(&x).into()], 0, None) }?;
        assert_eq!(x.to_vec::<i32>()?, [320 + value.cast_signed()]);
    }
    Ok(())
}

#[test]
fn texts_that_are_wrong_are_shown_with_the_lines() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let code = "__global__ void f(int* x)\n{\n    *x = undeclared;\n    oops\n}";
    let JitError::Compile(refused) = jit(plain(code, "f").unwrap_err()) else { panic!("no compile error") };
    assert!(refused.to_string().starts_with("Kernel compilation failed:\nf(3): error"), "{refused}");
    let lines: Vec<usize> =
        refused.messages().iter().filter(|message| message.is_error).map(|message| message.line).collect();
    assert_eq!(lines.first(), Some(&3));
    assert!(refused.marked().contains("> 3 |     *x = undeclared;\n  4 |     oops"), "{}", refused.marked());
    assert!(refused.options.iter().any(|option| option.starts_with("--gpu-architecture=")));
    // Another name than any kernel's, a text with a zero byte, an option that does not exist, a capability that is none.
    let none = plain(SCALE, "other").unwrap_err();
    assert!(matches!(&none, Error::Runtime(c10_core::Error::Module(_)) | Error::Jit(_)), "{none}");
    assert!(matches!(jit(plain("__global__ void f() {\0}", "f").unwrap_err()), JitError::ZeroByte { .. }));
    let options = CompileOptions { nvcc_options: vec!["--no-such-option".to_owned()], ..CompileOptions::default() };
    let error = jit(compile_kernel(SCALE, "scale", &options).unwrap_err());
    assert!(matches!(&error, JitError::Compiler { .. }) && error.to_string().contains("INVALID_OPTION"), "{error}");
    for (given, is_digits) in [("ninety", false), ("90ab", false), ("1", true)] {
        let options = CompileOptions { compute_capability: Some(given.to_owned()), ..CompileOptions::default() };
        let error = jit(compile_kernel(SCALE, "scale", &options).unwrap_err());
        assert_eq!(matches!(error, JitError::Capability { .. }), !is_digits, "{given}: {error}");
    }
    Ok(())
}

#[test]
fn shared_memory_beyond_48_kib_is_allowed_up_to_the_devices_limit() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let code = "__global__ void last(int* x, int count) {
        extern __shared__ int kept[];
        for (int at = threadIdx.x; at < count; at += blockDim.x) kept[at] = at;
        __syncthreads();
        if (threadIdx.x == 0) *x = kept[count - 1];
    }";
    let kernel = plain(code, "last")?;
    let x = Tensor::zeros(&[1], DType::I32, "cuda")?;
    let bytes = 64_u32 << 10;
    let launch = || {
        // SAFETY: the kernel uses as much shared memory as it is given, and one element.
        unsafe { kernel.launch(1, 64, &[(&x).into(), (bytes / 4).cast_signed().into()], bytes, None) }
    };
    assert!(matches!(launch(), Err(Error::Runtime(c10_core::Error::Launch(_)))), "it was not allowed");
    let refused = jit(kernel.set_shared_memory_config(u32::MAX).unwrap_err());
    let JitError::SharedMemory { asked: u32::MAX, limit } = refused else { panic!("{refused}") };
    assert!(limit > bytes);
    kernel.set_shared_memory_config(limit)?;
    launch()?;
    assert_eq!(x.to_vec::<i32>()?, [bytes.cast_signed() / 4 - 1]);
    Ok(())
}

#[test]
fn launches_are_ordered_on_the_stream_that_is_named() -> Result<()> {
    let Some(simulated) = fixture() else { return Ok(()) };
    let kernel = plain(SCALE, "scale")?;
    let x = Tensor::ones(&[4], DType::F32, "cuda")?;
    aten_cuda::synchronize(None)?;
    let stream = simulated.runtime().streams().pooled(0, 0)?;
    // SAFETY: the kernel writes the first 4 elements.
    unsafe { kernel.launch(1, 32, &[(&x).into(), 4.into(), 2.0.into()], 0, Some(&stream)) }?;
    stream.synchronize()?;
    let launched = simulated.runtime().last_launches(0)?;
    assert_eq!((launched[0].kernel.as_deref(), launched[0].stream != 0), (Some("scale"), true), "{launched:?}");
    assert_eq!(x.to_vec::<f32>()?, [2.0; 4]);
    Ok(())
}

#[test]
fn several_inputs_are_linked_by_the_driver() -> Result<()> {
    let simulated = Simulation::new(Config::default()).here();
    aten_cuda::raw::set_linker(None);
    let head = ".version 7.8 .target sm_75 .address_size 64";
    let callee = format!("{head} .visible .func (.param .b32 r) seven() {{ st.param.b32 [r], 7; ret; }}");
    let caller = format!(
        "{head} .extern .func (.param .b32 r) seven();
        .visible .entry set(.param .u64 to) {{
            .param .b32 r; .reg .b32 %v; .reg .b64 %to;
            ld.param.u64 %to, [to];
            call (r), seven, ();
            ld.param.b32 %v, [r];
            st.global.b32 [%to], %v;
            ret;
        }}"
    );
    let inputs: Vec<LinkInput<'_>> = [("callee", &callee), ("caller", &caller)]
        .map(|(name, text)| LinkInput { kind: LinkKind::Ptx, name, data: text.as_bytes() })
        .to_vec();
    // SAFETY: texts say where they end.
    let kernel = RawKernel::new(unsafe { link_module(&inputs) }?.kernel("set")?);
    let x = Tensor::zeros(&[1], DType::I32, "cuda")?;
    // SAFETY: one thread writes one element.
    unsafe { kernel.launch(1, 1, &[(&x).into()], 0, None) }?;
    assert_eq!(x.to_vec::<i32>()?, [7]);
    // SAFETY: as above.
    let missing = unsafe { link_module(&inputs[1..]) }.unwrap_err().to_string();
    assert!(missing.contains("undefined reference to 'seven'"), "{missing}");
    // SAFETY: there is nothing.
    assert!(matches!(jit(unsafe { link_module(&[]) }.unwrap_err()), JitError::NothingToLink));
    let empty = LinkInput { kind: LinkKind::Cubin, name: "empty", data: &[] };
    // SAFETY: there is nothing.
    assert!(unsafe { link_module(&[empty]) }.is_err());
    drop(simulated);
    Ok(())
}

/// A compiler of this version whose calls all fail with a code.
fn failing(code: u32) -> Nvrtc {
    use cuda_sys::nvrtc::types::nvrtcProgram;
    unsafe extern "C" fn count(count: *mut c_int) -> nvrtcResult {
        // SAFETY: the caller's place.
        unsafe { *count = 1 };
        nvrtcResult::NVRTC_SUCCESS
    }
    unsafe extern "C" fn architectures(list: *mut c_int) -> nvrtcResult {
        // SAFETY: the caller has room for as many as were counted.
        unsafe { *list = 75 };
        nvrtcResult::NVRTC_SUCCESS
    }
    unsafe extern "C" fn create(
        _: *mut nvrtcProgram,
        source: *const c_char,
        _: *const c_char,
        _: c_int,
        _: *const *const c_char,
        _: *const *const c_char,
    ) -> nvrtcResult {
        // SAFETY: the caller's text, which begins with the code.
        let first = unsafe { *source };
        nvrtcResult(u32::from(first.cast_unsigned() - b'0'))
    }
    assert!(code < 10);
    let functions = cuda_sys::nvrtc::Functions {
        nvrtcGetNumSupportedArchs: Some(count),
        nvrtcGetSupportedArchs: Some(architectures),
        nvrtcCreateProgram: Some(create),
        ..Default::default()
    };
    // SAFETY: the functions are those above.
    unsafe { Nvrtc::from_functions(functions, LibraryVersion { major: 12, minor: 0, patch: 0 }) }
}

#[test]
fn a_compiler_that_fails_says_by_which_call() -> Result<()> {
    let _simulated = Simulation::new(Config::default()).here();
    for (code, name) in [(1, "NVRTC_ERROR_OUT_OF_MEMORY"), (3, "NVRTC_ERROR_INVALID_INPUT")] {
        aten_cuda::raw::set_compiler(Some(failing(code)));
        let text = format!("{code} extern \"C\" __global__ void f() {{}}");
        let error = jit(plain(&text, "f").unwrap_err()).to_string();
        assert!(error.contains("nvrtcCreateProgram") && error.contains(name), "{error}");
    }
    // Without the function at all.
    // SAFETY: there are no functions.
    let empty = unsafe { Nvrtc::from_functions(Default::default(), LibraryVersion { major: 13, minor: 0, patch: 0 }) };
    aten_cuda::raw::set_compiler(Some(empty));
    let error = jit(plain(SCALE, "scale").unwrap_err()).to_string();
    assert!(error.contains("nvrtcGetNumSupportedArchs is missing"), "{error}");
    Ok(())
}

#[test]
fn nvjitlink_says_what_is_missing_and_the_driver_runs_what_it_cannot() -> Result<()> {
    let _simulated = Simulation::new(Config::default()).here();
    if std::env::var_os("CUDA_SYS_LIBNVJITLINK").is_none() {
        println!("skipped: CUDA_SYS_LIBNVJITLINK names no nvJitLink");
        return Ok(());
    }
    aten_cuda::raw::set_linker(Some(cuda_sys::NvJitLink::load().expect("the library that is named")));
    let head = ".version 7.8 .target sm_75 .address_size 64";
    let callee = format!("{head} .visible .func (.param .b32 r) seven() {{ st.param.b32 [r], 7; ret; }}");
    let caller = format!(
        "{head} .extern .func (.param .b32 r) seven();
        .visible .entry call() {{ .param .b32 r; call (r), seven, (); ret; }}"
    );
    let input = |name, text: &'static str| LinkInput { kind: LinkKind::Ptx, name, data: text.as_bytes() };
    let (callee, caller) = (input("callee", callee.leak()), input("caller", caller.leak()));
    // SAFETY: texts say where they end.
    assert_eq!(unsafe { link_module(&[callee, caller]) }?.kernel("call")?.name(), "call");
    // SAFETY: as above.
    let missing = jit(unsafe { link_module(&[caller]) }.unwrap_err());
    assert!(matches!(&missing, JitError::Linker { log, .. } if log.contains("seven")), "{missing}");
    let wrong = input("wrong", "no text of a kernel");
    // SAFETY: as above.
    let refused = jit(unsafe { link_module(&[wrong]) }.unwrap_err());
    assert!(matches!(&refused, JitError::Linker { log, .. } if !log.is_empty()), "{refused}");
    Ok(())
}

const ASSERTS: &str = "__global__ void check(const int* x, int* y, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    CUDA_KERNEL_ASSERT2(x[at] != 7);
    y[at] = x[at];
}";

/// Launches the kernel on numbers of which some are 7; returns what is reported, and the numbers that were copied.
fn assert_not_seven(numbers: &[i32]) -> Result<(Result<()>, Tensor)> {
    let kernel = plain(ASSERTS, "check")?;
    let count = i64::try_from(numbers.len()).expect("a short list");
    let x = Tensor::from_slice(numbers, &[count])?.cuda(None)?;
    let y = Tensor::zeros(&[count], DType::I32, "cuda")?;
    aten_cuda::synchronize(None)?;
    let count = i32::try_from(count).expect("a short list");
    // SAFETY: the kernel reads and writes as many elements as it is told.
    unsafe { kernel.launch(2, 32, &[(&x).into(), (&y).into(), count.into()], 0, None) }?;
    Ok((aten_cuda::synchronize(None), y))
}

#[test]
fn conditions_that_do_not_hold_are_reported_with_their_threads() {
    testkit::with_environment(
        "conditions_that_do_not_hold_are_reported_with_their_threads",
        &[("PYTORCH_USE_CUDA_DSA", "1")],
        || {
            let Some(_simulated) = fixture() else { return };
            let mut numbers = [1; 40];
            assert!(assert_not_seven(&numbers).expect("a launch").0.is_ok());
            (numbers[3], numbers[35]) = (7, 7);
            let (reported, y) = assert_not_seven(&numbers).expect("a launch");
            let JitError::Assertions(found) = jit(reported.unwrap_err()) else { panic!("other errors") };
            assert_eq!((found.device, found.count, found.failures.len()), (0, 2, 2));
            let mut places: Vec<_> =
                found.failures.iter().map(|failure| (failure.block[0], failure.thread[0])).collect();
            places.sort_unstable();
            assert_eq!(places, [(0, 3), (1, 3)]);
            let first = &found.failures[0];
            assert_eq!((first.line, first.message.as_str(), first.function.as_str()), (4, "x[at] != 7", "check"));
            assert!(found.to_string().contains("Name of kernel launched that led to failure = check"), "{found}");
            // It is told once; the device goes on, and other threads have done their work.
            assert!(aten_cuda::synchronize(None).is_ok());
            let copied = y.to_vec::<i32>().expect("the numbers");
            assert_eq!((copied[2], copied[3], copied[39]), (1, 0, 1));
            let (reported, _) = assert_not_seven(&[7; 25]).expect("a launch");
            let text = reported.unwrap_err().to_string();
            assert!(text.contains("failure was detected in 25 places; only the first 10"), "{text}");
        },
    );
}

#[test]
fn without_the_variable_a_condition_stops_the_kernel() {
    testkit::with_environment(
        "without_the_variable_a_condition_stops_the_kernel",
        &[("PYTORCH_USE_CUDA_DSA", "0")],
        || {
            let Some(_simulated) = fixture() else { return };
            assert!(assert_not_seven(&[1; 4]).expect("a launch").0.is_ok());
            let (reported, _) = assert_not_seven(&[7; 4]).expect("a launch");
            assert!(matches!(reported, Err(Error::Runtime(_))), "{reported:?}");
        },
    );
}
