//! A child forked after the runtime has started is told so, and cleans up without a call. Alone in its process.
//!
//! # Safety
//! Forks, waits and ends the child through C; the child calls nothing that another thread of the parent could hold.
#![expect(unsafe_code, reason = "fork and exit are C functions")]

mod common;

use std::io::Read;
use std::os::unix::net::UnixStream;

use c10_core::{Error, Event, FigureExport, HistoryOptions, Runtime, StartError, TraceKinds};
use common::{DEVICE, rig};

/// What the child sees; 0 when all is as it should be.
fn child(runtime: &Runtime, buffer: c10_core::DeviceBuffer, event: Event, export: FigureExport) -> i32 {
    // Torch's first sentence; its advice is about Python.
    let text = "Cannot re-initialize CUDA in forked subprocess. The driver does not work in a child";
    let refused = runtime.current_device();
    let checks = [
        refused == Err(Error::Start(StartError::BadFork)),
        refused.is_err_and(|error| error.to_string().starts_with(text)),
        !runtime.is_initialized(),
        runtime.device_count() == 1,
        runtime.memory().empty_cache() == Ok(()),
        runtime.init() == Err(Error::Start(StartError::BadFork)),
        runtime.streams().pooled(DEVICE, 0).is_err(),
        buffer.copy_from_slice(0, &[1]) == Err(Error::Start(StartError::BadFork)),
        Runtime::is_in_bad_fork(),
        buffer.share() == Err(Error::Start(StartError::BadFork)),
        runtime.ipc().collect() == Err(Error::Start(StartError::BadFork)),
        runtime.is_available(),
        runtime.set_device(DEVICE) == Err(Error::Start(StartError::BadFork)),
        runtime.maybe_exchange_device(DEVICE) == Err(Error::Start(StartError::BadFork)),
        runtime.devices().can_access_peer(DEVICE, DEVICE) == Err(Error::Start(StartError::BadFork)),
        runtime.memory().record_history(None) == Err(Error::Start(StartError::BadFork)),
        runtime.memory().take_snapshot(None, true).is_err_and(|error| error == Error::Start(StartError::BadFork)),
        runtime.sync_debug().set(1) == Err(Error::Start(StartError::BadFork)),
        runtime.sync_debug().mode() == Err(Error::Start(StartError::BadFork)),
        runtime.cudart().is_err_and(|error| error == Error::Start(StartError::BadFork)),
        c10_core::check_error(0) == Ok(()),
        runtime.streams().current(DEVICE) == Err(Error::Start(StartError::BadFork)),
        runtime.device_guard(DEVICE).is_err(),
        event.record(None) == Err(Error::Start(StartError::BadFork)),
        event.query() == Err(Error::Start(StartError::BadFork)),
        event.wait(None) == Err(Error::Start(StartError::BadFork)),
        event.synchronize() == Err(Error::Start(StartError::BadFork)),
        runtime.export_figures().is_err_and(|error| error == Error::Start(StartError::BadFork)),
        runtime.figures_text().is_ok_and(|text| !text.contains("device=")),
    ];
    drop((buffer, event, export));
    checks.iter().position(|passed| !passed).map_or(0, |failed| i32::try_from(failed).map_or(99, |failed| failed + 1))
}

fn runtime_listens(runtime: &Runtime) {
    assert_eq!(runtime.memory().record_history(Some(&HistoryOptions::default())), Ok(()));
    runtime.subscribe(TraceKinds::ALL, |_| assert!(!Runtime::is_in_bad_fork(), "a child reports"));
}

#[test]
fn a_forked_child_is_refused() {
    let rig = rig();
    let buffer = rig.runtime.memory().buffer(100, &rig.stream()).unwrap();
    let event = rig.stream().record_event().unwrap();
    let export = rig.runtime.export_figures().unwrap();
    // The child drops what is inherited while somebody listens.
    runtime_listens(&rig.runtime);
    // SAFETY: the child calls only code that takes no lock another thread could hold, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let failed = child(&rig.runtime, buffer, event, export);
        // SAFETY: ends the child at once, as it should end after a fork.
        unsafe { libc::_exit(failed) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(waited, pid);
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "number of the first check that failed");
    drop((buffer, event));
    let mut told = String::new();
    UnixStream::connect(export.socket()).unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("device=\"0\""), "the parent goes on exporting");
    assert!(rig.runtime.is_valid());
    rig.runtime.memory().empty_cache().unwrap();
}
