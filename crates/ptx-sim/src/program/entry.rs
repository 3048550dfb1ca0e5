//! What those who load a module see of it: its kernels, its variables and its memory.

use super::action::Slot;
use super::{Function, Module, RelocationTarget, Tuning, Variable};
use crate::decode::reachable;
use crate::refusal::Refusal;

/// A kernel of a module.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'m> {
    module: &'m Module,
    index: usize,
}

impl Module {
    /// The kernels in the order of the text.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let numbered = self.functions.iter().enumerate().filter(|(_, function)| function.is_entry);
        numbered.map(|(index, _)| Entry { module: self, index })
    }

    /// The kernel of a name.
    pub fn entry(&self, name: &str) -> Option<Entry<'_>> {
        self.entries().find(|entry| entry.name() == name)
    }

    /// What is wrong with or not supported in all functions.
    pub fn refusals(&self) -> impl Iterator<Item = &Refusal> {
        self.functions.iter().flat_map(|function| &function.refusals)
    }

    /// The version of PTX, times ten; of several texts the newest.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The compute capability that the text is for, times ten; of several texts the newest.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Variables of global and constant memory, those that a text keeps to itself behind the others.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Names that functions use and no text defines, sorted; a kernel that may come to one has a refusal.
    pub fn undefined(&self) -> &[String] {
        &self.undefined
    }

    /// The name of a file by its number in a [`Source`](super::Source).
    pub fn file(&self, number: u32) -> Option<&str> {
        self.files.get(usize::try_from(number).ok()?).map(String::as_str)
    }

    /// How many bytes the variables of global and constant memory take.
    pub fn image_bytes(&self) -> u64 {
        self.image.len() as u64
    }

    /// The bytes that global and constant memory begin with, where they lie at an address.
    pub fn image(&self, base: u64) -> Vec<u8> {
        let mut image = self.image.clone();
        for relocation in &self.relocations {
            let address = match relocation.target {
                RelocationTarget::Variable(offset) => base.wrapping_add(offset),
                RelocationTarget::Absolute(address) => address,
            };
            let part = (address >> relocation.shift).to_le_bytes();
            let at = usize::try_from(relocation.at).unwrap_or(usize::MAX);
            let bytes = usize::from(relocation.bytes);
            image[at..at + bytes].copy_from_slice(&part[..bytes]);
        }
        image
    }
}

impl<'m> Entry<'m> {
    /// Its name.
    pub fn name(&self) -> &'m str {
        &self.function().name
    }

    /// Its place among the module's functions, by which a launch names it.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Registers of 32 bits that a thread needs for it and for the functions that it may call, a multiple of 8: an
    /// estimate, as no compiler has given any out.
    pub fn registers(&self) -> u32 {
        self.reached().map(|function| function.registers).max().unwrap_or(0)
    }

    /// Its text, decoded.
    fn function(&self) -> &'m Function {
        &self.module.functions[self.index]
    }

    /// Offset and size of each parameter.
    pub fn parameters(&self) -> impl Iterator<Item = (u32, u32)> + 'm {
        self.function().parameters.iter().map(|&Slot { offset, size }| (offset, size))
    }

    /// Bytes of shared memory that it and the functions that it may call name themselves.
    pub fn shared_bytes(&self) -> u64 {
        self.function().shared_bytes
    }

    /// Bytes of local memory that each thread has for it, without the functions that it calls.
    pub fn local_bytes(&self) -> u32 {
        self.function().frame.local_bytes
    }

    /// What a launch must keep to.
    pub fn tuning(&self) -> Tuning {
        self.function().tuning
    }

    /// Whether it or a function that it may call allocates memory of the device's heap, or gives some back.
    pub fn uses_heap(&self) -> bool {
        self.reached().any(|function| function.uses_heap)
    }

    /// Why it cannot be run: what is not supported in its text and in those of all functions that it may call. Empty
    /// where it can.
    pub fn refusals(&self) -> Vec<&'m Refusal> {
        self.reached().flat_map(|function| &function.refusals).collect()
    }

    /// It and the functions that it may call.
    fn reached(&self) -> impl Iterator<Item = &'m Function> + use<'m> {
        let module = self.module;
        let start = u32::try_from(self.index).unwrap_or(u32::MAX);
        let reached = reachable(start, &module.addressed, |index| {
            let function = &module.functions[index as usize];
            (function.calls.as_slice(), function.calls_by_address)
        });
        reached.into_iter().map(|index| &module.functions[index as usize])
    }
}
