//! Attention against sums in `f64`: by the fused kernel and by tensor operations, on the host and on the simulated
//! device; masks, shared heads, layouts, dropout, what has no elements, switches and errors.

mod common;

use aten_cuda::attention::{self, Attention, SDPAParams, SdpKernels};
use aten_cuda::random::{default_generator, default_host_generator};
use aten_cuda::{DType, Result, Tensor};
use common::random;

/// Numbers from -2 to 2 as a host tensor.
fn numbers(sizes: &[i64], dtype: DType, salt: u16) -> Result<Tensor> {
    let count = sizes.iter().product::<i64>();
    let skip = usize::from(salt) * 7919;
    let unit = |bits: u64| (bits % 4096) as f64 / 1024.0 - 2.0;
    let values: Vec<f64> = random(count + i64::from(salt) * 7919).skip(skip).map(unit).collect();
    Tensor::from_slice(&values, sizes)?.to_dtype(dtype)
}

/// Queries, keys and values of (batches, heads, rows, width); `shared` heads of the keys and values.
struct Case {
    query: Tensor,
    key: Tensor,
    value: Tensor,
}

impl Case {
    fn of(dtype: DType, [batches, heads, shared, queries, keys, width]: [i64; 6]) -> Result<Self> {
        Ok(Self {
            query: numbers(&[batches, heads, queries, width], dtype, 0)?,
            key: numbers(&[batches, shared, keys, width], dtype, 1)?,
            value: numbers(&[batches, shared, keys, width], dtype, 2)?,
        })
    }

    fn cuda(&self) -> Result<Self> {
        Ok(Self { query: self.query.cuda(None)?, key: self.key.cuda(None)?, value: self.value.cuda(None)? })
    }

    fn attend(&self, options: &Attention<'_>) -> Result<Tensor> {
        self.query.scaled_dot_product_attention(&self.key, &self.value, options)
    }
}

fn size(tensor: &Tensor, dim: usize) -> usize {
    usize::try_from(tensor.sizes()[dim]).unwrap_or(0)
}

fn doubles(tensor: &Tensor) -> Result<Vec<f64>> {
    tensor.to_dtype(DType::F64)?.to_vec()
}

/// Attention of four dimensions by plain loops.
fn expected(case: &Case, options: &Attention<'_>) -> Result<Vec<f64>> {
    let [batches, heads, queries, width] = [0, 1, 2, 3].map(|dim| size(&case.query, dim));
    let [shared, keys, out_width] = [size(&case.key, 1), size(&case.key, 2), size(&case.value, 3)];
    let (query, key, value) = (doubles(&case.query)?, doubles(&case.key)?, doubles(&case.value)?);
    let sizes = [case.query.sizes()[0], case.query.sizes()[1], case.query.sizes()[2], case.key.sizes()[2]];
    let mask = options.attn_mask.map(|mask| {
        let is_bool = mask.dtype() == DType::Bool;
        let number = |value: f64| {
            if !is_bool {
                value
            } else if value == 0.0 {
                f64::NEG_INFINITY
            } else {
                0.0
            }
        };
        doubles(&mask.expand(&sizes)?).map(|values| values.into_iter().map(number).collect::<Vec<_>>())
    });
    let mask = mask.transpose()?;
    let scale = options.scale.unwrap_or(1.0 / (width as f64).sqrt());
    let mut out = Vec::new();
    for row in 0..batches * heads * queries {
        let (line, matrix) = (row % queries, row / queries);
        let other = matrix / heads * shared + matrix % heads / (heads / shared);
        let score = |at: usize| {
            let products = (0..width).map(|i| query[row * width + i] * key[(other * keys + at) * width + i]);
            let unseen = options.is_causal && at > line;
            let added = mask.as_ref().map_or(0.0, |mask| mask[row * keys + at]);
            if unseen { f64::NEG_INFINITY } else { scale * products.sum::<f64>() + added }
        };
        let scores: Vec<f64> = (0..keys).map(score).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> =
            scores.iter().map(|score| if most == f64::NEG_INFINITY { 0.0 } else { (score - most).exp() }).collect();
        let sum = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        for column in 0..out_width {
            let products = (0..keys).map(|at| weights[at] * value[(other * keys + at) * out_width + column]);
            out.push(products.sum::<f64>() / sum);
        }
    }
    Ok(out)
}

