//! The shared object, found by its path, works on the machine of the simulated driver that is loaded beside it.
//!
//! # Safety
//! Both objects are simulated: handles and device addresses are looked up, and the pointers given here outlive the calls.
#![expect(unsafe_code, reason = "calls C functions")]

use std::path::PathBuf;
use std::ptr;

use cuda_sys::cublas::types::cublasOperation_t;
use cuda_sys::{Cublas, CublasLt, Driver, LibraryVersion};

/// A shared object, which cargo builds next to this test's executable.
fn shared_object(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let path = program.with_file_name(name);
    assert!(path.exists(), "{} was not built", path.display());
    path
}

/// Makes one expression of an unsafe call.
macro_rules! call {
    ($library:ident.$function:ident ( $($argument:expr),* $(,)? )) => {
        // SAFETY: see the header.
        unsafe { $library.$function($($argument),*) }.expect("the call succeeds")
    };
}

#[test]
fn a_product_is_made_on_the_drivers_machine() {
    let driver = Driver::load_from(shared_object("libcuda_sim_driver.so")).expect("the simulated driver");
    let cublas = Cublas::load_from(shared_object("libcublas_sim.so")).expect("the simulated cuBLAS");
    let lt = CublasLt::load_from(shared_object("libcublas_sim.so")).expect("it is cuBLASLt as well");
    let version = LibraryVersion { major: 13, minor: 1, patch: 0 };
    assert_eq!((cublas.version(), lt.version()), (version, version));
    assert!(cublas.origin().ends_with("libcublas_sim.so"), "{}", cublas.origin());
    let (mut context, mut handle, mut memory) = (ptr::null_mut(), ptr::null_mut(), 0);
    call!(driver.cuInit(0));
    call!(driver.cuDevicePrimaryCtxRetain(&mut context, 0));
    call!(driver.cuCtxSetCurrent(context));
    call!(driver.cuMemAlloc_v2(&mut memory, 12));
    let numbers = [3.0_f32, 5.0, 0.0];
    call!(driver.cuMemcpyHtoD_v2(memory, numbers.as_ptr().cast(), 12));
    call!(cublas.cublasCreate_v2(&mut handle));
    let at = |offset: u64| ptr::without_provenance_mut::<f32>(usize::try_from(memory + offset).expect("64 bits"));
    let (one, zero, n) = (1.0_f32, 0.0_f32, cublasOperation_t::CUBLAS_OP_N);
    call!(cublas.cublasSgemm_v2(handle, n, n, 1, 1, 1, &one, at(0), 1, at(4), 1, &zero, at(8), 1));
    let mut result = 0.0_f32;
    call!(driver.cuMemcpyDtoH_v2((&raw mut result).cast(), memory + 8, 4));
    assert_eq!(result.to_bits(), 15.0_f32.to_bits());
    call!(cublas.cublasDestroy_v2(handle));
    // SAFETY: takes nothing.
    assert_eq!(unsafe { lt.cublasLtGetVersion() }, Ok(130_100));
}
