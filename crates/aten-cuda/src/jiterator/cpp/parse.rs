//! From words to functions.
//!
//! **Invariant:** expressions and statements stand at most [`MOST_DEPTH`] deep in one another, so that whoever walks through
//! them by recursion has enough stack.

use kernel_ir::{Compare, Type};

use super::lex::{Placed, Token, tokens};
use super::tree::{BinaryOp, Expr, ExprKind, Function, Parameter, Statement, StatementKind, TypeName, UnaryOp};
use super::{Result, leave};

const MOST_DEPTH: usize = 48;

/// The functions of a text, in their order.
pub(in crate::jiterator) fn parse(code: &str) -> Result<Vec<Function>> {
    let mut parser = Parser { tokens: tokens(code)?, at: 0, depth: 0, parameter: None, templates: Vec::new() };
    let mut functions: Vec<Function> = Vec::new();
    while parser.at < parser.tokens.len() {
        let function = parser.function()?;
        if functions.iter().any(|other| other.name == function.name) {
            return leave(function.line, format!("several functions `{}`", function.name));
        }
        functions.push(function);
    }
    Ok(functions)
}

/// Words that are no names of variables and functions. Those that begin statements are named where they are met.
const WORDS: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const \
    const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern false \
    float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private \
    protected public register reinterpret_cast return short signed sizeof static static_assert static_cast struct switch \
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t \
    while xor xor_eq char16_t char32_t typeof restrict";

/// What may stand before a function's type without a meaning here.
const SPECIFIERS: [&str; 4] = ["inline", "static", "__device__", "__forceinline__"];

fn is_reserved(word: &str) -> bool {
    WORDS.split_ascii_whitespace().any(|known| known == word) || named_type(word).is_some()
}

/// A type that is one word, besides those of C++ itself.
fn named_type(word: &str) -> Option<Type> {
    Some(match word {
        "int8_t" => Type::I8,
        "int16_t" => Type::I16,
        "int32_t" => Type::I32,
        "int64_t" => Type::I64,
        "uint8_t" => Type::U8,
        "uint32_t" => Type::U32,
        "uint64_t" => Type::U64,
        _ => return None,
    })
}

