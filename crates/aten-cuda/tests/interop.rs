//! Tensors of other libraries: DLPack in both directions, and arrays with the feature `ndarray`; and of other processes.
//!
//! # Safety
//! The structures made here are as they say: their memory is a vector's or a buffer's that outlives the loan, and each is
//! given away once.
#![expect(unsafe_code, reason = "structures of C with pointers")]
#![expect(clippy::expect_used, reason = "a failed set-up is a failed test")]

mod processes;

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aten_cuda::dlpack::{Consumer, DLDataType, DLDevice, DLManagedTensorVersioned, DLPack, DLPackVersion, DLTensor};
use aten_cuda::{DType, Result, Tensor, synchronize};
use c10_core::{DeviceBuffer, Runtime, Stream};

/// A lender that counts how often its loan was ended.
struct Lender {
    sizes: Vec<i64>,
    strides: Vec<i64>,
    ended: Arc<AtomicU32>,
}

unsafe extern "C" fn end(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the structure is a leaked box of `lend`, and this is called once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: so is the lender.
    let lender = unsafe { Box::from_raw(managed.manager_ctx.cast::<Lender>()) };
    lender.ended.fetch_add(1, Ordering::Relaxed);
}

const F32: DLDataType = DLDataType { code: 2, bits: 32, lanes: 1 };
const HOST: DLDevice = DLDevice { device_type: 1, device_id: 0 };

/// Lends memory at an address; `change` makes the structure special.
fn lend(
    address: u64,
    sizes: &[i64],
    strides: Option<&[i64]>,
    change: impl FnOnce(&mut DLManagedTensorVersioned),
) -> (DLPack, Arc<AtomicU32>) {
    let ended = Arc::new(AtomicU32::new(0));
    let lender =
        Lender { sizes: sizes.to_vec(), strides: strides.unwrap_or_default().to_vec(), ended: Arc::clone(&ended) };
    let lender = Box::leak(Box::new(lender));
    let dl_tensor = DLTensor {
        data: ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(address).expect("an address")),
        device: HOST,
        ndim: i32::try_from(sizes.len()).expect("few dimensions"),
        dtype: F32,
        shape: lender.sizes.as_mut_ptr(),
        strides: if strides.is_some() { lender.strides.as_mut_ptr() } else { ptr::null_mut() },
        byte_offset: 0,
    };
    let mut managed = DLManagedTensorVersioned {
        version: DLPackVersion { major: 1, minor: 1 },
        manager_ctx: ptr::from_mut(lender).cast(),
        deleter: Some(end),
        flags: 0,
        dl_tensor,
    };
    change(&mut managed);
    // SAFETY: the structure is as it says or, where it is refused, only its deleter is used.
    (unsafe { DLPack::from_raw(NonNull::from(Box::leak(Box::new(managed)))) }, ended)
}

fn times(ended: &AtomicU32) -> u32 {
    ended.load(Ordering::Relaxed)
}

/// The address of a vector's elements, for a lender.
fn address(elements: &mut [f32]) -> u64 {
    elements.as_mut_ptr().expose_provenance() as u64
}

#[test]
fn memory_of_the_host_is_shared_until_the_last_view_is_gone() -> Result<()> {
    let mut elements: Vec<f32> = vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let (lent, ended) =
        lend(address(&mut elements), &[2, 2], Some(&[3, 2]), |managed| managed.dl_tensor.byte_offset = 4);
    let tensor = Tensor::from_dlpack(lent)?;
    assert_eq!((tensor.to_vec::<f32>()?, tensor.is_pinned()), (vec![1.0, 3.0, 4.0, 6.0], false));
    let row = tensor.select(0, 1)?;
    drop(tensor);
    row.fill_(9)?;
    assert_eq!(times(&ended), 0);
    drop(row);
    assert_eq!(times(&ended), 1);
    assert_eq!(elements, [0.0, 1.0, 2.0, 3.0, 9.0, 5.0, 9.0]);
    Ok(())
}

