//! Kernels that wait for each other's writes, on one device and on several.
//!
//! # Safety
//! As in the support module: the simulated driver looks every handle and address up.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr;
use std::thread;
use std::time::Duration;

use cuda_sim::{Config, KernelChecks, ReportKind, Topology};
use cuda_sys::CUresult;
use cuda_sys::driver::types::{CUcontext, CUfunction, CUstream};
use support::{Rig, code};

/// Writes 1, 2, ... to the next one's word, each time after its own has come to the same number.
const PASS_ON: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
.visible .entry k(.param .u64 own, .param .u64 next, .param .u32 rounds) {\n\
.reg .b64 %d<2>; .reg .b32 %r<4>; .reg .pred %p;\n\
ld.param.u64 %d0, [own]; ld.param.u64 %d1, [next]; ld.param.u32 %r0, [rounds]; mov.u32 %r1, 0;\n\
again: add.u32 %r1, %r1, 1; st.release.sys.global.u32 [%d1], %r1;\n\
wait: ld.acquire.sys.global.u32 %r2, [%d0]; setp.lt.u32 %p, %r2, %r1; @%p bra wait;\n\
setp.lt.u32 %p, %r1, %r0; @%p bra again; ret; }\0";

/// A device with the kernel, and a word that is zero.
struct Member {
    context: CUcontext,
    function: CUfunction,
    word: u64,
}

/// Members on so many devices, each of which reaches all others.
fn members(rig: &Rig, devices: i32) -> Vec<Member> {
    let contexts = (0..devices).map(|device| {
        let mut context = ptr::null_mut();
        call!(rig, cuDevicePrimaryCtxRetain(&mut context, device)).expect("the device has a primary context");
        context
    });
    let contexts: Vec<CUcontext> = contexts.collect();
    let member = |&context: &CUcontext| {
        call!(rig, cuCtxSetCurrent(context)).expect("it can be made current");
        for &peer in contexts.iter().filter(|&&peer| peer != context) {
            call!(rig, cuCtxEnablePeerAccess(peer, 0)).expect("all reach each other");
        }
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        call!(rig, cuModuleLoadData(&mut module, PASS_ON.as_ptr().cast())).expect("the text is PTX");
        call!(rig, cuModuleGetFunction(&mut function, module, c"k".as_ptr())).expect("there is a kernel");
        let word = rig.alloc(4);
        call!(rig, cuMemsetD32_v2(word, 0, 1)).expect("memory can be set");
        Member { context, function, word }
    };
    contexts.iter().map(member).collect()
}

fn launch(rig: &Rig, of: &Member, (mut own, mut next): (u64, u64), mut rounds: u32, stream: CUstream) {
    call!(rig, cuCtxSetCurrent(of.context)).expect("it can be made current");
    let mut parameters: [*mut c_void; 3] = [(&raw mut own).cast(), (&raw mut next).cast(), (&raw mut rounds).cast()];
    let function = of.function;
    call!(rig, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), ptr::null_mut()))
        .expect("it can be launched");
}

/// Launches the kernel of each member, in a ring.
fn launch_ring(rig: &Rig, members: &[Member], rounds: u32) {
    for (at, member) in members.iter().enumerate() {
        let next = &members[(at + 1) % members.len()];
        launch(rig, member, (member.word, next.word), rounds, ptr::null_mut());
    }
}

fn word(rig: &Rig, member: &Member) -> u32 {
    call!(rig, cuCtxSetCurrent(member.context)).expect("it can be made current");
    let mut found = 0_u32;
    call!(rig, cuMemcpyDtoH_v2((&raw mut found).cast(), member.word, 4)).expect("the kernels are done");
    found
}

