//! cuBLAS and cuBLASLt of simulated machines: products, refusals, capture, faults, and misuse that is caught.
//!
//! # Safety
//! As in the support module; the pointers given to the libraries outlive the calls.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr;

use cuda_sim::{Config, Fault, Machine, Report, ReportKind};
use cuda_sys::cublas::types::*;
use cuda_sys::cublaslt::types::*;
use cuda_sys::driver::types::{CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeType, CUstream, CUstreamCaptureMode};
use cuda_sys::{CUresult, Cublas, CublasError, CublasLt};

use support::Rig;

use cublasOperation_t as Op;
use cublasStatus_t as Status;
use cudaDataType_t as Type;

const N: Op = Op::CUBLAS_OP_N;
const T: Op = Op::CUBLAS_OP_T;
const C: Op = Op::CUBLAS_OP_C;

/// A machine with a handle of cuBLAS on a stream.
struct Blas {
    rig: Rig,
    cublas: Cublas,
    handle: cublasHandle_t,
    stream: CUstream,
}

/// Makes one expression of an unsafe call of cuBLAS.
macro_rules! blas {
    ($library:expr, $function:ident ( $($argument:expr),* $(,)? )) => {
        // SAFETY: see the header.
        unsafe { $library.$function($($argument),*) }
    };
}

impl Blas {
    fn new(config: Config) -> Self {
        let rig = Rig::new(config);
        let cublas = cuda_sim::cublas();
        let mut handle = ptr::null_mut();
        blas!(cublas, cublasCreate_v2(&mut handle)).expect("a handle");
        let stream = rig.stream(1);
        blas!(cublas, cublasSetStream_v2(handle, stream)).expect("a stream");
        Self { rig, cublas, handle, stream }
    }

    fn floats(&self, values: &[f32]) -> u64 {
        let address = self.rig.alloc(values.len() * 4);
        self.rig.write(address, &bytes_of(values));
        address
    }

    fn read(&self, address: u64, count: usize) -> Vec<f32> {
        call!(self.rig, cuStreamSynchronize(self.stream)).expect("the work is done");
        floats_of(&self.rig.read(address, count * 4))
    }

    /// A product of matrices of two by two.
    fn two_by_two(&self, a: u64, b: u64, c: u64) -> Result<(), CublasError> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        blas!(self.cublas, cublasSgemm_v2(self.handle, N, N, 2, 2, 2, &one, at(a), 2, at(b), 2, &zero, at(c), 2))
    }

    fn reports(&self) -> Vec<ReportKind> {
        self.rig.machine.take_reports().into_iter().map(|report: Report| report.kind).collect()
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // A test may have lost the context by then.
        let _ = blas!(self.cublas, cublasDestroy_v2(self.handle));
    }
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats_of(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

/// A device address as a pointer.
fn at<P>(address: u64) -> *mut P {
    ptr::without_provenance_mut(usize::try_from(address).expect("64 bits"))
}

fn status(answer: Result<(), CublasError>) -> Status {
    answer.expect_err("the call should fail").status().expect("the function is there")
}

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(i16::try_from(state >> 24).expect("a byte")) - 128.0
    };
    (0..count).map(next).collect()
}

/// Element of a matrix by columns, or of its transpose.
fn element(values: &[f32], leading: usize, op: Op, row: usize, column: usize) -> f64 {
    let place = if op == N { column * leading + row } else { row * leading + column };
    f64::from(values[place])
}

#[test]
fn products_are_those_of_blas_for_all_operations_strides_and_factors() {
    let blas = Blas::new(Config::default());
    let (m, n, k, batch) = (5, 4, 3, 3);
    let (alpha, beta) = (2.0_f32, -1.0_f32);
    for (op_a, op_b, stride_a) in [(N, N, 36), (T, N, 36), (N, T, 0), (C, T, 0)] {
        let (a, b, c) = (numbers(36 * 3, 1), numbers(24 * 3, 2), numbers(24 * 3, 3));
        let (on_a, on_b, on_c) = (blas.floats(&a), blas.floats(&b), blas.floats(&c));
        blas!(
            blas.cublas,
            cublasSgemmStridedBatched(
                blas.handle,
                op_a,
                op_b,
                m,
                n,
                k,
                &alpha,
                at(on_a),
                6,
                stride_a,
                at(on_b),
                5,
                24,
                &beta,
                at(on_c),
                6,
                24,
                batch
            )
        )
        .expect("a product");
        let found = blas.read(on_c, 24 * 3);
        for index in 0..72 {
            let (matrix, row, column) = (index / 24, index % 24 % 6, index % 24 / 6);
            let mut wanted = f64::from(c[index]);
            if row < 5 && column < 4 {
                let left = &a[matrix * usize::try_from(stride_a).expect("small")..];
                let right = &b[matrix * 24..];
                let sum: f64 =
                    (0..3).map(|step| element(left, 6, op_a, row, step) * element(right, 5, op_b, step, column)).sum();
                wanted = 2.0 * sum - wanted;
            }
            assert_eq!(f64::from(found[index]).to_bits(), wanted.to_bits(), "{op_a:?} {op_b:?} {index}");
        }
    }
    assert_eq!(blas.reports(), []);
}

