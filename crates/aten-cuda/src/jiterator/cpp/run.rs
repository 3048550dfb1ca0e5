//! A function run on symbolic values: what it computes becomes a program.
//!
//! Both branches of an `if` are run, and where they meet each variable is chosen by the condition; so every expression is
//! computed for every element, which is right since none has an effect, and none fails on a device.
//!
//! **Invariants:** a variable that may have no value is never read. What comes after a branch that returns is run once for
//! each branch that does not.

use kernel_ir::{Graph, Program, Type};

use super::arithmetic::{self, Known, Typed, convert, select};
use super::tree::{Expr, ExprKind, Function, Literal, Parameter, Statement, StatementKind, TypeName};
use super::{Result, leave, library};
use crate::base::dtype::DType;
use crate::ops::store;

/// The most expressions that are run.
const MOST_STEPS: usize = 4096;

/// The most expressions, and blocks with what comes after them, in one another; there is stack for so many.
const MOST_DEPTH: usize = 256;

/// What a function is called with.
#[derive(Clone, Copy, Debug)]
pub(in crate::jiterator) struct Arguments<'a> {
    /// The tensors' dtypes, which are not complex, and the one that they have in common.
    pub(in crate::jiterator) dtypes: &'a [DType],
    pub(in crate::jiterator) common: DType,
    /// The types of the numbers.
    pub(in crate::jiterator) numbers: &'a [Type],
    pub(in crate::jiterator) outputs: usize,
    /// Whether the function returns its result.
    pub(in crate::jiterator) returns: bool,
}

/// The program of the last function, whose scalars are the numbers.
pub(in crate::jiterator) fn translate(functions: &[Function], arguments: &Arguments<'_>) -> Result<Program> {
    let Some((function, _)) = functions.split_last() else { return leave(1, "no function") };
    let mut runner = Runner { functions, graph: Graph::new(), steps: 0, depth: 0 };
    let outputs = runner.entry(function, arguments)?;
    for output in outputs {
        store(&mut runner.graph, (output.value, output.value), arguments.common, arguments.common);
    }
    match runner.graph.finish() {
        Ok(program) => Ok(program.without_unused()),
        Err(error) => leave(function.line, error.to_string()),
    }
}

#[derive(Clone, Debug)]
struct Variable {
    name: String,
    ty: Type,
    is_const: bool,
    /// None while it may have no value.
    value: Option<Typed>,
}

/// What does not change while a function runs.
#[derive(Clone, Copy)]
struct Frame<'f> {
    function: &'f Function,
    /// Its place: it knows the functions before it.
    place: usize,
    /// What the template's parameter stands for.
    parameter: Option<Type>,
}

/// The statements that are left of a block, and what comes after it.
#[derive(Clone, Copy)]
struct Rest<'r> {
    statements: &'r [Statement],
    /// How many variables there were when the block began.
    scope: usize,
    next: Option<&'r Rest<'r>>,
}

/// The variables at the end, and what was returned.
type Ended = (Vec<Variable>, Option<Typed>);

struct Runner<'a> {
    functions: &'a [Function],
    graph: Graph,
    steps: usize,
    depth: usize,
}

impl Frame<'_> {
    fn resolve(&self, name: TypeName, line: usize) -> Result<Type> {
        match (name, self.parameter) {
            (TypeName::Known(ty), _) | (TypeName::Parameter, Some(ty)) => Ok(ty),
            (TypeName::Parameter, None) => leave(line, "a type that is not known"),
        }
    }
}

