//! What a file of the safetensors format says of itself: eight bytes of length, JSON, and then the tensors' bytes.
//!
//! **Invariants:** a header that is accepted names tensors that lie one behind the other from the first byte on, each with
//! as many bytes as its dtype and sizes have, and all of the file. Reading takes memory for the JSON alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use aten_cuda::DType;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The longest JSON text that is read.
pub(crate) const JSON_MAX: u64 = 100_000_000;

/// The bytes before the JSON text, which are its length.
pub(crate) const LENGTH: u64 = 8;

/// The name under which a file has texts.
const METADATA: &str = "__metadata__";

/// The dtypes that the format has and tensors have. It has no complex numbers but those of two floats of 32 bits.
const DTYPES: [(DType, &str); 13] = [
    (DType::Bool, "BOOL"),
    (DType::U8, "U8"),
    (DType::I8, "I8"),
    (DType::I16, "I16"),
    (DType::I32, "I32"),
    (DType::I64, "I64"),
    (DType::F16, "F16"),
    (DType::BF16, "BF16"),
    (DType::F32, "F32"),
    (DType::F64, "F64"),
    (DType::C64, "C64"),
    (DType::F8E4M3FN, "F8_E4M3"),
    (DType::F8E5M2, "F8_E5M2"),
];

/// The format's other dtypes.
const OTHERS: [&str; 9] = ["U16", "U32", "U64", "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"];

/// What is wrong with what a file of tensors says of itself, or with tensors that are to be saved.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use cuda_storage::Error;
/// use cuda_storage::safetensors::{HeaderError, load};
///
/// let error = load(&u64::MAX.to_le_bytes(), "cpu").unwrap_err();
/// assert!(matches!(error, Error::Header { cause: HeaderError::TooLong { .. }, .. }), "{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// There is not even the header's length.
    #[error("{bytes} bytes are too few for a header")]
    TooShort {
        /// How many there are.
        bytes: u64,
    },
    /// The header is longer than any that is read.
    #[error("a header of {bytes} bytes is longer than {JSON_MAX}")]
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// The header ends behind the file.
    #[error("a header of {header} bytes does not fit into the file's {file}")]
    BeyondFile {
        /// The header's length.
        header: u64,
        /// The file's.
        file: u64,
    },
    /// The header is not JSON of this format.
    #[error("the header is not of this format: {0}")]
    Json(String),
    /// A name stands for two tensors.
    #[error("two tensors have the name '{0}'")]
    Duplicate(String),
    /// A tensor has a dtype that the format does not have.
    #[error("'{name}' is of '{dtype}', which the format does not have")]
    UnknownDtype {
        /// The tensor.
        name: String,
        /// What it is said to be of.
        dtype: String,
    },
    /// A tensor has a dtype of the format that tensors here do not have.
    #[error("no dtype here is {dtype}, which '{name}' is of")]
    ForeignDtype {
        /// The tensor.
        name: String,
        /// The format's name of its dtype.
        dtype: String,
    },
    /// A tensor has a dtype that the format cannot express.
    #[error("the format has no {dtype}, which '{name}' is of")]
    NoSuchDtype {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: DType,
    },
    /// A tensor has more elements than there can be.
    #[error("'{name}' of sizes {sizes:?} is too large")]
    TooLarge {
        /// The tensor.
        name: String,
        /// Its sizes.
        sizes: Vec<u64>,
    },
    /// A tensor has other bytes than its dtype and sizes say.
    #[error("'{name}' needs {needed} bytes, and has those from {begins} to {ends}")]
    WrongSize {
        /// The tensor.
        name: String,
        /// How many bytes its elements have.
        needed: u64,
        /// Where they are said to begin.
        begins: u64,
        /// Where they are said to end.
        ends: u64,
    },
    /// Two tensors share bytes.
    #[error("'{second}' begins at byte {begins}, where '{first}' still is")]
    Overlap {
        /// The tensor that comes first.
        first: String,
        /// The one behind it.
        second: String,
        /// Where that begins.
        begins: u64,
    },
    /// Bytes belong to no tensor.
    #[error("no tensor has the {} bytes from {} on, before '{name}'", bytes.end - bytes.start, bytes.start)]
    Hole {
        /// The tensor behind them.
        name: String,
        /// The bytes.
        bytes: Range<u64>,
    },
    /// The tensors end before or behind the file.
    #[error("the tensors have {tensors} bytes, and the file {file} for them")]
    WrongEnd {
        /// How many bytes the tensors have.
        tensors: u64,
        /// How many the file has behind its header.
        file: u64,
    },
}