#[test]
fn what_cannot_be_expressed_is_refused_and_given_back() {
    let _simulated = testkit::simulated_runtime();
    let mut elements = vec![0.0_f32; 8];
    let at = address(&mut elements);
    type Change = fn(&mut DLManagedTensorVersioned);
    let cases: [(&str, Change); 12] = [
        ("version 2.0 of the structures is not known", |managed| {
            managed.version = DLPackVersion { major: 2, minor: 0 }
        }),
        ("the memory must not be written", |managed| managed.flags = 1),
        ("elements of kind 2 with 32 bits in vectors of 4", |managed| managed.dl_tensor.dtype.lanes = 4),
        ("elements of kind 1 with 16 bits in vectors of 1", |managed| {
            managed.dl_tensor.dtype = DLDataType { code: 1, bits: 16, lanes: 1 };
        }),
        ("there is no shape", |managed| managed.dl_tensor.shape = ptr::null_mut()),
        ("the number of dimensions is negative", |managed| managed.dl_tensor.ndim = -1),
        ("can be at the address 0x0", |managed| managed.dl_tensor.data = ptr::null_mut()),
        ("can be at the address", |managed| managed.dl_tensor.byte_offset = 1),
        ("beyond the address space", |managed| managed.dl_tensor.byte_offset = u64::MAX),
        ("devices of kind 10 are not supported", |managed| managed.dl_tensor.device.device_type = 10),
        ("the number of the CUDA device is negative", |managed| {
            managed.dl_tensor.device = DLDevice { device_type: 2, device_id: -1 };
        }),
        ("invalid device ordinal", |managed| {
            managed.dl_tensor.device = DLDevice { device_type: 2, device_id: 5 };
        }),
    ];
    for (wanted, change) in cases {
        let (lent, ended) = lend(at, &[2, 3], None, change);
        let text = Tensor::from_dlpack(lent).expect_err(wanted).to_string();
        assert!(text.contains(wanted), "{text}");
        assert_eq!(times(&ended), 1, "{wanted}");
    }
    for (sizes, strides, wanted) in
        [(&[2, -3], None, "negative dimension"), (&[2, 3], Some(&[-3, 1]), "negative strides")]
    {
        let (lent, ended) = lend(at, sizes, strides.map(|strides: &[i64; 2]| &strides[..]), |_| {});
        let text = Tensor::from_dlpack(lent).expect_err(wanted).to_string();
        assert!(text.contains(wanted) && times(&ended) == 1, "{text}");
    }
    let (lent, ended) = lend(at, &[2], None, |_| {});
    drop(lent);
    assert_eq!(times(&ended), 1, "a loan that nobody takes ends too");
    let (lent, _ended) = lend(0, &[0, 3], None, |_| {});
    assert_eq!(Tensor::from_dlpack(lent).expect("nothing is there").sizes(), [0, 3]);
    let (lent, _ended) = lend(at, &[], None, |managed| managed.deleter = None);
    assert_eq!(Tensor::from_dlpack(lent).expect("one element").dim(), 0);
}

#[test]
fn memory_of_a_device_is_kept_until_its_work_is_done() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let buffer = DeviceBuffer::new(64, None)?;
    buffer.fill(.., 0, None)?;
    let (lent, ended) = lend(buffer.address(), &[4, 4], None, |managed| managed.dl_tensor.device.device_type = 2);
    let tensor = Tensor::from_dlpack(lent)?;
    assert_eq!((tensor.device().to_string().as_str(), tensor.data_ptr()), ("cuda:0", buffer.address()));
    let side = Stream::new(None, 0)?;
    side.sleep(1 << 30)?;
    let guard = rig.runtime().streams().guard(&side)?;
    tensor.t()?.fill_(2.5)?;
    drop(guard);
    drop(tensor);
    assert_eq!(times(&ended), 0, "the fill has still to run");
    synchronize(None)?;
    assert_eq!(times(&ended), 1);
    assert_eq!(buffer.to_vec()?, [2.5_f32.to_ne_bytes(); 16].concat());
    Ok(())
}

