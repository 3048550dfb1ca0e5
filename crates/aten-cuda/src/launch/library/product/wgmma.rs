//! `kernels/matmul_wgmma.cu`: products on the tensor cores of compute capability 9.0, for whose instructions neither
//! older nor later devices have a use.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use bytemuck::{Pod, Zeroable};
use c10_core::{Arg, LaunchConfig, TensorMap, TensorMapDim, TensorMapElement, TensorMapLayout};

use super::operand::{Lines, is_aligned, lines, tiles};
use super::tiled::Strides;
use super::{Problem, is_half};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::{Text, launch_early, traits, whole};
use crate::tensor::Tensor;

pub(super) static TEXT: Text = Text { name: "matmul_wgmma", ptx: include_str!("../../../../kernels/matmul_wgmma.ptx") };

/// Bytes of a line of a tile, whose lines lie together in memory.
const LINE: i64 = 128;
/// Steps of the inner dimension that the kernel which asks for all of it has room for.
const WHOLE_STEPS: i64 = 8;
/// Tiles that blocks at work together go down before they go across.
const BAND: u32 = 8;

/// What a kernel is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// Tiles of 128 x 256; two blocks share a tile of the right factor.
    Large,
    /// Tiles of 128 x 128; two blocks share a tile of the right factor.
    Middle,
    /// Tiles of 64 x 64.
    Small,
    /// Tiles of 64 x 32, a block for each that asks for all of the inner dimension at once.
    Whole,
    /// Tiles of 64 x 64, a block for each.
    Undivided,
    /// The same, two blocks for each: they divide the inner dimension.
    Halved,
    /// The same with four blocks.
    Quartered,
    /// As [`Self::Large`], for floats.
    LargeTf32,
    /// As [`Self::Middle`], for floats.
    MiddleTf32,
}

/// How a kernel is built, as the source says it.
struct Kind {
    name: &'static str,
    kernel: &'static str,
    rows: i64,
    columns: i64,
    stages: u32,
    /// Groups of four warps that multiply.
    groups: u32,
    /// Blocks of a cluster: they share the right factor, or they divide the inner dimension.
    cluster: i64,
    divides: bool,
    /// Whether a warp does nothing but ask for tiles.
    asks: bool,
    /// Blocks of a multiprocessor that tiles are shared among.
    blocks: i64,
}

impl Shape {
    const fn kind(self) -> Kind {
        let (rows, columns, stages, groups, cluster) = (64, 64, 8, 1, 1);
        let kind =
            Kind { name: "", kernel: "", rows, columns, stages, groups, cluster, divides: true, asks: true, blocks: 1 };
        let shared = Kind { rows: 128, groups: 2, cluster: 2, divides: false, ..kind };
        let large = Kind { columns: 256, stages: 4, ..shared };
        let middle = Kind { columns: 128, stages: 6, ..shared };
        match self {
            Self::Large => Kind { name: "own_wgmma_128x256x64_c2_s4", kernel: "t128x256", ..large },
            Self::Middle => Kind { name: "own_wgmma_128x128x64_c2_s6", kernel: "t128x128", ..middle },
            Self::LargeTf32 => Kind { name: "own_wgmma_tf32_128x256x32_c2_s4", kernel: "t128x256", ..large },
            Self::MiddleTf32 => Kind { name: "own_wgmma_tf32_128x128x32_c2_s6", kernel: "t128x128", ..middle },
            Self::Small => {
                Kind { name: "own_wgmma_64x64x64_s4", kernel: "t64x64", stages: 4, divides: false, blocks: 2, ..kind }
            }
            Self::Whole => Kind { name: "own_wgmma_64x32x512_s1", kernel: "w64x32", columns: 32, asks: false, ..kind },
            Self::Undivided => Kind { name: "own_wgmma_64x64x64_k1_s8", kernel: "d64x64_1", ..kind },
            Self::Halved => Kind { name: "own_wgmma_64x64x64_k2_s8", kernel: "d64x64_2", cluster: 2, ..kind },
            Self::Quartered => Kind { name: "own_wgmma_64x64x64_k4_s8", kernel: "d64x64_4", cluster: 4, ..kind },
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.kind().name
    }

    fn is_tf32(self) -> bool {
        matches!(self, Self::LargeTf32 | Self::MiddleTf32)
    }
}

impl Kind {
    fn threads(&self) -> u32 {
        // One warp asks for tiles; where registers are handed from it to the others, it is four.
        self.groups * 128
            + match self.groups {
                _ if !self.asks => 0,
                1 => 32,
                _ => 128,
            }
    }

