//! Events of the driver: queues of those that were recorded, and stocks of spare ones.

pub(crate) mod queue;
pub(crate) mod stock;
