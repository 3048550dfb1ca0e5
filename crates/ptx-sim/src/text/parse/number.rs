//! Constant expressions of integers, and sums of a name and integers.
//!
//! Integers have 64 bits and wrap. The operators are `* + - << >> & ^ |`, by their precedence in C, the unary `- + ~`,
//! and parentheses.

use super::{Parser, unexpected};
use crate::refusal::Refusal;
use crate::text::lex::Token;

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Multiply,
    Add,
    Subtract,
    Left,
    Right,
    And,
    Xor,
    Or,
}

impl Operator {
    fn of(sign: char) -> Option<Self> {
        Some(match sign {
            '*' => Self::Multiply,
            '+' => Self::Add,
            '-' => Self::Subtract,
            '<' => Self::Left,
            '>' => Self::Right,
            '&' => Self::And,
            '^' => Self::Xor,
            '|' => Self::Or,
            _ => return None,
        })
    }

    /// How tightly it binds.
    fn level(self) -> u8 {
        match self {
            Self::Multiply => 6,
            Self::Add | Self::Subtract => 5,
            Self::Left | Self::Right => 4,
            Self::And => 3,
            Self::Xor => 2,
            Self::Or => 1,
        }
    }

    fn apply(self, a: u64, b: u64) -> u64 {
        let bits = u32::try_from(b).unwrap_or(u32::MAX);
        match self {
            Self::Multiply => a.wrapping_mul(b),
            Self::Add => a.wrapping_add(b),
            Self::Subtract => a.wrapping_sub(b),
            Self::Left => a.checked_shl(bits).unwrap_or(0),
            Self::Right => a.checked_shr(bits).unwrap_or(0),
            Self::And => a & b,
            Self::Xor => a ^ b,
            Self::Or => a | b,
        }
    }
}

impl<'t> Parser<'t> {
    /// A whole expression.
    pub(super) fn expression(&mut self) -> Result<u64, Refusal> {
        let first = self.unary()?;
        self.rest_of_expression(first)
    }

    /// What follows the first operand of an expression.
    pub(super) fn rest_of_expression(&mut self, first: u64) -> Result<u64, Refusal> {
        self.climb(first, 1)
    }

    /// The operators that follow `left` and bind at least as tightly as `level`.
    fn climb(&mut self, mut left: u64, level: u8) -> Result<u64, Refusal> {
        while let Some(Token::Sign(sign)) = self.peek()
            && let Some(operator) = Operator::of(sign).filter(|operator| operator.level() >= level)
        {
            self.bump()?;
            if matches!(operator, Operator::Left | Operator::Right) {
                self.expect(sign)?;
            }
            let first = self.unary()?;
            let right = self.climb(first, operator.level() + 1)?;
            left = operator.apply(left, right);
        }
        Ok(left)
    }

    pub(super) fn unary(&mut self) -> Result<u64, Refusal> {
        self.deeper(|parser| {
            let taken = parser.bump()?;
            match taken.token {
                Token::Integer(number) => Ok(number),
                Token::Word("WARP_SZ") => Ok(32),
                Token::Sign('-') => Ok(parser.unary()?.wrapping_neg()),
                Token::Sign('+') => parser.unary(),
                Token::Sign('~') => Ok(!parser.unary()?),
                Token::Sign('(') => {
                    let number = parser.expression()?;
                    parser.expect(')')?;
                    Ok(number)
                }
                Token::Sign(_) | Token::Word(_) | Token::Quoted(_) | Token::Float(..) => Err(unexpected(taken)),
            }
        })
    }

    /// What is added to a name that was taken: `+4`, `+-4`, `-4`, `+8*2`; 0 where nothing is.
    pub(super) fn distance(&mut self) -> Result<u64, Refusal> {
        match self.peek() {
            Some(Token::Sign('+' | '-')) => self.climb(0, Operator::Add.level()),
            _ => Ok(0),
        }
    }

    /// A name and what is added to it, in parentheses or not.
    pub(super) fn symbol(&mut self) -> Result<(&'t str, u64), Refusal> {
        if !self.takes('(')? {
            let name = self.name()?;
            return Ok((name, self.distance()?));
        }
        let (name, inside) = self.deeper(Self::symbol)?;
        self.expect(')')?;
        Ok((name, inside.wrapping_add(self.distance()?)))
    }
}
