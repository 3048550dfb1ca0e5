//! Modules whose code is there soon and good later.
//!
//! # Safety
//! Every kernel launched here stays inside the buffers it is given; the simulated device would say so otherwise.
#![expect(unsafe_code, reason = "launches of kernels")]
#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use c10_core::{
    CUDAGraph, CaptureMode, DeviceBuffer, Kernel, LaunchConfig, Module, Result, Stream, TextSteps, TraceEvent,
    TraceKind,
};
use common::{DEVICE, Rig, rig};
use cuda_sim::Fault;
use cuda_sys::CUresult;

const WORDS: usize = 1000;

/// `add(out, n, step)` adds to each of `n` words, and `set(out, n, step)` sets each.
const TEXT: &str = "
.version 7.8
.target sm_75
.address_size 64
.visible .entry add(.param .u64 out, .param .u32 n, .param .u32 step)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [out]; ld.param.u32 %r0, [n]; ld.param.u32 %r1, [step];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r0;
    @%p ret;
    mul.wide.u32 %d1, %r5, 4; add.s64 %d2, %d0, %d1;
    ld.global.u32 %r6, [%d2]; add.u32 %r7, %r6, %r1; st.global.u32 [%d2], %r7;
    ret;
}
.visible .entry set(.param .u64 out, .param .u32 n, .param .u32 step)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [out]; ld.param.u32 %r0, [n]; ld.param.u32 %r1, [step];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r0;
    @%p ret;
    mul.wide.u32 %d1, %r5, 4; add.s64 %d2, %d0, %d1;
    st.global.u32 [%d2], %r1;
    ret;
}
";

/// The same kernels, each word by the even one of two threads.
fn twofold() -> String {
    let number = "mad.lo.u32 %r5, %r2, %r3, %r4;";
    let halved = "mad.lo.u32 %r5, %r2, %r3, %r4; and.b32 %r6, %r5, 1; setp.ne.u32 %p, %r6, 0;
    @%p ret;
    shr.u32 %r5, %r5, 1;";
    assert_eq!(TEXT.matches(number).count(), 2);
    TEXT.replace(number, halved)
}

/// A rig whose machine threads without one of their own have, as long as the guard lives.
fn alone() -> (MutexGuard<'static, ()>, Rig) {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let rig = rig();
    rig.machine.make_default();
    (guard, rig)
}

/// A buffer of words, all 0.
fn words(rig: &Rig, stream: &Stream) -> DeviceBuffer {
    let buffer = rig.runtime.memory().buffer(WORDS * 4, stream).unwrap();
    buffer.fill(0..WORDS * 4, 0, stream).unwrap();
    buffer
}

