//! Regions of autocast: which operation is cast how, nesting, threads, captures, and casts that are kept.

use std::collections::BTreeMap;

use aten_cuda::attention::Attention;
use aten_cuda::autocast::{self, Autocast, Policy, autocast, with_autocast};
use aten_cuda::{AmpError, CrossEntropy, DType, Error, Operand, Result, Scalar, Tensor, blas, fft, linalg, table};
use c10_core::{CUDAGraph, CaptureMode, DeviceType, Runtime, Stream};

/// What PyTorch's documentation says of operations on CUDA devices, in its own names.
const DOCUMENTED: [(Policy, &str); 3] = [
    (
        Policy::LowerPrecision,
        "__matmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul multi_dot conv1d conv2d conv3d conv_transpose1d \
         conv_transpose2d conv_transpose3d GRUCell linear LSTMCell matmul mm mv prelu RNNCell",
    ),
    (
        Policy::Fp32,
        "__pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss \
         cdist cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div \
         l1_loss layer_norm log log_softmax log10 log1p log2 margin_ranking_loss mse_loss multilabel_margin_loss \
         multi_margin_loss nll_loss norm normalize pdist poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss \
         soft_margin_loss softmax softmin softplus sum renorm tan triplet_margin_loss",
    ),
    (Policy::Promote, "addcdiv addcmul atan2 bilinear cross dot grid_sample index_put scatter_add tensordot"),
];

/// What it says of operations on the host, where the name is that of the operation itself.
const DOCUMENTED_OF_THE_HOST: [(Policy, &str); 3] = [
    (
        Policy::LowerPrecision,
        "conv1d conv2d conv3d bmm mm linalg_vecdot baddbmm addmm addbmm linear matmul _convolution conv_tbc \
         mkldnn_rnn_layer conv_transpose1d conv_transpose2d conv_transpose3d prelu scaled_dot_product_attention \
         _native_multi_head_attention",
    ),
    (
        Policy::Fp32,
        "avg_pool3d binary_cross_entropy grid_sampler polar prod quantile nanquantile stft cdist trace view_as_complex \
         cholesky inverse lu_solve mse_loss ctc_loss kl_div fft_fft fft_ifft fft_rfft fft_irfft linalg_cond linalg_solve \
         linalg_cholesky linalg_svdvals linalg_qr linalg_svd linalg_eigh triangular_solve cross_entropy_loss",
    ),
    (Policy::Promote, "cat stack index_copy"),
];

/// The operation that a documented name runs.
fn run_by(name: &str) -> &str {
    match name {
        "__matmul__" => "matmul",
        "__pow__" | "__rpow__" => "pow",
        "__rdiv__" | "__rtruediv__" => "reciprocal",
        "multi_dot" => "linalg_multi_dot",
        "GRUCell" => "gru_cell",
        "LSTMCell" => "lstm_cell",
        "RNNCell" => "rnn_tanh_cell",
        "normalize" => "norm",
        "softmin" => "softmax",
        "grid_sample" => "grid_sampler",
        name => name,
    }
}

/// What comes out where `f32` is wanted, however the operation is brought to that.
fn effect(policy: Policy) -> Policy {
    match policy {
        Policy::Fp32SetOptDtype | Policy::Fp32AppendDtype => Policy::Fp32,
        other @ (Policy::LowerPrecision | Policy::Fp32 | Policy::Promote | Policy::Banned) => other,
    }
}

#[test]
fn every_documented_operation_is_listed() {
    for (wanted, names) in DOCUMENTED {
        for name in names.split_whitespace() {
            let found = autocast::policy(DeviceType::Cuda, run_by(name));
            assert_eq!(found.map(effect), Some(wanted), "{name}");
        }
    }
    for (wanted, names) in DOCUMENTED_OF_THE_HOST {
        for name in names.split_whitespace() {
            assert_eq!(autocast::policy(DeviceType::Cpu, name), Some(wanted), "{name} on the host");
        }
    }
    let count = |kind| autocast::operations(kind).count();
    assert_eq!((count(DeviceType::Cuda), count(DeviceType::Cpu)), (111, 115));
    for kind in [DeviceType::Cuda, DeviceType::Cpu] {
        let once: BTreeMap<&str, Policy> = autocast::operations(kind).collect();
        assert_eq!(once.len(), count(kind), "no name stands there twice");
    }
}

