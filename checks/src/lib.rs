//! Models of what threads share; they are this package's tests.
//!
//! A package of its own, outside the default members, so that nobody builds a model checker who does not run one:
//! `cargo xtask check` does.
//!
//! The runtime's own locks are ordinary ones, held for the length of one call and never while another thread could be
//! scheduled here. So a model schedules whole calls: it finds what depends on the order of calls, such as a block given
//! back by another thread while its stream still uses it, and not what depends on the order of memory accesses.
#![forbid(unsafe_code)]