/// The largest distance that rounding explains: of results up to 2, whose weights and sums are rounded to the dtype.
fn tolerance(dtype: DType) -> f64 {
    let bounds = [(DType::BF16, 2.0 / 128.0), (DType::F16, 2.0 / 1024.0), (DType::F32, 1e-5)];
    bounds.into_iter().find(|bound| bound.0 == dtype).map_or(1e-12, |bound| bound.1)
}

#[track_caller]
fn assert_near(found: &Tensor, expected: &[f64], what: &str) -> Result<()> {
    let values = doubles(found)?;
    assert_eq!(values.len(), expected.len(), "{what}");
    let apart = values.iter().zip(expected).map(|(a, b)| (a - b).abs());
    // A NaN is larger than any distance.
    let most = apart.fold(0.0, |most: f64, next| if next <= most { most } else { next });
    assert!(most <= tolerance(found.dtype()), "{what}: {most} apart");
    Ok(())
}

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
const HALVES: [DType; 2] = [DType::F16, DType::BF16];

/// Whether the fused kernel takes the call.
fn is_fused(case: &Case, options: &Attention<'_>) -> bool {
    let Attention { attn_mask, dropout_p, is_causal, enable_gqa, .. } = *options;
    let params = SDPAParams::new(&case.query, &case.key, &case.value, attn_mask, dropout_p, is_causal, enable_gqa);
    attention::can_use_flash_attention(&params, true)
}

#[test]
fn operations_agree_with_sums_in_f64() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for dtype in FLOATS {
        for (sizes, is_causal, scale) in [
            ([2, 3, 3, 7, 9, 10], false, None),
            ([1, 4, 2, 6, 4, 8], true, Some(0.3)),
            ([1, 1, 1, 3, 5, 1], true, Some(-2.0)),
        ] {
            let case = Case::of(dtype, sizes)?;
            let options = Attention { is_causal, scale, enable_gqa: true, ..Attention::default() };
            let expected = expected(&case, &options)?;
            assert_near(&case.attend(&options)?, &expected, &format!("{dtype:?} {sizes:?} on the host"))?;
            let only_math = SdpKernels { enable_flash: false, ..SdpKernels::default() };
            let there = attention::with_sdp_kernel(only_math, || case.cuda()?.attend(&options))?;
            assert_near(&there, &expected, &format!("{dtype:?} {sizes:?} on the device"))?;
        }
    }
    Ok(())
}

#[test]
fn the_kernel_agrees_with_sums_in_f64() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let sizes = [
        [1, 1, 1, 1, 1, 8],
        [2, 4, 2, 130, 70, 64],
        [1, 2, 1, 65, 129, 40],
        [1, 2, 2, 129, 66, 128],
        [1, 1, 1, 40, 200, 104],
        [1, 2, 1, 70, 35, 256],
        [1, 1, 1, 33, 65, 136],
        [1, 2, 1, 5, 300, 12],
    ];
    for dtype in HALVES {
        for (sizes, is_causal) in sizes.into_iter().flat_map(|sizes| [(sizes, false), (sizes, true)]) {
            let case = Case::of(dtype, sizes)?;
            let options = Attention { is_causal, enable_gqa: true, ..Attention::default() };
            let there = case.cuda()?;
            assert!(is_fused(&there, &options));
            let found = there.attend(&options)?;
            assert_near(&found, &expected(&case, &options)?, &format!("{dtype:?} {sizes:?} {is_causal}"))?;
            assert!(found.to_bytes()? == there.attend(&options)?.to_bytes()?, "the same bits at every run");
        }
    }
    Ok(())
}

