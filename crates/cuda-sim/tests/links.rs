//! What moves over links between devices: how long it takes, how it shares them, what happens when they fail, and what devices
//! are told.
//!
//! # Safety
//! As in the support module: the simulated driver looks every handle and address up.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr;

use cuda_sim::{Config, LinkChange, LinkFault, LinkMoment, Topology};
use cuda_sys::CUresult;
use cuda_sys::driver::types::{CUcontext, CUdevice_P2PAttribute, CUfunction, CUstream};
use support::{Rig, code};

/// A device with a stream and room for two copies.
struct Member {
    context: CUcontext,
    stream: CUstream,
    buffers: [u64; 2],
}

const BYTES: usize = 9_000_000;
const GB: u64 = 450;
const LATENCY_NS: u64 = 2_000;
/// How long the bytes of a copy move.
const MOVES_NS: u64 = BYTES as u64 / GB;

fn rig(devices: u32, topology: Topology) -> (Rig, Vec<Member>) {
    rig_of(Config::default().devices(devices).topology(topology).stalls(false), devices)
}

fn rig_of(config: Config, devices: u32) -> (Rig, Vec<Member>) {
    let rig = Rig::without_context(config);
    let member = |device: u32| {
        let mut context = ptr::null_mut();
        call!(rig, cuDevicePrimaryCtxRetain(&mut context, device.cast_signed())).expect("there is a context");
        call!(rig, cuCtxSetCurrent(context)).expect("it can be made current");
        Member { context, stream: rig.stream(1), buffers: [rig.alloc(BYTES), rig.alloc(BYTES)] }
    };
    let members = (0..devices).map(member).collect();
    (rig, members)
}

/// Queues a copy from the first buffer of one device to the second of another, on a stream of the first.
fn copy(rig: &Rig, members: &[Member], from: usize, to: usize, bytes: usize) {
    call!(rig, cuCtxSetCurrent(members[from].context)).expect("it can be made current");
    let (target, source) = (members[to].buffers[1], members[from].buffers[0]);
    call!(rig, cuMemcpyDtoDAsync_v2(target, source, bytes, members[from].stream)).expect("it can be queued");
}

/// Nanoseconds until all devices are done with copies, without the calls' own.
fn taken(rig: &Rig, members: &[Member], copies: &[(usize, usize)]) -> u64 {
    let begin = rig.machine.now_ns();
    copies.iter().for_each(|&(from, to)| copy(rig, members, from, to, BYTES));
    for member in members {
        call!(rig, cuCtxSetCurrent(member.context)).expect("it can be made current");
        call!(rig, cuCtxSynchronize()).expect("copies end");
    }
    rig.machine.now_ns() - begin
}

/// Calls take half a microsecond each.
#[track_caller]
fn assert_about(found: u64, expected: u64) {
    assert!(found.abs_diff(expected) < expected / 10 + 6_000, "{found} ns, expected about {expected}");
}

#[test]
fn copies_that_need_one_link_share_it_and_others_do_not_wait() {
    let (rig, members) = rig(4, Topology::nvlink(GB, LATENCY_NS));
    let alone = LATENCY_NS + MOVES_NS;
    assert_about(taken(&rig, &members, &[(0, 1)]), alone);
    assert_about(taken(&rig, &members, &[(0, 1), (1, 0)]), alone);
    assert_about(taken(&rig, &members, &[(0, 1), (2, 3), (3, 2), (1, 0)]), alone);
    // Into one device; out of one device on streams of several.
    assert_about(taken(&rig, &members, &[(0, 3), (1, 3), (2, 3)]), LATENCY_NS + 3 * MOVES_NS);
    // A ring: every device sends and takes at once.
    assert_about(taken(&rig, &members, &[(0, 1), (1, 2), (2, 3), (3, 0)]), alone);
}

#[test]
fn devices_behind_different_switches_share_the_bridge() {
    let (rig, members) = rig(4, Topology::pcie(GB, LATENCY_NS, 2));
    assert_about(taken(&rig, &members, &[(0, 1), (2, 3)]), LATENCY_NS + MOVES_NS);
    assert_about(taken(&rig, &members, &[(0, 2)]), 2 * LATENCY_NS + MOVES_NS);
    assert_about(taken(&rig, &members, &[(0, 2), (1, 3)]), 2 * LATENCY_NS + 2 * MOVES_NS);
    assert_about(taken(&rig, &members, &[(0, 2), (3, 1)]), 2 * LATENCY_NS + MOVES_NS);
}

