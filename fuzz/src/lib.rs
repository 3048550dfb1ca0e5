//! Fuzz bodies: plain functions that take bytes and check what must hold for any bytes.
//!
//! A body never looks at the clock, at the environment or at anything but its input, so that a failure is repeated by
//! the input alone. The runner (`src/main.rs`) needs no special compiler: it runs each input of the corpus, then inputs
//! made from it by `mutate`, in an order that follows from a seed.

pub mod bodies;
pub mod input;
pub mod mutate;
