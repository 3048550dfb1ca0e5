//! Deterministic algorithms: the settings, their texts, results that are the host's bit for bit, and tensors without values.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use aten_cuda::deterministic::{self, DeterministicDebugMode};
use aten_cuda::{DType, Error, Result, Tensor, TensorError};
use c10_core::{CUDAGraph, CaptureMode, Stream};
use common::{assert_same, numbers, random};

/// The settings are the process's: a test has them for itself, and leaves them as they are at the start.
struct Settings(#[expect(dead_code, reason = "held until the test ends")] MutexGuard<'static, ()>);

impl Settings {
    fn hold() -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        Self(LOCK.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn deterministic() -> Self {
        let held = Self::hold();
        deterministic::use_deterministic_algorithms(true, false);
        held
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        deterministic::use_deterministic_algorithms(false, false);
        deterministic::set_fill_uninitialized_memory(true);
    }
}

#[test]
fn modes_are_set_and_told() -> Result<()> {
    let _held = Settings::hold();
    let state = || {
        (
            deterministic::are_deterministic_algorithms_enabled(),
            deterministic::is_deterministic_algorithms_warn_only_enabled(),
            deterministic::get_deterministic_debug_mode() as i32,
        )
    };
    assert_eq!(state(), (false, false, 0));
    for (mode, warn_only, told) in [(true, false, 2), (true, true, 1), (false, true, 0), (false, false, 0)] {
        deterministic::use_deterministic_algorithms(mode, warn_only);
        assert_eq!(state(), (mode, warn_only, told));
    }
    for (number, name) in [(2, "error"), (1, "warn"), (0, "default")] {
        deterministic::set_deterministic_debug_mode(name)?;
        assert_eq!(state(), (number > 0, number == 1, number));
        deterministic::set_deterministic_debug_mode(0)?;
        deterministic::set_deterministic_debug_mode(number)?;
        assert_eq!(state().2, number);
    }
    deterministic::set_deterministic_debug_mode(DeterministicDebugMode::Warn)?;
    let text = |outcome: Result<()>| outcome.unwrap_err().to_string();
    assert_eq!(
        text(deterministic::set_deterministic_debug_mode("x")),
        "invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got x"
    );
    assert_eq!(
        text(deterministic::set_deterministic_debug_mode(5)),
        "invalid value of debug_mode, expected 0, 1, or 2, but got 5"
    );
    // A wrong word changes nothing.
    assert_eq!(state(), (true, true, 1));
    assert!(deterministic::fill_uninitialized_memory());
    deterministic::set_fill_uninitialized_memory(false);
    assert!(!deterministic::fill_uninitialized_memory());
    assert_eq!(state(), (true, true, 1));
    Ok(())
}

#[test]
fn an_operation_without_an_algorithm_fails_or_warns_once() {
    let _held = Settings::hold();
    let alert = || deterministic::alert_not_deterministic("sum_of_a_stranger");
    assert!(alert().is_ok());
    deterministic::use_deterministic_algorithms(true, false);
    let refused = alert().unwrap_err();
    assert!(matches!(refused, Error::Tensor(TensorError::NotDeterministic { operation: "sum_of_a_stranger" })));
    // As PyTorch 2.11 says it of `put_`.
    assert_eq!(
        refused.to_string(),
        "sum_of_a_stranger does not have a deterministic implementation, but you set \
         'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation, or you can use \
         the 'warn_only=True' option, if that's acceptable for your application. You can also file an issue at \
         https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this operation."
    );
    deterministic::use_deterministic_algorithms(true, true);
    let listener = testkit::Listener::default();
    listener.during(|| {
        for _ in 0..3 {
            assert!(alert().is_ok());
        }
    });
    let wanted = "sum_of_a_stranger does not have a deterministic implementation, but you set \
                  'torch.use_deterministic_algorithms(True, warn_only=True)'. You can file an issue at \
                  https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this \
                  operation.";
    assert_eq!(listener.take_warnings().iter().filter(|text| *text == wanted).count(), 1);
}

/// Floats whose sum depends on the order.
fn floats(sizes: &[i64], dtype: DType) -> Result<Tensor> {
    let count: i64 = sizes.iter().product();
    let numbers: Vec<f64> = random(2 * count)
        .map(|bits| {
            #[expect(clippy::cast_precision_loss, reason = "the numbers are random")]
            let number = (bits & 0xffff) as f64 / 65536.0 - 0.4;
            // From 2^-4 to 2^3.
            number * 2.0_f64.powi((bits >> 20 & 7) as i32 - 4)
        })
        .collect();
    if dtype.is_complex() {
        let pairs: Vec<aten_cuda::Complex64> =
            numbers.chunks(2).map(|pair| aten_cuda::Complex64::new(pair[0], pair[1])).collect();
        return Tensor::from_slice(&pairs, sizes)?.to_dtype(dtype);
    }
    Tensor::from_slice(&numbers[..usize::try_from(count).unwrap_or(0)], sizes)?.to_dtype(dtype)
}

/// How many indices a list has.
const N: i64 = 700;

/// Tensors with indices that name places often, seldom and in long rows.
struct Operands {
    into: Tensor,
    source: Tensor,
    list: Tensor,
    /// An index of its own for each element, of a part of the tensor.
    each: Tensor,
    /// Negative indices, in two dimensions.
    rows: Tensor,
    columns: Tensor,
    all: Tensor,
    /// Without other dimensions.
    flat: Tensor,
    values: Tensor,
}

impl Operands {
    fn new(made: impl Fn(&Tensor) -> Result<Tensor>, dtype: DType, places: i64) -> Result<Self> {
        Ok(Self {
            into: made(&floats(&[places, 3, 5], dtype)?)?,
            source: made(&floats(&[N, 3, 5], dtype)?)?,
            list: made(&numbers(N, places)?)?,
            each: made(&numbers(N * 2 * 5, places)?.view(&[N, 2, 5])?)?,
            rows: made(&numbers(N, places)?.sub(places)?.view(&[N / 10, 10])?)?,
            columns: made(&numbers(10, 5)?)?,
            all: made(&floats(&[N / 10, 10, 5], dtype)?)?,
            flat: made(&floats(&[places], dtype)?)?,
            values: made(&floats(&[N], dtype)?)?,
        })
    }

    /// Indices of several dimensions, neighbours or not, and values that are repeated.
    fn put(&self, accumulate: bool) -> Result<Vec<Tensor>> {
        let Self { into, source, list, rows, columns, all, flat, values, .. } = self;
        let turned = into.transpose(0, 2)?;
        Ok(vec![
            into.index_put(&[Some(rows), Some(&columns.remainder(3)?)], all, accumulate)?,
            into.index_put(&[Some(rows), None, Some(columns)], &all.narrow(2, 0, 3)?, accumulate)?,
            turned.index_put(&[Some(columns), None, Some(rows)], &all.narrow(2, 0, 1)?, accumulate)?,
            into.index_put(&[Some(list)], &source.narrow(0, 1, 1)?, accumulate)?,
            flat.index_put(&[Some(list)], values, accumulate)?,
        ])
    }

    fn written(&self) -> Result<Vec<Tensor>> {
        let Self { into, source, list, each, flat, values, .. } = self;
        let (turned, turned_source) = (into.transpose(0, 2)?, source.transpose(0, 2)?);
        let mut results = vec![
            into.index_copy(0, list, source)?,
            into.transpose(0, 1)?.index_copy(1, list, &source.transpose(0, 1)?)?,
            into.scatter(0, each, source)?,
            into.scatter(0, each, 7)?,
            turned.scatter(2, &each.transpose(0, 2)?, &turned_source)?,
            flat.scatter(0, list, values)?,
        ];
        results.extend(self.put(false)?);
        Ok(results)
    }

    fn added(&self) -> Result<Vec<Tensor>> {
        let Self { into, source, list, each, flat, values, .. } = self;
        let (turned, turned_source) = (into.transpose(0, 2)?, source.transpose(0, 2)?);
        let mut results = vec![
            into.index_add(0, list, source, 1)?,
            into.index_add(0, &list.to_dtype(DType::I32)?, source, 1)?,
            turned.index_add(2, list, &turned_source, 1)?,
            into.transpose(0, 1)?.index_add(1, list, &source.transpose(0, 1)?, 1)?,
            into.scatter_add(0, each, source)?,
            turned.scatter_add(2, &each.transpose(0, 2)?, &turned_source)?,
            into.scatter_add(0, &list.view(&[N, 1, 1])?.expand(&[N, 3, 5])?, source)?,
            flat.index_add(0, list, values, 1)?,
            flat.scatter_add(0, list, values)?,
        ];
        results.extend(self.put(true)?);
        Ok(results)
    }
}

/// All operations that go by an index. Floats of 8 bits have few of them.
fn by_index(made: impl Fn(&Tensor) -> Result<Tensor>, dtype: DType, places: i64) -> Result<Vec<Tensor>> {
    let operands = Operands::new(made, dtype, places)?;
    if dtype.is_float8() {
        return operands.put(false);
    }
    Ok([operands.written()?, operands.added()?].concat())
}

fn compare(dtype: DType, places: i64) -> Result<()> {
    // Floats of 16 bits are summed in 32 and rounded once: rows are short here.
    let is_half = matches!(dtype, DType::F16 | DType::BF16);
    let wide = if is_half { DType::F32 } else { dtype };
    let wide = if dtype == DType::C32 { DType::C64 } else { wide };
    let widened = |tensor: &Tensor| if tensor.dtype() == dtype { tensor.to_dtype(wide) } else { Ok(tensor.clone()) };
    let host: Vec<Tensor> =
        by_index(widened, dtype, places)?.iter().map(|sum| sum.to_dtype(dtype)).collect::<Result<_>>()?;
    let device = by_index(|tensor| tensor.cuda(None), dtype, places)?;
    assert_eq!(host.len(), device.len());
    for (at, (host, device)) in host.iter().zip(&device).enumerate() {
        let bytes = |tensor: &Tensor| tensor.contiguous()?.to_bytes();
        assert!(bytes(host)? == bytes(device)?, "result {at} of {dtype} with {places} places");
    }
    Ok(())
}

#[test]
fn sums_have_the_bits_of_the_host() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let _held = Settings::deterministic();
    for places in [1, 7, 500] {
        compare(DType::F32, places)?;
    }
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::F32) {
        compare(dtype, 40)?;
    }
    Ok(())
}

