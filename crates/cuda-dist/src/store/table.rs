//! The values of a store: what each operation does to them, by torch's rules. No input or output.
//!
//! Queues are apart from values, and a key may be of both, as in torch: it has a value for who waits where its queue does.
//!
//! Invariant: `bytes` is the total length of all keys and values, including queues, plus [`ENTRY_BYTES`] for each
//! entry, plus the reserved bytes; it never exceeds the limit.

use std::collections::{BTreeMap, VecDeque};

use crate::error::{Error, Result};

/// Bytes charged for an entry in addition to its key and value, roughly the overhead of the maps.
pub(crate) const ENTRY_BYTES: usize = 64;

/// Keys and values.
#[derive(Debug)]
pub(crate) struct Table {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// None is empty.
    queues: BTreeMap<Vec<u8>, VecDeque<Vec<u8>>>,
    bytes: usize,
    limit: usize,
}

impl Table {
    /// A table that takes so many bytes of keys and values.
    pub(crate) fn new(limit: usize) -> Self {
        Self { values: BTreeMap::new(), queues: BTreeMap::new(), bytes: 0, limit }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.values.keys().map(Vec::as_slice)
    }

    pub(crate) fn set(&mut self, key: &[u8], value: Vec<u8>) -> Result<()> {
        self.bytes = self.bytes_with(key, value.len())?;
        self.values.insert(key.to_vec(), value);
        Ok(())
    }

    /// Returns the size of the table in bytes after a key has been set to a value of `length` bytes.
    ///
    /// # Errors
    /// The size would exceed the limit.
    pub(crate) fn bytes_with(&self, key: &[u8], length: usize) -> Result<usize> {
        let before = self.get(key).map_or(0, |old| key.len() + old.len() + ENTRY_BYTES);
        self.check_limit(self.bytes - before + key.len() + length + ENTRY_BYTES)
    }

    /// Charges bytes that users of the table need elsewhere to its limit.
    ///
    /// # Errors
    /// The size would exceed the limit.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.make_room(self.bytes + bytes)
    }

    /// Releases reserved bytes.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn check_limit(&self, bytes: usize) -> Result<usize> {
        if bytes > self.limit {
            return Err(Error::StoreFull(format!(
                "its keys and values would be {bytes} bytes, the limit is {}",
                self.limit
            )));
        }
        Ok(bytes)
    }

    /// Sets the size of the table if it is within the limit.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.check_limit(bytes)?;
        Ok(())
    }

    /// What is there afterwards, and whether it was set.
    pub(crate) fn compare_set(&mut self, key: &[u8], expected: &[u8], desired: Vec<u8>) -> Result<(Vec<u8>, bool)> {
        let fits = self.get(key).map_or(expected.is_empty(), |value| value == expected);
        if fits {
            self.set(key, desired.clone())?;
            return Ok((desired, true));
        }
        Ok((self.get(key).unwrap_or(expected).to_vec(), false))
    }

    pub(crate) fn add(&mut self, key: &[u8], amount: i64) -> Result<i64> {
        let problem = |problem: String| Error::Value { key: String::from_utf8_lossy(key).into_owned(), problem };
        let sum = sum(self.get(key), amount).map_err(problem)?;
        self.set(key, sum.to_string().into_bytes())?;
        Ok(sum)
    }

    pub(crate) fn append(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if !self.values.contains_key(key) {
            return self.set(key, value.to_vec());
        }
        self.make_room(self.bytes + value.len())?;
        if let Some(whole) = self.values.get_mut(key) {
            whole.extend_from_slice(value);
        }
        Ok(())
    }

    /// Puts a value at the end of a queue.
    pub(crate) fn push(&mut self, key: &[u8], value: Vec<u8>) -> Result<()> {
        let of_key = if self.queues.contains_key(key) { 0 } else { key.len() + ENTRY_BYTES };
        self.make_room(self.bytes + of_key + value.len() + ENTRY_BYTES)?;
        self.queues.entry(key.to_vec()).or_default().push_back(value);
        Ok(())
    }

    /// Takes the first value of a queue; how many there were, with it.
    pub(crate) fn pop(&mut self, key: &[u8]) -> Option<(usize, Vec<u8>)> {
        let queue = self.queues.get_mut(key)?;
        let (count, value) = (queue.len(), queue.pop_front()?);
        self.bytes -= value.len() + ENTRY_BYTES;
        if queue.is_empty() {
            self.queues.remove(key);
            self.bytes -= key.len() + ENTRY_BYTES;
        }
        Some((count, value))
    }

    pub(crate) fn queue_len(&self, key: &[u8]) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        let Some(value) = self.values.remove(key) else { return false };
        self.bytes -= key.len() + value.len() + ENTRY_BYTES;
        true
    }
}

