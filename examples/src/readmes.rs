//! The examples in the crates' README files and in pages of `docs`, compiled and run as documentation tests.

macro_rules! readmes {
    ($($name:ident $path:literal),* $(,)?) => {
        $(
            #[doc = include_str!($path)]
            #[derive(Debug)]
            struct $name;
        )*
    };
}

readmes! {
    Allocators "../../docs/allocators.md",
    C10Core "../../crates/c10-core/README.md",
    Conformance "../../crates/conformance/README.md",
    CudaApi "../../crates/cuda-api/README.md",
    CudaSim "../../crates/cuda-sim/README.md",
    CudaSys "../../crates/cuda-sys/README.md",
}
