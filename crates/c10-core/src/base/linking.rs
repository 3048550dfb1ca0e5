//! What is given to a linker.

/// What an input of a link is.
///
/// ```
/// assert_eq!(c10_core::LinkKind::Ptx.to_string(), "PTX");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkKind {
    /// PTX, with or without a zero byte at its end.
    Ptx,
    /// Machine code for one architecture.
    Cubin,
    /// A bundle of machine code and PTX.
    Fatbin,
    /// An object of the host with device code in it.
    Object,
    /// An archive of such objects.
    Library,
}

impl std::fmt::Display for LinkKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ptx => "PTX",
            Self::Cubin => "cubin",
            Self::Fatbin => "fat binary",
            Self::Object => "object",
            Self::Library => "library",
        })
    }
}

/// An input of a link.
///
/// ```
/// use c10_core::{LinkInput, LinkKind};
///
/// let input = LinkInput { kind: LinkKind::Ptx, name: "a.ptx", data: b".version 7.8" };
/// assert_eq!(input.data.len(), 12);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LinkInput<'a> {
    /// What it is.
    pub kind: LinkKind,
    /// What it is called in the linker's log.
    pub name: &'a str,
    /// Its bytes.
    pub data: &'a [u8],
}
