//! Modules, kernels, launches, and the kernel that waits.
//!
//! # Safety
//! Every kernel launched here stays inside the buffers it is given; the simulated device would say so otherwise.
#![expect(unsafe_code, reason = "launches of kernels")]
#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

mod common;

use c10_core::{
    Arg, CUDAGraph, CaptureMode, DeviceBuffer, DeviceIndex, Error, Event, EventOptions, Kernel, LaunchConfig,
    LaunchErrorKind, MemoryError, Module, ModuleError, Result, Stream, TensorMap, TensorMapDim, TensorMapElement,
    TensorMapLayout,
};
use common::{DEVICE, Rig, config, fail_each_call, rig};
use cuda_sim::Fault;
use cuda_sys::CUresult;

const WORDS: usize = 1000;

/// `add(out, n, step)` adds to each of `n` words; `fail(out)` writes where nothing is.
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
.visible .entry numbers(.param .u64 out, .param .f32 a, .param .f64 b, .param .s64 c)
{
    .reg .f32 %f; .reg .f64 %g; .reg .b64 %d, %e;
    ld.param.u64 %d, [out]; ld.param.f32 %f, [a]; ld.param.f64 %g, [b]; ld.param.s64 %e, [c];
    st.global.f64 [%d], %g; st.global.s64 [%d+8], %e; st.global.f32 [%d+16], %f;
    ret;
}
.visible .entry plain(.param .u64 out, .param .u8 small, .param .s16 half, .param .align 8 .b8 whole[24])
{
    .reg .b32 %s, %h, %x; .reg .b64 %d, %e;
    ld.param.u64 %d, [out]; ld.param.u8 %s, [small]; ld.param.s16 %h, [half];
    ld.param.u64 %e, [whole]; ld.param.u32 %x, [whole+16];
    st.global.u64 [%d], %e; st.global.u32 [%d+8], %x; st.global.u32 [%d+12], %s; st.global.s32 [%d+16], %h;
    ret;
}
.visible .entry fail() { .reg .b64 %d; mov.u64 %d, 4096; st.global.u32 [%d], 0; ret; }
";

fn module(rig: &Rig) -> Module {
    Module::from_ptx(&rig.runtime, DEVICE, TEXT).unwrap()
}

