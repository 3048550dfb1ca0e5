//! `kernels/attention_hopper.cu`: attention of 16-bit floats by what compute capability 9.0 alone has.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use c10_core::{Arg, Device, LaunchConfig, TensorMap, TensorMapDim, TensorMapElement, TensorMapLayout};

use super::attention::{Operands, Sizes, blocks, four};
use super::{Text, launch, traits, whole};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "attention_hopper", ptx: include_str!("../../../kernels/attention_hopper.ptx") };

/// Kernels that machine code is brought along for.
pub(super) static COMMON: (&Text, &[&str]) = (&TEXT, &["attend_64_bf16", "attend_128_f16", "attend_128_bf16"]);

/// Elements of a line of a box that is copied at once: 128 bytes.
const BOX: u32 = 64;
/// Stages of the rings of tiles.
const STAGES: u32 = 2;
/// Tiles begin at multiples of so many bytes.
const ALIGNMENT: u32 = 1024;

/// A kernel for each width that lines have in shared memory: for `f16` and `bf16`, groups of 64 rows, and keys of a tile.
struct Kind {
    kernels: [&'static str; 2],
    width: u32,
    groups: u32,
    keys: u32,
}

static KINDS: [Kind; 3] = [
    Kind { kernels: ["attend_64_f16", "attend_64_bf16"], width: 64, groups: 3, keys: 128 },
    Kind { kernels: ["attend_128_f16", "attend_128_bf16"], width: 128, groups: 2, keys: 176 },
    Kind { kernels: ["attend_256_f16", "attend_256_bf16"], width: 256, groups: 2, keys: 80 },
];

/// Computes attention where the device has the instructions and the operands lie so that they can be described to it; says
/// whether it did. The operands and sizes are those of [`super::attention::attend`].
pub(super) fn attend(operands: &Operands<'_>, sizes: &Sizes) -> Result<bool> {
    let Operands { out, query, key, value } = *operands;
    let Some(kind) = KINDS.iter().find(|kind| i64::from(kind.width) >= sizes.width) else { return Ok(false) };
    let rows = kind.groups * 64;
    let Some(blocks) = blocks(query, rows) else { return Ok(false) };
    if !is_supported(out.device())? || ![query, key, value].into_iter().all(is_describable) {
        return Ok(false);
    }
    let maps = [map(query, rows)?, map(key, kind.keys)?, map(value, kind.keys)?];
    let shared_bytes = ALIGNMENT + (rows + 2 * STAGES * kind.keys) * kind.width * 2;
    let config = LaunchConfig { grid: [blocks, 1, 1], block: [128 + 128 * kind.groups, 1, 1], shared_bytes };
    let mut arguments = vec![whole(out)?, whole(query)?, whole(key)?, whole(value)?];
    arguments.extend(maps.iter().map(|map| Arg::Plain(map.bytes())));
    arguments.push(sizes.into());
    let kernel = kind.kernels[usize::from(out.dtype() == DType::BF16)];
    let device = out.device().cuda_index()?.unwrap_or(0);
    // SAFETY: the kernel reads by way of the maps, which describe the views, and writes lines at places inside the sizes,
    // which are those of the result. A view lies inside its storage. What is written in vectors begins at multiples of 16
    // bytes and ends with the lines.
    unsafe { launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(true)
}

/// Whether a device has the instructions, which those of other versions have not, and its driver describes tensors.
fn is_supported(device: Device) -> Result<bool> {
    let device = device.cuda_index()?.unwrap_or(0);
    Ok(traits(device)?.has_wgmma)
}

/// Whether sizes and steps are those of a description: numbers of 32 bits, and no line stands for several.
fn is_describable(tensor: &Tensor) -> bool {
    const STEP_MAX: i64 = 1 << 39;
    let dims = || tensor.sizes().iter().zip(tensor.strides());
    dims().all(|(&size, &step)| i32::try_from(size).is_ok() && (size == 1 || step > 0 && step < STEP_MAX))
}

/// The description of a tensor of four dimensions, of which tiles of so many rows are copied.
fn map(tensor: &Tensor, rows: u32) -> Result<TensorMap> {
    let sizes = four(tensor).map(i64::unsigned_abs);
    let element_bytes = tensor.element_size() as u64;
    // Where there is just one place, the step has to be one all the same.
    let step = |dim: usize| match sizes[dim] {
        1 => u64::from(BOX) * element_bytes,
        _ => tensor.strides()[dim].unsigned_abs() * element_bytes,
    };
    let dim = |at: usize, tile: u32| TensorMapDim { size: sizes[at], step: step(at), tile };
    let element = if tensor.dtype() == DType::BF16 { TensorMapElement::BF16 } else { TensorMapElement::F16 };
    let layout = TensorMapLayout { element, dims: &[dim(3, BOX), dim(2, rows), dim(1, 1), dim(0, 1)] };
    let refused = || crate::base::error::invalid("the tensor is on the host");
    let buffer = tensor.plain_storage()?.buffer().ok_or_else(refused)?;
    let start = tensor.byte_offset();
    Ok(TensorMap::new(buffer, start..start + tensor.byte_extent(), &layout)?)
}
