//! Directives and statements: text becomes kernels.
//!
//! Declarations come before their use, labels anywhere in the kernel. What is not understood is refused with its line.

#![expect(clippy::wildcard_enum_match_arm, reason = "any other token is one that was not expected")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::decode::{Names, Operand, decode};
use super::lex::{Placed, Token, tokens};
use super::program::{Action, Instruction, Kernel, Parameter, Register, Type};
use super::{Refusal, RefusalKind};

/// What the driver and the device understand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The newest version of PTX, times ten.
    pub(crate) version: u32,
    /// The device's compute capability, times ten.
    pub(crate) target: u32,
}

/// The most threads that a block may have on any device.
const MAX_THREADS: u32 = 1024;

/// The most registers that the text may declare for a kernel.
const MAX_REGISTERS: usize = 1 << 14;

/// The most bytes of shared memory that a kernel may name itself.
const MAX_SHARED_BYTES: u64 = 48 << 10;

/// How deep blocks may stand inside each other.
const MAX_DEPTH: usize = 16;

/// The function of other code that can be called: the driver brings it.
const SET_CONDITIONAL: &str = "cudaGraphSetConditional";

/// The most bytes of parameters.
const MAX_PARAMETER_BYTES: usize = 4096;

/// Reads text into its kernels, in their order.
pub(crate) fn parse(text: &str, limits: Limits) -> Result<Vec<Arc<Kernel>>, Refusal> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, sets_conditions: false };
    parser.head(limits)?;
    let (mut kernels, mut shared) = (Vec::new(), Vec::new());
    while let Some(word) = parser.next_word()? {
        match word.as_str() {
            ".visible" | ".weak" | ".extern" => {}
            ".file" => parser.skip_numbers(),
            ".shared" => {
                let (name, None) = parser.shared_variable(&mut 0)? else {
                    return Err(Refusal::not_simulated(parser.line(), ".shared of a size outside of kernels"));
                };
                shared.push(name);
            }
            ".func" if parser.takes_word(SET_CONDITIONAL) => parser.set_conditional()?,
            ".entry" => {
                let line = parser.line();
                let kernel = parser.kernel(&shared)?;
                if kernels.iter().any(|known: &Arc<Kernel>| known.name == kernel.name) {
                    return Err(Refusal::invalid(line, format!("kernel '{}' stands twice", kernel.name)));
                }
                kernels.push(Arc::new(kernel));
            }
            ".func" | ".global" | ".const" | ".tex" | ".alias" | ".common" | ".pragma" | ".section" => {
                return Err(Refusal::not_simulated(parser.line(), word));
            }
            _ => return Err(parser.unexpected(&word)),
        }
    }
    Ok(kernels)
}

struct Parser {
    tokens: Vec<Placed>,
    at: usize,
    /// Whether [`SET_CONDITIONAL`] was declared.
    sets_conditions: bool,
}

