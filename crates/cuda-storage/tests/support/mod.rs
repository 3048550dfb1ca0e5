//! Files of a test in a folder of its own, and bytes that tell where they belong.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aten_cuda::Storage;
use testkit::SimulatedRuntime;

/// A simulated machine that the threads of a transfer find, too. Tests take turns with it.
pub(crate) struct Simulated {
    pub(crate) runtime: SimulatedRuntime,
    _turn: MutexGuard<'static, ()>,
}

/// A machine of its own for a test.
pub(crate) fn simulated() -> Simulated {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = testkit::simulated_runtime();
    runtime.machine().make_default();
    Simulated { runtime, _turn: turn }
}

/// A folder that is removed with what is in it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// On the disk where tests are built, which has `O_DIRECT` where a disk has it.
    pub(crate) fn new(name: &str) -> Self {
        Self::beneath(PathBuf::from(env!("CARGO_TARGET_TMPDIR")), name)
    }

    /// In some other folder.
    pub(crate) fn beneath(folder: PathBuf, name: &str) -> Self {
        let folder = folder.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        Self(folder)
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes that differ from place to place, and from seed to seed.
pub(crate) fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| step()).collect()
}

/// A storage on the current device with these bytes.
pub(crate) fn on_device(bytes: &[u8]) -> Storage {
    let storage = Storage::new(bytes.len(), "cuda".parse().expect("a device")).expect("there is memory");
    storage.buffer().expect("a device's").copy_from_slice(0, bytes).expect("they fit");
    storage
}

/// The bytes of a storage on a device.
pub(crate) fn read_back(storage: &Storage) -> Vec<u8> {
    storage.buffer().expect("a device's").to_vec().expect("the device works")
}
