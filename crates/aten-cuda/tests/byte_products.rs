//! Products of matrices of bytes (`_int_mm`, `_scaled_mm`): on the host, by the simulated cuBLASLt and by the kernels of the
//! crate, also captured, against each other, against exact sums and against what PyTorch 2.11 gave on an H200; and what
//! they refuse, in its words.

use aten_cuda::blas::{self, ScaledMm};
use aten_cuda::{DType, Result, Tensor};
use c10_core::{CUDAGraph, CaptureMode, Stream};
use testkit::{Config, SimulatedRuntime, Simulation};

/// What PyTorch gave.
const TORCH: &str = include_str!("data/byte_products.txt");

/// Where a product is computed.
const PLACES: [Place; 3] = [Place::Host, Place::Library, Place::Own];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Host,
    Library,
    Own,
}

impl Place {
    fn start(self) -> SimulatedRuntime {
        let simulated = Simulation::new(Config::default()).here();
        match self {
            Self::Library => blas::set_libraries(Some(testkit::cublas()), Some(testkit::cublaslt())),
            Self::Host | Self::Own => blas::set_libraries(None, None),
        }
        simulated
    }

    /// The tensor there, as it lies.
    fn has(self, tensor: &Tensor) -> Result<Tensor> {
        if self == Self::Host {
            return Ok(tensor.clone());
        }
        let bytes = i64::try_from(tensor.storage().nbytes()).unwrap_or(0);
        let all = Tensor::from_storage(tensor.storage().clone(), DType::U8, &[bytes], &[1], 0)?.cuda(None)?;
        let (sizes, strides) = (tensor.sizes(), tensor.strides());
        Tensor::from_storage(all.storage().clone(), tensor.dtype(), sizes, strides, tensor.storage_offset())
    }
}

/// A contiguous result that begins at no multiple of 16 bytes: only the kernel for any strides writes to it.
fn odd_result(sizes: &[i64], dtype: DType) -> Result<Tensor> {
    let count: i64 = sizes.iter().product();
    Tensor::empty(&[count + 1], dtype, &Tensor::empty(&[0], dtype, "cuda")?)?.narrow(0, 1, count)?.reshape(sizes)
}

/// How many products cuBLASLt was given since the last time.
fn products_of_library(simulated: &SimulatedRuntime) -> usize {
    simulated.machine().take_library_calls().iter().filter(|call| call.symbol == "cublasLtMatmul").count()
}

/// Whole numbers that look random, by a seed: as they were made for PyTorch.
fn words(count: u64, seed: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |at| ((at * 2_654_435_761 + seed * 40_503 + 12_345) % (1 << 32)) >> 16)
}

fn of(numbers: Vec<f32>, sizes: &[i64], dtype: DType) -> Result<Tensor> {
    Tensor::from_slice(&numbers, sizes)?.to_dtype(dtype)
}

/// A matrix of numbers whose products have exact sums.
fn floats(rows: i64, columns: i64, seed: u64, dtype: DType) -> Result<Tensor> {
    const NUMBERS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, -0.5, -1.0, -2.0];
    let numbers =
        words((rows * columns).unsigned_abs(), seed).map(|word| NUMBERS[usize::try_from(word % 8).unwrap_or(0)]);
    of(numbers.collect(), &[rows, columns], dtype)
}

fn integers(rows: i64, columns: i64, seed: u64) -> Result<Tensor> {
    let bytes: Vec<u8> = words((rows * columns).unsigned_abs(), seed).map(|word| word.to_le_bytes()[0]).collect();
    Tensor::from_bytes(&bytes, &[rows, columns], DType::I8)
}

/// Scales of all, or of rows and columns.
fn scales(m: i64, n: i64, is_each: bool) -> Result<[Tensor; 2]> {
    if !is_each {
        return Ok([of(vec![0.75], &[], DType::F32)?, of(vec![2.5], &[], DType::F32)?]);
    }
    let steps = |count: i64, first: f32, step: f32| {
        (0_u8..).map(move |at| first + f32::from(at) * step).take(usize::try_from(count).unwrap_or(0))
    };
    let rows = of(steps(m, 0.5, 1.0 / 64.0).collect(), &[m, 1], DType::F32)?;
    Ok([rows, of(steps(n, 0.25, 1.0 / 32.0).collect(), &[1, n], DType::F32)?])
}

fn bias(n: i64, dtype: DType) -> Result<Tensor> {
    Tensor::arange(-8, n - 8, 1, Some(DType::F32), "cpu")?.div(4)?.to_dtype(dtype)
}

