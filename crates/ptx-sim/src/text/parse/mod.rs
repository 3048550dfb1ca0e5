//! From tokens to the tree.
//!
//! Reading order: this file (tokens one by one, and a text's head), `item` (what stands outside of functions),
//! `function`, `variable`, `statement`, `operand`, `number` (constant expressions).
//!
//! **Invariants:** whatever the text, parsing ends, does not panic, and recurses at most [`MAX_DEPTH`] deep. The first
//! thing that is malformed refuses the text, with its place. What is well formed is kept, supported or not.

mod function;
mod item;
mod number;
mod operand;
mod statement;
#[cfg(test)]
mod tests;
mod variable;

use super::Place;
use super::lex::{Lexer, Placed, Token};
use super::syntax::Text;
use crate::refusal::{Refusal, RefusalKind};

/// What the driver and the device understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The newest version of PTX, times ten.
    pub version: u32,
    /// The device's compute capability, times ten.
    pub target: u32,
}

/// How deep blocks, operands and expressions may stand inside each other.
const MAX_DEPTH: usize = 48;

/// Reads one text.
pub(crate) fn parse(text: &str, limits: Limits) -> Result<Text<'_>, Refusal> {
    let mut parser = Parser::new(text)?;
    let (version, target) = parser.head(limits)?;
    let mut text = Text { version, target, items: Vec::new(), files: Vec::new() };
    while parser.ahead.is_some() {
        parser.item(&mut text)?;
    }
    Ok(text)
}

