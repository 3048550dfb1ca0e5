//! What each name of each text stands for, when one text or several become one module.
//!
//! A name that is private to a text (neither `.visible`, `.extern`, `.weak` nor `.common`) means what that text
//! defines; any other means the same in all texts: the one that is visible, else the first weak one, else the largest
//! common one.
//!
//! **Invariants:** functions and variables keep the order of the texts. Every function that any text declares has an
//! index, also where no text defines it: such a function is one without a body. No two kernels have the same name.

use std::collections::{BTreeMap, BTreeSet};

use super::shape::Shape;
use crate::program::action::Builtin;
use crate::refusal::Refusal;
use crate::text::Place;
use crate::text::syntax::{FunctionText, Item, Linkage, Text, VariableText};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Index into [`Linked::functions`].
    Function(u32),
    /// Index into [`Linked::variables`].
    Variable(usize),
    DynamicShared,
    /// A variable that is declared but that no text defines.
    Undefined,
}

/// A function of the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkedFunction<'t> {
    /// Which text it stands in.
    pub(super) text: usize,
    /// Without a body where no text defines it.
    pub(super) function: &'t FunctionText<'t>,
    /// What the driver brings in its place.
    pub(super) builtin: Option<Builtin>,
}

/// A variable of the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkedVariable<'t> {
    pub(super) text: usize,
    pub(super) variable: &'t VariableText<'t>,
    pub(super) is_private: bool,
}

/// The parts of a module, and what names mean in each text.
#[derive(Debug, Default)]
pub(super) struct Linked<'t> {
    pub(super) functions: Vec<LinkedFunction<'t>>,
    pub(super) variables: Vec<LinkedVariable<'t>>,
    pub(super) scopes: Vec<BTreeMap<&'t str, Meaning>>,
}

/// What one text says of a name.
#[derive(Clone, Copy, Debug)]
enum Said<'t> {
    Function(&'t FunctionText<'t>),
    Variable(&'t VariableText<'t>),
    Alias(&'t str),
}

/// All that one text says of a name.
#[derive(Clone, Copy, Debug)]
struct Symbol<'t> {
    linkage: Linkage,
    /// The definition where there is one, else a declaration.
    said: Said<'t>,
    is_defined: bool,
    at: Place,
}

/// Finds what every name stands for.
pub(super) fn link<'t>(texts: &'t [Text<'t>]) -> Result<Linked<'t>, Refusal> {
    let said = texts.iter().map(symbols).collect::<Result<Vec<_>, _>>()?;
    let global = choose(&said)?;
    let mut linked = Linked::default();
    let mut found = BTreeMap::new();
    let mut kernels = BTreeSet::new();
    for (text, items) in texts.iter().map(|text| &text.items).enumerate() {
        for item in items {
            let name = symbol(item).0;
            let whole = &said[text][name];
            let is_chosen = whole.linkage == Linkage::Private || global.get(name) == Some(&text);
            if symbol(item).1.is_defined && is_chosen {
                linked.add(text, whole, &mut kernels)?.map(|meaning| found.insert((text, name), meaning));
            }
        }
    }
    let scope = Scopes { said: &said, global: &global, found };
    for (text, symbols) in said.iter().enumerate() {
        let mut meanings = BTreeMap::new();
        for (&name, symbol) in symbols {
            let meaning = match scope.meaning(text, name, 0) {
                Some(meaning) => meaning,
                None => linked.missing(text, symbol),
            };
            meanings.insert(name, meaning);
        }
        linked.scopes.push(meanings);
    }
    Ok(linked)
}

/// What one text says of each name.
fn symbols<'t>(text: &'t Text<'t>) -> Result<BTreeMap<&'t str, Symbol<'t>>, Refusal> {
    let mut found: BTreeMap<&str, Symbol<'_>> = BTreeMap::new();
    for item in &text.items {
        let (name, new) = symbol(item);
        let Some(known) = found.get_mut(name) else {
            found.insert(name, new);
            continue;
        };
        if known.is_defined && new.is_defined {
            let kernel = matches!(new.said, Said::Function(function) if function.is_entry);
            let what = if kernel { "kernel" } else { "name" };
            return Err(Refusal::invalid(new.at, format!("{what} '{name}' is defined twice")));
        }
        let linkage = joined(known.linkage, new.linkage);
        *known = Symbol { linkage, ..if new.is_defined { new } else { *known } };
    }
    Ok(found)
}

fn symbol<'t>(item: &'t Item<'t>) -> (&'t str, Symbol<'t>) {
    match item {
        Item::Function(function) => {
            let (linkage, is_defined) = (function.linkage, function.body.is_some());
            (function.name, Symbol { linkage, said: Said::Function(function), is_defined, at: function.at })
        }
        Item::Variable(variable) => {
            let (linkage, is_defined) = (variable.linkage, variable.linkage != Linkage::Extern);
            (variable.name, Symbol { linkage, said: Said::Variable(variable), is_defined, at: variable.at })
        }
        // Its linkage is that of the declaration before it.
        &Item::Alias { name, of, at } => {
            (name, Symbol { linkage: Linkage::Private, said: Said::Alias(of), is_defined: true, at })
        }
    }
}