    fn shared_bytes(&self) -> u32 {
        let stage = u32::try_from((self.rows + self.columns) * LINE).unwrap_or(u32::MAX);
        let room = if self.divides { 0 } else { self.groups * 16_384 };
        self.stages * (stage + 16) + room
    }

    /// Tiles of all results; those of a cluster that shares the right factor count as one. `None` if they are too many.
    fn tiles(&self, [batches, m, n, _]: [i64; 4]) -> Option<i64> {
        let down = tiles(m, if self.divides { self.rows } else { self.rows * self.cluster });
        let all = down.checked_mul(tiles(n, self.columns))?.checked_mul(batches)?;
        i32::try_from(all.checked_mul(self.cluster)?).is_ok().then_some(all)
    }

    fn blocks(&self, tiles: i64, multiprocessors: i64) -> i64 {
        let most = if self.divides { tiles } else { (multiprocessors * self.blocks / self.cluster).max(1) };
        tiles.min(most) * self.cluster
    }
}

/// The numbers that the kernels take.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sizes {
    batches: u32,
    m: u32,
    n: u32,
    k: u32,
    a_step: u32,
    b_step: u32,
    band: u32,
    activation: u32,
    alpha: f32,
    beta: f32,
    stores_tiles: u32,
    bias_step: u32,
    out: Strides,
    c: Strides,
}

/// Whether the device multiplies so, the factors lie in lines that begin at multiples of 16 bytes, and the result is not
/// too large for one launch.
pub(super) fn can_run(shape: Shape, problem: &Problem<'_>) -> Result<bool> {
    let sizes = problem.sizes();
    let is_served = if shape.is_tf32() {
        problem.out.dtype() == DType::F32 && problem.allow_tf32
    } else {
        is_half(problem.out.dtype())
    };
    let fits = sizes.iter().all(|&size| size > 0 && i32::try_from(size).is_ok());
    let fits = fits && (shape != Shape::Whole || tiles(sizes[3], 64) <= WHOLE_STEPS);
    let bias = problem.bias.map_or(0, |bias| bias.strides()[0]);
    if !is_served || !fits || shape.kind().tiles(sizes).is_none() || u32::try_from(bias).is_err() {
        return Ok(false);
    }
    let device = problem.out.device().cuda_index()?.unwrap_or(0);
    let lie = [way(shape, problem.a, [1, 2]), way(shape, problem.b, [2, 1])];
    let [Some(a), Some(_)] = lie else { return Ok(false) };
    // The kernels that divide the inner dimension are there for the usual way of the left factor.
    let has_kernel = a.lies_inner || !shape.kind().divides;
    Ok(has_kernel && traits(device)?.has_wgmma)
}

/// The shape that is likely to be quick, if one serves.
pub(super) fn choose(problem: &Problem<'_>) -> Result<Option<Shape>> {
    let device = problem.out.device().cuda_index()?.unwrap_or(0);
    let traits = traits(device)?;
    if !traits.has_wgmma {
        return Ok(None);
    }
    let shapes = likely(problem.sizes(), problem.out.dtype() == DType::F32, traits.multiprocessors);
    for shape in shapes {
        if can_run(shape, problem)? {
            return Ok(Some(shape));
        }
    }
    Ok(None)
}