#[test]
fn every_dtype_and_layout_travels_both_ways() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for dtype in DType::ALL {
        let host = Tensor::arange(0, 24, 1, None, "cpu")?.view(&[2, 3, 4])?.to_dtype(dtype)?;
        for tensor in [host.clone(), host.pin_memory()?, host.cuda(None)?] {
            for view in [tensor.clone(), tensor.transpose(0, 2)?, tensor.narrow(1, 1, 1)?, tensor.select(2, 3)?] {
                let back = Tensor::from_dlpack(view.to_dlpack(Consumer::Default)?)?;
                assert_eq!((back.dtype(), back.sizes(), back.device()), (dtype, view.sizes(), view.device()));
                assert_eq!((back.data_ptr(), back.is_pinned()), (view.data_ptr(), view.is_pinned()));
                assert_eq!(back.to_bytes()?, view.to_bytes()?);
            }
        }
    }
    let one = Tensor::from_dlpack(Tensor::ones(&[], DType::F64, "cuda")?.to_dlpack(Consumer::Unordered)?)?;
    assert_eq!((one.dim(), one.item()?.to_f64().to_bits()), (0, 1.0_f64.to_bits()));
    assert_eq!(Tensor::from_dlpack(Tensor::ones(&[0], DType::F64, "cpu")?.to_dlpack(Consumer::Unordered)?)?.numel(), 0);
    Ok(())
}

#[test]
fn a_loan_of_ours_keeps_the_memory_and_says_what_is_there() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let tensor = Tensor::ones(&[1, 3], DType::BF16, "cuda")?;
    let lent = tensor.to_dlpack(Consumer::Unordered)?.into_raw();
    let address = tensor.data_ptr();
    drop(tensor);
    let allocated = || rig.runtime().memory().stats(0).map(|stats| stats.allocated_bytes.all.current);
    assert_eq!(allocated()?, 512);
    // SAFETY: the structure was given away by `into_raw`.
    let managed = unsafe { lent.as_ref() };
    let view = managed.dl_tensor;
    assert_eq!((managed.version.major, managed.flags, view.ndim, view.byte_offset), (1, 0, 2, 0));
    assert_eq!(
        (view.device, view.dtype),
        (DLDevice { device_type: 2, device_id: 0 }, DLDataType { code: 4, bits: 16, lanes: 1 })
    );
    assert_eq!(view.data.addr() as u64, address);
    // SAFETY: there are as many sizes as dimensions.
    assert_eq!(unsafe { std::slice::from_raw_parts(view.shape, 2) }, [1, 3]);
    // SAFETY: and as many strides.
    assert_eq!(unsafe { std::slice::from_raw_parts(view.strides, 2) }, [1, 1]);
    let deleter = managed.deleter.expect("a loan of ours ends");
    // SAFETY: the structure is not used any more.
    unsafe { deleter(lent.as_ptr()) };
    assert_eq!(allocated()?, 0);
    Ok(())
}

#[test]
fn the_borrowers_stream_waits_for_ours() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let (ours, theirs) = (Stream::new(None, 0)?, Stream::new(None, 0)?);
    let _current = rig.runtime().streams().guard(&ours)?;
    let tensor = Tensor::zeros(&[8], DType::F32, "cuda")?;
    ours.sleep(1 << 30)?;
    tensor.fill_(4)?;
    let unordered = tensor.to_dlpack(Consumer::Unordered)?;
    assert!(theirs.query()?);
    let ordered = tensor.to_dlpack(Consumer::Stream(&theirs))?;
    assert!(!theirs.query()?, "it waits for the fill");
    let address = tensor.data_ptr();
    drop((unordered, ordered, tensor));
    // The borrower's stream has still to pass, so nobody else gets the memory.
    assert_ne!(Tensor::zeros(&[8], DType::F32, "cuda")?.data_ptr(), address);
    let there = Runtime::with_current(|runtime| runtime.streams().default(0))?;
    assert!(there.query()?);
    drop(Tensor::zeros(&[8], DType::F32, "cuda")?.to_dlpack(Consumer::Default)?);
    assert!(!there.query()?);
    Ok(())
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_become_tensors_and_back() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let array = ndarray::Array3::from_shape_fn((2, 3, 4), |(a, b, c)| (a * 100 + b * 10 + c) as i64);
    let turned = array.view().permuted_axes([2, 0, 1]);
    let tensor = Tensor::from_ndarray(&turned)?.cuda(None)?;
    assert_eq!(tensor.sizes(), [4, 2, 3]);
    assert_eq!(tensor.transpose(0, 2)?.to_ndarray::<i64>()?, turned.permuted_axes([2, 1, 0]).into_dyn());
    assert!(tensor.to_ndarray::<f32>().is_err());
    let none = ndarray::Array2::<f64>::zeros((0, 5));
    assert_eq!(Tensor::from_ndarray(&none)?.to_ndarray::<f64>()?, none.into_dyn());
    Ok(())
}