/// Operands as models have them: heads together, keys and values in one storage, one head or batch for all, lines that do
/// not begin at multiples of 16 bytes, columns that lie together.
#[test]
fn the_kernel_takes_any_layout() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let options = Attention::default();
    let check = |host: &Case, there: &Case, what: &str| -> Result<()> {
        assert!(is_fused(there, &options), "{what}");
        assert_near(&there.attend(&options)?, &expected(host, &options)?, what)
    };
    let of = |run: &dyn Fn(&Tensor) -> Result<[Tensor; 3]>, sizes: &[i64], what: &str| -> Result<()> {
        let all = numbers(sizes, DType::BF16, 3)?;
        let cases = [run(&all)?, run(&all.cuda(None)?)?].map(|[query, key, value]| Case { query, key, value });
        check(&cases[0], &cases[1], what)
    };
    let heads_together = |all: &Tensor| {
        let part = |at| all.select(2, at)?.transpose(1, 2);
        Ok([part(0)?, part(1)?, part(2)?])
    };
    of(&heads_together, &[2, 37, 3, 2, 64], "packed projections")?;
    let repeated = |all: &Tensor| {
        let one = all.narrow(1, 0, 1)?.expand(&[2, 3, 20, 64])?;
        Ok([all.clone(), one.clone(), one])
    };
    of(&repeated, &[2, 3, 20, 64], "one head for all")?;
    let shifted = |all: &Tensor| {
        let part = |at| all.narrow(3, at, 64);
        Ok([part(1)?, part(2)?, part(3)?])
    };
    of(&shifted, &[1, 2, 20, 67], "lines at any place")?;
    let turned = |all: &Tensor| {
        let turned = all.transpose(2, 3)?;
        Ok([turned.clone(), turned.clone(), turned])
    };
    of(&turned, &[1, 2, 64, 20], "columns that lie together")
}

#[test]
fn results_of_heads_that_lie_together_lie_so_too() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let all = numbers(&[2, 5, 3, 64], DType::F16, 0)?.cuda(None)?.transpose(1, 2)?;
    let out = all.scaled_dot_product_attention(&all, &all, &Attention::default())?;
    assert_eq!((out.sizes(), out.strides()), (&[2, 3, 5, 64][..], &[960, 64, 192, 1][..]));
    Ok(())
}

#[test]
fn the_scale_may_be_zero_or_below() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for scale in [0.0, -0.5, 3.0] {
        let case = Case::of(DType::F16, [1, 2, 2, 9, 70, 64])?;
        let options = Attention { scale: Some(scale), is_causal: true, ..Attention::default() };
        let there = case.cuda()?;
        assert!(is_fused(&there, &options));
        assert_near(&there.attend(&options)?, &expected(&case, &options)?, &format!("{scale}"))?;
    }
    Ok(())
}

#[test]
fn masks_of_booleans_and_floats() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for dtype in FLOATS {
        let case = Case::of(dtype, [2, 2, 2, 5, 6, 8])?;
        let bits: Vec<bool> = random(60).map(|bits| bits % 3 != 0).collect();
        let seen = Tensor::from_bools(&bits, &[2, 1, 5, 6])?;
        // The second query sees nothing.
        seen.narrow(2, 1, 1)?.zero_()?;
        let floats = numbers(&[5, 6], dtype, 5)?;
        let line = Tensor::from_bools(&[true, false, true, true, false, true], &[6])?;
        for mask in [seen, floats, line] {
            let options = Attention { attn_mask: Some(&mask), ..Attention::default() };
            let expected = expected(&case, &options)?;
            assert_near(&case.attend(&options)?, &expected, "on the host")?;
            let there = mask.cuda(None)?;
            let options = Attention { attn_mask: Some(&there), ..Attention::default() };
            assert_near(&case.cuda()?.attend(&options)?, &expected, "on the device")?;
        }
    }
    Ok(())
}

#[test]
fn other_numbers_of_dimensions() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let case = Case::of(DType::F32, [6, 1, 1, 4, 5, 8])?;
    let expected = expected(&case, &Attention::default())?;
    let sizes = |tensor: &Tensor, lead: &[i64]| {
        let whole: Vec<i64> = lead.iter().chain(&tensor.sizes()[2..]).copied().collect();
        tensor.view(&whole)
    };
    for lead in [&[6][..], &[2, 3], &[1, 2, 3]] {
        let case =
            Case { query: sizes(&case.query, lead)?, key: sizes(&case.key, lead)?, value: sizes(&case.value, lead)? };
        assert_near(&case.attend(&Attention::default())?, &expected, &format!("{lead:?}"))?;
        assert_near(&case.cuda()?.attend(&Attention::default())?, &expected, &format!("{lead:?} on the device"))?;
    }
    let first = |tensor: &Tensor| tensor.select(0, 0)?.select(0, 0);
    let flat = first(&case.query)?.scaled_dot_product_attention(
        &first(&case.key)?,
        &first(&case.value)?,
        &Attention::default(),
    )?;
    assert_near(&flat, &expected[..32], "matrices")
}

