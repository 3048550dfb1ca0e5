//! Kernels of several programs, each over elements of its own number: blocks are shared out among them.
//!
//! The parameters are the addresses of the outputs of all programs, then of all inputs, and one block of words: for each
//! program how many elements it has, and the number of the first block behind its own ([`Parts::words`]). Every operand has
//! its elements one after another.
//!
//! **Invariant:** a block computes one program, an element for each thread.

use super::{Body, Meta, Schedule, THREADS};
use crate::graph::{GraphError, Program};
use crate::ptx::{Class, Writer, line};
use crate::types::Type;

/// Several programs that are one kernel.
///
/// ```
/// use kernel_ir::pointwise::Parts;
/// use kernel_ir::{Binary, Graph, Type};
///
/// let mut graph = Graph::new();
/// let (a, b) = (graph.input(Type::F32), graph.input(Type::F32));
/// let sum = graph.binary(Binary::Add, a, b);
/// graph.output(sum);
/// let program = graph.finish()?;
/// let parts = Parts::new(&[&program, &program])?;
/// assert!(parts.write("sums", 75).contains(".visible .entry sums("));
/// // 100 elements are one block, 1000 are eight.
/// assert_eq!(parts.words(&[100, 1000]), [100, 1, 1000, 9]);
/// # Ok::<(), kernel_ir::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a>(&'a [&'a Program]);

impl<'a> Parts<'a> {
    /// These programs as one kernel.
    ///
    /// # Errors
    /// There is none, or one of them takes scalars.
    pub fn new(programs: &'a [&'a Program]) -> Result<Self, GraphError> {
        if programs.is_empty() || programs.iter().any(|program| !program.scalars().is_empty()) {
            return Err(GraphError::Schedule { reason: "there is no program, or one that takes scalars" });
        }
        Ok(Self(programs))
    }

    /// The words that a launch passes, for these numbers of elements. The last one is how many blocks there are.
    #[must_use]
    pub fn words(&self, counts: &[u64]) -> Vec<u64> {
        let ends = counts.iter().scan(0, |blocks, count| {
            *blocks += count.div_ceil(u64::from(THREADS));
            Some(*blocks)
        });
        counts.iter().zip(ends).flat_map(|(&count, end)| [count, end]).collect()
    }

    /// Writes the kernel with this name, for devices of a compute capability, as 10 * major + minor. Roundings between
    /// operations are those of fused programs.
    #[must_use]
    pub fn write(&self, name: &str, target: u32) -> String {
        let mut writer = Writer::new(target).fused(true);
        let outputs: usize = self.0.iter().map(|program| program.outputs().len()).sum();
        let operands = outputs + self.0.iter().map(|program| program.inputs().len()).sum::<usize>();
        let mut parameters: Vec<String> = (0..operands).map(|at| format!(".param .b64 operand{at}")).collect();
        parameters.push(format!(".param .align 8 .b8 meta[{}]", 16 * self.0.len()));
        let (block, thread) = writer.block_and_thread();
        let wide = writer.make(Class::Bits64, "cvt.u64.u32", format_args!("{block}"));
        let labels: Vec<String> = self.0.iter().map(|_| writer.label()).collect();
        let done = writer.label();
        for (at, label) in labels.iter().enumerate() {
            let end = writer.make(Class::Bits64, "ld.param.u64", format_args!("[meta+{}]", 16 * at + 8));
            let is_before = writer.make(Class::Predicate, "setp.lt.u64", format_args!("{wide}, {end}"));
            line!(writer, "@{is_before} bra {label}");
        }
        line!(writer, "bra {done}");
        let (mut output, mut input) = (0, outputs);
        for (at, (program, label)) in self.0.iter().zip(&labels).enumerate() {
            writer.place(label);
            let own = writer.make(Class::Bits64, "cvt.u64.u32", format_args!("{thread}"));
            let first = match at {
                0 => wide,
                _ => {
                    let end = writer.make(Class::Bits64, "ld.param.u64", format_args!("[meta+{}]", 16 * at - 8));
                    writer.make(Class::Bits64, "sub.u64", format_args!("{wide}, {end}"))
                }
            };
            let index = writer.make(Class::Bits64, "mad.lo.u64", format_args!("{first}, {THREADS}, {own}"));
            let count = writer.make(Class::Bits64, "ld.param.u64", format_args!("[meta+{}]", 16 * at));
            let past = writer.make(Class::Predicate, "setp.ge.u64", format_args!("{index}, {count}"));
            line!(writer, "@{past} bra {done}");
            let numbers = (output..).take(program.outputs().len()).chain((input..).take(program.inputs().len()));
            let types: Vec<Type> = program.output_types().chain(program.inputs().iter().copied()).collect();
            let mut bases = Vec::with_capacity(types.len());
            for (number, ty) in numbers.zip(types) {
                let given = writer.make(Class::Bits64, "ld.param.b64", format_args!("[operand{number}]"));
                bases.push((writer.make(Class::Bits64, "cvta.to.global.u64", format_args!("{given}")), ty));
            }
            let addresses: Vec<_> = bases.iter().map(|&(base, ty)| writer.element(base, index, ty)).collect();
            let meta = Meta::of(program, &Schedule::unaligned());
            let (scalars, operands) = (Vec::new(), bases);
            Body { writer: &mut writer, program, meta, operands, scalars, count }.one_element(&addresses, Some(index));
            line!(writer, "bra {done}");
            output += program.outputs().len();
            input += program.inputs().len();
        }
        writer.place(&done);
        line!(writer, "ret");
        writer.finish(name, &parameters, THREADS)
    }
}
