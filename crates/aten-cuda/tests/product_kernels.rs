//! Every kernel for products that can compute a problem, against the host in `f64`: random sizes and layouts, what is
//! added, bias and activation, batches, single rows and columns.
//!
//! The simulated device has no `wgmma`; the program `product_kernels` of the tests runs the same on a GPU.

mod common;

use aten_cuda::own_products::{Activation, Problem, Solution, choose, run, solutions};
use aten_cuda::{DType, Result, Tensor};
use common::random;

/// Numbers between -1 and 1 with few bits, so that every dtype has them.
fn floats(sizes: &[i64], seed: i64) -> Result<Vec<f64>> {
    let count: i64 = sizes.iter().product();
    let numbers = random(count + seed).skip(usize::try_from(seed).unwrap_or(0));
    Ok(numbers.map(|bits| f64::from(u8::try_from(bits % 65).unwrap_or(0)) / 32.0 - 1.0).collect())
}

/// A batch of matrices on the device with its numbers; with lines along the second dimension or the first, `gap` elements
/// behind each line.
fn matrices(sizes: [i64; 3], turned: bool, gap: i64, seed: i64, dtype: DType) -> Result<(Tensor, Vec<f64>)> {
    let [batches, rows, columns] = sizes;
    let numbers = floats(&sizes, seed)?;
    let all = Tensor::from_slice(&numbers, &sizes)?.to_dtype(dtype)?.cuda(None)?;
    let (lines, across) = if turned { (columns, rows) } else { (rows, columns) };
    let room = Tensor::zeros(&[batches, lines, across + gap], dtype, "cuda")?.narrow(2, 0, across)?;
    let placed = if turned { room.transpose(1, 2)? } else { room };
    placed.copy_(&all)?;
    Ok((placed, numbers))
}

struct Case {
    dtype: DType,
    /// Batches, m, n, k.
    sizes: [i64; 4],
    turned: [bool; 2],
    gap: i64,
    is_added: bool,
    has_bias: bool,
    activation: Activation,
}

fn activated(value: f64, activation: Activation) -> f64 {
    match activation {
        Activation::None => value,
        Activation::Relu => value.max(0.0),
        Activation::Gelu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (value + 0.044715 * value.powi(3));
            0.5 * value * (1.0 + inner.tanh())
        }
    }
}

/// What is computed, and how far off it may be.
fn expected(case: &Case, a: &[f64], b: &[f64], c: &[f64], bias: &[f64]) -> Vec<f64> {
    let [_, m, n, k] = case.sizes.map(|size| usize::try_from(size).unwrap_or(0));
    let element = |(at, added): (usize, &f64)| {
        let (batch, row, column) = (at / (m * n), at / n % m, at % n);
        let products = (0..k).map(|inner| a[(batch * m + row) * k + inner] * b[(batch * k + inner) * n + column]);
        let mut value = 0.5 * products.sum::<f64>();
        value -= if case.is_added { 2.0 * added } else { 0.0 };
        value += if case.has_bias { bias[column] } else { 0.0 };
        activated(value, case.activation)
    };
    c.iter().enumerate().map(element).collect()
}

/// Runs all solutions of a problem; returns their names.
fn check(case: &Case) -> Result<Vec<&'static str>> {
    let [batches, m, n, k] = case.sizes;
    let (a, left) = matrices([batches, m, k], case.turned[0], case.gap, 1, case.dtype)?;
    let (b, right) = matrices([batches, k, n], case.turned[1], case.gap, 2, case.dtype)?;
    let (c, added) = matrices([batches, m, n], false, case.gap, 3, case.dtype)?;
    let bias_numbers = floats(&[n], 4)?;
    let bias = Tensor::from_slice(&bias_numbers, &[n])?.to_dtype(case.dtype)?.cuda(None)?;
    let wanted = expected(case, &left, &right, &added, &bias_numbers);
    let mut names = Vec::new();
    let out = Tensor::empty(&[batches, m, n], case.dtype, "cuda")?;
    let problem = Problem {
        bias: case.has_bias.then_some(&bias),
        activation: case.activation,
        allow_tf32: true,
        ..Problem::new(&out, &a, &b, case.is_added.then_some(&c), 0.5.into(), (-2).into())
    };
    let all = solutions(&problem)?;
    assert!(all.contains(&choose(&problem)?));
    for solution in all {
        out.fill_(f64::NAN)?;
        run(solution, &problem)?;
        let found = out.to_dtype(DType::F64)?.to_vec::<f64>()?;
        compare(case, solution, &found, &wanted);
        names.push(solution.name());
    }
    Ok(names)
}