impl Parser {
    /// Line of the token that was taken last.
    fn line(&self) -> u32 {
        self.tokens.get(self.at.saturating_sub(1)).map_or(1, |(_, line)| *line)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn next(&mut self) -> Result<Token, Refusal> {
        let found = self.peek().cloned().ok_or_else(|| Refusal::invalid(self.line(), "the text ends too early"))?;
        self.at += 1;
        Ok(found)
    }

    fn unexpected(&self, what: &str) -> Refusal {
        Refusal::invalid(self.line(), format!("unexpected '{what}'"))
    }

    /// The word that comes next; none at the end.
    fn next_word(&mut self) -> Result<Option<String>, Refusal> {
        if self.peek().is_none() {
            return Ok(None);
        }
        self.word().map(Some)
    }

    fn word(&mut self) -> Result<String, Refusal> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            other => Err(self.unexpected(&describe(&other))),
        }
    }

    fn integer(&mut self) -> Result<u64, Refusal> {
        match self.next()? {
            Token::Integer(number) => Ok(number),
            other => Err(self.unexpected(&describe(&other))),
        }
    }

    fn takes(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn takes_word(&mut self, wanted: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(word)) if word == wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: char) -> Result<(), Refusal> {
        if self.takes(sign) {
            return Ok(());
        }
        let found = self.peek().map_or_else(|| "the end".to_owned(), describe);
        Err(Refusal::invalid(self.line(), format!("'{sign}' is missing before {found}")))
    }

    /// `.version`, `.target` and `.address_size`.
    fn head(&mut self, limits: Limits) -> Result<(), Refusal> {
        if !self.takes_word(".version") {
            return Err(Refusal::invalid(self.line(), "there is no .version"));
        }
        let version = match self.next()? {
            Token::Float(bits, 64) => f64::from_bits(bits),
            other => return Err(self.unexpected(&describe(&other))),
        };
        if version * 10.0 > f64::from(limits.version) + 0.5 {
            let text = format!("version {version} is newer than what the driver reads");
            return Err(Refusal { kind: RefusalKind::NewerVersion, line: self.line(), text });
        }
        if !self.takes_word(".target") {
            return Err(Refusal::invalid(self.line(), "there is no .target"));
        }
        let target = self.word()?;
        let number = target.strip_prefix("sm_").map(|number| number.trim_end_matches(['a', 'f']));
        match number.and_then(|number| number.parse::<u32>().ok()) {
            Some(number) if number <= limits.target => {}
            Some(_) => return Err(Refusal::invalid(self.line(), format!("the device is older than {target}"))),
            None => return Err(self.unexpected(&target)),
        }
        while self.takes(',') {
            self.word()?;
        }
        if self.takes_word(".address_size") && self.integer()? != 64 {
            return Err(Refusal::not_simulated(self.line(), "addresses of other sizes than 64"));
        }
        Ok(())
    }

    fn skip_numbers(&mut self) {
        while let Some(Token::Integer(_) | Token::Sign(',')) = self.peek() {
            self.at += 1;
        }
        if let Some(Token::Word(word)) = self.peek()
            && !word.starts_with('.')
        {
            self.at += 1;
        }
    }

    /// The parameters of [`SET_CONDITIONAL`], which has no body.
    fn set_conditional(&mut self) -> Result<(), Refusal> {
        self.expect('(')?;
        let sizes: Vec<usize> =
            self.parameters(&mut Names::default())?.iter().map(|parameter| parameter.size).collect();
        if sizes != [8, 4] {
            return Err(Refusal::invalid(self.line(), format!("wrong parameters of '{SET_CONDITIONAL}'")));
        }
        self.takes(';');
        self.sets_conditions = true;
        Ok(())
    }

    fn kernel(&mut self, shared: &[String]) -> Result<Kernel, Refusal> {
        let name = self.word()?;
        let mut names = Names::default();
        let parameters = if self.takes('(') { self.parameters(&mut names)? } else { Vec::new() };
        let max_threads = self.tuning()?;
        self.expect('{')?;
        let mut body = Body {
            names,
            shared_bytes: 0,
            code: Vec::new(),
            labels: BTreeMap::new(),
            branches: Vec::new(),
            scopes: Vec::new(),
            in_blocks: BTreeSet::new(),
        };
        body.names.shared.extend(shared.iter().map(|name| (name.clone(), None)));
        while !self.takes('}') {
            self.statement(&mut body)?;
        }
        body.finish(name, parameters, max_threads)
    }

    /// Parameters up to the closing parenthesis.
    fn parameters(&mut self, names: &mut Names) -> Result<Vec<Parameter>, Refusal> {
        let (mut parameters, mut end) = (Vec::new(), 0_usize);
        if self.takes(')') {
            return Ok(parameters);
        }
        loop {
            if self.word()? != ".param" {
                return Err(self.unexpected("declaration"));
            }
            let (name, ty, align, count) = self.variable()?;
            let size = usize::try_from(ty.bytes().saturating_mul(count.unwrap_or(1))).unwrap_or(usize::MAX);
            let offset = end.next_multiple_of(align);
            end = offset.saturating_add(size);
            if end > MAX_PARAMETER_BYTES {
                return Err(Refusal::invalid(self.line(), "there are too many parameters"));
            }
            names.parameters.insert(name, offset as u64);
            parameters.push(Parameter { offset, size });
            if self.takes(')') {
                return Ok(parameters);
            }
            self.expect(',')?;
        }
    }

    /// The rest of a declaration: type, alignment, name, and the number of elements of an array (0 where left open).
    fn variable(&mut self) -> Result<(String, Type, usize, Option<u64>), Refusal> {
        let (mut ty, mut align) = (None, None);
        let name = loop {
            let word = self.word()?;
            match word.as_str() {
                ".align" => align = usize::try_from(self.integer()?).ok().filter(|align| align.is_power_of_two()),
                ".ptr" | ".global" | ".shared" | ".const" | ".local" => {}
                _ if word.starts_with('.') => {
                    ty = Some(Type::of(&word[1..]).ok_or_else(|| self.unexpected(&word))?);
                }
                _ => break word,
            }
        };
        let ty = ty.ok_or_else(|| self.unexpected(&name))?;
        let natural = usize::from(ty.bits.div_ceil(8));
        // The alignment after `.ptr` is that of what the parameter points to.
        let align = if align.is_some() && self.peek() == Some(&Token::Sign('[')) { align } else { None };
        let count = match self.takes('[') {
            true if self.takes(']') => Some(0),
            true => {
                let count = self.integer()?;
                self.expect(']')?;
                Some(count)
            }
            false => None,
        };
        Ok((name, ty, align.unwrap_or(natural).max(natural), count))
    }

    /// A variable of shared memory behind those before it.
    fn shared_variable(&mut self, end: &mut u64) -> Result<(String, Option<u64>), Refusal> {
        let (name, ty, align, count) = self.variable()?;
        self.expect(';')?;
        let bytes = ty.bytes().saturating_mul(count.unwrap_or(1));
        if count == Some(0) {
            return Ok((name, None));
        }
        let offset = end.next_multiple_of(align as u64);
        *end = offset.saturating_add(bytes);
        if *end > MAX_SHARED_BYTES {
            return Err(Refusal::invalid(self.line(), format!("there is not enough shared memory for '{name}'")));
        }
        Ok((name, Some(offset)))
    }

    /// Directives between parameters and body; the most threads of a block.
    fn tuning(&mut self) -> Result<u32, Refusal> {
        let mut max_threads = MAX_THREADS;
        while let Some(Token::Word(word)) = self.peek().cloned() {
            self.at += 1;
            match word.as_str() {
                ".maxntid" | ".reqntid" => {
                    let mut threads = self.integer()?;
                    while self.takes(',') {
                        threads = threads.saturating_mul(self.integer()?);
                    }
                    max_threads = u32::try_from(threads).unwrap_or(MAX_THREADS).clamp(1, MAX_THREADS);
                }
                ".minnctapersm" | ".maxnreg" => {
                    self.integer()?;
                }
                _ => return Err(self.unexpected(&word)),
            }
        }
        Ok(max_threads)
    }

    /// A block inside a kernel. Blocks beside each other may use the same names, which then are the same registers.
    fn block(&mut self, body: &mut Body) -> Result<(), Refusal> {
        if body.scopes.len() == MAX_DEPTH {
            return Err(Refusal::not_simulated(self.line(), "blocks this deep"));
        }
        body.scopes.push(BTreeSet::new());
        while !self.takes('}') {
            self.statement(body)?;
        }
        body.scopes.pop();
        Ok(())
    }

    fn statement(&mut self, body: &mut Body) -> Result<(), Refusal> {
        let token = self.next()?;
        let line = self.line();
        match token {
            Token::Sign('{') => self.block(body),
            Token::Sign(';') => Ok(()),
            Token::Sign('@') => {
                let unless = self.takes('!');
                let name = self.word()?;
                let register = body.names.register(&name, line)?;
                if register.bits != 1 {
                    return Err(Refusal::invalid(line, format!("'{name}' is no predicate")));
                }
                let word = self.word()?;
                self.instruction(&word, Some((register, !unless)), body)
            }
            Token::Word(word) if self.takes(':') => {
                if body.labels.insert(word.clone(), body.code.len()).is_some() {
                    return Err(Refusal::invalid(line, format!("label '{word}' stands twice")));
                }
                Ok(())
            }
            Token::Word(word) => match word.as_str() {
                ".reg" => self.registers(body),
                ".param" => self.argument(body),
                ".shared" => {
                    let (name, offset) = self.shared_variable(&mut body.shared_bytes)?;
                    body.names.shared.insert(name, offset);
                    Ok(())
                }
                ".loc" => {
                    self.skip_numbers();
                    Ok(())
                }
                ".pragma" => {
                    self.word()?;
                    self.expect(';')
                }
                _ if word.starts_with('.') => Err(Refusal::not_simulated(line, word)),
                _ => self.instruction(&word, None, body),
            },
            other => Err(self.unexpected(&describe(&other))),
        }
    }

    /// `.param .b64 param0;` inside a kernel: an argument for a call.
    fn argument(&mut self, body: &mut Body) -> Result<(), Refusal> {
        let (name, ty, _, count) = self.variable()?;
        self.expect(';')?;
        if count.is_some() {
            return Err(Refusal::not_simulated(self.line(), "arguments that are arrays"));
        }
        body.declare(&name, ty, self.line())?;
        body.names.arguments.insert(name);
        Ok(())
    }

    /// `.reg .b32 %r<5>, %x;`
    fn registers(&mut self, body: &mut Body) -> Result<(), Refusal> {
        let word = self.word()?;
        let ty = word.strip_prefix('.').and_then(Type::of).ok_or_else(|| self.unexpected(&word))?;
        loop {
            let name = self.word()?;
            let count = if self.takes('<') {
                let count = self.integer()?;
                self.expect('>')?;
                Some(usize::try_from(count).unwrap_or(usize::MAX))
            } else {
                None
            };
            if body.names.registers.len().saturating_add(count.unwrap_or(1)) > MAX_REGISTERS {
                return Err(Refusal::invalid(self.line(), "there are too many registers"));
            }
            match count {
                None => body.declare(&name, ty, self.line())?,
                Some(count) => {
                    (0..count).try_for_each(|index| body.declare(&format!("{name}{index}"), ty, self.line()))?;
                }
            }
            if self.takes(';') {
                return Ok(());
            }
            self.expect(',')?;
        }
    }

    fn instruction(&mut self, word: &str, guard: Option<(Register, bool)>, body: &mut Body) -> Result<(), Refusal> {
        let line = self.line();
        let operands = if word == "call" || word == "call.uni" { self.arguments(word)? } else { self.operands()? };
        if word == "bra" || word == "bra.uni" {
            let [Operand::Name(label)] = operands.as_slice() else {
                return Err(Refusal::invalid(line, "a branch needs one label"));
            };
            body.branches.push((body.code.len(), label.clone(), line));
            body.code.push(Instruction { guard, action: Action::Branch { target: 0 } });
            return Ok(());
        }
        let action = decode(word, &operands, &body.names, line)?;
        body.code.push(Instruction { guard, action });
        Ok(())
    }

    /// `cudaGraphSetConditional, (param0, param1);`, the arguments of the only call there is.
    fn arguments(&mut self, word: &str) -> Result<Vec<Operand>, Refusal> {
        if !self.takes_word(SET_CONDITIONAL) {
            return Err(Refusal::not_simulated(self.line(), format!("'{word}'")));
        }
        if !self.sets_conditions {
            return Err(Refusal::invalid(self.line(), format!("'{SET_CONDITIONAL}' is unknown")));
        }
        self.expect(',')?;
        self.expect('(')?;
        let handle = self.operand()?;
        self.expect(',')?;
        let value = self.operand()?;
        self.expect(')')?;
        self.expect(';')?;
        Ok(vec![handle, value])
    }

    /// Operands up to the semicolon.
    fn operands(&mut self) -> Result<Vec<Operand>, Refusal> {
        let mut operands = Vec::new();
        if self.takes(';') {
            return Ok(operands);
        }
        loop {
            operands.push(self.operand()?);
            if self.takes(';') {
                return Ok(operands);
            }
            if self.takes('|') {
                return Err(Refusal::not_simulated(self.line(), "two predicates of one comparison"));
            }
            self.expect(',')?;
        }
    }

    fn operand(&mut self) -> Result<Operand, Refusal> {
        match self.next()? {
            Token::Word(word) => Ok(Operand::Name(word)),
            Token::Integer(number) => Ok(Operand::Integer(number)),
            Token::Float(bits, size) => Ok(Operand::Float(bits, size)),
            Token::Sign('-') => match self.next()? {
                Token::Integer(number) => Ok(Operand::Integer(number.wrapping_neg())),
                Token::Float(bits, 64) => Ok(Operand::Float((-f64::from_bits(bits)).to_bits(), 64)),
                other => Err(self.unexpected(&describe(&other))),
            },
            Token::Sign('!') => Ok(Operand::Not(self.word()?)),
            Token::Sign('[') => self.address(),
            Token::Sign('{') => {
                let mut parts = Vec::new();
                loop {
                    parts.push(self.operand()?);
                    if self.takes('}') {
                        return Ok(Operand::List(parts));
                    }
                    self.expect(',')?;
                }
            }
            other => Err(self.unexpected(&describe(&other))),
        }
    }

    /// `[name]`, `[name+4]`, `[name-4]` or `[4096]`, behind the bracket.
    fn address(&mut self) -> Result<Operand, Refusal> {
        let base = Box::new(self.operand()?);
        let offset = if self.takes('+') {
            let below = self.takes('-');
            let number = self.integer()?;
            if below { number.wrapping_neg() } else { number }
        } else if self.takes('-') {
            self.integer()?.wrapping_neg()
        } else {
            0
        };
        self.expect(']')?;
        Ok(Operand::Address(base, offset))
    }
}

