//! Placeholder until the first real lines arrive.
fn main() {}
