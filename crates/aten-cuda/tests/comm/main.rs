//! Tensors between simulated devices of one process: each rule of `torch.cuda.comm` in a test of its own, on devices that
//! reach each other's memory and on devices that do not.

mod links;
mod order;

use aten_cuda::comm::{self, BUFFER_SIZE, Route};
use aten_cuda::{CommError, DType, Error, Result, Tensor, bf16, f16};
use c10_core::{Runtime, Stream};
use num_complex::Complex32;
use testkit::{Config, ReportKind, SimulatedRuntime};

/// A machine with so many devices.
fn machine(devices: u32) -> SimulatedRuntime {
    SimulatedRuntime::new(Config::default().devices(devices).seed(7))
}

/// No report but that machine code is not simulated, for which PTX is loaded instead.
#[track_caller]
fn assert_no_misuse(rig: &SimulatedRuntime) {
    let mut reports = rig.machine().reports();
    reports.retain(|report| report.kind != ReportKind::NotSupported || report.call != "cuModuleLoadDataEx");
    assert!(reports.is_empty(), "{reports:?}");
}

/// Runs on devices that reach each other, and on others.
fn with_and_without_peers(devices: u32, run: impl Fn() -> Result<()>) -> Result<()> {
    for peers in [true, false] {
        let rig = SimulatedRuntime::new(Config::default().devices(devices).peer_access(peers).seed(3));
        run()?;
        assert_no_misuse(&rig);
        rig.close_clean();
    }
    Ok(())
}

fn ramp(sizes: &[i64], device: &str) -> Result<Tensor> {
    Tensor::arange(0, sizes.iter().product::<i64>(), 1, Some(DType::F32), "cpu")?.view(sizes)?.to_device(device)
}

fn is_same(one: &Tensor, other: &Tensor) -> bool {
    one.storage().is_same(other.storage())
        && (one.data_ptr(), one.sizes(), one.strides()) == (other.data_ptr(), other.sizes(), other.strides())
}

#[track_caller]
fn refused<T>(result: Result<T>, text: &str) {
    match result {
        Err(error) => assert_eq!(error.to_string(), text),
        Ok(_) => panic!("not refused: {text}"),
    }
}

fn on(device: i32) -> String {
    format!("cuda:{device}")
}

mod broadcast {
    use super::*;