/// A ring all-reduce's copies: each of `2 (n - 1)` steps sends a part to the next device, after what came in the step before.
fn ring(rig: &Rig, members: &[Member], bytes: usize) -> u64 {
    let count = members.len();
    let begin = rig.machine.now_ns();
    let mut arrived: Vec<_> = (0..count).map(|_| ptr::null_mut()).collect();
    for _ in 0..2 * (count - 1) {
        let before = arrived.clone();
        for (at, member) in members.iter().enumerate() {
            call!(rig, cuCtxSetCurrent(member.context)).expect("it can be made current");
            let last: cuda_sys::driver::types::CUevent = before[(at + count - 1) % count];
            if !last.is_null() {
                call!(rig, cuStreamWaitEvent(member.stream, last, 0)).expect("events can be waited for");
            }
            copy(rig, members, at, (at + 1) % count, bytes / count);
            let event = rig.event(2);
            call!(rig, cuEventRecord(event, member.stream)).expect("events can be recorded");
            arrived[at] = event;
        }
    }
    for member in members {
        call!(rig, cuCtxSetCurrent(member.context)).expect("it can be made current");
        call!(rig, cuCtxSynchronize()).expect("copies end");
    }
    rig.machine.now_ns() - begin
}

#[test]
fn the_copies_of_a_ring_take_what_the_formula_says() {
    for devices in [2_u32, 4, 8, 16] {
        // Slow enough that the calls, which take simulated time, are no part of it.
        let (rig, members) = rig(devices, Topology::nvlink(1, 100_000));
        let count = u64::from(devices);
        let steps = 2 * (count - 1);
        let expected = steps * (100_000 + BYTES as u64 / count);
        let found = ring(&rig, &members, BYTES);
        assert!(found.abs_diff(expected) * 10 < expected, "{devices} devices: {found} ns, expected {expected}");
    }
}

fn attribute(rig: &Rig, attribute: CUdevice_P2PAttribute, one: i32, other: i32) -> i32 {
    let mut value = -1;
    call!(rig, cuDeviceGetP2PAttribute(&mut value, attribute, one, other)).expect("the attribute is known");
    value
}

