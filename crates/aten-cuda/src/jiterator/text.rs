//! The text of a kernel around an elementwise function.
//!
//! The fixed parts stand in `prelude.cuh`, `complex.cuh` and `kernel.cuh`; here their settings are written before them.

use std::fmt::Write as _;

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::jiterator::types::{self, Extra};

/// Threads of a block, as torch has them.
pub(super) const THREADS: u32 = 128;

/// The most dimensions that a launch goes through.
pub(super) const DIMS: usize = 25;

const PRELUDE: &str = include_str!("prelude.cuh");
const COMPLEX: &str = include_str!("complex.cuh");
const KERNEL: &str = include_str!("kernel.cuh");

/// What decides about a kernel's text besides the function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Variant {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Whether the function returns its result.
    pub(super) returns: bool,
    /// The dtype that is computed in and that the outputs have.
    pub(super) common: DType,
    /// Whether all operands are visited in the order of memory, without gaps.
    pub(super) is_contiguous: bool,
    /// Whether some input has another dtype.
    pub(super) casts: bool,
    /// Elements of an access to memory: 1, 2, 4 or 8.
    pub(super) pack: u32,
    /// The types of the numbers.
    pub(super) extras: Vec<Extra>,
}

impl Variant {
    /// Elements of a thread.
    pub(super) fn work(&self) -> u32 {
        self.pack.max(4)
    }

    /// Dimensions that the parameters have room for.
    pub(super) fn dims(&self) -> usize {
        if self.is_contiguous { 1 } else { DIMS }
    }

    fn is_complex(&self) -> bool {
        self.common.is_complex() || self.extras.contains(&Extra::Complex)
    }
}

/// The name of the kernel in the text.
pub(super) fn kernel_name(function: &str) -> String {
    format!("{function}_kernel")
}

/// The whole text.
///
/// # Errors
/// There is no such function for the dtype.
pub(super) fn text(code: &str, function: &str, variant: &Variant) -> Result<String> {
    let mut text = String::new();
    let mut define = |name: &str, value: &str| {
        let _ = writeln!(text, "#define {name} {value}");
    };
    define("STORED", types::stored(variant.common)?);
    define("INPUTS", &variant.inputs.to_string());
    define("OUTPUTS", &variant.outputs.to_string());
    define("DIMS", &variant.dims().to_string());
    define("WORK", &variant.work().to_string());
    define("PACK", &variant.pack.to_string());
    define("CONTIGUOUS", if variant.is_contiguous { "1" } else { "0" });
    define("CAST", if variant.casts { "1" } else { "0" });
    define("COMPLEX", if variant.is_complex() { "1" } else { "0" });
    define("KERNEL", &kernel_name(function));
    define("EXTRAS", &extras(variant));
    define("CALL", &call(function, variant));
    // The settings come last, so that they do not change the user's words; lines are counted from the user's text.
    let settings = std::mem::take(&mut text);
    let complex = if variant.is_complex() { COMPLEX } else { "" };
    Ok(format!(
        "#line 1 \"jiterator\"\n{PRELUDE}{complex}#line 1 \"{function}\"\n{code}\n#line 1 \"jiterator\"\n{settings}{KERNEL}"
    ))
}

/// The kernel's parameters for the numbers.
fn extras(variant: &Variant) -> String {
    let each = variant.extras.iter().enumerate().map(|(at, extra)| format!(", {} extra{at}", extra.name()));
    each.collect()
}

/// The call of the function on `in` to `out`: the tensors' values, the numbers, the outputs.
fn call(function: &str, variant: &Variant) -> String {
    let inputs = (0..variant.inputs).map(|at| format!("in[{at}]"));
    let extras = (0..variant.extras.len()).map(|at| format!("extra{at}"));
    let arguments = inputs.chain(extras);
    if variant.returns {
        let arguments: Vec<String> = arguments.collect();
        return format!("out[0] = convert<Value>({function}<Value>({}))", arguments.join(", "));
    }
    let arguments: Vec<String> = arguments.chain((0..variant.outputs).map(|at| format!("out[{at}]"))).collect();
    format!("{function}<Value>({})", arguments.join(", "))
}
