//! The runtime as a value: its handle, its start and its end.

pub(crate) mod handle;
pub(crate) mod home;
pub(crate) mod lazy;
