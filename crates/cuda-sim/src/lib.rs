//! Placeholder until the first real lines arrive.