fn read(buffer: &DeviceBuffer) -> Vec<u32> {
    let bytes = buffer.to_vec().unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn launch(kernel: &Kernel, buffer: &DeviceBuffer, step: u32, stream: &Stream) -> Result<()> {
    let count = u32::try_from(buffer.len() / 4).unwrap();
    // SAFETY: the kernel changes as many words as the buffer has.
    unsafe { kernel.launch(&LaunchConfig::linear(count, 128), &[buffer.into(), count.into(), step.into()], stream) }
}

/// The functions that launches run from now on.
fn functions(rig: &Rig) -> Receiver<u64> {
    let (tell, told) = channel();
    rig.runtime.subscribe(TraceKind::Launch.into(), move |event| {
        if let TraceEvent::Launched { function, .. } = *event {
            let _ = tell.send(function);
        }
    });
    told
}

/// The module of the text in steps, and what machine code came of it.
fn in_steps(rig: &Rig) -> Result<(Module, Receiver<usize>)> {
    let (tell, told) = channel();
    let made = move |code: &[u8]| tell.send(code.len()).unwrap_or_default();
    Ok((Module::from_ptx_in_steps(&rig.runtime, DEVICE, TextSteps::of(TEXT), made)?, told))
}

#[test]
fn code_that_is_better_takes_over() {
    let (_alone, rig) = alone();
    let (stream, (module, made)) = (rig.stream(), in_steps(&rig).unwrap());
    let buffer = words(&rig, &stream);
    launch(&module.kernel("add").unwrap(), &buffer, 3, &stream).unwrap();
    module.wait_for_code();
    assert!(made.recv().unwrap() > 0);
    assert_eq!(rig.machine.live().modules, 2);
    let launched = functions(&rig);
    // A kernel that was asked for before, and one that is asked for now.
    launch(&module.kernel("add").unwrap(), &buffer, 4, &stream).unwrap();
    let plain = Module::from_ptx(&rig.runtime, DEVICE, TEXT).unwrap();
    launch(&plain.kernel("add").unwrap(), &buffer, 5, &stream).unwrap();
    launch(&module.kernel("set").unwrap(), &buffer, 6, &stream).unwrap();
    assert_eq!(read(&buffer), [6; WORDS]);
    let found: Vec<u64> = launched.try_iter().collect();
    assert!(found.len() == 3 && found[0] != found[1], "{found:?}");
    drop((module, plain));
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(rig.machine.live().modules, 0);
}

#[test]
fn what_is_captured_waits_for_the_better_code() {
    let (_alone, rig) = alone();
    let (stream, launched) = (rig.stream(), functions(&rig));
    let buffer = words(&rig, &stream);
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let (mut module, mut made) = (None, None);
    let captured = graph.capture(&stream, None, CaptureMode::Global, || {
        let (loaded, told) = in_steps(&rig)?;
        let kernel = loaded.kernel("add")?;
        (module, made) = (Some(loaded), Some(told));
        launch(&kernel, &buffer, 3, &stream)
    });
    captured.unwrap();
    let (module, made) = (module.unwrap(), made.unwrap());
    assert!(made.recv().unwrap() > 0);
    launch(&module.kernel("add").unwrap(), &buffer, 4, &stream).unwrap();
    drop(module);
    graph.replay().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(read(&buffer), [7; WORDS]);
    let found: Vec<u64> = launched.try_iter().collect();
    assert!(found.len() == 2 && found[0] == found[1], "{found:?}");
}

#[test]
fn the_first_code_stays_where_there_is_no_better() {
    let before = ["cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete"].map(|call| (call, 1, false));
    // The kernel is asked for before the better code is there, or after.
    let after = [false, true].map(|is_late| ("cuModuleGetFunction", 2, is_late));
    for (call, occurrence, is_late) in before.into_iter().chain(after) {
        let (_alone, rig) = alone();
        rig.machine.inject(Fault { call, occurrence, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY });
        let (stream, (module, made)) = (rig.stream(), in_steps(&rig).unwrap());
        if is_late {
            module.wait_for_code();
        }
        let kernel = module.kernel("add").unwrap();
        module.wait_for_code();
        assert_eq!(made.recv().is_ok(), call == "cuModuleGetFunction", "{call}");
        let (buffer, launched) = (words(&rig, &stream), functions(&rig));
        launch(&kernel, &buffer, 3, &stream).unwrap();
        assert_eq!(read(&buffer), [3; WORDS], "{call}");
        // Asked for anew, the same kernel runs.
        launch(&module.kernel("add").unwrap(), &buffer, 3, &stream).unwrap();
        let found: Vec<u64> = launched.try_iter().collect();
        assert!(found.len() == 2 && found[0] == found[1], "{call}: {found:?}");
        drop((module, kernel));
        rig.runtime.synchronize(DEVICE).unwrap();
        assert_eq!(rig.machine.live().modules, 0, "{call}");
    }
}

#[test]
fn blocks_of_the_first_code_may_be_larger() {
    let first = twofold();
    let steps = TextSteps { first: &first, block_factor: 2, last: TEXT };
    for is_better in [false, true] {
        let (_alone, rig) = alone();
        if !is_better {
            let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
            rig.machine.inject(Fault { call: "cuLinkCreate_v2", occurrence: 1, code });
        }
        let stream = rig.stream();
        let module = Module::from_ptx_in_steps(&rig.runtime, DEVICE, steps, |_| {}).unwrap();
        let kernel = module.kernel("add").unwrap();
        assert_eq!(kernel.attributes().max_threads_per_block, 512);
        module.wait_for_code();
        let buffer = words(&rig, &stream);
        launch(&kernel, &buffer, 3, &stream).unwrap();
        assert_eq!(read(&buffer), [3; WORDS], "{is_better}");
        // SAFETY: as in `launch`; there are more threads than words.
        let most = |threads| unsafe {
            let arguments = [(&buffer).into(), 1000_u32.into(), 4_u32.into()];
            kernel.launch(&LaunchConfig::linear(1000, threads), &arguments, &stream)
        };
        most(512).unwrap();
        let error = most(513).unwrap_err().to_string();
        assert!(error.contains("513") && error.contains("512"), "{error}");
        assert_eq!(read(&buffer), [7; WORDS], "{is_better}");
    }
}