#[test]
fn dropout_follows_the_seed_and_keeps_the_mean() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let options = Attention { dropout_p: 0.25, ..Attention::default() };
    for device in ["cpu", "cuda"] {
        let ones = Tensor::ones(&[4, 2, 40, 16], DType::BF16, device)?;
        let run = || -> Result<Tensor> {
            seed(device, 7)?;
            ones.scaled_dot_product_attention(&ones, &ones, &options)
        };
        let (first, again) = (run()?, run()?);
        assert!(first.to_bytes()? == again.to_bytes()?);
        let next = ones.scaled_dot_product_attention(&ones, &ones, &options)?;
        assert!(first.to_bytes()? != next.to_bytes()?);
        // Each is the mean of 40 weights, 0 or 4/3; all together 12,800 of them, whose mean deviates by 0.005.
        let values = doubles(&first.narrow(3, 0, 1)?.contiguous()?)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!((mean - 1.0).abs() < 0.03, "{mean} on {device}");
        let all = Attention { dropout_p: 1.0, ..Attention::default() };
        assert!(doubles(&ones.scaled_dot_product_attention(&ones, &ones, &all)?)?.iter().all(|&value| value == 0.0));
    }
    Ok(())
}

fn seed(device: &str, seed: i128) -> Result<()> {
    let generator = if device == "cpu" { default_host_generator() } else { default_generator(None)? };
    generator.manual_seed(seed).map(drop)
}

/// What PyTorch 2.11 gives on the host and on an H200, for the first matrix of results and two numbers drawn afterwards:
/// seed 1, `q = torch.randn(2, 3, 4, 8)`, seed 5, attention of `q`, `q`, `q` with `dropout_p=0.5` by the math kernel.
#[test]
fn dropout_drops_what_torch_drops() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let recorded: [(&str, [f32; 32], [f32; 2]); 2] = [
        (
            "cpu",
            [
                0.13265076,
                -0.085541636,
                -0.42095894,
                -0.27354646,
                0.050791614,
                -0.019973867,
                -0.17772993,
                0.04474307,
                -0.3673389,
                -0.18064372,
                -0.15746805,
                -0.387538,
                -0.024118641,
                -0.14668286,
                -0.23591337,
                -0.38744444,
                -0.9400761,
                -1.4161352,
                0.36998603,
                -0.011732578,
                1.0479301,
                0.7035176,
                -0.88701797,
                1.1420515,
                1.8031188,
                -0.31328174,
                -3.8298793,
                -2.459291,
                0.11523925,
                -0.93800634,
                -1.3571693,
                -0.17156431,
            ],
            [0.92196316, 0.74266124],
        ),
        (
            "cuda",
            [
                -2.7815836e-06,
                -0.00043718083,
                -5.939318e-05,
                0.000110464825,
                -0.00021880816,
                -1.9563988e-05,
                -0.0001451584,
                -0.00024243646,
                -0.034692843,
                -5.4349737,
                -0.7385493,
                1.3732237,
                -2.7205706,
                -0.24336188,
                -1.8054312,
                -3.013618,
                -0.6506813,
                -1.0410641,
                -2.1980102,
                -0.8015088,
                -1.6503645,
                -0.885623,
                -2.120348,
                -1.1884687,
                0.30407625,
                2.751319,
                5.0833526,
                2.8859057,
                0.79622775,
                0.3274066,
                -3.0712934,
                2.777239,
            ],
            [0.34722114, 0.2654495],
        ),
    ];
    for (device, first, after) in recorded {
        seed(device, 1)?;
        let query = Tensor::randn(&[2, 3, 4, 8], DType::F32, device, None)?;
        seed(device, 5)?;
        let options = Attention { dropout_p: 0.5, ..Attention::default() };
        let out = query.scaled_dot_product_attention(&query, &query, &options)?;
        let found = out.select(0, 0)?.select(0, 0)?.contiguous()?.to_vec::<f32>()?;
        for (found, recorded) in found.iter().zip(first) {
            assert!((found - recorded).abs() <= 1e-5 * recorded.abs().max(1.0), "{found} for {recorded} on {device}");
        }
        let next = Tensor::rand(&[2], DType::F32, device, None)?;
        assert_eq!(next.to_vec::<f32>()?, after, "drawn afterwards on {device}");
    }
    Ok(())
}

