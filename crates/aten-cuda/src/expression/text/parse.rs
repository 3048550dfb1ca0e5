//! From words to a definition.

use std::collections::HashMap;

use num_complex::Complex64;
use smallvec::SmallVec;

use super::lex::{Kind, Token, words};
use super::{MOST_NESTING, MOST_TEXT};
use crate::base::expression_error::{ExpressionError, ParseError, ParseErrorKind};
use crate::base::scalar::Scalar;
use crate::expression::definition::{
    Builder, Definition, Function, Id, MOST_TENSORS, Node, Number, check_name, dtype_named,
};

type Result<T> = std::result::Result<T, ParseError>;

/// Operators of two operands, from the loosest to the closest: how close they are, and the operation.
pub(super) const OPERATORS: [(&str, u8, &str); 20] = [
    ("or", 1, "logical_or"),
    ("and", 2, "logical_and"),
    ("==", COMPARISON, "eq"),
    ("!=", COMPARISON, "ne"),
    ("<", COMPARISON, "lt"),
    ("<=", COMPARISON, "le"),
    (">", COMPARISON, "gt"),
    (">=", COMPARISON, "ge"),
    ("|", 5, "bitwise_or"),
    ("^", 6, "bitwise_xor"),
    ("&", 7, "bitwise_and"),
    ("<<", 8, "bitwise_left_shift"),
    (">>", 8, "bitwise_right_shift"),
    ("+", 9, "add"),
    ("-", 9, "sub"),
    ("*", 10, "mul"),
    ("/", 10, "div"),
    ("//", 10, "floor_divide"),
    ("%", 10, "remainder"),
    ("**", POWER, "pow"),
];

/// How close `not` is.
pub(super) const NOT: u8 = 3;

/// How close comparisons are, which do not follow one another.
pub(super) const COMPARISON: u8 = 4;

/// How close signs are.
pub(super) const SIGN: u8 = 11;

/// How close powers are, which go from right to left.
pub(super) const POWER: u8 = 12;

/// Reads a function.
pub(in crate::expression) fn parse(text: &str) -> Result<Definition> {
    if text.len() > MOST_TEXT {
        let kind = ParseErrorKind::TooLong { limit: MOST_TEXT, found: text.len() };
        return Err(ParseError::new(text, MOST_TEXT, kind));
    }
    let words = words(text)?;
    Parser { text, words: &words, at: 0, depth: 0, names: HashMap::new(), builder: Builder::default() }.function()
}

struct Parser<'a> {
    text: &'a str,
    words: &'a [Token<'a>],
    at: usize,
    depth: usize,
    /// What names stand for.
    names: HashMap<&'a str, Id>,
    builder: Builder,
}

impl<'a> Parser<'a> {
    fn function(mut self) -> Result<Definition> {
        let name = self.name("the name of the function")?;
        self.symbol("(", "`(`")?;
        let inputs = self.signature()?;
        self.symbol("=", "`=`")?;
        while self.takes("let") {
            let bound = self.name("a name")?;
            self.symbol("=", "`=`")?;
            let value = self.expression(0)?;
            self.symbol(";", "an operator or `;`")?;
            self.bind(bound, value)?;
        }
        let mut outputs = vec![self.expression(0)?];
        while self.takes(",") {
            outputs.push(self.expression(0)?);
        }
        if self.word().kind != Kind::End {
            return Err(self.expected("an operator, `,` or the end"));
        }
        self.check_builder()?;
        let end = self.text.len();
        let refuse =
            |error: ExpressionError| ParseError::new(self.text, end, ParseErrorKind::Function(error.to_string()));
        self.builder.finish(name.text, inputs, &outputs).map_err(refuse)
    }

    /// The names of the tensors; parameters are declared on the way.
    fn signature(&mut self) -> Result<Vec<String>> {
        let (mut inputs, mut has_parameter) = (Vec::new(), false);
        loop {
            let name = self.name("the name of a tensor or a parameter")?;
            if self.takes("=") {
                has_parameter = true;
                let default = self.signed_number()?;
                if self.builder.declares(name.text) {
                    return Err(self.error_at(name.position, ParseErrorKind::Taken(name.text.to_owned())));
                }
                let id = self.builder.parameter(name.text, default);
                self.bind(name, id)?;
            } else if has_parameter {
                return Err(self.error_at(name.position, ParseErrorKind::InputAfterParameter(name.text.to_owned())));
            } else if inputs.len() == MOST_TENSORS {
                let error = ExpressionError::TooManyInputs { limit: MOST_TENSORS, found: MOST_TENSORS + 1 };
                return Err(self.error_at(name.position, ParseErrorKind::Function(error.to_string())));
            } else {
                let id = self.builder.input(inputs.len());
                self.bind(name, id)?;
                inputs.push(name.text.to_owned());
            }
            if !self.takes(",") {
                self.symbol(")", "`,` or `)`")?;
                return Ok(inputs);
            }
        }
    }

