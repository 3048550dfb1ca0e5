//! Pinned host memory: allocated by the driver, or registered with it.

use super::prelude::*;

cases!("host", CASES, Needs::CONTEXT;
    alloc_and_free, alloc_host_v2, zero_bytes_are_no_memory, unknown_flags_are_refused, absurd_size, free_of_null_succeeds,
    free_twice_is_refused, free_inside_is_refused, free_of_device_memory_is_refused, free_of_ordinary_memory_is_refused,
    flags_of_default, flags_are_kept, flags_from_inside, flags_of_ordinary_memory, device_pointer_is_the_same,
    device_pointer_from_inside, device_pointer_with_flags, device_pointer_of_ordinary_memory, pinned_is_readable_by_copies,
    register_and_unregister, register_twice, register_overlapping, register_null, register_zero_bytes,
    register_unknown_flags, register_driver_memory, register_unaligned, unregister_twice, unregister_inside,
    unregister_driver_memory, free_of_registered_memory, registered_flags, registered_device_pointer,
    registered_is_readable_by_copies, two_registrations_of_neighbours,
);

fn alloc_and_free(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = ptr::null_mut();
    ok!(cu.cuMemHostAlloc(&mut pointer, 1 << 20, 0));
    that!(cu, !pointer.is_null());
    same!(cu, pointer.addr() % 512, 0);
    ok!(cu.cuMemFreeHost(pointer));
    Ok(())
}

fn alloc_host_v2(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = ptr::null_mut();
    ok!(cu.cuMemAllocHost_v2(&mut pointer, 100));
    cu.later(Cleanup::Host(pointer));
    let pinned = Pinned { pointer: pointer.cast(), bytes: 100 };
    pinned.fill(0x31);
    same!(cu, pinned.read(), vec![0x31; 100]);
    Ok(())
}

fn zero_bytes_are_no_memory(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = ptr::without_provenance_mut(7);
    want!(SUCCESS, cu.cuMemHostAlloc(&mut pointer, 0, 0));
    that!(cu, pointer.is_null());
    pointer = ptr::without_provenance_mut(7);
    want!(SUCCESS, cu.cuMemAllocHost_v2(&mut pointer, 0));
    that!(cu, pointer.is_null());
    Ok(())
}

fn unknown_flags_are_refused(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuMemHostAlloc(&mut pointer, 4096, 0x80));
    want!(INVALID_VALUE, cu.cuMemHostAlloc(&mut pointer, 4096, 8));
    Ok(())
}

fn absurd_size(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = ptr::null_mut();
    want!(OUT_OF_MEMORY, cu.cuMemHostAlloc(&mut pointer, 1 << 55, 0));
    want!(OUT_OF_MEMORY, cu.cuMemAllocHost_v2(&mut pointer, 1 << 55));
    Ok(())
}

fn free_of_null_succeeds(cu: &Cuda<'_>) -> CaseResult {
    want!(SUCCESS, cu.cuMemFreeHost(ptr::null_mut()));
    Ok(())
}

fn free_twice_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = ptr::null_mut();
    ok!(cu.cuMemHostAlloc(&mut pointer, 4 << 20, 0));
    ok!(cu.cuMemFreeHost(pointer));
    want!(INVALID_VALUE, cu.cuMemFreeHost(pointer));
    Ok(())
}

fn free_inside_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(1 << 20)?;
    want!(INVALID_VALUE, cu.cuMemFreeHost(pinned.pointer.wrapping_add(4096).cast()));
    Ok(())
}

fn free_of_device_memory_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(4 << 20)?;
    let bad = ptr::without_provenance_mut(usize::try_from(pointer).unwrap_or(0));
    want!(INVALID_VALUE, cu.cuMemFreeHost(bad));
    Ok(())
}

fn free_of_ordinary_memory_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let mut value = 0_u64;
    want!(INVALID_VALUE, cu.cuMemFreeHost((&raw mut value).cast()));
    Ok(())
}

