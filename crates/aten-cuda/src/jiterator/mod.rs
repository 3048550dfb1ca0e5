//! Elementwise functions as CUDA C++ (torch's `torch.cuda.jiterator`).
//!
//! A function is a template over one type, of which tensors' elements are the first parameters, numbers the next ones, and
//! references to the results the last ones where it returns nothing. It is called for each element of the tensors after
//! broadcasting, in the dtype that they have in common; halves are computed in `float`. It is compiled when it is first
//! called for a combination of dtypes and layouts.
//!
//! Most functions need no compiler but the driver's: what they compute is translated to a kernel like those of operations,
//! in a fraction of the time ([`JittedFunction::untranslated`] says where not, and why). NVRTC compiles the others, whose
//! code is kept on disk ([`crate::raw::cache_folder`]).
//!
//! Reading order: this file, `parse` (the grammar), `run` (a call); for texts that are translated `translation` and `cpp`;
//! for the others `types` (dtypes and numbers in a text), `text` (the kernel around a function), `geometry` (how a kernel
//! goes over its operands), `compiled` (the kernels of NVRTC and their launches).

mod compiled;
mod cpp;
mod geometry;
mod parse;
mod run;
mod text;
mod translation;
mod types;

use std::fmt;
use std::sync::Arc;

use c10_core::Runtime;
use smallvec::SmallVec;

pub use cpp::Untranslated;
pub use parse::CodeParser;

use translation::Translation;

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::jit_error::JitError;
use crate::base::scalar::Scalar;
use crate::tensor::{Operand, Tensor};

/// The most outputs of a function.
const MOST_OUTPUTS: usize = 8;

/// A function of the user's own on the elements of tensors (`_JittedFunction`); made by [`create_jit_fn`] and
/// [`create_multi_output_jit_fn`].
///
/// This is a handle: clones refer to the same function.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, Tensor, jiterator};
///
/// let code = "template <typename T> T scaled(T x, T y, T alpha) { return x + alpha * y; }";
/// // SAFETY: the function touches nothing but its arguments.
/// let scaled = unsafe { jiterator::create_jit_fn(code, &[("alpha", 2.0.into())]) }?;
/// let (x, y) = (Tensor::ones(&[3, 1], DType::F32, "cuda")?, Tensor::ones(&[4], DType::F32, "cuda")?);
/// assert_eq!(scaled.call([&x, &y], &[])?.to_vec::<f32>()?, [3.0; 12]);
/// assert_eq!(scaled.call([&x, &y], &[("alpha", 0.5.into())])?.to_vec::<f32>()?, [1.5; 12]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "_JittedFunction")]
pub struct JittedFunction(Arc<Function>);

/// What a function is made of.
struct Function {
    code: String,
    name: String,
    /// Names the code among others.
    fingerprint: u128,
    returns: bool,
    outputs: usize,
    /// The numbers in the order of their declaration, with what they are where a call says nothing else.
    numbers: Vec<(String, Scalar)>,
    /// Whether there was a device when the function was made.
    has_device: bool,
    translation: Translation,
}

/// Makes a function with one result, which it returns (`torch.cuda.jiterator._create_jit_fn`). `numbers` are the names and
/// usual values of numbers that follow the tensors' elements, in this order. Only the text's form is looked at: it is
/// compiled when it is first called.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::jiterator::create_jit_fn;
///
/// // SAFETY: the function touches nothing but its arguments.
/// let twice = unsafe { create_jit_fn("template <typename T> T twice(T x) { return x + x; }", &[]) }?;
/// assert_eq!((twice.name(), twice.num_outputs()), ("twice", 1));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Safety
/// - The function, as a device runs it, touches no memory but its parameters and variables of its own, and comes to an end.
///
/// # Errors
/// [`JitError::Parse`]: the text is not of the form above; a number is declared twice.
#[expect(unsafe_code, reason = "who writes a function answers for what it does on the device")]
#[doc(alias = "_create_jit_fn")]
pub unsafe fn create_jit_fn(code_string: &str, numbers: &[(&str, Scalar)]) -> Result<JittedFunction> {
    JittedFunction::new(code_string, true, 1, numbers)
}

/// Makes a function with several results, or one, that it writes to references after its other parameters
/// (`torch.cuda.jiterator._create_multi_output_jit_fn`); see [`create_jit_fn`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::jiterator::create_multi_output_jit_fn;
///
/// let code = "template <typename T> void both(T x, T y, T& sum, T& difference) { sum = x + y; difference = x - y; }";
/// // SAFETY: the function touches nothing but its arguments.
/// assert_eq!(unsafe { create_multi_output_jit_fn(code, 2, &[]) }?.num_outputs(), 2);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Safety
/// - As for [`create_jit_fn`].
///
/// # Errors
/// As for [`create_jit_fn`]; there are no outputs or more than 8.
#[expect(unsafe_code, reason = "who writes a function answers for what it does on the device")]
#[doc(alias = "_create_multi_output_jit_fn")]
pub unsafe fn create_multi_output_jit_fn(
    code_string: &str,
    num_outputs: usize,
    numbers: &[(&str, Scalar)],
) -> Result<JittedFunction> {
    JittedFunction::new(code_string, false, num_outputs, numbers)
}

