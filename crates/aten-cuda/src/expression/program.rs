//! From a definition and dtypes to a program of `kernel_ir`.
//!
//! The rules are those of torch's jiterator around the function, and those of its operations inside. Tensors have a
//! common dtype by promotion; each is converted to it as it is loaded. Floats of 8 and 16 bits are computed as `f32`
//! (opmath). Each operation promotes its operands as it would promote tensors, numbers beside them as numbers, and computes
//! what its row in the table says. Results are stored in the common dtype.
//!
//! What is computed of numbers alone is computed as 64 bits (`f64`, `i64`, `c128`) and stays a number.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError};

use kernel_ir::{Binary, Graph, Program, Type, Value};
use smallvec::SmallVec;

use super::definition::{Definition, Function, Id, Node};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Error, Result};
use crate::base::expression_error::ExpressionError;
use crate::base::promotion::Participants;
use crate::base::scalar::Scalar;
use crate::launch::{Numbered, ProgramKey};
use crate::ops::{Operation, Pair, Participating, scalar_bits, store, table};
use c10_core::locks::RwLock;

/// A function for tensors of certain dtypes.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) key: ProgramKey,
    pub(crate) program: Arc<Program>,
    /// The dtype of the results.
    pub(crate) common: DType,
    /// What the launch gives, in the order of the program's scalars.
    scalars: SmallVec<[Given; 4]>,
}

/// A parameter as a program takes it: in the type that an operation computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Given {
    parameter: u8,
    ty: Type,
    /// Which half of a complex number.
    part: u8,
}

impl Compiled {
    /// The function for tensors of these dtypes, which have this one in common.
    pub(super) fn new(definition: &Definition, dtypes: &[DType], common: DType) -> Result<Self> {
        let mut writer = Writer { definition, graph: Graph::new(), scalars: SmallVec::new(), given: HashMap::new() };
        let inputs: SmallVec<[Pair; 8]> = dtypes.iter().map(|&dtype| writer.load(dtype, common)).collect();
        let mut values: Vec<Known> = Vec::with_capacity(definition.nodes.len());
        for node in &definition.nodes {
            let known = writer.node(node, &values, (&inputs, common))?;
            values.push(known);
        }
        for (at, &output) in definition.outputs.iter().enumerate() {
            writer.output(at, values[usize::from(output)], common)?;
        }
        let Writer { graph, scalars, .. } = writer;
        let (key, program) = registered(&definition.name, graph.finish()?);
        Ok(Self { key, program, common, scalars })
    }

    /// A program that was made elsewhere, whose scalars are the parameters one after another, of real types.
    pub(crate) fn of(name: &str, program: Program, common: DType) -> Self {
        let given = |(parameter, &ty): (u8, &Type)| Given { parameter, ty, part: 0 };
        let scalars = (0..).zip(program.scalars()).map(given).collect();
        let (key, program) = registered(name, program);
        Self { key, program, common, scalars }
    }

    /// The bits of the parameters as the program takes them.
    pub(crate) fn words<'a>(&'a self, parameters: &'a [Scalar]) -> impl Iterator<Item = u64> + 'a {
        self.scalars.iter().map(|given| {
            let bits = scalar_bits(parameters[usize::from(given.parameter)], given.ty, 1 + usize::from(given.part));
            bits[usize::from(given.part)]
        })
    }

    /// How many scalars the program takes.
    pub(super) fn scalar_count(&self) -> usize {
        self.scalars.len()
    }
}

/// The key of a program, and the program itself, shared by all functions that have it.
fn registered(name: &str, program: Program) -> (ProgramKey, Arc<Program>) {
    static PROGRAMS: OnceLock<Numbered<Program>> = OnceLock::new();
    let (number, program) = PROGRAMS.get_or_init(Numbered::default).number(Arc::new(program));
    (ProgramKey::function(kernel_name(name), number), program)
}

/// The most names of kernels that are kept; further functions share one.
const MOST_NAMES: usize = 4096;

