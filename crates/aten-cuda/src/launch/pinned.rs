//! Programs on the host over pinned memory: they run over copies, and what they have changed is written back.
//!
//! A program goes through its operands many times, and pinned memory is read and written by copies, so the copies are
//! made once.

use crate::base::error::Result;
use crate::storage::Storage;
use crate::tensor::Tensor;

/// Whether a program has to run over copies.
pub(super) fn is_any_pinned(tensors: &[&Tensor]) -> bool {
    tensors.iter().any(|tensor| tensor.storage().pinned().is_some())
}

/// Runs with copies in place of tensors in pinned memory; tensors that share memory share the copy.
pub(super) fn run(tensors: &[&Tensor], run: impl FnOnce(&[&Tensor]) -> Result<()>) -> Result<()> {
    let mut copies: Vec<(&Storage, Storage)> = Vec::new();
    for storage in tensors.iter().map(|tensor| tensor.storage()).filter(|storage| storage.pinned().is_some()) {
        if !copies.iter().any(|(known, _)| known.is_same(storage)) {
            copies.push((storage, storage.copied_to_host()?));
        }
    }
    let in_copies = |tensor: &Tensor| {
        let copy = copies.iter().find(|(known, _)| known.is_same(tensor.storage()));
        copy.map_or_else(|| Ok(tensor.clone()), |(_, copy)| tensor.over(copy.clone()))
    };
    let moved: Vec<Tensor> = tensors.iter().map(|tensor| in_copies(tensor)).collect::<Result<_>>()?;
    run(&moved.iter().collect::<Vec<_>>())?;
    for (storage, copy) in &copies {
        storage.host_mut()?.copy_from_slice(&copy.host()?);
    }
    Ok(())
}
