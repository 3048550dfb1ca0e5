//! Texts of functions of expressions.
//!
//! What must hold: no text makes the reader panic or take long; a mistake has a place inside the text; what is written for a
//! function is read as an equal one; and a function either computes something for a dtype or says why not.

use aten_cuda::expression::{JitFunction, parse_error};
use aten_cuda::{DType, Tensor};

/// Dtypes that functions are built for.
const DTYPES: [DType; 5] = [DType::F32, DType::BF16, DType::I64, DType::Bool, DType::C64];

/// Runs one input.
///
/// # Errors
/// A function is read as another one, or a mistake lies outside of the text.
pub(super) fn run(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    if let Some(error) = parse_error(&text) {
        let is_inside = error.position <= text.len() && text.is_char_boundary(error.position);
        let shown = error.to_string();
        return if is_inside && shown.ends_with('^') { Ok(()) } else { Err(format!("a mistake elsewhere: {shown}")) };
    }
    let function = JitFunction::parse(&text).map_err(|error| error.to_string())?;
    let written = function.to_string();
    match JitFunction::parse(&written) {
        Ok(read) if read == function => {}
        Ok(read) => return Err(format!("`{written}` is read as `{read}`")),
        Err(error) => return Err(format!("`{written}` is not read: {error}")),
    }
    DTYPES.into_iter().try_for_each(|dtype| compute(&function, dtype))
}

/// Computes two elements on the host.
fn compute(function: &JitFunction, dtype: DType) -> Result<(), String> {
    let Ok(result) = function.result_dtype(&vec![dtype; function.inputs()]) else { return Ok(()) };
    let input = Tensor::ones(&[2], dtype, "cpu").map_err(|error| error.to_string())?;
    let made = function.call(&vec![&input; function.inputs()], &[]).map_err(|error| error.to_string())?;
    let fits = |made: &Tensor| made.dtype() == result && made.sizes() == [2];
    if made.len() == function.outputs() && made.iter().all(fits) {
        return Ok(());
    }
    Err(format!("`{function}` of {dtype} gives {} results of another kind", made.len()))
}
