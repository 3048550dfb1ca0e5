//! Random numbers: what is known of PyTorch's own, generators and their errors, captures, and each distribution's
//! moments, dtypes and layouts.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a failed step is a failed test, and the numbers are small"
)]

use aten_cuda::random::{self, philox};
use aten_cuda::{DType, Error, Generator, Result, Tensor};
use c10_core::{CUDAGraph, CaptureMode, Stream};

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// A tensor of a million elements has several draws for each thread of the simulated device.
const THREADS: i64 = 132 * 2048;

fn empty(sizes: &[i64], dtype: DType) -> Tensor {
    Tensor::empty(sizes, dtype, "cuda").unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().iter().map(|value| value.to_bits()).collect()
}

/// The elements as floats of 64 bits.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap()
}

fn state() -> (u64, u64) {
    let generator = random::default_generator(None).unwrap();
    (generator.initial_seed().unwrap(), generator.get_offset().unwrap())
}

#[test]
fn words_are_those_of_philox() {
    assert_eq!(philox(0, 0, 2), [0x0661_d677, 0xb682_6759, 0x2621_48c6, 0x773c_5ff0]);
    // The published answers for a counter and a key of all ones, and of the digits of pi.
    assert_eq!(philox(u64::MAX, u64::MAX, u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    let (key, low, high) = (0x299f_31d0_a409_3822, 0x85a3_08d3_243f_6a88, 0x0370_7344_1319_8a2e);
    assert_eq!(philox(key, low, high), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
}

#[test]
fn torchs_first_numbers_come_out() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    random::manual_seed(0)?;
    let drawn = Tensor::rand(&[1000], DType::F32, "cuda", None)?;
    assert_eq!(bits(&drawn)[..4], [0x3ecc_4fd2, 0x3f04_4516, 0x3ccc_3acf, 0x3f70_a90b]);
    let near = |tensor: &Tensor, wanted: &[f64]| {
        let found = numbers(tensor);
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 6e-5), "{found:?}");
    };
    near(&Tensor::rand(&[3], DType::F32, "cuda", None)?, &[0.9722, 0.7910, 0.4690]);
    random::manual_seed(0)?;
    near(&Tensor::randn(&[6], DType::F32, "cuda", None)?, &[-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797]);
    random::manual_seed(42)?;
    near(&Tensor::rand(&[6], DType::F32, "cuda", None)?, &[0.6130, 0.0101, 0.3984, 0.0403, 0.1563, 0.4825]);
    random::manual_seed(0)?;
    let wide = Tensor::rand(&[1000], DType::F64, "cuda", None)?.to_vec::<f64>()?;
    assert_eq!([wide[0].to_bits(), wide[1].to_bits()], [0x3fec_2d38_d787_e8d6, 0x3fee_11ad_5105_15e2]);
    random::manual_seed(0)?;
    let integers = Tensor::randint(0, 1 << 40, &[1000], DType::I64, "cuda", None)?.to_vec::<i64>()?;
    assert_eq!(integers[..2], [0xd5_e169_c58d, 0xe1_f08d_6eaa]);
    random::manual_seed(0)?;
    let exponential = numbers(empty(&[1000], DType::F32).exponential_(1.5, None)?);
    for (found, wanted) in exponential.iter().zip([0x3f1c_c9a0, 0x3ee1_64ca, 0x401d_82db, 0x3d28_bafa]) {
        assert!((found - f64::from(f32::from_bits(wanted))).abs() < 1e-6, "{found}");
    }
    Ok(())
}

#[test]
fn each_call_takes_its_share_of_the_sequence() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let generator = Generator::new(None)?;
    let share = |draw: &dyn Fn() -> Result<()>| -> u64 {
        let before = generator.get_offset().unwrap();
        draw().unwrap();
        generator.get_offset().unwrap() - before
    };
    let source = Some(&generator);
    for (numel, dtype, wanted) in [
        (0, DType::F32, 0),
        (1, DType::F32, 4),
        (4 * THREADS, DType::F16, 4),
        (4 * THREADS + 1, DType::F32, 8),
        (2 * THREADS, DType::F64, 4),
        (2 * THREADS + 1, DType::F64, 8),
    ] {
        let tensor = empty(&[numel], dtype);
        assert_eq!(share(&|| tensor.uniform_(0.0, 1.0, source).map(|_| ())), wanted, "{numel} of {dtype}");
    }
    // Draws of 64 bits go by the range and not by the dtype.
    let tensor = empty(&[2 * THREADS + 1], DType::I32);
    assert_eq!(share(&|| tensor.random_from_to_(0, Some((1 << 28) - 1), source).map(|_| ())), 4);
    assert_eq!(share(&|| tensor.random_from_to_(0, Some(1 << 28), source).map(|_| ())), 8);
    assert_eq!(share(&|| tensor.random_(source).map(|_| ())), 4);
    assert_eq!(share(&|| empty(&[2 * THREADS + 1], DType::I64).random_(source).map(|_| ())), 8);
    assert_eq!(share(&|| Tensor::randperm(1000, DType::I64, "cuda", source).map(|_| ())), 1004);
    assert_eq!(share(&|| Tensor::randperm(1, DType::I64, "cuda", source).map(|_| ())), 8);
    assert_eq!(share(&|| Tensor::randperm(0, DType::I64, "cuda", source).map(|_| ())), 0);
    let half = Tensor::full(&[3, 1], 0.5, DType::F32, "cuda")?;
    assert_eq!(share(&|| empty(&[3, 700], DType::U8).bernoulli_of_(&half, source).map(|_| ())), 12);
    assert_eq!(share(&|| half.t()?.multinomial(5, true, source).map(|_| ())), 4);
    Ok(())
}

