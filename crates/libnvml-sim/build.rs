//! Gives the shared object the soname of NVML's library.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