/// Every row of the tables that is in a list; all others run in the dtypes of their operands.
#[test]
fn every_operation_of_the_tables_has_its_class() {
    let pointwise = table().map(|row| (row.name, row.autocast(DeviceType::Cuda)));
    let others = aten_cuda::reductions().chain(aten_cuda::scans()).map(|row| row.name);
    let others = others.map(|name| (name, autocast::policy(DeviceType::Cuda, name)));
    let found: BTreeMap<&str, Policy> =
        pointwise.chain(others).filter_map(|(name, policy)| Some((name, policy?))).collect();
    let fp32 = [
        "acos",
        "asin",
        "cosh",
        "erfinv",
        "exp",
        "expm1",
        "log",
        "log10",
        "log1p",
        "log2",
        "logsumexp",
        "pow",
        "pow_half",
        "pow_two",
        "reciprocal",
        "rsqrt",
        "sinh",
        "softplus",
        "square",
        "tan",
    ];
    let norms = ["norm_0", "norm_1", "norm_2", "norm_inf", "norm_minus_inf", "norm_p"];
    let wanted = fp32.iter().map(|&name| (name, Policy::Fp32));
    let wanted = wanted.chain(norms.iter().map(|&name| (name, Policy::Fp32AppendDtype)));
    let wanted = wanted.chain(["cumprod", "cumsum", "prod", "sum"].map(|name| (name, Policy::Fp32SetOptDtype)));
    let wanted = wanted.chain(["addcdiv", "addcmul", "atan2"].map(|name| (name, Policy::Promote)));
    assert_eq!(found, wanted.collect());
    let on_host: Vec<&str> =
        table().filter(|row| row.autocast(DeviceType::Cpu).is_some()).map(|row| row.name).collect();
    assert_eq!(on_host, [""; 0]);
}

fn ones(sizes: &[i64], dtype: DType, device: &str) -> Result<Tensor> {
    Tensor::ones(sizes, dtype, device)
}

/// Each pointwise operation in a region is what its class says: what it is of operands that were cast before.
#[test]
fn pointwise_operations_do_what_their_class_says() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let mut compared = BTreeMap::new();
    for row in table() {
        for dtypes in [[DType::F16, DType::F16], [DType::F32, DType::F16]] {
            let mut given = Vec::new();
            for at in 0..row.arity {
                let dtype = if row.takes_condition && at == 0 { DType::Bool } else { dtypes[at.min(1)] };
                given.push(Tensor::full(&[3], 0.5, DType::F32, "cuda")?.to_dtype(dtype)?);
            }
            let numbers = vec![Scalar::Float(0.25); row.numbers];
            let run = |given: &[Tensor]| row.apply(&given.iter().map(Operand::Tensor).collect::<Vec<_>>(), &numbers);
            let policy = row.autocast(DeviceType::Cuda);
            let has_single = given.iter().any(|tensor| tensor.dtype() == DType::F32);
            let wanted = match policy {
                Some(Policy::Fp32) => given.iter().map(|one| one.to_dtype(DType::F32)).collect::<Result<Vec<_>>>()?,
                Some(Policy::Promote) if has_single => {
                    given.iter().map(|one| one.to_dtype(DType::F32)).collect::<Result<Vec<_>>>()?
                }
                _ => given.clone(),
            };
            let wanted = run(&wanted);
            let found = with_autocast("cuda", (), || run(&given))?;
            match (wanted, found) {
                (Ok(wanted), Ok(found)) => {
                    assert_eq!(found.dtype(), wanted.dtype(), "{}", row.name);
                    assert_eq!(found.to_bytes()?, wanted.to_bytes()?, "{}", row.name);
                    *compared.entry(policy).or_insert(0) += 1;
                }
                (Err(wanted), Err(found)) => assert_eq!(found.to_string(), wanted.to_string(), "{}", row.name),
                (wanted, found) => panic!("{}: {wanted:?} and in a region {found:?}", row.name),
            }
        }
    }
    assert!(compared[&None] > 90 && compared[&Some(Policy::Fp32)] >= 36, "{compared:?}");
    assert!(compared[&Some(Policy::Promote)] >= 5, "{compared:?}");
    Ok(())
}