/// A tensor as a header has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) sizes: Vec<i64>,
    /// Its bytes, counted from the end of the header.
    pub(crate) bytes: Range<u64>,
}

/// A header that is right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The tensors in the order of their bytes.
    pub(crate) tensors: Vec<Stored>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// The length of the JSON text of a file that begins with these bytes.
///
/// # Errors
/// It is too long, or longer than the file.
pub(crate) fn length(first: [u8; 8], file: u64) -> Result<u64, HeaderError> {
    let bytes = u64::from_le_bytes(first);
    if bytes > JSON_MAX {
        return Err(HeaderError::TooLong { bytes });
    }
    if LENGTH + bytes > file {
        return Err(HeaderError::BeyondFile { header: bytes, file });
    }
    Ok(bytes)
}

impl Header {
    /// Reads the JSON text of a file that has `data` bytes behind it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(json: &[u8], data: u64) -> Result<Self, HeaderError> {
        let raw: Raw = serde_json::from_slice(json).map_err(|error| HeaderError::Json(error.to_string()))?;
        if let Some(name) = raw.twice {
            return Err(HeaderError::Duplicate(name));
        }
        let mut tensors = raw.tensors.into_iter().map(stored).collect::<Result<Vec<_>, _>>()?;
        tensors.sort_by(|a, b| (a.bytes.start, a.bytes.end, &a.name).cmp(&(b.bytes.start, b.bytes.end, &b.name)));
        check_order(&tensors, data)?;
        Ok(Self { tensors, metadata: raw.metadata })
    }

    /// The text of the header with its length before it, filled up so that the tensors begin at a multiple of 8.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut map = serde_json::Map::new();
        if !self.metadata.is_empty() {
            map.insert(METADATA.to_owned(), self.metadata.clone().into_iter().collect());
        }
        for tensor in &self.tensors {
            let dtype = name_of(tensor.dtype).unwrap_or_default();
            let offsets = [tensor.bytes.start, tensor.bytes.end];
            let value = serde_json::json!({ "dtype": dtype, "shape": tensor.sizes, "data_offsets": offsets });
            map.insert(tensor.name.clone(), value);
        }
        let mut json = serde_json::Value::Object(map).to_string().into_bytes();
        json.resize(json.len().next_multiple_of(8), b' ');
        [&(json.len() as u64).to_le_bytes()[..], &json].concat()
    }
}

/// The format's name of a dtype.
pub(crate) fn name_of(dtype: DType) -> Option<&'static str> {
    DTYPES.iter().find(|(known, _)| *known == dtype).map(|(_, name)| *name)
}

/// Checks that the tensors lie one behind the other and fill the file.
fn check_order(tensors: &[Stored], data: u64) -> Result<(), HeaderError> {
    let mut end = 0;
    for (index, tensor) in tensors.iter().enumerate() {
        let begins = tensor.bytes.start;
        if begins < end {
            let first = tensors[..index].iter().rfind(|before| before.bytes.end > begins);
            let first = first.map_or_else(String::new, |before| before.name.clone());
            return Err(HeaderError::Overlap { first, second: tensor.name.clone(), begins });
        }
        if begins > end {
            return Err(HeaderError::Hole { name: tensor.name.clone(), bytes: end..begins });
        }
        end = tensor.bytes.end;
    }
    if end == data { Ok(()) } else { Err(HeaderError::WrongEnd { tensors: end, file: data }) }
}

/// Checks one tensor by itself.
fn stored((name, entry): (String, Entry)) -> Result<Stored, HeaderError> {
    let Entry { dtype: known, shape, data_offsets: (start, end) } = entry;
    let Some(&(dtype, _)) = DTYPES.iter().find(|(_, name)| *name == known) else {
        let is_foreign = OTHERS.contains(&known.as_str());
        return Err(match is_foreign {
            true => HeaderError::ForeignDtype { name, dtype: known },
            false => HeaderError::UnknownDtype { name, dtype: known },
        });
    };
    // As torch counts: a size of zero makes no other one small.
    let sizes: Option<Vec<i64>> = shape.iter().map(|&size| i64::try_from(size).ok()).collect();
    let bytes = shape.iter().try_fold(dtype.itemsize() as u64, |bytes, &size| bytes.checked_mul(size));
    let (Some(sizes), Some(needed)) = (sizes, bytes.filter(|&bytes| i64::try_from(bytes).is_ok())) else {
        return Err(HeaderError::TooLarge { name, sizes: shape });
    };
    if end.checked_sub(start) != Some(needed) {
        return Err(HeaderError::WrongSize { name, needed, begins: start, ends: end });
    }
    Ok(Stored { name, dtype, sizes, bytes: start..end })
}

