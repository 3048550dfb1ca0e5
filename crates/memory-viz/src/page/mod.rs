//! The viewer: one HTML file with the snapshot, the program that shows it, and nothing that has to be fetched.
//!
//! The history travels as numbers of few bytes (`pack`), which a worker in the page unpacks; only names and tables
//! that people read travel as JSON. The program and its looks are the files of `viewer/`.

mod html;
mod pack;

pub use html::{Page, page};