/// An operation of one or two square matrices.
type Run = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Every other method that is listed, with what it is listed as on CUDA devices and on the host.
const METHODS: &[(&str, Option<Policy>, Option<Policy>, Run)] = {
    use Policy::{Fp32, LowerPrecision, Promote};
    const LOWER: Option<Policy> = Some(LowerPrecision);
    const SINGLE: Option<Policy> = Some(Fp32);
    const WIDEST: Option<Policy> = Some(Promote);
    &[
        ("mm", LOWER, LOWER, |a, b| a.mm(b)),
        ("addmm", LOWER, LOWER, |a, b| a.addmm(a, b, 1, 1)),
        ("bmm", LOWER, LOWER, |a, b| a.unsqueeze(0)?.bmm(&b.unsqueeze(0)?)),
        ("baddbmm", LOWER, LOWER, |a, b| a.baddbmm(&a.unsqueeze(0)?, &b.unsqueeze(0)?, 1, 1)),
        ("addbmm", LOWER, LOWER, |a, b| a.addbmm(&a.unsqueeze(0)?, &b.unsqueeze(0)?, 1, 1)),
        ("mv", LOWER, None, |a, b| a.mv(&b.select(0, 0)?)),
        ("addmv", LOWER, None, |a, b| b.select(0, 0)?.addmv(a, &b.select(0, 1)?, 1, 1)),
        ("matmul", LOWER, LOWER, Tensor::matmul),
        ("linear", LOWER, LOWER, |a, b| a.linear(b, None)),
        ("linear with a bias", LOWER, LOWER, |a, b| a.linear(b, &b.select(0, 0)?)),
        ("_addmm_activation", None, LOWER, |a, b| a.addmm_activation(a, b, 1, 1, false)),
        ("einsum", LOWER, LOWER, |a, b| blas::einsum("ij,jk->ik", &[a, b])),
        ("scaled_dot_product_attention", LOWER, LOWER, |a, b| {
            a.unsqueeze(0)?.scaled_dot_product_attention(&b.unsqueeze(0)?, &b.unsqueeze(0)?, &Attention::default())
        }),
        ("sum", SINGLE, None, |a, _| a.sum((), false, None)),
        ("prod", SINGLE, SINGLE, |a, _| a.prod(0, false, None)),
        ("mean", None, None, |a, _| a.mean((), false, None)),
        ("norm", SINGLE, None, |a, _| a.norm(2, (), false, None)),
        ("logsumexp", SINGLE, None, |a, _| a.logsumexp(0, false)),
        ("amax", None, None, |a, _| a.amax((), false)),
        ("cumsum", SINGLE, None, |a, _| a.cumsum(0, None)),
        ("cumprod", SINGLE, None, |a, _| a.cumprod(0, None)),
        ("logcumsumexp", None, None, |a, _| a.logcumsumexp(0)),
        ("softmax", SINGLE, None, |a, _| a.softmax(0, None)),
        ("log_softmax", SINGLE, None, |a, _| a.log_softmax(0, None)),
        ("layer_norm", SINGLE, None, |a, b| {
            let weight = b.select(0, 0)?;
            a.layer_norm(&[2], Some(&weight), None, 1e-5)
        }),
        ("cross_entropy", SINGLE, SINGLE, |a, _| {
            let target = Tensor::zeros(&[2], DType::I64, a)?;
            a.cross_entropy(&target, &CrossEntropy::default())
        }),
        ("cross_entropy of probabilities", SINGLE, SINGLE, |a, b| a.cross_entropy(b, &CrossEntropy::default())),
        ("dot", WIDEST, None, |a, b| a.select(0, 0)?.dot(&b.select(0, 0)?)),
        ("vdot", WIDEST, None, |a, b| a.select(0, 0)?.vdot(&b.select(0, 0)?)),
        ("scatter_add", WIDEST, None, |a, b| a.scatter_add(0, &Tensor::zeros(&[2, 2], DType::I64, a)?, b)),
        ("index_put", WIDEST, None, |a, b| a.index_put(&[Some(&Tensor::zeros(&[2], DType::I64, a)?)], b, true)),
        ("index_copy", None, WIDEST, |a, b| a.index_copy(0, &Tensor::arange(0, 2, 1, Some(DType::I64), a)?, b)),
        ("cat", None, WIDEST, |a, b| Tensor::cat(&[a, b], 0)),
        ("stack", None, WIDEST, |a, b| Tensor::stack(&[a, b], 0)),
        ("pow of a number", SINGLE, None, |a, _| Tensor::pow_of(2.0, a)),
        ("outer", None, None, |a, b| a.select(0, 0)?.outer(&b.select(0, 0)?)),
    ]
};

/// An operation on one tensor.
type OnOne = fn(&Tensor) -> Result<Tensor>;

/// Operations that torch has for the host alone in lists, of matrices that can be factorised.
const OF_THE_HOST: &[(&str, OnOne)] = &[
    ("linalg_cholesky", |a| linalg::cholesky(a, false)),
    ("linalg_solve", |a| linalg::solve(a, a)),
    ("linalg_qr", |a| Ok(linalg::qr(a, "reduced")?.1)),
    ("linalg_svd", |a| Ok(linalg::svd(a, true, None)?.1)),
    ("linalg_svdvals", |a| linalg::svdvals(a, None)),
    ("fft_fft", |a| fft::fft(a, None, -1, None)),
    ("fft_ifft", |a| fft::ifft(a, None, -1, None)),
    ("fft_rfft", |a| fft::rfft(a, None, -1, None)),
    ("fft_irfft", |a| fft::irfft(a, None, -1, None)),
    ("view_as_complex", Tensor::view_as_complex),
];