fn named(name: &str) -> Option<DType> {
    Some(match name {
        "e4m3fn" => DType::F8E4M3FN,
        "e5m2" => DType::F8E5M2,
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        "f32" => DType::F32,
        _ => return None,
    })
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(digit).collect()
}

#[test]
fn results_are_those_of_torch() -> Result<()> {
    let mut compared = 0;
    for place in PLACES {
        let simulated = place.start();
        for line in TORCH.lines().filter(|line| !line.starts_with('#')) {
            let (call, digits) = line.split_once(" = ").expect("a call and a result");
            let words: Vec<&str> = call.split(' ').collect();
            let found = if let [first, second, mode, result, added] = words[..] {
                let (first, second) = (named(first).expect("a dtype"), named(second).expect("a dtype"));
                let (a, b) = (floats(32, 64, 1, first)?, floats(16, 64, 2, second)?);
                let [scale_a, scale_b] = scales(32, 16, mode == "row")?;
                let added = named(added).map(|dtype| place.has(&bias(16, dtype)?)).transpose()?;
                let options = ScaledMm { bias: added.as_ref(), out_dtype: named(result), ..ScaledMm::default() };
                place.has(&a)?.scaled_mm(
                    &place.has(&b)?.t()?,
                    &place.has(&scale_a)?,
                    &place.has(&scale_b)?,
                    &options,
                )?
            } else {
                place.has(&integers(32, 64, 3)?)?.int_mm(&place.has(&integers(64, 16, 4)?)?)?
            };
            assert_eq!(found.to_bytes()?, bytes_of(digits), "{call}, {place:?}");
            compared += 1;
        }
        let by_library = products_of_library(&simulated);
        assert_eq!(by_library, if place == Place::Library { compared / 2 } else { 0 });
    }
    assert_eq!(compared, 33);
    Ok(())
}

#[test]
fn integers_of_all_layouts_and_sizes() -> Result<()> {
    for [m, k, n] in [[17, 8, 8], [65, 72, 136], [128, 256, 64], [19, 40, 24]] {
        for (turned_a, turned_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let a = if turned_a { integers(k, m, 5)?.t()? } else { integers(m, k, 5)? };
            let b = if turned_b { integers(n, k, 6)?.t()? } else { integers(k, n, 6)? };
            let wanted = a.to_dtype(DType::I64)?.mm(&b.to_dtype(DType::I64)?)?.to_dtype(DType::I32)?;
            for place in PLACES {
                let simulated = place.start();
                let (a, b) = (place.has(&a)?, place.has(&b)?);
                let is_own = place == Place::Own;
                let out =
                    if is_own { odd_result(&[m, n], DType::I32)? } else { Tensor::empty(&[m, n], DType::I32, &a)? };
                a.int_mm_out(&b, &out)?;
                for made in [a.int_mm(&b)?, out] {
                    assert_eq!((made.dtype(), made.sizes()), (DType::I32, &[m, n][..]));
                    assert_eq!(made.to_vec::<i32>()?, wanted.to_vec::<i32>()?, "{m} {k} {n} {place:?}");
                }
                assert_eq!(products_of_library(&simulated), if place == Place::Library { 2 } else { 0 });
            }
        }
    }
    // Steps between elements, and sums that wrap around.
    for place in PLACES {
        let _simulated = place.start();
        let wide = place.has(&integers(32, 64, 7)?)?;
        let (part, b) = (wide.slice(1, None, None, 2)?, place.has(&integers(32, 16, 8)?)?);
        assert_eq!(part.int_mm(&b)?.to_vec::<i32>()?, part.contiguous()?.int_mm(&b)?.to_vec::<i32>()?);
        let low = |sizes: &[i64]| place.has(&Tensor::full(sizes, -128, DType::I8, "cpu")?);
        let sum = low(&[17, 1 << 17])?.int_mm(&low(&[1 << 17, 8])?)?;
        assert_eq!(sum.to_vec::<i32>()?[..3], [i32::MIN; 3]);
    }
    Ok(())
}