#[test]
fn a_beta_of_zero_does_not_read_and_an_alpha_of_zero_does_not_multiply() {
    let blas = Blas::new(Config::default());
    let (a, c) = (blas.floats(&[f32::NAN; 4]), blas.floats(&[f32::NAN; 4]));
    let zero = 0.0_f32;
    blas!(blas.cublas, cublasSgemm_v2(blas.handle, N, N, 2, 2, 2, &zero, at(a), 2, at(a), 2, &zero, at(c), 2))
        .expect("a product");
    assert_eq!(blas.read(c, 4), [0.0; 4]);
}

#[test]
fn a_batch_by_addresses_and_factors_of_the_device_are_read_when_it_runs() {
    let blas = Blas::new(Config::default());
    let (a, b, c) = (blas.floats(&[2.0, 3.0]), blas.floats(&[5.0, 7.0]), blas.floats(&[0.0; 2]));
    let factors = blas.floats(&[0.5, 0.0]);
    let array = |addresses: [u64; 2]| {
        let array = blas.rig.alloc(16);
        blas.rig.write(array, &addresses.iter().flat_map(|address| address.to_le_bytes()).collect::<Vec<u8>>());
        array
    };
    // The second product has the factors of the first one in the other order.
    let (left, right, results) = (array([a, a + 4]), array([b + 4, b]), array([c, c + 4]));
    let mode = cublasPointerMode_t::CUBLAS_POINTER_MODE_DEVICE;
    blas!(blas.cublas, cublasSetPointerMode_v2(blas.handle, mode)).expect("a mode");
    let single = Type::CUDA_R_32F;
    blas!(
        blas.cublas,
        cublasGemmBatchedEx(
            blas.handle,
            N,
            N,
            1,
            1,
            1,
            at(factors),
            at(left),
            single,
            1,
            at(right),
            single,
            1,
            at(factors + 4),
            at(results),
            single,
            1,
            2,
            cublasComputeType_t::CUBLAS_COMPUTE_32F,
            cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT
        )
    )
    .expect("a batch");
    assert_eq!(blas.read(c, 2), [7.0, 7.5]);
    assert_eq!(blas.reports(), []);
}

/// A product of one number of each kind: bytes of the factors and of the result.
fn one_by_one(
    blas: &Blas,
    types: [Type; 2],
    compute: cublasComputeType_t,
    a: &[u8],
    b: &[u8],
    scalars: [&[u8]; 2],
) -> Vec<u8> {
    let (on_a, on_b, on_c) = (blas.rig.alloc(256), blas.rig.alloc(256), blas.rig.alloc(256));
    blas.rig.write(on_a, a);
    blas.rig.write(on_b, b);
    blas.rig.write(on_c, &[0; 16]);
    let algo = cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT;
    blas!(
        blas.cublas,
        cublasGemmEx(
            blas.handle,
            N,
            N,
            1,
            1,
            1,
            scalars[0].as_ptr().cast(),
            at(on_a),
            types[0],
            4,
            at(on_b),
            types[0],
            4,
            scalars[1].as_ptr().cast(),
            at(on_c),
            types[1],
            4,
            compute,
            algo
        )
    )
    .expect("a product");
    call!(blas.rig, cuStreamSynchronize(blas.stream)).expect("the work is done");
    blas.rig.read(on_c, 16)
}

