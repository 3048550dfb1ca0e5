//! What each C function does, by area. Arguments have passed the C interface (`claim`), the door has been passed, and
//! the machine is locked.
//!
//! A function looks at its arguments in the order in which hardware does, changes the model, and writes its results
//! last.

pub(crate) mod attribute;
mod blocks;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod exec;
mod fat;
pub(crate) mod function;
pub(crate) mod general;
pub(crate) mod graph;
pub(crate) mod graph_memory;
pub(crate) mod green;
pub(crate) mod host;
mod image;
pub(crate) mod ipc;
mod jit;
pub(crate) mod kernel;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod managed;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod node;
pub(crate) mod occupancy;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod set;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod user_object;
pub(crate) mod vmm;
