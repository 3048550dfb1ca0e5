//! Simulated machines for tests: the driver of one, and what must be left of it when a test ends.
//!
//! # Safety
//! One unsafe operation: the table of the simulated driver is taken as a driver's functions, which they are.
#![expect(unsafe_code, reason = "makes a driver of a table of functions")]

use cuda_sim::{LiveHandles, Machine};
use cuda_sys::{Driver, LoadError};

/// The simulated driver as a table in this process; calls go to the machine bound to the calling thread.
///
/// # Errors
/// The bound machine refuses to tell its version, as with an injected fault.
pub fn table_driver() -> Result<Driver, LoadError> {
    // SAFETY: the simulator's functions have the signatures and duties of the driver's, and live as long as the process.
    unsafe { Driver::from_functions(cuda_sim::functions()) }
}

/// What a test left behind on a machine, contexts aside; empty when it cleaned up.
#[must_use]
pub fn leftovers(machine: &Machine) -> Vec<String> {
    let LiveHandles {
        allocations,
        pinned,
        streams,
        events,
        graphs,
        graph_execs,
        modules,
        memory_handles,
        reservations,
        pools,
        ..
    } = machine.live();
    let counts = [
        ("allocations", allocations),
        ("pinned ranges", pinned),
        ("streams", streams),
        ("events", events),
        ("graphs", graphs),
        ("executable graphs", graph_execs),
        ("modules", modules),
        ("memory handles", memory_handles),
        ("reservations", reservations),
        ("pools", pools),
    ];
    counts.into_iter().filter(|&(_, count)| count != 0).map(|(what, count)| format!("{count} {what}")).collect()
}