#[test]
fn nothing_to_compute() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for (dtype, device) in [(DType::F32, "cpu"), (DType::F32, "cuda"), (DType::BF16, "cuda")] {
        for sizes in [[0, 2, 3, 8], [2, 0, 3, 8], [2, 2, 0, 8]] {
            let none = Tensor::ones(&sizes, dtype, device)?;
            let out = none.scaled_dot_product_attention(&none, &none, &Attention::default())?;
            assert_eq!((out.sizes(), out.dtype()), (&sizes[..], dtype));
        }
        let (query, none) = (Tensor::ones(&[2, 2, 3, 8], dtype, device)?, Tensor::ones(&[2, 2, 0, 8], dtype, device)?);
        let out = query.scaled_dot_product_attention(&none, &none, &Attention::default())?;
        assert_eq!(doubles(&out)?, [0.0; 96], "without keys all weights are zero");
    }
    Ok(())
}

#[test]
fn sums_of_halves_in_their_own_dtype() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let case = Case::of(DType::F16, [1, 1, 1, 4, 40, 64])?;
    assert!(!attention::fp16_bf16_reduction_math_sdp_allowed());
    let wide = case.attend(&Attention::default())?;
    attention::allow_fp16_bf16_reduction_math_sdp(true);
    assert!(attention::fp16_bf16_reduction_math_sdp_allowed());
    let narrow = case.attend(&Attention::default())?;
    assert_ne!(wide.to_bytes()?, narrow.to_bytes()?, "the scores are rounded");
    let apart = doubles(&wide)?.into_iter().zip(doubles(&narrow)?).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart < 0.01, "{apart}");
    Ok(())
}

#[test]
fn switches_and_what_can_be_used() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    assert_eq!(SdpKernels::current(), SdpKernels::default());
    assert!(attention::is_flash_attention_available());
    let case = Case::of(DType::BF16, [1, 4, 2, 8, 16, 64])?;
    let there = case.cuda()?;
    let gqa = Attention { enable_gqa: true, ..Attention::default() };
    assert!(is_fused(&there, &gqa));
    assert!(!is_fused(&there, &Attention::default()), "heads differ");
    assert!(!is_fused(&case, &gqa), "on the host");
    assert!(!is_fused(&there, &Attention { dropout_p: 0.5, ..gqa }));
    let mask = Tensor::ones(&[8, 16], DType::Bool, "cuda")?;
    assert!(!is_fused(&there, &Attention { attn_mask: Some(&mask), ..gqa }));
    let params = SDPAParams::new(&there.query, &there.key, &there.value, None, 0.0, false, true);
    assert!(!attention::can_use_efficient_attention(&params, true));
    assert!(!attention::can_use_cudnn_attention(&params, true));
    assert_eq!(attention::fused_sdp_choice(&params), attention::SDPBackend::FlashAttention);

    let fused = there.attend(&gqa)?;
    {
        let _math = attention::sdp_kernel(SdpKernels { enable_flash: false, ..SdpKernels::default() });
        assert!(!attention::flash_sdp_enabled() && !is_fused(&there, &gqa));
        assert_eq!(attention::fused_sdp_choice(&params), attention::SDPBackend::Math);
        assert_near(&there.attend(&gqa)?, &doubles(&fused)?, "the two ways")?;
        attention::enable_math_sdp(false);
        assert_eq!(attention::fused_sdp_choice(&params), attention::SDPBackend::Error);
        let error = there.attend(&gqa).unwrap_err().to_string();
        assert!(error.starts_with("No available kernel. Aborting execution."), "{error}");
    }
    assert_eq!(SdpKernels::current(), SdpKernels::default());
    let set_flash: fn(bool) = attention::enable_flash_sdp;
    let flash: fn() -> bool = attention::flash_sdp_enabled;
    for (set, get) in [
        (set_flash, flash),
        (attention::enable_mem_efficient_sdp, attention::mem_efficient_sdp_enabled),
        (attention::enable_math_sdp, attention::math_sdp_enabled),
        (attention::enable_cudnn_sdp, attention::cudnn_sdp_enabled),
    ] {
        set(false);
        assert!(!get());
        set(true);
        assert!(get());
    }
    Ok(())
}

