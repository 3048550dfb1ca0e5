//! Kernels on a simulated machine: what is told of those that are wrong, and what they print.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ptr;

use cuda_sim::{Config, KernelChecks, ReportKind};
use cuda_sys::CUresult;
use cuda_sys::driver::types::CUfunction;
use support::{Rig, code};

fn function(rig: &Rig, text: &str) -> CUfunction {
    let text = format!(".version 8.0\n.target sm_80\n.address_size 64\n{text}\0");
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    call!(rig, cuModuleLoadData(&mut module, text.as_ptr().cast())).expect("the text is PTX");
    call!(rig, cuModuleGetFunction(&mut function, module, c"k".as_ptr())).expect("there is a kernel");
    function
}

/// Runs a kernel without parameters.
fn run(rig: &Rig, text: &str, threads: u32) -> Result<(), CUresult> {
    let (function, null) = (function(rig, text), ptr::null_mut());
    call!(rig, cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, null, ptr::null_mut(), ptr::null_mut()))
        .expect("it can be launched");
    match call!(rig, cuCtxSynchronize()) {
        Ok(()) => Ok(()),
        error @ Err(_) => Err(code(error)),
    }
}

/// Each thread writes its word of shared memory and reads its neighbour's.
fn neighbours(sync: &str) -> String {
    format!(
        ".visible .entry k() {{ .shared .align 4 .b8 tile[128]; .reg .b32 %r<6>; mov.u32 %r0, %tid.x; mov.u32 %r1, tile;\n\
         shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2; st.shared.u32 [%r3], %r0;\n{sync}\nxor.b32 %r4, %r2, 4;\n\
         add.u32 %r4, %r1, %r4; ld.shared.u32 %r5, [%r4]; ret; }}"
    )
}

#[test]
fn a_race_is_told_where_it_is_asked_for_and_an_error_in_strict_mode() {
    let quiet = Rig::new(Config::default());
    assert_eq!(run(&quiet, &neighbours(""), 32), Ok(()));
    assert_eq!(quiet.machine.reports(), []);
    let checks = Config::default().checks(KernelChecks::ALL);
    let rig = Rig::new(checks.clone());
    assert_eq!(run(&rig, &neighbours("bar.warp.sync -1;"), 32), Ok(()));
    assert_eq!(rig.machine.reports(), []);
    assert_eq!(run(&rig, &neighbours(""), 32), Ok(()), "hardware lets it pass");
    let reports = rig.machine.reports();
    let report = reports.iter().find(|report| report.kind == ReportKind::Race).expect("there is a race");
    assert!(report.message.starts_with("kernel 'k', PTX line "), "{report}");
    let strict = Rig::new(checks.strict(true));
    assert_eq!(run(&strict, &neighbours(""), 32), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
}

#[test]
fn a_kernel_that_fails_says_where() {
    let rig = Rig::new(Config::default());
    let text = ".visible .entry k() { .reg .b64 %d;\nmov.u64 %d, 64;\nst.global.u32 [%d], 1; ret; }";
    assert_eq!(run(&rig, text, 3), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    let reports = rig.machine.reports();
    assert_eq!(reports[0].kind, ReportKind::KernelFailure);
    assert!(
        reports[0].message.contains("PTX line 6, column 1") && reports[0].message.ends_with("at 0x40"),
        "{reports:?}"
    );
}

#[test]
fn what_is_printed_is_kept() {
    let rig = Rig::new(Config::default().keeps_prints(true));
    let text = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
                .global .align 1 .b8 words[4] = {104, 105, 10, 0};\n\
                .visible .entry k() { .reg .b64 %d; mov.u64 %d, words; { .param .b64 f; st.param.b64 [f], %d; .param .b64 a;\n\
                st.param.b64 [a], 0; .param .b32 r; call.uni (r), vprintf, (f, a); } ret; }";
    assert_eq!(run(&rig, text, 2), Ok(()));
    assert_eq!(rig.machine.take_printed(), "hi\nhi\n");
    assert_eq!(rig.machine.take_printed(), "");
}

#[test]
fn what_is_not_supported_is_told_whole() {
    let rig = Rig::new(Config::default());
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\nwgmma.fence.sync.aligned;\n\
                wgmma.commit_group.sync.aligned; ret; }\n.visible .entry other() { ret; }\0";
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    call!(rig, cuModuleLoadData(&mut module, text.as_ptr().cast())).expect("the other kernel can be used");
    let refused = call!(rig, cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    assert_eq!(code(refused), CUresult::CUDA_ERROR_NOT_SUPPORTED);
    let report = &rig.machine.reports()[0];
    assert_eq!(report.kind, ReportKind::NotSupported);
    for part in ["kernel 'k'", "line 5, column 1", "wgmma.fence.sync.aligned", "line 6, column 1", "wgmma.commit_group"]
    {
        assert!(report.message.contains(part), "{report}");
    }
    call!(rig, cuModuleGetFunction(&mut function, module, c"other".as_ptr())).expect("it is supported");
}