/// The linkage of a name that is declared several times: the one that says most.
fn joined(a: Linkage, b: Linkage) -> Linkage {
    match (a, b) {
        (Linkage::Private, other) | (other, Linkage::Private) => other,
        (Linkage::Extern, other) | (other, Linkage::Extern) => other,
        (Linkage::Visible, _) | (_, Linkage::Visible) => Linkage::Visible,
        (Linkage::Weak, _) | (_, Linkage::Weak) => Linkage::Weak,
        (Linkage::Common, Linkage::Common) => Linkage::Common,
    }
}

/// Which text defines each name that is not private.
fn choose<'t>(said: &[BTreeMap<&'t str, Symbol<'t>>]) -> Result<BTreeMap<&'t str, usize>, Refusal> {
    let mut chosen: BTreeMap<&str, usize> = BTreeMap::new();
    for (text, symbols) in said.iter().enumerate() {
        for (&name, new) in symbols {
            if !new.is_defined || new.linkage == Linkage::Private {
                continue;
            }
            let Some(known) = chosen.get(name).map(|&text| said[text][name]) else {
                chosen.insert(name, text);
                continue;
            };
            if is_strong(known.linkage) && is_strong(new.linkage) {
                return Err(Refusal::invalid(new.at, format!("'{name}' is defined in two texts")));
            }
            if (rank(new), size(new)) > (rank(&known), size(&known)) {
                chosen.insert(name, text);
            }
        }
    }
    Ok(chosen)
}

fn is_strong(linkage: Linkage) -> bool {
    matches!(linkage, Linkage::Visible | Linkage::Extern)
}

fn rank(symbol: &Symbol<'_>) -> u8 {
    match symbol.linkage {
        Linkage::Private | Linkage::Common => 0,
        Linkage::Weak => 1,
        Linkage::Visible | Linkage::Extern => 2,
    }
}

/// Of a common variable its size.
fn size(symbol: &Symbol<'_>) -> u64 {
    match symbol.said {
        Said::Variable(variable) if symbol.linkage == Linkage::Common => {
            Shape::of(variable).map_or(0, |shape| shape.size)
        }
        Said::Variable(_) | Said::Function(_) | Said::Alias(_) => 0,
    }
}

/// What the names of all texts mean as far as something defines them.
struct Scopes<'s, 't> {
    said: &'s [BTreeMap<&'t str, Symbol<'t>>],
    global: &'s BTreeMap<&'t str, usize>,
    found: BTreeMap<(usize, &'t str), Meaning>,
}

/// How many aliases may stand behind each other.
const MAX_ALIASES: usize = 8;

impl<'t> Scopes<'_, 't> {
    fn meaning(&self, text: usize, name: &'t str, aliases: usize) -> Option<Meaning> {
        let symbol = self.said[text].get(name)?;
        let is_own = symbol.is_defined && symbol.linkage == Linkage::Private;
        let text = if is_own { text } else { *self.global.get(name)? };
        match self.said[text].get(name)?.said {
            Said::Alias(of) if aliases < MAX_ALIASES => self.meaning(text, of, aliases + 1),
            Said::Alias(_) => None,
            Said::Function(_) | Said::Variable(_) => self.found.get(&(text, name)).copied(),
        }
    }
}

impl<'t> Linked<'t> {
    /// Adds a definition; none for an alias.
    fn add(
        &mut self,
        text: usize,
        symbol: &Symbol<'t>,
        kernels: &mut BTreeSet<&'t str>,
    ) -> Result<Option<Meaning>, Refusal> {
        match symbol.said {
            Said::Alias(_) => Ok(None),
            Said::Function(function) => {
                if function.is_entry && !kernels.insert(function.name) {
                    let text = format!("kernel '{}' is defined in two texts", function.name);
                    return Err(Refusal::invalid(function.at, text));
                }
                Ok(Some(self.function(LinkedFunction { text, function, builtin: None })))
            }
            Said::Variable(variable) => {
                let is_private = symbol.linkage == Linkage::Private;
                self.variables.push(LinkedVariable { text, variable, is_private });
                Ok(Some(Meaning::Variable(self.variables.len() - 1)))
            }
        }
    }

    fn function(&mut self, function: LinkedFunction<'t>) -> Meaning {
        self.functions.push(function);
        Meaning::Function(u32::try_from(self.functions.len() - 1).unwrap_or(u32::MAX))
    }

    /// What a name means that nothing defines.
    fn missing(&mut self, text: usize, symbol: &Symbol<'t>) -> Meaning {
        match symbol.said {
            Said::Function(function) => {
                let known = self
                    .functions
                    .iter()
                    .position(|known| known.function.body.is_none() && known.function.name == function.name);
                if let Some(known) = known {
                    return Meaning::Function(u32::try_from(known).unwrap_or(u32::MAX));
                }
                self.function(LinkedFunction { text, function, builtin: builtin(function.name) })
            }
            Said::Variable(variable) if variable.space == "shared" && Shape::is_open(variable) => {
                Meaning::DynamicShared
            }
            Said::Variable(_) | Said::Alias(_) => Meaning::Undefined,
        }
    }
}

/// Functions that the driver brings.
fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "vprintf" => Builtin::Printf,
        "__assertfail" => Builtin::AssertFail,
        "malloc" => Builtin::Malloc,
        "free" => Builtin::Free,
        "cudaGraphSetConditional" => Builtin::SetConditional,
        _ => return None,
    })
}