    #[test]
    fn copies_are_on_the_devices_and_the_source_itself_on_its_own() -> Result<()> {
        with_and_without_peers(3, || {
            let source = ramp(&[2, 3], "cuda:1")?;
            let copies = comm::broadcast(&source, &[0, 1, 2])?;
            for (device, copy) in copies.iter().enumerate() {
                assert_eq!(copy.device().index, i32::try_from(device).ok());
                assert_eq!(copy.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
            }
            assert!(is_same(&copies[1], &source));
            Ok(())
        })
    }

    #[test]
    fn the_source_may_be_on_the_host() -> Result<()> {
        let _rig = machine(2);
        let copies = comm::broadcast(&ramp(&[4], "cpu")?, &["cuda:1", "cuda:0"])?;
        assert_eq!((copies[0].device().index, copies[1].device().index), (Some(1), Some(0)));
        assert!(copies.iter().all(|copy| copy.to_vec::<f32>().unwrap() == [0.0, 1.0, 2.0, 3.0]));
        Ok(())
    }

    #[test]
    fn a_device_named_twice_has_two_copies() -> Result<()> {
        let _rig = machine(2);
        let copies = comm::broadcast(&ramp(&[4], "cuda:0")?, &[1, 1])?;
        assert!(copies[0].data_ptr() != copies[1].data_ptr());
        assert_eq!(copies[1].to_vec::<f32>()?, copies[0].to_vec::<f32>()?);
        assert_eq!(comm::broadcast::<i32>(&ramp(&[4], "cuda:0")?, &[])?.len(), 0);
        Ok(())
    }

    #[test]
    fn layouts_are_kept() -> Result<()> {
        with_and_without_peers(2, || {
            let source = ramp(&[2, 3, 4, 5], "cuda:0")?.permute(&[0, 3, 1, 2])?;
            let copies = comm::broadcast(&source, &[1])?;
            assert_eq!((copies[0].sizes(), copies[0].strides()), (source.sizes(), source.strides()));
            assert_eq!(copies[0].to_vec::<f32>()?, source.to_vec::<f32>()?);
            // With gaps there is an order of memory to keep, but no gap.
            let gaps = ramp(&[4, 6], "cuda:0")?.t()?.slice(0, None, None, 2)?;
            let copy = &comm::broadcast(&gaps, &[1])?[0];
            assert_eq!((copy.strides(), copy.to_vec::<f32>()?), (&[1, 3][..], gaps.to_vec::<f32>()?));
            Ok(())
        })
    }

    #[test]
    fn every_dtype_and_no_elements() -> Result<()> {
        with_and_without_peers(2, || {
            for dtype in DType::ALL {
                let source = if dtype.is_float8() || dtype.is_complex() {
                    Tensor::ones(&[5], dtype, "cuda:0")?
                } else {
                    Tensor::arange(0, 5, 1, Some(DType::F32), "cuda:0")?.to_dtype(dtype)?
                };
                let copy = comm::broadcast(&source, &[1])?.remove(0);
                assert_eq!(copy.to_bytes()?, source.to_bytes()?, "{dtype}");
                let none = Tensor::zeros(&[3, 0, 2], dtype, "cuda:0")?;
                let real_sizes: &[i64] = if dtype.is_complex() { &[3, 0, 2, 2] } else { &[3, 0, 2] };
                assert_eq!(comm::broadcast(&none, &[1])?[0].sizes(), real_sizes);
            }
            Ok(())
        })
    }

    #[test]
    fn complex_tensors_are_real_ones_with_a_last_dimension_of_two() -> Result<()> {
        let _rig = machine(2);
        let source = Tensor::from_slice(&[Complex32::new(1.0, 2.0), Complex32::new(3.0, 4.0)], &[2])?.cuda(0)?;
        let copies = comm::broadcast(&source, &[0, 1])?;
        assert_eq!((copies[1].dtype(), copies[1].sizes()), (DType::F32, &[2, 2][..]));
        assert_eq!(copies[0].data_ptr(), source.data_ptr());
        assert_eq!(copies[1].to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
        assert!(
            comm::broadcast(&source.conj(), &[1]).unwrap_err().to_string().starts_with("view_as_real doesn't work")
        );
        Ok(())
    }

    #[test]
    fn every_way_brings_the_same() -> Result<()> {
        let rig = machine(6);
        let source = ramp(&[7, 1000], "cuda:2")?;
        for route in [Route::Direct, Route::Tree, Route::Chain, Route::Auto] {
            comm::set_route(route);
            let copies = comm::broadcast(&source, &[5, 4, 3, 2, 1, 0]);
            comm::set_route(Route::Auto);
            for copy in copies? {
                assert_eq!(copy.to_vec::<f32>()?, source.to_vec::<f32>()?, "{route:?}");
            }
        }
        drop(source);
        rig.close_clean();
        Ok(())
    }

    #[test]
    fn work_is_ordered_on_the_current_streams_of_both_devices() -> Result<()> {
        let rig = SimulatedRuntime::new(Config::default().devices(3).late_events(true).seed(11));
        let (first, last) = (Stream::new(0, 0)?, Stream::new(2, 0)?);
        let copies = {
            let (_first, _last) = (first.guard(), last.guard());
            let source = Tensor::zeros(&[100_000], DType::F32, "cuda:0")?;
            source.fill_(5)?;
            let copies = comm::broadcast(&source, &[1, 2])?;
            // What is written after the call is not in the copies.
            source.fill_(6)?;
            copies[1].add_(1)?;
            copies.iter().map(Tensor::to_vec::<f32>).collect::<Result<Vec<_>>>()?
        };
        assert!(copies[0].iter().all(|&value| value == 5.0) && copies[1].iter().all(|&value| value == 6.0));
        assert_no_misuse(&rig);
        Ok(())
    }

    #[test]
    fn outputs_are_written() -> Result<()> {
        with_and_without_peers(2, || {
            let source = ramp(&[2, 3], "cuda:0")?;
            let out =
                [Tensor::zeros(&[2, 3], DType::F32, "cuda:0")?, Tensor::zeros(&[3, 2], DType::F16, "cuda:1")?.t()?];
            comm::broadcast_out(&source, &[&out[0], &out[1]])?;
            assert_eq!(out[0].to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
            assert_eq!(out[1].to_vec::<f16>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(f16::from_f32));
            assert_eq!(out[1].strides(), [1, 2]);
            Ok(())
        })
    }

    #[test]
    fn what_torch_refuses_is_refused() -> Result<()> {
        let _rig = machine(2);
        let source = ramp(&[2, 3], "cuda:0")?;
        refused(comm::broadcast(&source, &[1, -2]), "Expected non-negative device index, but got -2");
        assert!(comm::broadcast(&source, &[2]).is_err());
        assert!(comm::broadcast(&source, &["cpu"]).is_err());
        let (host, other) = (ramp(&[2, 3], "cpu")?, ramp(&[3, 2], "cuda:1")?);
        refused(
            comm::broadcast_out(&source, &[&source, &host]),
            "Expected all output tensors to be CUDA tensors, but output tensor at index 1 has device 'cpu'",
        );
        refused(
            comm::broadcast_out(&source, &[&other]),
            "Expected all output tensors to have same shape as the source tensor [2, 3], but output tensor at index 0 has \
             shape [3, 2]",
        );
        Ok(())
    }
}

mod broadcast_coalesced {
    use super::*;

    /// Tensors of several dtypes, sizes and layouts, some of them views that begin anywhere.
    fn tensors() -> Result<Vec<Tensor>> {
        let base = ramp(&[1000], "cuda:0")?;
        Ok(vec![
            ramp(&[3], "cuda:0")?,
            ramp(&[4, 5], "cuda:0")?.to_dtype(DType::I64)?,
            ramp(&[2, 0, 3], "cuda:0")?,
            base.narrow(0, 1, 37)?,
            ramp(&[6, 7], "cuda:0")?.t()?,
            ramp(&[5], "cuda:0")?.to_dtype(DType::U8)?,
            base.to_dtype(DType::U8)?.narrow(0, 3, 50)?,
            ramp(&[1], "cuda:0")?.view(&[])?,
            ramp(&[9], "cuda:0")?.to_dtype(DType::BF16)?,
            base.narrow(0, 2, 600)?,
        ])
    }

    #[test]
    fn copies_are_in_order_and_the_inputs_themselves_on_the_first_device() -> Result<()> {
        with_and_without_peers(3, || {
            let tensors = tensors()?;
            let list: Vec<&Tensor> = tensors.iter().collect();
            for buffer_size in [BUFFER_SIZE, 200, 1, 0] {
                let copies = comm::broadcast_coalesced(&list, &[0, 2, 1], buffer_size)?;
                assert!(copies[0].iter().zip(&tensors).all(|(copy, tensor)| is_same(copy, tensor)));
                for (copies, device) in copies[1..].iter().zip([2, 1]) {
                    assert_eq!(copies.len(), tensors.len());
                    for (copy, tensor) in copies.iter().zip(&tensors) {
                        assert_eq!((copy.dtype(), copy.sizes()), (tensor.dtype(), tensor.sizes()));
                        assert!(copy.is_contiguous() && copy.device().index == Some(device));
                        assert_eq!(copy.to_bytes()?, tensor.to_bytes()?, "{tensor}");
                    }
                }
            }
            Ok(())
        })
    }

    #[test]
    fn tensors_of_one_dtype_share_a_buffer_up_to_the_limit() -> Result<()> {
        let _rig = machine(2);
        let tensors: Vec<Tensor> = (0..4).map(|_| ramp(&[4], "cuda:0")).collect::<Result<_>>()?;
        let list: Vec<&Tensor> = tensors.iter().collect();
        // 16 bytes each: the second reaches the limit and still goes along.
        let copies = comm::broadcast_coalesced(&list, &[0, 1], 20)?.remove(1);
        assert!(copies[0].storage().is_same(copies[1].storage()));
        assert!(!copies[1].storage().is_same(copies[2].storage()));
        assert!(copies[2].storage().is_same(copies[3].storage()));
        // Views that overlap nowhere.
        copies[0].fill_(9)?;
        assert_eq!(copies[1].to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0]);
        Ok(())
    }

    #[test]
    fn hundreds_of_small_tensors_take_one_kernel_and_one_copy() -> Result<()> {
        let rig = machine(2);
        let tensors: Vec<Tensor> = (0..300).map(|at| ramp(&[10 + at % 7], "cuda:0")).collect::<Result<_>>()?;
        let list: Vec<&Tensor> = tensors.iter().collect();
        comm::broadcast_coalesced(&list, &[0, 1], BUFFER_SIZE)?;
        let count = |call: &str| -> u64 {
            rig.machine().calls().iter().filter(|(name, ..)| *name == call).map(|(_, _, count)| count).sum()
        };
        let before = (count("cuLaunchKernel"), count("cuMemcpyAsync"));
        let copies = comm::broadcast_coalesced(&list, &[0, 1], BUFFER_SIZE)?;
        assert_eq!((count("cuLaunchKernel") - before.0, count("cuMemcpyAsync") - before.1), (1, 1));
        assert_eq!(copies[1][299].to_vec::<f32>()?, tensors[299].to_vec::<f32>()?);
        Ok(())
    }

    #[test]
    fn more_tensors_than_a_launch_takes() -> Result<()> {
        let _rig = machine(2);
        let tensors: Vec<Tensor> =
            (0..700).map(|at| Tensor::full(&[1 + at % 3], at, DType::I32, "cuda:0")).collect::<Result<_>>()?;
        let copies = comm::broadcast_coalesced(&tensors.iter().collect::<Vec<_>>(), &[0, 1], BUFFER_SIZE)?;
        for (copy, tensor) in copies[1].iter().zip(&tensors) {
            assert_eq!(copy.to_vec::<i32>()?, tensor.to_vec::<i32>()?);
        }
        Ok(())
    }

    #[test]
    fn complex_tensors_one_device_and_none() -> Result<()> {
        let _rig = machine(2);
        let source = Tensor::full(&[3], 2, DType::C64, "cuda:1")?;
        let copies = comm::broadcast_coalesced(&[&source, &source], &[1, 0], BUFFER_SIZE)?;
        assert_eq!(
            (copies[1][1].dtype(), copies[1][1].to_vec::<f32>()?),
            (DType::F32, vec![2.0, 0.0, 2.0, 0.0, 2.0, 0.0])
        );
        assert_eq!(comm::broadcast_coalesced(&[&source], &[1], BUFFER_SIZE)?.len(), 1);
        let of_none = comm::broadcast_coalesced(&[], &[0, 1], BUFFER_SIZE)?;
        assert!(of_none.len() == 2 && of_none.iter().all(Vec::is_empty));
        Ok(())
    }

    #[test]
    fn what_torch_refuses_is_refused() -> Result<()> {
        let _rig = machine(2);
        let (first, second) = (ramp(&[2], "cuda:0")?, ramp(&[2], "cuda:1")?);
        refused(
            comm::broadcast_coalesced(&[&first, &second], &[0, 1], BUFFER_SIZE),
            "All tensors must be on devices[0]: 0",
        );
        refused(comm::broadcast_coalesced(&[&first], &[1, 0], BUFFER_SIZE), "All tensors must be on devices[0]: 1");
        refused(
            comm::broadcast_coalesced(&[&first], &[0, -1], BUFFER_SIZE),
            "Expected non-negative device index, but got -1",
        );
        assert!(comm::broadcast_coalesced::<i32>(&[&first], &[], BUFFER_SIZE).is_err());
        Ok(())
    }
}

mod reduce_add {
    use super::*;

    #[test]
    fn the_sum_is_on_the_destination_and_new() -> Result<()> {
        with_and_without_peers(4, || {
            let inputs: Vec<Tensor> = (0..4).map(|device| ramp(&[3, 50], &on(device))).collect::<Result<_>>()?;
            for destination in 0..4 {
                let sum = comm::reduce_add(&inputs.iter().collect::<Vec<_>>(), destination)?;
                assert_eq!(sum.device().index, Some(destination));
                assert_eq!(sum.to_vec::<f32>()?, ramp(&[150], "cpu")?.mul(4)?.to_vec::<f32>()?);
                assert!(inputs.iter().all(|input| !input.storage().is_same(sum.storage())));
            }
            Ok(())
        })
    }

    #[test]
    fn the_destination_is_the_current_device_unless_named() -> Result<()> {
        let _rig = machine(2);
        let inputs = [ramp(&[4], "cuda:0")?, ramp(&[4], "cuda:1")?];
        let _current = Runtime::current().streams().default(1)?.guard();
        assert_eq!(comm::reduce_add(&[&inputs[0], &inputs[1]], None)?.device().index, Some(1));
        Ok(())
    }

    #[test]
    fn one_input_is_returned_as_it_is() -> Result<()> {
        let _rig = machine(2);
        let input = ramp(&[4], "cuda:1")?;
        assert!(is_same(&comm::reduce_add(&[&input], 1)?, &input));
        Ok(())
    }

    #[test]
    fn the_last_input_on_the_destination_is_the_root() -> Result<()> {
        let _rig = machine(2);
        // Its layout is that of the result.
        let inputs = [ramp(&[2, 3], "cuda:0")?, ramp(&[2, 3], "cuda:1")?, ramp(&[3, 2], "cuda:0")?.t()?];
        let sum = comm::reduce_add(&inputs.iter().collect::<Vec<_>>(), 0)?;
        assert_eq!(sum.strides(), [1, 2]);
        assert_eq!(sum.to_vec::<f32>()?, [0.0, 4.0, 8.0, 7.0, 11.0, 15.0]);
        Ok(())
    }

    #[test]
    fn sums_are_those_of_additions_one_by_one_in_every_dtype() -> Result<()> {
        with_and_without_peers(3, || {
            for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float8()) {
                let make = |device: i32| -> Result<Tensor> {
                    let numbers =
                        Tensor::arange(1, 41, 1, Some(DType::F32), "cpu")?.mul(0.37 * f64::from(device + 1))?;
                    numbers.to_dtype(dtype)?.to_device(on(device).as_str())
                };
                let inputs = [make(0)?, make(1)?, make(2)?, make(1)?, make(0)?, make(2)?];
                let sum = comm::reduce_add(&inputs.iter().collect::<Vec<_>>(), 1)?;
                let host = |at: usize| inputs[at].cpu();
                let expected =
                    host(3)?.add(&host(0)?)?.add(&host(1)?)?.add(&host(2)?)?.add(&host(4)?)?.add(&host(5)?)?;
                assert_eq!((sum.dtype(), sum.to_bytes()?), (dtype, expected.to_bytes()?), "{dtype}");
            }
            Ok(())
        })
    }

    #[test]
    fn mixed_dtypes_conjugates_gaps_and_no_elements() -> Result<()> {
        with_and_without_peers(2, || {
            let mixed = [ramp(&[3], "cuda:0")?.to_dtype(DType::I32)?, ramp(&[3], "cuda:1")?.mul(0.5)?];
            let sum = comm::reduce_add(&[&mixed[0], &mixed[1]], 0)?;
            assert_eq!((sum.dtype(), sum.to_vec::<f32>()?), (DType::F32, vec![0.0, 1.5, 3.0]));
            let complex = |device: &str| Tensor::from_slice(&[Complex32::new(1.0, 2.0)], &[1])?.to_device(device);
            let sum = comm::reduce_add(&[&complex("cuda:0")?, &complex("cuda:1")?.conj()], 0)?;
            assert_eq!(sum.to_vec::<Complex32>()?, [Complex32::new(2.0, 0.0)]);
            let (gaps, whole) = (ramp(&[8], "cuda:1")?.slice(0, None, None, 2)?, ramp(&[4], "cuda:0")?);
            assert_eq!(comm::reduce_add(&[&gaps, &whole], 0)?.to_vec::<f32>()?, [0.0, 3.0, 6.0, 9.0]);
            let none = [ramp(&[2, 0], "cuda:0")?, ramp(&[2, 0], "cuda:1")?];
            assert_eq!(comm::reduce_add(&[&none[0], &none[1]], 1)?.sizes(), [2, 0]);
            Ok(())
        })
    }

    #[test]
    fn one_kernel_reads_the_other_devices_memory() -> Result<()> {
        let rig = machine(2);
        let inputs = [ramp(&[4096], "cuda:0")?, ramp(&[4096], "cuda:1")?];
        comm::reduce_add(&[&inputs[0], &inputs[1]], 0)?;
        let count = |call: &str| -> u64 {
            rig.machine().calls().iter().filter(|(name, ..)| *name == call).map(|(_, _, count)| count).sum()
        };
        let before = (count("cuLaunchKernel"), count("cuMemcpyAsync"));
        comm::reduce_add(&[&inputs[0], &inputs[1]], 0)?;
        assert_eq!((count("cuLaunchKernel") - before.0, count("cuMemcpyAsync") - before.1), (1, 0));
        Ok(())
    }

    #[test]
    fn what_torch_refuses_is_refused() -> Result<()> {
        let _rig = machine(2);
        let (first, other, host) = (ramp(&[5, 5], "cuda:0")?, ramp(&[2, 3], "cuda:1")?, ramp(&[5, 5], "cpu")?);
        refused(comm::reduce_add(&[&first, &host], 0), "reduce_add expects all inputs to be on GPUs");
        refused(comm::reduce_add(&[&first, &other], 0), "input 1 has invalid size: got 2x3, but expected 5x5");
        refused(
            comm::reduce_add(&[&first], 1),
            "reduce_add expects destination to be on the same GPU with one of the tensors",
        );
        assert!(matches!(comm::reduce_add(&[], 0), Err(Error::Comm(cause)) if *cause == CommError::NoInputs));
        Ok(())
    }
}

mod reduce_add_coalesced {
    use super::*;

