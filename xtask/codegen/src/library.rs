//! Which libraries are bound: for each one its header list and what to take from it.
//!
//! Adding a library means adding one [`Library`] here and one wheel to `requirements.txt`; nothing else in this tool
//! knows a library's name.

/// One library whose C interface is bound.
pub(crate) struct Library {
    /// Module of `cuda-sys` that receives the output, for example `driver`.
    pub(crate) module: &'static str,
    /// Include folder inside the wheels' installation folder.
    pub(crate) include: &'static str,
    /// Headers to read, in order.
    pub(crate) headers: &'static [&'static str],
    /// Macros to define before the headers are read.
    pub(crate) defines: &'static [&'static str],
    /// Regular expression of the functions to bind.
    pub(crate) functions: &'static str,
    /// Regular expressions of the constants to bind.
    pub(crate) constants: &'static [&'static str],
    /// Struct in the module that holds the functions, for example `Driver`.
    pub(crate) table: &'static str,
    /// Name of the C enum behind the status type, as bindgen prints it.
    pub(crate) status: &'static str,
    /// The status type as functions return it, and the constant that means success.
    pub(crate) status_alias: &'static str,
    pub(crate) success: &'static str,
    /// Where the ABI version of every function is written down, for libraries that have such a header.
    pub(crate) versions: Option<Versions>,
}

/// A header of function-pointer types `PFN_<function>_v<version>`, one for each ABI a function ever had.
pub(crate) struct Versions {
    /// The header's name.
    pub(crate) header: &'static str,
    /// ABIs to bind beside the newest one, for drivers that do not have the newest.
    pub(crate) older: &'static [Older],
    /// Functions without arguments whose header no pinned wheel has.
    pub(crate) plain: &'static [Plain],
}

/// A function without arguments that answers with a status: its symbol, and the version that introduced it.
pub(crate) struct Plain {
    /// Exported symbol, which is the base name too.
    pub(crate) symbol: &'static str,
    /// CUDA version that introduced it, as 1000 * major + 10 * minor.
    pub(crate) version: u32,
}

/// An older ABI of a function: its base name, the version that introduced it and the symbol that carries it.
pub(crate) struct Older {
    /// Name without a version suffix, as `cuGetProcAddress` takes it.
    pub(crate) base: &'static str,
    /// CUDA version that introduced this ABI, as 1000 * major + 10 * minor.
    pub(crate) version: u32,
    /// Exported symbol.
    pub(crate) symbol: &'static str,
}

const fn older(base: &'static str, version: u32, symbol: &'static str) -> Older {
    Older { base, version, symbol }
}

/// All libraries bound today.
pub(crate) const LIBRARIES: &[Library] = &[DRIVER, NVML];

const DRIVER: Library = Library {
    module: "driver",
    include: "nvidia/cu13/include",
    headers: &["cuda.h"],
    defines: &[],
    functions: "cu[A-Z].*",
    constants: &["CU.*"],
    table: "Driver",
    status: "cudaError_enum",
    status_alias: "CUresult",
    success: "CUDA_SUCCESS",
    versions: Some(Versions {
        header: "cudaTypedefs.h",
        older: &[
            older("cuCtxCreate", 3020, "cuCtxCreate_v2"),
            older("cuDeviceGetUuid", 9020, "cuDeviceGetUuid"),
            older("cuEventElapsedTime", 2000, "cuEventElapsedTime"),
            older("cuGetProcAddress", 11030, "cuGetProcAddress"),
            older("cuGraphAddDependencies", 10000, "cuGraphAddDependencies"),
            older("cuGraphAddKernelNode", 10000, "cuGraphAddKernelNode"),
            older("cuGraphAddNode", 12020, "cuGraphAddNode"),
            older("cuGraphExecKernelNodeSetParams", 10010, "cuGraphExecKernelNodeSetParams"),
            older("cuGraphExecUpdate", 10020, "cuGraphExecUpdate"),
            older("cuGraphGetEdges", 10000, "cuGraphGetEdges"),
            older("cuGraphKernelNodeGetParams", 10000, "cuGraphKernelNodeGetParams"),
            older("cuGraphKernelNodeSetParams", 10000, "cuGraphKernelNodeSetParams"),
            older("cuGraphNodeGetDependencies", 10000, "cuGraphNodeGetDependencies"),
            older("cuGraphNodeGetDependentNodes", 10000, "cuGraphNodeGetDependentNodes"),
            older("cuGraphRemoveDependencies", 10000, "cuGraphRemoveDependencies"),
            older("cuMemAdvise", 8000, "cuMemAdvise"),
            older("cuMemPrefetchAsync", 8000, "cuMemPrefetchAsync"),
            older("cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"),
            older("cuStreamUpdateCaptureDependencies", 11030, "cuStreamUpdateCaptureDependencies"),
        ],
        // Of cudaProfiler.h.
        plain: &[Plain { symbol: "cuProfilerStart", version: 4000 }, Plain { symbol: "cuProfilerStop", version: 4000 }],
    }),
};

/// Only what the runtime asks for: what a device does now, and who uses it.
const NVML: Library = Library {
    module: "nvml",
    include: "nvidia/cu13/include",
    headers: &["nvml.h"],
    // Without it the header renames functions to their newest version and hides the older ones.
    defines: &["NVML_NO_UNVERSIONED_FUNC_DEFS"],
    functions: "nvmlInit_v2|nvmlShutdown|nvmlErrorString|nvmlSystemGetDriverVersion|nvmlDeviceGet(Count_v2\
        |HandleByIndex_v2|HandleByUUID|HandleByPciBusId_v2|UUID|MemoryInfo|UtilizationRates|Temperature|PowerUsage\
        |ClockInfo|ComputeRunningProcesses_v[23])",
    constants: &["NVML_DEVICE_UUID_(V2_)?BUFFER_SIZE", "NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE"],
    table: "Nvml",
    status: "nvmlReturn_enum",
    status_alias: "nvmlReturn_t",
    success: "NVML_SUCCESS",
    versions: None,
};