#[test]
fn generators_are_set_and_asked_as_torchs() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let generator = Generator::new("cuda:0")?;
    assert_eq!((generator.initial_seed()?, generator.get_offset()?), (67_280_421_310_721, 0));
    generator.manual_seed(-1)?;
    assert_eq!(generator.initial_seed()?, u64::MAX);
    generator.manual_seed(u64::MAX - 2)?.set_offset(8)?;
    let state = generator.get_state()?;
    assert_eq!(state.to_vec::<u8>()?, [253, 255, 255, 255, 255, 255, 255, 255, 8, 0, 0, 0, 0, 0, 0, 0]);
    let copy = generator.clone_state()?;
    let shared = generator.graphsafe_get_state()?;
    generator.set_offset(12)?;
    assert_eq!((copy.get_offset()?, shared.get_offset()?), (8, 12));
    copy.graphsafe_set_state(&generator)?;
    generator.set_state(&Tensor::from_slice(&[7_u8, 0, 0, 0, 0, 0, 0, 0], &[8])?)?;
    assert_eq!((copy.initial_seed()?, copy.get_offset()?), (7, 0));
    generator.set_state(&state)?;
    assert_eq!(generator.get_offset()?, 8);
    let seed = generator.seed()?;
    assert!(seed < 1 << 53 && seed != generator.seed()?);

    let text = |error: Error| error.to_string();
    let refused = |state: &Tensor| text(generator.set_state(state).unwrap_err());
    assert_eq!(refused(&Tensor::from_slice(&[0_u8; 12], &[12])?), "RNG state is wrong size");
    assert_eq!(refused(&Tensor::from_slice(&[0_f32; 4], &[4])?), "RNG state must be a torch.ByteTensor");
    assert_eq!(refused(&state.cuda(None)?), "RNG state must be a torch.ByteTensor");
    let strided = Tensor::from_slice(&[0_u8; 32], &[16, 2])?.select(1, 0)?;
    assert_eq!(refused(&strided), "RNG state must be contiguous");
    let odd = Tensor::from_slice(&[0_u8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], &[16])?;
    assert_eq!(refused(&odd), "offset must be a multiple of 4");
    assert_eq!(text(generator.set_offset(6).unwrap_err()), "offset must be a multiple of 4");
    assert_eq!(text(generator.manual_seed(1_i128 << 64).unwrap_err()), "Overflow when unpacking long");
    assert_eq!(text(Generator::new(3).unwrap_err()), "The device_index is invalid.");
    let host = Generator::new("cpu")?;
    let of_host = text(Tensor::rand(&[2], DType::F32, "cuda", Some(&host)).unwrap_err());
    assert_eq!(of_host, "Expected a 'cuda' device type for generator but found 'cpu'");
    Ok(())
}

#[test]
fn default_generators_are_one_for_each_device() -> Result<()> {
    let _simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
    random::manual_seed_all(5)?;
    random::manual_seed(6)?;
    let seeds: Vec<u64> = random::default_generators()?.iter().map(|each| each.initial_seed().unwrap()).collect();
    assert_eq!(seeds, [6, 5]);
    let states = random::get_rng_state_all()?;
    random::seed_all()?;
    let seed = random::initial_seed()?;
    assert_eq!(random::default_generator("cuda:1")?.initial_seed()?, seed);
    random::set_rng_state_all(&states)?;
    random::set_rng_state_offset(16, 1)?;
    assert_eq!(
        (random::initial_seed()?, random::get_rng_state_offset(1)?, random::get_rng_state_offset(0)?),
        (6, 16, 0)
    );
    random::set_rng_state(&random::get_rng_state(1)?, 0)?;
    assert_eq!(state(), (5, 16));
    let elsewhere = Generator::new(1)?;
    let error = empty(&[4], DType::F32).normal_(0.0, 1.0, Some(&elsewhere)).unwrap_err();
    assert_eq!(error.to_string(), "Expected a 'cuda:0' generator device but found 'cuda:1'");
    Ok(())
}

#[test]
fn seeds_wait_for_the_runtime() -> Result<()> {
    let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
    let saved = Tensor::from_slice(&[9_u8, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0], &[16])?;
    random::manual_seed_all(1)?;
    random::manual_seed(2)?;
    random::set_rng_state(&saved, 1)?;
    random::manual_seed(3)?;
    assert!(!simulated.runtime().is_initialized());
    // States come first, then the latest seeds in their order.
    assert_eq!(random::initial_seed()?, 3);
    assert_eq!(random::default_generator(1)?.initial_seed()?, 1);
    Ok(())
}

#[test]
fn states_that_wait_are_copies() -> Result<()> {
    let simulated = testkit::simulated_runtime();
    let saved = Tensor::from_slice(&[9_u8, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0], &[16])?;
    random::set_rng_state(&saved, None)?;
    assert!(random::set_rng_state(&Tensor::from_slice(&[1_u8], &[1])?, None).is_err());
    saved.fill_(0)?;
    assert!(!simulated.runtime().is_initialized());
    assert_eq!(state(), (9, 4));
    Ok(())
}