#[test]
fn devices_are_told_what_their_links_can() {
    let rank = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    let access = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    let atomics = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    let all = |rig: &Rig, one, other| [rank, access, atomics].map(|which| attribute(rig, which, one, other));
    let switch = rig(3, Topology::nvlink(GB, LATENCY_NS).failed(0, 2));
    assert_eq!(all(&switch.0, 0, 1), [0, 1, 1]);
    assert_eq!((all(&switch.0, 0, 2), all(&switch.0, 2, 0)), ([3, 0, 0], [3, 0, 0]));
    let (rig_of_failed, members) = &switch;
    let mut can = -1;
    call!(rig_of_failed, cuDeviceCanAccessPeer(&mut can, 0, 2)).expect("there are such devices");
    assert_eq!(can, 0);
    call!(rig_of_failed, cuCtxSetCurrent(members[0].context)).expect("it can be made current");
    let refused = call!(rig_of_failed, cuCtxEnablePeerAccess(members[2].context, 0));
    assert_eq!(code(refused), CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    call!(rig_of_failed, cuCtxEnablePeerAccess(members[1].context, 0)).expect("that link is there");
    // Copies go by way of the host, which takes longer.
    assert_about(taken(rig_of_failed, members, &[(0, 2)]), 2 * LATENCY_NS + BYTES as u64 / 50);
    let bridges = rig(4, Topology::pcie(GB, LATENCY_NS, 2));
    assert_eq!((all(&bridges.0, 0, 1), all(&bridges.0, 1, 2)), ([1, 1, 0], [2, 1, 0]));
}

#[test]
fn a_small_copy_beside_a_large_one_does_not_wait_for_it() {
    let (rig, members) = rig(3, Topology::nvlink(GB, LATENCY_NS));
    let small = BYTES / 100;
    let begin = rig.machine.now_ns();
    copy(&rig, &members, 0, 1, BYTES);
    // Out of the same device, on a stream of another.
    call!(rig, cuCtxSetCurrent(members[2].context)).expect("it can be made current");
    let (target, source) = (members[2].buffers[1], members[0].buffers[0]);
    call!(rig, cuMemcpyDtoDAsync_v2(target, source, small, members[2].stream)).expect("it can be queued");
    call!(rig, cuStreamSynchronize(members[2].stream)).expect("copies end");
    let found = rig.machine.now_ns() - begin;
    assert!(found < LATENCY_NS + 2 * MOVES_NS / 100 + 4_000, "{found} ns");
    call!(rig, cuCtxSetCurrent(members[0].context)).expect("it can be made current");
    call!(rig, cuStreamSynchronize(members[0].stream)).expect("copies end");
    assert_about(rig.machine.now_ns() - begin, LATENCY_NS + MOVES_NS + MOVES_NS / 100);
}

#[test]
fn one_seed_has_one_history() {
    let history = |seed| {
        let config = Config::default().devices(4).topology(Topology::pcie(64, LATENCY_NS, 2)).seed(seed);
        let (rig, members) = rig_of(config, 4);
        let taken = [(0, 1), (0, 2), (3, 1), (2, 0)].map(|pair| taken(&rig, &members, &[pair, (1, 3), (0, 3)]));
        (taken, rig.machine.now_ns())
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}

/// Adds a word of one buffer to that of another, one a thread.
const ADD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
.visible .entry k(.param .u64 from, .param .u64 to) {\n\
.reg .b64 %d<4>; .reg .b32 %r<6>;\n\
ld.param.u64 %d0, [from]; ld.param.u64 %d1, [to]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;\n\
mad.lo.u32 %r3, %r0, %r1, %r2; mul.wide.u32 %d2, %r3, 4; add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;\n\
ld.global.u32 %r4, [%d0]; ld.global.u32 %r5, [%d1]; add.u32 %r4, %r4, %r5; st.global.u32 [%d1], %r4; ret; }\0";

/// The kernel on a device that reaches another.
fn adder(rig: &Rig, members: &[Member], on: usize, peer: usize) -> CUfunction {
    call!(rig, cuCtxSetCurrent(members[on].context)).expect("it can be made current");
    call!(rig, cuCtxEnablePeerAccess(members[peer].context, 0)).expect("it reaches the other");
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    call!(rig, cuModuleLoadData(&mut module, ADD.as_ptr().cast())).expect("the text is PTX");
    call!(rig, cuModuleGetFunction(&mut function, module, c"k".as_ptr())).expect("there is a kernel");
    function
}

/// Launches it over so many blocks of 256 words.
fn add(rig: &Rig, member: &Member, function: CUfunction, (mut from, mut to): (u64, u64), blocks: u32) {
    call!(rig, cuCtxSetCurrent(member.context)).expect("it can be made current");
    let mut parameters: [*mut c_void; 2] = [(&raw mut from).cast(), (&raw mut to).cast()];
    let stream = member.stream;
    call!(rig, cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, parameters.as_mut_ptr(), ptr::null_mut()))
        .expect("it can be launched");
}

#[test]
fn kernels_that_reach_other_devices_use_the_links() {
    let (rig, members) = rig(2, Topology::nvlink(1, LATENCY_NS));
    let function = adder(&rig, &members, 0, 1);
    let (own, other, bytes) = (members[0].buffers[0], members[1].buffers[0], 64 * 256 * 4);
    call!(rig, cuMemsetD32_v2(own, 3, 64 * 256)).expect("memory can be set");
    call!(rig, cuMemsetD32_v2(other, 4, 64 * 256)).expect("memory can be set");
    let run = |from, to| {
        let begin = rig.machine.now_ns();
        add(&rig, &members[0], function, (from, to), 64);
        call!(rig, cuCtxSynchronize()).expect("kernels end");
        rig.machine.now_ns() - begin
    };
    assert_about(run(other, own), LATENCY_NS + bytes);
    assert_eq!(rig.read(own, 4), [7, 0, 0, 0]);
    assert!(run(own, own) < 5_000, "nothing left the device");
    // What it adds to is read and written there, both ways at once.
    assert_about(run(own, other), LATENCY_NS + bytes);
    assert_eq!(rig.read(other, 4), [18, 0, 0, 0]);
    // A copy the same way shares the link.
    let begin = rig.machine.now_ns();
    copy(&rig, &members, 1, 0, usize::try_from(bytes).expect("few bytes"));
    add(&rig, &members[0], function, (other, own), 64);
    call!(rig, cuCtxSynchronize()).expect("kernels end");
    assert_about(rig.machine.now_ns() - begin, LATENCY_NS + 2 * bytes);
}

fn down(when: LinkMoment) -> LinkFault {
    LinkFault { devices: (1, 0), change: LinkChange::Down, when }
}

#[test]
fn a_copy_over_a_link_that_goes_down_loses_its_context() {
    let uncorrectable = CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE;
    for when in [LinkMoment::At(60_000), LinkMoment::After(BYTES as u64 * 3 / 2)] {
        let (rig, members) = rig(3, Topology::nvlink(GB, LATENCY_NS));
        let reaches = || {
            let mut can = -1;
            call!(rig, cuDeviceCanAccessPeer(&mut can, 0, 1)).expect("there are such devices");
            (can, attribute(&rig, CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1, 0))
        };
        rig.machine.inject_link(down(when));
        assert_eq!(reaches(), (1, 0));
        (0..4).for_each(|_| copy(&rig, &members, 0, 1, BYTES));
        copy(&rig, &members, 2, 1, BYTES);
        call!(rig, cuCtxSetCurrent(members[0].context)).expect("it can be made current");
        assert_eq!(code(call!(rig, cuCtxSynchronize())), uncorrectable, "{when:?}");
        let mut address = 0;
        assert_eq!(code(call!(rig, cuMemAlloc_v2(&mut address, 16))), uncorrectable);
        assert_eq!(reaches(), (0, 3));
        // Others go on, and reach its memory by way of the host.
        for other in [1, 2] {
            call!(rig, cuCtxSetCurrent(members[other].context)).expect("it can be made current");
            call!(rig, cuCtxSynchronize()).expect("its copies end");
        }
        assert_about(taken_from(&rig, &members, 1), 2 * LATENCY_NS + BYTES as u64 / 50);
    }
}

/// Nanoseconds for a copy from another device to device 0, by a stream of the other.
fn taken_from(rig: &Rig, members: &[Member], other: usize) -> u64 {
    let begin = rig.machine.now_ns();
    copy(rig, members, other, 0, BYTES);
    call!(rig, cuCtxSynchronize()).expect("copies end");
    rig.machine.now_ns() - begin
}

#[test]
fn a_kernel_that_reaches_over_a_link_that_is_down_loses_its_context() {
    let (rig, members) = rig(2, Topology::nvlink(GB, LATENCY_NS));
    let function = adder(&rig, &members, 0, 1);
    let (own, other) = (members[0].buffers[0], members[1].buffers[0]);
    rig.machine.inject_link(down(LinkMoment::At(0)));
    add(&rig, &members[0], function, (own, own), 1);
    call!(rig, cuCtxSynchronize()).expect("it needs no link");
    add(&rig, &members[0], function, (other, own), 1);
    assert_eq!(code(call!(rig, cuCtxSynchronize())), CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE);
    call!(rig, cuCtxSetCurrent(members[1].context)).expect("it can be made current");
    assert_eq!(
        code(call!(rig, cuCtxEnablePeerAccess(members[0].context, 0))),
        CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
    );
    assert_eq!(rig.read(other, 1), [0]);
}

#[test]
fn faults_of_links_come_with_the_machine_and_can_be_forgotten() {
    let slow = LinkFault { devices: (0, 1), change: LinkChange::Percent(25), when: LinkMoment::After(0) };
    let config = Config::default().devices(2).topology(Topology::nvlink(GB, LATENCY_NS)).stalls(false).link_fault(slow);
    let (rig, members) = rig_of(config, 2);
    rig.machine.inject_link(down(LinkMoment::After(0)));
    rig.machine.clear_faults();
    assert_about(taken(&rig, &members, &[(0, 1)]), LATENCY_NS + MOVES_NS);
    rig.machine.inject_link(slow);
    assert_about(taken(&rig, &members, &[(0, 1)]), LATENCY_NS + 4 * MOVES_NS);
    assert_about(taken(&rig, &members, &[(1, 0)]), LATENCY_NS + 4 * MOVES_NS);
}
