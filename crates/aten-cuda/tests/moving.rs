//! Operations that move elements, on the simulated device against the host: every dtype, strided and empty tensors,
//! several blocks.

mod common;

use aten_cuda::{DType, Result, Tensor};
use common::{assert_same, layouts, numbers, on_both};

/// A dtype for each size of an element.
const WIDTHS: [DType; 5] = [DType::Bool, DType::BF16, DType::F32, DType::I64, DType::C128];

#[test]
fn joins_and_repetitions() -> Result<()> {
    for dtype in WIDTHS {
        for source in layouts(dtype)? {
            on_both(&source, |tensor| {
                let rank = i64::try_from(tensor.dim()).unwrap_or(0);
                let mut results =
                    vec![tensor.repeat(&vec![2; tensor.dim() + 1])?, Tensor::stack(&[tensor, tensor], rank)?];
                for dim in 0..rank {
                    results.push(Tensor::cat(&[tensor, tensor, tensor], dim)?);
                    results.push(tensor.flip(&[dim])?);
                    if !dtype.is_float8() {
                        results.push(tensor.roll(&[2], &[dim])?);
                    }
                    results.extend(tensor.chunk(3, dim)?);
                }
                results.push(tensor.flip(&(0..rank).collect::<Vec<_>>())?);
                if !dtype.is_float8() {
                    results.push(tensor.roll(&[-3], &[])?);
                }
                Ok(results)
            })?;
        }
    }
    Ok(())
}

#[test]
fn triangles_and_likes() -> Result<()> {
    for dtype in DType::ALL {
        for source in layouts(dtype)? {
            on_both(&source, |tensor| {
                let mut results = vec![tensor.full_like(3)?, tensor.ones_like()?, tensor.zeros_like()?];
                if tensor.dim() >= 2 && !dtype.is_float8() {
                    for diagonal in [-30, -1, 0, 2, i64::MAX, i64::MIN] {
                        results.push(tensor.tril(diagonal)?);
                        results.push(tensor.triu(diagonal)?);
                    }
                }
                Ok(results)
            })?;
        }
    }
    Ok(())
}

#[test]
fn factories() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let numeric =
        [DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];
    for dtype in numeric {
        let made = |device: &str| -> Result<Vec<Tensor>> {
            Ok(vec![
                Tensor::arange(3, 100, 3, Some(dtype), device)?,
                Tensor::arange(50, -50, -7, Some(dtype), device)?,
                Tensor::arange(0, 0, 1, Some(dtype), device)?,
                Tensor::linspace(1, 90, 700, Some(dtype), device)?,
                Tensor::linspace(7, 3, 1, Some(dtype), device)?,
                Tensor::eye(5, 33, dtype, device)?,
            ])
        };
        for (host, device) in made("cpu")?.iter().zip(made("cuda")?) {
            assert_same(host, &device);
        }
    }
    assert_eq!(Tensor::arange(0, 1, 0.25, None, "cuda")?.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75]);
    for (start, end, step) in [(0.0, 1.0, 0.0), (0.0, 1.0, -1.0), (0.0, f64::INFINITY, 1.0), (f64::NAN, 1.0, 1.0)] {
        assert!(Tensor::arange(start, end, step, None, "cuda").is_err());
    }
    // torch divides by zero here.
    assert!(Tensor::arange(0, 5, 0.5, Some(DType::I32), "cuda").is_err());
    assert!(Tensor::linspace(0, 1, -1, None, "cuda").is_err());
    assert!(Tensor::eye(-1, 2, DType::F32, "cuda").is_err());
    Ok(())
}

#[test]
fn elements_at_indices() -> Result<()> {
    for dtype in WIDTHS {
        for source in layouts(dtype)? {
            for dim in 0..source.dim() {
                let size = source.sizes()[dim];
                if size == 0 {
                    continue;
                }
                let list = numbers(11, size)?;
                let mut sizes = source.sizes().to_vec();
                sizes[dim] = 5;
                let many = numbers(sizes.iter().product(), size)?.view(&sizes)?;
                let at = i64::try_from(dim).unwrap_or(0);
                on_both(&source, |tensor| {
                    let (list, many) = (list.to_device(tensor)?, many.to_device(tensor)?);
                    Ok(vec![
                        tensor.index_select(at, &list)?,
                        tensor.index_select(at, &list.to_dtype(DType::I32)?)?,
                        tensor.gather(at, &many)?,
                        tensor.take_along_dim(&many, Some(at))?,
                    ])
                })?;
            }
        }
    }
    Ok(())
}