    fn list(device: i32) -> Result<Vec<Tensor>> {
        let device = on(device);
        Ok(vec![
            ramp(&[3], &device)?,
            ramp(&[4, 5], &device)?.to_dtype(DType::I64)?,
            ramp(&[2, 0], &device)?,
            ramp(&[6, 7], &device)?.t()?,
            ramp(&[5], &device)?.to_dtype(DType::BF16)?,
            ramp(&[100], &device)?.narrow(0, 1, 50)?,
            Tensor::full(&[3], 2, DType::C64, device.as_str())?,
        ])
    }

    #[test]
    fn sums_are_in_the_order_of_the_inputs() -> Result<()> {
        with_and_without_peers(3, || {
            let lists = [list(0)?, list(1)?, list(2)?];
            let lists: Vec<Vec<&Tensor>> = lists.iter().map(|list| list.iter().collect()).collect();
            let inputs: Vec<&[&Tensor]> = lists.iter().map(Vec::as_slice).collect();
            for buffer_size in [BUFFER_SIZE, 100, 1] {
                let sums = comm::reduce_add_coalesced(&inputs, 2, buffer_size)?;
                assert_eq!(sums.len(), lists[0].len());
                for (sum, input) in sums.iter().zip(&lists[0]) {
                    assert_eq!((sum.dtype(), sum.sizes(), sum.device().index), (input.dtype(), input.sizes(), Some(2)));
                    assert!(sum.is_contiguous());
                    assert_eq!(sum.to_bytes()?, input.cpu()?.mul(3)?.to_bytes()?);
                }
            }
            Ok(())
        })
    }

