//! Each kind of guard: a call that differs by it is not like the one before, and the report says in words why.
//!
//! # Safety
//! Memory that begins at an odd place is a part of a buffer that outlives the tensors over it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::RwLock;

use aten_cuda::attention::{SdpKernels, allow_fp16_bf16_reduction_math_sdp, with_sdp_kernel};
use aten_cuda::compile::{Compiled, compile};
use aten_cuda::{DType, Storage, Tensor, autocast, blas, deterministic};
use c10_core::{DeviceBuffer, Runtime, Stream, construct_storage_from_data_pointer};
use testkit::{Config, SimulatedRuntime};

/// Tests that leave the settings of the process alone share it; one that changes them has it for itself.
static SETTINGS: RwLock<()> = RwLock::new(());

/// Calls a function of one way and then of another. Why the second was compiled for itself, and that the first and the second
/// are then known.
fn why(first: impl Fn(&Compiled), then: impl Fn(&Compiled)) -> String {
    let compiled = compile(|x: &[Tensor]| Ok(vec![x[0].mul(2)?.add(1)?]));
    for _ in 0..3 {
        first(&compiled);
        then(&compiled);
    }
    let report = compiled.report();
    let all = report.programs.iter().flat_map(|program| program.recompiled.iter().chain(&program.resized));
    let reasons: Vec<String> = all.map(ToString::to_string).collect();
    assert_eq!((reasons.len(), report.uncompiled), (1, 0), "{report}");
    assert!(report.programs.iter().all(|program| program.called.is_none()), "{report}");
    reasons[0].clone()
}

fn call(compiled: &Compiled, inputs: &[&Tensor]) {
    compiled.call(inputs).unwrap();
}

/// Why two calls with these arguments differ.
fn between(first: &[&Tensor], then: &[&Tensor]) -> String {
    why(|compiled| call(compiled, first), |compiled| call(compiled, then))
}

/// Why a call differs that is made while a setting is another one.
fn during<G>(set: impl Fn() -> G) -> String {
    let x = Tensor::ones(&[8], DType::F32, "cuda").unwrap();
    why(
        |compiled| call(compiled, &[&x]),
        |compiled| {
            let _set = set();
            call(compiled, &[&x]);
        },
    )
}

fn ones(sizes: &[i64], dtype: DType) -> Tensor {
    Tensor::ones(sizes, dtype, "cuda").unwrap()
}

#[test]
fn arguments() {
    let _settings = SETTINGS.read();
    let _simulated = SimulatedRuntime::new(Config::default().devices(2));
    let x = ones(&[4, 6], DType::F32);
    assert_eq!(between(&[&x], &[&x, &x]), "the function was compiled for 1 arguments and got 2");
    assert_eq!(
        between(&[&x], &[&ones(&[4, 6], DType::F64)]),
        "dtype of argument 0 was torch.float32 and is torch.float64"
    );
    assert_eq!(between(&[&x], &[&x.to("cuda:1").unwrap()]), "device of argument 0 was cuda:0 and is cuda:1");
    assert_eq!(between(&[&x], &[&ones(&[4, 7], DType::F32)]), "size of argument 0 was [4, 6] and is [4, 7]");
    assert_eq!(between(&[&x], &[&ones(&[24], DType::F32)]), "size of argument 0 was [4, 6] and is [24]");
    let turned = ones(&[6, 4], DType::F32).t().unwrap();
    assert_eq!(between(&[&x], &[&turned]), "stride of argument 0 was [6, 1] and is [1, 4]");
    let part = ones(&[8, 6], DType::F32).narrow(0, 4, 4).unwrap();
    assert_eq!(between(&[&x], &[&part]), "storage_offset of argument 0 was 0 and is 24");
    let complex = ones(&[4], DType::C64);
    let conjugate = "conjugate or negative bit of argument 0 was ";
    assert!(between(&[&complex], &[&complex.conj()]).starts_with(conjugate));
    let y = ones(&[4, 6], DType::F32);
    assert_eq!(between(&[&x, &y], &[&x, &x]), "aliasing of argument 1 was none and is memory of argument 0");
    // Of many arguments memory is told apart in another way than of few.
    let many: Vec<Tensor> = (0..200).map(|_| ones(&[3], DType::F32)).collect();
    let apart: Vec<&Tensor> = many.iter().collect();
    let mut shared = apart.clone();
    shared[199] = apart[120];
    assert_eq!(between(&apart, &shared), "aliasing of argument 199 was none and is memory of argument 120");
}

