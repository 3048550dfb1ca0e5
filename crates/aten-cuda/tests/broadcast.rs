//! Operands that are rows: broadcast along rows or columns, padded and cut, at aligned and odd places. What a simulated
//! device computes of them is what the host computes, bit by bit, and nothing beside the result is written.

use aten_cuda::{DType, Result, Tensor};

/// Numbers from one on, as a tensor of these sizes.
fn counted(sizes: &[i64], dtype: DType) -> Result<Tensor> {
    let numel: i64 = sizes.iter().product();
    let numbers: Vec<f64> = (0..numel).map(|at| f64::from(i32::try_from(at % 113).expect("it fits")) + 1.0).collect();
    Tensor::from_slice(&numbers, sizes)?.to_dtype(dtype)
}

/// The same on the host and on the device.
fn same(what: &str, compute: impl Fn(&dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor>) {
    let host = compute(&|tensor| Ok(tensor.clone())).unwrap_or_else(|error| panic!("{what}: {error}"));
    let device = compute(&|tensor| tensor.cuda(None)).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((host.sizes(), host.strides()), (device.sizes(), device.strides()), "{what}");
    let bytes = |tensor: &Tensor| tensor.to_bytes().expect("it succeeds");
    assert!(bytes(&host) == bytes(&device), "{what}");
}

const DTYPES: [DType; 5] = [DType::F32, DType::BF16, DType::F64, DType::U8, DType::I64];

#[test]
fn rows_and_columns_are_repeated() {
    let _simulated = testkit::simulated_runtime();
    for dtype in DTYPES {
        for (rows, columns) in [(1, 1), (3, 16), (5, 17), (2, 3), (130, 4), (7, 129), (1, 1000), (33, 40), (600, 1)] {
            let all = counted(&[rows, columns], dtype).expect("it succeeds");
            let (row, column) = (counted(&[columns], dtype), counted(&[rows, 1], dtype));
            let (row, column) = (row.expect("it succeeds"), column.expect("it succeeds"));
            let what = format!("[{rows}, {columns}] of {dtype}");
            same(&format!("{what} and a row"), |on| on(&all)?.add(&on(&row)?));
            same(&format!("{what} and a column"), |on| on(&all)?.sub(&on(&column)?));
            same(&format!("a row and a column to {what}"), |on| on(&row)?.mul(&on(&column)?));
            same(&format!("{what} and one element"), |on| on(&all)?.add(&on(&row)?.narrow(0, 0, 1)?));
            let question = |on: &dyn Fn(&Tensor) -> Result<Tensor>| on(&row)?.lt(&on(&all)?);
            same(&format!("{what} compared with a row"), question);
        }
    }
}

#[test]
fn rows_are_padded_and_cut() {
    let _simulated = testkit::simulated_runtime();
    for dtype in DTYPES {
        for (rows, columns, first, length) in
            [(9, 64, 0, 48), (9, 64, 16, 33), (9, 64, 1, 48), (70, 17, 4, 9), (4, 300, 0, 299)]
        {
            let all = counted(&[rows, columns], dtype).expect("it succeeds");
            let row = counted(&[length], dtype).expect("it succeeds");
            let what = format!("columns {first} to {} of [{rows}, {columns}] of {dtype}", first + length);
            same(&what, |on| on(&all)?.narrow(1, first, length)?.add(&on(&row)?));
            same(&format!("{what}, copied"), |on| on(&all)?.narrow(1, first, length)?.contiguous());
            same(&format!("{what}, in place"), |on| {
                let whole = on(&all)?.copy()?;
                whole.narrow(1, first, length)?.add_(&on(&row)?)?;
                Ok(whole)
            });
        }
    }
}

#[test]
fn more_dimensions_are_repeated() {
    let _simulated = testkit::simulated_runtime();
    let sizes = [5, 3, 4, 24];
    let all = counted(&sizes, DType::F32).expect("it succeeds");
    for repeated in 0..16 {
        let own: Vec<i64> = (0..4).map(|dim| if repeated >> dim & 1 == 1 { 1 } else { sizes[dim] }).collect();
        let other = counted(&own, DType::F32).expect("it succeeds");
        same(&format!("{own:?}"), |on| on(&all)?.mul(&on(&other)?));
        same(&format!("{own:?}, turned"), |on| on(&all)?.transpose(0, 2)?.sub(&on(&other)?.transpose(0, 2)?));
    }
}
