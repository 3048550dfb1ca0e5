//! What the tests of simulated machines share: a machine with a context, and short forms of the calls.
//!
//! # Safety
//! The driver behind these helpers is a simulated machine, which looks every handle and device pointer up; the pointers
//! to host memory given here outlive the calls and the work.
#![expect(unsafe_code, reason = "calls C functions")]
#![allow(dead_code, unused_macros, reason = "each test uses some of it")]

use std::ptr;

use cuda_sim::{Bound, Config, Machine, Report, ReportKind};
use cuda_sys::driver::types::{CUcontext, CUevent, CUstream};
use cuda_sys::{CUresult, Driver, DriverError};

/// A machine bound to the thread, its driver, and device 0's primary context.
pub(crate) struct Rig {
    pub(crate) driver: Driver,
    pub(crate) machine: Machine,
    pub(crate) context: CUcontext,
    _bound: Bound,
}

/// Makes one expression of an unsafe call.
macro_rules! call {
    ($rig:expr, $function:ident ( $($argument:expr),* $(,)? )) => {
        // SAFETY: see the header of the support module.
        unsafe { $rig.driver.$function($($argument),*) }
    };
}

/// The code of a failed call; panics when it did not fail with a code.
pub(crate) fn code(answer: Result<(), DriverError>) -> CUresult {
    answer.expect_err("the call should fail").status().expect("the function is there")
}

impl Drop for Rig {
    fn drop(&mut self) {
        let undeclared = |report: &Report| report.kind == ReportKind::UndeclaredCode;
        let found: Vec<Report> = self.machine.reports().into_iter().filter(undeclared).collect();
        assert!(found.is_empty() || std::thread::panicking(), "codes that no export lists: {found:?}");
    }
}

impl Rig {
    pub(crate) fn new(config: Config) -> Self {
        let mut rig = Self::without_context(config);
        let mut context = ptr::null_mut();
        call!(rig, cuDevicePrimaryCtxRetain(&mut context, 0)).expect("the device has a primary context");
        call!(rig, cuCtxSetCurrent(context)).expect("a retained context can be made current");
        rig.context = context;
        rig
    }

    pub(crate) fn without_context(config: Config) -> Self {
        let machine = Machine::new(config);
        let bound = machine.bind();
        let driver = cuda_sim::driver().expect("the table has a version");
        let rig = Self { driver, machine, context: ptr::null_mut(), _bound: bound };
        call!(rig, cuInit(0)).expect("the driver can be initialised");
        rig
    }

    /// One on a machine that another thread has made.
    pub(crate) fn of(machine: Machine, driver: Driver, bound: Bound) -> Self {
        Self { driver, machine, context: ptr::null_mut(), _bound: bound }
    }

    pub(crate) fn alloc(&self, bytes: usize) -> u64 {
        let mut pointer = 0;
        call!(self, cuMemAlloc_v2(&mut pointer, bytes)).expect("there is memory");
        pointer
    }

    pub(crate) fn stream(&self, flags: u32) -> CUstream {
        let mut stream = ptr::null_mut();
        call!(self, cuStreamCreate(&mut stream, flags)).expect("streams can be made");
        stream
    }

    pub(crate) fn event(&self, flags: u32) -> CUevent {
        let mut event = ptr::null_mut();
        call!(self, cuEventCreate(&mut event, flags)).expect("events can be made");
        event
    }

    pub(crate) fn read(&self, from: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; length];
        call!(self, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, length)).expect("the memory is there");
        bytes
    }

    pub(crate) fn write(&self, to: u64, bytes: &[u8]) {
        call!(self, cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), bytes.len())).expect("the memory is there");
    }
}
