//! The end of a runtime: what it waits for and the order in which everything goes back to the driver.
//!
//! **Invariants:** nothing here is called in a forked child. Work under way is waited for before anything that it uses
//! is freed. Contexts are released last. A call that fails does not stop the rest: there is no caller to return an
//! error to.

use crate::base::device::DeviceIndex;
use crate::runtime::started::Started;
use crate::state::deferred_destroy::DriverObject;

/// Waits for the devices and frees what work under way needed. Afterwards only buffers of pinned memory can be left.
pub(crate) fn finish_work(started: &Started) {
    let _relaxed = started.relaxed();
    let devices = (0..).map(DeviceIndex).take(started.api.device_count());
    for device in devices.filter(|device| started.api.is_used(*device)) {
        // Where another runtime captures on the device, only the streams can be waited for.
        if started.api.synchronize_device(device).is_err() {
            started.streams.wait(&started.api, device);
            started.green.wait(&started.api, device);
        }
    }
    started.ipc.dismantle(&started.api);
    started.captures.clear();
    started.holds.dismantle(&started.api);
}

/// Gives everything back.
pub(crate) fn dismantle(started: &Started) {
    let _relaxed = started.relaxed();
    finish_work(started);
    started.pinned.cache.dismantle(&started.api);
    started.allocator.dismantle(&started.api);
    started.api.tidy_mappings();
    for event in started.graph_events.clear().into_iter().chain(started.spare_events.clear()) {
        // An event that cannot be destroyed is tried once more right below.
        let _ = started.destroy(DriverObject::Event(event));
    }
    started.deferred.sweep(&started.api);
    started.modules.dismantle(&started.api);
    started.streams.dismantle(&started.api);
    started.green.dismantle(&started.api);
    started.api.release_contexts();
}