#[test]
fn long_lists_are_sorted_as_well() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let _held = Settings::deterministic();
    let n = 5000;
    let (list, values, into) = (numbers(n, 300)?, floats(&[n], DType::F32)?, floats(&[300], DType::F32)?);
    let host = into.index_add(0, &list, &values, 1)?;
    let there = into.cuda(None)?.index_add(0, &list.cuda(None)?, &values.cuda(None)?, 1)?;
    assert_same(&host, &there);
    Ok(())
}

#[test]
fn places_beyond_32_bits_are_found() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let _held = Settings::deterministic();
    deterministic::set_fill_uninitialized_memory(false);
    let (far, near) = ((1 << 31) + 5, 5);
    let into = Tensor::empty(&[far + 1], DType::U8, "cuda")?;
    for n in [3, 2100] {
        // The list ends with both places, each of which is there often.
        let indices: Vec<i64> = (0..n).map(|at| if at % 2 == 0 { far } else { near }).collect();
        let list = Tensor::from_slice(&indices, &[n])?.cuda(None)?;
        let source = Tensor::arange(0, n, 1, Some(DType::U8), "cuda")?;
        into.index_copy_(0, &list, &source)?;
        let last = |place: i64| -> Result<i64> { Ok(i64::from(into.narrow(0, place, 1)?.to_vec::<u8>()?[0])) };
        assert_eq!([last(far)?, last(near)?], if n == 3 { [2, 1] } else { [2098 % 256, 2099 % 256] });
    }
    Ok(())
}

