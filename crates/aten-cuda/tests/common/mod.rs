//! Tensors of all layouts, and comparing results of the simulated device with those of the host.
#![allow(clippy::allow_attributes, dead_code, unreachable_pub, reason = "each test program uses a part of this")]

pub mod operations;

use aten_cuda::{DType, Result, Tensor};

/// Numbers from 0 up to `below`, in no order, as `i64` on the host.
pub fn numbers(count: i64, below: i64) -> Result<Tensor> {
    let numbers: Vec<i64> = random(count).map(|number| number.cast_signed().rem_euclid(below.max(1))).collect();
    Tensor::from_slice(&numbers, &[count])
}

/// Random bits.
pub fn random(count: i64) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    })
}

/// Host tensors of a dtype: one after another, transposed, with gaps, repeated, empty and without dimensions.
pub fn layouts(dtype: DType) -> Result<Vec<Tensor>> {
    let of = |sizes: &[i64]| numbers(sizes.iter().product(), 5)?.view(sizes)?.to_dtype(dtype);
    Ok(vec![
        of(&[1500])?,
        of(&[6, 4, 10])?,
        of(&[7, 33])?.t()?,
        of(&[40, 12])?.slice(0, Some(3), None, 2)?.slice(1, Some(1), None, 3)?,
        of(&[1, 9])?.expand(&[4, 9])?.slice(0, None, None, 1)?,
        of(&[3, 0, 2])?,
        of(&[64, 16])?.narrow(1, 8, 8)?,
    ])
}

/// Runs operations on a host tensor and on its copy on a simulated device, and compares the results.
pub fn on_both(source: &Tensor, run: impl Fn(&Tensor) -> Result<Vec<Tensor>>) -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    // The copy keeps the layout: the storage travels, the view stays.
    let bytes = i64::try_from(source.storage().nbytes()).unwrap_or(0);
    let whole = Tensor::from_storage(source.storage().clone(), DType::U8, &[bytes], &[1], 0)?.cuda(None)?;
    let there = Tensor::from_storage(
        whole.storage().clone(),
        source.dtype(),
        source.sizes(),
        source.strides(),
        source.storage_offset(),
    )?;
    let (host, device) = (run(source)?, run(&there)?);
    assert_eq!(host.len(), device.len());
    for (host, device) in host.iter().zip(&device) {
        assert_same(host, device);
    }
    Ok(())
}

/// The same dtype, sizes, strides and bytes.
#[track_caller]
pub fn assert_same(host: &Tensor, device: &Tensor) {
    let facts = |tensor: &Tensor| (tensor.dtype(), tensor.sizes().to_vec(), tensor.strides().to_vec());
    assert_eq!(facts(host), facts(device));
    let bytes = |tensor: &Tensor| tensor.to_bytes().expect("the elements can be read");
    assert_eq!(bytes(host), bytes(device), "{host}\n{device}");
}
