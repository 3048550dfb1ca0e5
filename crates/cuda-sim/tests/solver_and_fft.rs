//! cuSOLVER and cuFFT of simulated machines: results, refusals, capture, misuse that is caught.
//!
//! # Safety
//! As in the support module; the pointers given to the libraries outlive the calls.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ptr;

use cuda_sim::{Config, ReportKind};
use cuda_sys::cublas::types::{cublasFillMode_t, cublasOperation_t, cudaDataType_t};
use cuda_sys::cufft::types::{cufftHandle, cufftResult_t, cufftType_t};
use cuda_sys::cusolver::types::{cusolverDnHandle_t, cusolverEigMode_t, cusolverStatus_t};
use cuda_sys::driver::types::{CUstream, CUstreamCaptureMode};
use cuda_sys::{Cufft, CufftError, Cusolver, CusolverError};

use support::Rig;

const F64: cudaDataType_t = cudaDataType_t::CUDA_R_64F;

/// Makes one expression of an unsafe call of a library.
macro_rules! library {
    ($library:expr, $function:ident ( $($argument:expr),* $(,)? )) => {
        // SAFETY: see the header.
        unsafe { $library.$function($($argument),*) }
    };
}

/// A device address as a pointer.
fn at<P>(address: u64) -> *mut P {
    ptr::without_provenance_mut(usize::try_from(address).expect("64 bits"))
}

fn numbers(rig: &Rig, values: &[f64]) -> u64 {
    let address = rig.alloc(values.len() * 8);
    rig.write(address, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
    address
}

fn read(rig: &Rig, stream: CUstream, address: u64, count: usize) -> Vec<f64> {
    call!(rig, cuStreamSynchronize(stream)).expect("the work is done");
    let bytes = rig.read(address, count * 8);
    bytes.chunks_exact(8).map(|eight| f64::from_le_bytes(eight.try_into().expect("eight bytes"))).collect()
}

fn assert_near(found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    let near = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-9);
    assert!(near, "{found:?} is not {wanted:?}");
}

/// A machine with a handle of cuSOLVER on a stream.
struct Solver {
    rig: Rig,
    library: Cusolver,
    handle: cusolverDnHandle_t,
    stream: CUstream,
    workspace: u64,
    info: u64,
}

const WORKSPACE_BYTES: usize = 4096;

impl Solver {
    fn new() -> Self {
        let rig = Rig::new(Config::default());
        let (library, stream) = (cuda_sim::cusolver(), rig.stream(1));
        let mut handle = ptr::null_mut();
        library!(library, cusolverDnCreate(&mut handle)).expect("a handle");
        library!(library, cusolverDnSetStream(handle, stream)).expect("a stream");
        let (workspace, info) = (rig.alloc(WORKSPACE_BYTES), rig.alloc(4));
        Self { rig, library, handle, stream, workspace, info }
    }

    fn factorise(&self, a: u64, pivots: u64, size: i64) -> Result<(), CusolverError> {
        let (params, host) = (ptr::null_mut(), ptr::null_mut());
        library!(
            self.library,
            cusolverDnXgetrf(
                self.handle,
                params,
                size,
                size,
                F64,
                at(a),
                size,
                at(pivots),
                F64,
                at(self.workspace),
                WORKSPACE_BYTES,
                host,
                0,
                at(self.info)
            )
        )
    }

    fn info(&self) -> i32 {
        call!(self.rig, cuStreamSynchronize(self.stream)).expect("the work is done");
        i32::from_le_bytes(self.rig.read(self.info, 4).try_into().expect("four bytes"))
    }
}

impl Drop for Solver {
    fn drop(&mut self) {
        library!(self.library, cusolverDnDestroy(self.handle)).expect("it is a handle");
    }
}

#[test]
fn systems_are_solved_by_swapped_and_by_positive_triangles() {
    let solver = Solver::new();
    let (rig, params) = (&solver.rig, ptr::null_mut());
    let (a, b, pivots) = (numbers(rig, &[0.0, 2.0, 1.0, 1.0]), numbers(rig, &[3.0, 5.0]), rig.alloc(16));
    solver.factorise(a, pivots, 2).expect("a factorisation");
    let n = cublasOperation_t::CUBLAS_OP_N;
    library!(
        solver.library,
        cusolverDnXgetrs(solver.handle, params, n, 2, 1, F64, at(a), 2, at(pivots), F64, at(b), 2, at(solver.info))
    )
    .expect("a solution");
    // 0 x + 1 y = 3 and 2 x + 1 y = 5.
    assert_near(&read(rig, solver.stream, b, 2), &[1.0, 3.0]);
    assert_eq!(solver.info(), 0);
    let (a, b) = (numbers(rig, &[4.0, 2.0, 77.0, 5.0]), numbers(rig, &[8.0, 8.0]));
    let lower = cublasFillMode_t::CUBLAS_FILL_MODE_LOWER;
    let (mut device, mut host) = (0, 1);
    library!(
        solver.library,
        cusolverDnXpotrf_bufferSize(solver.handle, params, lower, 2, F64, at(a), 2, F64, &mut device, &mut host)
    )
    .expect("a size");
    assert_eq!((device, host), ((4 + 64) * 8, 0));
    let cholesky = |bytes: usize| {
        library!(
            solver.library,
            cusolverDnXpotrf(
                solver.handle,
                params,
                lower,
                2,
                F64,
                at(a),
                2,
                F64,
                at(solver.workspace),
                bytes,
                ptr::null_mut(),
                0,
                at(solver.info)
            )
        )
    };
    let small = cholesky(device - 1).expect_err("too small");
    assert_eq!(small.status(), Some(cusolverStatus_t::CUSOLVER_STATUS_INVALID_VALUE));
    cholesky(device).expect("a factorisation");
    assert_near(&read(rig, solver.stream, a, 4), &[2.0, 1.0, 77.0, 2.0]);
    library!(
        solver.library,
        cusolverDnXpotrs(solver.handle, params, lower, 2, 1, F64, at(a), 2, F64, at(b), 2, at(solver.info))
    )
    .expect("a solution");
    assert_near(&read(rig, solver.stream, b, 2), &[1.5, 1.0]);
    assert_eq!(rig.machine.take_reports(), []);
}

