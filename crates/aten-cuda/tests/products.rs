//! Products of matrices on the simulated device against the host: all ways that factors lie, sizes that cut tiles, what
//! is added, batches. Elements are small whole numbers, whose sums every dtype here has exactly, so that the order of
//! additions cannot show.

mod common;

use aten_cuda::{DType, Result, Tensor};
use common::{numbers, on_both};

/// A matrix of numbers from -2 to 2, which begins `gap` elements behind the start of its storage and has as many after
/// each line; its lines lie along the second dimension or along the first.
fn matrix(sizes: [i64; 2], gap: i64, turned: bool, dtype: DType) -> Result<Tensor> {
    let [rows, columns] = if turned { [sizes[1], sizes[0]] } else { sizes };
    let all = numbers(gap + rows * (columns + gap), 5)?.sub(2)?.to_dtype(dtype)?;
    let lines = all.narrow(0, gap, rows * (columns + gap))?.view(&[rows, columns + gap])?.narrow(1, 0, columns)?;
    if turned { lines.t() } else { Ok(lines) }
}

/// `a @ b` with `b` in the storage behind `a`, so that both travel together.
fn product_of(a: &Tensor, b: &Tensor) -> Result<()> {
    on_both(a, |a| {
        let b = if a.device() == b.device() { b.clone() } else { there(b)? };
        Ok(vec![a.mm(&b)?])
    })
}

/// A host tensor with its layout on the device.
fn there(tensor: &Tensor) -> Result<Tensor> {
    let bytes = i64::try_from(tensor.storage().nbytes()).unwrap_or(0);
    let whole = Tensor::from_storage(tensor.storage().clone(), DType::U8, &[bytes], &[1], 0)?.cuda(None)?;
    let (sizes, strides) = (tensor.sizes(), tensor.strides());
    Tensor::from_storage(whole.storage().clone(), tensor.dtype(), sizes, strides, tensor.storage_offset())
}

#[test]
fn factors_of_all_layouts() -> Result<()> {
    let dtypes = [DType::F16, DType::BF16, DType::F32, DType::C64];
    for (dtype, [m, k, n]) in dtypes.into_iter().flat_map(|dtype| [(dtype, [72, 80, 136]), (dtype, [65, 71, 67])]) {
        for (turned_a, turned_b) in [(false, false), (false, true), (true, false), (true, true)] {
            for gap in [0, 8, 3] {
                let a = matrix([m, k], gap, turned_a, dtype)?;
                let b = matrix([k, n], gap, turned_b, dtype)?;
                product_of(&a, &b)?;
            }
        }
    }
    Ok(())
}

/// So many tiles that halves take the large ones: cut at the bottom and at the right, and more tiles down than a band
/// has.
#[test]
fn products_of_many_tiles() -> Result<()> {
    for (dtype, [m, k, n]) in [(DType::BF16, [1290, 17, 2060]), (DType::F16, [1100, 130, 2304])] {
        product_of(&matrix([m, k], 0, false, dtype)?, &matrix([k, n], 0, false, dtype)?)?;
    }
    let (a, b) = (matrix([1288, 24], 0, true, DType::BF16)?, matrix([24, 2056], 0, true, DType::BF16)?);
    product_of(&a, &b)
}

#[test]
fn what_is_added_and_batches() -> Result<()> {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let all = numbers(3 * 40 * 48, 5)?.sub(2)?.to_dtype(dtype)?.view(&[3, 40, 48])?;
        on_both(&all, |all| {
            let (first, turned) = (all.select(0, 0)?, all.transpose(1, 2)?);
            let square = first.mm(&first.t()?)?;
            let repeated = first.narrow(0, 0, 37)?.unsqueeze(0)?.expand(&[3, 37, 48])?;
            let line = all.select(0, 1)?.select(1, 5)?;
            Ok(vec![
                square.addmm(&first, &all.select(0, 2)?.t()?, 2, 0.5)?,
                line.addmm(&first, &first.t()?, -1, 1)?,
                square.addmm(&first.narrow(1, 0, 0)?, &first.t()?.narrow(0, 0, 0)?, 3, 1)?,
                all.bmm(&turned)?,
                repeated.bmm(&turned)?,
                square.unsqueeze(0)?.expand(&[3, 40, 40])?.baddbmm(all, &turned, 1, 2)?,
                first.mv(&all.select(0, 1)?.select(0, 3)?)?,
                line.dot(&all.select(0, 2)?.select(1, 7)?)?,
                first.narrow(1, 1, 47)?.mm(&all.select(0, 1)?.t()?.narrow(0, 1, 47)?)?,
                first.narrow(0, 0, 0)?.mm(&first.t()?)?,
            ])
        })?;
    }
    Ok(())
}

/// A half that is too large for its dtype on the way, but not in the end, is only rounded in the end.
#[test]
fn halves_are_rounded_once() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::from_slice(&[60_000.0_f32, 60_000.0, -60_000.0, 1.0], &[1, 4])?.to_dtype(DType::F16)?.cuda(None)?;
    let ones = Tensor::ones(&[4, 1], DType::F16, "cuda")?;
    assert_eq!(a.mm(&ones)?.to_dtype(DType::F32)?.to_vec::<f32>()?, [60_000.0]);
    Ok(())
}