/// What `draw` fills on a stream of its own, as bits.
fn captured(generator: Option<&Generator>, replays: usize) -> Result<Vec<Vec<u32>>> {
    let stream = Stream::new(None, 0)?;
    let _current = stream.guard();
    let (first, second) = (empty(&[500], DType::F32), empty(&[300], DType::F32));
    let mut graph = CUDAGraph::new();
    if let Some(generator) = generator {
        graph.register_generator_state(generator.graph_state()?)?;
        graph.register_generator_state(generator.graph_state()?)?;
    }
    graph.capture(&stream, None, CaptureMode::Global, || -> Result<()> {
        first.uniform_(0.0, 1.0, generator)?;
        second.normal_(0.0, 1.0, generator)?;
        Ok(())
    })?;
    let mut drawn = Vec::new();
    for _ in 0..replays {
        graph.replay()?;
        drawn.push([bits(&first), bits(&second)].concat());
    }
    Ok(drawn)
}

#[test]
fn replays_draw_what_calls_draw() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let own = Generator::new(None)?;
    for generator in [None, Some(&own)] {
        let chosen = generator.cloned().map_or_else(|| random::default_generator(None), Ok)?;
        chosen.manual_seed(11)?.set_offset(40)?;
        let (first, second) = (empty(&[500], DType::F32), empty(&[300], DType::F32));
        let mut eager = Vec::new();
        for _ in 0..3 {
            first.uniform_(0.0, 1.0, generator)?;
            second.normal_(0.0, 1.0, generator)?;
            eager.push([bits(&first), bits(&second)].concat());
        }
        assert_eq!(chosen.get_offset()?, 64);
        chosen.set_offset(40)?;
        assert_eq!(captured(generator, 3)?, eager);
        assert_eq!(chosen.get_offset()?, 64);
        assert_ne!(eager[0], eager[1]);
    }
    Ok(())
}

#[test]
fn captures_keep_generators_as_they_are() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let stream = Stream::new(None, 0)?;
    let (registered, stranger) = (Generator::new(None)?, Generator::new(None)?);
    let _current = stream.guard();
    let tensor = empty(&[8], DType::F32);
    let mut graph = CUDAGraph::new();
    graph.register_generator_state(registered.graph_state()?)?;
    let outcome = graph.capture(&stream, None, CaptureMode::Relaxed, || -> Result<()> {
        let text = |error: Error| error.to_string();
        let family = " during CUDA graph capture. If you need this call to be captured, please file an issue. Current \
                      cudaStreamCaptureStatus: cudaStreamCaptureStatusActive";
        let said = text(registered.get_offset().unwrap_err());
        assert_eq!(said, format!("Cannot call CUDAGeneratorImpl::get_offset{family}"));
        let said = text(registered.get_state().unwrap_err());
        assert_eq!(said, format!("Cannot call CUDAGeneratorImpl::current_seed{family}"));
        assert!(registered.set_offset(8).is_err() && registered.seed().is_err() && registered.graph_state().is_err());
        registered.manual_seed(67_280_421_310_721_i64)?;
        assert!(text(registered.manual_seed(1).unwrap_err()).contains("only if new seed is the same"));
        let said = text(tensor.normal_(0.0, 1.0, Some(&stranger)).unwrap_err());
        assert_eq!(said, "Attempt to increase offset for a CUDA generator not in capture mode.");
        let elsewhere = Stream::new(None, 0)?;
        let _other = elsewhere.guard();
        let said = text(tensor.normal_(0.0, 1.0, Some(&registered)).unwrap_err());
        assert_eq!(said, "Offset increment outside graph capture encountered unexpectedly.");
        Ok(())
    });
    outcome?;
    assert_eq!(registered.get_offset()?, 0);
    graph.replay()?;
    assert_eq!(registered.get_offset()?, 0);
    registered.manual_seed(1)?;
    // The default generators are registered by the capture that draws from them, whoever names them.
    let default = random::default_generator(None)?;
    CUDAGraph::new()
        .capture(&stream, None, CaptureMode::Relaxed, || tensor.normal_(0.0, 1.0, Some(&default)).map(|_| ()))?;
    Ok(())
}

/// Mean and variance.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count)
}

fn assert_moments(name: &str, dtype: DType, tensor: &Tensor, mean: f64, variance: f64) {
    let values = numbers(tensor);
    let (found, spread) = moments(&values);
    let count = values.len() as f64;
    assert!((found - mean).abs() < 5.0 * (variance / count).sqrt() + 0.004 * mean.abs(), "{name} {dtype}: {found}");
    assert!((spread - variance).abs() < 0.12 * variance, "{name} {dtype}: {spread}");
}