#[test]
fn every_type_is_computed_in_its_own_precision() {
    use cublasComputeType_t as Compute;
    let blas = Blas::new(Config::default());
    let (one, zero) = (1.0_f32.to_le_bytes(), 0.0_f32.to_le_bytes());
    let single = [one.as_slice(), zero.as_slice()];
    let half = one_by_one(&blas, [Type::CUDA_R_16F; 2], Compute::CUBLAS_COMPUTE_32F, &[0, 0x3e], &[0, 0x40], single);
    assert_eq!(half[..2], [0, 0x42]);
    let half_sums: [&[u8]; 2] = [&[0, 0x3c], &[0, 0]];
    let half = one_by_one(&blas, [Type::CUDA_R_16F; 2], Compute::CUBLAS_COMPUTE_16F, &[0, 0x3e], &[0, 0x40], half_sums);
    assert_eq!(half[..2], [0, 0x42]);
    let brain = [Type::CUDA_R_16BF, Type::CUDA_R_32F];
    let brain = one_by_one(&blas, brain, Compute::CUBLAS_COMPUTE_32F, &[0xc0, 0x3f], &[0, 0x40], single);
    assert_eq!(brain[..4], 3.0_f32.to_le_bytes());
    let whole: [&[u8]; 2] = [&[1, 0, 0, 0], &[0; 4]];
    let bytes = [Type::CUDA_R_8I, Type::CUDA_R_32I];
    let bytes = one_by_one(&blas, bytes, Compute::CUBLAS_COMPUTE_32I, &[0xf9], &[100], whole);
    assert_eq!(bytes[..4], (-700_i32).to_le_bytes());
    let (one, zero) = (1.0_f64.to_le_bytes(), 0.0_f64.to_le_bytes());
    let double = [one.as_slice(), zero.as_slice()];
    let (a, b) = (0.1_f64.to_le_bytes(), 3.0_f64.to_le_bytes());
    let found = one_by_one(&blas, [Type::CUDA_R_64F; 2], Compute::CUBLAS_COMPUTE_64F, &a, &b, double);
    assert_eq!(found[..8], (0.1_f64 * 3.0).to_le_bytes());
    let pair = |real: f32, imaginary: f32| bytes_of(&[real, imaginary]);
    let (one, zero) = (pair(1.0, 0.0), pair(0.0, 0.0));
    let (a, b) = (pair(1.0, 2.0), pair(3.0, -1.0));
    let found = one_by_one(&blas, [Type::CUDA_C_32F; 2], Compute::CUBLAS_COMPUTE_32F, &a, &b, [&one, &zero]);
    assert_eq!(found[..8], pair(5.0, 5.0));
}

#[test]
fn the_math_mode_rounds_single_precision_to_tf32() {
    let blas = Blas::new(Config::default());
    let fine = 1.0 + 1.0 / 4096.0;
    let (a, b, c) = (blas.floats(&[fine; 4]), blas.floats(&[1.0, 0.0, 0.0, 1.0]), blas.floats(&[0.0; 4]));
    blas.two_by_two(a, b, c).expect("a product");
    assert_eq!(blas.read(c, 4), [fine; 4]);
    let mode = cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH;
    blas!(blas.cublas, cublasSetMathMode(blas.handle, mode)).expect("a mode");
    blas.two_by_two(a, b, c).expect("a product");
    assert_eq!(blas.read(c, 4), [1.0; 4]);
    let unknown = blas!(blas.cublas, cublasSetMathMode(blas.handle, cublasMath_t(77)));
    assert_eq!(status(unknown), Status::CUBLAS_STATUS_INVALID_VALUE);
}