impl JittedFunction {
    /// A function whose text is of the grammar (`_JittedFunction.__init__`).
    fn new(code: &str, returns: bool, outputs: usize, numbers: &[(&str, Scalar)]) -> Result<Self> {
        let parsed = CodeParser::new(code)?;
        if returns && outputs != 1 {
            return Err(JitError::SingleOutput.into());
        }
        if outputs == 0 || outputs > MOST_OUTPUTS {
            return Err(JitError::Outputs { outputs, most: MOST_OUTPUTS }.into());
        }
        for (at, (name, _)) in numbers.iter().enumerate() {
            if numbers[..at].iter().any(|(other, _)| other == name) {
                return Err(JitError::DeclaredTwice { name: (*name).to_owned() }.into());
            }
        }
        Ok(Self(Arc::new(Function {
            name: parsed.function_name.to_owned(),
            code: code.to_owned(),
            fingerprint: crate::raw::fingerprint(code.as_bytes()),
            returns,
            outputs,
            numbers: numbers.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect(),
            has_device: Runtime::with_current(Runtime::is_available),
            translation: Translation::new(code),
        })))
    }

    /// The same function, which NVRTC compiles also where it could be translated.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::{DType, jiterator::create_jit_fn};
    ///
    /// // SAFETY: the function touches nothing but its argument.
    /// let twice = unsafe { create_jit_fn("template <typename T> T twice(T x) { return x + x; }", &[]) }?;
    /// assert_eq!(twice.untranslated(&[DType::F32], &[])?, None);
    /// assert!(twice.compiled_by_nvrtc().untranslated(&[DType::F32], &[])?.is_some());
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn compiled_by_nvrtc(&self) -> Self {
        Self(Arc::new(Function {
            code: self.0.code.clone(),
            name: self.0.name.clone(),
            numbers: self.0.numbers.clone(),
            translation: Translation::unwanted(),
            ..*self.0
        }))
    }

    /// Why NVRTC compiles the function for tensors of these dtypes and for these numbers; `None` where it is translated, which
    /// needs no NVRTC. Functions with loops, pointers, preprocessor lines, complex numbers or calls of functions that are not
    /// known here are left to it, and those that it has to refuse.
    ///
    /// # Errors
    /// The dtypes have none in common; a number was not declared.
    pub fn untranslated(&self, dtypes: &[DType], numbers: &[(&str, Scalar)]) -> Result<Option<Untranslated>> {
        run::untranslated(&self.0, dtypes, numbers)
    }

    /// The function's name, which is that of the last function in its text.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The text.
    #[must_use]
    pub fn code_string(&self) -> &str {
        &self.0.code
    }

    /// How many results there are.
    #[must_use]
    pub fn num_outputs(&self) -> usize {
        self.0.outputs
    }

    /// Calls a function with one result on the elements of up to 8 tensors, and numbers by their names; those that are not
    /// given have their usual values. The result is a new tensor of the tensors' common dtype, on their device; of several
    /// results it is the first. Returns before the work is done, which is ordered on the current stream. Without elements
    /// nothing is launched.
    ///
    /// # Errors
    /// There is no device; no tensor or more than 8; an operand is a number; a tensor is on the host or on another device;
    /// sizes do not broadcast; a dtype that there is no arithmetic of; a number was not declared; the text does not compile,
    /// as [`JitError::Compile`] with the log; the driver's error.
    #[doc(alias = "__call__")]
    pub fn call<'a, T: Into<Operand<'a>>>(
        &self,
        tensors: impl IntoIterator<Item = T>,
        numbers: &[(&str, Scalar)],
    ) -> Result<Tensor> {
        let mut made = run::call(&self.0, &operands(tensors), numbers, None)?;
        Ok(made.swap_remove(0))
    }

    /// As [`Self::call`], with all results in the order of the function's parameters.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// # use aten_cuda::{DType, Tensor, jiterator::create_multi_output_jit_fn};
    /// let code = "template <typename T> void parts(T x, T& whole, T& rest) { whole = floor(x); rest = x - whole; }";
    /// // SAFETY: the function touches nothing but its arguments.
    /// let parts = unsafe { create_multi_output_jit_fn(code, 2, &[]) }?;
    /// let made = parts.call_multi([&Tensor::full(&[2], 2.25, DType::F32, "cuda")?], &[])?;
    /// assert_eq!((made[0].to_vec::<f32>()?, made[1].to_vec::<f32>()?), (vec![2.0; 2], vec![0.25; 2]));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn call_multi<'a, T: Into<Operand<'a>>>(
        &self,
        tensors: impl IntoIterator<Item = T>,
        numbers: &[(&str, Scalar)],
    ) -> Result<Vec<Tensor>> {
        run::call(&self.0, &operands(tensors), numbers, None).map(SmallVec::into_vec)
    }

    /// As [`Self::call`], with the results in tensors that are there already. An output may be an input, element by element.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// # use aten_cuda::{DType, Tensor, jiterator::create_jit_fn};
    /// // SAFETY: the function touches nothing but its arguments.
    /// let next = unsafe { create_jit_fn("template <typename T> T next(T x) { return x + 1; }", &[]) }?;
    /// let x = Tensor::zeros(&[2], DType::I64, "cuda")?;
    /// next.call_into([&x], &[], &[&x])?;
    /// assert_eq!(x.to_vec::<i64>()?, [1, 1]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::call`]; an output has other sizes or another dtype than the result, repeats an element, or overlaps an
    /// input or another output in part.
    pub fn call_into<'a, T: Into<Operand<'a>>>(
        &self,
        tensors: impl IntoIterator<Item = T>,
        numbers: &[(&str, Scalar)],
        outputs: &[&Tensor],
    ) -> Result<()> {
        run::call(&self.0, &operands(tensors), numbers, Some(outputs)).map(drop)
    }
}

fn operands<'a, T: Into<Operand<'a>>>(tensors: impl IntoIterator<Item = T>) -> SmallVec<[Operand<'a>; 8]> {
    tensors.into_iter().map(Into::into).collect()
}

impl fmt::Debug for JittedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("JittedFunction");
        text.field("name", &self.0.name).field("outputs", &self.0.outputs).field("numbers", &self.0.numbers).finish()
    }
}