/// Every method, for operands of one dtype and of two, in regions of both dtypes: the result has the dtype of its class, and
/// the bits of the same operation on operands that were cast before.
#[test]
fn methods_do_what_their_class_says() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for (kind, short) in [("cuda", DType::F16), ("cuda", DType::BF16), ("cpu", DType::BF16), ("cpu", DType::F16)] {
        for &(name, on_cuda, on_host, run) in METHODS {
            let policy = if kind == "cuda" { on_cuda } else { on_host };
            for (first, second) in [(DType::F32, DType::F32), (short, short), (DType::F32, short)] {
                let a = Tensor::from_slice(&[0.3_f32, 1.0, 2.0, 0.7], &[2, 2])?.to(kind)?.to_dtype(first)?;
                let b = Tensor::from_slice(&[1.1_f32, 0.5, 3.0, 0.9], &[2, 2])?.to(kind)?.to_dtype(second)?;
                let to = match policy {
                    Some(Policy::LowerPrecision) => Some(short),
                    Some(Policy::Promote) if first == short && second == short => Some(short),
                    Some(_) => Some(DType::F32),
                    None => None,
                };
                let cast = |tensor: &Tensor| to.map_or_else(|| Ok(tensor.clone()), |to| tensor.to_dtype(to));
                let wanted = run(&cast(&a)?, &cast(&b)?);
                let found = with_autocast(kind, short, || run(&a, &b))?;
                let what = format!("{name} of {first} and {second} on {kind} in {short}");
                match (wanted, found) {
                    (Ok(wanted), Ok(found)) => {
                        assert_eq!(found.dtype(), wanted.dtype(), "{what}");
                        assert_eq!(found.to_bytes()?, wanted.to_bytes()?, "{what}");
                    }
                    (Err(_), Err(_)) => assert_eq!((to, first == second), (None, false), "{what} is refused"),
                    (wanted, found) => panic!("{what}: {wanted:?} and in a region {found:?}"),
                }
            }
        }
    }
    for (name, run) in OF_THE_HOST {
        let a = Tensor::from_slice(&[4.0_f32, 2.0, 2.0, 5.0], &[2, 2])?;
        let wanted = run(&a)?;
        let found = with_autocast("cpu", (), || run(&a.to_dtype(DType::BF16)?))??;
        assert_eq!((found.dtype(), found.to_bytes()?), (wanted.dtype(), wanted.to_bytes()?), "{name}");
    }
    Ok(())
}

/// In place, with `out`, in 64 bits, with other dtypes, on devices of another kind: nothing is cast.
#[test]
fn what_is_not_eligible_stays() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let (single, double) = (ones(&[2, 2], DType::F32, "cuda")?, ones(&[2, 2], DType::F64, "cuda")?);
    let half = single.to_dtype(DType::F16)?;
    let host = ones(&[2, 2], DType::F32, "cpu")?;
    let _region = autocast("cuda", ())?;
    assert_eq!(double.mm(&double)?.dtype(), DType::F64);
    assert_eq!(double.sum((), false, None)?.dtype(), DType::F64);
    assert_eq!(host.mm(&host)?.dtype(), DType::F32);
    assert_eq!(ones(&[2], DType::I64, "cuda")?.sum((), false, None)?.dtype(), DType::I64);
    let out = ones(&[2, 2], DType::F32, "cuda")?;
    single.mm_out(&single, &out)?;
    single.unsqueeze(0)?.matmul_out(&single.unsqueeze(0)?, &out.unsqueeze(0)?)?;
    assert_eq!(out.to_vec::<f32>()?, [2.0; 4]);
    assert_eq!(half.exp_()?.dtype(), DType::F16);
    let refused = half.addmm_(&half, &single, 1, 1).unwrap_err().to_string();
    assert!(refused.contains("same dtype") || refused.contains("dtype"), "{refused}");
    assert_eq!(half.sum((), false, DType::F16)?.dtype(), DType::F16, "a dtype that is asked for");
    assert_eq!(half.softmax(0, DType::F64)?.dtype(), DType::F64);
    assert_eq!(single.mul(&half)?.dtype(), DType::F32, "what is in no list promotes as ever");
    assert_eq!(half.mul(&half)?.dtype(), DType::F16);
    Ok(())
}

/// Floats that are neither `f32` nor those of the region are refused where dtypes are brought together, as in torch.
#[test]
fn other_floats_are_not_brought_together() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let vector = ones(&[2], DType::F16, "cuda")?;
    let refused = with_autocast("cuda", DType::BF16, || vector.dot(&vector))?.unwrap_err();
    assert!(matches!(refused, Error::Amp(AmpError::Promotion { dtype: DType::F16 })), "{refused}");
    assert_eq!(refused.to_string(), "Unexpected floating ScalarType in at::autocast::prioritize");
    let single = vector.to_dtype(DType::F32)?;
    assert_eq!(with_autocast("cuda", DType::BF16, || single.dot(&vector))??.dtype(), DType::F32);
    let refused = with_autocast("cuda", DType::F64, || vector.dot(&vector))?.unwrap_err();
    assert_eq!(refused.to_string(), "promote type is double in at::autocast::prioritize");
    Ok(())
}