fn compare(case: &Case, solution: Solution, found: &[f64], wanted: &[f64]) {
    let [batches, m, n, k] = case.sizes;
    // Half a unit in the last place of the dtype, and the error of the sum and of the activation.
    let bits = [(DType::F16, 11), (DType::BF16, 8), (DType::F32, 21), (DType::F64, 48)];
    let bits = bits.into_iter().find_map(|(dtype, bits)| (dtype == case.dtype).then_some(bits)).expect("one of these");
    let unit = 2.0_f64.powi(-bits);
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let most = unit * (wanted.abs() + 2.0_f64.powi(-3));
        let name = solution.name();
        let lies = case.turned;
        assert!(
            (found - wanted).abs() <= most,
            "{name} {:?} {batches}x{m}x{n}x{k} {lies:?}: element {at} is {found}, not {wanted}",
            case.dtype
        );
    }
}

fn all_layouts(dtype: DType, sizes: [i64; 4], gaps: &[i64]) -> Result<Vec<&'static str>> {
    let mut names = Vec::new();
    for (at, turned) in [[false, false], [false, true], [true, false], [true, true]].into_iter().enumerate() {
        for (step, (is_added, has_bias)) in [(false, false), (true, false), (true, true)].into_iter().enumerate() {
            // Each gap and each activation comes with each of the rest once in a while.
            let gap = gaps[(at + step) % gaps.len()];
            let activation = [Activation::Gelu, Activation::Relu, Activation::None][at % 3];
            let activation = if has_bias { activation } else { Activation::None };
            names.extend(check(&Case { dtype, sizes, turned, gap, is_added, has_bias, activation })?);
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

#[test]
fn one_row_and_one_column() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for dtype in FLOATS {
        let mut names = Vec::new();
        for sizes in [[1, 1, 67, 130], [2, 40, 1, 91], [2, 1, 24, 600], [1, 1, 1, 37]] {
            names.extend(all_layouts(dtype, sizes, &[0, 8, 3])?);
        }
        for way in ["own_vector_rows", "own_vector_columns"] {
            assert!(names.contains(&way), "{dtype:?}: {names:?}");
        }
    }
    Ok(())
}

/// So many lines that blocks share them.
#[test]
fn lines_that_blocks_share() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for (dtype, n) in [(DType::F16, 24), (DType::F32, 17), (DType::F64, 6)] {
        all_layouts(dtype, [2, 1, n, 2100], &[0])?;
    }
    Ok(())
}

#[test]
fn small_batches() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for sizes in [[3, 64, 64, 64], [2, 40, 24, 36], [2, 33, 63, 7], [1, 5, 60, 1]] {
        let names = all_layouts(DType::F32, sizes, &[0, 4, 1])?;
        assert!(names.contains(&"own_small_64x64x64") && names.contains(&"own_tiled_64x64x16"), "{names:?}");
    }
    Ok(())
}

#[test]
fn halves_of_all_sizes() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for dtype in [DType::F16, DType::BF16] {
        for sizes in [[1, 130, 72, 96], [2, 65, 33, 50]] {
            let names = all_layouts(dtype, sizes, &[0, 8])?;
            for name in ["own_mma_64x64x64_s3", "own_mma_128x256x64_s3", "own_mma_stream_128x256x64_s3"] {
                assert!(names.contains(&name), "{name}: {names:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn floats_of_all_sizes_in_tf32() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for sizes in [[1, 130, 72, 96], [2, 65, 33, 50]] {
        let names = all_layouts(DType::F32, sizes, &[0, 4, 3])?;
        for name in ["own_mma_tf32_64x64x32_s3", "own_mma_tf32_128x256x32_s3"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }
    Ok(())
}

/// Tiles whose steps two, three and many workers share, and such that workers have whole.
#[test]
fn steps_that_workers_share() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for sizes in [[1, 40, 24, 1000], [3, 130, 16, 400], [5, 8, 260, 330]] {
        let case = |turned, has_bias| Case {
            dtype: DType::F16,
            sizes,
            turned,
            gap: 8,
            is_added: has_bias,
            has_bias,
            activation: if has_bias { Activation::Gelu } else { Activation::None },
        };
        for case in [case([false, true], false), case([true, false], true)] {
            assert!(check(&case)?.contains(&"own_mma_stream_128x256x64_s3"));
        }
    }
    Ok(())
}

#[test]
fn what_cannot_run_is_refused() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let tensor = Tensor::zeros(&[1, 4, 4], DType::F32, "cuda")?;
    let out = Tensor::zeros(&[1, 4, 4], DType::F32, "cuda")?;
    let problem = Problem::new(&out, &tensor, &tensor, None, 1.into(), 0.into());
    for name in ["own_mma_64x64x64_s3", "own_vector_rows", "own_wgmma_128x256x64_c2_s4"] {
        let solution = Solution::named(name).expect("it is listed");
        let refused = run(solution, &problem).expect_err("it cannot run");
        assert!(refused.to_string().contains(name), "{refused}");
    }
    let whole = Tensor::zeros(&[1, 4, 4], DType::I64, "cuda")?;
    let problem = Problem::new(&whole, &whole, &whole, None, 1.into(), 0.into());
    assert!(solutions(&problem).is_err() && choose(&problem).is_err());
    Ok(())
}
