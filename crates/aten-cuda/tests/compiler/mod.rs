//! NVRTC for tests: the one that `CUDA_SYS_LIBNVRTC` names, else the one that `cargo xtask kernels` has fetched.

use std::path::{Path, PathBuf};

use cuda_sys::Nvrtc;

/// The compiler for the runtime that is bound to this thread, and compiled code kept in a folder of the test; `None` where
/// there is no compiler, after saying so.
pub(crate) fn compiler() -> Option<()> {
    let Some(library) = library() else {
        assert!(
            std::env::var_os("ATEN_CUDA_NEEDS_NVRTC").is_none(),
            "NVRTC is wanted, and is neither named by CUDA_SYS_LIBNVRTC nor in {}",
            fetched().display()
        );
        println!("skipped: no NVRTC; `cargo xtask kernels` fetches it into {}", fetched().display());
        return None;
    };
    aten_cuda::raw::set_compiler(Some(library));
    Some(())
}

/// Where the wheels of NVRTC are unpacked, each in a folder of its own.
fn fetched() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target folder").join("kernels")
}

fn library() -> Option<Nvrtc> {
    if std::env::var_os("CUDA_SYS_LIBNVRTC").is_some_and(|path| !path.is_empty()) {
        return Some(Nvrtc::load().expect("the library that CUDA_SYS_LIBNVRTC names"));
    }
    let folders = std::fs::read_dir(fetched()).ok()?.flatten();
    let path =
        folders.map(|folder| folder.path().join("nvidia/cu13/lib/libnvrtc.so.13")).find(|path| path.is_file())?;
    Some(Nvrtc::load_from(path).expect("a library of the wheel"))
}
