//! Memory of one stretch of bytes: for tests and measurements.

use std::cell::Cell;

use super::memory::{Fault, Memory, Window};

/// Bytes at an address, and what kernels printed.
#[derive(Debug)]
pub struct FlatMemory<'m> {
    base: u64,
    bytes: &'m [Cell<u8>],
    written: Option<&'m [Cell<u8>]>,
    /// What was printed.
    pub printed: String,
    /// Conditions that were set, in their order.
    pub conditions: Vec<(u64, u64)>,
}

impl<'m> FlatMemory<'m> {
    /// These bytes at an address.
    ///
    /// ```
    /// let mut bytes = vec![0; 64];
    /// let memory = ptx_sim::FlatMemory::new(4096, &mut bytes);
    /// assert!(memory.printed.is_empty());
    /// ```
    pub fn new(base: u64, bytes: &'m mut [u8]) -> Self {
        let bytes = Cell::from_mut(bytes).as_slice_of_cells();
        Self { base, bytes, written: None, printed: String::new(), conditions: Vec::new() }
    }

    /// The same with a bit for each byte, the lowest first: whether somebody has written it.
    #[must_use]
    pub fn with_written(self, written: &'m mut [u8]) -> Self {
        Self { written: Some(Cell::from_mut(written).as_slice_of_cells()), ..self }
    }
}

impl<'m> Memory<'m> for FlatMemory<'m> {
    fn window(&mut self, address: u64) -> Option<Window<'m>> {
        let inside = address.checked_sub(self.base)?;
        let holds = inside < self.bytes.len() as u64;
        holds.then_some(Window {
            base: self.base,
            bytes: self.bytes,
            writable: true,
            written: self.written,
            is_shared: false,
        })
    }

    fn load(&mut self, _address: u64, _bytes: u64) -> Result<u64, Fault> {
        Err(Fault::Address)
    }

    fn store(&mut self, _address: u64, _bytes: u64, _value: u64) -> Result<(), Fault> {
        Err(Fault::Address)
    }

    fn set_condition(&mut self, handle: u64, value: u64) -> Result<(), Fault> {
        self.conditions.push((handle, value));
        Ok(())
    }

    fn print(&mut self, text: &str) {
        self.printed.push_str(text);
    }

    fn print_error(&mut self, text: &str) {
        self.printed.push_str(text);
    }

    /// There is no heap.
    fn allocate(&mut self, _bytes: u64) -> u64 {
        0
    }

    fn free(&mut self, address: u64) -> Result<(), Fault> {
        if address == 0 { Ok(()) } else { Err(Fault::Free) }
    }
}
