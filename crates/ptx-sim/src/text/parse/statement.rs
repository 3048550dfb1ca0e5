//! What stands in a body.

use super::{Parser, unexpected};
use crate::refusal::Refusal;
use crate::text::Place;
use crate::text::lex::{Placed, Token};
use crate::text::syntax::{InstructionText, Linkage, Statement, Tuning};

impl<'t> Parser<'t> {
    /// Statements up to the brace that closes the block.
    pub(super) fn block(&mut self) -> Result<Vec<Statement<'t>>, Refusal> {
        let mut statements = Vec::new();
        while !self.takes('}')? {
            self.statement(&mut statements)?;
        }
        Ok(statements)
    }

    fn statement(&mut self, statements: &mut Vec<Statement<'t>>) -> Result<(), Refusal> {
        let linkage = self.linkage()?;
        let taken = self.bump()?;
        match taken.token {
            Token::Sign('{') => statements.push(Statement::Block(self.deeper(Self::block)?)),
            Token::Sign('@') => {
                let negate = self.takes('!')?;
                let guard = Some((self.name()?, negate));
                let word = self.name()?;
                statements.push(self.instruction(guard, word, taken.at)?);
            }
            Token::Word(word) if word.starts_with('.') => self.directive(linkage, taken, statements)?,
            Token::Word(name) if self.takes(':')? => {
                let labelled = self.labelled(name, taken.at)?;
                statements.push(labelled);
            }
            Token::Word(word) => statements.push(self.instruction(None, word, taken.at)?),
            Token::Sign(_) | Token::Quoted(_) | Token::Integer(_) | Token::Float(..) => return Err(unexpected(taken)),
        }
        Ok(())
    }

    fn instruction(
        &mut self,
        guard: Option<(&'t str, bool)>,
        word: &'t str,
        at: Place,
    ) -> Result<Statement<'t>, Refusal> {
        let operands = self.operands(word == "call" || word == "call.uni")?;
        Ok(Statement::Instruction(InstructionText { guard, word, operands, at }))
    }

    fn directive(
        &mut self,
        linkage: Linkage,
        taken: Placed<'t>,
        statements: &mut Vec<Statement<'t>>,
    ) -> Result<(), Refusal> {
        let Token::Word(word) = taken.token else { return Err(unexpected(taken)) };
        match word {
            ".reg" => statements.push(self.registers(taken.at)?),
            ".param" | ".local" | ".shared" | ".global" | ".const" => {
                self.variables(linkage, &word[1..], |variable| statements.push(Statement::Variable(variable)))?;
            }
            ".loc" => {
                let (file, line) = self.location()?;
                statements.push(Statement::Location { file, line });
            }
            ".pragma" => self.pragma()?,
            ".file" => {
                self.file()?;
            }
            _ => return Err(unexpected(taken)),
        }
        Ok(())
    }

    /// `.v2 .f32 %v<4>, %x;`
    fn registers(&mut self, at: Place) -> Result<Statement<'t>, Refusal> {
        let (mut vector, mut names) = (1, Vec::new());
        let ty = loop {
            let taken = self.bump()?;
            match taken.token {
                Token::Word(".v2") => vector = 2,
                Token::Word(".v4") => vector = 4,
                Token::Word(word) if word.starts_with('.') => break &word[1..],
                Token::Word(_) | Token::Sign(_) | Token::Quoted(_) | Token::Integer(_) | Token::Float(..) => {
                    return Err(unexpected(taken));
                }
            }
        };
        loop {
            let name = self.name()?;
            let mut count = None;
            if self.takes('<')? {
                count = Some(self.small()?);
                self.expect('>')?;
            }
            names.push((name, count));
            if self.takes(';')? {
                return Ok(Statement::Registers { ty, vector, names, at });
            }
            self.expect(',')?;
        }
    }

    /// What a name and a colon stand before.
    fn labelled(&mut self, name: &'t str, at: Place) -> Result<Statement<'t>, Refusal> {
        if self.takes_word(".callprototype")? {
            let returns = if self.takes('(')? { self.parameters()? } else { Vec::new() };
            self.name()?;
            let parameters = if self.takes('(')? { self.parameters()? } else { Vec::new() };
            self.directives(&mut Tuning::default())?;
            self.expect(';')?;
            return Ok(Statement::Prototype { name, returns, parameters, at });
        }
        if !self.takes_word(".branchtargets")? && !self.takes_word(".calltargets")? {
            return Ok(Statement::Label { name, at });
        }
        let mut targets = Vec::new();
        loop {
            targets.push(self.name()?);
            if self.takes(';')? {
                return Ok(Statement::Targets { name, targets, at });
            }
            self.expect(',')?;
        }
    }
}