#[test]
fn wrong_sizes_types_pointers_and_handles_are_refused() {
    let blas = Blas::new(Config::default());
    let (one, c) = (1.0_f32, blas.floats(&[0.0; 4]));
    let gemm = |handle, m: i32, leading: i32, alpha: *const f32, result: u64| {
        blas!(blas.cublas, cublasSgemm_v2(handle, N, N, m, 2, 2, alpha, at(c), leading, at(c), 2, &one, at(result), 2))
    };
    let invalid = Status::CUBLAS_STATUS_INVALID_VALUE;
    assert_eq!(status(gemm(blas.handle, -1, 2, &one, c)), invalid);
    assert_eq!(status(gemm(blas.handle, 2, 1, &one, c)), invalid);
    assert_eq!(status(gemm(blas.handle, 2, 2, ptr::null(), c)), invalid);
    assert_eq!(status(gemm(blas.handle, 2, 2, &one, 0)), invalid);
    gemm(blas.handle, 0, 2, &one, 0).expect("nothing to do");
    assert_eq!(status(gemm(ptr::null_mut(), 2, 2, &one, c)), Status::CUBLAS_STATUS_NOT_INITIALIZED);
    assert_eq!(status(gemm(at(0x77), 2, 2, &one, c)), Status::CUBLAS_STATUS_NOT_INITIALIZED);
    let mixed = blas!(
        blas.cublas,
        cublasGemmEx(
            blas.handle,
            N,
            N,
            2,
            2,
            2,
            (&raw const one).cast(),
            at(c),
            Type::CUDA_R_16F,
            2,
            at(c),
            Type::CUDA_R_16BF,
            2,
            (&raw const one).cast(),
            at(c),
            Type::CUDA_R_32F,
            2,
            cublasComputeType_t::CUBLAS_COMPUTE_32F,
            cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT
        )
    );
    assert_eq!(status(mixed), Status::CUBLAS_STATUS_NOT_SUPPORTED);
    assert_eq!(blas.reports(), [ReportKind::LibraryHandle]);
    // An address of nothing is found when the product runs.
    gemm(blas.handle, 2, 2, &one, 0x10).expect("queued");
    assert_eq!(support::code(call!(blas.rig, cuStreamSynchronize(blas.stream))), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(blas.reports(), [ReportKind::KernelFailure]);
}

#[test]
fn vectors_are_multiplied_and_answers_come_to_the_host_or_the_device() {
    let blas = Blas::new(Config::default());
    let (a, x, y) =
        (blas.floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), blas.floats(&[1.0, 0.0, 10.0]), blas.floats(&[1.0; 4]));
    let (one, two) = (1.0_f32, 2.0_f32);
    // Two rows, three columns; y has gaps.
    blas!(blas.cublas, cublasSgemv_v2(blas.handle, N, 2, 3, &one, at(a), 2, at(x), 1, &two, at(y), 2))
        .expect("a product");
    assert_eq!(blas.read(y, 4), [53.0, 1.0, 64.0, 1.0]);
    blas!(blas.cublas, cublasSgemv_v2(blas.handle, T, 2, 2, &one, at(a), 2, at(x), 2, &two, at(y), 2))
        .expect("a product");
    assert_eq!(blas.read(y, 4), [106.0 + 21.0, 1.0, 128.0 + 43.0, 1.0]);
    let mut sum = 0.0_f32;
    blas!(blas.cublas, cublasSdot_v2(blas.handle, 3, at(a), 2, at(x), 1, &mut sum)).expect("a product");
    assert_eq!(sum.to_bits(), 51.0_f32.to_bits());
    let mode = cublasPointerMode_t::CUBLAS_POINTER_MODE_DEVICE;
    blas!(blas.cublas, cublasSetPointerMode_v2(blas.handle, mode)).expect("a mode");
    blas!(blas.cublas, cublasSdot_v2(blas.handle, 3, at(a), 2, at(x), 1, at(y))).expect("a product");
    assert_eq!(blas.read(y, 1), [51.0]);
    let zero = blas!(blas.cublas, cublasSdot_v2(blas.handle, 3, at(a), 0, at(x), 1, at(y)));
    assert_eq!(status(zero), Status::CUBLAS_STATUS_INVALID_VALUE);
}

/// Captures what `work` queues on the stream, and makes it executable.
fn captured(blas: &Blas, work: impl FnOnce()) -> (CUgraph, CUgraphExec) {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    call!(blas.rig, cuStreamBeginCapture_v2(blas.stream, mode)).expect("a capture");
    work();
    let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
    call!(blas.rig, cuStreamEndCapture(blas.stream, &mut graph)).expect("a graph");
    call!(blas.rig, cuGraphInstantiateWithFlags(&mut exec, graph, 0)).expect("an executable graph");
    (graph, exec)
}

#[test]
fn a_captured_product_is_a_kernel_node_and_runs_at_each_replay() {
    let blas = Blas::new(Config::default());
    let (a, b, c) = (blas.floats(&[1.0, 2.0, 3.0, 4.0]), blas.floats(&[1.0, 0.0, 0.0, 1.0]), blas.floats(&[0.0; 4]));
    let workspace = blas.rig.alloc(4096);
    blas!(blas.cublas, cublasSetWorkspace_v2(blas.handle, at(workspace), 4096)).expect("a workspace");
    let (graph, exec) = captured(&blas, || blas.two_by_two(a, b, c).expect("a captured product"));
    let (mut node, mut count): (CUgraphNode, usize) = (ptr::null_mut(), 1);
    call!(blas.rig, cuGraphGetNodes(graph, &mut node, &mut count)).expect("its nodes");
    let mut kind = CUgraphNodeType(99);
    call!(blas.rig, cuGraphNodeGetType(node, &mut kind)).expect("its kind");
    assert_eq!((count, kind), (1, CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL));
    assert_eq!(blas.read(c, 4), [0.0; 4]);
    for factor in [1.0, 2.0] {
        blas.rig.write(a, &bytes_of(&[factor, 0.0, 0.0, factor]));
        call!(blas.rig, cuGraphLaunch(exec, blas.stream)).expect("a replay");
        assert_eq!(blas.read(c, 4), [factor, 0.0, 0.0, factor]);
    }
    assert_eq!(blas.reports(), []);
    // The library takes the workspace away with the stream; captured without one, it would allocate.
    blas!(blas.cublas, cublasSetStream_v2(blas.handle, blas.stream)).expect("the same stream");
    captured(&blas, || blas.two_by_two(a, b, c).expect("a captured product"));
    assert_eq!(blas.reports(), [ReportKind::WorkspaceInCapture]);
}

