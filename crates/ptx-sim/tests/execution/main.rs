//! What kernels do when they run, and which texts are refused.
//!
//! One program, since each that runs kernels has the interpreter compiled once more, for its own kind of memory.

mod checks;
mod hardware;
mod instructions;
mod kernels;
mod modules;
mod support;
mod warps;
mod wmma;
