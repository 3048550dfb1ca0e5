//! The programs that a function is translated to, by what it is called with.
//!
//! **Invariant:** what could not be translated once is not tried again.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use kernel_ir::Type;
use smallvec::SmallVec;

use super::Function;
use super::cpp::{self, Untranslated};
use super::run::common;
use super::types::Extra;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::scalar::Scalar;
use crate::expression::{Compiled, Made, Wholes};
use crate::tensor::{Operand, Tensor};
use c10_core::locks::RwLock;

/// The most numbers of a function that is translated; each has two bits in the number of a variant.
const MOST_NUMBERS: usize = 30;

/// A text as functions, and the programs so far.
pub(super) struct Translation {
    functions: Found<Vec<cpp::Function>>,
    programs: RwLock<HashMap<Case, Found<Arc<Compiled>>>>,
    wholes: Wholes,
}

type Found<T> = std::result::Result<T, Untranslated>;

/// What decides about a program.
type Case = (SmallVec<[DType; 8]>, DType, u64);

impl Translation {
    pub(super) fn new(code: &str) -> Self {
        Self::of(cpp::parse(code))
    }

    /// For a function that NVRTC is to compile.
    pub(super) fn unwanted() -> Self {
        Self::of(Err(Untranslated { line: 1, what: "NVRTC is asked for".to_owned() }))
    }

    fn of(functions: Found<Vec<cpp::Function>>) -> Self {
        Self { functions, programs: RwLock::default(), wholes: Wholes::default() }
    }

    /// The results of a call on whole tensors, which needs nothing else to be worked out; `None` where it is another call.
    pub(super) fn run_whole(
        &self,
        function: &Function,
        operands: &[Operand<'_>],
        numbers: &[Scalar],
    ) -> Result<Option<Made>> {
        if self.functions.is_err() || numbers.len() > MOST_NUMBERS {
            return Ok(None);
        }
        let mut tensors: SmallVec<[&Tensor; 8]> = SmallVec::new();
        for operand in operands {
            match operand {
                Operand::Tensor(tensor) if tensor.numel() > 0 => tensors.push(tensor),
                Operand::Tensor(_) | Operand::Number(_) => return Ok(None),
            }
        }
        let compiled = || {
            let common = common(tensors.iter().map(|tensor| (tensor.dtype(), tensor.dim())))?;
            let dtypes: SmallVec<[DType; 8]> = tensors.iter().map(|tensor| tensor.dtype()).collect();
            Ok(self.program(function, &dtypes, common, numbers).ok())
        };
        let whole = self.wholes.find(&tensors, (function.outputs, variant(numbers)), compiled)?;
        whole.map(|whole| whole.run(&tensors, numbers)).transpose()
    }

    /// The program of a function for dtypes and kinds of numbers.
    pub(super) fn program(
        &self,
        function: &Function,
        dtypes: &[DType],
        common: DType,
        numbers: &[Scalar],
    ) -> Found<Arc<Compiled>> {
        let functions = self.functions.as_ref().map_err(Clone::clone)?;
        if numbers.len() > MOST_NUMBERS {
            return Err(Untranslated { line: 1, what: format!("more than {MOST_NUMBERS} numbers") });
        }
        let case = (SmallVec::from_slice(dtypes), common, variant(numbers));
        if let Some(known) = self.programs.read().unwrap_or_else(PoisonError::into_inner).get(&case) {
            return known.clone();
        }
        let made = translated(functions, function, (dtypes, common), numbers).map(Arc::new);
        let mut programs = self.programs.write().unwrap_or_else(PoisonError::into_inner);
        programs.entry(case).or_insert(made).clone()
    }
}

/// The kinds of the numbers as one number.
fn variant(numbers: &[Scalar]) -> u64 {
    numbers.iter().fold(1, |all, number| all << 2 | Extra::of(*number) as u64)
}

fn translated(
    functions: &[cpp::Function],
    function: &Function,
    (dtypes, common): (&[DType], DType),
    numbers: &[Scalar],
) -> Found<Compiled> {
    let ty = |number: &Scalar| match Extra::of(*number) {
        Extra::Bool => Some(Type::Bool),
        Extra::Int => Some(Type::I64),
        Extra::Float => Some(Type::F64),
        Extra::Complex => None,
    };
    let types: Option<Vec<Type>> = numbers.iter().map(ty).collect();
    let is_complex = dtypes.iter().any(|dtype| dtype.is_complex()) || common.is_complex();
    let Some(types) = types.filter(|_| !is_complex) else {
        return Err(Untranslated { line: 1, what: "complex numbers".to_owned() });
    };
    let Function { outputs, returns, .. } = *function;
    let arguments = cpp::Arguments { dtypes, common, numbers: &types, outputs, returns };
    let program = cpp::translate(functions, &arguments)?;
    Ok(Compiled::of(&function.name, program, common))
}
