//! How the error of a request is raised in PyTorch: as its `OutOfMemoryError` where memory ran out, and else, or where
//! that cannot be made, by its function `c10::detail::torchCheckFail`, which throws what Python sees as `RuntimeError`.
//!
//! PyTorch exports no function that throws an `OutOfMemoryError`, but all that such a function consists of: the
//! constructor of its base class, the table of its functions and its type. From these the exception is made here, by the
//! rules of the C++ ABI for Linux: room from `__cxa_allocate_exception`, the base's constructor, the derived class's
//! table, and `__cxa_throw`, which is not called but handed to `answer.rs` to jump to. So that nothing is thrown
//! that is something else, [`torch_allocator_set_out_of_memory`] looks at the type first: its name, and that it derives
//! from `c10::Error` alone.
//!
//! **Invariants:** nothing here throws. A text is kept for each thread until its next error, since the functions that
//! throw copy it.
//!
//! # Safety
//! The callers of the two setters promise what the functions and objects are. Texts of C++ have the layout of
//! libstdc++'s, which is that of PyTorch for Linux: a pointer, a length, and sixteen bytes of their own.
#![expect(unsafe_code, reason = "makes a C++ object by the names that PyTorch exports")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::last_error::{Failure, Told, attempt};

/// The address of the function that raises errors, 0 for none.
static RAISE: AtomicUsize = AtomicUsize::new(0);

/// What an `OutOfMemoryError` is made from, null for nothing. It is never freed.
static MAKER: AtomicPtr<Maker> = AtomicPtr::new(ptr::null_mut());

/// Who raises errors, as PyTorch's text names it.
const NAME: &CStr = c"torch_allocator_alloc";

/// What is said where the text is gone, on a thread that ends.
const GONE: &CStr = c"the allocator failed";

/// More than a `c10::Error` takes, which is 128 bytes.
const ROOM: usize = 1024;

/// A call that does not return, with at most four words as arguments.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// The function's address.
    pub(crate) function: usize,
    /// Its arguments.
    pub(crate) arguments: [usize; 4],
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
    static CALL: Cell<Call> = const { Cell::new(Call { function: 0, arguments: [0; 4] }) };
}

type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type Append = unsafe extern "C" fn(*mut StdString, *const c_char, usize) -> *mut StdString;
type Destroy = unsafe extern "C" fn(*mut StdString);
type Construct = unsafe extern "C" fn(*mut c_void, SourceLocation, *mut StdString);

/// A `std::string` as libstdc++ lays it out.
#[repr(C)]
#[derive(Debug)]
pub struct StdString {
    /// Its bytes: elsewhere, or those of `own`.
    pub bytes: *mut c_char,
    /// How many they are, without the zero byte behind them.
    pub length: usize,
    /// Room for short texts; of longer ones the first word is how much room they have.
    pub own: [u8; 16],
}

/// A `c10::SourceLocation`.
#[repr(C)]
#[derive(Debug)]
pub struct SourceLocation {
    /// The function's name.
    pub function: *const c_char,
    /// The file's name.
    pub file: *const c_char,
    /// The line.
    pub line: u32,
}

/// The start of a `std::type_info` of a class with one base class.
#[repr(C)]
#[derive(Debug)]
pub struct TypeInfo {
    /// The functions of the type's own type.
    pub functions: *const c_void,
    /// The class's name as C++ writes it for linkers.
    pub name: *const c_char,
    /// The type of the base class.
    pub base: *const TypeInfo,
}

/// What an exception of the class `c10::OutOfMemoryError` is made from; each is found in PyTorch's libraries by the name
/// that stands beside it. None may be missing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OutOfMemoryParts {
    /// `__cxa_allocate_exception`.
    pub allocate: Option<Allocate>,
    /// `std::string::_M_append(const char *, size_t)`.
    pub append: Option<Append>,
    /// `std::string::~string()`.
    pub destroy: Option<Destroy>,
    /// `c10::Error::Error(c10::SourceLocation, std::string)`.
    pub construct: Option<Construct>,
    /// `vtable for c10::OutOfMemoryError`: two words, then the functions, the destructor first.
    pub functions: *const [usize; 3],
    /// `typeinfo for c10::OutOfMemoryError`.
    pub type_info: *const TypeInfo,
    /// `typeinfo for c10::Error`.
    pub base: *const TypeInfo,
    /// `__cxa_throw`.
    pub throw: *const c_void,
}

/// The parts, none of which is missing.
struct Maker {
    allocate: Allocate,
    append: Append,
    destroy: Destroy,
    construct: Construct,
    /// Those of the class.
    functions: *const usize,
    destructor: usize,
    type_info: *const TypeInfo,
    throw: *const c_void,
}

/// Names the function that raises errors of requests, null for none: `c10::detail::torchCheckFail`, which throws what
/// Python sees as `RuntimeError`. It takes the names of a function and of a file, a line and the error's text.
///
/// # Safety
/// The function has the signature `void (const char *, const char *, uint32_t, const char *)` and stays where it is while
/// memory is asked for. It does not return; one that does, in a test, returns the answer to the request, a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_set_raise(raise: *const c_void) {
    RAISE.store(raise.addr(), Ordering::Release);
}

