//! Kernels and elementwise functions in CUDA C++, run by the driver that is installed: `user_kernels`.
//!
//! Functions of every dtype, translated and compiled by NVRTC, are compared with the operations of the crate; kernels are
//! launched with tensors, as instances of templates, and linked; tensors of more than 2^31 elements (13 GB of device memory)
//! are taken. Then times are printed, of both kinds: of a first call without anything on disk, of a small call, and of 3 GiB.
//! The exit code is 1 where a result is wrong, 0 where NVRTC is not there.
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

/// How functions become kernels.
const WAYS: [&str; 2] = ["translated", "by NVRTC"];

/// A function that becomes a kernel in this way.
fn function_by(way: &str, code: &str) -> Result<JittedFunction> {
    let function = function(code)?;
    Ok(if way == WAYS[0] { function } else { function.compiled_by_nvrtc() })
}

/// Fails where two tensors differ in a byte.
fn same(what: &str, made: &Tensor, wanted: &Tensor) -> Result<()> {
    if made.dtype() == wanted.dtype() && made.cpu()?.to_bytes()? == wanted.cpu()?.to_bytes()? {
        return Ok(());
    }
    Err(aten_cuda::TensorError::Invalid(format!("{what}: {made} instead of {wanted}")).into())
}

/// The first function of a process waits until a library is loaded and ready, too.
fn first_of_process() -> Result<()> {
    let x = Tensor::ones(&[1024], DType::F32, "cuda")?;
    synchronize(None)?;
    for way in WAYS {
        let begin = Instant::now();
        function_by(way, &unique("T f(T x) { return x * T(SEED); }"))?.call([&x], &[])?;
        synchronize(None)?;
        say(&format!("first call of the process, {way}: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3));
    }
    Ok(())
}

/// A text that nobody has compiled: a number of its own stands for `SEED`.
fn unique(code: &str) -> String {
    let since = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() % 100_000_000);
    format!("template <typename T> {}", code.replace("SEED", &format!("1.{since:08}")))
}

fn functions() -> Result<()> {
    for way in WAYS {
        functions_by(way)?;
    }
    say("functions: the same numbers as operations, for each pair of dtypes");
    rounding()
}

fn functions_by(way: &str) -> Result<()> {
    let sum = function_by(way, "template <typename T> T sum(T x, T y) { return x + y; }")?;
    let dtypes = DType::ALL.into_iter().filter(|dtype| !dtype.is_float8() && *dtype != DType::Bool);
    for dtype in dtypes.clone() {
        let x = Tensor::arange(0, 6000, 1, Some(DType::I64), "cuda")?.remainder(50)?.to_dtype(dtype)?;
        for other in dtypes.clone() {
            let y = Tensor::arange(0, 6000, 1, Some(DType::I64), "cuda")?.remainder(49)?.to_dtype(other)?;
            same(&format!("{dtype} + {other}, {way}"), &sum.call([&x, &y], &[])?, &x.add(&y)?)?;
        }
        let (turned, row) = (x.view(&[60, 100])?.t()?, x.narrow(0, 7, 60)?);
        same(&format!("strides of {dtype}, {way}"), &sum.call([&turned, &row], &[])?, &turned.add(&row)?)?;
        let odd = x.narrow(0, 1, 5999)?;
        same(&format!("unaligned {dtype}, {way}"), &sum.call([&odd, &odd], &[])?, &odd.add(&odd)?)?;
    }
    Ok(())
}

/// Functions whose bits depend on where products and sums are one instruction. Products that are used twice are left out:
/// compilers differ there.
fn rounding() -> Result<()> {
    let bodies = [
        "return x * y + x;",
        "return x - y * 0.1;",
        "return x * T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));",
        "return x / (T(1) + exp(-x)) + tanh(y);",
        "T a = x + y; if (a > y) { a = a * y + x; } else { a -= y; } return a;",
        "return pow(fabs(x) + T(1), y) - sqrt(fabs(y)) * log1p(fabs(x));",
    ];
    for body in bodies {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let (x, y) =
                (Tensor::randn(&[100_000], dtype, "cuda", None)?, Tensor::randn(&[100_000], dtype, "cuda", None)?);
            let code = format!("template <typename T> T f(T x, T y) {{ {body} }}");
            let [ours, theirs] = [function_by(WAYS[0], &code)?, function_by(WAYS[1], &code)?];
            same(&format!("{dtype} {body}"), &ours.call([&x, &y], &[])?, &theirs.call([&x, &y], &[])?)?;
        }
    }
    say("functions: the same bits translated and by NVRTC");
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
    let x = Tensor::randint(0, 100, &[rows, columns], DType::U8, "cuda", None)?;
    let row = Tensor::randint(0, 100, &[columns], DType::U8, "cuda", None)?;
    let wanted = x.add(&row)?;
    for way in WAYS {
        let sum = function_by(way, "template <typename T> T sum(T x, T y) { return x + y; }")?;
        let made = sum.call([&x, &row], &[])?;
        let turned = sum.call([&x.t()?, &row.unsqueeze(1)?], &[])?.t()?;
        for (what, made) in [("whole", made), ("turned", turned)] {
            let differ = made.ne(&wanted)?.sum((), false, None)?.item()?.to_f64();
            if differ != 0.0 {
                let text = format!("{what}, {way}: {differ} of {rows} x {columns} differ");
                return Err(aten_cuda::TensorError::Invalid(text).into());
            }
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
    WAYS.into_iter().try_for_each(times_of)
}

fn times_of(way: &str) -> Result<()> {
    let x = Tensor::ones(&[1024], DType::F32, "cuda")?;
    synchronize(None)?;
    let first = function_by(way, &unique("T f(T x, T y) { return x * y + T(SEED); }"))?;
    let begin = Instant::now();
    first.call([&x, &x], &[])?;
    synchronize(None)?;
    say(&format!("first call, {way}: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3));
    let begin = Instant::now();
    for _ in 0..CALLS {
        first.call([&x, &x], &[])?;
    }
    let queued = begin.elapsed();
    synchronize(None)?;
    say(&format!("small call, {way}: {:.2} us", queued.as_secs_f64() * 1e6 / f64::from(CALLS)));
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
    say(&format!("3 GiB, {way}: {:.0} GB/s", bytes / begin.elapsed().as_secs_f64() / 1e9));
    Ok(())
}
