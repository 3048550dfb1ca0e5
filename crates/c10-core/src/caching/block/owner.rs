//! Who owns allocated memory: the program, by its address, or a buffer, which alone may give it back.
//!
//! **Invariant:** memory is given back by the kind of owner that asked for it, so that an address taken from a buffer
//! frees nothing under that buffer's feet.

/// The kind of owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The program has the address and gives it back.
    Program,
    /// A buffer gives it back when its last handle is dropped.
    Buffer,
}

/// The flag of a buffer in a [`Claim`]: addresses are multiples of 512.
const OF_BUFFER: u64 = 2;
/// The flag of a buffer in an [`Asked`]: requests are smaller than 2^60 bytes.
const FOR_BUFFER: u64 = 1 << 63;

/// Bytes that are asked for, and the owner to be; one word, since each hit compares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked(u64);

impl Asked {
    /// No request.
    pub(crate) const NONE: Self = Self(0);

    /// `bytes` is below [`SIZE_LIMIT`](super::SIZE_LIMIT).
    #[inline]
    pub(crate) fn new(bytes: u64, owner: Owner) -> Self {
        Self(bytes | if owner == Owner::Buffer { FOR_BUFFER } else { 0 })
    }

    #[inline]
    pub(crate) fn bytes(self) -> u64 {
        self.0 & !FOR_BUFFER
    }

    #[inline]
    pub(crate) fn owner(self) -> Owner {
        if self.0 & FOR_BUFFER == 0 { Owner::Program } else { Owner::Buffer }
    }

    /// As a word to be shown to other threads; 0 is no request.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// The request of a word.
    #[inline]
    pub(crate) fn of_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }
}

/// An address with the kind of its owner; one word, since each free compares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim(u64);

impl Claim {
    /// No block's.
    pub(crate) const NONE: Self = Self(1);

    #[inline]
    pub(crate) fn new(address: u64, owner: Owner) -> Self {
        Self(address | if owner == Owner::Buffer { OF_BUFFER } else { 0 })
    }

    #[inline]
    pub(crate) fn address(self) -> u64 {
        self.0 & !OF_BUFFER
    }

    #[inline]
    pub(crate) fn owner(self) -> Owner {
        if self.0 & OF_BUFFER == 0 { Owner::Program } else { Owner::Buffer }
    }

    /// As a word that means nothing to others.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_both_parts() {
        for owner in [Owner::Program, Owner::Buffer] {
            for bytes in [1, 512, (1 << 60) - 1] {
                let asked = Asked::new(bytes, owner);
                assert_eq!((asked.bytes(), asked.owner()), (bytes, owner));
                assert_eq!(Asked::of_word(asked.word()), Some(asked));
            }
            for address in [512, 7 << 40, u64::MAX - 511] {
                let claim = Claim::new(address, owner);
                assert_eq!((claim.address(), claim.owner()), (address, owner));
                assert_ne!(claim, Claim::NONE);
            }
        }
        assert_eq!(Asked::of_word(0), None);
    }
}