fn flags_of_default(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(4096)?;
    let mut flags = 99;
    ok!(cu.cuMemHostGetFlags(&mut flags, pinned.host()));
    same!(cu, flags, 2);
    Ok(())
}

fn flags_are_kept(cu: &Cuda<'_>) -> CaseResult {
    for (asked, found) in [(1, 3), (2, 2), (4, 6), (7, 7)] {
        let mut pointer = ptr::null_mut();
        ok!(cu.cuMemHostAlloc(&mut pointer, 8 << 20, asked));
        cu.later(Cleanup::Host(pointer));
        let mut flags = 99;
        ok!(cu.cuMemHostGetFlags(&mut flags, pointer));
        same!(cu, (asked, flags), (asked, found));
    }
    Ok(())
}

fn flags_from_inside(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(4096)?;
    let mut flags = 99;
    want!(SUCCESS, cu.cuMemHostGetFlags(&mut flags, pinned.pointer.wrapping_add(17).cast()));
    Ok(())
}

fn flags_of_ordinary_memory(cu: &Cuda<'_>) -> CaseResult {
    let (mut value, mut flags) = (0_u64, 0);
    want!(INVALID_VALUE, cu.cuMemHostGetFlags(&mut flags, (&raw mut value).cast()));
    Ok(())
}

fn device_pointer_is_the_same(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(4096)?;
    let mut device = 0;
    ok!(cu.cuMemHostGetDevicePointer_v2(&mut device, pinned.host(), 0));
    same!(cu, device, pinned.device());
    Ok(())
}

fn device_pointer_from_inside(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(4096)?;
    let mut device = 0;
    ok!(cu.cuMemHostGetDevicePointer_v2(&mut device, pinned.pointer.wrapping_add(40).cast(), 0));
    same!(cu, device, pinned.device() + 40);
    Ok(())
}

fn device_pointer_with_flags(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(4096)?;
    let mut device = 0;
    want!(INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(&mut device, pinned.host(), 1));
    Ok(())
}

fn device_pointer_of_ordinary_memory(cu: &Cuda<'_>) -> CaseResult {
    let (mut value, mut device) = (0_u64, 0);
    want!(INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(&mut device, (&raw mut value).cast(), 0));
    Ok(())
}

fn pinned_is_readable_by_copies(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(5000)?;
    pinned.fill(0x44);
    let device = cu.filled(5000, 0)?;
    ok!(cu.cuMemcpyDtoD_v2(device, pinned.device(), 5000));
    same!(cu, cu.read(device, 5000)?, vec![0x44; 5000]);
    Ok(())
}

/// Ordinary memory that starts at a page and is a whole number of pages.
struct Pages(Vec<u8>);

impl Pages {
    fn new(count: usize) -> Self {
        Self(vec![0; (count + 1) * 4096])
    }

    fn page(&mut self, index: usize) -> *mut c_void {
        let start = self.0.as_mut_ptr();
        start.wrapping_add(start.align_offset(4096) + index * 4096).cast()
    }
}

fn register_and_unregister(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(4);
    ok!(cu.cuMemHostRegister_v2(pages.page(0), 4 * 4096, 0));
    ok!(cu.cuMemHostUnregister(pages.page(0)));
    Ok(())
}

fn register_twice(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(4);
    ok!(cu.cuMemHostRegister_v2(pages.page(0), 4 * 4096, 0));
    want!(HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister_v2(pages.page(0), 4 * 4096, 0));
    ok!(cu.cuMemHostUnregister(pages.page(0)));
    Ok(())
}

fn register_overlapping(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(4);
    ok!(cu.cuMemHostRegister_v2(pages.page(0), 2 * 4096, 0));
    want!(HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister_v2(pages.page(1), 2 * 4096, 0));
    want!(HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister_v2(pages.page(0), 4096, 0));
    ok!(cu.cuMemHostUnregister(pages.page(0)));
    Ok(())
}