#[test]
fn distributions_have_their_moments() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    random::manual_seed(2024)?;
    for dtype in FLOATS {
        let tensor = empty(&[20_000], dtype);
        assert_moments("uniform", dtype, tensor.uniform_(-2.0, 3.0, None)?, 0.5, 25.0 / 12.0);
        assert!(numbers(&tensor).iter().all(|value| (-2.0..3.0).contains(value)));
        assert_moments("normal", dtype, tensor.normal_(1.0, 2.0, None)?, 1.0, 4.0);
        assert_moments("exponential", dtype, tensor.exponential_(0.5, None)?, 2.0, 4.0);
        assert!(numbers(&tensor).iter().all(|value| *value > 0.0));
        let (mean, variance) = (0.125_f64.exp(), (0.25_f64.exp() - 1.0) * 0.25_f64.exp());
        assert_moments("log_normal", dtype, tensor.log_normal_(0.0, 0.5, None)?, mean, variance);
        assert_moments("geometric", dtype, tensor.geometric_(0.3, None)?, 1.0 / 0.3, 0.7 / 0.09);
        assert_moments("bernoulli", dtype, tensor.bernoulli_(0.25, None)?, 0.25, 0.1875);
        // The Cauchy distribution has no moments, but quartiles.
        let cauchy = numbers(tensor.cauchy_(3.0, 2.0, None)?);
        let below = |limit: f64| cauchy.iter().filter(|value| **value < limit).count() as f64 / cauchy.len() as f64;
        for (limit, share) in [(1.0, 0.25), (3.0, 0.5), (5.0, 0.75)] {
            assert!((below(limit) - share).abs() < 0.015, "{dtype}: {}", below(limit));
        }
    }
    Ok(())
}

#[test]
fn integers_fill_their_range_in_every_dtype() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    random::manual_seed(7)?;
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_complex() && !dtype.is_float8()) {
        let tensor = empty(&[4000], dtype);
        let (low, high) = if dtype == DType::Bool { (0, 2) } else { (3, 11) };
        let mut seen = numbers(tensor.random_from_to_(low, Some(high), None)?);
        seen.sort_by(f64::total_cmp);
        seen.dedup();
        let wanted: Vec<f64> = (low..high).map(|value| value as f64).collect();
        assert_eq!(seen, wanted, "{dtype}");
        if dtype != DType::Bool {
            assert_moments("geometric", dtype, empty(&[20_000], dtype).geometric_(0.5, None)?, 2.0, 2.0);
        }
        assert_moments("bernoulli", dtype, empty(&[20_000], dtype).bernoulli_(0.5, None)?, 0.5, 0.25);
        let whole = numbers(tensor.random_(None)?);
        let largest: f64 = match dtype {
            DType::Bool => 1.0,
            DType::U8 => 255.0,
            DType::I8 => 127.0,
            DType::I16 => 32_767.0,
            DType::I32 => 2_147_483_647.0,
            DType::I64 => 9.223_372_036_854_776e18,
            DType::F16 => 2048.0,
            DType::BF16 => 256.0,
            DType::F32 => 16_777_216.0,
            DType::F64 | DType::C32 | DType::C64 | DType::C128 | DType::F8E4M3FN | DType::F8E5M2 => {
                9_007_199_254_740_992.0
            }
        };
        let found = whole.iter().copied().fold(0.0, f64::max);
        assert!(found <= largest && found > 0.98 * largest, "{dtype}: {found}");
        assert!(whole.iter().all(|value| *value >= 0.0 && value.fract() == 0.0), "{dtype}");
    }
    let any = empty(&[1000], DType::I64);
    any.random_from_to_(i64::MIN, None, None)?;
    assert!(any.to_vec::<i64>()?.iter().any(|value| *value < i64::MIN / 2));
    let above = empty(&[1000], DType::I8);
    above.random_from_to_(100, None, None)?;
    assert!(above.to_vec::<i8>()?.iter().all(|value| *value >= 100));
    Ok(())
}

#[test]
fn words_become_integers_by_the_rules() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let generator = Generator::new(None)?;
    generator.manual_seed(77)?;
    let small = empty(&[700], DType::I16);
    small.random_from_to_(-5, Some(1000), Some(&generator))?;
    let wanted: Vec<i16> = (0..700).map(|at| (philox(77, 0, at)[0] % 1005) as i16 - 5).collect();
    assert_eq!(small.to_vec::<i16>()?, wanted);
    // 64 bits each, of a float too. The float below 2^30 that is followed by it is 2^30 - 64, where the range then ends.
    let wide = empty(&[700], DType::F32);
    wide.random_from_to_(0, Some(1 << 30), Some(&generator))?;
    let wanted: Vec<f32> = (0..700)
        .map(|at| {
            let words = philox(77, 1, at);
            ((u64::from(words[0]) << 32 | u64::from(words[1])) % ((1 << 30) - 64)) as i64 as f32
        })
        .collect();
    assert_eq!(wide.to_vec::<f32>()?, wanted);
    Ok(())
}

#[test]
fn elements_past_the_threads_take_the_next_words() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let generator = Generator::new(None)?;
    generator.manual_seed(3)?.set_offset(20)?;
    let tensor = empty(&[6 * THREADS], DType::F32);
    let drawn = tensor.uniform_(0.0, 1.0, Some(&generator))?.to_vec::<f32>()?;
    for element in [0, 5, THREADS, 2 * THREADS + 9, 4 * THREADS - 1, 4 * THREADS, 5 * THREADS + 77] {
        let (thread, part) = (element % THREADS, element % (4 * THREADS) / THREADS);
        let word = philox(3, 5 + (element / (4 * THREADS)) as u64, thread as u64)[part as usize];
        let wanted = (word as f32).mul_add(2.0_f32.powi(-32), 2.0_f32.powi(-33));
        let wanted = if wanted == 1.0 { 0.0 } else { wanted };
        assert_eq!(drawn[element as usize], wanted, "element {element}");
    }
    Ok(())
}

