//! The instructions of pickles that reader or writer know.

pub(crate) const PROTO: u8 = 0x80;
pub(crate) const FRAME: u8 = 0x95;
pub(crate) const STOP: u8 = b'.';
pub(crate) const MARK: u8 = b'(';
pub(crate) const NONE: u8 = b'N';
pub(crate) const NEWTRUE: u8 = 0x88;
pub(crate) const NEWFALSE: u8 = 0x89;
pub(crate) const BININT: u8 = b'J';
pub(crate) const BININT1: u8 = b'K';
pub(crate) const BININT2: u8 = b'M';
pub(crate) const LONG1: u8 = 0x8a;
pub(crate) const LONG4: u8 = 0x8b;
pub(crate) const BINFLOAT: u8 = b'G';
pub(crate) const BINUNICODE: u8 = b'X';
pub(crate) const SHORT_BINUNICODE: u8 = 0x8c;
pub(crate) const BINUNICODE8: u8 = 0x8d;
pub(crate) const BINBYTES: u8 = b'B';
pub(crate) const SHORT_BINBYTES: u8 = b'C';
pub(crate) const BINBYTES8: u8 = 0x8e;
pub(crate) const EMPTY_LIST: u8 = b']';
pub(crate) const EMPTY_DICT: u8 = b'}';
pub(crate) const EMPTY_TUPLE: u8 = b')';
pub(crate) const TUPLE: u8 = b't';
pub(crate) const TUPLE1: u8 = 0x85;
pub(crate) const TUPLE2: u8 = 0x86;
pub(crate) const TUPLE3: u8 = 0x87;
pub(crate) const LIST: u8 = b'l';
pub(crate) const DICT: u8 = b'd';
pub(crate) const APPEND: u8 = b'a';
pub(crate) const APPENDS: u8 = b'e';
pub(crate) const SETITEM: u8 = b's';
pub(crate) const SETITEMS: u8 = b'u';
pub(crate) const BINPUT: u8 = b'q';
pub(crate) const LONG_BINPUT: u8 = b'r';
pub(crate) const BINGET: u8 = b'h';
pub(crate) const LONG_BINGET: u8 = b'j';
pub(crate) const MEMOIZE: u8 = 0x94;

/// Those that import, call or build objects, or ask somebody else for one: GLOBAL, STACK_GLOBAL, REDUCE, BUILD, INST,
/// OBJ, NEWOBJ, NEWOBJ_EX, the extension registry, persistent ids.
pub(crate) const RUN_CODE: &[u8] =
    &[b'c', 0x93, b'R', b'b', b'i', b'o', 0x81, 0x92, 0x82, 0x83, 0x84, b'P', b'Q', 0x97, 0x98];
