//! Scopes: what they take, and blocks that other streams use while one is open.

use crate::base::error::Error;
use crate::base::error::PoolError;
use crate::caching::tests::scripts::{Bench, POOL};

#[test]
fn blocks_recorded_inside_a_scope_are_free_after_it_without_an_event() {
    let mut bench = Bench::with(64 << 30, "");
    bench.run("begin, a 1@100 5e6, r 1 101, f 1, end");
    assert_eq!(bench.stats().active.all.current, 1);
    let stats = bench.run("a 2 100");
    assert_eq!(stats.active.all.current, 1, "the recorded block is free, the new one is not");
    assert_eq!(bench.driver.events().live_count(), 0);
}

#[test]
fn a_scope_takes_only_its_own_streams() {
    let mut bench = Bench::with(64 << 30, "");
    bench.run("begin, a 1@100 100, a 2 100, end");
    assert_eq!(bench.allocator.owner(bench.held["1"]), Some(POOL));
    assert_eq!(bench.allocator.owner(bench.held["2"]), None);
    bench.run("f 1, f 2, a 3@100 100");
    assert_eq!(bench.allocator.owner(bench.held["3"]), None, "without a scope the default pool serves");
}

#[test]
fn a_pool_is_recorded_to_once() {
    let mut bench = Bench::with(64 << 30, "");
    bench.run("begin");
    assert_eq!(bench.step("begin"), Err(Error::Pool(PoolError::AlreadyRecording)));
    bench.run("end");
    assert_eq!(bench.step("end"), Err(Error::Pool(PoolError::NotRecording)));
    bench.run("begin, end, release, release");
    assert_eq!(bench.step("a 1 100"), Ok(()));
}
