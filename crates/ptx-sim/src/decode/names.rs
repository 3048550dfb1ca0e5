//! What names mean in a function, and the rows of its frame.
//!
//! **Invariants:** each row has one meaning: a register, a constant or a special value. Equal constants share a row. A
//! register that an inner block declares hides an outer one of the same name and has a row of its own.

use std::collections::BTreeMap;

use crate::program::Frame;
use crate::program::types::{Register, Special, mask};
use crate::refusal::Refusal;
use crate::text::Place;

/// What the name of a variable or function stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    /// Global or constant memory: an offset in the module's stretch.
    Variable(u64),
    /// Shared memory: an address of it.
    Shared(u64),
    /// The shared memory that the launch asks for.
    DynamicShared,
    /// Local memory: an offset in the frame. Arguments of calls and parameters of functions are local too.
    Local(u32),
    /// An offset in the launch's parameters.
    Parameter(u64),
    /// A function, by its index.
    Function(u32),
}

/// The names that a function sees, and its frame so far.
#[derive(Debug)]
pub(crate) struct Names<'t> {
    /// Registers, by block from the outermost to the innermost.
    registers: Vec<BTreeMap<String, Register>>,
    /// Variables, by block from the module to the innermost.
    symbols: Vec<BTreeMap<&'t str, Symbol>>,
    constants: BTreeMap<(u64, u8), Register>,
    specials: BTreeMap<(Special, u8), Register>,
    carry: Option<Register>,
    spare: Option<Register>,
    /// Whether the body is of an entry: `.param` is the launch's parameters then, and local memory otherwise.
    pub(crate) in_entry: bool,
    /// Bytes of the module's constant variables, which are the first of its variables.
    pub(crate) constant_bytes: u64,
    /// The frame so far.
    pub(crate) frame: Frame,
}

/// The most rows of one size that a frame may have.
const MAX_ROWS: u16 = u16::MAX;

impl<'t> Names<'t> {
    /// A function's names inside those of its module.
    pub(crate) fn new(module: BTreeMap<&'t str, Symbol>) -> Self {
        let frame = Frame { predicates: 2, ..Frame::default() };
        let (constants, specials) = (BTreeMap::new(), BTreeMap::new());
        Self {
            registers: vec![BTreeMap::new()],
            symbols: vec![module, BTreeMap::new()],
            constants,
            specials,
            carry: None,
            spare: None,
            in_entry: true,
            constant_bytes: 0,
            frame,
        }
    }

    pub(crate) fn enter_block(&mut self) {
        self.registers.push(BTreeMap::new());
        self.symbols.push(BTreeMap::new());
    }

    pub(crate) fn leave_block(&mut self) {
        self.registers.pop();
        self.symbols.pop();
    }

    /// Declares a register in the innermost block.
    pub(crate) fn declare(&mut self, name: String, bits: u8, at: Place) -> Result<(), Refusal> {
        let register = self.row(bits, at)?;
        let innermost = self.registers.last_mut().expect("there is a block");
        match innermost.insert(name.clone(), register) {
            None => Ok(()),
            Some(_) => Err(Refusal::invalid(at, format!("'{name}' is declared twice"))),
        }
    }

    /// Declares a variable in the innermost block.
    pub(crate) fn declare_symbol(&mut self, name: &'t str, symbol: Symbol, at: Place) -> Result<(), Refusal> {
        let innermost = self.symbols.last_mut().expect("there is a block");
        match innermost.insert(name, symbol) {
            None => Ok(()),
            Some(_) => Err(Refusal::invalid(at, format!("'{name}' is declared twice"))),
        }
    }

    /// The register of a name.
    pub(crate) fn register(&self, name: &str) -> Option<Register> {
        self.registers.iter().rev().find_map(|block| block.get(name)).copied()
    }

    /// The variable or function of a name.
    pub(crate) fn symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.iter().rev().find_map(|block| block.get(name)).copied()
    }

    /// A row that holds a constant.
    pub(crate) fn constant(&mut self, bits: u8, value: u64, at: Place) -> Result<Register, Refusal> {
        let value = value & mask(bits);
        if bits == 1 {
            return Ok(if value == 0 { Register::NONE } else { Register::TRUE });
        }
        if let Some(&known) = self.constants.get(&(value, bits)) {
            return Ok(known);
        }
        let row = self.row(bits, at)?;
        self.constants.insert((value, bits), row);
        self.frame.constants.push((row, value));
        Ok(row)
    }

    /// A row that holds a special value.
    pub(crate) fn special(&mut self, special: Special, bits: u8, at: Place) -> Result<Register, Refusal> {
        if let Some(&known) = self.specials.get(&(special, bits)) {
            return Ok(known);
        }
        let row = self.row(bits, at)?;
        self.specials.insert((special, bits), row);
        self.frame.specials.push((row, special));
        Ok(row)
    }

    /// A register without a name.
    pub(crate) fn scratch(&mut self, bits: u8, at: Place) -> Result<Register, Refusal> {
        self.row(bits, at)
    }

    /// The predicate that holds the carry flag between `.cc` instructions.
    pub(crate) fn carry(&mut self, at: Place) -> Result<Register, Refusal> {
        match self.carry {
            Some(carry) => Ok(carry),
            None => {
                let carry = self.row(1, at)?;
                self.carry = Some(carry);
                Ok(carry)
            }
        }
    }

    /// A predicate without a name that holds nothing from one instruction of the text to the next.
    pub(crate) fn spare_predicate(&mut self, at: Place) -> Result<Register, Refusal> {
        match self.spare {
            Some(spare) => Ok(spare),
            None => {
                let spare = self.row(1, at)?;
                self.spare = Some(spare);
                Ok(spare)
            }
        }
    }

    fn row(&mut self, bits: u8, at: Place) -> Result<Register, Refusal> {
        let count = match bits {
            1 => &mut self.frame.predicates,
            64 => &mut self.frame.longs,
            _ => &mut self.frame.words,
        };
        if *count == MAX_ROWS {
            return Err(Refusal::not_supported(at, format!("more than {MAX_ROWS} registers of one size")));
        }
        *count += 1;
        Ok(Register { index: *count - 1, bits })
    }
}