    fn bind(&mut self, name: Token<'a>, id: Id) -> Result<()> {
        if self.names.contains_key(name.text) {
            return Err(self.error_at(name.position, ParseErrorKind::Taken(name.text.to_owned())));
        }
        self.names.insert(name.text, id);
        Ok(())
    }

    /// An expression whose operators are at least this close.
    fn expression(&mut self, closest: u8) -> Result<Id> {
        self.deeper()?;
        let mut left = self.operand(closest)?;
        let mut last = u8::MAX;
        while let Some((closeness, operation)) = self.operator().filter(|(closeness, _)| *closeness >= closest) {
            if closeness == COMPARISON && last == COMPARISON {
                return Err(self.expected("one comparison alone: put one into brackets"));
            }
            self.at += 1;
            // A power is taken of all that stands to its right, and a sign there belongs to it.
            let right = if closeness == POWER { self.expression(SIGN)? } else { self.expression(closeness + 1)? };
            left = self.apply(operation, SmallVec::from_slice(&[left, right]))?;
            last = closeness;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// What operators stand between, with the signs before it.
    fn operand(&mut self, closest: u8) -> Result<Id> {
        let word = self.word();
        match word.text {
            "not" if closest <= NOT => {
                self.at += 1;
                let value = self.expression(NOT)?;
                self.apply("logical_not", SmallVec::from_slice(&[value]))
            }
            "-" if self.is_negative_number() => {
                let number = self.signed_number()?;
                Ok(self.builder.add(Node::Number(Number::from(number))))
            }
            "-" | "~" | "+" => {
                self.at += 1;
                let value = self.expression(SIGN)?;
                match word.text {
                    "-" => self.apply("neg", SmallVec::from_slice(&[value])),
                    "~" => self.apply("bitwise_not", SmallVec::from_slice(&[value])),
                    _ => Ok(value),
                }
            }
            "(" => {
                self.at += 1;
                let value = self.expression(0)?;
                self.symbol(")", "an operator or `)`")?;
                Ok(value)
            }
            _ => self.primary(),
        }
    }

    /// Whether a sign and a number follow that belong together: a power of the number would be taken first.
    fn is_negative_number(&self) -> bool {
        let is_number = |word: &Token<'_>| match word.kind {
            Kind::Int | Kind::Float | Kind::Imaginary => true,
            Kind::Name => matches!(word.text, "inf" | "nan"),
            Kind::Symbol | Kind::End => false,
        };
        self.words.get(self.at + 1).is_some_and(is_number)
            && self.words.get(self.at + 2).is_none_or(|word| word.text != "**")
    }

    fn primary(&mut self) -> Result<Id> {
        let word = self.word();
        let is_call = self.words.get(self.at + 1).is_some_and(|next| next.text == "(");
        match word.kind {
            Kind::Int | Kind::Float | Kind::Imaginary => self.constant(),
            Kind::Name if matches!(word.text, "inf" | "nan" | "true" | "false" | "complex") => self.constant(),
            Kind::Name if is_call => self.call(word),
            Kind::Name => match self.names.get(word.text) {
                Some(&id) => {
                    self.at += 1;
                    Ok(id)
                }
                None => Err(self.error_at(word.position, ParseErrorKind::UnknownName(shown(word.text)))),
            },
            Kind::Symbol | Kind::End => Err(self.expected("an expression")),
        }
    }

    fn constant(&mut self) -> Result<Id> {
        let number = self.signed_number()?;
        Ok(self.builder.add(Node::Number(Number::from(number))))
    }

    /// An operation or a cast.
    fn call(&mut self, name: Token<'a>) -> Result<Id> {
        self.at += 2;
        let mut arguments: SmallVec<[Id; 3]> = SmallVec::new();
        if !self.takes(")") {
            arguments.push(self.expression(0)?);
            while self.takes(",") {
                arguments.push(self.expression(0)?);
            }
            self.symbol(")", "an operator, `,` or `)`")?;
        }
        let expects = |expected: usize| {
            let kind = ParseErrorKind::Arguments { function: name.text.to_owned(), expected, found: arguments.len() };
            Err(self.error_at(name.position, kind))
        };
        if let Some(dtype) = dtype_named(name.text) {
            let &[operand] = &arguments[..] else { return expects(1) };
            let id = self.builder.add(Node::Cast(dtype, operand));
            return self.check_builder().map(|()| id);
        }
        match Function::named(name.text) {
            Some(function) if function.arguments() != arguments.len() => expects(function.arguments()),
            Some(_) => self.apply(name.text, arguments),
            None => Err(self.error_at(name.position, ParseErrorKind::UnknownFunction(shown(name.text)))),
        }
    }

    fn apply(&mut self, operation: &str, operands: SmallVec<[Id; 3]>) -> Result<Id> {
        let unknown = || self.error_at(self.word().position, ParseErrorKind::UnknownFunction(operation.to_owned()));
        let function = Function::named(operation).ok_or_else(unknown)?;
        let id = self.builder.add(Node::Apply(function, operands));
        self.check_builder().map(|()| id)
    }

    /// Tells a mistake of the builder where it was made.
    fn check_builder(&self) -> Result<()> {
        let tell = |error: &ExpressionError| {
            Err(self.error_at(self.word().position, ParseErrorKind::Function(error.to_string())))
        };
        self.builder.error().map_or(Ok(()), tell)
    }

    /// A number, which may have a sign.
    fn signed_number(&mut self) -> Result<Scalar> {
        let is_negative = self.takes("-");
        let word = self.word();
        let wrong = || self.error_at(word.position, ParseErrorKind::Number(shown(word.text)));
        let sign = if is_negative { -1.0 } else { 1.0 };
        let float = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(wrong);
        let number = match (word.kind, word.text) {
            (Kind::Int, digits) => {
                let sign = if is_negative { "-" } else { "" };
                Scalar::Int(format!("{sign}{digits}").parse().map_err(|_| wrong())?)
            }
            (Kind::Float, digits) => Scalar::Float(sign * float(digits)?),
            (Kind::Imaginary, digits) => {
                Scalar::Complex(Complex64::new(0.0, sign * float(digits.trim_end_matches('j'))?))
            }
            (Kind::Name, "inf") => Scalar::Float(sign * f64::INFINITY),
            (Kind::Name, "nan") => Scalar::Float(f64::NAN),
            (Kind::Name, "true" | "false") if !is_negative => Scalar::Bool(word.text == "true"),
            (Kind::Name, "complex") if !is_negative => return self.complex(),
            _ => return Err(self.expected("a number")),
        };
        self.at += 1;
        Ok(number)
    }

    /// `complex(1.0, -2.0)`, of two numbers.
    fn complex(&mut self) -> Result<Scalar> {
        self.at += 1;
        self.symbol("(", "`(`")?;
        let real = self.real()?;
        self.symbol(",", "`,`")?;
        let imaginary = self.real()?;
        self.symbol(")", "`)`")?;
        Ok(Scalar::Complex(Complex64::new(real, imaginary)))
    }

    /// A part of a complex number.
    fn real(&mut self) -> Result<f64> {
        let position = self.word().position;
        match self.words.get(self.at + usize::from(self.word().text == "-")).map(|word| word.text) {
            Some("complex") => Err(self.error_at(position, ParseErrorKind::Number("complex".to_owned()))),
            _ => match self.signed_number()? {
                number @ (Scalar::Int(_) | Scalar::Float(_)) => Ok(number.to_f64()),
                Scalar::Bool(_) | Scalar::Complex(_) => Err(self.error_at(
                    position,
                    ParseErrorKind::Expected { expected: "a real number", found: "another one".to_owned() },
                )),
            },
        }
    }

    /// The operator that comes next: how close it is and its operation.
    fn operator(&self) -> Option<(u8, &'static str)> {
        let word = self.word();
        let found = OPERATORS.iter().find(|(text, ..)| *text == word.text)?;
        Some((found.1, found.2))
    }

    fn word(&self) -> Token<'a> {
        // The last word is the end, and nothing goes past it.
        self.words[self.at.min(self.words.len() - 1)]
    }