#[test]
fn planted_a_product_on_the_wrong_stream_is_caught() {
    for strict in [false, true] {
        let blas = Blas::new(Config::default().strict(strict));
        let (a, b, c) = (blas.floats(&[0.0; 4]), blas.floats(&[1.0, 0.0, 0.0, 1.0]), blas.floats(&[0.0; 4]));
        let source = [1.0_f32; 4];
        let other = blas.rig.stream(1);
        // The input comes on another stream, and nothing makes the handle's stream wait for it.
        call!(blas.rig, cuMemcpyHtoDAsync_v2(a, source.as_ptr().cast(), 16, other)).expect("a copy");
        call!(blas.rig, cuMemsetD32Async(a, 7, 4, other)).expect("a set");
        blas.two_by_two(a, b, c).expect("hardware does not notice");
        let reports = blas.rig.machine.take_reports();
        assert_eq!(reports[0].kind, ReportKind::Unordered);
        assert!(reports[0].message.contains("cublasSgemm_v2 reads 16 bytes"), "{}", reports[0]);
        // The result is read on another stream.
        call!(blas.rig, cuMemsetD32Async(c, 7, 4, other)).expect("a set");
        assert_eq!(blas.reports(), [ReportKind::Unordered]);
        // With an event between the two all is well.
        call!(blas.rig, cuCtxSynchronize()).expect("all work is done");
        let event = blas.rig.event(0);
        call!(blas.rig, cuMemsetD32Async(b, 7, 4, other)).expect("a set");
        call!(blas.rig, cuEventRecord(event, other)).expect("a record");
        call!(blas.rig, cuStreamWaitEvent(blas.stream, event, 0)).expect("a wait");
        blas.two_by_two(a, b, c).expect("a product");
        assert_eq!(blas.reports(), []);
        // A stream that is gone.
        call!(blas.rig, cuStreamDestroy_v2(other)).expect("a stream");
        let set = blas!(blas.cublas, cublasSetStream_v2(blas.handle, other));
        assert_eq!(set.is_err(), strict);
        assert_eq!(blas.reports(), [ReportKind::WrongStream]);
    }
}

#[test]
fn planted_a_workspace_that_is_freed_too_early_is_caught() {
    let blas = Blas::new(Config::default());
    let (a, b, c) = (blas.floats(&[1.0; 4]), blas.floats(&[1.0; 4]), blas.floats(&[0.0; 4]));
    let mut workspace = 0;
    let other = blas.rig.stream(1);
    call!(blas.rig, cuMemAllocAsync(&mut workspace, 1 << 20, other)).expect("memory");
    call!(blas.rig, cuStreamSynchronize(other)).expect("the memory is there");
    blas!(blas.cublas, cublasSetWorkspace_v2(blas.handle, at(workspace), 1 << 20)).expect("a workspace");
    let (_, exec) = captured(&blas, || blas.two_by_two(a, b, c).expect("a captured product"));
    call!(blas.rig, cuGraphLaunch(exec, blas.stream)).expect("a replay");
    assert_eq!(blas.read(c, 4), [2.0; 4]);
    assert_eq!(blas.reports(), []);
    call!(blas.rig, cuMemFreeAsync(workspace, other)).expect("it is allocated");
    call!(blas.rig, cuStreamSynchronize(other)).expect("the memory is gone");
    call!(blas.rig, cuGraphLaunch(exec, blas.stream)).expect("a replay");
    let waited = call!(blas.rig, cuStreamSynchronize(blas.stream));
    let reports = blas.rig.machine.take_reports();
    assert!(matches!(reports[0].kind, ReportKind::UseAfterFree | ReportKind::KernelFailure), "{reports:?}");
    assert!(reports[0].message.contains("uses as workspace"), "{} {waited:?}", reports[0]);
    let unaligned = blas!(blas.cublas, cublasSetWorkspace_v2(blas.handle, at(a + 16), 64));
    assert_eq!(status(unaligned), Status::CUBLAS_STATUS_INVALID_VALUE);
}

