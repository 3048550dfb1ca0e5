//! Common calls: those whose kernels machine code is brought along for.
//!
//! Programs of neural networks make them: arithmetic, activations, comparisons, casts and copies, reductions and rows in
//! the float dtypes, a few on integers and booleans; and one call of each source in CUDA C++.

use std::path::Path;

use aten_cuda::attention::Attention;
use aten_cuda::{DType, KernelText, Result, Tensor, kernel_texts, kernel_texts_of_one_architecture};
use testkit::{Config, Simulation};

type Failure = Box<dyn std::error::Error>;

/// Writes the text of each kernel that the calls compile on the simulated device.
///
/// # Errors
/// A call fails, or a file cannot be written.
pub fn write(folder: &Path) -> std::result::Result<(), Failure> {
    let simulation = Simulation::new(Config::default());
    let _bound = simulation.runtime().bind();
    write_texts(folder, &kernel_texts(calls)?)?;
    write_texts(folder, &kernel_texts_of_one_architecture())
}

/// Writes each text into a file that is named after its fingerprint.
pub(crate) fn write_texts(folder: &Path, texts: &[KernelText]) -> std::result::Result<(), Failure> {
    std::fs::create_dir_all(folder)?;
    for text in texts {
        std::fs::write(folder.join(format!("{:032x}.ptx", text.fingerprint())), &text.text)?;
    }
    Ok(())
}

/// The calls, in dtypes as they are common.
fn calls() -> Result<()> {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        arithmetic(dtype)?;
        activations(dtype)?;
        rows(dtype)?;
        casts(dtype)?;
    }
    for dtype in [DType::F64, DType::I64, DType::I32] {
        let (a, b) = pair(dtype)?;
        for result in [a.add(&b)?, a.sub(&b)?, a.mul(&b)?, a.add(1)?, a.mul(2)?, a.eq(&b)?, a.lt(&b)?, a.eq(0)?] {
            drop(result);
        }
        a.sum(None, false, None)?;
    }
    booleans()?;
    sources()
}

/// Two whole tensors.
fn pair(dtype: DType) -> Result<(Tensor, Tensor)> {
    Ok((Tensor::ones(&[64, 32], dtype, "cuda")?, Tensor::zeros(&[64, 32], dtype, "cuda")?))
}

fn arithmetic(dtype: DType) -> Result<()> {
    let (a, b) = pair(dtype)?;
    let row = b.select(0, 0)?.contiguous()?;
    let condition = a.gt(&b)?;
    a.add(&b)?.sub(&b)?.mul(&b)?.div(&a)?;
    a.add(1.0)?.mul(2.0)?.div(3.0)?.sub(0.5)?;
    a.add(&row)?.mul(&row)?;
    a.pow(2.0)?;
    a.addcmul(&a, &b, 0.5)?;
    a.addcdiv(&b, &a, 0.5)?;
    a.lerp(&b, 0.5)?;
    a.maximum(&b)?.minimum(&b)?;
    condition.where_cond(&a, &b)?;
    for result in [a.ge(&b)?, a.lt(&b)?, a.le(&b)?, a.eq(&b)?, a.ne(&b)?, a.gt(0.0)?, a.lt(0.0)?, a.isnan()?] {
        drop(result);
    }
    a.copy()?;
    a.t()?.contiguous()?;
    a.narrow(1, 0, 16)?.contiguous()?;
    a.zero_()?;
    Ok(())
}

fn activations(dtype: DType) -> Result<()> {
    let (a, _) = pair(dtype)?;
    for result in [a.neg()?, a.abs()?, a.exp()?, a.log()?, a.sqrt()?, a.rsqrt()?, a.reciprocal()?, a.sin()?, a.cos()?] {
        drop(result);
    }
    for result in [a.tanh()?, a.sigmoid()?, a.relu()?, a.gelu()?, a.silu()?, a.erf()?] {
        drop(result);
    }
    Ok(())
}

fn rows(dtype: DType) -> Result<()> {
    let (a, b) = pair(dtype)?;
    let row = b.select(0, 0)?.contiguous()?;
    a.sum(None, false, None)?;
    a.sum(&[-1][..], false, None)?;
    a.sum(&[0][..], false, None)?;
    a.mean(None, false, None)?;
    a.mean(&[-1][..], true, None)?;
    a.softmax(-1, None)?;
    a.log_softmax(-1, None)?;
    a.layer_norm(&[32], Some(&row), Some(&row), 1e-5)?;
    Ok(())
}

fn casts(dtype: DType) -> Result<()> {
    let (a, _) = pair(dtype)?;
    for other in [DType::F32, DType::BF16, DType::F16, DType::I64, DType::Bool] {
        Tensor::ones(&[32], other, "cuda")?.to_dtype(dtype)?;
    }
    a.to_dtype(DType::F32)?;
    Ok(())
}

fn booleans() -> Result<()> {
    let (a, b) = pair(DType::Bool)?;
    a.logical_and(&b)?.logical_or(&b)?.logical_not()?;
    a.any(None, false)?;
    a.all(None, false)?;
    Tensor::arange(0, 64, 1, None, "cuda")?;
    Ok(())
}

/// Kernels in CUDA C++.
fn sources() -> Result<()> {
    let (a, b) = pair(DType::F32)?;
    let places = Tensor::zeros(&[64, 32], DType::I64, "cuda")?;
    let rows = Tensor::zeros(&[16], DType::I64, "cuda")?;
    a.gather(0, &places)?;
    a.index_select(0, &rows)?;
    a.embedding(&rows)?;
    b.scatter_add(0, &places, &a)?;
    b.index_add(0, &rows, &a.narrow(0, 0, 16)?, 1)?;
    a.masked_fill(&a.gt(0.0)?, 0.0)?;
    a.cumsum(0, None)?;
    for result in [a.uniform_(0.0, 1.0, None)?, a.normal_(0.0, 1.0, None)?, a.bernoulli_(0.5, None)?] {
        let _ = result;
    }
    a.dropout(0.5, true)?;
    Tensor::randint(0, 10, &[64], DType::I64, "cuda", None)?;
    Tensor::randperm(64, DType::I64, "cuda", None)?;
    for dtype in [DType::F32, DType::I64] {
        let wide = Tensor::ones(&[5000], dtype, "cuda")?;
        wide.sort(0, false)?;
        wide.topk(2, -1, true)?;
    }
    let heads = Tensor::ones(&[1, 1, 16, 128], DType::BF16, "cuda")?;
    heads.scaled_dot_product_attention(&heads, &heads, &Attention::default())?;
    products()
}

/// Products of matrices in all four orders of memory.
fn products() -> Result<()> {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let a = Tensor::ones(&[256, 256], dtype, "cuda")?;
        let turned = a.t()?;
        for (one, other) in [(&a, &a), (&a, &turned), (&turned, &a), (&turned, &turned)] {
            one.mm(other)?;
        }
    }
    Ok(())
}
