//! Blocks of the caching allocator as a simulated driver that asks for them knows them.
//!
//! # Safety
//! The kernels launched here touch one word at an address that they are given, where the simulated device has memory. That
//! some have no business there is what the tests are about.
#![expect(unsafe_code, reason = "launches of kernels")]
#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

mod common;

use c10_core::{CUDAGraph, CaptureMode, Error, Kernel, LaunchConfig, MemPoolOptions, Module, Stream};
use common::{DEVICE, Rig, config};
use testkit::{KernelChecks, ReportKind};

/// `touch(at)`: thread `i` of a block writes the word `i` behind an address; `peek(at)` reads one.
const TEXT: &str = "
.version 7.8
.target sm_75
.address_size 64
.visible .entry touch(.param .u64 at)
{
    .reg .b32 %r; .reg .b64 %d<4>;
    ld.param.u64 %d0, [at]; mov.u32 %r, %tid.x; mul.wide.u32 %d1, %r, 4; add.s64 %d2, %d0, %d1;
    st.global.u32 [%d2], 1;
    ret;
}
.visible .entry peek(.param .u64 at)
{
    .reg .b32 %r; .reg .b64 %d;
    ld.param.u64 %d, [at];
    ld.global.u32 %r, [%d];
    ret;
}
";

struct Bench {
    rig: Rig,
    kernel: Kernel,
    peek: Kernel,
    stream: Stream,
}

impl Bench {
    fn new(blocks: bool, settings: &str) -> Self {
        Self::with_checks(KernelChecks { blocks, ..KernelChecks::default() }, settings)
    }

    fn with_checks(checks: KernelChecks, settings: &str) -> Self {
        let rig = Rig::new(config().checks(checks));
        rig.runtime.memory().set_settings(settings).unwrap();
        let module = Module::from_ptx(&rig.runtime, DEVICE, TEXT).unwrap();
        let [kernel, peek] = ["touch", "peek"].map(|name| module.kernel(name).unwrap());
        let stream = rig.stream();
        Self { rig, kernel, peek, stream }
    }

    fn alloc(&self, bytes: u64) -> u64 {
        self.rig.runtime.memory().alloc(bytes, &self.stream).unwrap()
    }

    fn free(&self, address: u64) {
        self.rig.runtime.memory().free(address).unwrap();
    }

    /// Queues the kernel.
    fn queue(&self, at: u64, threads: u32) {
        let shape = LaunchConfig::linear(threads, threads);
        // SAFETY: the words lie in a segment, which stays.
        unsafe { self.kernel.launch(&shape, &[at.into()], &self.stream) }.unwrap();
    }

    /// Runs the kernel; what is reported.
    fn touch(&self, at: u64, threads: u32) -> Vec<(ReportKind, String)> {
        self.queue(at, threads);
        self.reports()
    }

    fn reports(&self) -> Vec<(ReportKind, String)> {
        self.stream.synchronize().unwrap();
        self.rig.machine.take_reports().into_iter().map(|report| (report.kind, report.message)).collect()
    }
}

/// The kinds of segments that blocks are cut from.
const SETTINGS: [&str; 3] = ["", "expandable_segments:True", "max_split_size_mb:32"];

#[test]
fn a_word_past_the_end_of_a_block_is_noticed() {
    for settings in SETTINGS {
        for bytes in [1000, 300_000, (30 << 20) + 1000] {
            let bench = Bench::new(true, settings);
            let (block, _next) = (bench.alloc(bytes), bench.alloc(bytes));
            assert_eq!(bench.touch(block, 250), [], "{settings} {bytes}");
            let last = block + bytes - 400;
            assert_eq!(bench.touch(last, 100), [], "{settings} {bytes}");
            let wanted = format!(
                "kernel 'touch', PTX line 9, column 5, block 0, thread 100: writes 4 bytes, 0 bytes past the end of the \
                 nearest block, of {bytes} bytes at {block:#x} (address {:#x})",
                block + bytes
            );
            assert_eq!(bench.touch(last, 101), [(ReportKind::OutOfBounds, wanted)], "{settings} {bytes}");
        }
    }
}

#[test]
fn a_block_that_was_given_back_is_not_to_be_touched() {
    for settings in SETTINGS {
        let bench = Bench::new(true, settings);
        let (block, other) = (bench.alloc(2000), bench.alloc(5000));
        bench.queue(block, 32);
        bench.free(block);
        assert_eq!(bench.reports(), [], "{settings}: it was there when the work was queued");
        let found = bench.touch(block + 128, 1);
        assert_eq!(found.len(), 1, "{settings}: {found:?}");
        let (kind, text) = &found[0];
        assert_eq!(*kind, ReportKind::UseAfterFree, "{settings}: {text}");
        let wanted = format!("at byte 128 of a block of 2000 bytes at {block:#x}, which was given back");
        assert!(text.contains(&wanted) && text.contains(&format!("of 5000 bytes at {other:#x}")), "{settings}: {text}");
        let again = bench.alloc(2000);
        assert_eq!((again, bench.touch(again, 500)), (block, Vec::new()), "{settings}");
    }
}

