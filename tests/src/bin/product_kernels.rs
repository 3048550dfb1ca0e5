//! Every kernel for products that can compute a problem on the GPU of this machine, against one in `f64`:
//! `product_kernels [--quick]`. What simulated devices lack (`wgmma`) is tested here alone.
//!
//! `--quick` takes small problems, each once, so that tools that slow a kernel down by a factor of a thousand come to an end.
//!
//! Prints a line for each kernel with the number of problems and the largest error, in units of the dtype's last place
//! beside the largest element; the exit code is 1 where one is beyond what the precision allows (tf32: 2^-9 of the largest element).

use std::collections::BTreeMap;
use std::process::ExitCode;

use aten_cuda::own_products::{Activation, Problem, run, solutions};
use aten_cuda::{DType, Result, Tensor, random};
use tests::program::{ended, say};

/// Batches, m, n, k: sizes that cut tiles and such that fill them, single rows and columns, few tiles with long sums.
const SIZES: [[i64; 4]; 12] = [
    [1, 512, 512, 512],
    [3, 64, 64, 64],
    [2, 40, 24, 36],
    [1, 328, 520, 200],
    [2, 136, 264, 72],
    [1, 64, 256, 4096],
    [1, 16, 128, 3000],
    [1, 1, 1000, 1500],
    [2, 1, 4096, 512],
    [1, 777, 1, 1000],
    [1, 1100, 1032, 40],
    [5, 33, 63, 7],
];

/// More large tiles than a device has multiprocessors, so that workers have tiles to share and whole ones.
const MANY_TILES: [i64; 4] = [1, 3000, 2900, 520];

/// The problems of `--quick`: they cut tiles, fill them, and divide long sums among blocks and groups of threads.
const QUICK_SIZES: [[i64; 4]; 7] = [
    [1, 128, 64, 128],
    [2, 40, 24, 36],
    [1, 136, 264, 72],
    [1, 64, 64, 2048],
    [1, 1, 264, 300],
    [1, 260, 1, 300],
    [3, 33, 31, 7],
];

/// What the numbers are made from, so that a run can be repeated.
const SEED: i64 = 7;

fn main() -> ExitCode {
    let is_quick = std::env::args().skip(1).any(|word| word == "--quick");
    ended(random::manual_seed(SEED).and_then(|()| if is_quick { quick() } else { all() }))
}

/// Problems of a kernel and its largest error.
type Seen = BTreeMap<(String, String), (u32, f64)>;

/// Ways that the factors lie in: whether each has lines along its first dimension.
const LAYOUTS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

fn quick() -> Result<bool> {
    let mut seen = Seen::new();
    for (first, dtype) in [DType::F16, DType::F32].into_iter().enumerate() {
        for (at, sizes) in QUICK_SIZES.into_iter().enumerate() {
            let number = first + at;
            check(&mut seen, dtype, sizes, LAYOUTS[number % 4], [0, 8, 3][number / 2 % 3], number % 3)?;
        }
    }
    Ok(tell(seen))
}

fn all() -> Result<bool> {
    let mut seen = Seen::new();
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for sizes in SIZES {
            for (at, turned) in LAYOUTS.into_iter().enumerate() {
                for step in 0..3 {
                    check(&mut seen, dtype, sizes, turned, [0, 8, 3][(at + step) % 3], step)?;
                }
            }
        }
    }
    for (at, dtype) in [DType::F16, DType::BF16].into_iter().enumerate() {
        check(&mut seen, dtype, MANY_TILES, LAYOUTS[1 + at], 8, 2)?;
    }
    Ok(tell(seen))
}

/// Prints what was seen, and says whether it is within the bounds.
fn tell(seen: Seen) -> bool {
    let mut is_good = true;
    for ((name, dtype), (count, worst)) in seen {
        let most = bound(&name, &dtype);
        is_good &= worst <= most;
        say(&format!(
            "{name} {dtype}: {count} problems, {worst:.3}{}",
            if worst <= most { "" } else { " TOO FAR OFF" }
        ));
    }
    is_good
}

