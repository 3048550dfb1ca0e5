//! `kernels/attention.cu`: attention of 16-bit floats on tensor cores.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use bytemuck::{Pod, Zeroable};
use c10_core::{Device, LaunchConfig};

use super::{Text, attention_hopper, launch, traits, whole};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::record;
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "attention", ptx: include_str!("../../../kernels/attention.ptx") };

/// Elements of a vector of 16 bytes.
pub(crate) const VECTOR: i64 = 8;
/// The widest heads.
pub(crate) const WIDTH_MAX: i64 = 256;
/// Threads of a block, and stages of the ring of tiles.
const THREADS: u32 = 128;
const STAGES: u32 = 2;

/// A kernel for each width that lines have in shared memory: for `f16` and `bf16`, and the rows and keys of its tiles.
struct Kind {
    kernels: [&'static str; 2],
    width: u32,
    rows: u32,
    keys: u32,
}

static KINDS: [Kind; 3] = [
    Kind { kernels: ["attend_64_f16", "attend_64_bf16"], width: 64, rows: 128, keys: 64 },
    Kind { kernels: ["attend_128_f16", "attend_128_bf16"], width: 128, rows: 128, keys: 64 },
    Kind { kernels: ["attend_256_f16", "attend_256_bf16"], width: 256, rows: 64, keys: 32 },
];

/// Steps between batches, heads and lines. Where there is just one of them, the step does not matter.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Strides {
    batch: i64,
    head: i64,
    row: i64,
}

impl Strides {
    fn of(tensor: &Tensor) -> Self {
        let [batch, head, row] = [0, 1, 2].map(|dim| step(tensor, dim));
        Self { batch, head, row }
    }
}

/// The numbers that the kernels take.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Sizes {
    batches: i64,
    heads: i64,
    group: i64,
    queries: i64,
    keys: i64,
    pub(super) width: i64,
    out: Strides,
    query: Strides,
    key: Strides,
    value: Strides,
    scale: f32,
    is_causal: i32,
}

/// Whether a device has what the kernels need.
pub(crate) fn is_supported(device: Device) -> Result<bool> {
    let device = device.cuda_index()?.unwrap_or(0);
    Ok(traits(device)?.capability.0 >= 8)
}

/// Whether a tensor of four dimensions lies as the kernels take it: lines together, which begin at multiples of 16 bytes.
pub(crate) fn is_aligned(tensor: &Tensor) -> bool {
    let is_together = tensor.strides()[3] == 1 || tensor.sizes()[3] == 1;
    is_together && tensor.alignment().is_multiple_of(16) && (0..3).all(|dim| step(tensor, dim) % VECTOR == 0)
}

/// What the kernels compute, and of what: (batches, heads, rows, width).
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a> {
    pub(crate) out: &'a Tensor,
    pub(crate) query: &'a Tensor,
    pub(crate) key: &'a Tensor,
    pub(crate) value: &'a Tensor,
}

/// `out = softmax(scale * query @ key^T) @ value` for `query` and `out` (batches, heads, queries, width), `key` and `value`
/// (batches, heads, keys, width), whose heads divide those of the queries. All are of one dtype, `f16` or `bf16`, on one
/// device that [`is_supported`], and lie as [`is_aligned`] says; the width is a multiple of [`VECTOR`] of at most
/// [`WIDTH_MAX`]. `out` shares no memory with the others. There is at least one key, and `scale` is above zero.
pub(crate) fn attend(operands: &Operands<'_>, scale: f64, is_causal: bool) -> Result<()> {
    let Operands { out, query, key, value } = *operands;
    let sizes = sizes(operands, scale, is_causal);
    let detail = vec![scale.to_bits(), u64::from(is_causal)];
    let is_recorded =
        record::pure_call("attention", (&[out], &[query, key, value]), detail, move |outputs, inputs| {
            let ([out], [query, key, value]) = (outputs, inputs) else { return Ok(()) };
            attend(&Operands { out, query, key, value }, scale, is_causal)
        })?;
    if is_recorded {
        return Ok(());
    }
    if out.numel() == 0 || attention_hopper::attend(operands, &sizes)? {
        return Ok(());
    }
    let too_large = || TensorError::TooLarge { sizes: query.sizes().to_vec() };
    let kind = KINDS.iter().find(|kind| i64::from(kind.width) >= sizes.width).ok_or_else(too_large)?;
    let blocks = blocks(query, kind.rows).ok_or_else(too_large)?;
    let shared_bytes = (kind.rows + 2 * STAGES * kind.keys) * kind.width * 2;
    let config = LaunchConfig { grid: [blocks, 1, 1], block: [THREADS, 1, 1], shared_bytes };
    let arguments = [whole(out)?, whole(query)?, whole(key)?, whole(value)?, (&sizes).into()];
    let kernel = kind.kernels[usize::from(out.dtype() == DType::BF16)];
    let device = out.device().cuda_index()?.unwrap_or(0);
    // SAFETY: the kernel reads and writes lines at places inside the sizes above, which are those of the views; a view
    // lies inside its storage. Vectors begin at multiples of 16 bytes and end with the lines.
    unsafe { launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(())
}

/// The numbers that the kernels take, of operands that fit each other.
fn sizes(operands: &Operands<'_>, scale: f64, is_causal: bool) -> Sizes {
    let Operands { out, query, key, value } = *operands;
    let [batches, heads, queries, width] = four(query);
    let [_, shared, keys, _] = four(key);
    assert!(
        width % VECTOR == 0 && keys > 0 && shared > 0 && heads % shared == 0,
        "the kernel has a form for the sizes"
    );
    assert!(four(key) == [batches, shared, keys, width] && four(value) == four(key), "keys and values fit the queries");
    assert!(four(out) == four(query), "the result has the sizes of the queries");
    for tensor in [out, query, key, value] {
        assert!(is_aligned(tensor) && tensor.dtype() == query.dtype(), "the operands lie as the kernel takes them");
    }
    // Rounded once, where the kernel takes it.
    #[expect(clippy::cast_possible_truncation, reason = "the kernel computes with 32 bits")]
    let scale = (scale * std::f64::consts::LOG2_E) as f32;
    Sizes {
        batches,
        heads,
        group: heads / shared,
        queries,
        keys,
        width,
        out: Strides::of(out),
        query: Strides::of(query),
        key: Strides::of(key),
        value: Strides::of(value),
        scale,
        is_causal: i32::from(is_causal),
    }
}

/// A block for each tile of so many rows of the result, unless a grid has too few.
pub(super) fn blocks(query: &Tensor, rows: u32) -> Option<u32> {
    let [batches, heads, queries, _] = four(query);
    let rows = i64::from(rows);
    let tiles = queries / rows + i64::from(queries % rows != 0);
    let blocks = tiles.checked_mul(heads)?.checked_mul(batches)?;
    i32::try_from(blocks).ok().map(i32::unsigned_abs)
}

/// The step along a dimension, which does not matter where there is just one place.
fn step(tensor: &Tensor, dim: usize) -> i64 {
    if tensor.sizes()[dim] <= 1 { 0 } else { tensor.strides()[dim] }
}

/// The sizes of a tensor of four dimensions.
pub(super) fn four(tensor: &Tensor) -> [i64; 4] {
    [0, 1, 2, 3].map(|dim| tensor.sizes()[dim])
}
