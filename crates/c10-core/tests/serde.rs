//! Figures, snapshots and shared buffers written and read by serde. Runs with `--features serde`.
#![cfg(feature = "serde")]
#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

mod common;

use c10_core::{DeviceStats, HostStats, SegmentInfo, SharedBuffer};
use common::{DEVICE, rig};

fn there_and_back<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

#[test]
fn what_is_written_is_read() {
    let rig = rig();
    let buffer = rig.runtime.memory().buffer(5000, &rig.stream()).unwrap();
    let _host = rig.runtime.pinned().buffer(100).unwrap();
    let stats: DeviceStats = rig.runtime.memory().stats(DEVICE).unwrap();
    assert_eq!(there_and_back(&stats), stats);
    let host: HostStats = rig.runtime.pinned().stats();
    assert_eq!(there_and_back(&host), host);
    let snapshot: Vec<SegmentInfo> = rig.runtime.memory().snapshot(None);
    assert_eq!(there_and_back(&snapshot), snapshot);
    let shared: SharedBuffer = buffer.share().unwrap();
    assert_eq!(there_and_back(&shared), shared);
    assert!(serde_json::from_str::<SharedBuffer>("[1,2,3]").is_err());
}