#[test]
fn captured_sums_are_replayed_in_order() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let _held = Settings::deterministic();
    let n = 3000;
    let (list, values, into) = (numbers(n, 9)?, floats(&[n], DType::F32)?, floats(&[9], DType::F32)?);
    let (there, its_list, its_values) = (into.cuda(None)?, list.cuda(None)?, values.cuda(None)?);
    // What was not used yet is loaded before the capture.
    there.index_add(0, &its_list, &its_values, 1)?;
    let mut graph = CUDAGraph::new();
    let mut made = None;
    graph.record(&Stream::new(None, 0)?, None, CaptureMode::Global, |_| {
        made = Some(there.index_add(0, &its_list, &its_values, 1)?);
        Ok::<(), Error>(())
    })?;
    let made = made.expect("the capture ran");
    for start in [0, 1] {
        // Another index each time.
        its_list.copy_(&list.add(start)?.remainder(9)?)?;
        graph.replay()?;
        assert_same(&into.index_add(0, &list.add(start)?.remainder(9)?, &values, 1)?, &made);
    }
    Ok(())
}

#[test]
fn indices_out_of_range_are_reported_and_left_out() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let _held = Settings::deterministic();
    let list = |indices: &[i64]| Tensor::from_slice(indices, &[3])?.cuda(None);
    let refused = |tensor: &Tensor| match tensor.to_bytes() {
        Err(Error::Tensor(TensorError::IndexOutOfRange { operation, element, index, size, .. })) => {
            Some((operation, element, index, size))
        }
        _ => None,
    };
    let into = Tensor::zeros(&[5], DType::F32, "cuda")?;
    let source = Tensor::from_slice(&[1.0_f32, 2.0, 4.0], &[3])?.cuda(None)?;
    into.index_add_(0, &list(&[1, 5, 1])?, &source, 1)?;
    assert_eq!(refused(&into), Some(("index_add", 1, 5, 5)));
    assert_eq!(into.to_vec::<f32>()?, [0.0, 5.0, 0.0, 0.0, 0.0]);
    into.index_copy_(0, &list(&[4, 4, -1])?, &source)?;
    assert_eq!(refused(&into), Some(("index_copy", 2, -1, 5)));
    into.scatter_(0, &list(&[i64::MAX, 3, 3])?, &source)?;
    assert_eq!(refused(&into), Some(("scatter", 0, i64::MAX, 5)));
    into.scatter_add_(0, &list(&[3, i64::MIN, 0])?, &source)?;
    assert_eq!(refused(&into), Some(("scatter_add", 1, i64::MIN, 5)));
    assert_eq!(into.to_vec::<f32>()?, [4.0, 5.0, 0.0, 5.0, 2.0]);
    into.index_put_(&[Some(&list(&[2, 2, -6])?)], &source, true)?;
    assert_eq!(refused(&into), Some(("index_put", 2, -6, 5)));
    assert_eq!(into.to_vec::<f32>()?[1..], [5.0, 3.0, 5.0, 2.0]);
    Ok(())
}

