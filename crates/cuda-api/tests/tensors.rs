//! Tensors under torch's names.

use cuda_api::torch;

/// The classic example: two random matrices, their product on a side stream, and what the allocator says of it.
#[test]
fn a_product_on_a_side_stream() -> torch::Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = torch::randn(&[1000, 1000], torch::float32, "cuda")?;
    assert_eq!(cuda_api::memory_allocated(None)?, 4_000_256);
    let side = cuda_api::Stream::new(None, 0)?;
    side.wait_stream(&cuda_api::current_stream(None)?)?;
    let small = a.narrow(0, 0, 32)?.narrow(1, 0, 32)?;
    let product = cuda_api::with_stream(&side, || torch::matmul(&small, &small))?;
    cuda_api::current_stream(None)?.wait_stream(&side)?;
    assert_eq!(product.sizes(), [32, 32]);
    Ok(())
}

#[test]
fn products_of_matrices() -> torch::Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = torch::tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?.cuda(None)?;
    let ones = torch::ones(&[2, 2], torch::float32, "cuda")?;
    assert_eq!(torch::mm(&a, &a)?.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    assert_eq!(torch::addmm(&ones, &a, &a, 2, 1)?.to_vec::<f32>()?, [9.0, 12.0, 17.0, 24.0]);
    let (batch, bias) = (a.unsqueeze(0)?, ones.unsqueeze(0)?);
    assert_eq!(torch::bmm(&batch, &batch)?.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    assert_eq!(torch::baddbmm(&bias, &batch, &batch, 0, 2)?.to_vec::<f32>()?, [14.0, 20.0, 30.0, 44.0]);
    Ok(())
}

#[test]
fn seeds_and_states() -> torch::Result<()> {
    let _simulated = testkit::simulated_runtime();
    cuda_api::manual_seed_all(42)?;
    assert_eq!(cuda_api::initial_seed()?, 42);
    let (state, all) = (cuda_api::get_rng_state(None)?, cuda_api::get_rng_state_all()?);
    let drawn = torch::rand(&[5], torch::float32, "cuda")?.to_vec::<f32>()?;
    assert_eq!(cuda_api::get_rng_state_offset(None)?, 4);
    cuda_api::set_rng_state(&state, None)?;
    assert_eq!(torch::rand(&[5], torch::float32, "cuda")?.to_vec::<f32>()?, drawn);
    cuda_api::set_rng_state_all(&all)?;
    cuda_api::set_rng_state_offset(4, None)?;
    assert_ne!(torch::rand(&[5], torch::float32, "cuda")?.to_vec::<f32>()?, drawn);
    cuda_api::manual_seed(42)?;
    assert_eq!(torch::rand(&[5], torch::float32, "cuda")?.to_vec::<f32>()?, drawn);
    cuda_api::seed()?;
    cuda_api::seed_all()?;
    assert_ne!(cuda_api::initial_seed()?, 42);
    Ok(())
}