/// Says what an `OutOfMemoryError` is made from, null for nothing: then memory that runs out is an error like others.
/// Returns -1, and changes nothing, if one of the parts is missing, the class is another or does not derive from
/// `c10::Error` alone.
///
/// # Safety
/// `parts` is null or points to parts of which each is what its name says, and which stay where they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_set_out_of_memory(parts: *const OutOfMemoryParts) -> c_int {
    let set = attempt("torch_allocator_set_out_of_memory", || {
        // SAFETY: null or parts, by the caller's word.
        let maker = match unsafe { parts.as_ref() } {
            // SAFETY: as for this function.
            Some(parts) => Box::into_raw(Box::new(unsafe { Maker::new(parts) }?)),
            None => ptr::null_mut(),
        };
        MAKER.store(maker, Ordering::Release);
        Ok(())
    });
    if set.is_ok() { 0 } else { -1 }
}

/// The call that raises an error; null if there is nobody who does. Valid until the thread's next error.
pub(crate) fn call(told: &Told) -> *const Call {
    let text = CString::new(told.text.replace('\0', " ")).unwrap_or_default();
    let kept = TEXT.try_with(|place| {
        let mut place = place.borrow_mut();
        *place = text;
        place.as_ptr()
    });
    let text = kept.unwrap_or(GONE.as_ptr());
    // SAFETY: a text that is kept until the thread's next error, or for ever.
    let own = || unsafe { out_of_memory(text) };
    match told.is_out_of_memory.then(own).flatten().or_else(|| plain(text)) {
        Some(call) => CALL.with(|place| {
            place.set(call);
            place.as_ptr()
        }),
        None => ptr::null(),
    }
}

fn plain(text: *const c_char) -> Option<Call> {
    let function = RAISE.load(Ordering::Acquire);
    let name = NAME.as_ptr().expose_provenance();
    (function != 0).then(|| Call { function, arguments: [name, name, 0, text.expose_provenance()] })
}

/// The call that throws an `OutOfMemoryError`.
///
/// # Safety
/// `text` ends with a zero byte.
unsafe fn out_of_memory(text: *const c_char) -> Option<Call> {
    // SAFETY: null, or what is never freed.
    let maker = unsafe { MAKER.load(Ordering::Acquire).as_ref() }?;
    // SAFETY: as for this function.
    let exception = unsafe { maker.make(text) };
    let arguments = [exception.expose_provenance(), maker.type_info.expose_provenance(), maker.destructor, 0];
    Some(Call { function: maker.throw.expose_provenance(), arguments })
}

impl Maker {
    /// # Errors
    /// A part is missing, or the class is not that of the name.
    ///
    /// # Safety
    /// The parts are missing or what their names say.
    unsafe fn new(parts: &OutOfMemoryParts) -> Result<Self, Failure> {
        let missing = || Failure::Argument("a part of the exception is missing".to_owned());
        let has_null = parts.functions.is_null() || parts.base.is_null() || parts.throw.is_null();
        if has_null {
            return Err(missing());
        }
        // SAFETY: null or a type.
        let class = unsafe { parts.type_info.as_ref() }.ok_or_else(missing)?;
        // SAFETY: every type has a name.
        let name = unsafe { CStr::from_ptr(class.name) };
        if name != c"N3c1016OutOfMemoryErrorE" || !ptr::eq(class.base, parts.base) {
            return Err(Failure::Argument(format!("{name:?} is not what PyTorch throws when memory runs out")));
        }
        // SAFETY: the table of a class with three virtual functions.
        let [_, _, destructor] = unsafe { parts.functions.read() };
        Ok(Self {
            allocate: parts.allocate.ok_or_else(missing)?,
            append: parts.append.ok_or_else(missing)?,
            destroy: parts.destroy.ok_or_else(missing)?,
            construct: parts.construct.ok_or_else(missing)?,
            functions: parts.functions.cast::<usize>().wrapping_add(2),
            destructor,
            type_info: parts.type_info,
            throw: parts.throw,
        })
    }

    /// An exception with that text, which nobody has thrown.
    ///
    /// # Safety
    /// `text` ends with a zero byte.
    unsafe fn make(&self, text: *const c_char) -> *mut c_void {
        // SAFETY: the C++ library's function, for any size.
        let exception = unsafe { (self.allocate)(ROOM) };
        let mut message = StdString { bytes: ptr::null_mut(), length: 0, own: [0; 16] };
        message.bytes = (&raw mut message.own).cast();
        // SAFETY: by the caller's word.
        let length = unsafe { CStr::from_ptr(text) }.count_bytes();
        // SAFETY: an empty string, to which as many bytes are appended as the text has.
        unsafe { (self.append)(&raw mut message, text, length) };
        let location = SourceLocation { function: NAME.as_ptr(), file: NAME.as_ptr(), line: 0 };
        // SAFETY: `exception` has room for the object. The message's bytes may be taken from it; it stays a string.
        unsafe { (self.construct)(exception, location, &raw mut message) };
        // SAFETY: a string that is not used any more.
        unsafe { (self.destroy)(&raw mut message) };
        // SAFETY: the first word of the object leads to its class's functions. The class has no other data than its
        // base, of which alone it derives.
        unsafe { exception.cast::<*const usize>().write(self.functions) };
        exception
    }
}
