//! Makes the shared object depend on `libcuda.so.1`, so that whoever looks up a function in it that it does not have finds
//! the driver's.
//!
//! The driver need not be on the machine that builds: the linker is given an empty library of that name.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = std::env::var("OUT_DIR").expect("cargo names a folder");
    let empty = Path::new(&folder).join("libcuda.so.1");
    // The compiler that Rust links with.
    let made = Command::new("cc")
        .args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(&empty)
        .status();
    assert!(made.is_ok_and(|status| status.success()), "`cc` cannot make a shared library");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--no-as-needed");
    println!("cargo::rustc-cdylib-link-arg={}", empty.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda_caching.so");
}