#[test]
fn floats_of_all_formats_and_sizes() -> Result<()> {
    let formats =
        [(DType::F8E4M3FN, DType::F8E4M3FN), (DType::F8E4M3FN, DType::F8E5M2), (DType::F8E5M2, DType::F8E4M3FN)];
    let results = [DType::F32, DType::BF16, DType::F16, DType::F8E4M3FN, DType::F8E5M2];
    for ([m, k, n], (first, second)) in [[1, 16, 16], [65, 80, 144], [130, 48, 64]].into_iter().zip(formats) {
        let (a, b) = (floats(m, k, 9, first)?, floats(n, k, 10, second)?);
        for (is_each, dtype) in [false, true].into_iter().flat_map(|is_each| results.map(|dtype| (is_each, dtype))) {
            let [scale_a, scale_b] = scales(m, n, is_each)?;
            // No result is too large for its dtype.
            let scale_a = scale_a.mul(0.125)?;
            let added = if dtype == DType::F16 { DType::F16 } else { DType::BF16 };
            for added in [None, Some(bias(n, added)?)] {
                if dtype == DType::F32 && added.is_some() {
                    continue;
                }
                // Every number is exact in `f32` until it is rounded to the result.
                let exact = a.to_dtype(DType::F32)?.mm(&b.t()?.to_dtype(DType::F32)?)?.mul(&scale_a.mul(&scale_b)?)?;
                let exact = added.as_ref().map_or(Ok(exact.clone()), |bias| exact.add(&bias.to_dtype(DType::F32)?))?;
                let wanted = exact.to_dtype(dtype)?.to_bytes()?;
                for place in PLACES {
                    let _simulated = place.start();
                    let bias = added.as_ref().map(|bias| place.has(bias)).transpose()?;
                    let options = ScaledMm { bias: bias.as_ref(), out_dtype: Some(dtype), ..ScaledMm::default() };
                    let (a, b) = (place.has(&a)?, place.has(&b)?.t()?);
                    let [scale_a, scale_b] = [place.has(&scale_a)?, place.has(&scale_b)?];
                    let is_own = place == Place::Own;
                    let out = if is_own { odd_result(&[m, n], dtype)? } else { Tensor::empty(&[m, n], dtype, &a)? };
                    a.scaled_mm_out(&b, &scale_a, &scale_b, &options, &out)?;
                    let made = a.scaled_mm(&b, &scale_a, &scale_b, &options)?;
                    assert_eq!(made.to_bytes()?, wanted, "{m} {k} {n} {first} {second} {dtype} {is_each} {place:?}");
                    assert_eq!(out.to_bytes()?, wanted);
                }
            }
        }
    }
    Ok(())
}

/// Elements that a scale of a part is for, along one dimension.
const PART: i64 = 128;

/// Scales of a factor of so many lines, a multiple of an eighth each: of parts of lines, or of square blocks with lines of
/// `step` elements. By lines.
fn scales_of(lines: i64, inner: i64, is_square: bool, step: Option<i64>, seed: u64) -> Result<Tensor> {
    const NUMBERS: [f32; 4] = [0.5, 0.75, 1.0, 0.125];
    let over = |size: i64| (size + PART - 1) / PART;
    let (count, parts) = (if is_square { over(lines) } else { lines }, over(inner));
    let numbers = |count: i64| {
        let numbers = words(count.unsigned_abs(), seed).map(|word| NUMBERS[usize::try_from(word % 4).unwrap_or(0)]);
        numbers.collect::<Vec<f32>>()
    };
    if is_square {
        let step = step.unwrap_or(parts);
        return of(numbers(count * step), &[count, step], DType::F32)?.narrow(1, 0, parts);
    }
    of(numbers(count * parts), &[parts, count], DType::F32)?.t()
}

/// What a scale says of each element of a factor: the factor as (lines, inner) with its scales taken into it.
fn scaled(factor: &Tensor, scales: &Tensor) -> Result<Tensor> {
    let (lines, inner) = (factor.sizes()[0], factor.sizes()[1]);
    let along = |count: i64, of: i64| Tensor::arange(0, count, 1, Some(DType::I64), "cpu")?.floor_divide(of);
    let down = along(lines, if scales.sizes()[0] == lines { 1 } else { PART })?;
    let each = scales.index_select(0, &down)?.index_select(1, &along(inner, PART)?)?;
    factor.to_dtype(DType::F64)?.mul(&each.to_dtype(DType::F64)?)
}