struct Parser<'a> {
    tokens: Vec<Placed<'a>>,
    at: usize,
    depth: usize,
    /// The template's parameter, inside of a template.
    parameter: Option<&'a str>,
    /// The names of the templates so far.
    templates: Vec<&'a str>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|placed| placed.token)
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |placed| placed.line)
    }

    fn is(&self, sign: &'static str) -> bool {
        self.peek() == Some(Token::Sign(sign))
    }

    fn takes(&mut self, sign: &'static str) -> bool {
        let found = self.is(sign);
        self.at += usize::from(found);
        found
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(Token::Word(word));
        self.at += usize::from(found);
        found
    }

    /// What stands here is not translated.
    fn refuse<T>(&self) -> Result<T> {
        leave(
            self.line(),
            match self.peek() {
                Some(Token::Word(word)) => format!("`{word}`"),
                Some(Token::Sign(sign)) => format!("`{sign}`"),
                Some(Token::Number(_)) => "a number".to_owned(),
                None => "the end of the text".to_owned(),
            },
        )
    }

    fn expect(&mut self, sign: &'static str) -> Result<()> {
        if self.takes(sign) { Ok(()) } else { self.refuse() }
    }

    /// A name of the text's own.
    fn name(&mut self) -> Result<&'a str> {
        match self.peek() {
            Some(Token::Word(word)) if !is_reserved(word) && self.parameter != Some(word) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.refuse(),
        }
    }

    /// Goes one deeper.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MOST_DEPTH {
            return leave(self.line(), format!("more than {MOST_DEPTH} levels"));
        }
        self.depth += 1;
        let made = inner(self);
        self.depth -= 1;
        made
    }

    fn function(&mut self) -> Result<Function> {
        let line = self.line();
        self.parameter = None;
        if self.takes_word("template") {
            self.expect("<")?;
            if !self.takes_word("typename") && !self.takes_word("class") {
                return self.refuse();
            }
            self.parameter = Some(self.name()?);
            self.expect(">")?;
        }
        while SPECIFIERS.iter().any(|specifier| self.takes_word(specifier)) {}
        let returns = if self.takes_word("void") { None } else { Some(self.type_name()?) };
        let name = self.name()?;
        let parameters = self.parameters()?;
        self.expect("{")?;
        let body = self.statements()?;
        let is_template = self.parameter.is_some();
        if is_template {
            self.templates.push(name);
        }
        Ok(Function { name: name.to_owned(), line, is_template, returns, parameters, body })
    }

    fn parameters(&mut self) -> Result<Vec<Parameter>> {
        let mut parameters: Vec<Parameter> = Vec::new();
        self.expect("(")?;
        while !self.takes(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let mut is_const = self.takes_word("const");
            let ty = self.type_name()?;
            is_const |= self.takes_word("const");
            let is_reference = self.takes("&");
            let line = self.line();
            let name = self.name()?.to_owned();
            if parameters.iter().any(|other| other.name == name) {
                return leave(line, format!("two parameters `{name}`"));
            }
            parameters.push(Parameter { name, ty, is_const, is_output: is_reference && !is_const });
        }
        Ok(parameters)
    }

    /// A type, where there is one here.
    fn try_type(&mut self) -> Result<Option<TypeName>> {
        let Some(Token::Word(word)) = self.peek() else { return Ok(None) };
        if self.parameter == Some(word) {
            self.at += 1;
            return Ok(Some(TypeName::Parameter));
        }
        if let Some(known) = named_type(word) {
            self.at += 1;
            return Ok(Some(TypeName::Known(known)));
        }
        let begin = self.at;
        let mut words = Vec::new();
        while let Some(Token::Word(
            word @ ("bool" | "char" | "short" | "int" | "long" | "signed" | "unsigned" | "float" | "double"),
        )) = self.peek()
        {
            words.push(word);
            self.at += 1;
        }
        if words.is_empty() {
            return Ok(None);
        }
        match number_type(&words) {
            Some(ty) => Ok(Some(TypeName::Known(ty))),
            None => {
                self.at = begin;
                leave(self.line(), format!("the type `{}`", words.join(" ")))
            }
        }
    }

    fn type_name(&mut self) -> Result<TypeName> {
        match self.try_type()? {
            Some(ty) => Ok(ty),
            None => self.refuse(),
        }
    }

    /// Statements up to the brace that ends them.
    fn statements(&mut self) -> Result<Vec<Statement>> {
        self.deeper(|parser| {
            let mut all = Vec::new();
            while !parser.takes("}") {
                parser.statement(&mut all)?;
            }
            Ok(all)
        })
    }

    fn statement(&mut self, all: &mut Vec<Statement>) -> Result<()> {
        let line = self.line();
        let mut push = |kind| all.push(Statement { line, kind });
        if self.takes(";") {
            return Ok(());
        }
        if self.takes("{") {
            push(StatementKind::Block(self.statements()?));
            return Ok(());
        }
        if self.takes_word("if") {
            push(self.deeper(Self::branches)?);
            return Ok(());
        }
        if self.takes_word("return") {
            let value = if self.is(";") { None } else { Some(self.expression()?) };
            push(StatementKind::Return(value));
            return self.expect(";");
        }
        let is_declared = match self.peek() {
            Some(Token::Word("const" | "constexpr" | "auto")) => true,
            // `T(x);` would be a declaration too, and is refused for its parenthesis.
            _ => self.begins_type(),
        };
        if is_declared {
            return self.declarations(all);
        }
        let name = self.name()?.to_owned();
        let op = self.assignment()?;
        let value = self.expression()?;
        push(StatementKind::Assign { name, op, value });
        self.expect(";")
    }

    fn begins_type(&mut self) -> bool {
        let begin = self.at;
        let found = self.try_type();
        self.at = begin;
        !matches!(found, Ok(None))
    }

    /// What follows `if`.
    fn branches(&mut self) -> Result<StatementKind> {
        self.expect("(")?;
        let condition = self.expression()?;
        self.expect(")")?;
        let then = self.branch()?;
        let other = if self.takes_word("else") { self.branch()? } else { Vec::new() };
        Ok(StatementKind::If { condition, then, other })
    }

    /// A statement that has a scope of its own.
    fn branch(&mut self) -> Result<Vec<Statement>> {
        self.deeper(|parser| {
            let mut all = Vec::new();
            match parser.takes("{") {
                true => all = parser.statements()?,
                false => parser.statement(&mut all)?,
            }
            Ok(all)
        })
    }

    /// The variables of one declaration.
    fn declarations(&mut self, all: &mut Vec<Statement>) -> Result<()> {
        let is_constexpr = self.takes_word("constexpr");
        let mut is_const = self.takes_word("const") || is_constexpr;
        let ty = if self.takes_word("auto") { None } else { Some(self.type_name()?) };
        is_const |= self.takes_word("const");
        loop {
            let line = self.line();
            let name = self.name()?.to_owned();
            let value = if self.takes("=") { Some(self.expression()?) } else { None };
            if value.is_none() && (is_const || ty.is_none()) {
                return leave(line, format!("`{name}` without a value"));
            }
            if is_constexpr && !matches!(value, Some(Expr { kind: ExprKind::Literal(_), .. })) {
                return leave(line, "`constexpr` with more than a number");
            }
            all.push(Statement { line, kind: StatementKind::Declare { ty, is_const, name, value } });
            if self.takes(";") {
                return Ok(());
            }
            // Several `auto` have to agree, which is left to the compiler.
            if ty.is_none() {
                return self.refuse();
            }
            self.expect(",")?;
        }
    }

    /// The sign of an assignment, and the operator before it.
    fn assignment(&mut self) -> Result<Option<BinaryOp>> {
        let op = match self.peek() {
            Some(Token::Sign("=")) => None,
            Some(Token::Sign("+=")) => Some(BinaryOp::Add),
            Some(Token::Sign("-=")) => Some(BinaryOp::Sub),
            Some(Token::Sign("*=")) => Some(BinaryOp::Mul),
            Some(Token::Sign("/=")) => Some(BinaryOp::Div),
            Some(Token::Sign("%=")) => Some(BinaryOp::Rem),
            Some(Token::Sign("&=")) => Some(BinaryOp::BitAnd),
            Some(Token::Sign("|=")) => Some(BinaryOp::BitOr),
            Some(Token::Sign("^=")) => Some(BinaryOp::BitXor),
            Some(Token::Sign("<<=")) => Some(BinaryOp::Shl),
            Some(Token::Sign(">>=")) => Some(BinaryOp::Shr),
            _ => return self.refuse(),
        };
        self.at += 1;
        Ok(op)
    }

    fn expression(&mut self) -> Result<Expr> {
        self.deeper(|parser| {
            let line = parser.line();
            let condition = parser.operators(0)?;
            if !parser.takes("?") {
                return Ok(condition);
            }
            let then = parser.expression()?;
            parser.expect(":")?;
            let other = parser.expression()?;
            Ok(Expr { line, kind: ExprKind::Choice(Box::new([condition, then, other])) })
        })
    }

    /// Operators that bind as closely as `level` or closer; each goes from left to right.
    fn operators(&mut self, level: usize) -> Result<Expr> {
        let Some(known) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.operators(level + 1)?;
        let mut count = 0;
        while let Some(&(_, op)) = known.iter().find(|(sign, _)| self.is(sign)) {
            let line = self.line();
            self.at += 1;
            count += 1;
            // A long chain is as deep as it is long.
            if self.depth + count > MOST_DEPTH {
                return leave(line, format!("more than {MOST_DEPTH} levels"));
            }
            let right = self.operators(level + 1)?;
            left = Expr { line, kind: ExprKind::Binary(op, Box::new(left), Box::new(right)) };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr> {
        let line = self.line();
        let signs = [("-", UnaryOp::Minus), ("+", UnaryOp::Plus), ("!", UnaryOp::Not), ("~", UnaryOp::Flip)];
        let Some((_, op)) = signs.into_iter().find(|(sign, _)| self.takes(sign)) else { return self.primary() };
        let operand = self.deeper(Self::unary)?;
        Ok(Expr { line, kind: ExprKind::Unary(op, Box::new(operand)) })
    }

    fn primary(&mut self) -> Result<Expr> {
        let line = self.line();
        let made = |kind| Ok(Expr { line, kind });
        if let Some(Token::Number(literal)) = self.peek() {
            self.at += 1;
            return made(ExprKind::Literal(literal));
        }
        if self.takes("(") {
            let begin = self.at;
            // `(T) x` is a cast, and `(T(x))` an expression that begins with one.
            let Some(ty) = self.try_type()?.filter(|_| self.takes(")")) else {
                self.at = begin;
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            };
            let operand = self.deeper(Self::unary)?;
            return made(ExprKind::Cast(ty, Box::new(operand)));
        }
        for (word, value) in [("true", 1), ("false", 0)] {
            if self.takes_word(word) {
                return made(ExprKind::Literal(super::tree::Literal::Int(value, Type::Bool)));
            }
        }
        if self.takes_word("static_cast") {
            let ty = self.in_angles()?;
            return made(ExprKind::Cast(ty, Box::new(self.in_parentheses()?)));
        }
        let begin = self.at;
        if let Some(ty) = self.try_type()? {
            // `unsigned int(x)` is no expression.
            if self.at - begin > 1 {
                return leave(line, "a type of several words");
            }
            return made(ExprKind::Cast(ty, Box::new(self.in_parentheses()?)));
        }
        self.named(line)
    }

    /// A variable or a call.
    fn named(&mut self, line: usize) -> Result<Expr> {
        let name = self.name()?;
        let given = if self.is("<") && self.templates.contains(&name) { Some(self.in_angles()?) } else { None };
        if !self.is("(") {
            return match given {
                None => Ok(Expr { line, kind: ExprKind::Name(name.to_owned()) }),
                Some(_) => self.refuse(),
            };
        }
        self.at += 1;
        let mut arguments = Vec::new();
        while !self.takes(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            arguments.push(self.expression()?);
        }
        Ok(Expr { line, kind: ExprKind::Call(name.to_owned(), given, arguments) })
    }

    fn in_angles(&mut self) -> Result<TypeName> {
        self.expect("<")?;
        let ty = self.type_name()?;
        self.expect(">")?;
        Ok(ty)
    }

    fn in_parentheses(&mut self) -> Result<Expr> {
        self.expect("(")?;
        let inner = self.expression()?;
        self.expect(")")?;
        Ok(inner)
    }
}

/// Operators from the loosest to the closest.
const LEVELS: [&[(&str, BinaryOp)]; 10] = [
    &[("||", BinaryOp::Or)],
    &[("&&", BinaryOp::And)],
    &[("|", BinaryOp::BitOr)],
    &[("^", BinaryOp::BitXor)],
    &[("&", BinaryOp::BitAnd)],
    &[("==", BinaryOp::Compare(Compare::Eq)), ("!=", BinaryOp::Compare(Compare::Ne))],
    &[
        ("<", BinaryOp::Compare(Compare::Lt)),
        ("<=", BinaryOp::Compare(Compare::Le)),
        (">", BinaryOp::Compare(Compare::Gt)),
        (">=", BinaryOp::Compare(Compare::Ge)),
    ],
    &[("<<", BinaryOp::Shl), (">>", BinaryOp::Shr)],
    &[("+", BinaryOp::Add), ("-", BinaryOp::Sub)],
    &[("*", BinaryOp::Mul), ("/", BinaryOp::Div), ("%", BinaryOp::Rem)],
];

/// A type of C++ by its words, in any order.
fn number_type(words: &[&str]) -> Option<Type> {
    let count = |word: &str| words.iter().filter(|known| **known == word).count();
    let (signed, unsigned, long) = (count("signed"), count("unsigned"), count("long"));
    let base: Vec<&str> =
        words.iter().copied().filter(|word| !matches!(*word, "signed" | "unsigned" | "long" | "int")).collect();
    let is_int = count("int");
    if signed + unsigned > 1 || is_int > 1 {
        return None;
    }
    let plain = |ty: Type| (words.len() == 1).then_some(ty);
    match (base.as_slice(), long) {
        (["bool"], 0) => plain(Type::Bool),
        (["float"], 0) => plain(Type::F32),
        (["double"], 0) => plain(Type::F64),
        (["char"], 0) if is_int == 0 => Some(if unsigned == 1 { Type::U8 } else { Type::I8 }),
        (["short"], 0) if unsigned == 0 => Some(Type::I16),
        ([], 0) => Some(if unsigned == 1 { Type::U32 } else { Type::I32 }),
        ([], 1 | 2) => Some(if unsigned == 1 { Type::U64 } else { Type::I64 }),
        _ => None,
    }
}
