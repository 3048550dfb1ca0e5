//! Gives the shared object the soname of NCCL.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnccl.so.2");
    println!("cargo::rerun-if-changed=build.rs");
}