#[test]
fn regions_nest_and_are_left_as_they_were() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = ones(&[2, 2], DType::F32, "cuda")?;
    let dtype = || a.mm(&a).map(|made| made.dtype());
    let state = || -> Result<_> {
        Ok((
            autocast::is_autocast_enabled("cuda")?,
            autocast::get_autocast_dtype("cuda")?,
            autocast::is_autocast_cache_enabled(),
        ))
    };
    assert_eq!((dtype()?, state()?), (DType::F32, (false, DType::F16, true)));
    {
        let _outer = autocast("cuda", DType::BF16)?;
        assert_eq!((dtype()?, state()?), (DType::BF16, (true, DType::BF16, true)));
        {
            let _inner = autocast("cuda", Autocast { cache_enabled: Some(false), ..Autocast::default() })?;
            assert_eq!((dtype()?, state()?), (DType::BF16, (true, DType::BF16, false)), "the dtype is that outside");
            let _off = autocast("cuda", Autocast { enabled: false, ..Autocast::default() })?;
            assert_eq!((dtype()?, state()?), (DType::F32, (false, DType::BF16, false)));
            let _host = autocast("cpu", ())?;
            assert!(autocast::is_any_autocast_enabled() && !autocast::is_autocast_enabled("cuda")?);
        }
        assert_eq!((dtype()?, state()?), (DType::BF16, (true, DType::BF16, true)));
        let failed: Result<()> = with_autocast("cuda", DType::F16, || Err(a.mm(&a.narrow(0, 0, 1)?).unwrap_err()))?;
        assert!(failed.is_err());
        let panicked = std::panic::catch_unwind(|| {
            let _region = autocast("cuda", DType::F16);
            panic!("in a region");
        });
        assert!(panicked.is_err());
        assert_eq!(state()?, (true, DType::BF16, true), "errors and panics leave regions");
    }
    assert_eq!((dtype()?, state()?), (DType::F32, (false, DType::F16, true)));
    Ok(())
}

#[test]
fn a_region_is_of_one_thread() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let _region = autocast("cuda", DType::BF16)?;
    autocast::set_autocast_cache_enabled(false);
    let simulation = rig.simulation();
    let there = || -> Result<_> {
        let _entered = simulation.enter();
        let a = ones(&[2, 2], DType::F32, "cuda")?;
        let before = (a.mm(&a)?.dtype(), autocast::is_autocast_cache_enabled(), autocast::get_autocast_dtype("cuda")?);
        let inside = with_autocast("cuda", (), || a.mm(&a).map(|made| made.dtype()))??;
        Ok((before, inside))
    };
    let (before, inside) = std::thread::scope(|scope| scope.spawn(there).join().expect("the thread ends well"))?;
    assert_eq!((before, inside), ((DType::F32, true, DType::F16), DType::F16));
    Ok(())
}

#[test]
fn what_is_asked_wrongly_is_refused_or_disabled() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    assert!(matches!(autocast("xpu", ()), Err(Error::Amp(AmpError::DeviceType { .. }))));
    for dtype in [DType::I32, DType::Bool, DType::C64, DType::F8E5M2] {
        assert!(matches!(autocast("cuda", dtype), Err(Error::Amp(AmpError::Dtype { .. }))), "{dtype}");
        assert!(autocast::set_autocast_dtype("cpu", dtype).is_err());
    }
    assert!(!autocast::is_any_autocast_enabled());
    let host = ones(&[2, 2], DType::BF16, "cpu")?;
    // As in torch this warns and is a region in which nothing is cast.
    let _region = autocast("cpu", DType::F32)?;
    assert!(!autocast::is_autocast_enabled("cpu")?);
    assert_eq!(host.mm(&host)?.dtype(), DType::BF16);
    Ok(())
}

/// Everything that writes to a tensor, as a program would call it.
type Write = fn(&Tensor) -> Result<()>;