/// Shapes in the order of the time that they are likely to take.
fn likely(sizes: [i64; 4], is_tf32: bool, multiprocessors: i64) -> Vec<Shape> {
    let steps = tiles(sizes[3], 64);
    let (large, middle) = if is_tf32 { (Shape::LargeTf32, Shape::MiddleTf32) } else { (Shape::Large, Shape::Middle) };
    let mut shapes = vec![large, middle];
    if !is_tf32 {
        let narrow = Shape::Whole.kind().tiles(sizes).unwrap_or(i64::MAX);
        if narrow <= multiprocessors && steps <= WHOLE_STEPS {
            return vec![Shape::Whole, Shape::Small, middle, large];
        }
        let all = Shape::Small.kind().tiles(sizes).unwrap_or(i64::MAX);
        // Few tiles with long sums: as many blocks for each as the device has room for.
        let divided = [(4, Shape::Quartered), (2, Shape::Halved), (1, Shape::Undivided)];
        let few = divided.into_iter().find(|&(shares, _)| all * shares <= multiprocessors && steps >= shares * 8);
        if let Some((_, shape)) = few {
            return vec![shape, Shape::Small, middle, large];
        }
        shapes.push(Shape::Small);
    }
    // Measured on a device with 132 multiprocessors: how long a tile of each shape takes beside one of 128 x 256.
    let time = |shape: Shape| {
        let (kind, cost) = match shape {
            Shape::Large | Shape::LargeTf32 => (shape.kind(), 100),
            Shape::Middle | Shape::MiddleTf32 => (shape.kind(), 54),
            _ => (shape.kind(), 24),
        };
        let at_once = (multiprocessors / kind.cluster).max(1);
        tiles(kind.tiles(sizes).unwrap_or(i64::MAX), at_once).saturating_mul(cost)
    };
    shapes.sort_by_key(|&shape| time(shape));
    shapes
}

/// Computes a problem that [`can_run`].
pub(super) fn run(shape: Shape, problem: &Problem<'_>) -> Result<()> {
    let kind = shape.kind();
    let out = problem.out;
    let sizes = problem.sizes();
    let refused = || TensorError::Invalid("a factor does not lie in lines".to_owned());
    let a = way(shape, problem.a, [1, 2]).ok_or_else(refused)?;
    let b = way(shape, problem.b, [2, 1]).ok_or_else(refused)?;
    let [batches, m, n, k] = sizes.map(|size| u32::try_from(size).unwrap_or(0));
    let element = element(shape, out.dtype());
    let share = if kind.divides { 1 } else { kind.cluster };
    let a_map = factor_map(problem.a, [1, 2], &a, element, [kind.rows, 1])?;
    let b_map = factor_map(problem.b, [2, 1], &b, element, [kind.columns, share])?;
    let out_map = if kind.divides { None } else { result_map(problem)? };
    #[expect(clippy::cast_possible_truncation, reason = "sums are floats")]
    let [alpha, beta] = [problem.alpha.to_f64() as f32, problem.beta.to_f64() as f32];
    let numbers = Sizes {
        batches,
        m,
        n,
        k,
        a_step: u32::from(a.batch != 0),
        b_step: u32::from(b.batch != 0),
        band: BAND,
        activation: problem.activation.code(),
        alpha,
        beta,
        stores_tiles: u32::from(out_map.is_some()),
        bias_step: problem.bias.map_or(0, |bias| u32::try_from(bias.strides()[0]).unwrap_or(0)),
        out: Strides::of(out),
        c: problem.c.map_or_else(Strides::zeroed, Strides::of),
    };
    // A kernel that stores otherwise does not look at the map.
    let nothing = [0_u8; 128];
    let arguments = [
        whole(out)?,
        whole(problem.a)?,
        whole(problem.b)?,
        problem.c.map_or(Ok(Arg::U64(0)), whole)?,
        problem.bias.map_or(Ok(Arg::U64(0)), whole)?,
        Arg::Plain(a_map.bytes()),
        Arg::Plain(b_map.bytes()),
        Arg::Plain(out_map.as_ref().map_or(&nothing, TensorMap::bytes)),
        (&numbers).into(),
    ];
    let device = out.device().cuda_index()?.unwrap_or(0);
    let blocks = kind.blocks(kind.tiles(sizes).unwrap_or(0), traits(device)?.multiprocessors);
    let too_large = |_| TensorError::TooLarge { sizes: out.sizes().to_vec() };
    let config = LaunchConfig {
        grid: [u32::try_from(blocks).map_err(too_large)?, 1, 1],
        block: [kind.threads(), 1, 1],
        shared_bytes: kind.shared_bytes(),
    };
    // SAFETY: the kernel waits for its turn before it touches memory. It reads the factors by their maps, which cover the views
    // and no more, and writes the result by its map or at places inside the sizes above, which are those of the views; a view
    // lies inside its storage. Nothing is read where an address is null. The grid is a multiple of the cluster.
    unsafe { launch_early(&TEXT, kernel(shape, out.dtype(), &a, &b), device, &config, &arguments)? };
    Ok(())
}

