//! Gives the shared object the soname of cuBLAS.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcublas.so.13");
    println!("cargo::rerun-if-changed=build.rs");
}
