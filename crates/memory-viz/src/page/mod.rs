//! The viewer: one HTML file with everything in it.
