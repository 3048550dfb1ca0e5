//! Files of tuned products.
//!
//! What must hold: no bytes make the reader panic, what it reads it writes so that it reads the same again, and no product
//! stands there twice.

use std::collections::HashSet;

use aten_cuda::tunable::{ResultsFile, TunableResult, parse_results};

/// Runs one input.
///
/// # Errors
/// What was read is written as something else, or a product stands there twice.
pub(super) fn run(bytes: &[u8]) -> Result<(), String> {
    let Ok(ResultsFile { validators, results }) = parse_results(bytes) else { return Ok(()) };
    let mut seen = HashSet::new();
    let mut text: String = validators.iter().map(|(key, value)| format!("Validator,{key},{value}\n")).collect();
    for result in &results {
        if !seen.insert((&result.op, &result.params)) {
            return Err(format!("`{},{}` stands there twice", result.op, result.params));
        }
        let _ = result.is_product();
        text.push_str(&format!("{result}\n"));
    }
    let again = parse_results(text.as_bytes()).map_err(|error| format!("what was written is refused: {error}"))?;
    let is_same = |a: &TunableResult, b: &TunableResult| {
        // Times are written with six digits.
        (&a.op, &a.params, &a.solution) == (&b.op, &b.params, &b.solution) && (a.time - b.time).abs() <= 1e-5 * a.time
    };
    let is_whole = again.validators == validators && again.results.len() == results.len();
    if is_whole && results.iter().zip(&again.results).all(|(a, b)| is_same(a, b)) {
        return Ok(());
    }
    Err(format!("{validators:?} {results:?} was written and read as {again:?}"))
}