#[test]
fn layouts_are_filled_in_the_order_of_memory() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let draw = |tensor: &Tensor| -> Result<()> {
        random::manual_seed(12)?;
        tensor.uniform_(0.0, 1.0, None).map(|_| ())
    };
    let plain = empty(&[60], DType::F32);
    draw(&plain)?;
    let wanted = plain.to_vec::<f32>()?;
    let matrix = empty(&[4, 15], DType::F32);
    draw(&matrix.t()?)?;
    assert_eq!(matrix.to_vec::<f32>()?, wanted);
    let cube = empty(&[3, 4, 5], DType::F32);
    draw(&cube.permute(&[2, 0, 1])?)?;
    assert_eq!(cube.to_vec::<f32>()?, wanted);
    // A view with gaps goes by rising strides, and leaves the gaps alone.
    let spaced = Tensor::full(&[10, 12], -1, DType::F32, "cuda")?;
    let view = spaced.slice(1, None, None, 2)?;
    draw(&view.t()?)?;
    assert_eq!(view.to_vec::<f32>()?, wanted);
    let all = spaced.to_vec::<f32>()?;
    assert!(all.iter().skip(1).step_by(2).all(|value| *value == -1.0));
    for dtype in [DType::I64, DType::F16, DType::Bool, DType::F64] {
        let whole = Tensor::zeros(&[6, 20], dtype, "cuda")?;
        random::manual_seed(1)?;
        whole.slice(1, Some(1), None, 2)?.random_from_to_(0, Some(2), None)?;
        let plain = empty(&[60], dtype);
        random::manual_seed(1)?;
        plain.random_from_to_(0, Some(2), None)?;
        assert_eq!(numbers(&whole.slice(1, Some(1), None, 2)?), numbers(&plain), "{dtype}");
        assert!(numbers(&whole.slice(1, None, None, 2)?).iter().all(|value| *value == 0.0), "{dtype}");
    }
    let complex = empty(&[30], DType::C64);
    draw(&complex)?;
    let halves: Vec<f32> =
        complex.to_vec::<num_complex::Complex32>()?.iter().flat_map(|pair| [pair.re, pair.im]).collect();
    assert_eq!(halves, wanted);
    random::manual_seed(4)?;
    let error = Tensor::zeros(&[1], DType::F32, "cuda")?.expand(&[3])?.uniform_(0.0, 1.0, None).unwrap_err();
    assert!(error.to_string().starts_with("unsupported operation: more than one element"), "{error}");
    assert_eq!(state(), (4, 0));
    let scalar = empty(&[], DType::F32);
    draw(&scalar)?;
    assert_eq!(scalar.item()?.to_f64(), f64::from(wanted[0]));
    Ok(())
}

#[test]
fn each_element_may_have_its_own_probability() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let generator = Generator::new(None)?;
    generator.manual_seed(21)?;
    let p: Vec<f32> = (0..3000).map(|at| at as f32 / 3000.0).collect();
    let wanted: Vec<u8> = (0..3000)
        .map(|at| {
            let r = (philox(21, 0, at / 4)[at as usize % 4] as f32).mul_add(2.0_f32.powi(-32), 2.0_f32.powi(-33));
            u8::from(r <= p[at as usize])
        })
        .collect();
    for dtype in FLOATS {
        let host = Tensor::from_slice(&p, &[3000])?;
        let exact = dtype == DType::F32 || dtype == DType::F64;
        let drawn = empty(&[3000], DType::U8);
        generator.set_offset(0)?;
        drawn.bernoulli_of_(&host.to_dtype(dtype)?, Some(&generator))?;
        assert!(!exact || drawn.to_vec::<u8>()? == wanted, "{dtype}");
        assert_eq!(generator.get_offset()?, 12);
    }
    let sides = Tensor::from_slice(&[0.0_f64, 1.0, 0.0], &[3, 1])?.expand(&[3, 40])?;
    let drawn = sides.cuda(None)?.bernoulli(Some(&generator))?;
    assert_eq!(numbers(&drawn), numbers(&sides.cuda(None)?));
    Ok(())
}

#[test]
fn dropout_scales_what_it_keeps() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for dtype in FLOATS {
        // An even count goes in groups, an odd one by single elements, and so does a view with gaps.
        for input in [
            Tensor::ones(&[64, 65], dtype, "cuda")?,
            Tensor::ones(&[4097], dtype, "cuda")?,
            Tensor::ones(&[64, 130], dtype, "cuda")?.slice(1, None, None, 2)?,
            Tensor::ones(&[4162], dtype, "cuda")?.slice(0, Some(2), None, 1)?,
        ] {
            random::manual_seed(8)?;
            let (output, mask) = input.native_dropout(0.4, Some(true))?;
            assert_eq!(state(), (8, 4));
            let (kept, found) = (mask.to_bools()?, numbers(&output));
            let scale = numbers(&Tensor::full(&[1], 1.0 / 0.6, dtype, "cuda")?)[0];
            assert!(kept.iter().zip(&found).all(|(kept, found)| *found == if *kept { scale } else { 0.0 }), "{dtype}");
            let share = kept.iter().filter(|kept| **kept).count() as f64 / kept.len() as f64;
            assert!((share - 0.6).abs() < 0.04, "{dtype}: {share}");
        }
    }
    random::manual_seed(8)?;
    let input = Tensor::ones(&[8], DType::F32, "cuda")?;
    let (zeros, none) = input.native_dropout(1.0, None)?;
    assert_eq!((numbers(&zeros), none.to_bools()?), (vec![0.0; 8], vec![false; 8]));
    let (same, all) = input.native_dropout(0.4, Some(false))?;
    assert_eq!((numbers(&same), all.to_bools()?), (vec![1.0; 8], vec![true; 8]));
    assert_eq!(numbers(&input.dropout(0.0, true)?), numbers(&input.dropout(0.7, false)?));
    assert_eq!(numbers(&input.dropout(1.0, true)?), [0.0; 8]);
    assert_eq!(state(), (8, 0));
    assert_eq!(numbers(&input.native_dropout(0.0, None)?.0), [1.0; 8]);
    assert_eq!(state(), (8, 4));
    let error = input.dropout(1.5, true).unwrap_err().to_string();
    assert_eq!(error, "dropout probability has to be between 0 and 1, but got 1.5");
    Ok(())
}