#[test]
fn a_singular_matrix_is_told_by_a_number() {
    let solver = Solver::new();
    let (a, pivots) = (numbers(&solver.rig, &[0.0; 4]), solver.rig.alloc(16));
    solver.factorise(a, pivots, 2).expect("queued");
    assert_eq!(solver.info(), 1);
    let wrong = solver.factorise(a, pivots, -1).expect_err("a size");
    assert_eq!(wrong.status(), Some(cusolverStatus_t::CUSOLVER_STATUS_INVALID_VALUE));
}

#[test]
fn orthogonal_factors_and_singular_values_are_found() {
    let solver = Solver::new();
    let (rig, params) = (&solver.rig, ptr::null_mut());
    let (a, tau) = (numbers(rig, &[3.0, 4.0, 1.0, 7.0]), rig.alloc(16));
    library!(
        solver.library,
        cusolverDnXgeqrf(
            solver.handle,
            params,
            2,
            2,
            F64,
            at(a),
            2,
            F64,
            at(tau),
            F64,
            at(solver.workspace),
            WORKSPACE_BYTES,
            ptr::null_mut(),
            0,
            at(solver.info)
        )
    )
    .expect("a factorisation");
    let packed = read(rig, solver.stream, a, 4);
    assert_near(&[packed[0], packed[2], packed[3]], &[-5.0, -6.2, 3.4]);
    library!(
        solver.library,
        cusolverDnDorgqr(solver.handle, 2, 2, 2, at(a), 2, at(tau), at(solver.workspace), 512, at(solver.info))
    )
    .expect("a unitary matrix");
    assert_near(&read(rig, solver.stream, a, 4), &[-0.6, -0.8, -0.8, 0.6]);
    let (a, values) = (numbers(rig, &[0.0, -2.0, 3.0, 0.0]), rig.alloc(16));
    let (u, v, mut info) = (rig.alloc(32), rig.alloc(32), ptr::null_mut());
    library!(solver.library, cusolverDnCreateGesvdjInfo(&mut info)).expect("parameters");
    let mode = cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR;
    library!(
        solver.library,
        cusolverDnDgesvdj(
            solver.handle,
            mode,
            1,
            2,
            2,
            at(a),
            2,
            at(values),
            at(u),
            2,
            at(v),
            2,
            at(solver.workspace),
            512,
            at(solver.info),
            info
        )
    )
    .expect("a decomposition");
    library!(solver.library, cusolverDnDestroyGesvdjInfo(info)).expect("parameters");
    assert_near(&read(rig, solver.stream, values, 2), &[3.0, 2.0]);
    let (u, v) = (read(rig, solver.stream, u, 4), read(rig, solver.stream, v, 4));
    let product = |row: usize, column: usize| 3.0 * u[row] * v[column] + 2.0 * u[2 + row] * v[2 + column];
    assert_near(&[product(0, 0), product(1, 0), product(0, 1), product(1, 1)], &[0.0, -2.0, 3.0, 0.0]);
}

#[test]
fn a_destroyed_handle_and_work_in_no_order_are_reported() {
    let solver = Solver::new();
    let (a, pivots) = (numbers(&solver.rig, &[1.0, 0.0, 0.0, 1.0]), solver.rig.alloc(16));
    call!(solver.rig, cuMemsetD32Async(a, 0, 4, solver.rig.stream(1))).expect("a set");
    solver.factorise(a, pivots, 2).expect("hardware does not notice");
    let kinds: Vec<ReportKind> = solver.rig.machine.take_reports().into_iter().map(|report| report.kind).collect();
    assert_eq!(kinds, [ReportKind::Unordered]);
    let wrong = library!(solver.library, cusolverDnSetStream(at(0x55), solver.stream)).expect_err("no handle");
    assert_eq!(wrong.status(), Some(cusolverStatus_t::CUSOLVER_STATUS_NOT_INITIALIZED));
    assert_eq!(solver.rig.machine.take_reports()[0].kind, ReportKind::LibraryHandle);
}