#[test]
fn elements_written_and_added() -> Result<()> {
    for dtype in DType::ALL {
        for source in layouts(dtype)? {
            for dim in 0..source.dim() {
                let size = source.sizes()[dim];
                let at = i64::try_from(dim).unwrap_or(0);
                // Each place once, so that no order matters.
                let list: Vec<i64> = (0..size).rev().collect();
                let list = Tensor::from_slice(&list, &[size])?;
                on_both(&source, |tensor| {
                    let list = list.to_device(tensor)?;
                    let mut spread = vec![1; tensor.dim()];
                    spread[dim] = size;
                    let index = list.view(&spread)?.expand(tensor.sizes())?;
                    let into = tensor.contiguous()?.full_like(1)?;
                    if dtype.is_float8() {
                        return Ok(vec![into.scatter(at, &index, tensor)?]);
                    }
                    Ok(vec![
                        into.index_add(at, &list, tensor, 1)?,
                        into.index_copy(at, &list, tensor)?,
                        into.scatter(at, &index, tensor)?,
                        into.scatter(at, &index, 0)?,
                        into.scatter_add(at, &index, tensor)?,
                    ])
                })?;
            }
        }
    }
    Ok(())
}

#[test]
fn sums_at_places_that_many_share() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for dtype in
        [DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64]
    {
        let index = numbers(3000, 7)?;
        let ones = Tensor::full(&[3000], 1, DType::F32, "cpu")?.to_dtype(dtype)?;
        let into = Tensor::zeros(&[7], dtype, "cpu")?;
        let host = into.index_add(0, &index, &ones, 1)?;
        let device = into.cuda(None)?.index_add(0, &index.cuda(None)?, &ones.cuda(None)?, 1)?;
        assert_same(&host, &device);
    }
    Ok(())
}

#[test]
fn indices_of_several_dimensions() -> Result<()> {
    let source = Tensor::arange(0, 4 * 5 * 6, 1, Some(DType::I32), "cpu")?.view(&[4, 5, 6])?;
    on_both(&source, |tensor| {
        let rows = Tensor::from_slice(&[3_i64, -1, 0], &[3])?.to_device(tensor)?;
        let columns = Tensor::from_slice(&[1_i64, -6], &[2, 1])?.to_device(tensor)?;
        let mask = tensor.select(2, 0)?.gt(40)?;
        let value = Tensor::from_slice(&[-5_i32], &[1])?.to_device(tensor)?;
        Ok(vec![
            tensor.index(&[Some(&rows)])?,
            tensor.index(&[None, Some(&rows)])?,
            tensor.index(&[Some(&rows), None, Some(&columns)])?,
            tensor.index(&[None, Some(&rows), Some(&columns)])?,
            tensor.index(&[Some(&mask)])?,
            tensor.transpose(0, 2)?.index(&[Some(&columns), Some(&rows)])?,
            tensor.index_put(&[Some(&rows), None, Some(&columns)], &value, false)?,
            tensor.index_put(&[Some(&rows)], &value, true)?,
            tensor.index_put(&[Some(&mask)], &value, true)?,
        ])
    })?;
    let _simulated = testkit::simulated_runtime();
    let index = Tensor::from_slice(&[3_i64, -1], &[2])?;
    assert_eq!(source.index(&[Some(&index), Some(&index), Some(&index)])?.to_vec::<i32>()?, [3 * 30 + 3 * 6 + 3, 119]);
    assert!(source.index(&[Some(&source), None, None, None]).is_err());
    Ok(())
}