fn kernel(shape: Shape, dtype: DType, a: &Lines, b: &Lines) -> &'static str {
    macro_rules! of_layout {
        ($($name:literal $ways:tt),*) => {
            match (shape.kind().kernel, dtype) {
                $(($name, DType::F16) => of_layout!(@ $name, "_f16", $ways),
                ($name, DType::BF16) => of_layout!(@ $name, "_bf16", $ways),)*
                ("t128x256", _) => "t128x256_tf32_ii",
                _ => "t128x128_tf32_ii",
            }
        };
        (@ $name:literal, $dtype:literal, all) => {
            match (a.lies_inner, b.lies_inner) {
                (true, true) => concat!($name, $dtype, "_ii"),
                (true, false) => concat!($name, $dtype, "_io"),
                (false, true) => concat!($name, $dtype, "_oi"),
                (false, false) => concat!($name, $dtype, "_oo"),
            }
        };
        (@ $name:literal, $dtype:literal, inner) => {
            if b.lies_inner { concat!($name, $dtype, "_ii") } else { concat!($name, $dtype, "_io") }
        };
    }
    of_layout!("t128x256" all, "t128x128" all, "t64x64" all, "w64x32" inner, "d64x64_1" inner, "d64x64_2" inner, "d64x64_4" inner)
}

/// What the elements of the factors are on their way.
fn element(shape: Shape, dtype: DType) -> TensorMapElement {
    match dtype {
        _ if shape.is_tf32() => TensorMapElement::TF32,
        DType::BF16 => TensorMapElement::BF16,
        _ => TensorMapElement::F16,
    }
}

/// How a factor lies, if the accelerator can copy tiles of it. Floats are multiplied along the inner dimension alone.
fn way(shape: Shape, factor: &Tensor, [outer, inner]: [usize; 2]) -> Option<Lines> {
    lines(factor, [outer, inner]).find(|lines| {
        let slow = if lines.lies_inner { outer } else { inner };
        let is_repeated = factor.sizes()[slow] > 1 && lines.step == 0;
        is_aligned(factor, lines) && !is_repeated && (lines.lies_inner || !shape.is_tf32())
    })
}

/// The map of a factor, of which a block asks for tiles of so many elements along the outer dimension, or for the share
/// that is its own.
fn factor_map(
    factor: &Tensor,
    [outer, inner]: [usize; 2],
    lines: &Lines,
    element: TensorMapElement,
    [width, shares]: [i64; 2],
) -> Result<TensorMap> {
    let step = LINE / i64::try_from(factor.element_size()).unwrap_or(1);
    let (fast, slow, tile) = if lines.lies_inner {
        (inner, outer, [step, width / shares])
    } else {
        // Parts of 64 elements, of which each block asks for some lines.
        (outer, inner, [step.min(width), step / shares])
    };
    let batches = if lines.batch == 0 { 1 } else { factor.sizes()[0] };
    map(factor, element, [factor.sizes()[fast], factor.sizes()[slow], batches], [lines.step, lines.batch], tile)
}

