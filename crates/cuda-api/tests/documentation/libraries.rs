//! `torch.cuda.tunable`, `comm`, `nccl`, `gds` and `jiterator`, and kernels of CUDA C++.

use cuda_api::gds::{self, GdsFile, OpenFlags, Storage};
use cuda_api::jiterator::{self, CodeParser, JittedFunction};
use cuda_api::nccl::{self, Communicator, Options, Using};
use cuda_api::torch::{self, Result, Tensor};
use cuda_api::{CompileOptions, comm, tunable};

use super::{Example, File, ones, run};

#[test]
fn tuning() {
    run(TUNABLE);
}

#[test]
fn several_devices() {
    run(COMM);
}

#[test]
fn collectives() {
    run(NCCL);
}

#[test]
fn files() {
    run(GDS);
}

#[test]
fn compiled_kernels() {
    run(JITERATOR);
}

fn there(sizes: &[i64]) -> Result<Tensor> {
    torch::ones(sizes, torch::float32, "cuda:1")
}

const TUNABLE: &[Example] = &[
    (
        "torch.cuda.tunable.enable torch.cuda.tunable.is_enabled torch.cuda.tunable.tuning_enable \
         torch.cuda.tunable.tuning_is_enabled torch.cuda.tunable.record_untuned_enable \
         torch.cuda.tunable.record_untuned_is_enabled",
        || {
            tunable::enable(true);
            tunable::tuning_enable(true);
            tunable::record_untuned_enable(true);
            assert!(tunable::is_enabled() && tunable::tuning_is_enabled() && tunable::record_untuned_is_enabled());
            Ok(())
        },
    ),
    (
        "torch.cuda.tunable.set_max_tuning_duration torch.cuda.tunable.get_max_tuning_duration \
         torch.cuda.tunable.set_max_tuning_iterations torch.cuda.tunable.get_max_tuning_iterations \
         torch.cuda.tunable.set_rotating_buffer_size torch.cuda.tunable.get_rotating_buffer_size \
         torch.cuda.tunable.set_numerical_check_tolerances",
        || {
            tunable::set_max_tuning_duration(10);
            tunable::set_max_tuning_iterations(20);
            tunable::set_rotating_buffer_size(1);
            assert_eq!((tunable::get_max_tuning_duration()?, tunable::get_max_tuning_iterations()?), (10, 20));
            assert_eq!(tunable::get_rotating_buffer_size()?, 1 << 20);
            tunable::set_numerical_check_tolerances(true, 1e-3, 1e-3)
        },
    ),
    (
        "torch.cuda.tunable.set_filename torch.cuda.tunable.get_filename torch.cuda.tunable.get_results \
         torch.cuda.tunable.get_validators torch.cuda.tunable.read_file write_file",
        || {
            let file = File::new("tunableop.csv");
            tunable::set_filename(&file.0.to_string_lossy(), false);
            assert_eq!(tunable::get_filename()?, file.0.to_string_lossy());
            assert!(tunable::write_file(None)? && tunable::read_file(None)?);
            assert!(tunable::get_results()?.is_empty() && !tunable::get_validators().is_empty());
            Ok(())
        },
    ),
    ("torch.cuda.tunable.tune_gemm_in_file torch.cuda.tunable.mgpu_tune_gemm_in_file", || {
        let file = File::new("tunableop_untuned0.csv");
        std::fs::write(&file.0, "").map_err(torch::Error::external)?;
        tunable::set_filename(&File::new("tuned.csv").0.to_string_lossy(), false);
        tunable::enable(true);
        tunable::tune_gemm_in_file(&file.0)?;
        tunable::mgpu_tune_gemm_in_file(&file.0.to_string_lossy(), 2)
    }),
];

const COMM: &[Example] = &[
    ("torch.cuda.comm.broadcast torch.cuda.comm.broadcast_coalesced", || {
        let tensor = ones(&[4])?;
        assert_eq!(comm::broadcast(&tensor, &[0, 1])?[1].device().index, Some(1));
        let copies = comm::broadcast_coalesced(&[&tensor, &tensor], &[0, 1], comm::BUFFER_SIZE)?;
        assert_eq!((copies.len(), copies[1].len()), (2, 2));
        Ok(())
    }),
    ("torch.cuda.comm.reduce_add torch.cuda.comm.reduce_add_coalesced", || {
        let (first, second) = (ones(&[4])?, there(&[4])?);
        assert_eq!(comm::reduce_add(&[&first, &second], 0)?.to_vec::<f32>()?, [2.0; 4]);
        let sums = comm::reduce_add_coalesced(&[&[&first], &[&second]], 0, comm::BUFFER_SIZE)?;
        assert_eq!(sums[0].to_vec::<f32>()?, [2.0; 4]);
        Ok(())
    }),
    ("torch.cuda.comm.scatter torch.cuda.comm.gather", || {
        let chunks = comm::scatter(&ones(&[4, 2])?, &[0, 1], None, 0, &[])?;
        assert_eq!(chunks[1].sizes(), [2, 2]);
        assert_eq!(comm::gather(&[&chunks[0], &chunks[1]], 0, 0)?.sizes(), [4, 2]);
        Ok(())
    }),
];

