//! Products with a bias and an activation, which cuBLASLt computes along with the product.

use std::sync::OnceLock;

use super::checks;
use super::product::Product;
use crate::autocast::{self, Policies};
use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};
use crate::base::scalar::Scalar;
use crate::base::shape::Dims;
use crate::launch::own_products::Activation;
use crate::tensor::Tensor;

impl Activation {
    /// Applies it in place.
    pub(super) fn apply(self, tensor: &Tensor) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Relu => tensor.relu_().map(drop),
            Self::Gelu => tensor.gelu_tanh_().map(drop),
        }
    }
}

impl Tensor {
    /// `self @ weight.t() + bias` over the last dimension: (…, in) by (out, in) to (…, out); a `weight` without rows, of
    /// (in), gives (…). The bias is of (out) (`torch.nn.functional.linear`).
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let input = Tensor::ones(&[5, 2, 3], DType::F32, "cuda")?;
    /// let weight = Tensor::full(&[4, 3], 0.5, DType::F32, "cuda")?;
    /// let bias = Tensor::ones(&[4], DType::F32, "cuda")?;
    /// let made = input.linear(&weight, &bias)?;
    /// assert_eq!(made.sizes(), [5, 2, 4]);
    /// assert!(made.to_vec::<f32>()?.iter().all(|&element| element == 2.5));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// The operands do not fit each other, or have several dtypes or devices; there is not enough memory, or the device
    /// failed.
    pub fn linear<'a>(&self, weight: &Self, bias: impl Into<Option<&'a Self>>) -> Result<Self> {
        let bias = bias.into();
        let policies = const { Policies::of("linear") };
        if let Some((_inside, [input, weight, bias])) =
            autocast::cast_optional(policies, [Some(self), Some(weight), bias])?
            && let (Some(input), Some(weight)) = (input, weight)
        {
            return input.linear(&weight, bias.as_ref());
        }
        if weight.dim() < 2 || self.dim() == 0 {
            let made = self.matmul(&weight.t()?)?;
            return bias.map_or(Ok(made.clone()), |bias| made.add(bias));
        }
        let Some((&inner, lead)) = self.sizes().split_last() else { return Err(invalid("linear(): no dimension")) };
        let rows: i64 = lead.iter().product();
        let flat = self.reshape(&[rows, inner])?;
        let turned = weight.t()?;
        let made = match bias {
            Some(bias) => bias.addmm(&flat, &turned, 1, 1)?,
            None => flat.mm(&turned)?,
        };
        let sizes: Dims = lead.iter().copied().chain([weight.sizes()[0]]).collect();
        made.view(&sizes)
    }

    /// [`Self::addmm`], then ReLU, or with `use_gelu` GELU by way of a hyperbolic tangent
    /// (`torch._addmm_activation`). With a vector as `self` and `beta` 1 all of it is one kernel of cuBLASLt.
    ///
    /// # Errors
    /// As for [`Self::addmm`].
    #[doc(alias = "_addmm_activation")]
    pub fn addmm_activation(
        &self,
        mat1: &Self,
        mat2: &Self,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
        use_gelu: bool,
    ) -> Result<Self> {
        let (beta, alpha) = (beta.into(), alpha.into());
        let policies = const { Policies::of("_addmm_activation") };
        if let Some((_inside, [own, a, b])) = autocast::cast(policies, [self, mat1, mat2])? {
            return own.addmm_activation(&a, &b, beta, alpha, use_gelu);
        }
        checks::addmm(self, mat1, mat2)?;
        checks::factors(mat1, [beta, alpha])?;
        let activation = if use_gelu { Activation::Gelu } else { Activation::Relu };
        if is_bias(self, mat1, mat2, beta) {
            let product = Product::new(mat1, mat2);
            return Product { alpha, bias: Some(self), activation, ..product }.made();
        }
        let made = Product::new(mat1, mat2).plus(self, beta, alpha).made()?;
        activation.apply(&made)?;
        Ok(made)
    }
}

/// Whether what is added is a bias that cuBLASLt adds along with the product (`DISABLE_ADDMM_CUDA_LT`). The conditions are
/// torch's.
pub(super) fn is_bias(added: &Tensor, mat1: &Tensor, mat2: &Tensor, beta: Scalar) -> bool {
    static IS_DISABLED: OnceLock<bool> = OnceLock::new();
    let is_disabled = *IS_DISABLED
        .get_or_init(|| std::env::var("DISABLE_ADDMM_CUDA_LT").is_ok_and(|text| !text.is_empty() && text != "0"));
    let [rows, columns] = [0, 1].map(|dim| mat2.sizes()[dim]);
    !is_disabled
        && beta.to_f64() == 1.0
        && beta.imaginary() == 0.0
        && added.dim() == 1
        && added.sizes()[0] == columns
        && added.is_contiguous()
        && rows > 1
        && columns > 1
        && mat1.numel() > 0
        && mat1.is_cuda()
        && matches!(added.dtype(), DType::F64 | DType::F32 | DType::F16 | DType::BF16)
}