#[test]
fn permutations_hold_every_number_once() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    random::manual_seed(5)?;
    for n in [1, 2, 33, 8192, 8193, 25_000, 40_000] {
        let mut drawn = Tensor::randperm(n, DType::I64, "cuda", None)?.to_vec::<i64>()?;
        assert!(n < 33 || !drawn.is_sorted());
        drawn.sort_unstable();
        assert!(drawn.into_iter().eq(0..n), "{n}");
    }
    for dtype in [DType::U8, DType::I8, DType::I16, DType::I32, DType::F16, DType::F32, DType::F64] {
        random::manual_seed(5)?;
        let drawn = Tensor::randperm(100, dtype, "cuda", None)?;
        random::manual_seed(5)?;
        assert_eq!(numbers(&drawn), numbers(&Tensor::randperm(100, DType::I64, "cuda", None)?), "{dtype}");
    }
    let error = |n, dtype| Tensor::randperm(n, dtype, "cuda", None).unwrap_err().to_string();
    assert_eq!(error(-1, DType::I64), "n must be non-negative, got-1");
    assert_eq!(error(9, DType::BF16), "\"randperm_out_cuda\" not implemented for 'BFloat16'");
    assert_eq!(error(3000, DType::F16), "n cannot be greater than 2049 for Half type.");
    assert_eq!(error(300, DType::U8), "value cannot be converted to type uint8_t without overflow");
    Ok(())
}

/// Elements with equal keys are shuffled by the words that follow. Three elements have keys of five bits, so that some
/// seeds give equal ones.
#[test]
fn equal_keys_are_shuffled() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let (n, bits) = (3_u64, 6_u32);
    let mut with_equals = 0;
    for seed in 0..60_u64 {
        random::manual_seed(seed)?;
        let drawn = Tensor::randperm(3, DType::I64, "cuda", None)?.to_vec::<i64>()?;
        let key = |at: u64| {
            let words = philox(seed, 0, at);
            let key = (u64::from(words[0]) << 32 | u64::from(words[1])) % u64::from(u32::MAX);
            (key as u32).wrapping_sub(1 << 31) & ((1 << bits) - 1)
        };
        let mut order: Vec<i64> = (0..3).collect();
        order.sort_by_key(|at| key(*at as u64));
        let keys: Vec<u32> = order.iter().map(|at| key(*at as u64)).collect();
        let mut start = 0;
        while start < n as usize {
            let members = keys[start..].iter().take_while(|key| **key == keys[start]).count();
            let words = philox(seed, 1, start as u64);
            for (drawn, last) in (1..members).rev().enumerate() {
                order.swap(start + last, start + words[drawn] as usize % (last + 1));
            }
            with_equals += usize::from(members > 1);
            start += members;
        }
        assert_eq!(drawn, order, "seed {seed}");
    }
    assert!(with_equals > 0, "no seed had equal keys");
    Ok(())
}

#[test]
fn categories_come_as_often_as_they_are_likely() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    random::manual_seed(31)?;
    for dtype in FLOATS {
        let p =
            Tensor::from_slice(&[0.0_f32, 1.0, 2.0, 5.0, 0.0, 3.0, 0.0, 1.0], &[2, 4])?.to_dtype(dtype)?.cuda(None)?;
        let drawn = p.multinomial(4000, true, None)?.to_vec::<i64>()?;
        for (row, wanted) in drawn.chunks(4000).zip([[0.0, 0.125, 0.25, 0.625], [0.0, 0.75, 0.0, 0.25]]) {
            for (category, wanted) in (0..).zip(wanted) {
                let share = row.iter().filter(|drawn| **drawn == category).count() as f64 / 4000.0;
                assert!((share - wanted).abs() < 0.04 && (wanted > 0.0 || share == 0.0), "{dtype}: {share}");
            }
        }
        // Without replacement, each once, and nothing impossible before what is possible.
        for _ in 0..20 {
            let few = p.multinomial(2, false, None)?;
            assert_eq!(few.sizes(), [2, 2]);
            let few = few.to_vec::<i64>()?;
            assert!(few[0] != few[1] && few[0] != 0 && few[1] != 0, "{few:?}");
            let mut second = few[2..].to_vec();
            second.sort_unstable();
            assert_eq!(second, [1, 3]);
        }
        let one = p.expand(&[2, 4])?.multinomial(1, false, None)?;
        assert_eq!(one.sizes(), [2, 1]);
    }
    let rows = Tensor::ones(&[3000, 3], DType::F32, "cuda")?;
    let drawn = rows.multinomial(1, true, None)?.to_vec::<i64>()?;
    for category in 0..3 {
        let share = drawn.iter().filter(|drawn| **drawn == category).count() as f64 / 3000.0;
        assert!((share - 1.0 / 3.0).abs() < 0.05, "{share}");
    }
    Ok(())
}

