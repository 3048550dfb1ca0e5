//! What users of this crate hold and call.

pub(crate) mod any_event;
pub(crate) mod arg;
pub(crate) mod buffers;
pub(crate) mod code_check;
pub(crate) mod cudart;
pub(crate) mod display;
pub(crate) mod event;
pub(crate) mod figures;
pub(crate) mod graph;
pub(crate) mod graphed;
pub(crate) mod green_context;
pub(crate) mod guard;
pub(crate) mod ipc;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod mem_pool;
pub(crate) mod memory;
pub(crate) mod nvml;
pub(crate) mod out_of_memory;
pub(crate) mod pinned;
pub(crate) mod pointer;
pub(crate) mod pool_routes;
pub(crate) mod properties;
pub(crate) mod restore;
pub(crate) mod stream;
pub(crate) mod sync_debug;
