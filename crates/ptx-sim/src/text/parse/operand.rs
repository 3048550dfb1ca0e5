//! Operands of instructions.

#![expect(clippy::wildcard_enum_match_arm, reason = "operands of any other form are themselves")]

use super::{Parser, unexpected};
use crate::refusal::Refusal;
use crate::text::lex::Token;
use crate::text::syntax::Operand;

impl<'t> Parser<'t> {
    /// Operands up to the semicolon. Parentheses open a list of arguments where `is_call` says so.
    pub(super) fn operands(&mut self, is_call: bool) -> Result<Vec<Operand<'t>>, Refusal> {
        let mut operands = Vec::new();
        if self.takes(';')? {
            return Ok(operands);
        }
        loop {
            if is_call && self.takes('(')? {
                operands.push(Operand::Group(self.list(')')?));
            } else {
                operands.push(self.operand()?);
            }
            if self.takes(';')? {
                return Ok(operands);
            }
            self.expect(',')?;
        }
    }

    /// Operands up to the sign that ends them, which may be none.
    fn list(&mut self, end: char) -> Result<Vec<Operand<'t>>, Refusal> {
        let mut operands = Vec::new();
        if self.takes(end)? {
            return Ok(operands);
        }
        loop {
            operands.push(self.operand()?);
            if self.takes(end)? {
                return Ok(operands);
            }
            self.expect(',')?;
        }
    }

    fn operand(&mut self) -> Result<Operand<'t>, Refusal> {
        self.deeper(|parser| {
            let first = parser.single()?;
            if parser.takes('|')? {
                return Ok(Operand::Pair(Box::new(first), Box::new(parser.operand()?)));
            }
            Ok(first)
        })
    }

    /// An operand without what may stand behind `|`.
    fn single(&mut self) -> Result<Operand<'t>, Refusal> {
        match self.peek() {
            Some(Token::Word("WARP_SZ") | Token::Sign('(' | '~')) => self.expression().map(Operand::Integer),
            Some(Token::Integer(_)) => self.expression().map(Operand::Integer),
            Some(Token::Sign('-' | '+')) => self.signed(),
            Some(Token::Word(_)) => {
                let name = self.name()?;
                if name == "_" {
                    return Ok(Operand::Sink);
                }
                match self.distance()? {
                    0 => Ok(Operand::Name(name)),
                    distance => Ok(Operand::Sum(name, distance)),
                }
            }
            _ => self.marked(),
        }
    }

    /// A number or name behind a sign.
    fn signed(&mut self) -> Result<Operand<'t>, Refusal> {
        let minus = self.takes('-')?;
        if !minus {
            self.expect('+')?;
        }
        match self.peek() {
            Some(Token::Float(bits, size)) => {
                self.bump()?;
                let sign = if minus { 1 << (size - 1) } else { 0 };
                Ok(Operand::Float(bits ^ sign, size))
            }
            Some(Token::Word(word)) if minus && word != "WARP_SZ" => Ok(Operand::Minus(self.name()?)),
            _ => {
                let first = self.unary()?;
                let first = if minus { first.wrapping_neg() } else { first };
                self.rest_of_expression(first).map(Operand::Integer)
            }
        }
    }

    /// What begins with a sign of its own.
    fn marked(&mut self) -> Result<Operand<'t>, Refusal> {
        let taken = self.bump()?;
        match taken.token {
            Token::Float(bits, size) => Ok(Operand::Float(bits, size)),
            Token::Sign('!') => self.name().map(Operand::Not),
            Token::Sign('{') => self.list('}').map(Operand::List),
            Token::Sign('[') => self.address(),
            Token::Sign(_) | Token::Word(_) | Token::Quoted(_) | Token::Integer(_) => Err(unexpected(taken)),
        }
    }

    /// `[name]`, `[name+4]`, `[name+-4]`, `[4096]`, or `[name, {a, b}]`, behind the bracket.
    fn address(&mut self) -> Result<Operand<'t>, Refusal> {
        let (base, distance) = match self.operand()? {
            Operand::Sum(name, distance) => (Operand::Name(name), distance),
            other => (other, 0),
        };
        if !self.takes(',')? {
            self.expect(']')?;
            return Ok(Operand::Address(Box::new(base), distance));
        }
        let mut parts = vec![base];
        parts.extend(self.list(']')?);
        Ok(Operand::Address(Box::new(Operand::List(parts)), distance))
    }
}
