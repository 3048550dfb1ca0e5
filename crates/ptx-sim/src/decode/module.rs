//! From one text, or from several that are linked, to a module.

use super::function;
use super::image::{self, Image};
use super::link::{Linked, Meaning, link};
use super::names::Symbol;
use super::reach::{Reach, Shared, check_bytes};
use super::usage::Usage;
use crate::program::{Function, Module, Tuning, live};
use crate::refusal::Refusal;
use crate::text::parse::{Limits, parse};
use crate::text::syntax::Text;
use std::collections::{BTreeMap, BTreeSet};

/// What functions are decoded with.
#[derive(Debug)]
pub(super) struct Context<'t> {
    pub(super) linked: &'t Linked<'t>,
    pub(super) image: &'t Image,
    pub(super) shared: &'t Shared,
    /// By text, the index that a file's number has in [`Module::files`].
    pub(super) files: &'t [BTreeMap<u32, u32>],
}

impl Context<'_> {
    /// What the code of a function names by what a name means in its text; none where it has no address.
    pub(super) fn symbol(&self, meaning: Meaning) -> Option<Symbol> {
        match meaning {
            Meaning::Function(index) if self.linked.functions[index as usize].builtin.is_some() => None,
            Meaning::Function(index) => Some(Symbol::Function(index)),
            Meaning::Variable(index) => {
                let in_image = self.image.offsets.get(&index).map(|&offset| Symbol::Variable(offset));
                in_image.or_else(|| self.shared.of_module.get(&index).map(|&offset| Symbol::Shared(offset)))
            }
            Meaning::DynamicShared => Some(Symbol::DynamicShared),
            Meaning::Undefined => None,
        }
    }
}

impl Module {
    /// Reads one text.
    ///
    /// What is well formed but not supported refuses the kernels that need it, not the module: see
    /// [`Entry::refusals`](crate::Entry::refusals).
    ///
    /// # Errors
    /// Text that is malformed, of a newer version or for another device, and names that are defined twice.
    pub fn read(text: &str, limits: Limits) -> Result<Self, Refusal> {
        Self::link(&[text], limits)
    }

    /// Reads several texts, of which each may use what the others define.
    ///
    /// # Errors
    /// As [`read`](Self::read), and names that two texts define.
    pub fn link(texts: &[&str], limits: Limits) -> Result<Self, Refusal> {
        let texts = texts.iter().map(|text| parse(text, limits)).collect::<Result<Vec<_>, _>>()?;
        module(&texts)
    }
}

fn module(texts: &[Text<'_>]) -> Result<Module, Refusal> {
    let linked = link(texts)?;
    let usages: Vec<Usage<'_>> =
        linked.functions.iter().map(|found| Usage::of(found.function.body.as_deref().unwrap_or_default())).collect();
    let image = Image::of(&linked)?;
    let mut reach = Reach::of(&linked, &usages, &image.functions);
    let shared = Shared::of(&linked, &usages, &reach);
    let (files, numbers) = files(texts);
    let context = Context { linked: &linked, image: &image, shared: &shared, files: &numbers };
    let mut functions: Vec<Function> =
        (0..usages.len()).map(|index| function::decode(&context, index, &usages[index])).collect();
    for (index, function) in functions.iter_mut().enumerate() {
        let text = linked.functions[index].function;
        function.calls = std::mem::take(&mut reach.calls[index]);
        function.calls_by_address = reach.calls_by_address[index];
        function.shared_bytes = shared.bytes[index];
        function.registers = live::registers(function);
        let tuning = text.tuning;
        let (max_threads, required_threads) = (tuning.max_threads, tuning.required_threads);
        function.tuning = Tuning { max_threads, required_threads, max_registers: tuning.max_registers };
        function.refusals.extend(check_bytes(function.shared_bytes, text).err());
    }
    Ok(Module {
        version: texts.iter().map(|text| text.version).max().unwrap_or(0),
        target: texts.iter().map(|text| text.target).max().unwrap_or(0),
        functions,
        addressed: reach.addressed,
        variables: image::variables(&linked, &image),
        undefined: undefined(&linked, &usages),
        files,
        image: image.bytes,
        relocations: image.relocations,
    })
}

/// Names that functions use and no text defines.
fn undefined(linked: &Linked<'_>, usages: &[Usage<'_>]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for (found, usage) in linked.functions.iter().zip(usages) {
        for &name in usage.named.iter().chain(&usage.called) {
            let is_missing = match linked.scopes[found.text].get(name) {
                Some(Meaning::Undefined) => true,
                Some(&Meaning::Function(index)) => {
                    let called = &linked.functions[index as usize];
                    called.function.body.is_none() && called.builtin.is_none()
                }
                Some(Meaning::Variable(_) | Meaning::DynamicShared) | None => false,
            };
            if is_missing {
                names.insert(name.to_owned());
            }
        }
    }
    names.into_iter().collect()
}

/// The files that all texts name, and by text where each number stands among them.
fn files(texts: &[Text<'_>]) -> (Vec<String>, Vec<BTreeMap<u32, u32>>) {
    let (mut files, mut numbers) = (Vec::new(), Vec::new());
    for text in texts {
        let mut found = BTreeMap::new();
        for &(number, name) in &text.files {
            found.insert(number, u32::try_from(files.len()).unwrap_or(u32::MAX));
            files.push(name.to_owned());
        }
        numbers.push(found);
    }
    (files, numbers)
}
