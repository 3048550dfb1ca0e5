//! Copies between devices over links: how long they take, which wait for each other, and what devices are told.
//!
//! # Safety
//! As in the support module: the simulated driver looks every handle and address up.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ptr;

use cuda_sim::{Config, Topology};
use cuda_sys::CUresult;
use cuda_sys::driver::types::{CUcontext, CUdevice_P2PAttribute, CUstream};
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
    let rig = Rig::without_context(Config::default().devices(devices).topology(topology).stalls(false));
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