impl Runner<'_> {
    /// Runs the function that is called for each element; its results in the type that the common dtype is computed in.
    fn entry(&mut self, function: &Function, arguments: &Arguments<'_>) -> Result<Vec<Typed>> {
        let line = function.line;
        let ty = arguments.common.compute_type();
        let frame = Frame { function, place: self.functions.len() - 1, parameter: Some(ty) };
        let results = if arguments.returns { 0 } else { arguments.outputs };
        let given = arguments.dtypes.len() + arguments.numbers.len();
        if !function.is_template || function.parameters.len() != given + results {
            return leave(line, format!("`{}` does not fit the tensors and numbers", function.name));
        }
        if function.returns.is_some() != arguments.returns || library::has(&function.name) {
            return leave(line, format!("`{}`", function.name));
        }
        let mut values: Vec<Typed> = Vec::new();
        for dtype in arguments.dtypes {
            values.push(self.element(*dtype, arguments.common));
        }
        for ty in arguments.numbers {
            values.push(Typed::new(self.graph.scalar(*ty), *ty));
        }
        let (inputs, outputs) = function.parameters.split_at(given);
        let mut variables = self.bind(&frame, inputs, &values)?;
        for output in outputs {
            if !output.is_output || frame.resolve(output.ty, line)? != ty {
                return leave(line, format!("the parameter `{}`", output.name));
            }
            variables.push(Variable { name: output.name.clone(), ty, is_const: false, value: None });
        }
        let (variables, returned) = self.body(&frame, variables)?;
        let results: Option<Vec<Typed>> = match returned {
            Some(value) => Some(vec![convert(&mut self.graph, value, ty)]),
            None => variables[given..].iter().map(|variable| variable.value).collect(),
        };
        results.map_or_else(|| leave(line, "a result that may have no value"), Ok)
    }

    /// An element of a tensor in the type that the common dtype is computed in, rounded to that dtype.
    fn element(&mut self, dtype: DType, common: DType) -> Typed {
        let ty = common.compute_type();
        let input = self.graph.input(dtype.part());
        let wide = self.graph.convert(input, dtype.compute_type());
        let rounded = if dtype == common { wide } else { self.graph.convert(wide, common.part()) };
        Typed::new(self.graph.convert(rounded, ty), ty)
    }

    /// Parameters that are values, as variables.
    fn bind(&mut self, frame: &Frame<'_>, parameters: &[Parameter], values: &[Typed]) -> Result<Vec<Variable>> {
        let mut variables = Vec::new();
        for (parameter, value) in parameters.iter().zip(values) {
            let Parameter { name, is_const, is_output, .. } = parameter;
            let line = frame.function.line;
            if *is_output {
                return leave(line, format!("the parameter `{name}`"));
            }
            let ty = frame.resolve(parameter.ty, line)?;
            let value = Some(convert(&mut self.graph, *value, ty));
            variables.push(Variable { name: name.clone(), ty, is_const: *is_const, value });
        }
        Ok(variables)
    }

    /// Runs a function whose parameters are the variables; they are what it leaves them, beside what it returns.
    fn body(&mut self, frame: &Frame<'_>, variables: Vec<Variable>) -> Result<Ended> {
        // A variable of the body may not have the name of a parameter, as if both were in one block.
        let rest = Rest { statements: &frame.function.body, scope: 0, next: None };
        let ended = self.run(frame, variables, &rest)?;
        if ended.1.is_some() != frame.function.returns.is_some() {
            return leave(frame.function.line, format!("`{}` may end without a result", frame.function.name));
        }
        Ok(ended)
    }

    fn deeper<T>(&mut self, line: usize, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MOST_DEPTH {
            return leave(line, format!("more than {MOST_DEPTH} levels"));
        }
        self.depth += 1;
        let made = inner(self)?;
        self.depth -= 1;
        Ok(made)
    }

    /// Runs what is left: the variables then, without those of the blocks that ended, and what was returned.
    fn run(&mut self, frame: &Frame<'_>, variables: Vec<Variable>, rest: &Rest<'_>) -> Result<Ended> {
        self.deeper(frame.function.line, |runner| runner.run_rest(frame, variables, rest))
    }

    fn run_rest(&mut self, frame: &Frame<'_>, mut variables: Vec<Variable>, rest: &Rest<'_>) -> Result<Ended> {
        let mut rest = Some(*rest);
        while let Some(Rest { statements, scope, next }) = rest {
            let Some((Statement { line, kind }, after)) = statements.split_first() else {
                variables.truncate(scope.max(frame.function.parameters.len()));
                rest = next.copied();
                continue;
            };
            let tail = Rest { statements: after, scope, next };
            match kind {
                StatementKind::Block(inner) => {
                    let inner = Rest { statements: inner, scope: variables.len(), next: Some(&tail) };
                    return self.run(frame, variables, &inner);
                }
                StatementKind::If { condition, then, other } => {
                    let condition = self.expression(frame, &variables, condition)?;
                    let condition = convert(&mut self.graph, condition, Type::Bool);
                    let ends = returns(then) || returns(other);
                    let next = ends.then_some(&tail);
                    let scope = variables.len();
                    let one = self.run(frame, variables.clone(), &Rest { statements: then, scope, next })?;
                    let two = self.run(frame, variables, &Rest { statements: other, scope, next })?;
                    let (merged, returned) = self.merge(condition, one, two, *line)?;
                    if ends {
                        return Ok((merged, returned));
                    }
                    variables = merged;
                }
                StatementKind::Return(value) => {
                    if let Some(after) = after.first() {
                        return leave(after.line, "a statement after `return`");
                    }
                    let value = match value {
                        Some(value) => Some(self.expression(frame, &variables, value)?),
                        None => None,
                    };
                    if value.is_some() != frame.function.returns.is_some() {
                        return leave(*line, "`return`");
                    }
                    variables.truncate(frame.function.parameters.len());
                    let returns = frame.function.returns;
                    let ty = returns.map(|ty| frame.resolve(ty, *line)).transpose()?;
                    let value = value.zip(ty).map(|(value, ty)| convert(&mut self.graph, value, ty));
                    return Ok((variables, value));
                }
                _ => self.simple(frame, &mut variables, scope, (*line, kind))?,
            }
            rest = Some(tail);
        }
        Ok((variables, None))
    }

    /// A statement without others in it.
    fn simple(
        &mut self,
        frame: &Frame<'_>,
        variables: &mut Vec<Variable>,
        scope: usize,
        (line, kind): (usize, &StatementKind),
    ) -> Result<()> {
        match kind {
            StatementKind::Declare { ty, is_const, name, value } => {
                if variables[scope..].iter().any(|other| other.name == *name) {
                    return leave(line, format!("`{name}` is declared twice"));
                }
                let value = match value {
                    Some(value) => Some(self.expression(frame, variables, value)?),
                    None => None,
                };
                let ty = match (ty, value) {
                    (Some(ty), _) => frame.resolve(*ty, line)?,
                    (None, Some(value)) => value.ty,
                    (None, None) => return leave(line, format!("`{name}` without a type")),
                };
                let value = value.map(|value| convert(&mut self.graph, value, ty));
                variables.push(Variable { name: name.clone(), ty, is_const: *is_const, value });
            }
            StatementKind::Assign { name, op, value } => {
                let value = self.expression(frame, variables, value)?;
                let Some(at) = variables.iter().rposition(|variable| variable.name == *name) else {
                    return leave(line, format!("`{name}`"));
                };
                let Variable { ty, is_const, value: before, .. } = variables[at];
                let made = match (op, before) {
                    (None, _) => Some(value),
                    (Some(op), Some(before)) => arithmetic::binary(&mut self.graph, *op, before, value),
                    (Some(_), None) => None,
                };
                let Some(made) = made.filter(|_| !is_const) else {
                    return leave(line, format!("the assignment to `{name}`"));
                };
                variables[at].value = Some(convert(&mut self.graph, made, ty));
            }
            StatementKind::If { .. } | StatementKind::Block(_) | StatementKind::Return(_) => {}
        }
        Ok(())
    }

    /// Where two branches meet.
    fn merge(&mut self, condition: Typed, (one, returned): Ended, (two, other): Ended, line: usize) -> Result<Ended> {
        let mut merged = one;
        for (variable, other) in merged.iter_mut().zip(two) {
            // What has a value in one branch alone may have none.
            let both = variable.value.zip(other.value);
            variable.value = both.map(|(then, other)| select(&mut self.graph, condition, then, other));
        }
        match (returned, other) {
            (Some(then), Some(other)) => Ok((merged, Some(select(&mut self.graph, condition, then, other)))),
            (None, None) => Ok((merged, None)),
            _ => leave(line, "`if` of which one branch alone comes to a `return`"),
        }
    }

    fn expression(&mut self, frame: &Frame<'_>, variables: &[Variable], expr: &Expr) -> Result<Typed> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return leave(expr.line, format!("more than {MOST_STEPS} expressions"));
        }
        self.deeper(expr.line, |runner| runner.value(frame, variables, expr))
    }

    fn value(&mut self, frame: &Frame<'_>, variables: &[Variable], expr: &Expr) -> Result<Typed> {
        let line = expr.line;
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(match *literal {
                Literal::Int(value, ty) => arithmetic::number(&mut self.graph, Known::Int(value), ty),
                Literal::Float(value, ty) => arithmetic::number(&mut self.graph, Known::Float(value), ty),
            }),
            ExprKind::Name(name) => {
                let found = variables.iter().rev().find(|variable| variable.name == *name);
                let value = found.and_then(|variable| variable.value);
                value.map_or_else(|| leave(line, format!("the value of `{name}`")), Ok)
            }
            ExprKind::Unary(op, operand) => {
                let operand = self.expression(frame, variables, operand)?;
                let made = arithmetic::unary(&mut self.graph, *op, operand);
                made.map_or_else(|| leave(line, "an operator"), Ok)
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.expression(frame, variables, a)?, self.expression(frame, variables, b)?);
                let made = arithmetic::binary(&mut self.graph, *op, a, b);
                made.map_or_else(|| leave(line, "an operator of other types"), Ok)
            }
            ExprKind::Choice(parts) => self.choice(frame, variables, parts),
            ExprKind::Cast(ty, operand) => {
                let ty = frame.resolve(*ty, line)?;
                let operand = self.expression(frame, variables, operand)?;
                Ok(convert(&mut self.graph, operand, ty))
            }
            ExprKind::Call(name, given, arguments) => {
                let mut values = Vec::new();
                for argument in arguments {
                    values.push(self.expression(frame, variables, argument)?);
                }
                if variables.iter().any(|variable| variable.name == *name) {
                    return leave(line, format!("the call of `{name}`"));
                }
                self.call(frame, (name, line), *given, &values)
            }
        }
    }

    fn choice(&mut self, frame: &Frame<'_>, variables: &[Variable], parts: &[Expr; 3]) -> Result<Typed> {
        let [condition, then, other] = parts;
        let condition = self.expression(frame, variables, condition)?;
        let condition = convert(&mut self.graph, condition, Type::Bool);
        let (then, other) = (self.expression(frame, variables, then)?, self.expression(frame, variables, other)?);
        // Two small integers of one type are not promoted.
        let ty = if then.ty == other.ty { then.ty } else { arithmetic::common(then.ty, other.ty) };
        let (then, other) = (convert(&mut self.graph, then, ty), convert(&mut self.graph, other, ty));
        Ok(select(&mut self.graph, condition, then, other))
    }

    /// A call of a function before this one in the text, or of one of CUDA's own.
    fn call(
        &mut self,
        frame: &Frame<'_>,
        (name, line): (&str, usize),
        given: Option<TypeName>,
        values: &[Typed],
    ) -> Result<Typed> {
        let refused = || leave(line, format!("the call of `{name}`"));
        let functions = self.functions;
        let Some(place) = functions[..frame.place].iter().position(|function| function.name == name) else {
            let made = if given.is_none() { library::call(&mut self.graph, name, values) } else { None };
            return made.map_or_else(refused, Ok);
        };
        let function = &functions[place];
        let given = given.map(|ty| frame.resolve(ty, line)).transpose()?;
        let is_own = library::has(name) || function.name == frame.function.name;
        if is_own || function.parameters.len() != values.len() {
            return refused();
        }
        let parameter = match (function.is_template, given) {
            (false, Some(_)) => return refused(),
            (false, None) => None,
            (true, Some(ty)) => Some(ty),
            (true, None) => match deduced(function, values) {
                Some(ty) => Some(ty),
                None => return refused(),
            },
        };
        let called = Frame { function, place, parameter };
        let variables = self.bind(&called, &function.parameters, values)?;
        let (_, returned) = self.body(&called, variables)?;
        returned.map_or_else(refused, Ok)
    }
}

/// What the template's parameter stands for: the one type of all arguments that are of it.
fn deduced(function: &Function, values: &[Typed]) -> Option<Type> {
    let of = function.parameters.iter().zip(values).filter(|(parameter, _)| parameter.ty == TypeName::Parameter);
    let mut types = of.map(|(_, value)| value.ty);
    let first = types.next()?;
    types.all(|ty| ty == first).then_some(first)
}

/// Whether one of the statements, or one in them, returns.
fn returns(statements: &[Statement]) -> bool {
    statements.iter().any(|statement| match &statement.kind {
        StatementKind::Return(_) => true,
        StatementKind::Block(inner) => returns(inner),
        StatementKind::If { then, other, .. } => returns(then) || returns(other),
        StatementKind::Declare { .. } | StatementKind::Assign { .. } => false,
    })
}
