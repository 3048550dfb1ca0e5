//! Kernels and elementwise functions in CUDA C++, compiled by NVRTC and run by the driver that is installed: `user_kernels`.
//!
//! Functions of every dtype are compared with the operations of the crate; kernels are launched with tensors, as instances of
//! templates, and linked; tensors of more than 2^31 elements (13 GB of device memory) are taken. Then times are printed: of a first call without anything on disk, of a small call, and of 3 GiB. The
//! exit code is 1 where a result is wrong, 0 where NVRTC is not there.
//!
//! # Safety
//! The functions and kernels whose text stands here touch nothing but the tensors that they are given.
#![expect(unsafe_code, reason = "functions and kernels whose text stands here")]

use std::process::ExitCode;
use std::time::Instant;

use aten_cuda::jiterator::{JittedFunction, create_jit_fn};
use aten_cuda::raw::{CompileOptions, LinkInput, LinkKind, RawKernel, compile_kernel, link_module};
use aten_cuda::{DType, Error, JitError, Result, Tensor, synchronize};
use tests::program::{ended_unless_missing, say};

fn main() -> ExitCode {
    ended_unless_missing(
        all().map(|()| true),
        |error| matches!(error, Error::Jit(cause) if matches!(**cause, JitError::NoLibrary { .. })),
    )
}

fn all() -> Result<()> {
    first_of_process()?;
    functions()?;
    kernels()?;
    linked()?;
    large()?;
    times()
}

fn function(code: &str) -> Result<JittedFunction> {
    // SAFETY: the functions here touch nothing but their arguments.
    unsafe { create_jit_fn(code, &[]) }
}

/// Fails where two tensors differ in a byte.
fn same(what: &str, made: &Tensor, wanted: &Tensor) -> Result<()> {
    if made.dtype() == wanted.dtype() && made.cpu()?.to_bytes()? == wanted.cpu()?.to_bytes()? {
        return Ok(());
    }
    Err(aten_cuda::TensorError::Invalid(format!("{what}: {made} instead of {wanted}")).into())
}

