//! Arithmetic against plain computations that share nothing with it.