/// Adds `amount` to a value that is a decimal number; a missing value counts as 0.
///
/// # Errors
/// The value is not a number, or the sum overflows. The message continues a sentence that begins with the key's name.
pub(crate) fn sum(value: Option<&[u8]>, amount: i64) -> std::result::Result<i64, String> {
    let before = match value {
        None => 0,
        Some(text) => number(text).ok_or("is no number, so nothing can be added to it")?,
    };
    before.checked_add(amount).ok_or_else(|| format!("is {before}, to which {amount} cannot be added in 64 bits"))
}

/// A decimal text as a number.
pub(crate) fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{ENTRY_BYTES, Table};

    #[test]
    fn numbers_are_added_and_texts_are_not() {
        let mut table = Table::new(1000);
        assert_eq!((table.add(b"n", 5).unwrap(), table.add(b"n", -7).unwrap()), (5, -2));
        table.set(b"t", b"text".to_vec()).unwrap();
        assert!(table.add(b"t", 1).is_err());
        table.set(b"n", i64::MAX.to_string().into_bytes()).unwrap();
        assert!(table.add(b"n", 1).is_err());
    }

    #[test]
    fn values_are_compared_as_torch_does() {
        let mut table = Table::new(1000);
        assert_eq!(table.compare_set(b"a", b"y", b"x".to_vec()).unwrap(), (b"y".to_vec(), false));
        assert_eq!(table.compare_set(b"a", b"", b"x".to_vec()).unwrap(), (b"x".to_vec(), true));
        assert_eq!(table.compare_set(b"a", b"z", b"w".to_vec()).unwrap(), (b"x".to_vec(), false));
    }

    #[test]
    fn queues_give_in_order_what_they_got_and_count_towards_the_limit() {
        let mut table = Table::new(10 + 3 * ENTRY_BYTES);
        table.push(b"q", vec![1; 4]).unwrap();
        table.push(b"q", vec![2; 4]).unwrap();
        assert!(table.push(b"q", vec![3; 2]).is_err() && table.has(b"q"));
        assert_eq!((table.len(), table.queue_len(b"q"), table.get(b"q")), (0, 2, None));
        assert_eq!(table.pop(b"q"), Some((2, vec![1; 4])));
        assert_eq!(table.pop(b"q"), Some((1, vec![2; 4])));
        assert_eq!((table.pop(b"q"), table.queue_len(b"q"), table.has(b"q")), (None, 0, false));
        assert_eq!(table.bytes(), 0);
        table.set(b"k", vec![0; 9 + 2 * ENTRY_BYTES]).unwrap();
        assert!(table.push(b"", Vec::new()).is_err(), "an entry without bytes counts too");
    }

    #[test]
    fn a_full_table_takes_no_more_and_counts_what_goes() {
        let mut table = Table::new(10 + 2 * ENTRY_BYTES);
        table.set(b"ab", vec![0; 8]).unwrap();
        table.set(b"", Vec::new()).unwrap();
        assert!(table.append(b"ab", b"x").is_err());
        assert!(table.set(b"c", Vec::new()).is_err());
        assert!(table.delete(b""));
        table.set(b"ab", vec![0; 2]).unwrap();
        table.set(b"cd", vec![0; 4]).unwrap();
        assert!(table.delete(b"ab") && !table.delete(b"ab"));
        table.append(b"cd", &[0; 4]).unwrap();
        assert_eq!(table.len(), 1);
    }
}