const WRITES: &[(&str, Write)] = &[
    ("add_", |w| w.add_(3).map(drop)),
    ("add_ with a tensor", |w| w.add_(&Tensor::ones(&[4, 4], DType::F32, w)?).map(drop)),
    ("add_ through a view", |w| w.t()?.narrow(0, 1, 2)?.add_(3).map(drop)),
    ("mul_out", |w| Tensor::ones(&[4, 4], DType::F32, w)?.mul_out(7, w)),
    ("where_cond_out", |w| Tensor::ones(&[4, 4], DType::Bool, w)?.where_cond_out(9, 1, w)),
    ("masked_fill_", |w| w.masked_fill_(&Tensor::ones(&[4, 4], DType::Bool, w)?, 9).map(drop)),
    ("clamp_", |w| w.clamp_(Some(5.into()), None).map(drop)),
    ("fill_", |w| w.fill_(4).map(drop)),
    ("zero_", |w| w.zero_().map(drop)),
    ("copy_", |w| w.copy_(&Tensor::full(&[4, 4], 6, DType::F32, w)?).map(drop)),
    ("copy_ from another dtype", |w| w.copy_(&Tensor::full(&[4], 6, DType::F64, w)?).map(drop)),
    ("copy_ from a transposed one", |w| w.copy_(&Tensor::full(&[4, 4], 6, DType::F32, w)?.t()?).map(drop)),
    ("copy_ from the host", |w| w.copy_(&Tensor::full(&[4, 4], 6, DType::F32, "cpu")?).map(drop)),
    ("copy_ that does not wait", |w| {
        w.copy_non_blocking_(&Tensor::full(&[4, 4], 6, DType::F32, "cpu")?.pin_memory()?).map(drop)
    }),
    ("sum_out", |w| Tensor::full(&[4, 4, 2], 3, DType::F32, w)?.sum_out(2, false, w)),
    ("prod_out", |w| Tensor::full(&[4, 4, 2], 3, DType::F32, w)?.prod_out(2, false, w)),
    ("norm_out", |w| Tensor::full(&[4, 4, 2], 3, DType::F32, w)?.norm_out(2, 2, false, w)),
    ("var_out", |w| Tensor::full(&[4, 4, 2], 3, DType::F32, w)?.var_out(2, 1, false, w)),
    ("max_dim_out", |w| {
        let places = Tensor::zeros(&[4, 4], DType::I64, w)?;
        Tensor::full(&[4, 4, 2], 3, DType::F32, w)?.max_dim_out(2, false, w, &places)
    }),
    ("softmax_out", |w| Tensor::ones(&[4, 4], DType::F32, w)?.softmax_out(1, w)),
    ("cumsum_", |w| w.cumsum_(1).map(drop)),
    ("cumprod_out", |w| Tensor::full(&[4, 4], 2, DType::F32, w)?.cumprod_out(0, w)),
    ("cummax_out", |w| {
        let places = Tensor::zeros(&[4, 4], DType::I64, w)?;
        Tensor::full(&[4, 4], 3, DType::F32, w)?.cummax_out(0, w, &places)
    }),
    ("logcumsumexp_out", |w| Tensor::full(&[4, 4], 2, DType::F32, w)?.logcumsumexp_out(0, w)),
    ("scatter_", |w| w.scatter_(0, &Tensor::zeros(&[1, 4], DType::I64, w)?, 8.0).map(drop)),
    ("scatter_add_", |w| {
        let index = Tensor::zeros(&[1, 4], DType::I64, w)?;
        w.scatter_add_(0, &index, &Tensor::ones(&[1, 4], DType::F32, w)?).map(drop)
    }),
    ("index_add_", |w| {
        let index = Tensor::zeros(&[1], DType::I64, w)?;
        w.index_add_(0, &index, &Tensor::ones(&[1, 4], DType::F32, w)?, 1).map(drop)
    }),
    ("index_copy_", |w| {
        let index = Tensor::zeros(&[1], DType::I64, w)?;
        w.index_copy_(0, &index, &Tensor::full(&[1, 4], 5, DType::F32, w)?).map(drop)
    }),
    ("index_put_", |w| {
        let index = Tensor::zeros(&[1], DType::I64, w)?;
        w.index_put_(&[Some(&index)], &Tensor::full(&[4], 5, DType::F32, w)?, false).map(drop)
    }),
    ("masked_scatter_", |w| {
        let mask = Tensor::ones(&[4, 4], DType::Bool, w)?;
        w.masked_scatter_(&mask, &Tensor::full(&[16], 5, DType::F32, w)?).map(drop)
    }),
    ("mm_out", |w| Tensor::ones(&[4, 3], DType::F32, w)?.mm_out(&Tensor::ones(&[3, 4], DType::F32, w)?, w)),
    ("matmul_out", |w| {
        let batch = Tensor::ones(&[1, 4, 3], DType::F32, w)?;
        batch.matmul_out(&Tensor::ones(&[3, 4], DType::F32, w)?, &w.unsqueeze(0)?)
    }),
    ("addmm_", |w| {
        w.addmm_(&Tensor::ones(&[4, 4], DType::F32, w)?, &Tensor::ones(&[4, 4], DType::F32, w)?, 1, 1).map(drop)
    }),
    ("addmm_out", |w| {
        let ones = Tensor::ones(&[4, 4], DType::F32, w)?;
        ones.addmm_out(&ones, &ones, 1, 1, w)
    }),
    ("bmm_out", |w| {
        let ones = Tensor::ones(&[1, 4, 4], DType::F32, w)?;
        ones.bmm_out(&ones, &w.unsqueeze(0)?)
    }),
    ("baddbmm_", |w| {
        let ones = Tensor::ones(&[1, 4, 4], DType::F32, w)?;
        w.unsqueeze(0)?.baddbmm_(&ones, &ones, 1, 1).map(drop)
    }),
    ("addmv_", |w| {
        let ones = Tensor::ones(&[4, 4], DType::F32, w)?;
        w.select(0, 0)?.addmv_(&ones, &ones.select(0, 0)?, 1, 1).map(drop)
    }),
    ("mv_out", |w| {
        let ones = Tensor::ones(&[4, 4], DType::F32, w)?;
        ones.mv_out(&ones.select(0, 0)?, &w.select(0, 0)?)
    }),
    ("uniform_", |w| w.uniform_(4.0, 5.0, None).map(drop)),
    ("normal_", |w| w.normal_(9.0, 1.0, None).map(drop)),
    ("log_normal_", |w| w.log_normal_(2.0, 1.0, None).map(drop)),
    ("exponential_", |w| w.exponential_(0.1, None).map(drop)),
    ("cauchy_", |w| w.cauchy_(9.0, 1.0, None).map(drop)),
    ("geometric_", |w| w.geometric_(0.1, None).map(drop)),
    ("bernoulli_", |w| w.add_(7)?.bernoulli_(0.5, None).map(drop)),
    ("bernoulli_of_", |w| w.add_(7)?.bernoulli_of_(&Tensor::full(&[4, 4], 0.5, DType::F32, w)?, None).map(drop)),
    ("random_to_", |w| w.random_from_to_(5, Some(50), None).map(drop)),
    ("unscale", |w| {
        let (found, factor) = (Tensor::zeros(&[], DType::F32, w)?, Tensor::full(&[], 2, DType::F32, w)?);
        aten_cuda::amp_foreach_non_finite_check_and_unscale_(&[w], &found, &factor)
    }),
];

