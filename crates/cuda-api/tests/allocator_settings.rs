//! What a program changes about the allocator while it runs: its settings and its totals.

mod common;

use common::rig;
use cuda_api::{
    Error, caching_allocator_alloc, caching_allocator_delete, memory_stats, reset_accumulated_memory_stats,
    set_allocator_settings,
};

const MIB: u64 = 1 << 20;

#[test]
fn totals_begin_again_and_peaks_stay() {
    let _rig = rig();
    let address = caching_allocator_alloc(MIB, None, None).unwrap();
    caching_allocator_delete(address).unwrap();
    let before = memory_stats(None).unwrap().allocated_bytes.all;
    assert_eq!((before.allocated, before.freed, before.peak), (1 << 20, 1 << 20, 1 << 20));
    reset_accumulated_memory_stats(None).unwrap();
    let after = memory_stats(None).unwrap().allocated_bytes.all;
    assert_eq!((after.allocated, after.freed, after.peak), (0, 0, 1 << 20));
    reset_accumulated_memory_stats(1).unwrap();
}

#[test]
fn settings_change_what_is_asked_for_next() {
    let rig = rig();
    let reserved = || memory_stats(0).unwrap().reserved_bytes.all.current;
    set_allocator_settings("large_segment_size_mb:32").unwrap();
    let address = caching_allocator_alloc(2 * MIB, None, None).unwrap();
    assert_eq!((reserved(), rig.machine.live().allocations), (32 << 20, 1));
    assert!(matches!(set_allocator_settings("no_such_key:1"), Err(Error::AllocatorConfig(_))));
    caching_allocator_delete(address).unwrap();
    assert_eq!(reserved(), 32 << 20);
}
