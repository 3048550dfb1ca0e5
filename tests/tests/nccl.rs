//! The shared object, found by its path, works on the machine of the simulated driver that is loaded beside it.
//!
//! # Safety
//! Both objects are simulated: handles and device addresses are looked up, and the pointers given here outlive the calls.
//! The environment is changed before another thread or library looks at it.
#![expect(unsafe_code, reason = "calls C functions")]

use std::path::PathBuf;
use std::ptr;

use cuda_sys::nccl::types::{ncclDataType_t, ncclRedOp_t};
use cuda_sys::{Driver, LibraryVersion, Nccl};

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
fn a_sum_goes_over_the_devices_of_the_driver() {
    // SAFETY: see the header.
    unsafe { std::env::set_var("CUDA_SIM_DEVICES", "2") };
    let driver = Driver::load_from(shared_object("libcuda_sim_driver.so")).expect("the simulated driver");
    let nccl = Nccl::load_from(shared_object("libnccl_sim.so")).expect("the simulated NCCL");
    assert_eq!(nccl.version(), LibraryVersion { major: 2, minor: 28, patch: 9 });
    let mut comms = [ptr::null_mut(); 2];
    call!(driver.cuInit(0));
    call!(nccl.ncclCommInitAll(comms.as_mut_ptr(), 2, ptr::null()));
    let mut buffers = [0; 2];
    for (device, buffer) in (0..).zip(&mut buffers) {
        let mut context = ptr::null_mut();
        call!(driver.cuDevicePrimaryCtxRetain(&mut context, device));
        call!(driver.cuCtxSetCurrent(context));
        call!(driver.cuMemAlloc_v2(buffer, 4));
        call!(driver.cuMemcpyHtoD_v2(*buffer, [device + 3].as_ptr().cast(), 4));
    }
    call!(nccl.ncclGroupStart());
    for (buffer, comm) in buffers.into_iter().zip(comms) {
        let at = ptr::without_provenance_mut(usize::try_from(buffer).expect("64 bits"));
        let (kind, op) = (ncclDataType_t::ncclInt32, ncclRedOp_t::ncclSum);
        call!(nccl.ncclAllReduce(at, at, 1, kind, op, comm, ptr::null_mut()));
    }
    call!(nccl.ncclGroupEnd());
    call!(driver.cuCtxSynchronize());
    let mut result = 0_i32;
    call!(driver.cuMemcpyDtoH_v2((&raw mut result).cast(), buffers[1], 4));
    assert_eq!(result, 7);
    for comm in comms {
        call!(nccl.ncclCommDestroy(comm));
    }
}
