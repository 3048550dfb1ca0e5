//! What a started runtime keeps: streams, captures, modules, peers, and what waits to be destroyed.

pub(crate) mod captures;
pub(crate) mod deferred_destroy;
pub(crate) mod graph_events;
pub(crate) mod green_contexts;
pub(crate) mod holds;
pub(crate) mod ipc;
pub(crate) mod launches;
pub(crate) mod modules;
pub(crate) mod nvml;
pub(crate) mod observers;
pub(crate) mod peer;
pub(crate) mod pool_pinned;
pub(crate) mod pool_routes;
pub(crate) mod stream_pools;
pub(crate) mod sync_debug;
pub(crate) mod wakers;
