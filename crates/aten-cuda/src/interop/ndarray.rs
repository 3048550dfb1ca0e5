//! Arrays of the crate `ndarray`.

use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

use crate::base::dtype::Element;
use crate::base::error::{Result, invalid};
use crate::tensor::Tensor;

impl Tensor {
    /// A host tensor with a copy of an array's elements, in row-major order (`torch.from_numpy`, which copies nothing).
    ///
    /// ```
    /// use aten_cuda::Tensor;
    ///
    /// let array = ndarray::array![[1.0_f32, 2.0], [3.0, 4.0]];
    /// let tensor = Tensor::from_ndarray(&array.t())?;
    /// assert_eq!((tensor.sizes(), tensor.to_vec::<f32>()?), (&[2, 2][..], vec![1.0, 3.0, 2.0, 4.0]));
    /// assert_eq!(tensor.to_ndarray::<f32>()?, array.t().into_dyn());
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// A size does not fit into 63 bits.
    pub fn from_ndarray<T: Element, S: Data<Elem = T>, D: Dimension>(array: &ArrayBase<S, D>) -> Result<Self> {
        let size = |&size: &usize| i64::try_from(size).map_err(|_| invalid(format!("the size {size} is too large")));
        let sizes: Vec<i64> = array.shape().iter().map(size).collect::<Result<_>>()?;
        match array.as_slice() {
            Some(elements) => Self::from_slice(elements, &sizes),
            None => Self::from_slice(&array.iter().copied().collect::<Vec<T>>(), &sizes),
        }
    }

    /// An array with a copy of the elements, after the work of the current stream (`numpy`, which copies nothing).
    ///
    /// # Errors
    /// The elements have another dtype, or the device failed.
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let sizes: Vec<usize> = self.sizes().iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
        ArrayD::from_shape_vec(IxDyn(&sizes), self.to_vec::<T>()?).map_err(|error| invalid(error.to_string()))
    }
}
