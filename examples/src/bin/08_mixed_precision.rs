//! A small network, trained by hand with products in 16 bits and scaled gradients: the first scale is far too large, so that
//! steps are left out until it fits. What autocast and the scaler did is checked, and the way of the scale printed.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use cuda_api::amp::{self, GradScaler, GradScalerOptions};
use cuda_api::torch::{self, Tensor};
use examples::checks::{Failure, holds};

const STEPS: usize = 60;

/// What is learned: the sum of four numbers and of a half.
struct Data {
    inputs: Tensor,
    wanted: Tensor,
}

fn data() -> Result<Data, Failure> {
    let inputs = torch::randn(&[256, 4], torch::float32, "cuda")?;
    let wanted = inputs.sum(1, true, None)?.add(0.5)?;
    Ok(Data { inputs, wanted })
}

/// The gradients of the mean of squares for weight and bias, scaled, and the mean itself.
fn gradients(
    data: &Data,
    weight: &Tensor,
    bias: &Tensor,
    scaler: &mut GradScaler,
) -> torch::Result<([Tensor; 2], f64)> {
    let _region = amp::autocast("cuda", torch::float16)?;
    let made = data.inputs.linear(weight, bias)?;
    let distance = made.sub(&data.wanted)?;
    let mean = distance.square()?.mean((), false, None)?.item()?.to_f64();
    let scaled = scaler.scale(&distance.mul(2.0 / 256.0)?)?.to_dtype(torch::float16)?;
    let of_weight = scaled.t()?.mm(&data.inputs)?.to_dtype(torch::float32)?;
    let of_bias = scaled.sum(0, false, None)?;
    Ok(([of_weight, of_bias], mean))
}

fn main() -> Result<(), Failure> {
    cuda_api::manual_seed(0)?;
    let data = data()?;
    let weight = torch::zeros(&[1, 4], torch::float32, "cuda")?.as_parameter();
    let bias = torch::zeros(&[1], torch::float32, "cuda")?.as_parameter();
    {
        let _region = amp::autocast("cuda", torch::float16)?;
        let made = torch::matmul(&data.inputs, &weight.t()?)?;
        holds("a product is in 16 bits", made.dtype() == torch::float16)?;
        holds("a sum is in 32 bits", made.sum((), false, None)?.dtype() == torch::float32)?;
    }
    let options = GradScalerOptions { init_scale: 16_777_216.0, growth_interval: 25, ..GradScalerOptions::default() };
    let mut scaler = GradScaler::new("cuda", options)?;
    let (mut first, mut last, mut left_out) = (None, f64::NAN, 0);
    for number in 0..STEPS {
        let (gradients, mean) = gradients(&data, &weight, &bias, &mut scaler)?;
        let step = || {
            weight.sub_(&gradients[0].mul(0.2)?)?;
            bias.sub_(&gradients[1].mul(0.2)?).map(drop)
        };
        let is_taken = scaler.step((), &[&gradients[0], &gradients[1]], step)?.is_some();
        scaler.update()?;
        left_out += usize::from(!is_taken);
        first.get_or_insert(mean);
        last = mean;
        let scale = scaler.get_scale()?;
        println!("step {number}: mean {mean:.6}, scale {scale}{}", if is_taken { "" } else { ", left out" });
    }
    holds("steps were left out while the scale was too large", left_out > 2 && left_out < STEPS / 2)?;
    holds("the mean of squares fell", last < 0.001 && first.is_some_and(|first| first > 1.0))?;
    let state = scaler.state_dict()?.ok_or("the scaler is enabled")?;
    println!("{left_out} of {STEPS} steps left out; {state:?}");
    Ok(())
}