#[test]
fn wrong_numbers_are_refused_with_torchs_texts() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    random::manual_seed(1)?;
    let tensor = empty(&[4], DType::F32);
    let text = |result: Result<&Tensor>| result.unwrap_err().to_string();
    assert_eq!(
        text(tensor.uniform_(2.0, 1.0, None)),
        "uniform_ expects to return a [from, to) range, but found from=2 > to=1"
    );
    assert_eq!(text(tensor.uniform_(0.0, 1e300, None)), "to is out of bounds for float");
    assert_eq!(text(tensor.normal_(0.0, -1.0, None)), "normal expects std >= 0.0, but found std -1");
    assert_eq!(text(tensor.log_normal_(0.0, 0.0, None)), "log_normal_ expects std > 0.0, but found std=0");
    assert_eq!(text(tensor.exponential_(-0.5, None)), "exponential_ expects lambda > 0.0, but found lambda=-0.5");
    assert_eq!(text(tensor.cauchy_(0.0, 0.0, None)), "cauchy_ expects sigma > 0.0, but found sigma=0");
    assert_eq!(text(tensor.geometric_(1.0, None)), "geometric_ expects p to be in (0, 1), but got p=1");
    assert_eq!(text(tensor.bernoulli_(1.5, None)), "bernoulli_ expects p to be in [0, 1], but got p=1.5");
    let integers = empty(&[4], DType::U8);
    assert_eq!(
        text(integers.random_from_to_(5, Some(5), None)),
        "random_ expects 'from' to be less than 'to', but got from=5 >= to=5"
    );
    assert_eq!(text(integers.random_from_to_(0, Some(300), None)), "to - 1 is out of bounds for unsigned char");
    assert_eq!(text(integers.normal_(0.0, 1.0, None)), "\"normal_kernel_cuda\" not implemented for 'Byte'");
    let p = Tensor::from_slice(&[0.5_f32, f32::NAN], &[2])?.cuda(None)?;
    let said = |result: Result<Tensor>| result.unwrap_err().to_string();
    let refused = said(p.multinomial(1, true, None));
    let element = "multinomial(): probability NaN is out of range (element 1 of the probabilities)";
    assert_eq!(refused, format!("probability tensor contains either `inf`, `nan` or element < 0: {element}"));
    let zeros = Tensor::zeros(&[2, 3], DType::F32, "cuda")?;
    let sum = "invalid multinomial distribution (sum of probabilities <= 0)";
    assert!(said(zeros.multinomial(2, false, None)).starts_with(sum));
    assert_eq!(said(zeros.multinomial(0, true, None)), "cannot sample n_sample <= 0 samples");
    let more = "cannot sample n_sample > prob_dist.size(-1) samples without replacement";
    assert_eq!(said(zeros.multinomial(4, false, None)), more);
    assert_eq!(said(empty(&[1, 1, 1], DType::F32).multinomial(1, true, None)), "prob_dist must be 1 or 2 dim");
    assert_eq!(state(), (1, 0));
    Ok(())
}

/// Neighbours that are stored together have the bits of those that are stored one by one, and what lies beside them stays
/// as it is.
#[test]
fn groups_have_the_bits_of_single_elements() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    type Fill<'a> = &'a dyn Fn(&Tensor) -> Result<()>;
    let uniform: Fill<'_> = &|tensor| tensor.uniform_(-2.0, 3.0, None).map(drop);
    let normal: Fill<'_> = &|tensor| tensor.normal_(0.5, 2.0, None).map(drop);
    let exponential: Fill<'_> = &|tensor| tensor.exponential_(1.5, None).map(drop);
    let bernoulli: Fill<'_> = &|tensor| tensor.bernoulli_(0.25, None).map(drop);
    let narrow: Fill<'_> = &|tensor| tensor.random_from_to_(-3, Some(90), None).map(drop);
    let wide: Fill<'_> = &|tensor| tensor.random_from_to_(0, Some(1 << 40), None).map(drop);
    let floats = [DType::F16, DType::BF16, DType::F32, DType::F64];
    let cases: [(&str, Fill<'_>, &[DType]); 6] = [
        ("uniform", uniform, &floats),
        ("normal", normal, &floats),
        ("exponential", exponential, &floats),
        ("bernoulli", bernoulli, &[DType::F32, DType::F64, DType::U8]),
        ("narrow", narrow, &[DType::I32, DType::I64, DType::F32, DType::I8]),
        ("wide", wide, &[DType::I64]),
    ];
    for (name, fill, dtypes) in cases {
        for &dtype in dtypes {
            let many = if name == "uniform" && dtype != DType::F16 { 4 * THREADS + 6 } else { 1021 };
            for n in [1, 3, 4, 255, 257, 1021, many] {
                let (grouped, single) =
                    (Tensor::zeros(&[n + 4], dtype, "cuda")?, Tensor::zeros(&[n + 1], dtype, "cuda")?);
                random::manual_seed(77)?;
                fill(&grouped.narrow(0, 0, n)?)?;
                random::manual_seed(77)?;
                fill(&single.narrow(0, 1, n)?)?;
                let (grouped, single) = (grouped.to_bytes()?, single.to_bytes()?);
                let (bytes, size) = (n as usize * dtype.itemsize(), dtype.itemsize());
                assert!(grouped[..bytes] == single[size..], "{n} {name} of {dtype}");
                assert!(grouped[bytes..].iter().chain(&single[..size]).all(|&byte| byte == 0), "{n} {name} of {dtype}");
            }
        }
    }
    Ok(())
}