/// A kernel while it is being read.
struct Body {
    names: Names,
    shared_bytes: u64,
    code: Vec<Instruction>,
    labels: BTreeMap<String, usize>,
    /// Branches whose label may still come: index, label, line.
    branches: Vec<(usize, String, u32)>,
    /// The names that the blocks around the statement being read declare.
    scopes: Vec<BTreeSet<String>>,
    /// All names that blocks declared.
    in_blocks: BTreeSet<String>,
}

impl Body {
    fn declare(&mut self, name: &str, ty: Type, line: u32) -> Result<(), Refusal> {
        if !self.scopes.is_empty() {
            let known = self.names.registers.get(name);
            let outside = known.is_some() && !self.in_blocks.contains(name);
            if outside || self.is_in_scope(name) || known.is_some_and(|known| known.bits != ty.bits) {
                return Err(Refusal::not_simulated(line, format!("a second '{name}' in a block")));
            }
            self.in_blocks.insert(name.to_owned());
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned());
        }
        self.names.declare(name.to_owned(), ty);
        Ok(())
    }

    fn is_in_scope(&self, name: &str) -> bool {
        self.scopes.iter().any(|scope| scope.contains(name))
    }

    fn finish(mut self, name: String, parameters: Vec<Parameter>, max_threads: u32) -> Result<Kernel, Refusal> {
        for (index, label, line) in self.branches {
            let unknown = || Refusal::invalid(line, format!("label '{label}' is unknown"));
            let target = *self.labels.get(&label).ok_or_else(unknown)?;
            self.code[index].action = Action::Branch { target };
        }
        Ok(Kernel {
            name,
            parameters,
            registers: self.names.registers.len(),
            shared_bytes: self.shared_bytes,
            max_threads,
            code: self.code.into(),
        })
    }
}

fn describe(token: &Token) -> String {
    match token {
        Token::Word(word) => word.clone(),
        Token::Integer(number) => number.to_string(),
        Token::Float(bits, 64) => f64::from_bits(*bits).to_string(),
        Token::Float(bits, _) => format!("0f{bits:08X}"),
        Token::Sign(sign) => sign.to_string(),
    }
}