#[test]
fn tensors_without_values_are_filled() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let _held = Settings::deterministic();
    for device in ["cpu", "cuda"] {
        let empty = |dtype| Tensor::empty(&[2, 3], dtype, device);
        assert_eq!(empty(DType::Bool)?.to_bools()?, [true; 6]);
        assert_eq!(empty(DType::U8)?.to_vec::<u8>()?, [u8::MAX; 6]);
        assert_eq!(empty(DType::I8)?.to_vec::<i8>()?, [i8::MAX; 6]);
        assert_eq!(empty(DType::I16)?.to_vec::<i16>()?, [i16::MAX; 6]);
        assert_eq!(empty(DType::I32)?.to_vec::<i32>()?, [i32::MAX; 6]);
        assert_eq!(empty(DType::I64)?.to_vec::<i64>()?, [i64::MAX; 6]);
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_floating_point()) {
            for made in [empty(dtype)?, empty(dtype)?.t()?.empty_like()?] {
                assert!(made.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().all(|number| number.is_nan()), "{dtype}");
            }
        }
        for dtype in [DType::C32, DType::C64, DType::C128] {
            let numbers = empty(dtype)?.to_dtype(DType::C128)?.to_vec::<aten_cuda::Complex64>()?;
            assert!(numbers.iter().all(|number| number.re.is_nan() && number.im == 0.0), "{dtype}");
        }
        let strided = Tensor::empty_strided(&[2, 2], &[1, 3], DType::I64, device)?;
        assert_eq!((strided.strides(), strided.to_vec::<i64>()?), (&[1, 3][..], vec![i64::MAX; 4]));
        assert_eq!(strided.empty_like()?.to_vec::<i64>()?, [i64::MAX; 4]);
        let repeated = Tensor::empty_strided(&[3, 2], &[0, 1], DType::I32, device)?;
        assert_eq!(repeated.to_vec::<i32>()?, [i32::MAX; 6]);
        assert_eq!(Tensor::empty(&[0, 3], DType::F32, device)?.numel(), 0);
    }
    assert_eq!(Tensor::empty_pinned(&[2], DType::I16)?.to_vec::<i16>()?, [i16::MAX; 2]);
    Ok(())
}

#[test]
fn tensors_are_left_alone_where_nothing_asks_for_values() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let _held = Settings::hold();
    let zeros = || Ok(Tensor::empty(&[4], DType::F32, "cpu")?.to_vec::<f32>()? == [0.0; 4]);
    assert!(zeros()?);
    deterministic::use_deterministic_algorithms(true, false);
    assert!(!zeros()?);
    deterministic::set_fill_uninitialized_memory(false);
    zeros().map(|are| assert!(are))
}

#[test]
fn strides_of_tensors_without_values_are_checked() {
    let text = |sizes: &[i64], strides: &[i64]| {
        Tensor::empty_strided(sizes, strides, DType::F32, "cpu").map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(text(&[2], &[1, 2]), "dimensionality of sizes (1) must match dimensionality of strides (2)");
    assert!(text(&[2], &[-1]).contains("Negative strides are not supported"));
    assert!(text(&[-2], &[1]).contains("negative dimension -2"));
    assert!(
        text(&[1 << 40, 2], &[1 << 40, 1]).starts_with("Storage size calculation overflowed with sizes=[1099511627776")
    );
}