/// The name of a function's kernels, which no operation has.
fn kernel_name(name: &str) -> &'static str {
    static NAMES: OnceLock<RwLock<HashMap<String, &'static str>>> = OnceLock::new();
    let mut names = NAMES.get_or_init(RwLock::default).write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    if names.len() >= MOST_NAMES {
        return "jit_function";
    }
    // A kernel's name lives as long as the process, as those of operations do.
    let kept: &'static str = Box::leak(format!("jit_{name}").into_boxed_str());
    names.insert(name.to_owned(), kept);
    kept
}

/// What is known of a node.
#[derive(Clone, Copy)]
enum Known {
    /// It depends on tensors.
    Value(Pair, DType),
    /// It is a number of the kind of the first, which is only read where it is used.
    Number(Scalar, Source),
}

/// Where a number comes from.
#[derive(Clone, Copy)]
enum Source {
    Constant(Scalar),
    Parameter(u8),
    /// It is computed of other numbers, in this dtype.
    Computed(Pair, DType),
}

struct Writer<'a> {
    definition: &'a Definition,
    graph: Graph,
    scalars: SmallVec<[Given; 4]>,
    given: HashMap<Given, Value>,
}

impl Writer<'_> {
    /// An element of a tensor in the common dtype.
    fn load(&mut self, dtype: DType, common: DType) -> Pair {
        let real = self.graph.input(dtype.part());
        let imaginary = if dtype.is_complex() { self.graph.input(dtype.part()) } else { real };
        let ty = dtype.compute_type();
        let wide = (self.graph.convert(real, ty), self.graph.convert(imaginary, ty));
        self.converted(wide, dtype, common)
    }

    fn node(&mut self, node: &Node, values: &[Known], inputs: (&[Pair], DType)) -> Result<Known> {
        Ok(match node {
            Node::Input(at) => Known::Value(inputs.0[usize::from(*at)], inputs.1),
            Node::Parameter(at) => {
                let default = self.definition.parameters[usize::from(*at)].default.scalar();
                Known::Number(default, Source::Parameter(*at))
            }
            Node::Number(number) => Known::Number(number.scalar(), Source::Constant(number.scalar())),
            Node::Cast(dtype, operand) => {
                let pair = match values[usize::from(*operand)] {
                    Known::Value(pair, from) => self.converted(pair, from, *dtype),
                    Known::Number(_, source) => self.number(source, *dtype),
                };
                Known::Value(self.rounded(pair, *dtype), *dtype)
            }
            Node::Apply(function, operands) => self.apply(*function, operands, values)?,
        })
    }

    fn apply(&mut self, function: Function, operands: &[Id], values: &[Known]) -> Result<Known> {
        let all: SmallVec<[Known; 4]> = operands.iter().map(|&operand| values[usize::from(operand)]).collect();
        let operation = row(function, &all);
        let is_condition = |at: usize| operation.takes_condition && at == 0;
        let numbers = own_numbers(function, &all[operation.arity..])?;
        let dtypes: SmallVec<[DType; 4]> = all[..operation.arity]
            .iter()
            .enumerate()
            .map(|(at, known)| match known {
                _ if is_condition(at) => DType::Bool,
                Known::Value(_, dtype) => *dtype,
                Known::Number(kind, _) => kind.default_dtype(),
            })
            .collect();
        let refuse = |reason: String| -> Error {
            ExpressionError::Types { function: function.name(), dtypes: dtypes.to_vec(), reason }.into()
        };
        let common = self.common(&all[..operation.arity], is_condition).map_err(|error| refuse(error.to_string()))?;
        let is_number = all.iter().all(|known| matches!(known, Known::Number(..)));
        let common = if is_number { widest(common, operation.rule.computed(common)) } else { common };
        if let Some(reason) =
            (operation.check)(&Participating { common, dtypes: &dtypes, numbers: &numbers, on_host: false })
        {
            return Err(refuse(reason));
        }
        refuse_powers(function, &all, common).map_err(refuse)?;
        if !operation.accepts(common) {
            return Err(refuse(format!("there is no {} of {common}", function.name())));
        }
        let computed = operation.rule.computed(common);
        let mut pairs: SmallVec<[Pair; 4]> = SmallVec::new();
        for (at, known) in all.iter().enumerate() {
            let dtype = if is_condition(at) { DType::Bool } else { computed };
            let rounds = operation.rounds_numbers && at < operation.arity;
            pairs.push(match *known {
                Known::Value(pair, from) => self.converted(pair, from, dtype),
                Known::Number(_, source) if rounds => {
                    let pair = self.number(source, dtype);
                    self.rounded(pair, dtype)
                }
                Known::Number(_, source) => self.number(source, dtype),
            });
        }
        let result = operation.rule.result(common);
        let pair = match operation.complex {
            Some(build) if computed.is_complex() => build(&mut self.graph, computed, &pairs),
            _ => {
                let reals: SmallVec<[Value; 4]> = pairs.iter().map(|&(real, _)| real).collect();
                let real = (operation.build)(&mut self.graph, computed, &reals);
                (real, real)
            }
        };
        Ok(if is_number {
            Known::Number(kind_of(result), Source::Computed(pair, result))
        } else {
            Known::Value(pair, result)
        })
    }

    /// The dtype that operands have in common.
    fn common(&self, operands: &[Known], is_condition: impl Fn(usize) -> bool) -> Result<DType> {
        let mut participants = Participants::default();
        for (_, known) in operands.iter().enumerate().filter(|(at, _)| !is_condition(*at)) {
            match known {
                Known::Value(_, dtype) => participants.tensor(*dtype, 1)?,
                Known::Number(kind, _) => participants.number(*kind),
            }
        }
        participants.result()
    }

    /// A number in the type that a dtype is computed in.
    fn number(&mut self, source: Source, dtype: DType) -> Pair {
        let ty = dtype.compute_type();
        match source {
            Source::Computed(pair, from) => self.converted(pair, from, dtype),
            Source::Constant(number) => {
                let real = self.constant(number, ty, 0);
                (real, if dtype.is_complex() { self.constant(number, ty, 1) } else { real })
            }
            Source::Parameter(parameter) => {
                let real = self.parameter(Given { parameter, ty, part: 0 });
                let part = u8::from(dtype.is_complex());
                (real, self.parameter(Given { parameter, ty, part }))
            }
        }
    }

    fn parameter(&mut self, given: Given) -> Value {
        if let Some(&known) = self.given.get(&given) {
            return known;
        }
        let value = self.graph.scalar(given.ty);
        self.given.insert(given, value);
        self.scalars.push(given);
        value
    }

    fn constant(&mut self, number: Scalar, ty: Type, part: usize) -> Value {
        match ty {
            Type::F32 | Type::F64 => self.graph.float(ty, if part == 0 { number.to_f64() } else { number.imaginary() }),
            Type::Bool => self.graph.int(ty, i64::from(number.is_true())),
            _ => self.graph.int(ty, wrapped(number.to_i64(), ty)),
        }
    }

    /// A value in the type that another dtype is computed in. Where the dtypes differ it is rounded to the other one, as a
    /// tensor is that is converted as it is loaded.
    fn converted(&mut self, (real, imaginary): Pair, from: DType, to: DType) -> Pair {
        if from == to {
            return (real, imaginary);
        }
        if to == DType::Bool && from.is_complex() {
            let (real, imaginary) = (self.graph.convert(real, Type::Bool), self.graph.convert(imaginary, Type::Bool));
            let any = self.graph.binary(Binary::Or, real, imaginary);
            return (any, any);
        }
        let (part, ty) = (to.part(), to.compute_type());
        let mut convert = |value: Value| {
            let rounded = self.graph.convert(value, part);
            self.graph.convert(rounded, ty)
        };
        let real = convert(real);
        match (from.is_complex(), to.is_complex()) {
            (true, true) => (real, convert(imaginary)),
            (false, true) => (real, self.graph.float(ty, 0.0)),
            (_, false) => (real, real),
        }
    }

    /// A value that is computed for a dtype, rounded to it.
    fn rounded(&mut self, (real, imaginary): Pair, dtype: DType) -> Pair {
        let (part, ty) = (dtype.part(), dtype.compute_type());
        let mut round = |value: Value| {
            let rounded = self.graph.convert(value, part);
            self.graph.convert(rounded, ty)
        };
        let real = round(real);
        (real, if dtype.is_complex() { round(imaginary) } else { real })
    }

    fn output(&mut self, at: usize, known: Known, common: DType) -> Result<()> {
        let (pair, from) = match known {
            Known::Value(pair, from) => (pair, from),
            Known::Number(Scalar::Complex(_), _) if !common.is_complex() => {
                return Err(ExpressionError::ComplexResult { output: at + 1, common }.into());
            }
            Known::Number(_, source) => (self.number(source, common), common),
        };
        if from.is_complex() && !common.is_complex() {
            return Err(ExpressionError::ComplexResult { output: at + 1, common }.into());
        }
        let pair = if from.is_complex() || !common.is_complex() { pair } else { (pair.0, self.zero(pair.0)) };
        store(&mut self.graph, pair, from, common);
        Ok(())
    }

    /// The imaginary part of a real value.
    fn zero(&mut self, like: Value) -> Value {
        let ty = self.graph.type_of(like);
        self.graph.number(ty, 0)
    }
}