fn two_registrations_of_neighbours(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(4);
    ok!(cu.cuMemHostRegister_v2(pages.page(0), 4096, 0));
    want!(SUCCESS, cu.cuMemHostRegister_v2(pages.page(1), 4096, 0));
    ok!(cu.cuMemHostUnregister(pages.page(0)));
    want!(SUCCESS, cu.cuMemHostUnregister(pages.page(1)));
    Ok(())
}

fn register_null(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuMemHostRegister_v2(ptr::null_mut(), 4096, 0));
    Ok(())
}

fn register_zero_bytes(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(1);
    want!(INVALID_VALUE, cu.cuMemHostRegister_v2(pages.page(0), 0, 0));
    Ok(())
}

fn register_unknown_flags(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(1);
    want!(INVALID_VALUE, cu.cuMemHostRegister_v2(pages.page(0), 4096, 0x80));
    Ok(())
}

fn register_driver_memory(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(1 << 20)?;
    want!(INVALID_VALUE, cu.cuMemHostRegister_v2(pinned.host(), 1 << 20, 0));
    Ok(())
}

fn register_unaligned(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(3);
    let place = pages.page(0).wrapping_byte_add(100);
    ok!(cu.cuMemHostRegister_v2(place, 5000, 0));
    ok!(cu.cuMemHostUnregister(place));
    Ok(())
}

fn unregister_twice(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(2);
    want!(HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister(pages.page(0)));
    ok!(cu.cuMemHostRegister_v2(pages.page(0), 4096, 0));
    ok!(cu.cuMemHostUnregister(pages.page(0)));
    want!(HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister(pages.page(0)));
    Ok(())
}

fn unregister_inside(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(4);
    ok!(cu.cuMemHostRegister_v2(pages.page(0), 4 * 4096, 0));
    want!(INVALID_VALUE, cu.cuMemHostUnregister(pages.page(1)));
    ok!(cu.cuMemHostUnregister(pages.page(0)));
    Ok(())
}

fn unregister_driver_memory(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(1 << 20)?;
    want!(INVALID_VALUE, cu.cuMemHostUnregister(pinned.host()));
    Ok(())
}

fn free_of_registered_memory(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(4);
    ok!(cu.cuMemHostRegister_v2(pages.page(0), 4 * 4096, 0));
    want!(INVALID_VALUE, cu.cuMemFreeHost(pages.page(0)));
    ok!(cu.cuMemHostUnregister(pages.page(0)));
    Ok(())
}

fn registered_flags(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(4);
    for (asked, found) in [(0, 2), (1, 3), (2, 2)] {
        ok!(cu.cuMemHostRegister_v2(pages.page(0), 4 * 4096, asked));
        let mut flags = 99;
        want!(SUCCESS, cu.cuMemHostGetFlags(&mut flags, pages.page(0)));
        same!(cu, (asked, flags), (asked, found));
        ok!(cu.cuMemHostUnregister(pages.page(0)));
    }
    Ok(())
}

fn registered_device_pointer(cu: &Cuda<'_>) -> CaseResult {
    let mut pages = Pages::new(4);
    ok!(cu.cuMemHostRegister_v2(pages.page(0), 4 * 4096, 0));
    let mut device = 0;
    want!(SUCCESS, cu.cuMemHostGetDevicePointer_v2(&mut device, pages.page(1), 0));
    same!(cu, device, address(pages.page(1).cast_const()));
    ok!(cu.cuMemHostUnregister(pages.page(0)));
    Ok(())
}

fn registered_is_readable_by_copies(cu: &Cuda<'_>) -> CaseResult {
    let mut host = count_up(3 * 4096);
    let device = cu.filled(3 * 4096, 0)?;
    let stream = cu.stream()?;
    ok!(cu.cuMemHostRegister_v2(host.as_mut_ptr().cast(), host.len(), 0));
    ok!(cu.cuMemcpyHtoDAsync_v2(device, host.as_ptr().cast(), host.len(), stream));
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuMemHostUnregister(host.as_mut_ptr().cast()));
    same!(cu, cu.read(device, host.len())? == host, true);
    Ok(())
}
