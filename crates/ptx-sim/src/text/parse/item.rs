//! What stands outside of functions.

use super::{Parser, unexpected};
use crate::refusal::Refusal;
use crate::text::lex::Token;
use crate::text::syntax::{Item, Linkage, Text};

impl<'t> Parser<'t> {
    /// One directive.
    pub(super) fn item(&mut self, text: &mut Text<'t>) -> Result<(), Refusal> {
        let linkage = self.linkage()?;
        let taken = self.bump()?;
        let Token::Word(word) = taken.token else { return Err(unexpected(taken)) };
        match word {
            ".entry" | ".func" => {
                let function = self.function(linkage, word == ".entry")?;
                text.items.push(Item::Function(function));
            }
            ".global" | ".const" | ".shared" | ".local" | ".tex" | ".param" | ".reg" => {
                self.variables(linkage, &word[1..], |variable| text.items.push(Item::Variable(variable)))?;
            }
            ".alias" => {
                let name = self.name()?;
                self.expect(',')?;
                text.items.push(Item::Alias { name, of: self.name()?, at: taken.at });
                self.expect(';')?;
            }
            ".file" => {
                let file = self.file()?;
                text.files.push(file);
            }
            ".section" => self.section()?,
            ".pragma" => self.pragma()?,
            ".loc" => {
                self.location()?;
            }
            _ => return Err(unexpected(taken)),
        }
        Ok(())
    }

    /// Words before a declaration; the last one that stands there counts.
    pub(super) fn linkage(&mut self) -> Result<Linkage, Refusal> {
        let mut linkage = Linkage::Private;
        while let Some(Token::Word(word)) = self.peek() {
            linkage = match word {
                ".visible" => Linkage::Visible,
                ".extern" => Linkage::Extern,
                ".weak" => Linkage::Weak,
                ".common" => Linkage::Common,
                _ => break,
            };
            self.bump()?;
        }
        Ok(linkage)
    }

    /// `1 "name"`, `1 "name", time, size`.
    pub(super) fn file(&mut self) -> Result<(u32, &'t str), Refusal> {
        let number = self.small()?;
        let name = self.quoted()?;
        while self.takes(',')? {
            self.integer()?;
        }
        Ok((number, name))
    }

    /// A section of debug data, which is skipped. Its name may have several words.
    fn section(&mut self) -> Result<(), Refusal> {
        loop {
            let taken = self.bump()?;
            match taken.token {
                Token::Sign('{') => return self.skip_to('{', '}'),
                Token::Word(_) | Token::Quoted(_) | Token::Sign(',') => {}
                Token::Sign(_) | Token::Integer(_) | Token::Float(..) => return Err(unexpected(taken)),
            }
        }
    }

    /// `file line column`, and of an inlined function `, function_name label+4, inlined_at file line column`.
    pub(super) fn location(&mut self) -> Result<(u32, u32), Refusal> {
        let (file, line, _column) = (self.small()?, self.small()?, self.small()?);
        while self.takes(',')? {
            let taken = self.bump()?;
            match taken.token {
                Token::Word("function_name") => {
                    self.symbol()?;
                }
                Token::Word("inlined_at") => {
                    (0..3).try_for_each(|_| self.small().map(|_| ()))?;
                }
                Token::Word(_) | Token::Quoted(_) | Token::Sign(_) | Token::Integer(_) | Token::Float(..) => {
                    return Err(unexpected(taken));
                }
            }
        }
        Ok((file, line))
    }
}
