//! Kernels through the driver's interface of two builds of the simulated driver, in turn.
//!
//! # Safety
//! Every pointer handed to the driver leads to a local of the calling function, and a copy is as long as what it is of.
#![expect(unsafe_code, reason = "calls the driver's C interface")]

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use cuda_sys::Driver;
use cuda_sys::driver::types::CUfunction;

use crate::programs::{Workload, text};
use crate::{BYTES, Outcome, parameters};

/// Two builds: ours, then the other.
pub(crate) struct Pair([Build; 2]);

struct Build {
    driver: Driver,
    arrays: u64,
}

impl Build {
    fn load(path: &str) -> Outcome<Self> {
        let driver = Driver::load_from(path)?;
        let (mut context, mut arrays) = (null_mut(), 0);
        // SAFETY: takes no pointer.
        unsafe { driver.cuInit(0) }?;
        // SAFETY: `context` outlives the call.
        unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, 0) }?;
        // SAFETY: the context was just retained.
        unsafe { driver.cuCtxSetCurrent(context) }?;
        // SAFETY: `arrays` outlives the call.
        unsafe { driver.cuMemAlloc_v2(&mut arrays, BYTES * 3) }?;
        // SAFETY: the arrays have as many bytes.
        unsafe { driver.cuMemsetD8_v2(arrays, 0x3A, BYTES * 3) }?;
        Ok(Self { driver, arrays })
    }

    fn function(&self, workload: &Workload) -> Outcome<CUfunction> {
        let text = CString::new(text(workload))?;
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the text ends with zero, and `module` outlives the call.
        unsafe { self.driver.cuModuleLoadData(&mut module, text.as_ptr().cast()) }?;
        // SAFETY: the module was just loaded, and the name ends with zero.
        unsafe { self.driver.cuModuleGetFunction(&mut function, module, c"measured".as_ptr()) }?;
        Ok(function)
    }

    fn time(&self, workload: &Workload, function: CUfunction) -> Outcome<f64> {
        let mut bytes = parameters(self.arrays, workload.n);
        let mut size = bytes.len();
        let mut extra: [*mut c_void; 5] = [
            std::ptr::without_provenance_mut(1),
            bytes.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(2),
            (&raw mut size).cast(),
            null_mut(),
        ];
        let start = Instant::now();
        let (blocks, threads) = (workload.blocks, workload.threads);
        // SAFETY: the function is loaded, and `extra` leads to bytes that outlive the call, which copies them.
        unsafe {
            let extra = extra.as_mut_ptr();
            self.driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, null_mut(), null_mut(), extra)
        }?;
        // SAFETY: takes no pointer.
        unsafe { self.driver.cuCtxSynchronize() }?;
        Ok(start.elapsed().as_secs_f64())
    }
}

impl Pair {
    /// Loads `OURS.so:OTHER.so`.
    pub(crate) fn load(paths: &str) -> Outcome<Self> {
        let (ours, other) = paths.split_once(':').ok_or("--peer takes OURS.so:OTHER.so")?;
        Ok(Self([Build::load(ours)?, Build::load(other)?]))
    }

    /// The other's time over ours, of the medians of runs in turn; why not, where the other build refuses the kernel.
    pub(crate) fn ratio(&self, workload: &Workload, budget: Duration) -> Outcome<String> {
        let Self([ours, other]) = self;
        let function = ours.function(workload)?;
        let Ok(of_other) = other.function(workload) else { return Ok("  refused there".into()) };
        let (mut times, mut of_others) = (Vec::new(), Vec::new());
        let begin = Instant::now();
        while times.len() < 3 || begin.elapsed() < budget {
            times.push(ours.time(workload, function)?);
            match other.time(workload, of_other) {
                Ok(time) => of_others.push(time),
                Err(error) => return Ok(format!("  ends there: {error}")),
            }
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        Ok(format!(" {:>8.1}", median(&mut of_others) / median(&mut times)))
    }
}