#[test]
fn scales_of_parts_and_of_blocks() -> Result<()> {
    let formats =
        [(DType::F8E4M3FN, DType::F8E4M3FN), (DType::F8E4M3FN, DType::F8E5M2), (DType::F8E5M2, DType::F8E4M3FN)];
    let kinds = [(false, false), (true, false), (false, true)];
    let sizes = [[48, 512, 144], [132, 272, 16], [136, 640, 144], [1, 256, 32], [17, 144, 16]];
    let mut by_library = 0;
    for (at, [m, k, n]) in sizes.into_iter().enumerate() {
        let (first, second) = formats[at % 3];
        let (a, b) = (floats(m, k, 9, first)?, floats(n, k, 10, second)?);
        for (square_a, square_b) in kinds {
            let aligned =
                Some((k + PART - 1) / PART / 4 * 4 + 4).filter(|_| at % 2 == 1 && (k + PART - 1) / PART % 4 != 0);
            let scale_a = scales_of(m, k, square_a, aligned, 11)?;
            let scale_b = scales_of(n, k, square_b, None, 12)?;
            // Every sum is exact in `f32`.
            let exact = scaled(&a, &scale_a)?.mm(&scaled(&b, &scale_b)?.t()?)?;
            for dtype in [DType::F32, DType::BF16, DType::F16, DType::F8E5M2] {
                let added = if dtype == DType::BF16 { Some(bias(n, dtype)?) } else { None };
                let wanted = match &added {
                    Some(bias) => exact.add(&bias.to_dtype(DType::F64)?)?,
                    None => exact.clone(),
                };
                let wanted = wanted.to_dtype(DType::F32)?.to_dtype(dtype)?.to_bytes()?;
                for place in PLACES {
                    let simulated = place.start();
                    let bias = added.as_ref().map(|bias| place.has(bias)).transpose()?;
                    let options = ScaledMm { bias: bias.as_ref(), out_dtype: Some(dtype), ..ScaledMm::default() };
                    let (a, b) = (place.has(&a)?, place.has(&b)?.t()?);
                    let (scale_a, scale_b) = (place.has(&scale_a)?, place.has(&scale_b)?.t()?);
                    let made = a.scaled_mm(&b, &scale_a, &scale_b, &options)?;
                    let what = format!("{m} {k} {n} {square_a} {square_b} {dtype} {place:?}");
                    assert_eq!(made.to_bytes()?, wanted, "{what}");
                    if place == Place::Own {
                        let out = odd_result(&[m, n], dtype)?;
                        a.scaled_mm_out(&b, &scale_a, &scale_b, &options, &out)?;
                        assert_eq!(out.to_bytes()?, wanted, "{what}, any strides");
                    }
                    by_library += products_of_library(&simulated);
                }
            }
        }
    }
    // Not by the library: results of 8 bits, and parts of a number of rows that is no multiple of 4.
    assert_eq!(by_library, 3 * (3 * 3 + 2 + 1));
    Ok(())
}

/// What the library does not compute, a kernel of the crate does: lines that begin at no multiple of 16 bytes.
#[test]
fn what_the_library_refuses_is_computed_all_the_same() -> Result<()> {
    let wide = floats(16, 40, 1, DType::F8E4M3FN)?;
    let (a, b) = (wide.narrow(1, 0, 32)?, floats(16, 32, 2, DType::F8E4M3FN)?);
    let [scale_a, scale_b] = scales(16, 16, false)?;
    let options = ScaledMm { out_dtype: Some(DType::F32), ..ScaledMm::default() };
    let wanted = a.scaled_mm(&b.t()?, &scale_a, &scale_b, &options)?;
    let simulated = Place::Library.start();
    let there = |tensor: &Tensor| Place::Library.has(tensor);
    let made = there(&a)?.scaled_mm(&there(&b)?.t()?, &there(&scale_a)?, &there(&scale_b)?, &options)?;
    assert_eq!(made.to_vec::<f32>()?, wanted.to_vec::<f32>()?);
    assert_eq!(products_of_library(&simulated), 0);
    Ok(())
}

