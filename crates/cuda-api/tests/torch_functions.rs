//! The functions of `torch`: each calls the method of its name.

use cuda_api::torch::functional as F;
use cuda_api::torch::{self, Operand, Result, Tensor};

fn row(elements: &[f32]) -> Result<Tensor> {
    torch::tensor(elements, &[i64::try_from(elements.len()).unwrap_or(0)])
}

#[track_caller]
fn same(found: &Tensor, expected: &Tensor) {
    assert_eq!((found.dtype(), found.sizes()), (expected.dtype(), expected.sizes()));
    let bytes = |tensor: &Tensor| tensor.to_bytes().unwrap_or_default();
    assert_eq!(bytes(found), bytes(expected), "{found}\n{expected}");
}

#[test]
fn functions_of_elements() -> Result<()> {
    let (a, b) = (row(&[0.25, -0.5, 0.75])?, row(&[0.5, 0.5, -2.0])?);
    same(&torch::abs(&a)?, &a.abs()?);
    same(&torch::exp(&a)?, &a.exp()?);
    same(&torch::isnan(&a)?, &a.isnan()?);
    same(&torch::add(&a, &b)?, &row(&[0.75, 0.0, -1.25])?);
    same(&torch::add_alpha(&a, &b, 2)?, &row(&[1.25, 0.5, -3.25])?);
    same(&torch::sub_alpha(&a, 1, 2)?, &row(&[-1.75, -2.5, -1.25])?);
    same(&torch::mul(&a, 2)?, &row(&[0.5, -1.0, 1.5])?);
    same(&torch::lt(&a, &b)?, &a.lt(&b)?);
    same(&torch::addcmul(&a, &a, &b, 2)?, &row(&[0.5, -1.0, -2.25])?);
    same(&torch::addcdiv(&a, &a, &b, 1)?, &row(&[0.75, -1.5, 0.375])?);
    same(&torch::lerp(&a, &b, 0.5)?, &row(&[0.375, 0.0, -0.625])?);
    same(&torch::clamp(&a, Some(Operand::from(0)), None)?, &row(&[0.25, 0.0, 0.75])?);
    same(&torch::nan_to_num(&row(&[f32::NAN, 1.0])?, Some(7.0), None, None)?, &row(&[7.0, 1.0])?);
    same(&torch::pow(&a, 2)?, &row(&[0.0625, 0.25, 0.5625])?);
    same(&torch::pow(2, &row(&[1.0, -1.0])?)?, &row(&[2.0, 0.5])?);
    assert!(torch::pow(2, 3).is_err());
    same(&torch::round_decimals(&a, 1)?, &row(&[0.2, -0.5, 0.8])?);
    let negative = torch::lt(&a, 0)?;
    same(&torch::masked_fill(&a, &negative, 9)?, &row(&[0.25, 9.0, 0.75])?);
    same(&torch::where_cond(&negative, &b, 1)?, &row(&[1.0, 0.5, 1.0])?);
    Ok(())
}

#[test]
fn functions_of_complex_numbers() -> Result<()> {
    let pairs = torch::tensor(&[1.0_f32, 2.0, 3.0, -4.0], &[1, 2, 2])?;
    let a = torch::view_as_complex(&pairs)?;
    let turned = torch::conj(&a);
    assert!(torch::is_conj(&turned) && !torch::is_conj(&a) && !torch::is_conj(&torch::resolve_conj(&turned)?));
    same(&torch::view_as_real(&a)?, &pairs);
    same(&torch::real(&turned)?, &torch::tensor(&[1.0_f32, 3.0], &[1, 2])?);
    same(&torch::imag(&turned)?, &torch::tensor(&[-2.0_f32, 4.0], &[1, 2])?);
    assert!(torch::is_neg(&torch::imag(&turned)?) && !torch::is_neg(&torch::resolve_neg(&torch::imag(&turned)?)?));
    same(&torch::adjoint(&a)?, &torch::conj_physical(&a)?.t()?);
    Ok(())
}

