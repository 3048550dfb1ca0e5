//! Several devices in one process: each has memory, figures and limits of its own.
//!
//! # Safety
//! Streams live until the end of each test.
#![expect(unsafe_code, reason = "calls C functions")]

mod common;

use std::ptr;

use common::{MIB, Torch, alloc, figure_of, handle, last_error, record, set, taken_error};
use testkit::Config;
use torch_allocator::figures::*;
use torch_allocator::hooks::*;

const DEVICES: i32 = 3;

fn free_of(device: i32, address: *mut std::ffi::c_void) {
    torch_allocator_free(address, MIB, device, ptr::null_mut());
}

#[test]
fn devices_keep_their_memory_and_figures_apart() {
    for settings in ["backend:native", "expandable_segments:True", "backend:elastic"] {
        let torch = Torch::unstarted(Config::default().devices(3));
        set(settings);
        torch_allocator_init(DEVICES);
        let streams: Vec<_> = (0..DEVICES).map(|device| torch.stream_of(device)).collect();
        let mut kept = Vec::new();
        for (device, own) in (0..DEVICES).zip(&streams) {
            // The handle of the default stream is the same on each device.
            for stream in [ptr::null_mut(), handle(own)] {
                for _ in 0..=device {
                    kept.push((device, alloc(MIB, device, stream)));
                }
            }
        }
        assert!(kept.iter().all(|(_, address)| !address.is_null()), "{}", last_error());
        for device in 0..DEVICES {
            assert_eq!(
                figure_of(device, "allocated_bytes.all.current"),
                i64::from(2 * (device + 1)) << 20,
                "{settings}"
            );
        }
        assert_eq!(torch_allocator_reset_peak_stats(1), 0);
        // PyTorch names the device that was current, which need not be the memory's.
        for (device, address) in kept {
            free_of((device + 1) % DEVICES, address);
        }
        torch_allocator_reset();
        for device in 0..DEVICES {
            assert_eq!(figure_of(device, "reserved_bytes.all.current"), 0);
            assert_eq!(figure_of(device, "allocated_bytes.all.peak"), i64::from(2 * (device + 1)) << 20);
        }
        torch.close_all(streams);
    }
}

#[test]
fn a_limit_is_one_devices() {
    let torch = Torch::new(Config::default().devices(2).capacity(1 << 30));
    torch_allocator_memory_fraction(0.05, 1);
    assert_eq!(alloc(100 * MIB, 1, ptr::null_mut()), ptr::null_mut());
    assert!(taken_error().contains("GPU 1"));
    let fits = alloc(100 * MIB, 0, ptr::null_mut());
    assert!(!fits.is_null());
    free_of(0, fits);
    assert!((torch_allocator_get_memory_fraction(0) - 1.0).abs() < 1e-6);
    torch.close_all(Vec::new());
}

#[test]
fn a_use_on_another_devices_stream_is_waited_for() {
    let torch = Torch::new(Config::default().devices(2));
    let (owner, user) = (torch.stream_of(0), torch.stream_of(1));
    // So that the stream is known.
    let other = alloc(MIB, 1, handle(&user));
    let used = alloc(MIB, 0, handle(&owner));
    user.sleep(1_000_000_000).expect("a device");
    record(used, &user);
    free_of(0, used);
    let meanwhile = alloc(MIB, 0, handle(&owner));
    assert_ne!(meanwhile, used);
    user.synchronize().expect("a device");
    let again = alloc(MIB, 0, handle(&owner));
    assert_eq!(again, used);
    for (device, address) in [(0, meanwhile), (0, again), (1, other)] {
        free_of(device, address);
    }
    assert_eq!(torch.simulated.machine().take_reports(), []);
    torch.close_all(vec![owner, user]);
}

#[test]
fn a_stream_of_another_device_is_refused_or_harmless() {
    let torch = Torch::new(Config::default().devices(2));
    let stream = torch.stream_of(1);
    let first = alloc(MIB, 0, handle(&stream));
    if first.is_null() {
        assert_ne!(taken_error(), "");
    } else {
        free_of(0, first);
    }
    assert_eq!(alloc(MIB, 2, ptr::null_mut()), ptr::null_mut());
    assert_ne!(taken_error(), "");
    // SAFETY: null is allowed.
    let none = unsafe { torch_allocator_base_alloc(ptr::null_mut(), ptr::null_mut()) };
    assert!(none.is_null());
    torch_allocator_forget_error();
    torch.close_all(vec![stream]);
}
