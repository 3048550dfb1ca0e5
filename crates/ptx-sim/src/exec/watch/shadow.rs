//! What is remembered of each word of memory: its last write and its last read.
//!
//! Of global memory most is touched by whole rows: words next to each other, by the lanes of a warp in their order. Of such a
//! line of 32 words one access stands for all; the words of a line are remembered one by one from the first access on that is
//! no row.

use std::collections::HashMap;

/// Words of a line.
pub(super) const LINE: usize = 32;

/// Lines of a page.
const LINES: usize = 32;

/// Bytes of a page.
const PAGE: u64 = (LINES * LINE * 4) as u64;

/// Pages whose place is remembered.
const NEAR: usize = 64;

/// An access that is remembered: of one thread, or of the threads whose words make a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    /// Time, thread, bytes of the word, words of a thread (by their logarithm) and whether it is weak; 0 for none.
    when: u64,
    /// In which place its block began.
    pub(super) block: u32,
    pub(super) pc: u32,
}

/// Bits of `when` below the time.
const TIME_SHIFT: u32 = 17;
const THREAD_SHIFT: u32 = 7;
const BYTES_SHIFT: u32 = 3;
const WORDS_SHIFT: u32 = 1;

/// All bytes of a word.
pub(super) const WHOLE: u8 = 0xF;

impl Access {
    /// An access of whole words.
    pub(super) fn new(time: u64, thread: u32, weak: bool, block: u32, pc: u32) -> Self {
        let low = u64::from(thread) << THREAD_SHIFT | u64::from(WHOLE) << BYTES_SHIFT | u64::from(weak);
        Self { when: time << TIME_SHIFT | low, block, pc }
    }

    /// The same by another thread, as one access of a line in which each thread has `1 << words` words.
    #[inline]
    pub(super) fn by(self, thread: u32, words: u32) -> Self {
        let kept = self.when & !((1 << TIME_SHIFT) - 1) | u64::from(WHOLE) << BYTES_SHIFT | self.when & 1;
        Self { when: kept | u64::from(thread) << THREAD_SHIFT | u64::from(words) << WORDS_SHIFT, ..self }
    }

    /// The same by another lane of the warp whose first thread it is by.
    #[inline]
    pub(super) fn of_lane(self, lane: usize) -> Self {
        Self { when: self.when + ((lane as u64) << THREAD_SHIFT), ..self }
    }

    /// The same of some bytes of the word.
    #[inline]
    pub(super) fn of_bytes(self, bytes: u8) -> Self {
        Self { when: self.when & !(u64::from(WHOLE) << BYTES_SHIFT) | u64::from(bytes & WHOLE) << BYTES_SHIFT, ..self }
    }

    /// Whether two accesses of a word have bytes in common.
    #[inline]
    pub(super) fn meets(self, other: Self) -> bool {
        self.when & other.when & u64::from(WHOLE) << BYTES_SHIFT != 0
    }

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self.when == 0
    }

    #[inline]
    pub(super) fn time(self) -> u64 {
        self.when >> TIME_SHIFT
    }

    /// The thread; of a line the first.
    #[inline]
    pub(super) fn thread(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "a block has 1024 threads at most")]
        let low = self.when as u32;
        low >> THREAD_SHIFT & 0x3FF
    }

    /// The logarithm of a thread's words.
    #[inline]
    pub(super) fn words(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest bits")]
        let low = self.when as u32;
        low >> WORDS_SHIFT & 3
    }

    #[inline]
    pub(super) fn is_weak(self) -> bool {
        self.when & 1 != 0
    }

    /// What one word of the line was accessed by.
    fn of_word(self, word: usize) -> Self {
        if self.is_none() {
            return self;
        }
        let thread = self.thread() + (u32::try_from(word).unwrap_or(0) >> self.words());
        self.by(thread, 0)
    }
}

/// A word of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Word {
    pub(super) write: Access,
    pub(super) read: Access,
}

/// A line of global memory.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Of all words, while there is no `words`.
    pub(super) write: Access,
    pub(super) read: Access,
    pub(super) words: Option<Box<[Word; LINE]>>,
}

impl Line {
    /// The words one by one.
    #[inline]
    pub(super) fn each(&mut self) -> &mut [Word; LINE] {
        let (write, read) = (self.write, self.read);
        self.words.get_or_insert_with(|| {
            Box::new(std::array::from_fn(|word| Word { write: write.of_word(word), read: read.of_word(word) }))
        })
    }
}

/// Global memory.
#[derive(Debug)]
pub(super) struct Lines {
    pages: Vec<[Line; LINES]>,
    places: HashMap<u64, usize>,
    /// The pages found last, with their places.
    near: [(u64, usize); NEAR],
}

impl Default for Lines {
    fn default() -> Self {
        Self { pages: Vec::new(), places: HashMap::new(), near: [(u64::MAX, 0); NEAR] }
    }
}

impl Lines {
    /// The line that an address is in.
    #[inline]
    pub(super) fn at(&mut self, address: u64) -> &mut Line {
        let (page, inside) = (address / PAGE, address % PAGE);
        #[expect(clippy::cast_possible_truncation, reason = "below the number of entries")]
        let (near, line) = (page as usize % NEAR, inside as usize / (LINE * 4));
        if self.near[near].0 != page {
            self.find(page, near);
        }
        &mut self.pages[self.near[near].1][line]
    }

    /// The word that an address is in.
    #[inline]
    pub(super) fn word(&mut self, address: u64) -> &mut Word {
        &mut self.at(address).each()[(address / 4 % LINE as u64) as usize]
    }

    #[cold]
    fn find(&mut self, page: u64, near: usize) {
        let pages = &mut self.pages;
        let place = *self.places.entry(page).or_insert_with(|| {
            pages.push(std::array::from_fn(|_| Line::default()));
            pages.len() - 1
        });
        self.near[near] = (page, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_keeps_its_parts() {
        let access = Access::new(1 << 40, 1023, true, u32::MAX, 77);
        assert_eq!((access.time(), access.thread(), access.words(), access.is_weak()), (1 << 40, 1023, 0, true));
        let line = access.by(64, 2);
        assert_eq!((line.time(), line.thread(), line.words(), line.is_weak()), (1 << 40, 64, 2, true));
        assert!(line.meets(access.of_bytes(1)) && !access.of_bytes(1).meets(access.of_bytes(6)));
        assert_eq!(access.of_bytes(3).time(), 1 << 40);
        assert_eq!((line.block, line.pc, Access::default().is_none()), (u32::MAX, 77, true));
    }

    #[test]
    fn a_line_becomes_words_of_its_threads() {
        let mut lines = Lines::default();
        let line = lines.at(1 << 32);
        line.write = Access::new(5, 0, false, 1, 2).by(32, 1);
        let each = line.each();
        assert_eq!([0, 1, 2, 31].map(|word| each[word].write.thread()), [32, 32, 33, 47]);
        assert!(each.iter().all(|word| word.read.is_none() && word.write.words() == 0));
        assert!(lines.at((1 << 32) + 128).words.is_none() && lines.at((1 << 32) + 127).words.is_some());
    }
}
