//! Outputs: memory that they share with inputs, repeated and empty ones, and ones of other sizes.

use aten_cuda::{DType, Dim, Result, Tensor};

const DEVICES: [&str; 2] = ["cpu", "cuda"];

fn matrix(device: &str) -> Result<Tensor> {
    Tensor::arange(0, 12, 1, Some(DType::F32), device)?.view(&[3, 4])
}

fn numbers(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.to_vec()
}

#[test]
fn interleaved_views_are_no_overlap() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for device in DEVICES {
        let x = matrix(device)?;
        x.select(1, 0)?.add_(&x.select(1, 1)?)?;
        assert_eq!(numbers(&x.select(1, 0)?)?, [1.0, 9.0, 17.0]);

        let x = matrix(device)?.flatten()?;
        x.slice(0, None, None, 2)?.mul_(&x.slice(0, Some(1), None, 2)?)?;
        assert_eq!(numbers(&x)?, [0.0, 1.0, 6.0, 3.0, 20.0, 5.0, 42.0, 7.0, 72.0, 9.0, 110.0, 11.0]);

        let x = matrix(device)?;
        x.select(1, 0)?.cumsum_out(0, &x.select(1, 1)?)?;
        assert_eq!(numbers(&x.select(1, 1)?)?, [0.0, 4.0, 12.0]);

        let x = matrix(device)?;
        x.sum_out(1, false, &x.select(1, 0)?)?;
        assert_eq!(numbers(&x.select(1, 0)?)?, [6.0, 22.0, 38.0]);

        // A reduction may write over its input.
        let x = matrix(device)?;
        let out = x.select(0, 0)?.narrow(0, 1, 3)?;
        x.sum_out(1, false, &out)?;
        assert_eq!(numbers(&out)?, [6.0, 22.0, 38.0]);

        // A copy between views that share elements is made by way of another memory.
        let x = matrix(device)?;
        x.narrow(1, 1, 3)?.copy_(&x.narrow(1, 0, 3)?)?;
        assert_eq!(numbers(&x)?, [0.0, 0.0, 1.0, 2.0, 4.0, 4.0, 5.0, 6.0, 8.0, 8.0, 9.0, 10.0]);
    }
    Ok(())
}

#[test]
fn certain_overlaps_are_refused() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let partial = "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single \
                   memory location. Please clone() the tensor before performing the operation.";
    let internal = "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                    location. Please clone() the tensor before performing the operation.";
    for device in DEVICES {
        let x = Tensor::arange(0, 16, 1, Some(DType::F32), device)?.view(&[4, 4])?;
        let text = |result: Result<&Tensor>| result.map(drop).expect_err("it is refused").to_string();
        assert!(text(x.narrow(0, 1, 3)?.add_(&x.narrow(0, 0, 3)?)).contains(partial));
        assert!(text(x.add_(&x.t()?)).contains(partial));
        let expanded = x.narrow(0, 0, 1)?.expand(&[3, 4])?;
        assert!(text(expanded.add_(1)).contains(internal));
        assert!(text(expanded.copy_(&x.narrow(0, 1, 3)?)).contains(internal));
        // Views that are the same are none, with gaps or without.
        x.narrow(0, 0, 2)?.t()?.add_(&x.narrow(0, 0, 2)?.t()?)?;
        x.slice(1, None, None, 2)?.add_(&x.slice(1, None, None, 2)?)?;
        assert_eq!(numbers(&x)?[..6], [0.0, 2.0, 8.0, 6.0, 16.0, 10.0]);
        // A view that repeats elements in a way that is hard to tell stays inside the storage.
        let tangled = x.as_strided(&[3, 4], &[1, 1], Some(0))?;
        tangled.add_(&tangled)?;
        assert_eq!(numbers(&x)?[6..], [24.0, 14.0, 16.0, 9.0, 20.0, 11.0, 24.0, 13.0, 28.0, 15.0]);
    }
    Ok(())
}

#[test]
fn expanded_tensors_are_filled() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for device in DEVICES {
        let x = matrix(device)?;
        let row = x.narrow(0, 1, 1)?;
        row.expand(&[5, 4])?.fill_(7)?;
        assert_eq!(numbers(&x)?[3..9], [3.0, 7.0, 7.0, 7.0, 7.0, 8.0]);
        row.expand(&[1 << 40, 4])?.zero_()?;
        assert_eq!(numbers(&x)?[3..9], [3.0, 0.0, 0.0, 0.0, 0.0, 8.0]);
        let like = row.expand(&[3, 4])?.zeros_like()?;
        assert_eq!((like.sizes(), like.strides(), numbers(&like)?), (&[3, 4][..], &[4, 1][..], vec![0.0; 12]));
        let place = Tensor::from_slice(&[0_i64], &[1])?.to(device)?;
        row.expand(&[5, 4])?.index_put_(&[Some(&place)], &Tensor::from_slice(&[2.0_f32], &[])?.to(device)?, false)?;
        assert_eq!(numbers(&row)?, [2.0; 4]);
    }
    Ok(())
}

