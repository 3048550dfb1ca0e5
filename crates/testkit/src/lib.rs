//! What the tests of several crates share; never a dependency of anything shipped.
//!
//! [`conformance`] is the suite of the driver's C interface: the same bodies run on the simulated machine, through
//! its shared object and on a real GPU. [`common`] asks every function of simulated machines what it answers when what
//! it needs is missing. [`machine`] makes simulated machines for tests, [`trace`] reads recorded allocation traces,
//! [`script`] recorded allocator scripts.

pub mod common;
pub mod conformance;
pub mod machine;
pub mod script;
pub mod trace;
