//! Events of the driver: queues of those that were recorded, and those that are kept to be used again.

pub(crate) mod queue;
pub(crate) mod stock;