/// Views of no element, at offsets inside, at the end and behind the end of their storage.
fn empties(device: &str) -> Result<Vec<Tensor>> {
    let x = matrix(device)?;
    Ok(vec![
        x.narrow(0, 3, 0)?,
        x.narrow(1, 2, 0)?,
        x.narrow(1, 4, 0)?.t()?,
        x.narrow(0, 0, 1)?.expand(&[0, 3, 4])?.select(1, 2)?,
        x.as_strided(&[0, 4], &[4, 1], Some(100))?,
        x.as_strided(&[4, 0], &[0, 0], Some(12))?,
        Tensor::zeros(&[0], DType::F32, device)?.as_strided(&[3, 0], &[1, 1], Some(1))?,
    ])
}

#[test]
fn views_of_no_element_are_taken_by_every_operation() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for device in DEVICES {
        for x in empties(device)? {
            let sizes = x.sizes().to_vec();
            let mask = Tensor::zeros(&sizes, DType::Bool, device)?;
            for same in [
                x.add_(1)?.clone(),
                x.mul_(&x)?.clone(),
                x.fill_(3)?.clone(),
                x.zero_()?.clone(),
                x.copy_(&x.ones_like()?)?.clone(),
                x.masked_fill_(&mask, 1)?.clone(),
                x.abs_()?.clone(),
                x.exp_()?.clone(),
                x.uniform_(0.0, 1.0, None)?.clone(),
                x.normal_(0.0, 1.0, None)?.clone(),
                x.zeros_like()?,
                x.exp()?,
                x.cumsum(0, None)?,
                x.cumsum(1, None)?,
                x.softmax(1, None)?,
                x.flip(&[0, 1])?,
                x.sort(0, false)?.0,
                x.sort(1, false)?.1,
                x.copy()?,
                x.cpu()?,
            ] {
                assert_eq!(same.sizes(), sizes, "{device}");
            }
            assert_eq!(numbers(&x.sum((), false, None)?)?, [0.0]);
            assert_eq!(numbers(&x.prod((), false, None)?)?, [1.0]);
            for dim in 0..2 {
                let left = sizes[1 - usize::try_from(dim).expect("it fits")];
                let count = usize::try_from(left).expect("it fits");
                assert_eq!(numbers(&x.sum(dim, false, None)?)?, vec![0.0; count], "{device} {sizes:?} {dim}");
                assert_eq!(numbers(&x.prod(dim, false, None)?)?, vec![1.0; count]);
                assert!(x.mean(dim, false, None)?.isnan()?.to_bools()?.iter().all(|is_nan| *is_nan || count == 0));
            }
            let (rows, columns) = (sizes[0] * sizes[0], sizes[1] * sizes[1]);
            assert_eq!(x.mm(&x.t()?)?.numel(), rows);
            assert_eq!(numbers(&x.t()?.mm(&x)?)?, vec![0.0; usize::try_from(columns).expect("it fits")]);
            assert_eq!(x.nonzero()?.sizes(), [0, 2]);
            assert_eq!(x.masked_select(&mask)?.sizes(), [0]);
            assert_eq!(x.unique()?.0.sizes(), [0]);
            assert_eq!(Tensor::cat(&[&x, &x], 0)?.numel(), 0);
            assert_eq!((x.data_ptr(), x.to_vec::<f32>()?.len()), (0, 0));
        }
    }
    Ok(())
}