/// Every code, each in a row of its own, by one: subnormal numbers, infinities and what is none.
#[test]
fn every_code_is_multiplied() -> Result<()> {
    for (first, second) in
        [(DType::F8E4M3FN, DType::F8E4M3FN), (DType::F8E4M3FN, DType::F8E5M2), (DType::F8E5M2, DType::F8E4M3FN)]
    {
        let mut codes = vec![0; 256 * 16];
        for code in 0..=u8::MAX {
            codes[usize::from(code) * 16 + usize::from(code) % 16] = code;
        }
        let rows = Tensor::from_bytes(&codes, &[256, 16], first)?;
        let columns = Tensor::from_bytes(&codes, &[256, 16], second)?;
        let ones = |dtype: DType| Tensor::ones(&[16, 16], DType::F32, "cpu")?.to_dtype(dtype);
        let options = ScaledMm { out_dtype: Some(DType::F32), ..ScaledMm::default() };
        let mut found = Vec::new();
        for place in PLACES {
            let _simulated = place.start();
            let one = place.has(&of(vec![1.0], &[], DType::F32)?)?;
            let left = place.has(&rows)?.scaled_mm(&place.has(&ones(second)?)?.t()?, &one, &one, &options)?;
            let right = place.has(&ones(first)?)?.scaled_mm(&place.has(&columns)?.t()?, &one, &one, &options)?;
            let numbers = [left, right.t()?].map(|made| made.to_vec::<f32>());
            // All that is no number is alike.
            let words = |number: f32| if number.is_nan() { u32::MAX } else { number.to_bits() };
            for numbers in numbers {
                found.push(numbers?.into_iter().map(words).collect::<Vec<u32>>());
            }
        }
        for place in found.chunks(2).skip(1) {
            assert_eq!(place, &found[..2], "{first} {second}");
        }
    }
    Ok(())
}

/// On a device numbers that are too large become the largest one, on the host they overflow: as in torch.
#[test]
fn large_results() -> Result<()> {
    let wanted: [(DType, f64, f64, f64); 2] =
        [(DType::F8E4M3FN, 448.0, f64::NAN, f64::NAN), (DType::F8E5M2, 57344.0, f64::INFINITY, f64::NAN)];
    for (dtype, most, on_host, not_a_number) in wanted {
        for place in PLACES {
            let _simulated = place.start();
            let a = place.has(&Tensor::ones(&[16, 32], DType::F32, "cpu")?.to_dtype(dtype)?)?;
            let b = place.has(&Tensor::ones(&[16, 32], DType::F8E4M3FN, "cpu")?)?.t()?;
            let one = place.has(&of(vec![1.0], &[], DType::F32)?)?;
            let scaled = |scale: f32| -> Result<f64> {
                let scale = place.has(&of(vec![scale], &[], DType::F32)?)?;
                let made = a.scaled_mm(&b, &scale, &one, &ScaledMm::default())?;
                assert_eq!(made.dtype(), dtype);
                Ok(made.to_dtype(DType::F64)?.to_vec::<f64>()?[0])
            };
            let same =
                |found: f64, wanted: f64| assert!(found == wanted || found.is_nan() && wanted.is_nan(), "{found}");
            same(scaled(1e6)?, if place == Place::Host { on_host } else { most });
            same(scaled(f32::INFINITY)?, if place == Place::Host { on_host } else { most });
            same(scaled(f32::NAN)?, not_a_number);
            same(scaled(-2.0)?, -64.0);
        }
    }
    Ok(())
}

#[test]
fn captured_products_are_replayed() -> Result<()> {
    for place in [Place::Library, Place::Own] {
        let _simulated = place.start();
        let (a, b) = (place.has(&integers(32, 64, 1)?)?, place.has(&integers(64, 16, 2)?)?);
        let (x, y) = (place.has(&floats(32, 64, 1, DType::F8E4M3FN)?)?, place.has(&floats(16, 64, 2, DType::F8E5M2)?)?);
        let [scale_a, scale_b] = scales(32, 16, true)?;
        let [scale_a, scale_b] = [place.has(&scale_a)?, place.has(&scale_b)?];
        let options = ScaledMm { out_dtype: Some(DType::BF16), ..ScaledMm::default() };
        let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
        let (whole, scaled) = graph.capture(&stream, None, CaptureMode::Global, || {
            Ok::<_, aten_cuda::Error>((a.int_mm(&b)?, x.scaled_mm(&y.t()?, &scale_a, &scale_b, &options)?))
        })?;
        // What the graph reads is other than when it was captured; so are workspaces.
        blas::clear_cublas_workspaces();
        a.copy_(&integers(32, 64, 3)?)?;
        x.copy_(&floats(32, 64, 4, DType::F8E4M3FN)?)?;
        scale_a.mul_(2)?;
        graph.replay()?;
        assert_eq!(whole.to_vec::<i32>()?, a.cpu()?.int_mm(&b.cpu()?)?.to_vec::<i32>()?);
        let wanted = x.cpu()?.scaled_mm(&y.cpu()?.t()?, &scale_a.cpu()?, &scale_b.cpu()?, &options)?;
        assert_eq!(scaled.to_bytes()?, wanted.to_bytes()?);
    }
    Ok(())
}