#[test]
fn private_pools_are_told_of_as_well() {
    for settings in SETTINGS {
        let bench = Bench::new(true, settings);
        let pool = bench.rig.runtime.mem_pools().create(MemPoolOptions::default()).unwrap();
        let guard = bench.rig.runtime.mem_pools().enter(&pool, DEVICE).unwrap();
        let block = bench.alloc(1024);
        drop(guard);
        assert_eq!(bench.touch(block, 256), [], "{settings}");
        assert_eq!(bench.touch(block + 1024, 1)[0].0, ReportKind::OutOfBounds, "{settings}");
        bench.free(block);
        assert_eq!(bench.touch(block, 1)[0].0, ReportKind::UseAfterFree, "{settings}");
    }
}

#[test]
fn a_graph_keeps_what_was_allocated_in_its_capture() {
    for settings in SETTINGS {
        let bench = Bench::new(true, settings);
        let outside = bench.alloc(4096);
        let mut graph = CUDAGraph::on(&bench.rig.runtime, false);
        let work = || {
            let inside = bench.alloc(4096);
            bench.queue(inside, 64);
            bench.free(inside);
            bench.queue(outside, 64);
            Ok::<_, Error>(inside)
        };
        let inside = graph.capture(&bench.stream, None, CaptureMode::Global, work).unwrap();
        for _ in 0..2 {
            graph.replay().unwrap();
            bench.rig.runtime.synchronize(DEVICE).unwrap();
        }
        assert_eq!(bench.touch(inside, 8), [], "{settings}");
        assert_eq!(bench.touch(inside + 8192, 8)[0].0, ReportKind::OutOfBounds, "{settings}");
        bench.free(outside);
        graph.replay().unwrap();
        bench.rig.runtime.synchronize(DEVICE).unwrap();
        assert_eq!(bench.reports()[0].0, ReportKind::UseAfterFree, "{settings}: its input is gone");
    }
}

#[test]
fn memory_that_goes_back_to_the_driver_is_nobodys_again() {
    for settings in SETTINGS {
        let bench = Bench::new(true, settings);
        let block = bench.alloc(30 << 20);
        bench.free(block);
        bench.stream.synchronize().unwrap();
        bench.rig.runtime.memory().empty_cache().unwrap();
        let again = bench.alloc(40 << 20);
        assert_eq!(bench.touch(again + (39 << 20), 8), [], "{settings}");
    }
}

/// What the allocator does does not depend on whether it tells of it.
#[test]
fn telling_changes_nothing() {
    for settings in SETTINGS {
        let [told, quiet] = [true, false].map(|tells| {
            let bench = Bench::new(tells, settings);
            let mut live = Vec::new();
            let mut addresses = Vec::new();
            for step in 0..400_u64 {
                let bytes = 1 + step * 7919 % 90_000;
                let address = bench.alloc(bytes);
                addresses.push(address);
                match step % 3 {
                    0 => bench.free(address),
                    1 => live.push(address),
                    _ => {
                        live.push(address);
                        let old = live.swap_remove(usize::try_from(step).unwrap() * 31 % live.len());
                        bench.free(old);
                    }
                }
            }
            assert!(bench.rig.runtime.is_valid());
            let start = addresses[0];
            let offsets: Vec<i64> = addresses.iter().map(|at| at.wrapping_sub(start).cast_signed()).collect();
            (offsets, bench.rig.runtime.memory().stats(DEVICE).unwrap())
        });
        assert_eq!(told, quiet, "{settings}");
    }
}

#[test]
fn nothing_is_told_where_nobody_asks() {
    let bench = Bench::new(false, "");
    let block = bench.alloc(1000);
    assert_eq!(bench.touch(block + 1000, 1), [], "hardware does not notice");
}

/// Words of a block count as written when somebody has written them, since the block was handed out.
#[test]
fn a_block_is_unwritten_when_it_is_handed_out() {
    for settings in SETTINGS {
        let checks = KernelChecks { uninitialized: true, ..KernelChecks::default() };
        let bench = Bench::with_checks(checks, settings);
        let peek = |at: u64| {
            // SAFETY: as for `queue`.
            unsafe { bench.peek.launch(&LaunchConfig::linear(1, 1), &[at.into()], &bench.stream) }.unwrap();
        };
        let kinds = || bench.reports().into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
        let unwritten = [ReportKind::UninitializedRead];
        let block = bench.alloc(5000);
        peek(block);
        assert_eq!(kinds(), unwritten, "{settings}: nobody wrote it");
        bench.queue(block, 8);
        peek(block + 28);
        assert_eq!(kinds(), [], "{settings}: a kernel wrote it");
        peek(block + 32);
        assert_eq!(kinds(), unwritten, "{settings}: not that word");
        let memory = bench.rig.runtime.memory();
        let buffer = memory.buffer(4096, &bench.stream).unwrap();
        buffer.fill(0..2048, 1, &bench.stream).unwrap();
        buffer.copy_from_slice(2048, &[7; 1024]).unwrap();
        buffer.copy_from_buffer(3072, &buffer, 1024..1536, &bench.stream).unwrap();
        for (offset, wanted) in [(2044, true), (2048, true), (3068, true), (3072, true), (3580, true), (3584, false)] {
            peek(buffer.address() + offset);
            assert_eq!(kinds().is_empty(), wanted, "{settings}: {offset}");
        }
        // What was queued before the block was handed out again still reads what was there.
        bench.queue(block, 8);
        peek(block);
        bench.free(block);
        let again = bench.alloc(5000);
        assert_eq!(again, block, "{settings}");
        peek(again);
        assert_eq!(kinds(), unwritten, "{settings}: it was handed out anew");
        bench.queue(again, 8);
        peek(again);
        assert_eq!(kinds(), [], "{settings}");
    }
}
