//! Events of the driver that are kept to be used again.

pub(crate) mod stock;