    #[test]
    fn a_buffer_is_closed_before_the_tensor_that_passes_the_limit() -> Result<()> {
        let _rig = machine(2);
        let of = |device: i32| (0..4).map(|_| ramp(&[4], &on(device))).collect::<Result<Vec<_>>>();
        let (one, two) = (of(0)?, of(1)?);
        let (one, two): (Vec<&Tensor>, Vec<&Tensor>) = (one.iter().collect(), two.iter().collect());
        // 16 bytes each: a second one passes 20, and goes into the next buffer.
        let sums = comm::reduce_add_coalesced(&[&one, &two], 0, 20)?;
        assert!(!sums[0].storage().is_same(sums[1].storage()));
        let sums = comm::reduce_add_coalesced(&[&one, &two], 0, 32)?;
        assert!(sums[0].storage().is_same(sums[1].storage()) && !sums[1].storage().is_same(sums[2].storage()));
        Ok(())
    }

    #[test]
    fn one_device_lists_of_several_lengths_and_what_is_refused() -> Result<()> {
        let _rig = machine(2);
        let (a, b, c) = (ramp(&[3], "cuda:0")?, ramp(&[3], "cuda:1")?, ramp(&[4], "cuda:1")?);
        assert_eq!(comm::reduce_add_coalesced(&[&[&a, &a]], 0, BUFFER_SIZE)?[1].to_vec::<f32>()?, [0.0, 1.0, 2.0]);
        assert_eq!(comm::reduce_add_coalesced(&[&[&a, &a], &[&b]], 1, BUFFER_SIZE)?.len(), 1);
        refused(
            comm::reduce_add_coalesced(&[&[&a], &[&c]], 0, BUFFER_SIZE),
            "input 1 has invalid size: got 4, but expected 3",
        );
        assert!(comm::reduce_add_coalesced(&[&[&a, &b], &[&b, &b]], 0, BUFFER_SIZE).is_err());
        refused(
            comm::reduce_add_coalesced(&[&[&b]], 0, BUFFER_SIZE),
            "reduce_add expects destination to be on the same GPU with one of the tensors",
        );
        assert!(comm::reduce_add_coalesced(&[], 0, BUFFER_SIZE).is_err());
        Ok(())
    }
}

mod scatter {
    use super::*;

