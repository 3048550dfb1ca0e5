//! A loaded module on a device, and the comparisons of what its kernels leave behind.
//!
//! # Safety
//! The kernels are those of `tests/kernels`, and each case gives its kernel buffers of the lengths that it reads and writes.
#![expect(unsafe_code, reason = "launches of the kernels that stand in `tests/kernels`")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;

use bytemuck::Pod;
use c10_core::{Arg, DeviceSlice, Dim3, Module, Runtime};
use testkit::Machine;

/// How a case ends: nothing to say, or what differs.
pub(super) type Answer<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A module on a device.
pub(super) struct Device<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) module: &'a Module,
    /// The text of the module.
    pub(super) text: &'a str,
    /// The simulated machine, where it is one.
    pub(super) machine: Option<&'a Machine>,
    /// The largest difference of each comparison that allows one.
    pub(super) differences: &'a RefCell<BTreeMap<String, (f64, f64)>>,
}

impl Device<'_> {
    /// A buffer with these values.
    pub(super) fn put<T: Pod>(&self, values: &[T]) -> Answer<DeviceSlice<T>> {
        Ok(DeviceSlice::from_slice(values)?)
    }

    /// A buffer of zeros.
    pub(super) fn zeros<T: Pod>(&self, len: usize) -> Answer<DeviceSlice<T>> {
        Ok(DeviceSlice::zeros(len, None)?)
    }

    /// Queues a kernel without shared memory of the launch's own.
    pub(super) fn run(
        &self,
        kernel: &str,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: &[Arg<'_>],
    ) -> Answer {
        self.run_shared(kernel, grid, block, 0, arguments)
    }

    /// Queues a kernel.
    pub(super) fn run_shared(
        &self,
        kernel: &str,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        shared: u32,
        arguments: &[Arg<'_>],
    ) -> Answer {
        let kernel = self.module.kernel(kernel)?;
        let launch = kernel.launch_builder(None).grid(grid).block(block).shared(shared).args(arguments.iter().cloned());
        // SAFETY: the case gives the kernel what it needs; see the header.
        Ok(unsafe { launch.launch() }?)
    }

    /// Takes down how far an approximate result is from the right one, in the unit of the limit.
    pub(super) fn note(&self, what: &str, difference: f64, limit: f64, detail: impl Fn() -> String) -> Answer {
        let mut differences = self.differences.borrow_mut();
        let entry = differences.entry(what.to_owned()).or_insert((0.0, limit));
        entry.0 = entry.0.max(difference);
        if difference <= limit { Ok(()) } else { Err(format!("{what}: off by {difference:.3}: {}", detail()).into()) }
    }

    /// Each result within a number of units in its last place.
    pub(super) fn near<T: Real>(&self, what: &str, found: &[T], wanted: &[f64], limit: f64) -> Answer {
        self.compare(what, found, wanted, limit, |found, wanted| {
            let (rounded, found) = (T::rounded(wanted), found.wide());
            if rounded == found || rounded.is_nan() && found.is_nan() {
                0.0
            } else {
                (found - wanted).abs() / T::unit(wanted)
            }
        })
    }

    /// Each result within a part of its magnitude, or of 1 where that is less.
    pub(super) fn within<T: Real>(&self, what: &str, found: &[T], wanted: &[f64], limit: f64) -> Answer {
        self.compare(what, found, wanted, limit, |found, wanted| (found.wide() - wanted).abs() / wanted.abs().max(1.0))
    }

    fn compare<T: Real>(
        &self,
        what: &str,
        found: &[T],
        wanted: &[f64],
        limit: f64,
        difference: impl Fn(T, f64) -> f64,
    ) -> Answer {
        if found.len() != wanted.len() {
            return Err(format!("{what}: {} results, {} wanted", found.len(), wanted.len()).into());
        }
        for (index, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
            let far = difference(found, wanted);
            let far = if far.is_nan() { f64::INFINITY } else { far };
            self.note(what, far, limit, || format!("element {index} is {:?}, not {wanted:?}", found.wide()))?;
        }
        Ok(())
    }
}

/// All results equal: floating numbers by their bits, except that any NaN is like any other.
pub(super) fn same<T: Same>(what: &str, found: &[T], wanted: &[T]) -> Answer {
    if found.len() != wanted.len() {
        return Err(format!("{what}: {} results, {} wanted", found.len(), wanted.len()).into());
    }
    match found.iter().zip(wanted).position(|(found, wanted)| !found.same(wanted)) {
        None => Ok(()),
        Some(index) => Err(format!("{what}: element {index} is {:?}, not {:?}", found[index], wanted[index]).into()),
    }
}

/// What [`same`] compares.
pub(super) trait Same: Debug {
    fn same(&self, other: &Self) -> bool;
}

macro_rules! same_if_equal {
    ($($ty:ty),*) => { $(impl Same for $ty {
        fn same(&self, other: &Self) -> bool { self == other }
    })* };
}
same_if_equal!(u8, u16, u32, u64, i8, i16, i32, i64, String);

/// Floating numbers.
pub(super) trait Real: Copy {
    fn wide(self) -> f64;
    /// The nearest number of this type.
    fn rounded(value: f64) -> f64;
    /// The distance of numbers of this type around a value.
    fn unit(value: f64) -> f64;
}

macro_rules! real {
    ($ty:ty, $bits:expr, $least:expr) => {
        impl Real for $ty {
            #[allow(clippy::cast_lossless, trivial_numeric_casts, reason = "the same text for both widths")]
            fn wide(self) -> f64 {
                self as f64
            }

            #[allow(clippy::cast_possible_truncation, clippy::cast_lossless, trivial_numeric_casts, reason = "rounds")]
            fn rounded(value: f64) -> f64 {
                value as $ty as f64
            }

            fn unit(value: f64) -> f64 {
                let exponent = if value == 0.0 { $least } else { value.abs().log2().floor().max($least) };
                (exponent - $bits).exp2()
            }
        }

        impl Same for $ty {
            fn same(&self, other: &Self) -> bool {
                self.to_bits() == other.to_bits() || self.is_nan() && other.is_nan()
            }
        }
    };
}
real!(f32, 23.0, -126.0);
real!(f64, 52.0, -1022.0);
