//! The functions are called as PyTorch calls them, on the simulated driver.
//!
//! # Safety
//! Streams are the simulated runtime's and live until the end of each test; addresses that were never handed out are
//! only looked up.
#![expect(unsafe_code, reason = "calls C functions")]

mod common;

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{MIB, Torch, alloc, figure, free, handle, last_error, record, taken_error, text};
use testkit::Config;
use testkit::c10_core::Stream;
use torch_allocator::figures::*;
use torch_allocator::hooks::*;
use torch_allocator::raise::*;

#[test]
fn streams_keep_their_memory_apart() {
    let torch = Torch::new(Config::default());
    let (one, two) = (torch.stream(), torch.stream());
    let first = alloc(MIB, 0, handle(&one));
    let second = alloc(MIB, 0, handle(&two));
    assert!(!first.is_null() && !second.is_null() && first != second);
    free(first, MIB);
    assert_eq!(alloc(MIB, 0, handle(&one)), first);
    free(first, MIB);
    free(second, MIB);
    assert_eq!(alloc(MIB, 0, handle(&two)), second);
    free(second, MIB);
    assert_eq!(alloc(0, 0, ptr::null_mut()), ptr::null_mut());
    free(ptr::null_mut(), 0);
    let on_default = alloc(100, 0, ptr::null_mut());
    assert_eq!(figure("allocated_bytes.all.current"), 512);
    free(on_default, 100);
    torch.close([one, two]);
}

#[test]
fn memory_waits_for_the_streams_that_use_it() {
    let torch = Torch::new(Config::default());
    let (owner, user) = (torch.stream(), torch.stream());
    let used = alloc(MIB, 0, handle(&owner));
    user.sleep(1_000_000_000).unwrap();
    record(used, &user);
    free(used, MIB);
    let other = alloc(MIB, 0, handle(&owner));
    assert_ne!(other, used);
    user.synchronize().unwrap();
    let again = alloc(MIB, 0, handle(&owner));
    assert_eq!(again, used);
    free(other, MIB);
    free(again, MIB);
    record(ptr::null_mut(), &user);
    assert_eq!(last_error(), "");
    record(used, &user);
    assert!(taken_error().contains(&format!("{:#x}", used.addr())));
    torch.close([owner, user]);
}

#[test]
fn wrong_addresses_and_devices_are_refused() {
    let torch = Torch::new(Config::default());
    let address = alloc(MIB, 0, ptr::null_mut());
    for wrong in [ptr::without_provenance_mut(0xdead_0000), address.wrapping_byte_add(512)] {
        free(wrong, MIB);
        assert_ne!(taken_error(), "");
    }
    free(address, MIB);
    free(address, MIB);
    assert_ne!(taken_error(), "", "freed twice");
    // A buffer of this project's own programs in the same process.
    let foreign = torch.simulated.runtime().memory().buffer(MIB, &torch.stream()).unwrap();
    free(ptr::without_provenance_mut(usize::try_from(foreign.address()).unwrap()), MIB);
    assert_ne!(taken_error(), "", "a buffer's memory");
    drop(foreign);
    for device in [-1, 1, c_int::MAX, c_int::MIN] {
        assert_eq!(alloc(MIB, device, ptr::null_mut()), ptr::null_mut());
        assert_ne!(taken_error(), "", "memory of device {device}");
        torch_allocator_memory_fraction(0.5, device);
        assert_ne!(taken_error(), "", "a limit of device {device}");
        assert_eq!(torch_allocator_reset_peak_stats(device), -1);
        assert!(torch_allocator_get_memory_fraction(device) < 0.0);
        torch_allocator_release_pool(device, 1, 0);
        torch_allocator_forget_error();
    }
    // No stream has an odd handle.
    assert_eq!(alloc(MIB, 0, ptr::without_provenance_mut(0x1001)), ptr::null_mut());
    assert_ne!(taken_error(), "");
    torch.close([]);
}