/// The map of the result, if the accelerator can store tiles of it as they are.
fn result_map(problem: &Problem<'_>) -> Result<Option<TensorMap>> {
    let out = problem.out;
    if problem.c.is_some() || problem.is_followed() || !is_half(out.dtype()) {
        return Ok(None);
    }
    // The dimensions are those of a factor that lies along its second one.
    let Some(lines) = lines(out, [1, 2]).find(|lines| lines.lies_inner && is_aligned(out, lines)) else {
        return Ok(None);
    };
    let is_repeated = (out.sizes()[1] > 1 && lines.step == 0) || (out.sizes()[0] > 1 && lines.batch == 0);
    if is_repeated {
        return Ok(None);
    }
    let element = if out.dtype() == DType::BF16 { TensorMapElement::BF16 } else { TensorMapElement::F16 };
    let [batches, m, n] = [0, 1, 2].map(|dim| out.sizes()[dim]);
    map(out, element, [n, m, batches], [lines.step, lines.batch], [64, 64]).map(Some)
}

fn map(
    tensor: &Tensor,
    element: TensorMapElement,
    sizes: [i64; 3],
    steps: [i64; 2],
    tile: [i64; 2],
) -> Result<TensorMap> {
    let on_host = || TensorError::Invalid("the tensor is on the host".to_owned());
    let buffer = tensor.plain_storage()?.buffer().ok_or_else(on_host)?;
    let bytes = i64::try_from(tensor.element_size()).unwrap_or(1);
    // A step that does not matter has to be a multiple of 16 bytes all the same.
    let step = |step: i64| if step == 0 { 16 } else { (step * bytes).unsigned_abs() };
    let part = |size: i64| u32::try_from(size).unwrap_or(0);
    let dims = [
        TensorMapDim { size: sizes[0].unsigned_abs(), step: bytes.unsigned_abs(), tile: part(tile[0]) },
        TensorMapDim { size: sizes[1].unsigned_abs(), step: step(steps[0]), tile: part(tile[1]) },
        TensorMapDim { size: sizes[2].unsigned_abs(), step: step(steps[1]), tile: 1 },
    ];
    let range = tensor.byte_offset()..tensor.byte_offset() + tensor.byte_extent();
    Ok(TensorMap::new(buffer, range, &TensorMapLayout { element, dims: &dims })?)
}

#[cfg(test)]
mod tests {
    use super::{Shape, likely};

    #[test]
    fn the_shape_follows_from_the_number_of_tiles() {
        let first = |sizes| likely(sizes, false, 132)[0];
        assert_eq!(first([1, 8192, 8192, 8192]), Shape::Large);
        assert_eq!(first([1, 2048, 2048, 2048]), Shape::Large);
        assert_eq!(first([1, 512, 512, 512]), Shape::Whole);
        assert_eq!(first([1, 512, 512, 640]), Shape::Undivided);
        assert_eq!(first([1, 64, 4096, 4096]), Shape::Halved);
        assert_eq!(first([1, 16, 1024, 8192]), Shape::Quartered);
        assert_eq!(first([4096, 64, 64, 64]), Shape::Small);
        assert_eq!(likely([1, 8192, 8192, 8192], true, 132)[0], Shape::LargeTf32);
    }

    #[test]
    fn blocks_fit_a_multiprocessor() {
        for shape in [Shape::Large, Shape::Middle, Shape::Small, Shape::Whole, Shape::Quartered] {
            let kind = shape.kind();
            assert!(i64::from(kind.shared_bytes()) * kind.blocks <= 227 * 1024, "{}", kind.name);
            let tiles = kind.tiles([3, 1000, 1000, 64]).unwrap_or(0);
            assert_eq!(kind.blocks(tiles, 132) % kind.cluster, 0);
        }
    }
}
