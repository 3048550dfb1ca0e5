//! What every layer speaks of: devices, errors, options, the process.

pub(crate) mod arch;
pub(crate) mod config;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod handles;
pub mod host_memory;
pub(crate) mod ids;
pub(crate) mod linking;
pub(crate) mod links;
pub(crate) mod loading;
pub mod panics;
pub(crate) mod pointer;
pub(crate) mod process;
pub(crate) mod readings;
pub(crate) mod size;
pub(crate) mod stat;
pub(crate) mod tensor_map;
pub(crate) mod uuid;
pub(crate) mod visible;
pub(crate) mod warning;
