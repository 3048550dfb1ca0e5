//! `.entry` and `.func`: their heads, parameters and tuning.

use super::{Parser, unexpected};
use crate::refusal::Refusal;
use crate::text::lex::Token;
use crate::text::syntax::{FunctionText, Linkage, Tuning};

impl<'t> Parser<'t> {
    /// A function behind `.entry` or `.func`.
    pub(super) fn function(&mut self, linkage: Linkage, is_entry: bool) -> Result<FunctionText<'t>, Refusal> {
        let mut tuning = Tuning::default();
        self.directives(&mut tuning)?;
        let returns = if self.takes('(')? { self.parameters()? } else { Vec::new() };
        let at = self.here();
        let name = self.name()?;
        let in_function = |refusal: Refusal| refusal.in_function(name);
        let parameters = if self.takes('(')? { self.parameters().map_err(in_function)? } else { Vec::new() };
        self.directives(&mut tuning).map_err(in_function)?;
        let mut body = None;
        if self.takes('{')? {
            body = Some(self.block().map_err(in_function)?);
        } else {
            // Compilers end a declaration with a semicolon, but it may be left out.
            self.takes(';')?;
        }
        Ok(FunctionText { linkage, is_entry, name, at, returns, parameters, tuning, body })
    }

    /// Directives between the parameters and the body, or before the name.
    pub(super) fn directives(&mut self, tuning: &mut Tuning) -> Result<(), Refusal> {
        while let Some(Token::Word(word)) = self.peek()
            && word.starts_with('.')
        {
            let taken = self.bump()?;
            match word {
                ".maxntid" => tuning.max_threads = Some(self.three()?),
                ".reqntid" => tuning.required_threads = Some(self.three()?),
                ".minnctapersm" => tuning.min_blocks = Some(self.small()?),
                ".maxnreg" => tuning.max_registers = Some(self.small()?),
                ".reqnctapercluster" => tuning.clusters |= self.three()? != [1; 3],
                ".maxclusterrank" | ".maxnctapersm" | ".abi_preserve" | ".abi_preserve_control" => {
                    self.small()?;
                }
                ".blocksareclusters" => tuning.clusters = true,
                ".explicitcluster" | ".noreturn" | ".unique" => {}
                ".attribute" => self.attribute()?,
                ".pragma" => self.pragma()?,
                _ => return Err(unexpected(taken)),
            }
        }
        Ok(())
    }

    /// One to three numbers, missing ones as 1.
    fn three(&mut self) -> Result<[u32; 3], Refusal> {
        let mut numbers = [self.small()?, 1, 1];
        for number in &mut numbers[1..] {
            if !self.takes(',')? {
                break;
            }
            *number = self.small()?;
        }
        Ok(numbers)
    }

    /// `"nounroll", "other";`
    pub(super) fn pragma(&mut self) -> Result<(), Refusal> {
        loop {
            self.quoted()?;
            if !self.takes(',')? {
                return self.expect(';');
            }
        }
    }
}