#[test]
fn planted_a_handle_that_two_threads_share_is_caught() {
    let blas = Blas::new(Config::default());
    let (a, b, c) = (blas.floats(&[1.0; 4]), blas.floats(&[1.0; 4]), blas.floats(&[0.0; 4]));
    let work = |machine: &Machine, sets_stream: bool| {
        let (machine, context) = (machine.clone(), blas.rig.context as usize);
        let (handle, stream) = (blas.handle as usize, blas.stream as usize);
        let there = std::thread::spawn(move || {
            let _bound = machine.bind();
            let (driver, cublas) = (cuda_sim::driver().expect("a driver"), cuda_sim::cublas());
            let (one, zero) = (1.0_f32, 0.0_f32);
            // SAFETY: see the header.
            unsafe { driver.cuCtxSetCurrent(ptr::with_exposed_provenance_mut(context)) }.expect("a context");
            let (handle, stream) = (ptr::with_exposed_provenance_mut(handle), ptr::with_exposed_provenance_mut(stream));
            if sets_stream {
                blas!(cublas, cublasSetStream_v2(handle, stream)).expect("a stream");
            }
            let product =
                blas!(cublas, cublasSgemm_v2(handle, N, N, 2, 2, 2, &one, at(a), 2, at(b), 2, &zero, at(c), 2));
            product.expect("hardware does not notice");
        });
        there.join().expect("the thread ends");
    };
    // A thread that binds the handle first has it to itself.
    work(&blas.rig.machine, true);
    assert_eq!(blas.reports(), []);
    // The first thread goes on without binding it again.
    blas.two_by_two(a, b, c).expect("hardware does not notice");
    assert_eq!(blas.reports(), [ReportKind::SharedHandle]);
    blas!(blas.cublas, cublasSetStream_v2(blas.handle, blas.stream)).expect("a stream");
    work(&blas.rig.machine, false);
    assert_eq!(blas.reports(), [ReportKind::SharedHandle]);
}

#[test]
fn calls_are_recorded_and_can_be_made_to_fail() {
    let blas = Blas::new(Config::default());
    let (a, c) = (blas.floats(&[1.0; 4]), blas.floats(&[0.0; 4]));
    let code = CUresult(Status::CUBLAS_STATUS_EXECUTION_FAILED.0);
    blas.rig.machine.inject(Fault { call: "cublasSgemm_v2", occurrence: 2, code });
    let _ = blas.rig.machine.take_library_calls();
    blas.two_by_two(a, a, c).expect("the first one works");
    assert_eq!(status(blas.two_by_two(a, a, c)), Status::CUBLAS_STATUS_EXECUTION_FAILED);
    let calls = blas.rig.machine.library_calls();
    assert_eq!(
        calls.iter().map(|call| (call.symbol, call.status)).collect::<Vec<_>>(),
        [("cublasSgemm_v2", 0), ("cublasSgemm_v2", 13)]
    );
    assert_eq!((calls[0].number("m"), calls[0].number("A")), (Some(2), Some(a.cast_signed())));
    assert_eq!(calls[0].stream, Some(blas.stream as u64));
    let lacking = cuda_sim::cublas_without(&["cublasSgemm_v2"]);
    let one = 1.0_f32;
    let missing = blas!(lacking, cublasSgemm_v2(blas.handle, N, N, 2, 2, 2, &one, at(a), 2, at(a), 2, &one, at(c), 2));
    assert!(matches!(missing, Err(CublasError::Missing(_))));
    assert_eq!(blas.rig.machine.live().library_handles, 1);
}

/// Descriptors of a product by cuBLASLt.
struct Lt {
    library: CublasLt,
    handle: cublasLtHandle_t,
    desc: cublasLtMatmulDesc_t,
    layouts: [cublasLtMatrixLayout_t; 3],
    preference: cublasLtMatmulPreference_t,
}

