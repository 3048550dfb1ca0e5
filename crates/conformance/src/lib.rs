//! The conformance suite of the CUDA driver's C interface.
//!
//! A [`Case`] is a small program of driver calls that says which answer each call must give. The expected answers are
//! those of real hardware; where another driver differs, that driver is wrong. Cases know nothing of the driver they
//! run on, and each leaves it as it was.
//!
//! [`common_codes`] asks every function of simulated machines what it answers when what it needs is missing.
//!
//! An *arm* is one way to reach a driver: a function table in this process, a shared object opened by its path, or
//! the system's own driver. The arms differ only in how they make a [`cuda_sys::Driver`]; [`run_case`] does the rest.
//!
//! # Safety
//! Calling raw driver functions is what this module is for. Each body passes pointers to variables that outlive the
//! call, and handles it made itself; where it passes a bad handle or pointer on purpose, the case exists because real
//! drivers answer that with an error.
#![expect(unsafe_code, reason = "calls the driver's raw functions, wrong arguments included")]

/// README examples, run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

mod case;
mod code;
#[macro_use]
mod cuda;
mod kit;
mod prelude;
mod right;
mod zero;

mod blank;
mod callback;
mod capture;
mod capture_control;
mod conditional;
mod context;
mod cooperative;
mod copy;
mod device;
mod event;
mod fat;
mod forbidden;
mod function;
mod graph;
mod graph_exec;
mod green;
mod heap;
mod host;
mod ipc;
mod kernel;
mod kernel_nodes;
mod library;
mod limits;
mod link;
mod managed;
mod memory;
mod memory_nodes;
mod module;
mod occupancy;
mod peer;
mod pool;
mod ptx;
mod set;
mod stream;
mod usage;
mod user_object;
mod version;
mod vmm;

pub mod common_codes;

pub use blank::{Blank, call_with_zeros};
pub use case::{Body, Case, Enter, Needs, Outcome, run_case};
pub use cuda::{CaseResult, Cuda, Stop};
pub use right::{Handles, call_rightly};
pub use usage::{Situation, Usage};

/// Every case, in the order in which to run them: those that want an uninitialised driver come first, then those that
/// want the primary contexts inactive. A case with a context leaves it retained, since making one is slow.
#[must_use]
pub fn all_cases() -> Vec<Case> {
    let areas: &[&[Case]] = &[
        memory::CASES,
        memory::POINTER_CASES,
        host::CASES,
        copy::CASES,
        set::CASES,
        stream::CASES,
        event::CASES,
        callback::CASES,
        capture::CASES,
        capture_control::CASES,
        forbidden::CASES,
        device::CASES,
        device::PAIR_CASES,
        context::CASES,
        context::PRIMARY_CASES,
        version::CASES,
        version::UNINITIALIZED_CASES,
        graph::CASES,
        graph_exec::CASES,
        green::CASES,
        green::ID_CASES,
        green::SIMULATED_CASES,
        green::PRIMARY_CASES,
        conditional::CASES,
        conditional::SIMULATED_CASES,
        vmm::CASES,
        pool::CASES,
        peer::CASES,
        ipc::CASES,
        memory_nodes::CASES,
        module::CASES,
        module::PARAMETER_CASES,
        module::SIMULATED_CASES,
        function::CASES,
        function::NAME_CASES,
        function::COUNT_CASES,
        function::SIMULATED_CASES,
        kernel::CASES,
        kernel::SIMULATED_CASES,
        kernel_nodes::CASES,
        kernel_nodes::SIMULATED_CASES,
        user_object::CASES,
        user_object::SIMULATED_CASES,
        heap::CASES,
        heap::SIMULATED_CASES,
        managed::CASES,
        managed::NO_CONTEXT_CASES,
        managed::SIMULATED_CASES,
        cooperative::CASES,
        cooperative::SIMULATED_CASES,
        occupancy::CASES,
        occupancy::SIMULATED_CASES,
        library::CASES,
        library::NAME_CASES,
        library::SIMULATED_CASES,
        library::PAIR_CASES,
        link::CASES,
        link::SIMULATED_CASES,
        fat::CASES,
        fat::ZSTD_CASES,
        fat::SIMULATED_CASES,
        limits::CASES,
        limits::SIMULATED_CASES,
    ];
    let mut cases: Vec<Case> = areas.iter().flat_map(|area| area.iter().copied()).collect();
    cases.extend(blank::cases());
    cases.extend(usage::cases());
    cases.sort_by_key(|case| (!case.needs.before_init, case.needs.context));
    cases
}