    #[test]
    fn chunks_have_the_size_of_the_first_and_may_be_fewer_than_devices() -> Result<()> {
        with_and_without_peers(4, || {
            let source = ramp(&[5], "cuda:0")?;
            let chunks = comm::scatter(&source, &[0, 1, 2, 3], None, 0, &[])?;
            let values: Vec<Vec<f32>> = chunks.iter().map(Tensor::to_vec).collect::<Result<_>>()?;
            assert_eq!(values, [vec![0.0, 1.0], vec![2.0, 3.0], vec![4.0]]);
            let devices: Vec<_> = chunks.iter().map(|chunk| chunk.device().index.unwrap()).collect();
            assert_eq!(devices, [0, 1, 2]);
            Ok(())
        })
    }

    #[test]
    fn a_chunk_on_the_device_of_the_source_is_a_view() -> Result<()> {
        let _rig = machine(2);
        let source = ramp(&[6], "cuda:1")?;
        let chunks = comm::scatter(&source, &[1, 0, 1], None, 0, &[])?;
        assert_eq!((chunks[0].data_ptr(), chunks[2].data_ptr()), (source.data_ptr(), source.data_ptr() + 16));
        assert!(!chunks[1].storage().is_same(source.storage()));
        Ok(())
    }

    #[test]
    fn sizes_of_chunks_dimensions_and_layouts() -> Result<()> {
        with_and_without_peers(2, || {
            let source = ramp(&[2, 3, 4, 4], "cuda:0")?.permute(&[0, 3, 1, 2])?;
            for dim in [1, -3] {
                let chunks = comm::scatter(&source, &[1, 0], Some(&[3, 1]), dim, &[])?;
                for (chunk, expected) in chunks.iter().zip(source.split_with_sizes(&[3, 1], 1)?) {
                    assert_eq!((chunk.sizes(), chunk.to_vec::<f32>()?), (expected.sizes(), expected.to_vec::<f32>()?));
                }
                // The channels still lie last.
                assert_eq!(chunks[0].strides(), [36, 1, 12, 3]);
            }
            let host = comm::scatter(&ramp(&[4], "cpu")?, &[0, 1], Some(&[0, 4]), 0, &[])?;
            assert_eq!((host[0].sizes(), host[1].to_vec::<f32>()?), (&[0][..], vec![0.0, 1.0, 2.0, 3.0]));
            let complex = comm::scatter(&Tensor::full(&[2], 1, DType::C64, "cuda:0")?, &[0, 1], None, 0, &[])?;
            assert_eq!((complex[1].dtype(), complex[1].sizes()), (DType::F32, &[1, 2][..]));
            Ok(())
        })
    }