#[test]
fn functions_along_dimensions() -> Result<()> {
    let matrix = torch::tensor(&[1.0_f32, 4.0, 3.0, -2.0], &[2, 2])?;
    same(&torch::sum(&matrix, 1, false, None)?, &row(&[5.0, 1.0])?);
    same(&torch::sum(&matrix, (), false, torch::float64)?.to_dtype(torch::float32)?, &matrix.sum((), false, None)?);
    same(&torch::mean(&matrix, [0, 1], false, None)?, &matrix.mean((), false, None)?);
    same(&torch::prod(&matrix, 0, false, None)?, &row(&[3.0, -8.0])?);
    same(&torch::nansum(&matrix, 0, false, None)?, &row(&[4.0, 2.0])?);
    same(&torch::amax(&matrix, 1, false)?, &row(&[4.0, 3.0])?);
    same(&torch::amin(&matrix, 1, true)?, &torch::tensor(&[1.0_f32, -2.0], &[2, 1])?);
    same(&torch::any(&matrix, 0, false)?, &torch::tensor_of_bools(&[true, true], &[2])?);
    same(&torch::all(&matrix, 0, false)?, &torch::tensor_of_bools(&[true, true], &[2])?);
    same(&torch::logsumexp(&matrix, 0, false)?, &matrix.logsumexp(0, false)?);
    same(&torch::var(&matrix, 0, 1, false)?, &row(&[2.0, 18.0])?);
    same(&torch::std(&matrix, 0, 0, false)?, &row(&[1.0, 3.0])?);
    same(&torch::norm(&row(&[3.0, 4.0])?, 2, (), false, None)?, &row(&[5.0])?.select(0, 0)?);
    assert_eq!(torch::count_nonzero(&matrix, ())?.item()?.to_i64(), 4);
    assert_eq!((torch::max(&matrix)?.item()?.to_f64(), torch::min(&matrix)?.item()?.to_f64()), (4.0, -2.0));
    same(&torch::max_dim(&matrix, 0, false)?.1, &torch::tensor(&[1_i64, 0], &[2])?);
    same(&torch::min_dim(&matrix, 0, false)?.0, &row(&[1.0, -2.0])?);
    assert_eq!(torch::argmax(&matrix, None, false)?.item()?.to_i64(), 1);
    same(&torch::argmin(&matrix, 1, false)?, &torch::tensor(&[0_i64, 1], &[2])?);
    same(&torch::cumsum(&row(&[1.0, 2.0])?, 0, None)?, &row(&[1.0, 3.0])?);
    same(&torch::cumprod(&row(&[2.0, 3.0])?, 0, None)?, &row(&[2.0, 6.0])?);
    same(&torch::cummax(&row(&[2.0, 1.0])?, 0)?.0, &row(&[2.0, 2.0])?);
    same(&torch::cummin(&row(&[2.0, 1.0])?, 0)?.1, &torch::tensor(&[0_i64, 1], &[2])?);
    same(&torch::logcumsumexp(&matrix, 1)?, &matrix.logcumsumexp(1)?);
    same(&torch::softmax(&matrix, 1, None)?, &matrix.softmax(1, None)?);
    same(&torch::log_softmax(&matrix, 1, None)?, &matrix.log_softmax(1, None)?);
    Ok(())
}