impl Lt {
    /// A product of `(m, n, k)` whose matrices have no gaps; the left one is transposed where `op` says so.
    fn new(types: [Type; 3], (m, n, k): (u64, u64, u64), op: Op) -> Self {
        let library = cuda_sim::cublaslt();
        let (mut handle, mut desc, mut preference) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        blas!(library, cublasLtCreate(&mut handle)).expect("a handle");
        let compute = cublasComputeType_t::CUBLAS_COMPUTE_32F;
        blas!(library, cublasLtMatmulDescCreate(&mut desc, compute, Type::CUDA_R_32F)).expect("a descriptor");
        blas!(library, cublasLtMatmulPreferenceCreate(&mut preference)).expect("a preference");
        let left = if op == N { (m, k) } else { (k, m) };
        let shapes = [left, (k, n), (m, n)];
        let layouts = [0, 1, 2].map(|index| {
            let (mut layout, (rows, columns)) = (ptr::null_mut(), shapes[index]);
            let leading = i64::try_from(rows).expect("small");
            blas!(library, cublasLtMatrixLayoutCreate(&mut layout, types[index], rows, columns, leading))
                .expect("a layout");
            layout
        });
        let made = Self { library, handle, desc, layouts, preference };
        made.set(cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, &op.0.to_le_bytes());
        made
    }

    fn set(&self, attribute: cublasLtMatmulDescAttributes_t, value: &[u8]) {
        blas!(self.library, cublasLtMatmulDescSetAttribute(self.desc, attribute, value.as_ptr().cast(), value.len()))
            .expect("an attribute");
    }

    fn heuristics(&self, workspace: u64) -> Result<Vec<cublasLtMatmulHeuristicResult_t>, CublasError> {
        let attribute = cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let value = (&raw const workspace).cast();
        blas!(self.library, cublasLtMatmulPreferenceSetAttribute(self.preference, attribute, value, 8))
            .expect("a size");
        let mut found = 0;
        let mut results: Vec<cublasLtMatmulHeuristicResult_t> = Vec::with_capacity(16);
        let [a, b, c] = self.layouts;
        blas!(
            self.library,
            cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                self.desc,
                a,
                b,
                c,
                c,
                self.preference,
                16,
                results.as_mut_ptr(),
                &mut found
            )
        )?;
        // SAFETY: the library has written so many.
        unsafe { results.set_len(usize::try_from(found).expect("a count")) };
        Ok(results)
    }

    fn multiply(
        &self,
        stream: CUstream,
        [a, b, c]: [u64; 3],
        algorithm: *const cublasLtMatmulAlgo_t,
        workspace: (u64, usize),
    ) -> Result<(), CublasError> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let [layout_a, layout_b, layout_c] = self.layouts;
        let (alpha, beta): (*const c_void, *const c_void) = ((&raw const one).cast(), (&raw const zero).cast());
        blas!(
            self.library,
            cublasLtMatmul(
                self.handle,
                self.desc,
                alpha,
                at(a),
                layout_a,
                at(b),
                layout_b,
                beta,
                at(c),
                layout_c,
                at(c),
                layout_c,
                algorithm,
                at(workspace.0),
                workspace.1,
                stream
            )
        )
    }
}

#[test]
fn epilogues_add_a_bias_and_activate() {
    use cublasLtEpilogue_t as Epilogue;
    use cublasLtMatmulDescAttributes_t as Attribute;
    let blas = Blas::new(Config::default());
    let lt = Lt::new([Type::CUDA_R_32F; 3], (2, 2, 2), N);
    let (a, b) = (blas.floats(&[1.0, -2.0, 0.0, 0.0]), blas.floats(&[1.0, 0.0, 2.0, 0.0]));
    let (c, bias) = (blas.floats(&[0.0; 4]), blas.floats(&[0.5, 1.0]));
    lt.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.to_le_bytes());
    let gelu = |value: f32| {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (f64::from(value) + 0.044_715 * f64::from(value).powi(3));
        0.5 * f64::from(value) * (1.0 + inner.tanh())
    };
    for (epilogue, wanted) in [
        (Epilogue::CUBLASLT_EPILOGUE_DEFAULT, [1.0, -2.0, 2.0, -4.0]),
        (Epilogue::CUBLASLT_EPILOGUE_RELU, [1.0, 0.0, 2.0, 0.0]),
        (Epilogue::CUBLASLT_EPILOGUE_BIAS, [1.5, -1.0, 2.5, -3.0]),
        (Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS, [1.5, 0.0, 2.5, 0.0]),
        (Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS, [gelu(1.5), gelu(-1.0), gelu(2.5), gelu(-3.0)]),
    ] {
        lt.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue.0.to_le_bytes());
        lt.multiply(blas.stream, [a, b, c], ptr::null(), (0, 0)).expect("a product");
        let found = blas.read(c, 4);
        let near = found.iter().zip(wanted).all(|(&found, wanted)| (f64::from(found) - wanted).abs() < 1e-6);
        assert!(near, "{epilogue:?}: {found:?} {wanted:?}");
    }
    lt.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &Epilogue::CUBLASLT_EPILOGUE_DGELU.0.to_le_bytes());
    let refused = lt.multiply(blas.stream, [a, b, c], ptr::null(), (0, 0));
    assert_eq!(status(refused), Status::CUBLAS_STATUS_NOT_SUPPORTED);
    assert_eq!(blas.reports(), [ReportKind::NotSupported]);
}

