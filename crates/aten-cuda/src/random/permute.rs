//! Random permutations.
//!
//! Each element gets a random key of so many bits that equal ones are rare, and the elements are sorted by their keys.
//! Runs of equal keys are shuffled with a second share of the sequence.

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::random as kernels;
use crate::launch::record;
use crate::random::fill::{DeviceSource, Source, refused};
use crate::random::generator::Generator;
use crate::random::host_fill;
use crate::random::make::check_holds;
use crate::tensor::{Context, Tensor, ToDevice, is_host};

impl Tensor {
    /// The numbers below `n` in random order (`torch.randperm`; its dtype is `i64` where none is named).
    ///
    /// # Errors
    /// `n` is negative, on a CUDA device 2^31 or more, or the dtype does not hold the numbers; there is not enough
    /// memory, the generator's error, or the device failed.
    pub fn randperm(n: i64, dtype: DType, device: impl ToDevice, generator: Option<&Generator>) -> Result<Self> {
        let run = || {
            if n < 0 {
                return Err(refused(format!("n must be non-negative, got{n}")));
            }
            check_holds(n, dtype)?;
            let device = device.to_device()?;
            if dtype == DType::BF16 && !is_host(device) {
                return Err(TensorError::NotImplemented { kernel: "randperm_out_cuda".to_owned(), dtype }.into());
            }
            if n > i64::from(i32::MAX) && !is_host(device) {
                let text = "randperm of tensors larger than INT_MAX is not supported yet in pytorch";
                return Err(refused(text.to_owned()));
            }
            let made = Self::uninitialized(&[n], DType::I64, device)?;
            match Source::of(&made, generator, "randperm")? {
                Source::Host(generator) => host_fill::permute(&made, &generator)?,
                Source::Device(source) if n > 0 => made.permute_numbers(&source, key_bits(n))?,
                Source::Device(_) => {}
            }
            made.to_dtype(dtype)
        };
        run().of("randperm", &[])
    }

    fn permute_numbers(&self, source: &DeviceSource, bits: u32) -> Result<()> {
        let own = source.clone();
        if record::call("randperm", (&[self], &[]), source.detail([bits.into()]), move |outputs, _| {
            outputs.iter().try_for_each(|made| made.permute_numbers(&own, bits))
        })? {
            return Ok(());
        }
        let (dtype, low, high) =
            if bits <= 32 { (DType::I32, i32::MIN.into(), i32::MAX.into()) } else { (DType::I64, i64::MIN, i64::MAX) };
        let keys = Self::uninitialized(self.sizes(), dtype, self)?;
        keys.random_from_source(source, low, high)?;
        // Where the sign takes part, negative keys come first.
        let flip = if bits == 32 || bits == 64 { 1 << (bits - 1) } else { 0 };
        let sorted = kernels::sort(&keys, None, bits, flip)?;
        let drawn = source.draw(self.numel().unsigned_abs())?;
        kernels::permute(&sorted, self, bits, &drawn)
    }
}

/// Bits of the keys for which a permutation of `n` elements has equal ones once in ten times.
#[expect(clippy::cast_precision_loss, reason = "a rule of floats")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 64")]
fn key_bits(n: i64) -> u32 {
    let n = n as f64;
    let bits = (n - (6.0 * n * n + 1.0) / (12.0 * 0.9_f64.ln())).log2().ceil();
    bits.min(64.0) as u32
}

#[cfg(test)]
mod tests {
    use super::key_bits;

    #[test]
    fn keys_have_as_many_bits_as_torch_gives_them() {
        assert_eq!([key_bits(1), key_bits(21_272), key_bits(21_273), key_bits(30_083)], [3, 31, 32, 32]);
        assert_eq!([key_bits(30_084), key_bits(1 << 20), key_bits(i32::MAX.into())], [33, 43, 64]);
    }
}