/// A tensor as the JSON text has it.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The JSON text, with the first name that stands there twice.
#[derive(Default)]
struct Raw {
    tensors: Vec<(String, Entry)>,
    metadata: BTreeMap<String, String>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensors by their names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let (mut raw, mut names) = (Raw::default(), BTreeSet::new());
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                map.next_value::<IgnoredAny>()?;
                raw.twice.get_or_insert(name);
            } else if name == METADATA {
                raw.metadata = map.next_value()?;
            } else {
                let entry = map.next_value().map_err(|error| A::Error::custom(format_args!("'{name}': {error}")))?;
                raw.tensors.push((name, entry));
            }
        }
        Ok(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str, data: u64) -> Result<Header, HeaderError> {
        Header::parse(json.as_bytes(), data)
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let json = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[2,10]},
            "a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},"none":{"dtype":"F64","shape":[0,7],"data_offsets":[2,2]}} "#;
        let header = parse(json, 10).unwrap();
        assert_eq!(header.tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), ["a", "none", "b"]);
        assert_eq!(header.metadata["format"], "pt");
        let bytes = header.to_bytes();
        assert_eq!(bytes.len() % 8, 0);
        let json = length(bytes[..8].try_into().unwrap(), bytes.len() as u64 + 10).unwrap();
        assert_eq!(json, bytes.len() as u64 - 8);
        assert_eq!(Header::parse(&bytes[8..], 10), Ok(header));
    }

    #[test]
    fn hostile_headers_are_told_apart() {
        let one = |dtype: &str, shape: &str, start: u64, end: u64| {
            format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}}}"#)
        };
        let name = || "x".to_owned();
        let cases = [
            (one("F33", "[1]", 0, 4), HeaderError::UnknownDtype { name: name(), dtype: "F33".to_owned() }),
            (one("U16", "[1]", 0, 2), HeaderError::ForeignDtype { name: name(), dtype: "U16".to_owned() }),
            (one("F32", "[2]", 0, 4), HeaderError::WrongSize { name: name(), needed: 8, begins: 0, ends: 4 }),
            (one("F32", "[1]", 4, 0), HeaderError::WrongSize { name: name(), needed: 4, begins: 4, ends: 0 }),
            (one("F32", "[1]", 4, 8), HeaderError::Hole { name: name(), bytes: 0..4 }),
            (one("F32", "[1]", 0, 4), HeaderError::WrongEnd { tensors: 4, file: 10 }),
            (
                one("I8", "[4294967296,4294967296]", 0, 1),
                HeaderError::TooLarge { name: name(), sizes: vec![1 << 32, 1 << 32] },
            ),
            (
                one("I8", "[18446744073709551615,0]", 0, 0),
                HeaderError::TooLarge { name: name(), sizes: vec![u64::MAX, 0] },
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(&json, 10), Err(expected), "{json}");
        }
        let two = |second: &str, start: u64| {
            format!(
                r#"{{"x":{{"dtype":"I8","shape":[8],"data_offsets":[0,8]}},
                    "{second}":{{"dtype":"I8","shape":[2],"data_offsets":[{start},{}]}}}}"#,
                start + 2
            )
        };
        assert_eq!(parse(&two("x", 8), 10), Err(HeaderError::Duplicate(name())));
        let overlap = HeaderError::Overlap { first: name(), second: "y".to_owned(), begins: 6 };
        assert_eq!(parse(&two("y", 6), 10), Err(overlap));
        for json in ["", "[]", "{", r#"{"x":1}"#, r#"{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#] {
            assert!(matches!(parse(json, 0), Err(HeaderError::Json(_))), "{json}");
        }
        assert!(parse("{}", 0).is_ok());
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let told = |bytes: u64| length(bytes.to_le_bytes(), 100);
        assert_eq!(told(92), Ok(92));
        assert_eq!(told(93), Err(HeaderError::BeyondFile { header: 93, file: 100 }));
        assert_eq!(told(u64::MAX), Err(HeaderError::TooLong { bytes: u64::MAX }));
    }
}