fn kernel(rig: &Rig, name: &str) -> Kernel {
    module(rig).kernel(name).unwrap()
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

fn add(kernel: &Kernel, buffer: &DeviceBuffer, step: u32, stream: &Stream) -> Result<()> {
    let count = u32::try_from(buffer.len() / 4).unwrap();
    // SAFETY: the kernel changes as many words as the buffer has.
    unsafe { kernel.launch(&LaunchConfig::linear(count, 128), &[buffer.into(), count.into(), step.into()], stream) }
}

#[test]
fn a_kernel_runs_in_the_order_of_its_stream() {
    let rig = rig();
    let (stream, kernel) = (rig.stream(), kernel(&rig, "add"));
    let buffer = words(&rig, &stream);
    add(&kernel, &buffer, 3, &stream).unwrap();
    let pinned = rig.runtime.pinned().buffer(WORDS * 4).unwrap();
    buffer.copy_to_pinned(0..WORDS * 4, &pinned, 0, &stream).unwrap();
    add(&kernel, &buffer, 4, &stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(pinned.to_vec().unwrap()[..8], [3, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(read(&buffer), [7; WORDS]);
    assert!(rig.machine.take_reports().is_empty());
}

#[test]
fn arguments_arrive_as_they_are() {
    let rig = rig();
    let (stream, kernel) = (rig.stream(), kernel(&rig, "numbers"));
    let buffer = words(&rig, &stream);
    assert_eq!(kernel.parameter_sizes(), Some(&[8, 4, 8, 8][..]));
    let arguments = [Arg::range(&buffer, 16..40), 1.5_f32.into(), (-2.5_f64).into(), (-3_i64).into()];
    // SAFETY: the kernel writes 20 bytes.
    unsafe { kernel.launch(&LaunchConfig::default(), &arguments, &stream) }.unwrap();
    stream.synchronize().unwrap();
    let bytes = buffer.to_vec().unwrap();
    let wanted = [&(-2.5_f64).to_le_bytes()[..], &(-3_i64).to_le_bytes(), &1.5_f32.to_le_bytes()].concat();
    assert_eq!(bytes[16..36], wanted);
    let bare = [Arg::from(&buffer), 1_u64.into(), 1.0_f64.into(), 1_i64.into()];
    // SAFETY: refused.
    let refused = unsafe { kernel.launch(&LaunchConfig::default(), &bare, &stream) };
    assert_eq!(kind(refused), LaunchErrorKind::ArgumentSize { index: 1, expected: 4, found: 8 });
}

fn kind(refused: Result<()>) -> LaunchErrorKind {
    let Err(Error::Launch(error)) = refused else { panic!("{refused:?}") };
    error.kind
}

#[test]
fn what_cannot_be_launched_is_refused_before_it_is_queued() {
    let rig = Rig::new(config().devices(2));
    let (stream, kernel) = (rig.stream(), kernel(&rig, "add"));
    let buffer = words(&rig, &stream);
    let right = [Arg::from(&buffer), 1_u32.into(), 1_u32.into()];
    let shape = |grid, block, shared_bytes| LaunchConfig { grid, block, shared_bytes };
    // SAFETY: refused, as are all launches below.
    let with = |shape: LaunchConfig| kind(unsafe { kernel.launch(&shape, &right, &stream) });
    assert!(matches!(with(shape([0, 1, 1], [1; 3], 0)), LaunchErrorKind::Dimensions { what: "grid", .. }));
    assert!(matches!(with(shape([1, 70_000, 1], [1; 3], 0)), LaunchErrorKind::Dimensions { what: "grid", .. }));
    assert!(matches!(with(shape([1; 3], [1, 1, 65], 0)), LaunchErrorKind::Dimensions { what: "block", .. }));
    assert_eq!(with(shape([1; 3], [64, 32, 1], 0)), LaunchErrorKind::Threads { threads: 2048, limit: 1024 });
    assert_eq!(with(shape([1; 3], [1; 3], 60_000)), LaunchErrorKind::SharedMemory { asked: 60_000, limit: 49_152 });
    let one = LaunchConfig::default();
    // SAFETY: as above.
    let few = unsafe { kernel.launch(&one, &right[..2], &stream) };
    assert_eq!(kind(few), LaunchErrorKind::ArgumentCount { expected: 3, found: 2 });
    let elsewhere = rig.runtime.streams().pooled(DeviceIndex(1), 0).unwrap();
    // SAFETY: as above.
    let stream_of_another = unsafe { kernel.launch(&one, &right, &elsewhere) };
    assert!(matches!(kind(stream_of_another), LaunchErrorKind::Device { what: "stream", .. }));
    let far = rig.runtime.memory().buffer(64, &elsewhere).unwrap();
    // SAFETY: as above.
    let buffer_of_another = unsafe { kernel.launch(&one, &[(&far).into(), 1_u32.into(), 1_u32.into()], &stream) };
    assert!(matches!(kind(buffer_of_another), LaunchErrorKind::Device { what: "buffer", .. }));
    let beyond = [Arg::range(&buffer, 8..WORDS * 4 + 1), 1_u32.into(), 1_u32.into()];
    // SAFETY: as above.
    let out_of_range = unsafe { kernel.launch(&one, &beyond, &stream) };
    assert!(matches!(out_of_range, Err(Error::Memory(MemoryError::OutOfRange { .. }))));
    let (start, end) = (10, 5);
    // SAFETY: as above.
    let reversed =
        unsafe { kernel.launch(&one, &[Arg::range(&buffer, start..end), 1_u32.into(), 1_u32.into()], &stream) };
    assert_eq!(reversed, Err(Error::Memory(MemoryError::ReversedRange { start, end })));
    let other = common::rig();
    // SAFETY: as above.
    let of_another_runtime = unsafe { kernel.launch(&one, &right, other.stream()) };
    drop(other);
    assert!(matches!(of_another_runtime, Err(Error::OtherRuntime { .. })));
    stream.synchronize().unwrap();
    assert_eq!(read(&buffer), [0; WORDS]);
}

#[test]
fn a_kernel_takes_memory_of_another_device_that_its_own_was_let_reach() {
    for has_peers in [true, false] {
        let rig = Rig::new(config().devices(2).peer_access(has_peers));
        let (kernel, stream) = (kernel(&rig, "add"), rig.stream());
        let there = rig.runtime.streams().pooled(DeviceIndex(1), 0).unwrap();
        let far = rig.runtime.memory().buffer(WORDS * 4, &there).unwrap();
        far.fill(.., 0, &there).unwrap();
        stream.wait_stream(&there).unwrap();
        let arguments = [(&far).into(), 10_u32.into(), 3_u32.into()];
        let one = LaunchConfig::linear(10, 32);
        // SAFETY: the kernel writes ten words, and the buffer has more.
        let before = unsafe { kernel.launch(&one, &arguments, &stream) };
        assert!(matches!(kind(before), LaunchErrorKind::Device { what: "buffer", .. }));
        assert!(far.let_reach(DeviceIndex(1)).unwrap());
        assert_eq!(far.let_reach(DEVICE).unwrap(), has_peers);
        assert!(far.let_reach(DeviceIndex(2)).is_err());
        // SAFETY: as above.
        let after = unsafe { kernel.launch(&one, &arguments, &stream) };
        assert_eq!(after.is_ok(), has_peers);
        there.wait_stream(&stream).unwrap();
        assert_eq!(read(&far)[..11], if has_peers { [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0] } else { [0; 11] });
    }
}

#[test]
fn shared_memory_beyond_48_kib_is_asked_for() {
    let rig = rig();
    let (stream, first) = (rig.stream(), module(&rig));
    let (kernel, same) = (first.kernel("add").unwrap(), first.kernel("add").unwrap());
    let refused = kernel.set_max_dynamic_shared_memory(1 << 20).unwrap_err();
    assert!(refused.to_string().starts_with("kernel 'add': 1048576 bytes of dynamic shared memory"), "{refused}");
    kernel.set_max_dynamic_shared_memory(60_000).unwrap();
    assert_eq!(same.max_dynamic_shared_memory(), 60_000);
    let buffer = words(&rig, &stream);
    let shape = LaunchConfig::linear(10, 10).shared(60_000);
    // SAFETY: the kernel changes ten words.
    unsafe { same.launch(&shape, &[(&buffer).into(), 10_u32.into(), 1_u32.into()], &stream) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(read(&buffer)[9..11], [1, 0]);
    let attributes = kernel.attributes();
    assert_eq!((attributes.max_threads_per_block, attributes.shared_bytes), (1024, 0));
}

#[test]
fn refused_text_tells_why() {
    let rig = rig();
    let refused = Module::from_ptx(&rig.runtime, DEVICE, &TEXT.replace("mad.lo.u32", "frobnicate")).unwrap_err();
    assert_eq!(refused.error_code(), Some(218));
    let text = refused.to_string();
    assert!(text.contains("CUDA_ERROR_INVALID_PTX") && text.contains("line 9"), "{text}");
    assert!(text.contains("frobnicate"), "{text}");
    let module = module(&rig);
    let none = module.kernel("subtract").unwrap_err();
    assert_eq!(none.to_string(), "the module has no kernel named 'subtract'");
    let wrong = |text: &str| Module::from_ptx(&rig.runtime, DEVICE, text).unwrap_err();
    assert_eq!(wrong("a\0b"), ModuleError::ZeroByte.into());
    // SAFETY: refused.
    let empty = unsafe { Module::from_image(&rig.runtime, DEVICE, &[]) }.unwrap_err();
    assert_eq!(empty, ModuleError::Empty.into());
    let image = [TEXT.as_bytes(), &[0]].concat();
    // SAFETY: text that ends with a zero byte.
    let image = unsafe { Module::from_image(&rig.runtime, DEVICE, &image) }.unwrap();
    assert_eq!(image.kernel("add").unwrap().name(), "add");
}

#[test]
fn modules_are_unloaded_when_the_program_waits_for_its_device() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = words(&rig, &stream);
    let first = kernel(&rig, "add");
    add(&first, &buffer, 1, &stream).unwrap();
    drop(first);
    assert_eq!(rig.machine.live().modules, 1, "work is queued that uses it");
    let second = kernel(&rig, "add");
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(rig.machine.live().modules, 1, "one is held");
    add(&second, &buffer, 1, &stream).unwrap();
    assert_eq!(read(&buffer), [2; WORDS]);
    assert!(rig.machine.take_reports().is_empty());
    drop((second, buffer));
    drop(stream);
    let left = rig.left();
    assert_eq!((left.modules, left.allocations, left.contexts), (0, 0, 0));
}

#[test]
fn a_graph_keeps_its_kernels_and_their_buffers() {
    let rig = rig();
    let stream = rig.stream();
    let result = words(&rig, &stream);
    stream.synchronize().unwrap();
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    {
        let (kernel, between) = (kernel(&rig, "add"), words(&rig, &stream));
        stream.synchronize().unwrap();
        graph
            .capture(&stream, None, CaptureMode::Global, || {
                add(&kernel, &between, 2, &stream)?;
                result.copy_from_buffer(0, &between, 0..WORDS * 4, &stream)
            })
            .unwrap();
    }
    rig.runtime.synchronize(DEVICE).unwrap();
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.machine.live().modules, 1);
    for _ in 0..100 {
        graph.replay().unwrap();
    }
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(read(&result), [200; WORDS]);
    graph.replay().unwrap();
    drop(graph);
    assert_eq!(rig.machine.live().modules, 1, "the last replay is under way");
    rig.runtime.synchronize(DEVICE).unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(rig.machine.live().modules, 0);
    assert!(rig.machine.take_reports().is_empty());
}

/// A kernel that waits for its turn itself.
const WAITING: &str = "
.version 7.8
.target sm_90
.address_size 64
.visible .entry add_later(.param .u64 out, .param .u32 n, .param .u32 step)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [out]; ld.param.u32 %r0, [n]; ld.param.u32 %r1, [step];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r0;
    @%p ret;
    griddepcontrol.wait; griddepcontrol.launch_dependents;
    mul.wide.u32 %d1, %r5, 4; add.s64 %d2, %d0, %d1;
    ld.global.u32 %r6, [%d2]; add.u32 %r7, %r6, %r1; st.global.u32 [%d2], %r7;
    ret;
}
";

fn calls_to(rig: &Rig, call: &str) -> u64 {
    rig.machine.calls().iter().filter(|(name, ..)| *name == call).map(|(.., count)| count).sum()
}

fn add_early(kernel: &Kernel, buffer: &DeviceBuffer, step: u32, stream: &Stream) -> Result<()> {
    let count = u32::try_from(buffer.len() / 4).unwrap();
    let arguments = [Arg::from(buffer), count.into(), step.into()];
    // SAFETY: the kernel changes as many words as the buffer has, after it has waited.
    unsafe { kernel.launch_early(&LaunchConfig::linear(count, 128), &arguments, stream) }
}

#[test]
fn a_kernel_that_waits_itself_may_begin_early() {
    let rig = rig();
    let stream = rig.stream();
    let kernel = Module::from_ptx(&rig.runtime, DEVICE, WAITING).unwrap().kernel("add_later").unwrap();
    let buffer = words(&rig, &stream);
    for step in 1..=10 {
        add_early(&kernel, &buffer, step, &stream).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(read(&buffer), [55; WORDS]);
    assert_eq!(rig.runtime.last_launches(DEVICE).unwrap()[0].kernel.as_deref(), Some("add_later"));
    assert_eq!((calls_to(&rig, "cuLaunchKernelEx"), calls_to(&rig, "cuLaunchKernel")), (10, 0));
    // A driver without such launches makes usual ones.
    rig.machine.inject(Fault { call: "cuLaunchKernelEx", occurrence: 1, code: CUresult::CUDA_ERROR_NOT_SUPPORTED });
    add_early(&kernel, &buffer, 0, &stream).unwrap();
    assert_eq!(calls_to(&rig, "cuLaunchKernel"), 1);
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.capture(&stream, None, CaptureMode::Global, || add_early(&kernel, &buffer, 5, &stream)).unwrap();
    assert_eq!(calls_to(&rig, "cuLaunchKernel"), 2, "nodes of a graph begin in their order");
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(read(&buffer), [60; WORDS]);
    assert!(rig.machine.take_reports().is_empty());
}

#[test]
fn a_buffer_given_to_a_kernel_on_another_stream_is_not_used_again_before_it_is_done() {
    let rig = rig();
    let (stream, side, kernel) = (rig.stream(), rig.stream(), kernel(&rig, "add"));
    let buffer = words(&rig, &stream);
    let address = buffer.address();
    side.wait_stream(&stream).unwrap();
    side.sleep(1 << 30).unwrap();
    add(&kernel, &buffer, 1, &side).unwrap();
    drop(buffer);
    let next = rig.runtime.memory().buffer(WORDS * 4, &stream).unwrap();
    assert_ne!(next.address(), address);
}

#[test]
fn a_kernel_that_fails_loses_the_context() {
    let rig = rig();
    let (stream, kernel) = (rig.stream(), kernel(&rig, "fail"));
    // SAFETY: it touches no memory of anybody's; the simulated device finds out.
    unsafe { kernel.launch(&LaunchConfig::default(), &[], &stream) }.unwrap();
    let lost = stream.synchronize().unwrap_err();
    assert_eq!((lost.error_code(), lost.context_is_lost()), (Some(700), true));
    drop(kernel);
    assert!(rig.runtime.synchronize(DEVICE).is_err());
    assert!(rig.runtime.is_valid());
}

#[test]
fn launches_that_block_are_done_when_they_return_and_answer_with_their_fault() {
    for (blocking, mode) in [(false, "error"), (true, "default"), (true, "error")] {
        let rig = Rig::new(config().launch_blocking(blocking));
        let stream = rig.stream();
        let module = module(&rig);
        let (add_kernel, fail) = (module.kernel("add").unwrap(), module.kernel("fail").unwrap());
        let buffer = words(&rig, &stream);
        stream.synchronize().unwrap();
        // A launch is no synchronizing operation, not even one that waits.
        rig.runtime.sync_debug().set(mode).unwrap();
        add(&add_kernel, &buffer, 1, &stream).unwrap();
        stream.sleep(1 << 30).unwrap();
        assert_eq!(stream.query(), Ok(blocking), "{mode}");
        // Captured launches do not run, and what replays them waits.
        let mut graph = CUDAGraph::on(&rig.runtime, false);
        let begun = rig.machine.now_ns();
        graph.capture(&stream, None, CaptureMode::Global, || stream.sleep(1 << 30)).unwrap();
        assert!(rig.machine.now_ns() - begun < 100_000_000, "{mode}");
        graph.replay().unwrap();
        assert_eq!(stream.query(), Ok(blocking), "{mode}");
        // SAFETY: it touches no memory of anybody's; the simulated device finds out.
        let launched = unsafe { fail.launch(&LaunchConfig::default(), &[], &stream) };
        if blocking {
            let lost = launched.unwrap_err();
            assert_eq!((lost.error_code(), lost.context_is_lost()), (Some(700), true), "{mode}");
        } else {
            launched.unwrap();
        }
        assert!(rig.runtime.synchronize(DEVICE).is_err(), "{mode}: the context is lost either way");
    }
}

#[test]
fn sleeping_keeps_a_stream_busy_for_so_long() {
    let rig = rig();
    let stream = rig.stream();
    let (start, end) = (Event::on(&rig.runtime, EventOptions::TIMING), Event::on(&rig.runtime, EventOptions::TIMING));
    start.record(&stream).unwrap();
    stream.sleep(198_000_000).unwrap();
    end.record(&stream).unwrap();
    assert!(!end.query().unwrap());
    end.synchronize().unwrap();
    let elapsed_ms = start.elapsed_time(&end).unwrap();
    assert!((100.0..102.0).contains(&elapsed_ms), "{elapsed_ms} ms for 198 million cycles");
    stream.sleep(-1).unwrap();
    stream.synchronize().unwrap();
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.capture(&stream, None, CaptureMode::Global, || stream.sleep(1000)).unwrap();
    assert_eq!(graph.node_count(), 1);
}

#[test]
fn where_the_driver_cannot_tell_parameters_the_text_does() {
    let rig = Rig::new(config().driver_version(cuda_sys::CudaVersion(12020)));
    let runtime = &rig.runtime;
    let stream = runtime.streams().pooled(DEVICE, 0).unwrap();
    // SAFETY: the text is whole.
    let as_image = unsafe { Module::from_image(runtime, DEVICE, &[TEXT.as_bytes(), b"\0"].concat()) }.unwrap();
    assert_eq!(as_image.kernel("add").unwrap().parameter_sizes(), Some(&[8, 4, 4][..]));
    let kernel = Module::from_ptx(runtime, DEVICE, TEXT).unwrap().kernel("add").unwrap();
    assert_eq!(kernel.parameter_sizes(), Some(&[8, 4, 4][..]));
    let buffer = runtime.memory().buffer(WORDS * 4, &stream).unwrap();
    buffer.fill(0..WORDS * 4, 0, &stream).unwrap();
    add(&kernel, &buffer, 5, &stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(read(&buffer), [5; WORDS]);
    // SAFETY: refused.
    let launch = |arguments: &[Arg<'_>]| kind(unsafe { kernel.launch(&LaunchConfig::default(), arguments, &stream) });
    let wrong_size = LaunchErrorKind::ArgumentSize { index: 1, expected: 4, found: 8 };
    assert_eq!(launch(&[Arg::from(&buffer), 5_u64.into(), 1_u32.into()]), wrong_size);
    assert_eq!(launch(&[Arg::from(&buffer)]), LaunchErrorKind::ArgumentCount { expected: 3, found: 1 });
}

/// Few addresses are passed from the stack and many from the heap; how many there may be, the parameters say.
#[test]
fn prepared_launches_pass_as_many_buffers_as_there_are_parameters() {
    let rig = rig();
    let stream = rig.runtime.streams().current(DEVICE).unwrap();
    for count in [1_usize, 7, 8, 100] {
        let parameters: String = (0..count).map(|at| format!(".param .u64 to{at}, ")).collect();
        let stores: String = (0..count)
            .map(|at| format!("ld.param.u64 %d, [to{at}]; st.global.u64 [%d], %e; add.s64 %e, %e, 1;\n"))
            .collect();
        let text = format!(
            ".version 7.8 .target sm_75 .address_size 64
            .visible .entry count({parameters} .param .align 8 .b8 numbers[8])
            {{ .reg .b64 %d, %e; ld.param.u64 %e, [numbers];\n{stores} ret; }}"
        );
        let kernel = Module::from_ptx(&rig.runtime, DEVICE, &text).unwrap().kernel("count").unwrap();
        let prepared = kernel.prepare([1, 1, 1], count, 1).unwrap();
        let buffers: Vec<DeviceBuffer> = (0..count).map(|_| rig.runtime.memory().buffer(8, &stream).unwrap()).collect();
        let parts: Vec<_> = buffers.iter().map(|buffer| (buffer, 0..8)).collect();
        // SAFETY: the kernel writes one word of each buffer.
        unsafe { prepared.launch(&rig.runtime, 1, &parts, &[1000]) }.unwrap();
        stream.synchronize().unwrap();
        for (at, buffer) in buffers.iter().enumerate() {
            assert_eq!(read(buffer)[0] as usize, 1000 + at, "{count} buffers");
        }
        assert!(matches!(kernel.prepare([1, 1, 1], count + 1, 1), Err(Error::Launch(_))));
    }
    let kernel = kernel(&rig, "add");
    let refused = |buffers| kernel.prepare([1, 1, 1], buffers, 0).map(drop);
    assert_eq!(kind(refused(512)), LaunchErrorKind::ArgumentCount { expected: 511, found: 512 });
}

/// Loads, launches, captures, replays, sleeps.
fn program(rig: &Rig) -> Result<()> {
    let stream = rig.runtime.streams().pooled(DEVICE, 0)?;
    let buffer = rig.runtime.memory().buffer(WORDS * 4, &stream)?;
    buffer.fill(0..WORDS * 4, 0, &stream)?;
    let kernel = Module::from_ptx(&rig.runtime, DEVICE, TEXT)?.kernel("add")?;
    kernel.set_max_dynamic_shared_memory(50_000)?;
    add(&kernel, &buffer, 1, &stream)?;
    stream.sleep(1000)?;
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.capture(&stream, None, CaptureMode::Global, || add(&kernel, &buffer, 1, &stream))?;
    graph.replay()?;
    drop(kernel);
    graph.reset()?;
    rig.runtime.synchronize(DEVICE)?;
    rig.runtime.synchronize(DEVICE)
}

#[test]
fn every_driver_call_may_fail() {
    let plain = rig();
    program(&plain).unwrap();
    let calls = plain.machine.calls();
    assert!(calls.iter().any(|(call, ..)| *call == "cuModuleUnload"));
    drop(plain);
    let (tried, noticed) = fail_each_call(&calls, |fault| {
        let rig = rig();
        rig.machine.inject(fault);
        let result = program(&rig);
        assert!(rig.runtime.is_valid(), "{fault:?}: {result:?}");
        rig.machine.clear_faults();
        assert_eq!(rig.machine.take_reports(), [], "{fault:?}: {result:?}");
        // What failed once works now.
        program(&rig).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        let left = rig.left();
        let clean = (left.modules, left.allocations, left.graphs, left.graph_execs, left.streams, left.events);
        assert!(clean == (0, 0, 0, 0, 0, 0) || left.contexts > 0, "{fault:?}: {left:?}");
        result.is_err()
    });
    assert!(tried > 60 && noticed > tried / 2, "{noticed} of {tried} faults were noticed");
}

/// What a kernel takes as one parameter.
#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
struct Whole {
    first: u64,
    second: f64,
    third: [u32; 2],
}

#[test]
fn any_plain_value_is_an_argument() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let (kernel, out) = (kernel(&rig, "plain"), c10_core::DeviceSlice::<i32>::zeros(5, None).unwrap());
    assert_eq!(kernel.parameter_sizes(), Some(&[8, 1, 2, 24][..]));
    let (whole, small) = (Whole { first: u64::from(u32::MAX) + 2, second: 0.5, third: [7, 8] }, 200_u8);
    let builder = kernel.launch_builder(None).arg(&out).arg(small).arg(-3_i16).arg(&whole);
    assert_eq!(format!("{builder:?}"), "LaunchBuilder { plain<<<(1, 1, 1), (1, 1, 1), 0>>>, 4 arguments }");
    // SAFETY: the kernel writes five numbers of 4 bytes.
    unsafe { builder.launch() }.unwrap();
    assert_eq!(out.to_vec().unwrap(), [1, 1, 7, 200, -3]);
    let short = kernel.launch_builder(None).args([(&out).into(), small.into(), (-3_i16).into(), (&small).into()]);
    // SAFETY: it is refused.
    let refused = unsafe { short.launch() }.unwrap_err();
    assert_eq!(refused.to_string(), "kernel 'plain': argument 3 has 1 bytes, but the parameter has 24");
}

#[test]
fn a_launch_in_steps_is_a_launch() {
    let rig = rig();
    let (stream, kernel) = (rig.stream(), kernel(&rig, "add"));
    let buffer = words(&rig, &stream);
    let count = u32::try_from(WORDS).unwrap();
    let launch = |config: &dyn Fn(c10_core::LaunchBuilder<'_>) -> Result<()>, on: Option<&Stream>| {
        config(kernel.launch_builder(on).arg(&buffer).arg(count).arg(2_u32))
    };
    // SAFETY: the kernel changes as many words as the buffer has.
    launch(&|builder| unsafe { builder.cover(count, 128).launch() }, Some(&stream)).unwrap();
    stream.synchronize().unwrap();
    // SAFETY: as above.
    launch(&|builder| unsafe { builder.grid((2, 2)).block((128, 2, 1)).launch() }, None).unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    let words = read(&buffer);
    assert_eq!((words[0], words[300]), (10, 2), "four times what two rows of 128 threads reach");
    // SAFETY: it is refused.
    let refused = launch(&|builder| unsafe { builder.block(0).shared(16).launch() }, Some(&stream)).unwrap_err();
    assert!(matches!(refused, Error::Launch(_)), "{refused}");
}

#[test]
fn a_tensor_map_stays_inside_its_range() {
    let rig = rig();
    let buffer = words(&rig, &rig.stream());
    let dims = [TensorMapDim { size: 8, step: 0, tile: 8 }, TensorMapDim { size: 4, step: 32, tile: 4 }];
    let layout = TensorMapLayout { element: TensorMapElement::F32, dims: &dims };
    let refused = TensorMap::new(&buffer, 0..127, &layout).unwrap_err();
    assert!(matches!(refused, Error::Memory(MemoryError::OutOfRange { offset: 0, bytes: 128, len: 127 })), "{refused}");
    let beyond = buffer.len()..buffer.len() + 128;
    assert!(matches!(TensorMap::new(&buffer, beyond, &layout), Err(Error::Memory(MemoryError::OutOfRange { .. }))));
    // The simulated driver makes none, and says so.
    assert!(!TensorMap::is_available(&rig.runtime, DEVICE).unwrap());
    let missing = TensorMap::new(&buffer, 0..128, &layout).unwrap_err();
    assert!(missing.to_string().contains("cuTensorMapEncodeTiled"), "{missing}");
}
