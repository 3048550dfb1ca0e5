//! Memory that calls to cuBLAS and cuBLASLt may use while they run.
//!
//! Each pair of a handle and a stream has a workspace of the caching allocator, from the first call on until
//! [`Workspaces::clear`]; so it is seen in the memory statistics, as torch's is. Work that a graph captures gets memory of
//! the graph's own pool instead, so that a replay shares it with nobody.
//!
//! **Invariant:** a workspace is allocated on the stream that uses it, so that memory given back is not used by others
//! before the calls are done.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use c10_core::{DetachedBuffer, Device, DeviceBuffer, DeviceIndex};

use crate::base::error::Result;

/// Bytes of a workspace where nothing else is said, before and from compute capability 9.0.
const DEFAULT_BYTES: usize = (4096 * 2 + 16 * 8) << 10;
const DEFAULT_BYTES_9_0: usize = 32 << 20;
/// KiB of a workspace of cuBLASLt where nothing else is said.
const DEFAULT_LT_KIB: usize = 1024;
/// A workspace that does not fit into memory is tried at a quarter of its size, down to this.
const LEAST_BYTES: usize = 64 << 10;

/// Which library a workspace is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::blas) enum Purpose {
    Cublas,
    CublasLt,
}

/// The workspaces of a runtime.
#[derive(Debug, Default)]
pub(in crate::blas) struct Workspaces {
    kept: Mutex<HashMap<Key, DetachedBuffer>>,
    /// Counts how often they were given back.
    generation: Generation,
}

/// A count of what makes handles and workspaces that were handed out hold no more.
#[derive(Clone, Debug, Default)]
pub(in crate::blas) struct Generation(Arc<AtomicU64>);

impl Generation {
    #[inline]
    pub(in crate::blas) fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// What was handed out before holds no more.
    fn advance(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Whose a workspace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) purpose: Purpose,
    pub(super) device: DeviceIndex,
    pub(super) handle: usize,
    pub(super) stream: usize,
}

impl Workspaces {
    /// Changes when workspaces were given back, so that what was handed out before holds no more.
    pub(in crate::blas) fn generation(&self) -> &Generation {
        &self.generation
    }

    /// Has handles be looked for anew, after the libraries were changed.
    pub(super) fn forget_handles(&self) {
        self.generation.advance();
    }

    /// The workspace of a handle and the current stream.
    pub(super) fn get(&self, key: Key, bytes: usize) -> Result<DetachedBuffer> {
        if let Some(known) = self.kept().get(&key) {
            return Ok(known.clone());
        }
        let made = allocate(key.device, bytes)?.detach();
        Ok(self.kept().entry(key).or_insert(made).clone())
    }

    /// Gives all of them back.
    pub(in crate::blas) fn clear(&self) {
        let kept = std::mem::take(&mut *self.kept());
        self.generation.advance();
        // Dropped outside the lock, since that gives memory back.
        drop(kept);
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<Key, DetachedBuffer>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory on the current stream; less than asked for where there is not enough.
pub(super) fn allocate(device: DeviceIndex, bytes: usize) -> Result<DeviceBuffer> {
    let mut bytes = bytes;
    loop {
        match DeviceBuffer::new(bytes, Device::cuda(device)) {
            Err(error) if error.is_out_of_memory() && bytes / 4 >= LEAST_BYTES => bytes /= 4,
            allocated => return Ok(allocated?),
        }
    }
}

/// Bytes of a workspace of cuBLAS on a device of this major compute capability (`CUBLAS_WORKSPACE_CONFIG`).
pub(in crate::blas) fn cublas_bytes(major: i32) -> usize {
    static CONFIGURED: OnceLock<Option<usize>> = OnceLock::new();
    let default = if major == 9 { DEFAULT_BYTES_9_0 } else { DEFAULT_BYTES };
    let configured = CONFIGURED.get_or_init(|| {
        let text = std::env::var("CUBLAS_WORKSPACE_CONFIG").ok()?;
        let bytes = parse(&text);
        if bytes.is_none() {
            let text = "Could not parse CUBLAS_WORKSPACE_CONFIG, using default workspace size of";
            crate::blas::warn(&format!("{text} {default} bytes."));
        }
        bytes
    });
    configured.unwrap_or(default)
}

/// Bytes of a workspace of cuBLASLt (`CUBLASLT_WORKSPACE_SIZE`, in KiB): at most those of cuBLAS, as torch has it.
pub(in crate::blas) fn lt_bytes(major: i32) -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    let most = cublas_bytes(major);
    let asked = *BYTES.get_or_init(|| {
        let kib = std::env::var("CUBLASLT_WORKSPACE_SIZE").ok().and_then(|text| text.trim().parse().ok());
        let asked = kib.unwrap_or(DEFAULT_LT_KIB).saturating_mul(1024);
        if asked > most {
            crate::blas::warn(&format!(
                "Requested unified CUBLASLT workspace size of {asked} bytes exceeds CUBLAS workspace size of {most} \
                 bytes. Please increase CUBLAS workspace size via CUBLAS_WORKSPACE_CONFIG or decrease requested \
                 CUBLASLT_WORKSPACE_SIZE. Otherwise CUBLASLT workspace size will be limited to the CUBLAS workspace \
                 size."
            ));
        }
        asked
    });
    asked.min(most)
}

/// The bytes that a text of the form `:SIZE:COUNT:SIZE:COUNT` asks for, sizes in KiB; text between pairs is skipped, as
/// torch does. `None` where there is no pair.
fn parse(text: &str) -> Option<usize> {
    let mut total: Option<usize> = None;
    let mut rest = text;
    while let Some(at) = rest.find(':') {
        rest = &rest[at..];
        match pair(rest) {
            Some((size, count, after)) => {
                let bytes = size.checked_mul(1024).and_then(|bytes| bytes.checked_mul(count));
                total = Some(total.unwrap_or(0).saturating_add(bytes.unwrap_or(usize::MAX)));
                rest = after;
            }
            None => rest = &rest[1..],
        }
    }
    total
}

/// `:SIZE:COUNT` at the beginning, and what follows it.
fn pair(text: &str) -> Option<(usize, usize, &str)> {
    let (size, text) = number(text.strip_prefix(':')?)?;
    let (count, text) = number(text.strip_prefix(':')?)?;
    Some((size, count, text))
}

fn number(text: &str) -> Option<(usize, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_configuration_is_a_list_of_sizes_and_counts() {
        assert_eq!(parse(":4096:2:16:8"), Some(8_519_680));
        assert_eq!(parse(":4096:8"), Some(32 << 20));
        assert_eq!(parse(":16:8"), Some(128 << 10));
        assert_eq!(parse("x:1:2y:3:4"), Some(14 << 10));
        for wrong in ["", "abc", "4096:8", ":4096", ":4096:", "::"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