#[test]
fn arguments_that_do_not_fit() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let of = |sizes: &[i64]| Tensor::ones(sizes, DType::F32, "cpu");
    let to = |tensor: &Tensor, dtype| tensor.to_dtype(dtype);
    let query = of(&[2, 3, 4, 8])?;
    let plain = Attention::default();
    let refuse = |[query, key, value]: [&Tensor; 3], options: &Attention<'_>, text: &str| {
        let error = query.scaled_dot_product_attention(key, value, options).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}\n{text}");
    };
    let same = [&query; 3];
    refuse(
        [&query, &to(&query, DType::F16)?, &query],
        &plain,
        "Expected query, key, and value to have the same dtype, but got query.dtype: float key.dtype: c10::Half and \
         value.dtype: float instead.",
    );
    refuse(
        [&query, &query.cuda(None)?, &query],
        &plain,
        "Expected query, key, and value to have the same device type, but got query.device: cpu key.device: cuda:0 and \
         value.device: cpu instead.",
    );
    let line = of(&[8])?;
    refuse(
        [&line; 3],
        &plain,
        "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: 1 key.dim: 1 and value.dim: \
         1 instead.",
    );
    refuse([&to(&query, DType::I32)?; 3], &plain, "expected scalar type Float but found Int");
    refuse([&to(&query, DType::C64)?; 3], &plain, "\"softmax_lastdim_kernel_impl\" not implemented for 'ComplexFloat'");
    let narrow = of(&[2, 3, 5, 6])?;
    refuse(
        [&query, &narrow, &narrow],
        &plain,
        "Expected size for first two dimensions of batch2 tensor to be: [6, 8] but got: [6, 6].",
    );
    let batches = of(&[3, 3, 5, 8])?;
    refuse(
        [&query, &batches, &batches],
        &plain,
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0",
    );
    let heads = of(&[2, 7, 4, 8])?;
    let gqa = Attention { enable_gqa: true, ..plain };
    let none = of(&[2, 0, 4, 8])?;
    for other in [&query, &none] {
        refuse([&heads, other, other], &gqa, "Number of heads in key and value must divide the number of heads in ");
    }
    refuse([&line.unsqueeze(0)?; 3], &gqa, "Dimension out of range");
    for (mask, text) in [
        (
            Tensor::ones(&[4, 4], DType::I32, "cpu")?,
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: int and  \
             query.dtype: float instead.",
        ),
        (of(&[5, 4])?, "The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 2"),
        (of(&[1, 2, 3, 4, 4])?, "output with shape [2, 3, 4, 4] doesn't match the broadcast shape [1, 2, 3, 4, 4]"),
        (of(&[4, 4])?.cuda(None)?, "Expected all tensors to be on the same device"),
    ] {
        refuse(same, &Attention { attn_mask: Some(&mask), ..plain }, text);
    }
    refuse(
        same,
        &Attention { attn_mask: Some(&of(&[4, 4])?), is_causal: true, ..plain },
        "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True",
    );
    for p in [1.5, -1.0] {
        let text = format!("dropout probability has to be between 0 and 1, but got {p}");
        refuse(same, &Attention { dropout_p: p, ..plain }, &text);
    }
    let none = SdpKernels { enable_flash: false, enable_math: false, enable_mem_efficient: false, enable_cudnn: false };
    attention::with_sdp_kernel(none, || {
        refuse(same, &plain, "No viable backend for scaled_dot_product_attention was found.");
    });
    Ok(())
}
