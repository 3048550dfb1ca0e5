//! A small network: two linear layers with gelu between, its gradients by hand, and gradient descent.
//!
//! Every number that a step reads or writes is in a tensor on the network's device, so that a step can be captured.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use cuda_api::torch::{self, Generator, Result, Tensor};

/// Examples of the data set.
pub(crate) const EXAMPLES: i64 = 64;

/// Numbers of an example.
const INPUTS: i64 = 8;

/// Numbers between the layers.
const HIDDEN: i64 = 16;

/// How far a step goes against the gradient.
const RATE: f64 = 0.3;

/// The data set: examples and what the network is to answer.
#[derive(Debug)]
pub(crate) struct Data {
    inputs: Tensor,
    targets: Tensor,
}

/// The weights.
#[derive(Debug)]
pub(crate) struct Network {
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
}

/// A generator of the host: its numbers are the same for every device.
fn seeded(seed: i64) -> Result<Generator> {
    let generator = Generator::new("cpu")?;
    generator.manual_seed(seed)?;
    Ok(generator)
}

/// Numbers from `-scale` up to `scale`, drawn on the host.
fn uniform(sizes: &[i64], scale: f64, generator: &Generator, device: &str) -> Result<Tensor> {
    let numbers = torch::empty(sizes, torch::float32, "cpu")?;
    numbers.uniform_(-scale, scale, Some(generator))?.to_device(device)
}

impl Data {
    /// A fixed set on a device: each target is a wave along a direction, and a product of two of the numbers.
    pub(crate) fn new(device: &str) -> Result<Self> {
        let inputs = uniform(&[EXAMPLES, INPUTS], 1.0, &seeded(1)?, "cpu")?;
        let part = |index| inputs.narrow(1, index, 1);
        let wave = inputs.sum(1, true, None)?.mul(0.5)?.sin()?;
        let targets = wave.add(&part(0)?.mul(&part(1)?)?)?;
        Ok(Self { inputs: inputs.to_device(device)?, targets: targets.to_device(device)? })
    }
}

impl Network {
    /// The network before its first step, the same on every device.
    pub(crate) fn new(device: &str) -> Result<Self> {
        let generator = seeded(2)?;
        let uniform = |sizes: &[i64], scale| uniform(sizes, scale, &generator, device);
        Ok(Self {
            weight1: uniform(&[HIDDEN, INPUTS], 0.5)?,
            bias1: uniform(&[HIDDEN], 0.5)?,
            weight2: uniform(&[1, HIDDEN], 0.25)?,
            bias2: uniform(&[1], 0.25)?,
        })
    }

    /// The weights, all of them.
    fn weights(&self) -> [&Tensor; 4] {
        [&self.weight1, &self.bias1, &self.weight2, &self.bias2]
    }

    /// Takes the weights of another network.
    pub(crate) fn copy_(&self, other: &Self) -> Result<()> {
        self.weights().iter().zip(other.weights()).try_for_each(|(mine, theirs)| mine.copy_(theirs).map(drop))
    }

    /// Every weight, as bits.
    pub(crate) fn bits(&self) -> Result<Vec<u32>> {
        let mut bits = Vec::new();
        for weight in self.weights() {
            bits.extend(weight.to_vec::<f32>()?.into_iter().map(f32::to_bits));
        }
        Ok(bits)
    }

    /// One step of gradient descent on the whole set; the loss before it, which is the mean of the squared errors.
    pub(crate) fn step(&self, data: &Data) -> Result<Tensor> {
        let before = torch::addmm(&self.bias1, &data.inputs, &self.weight1.t()?, 1, 1)?;
        let hidden = before.gelu()?;
        let error = torch::addmm(&self.bias2, &hidden, &self.weight2.t()?, 1, 1)?.sub(&data.targets)?;
        let loss = error.square()?.mean((), false, None)?;
        // From here on backwards: what the loss gains for each number that grows.
        let output = error.mul(2.0 / EXAMPLES as f64)?;
        let (weight2, bias2) = (torch::mm(&output.t()?, &hidden)?, output.sum(0, false, None)?);
        let before = torch::mm(&output, &self.weight2)?.mul(&gelu_slope(&before)?)?;
        let (weight1, bias1) = (torch::mm(&before.t()?, &data.inputs)?, before.sum(0, false, None)?);
        for (weight, gradient) in self.weights().into_iter().zip([weight1, bias1, weight2, bias2]) {
            weight.sub_alpha_(&gradient, RATE)?;
        }
        Ok(loss)
    }
}

/// The derivative of gelu: the part of the normal distribution below a number, plus the number times its density.
fn gelu_slope(at: &Tensor) -> Result<Tensor> {
    let below = at.mul(FRAC_1_SQRT_2)?.erf()?.mul(0.5)?.add(0.5)?;
    let density = at.square()?.mul(-0.5)?.exp()?.mul(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2)?;
    below.add(&at.mul(&density)?)
}