#[test]
#[expect(unsafe_code, reason = "memory that begins at an odd place")]
fn alignment() {
    let _settings = SETTINGS.read();
    let _simulated = testkit::simulated_runtime();
    let owner = DeviceBuffer::new(1024, None).unwrap();
    owner.fill(.., 0, None).unwrap();
    let at = |offset: u64| {
        // SAFETY: the bytes are those of the owner, which outlives the tensors; one stream orders all work on them.
        let buffer = unsafe { construct_storage_from_data_pointer(owner.address() + offset, None, 64).unwrap() };
        Tensor::from_storage(Storage::from_buffer(buffer), DType::F32, &[16], &[1], 0).unwrap()
    };
    assert_eq!(between(&[&at(0)], &[&at(4)]), "alignment of argument 0 was 0 and is 4");
}

/// Settings of the process are changed by this test alone.
#[test]
fn settings() {
    let _settings = SETTINGS.write();
    let _simulated = SimulatedRuntime::new(Config::default().devices(2));
    let other = Stream::new(None, 0).unwrap();
    assert!(during(|| other.guard()).starts_with("the current stream was the default stream and is stream 0x"));
    let device = || Runtime::current().device_guard(1).unwrap();
    assert_eq!(during(device), "the current device was 0 and is 1");
    let far = ones(&[8], DType::F32).to("cuda:1").unwrap();
    let side = Stream::new(1, 0).unwrap();
    let streams = why(
        |compiled| call(compiled, &[&far]),
        |compiled| {
            let _on = side.guard();
            let _near = Runtime::current().device_guard(0).unwrap();
            call(compiled, &[&far]);
        },
    );
    let expected = "the current stream of the arguments' device was the default stream and is stream 0x";
    assert!(streams.starts_with(expected), "{streams}");
    let region = || autocast::autocast("cuda", DType::BF16).unwrap();
    assert_eq!(during(region), "autocast on CUDA devices was off and is to torch.bfloat16");
    let x = ones(&[8], DType::F32);
    let plainly = |compiled: &Compiled| call(compiled, &[&x]);
    let without = SdpKernels { enable_flash: false, ..SdpKernels::default() };
    let kernels = why(plainly, |compiled| with_sdp_kernel(without, || call(compiled, &[&x])));
    assert_eq!(kernels, "the fused kernel of attention was on and is off");
    let sums = why(plainly, |compiled| {
        allow_fp16_bf16_reduction_math_sdp(true);
        call(compiled, &[&x]);
        allow_fp16_bf16_reduction_math_sdp(false);
    });
    assert_eq!(sums, "attention in 16 bits was off and is on");
    // Nothing was set before, which is not the same as what is set behind.
    blas::set_allow_tf32(false);
    let precision = why(plainly, |compiled| {
        blas::set_allow_tf32(true);
        call(compiled, &[&x]);
        blas::set_allow_tf32(false);
    });
    assert_eq!(precision, "the precision of f32 products was IEEE 754 and is TF32");
    let mode = why(plainly, |compiled| {
        deterministic::use_deterministic_algorithms(true, false);
        call(compiled, &[&x]);
        deterministic::use_deterministic_algorithms(false, false);
    });
    assert_eq!(mode, "the mode of deterministic algorithms was off and is on");
}