    #[test]
    fn a_stream_is_the_current_one_of_its_copy_alone() -> Result<()> {
        let rig = SimulatedRuntime::new(Config::default().devices(2).late_events(true).seed(2));
        let side = Stream::new(1, 0)?;
        let source = ramp(&[200_000], "cuda:0")?;
        let chunks = comm::scatter(&source, &[0, 1], None, 0, &[None, Some(side.clone())])?;
        assert!(Runtime::current().streams().current(1)?.is_default() && Runtime::current().current_device()? == 0);
        let current = Runtime::current().streams().current(1)?;
        current.wait_stream(&side)?;
        chunks[1].record_stream(&current)?;
        assert_eq!(chunks[1].narrow(0, 0, 2)?.to_vec::<f32>()?, [100_000.0, 100_001.0]);
        assert_no_misuse(&rig);
        // A stream of a chunk that needs no copy is not looked at.
        comm::scatter(&source, &[0, 1], None, 0, &[Some(side)])?;
        Ok(())
    }

    #[test]
    fn outputs_are_written_and_tell_the_sizes() -> Result<()> {
        with_and_without_peers(2, || {
            let source = ramp(&[2, 5], "cuda:0")?;
            let out = [Tensor::zeros(&[2, 1], DType::F32, "cuda:1")?, Tensor::zeros(&[2, 4], DType::F32, "cuda:0")?];
            comm::scatter_out(&source, &[&out[0], &out[1]], -1, &[])?;
            assert_eq!(out[0].to_vec::<f32>()?, [0.0, 5.0]);
            assert_eq!(out[1].to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0]);
            Ok(())
        })
    }

    #[test]
    fn what_torch_refuses_is_refused() -> Result<()> {
        let _rig = machine(2);
        let source = ramp(&[4, 3], "cuda:0")?;
        refused(comm::scatter::<i32>(&source, &[], None, 0, &[]), "Expected at least one device to scatter to");
        refused(
            comm::scatter(&source, &[0, 1], Some(&[4]), 0, &[]),
            "Expected devices and chunk_sizes to be of same length, but got len(devices) = 2 and len(chunk_sizes) = 1",
        );
        refused(comm::scatter(&source, &[0, -3], None, 0, &[]), "Expected non-negative device index, but got -3");
        refused(
            comm::scatter(&source, &[0, 1], Some(&[1, 2]), 0, &[]),
            "split_with_sizes expects split_sizes to sum exactly to 4 (input tensor's size at dimension 0), but got \
             split_sizes=[1, 2]",
        );
        assert!(
            comm::scatter(&source, &[0, 1], None, 2, &[]).is_err()
                && comm::scatter(&source, &[0, 9], None, 0, &[]).is_err()
        );
        let wrong = Some(Stream::new(0, 0)?);
        refused(
            comm::scatter(&source, &[0, 1], None, 0, &[None, wrong.clone()]),
            "Expected the device associated with the stream at index 1 (was 0) to match the device supplied at that index \
             (expected 1)",
        );
        let (host, thin, fits) = (ramp(&[4, 3], "cpu")?, ramp(&[4, 2], "cuda:1")?, ramp(&[4, 3], "cuda:1")?);
        refused(comm::scatter_out(&source, &[], 0, &[]), "Expected at least one output tensor to scatter to");
        refused(
            comm::scatter_out(&source, &[&host], 0, &[]),
            "Expected all output tensors to be CUDA tensors, but output tensor at index 0 has device 'cpu'",
        );
        refused(
            comm::scatter_out(&source, &[&fits, &thin], 0, &[]),
            "Output tensor at index 1 has incorrect shape: [4, 2]. Expected same shape except for scatter dim 0 as the source \
             tensor: [4, 3]",
        );
        refused(
            comm::scatter_out(&source, &[&fits, &fits], 0, &[]),
            "Total size for output tensors along scatter dim 0 does not match the source tensor size at dim 0. Expected 4, \
             but got total size 8",
        );
        assert!(comm::scatter_out(&source, &[&fits], 0, &[wrong]).is_err());
        Ok(())
    }
}

