//! Identities of devices.

use std::fmt;

/// A device's 16-byte identity, written as 8-4-4-4-12 hexadecimal digits.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Runtime, Uuid};
///
/// assert_eq!(Runtime::current().devices().properties(0)?.uuid.to_string().len(), 36);
/// assert_eq!(Uuid { bytes: [0xab; 16] }.to_string(), "abababab-abab-abab-abab-abababababab");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid {
    /// The bytes, first digit first.
    pub bytes: [u8; 16],
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.bytes.iter().enumerate() {
            if [4, 6, 8, 10].contains(&index) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}