/// Groups of 16 bytes, and smaller ones, take the words of their thread's blocks in turn.
#[test]
fn masks_go_by_the_words_of_their_groups() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let keep = 1.0 - 0.3_f64;
    for dtype in FLOATS {
        let whole = 16 / dtype.itemsize() as i64;
        // The second count leaves the second half of a group over; the last one takes a second step.
        for (n, group) in [(whole * 700, whole), (whole * 300 + whole / 2, whole / 2), (4 * THREADS + 64, whole)] {
            if group == 1 || (n > 4 * THREADS && dtype != DType::F32) {
                continue;
            }
            let input: Vec<f64> =
                (0..n).map(|at| [1.5, -2.0, f64::INFINITY, -0.0, f64::NAN][at as usize % 5]).collect();
            let input = Tensor::from_slice(&input, &[n])?.to_dtype(dtype)?;
            random::manual_seed(21)?;
            let (output, mask) = input.cuda(None)?.native_dropout(0.3, None)?;
            let (mask, output, input) = (mask.to_bools()?, numbers(&output), numbers(&input));
            let one = numbers(&Tensor::full(&[1], 1.0 / keep, dtype, "cuda")?)[0];
            let threads = ((n + 255) / 256 * 256).min(THREADS);
            for (at, kept) in mask.iter().enumerate() {
                let (number, within) = (at as i64 / group, at as i64 % group);
                let (step, thread, blocks) = (number / threads, number % threads, (group + 3) / 4);
                let block = step * blocks + within / 4;
                let word = philox(21, block as u64, thread as u64)[within as usize % 4];
                let unit = (word as f32).mul_add((-32_f32).exp2(), (-33_f32).exp2());
                let wanted = if dtype == DType::F64 { f64::from(unit) < keep } else { unit < keep as f32 };
                assert_eq!(*kept, wanted, "{dtype}, {at} of {n}");
                // 1.5 is no power of two, so its product is rounded once more in 16 bits.
                let exact = if *kept { input[at] * one } else { input[at] * 0.0 };
                let near = (output[at] - exact).abs() <= exact.abs() / 256.0
                    && output[at].is_sign_negative() == exact.is_sign_negative();
                let same =
                    near || (exact.is_infinite() && output[at] == exact) || (exact.is_nan() && output[at].is_nan());
                assert!(same, "{dtype}, {at} of {n}: {} instead of {exact}", output[at]);
            }
        }
    }
    Ok(())
}

/// The first and the last numbers that PyTorch drew of means 0 to 19 and deviations 0 to 19/4, with the seed 7.
#[test]
fn each_normal_number_has_its_own_moments() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let generator = Generator::new(None)?;
    let means = Tensor::arange(0, 20, 1, Some(DType::F64), "cuda")?;
    let deviations = means.div(4)?;
    let ends = |tensor: &Tensor| -> Result<[f64; 4]> {
        let numbers = tensor.contiguous()?.to_vec::<f64>()?;
        Ok([numbers[1], numbers[2], numbers[3], numbers[19]])
    };
    let column = |tensor: &Tensor| tensor.narrow(0, 0, 4)?.view(&[4, 1]);
    let row = |tensor: &Tensor| tensor.narrow(0, 0, 5);
    let near = |made: Tensor, wanted: [f64; 4]| -> Result<()> {
        let found = ends(&made)?;
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= 1e-12), "{found:?} {wanted:?}");
        assert_eq!(generator.get_offset()?, 4);
        generator.manual_seed(7)?;
        Ok(())
    };
    generator.manual_seed(7)?;
    let given = Some(&generator);
    near(
        Tensor::normal(&means, 2.0, given)?,
        [4.709112103593281, 3.123878635719402, 0.6015280406321803, 19.33959880048317],
    )?;
    near(
        Tensor::normal(1.5, &deviations, given)?,
        [1.96363901294916, 1.7809696589298505, 0.6005730152370676, 2.306547151147526],
    )?;
    near(
        Tensor::normal(&means, &deviations, given)?,
        [1.46363901294916, 2.2809696589298505, 2.1005730152370674, 19.806547151147527],
    )?;
    near(Tensor::normal(&row(&means)?, &column(&deviations)?, given)?, [1.0, 2.0, 3.0, 4.127349550181188])?;
    near(
        Tensor::normal(&column(&means)?, &row(&deviations)?, given)?,
        [0.46363901294916005, 0.2809696589298505, -0.8994269847629324, 3.1697994002415846],
    )?;
    assert!(Tensor::normal(&means, &deviations.neg()?, given).is_err());
    Ok(())
}