/// A parameter's cast is made once in a region and is right after everything that writes to the parameter.
#[test]
fn casts_that_are_kept_are_those_of_what_the_parameter_holds() -> Result<()> {
    for device in ["cuda", "cpu"] {
        for (name, write) in WRITES {
            let _simulated = testkit::simulated_runtime();
            let parameter = Tensor::full(&[4, 4], 2, DType::F32, device)?.as_parameter();
            let one = Tensor::eye(4, 4, DType::F32, device)?;
            let _region = autocast(device, DType::F16)?;
            let held = || parameter.mm(&one)?.to_bytes();
            let first = held()?;
            assert_eq!((held()?, autocast::cached_casts()), (first.clone(), 1), "{name} on {device}");
            write(&parameter)?;
            let now = parameter.to_dtype(DType::F16)?.to_bytes()?;
            assert_ne!(now, first, "{name} on {device} changes something");
            assert_eq!(held()?, now, "{name} on {device}");
            assert_eq!((held()?, autocast::cached_casts()), (now, 1), "{name} on {device}, once more");
        }
    }
    Ok(())
}

/// Launches of kernels that the current runtime's machine has seen.
fn launches(rig: &testkit::SimulatedRuntime) -> u64 {
    rig.machine()
        .calls()
        .into_iter()
        .filter(|(call, ..)| call.contains("cuLaunchKernel"))
        .map(|(_, _, count)| count)
        .sum()
}

#[test]
fn a_cast_is_made_once_where_it_is_kept() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let plain = Tensor::full(&[4, 4], 2, DType::F32, "cuda")?;
    let input = Tensor::full(&[4, 4], 1, DType::F16, "cuda")?;
    let count = |weight: &Tensor, options: Autocast| -> Result<u64> {
        let _region = autocast("cuda", options)?;
        input.mm(weight)?;
        let before = launches(&rig);
        input.mm(weight)?;
        Ok(launches(&rig) - before)
    };
    let without = Autocast { cache_enabled: Some(false), ..Autocast::default() };
    assert_eq!(count(&plain, ().into())?, 2, "a cast and a product");
    assert_eq!(count(&plain.as_parameter(), ().into())?, 1, "a product");
    assert_eq!(count(&plain.as_parameter(), without)?, 2, "no casts are kept");
    assert_eq!(count(&plain.as_parameter().t()?, ().into())?, 2, "a view is no parameter");
    assert_eq!(autocast::cached_casts(), 0, "and all are dropped behind the region");
    let _outer = autocast("cuda", ())?;
    with_autocast("cuda", (), || input.mm(&plain.as_parameter()))??;
    assert_eq!(autocast::cached_casts(), 1, "they stay until the outermost region ends");
    autocast::clear_autocast_cache();
    assert_eq!(autocast::cached_casts(), 0);
    Ok(())
}

#[test]
fn a_write_of_another_thread_drops_a_cast() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let parameter = Tensor::full(&[2, 2], 2, DType::F32, "cuda")?.as_parameter();
    let one = Tensor::eye(2, 2, DType::F32, "cuda")?;
    let _region = autocast("cuda", ())?;
    parameter.mm(&one)?;
    let simulation = rig.simulation();
    let write = || -> Result<()> {
        let _entered = simulation.enter();
        parameter.fill_(5)?;
        Ok(simulation.runtime().synchronize(0)?)
    };
    std::thread::scope(|scope| scope.spawn(write).join().expect("the thread ends well"))?;
    assert_eq!(parameter.to_vec::<f32>()?, [5.0; 4], "it has written");
    assert_eq!(parameter.mm(&one)?.to_dtype(DType::F32)?.to_vec::<f32>()?, [5.0; 4]);
    Ok(())
}

/// A parameter that is used on another stream is cast there.
#[test]
fn a_cast_is_of_its_stream() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let parameter = Tensor::full(&[2, 2], 2, DType::F32, "cuda")?.as_parameter();
    let one = Tensor::eye(2, 2, DType::F16, "cuda")?;
    rig.runtime().synchronize(0)?;
    let side = Stream::new(None, 0)?;
    let _region = autocast("cuda", ())?;
    parameter.mm(&one)?;
    let before = launches(&rig);
    let made = {
        let _side = rig.runtime().streams().guard(&side)?;
        parameter.mm(&one)?.to_bytes()?
    };
    assert_eq!(launches(&rig) - before, 2, "the cast was made anew");
    assert_eq!(made, parameter.mm(&one)?.to_bytes()?);
    Ok(())
}