thread_local! {
    static RAISED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Stands for the function of PyTorch's that throws.
unsafe extern "C" fn raise(
    function: *const c_char,
    file: *const c_char,
    line: u32,
    message: *const c_char,
) -> *mut c_void {
    // SAFETY: texts that end with a zero byte.
    let [function, file, message] = [function, file, message].map(|text| unsafe { CStr::from_ptr(text) });
    assert_eq!((function, file, line), (c"torch_allocator_alloc", c"torch_allocator_alloc", 0));
    let message = message.to_str().expect("a text").to_owned();
    RAISED.with_borrow_mut(|raised| raised.push(message));
    ptr::null_mut()
}

#[test]
fn a_failed_request_raises() {
    let torch = Torch::new(Config::default());
    assert_eq!(alloc(1 << 50, 0, ptr::null_mut()), ptr::null_mut());
    assert!(taken_error().starts_with("CUDA out of memory. Tried to allocate 1048576.00 GiB"));
    // SAFETY: the function has the signature.
    unsafe { torch_allocator_set_raise(raise as *const c_void) };
    for _ in 0..3 {
        assert_eq!(alloc(1 << 50, 0, ptr::null_mut()), ptr::null_mut());
        assert_eq!(RAISED.take(), [taken_error()]);
    }
    let fits = alloc(MIB, 0, ptr::null_mut());
    assert!(!fits.is_null());
    assert_eq!(alloc(0, 0, ptr::null_mut()), ptr::null_mut());
    assert!(RAISED.take().is_empty(), "neither memory nor no memory is an error");
    free(fits, MIB);
    torch_allocator_memory_fraction(0.01, 0);
    assert!((torch_allocator_get_memory_fraction(0) - 0.01).abs() < 1e-6);
    torch_allocator_memory_fraction(1.5, 0);
    assert_ne!(taken_error(), "");
    // SAFETY: null is no function.
    unsafe { torch_allocator_set_raise(ptr::null()) };
    torch.close([]);
}

/// What stands for the parts of the exception does to what it is given.
mod parts {
    use super::*;

    thread_local! {
        static ROOM: RefCell<Box<[usize; 128]>> = RefCell::new(Box::new([0; 128]));
        static APPENDED: RefCell<CString> = RefCell::default();
        pub(super) static DESTROYED: Cell<usize> = const { Cell::new(0) };
        pub(super) static THROWN: RefCell<Vec<[usize; 3]>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) static FUNCTIONS: [usize; 3] = [0, 0, 4711];

    pub(super) fn room() -> usize {
        ROOM.with_borrow(|room| room.as_ptr().addr())
    }

    pub(super) fn object() -> [usize; 4] {
        ROOM.with_borrow(|room| [room[0], room[1], room[2], room[3]])
    }

    unsafe extern "C" fn allocate(size: usize) -> *mut c_void {
        assert!(size <= size_of::<[usize; 128]>());
        ROOM.with_borrow_mut(|room| room.as_mut_ptr().cast())
    }

    unsafe extern "C" fn append(to: *mut StdString, bytes: *const c_char, length: usize) -> *mut StdString {
        // SAFETY: a string that lives until this returns.
        let string = unsafe { &mut *to };
        assert_eq!((string.length, string.bytes.addr()), (0, (&raw const string.own).addr()), "it was empty");
        // SAFETY: a text that ends with a zero byte.
        let text = unsafe { CStr::from_ptr(bytes) };
        assert_eq!(text.count_bytes(), length);
        APPENDED.set(text.to_owned());
        string.bytes = APPENDED.with_borrow(|text| text.as_ptr().cast_mut());
        string.length = length;
        to
    }

    unsafe extern "C" fn destroy(_: *mut StdString) {
        DESTROYED.set(DESTROYED.get() + 1);
    }

    unsafe extern "C" fn construct(object: *mut c_void, location: SourceLocation, text: *mut StdString) {
        assert_eq!(object.addr(), room());
        // SAFETY: texts that end with a zero byte.
        let names = [location.function, location.file].map(|name| unsafe { CStr::from_ptr(name) });
        assert_eq!((names, location.line), ([c"torch_allocator_alloc"; 2], 0));
        // SAFETY: a string that lives until this returns.
        let text = unsafe { &*text };
        let object = object.cast::<[usize; 4]>();
        // SAFETY: there is more room than that.
        unsafe { object.write([1, text.bytes.addr(), text.length, 2]) };
    }

    unsafe extern "C" fn throw(object: *mut c_void, class: *const TypeInfo, destructor: usize) -> *mut c_void {
        THROWN.with_borrow_mut(|thrown| thrown.push([object.addr(), class.addr(), destructor]));
        ptr::null_mut()
    }

    pub(super) fn base() -> TypeInfo {
        TypeInfo { functions: ptr::null(), name: c"N3c105ErrorE".as_ptr(), base: ptr::null() }
    }

    pub(super) fn of(class: &TypeInfo, base: &TypeInfo) -> OutOfMemoryParts {
        OutOfMemoryParts {
            allocate: Some(allocate),
            append: Some(append),
            destroy: Some(destroy),
            construct: Some(construct),
            functions: &raw const FUNCTIONS,
            type_info: class,
            base,
            throw: throw as *const c_void,
        }
    }
}

fn set_parts(parts: &OutOfMemoryParts) -> c_int {
    // SAFETY: parts that live until the test takes them away again.
    unsafe { torch_allocator_set_out_of_memory(parts) }
}

#[test]
fn memory_that_runs_out_is_an_exception_of_its_own() {
    let torch = Torch::new(Config::default());
    let base = parts::base();
    let class = TypeInfo { functions: ptr::null(), name: c"N3c1016OutOfMemoryErrorE".as_ptr(), base: &base };
    // SAFETY: the function has the signature.
    unsafe { torch_allocator_set_raise(raise as *const c_void) };
    assert_eq!(set_parts(&parts::of(&class, &base)), 0);
    for round in 1..=3 {
        assert_eq!(alloc(1 << 50, 0, ptr::null_mut()), ptr::null_mut());
        let text = taken_error();
        let [functions, bytes, length, last] = parts::object();
        assert_eq!((functions, last), ((&raw const parts::FUNCTIONS[2]).addr(), 2), "the class is the derived one");
        assert!(bytes != 0 && length == text.len() && text.starts_with("CUDA out of memory"));
        let thrown = [parts::room(), (&raw const class).addr(), 4711];
        assert_eq!((parts::THROWN.take(), parts::DESTROYED.get()), (vec![thrown], round));
        assert!(RAISED.take().is_empty());
    }
    // Other errors are no such exceptions.
    assert_eq!(alloc(MIB, 7, ptr::null_mut()), ptr::null_mut());
    assert_eq!((RAISED.take(), parts::THROWN.take()), (vec![taken_error()], Vec::new()));
    // SAFETY: null is nothing.
    assert_eq!(unsafe { torch_allocator_set_out_of_memory(ptr::null()) }, 0);
    assert_eq!(alloc(1 << 50, 0, ptr::null_mut()), ptr::null_mut());
    assert_eq!((RAISED.take(), parts::THROWN.take()), (vec![taken_error()], Vec::new()));
    // SAFETY: null is no function.
    unsafe { torch_allocator_set_raise(ptr::null()) };
    torch.close([]);
}

#[test]
fn wrong_parts_of_the_exception_are_refused() {
    let torch = Torch::new(Config::default());
    let (base, other) = (parts::base(), parts::base());
    let class = TypeInfo { functions: ptr::null(), name: c"N3c1016OutOfMemoryErrorE".as_ptr(), base: &base };
    let misnamed = TypeInfo { functions: ptr::null(), name: c"N3c109TypeErrorE".as_ptr(), base: &base };
    let whole = || parts::of(&class, &base);
    let wrong = [
        OutOfMemoryParts { allocate: None, ..whole() },
        OutOfMemoryParts { append: None, ..whole() },
        OutOfMemoryParts { destroy: None, ..whole() },
        OutOfMemoryParts { construct: None, ..whole() },
        OutOfMemoryParts { functions: ptr::null(), ..whole() },
        OutOfMemoryParts { type_info: ptr::null(), ..whole() },
        OutOfMemoryParts { base: ptr::null(), ..whole() },
        OutOfMemoryParts { throw: ptr::null(), ..whole() },
        parts::of(&class, &other),
        parts::of(&misnamed, &base),
    ];
    for parts in &wrong {
        assert_eq!(set_parts(parts), -1, "{parts:?}");
        assert_ne!(taken_error(), "");
    }
    assert_eq!(alloc(1 << 50, 0, ptr::null_mut()), ptr::null_mut());
    assert!(taken_error().starts_with("CUDA out of memory") && parts::THROWN.take().is_empty());
    torch.close([]);
}

/// Copies of the filter that are alive.
static COPIES: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C-unwind" fn manage(to: *mut [usize; 2], from: *const [usize; 2], what: c_int) -> bool {
    match what {
        2 => {
            COPIES.fetch_add(1, Ordering::Relaxed);
            // SAFETY: libstdc++'s manager is given two functors to clone.
            let functor = unsafe { from.read() };
            // SAFETY: as before.
            unsafe { to.write(functor) };
        }
        3 => _ = COPIES.fetch_sub(1, Ordering::Relaxed),
        other => panic!("a filter is not asked for {other}"),
    }
    false
}