/// The row of an operation. As for tensors, the exponent two means the square of a real number, and
/// one half the square root.
fn row(function: Function, operands: &[Known]) -> &'static Operation {
    let is_complex = match operands.first() {
        Some(Known::Value(_, dtype)) => dtype.is_complex(),
        Some(Known::Number(kind, _)) => kind.default_dtype().is_complex(),
        None => false,
    };
    let form = match operands.get(1) {
        Some(Known::Number(_, Source::Constant(Scalar::Float(0.5)))) => "pow_half",
        Some(Known::Number(_, Source::Constant(Scalar::Int(2) | Scalar::Float(2.0)))) if !is_complex => "pow_two",
        _ => return function.0,
    };
    let found = || table().find(|row| row.name == form);
    if function.0.name == "pow" { found().unwrap_or(function.0) } else { function.0 }
}

/// The operation's own numbers, as its check takes them: parameters by their defaults.
fn own_numbers(function: Function, given: &[Known]) -> Result<SmallVec<[Scalar; 4]>> {
    let number = |(at, known): (usize, &Known)| match known {
        Known::Number(_, Source::Constant(number)) => Ok(*number),
        Known::Number(kind, _) => Ok(*kind),
        Known::Value(..) => {
            let argument = function.0.arity + at + 1;
            Err(ExpressionError::NotANumber { function: function.name(), argument }.into())
        }
    };
    given.iter().enumerate().map(number).collect()
}

