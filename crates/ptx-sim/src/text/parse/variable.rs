//! Declarations of variables and parameters, and initial values.

use super::{Parser, unexpected};
use crate::refusal::Refusal;
use crate::text::lex::Token;
use crate::text::syntax::{Initial, Linkage, VariableText};

/// The largest alignment.
const MAX_ALIGN: u64 = 1 << 16;

impl<'t> Parser<'t> {
    /// Declarations behind the word of their space, up to the semicolon.
    pub(super) fn variables(
        &mut self,
        linkage: Linkage,
        space: &'t str,
        mut each: impl FnMut(VariableText<'t>),
    ) -> Result<(), Refusal> {
        let kind = self.variable_kind(linkage, space)?;
        loop {
            let mut variable = kind.clone();
            self.declarator(&mut variable)?;
            if self.takes('=')? {
                self.initial(&mut variable)?;
            }
            each(variable);
            if self.takes(';')? {
                return Ok(());
            }
            self.expect(',')?;
        }
    }

    /// `(.param .b32 a, .reg .f32 %b)`, behind the bracket.
    pub(super) fn parameters(&mut self) -> Result<Vec<VariableText<'t>>, Refusal> {
        let mut parameters = Vec::new();
        if self.takes(')')? {
            return Ok(parameters);
        }
        loop {
            let taken = self.bump()?;
            let Token::Word(space @ (".param" | ".reg")) = taken.token else { return Err(unexpected(taken)) };
            let mut parameter = self.variable_kind(Linkage::Private, &space[1..])?;
            if !matches!(self.peek(), Some(Token::Sign(',' | ')'))) {
                self.declarator(&mut parameter)?;
            }
            parameters.push(parameter);
            if self.takes(')')? {
                return Ok(parameters);
            }
            self.expect(',')?;
        }
    }