/// The first function of a process waits until NVRTC is loaded and ready, too.
fn first_of_process() -> Result<()> {
    let x = Tensor::ones(&[1024], DType::F32, "cuda")?;
    synchronize(None)?;
    let begin = Instant::now();
    function(&unique("T f(T x) { return x * x; }"))?.call([&x], &[])?;
    synchronize(None)?;
    say(&format!("first call of the process: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3));
    Ok(())
}

/// A text that nobody has compiled.
fn unique(code: &str) -> String {
    let since = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    format!("template <typename T> {code} /* {since} */")
}

fn functions() -> Result<()> {
    let sum = function("template <typename T> T sum(T x, T y) { return x + y; }")?;
    let dtypes = DType::ALL.into_iter().filter(|dtype| !dtype.is_float8() && *dtype != DType::Bool);
    for dtype in dtypes.clone() {
        let x = Tensor::arange(0, 6000, 1, Some(DType::I64), "cuda")?.remainder(50)?.to_dtype(dtype)?;
        for other in dtypes.clone() {
            let y = Tensor::arange(0, 6000, 1, Some(DType::I64), "cuda")?.remainder(49)?.to_dtype(other)?;
            same(&format!("{dtype} + {other}"), &sum.call([&x, &y], &[])?, &x.add(&y)?)?;
        }
        let (turned, row) = (x.view(&[60, 100])?.t()?, x.narrow(0, 7, 60)?);
        same(&format!("strides of {dtype}"), &sum.call([&turned, &row], &[])?, &turned.add(&row)?)?;
        let odd = x.narrow(0, 1, 5999)?;
        same(&format!("unaligned {dtype}"), &sum.call([&odd, &odd], &[])?, &odd.add(&odd)?)?;
    }
    say("functions: the same numbers as operations, for each pair of dtypes");
    Ok(())
}

fn kernels() -> Result<()> {
    let code = "#include <cuda_fp16.h>
        template <typename T> __global__ void scale(T* x, int count, double by) {
            int at = blockIdx.x * blockDim.x + threadIdx.x;
            if (at < count) x[at] = T(float(x[at]) * float(by));
        }";
    for (name, dtype) in [("scale<float>", DType::F32), ("scale<__half>", DType::F16), ("scale<int>", DType::I32)] {
        let kernel = compile_kernel(code, name, &CompileOptions::default())?;
        let x = Tensor::ones(&[1000], dtype, "cuda")?;
        // SAFETY: the kernel writes 1000 elements.
        unsafe { kernel.launch(8, 128, &[(&x).into(), 1000.into(), 3.0.into()], 0, None) }?;
        same(name, &x, &Tensor::full(&[1000], 3, dtype, "cuda")?)?;
    }
    let code = "__global__ void last(int* x, int count) {
        extern __shared__ int kept[];
        for (int at = threadIdx.x; at < count; at += blockDim.x) kept[at] = at;
        __syncthreads();
        if (threadIdx.x == 0) *x = kept[count - 1];
    }";
    let kernel = compile_kernel(code, "last", &CompileOptions::default())?;
    let (x, bytes) = (Tensor::zeros(&[1], DType::I32, "cuda")?, 64_u32 << 10);
    kernel.set_shared_memory_config(bytes)?;
    // SAFETY: the kernel uses as much shared memory as it is given, and one element.
    unsafe { kernel.launch(1, 128, &[(&x).into(), (bytes / 4).cast_signed().into()], bytes, None) }?;
    same("shared memory", &x, &Tensor::full(&[1], (bytes / 4 - 1).cast_signed(), DType::I32, "cuda")?)?;
    say("kernels: instances of templates, headers of the toolkit and 64 KiB of shared memory work");
    Ok(())
}

fn linked() -> Result<()> {
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
    let input = |name, text: &'static str| LinkInput { kind: LinkKind::Ptx, name, data: text.as_bytes() };
    let inputs = [input("callee", callee.leak()), input("caller", caller.leak())];
    for by in ["the linker that is found", "the driver"] {
        // SAFETY: texts say where they end.
        let kernel = RawKernel::new(unsafe { link_module(&inputs) }?.kernel("set")?);
        let x = Tensor::zeros(&[1], DType::I32, "cuda")?;
        // SAFETY: one thread writes one element.
        unsafe { kernel.launch(1, 1, &[(&x).into()], 0, None) }?;
        same(by, &x, &Tensor::full(&[1], 7, DType::I32, "cuda")?)?;
        aten_cuda::raw::set_linker(None);
    }
    say("links: by what is found and by the driver");
    Ok(())
}

/// More elements, and offsets that reach farther, than a kernel counts in 32 bits.
fn large() -> Result<()> {
    let (rows, columns) = (3, (1_i64 << 30) + 77);
    let sum = function("template <typename T> T sum(T x, T y) { return x + y; }")?;
    let x = Tensor::randint(0, 100, &[rows, columns], DType::U8, "cuda", None)?;
    let row = Tensor::randint(0, 100, &[columns], DType::U8, "cuda", None)?;
    let wanted = x.add(&row)?;
    let made = sum.call([&x, &row], &[])?;
    let turned = sum.call([&x.t()?, &row.unsqueeze(1)?], &[])?.t()?;
    for (what, made) in [("whole", made), ("turned", turned)] {
        let differ = made.ne(&wanted)?.sum((), false, None)?.item()?.to_f64();
        if differ != 0.0 {
            return Err(
                aten_cuda::TensorError::Invalid(format!("{what}: {differ} of {rows} x {columns} differ")).into()
            );
        }
    }
    say(&format!("{rows} x {columns} elements: the same numbers as operations, whole and turned"));
    Ok(())
}

/// Small calls that are timed together.
const CALLS: u32 = 10_000;
/// Passes over the large tensors.
const PASSES: u32 = 20;

fn times() -> Result<()> {
    let x = Tensor::ones(&[1024], DType::F32, "cuda")?;
    synchronize(None)?;
    let first = function(&unique("T f(T x, T y) { return x * y + x; }"))?;
    let begin = Instant::now();
    first.call([&x, &x], &[])?;
    synchronize(None)?;
    say(&format!("first call: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3));
    let begin = Instant::now();
    for _ in 0..CALLS {
        first.call([&x, &x], &[])?;
    }
    let queued = begin.elapsed();
    synchronize(None)?;
    say(&format!("small call: {:.2} us", queued.as_secs_f64() * 1e6 / f64::from(CALLS)));
    let elements = 1_i64 << 28;
    let (a, b) = (Tensor::ones(&[elements], DType::F32, "cuda")?, Tensor::ones(&[elements], DType::F32, "cuda")?);
    let out = Tensor::ones(&[elements], DType::F32, "cuda")?;
    first.call_into([&a, &b], &[], &[&out])?;
    synchronize(None)?;
    let begin = Instant::now();
    for _ in 0..PASSES {
        first.call_into([&a, &b], &[], &[&out])?;
    }
    synchronize(None)?;
    let bytes = f64::from(PASSES) * 3.0 * a.nbytes() as f64;
    say(&format!("3 GiB: {:.0} GB/s", bytes / begin.elapsed().as_secs_f64() / 1e9));
    Ok(())
}