/// The largest error that is allowed, in the units that errors are counted in.
///
/// Sums of 16-bit floats are kept in `f32` and rounded once. Those of `f32` and `f64` are rounded at each of at most 4096
/// additions by at most half of a last place, 2^-24 and 2^-53; such errors add up like a random walk, to 64 of them.
fn bound(name: &str, dtype: &str) -> f64 {
    match dtype {
        _ if name.contains("tf32") => f64::from(1 << 13),
        "torch.float32" => 64.0 * 2.0_f64.powi(-24 + 22),
        "torch.float64" => 64.0 * 2.0_f64.powi(-53 + 50),
        _ => 2.0,
    }
}

/// Random numbers in a batch of matrices; with lines along the second dimension or the first, `gap` elements behind each.
fn matrices(sizes: [i64; 3], turned: bool, gap: i64, dtype: DType) -> Result<Tensor> {
    let [batches, rows, columns] = sizes;
    let (lines, across) = if turned { (columns, rows) } else { (rows, columns) };
    let room = Tensor::randn(&[batches, lines, across + gap], dtype, "cuda", None)?.narrow(2, 0, across)?;
    if turned { room.transpose(1, 2) } else { Ok(room) }
}

/// `step` says what follows the product: nothing, what is added, or that with bias and activation.
fn check(seen: &mut Seen, dtype: DType, sizes: [i64; 4], turned: [bool; 2], gap: i64, step: usize) -> Result<()> {
    let [batches, m, n, k] = sizes;
    let a = matrices([batches, m, k], turned[0], gap, dtype)?;
    let b = matrices([batches, k, n], turned[1], gap, dtype)?;
    let c = matrices([batches, m, n], false, gap, dtype)?;
    let bias = Tensor::randn(&[n], dtype, "cuda", None)?;
    let activation = if step == 2 { Activation::Gelu } else { Activation::None };
    let wide = |tensor: &Tensor| tensor.to_dtype(DType::F64);
    // In `f64` by a kernel that the simulated device is tested with.
    let mut wanted = Tensor::empty(&[batches, m, n], DType::F64, "cuda")?;
    let (a64, b64) = (wide(&a)?.contiguous()?, wide(&b)?.contiguous()?);
    let reference = Problem::new(&wanted, &a64, &b64, None, 0.5.into(), 0.into());
    let plain = solutions(&reference)?.into_iter().find(|solution| solution.name().starts_with("own_tiled"));
    plain.map_or(Ok(()), |solution| run(solution, &reference))?;
    if step > 0 {
        wanted = wanted.sub(&wide(&c)?.mul(2)?)?;
    }
    if step == 2 {
        wanted = wanted.add(&wide(&bias)?)?;
        let inner = wanted.add(&wanted.mul(&wanted)?.mul(&wanted)?.mul(0.044715)?)?.mul(0.797_884_560_802_865_4)?;
        wanted = wanted.mul(&inner.tanh()?.add(1)?)?.mul(0.5)?;
    }
    let largest = numbers(&wanted)?.into_iter().fold(1.0_f64, |most, number| most.max(number.abs()));
    let out = matrices([batches, m, n], false, gap, dtype)?;
    let problem = Problem {
        bias: (step == 2).then_some(&bias),
        activation,
        allow_tf32: true,
        ..Problem::new(&out, &a, &b, (step > 0).then_some(&c), 0.5.into(), (-2).into())
    };
    for solution in solutions(&problem)? {
        out.fill_(f64::NAN)?;
        run(solution, &problem)?;
        let off = numbers(&wide(&out)?.sub(&wanted)?)?;
        let most =
            off.into_iter().fold(0.0_f64, |most, off| if off.is_nan() { f64::INFINITY } else { most.max(off.abs()) });
        let unit = match dtype.itemsize() {
            2 if dtype == DType::F16 => 2.0_f64.powi(-11),
            2 => 2.0_f64.powi(-8),
            4 => 2.0_f64.powi(-22),
            _ => 2.0_f64.powi(-50),
        };
        let entry = seen.entry((solution.name().to_owned(), dtype.to_string())).or_insert((0, 0.0));
        *entry = (entry.0 + 1, entry.1.max(most / largest / unit));
    }
    Ok(())
}

fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    tensor.to_vec::<f64>()
}
