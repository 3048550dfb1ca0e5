//! Which operation it was, when the runtime or the device fails.

use crate::base::error::{Error, Result, Step};
use crate::tensor::{Operand, Tensor};

/// Names the operation in an error of the runtime.
pub(crate) trait Context<T> {
    /// With tensors that the operation was given.
    fn of(self, operation: &'static str, tensors: &[&Tensor]) -> Result<T>;

    /// With tensors and numbers that the operation was given.
    fn of_operands(self, operation: &'static str, operands: &[Operand<'_>]) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    #[inline]
    fn of(self, operation: &'static str, tensors: &[&Tensor]) -> Self {
        self.map_err(|error| named(error, operation, tensors))
    }

    #[inline]
    fn of_operands(self, operation: &'static str, operands: &[Operand<'_>]) -> Self {
        self.map_err(|error| {
            let tensors = operands.iter().filter_map(|operand| match operand {
                Operand::Tensor(tensor) => Some(*tensor),
                Operand::Number(_) => None,
            });
            named(error, operation, &tensors.collect::<Vec<_>>())
        })
    }
}

#[cold]
fn named(error: Error, operation: &'static str, tensors: &[&Tensor]) -> Error {
    let operands = tensors.iter().map(|tensor| (tensor.dtype(), tensor.sizes().to_vec(), tensor.device()));
    error.in_step(Step { operation, operands: operands.collect() })
}