#[test]
fn masks() -> Result<()> {
    for dtype in WIDTHS {
        for source in layouts(dtype)? {
            let numel = source.numel();
            let mask = numbers(numel, 3)?.to_dtype(DType::Bool)?.view(source.sizes())?;
            on_both(&source, |tensor| {
                let mask = mask.to_device(tensor)?;
                let ones = tensor.contiguous()?.ones_like()?.flatten()?;
                Ok(vec![tensor.nonzero()?, tensor.masked_select(&mask)?, tensor.masked_scatter(&mask, &ones)?])
            })?;
        }
    }
    Ok(())
}

#[test]
fn rows_of_a_table() -> Result<()> {
    let table = Tensor::arange(0, 30 * 8, 1, Some(DType::F32), "cpu")?.view(&[30, 8])?;
    on_both(&table, |table| {
        let indices = numbers(40, 30)?.view(&[4, 10])?.to_device(table)?;
        Ok(vec![table.embedding(&indices)?, table.embedding(&indices.to_dtype(DType::I32)?)?])
    })
}

#[test]
fn what_does_not_fit() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::zeros(&[2, 3], DType::F32, "cuda")?;
    let index = Tensor::zeros(&[2, 3], DType::I64, "cuda")?;
    let text = |outcome: Result<Tensor>| outcome.map(|_| ()).map_err(|error| error.to_string()).unwrap_err();
    assert!(text(a.gather(0, &index.to_dtype(DType::I16)?)).contains("Expected dtype int32/int64"));
    assert!(text(a.gather(0, &Tensor::zeros(&[2, 4], DType::I64, "cuda")?)).contains("to be no larger than self"));
    assert!(text(a.gather(0, &index.cpu()?)).contains("same device"));
    assert!(text(a.gather(5, &index)).contains("Dimension out of range"));
    assert!(text(a.index_select(0, &index)).contains("supposed to be an empty tensor or a vector"));
    assert!(text(a.expand(&[2, 3])?.scatter(0, &index, &a.to_dtype(DType::F64)?)).contains("self.dtype"));
    assert!(text(a.topk(4, 1, true).map(|(values, _)| values)).contains("selected index k out of range"));
    assert!(text(a.masked_select(&index)).contains("BoolTensor"));
    assert!(text(a.repeat(&[2])).contains("can not be smaller"));
    assert!(text(a.roll(&[1, 2], &[0])).contains("must align"));
    assert!(text(a.to_dtype(DType::C64)?.sort(0, false).map(|(values, _)| values)).contains("complex"));
    assert!(a.select(0, 0)?.expand(&[4, 3])?.scatter_(0, &index, 1).is_err(), "several elements at one place");
    Ok(())
}

/// Copies whose source and target lie differently in memory: whole tiles, tiles cut at both ends, lines that begin at no
/// multiple of 16 bytes, batches on both sides, gaps.
#[test]
fn transposed_copies() -> Result<()> {
    for dtype in WIDTHS.into_iter().chain([DType::F64, DType::I16]) {
        let of = |sizes: &[i64]| numbers(sizes.iter().product(), 251)?.view(sizes)?.to_dtype(dtype);
        let sources = [
            of(&[256, 128])?.t()?,
            of(&[144, 176])?.t()?,
            of(&[67, 131])?.t()?,
            of(&[97, 160])?.narrow(1, 1, 150)?.t()?,
            of(&[160, 96])?.narrow(0, 3, 150)?.narrow(1, 16, 64)?.t()?,
            of(&[3, 40, 2, 48])?.permute(&[2, 3, 0, 1])?,
            of(&[2, 33, 3, 35])?.permute(&[0, 3, 2, 1])?,
            of(&[40, 48])?.expand(&[3, 40, 48])?.transpose(1, 2)?,
            of(&[0, 64])?.t()?,
        ];
        for source in sources {
            on_both(&source, |tensor| {
                let wide = Tensor::zeros(&[2, tensor.numel() + 1], dtype, tensor)?;
                let behind = wide.select(0, 1)?.narrow(0, 1, tensor.numel())?.view(tensor.sizes())?;
                behind.copy_(tensor)?;
                Ok(vec![tensor.contiguous()?, tensor.copy()?, wide])
            })?;
        }
    }
    Ok(())
}