/// A region that is captured casts when it is replayed; a cast from before is not used, and none is kept for after. A replay
/// that writes to a parameter drops its cast.
#[test]
fn a_captured_region_casts_at_each_replay() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let parameter = Tensor::full(&[2, 2], 2, DType::F32, "cuda")?.as_parameter();
    let one = Tensor::eye(2, 2, DType::F32, "cuda")?;
    let held = |made: &Tensor| made.to_dtype(DType::F32)?.to_vec::<f32>();
    let stream = Stream::new(None, 0)?;
    let (mut product, mut grow) = (CUDAGraph::new(), CUDAGraph::new());
    with_autocast("cuda", (), || parameter.mm(&one))??;
    rig.runtime().synchronize(0)?;
    let _region = autocast("cuda", ())?;
    parameter.mm(&one)?;
    let made = product.capture(&stream, None, CaptureMode::Global, || parameter.mm(&one))?;
    assert_eq!((made.dtype(), autocast::cached_casts()), (DType::F16, 1));
    grow.capture(&stream, None, CaptureMode::Global, || parameter.add_(1).map(drop))?;
    product.replay()?;
    assert_eq!(held(&made)?, [2.0; 4]);
    parameter.fill_(7)?;
    product.replay()?;
    assert_eq!(held(&made)?, [7.0; 4], "cast again in the graph");
    assert_eq!(held(&parameter.mm(&one)?)?, [7.0; 4]);
    grow.replay()?;
    rig.runtime().synchronize(0)?;
    assert_eq!(held(&parameter.mm(&one)?)?, [8.0; 4], "the replay has written to the parameter");
    Ok(())
}

#[test]
fn graphed_callables_are_not_made_where_casts_are_kept() -> Result<()> {
    use aten_cuda::{Graphable, GraphedTensors};
    let _simulated = testkit::simulated_runtime();
    let input = ones(&[2, 2], DType::F32, "cuda")?;
    let square = |inputs: &[Tensor]| Ok(vec![inputs[0].mm(&inputs[0])?]);
    let make =
        || GraphedTensors::make(&[Graphable::new(&square)], &[std::slice::from_ref(&input)], &Default::default());
    let refused = with_autocast("cuda", (), make)?.map(drop).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
    );
    let without = Autocast { cache_enabled: Some(false), ..Autocast::default() };
    let mut made = with_autocast("cuda", without, make)??;
    assert_eq!(made[0].call(std::slice::from_ref(&input))?[0].dtype(), DType::F16);
    Ok(())
}

/// The functions that torch has for those who write their own regions.
#[test]
fn a_region_can_be_made_by_hand() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let parameter = ones(&[2, 2], DType::F32, "cuda")?.as_parameter();
    autocast::set_autocast_enabled("cuda", true)?;
    autocast::set_autocast_dtype(DeviceType::Cuda, DType::BF16)?;
    assert_eq!(autocast::autocast_increment_nesting(), 1);
    assert_eq!((parameter.mm(&parameter)?.dtype(), autocast::cached_casts()), (DType::BF16, 1));
    with_autocast("cuda", (), || ())?;
    assert_eq!(autocast::cached_casts(), 1, "an inner region leaves casts alone");
    if autocast::autocast_decrement_nesting() == 0 {
        autocast::clear_autocast_cache();
    }
    autocast::set_autocast_enabled("cuda", false)?;
    autocast::set_autocast_dtype("cuda", DType::F16)?;
    assert_eq!((parameter.mm(&parameter)?.dtype(), autocast::cached_casts()), (DType::F32, 0));
    Ok(())
}

#[test]
fn functions_of_a_program_run_as_they_want() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let (single, half) = (ones(&[2, 2], DType::F32, "cuda")?, ones(&[2, 2], DType::F16, "cuda")?);
    let number = ones(&[2], DType::I64, "cuda")?;
    let dtypes = |inputs: &[Tensor]| -> Result<Vec<DType>> {
        let product = inputs[0].mm(&inputs[0])?;
        Ok(inputs.iter().chain([&product]).map(Tensor::dtype).collect())
    };
    let run = |cast| autocast::custom_fwd("cuda", cast, &[&half, &number], dtypes);
    let (outside, context) = run(Some(DType::F32))?;
    assert_eq!((outside, context.used_autocast), (vec![DType::F16, DType::I64, DType::F16], false));
    let _region = autocast("cuda", DType::BF16)?;
    let (exact, context) = run(Some(DType::F32))?;
    assert_eq!((exact, context.used_autocast), (vec![DType::F32, DType::I64, DType::F32], false));
    assert_eq!(autocast::custom_bwd(&context, || single.mm(&single))??.dtype(), DType::F32);
    let (cast, context) = run(None)?;
    assert_eq!(
        (cast, context.used_autocast, context.dtype),
        (vec![DType::F16, DType::I64, DType::BF16], true, DType::BF16)
    );
    drop(_region);
    assert_eq!(autocast::custom_bwd(&context, || single.mm(&single))??.dtype(), DType::BF16);
    Ok(())
}

#[test]
fn without_a_device_a_region_is_disabled() -> Result<()> {
    let rig = testkit::SimulatedRuntime::new(testkit::Config::default().devices(0));
    let _region = autocast("cuda", ())?;
    assert!(!autocast::is_autocast_enabled("cuda")? && !Runtime::current().is_available());
    drop(rig);
    Ok(())
}