#[test]
fn outputs_get_the_sizes_of_the_result() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for device in DEVICES {
        let x = matrix(device)?;
        let wanted: Vec<f32> = (1..=12_u8).map(f32::from).collect();
        let empty = || Tensor::empty(&[0], DType::F32, device);
        let listener = testkit::Listener::default();
        let silent = listener.during(|| -> Result<()> {
            let out = empty()?;
            x.add_out(1, &out)?;
            assert_eq!((out.sizes(), out.strides(), numbers(&out)?), (&[3, 4][..], &[4, 1][..], wanted.clone()));
            // The same sizes once more, and sizes of no element.
            x.add_out(1, &out)?;
            assert_eq!(numbers(&out)?, wanted);
            // The layout is that of a new result.
            let out = empty()?;
            x.t()?.add_out(1, &out)?;
            assert_eq!((out.sizes(), out.strides()), (&[4, 3][..], &[1, 4][..]));
            // Memory with room is kept.
            let whole = Tensor::zeros(&[20], DType::F32, device)?;
            let out = whole.narrow(0, 3, 0)?;
            x.add_out(1, &out)?;
            assert_eq!((out.storage_offset(), numbers(&whole)?[3..15].to_vec()), (3, wanted.clone()));
            for (out, sizes) in [(empty()?, [4]), (empty()?, [3])] {
                x.sum_out(if sizes == [4] { Dim::from(0) } else { Dim::from(1) }, false, &out)?;
                assert_eq!(out.sizes(), sizes);
            }
            let out = empty()?;
            x.mm_out(&x.t()?, &out)?;
            assert_eq!((out.sizes(), numbers(&out)?[0]), (&[3, 3][..], 14.0));
            let (values, indices) = (empty()?, Tensor::empty(&[0], DType::I64, device)?);
            x.max_dim_out(1, false, &values, &indices)?;
            assert_eq!((numbers(&values)?, indices.to_vec::<i64>()?), (vec![3.0, 7.0, 11.0], vec![3; 3]));
            let out = empty()?;
            x.cumsum_out(1, &out)?;
            x.softmax_out(1, &out)?;
            assert_eq!(out.sizes(), [3, 4]);
            Ok(())
        });
        silent?;
        assert_eq!(listener.take_warnings(), Vec::<String>::new(), "{device}");

        let out = Tensor::zeros(&[2], DType::F32, device)?;
        let (before, view) = (out.clone(), out.view(&[2, 1])?);
        listener.during(|| x.add_out(1, &out))?;
        let warnings = listener.take_warnings();
        assert_eq!(
            warnings,
            [
                "An output with one or more elements was resized since it had shape [2], which does not match the required \
              output shape [3, 4]. This behavior is deprecated, and in a future PyTorch release outputs will not be \
              resized unless they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, \
              to zero elements with t.resize_(0)."
            ]
        );
        assert_eq!((out.sizes(), out.clone().sizes(), numbers(&out)?), (&[3, 4][..], &[3, 4][..], wanted));
        assert_eq!((before.sizes(), view.sizes()), (&[2][..], &[2, 1][..]));
        // Smaller ones too; their memory stays.
        listener.during(|| x.select(0, 0)?.add_out(1, &out))?;
        assert_eq!((out.sizes(), numbers(&out)?), (&[4][..], vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(listener.take_warnings().len(), 1);
    }
    Ok(())
}

#[test]
fn operands_are_not_resized() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for device in DEVICES {
        let (x, row) = (matrix(device)?, Tensor::ones(&[4], DType::F32, device)?);
        let text = |result: Result<()>| result.expect_err("it is refused").to_string();
        let refused = "output with shape [4] doesn't match the broadcast shape [3, 4]";
        assert!(text(row.add_(&x).map(drop)).contains(refused));
        assert!(text(row.add_out(&x, &row)).contains(refused));
        assert!(text(x.sum_out(0, false, &x)).contains("output with shape [3, 4]"));
        assert!(text(x.mm_out(&x.t()?, &x)).contains("output with shape [3, 4]"));
        // Another dtype or a repeated element is refused before anything is resized.
        let other = Tensor::zeros(&[0], DType::I32, device)?;
        assert!(x.add_out(1, &other).is_err());
        let repeated = row.narrow(0, 0, 1)?.expand(&[5])?;
        assert!(text(x.add_out(1, &repeated)).contains("more than one element of the written-to tensor"));
        assert_eq!((other.sizes(), repeated.sizes(), row.sizes()), (&[0][..], &[5][..], &[4][..]));
    }
    Ok(())
}

#[test]
fn expanded_tensors_are_filled_by_a_mask() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for device in DEVICES {
        let x = matrix(device)?;
        let row = x.narrow(0, 1, 1)?;
        let mask = Tensor::from_bools(&[true, false, false, false, false, false, false, true], &[2, 4])?.to(device)?;
        let listener = testkit::Listener::default();
        listener.during(|| row.expand(&[2, 4])?.masked_fill_(&mask, 9).map(drop))?;
        assert_eq!(numbers(&x)?[3..9], [3.0, 9.0, 5.0, 6.0, 9.0, 8.0], "{device}");
        let warnings = listener.take_warnings();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("Use of masked_fill_ on expanded tensors is deprecated."));
    }
    Ok(())
}