    /// Goes past a word if it comes next.
    fn takes(&mut self, text: &str) -> bool {
        let is_next = self.word().text == text;
        self.at += usize::from(is_next);
        is_next
    }

    fn symbol(&mut self, text: &str, expected: &'static str) -> Result<()> {
        if self.takes(text) { Ok(()) } else { Err(self.expected(expected)) }
    }

    fn name(&mut self, expected: &'static str) -> Result<Token<'a>> {
        let word = self.word();
        if word.kind != Kind::Name {
            return Err(self.expected(expected));
        }
        check_name(word.text)
            .map_err(|error| self.error_at(word.position, ParseErrorKind::Function(error.to_string())))?;
        self.at += 1;
        Ok(word)
    }

    /// Goes one deeper. What came back from deeper has gone up again.
    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MOST_NESTING {
            return Err(self.error_at(self.word().position, ParseErrorKind::Nesting { limit: MOST_NESTING }));
        }
        Ok(())
    }

    fn expected(&self, expected: &'static str) -> ParseError {
        let word = self.word();
        self.error_at(word.position, ParseErrorKind::Expected { expected, found: word.described() })
    }

    fn error_at(&self, position: usize, kind: ParseErrorKind) -> ParseError {
        ParseError::new(self.text, position, kind)
    }
}

/// A word as messages show it.
fn shown(word: &str) -> String {
    word.chars().take(64).collect()
}