mod gather {
    use super::*;

    #[test]
    fn tensors_are_joined_on_the_destination() -> Result<()> {
        with_and_without_peers(3, || {
            let parts: Vec<Tensor> =
                (0..3).map(|device| ramp(&[2, 1 + i64::from(device)], &on(device))).collect::<Result<_>>()?;
            let parts: Vec<&Tensor> = parts.iter().collect();
            let host: Vec<Tensor> = parts.iter().map(|part| part.cpu()).collect::<Result<_>>()?;
            let expected = Tensor::cat(&host.iter().collect::<Vec<_>>(), 1)?.to_vec::<f32>()?;
            for destination in 0..3 {
                let all = comm::gather(&parts, -1, destination)?;
                assert_eq!((all.device().index, all.to_vec::<f32>()?), (Some(destination), expected.clone()));
            }
            Ok(())
        })
    }

    #[test]
    fn the_destination_is_the_current_device_the_host_or_as_named() -> Result<()> {
        let _rig = machine(2);
        let part = ramp(&[2], "cuda:0")?;
        let _current = Runtime::current().streams().default(1)?.guard();
        assert_eq!(comm::gather(&[&part], 0, None)?.device().index, Some(1));
        assert_eq!(comm::gather(&[&part], 0, "cuda:0")?.device().index, Some(0));
        for host in [comm::gather(&[&part, &part], 0, "cpu")?, comm::gather(&[&part, &part], 0, -1)?] {
            assert!(!host.is_cuda());
            assert_eq!(host.to_vec::<f32>()?, [0.0, 1.0, 0.0, 1.0]);
        }
        // Also a single tensor that is there is copied.
        assert!(comm::gather(&[&part], 0, 0)?.data_ptr() != part.data_ptr());
        Ok(())
    }

    #[test]
    fn channels_lie_last_where_they_do_so_in_all() -> Result<()> {
        let _rig = machine(2);
        let last = |device: &str| ramp(&[2, 4, 4, 3], device)?.permute(&[0, 3, 1, 2]);
        let (one, two, other) = (last("cuda:0")?, last("cuda:1")?, ramp(&[2, 3, 4, 4], "cuda:1")?);
        let all = comm::gather(&[&one, &two], 0, 0)?;
        assert_eq!((all.strides(), all.to_vec::<f32>()?.len()), (&[48, 1, 12, 3][..], 192));
        assert_eq!(all.narrow(0, 2, 2)?.to_vec::<f32>()?, two.to_vec::<f32>()?);
        assert_eq!(comm::gather(&[&one, &other], 0, 0)?.strides(), [48, 16, 4, 1]);
        Ok(())
    }

    #[test]
    fn large_tensors_come_at_once_and_whole() -> Result<()> {
        let rig = SimulatedRuntime::new(Config::default().devices(3).late_events(true).seed(5));
        let parts: Vec<Tensor> = (0..3).map(|device| ramp(&[300_000], &on(device))).collect::<Result<_>>()?;
        let all = comm::gather(&parts.iter().collect::<Vec<_>>(), 0, 1)?;
        // Later work on the current streams comes after the copies, on the sources' devices too.
        parts[2].fill_(0)?;
        let expected = ramp(&[300_000], "cpu")?.to_vec::<f32>()?;
        for at in 0..3 {
            assert_eq!(all.narrow(0, 300_000 * at, 300_000)?.to_vec::<f32>()?, expected);
        }
        assert_no_misuse(&rig);
        Ok(())
    }

    #[test]
    fn dtypes_complex_tensors_and_outputs() -> Result<()> {
        with_and_without_peers(2, || {
            // The dtype is the first one's.
            let (one, two) = (ramp(&[2], "cuda:0")?.to_dtype(DType::BF16)?, ramp(&[1], "cuda:1")?.add(4)?);
            assert_eq!(comm::gather(&[&one, &two], 0, 0)?.to_vec::<bf16>()?, [0.0, 1.0, 4.0].map(bf16::from_f32));
            let complex = Tensor::full(&[2], 3, DType::C64, "cuda:1")?;
            assert_eq!(comm::gather(&[&complex], 0, 0)?.sizes(), [2, 2]);
            let none = Tensor::zeros(&[0, 3], DType::F32, "cuda:1")?;
            assert_eq!(comm::gather(&[&none, &none], 0, 0)?.sizes(), [0, 3]);
            for device in ["cpu", "cuda:0", "cuda:1"] {
                let out = Tensor::zeros(&[3], DType::F32, device)?;
                comm::gather_out(&[&one, &two], &out, 0)?;
                assert_eq!(out.to_vec::<f32>()?, [0.0, 1.0, 4.0]);
            }
            Ok(())
        })
    }