/// Tokens, one of them ahead.
#[derive(Debug)]
struct Parser<'t> {
    lexer: Lexer<'t>,
    ahead: Option<Placed<'t>>,
    /// How deep the parser stands in blocks, operands and expressions.
    depth: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Self, Refusal> {
        let mut lexer = Lexer::new(text);
        let ahead = lexer.next()?;
        Ok(Self { lexer, ahead, depth: 0 })
    }

    /// The token that comes next.
    fn peek(&self) -> Option<Token<'t>> {
        self.ahead.map(|placed| placed.token)
    }

    /// Where it stands.
    fn here(&self) -> Place {
        self.ahead.map_or_else(|| self.lexer.place(), |placed| placed.at)
    }

    /// Takes the next token.
    fn bump(&mut self) -> Result<Placed<'t>, Refusal> {
        let taken = self.ahead.ok_or_else(|| Refusal::invalid(self.here(), "the text ends too early"))?;
        self.ahead = self.lexer.next()?;
        Ok(taken)
    }

    fn takes(&mut self, sign: char) -> Result<bool, Refusal> {
        let found = self.peek() == Some(Token::Sign(sign));
        if found {
            self.bump()?;
        }
        Ok(found)
    }

    fn takes_word(&mut self, wanted: &str) -> Result<bool, Refusal> {
        let found = self.peek() == Some(Token::Word(wanted));
        if found {
            self.bump()?;
        }
        Ok(found)
    }

    fn expect(&mut self, sign: char) -> Result<(), Refusal> {
        if self.takes(sign)? {
            return Ok(());
        }
        let found = self.ahead.map_or_else(|| "the end".to_owned(), |placed| format!("'{}'", placed.text));
        Err(Refusal::invalid(self.here(), format!("'{sign}' is missing before {found}")))
    }

    fn word(&mut self) -> Result<&'t str, Refusal> {
        let taken = self.bump()?;
        if let Token::Word(word) = taken.token { Ok(word) } else { Err(unexpected(taken)) }
    }

    /// A word that is a name rather than a directive.
    fn name(&mut self) -> Result<&'t str, Refusal> {
        let taken = self.bump()?;
        match taken.token {
            Token::Word(word) if !word.starts_with('.') => Ok(word),
            Token::Word(_) | Token::Quoted(_) | Token::Integer(_) | Token::Float(..) | Token::Sign(_) => {
                Err(unexpected(taken))
            }
        }
    }

    fn quoted(&mut self) -> Result<&'t str, Refusal> {
        let taken = self.bump()?;
        if let Token::Quoted(text) = taken.token { Ok(text) } else { Err(unexpected(taken)) }
    }

    fn integer(&mut self) -> Result<u64, Refusal> {
        let taken = self.bump()?;
        if let Token::Integer(number) = taken.token { Ok(number) } else { Err(unexpected(taken)) }
    }

    /// An integer that must fit 32 bits.
    fn small(&mut self) -> Result<u32, Refusal> {
        let at = self.here();
        let number = self.integer()?;
        u32::try_from(number).map_err(|_| Refusal::invalid(at, format!("{number} is too large")))
    }

    /// Something that may stand inside itself, one level deeper.
    fn deeper<R>(&mut self, read: impl FnOnce(&mut Self) -> Result<R, Refusal>) -> Result<R, Refusal> {
        if self.depth == MAX_DEPTH {
            return Err(Refusal::invalid(self.here(), format!("more than {MAX_DEPTH} levels inside each other")));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Skips what stands between a bracket that was taken and the one that closes it.
    fn skip_to(&mut self, open: char, close: char) -> Result<(), Refusal> {
        let mut inside = 1_usize;
        while inside > 0 {
            match self.bump()?.token {
                Token::Sign(sign) if sign == open => inside += 1,
                Token::Sign(sign) if sign == close => inside -= 1,
                Token::Sign(_) | Token::Word(_) | Token::Quoted(_) | Token::Integer(_) | Token::Float(..) => {}
            }
        }
        Ok(())
    }

    /// `.version`, `.target` and `.address_size`; version times ten, and target.
    fn head(&mut self, limits: Limits) -> Result<(u32, u32), Refusal> {
        if !self.takes_word(".version")? {
            return Err(Refusal::invalid(self.here(), "there is no .version"));
        }
        let version = self.version(limits)?;
        if !self.takes_word(".target")? {
            return Err(Refusal::invalid(self.here(), "there is no .target"));
        }
        let mut target = None;
        loop {
            let at = self.here();
            let word = self.word()?;
            match word {
                "texmode_independent" | "texmode_unified" | "debug" | "map_f64_to_f32" => {}
                _ => target = Some(check_target(word, limits, at)?),
            }
            if !self.takes(',')? {
                break;
            }
        }
        let target = target.ok_or_else(|| Refusal::invalid(self.here(), "the target names no device"))?;
        let at = self.here();
        if self.takes_word(".address_size")? && self.integer()? != 64 {
            return Err(Refusal::not_supported(at, "addresses of other sizes than 64"));
        }
        Ok((version, target))
    }

    fn version(&mut self, limits: Limits) -> Result<u32, Refusal> {
        let taken = self.bump()?;
        let numbers = taken.text.split_once('.').and_then(|(major, minor)| {
            let minor: u32 = minor.parse().ok().filter(|&minor| minor < 10)?;
            major.parse::<u32>().ok()?.checked_mul(10)?.checked_add(minor)
        });
        match numbers {
            None => Err(unexpected(taken)),
            Some(version) if version > limits.version => {
                let text = format!("version {} is newer than what the driver reads", taken.text);
                Err(Refusal { kind: RefusalKind::NewerVersion, place: taken.at, function: String::new(), text })
            }
            Some(version) => Ok(version),
        }
    }
}

/// The number of `sm_90`, `sm_90a` (of that device alone), `sm_100f` (of its family) or `compute_90`.
fn check_target(word: &str, limits: Limits, at: Place) -> Result<u32, Refusal> {
    let name = word.strip_prefix("sm_").or_else(|| word.strip_prefix("compute_"));
    let name = name.ok_or_else(|| Refusal::invalid(at, format!("'{word}' is not a target")))?;
    let digits = name.trim_end_matches(['a', 'f']);
    let number: u32 = digits.parse().map_err(|_| Refusal::invalid(at, format!("'{word}' is not a target")))?;
    let fits = match &name[digits.len()..] {
        "" => number <= limits.target,
        "a" => number == limits.target,
        "f" => number <= limits.target && number / 10 == limits.target / 10,
        _ => return Err(Refusal::invalid(at, format!("'{word}' is not a target"))),
    };
    match fits {
        true => Ok(number),
        false => Err(Refusal::invalid(at, format!("{word} is not for a device of sm_{}", limits.target))),
    }
}

fn unexpected(found: Placed<'_>) -> Refusal {
    Refusal::invalid(found.at, format!("unexpected '{}'", found.text))
}
