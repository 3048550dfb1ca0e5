//! The device's heap: what kernels allocate there, from one launch to the next.
//!
//! # Safety
//! Calls C functions of a simulated machine; see the support module.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ptr;

use cuda_sim::{Config, ReportKind};
use cuda_sys::driver::types::{CUlimit, CUmodule};
use cuda_sys::{CUresult, DriverError};
use support::{Rig, code};

/// Kernels of one thread with two numbers as parameters.
const TEXT: &str = "
.version 7.8
.target sm_75
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);

// Allocates `b` bytes, writes 42 there if there is memory, and its address at `a`.
.visible .entry take(.param .u64 a, .param .u64 b) {
    .reg .b64 %a, %b, %p;
    .reg .pred %none;
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    { .param .b64 n; st.param.b64 [n], %b; .param .b64 r; call.uni (r), malloc, (n); ld.param.b64 %p, [r]; }
    st.global.u64 [%a], %p;
    setp.eq.u64 %none, %p, 0;
    @!%none st.u32 [%p], 42;
    ret;
}

// Reads the word at `b` into `a`.
.visible .entry see(.param .u64 a, .param .u64 b) {
    .reg .b64 %a, %b;
    .reg .b32 %w;
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.u32 %w, [%b];
    st.global.u32 [%a], %w;
    ret;
}

// Frees `b`.
.visible .entry give(.param .u64 a, .param .u64 b) {
    .reg .b64 %b;
    ld.param.u64 %b, [b];
    { .param .b64 p; st.param.b64 [p], %b; call.uni free, (p); }
    ret;
}
\0";

struct Heap {
    rig: Rig,
    module: CUmodule,
    word: u64,
}

impl Heap {
    fn new() -> Self {
        let rig = Rig::new(Config::default());
        let mut module = ptr::null_mut();
        call!(rig, cuModuleLoadData(&mut module, TEXT.as_ptr().cast())).expect("it is PTX");
        let word = rig.alloc(8);
        Self { rig, module, word }
    }

    fn run(&self, name: &str, b: u64) -> Result<(), DriverError> {
        let (rig, mut function, name) = (&self.rig, ptr::null_mut(), format!("{name}\0"));
        call!(rig, cuModuleGetFunction(&mut function, self.module, name.as_ptr().cast())).expect("it has one");
        let values = [self.word, b];
        let mut parameters = values.each_ref().map(|value| ptr::from_ref(value).cast_mut().cast());
        let (stream, none) = (ptr::null_mut(), ptr::null_mut());
        call!(rig, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), none))?;
        call!(rig, cuCtxSynchronize())
    }

    fn take(&self, bytes: u64) -> u64 {
        self.run("take", bytes).expect("runs");
        u64::from_le_bytes(self.rig.read(self.word, 8).try_into().expect("eight bytes"))
    }

    fn see(&self, address: u64) -> u32 {
        self.run("see", address).expect("runs");
        u32::from_le_bytes(self.rig.read(self.word, 4).try_into().expect("four bytes"))
    }

    fn limit(&self, bytes: usize) -> Result<(), DriverError> {
        let rig = &self.rig;
        call!(rig, cuCtxSetLimit(CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, bytes))
    }

    fn free_bytes(&self) -> usize {
        let (rig, mut free, mut total) = (&self.rig, 0, 0);
        call!(rig, cuMemGetInfo_v2(&mut free, &mut total)).expect("has a context");
        free
    }

    fn reports(&self) -> Vec<ReportKind> {
        self.rig.machine.reports().iter().map(|report| report.kind).collect()
    }
}

#[test]
fn blocks_stay_from_launch_to_launch() {
    let heap = Heap::new();
    let (first, second) = (heap.take(100), heap.take(100));
    assert!(first != 0 && second >= first + 100 && first.is_multiple_of(16));
    assert_eq!((heap.see(first), heap.see(second)), (42, 42));
    heap.run("give", first).expect("allocated");
    assert_eq!(heap.take(64), first);
    heap.run("give", 0).expect("nothing is freed");
    assert_eq!(heap.reports(), []);
}

#[test]
fn the_limit_is_the_size_of_the_heap() {
    let heap = Heap::new();
    let before = heap.free_bytes();
    heap.limit(32 << 20).expect("no kernel has used the heap");
    assert_eq!(heap.take((32 << 20) + 1), 0);
    assert_ne!(heap.take(32 << 20), 0);
    assert_eq!(heap.take(1), 0);
    assert_eq!(before - heap.free_bytes(), 24 << 20, "eight are part of what the context takes");
    assert_eq!(code(heap.limit(8 << 20)), CUresult::CUDA_ERROR_INVALID_VALUE);
    let rig = &heap.rig;
    call!(rig, cuDevicePrimaryCtxReset_v2(0)).expect("there is a device");
    call!(rig, cuDevicePrimaryCtxRetain(&mut ptr::null_mut(), 0)).expect("there is a device");
    assert!(heap.free_bytes() >= before);
}

#[test]
fn a_heap_that_does_not_fit_has_no_memory() {
    let heap = Heap::new();
    heap.limit(1 << 40).expect("nobody has looked yet");
    assert_eq!(heap.take(16), 0);
    assert_eq!(heap.reports(), []);
}

#[test]
fn what_was_not_allocated_is_not_freed() {
    for (twice, offset) in [(true, 0), (false, 16), (false, 1 << 40)] {
        let heap = Heap::new();
        let block = heap.take(64);
        if twice {
            heap.run("give", block).expect("allocated");
        }
        assert_eq!(code(heap.run("give", block + offset)), CUresult::CUDA_ERROR_LAUNCH_FAILED);
        assert_eq!(heap.reports(), [ReportKind::KernelFailure]);
        assert!(heap.rig.machine.reports()[0].message.contains("freed already"));
    }
    let heap = Heap::new();
    assert_eq!(code(heap.run("give", heap.word)), CUresult::CUDA_ERROR_LAUNCH_FAILED);
}

#[test]
fn wrong_accesses_are_reported() {
    let heap = Heap::new();
    let block = heap.take(6);
    heap.see(block + 4);
    heap.run("give", block).expect("allocated");
    heap.see(block);
    assert_eq!(heap.reports(), [ReportKind::OutOfBounds, ReportKind::UseAfterFree]);
}