#[test]
fn functions_that_join_and_view() -> Result<()> {
    let matrix = torch::tensor(&[1_i64, 2, 3, 4, 5, 6], &[2, 3])?;
    assert_eq!(torch::cat(&[&matrix, &matrix], 0)?.sizes(), [4, 3]);
    assert_eq!(torch::stack(&[&matrix, &matrix], 2)?.sizes(), [2, 3, 2]);
    assert_eq!(torch::split(&matrix, 2, 1)?[1].sizes(), [2, 1]);
    assert_eq!(torch::split_with_sizes(&matrix, &[1, 2], 1)?[1].sizes(), [2, 2]);
    assert_eq!(torch::chunk(&matrix, 2, 0)?.len(), 2);
    same(&torch::flip(&matrix, &[1])?, &torch::tensor(&[3_i64, 2, 1, 6, 5, 4], &[2, 3])?);
    same(&torch::roll(&matrix, &[1], &[0])?, &torch::tensor(&[4_i64, 5, 6, 1, 2, 3], &[2, 3])?);
    assert_eq!(torch::reshape(&matrix, &[3, -1])?.sizes(), [3, 2]);
    assert_eq!(torch::flatten(&matrix)?.sizes(), [6]);
    same(&torch::transpose(&matrix, 0, 1)?, &torch::t(&matrix)?);
    same(&torch::permute(&matrix, &[1, 0])?, &matrix.t()?);
    assert_eq!(torch::squeeze(&torch::unsqueeze(&matrix, 1)?, None)?.sizes(), [2, 3]);
    same(&torch::select(&matrix, 0, 1)?, &torch::tensor(&[4_i64, 5, 6], &[3])?);
    same(&torch::narrow(&matrix, 1, 1, 2)?, &torch::tensor(&[2_i64, 3, 5, 6], &[2, 2])?);
    same(&torch::diagonal(&matrix, 1, 0, 1)?, &torch::tensor(&[2_i64, 6], &[2])?);
    same(&torch::as_strided(&matrix, &[2], &[3], Some(1))?, &torch::tensor(&[2_i64, 5], &[2])?);
    same(&torch::tril(&matrix, 0)?, &torch::tensor(&[1_i64, 0, 0, 4, 5, 0], &[2, 3])?);
    same(&torch::triu(&matrix, 1)?, &torch::tensor(&[0_i64, 2, 3, 0, 0, 6], &[2, 3])?);
    Ok(())
}

#[test]
fn functions_of_indices_and_order() -> Result<()> {
    let numbers = torch::tensor(&[30_i64, 10, 20], &[3])?;
    let index = torch::tensor(&[2_i64, 0], &[2])?;
    same(&torch::gather(&numbers, 0, &index)?, &torch::tensor(&[20_i64, 30], &[2])?);
    same(&torch::take_along_dim(&numbers, &index, None)?, &torch::tensor(&[20_i64, 30], &[2])?);
    same(&torch::index_select(&numbers, 0, &index)?, &torch::tensor(&[20_i64, 30], &[2])?);
    let mask = torch::gt(&numbers, 15)?;
    same(&torch::masked_select(&numbers, &mask)?, &torch::tensor(&[30_i64, 20], &[2])?);
    same(&torch::nonzero(&mask)?, &torch::tensor(&[0_i64, 2], &[2, 1])?);
    let source = torch::tensor(&[7_i64, 8], &[2])?;
    same(&torch::scatter(&numbers, 0, &index, &source)?, &torch::tensor(&[8_i64, 10, 7], &[3])?);
    same(&torch::scatter_add(&numbers, 0, &index, &source)?, &torch::tensor(&[38_i64, 10, 27], &[3])?);
    same(&torch::index_add(&numbers, 0, &index, &source, 2)?, &torch::tensor(&[46_i64, 10, 34], &[3])?);
    same(&torch::index_copy(&numbers, 0, &index, &source)?, &torch::tensor(&[8_i64, 10, 7], &[3])?);
    same(&torch::index_put(&numbers, &[Some(&index)], &source, true)?, &torch::tensor(&[38_i64, 10, 27], &[3])?);
    same(&torch::masked_scatter(&numbers, &mask, &source)?, &torch::tensor(&[7_i64, 10, 8], &[3])?);
    same(&torch::sort(&numbers, 0, true)?.0, &torch::tensor(&[30_i64, 20, 10], &[3])?);
    same(&torch::argsort(&numbers, 0, false)?, &torch::tensor(&[1_i64, 2, 0], &[3])?);
    same(&torch::topk(&numbers, 2, 0, false)?.0, &torch::tensor(&[10_i64, 20], &[2])?);
    same(&torch::unique(&torch::cat(&[&numbers, &numbers], 0)?)?.2, &torch::tensor(&[2_i64, 2, 2], &[3])?);
    Ok(())
}

