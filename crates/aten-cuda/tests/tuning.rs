//! Products that the tuner finds ways to, by simulated libraries.

use std::path::PathBuf;

use aten_cuda::blas::{ScaledMm, set_allow_tf32, set_libraries};
use aten_cuda::{DType, Result, Tensor, tunable};

/// A machine with the libraries, and an empty folder for its files. The tuner is on, and quick.
fn tuned(name: &str) -> (testkit::SimulatedRuntime, PathBuf) {
    let simulated = testkit::simulated_runtime();
    set_libraries(Some(cuda_sim::cublas()), Some(cuda_sim::cublaslt()));
    let folder = std::env::temp_dir().join(format!("tuning-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written to");
    tunable::set_filename(&folder.join("results.csv").to_string_lossy(), true);
    tunable::set_rotating_buffer_size(0);
    tunable::set_max_tuning_iterations(1);
    tunable::enable(true);
    (simulated, folder)
}

/// Small whole numbers, whose products every way gives exactly.
fn numbers(sizes: &[i64], dtype: DType) -> Result<Tensor> {
    let count: i64 = sizes.iter().product();
    let numbers: Vec<f32> = (0..count).map(|at| ((at * 7 + at / 5) % 5 - 2) as f32).collect();
    Tensor::from_slice(&numbers, sizes)?.to_dtype(dtype)?.cuda(None)
}

/// The calls that PyTorch 2.11 was recorded with: all layouts, batches, a bias, parts of larger matrices, single rows and
/// columns.
fn calls(dtype: DType) -> Result<Vec<Tensor>> {
    let of = |sizes: &[i64]| numbers(sizes, dtype);
    let (a, b) = (of(&[48, 32])?, of(&[32, 64])?);
    let (a_turned, b_turned) = (of(&[32, 48])?.t()?, of(&[64, 32])?.t()?);
    let batch = of(&[5, 32, 64])?;
    Ok(vec![
        a.mm(&b)?,
        a_turned.mm(&b)?,
        a.mm(&b_turned)?,
        a_turned.mm(&b_turned)?,
        of(&[5, 48, 32])?.bmm(&batch)?,
        of(&[5, 32, 48])?.transpose(1, 2)?.bmm(&batch)?,
        of(&[16, 32])?.linear(&of(&[24, 32])?, &of(&[24])?)?,
        of(&[48, 64])?.addmm(&a, &b, 0.5, 2.0)?,
        a.mv(&of(&[32])?)?,
        of(&[48, 64])?.narrow(1, 0, 32)?.mm(&of(&[64, 64])?.narrow(0, 0, 32)?)?,
        of(&[1, 32])?.mm(&b)?,
        a.mm(&of(&[32, 1])?)?,
        of(&[48, 1])?.mm(&of(&[1, 64])?)?,
    ])
}

/// The precision of products is a setting of the whole process, which no other test may see.
#[test]
fn products_have_the_signatures_that_torch_gives_them() {
    let test = "products_have_the_signatures_that_torch_gives_them";
    testkit::with_environment(test, &[], || signatures_are_torchs().unwrap());
}

fn signatures_are_torchs() -> Result<()> {
    let (_simulated, folder) = tuned("recorded");
    for dtype in [DType::F16, DType::F32, DType::C64] {
        calls(dtype)?;
    }
    set_allow_tf32(true);
    numbers(&[48, 32], DType::F32)?.mm(&numbers(&[32, 64], DType::F32)?)?;
    let torch = include_str!("data/tunable/torch-2.11-untuned.csv");
    let mut wanted: Vec<&str> = torch.lines().collect();
    wanted.sort_unstable();
    let written = std::fs::read_to_string(folder.join("results0.csv")).expect("the results are there");
    let products = written.lines().filter(|line| line.starts_with("Gemm"));
    let mut found: Vec<&str> = products.filter_map(|line| line.split(",Default,").next()).collect();
    found.sort_unstable();
    assert_eq!(found, wanted);
    Ok(())
}

#[test]
fn tuned_products_are_right() -> Result<()> {
    for dtype in [DType::BF16, DType::F32, DType::C64] {
        let (_simulated, folder) = tuned(&format!("right-{dtype:?}"));
        let read = |tensors: Vec<Tensor>| tensors.iter().map(Tensor::to_bytes).collect::<Result<Vec<_>>>();
        tunable::enable(false);
        let usual = read(calls(dtype)?)?;
        assert_eq!(tunable::get_results()?, []);
        tunable::enable(true);
        assert_eq!(read(calls(dtype)?)?, usual, "{dtype} while it is tuned");
        let results = || -> Result<Vec<String>> {
            let mut found: Vec<String> = tunable::get_results()?.iter().map(|result| format!("{result:?}")).collect();
            found.sort_unstable();
            Ok(found)
        };
        let found = results()?;
        let count = found.len();
        assert!(count >= 11, "{dtype}: {count}");
        assert_eq!(read(calls(dtype)?)?, usual, "{dtype} by the ways that were found");
        assert_eq!(results()?, found, "nothing is tuned twice");
        let lines = std::fs::read_to_string(folder.join("results0.solutions.csv")).unwrap();
        assert_eq!(lines.lines().filter(|line| line.starts_with("Gemm")).count(), count);
    }
    Ok(())
}

#[test]
fn what_is_added_in_place_is_tuned_without_harm() -> Result<()> {
    let (_simulated, _) = tuned("in-place");
    let (a, b) = (numbers(&[48, 32], DType::F32)?, numbers(&[32, 64], DType::F32)?);
    let sum = numbers(&[48, 64], DType::F32)?;
    let wanted = sum.add(&a.mm(&b)?)?.to_vec::<f32>()?;
    sum.addmm_out(&a, &b, 1, 1, &sum)?;
    assert_eq!(sum.to_vec::<f32>()?, wanted);
    Ok(())
}

/// Products of bytes: of floats with scales of all kinds, with a bias and without, into several dtypes; and of integers.
fn byte_calls() -> Result<Vec<Tensor>> {
    let floats = |rows: i64, dtype: DType| numbers(&[rows, 256], DType::F32)?.to_dtype(dtype);
    let scales = |sizes: &[i64]| Tensor::full(sizes, 0.5, DType::F32, "cuda");
    let (a, b) = (floats(48, DType::F8E4M3FN)?, floats(64, DType::F8E4M3FN)?.t()?);
    let (coarse, one) = (floats(64, DType::F8E5M2)?.t()?, scales(&[])?);
    let bias = numbers(&[64], DType::BF16)?;
    let into = |dtype: DType| ScaledMm { out_dtype: Some(dtype), ..ScaledMm::default() };
    let with_bias = ScaledMm { bias: Some(&bias), ..into(DType::BF16) };
    let whole = |rows: i64, columns: i64| numbers(&[rows, columns], DType::F32)?.to_dtype(DType::I8);
    Ok(vec![
        a.scaled_mm(&b, &one, &one, &into(DType::BF16))?,
        a.scaled_mm(&b, &one, &one, &with_bias)?,
        a.scaled_mm(&coarse, &one, &one, &into(DType::F32))?,
        a.scaled_mm(&b, &scales(&[48, 1])?, &scales(&[1, 64])?, &into(DType::BF16))?,
        a.scaled_mm(&b, &scales(&[2, 48])?.t()?, &scales(&[2, 64])?, &into(DType::BF16))?,
        a.scaled_mm(&b, &scales(&[2, 48])?.t()?, &scales(&[1, 2])?.t()?, &into(DType::BF16))?,
        whole(48, 32)?.int_mm(&whole(32, 64)?)?,
        whole(48, 32)?.int_mm(&whole(64, 32)?.t()?)?,
    ])
}

#[test]
fn products_of_bytes_are_tuned() -> Result<()> {
    let (_simulated, folder) = tuned("bytes");
    let read = |tensors: Vec<Tensor>| tensors.iter().map(Tensor::to_bytes).collect::<Result<Vec<_>>>();
    tunable::enable(false);
    let usual = read(byte_calls()?)?;
    tunable::enable(true);
    assert_eq!(read(byte_calls()?)?, usual, "while they are tuned");
    assert_eq!(read(byte_calls()?)?, usual, "by the ways that were found");
    let lines_of = |name: &str| -> Vec<String> {
        let written = std::fs::read_to_string(folder.join(name)).unwrap();
        let rows = written.lines().filter(|line| line.contains("GemmTunableOp")).map(str::to_owned);
        rows.collect()
    };
    // Torch has names for scaled products alone, whatever their scales are for but rows.
    let fine = "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_64_48_256_ld_256_256_64";
    let coarse = "ScaledGemmTunableOp_Float8_e5m2_Float8_e4m3fn_float_TN,tn_64_48_256_ld_256_256_64";
    let torch: Vec<String> = lines_of("results0.csv");
    let signatures: Vec<&str> = torch.iter().filter_map(|line| line.split(",Default,").next()).collect();
    let wanted = [
        format!("{fine}_rw_0_bias_None"),
        format!("{fine}_rw_0_bias_BFloat16"),
        format!("{coarse}_rw_0_bias_None"),
        format!("{fine}_rw_1_bias_None"),
    ];
    assert_eq!(signatures, wanted);
    let own = lines_of("results0.solutions.csv");
    assert_eq!(own.len(), 8);
    assert_eq!(
        own.iter().filter(|line| line.starts_with("IntegerGemmTunableOp_int8_TN,tn_64_48_32_ld_32_32_64")).count(),
        2
    );
    Ok(())
}

#[test]
fn scaled_products_are_tuned_offline() -> Result<()> {
    let (_simulated, folder) = tuned("scaled-offline");
    let [fine, none] = ["Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_64_48_256_ld_256_256_64", "bias_None"];
    let lines = [
        format!("{fine}_rw_0_{none}"),
        format!("{fine}_rw_1_{none}"),
        format!("{fine}_rw_0_bias_BFloat16"),
        format!("Float8_e5m2_Float8_e4m3fn_float_TN,tn_64_48_256_ld_272_256_64_rw_0_{none}"),
        // Such products there are not: they are left out.
        format!("Float8_e5m2_Float8_e5m2_BFloat16_TN,tn_64_48_256_ld_256_256_64_rw_0_{none}"),
        format!("Float8_e4m3fn_Float8_e4m3fn_BFloat16_NN,nn_64_48_256_ld_64_256_64_rw_0_{none}"),
        format!("Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_64_48_250_ld_250_250_64_rw_0_{none}"),
        format!("Float8_e4m3fnuz_Float8_e4m3fnuz_BFloat16_TN,tn_64_48_256_ld_256_256_64_rw_0_{none}"),
    ];
    let untuned = folder.join("untuned.csv");
    std::fs::write(&untuned, lines.map(|line| format!("ScaledGemmTunableOp_{line}\n")).concat()).unwrap();
    tunable::tune_gemm_in_file(&untuned)?;
    assert_eq!(tunable::get_results()?.len(), 4);
    tunable::tuning_enable(false);
    byte_calls()?;
    Ok(())
}
