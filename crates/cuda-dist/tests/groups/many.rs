//! Groups without end: what they hold is given back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_dist::{HashStore, ProcessGroup, Store};

use super::options;

/// A line of `/proc/self/status`, as a number.
fn own(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
}

/// Groups whose threads end with them: as many as there are at most at a time are told.
#[test]
fn ten_thousand_groups_leave_no_thread_and_no_key() {
    const COUNT: usize = 10_000;
    let store = HashStore::new();
    let whole = ProcessGroup::with_store(Arc::new(store.clone()), 0, 1, &options(Duration::from_secs(60))).unwrap();
    let threads = own("Threads");
    let keys = store.num_keys().unwrap();
    for number in 0..COUNT {
        let group = whole.new_group(&[0], &cuda_dist::GroupOptions::default()).unwrap();
        if number % 100 == 0 {
            group.barrier().unwrap().wait().unwrap();
        }
        group.destroy().unwrap();
    }
    let begin = Instant::now();
    // Other tests of this program have threads too, but none as many as these groups had.
    while own("Threads") > threads + 100 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{} threads, before {threads}", own("Threads"));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(store.num_keys().unwrap(), keys);
}