#[test]
fn functions_that_make_tensors() -> Result<()> {
    let like = torch::full(&[2], 3.5, torch::float32, "cpu")?;
    same(&torch::full_like(&like, 1)?, &torch::ones_like(&like)?);
    same(&torch::zeros_like(&like)?, &torch::zeros(&[2], torch::float32, "cpu")?);
    assert_eq!(torch::empty_like(&like)?.sizes(), torch::empty(&[2], torch::float32, "cpu")?.sizes());
    assert_ne!(torch::clone(&like)?.storage().nbytes(), 0);
    assert!(!torch::clone(&like)?.storage().is_same(like.storage()));
    assert_eq!(torch::scalar_tensor(2, torch::int16, "cpu")?.item()?.to_i64(), 2);
    same(&torch::frombuffer(&[1, 0, 2, 0], &[2], torch::int16)?, &torch::tensor(&[1_i16, 2], &[2])?);
    same(&torch::arange(0, 2, 1, torch::int16, "cpu")?, &torch::tensor(&[0_i16, 1], &[2])?);
    same(&torch::linspace(0, 1, 2, torch::float64, "cpu")?, &torch::tensor(&[0.0_f64, 1.0], &[2])?);
    assert_eq!(torch::eye(2, 3, torch::bool, "cpu")?.sizes(), [2, 3]);
    Ok(())
}

#[test]
fn functions_of_matrices_and_networks() -> Result<()> {
    let (matrix, vector) = (torch::tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?, row(&[1.0, -1.0])?);
    same(&torch::mv(&matrix, &vector)?, &row(&[-1.0, -1.0])?);
    assert_eq!(torch::dot(&vector, &vector)?.item()?.to_f64(), 2.0);
    same(&torch::outer(&vector, &vector)?, &torch::tensor(&[1.0_f32, -1.0, -1.0, 1.0], &[2, 2])?);
    same(&F::relu(&vector)?, &row(&[1.0, 0.0])?);
    same(&F::leaky_relu(&vector, 0.5)?, &row(&[1.0, -0.5])?);
    same(&F::hardtanh(&vector, 0, 2)?, &row(&[1.0, 0.0])?);
    same(&F::softplus(&vector, 1, 20)?, &vector.softplus(1, 20)?);
    same(&F::gelu(&vector)?, &vector.gelu()?);
    same(&F::embedding(&torch::tensor(&[1_i64], &[1])?, &matrix)?, &torch::tensor(&[3.0_f32, 4.0], &[1, 2])?);
    same(&F::layer_norm(&matrix, &[2], None, None, 1e-5)?, &matrix.layer_norm(&[2], None, None, 1e-5)?);
    same(&F::dropout(&matrix, 0.5, false)?, &matrix);
    Ok(())
}

#[test]
fn functions_of_random_numbers() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    cuda_api::manual_seed(3)?;
    let drawn = torch::rand(&[4], torch::float32, "cuda")?;
    cuda_api::manual_seed(3)?;
    same(&torch::rand_like(&drawn)?, &drawn);
    cuda_api::manual_seed(3)?;
    let normal = torch::randn_like(&drawn)?;
    cuda_api::manual_seed(3)?;
    same(&torch::randn(&[4], torch::float32, "cuda")?, &normal);
    same(&torch::normal(&drawn, 0.0)?, &drawn);
    let order = torch::randperm(9, None, "cuda")?;
    same(&torch::sort(&order, 0, false)?.0, &torch::arange(0, 9, 1, None, "cuda")?);
    let numbers = torch::randint_like(&order, 5, 7)?.to_vec::<i64>()?;
    assert!(numbers.iter().all(|number| (5..7).contains(number)));
    same(&torch::bernoulli(&torch::ones_like(&drawn)?)?, &torch::ones_like(&drawn)?);
    let certain = torch::tensor(&[0.0_f32, 1.0], &[2])?.cuda(None)?;
    assert_eq!(torch::multinomial(&certain, 1, false)?.to_vec::<i64>()?, [1]);
    assert_eq!(torch::native_dropout(&drawn, 1.0, None)?.0.to_vec::<f32>()?, [0.0; 4]);
    Ok(())
}

#[test]
fn seeds_of_the_host() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    assert_eq!(torch::manual_seed(9)?.device().to_string(), "cpu");
    assert_eq!((torch::initial_seed()?, cuda_api::initial_seed()?), (9, 9));
    let state = torch::get_rng_state()?;
    let drawn = torch::randn(&[20], torch::float32, "cpu")?;
    torch::set_rng_state(&state)?;
    same(&torch::randn(&[20], torch::float32, "cpu")?, &drawn);
    let seed = torch::seed()?;
    assert_eq!((torch::initial_seed()?, cuda_api::initial_seed()?), (seed, seed));
    Ok(())
}