fn message(result: Result<Tensor>) -> String {
    result.map_or_else(|error| error.to_string(), |made| format!("made {:?} of {}", made.sizes(), made.dtype()))
}

#[test]
fn integers_that_do_not_fit_are_refused_as_in_torch() -> Result<()> {
    for place in PLACES {
        let _simulated = place.start();
        let ones = |sizes: &[i64], dtype: DType| place.has(&Tensor::ones(sizes, dtype, "cpu")?);
        let bytes = |sizes: &[i64]| ones(sizes, DType::I8);
        let square = bytes(&[32, 32])?;
        let into = |out: Tensor| square.int_mm_out(&square, &out).map(|()| out);
        let (prefix, is_host) = if place == Place::Host { ("int_mm_out_cpu: ", true) } else { ("", false) };
        let single = ones(&[32, 32], DType::F32)?;
        let mut cases = vec![
            (
                square.int_mm(&bytes(&[40, 32])?),
                format!("{prefix}self.size(1) needs to match mat2.size(0) but got 32 and 40"),
            ),
            (bytes(&[32])?.int_mm(&square), format!("{prefix}Expected self to be of dimension 2 but got 1")),
            (bytes(&[1, 32, 32])?.int_mm(&square), format!("{prefix}Expected self to be of dimension 2 but got 3")),
            (
                square.int_mm(&bytes(&[32])?),
                "Dimension out of range (expected to be in range of [-1, 0], but got 1)".to_owned(),
            ),
            (into(single.clone()), format!("{prefix}Expected result dtype to be of type kInt but got float")),
            (
                into(ones(&[32, 32], DType::I64)?),
                format!("{prefix}Expected result dtype to be of type kInt but got long int"),
            ),
            (into(ones(&[31, 32], DType::I32)?), format!("{prefix}Expected result.size(0) to be 32 but got 31")),
            (into(ones(&[32, 31], DType::I32)?), format!("{prefix}Expected result.size(1) to be 32 but got 31")),
            (
                into(ones(&[32], DType::I32)?),
                "Dimension out of range (expected to be in range of [-1, 0], but got 1)".to_owned(),
            ),
            (into(ones(&[32, 32, 1], DType::I32)?), format!("{prefix}Expected result to be of dimension 2 but got 3")),
            (into(ones(&[32, 32], DType::I32)?.t()?), format!("{prefix}Expected result to be contiguous.")),
        ];
        if is_host {
            cases.extend([
                (single.int_mm(&single), format!("{prefix}Expected self dtype to be of type int8 but got float")),
                (square.int_mm(&single), format!("{prefix}Expected mat2 dtype to be of type int8 but got float")),
                (
                    ones(&[32, 32], DType::U8)?.int_mm(&square),
                    format!("{prefix}Expected self dtype to be of type int8 but got unsigned char"),
                ),
                (bytes(&[1, 30])?.int_mm(&bytes(&[30, 3])?), "made [1, 3] of torch.int32".to_owned()),
                (bytes(&[2, 0])?.int_mm(&bytes(&[0, 3])?), "made [2, 3] of torch.int32".to_owned()),
            ]);
        } else {
            let multiple = "needs to be greater than 0 and a multiple of 8, but got";
            cases.extend([
                (single.int_mm(&single), "expected scalar type Char but found Float".to_owned()),
                (square.int_mm(&single), "expected scalar type Char but found Float".to_owned()),
                (ones(&[32, 32], DType::U8)?.int_mm(&square), "expected scalar type Char but found Byte".to_owned()),
                (bytes(&[16, 32])?.int_mm(&square), "self.size(0) needs to be greater than 16, but got 16".to_owned()),
                (bytes(&[32, 0])?.int_mm(&bytes(&[0, 32])?), format!("self.size(1) {multiple} 0")),
                (bytes(&[32, 30])?.int_mm(&bytes(&[30, 32])?), format!("self.size(1) {multiple} 30")),
                (square.int_mm(&bytes(&[32, 30])?), format!("mat2.size(1) {multiple} 30")),
                (square.int_mm(&bytes(&[32, 0])?), format!("mat2.size(1) {multiple} 0")),
                // torch's library refuses this one.
                (bytes(&[17, 32])?.int_mm(&square), "made [17, 32] of torch.int32".to_owned()),
            ]);
        }
        for (result, wanted) in cases {
            assert_eq!(message(result), wanted, "{place:?}");
        }
    }
    Ok(())
}