    #[test]
    fn what_torch_refuses_is_refused() -> Result<()> {
        let _rig = machine(2);
        let (one, two, flat) = (ramp(&[2, 3], "cuda:0")?, ramp(&[2, 4], "cuda:1")?, ramp(&[6], "cuda:1")?);
        refused(comm::gather(&[], 0, 0), "Expected at least one tensor to gather from");
        refused(
            comm::gather(&[&one, &ramp(&[2, 3], "cpu")?], 0, 0),
            "Expected all input tensors to be CUDA tensors, but tensor at index 1 has device 'cpu'",
        );
        refused(
            comm::gather(&[&one, &flat], 0, 0),
            "Expected all input tensors to have the same number of dimensions, but tensor at index 1has 1 dimensions, \
             (expected 2)",
        );
        refused(
            comm::gather(&[&one, &two], 0, 0),
            "Input tensor at index 1 has invalid shape [2, 4], but expected [2, 3]",
        );
        refused(comm::gather_out(&[&one, &two], &one, 1), "Expected out tensor to have shape [2, 7], but got [2, 3]");
        refused(comm::gather(&[&one], 0, -2), "Expected non-negative device index, but got -2");
        assert!(comm::gather(&[&one], 0, 5).is_err() && comm::gather(&[&one], 3, 0).is_err());
        assert!(comm::gather(&[&Tensor::ones(&[], DType::F32, "cuda:0")?], 0, 0).is_err());
        Ok(())
    }
}

mod elsewhere {
    use super::*;
    use c10_core::{CUDAGraph, CaptureMode};

    #[test]
    fn memory_in_pages_is_copied_before_it_is_added() -> Result<()> {
        let rig = machine(2);
        rig.runtime().memory().set_settings("expandable_segments:True")?;
        let inputs = [ramp(&[5000], "cuda:0")?, ramp(&[5000], "cuda:1")?];
        let sum = comm::reduce_add(&[&inputs[0], &inputs[1]], 1)?;
        assert_eq!(sum.to_vec::<f32>()?, ramp(&[5000], "cpu")?.mul(2)?.to_vec::<f32>()?);
        assert!(!inputs[0].storage().buffer().is_some_and(|buffer| buffer.let_reach(1).is_ok_and(|reaches| reaches)));
        assert_no_misuse(&rig);
        Ok(())
    }

    #[test]
    fn a_graph_replays_collectives_of_both_devices() -> Result<()> {
        let _rig = machine(2);
        let (one, two) = (ramp(&[40], "cuda:0")?, ramp(&[40], "cuda:1")?);
        let work = || -> Result<Tensor> {
            let sum = comm::reduce_add(&[&one, &two], 0)?;
            let copies = comm::broadcast(&sum, &[0, 1])?;
            comm::gather(&[&copies[1], &copies[0]], 0, 0)
        };
        work()?;
        let (mut graph, first, second) = (CUDAGraph::new(), Stream::new(0, 0)?, Stream::new(1, 0)?);
        let other = second.guard();
        let all = graph.record(&first, None, CaptureMode::Relaxed, |_| {
            // The second device's stream takes part in the capture.
            second.wait_stream(&first)?;
            let all = work()?;
            first.wait_stream(&second)?;
            Ok::<Tensor, Error>(all)
        })?;
        drop(other);
        one.add_(1)?;
        aten_cuda::synchronize(0)?;
        graph.replay()?;
        assert_eq!(all.narrow(0, 38, 4)?.to_vec::<f32>()?, [77.0, 79.0, 1.0, 3.0]);
        Ok(())
    }

    #[test]
    fn a_traced_function_does_collectives_as_it_would_untraced() -> Result<()> {
        let _rig = machine(2);
        let (one, two) = (ramp(&[40], "cuda:0")?, ramp(&[40], "cuda:1")?);
        let work = |tensors: &[Tensor]| -> Result<Vec<Tensor>> {
            let doubled = tensors[0].mul(2)?;
            Ok(vec![comm::reduce_add(&[&doubled, &tensors[1]], 0)?.add(1)?])
        };
        let compiled = aten_cuda::compile::compile(work);
        let expected = work(&[one.clone(), two.clone()])?[0].to_vec::<f32>()?;
        for _ in 0..3 {
            assert_eq!(compiled.call(&[&one, &two])?[0].to_vec::<f32>()?, expected);
        }
        Ok(())
    }

    #[test]
    fn work_is_in_order_for_the_stream_sanitizer() -> Result<()> {
        let _rig = machine(3);
        let sanitizer = Runtime::current().enable_sanitizer(c10_core::SanitizerOptions::default());
        let inputs: Vec<Tensor> = (0..3).map(|device| ramp(&[300_000], &on(device))).collect::<Result<_>>()?;
        let list: Vec<&Tensor> = inputs.iter().collect();
        let sum = comm::reduce_add(&list, 2)?;
        let copies = comm::broadcast(&sum, &[0, 1, 2])?;
        let all = comm::gather(&copies.iter().collect::<Vec<_>>(), 0, 1)?;
        let coalesced = comm::broadcast_coalesced(&[&inputs[0], &copies[0]], &[0, 1, 2], BUFFER_SIZE)?;
        for tensor in list.into_iter().chain(&copies).chain([&sum, &all]).chain(&coalesced[2]) {
            tensor.fill_(1)?;
        }
        assert_eq!(sanitizer.count(), 0);
        Ok(())
    }
}
