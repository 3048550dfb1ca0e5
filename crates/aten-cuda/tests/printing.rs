//! Tensors as torch prints them.

use aten_cuda::{DType, Result, Tensor};

#[test]
fn whole_numbers_and_fractions() -> Result<()> {
    let row = |numbers: &[f32]| Tensor::from_slice(numbers, &[i64::try_from(numbers.len()).unwrap_or(0)]);
    assert_eq!(row(&[1.0, -2.0, 10.0])?.to_string(), "tensor([ 1., -2., 10.])");
    assert_eq!(row(&[1.0, 2.5])?.to_string(), "tensor([1.0000, 2.5000])");
    assert_eq!(row(&[0.0, f32::NAN, f32::NEG_INFINITY])?.to_string(), "tensor([0., nan, -inf])");
    assert_eq!(row(&[1e-5, 1.0, f32::INFINITY])?.to_string(), "tensor([1.0000e-05, 1.0000e+00,        inf])");
    assert_eq!(Tensor::from_scalar(3.5)?.to_string(), "tensor(3.5000)");
    assert_eq!(Tensor::from_bools(&[true, false], &[2])?.to_string(), "tensor([ True, False])");
    Ok(())
}

#[test]
fn lines_break_at_eighty_columns() -> Result<()> {
    let text = Tensor::arange(0, 30, 1, None, "cpu")?.to_string();
    let expected = "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n        \
                    18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])";
    assert_eq!(text, expected);
    Ok(())
}

#[test]
fn long_tensors_show_their_ends() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let tensor = Tensor::arange(0, 2 * 1001, 1, Some(DType::I32), "cuda")?.view(&[2, 1001])?;
    let expected = "tensor([[   0,    1,    2,  ...,  998,  999, 1000],\n        \
                    [1001, 1002, 1003,  ..., 1999, 2000, 2001]], device='cuda:0',\n       dtype=torch.int32)";
    assert_eq!(tensor.to_string(), expected);
    assert_eq!(format!("{tensor:?}"), expected);
    Ok(())
}

#[test]
fn what_is_empty_tells_its_sizes() -> Result<()> {
    assert_eq!(Tensor::empty(&[0], DType::F32, "cpu")?.to_string(), "tensor([])");
    assert_eq!(Tensor::empty(&[2, 0], DType::I64, "cpu")?.to_string(), "tensor([], size=(2, 0), dtype=torch.int64)");
    Ok(())
}

#[test]
fn more_dimensions_leave_lines_between() -> Result<()> {
    let tensor = Tensor::arange(0, 8, 1, None, "cpu")?.view(&[2, 2, 2])?;
    assert_eq!(tensor.to_string(), "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]])");
    Ok(())
}