/// What torch refuses of powers: integers to negative numbers.
fn refuse_powers(function: Function, operands: &[Known], common: DType) -> std::result::Result<(), String> {
    let is_negative = matches!(operands.get(1), Some(Known::Number(_, Source::Constant(Scalar::Int(..0)))));
    match function.0.name == "pow" && common.is_integral() && is_negative {
        true => Err("Integers to negative integer powers are not allowed.".to_owned()),
        false => Ok(()),
    }
}

/// The dtype that numbers are computed in, for the common one and what an operation computes in.
fn widest(common: DType, computed: DType) -> DType {
    match computed.category() {
        Category::Floating => DType::F64,
        Category::Complex => DType::C128,
        Category::Bool | Category::Integral => common,
    }
}

/// A number of the kind that a dtype has.
fn kind_of(dtype: DType) -> Scalar {
    match dtype.category() {
        Category::Bool => Scalar::Bool(false),
        Category::Integral => Scalar::Int(0),
        Category::Floating => Scalar::Float(0.0),
        Category::Complex => Scalar::Complex(num_complex::Complex64::new(0.0, 0.0)),
    }
}

/// The low bits of an integer, extended.
const fn wrapped(value: i64, ty: Type) -> i64 {
    match ty {
        Type::U8 => value & 0xff,
        Type::I8 => value << 56 >> 56,
        Type::I16 => value << 48 >> 48,
        Type::I32 => value << 32 >> 32,
        _ => value,
    }
}