#[test]
fn floats_that_do_not_fit_are_refused_as_in_torch() -> Result<()> {
    const E4: DType = DType::F8E4M3FN;
    const E5: DType = DType::F8E5M2;
    for place in [Place::Library, Place::Own] {
        let _simulated = place.start();
        let ones = |sizes: &[i64], dtype: DType| place.has(&Tensor::ones(sizes, dtype, "cpu")?);
        let columns = |k: i64, n: i64, dtype: DType| ones(&[n, k], dtype)?.t();
        let (a, b, one) = (ones(&[16, 32], E4)?, columns(32, 16, E4)?, ones(&[], DType::F32)?);
        let plain = ScaledMm::default();
        let run = |a: &Tensor, b: &Tensor| message(a.scaled_mm(b, &one, &one, &plain));
        let with = |bias: DType, out: DType| -> Result<String> {
            let bias = ones(&[16], bias)?;
            let options = ScaledMm { bias: Some(&bias), out_dtype: Some(out), ..plain };
            Ok(message(a.scaled_mm(&b, &one, &one, &options)))
        };
        let into = |out: DType, asked: Option<DType>| -> Result<String> {
            let (out, options) = (ones(&[16, 16], out)?, ScaledMm { out_dtype: asked, ..plain });
            Ok(message(a.scaled_mm_out(&b, &one, &one, &options, &out).map(|()| out)))
        };
        let layout = "Only multiplication of row-major and column-major matrices is supported by cuBLASLt";
        let scale = ScaledMm { scale_result: Some(&one.to_dtype(DType::F64)?), ..plain };
        let short = ones(&[8], DType::BF16)?;
        let short = ScaledMm { bias: Some(&short), out_dtype: Some(DType::BF16), ..plain };
        let cases = [
            (run(&a, &columns(32, 16, E5)?), "made [16, 16] of torch.float8_e4m3fn"),
            (run(&ones(&[16, 32], E5)?, &b), "made [16, 16] of torch.float8_e5m2"),
            (
                run(&ones(&[16, 32], E5)?, &columns(32, 16, E5)?),
                "Multiplication of two Float8_e5m2 matrices is not supported",
            ),
            (run(&ones(&[3, 32], E4)?, &b), "made [3, 16] of torch.float8_e4m3fn"),
            (run(&ones(&[0, 32], E4)?, &b), "made [0, 16] of torch.float8_e4m3fn"),
            (run(&ones(&[16, 0], E4)?, &columns(0, 16, E4)?), "made [16, 16] of torch.float8_e4m3fn"),
            (run(&ones(&[16], E4)?, &b), "mat1 must be a matrix"),
            (run(&a, &ones(&[32], E4)?), "mat2 must be a matrix"),
            (run(&a, &columns(16, 16, E4)?), "mat1 and mat2 shapes cannot be multiplied (16x32 and 16x16)"),
            (
                run(&ones(&[16, 8], E4)?, &columns(8, 16, E4)?),
                "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: (16x8).",
            ),
            (run(&a, &columns(32, 8, E4)?), "mat2 shape (32x8) must be divisible by 16"),
            (run(&a, &ones(&[32, 16], E4)?), layout),
            (run(&ones(&[32, 16], E4)?.t()?, &b), layout),
            (run(&ones(&[16, 64], E4)?.slice(1, None, None, 2)?, &b), "made [16, 16] of torch.float8_e4m3fn"),
            (with(DType::F32, DType::BF16)?, "Bias must be BFloat16 or Half, but got Float"),
            (with(DType::F32, DType::F32)?, "Bias is not supported when out_dtype is set to Float32"),
            (with(DType::BF16, DType::F16)?, "Bias must be Float16 to compute Half output, but got BFloat16"),
            (with(DType::F16, DType::BF16)?, "Bias must be BFloat16 to compute BFloat16 output, but got Half"),
            (with(DType::F16, E4)?, "made [16, 16] of torch.float8_e4m3fn"),
            (message(a.scaled_mm(&b, &one, &one, &short)), "Bias must be size 16 but got 8"),
            (message(a.scaled_mm(&b, &one, &one, &scale)), "scale_result must be a float scalar"),
            (into(DType::F32, Some(DType::BF16))?, "out_dtype must match output matrix type"),
            (into(DType::BF16, None)?, "made [16, 16] of torch.bfloat16"),
            (into(DType::F64, None)?, "\"_scaled_mm\" not implemented for 'Double'"),
        ];
        for (found, wanted) in cases {
            assert_eq!(found, wanted, "{place:?}");
        }
        let vector = ones(&[16], DType::F32)?;
        let wanted = "Invalid scaling configuration.\n\
            - For TensorWise scaling, a and b should be float8, scales should be float and singletons.\n\
            - For RowWise scaling, a and b should be float8, scales should be float, scale_a should be (16, 1) and scale_b \
            should be (1, 16), and both should be contiguous.\n\
            - For BlockWise 1x128 scaling, a and b should be float8, scales should be float, scale_a should be (16, 1) and \
            scale_b should be (1, 16), and both should be outer-dim-major.\n\
            - For BlockWise 128x128 scaling, a and b should be float8, scales should be float, scale_a should be (1, 1) and \
            scale_b should be (1, 1), and both should be near-inner-dim-major (with 16-byte aligned strides).\n\
            - For Blockwise 1x32 scaling, a and b should be float8, scales should be float8_e8m0fnu, scale_a should have 512 \
            elements and scale_b should have 512 elements, and both should be contiguous.\n\
            - For Blockwise 1x16 scaling, a and b should be float4 (packed 2x), scales should be float8_e4m3fn, scale_a \
            should have 512 elements and scale_b should have 512 elements, and both should be contiguous.\n\
            Got a.dtype()=Float8_e4m3fn, scale_a.dtype()=Float, scale_a.size()=[16], scale_a.stride()=[1], \
            b.dtype()=Float8_e4m3fn, scale_b.dtype()=Float, scale_b.size()=[] and scale_b.stride()=[]";
        assert_eq!(message(a.scaled_mm(&b, &vector, &one, &plain)), wanted);
        let single = ones(&[16, 32], DType::F32)?;
        assert!(message(single.scaled_mm(&b, &one, &one, &plain)).starts_with("Invalid scaling configuration."));
        let (wide, tall) = (ones(&[16, 384], E4)?, columns(384, 16, E4)?);
        let [parts, turned] = [ones(&[3, 16], DType::F32)?.t()?, ones(&[3, 16], DType::F32)?];
        let squares = ones(&[1, 3], DType::F32)?;
        let by = |scale_a: &Tensor, scale_b: &Tensor, use_fast_accum: bool| {
            message(wide.scaled_mm(&tall, scale_a, scale_b, &ScaledMm { use_fast_accum, ..plain }))
        };
        let refused = "Invalid scaling configuration.";
        let fast = |name: &str| format!("scaled_gemm doesn't support fast accum with {name} blockwise scaling");
        let blocks = [
            (by(&parts, &turned, false), "made [16, 16] of torch.float8_e4m3fn".to_owned()),
            (by(&squares, &turned, false), "made [16, 16] of torch.float8_e4m3fn".to_owned()),
            (by(&parts, &squares.t()?, false), "made [16, 16] of torch.float8_e4m3fn".to_owned()),
            (by(&parts, &turned, true), fast("1x128")),
            (by(&squares, &turned, true), fast("1x128")),
            (by(&parts, &squares.t()?, true), fast("128x128")),
            // Blocks of both, parts beside one for all, wrong orders and wrong numbers.
            (by(&squares, &squares.t()?, false), refused.to_owned()),
            (by(&parts, &one, false), refused.to_owned()),
            (by(&parts.contiguous()?, &turned, false), refused.to_owned()),
            (by(&parts, &turned.t()?.contiguous()?.t()?, false), refused.to_owned()),
            (by(&parts.narrow(1, 0, 2)?, &turned, false), refused.to_owned()),
            (by(&parts.to_dtype(DType::F64)?, &turned, false), refused.to_owned()),
            (by(&squares.expand(&[2, 3])?, &turned, false), refused.to_owned()),
        ];
        for (found, wanted) in blocks {
            assert!(found.starts_with(&wanted), "{place:?}: {found}, {wanted}");
        }
        let elsewhere = of(vec![1.0], &[], DType::F32)?;
        assert!(
            message(a.scaled_mm(&b, &elsewhere, &one, &plain))
                .contains("Expected all tensors to be on the same device")
        );
    }
    let single = Tensor::ones(&[16, 32], DType::F32, "cpu")?;
    let one = Tensor::ones(&[], DType::F32, "cpu")?;
    let found = message(single.scaled_mm(&single.t()?, &one, &one, &ScaledMm::default()));
    assert_eq!(found, "Expected mat1 to be Float8 matrix got Float");
    Ok(())
}