#[test]
fn kernels_of_several_devices_that_wait_for_each_other_make_progress() {
    for devices in [1, 2, 4, 8] {
        for seed in 0..6 {
            let config = Config::default().devices(devices).seed(seed);
            // What they write to each other takes its time on links, which is not counted while everything is looked for.
            let with_links = config.clone().topology(Topology::nvlink(450, 1_000));
            let config = if seed % 2 == 0 { config.checks(KernelChecks::ALL) } else { with_links };
            let rig = Rig::without_context(config);
            let members = members(&rig, devices.cast_signed());
            launch_ring(&rig, &members, 20);
            assert!(members.iter().all(|member| word(&rig, member) == 20), "{devices} devices, seed {seed}");
            assert_eq!(rig.machine.reports(), []);
        }
    }
}

#[test]
fn a_kernel_whose_partner_never_comes_is_a_deadlock_that_names_both_ends() {
    let rig = Rig::without_context(Config::default().devices(3));
    let members = members(&rig, 3);
    for at in [0, 1] {
        launch(&rig, &members[at], (members[at].word, members[at + 1].word), 2, ptr::null_mut());
    }
    // Device 0 waits for device 2, which was given nothing to do.
    call!(rig, cuCtxSetCurrent(members[0].context)).expect("it can be made current");
    assert_eq!(code(call!(rig, cuCtxSynchronize())), CUresult::CUDA_ERROR_LAUNCH_TIMEOUT);
    let reports = rig.machine.reports();
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!(report.kind, ReportKind::Deadlock);
    let wanted = [
        "2 kernels wait for ever: kernel 'k' on device 0, PTX line 8".to_owned(),
        format!("finds 0x0 at {:#x}; kernel 'k' on device 1, PTX line 8", members[0].word),
        format!("finds 0x1 at {:#x}", members[1].word),
    ];
    assert!(wanted.iter().all(|part| report.message.contains(part)), "{report}");
    call!(rig, cuCtxSetCurrent(members[2].context)).expect("it can be made current");
    call!(rig, cuCtxSynchronize()).expect("device 2 has nothing to do with it");
}

#[test]
fn a_kernel_waits_for_a_write_of_another_stream_whatever_comes_first() {
    for seed in 0..10 {
        let rig = Rig::without_context(Config::default().seed(seed));
        let members = members(&rig, 1);
        let (first, second) = (rig.stream(1), rig.stream(1));
        launch(&rig, &members[0], (members[0].word, members[0].word), 1, first);
        // It wrote 1 to its own word and is done; the next one waits for 3 that another stream writes.
        call!(rig, cuStreamSynchronize(first)).expect("it waits for itself");
        let other = rig.alloc(4);
        launch(&rig, &members[0], (members[0].word, other), 3, first);
        assert_eq!(code(call!(rig, cuStreamQuery(first))), CUresult::CUDA_ERROR_NOT_READY);
        call!(rig, cuStreamWriteValue32_v2(second, members[0].word, 3, 0)).expect("the device can write values");
        call!(rig, cuStreamSynchronize(first)).expect("the value comes");
        assert_eq!(rig.machine.reports(), []);
    }
}

#[test]
fn another_thread_may_launch_what_a_kernel_waits_for() {
    let rig = Rig::without_context(Config::default().devices(2));
    let members = members(&rig, 2);
    let machine = rig.machine.clone();
    launch(&rig, &members[0], (members[0].word, members[1].word), 5, ptr::null_mut());
    let (context, function) = (members[1].context.expose_provenance(), members[1].function.expose_provenance());
    let words = (members[1].word, members[0].word);
    let other = thread::spawn(move || {
        let bound = machine.bind();
        let driver = cuda_sim::driver().expect("the table has a version");
        let rig = Rig::of(machine, driver, bound);
        thread::sleep(Duration::from_millis(30));
        let member = Member {
            context: ptr::with_exposed_provenance_mut(context),
            function: ptr::with_exposed_provenance_mut(function),
            word: 0,
        };
        launch(&rig, &member, words, 5, ptr::null_mut());
    });
    call!(rig, cuCtxSetCurrent(members[0].context)).expect("it can be made current");
    call!(rig, cuCtxSynchronize()).expect("the other kernel comes");
    other.join().expect("it launches");
    assert_eq!((word(&rig, &members[0]), word(&rig, &members[1])), (5, 5));
}