    /// Everything between the space and the name.
    fn variable_kind(&mut self, linkage: Linkage, space: &'t str) -> Result<VariableText<'t>, Refusal> {
        let (mut ty, mut vector, mut align, mut pointer) = (None, 1, None, false);
        let at = self.here();
        while let Some(Token::Word(word)) = self.peek()
            && let Some(inside) = word.strip_prefix('.')
        {
            let taken = self.bump()?;
            match inside {
                // The alignment behind `.ptr` is that of what the parameter points to.
                "align" if pointer => {
                    self.alignment()?;
                }
                "align" => align = Some(self.alignment()?),
                "ptr" => pointer = true,
                "global" | "const" | "shared" | "local" | "param" if pointer => {}
                "attribute" => self.attribute()?,
                "v2" => vector = 2,
                "v4" => vector = 4,
                "v8" => vector = 8,
                _ if ty.is_none() => ty = Some(inside),
                _ => return Err(unexpected(taken)),
            }
        }
        let ty = ty.ok_or_else(|| Refusal::invalid(self.here(), "a type is missing"))?;
        let (name, dimensions, initial) = ("", Vec::new(), None);
        Ok(VariableText { linkage, space, ty, vector, align, pointer, name, dimensions, initial, at })
    }

    fn alignment(&mut self) -> Result<u64, Refusal> {
        let at = self.here();
        let align = self.integer()?;
        match align.is_power_of_two() && align <= MAX_ALIGN {
            true => Ok(align),
            false => Err(Refusal::invalid(at, format!("{align} is not an alignment"))),
        }
    }

    /// `(.managed)`, `(.unified(1, 2))`: what a variable is besides its type, which changes nothing here.
    pub(super) fn attribute(&mut self) -> Result<(), Refusal> {
        self.expect('(')?;
        self.skip_to('(', ')')
    }

    /// A name and its dimensions.
    fn declarator(&mut self, variable: &mut VariableText<'t>) -> Result<(), Refusal> {
        variable.at = self.here();
        variable.name = self.name()?;
        while self.takes('[')? {
            let size = if self.peek() == Some(Token::Sign(']')) { 0 } else { self.expression()? };
            variable.dimensions.push(size);
            self.expect(']')?;
        }
        Ok(())
    }

    /// What stands behind `=`.
    fn initial(&mut self, variable: &mut VariableText<'t>) -> Result<(), Refusal> {
        let mut values = Vec::new();
        if matches!(variable.ty, "texref" | "samplerref" | "surfref") {
            self.expect('{')?;
            return self.skip_to('{', '}');
        }
        if self.takes('{')? {
            let mut dimensions = variable.dimensions.clone();
            if variable.vector > 1 {
                dimensions.push(u64::from(variable.vector));
            }
            let count = self.row(dimensions.get(1..).unwrap_or_default(), &mut values)?;
            if variable.dimensions.first() == Some(&0) {
                let inner = dimensions[1..].iter().fold(1, |product: u64, &size| product.saturating_mul(size.max(1)));
                variable.dimensions[0] = count.div_ceil(inner);
            }
        } else {
            values.push(self.initial_value()?);
        }
        variable.initial = Some(values);
        Ok(())
    }

    /// Values of a row up to its brace; `inner` are the dimensions of a value that is a row itself. How many there are.
    fn row(&mut self, inner: &[u64], values: &mut Vec<Initial<'t>>) -> Result<u64, Refusal> {
        let mut count = 0_u64;
        if self.takes('}')? {
            return Ok(count);
        }
        loop {
            let at = self.here();
            if self.takes('{')? {
                let size = inner.iter().fold(1, |product: u64, &size| product.saturating_mul(size));
                let filled = self.deeper(|parser| parser.row(inner.get(1..).unwrap_or_default(), values))?;
                let missing = size.checked_sub(filled);
                let missing = missing.ok_or_else(|| Refusal::invalid(at, "a row has too many values"))?;
                if missing > 0 {
                    values.push(Initial::Zeros(missing));
                }
                count = count.saturating_add(size);
            } else {
                values.push(self.initial_value()?);
                count = count.saturating_add(1);
            }
            if self.takes('}')? {
                return Ok(count);
            }
            self.expect(',')?;
            // A comma may stand before the brace.
            if self.takes('}')? {
                return Ok(count);
            }
        }
    }

    fn initial_value(&mut self) -> Result<Initial<'t>, Refusal> {
        match self.peek() {
            Some(Token::Word(word)) if word != "WARP_SZ" => self.initial_symbol(None),
            Some(Token::Float(bits, size)) => {
                self.bump()?;
                Ok(Initial::Float(bits, size))
            }
            Some(Token::Integer(number)) => {
                self.bump()?;
                if self.takes('(')? {
                    let value = self.initial_symbol(Some(number))?;
                    self.expect(')')?;
                    return Ok(value);
                }
                self.rest_of_expression(number).map(Initial::Integer)
            }
            Some(Token::Sign('(')) => self.initial_in_parentheses(),
            Some(Token::Sign('-')) => {
                self.bump()?;
                if let Some(Token::Float(bits, size)) = self.peek() {
                    self.bump()?;
                    return Ok(Initial::Float(bits ^ 1 << (size - 1), size));
                }
                let first = self.unary()?.wrapping_neg();
                self.rest_of_expression(first).map(Initial::Integer)
            }
            _ => self.expression().map(Initial::Integer),
        }
    }

    /// `(name+4)` or `(1<<3)+1`.
    fn initial_in_parentheses(&mut self) -> Result<Initial<'t>, Refusal> {
        self.bump()?;
        let value = self.deeper(Self::initial_value)?;
        self.expect(')')?;
        match value {
            Initial::Integer(number) => self.rest_of_expression(number).map(Initial::Integer),
            Initial::Symbol { name, offset, mask } => {
                let offset = offset.wrapping_add(self.distance()?);
                Ok(Initial::Symbol { name, offset, mask })
            }
            Initial::Float(..) | Initial::Zeros(_) => Ok(value),
        }
    }

    /// `name+4`, `generic(name)+4`.
    fn initial_symbol(&mut self, mask: Option<u64>) -> Result<Initial<'t>, Refusal> {
        let (mut name, mut offset) = self.symbol()?;
        if name == "generic" && offset == 0 && self.takes('(')? {
            (name, offset) = self.symbol()?;
            self.expect(')')?;
            offset = offset.wrapping_add(self.distance()?);
        }
        Ok(Initial::Symbol { name, offset, mask })
    }
}