#[test]
fn heuristics_give_algorithms_with_the_workspace_they_need() {
    let blas = Blas::new(Config::default());
    let lt = Lt::new([Type::CUDA_R_32F; 3], (2, 2, 8), N);
    let none = lt.heuristics(0).expect("some need none");
    assert!(none.len() > 1 && none.iter().all(|result| result.workspaceSize == 0));
    let all = lt.heuristics(1 << 20).expect("more with memory");
    let greedy = all.iter().find(|result| result.workspaceSize > 0).expect("one that splits");
    assert_eq!(greedy.workspaceSize, 2 * 4 * 4);
    let (a, b, c) = (blas.floats(&[1.0; 16]), blas.floats(&[2.0; 16]), blas.floats(&[0.0; 4]));
    let refused = lt.multiply(blas.stream, [a, b, c], &greedy.algo, (0, 0));
    assert_eq!(status(refused), Status::CUBLAS_STATUS_INVALID_VALUE);
    let workspace = blas.rig.alloc(4096);
    for result in &all {
        lt.multiply(blas.stream, [a, b, c], &result.algo, (workspace, result.workspaceSize)).expect("a product");
        assert_eq!(blas.read(c, 4), [16.0; 4]);
    }
    let mut tampered = greedy.algo;
    tampered.data[0] = 1;
    let refused = lt.multiply(blas.stream, [a, b, c], &tampered, (workspace, 4096));
    assert_eq!(status(refused), Status::CUBLAS_STATUS_INVALID_VALUE);
    assert_eq!(blas.reports(), []);
}

#[test]
fn eight_bit_floats_are_scaled_and_must_lie_as_the_library_wants_them() {
    use cublasLtMatmulDescAttributes_t as Attribute;
    let blas = Blas::new(Config::default());
    let types = [Type::CUDA_R_8F_E4M3, Type::CUDA_R_8F_E5M2, Type::CUDA_R_32F];
    let lt = Lt::new(types, (16, 16, 16), T);
    let (a, b, c) = (blas.rig.alloc(256), blas.rig.alloc(256), blas.rig.alloc(1024));
    // 1.5 and 2.
    blas.rig.write(a, &[0x3c; 256]);
    blas.rig.write(b, &[0x40; 256]);
    let (scale_a, scale_b) = (blas.floats(&[0.5]), blas.floats(&[4.0]));
    lt.set(Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale_a.to_le_bytes());
    lt.set(Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale_b.to_le_bytes());
    lt.multiply(blas.stream, [a, b, c], ptr::null(), (0, 0)).expect("a product");
    assert_eq!(blas.read(c, 256), [16.0 * 3.0 * 2.0; 256]);
    let rows = blas.floats(&(0_u8..16).map(f32::from).collect::<Vec<_>>());
    let mode = cublasLtMatmulMatrixScale_t::CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F.0.to_le_bytes();
    lt.set(Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &rows.to_le_bytes());
    lt.set(Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &rows.to_le_bytes());
    lt.set(Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode);
    lt.set(Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode);
    lt.multiply(blas.stream, [a, b, c], ptr::null(), (0, 0)).expect("a product");
    let found = blas.read(c, 256);
    assert_eq!([found[0], found[16 * 3 + 2], found[255]], [0.0, 48.0 * 6.0, 48.0 * 225.0]);
    let plain = Lt::new(types, (16, 16, 16), N);
    assert_eq!(status(plain.heuristics(0).map(|_| ())), Status::CUBLAS_STATUS_NOT_SUPPORTED);
    let odd = Lt::new(types, (16, 16, 8), T);
    assert_eq!(status(odd.heuristics(0).map(|_| ())), Status::CUBLAS_STATUS_NOT_SUPPORTED);
    assert_eq!(blas.reports(), []);
}