/// A plan on a stream.
fn plan(library: &Cufft, stream: CUstream, sizes: &mut [i64], kind: cufftType_t, batch: i64) -> cufftHandle {
    let mut plan = 0;
    library!(library, cufftCreate(&mut plan)).expect("a plan");
    library!(library, cufftSetStream(plan, stream)).expect("a stream");
    let rank = i32::try_from(sizes.len()).expect("few");
    let (none, mut bytes) = (ptr::null_mut(), 0);
    library!(
        library,
        cufftMakePlanMany64(plan, rank, sizes.as_mut_ptr(), none, 1, 0, none, 1, 0, kind, batch, &mut bytes)
    )
    .expect("a plan");
    plan
}

#[test]
fn transforms_go_there_and_back() {
    let rig = Rig::new(Config::default());
    let (library, stream) = (cuda_sim::cufft(), rig.stream(1));
    let values: Vec<f64> = (0_u8..30).map(|value| f64::from(value * 7 % 11)).collect();
    let (real, complex, back) = (numbers(&rig, &values), rig.alloc(5 * 2 * 2 * 16), rig.alloc(240));
    let there = plan(&library, stream, &mut [5, 3], cufftType_t::CUFFT_D2Z, 2);
    let home = plan(&library, stream, &mut [5, 3], cufftType_t::CUFFT_Z2D, 2);
    library!(library, cufftExecD2Z(there, at(real), at(complex))).expect("a transform");
    let sums = read(&rig, stream, complex, 2);
    assert_near(&sums, &[values[..15].iter().sum(), 0.0]);
    library!(library, cufftExecZ2D(home, at(complex), at(back))).expect("a transform");
    let scaled: Vec<f64> = read(&rig, stream, back, 30).iter().map(|value| value / 15.0).collect();
    assert_near(&scaled, &values);
    // One number a quarter of the way: the transform turns by that much.
    let wave = numbers(&rig, &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let both = plan(&library, stream, &mut [4], cufftType_t::CUFFT_Z2Z, 1);
    library!(library, cufftExecZ2Z(both, at(wave), at(wave), -1)).expect("a transform");
    assert_near(&read(&rig, stream, wave, 8), &[1.0, 0.0, 0.0, -1.0, -1.0, 0.0, 0.0, 1.0]);
    let wrong = library!(library, cufftExecC2C(both, at(wave), at(wave), -1)).expect_err("another type");
    assert_eq!(wrong.status(), Some(cufftResult_t::CUFFT_INVALID_TYPE));
    for plan in [there, home, both] {
        library!(library, cufftDestroy(plan)).expect("a plan");
    }
    assert_eq!(rig.machine.take_reports(), []);
    assert_eq!(rig.machine.live().library_handles, 0);
}

fn refused(answer: Result<(), CufftError>) -> cufftResult_t {
    answer.expect_err("it is refused").status().expect("the function is there")
}

#[test]
fn a_plan_without_a_work_area_waits_for_one_and_is_captured_with_it() {
    let rig = Rig::new(Config::default());
    let (library, stream) = (cuda_sim::cufft(), rig.stream(1));
    let (mut plan, mut bytes, none) = (0, 0, ptr::null_mut());
    library!(library, cufftCreate(&mut plan)).expect("a plan");
    let data = numbers(&rig, &[1.0, 0.0, 1.0, 0.0]);
    assert_eq!(
        refused(library!(library, cufftXtExec(plan, at(data), at(data), -1))),
        cufftResult_t::CUFFT_INVALID_PLAN
    );
    library!(library, cufftSetStream(plan, stream)).expect("a stream");
    library!(library, cufftSetAutoAllocation(plan, 0)).expect("a choice");
    let complex = cudaDataType_t::CUDA_C_64F;
    library!(
        library,
        cufftXtMakePlanMany(plan, 1, &mut 2, none, 1, 0, complex, none, 1, 0, complex, 1, &mut bytes, complex)
    )
    .expect("a plan");
    assert_eq!(bytes, 32);
    assert_eq!(
        refused(library!(library, cufftXtExec(plan, at(data), at(data), -1))),
        cufftResult_t::CUFFT_NO_WORKSPACE
    );
    let area = rig.alloc(bytes);
    library!(library, cufftSetWorkArea(plan, at(area))).expect("an area");
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    call!(rig, cuStreamBeginCapture_v2(stream, mode)).expect("a capture");
    library!(library, cufftXtExec(plan, at(data), at(data), -1)).expect("a captured transform");
    let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
    call!(rig, cuStreamEndCapture(stream, &mut graph)).expect("a graph");
    call!(rig, cuGraphInstantiateWithFlags(&mut exec, graph, 0)).expect("an executable graph");
    for wanted in [[2.0, 0.0, 0.0, 0.0], [2.0, 0.0, 2.0, 0.0]] {
        call!(rig, cuGraphLaunch(exec, stream)).expect("a replay");
        assert_near(&read(&rig, stream, data, 4), &wanted);
    }
    library!(library, cufftDestroy(plan)).expect("a plan");
    assert_eq!(refused(library!(library, cufftDestroy(plan))), cufftResult_t::CUFFT_INVALID_PLAN);
}
