//! Values without repetitions.

use super::check_ordered;
use crate::base::dtype::DType;
use crate::base::error::{Result, refuse_float8};
use crate::ops::index::nonzero_flat;
use crate::tensor::{Context, Tensor, is_host};
use c10_core::host_memory;

impl Tensor {
    /// The different elements in order, for each element the place of its value among them, and how often each value is
    /// there (`unique(sorted=True, return_inverse=True, return_counts=True)`). Each NaN is a value of its own, as in
    /// torch. This waits for the device, since the result's size depends on the elements.
    ///
    /// # Errors
    /// The dtype is complex, there is not enough memory, or the device failed.
    pub fn unique(&self) -> Result<(Self, Self, Self)> {
        let run = || {
            check_ordered(self, "Sort")?;
            refuse_float8("unique", self.dtype())?;
            let n = self.numel();
            if n == 0 {
                let empty = |dtype| Self::uninitialized(&[0], dtype, self);
                return Ok((
                    empty(self.dtype())?,
                    Self::uninitialized(self.sizes(), DType::I64, self)?,
                    empty(DType::I64)?,
                ));
            }
            let (values, places) = self.flatten()?.sort(0, false)?;
            // A value begins where an element differs from the one before it.
            let begins = Self::full(&[n], true, DType::Bool, self)?;
            if n > 1 {
                begins.narrow(0, 1, n - 1)?.copy_(&values.narrow(0, 1, n - 1)?.ne(&values.narrow(
                    0,
                    0,
                    n - 1,
                )?)?)?;
            }
            let (starts, kept) = nonzero_flat(&begins)?;
            let inverse = Self::uninitialized(&[n], DType::I64, self)?;
            match &kept {
                Some(kept) => kept.groups(&inverse, &places)?,
                None => groups_on_host(&inverse, &begins, &places)?,
            }
            let ends =
                Self::cat(&[&starts.narrow(0, 1, starts.numel() - 1)?, &Self::full(&[1], n, DType::I64, self)?], 0)?;
            Ok((values.index_select(0, &starts)?, inverse.view(self.sizes())?, ends.sub(&starts)?))
        };
        run().of("unique", &[self])
    }
}

fn groups_on_host(inverse: &Tensor, begins: &Tensor, places: &Tensor) -> Result<()> {
    debug_assert!(is_host(inverse.device()), "the tensor is on the host");
    let (begins, places) = (begins.to_bools()?, places.to_vec::<i64>()?);
    let mut groups: Vec<i64> = host_memory::zeroed(places.len())?;
    let mut group = -1;
    for (place, begins) in places.into_iter().zip(begins) {
        group += i64::from(begins);
        groups[usize::try_from(place).unwrap_or(0)] = group;
    }
    inverse.storage().write(inverse.byte_offset(), bytemuck::cast_slice(&groups))
}