unsafe extern "C-unwind" fn invoke(functor: *const [usize; 2], stream: *mut *mut c_void) -> bool {
    // SAFETY: libstdc++'s invoker is given a functor.
    let [wanted, _] = unsafe { functor.read() };
    // SAFETY: and the address of the argument.
    unsafe { stream.read() }.addr() == wanted
}

/// A filter that takes one stream, as PyTorch's compiler lays it out.
fn filter(stream: &Stream) -> StdFunction {
    StdFunction { functor: [stream.cuda_stream(), 0], manager: Some(manage), invoker: Some(invoke) }
}

fn begin(device: c_int, id: u64, filter: *const StdFunction) {
    // SAFETY: the filter outlives the call.
    unsafe { torch_allocator_begin_allocate_to_pool(device, id, 7, filter) };
}

fn segments() -> String {
    // SAFETY: the place is as long as is said.
    text(|place, room| unsafe { torch_allocator_segments(place, room) })
}

#[test]
fn pools_take_the_streams_that_the_filter_takes() {
    let torch = Torch::new(Config::default());
    let (inside, outside) = (torch.stream(), torch.stream());
    begin(0, 3, &filter(&inside));
    assert_eq!((last_error(), COPIES.load(Ordering::Relaxed)), (String::new(), 1));
    let mine = alloc(30 * MIB, 0, handle(&inside));
    let other = alloc(30 * MIB, 0, handle(&outside));
    torch_allocator_end_allocate_to_pool(0, 3, 7);
    assert_eq!(COPIES.load(Ordering::Relaxed), 0);
    let listed = segments();
    let of_pool = format!("\"address\":{},\"total_size\":{}", mine.addr(), 30 * MIB);
    let place = listed.find(&of_pool).expect("the pool's segment");
    assert!(listed[place..].split("\"blocks\"").next().unwrap().contains("\"segment_pool_id\":[3,7]"));
    assert_eq!(listed.matches("\"segment_pool_id\":[0,0]").count(), 1);
    free(mine, 30 * MIB);
    // The pool keeps its memory until it is released.
    torch_allocator_reset();
    assert!(segments().contains("[3,7]"));
    torch_allocator_release_pool(0, 3, 7);
    torch_allocator_reset();
    assert!(!segments().contains("[3,7]"));
    free(other, 30 * MIB);
    assert_eq!(last_error(), "");
    torch.close([inside, outside]);
}

