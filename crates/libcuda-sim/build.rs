//! Gives the shared object the soname of the driver's library.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