const NCCL: &[Example] = &[
    (
        "torch.cuda.nccl.is_available torch.cuda.nccl.version torch.cuda.nccl.unique_id torch.cuda.nccl.init_rank",
        || {
            nccl::set_library(Some(cuda_sim::nccl()));
            assert!(nccl::is_available(&[&ones(&[4])?, &there(&[4])?]) && nccl::version()? > (2, 0, 0));
            let only = Communicator::init_rank(1, &nccl::unique_id()?, 0, 0, &Options::default())?;
            assert_eq!((only.rank(), only.size()), (0, 1));
            Ok(())
        },
    ),
    ("torch.cuda.nccl.all_reduce torch.cuda.nccl.SUM torch.cuda.nccl.reduce torch.cuda.nccl.broadcast", || {
        nccl::set_library(Some(cuda_sim::nccl()));
        let (first, second) = (ones(&[4])?, there(&[4])?);
        nccl::all_reduce(&[&first, &second], None, nccl::SUM, &Using::default())?;
        assert_eq!(second.to_vec::<f32>()?, [2.0; 4]);
        nccl::reduce(&[&first, &second], None, 0, nccl::SUM, &Using::default())?;
        nccl::broadcast(&[&first, &second], 0, &Using::default())?;
        assert_eq!(second.to_vec::<f32>()?, [4.0; 4]);
        Ok(())
    }),
    ("torch.cuda.nccl.all_gather torch.cuda.nccl.reduce_scatter", || {
        nccl::set_library(Some(cuda_sim::nccl()));
        let (short, long) = ([ones(&[2])?, there(&[2])?], [ones(&[4])?, there(&[4])?]);
        let (short, long) = ([&short[0], &short[1]], [&long[0], &long[1]]);
        nccl::reduce_scatter(&long, &short, nccl::SUM, &Using::default())?;
        nccl::all_gather(&short, &long, &Using::default())?;
        assert_eq!(long[1].to_vec::<f32>()?, [2.0; 4]);
        Ok(())
    }),
];

const GDS: &[Example] = &[
    (
        "torch.cuda.gds.GdsFile torch.cuda.gds.Storage gds.GdsFile GdsFile.save_storage GdsFile.load_storage \
         GdsFile.register_handle GdsFile.deregister_handle",
        || {
            let name = File::new("storage");
            let source = ones(&[1024])?;
            let mut file = GdsFile::new(&name.0, OpenFlags::CREAT | OpenFlags::RDWR)?;
            file.save_storage(source.storage(), 0)?;
            let storage: Storage = torch::zeros(&[1024], torch::float32, "cuda")?.storage().clone();
            file.load_storage(&storage, 0)?;
            file.deregister_handle()?;
            file.register_handle()?;
            Ok(())
        },
    ),
    (
        "torch.cuda.gds.gds_register_buffer torch.cuda.gds.gds_deregister_buffer gds.gds_register_buffer \
         gds.gds_deregister_buffer",
        || {
            let tensor = ones(&[1024])?;
            gds::gds_register_buffer(tensor.storage())?;
            gds::gds_deregister_buffer(tensor.storage())?;
            Ok(())
        },
    ),
];

const JITERATOR: &[Example] = &[
    (
        "torch.cuda.jiterator._create_jit_fn torch.cuda.jiterator._JittedFunction torch.cuda.jiterator.Tensor \
         jiterator._create_jit_fn",
        || {
            let code = "template <typename T> T my_kernel(T x, T y, T alpha) { return -x + alpha * y; }";
            // SAFETY: the function touches nothing but its arguments.
            let kernel: JittedFunction = unsafe { jiterator::create_jit_fn(code, &[("alpha", 1.0.into())]) }?;
            let result: Tensor = kernel.call([&ones(&[2])?, &ones(&[2])?], &[("alpha", 3.0.into())])?;
            assert_eq!(result.to_vec::<f32>()?, [2.0; 2]);
            Ok(())
        },
    ),
    (
        "torch.cuda.jiterator._create_multi_output_jit_fn jiterator._create_multi_output_jit_fn \
         torch.cuda.jiterator._CodeParser",
        || {
            let code =
                "template <typename T> void both(T x, T y, T& sum, T& product) { sum = x + y; product = x * y; }";
            // SAFETY: the function touches nothing but its arguments.
            let kernel = unsafe { jiterator::create_multi_output_jit_fn(code, 2, &[]) }?;
            assert_eq!(kernel.call_multi([&ones(&[2])?, &ones(&[2])?], &[])?[0].to_vec::<f32>()?, [2.0; 2]);
            assert_eq!(CodeParser::new(code)?.function_name, "both");
            Ok(())
        },
    ),
    ("torch.cuda._compile_kernel", || {
        let source = "__global__ void twice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }";
        let x = ones(&[4])?;
        match cuda_api::compile_kernel(source, "twice", &CompileOptions::default()) {
            Ok(kernel) => {
                // SAFETY: the kernel writes the four elements.
                unsafe { kernel.launch(1, 32, &[(&x).into(), 4.into()], 0, None) }?;
            }
            // Without NVRTC nothing can be compiled.
            Err(error) => assert!(matches!(error, torch::Error::Jit(_)), "{error}"),
        }
        Ok(())
    }),
];