#[test]
fn wrong_pools_are_refused() {
    let torch = Torch::new(Config::default());
    let stream = torch.stream();
    begin(0, 1, ptr::null());
    assert!(taken_error().contains("a function that says which streams use it"));
    begin(0, 1, &StdFunction { functor: [0; 2], manager: None, invoker: None });
    assert_ne!(taken_error(), "");
    for device in [9, -1] {
        begin(device, 1, &filter(&stream));
        assert_ne!(taken_error(), "", "a pool of device {device}");
    }
    torch_allocator_end_allocate_to_pool(0, 1, 7);
    assert_ne!(taken_error(), "");
    torch_allocator_release_pool(0, 1, 7);
    assert_ne!(taken_error(), "");
    begin(0, 1, &filter(&stream));
    begin(0, 1, &filter(&stream));
    assert_ne!(taken_error(), "", "begun twice");
    torch_allocator_end_allocate_to_pool(0, 1, 7);
    torch_allocator_release_pool(0, 1, 7);
    assert_eq!(COPIES.load(Ordering::Relaxed), 0);
    torch.close([stream]);
}

#[test]
fn figures_and_places_agree() {
    let torch = Torch::new(Config::default());
    let address = alloc(3 * MIB, 0, ptr::null_mut());
    let mut size = 0;
    // SAFETY: `size` outlives the call.
    let base = unsafe { torch_allocator_base_alloc(address.wrapping_byte_add(MIB), &mut size) };
    assert_eq!((base, size), (address, 20 * MIB));
    // SAFETY: null is allowed.
    let none = unsafe { torch_allocator_base_alloc(ptr::without_provenance_mut(4096), ptr::null_mut()) };
    assert!(none.is_null() && taken_error().contains("0x1000"));
    assert_eq!(figure("reserved_bytes.all.current"), 20 << 20);
    free(address, 3 * MIB);
    assert_eq!(figure("allocated_bytes.all.peak"), 3 << 20);
    assert_eq!(torch_allocator_reset_peak_stats(0), 0);
    assert_eq!(torch_allocator_reset_accumulated_stats(0), 0);
    assert_eq!((figure("allocated_bytes.all.peak"), figure("allocation.all.allocated")), (0, 0));
    let mut short: [c_char; 4] = [1; 4];
    // SAFETY: the place is as long as is said.
    let length = unsafe { torch_allocator_segments(short.as_mut_ptr(), short.len()) };
    assert!(length > 100 && short[3] == 0 && short[2] != 0);
    // SAFETY: a text, and null.
    let statuses = unsafe {
        [c"max_split_size_mb:100".as_ptr(), c"no_such_option:1".as_ptr(), ptr::null()]
            .map(|settings| torch_allocator_set_settings(settings))
    };
    assert_eq!(statuses, [0, -1, -1]);
    torch_allocator_forget_error();
    torch.close([]);
}
