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
    /// Regular expressions of functions that the one above takes in and that are not bound.
    pub(crate) excluded: &'static [&'static str],
    /// Regular expressions of types that no function names: values of attributes.
    pub(crate) types: &'static [&'static str],
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
    /// Types of other libraries, which are not generated again.
    pub(crate) shared: &'static [Shared],
    /// Whether the header is in a wheel of `libraries.txt`, which is fetched only to generate.
    pub(crate) is_heavy: bool,
}

/// Types that another library's bindings have.
pub(crate) struct Shared {
    /// Module of `cuda-sys` that has them.
    pub(crate) module: &'static str,
    /// Their names.
    pub(crate) names: &'static [&'static str],
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

/// Include folder of CUDA 13's wheels.
pub(crate) const INCLUDE: &str = "nvidia/cu13/include";

/// Functions with 64-bit sizes beside those of the same name, which double the table and which no caller needs.
const TWINS: &str = ".*_64";

/// Leaves out the headers of 16-bit numbers, which need those of libcu++; a number is passed by its bits.
const NO_HALF: &[&str] = &["__CUDA_FP16_H__", "__CUDA_BF16_H__", "__half=unsigned short"];

/// All libraries bound today.
pub(crate) const LIBRARIES: &[Library] =
    &[DRIVER, NVML, CUFILE, NVRTC, NVJITLINK, CUBLAS, CUBLASLT, CUSOLVER, CUFFT, NCCL];

const DRIVER: Library = Library {
    module: "driver",
    include: INCLUDE,
    headers: &["cuda.h"],
    defines: &[],
    functions: "cu[A-Z].*",
    excluded: &[],
    types: &[],
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
    shared: &[],
    is_heavy: false,
};

/// What a device does now, what holds it back, what went wrong on it, and who uses it.
const NVML: Library = Library {
    module: "nvml",
    include: INCLUDE,
    headers: &["nvml.h"],
    // Without it the header renames functions to their newest version and hides the older ones.
    defines: &["NVML_NO_UNVERSIONED_FUNC_DEFS"],
    functions: "nvmlInit_v2|nvmlShutdown|nvmlErrorString|nvmlSystemGet(DriverVersion|NVMLVersion|ProcessName)\
        |nvmlDeviceGet(Count_v2|HandleByIndex_v2|HandleByUUID|HandleByPciBusId_v2|UUID|Name|MemoryInfo\
        |UtilizationRates|EncoderUtilization|DecoderUtilization|Temperature|TemperatureThreshold|FanSpeed|PowerUsage\
        |EnforcedPowerLimit|TotalEnergyConsumption|ClockInfo|MaxClockInfo|PerformanceState\
        |CurrentClocks(Event|Throttle)Reasons|EccMode|TotalEccErrors|RemappedRows|CurrPcieLink(Generation|Width)\
        |MaxPcieLink(Generation|Width)|PcieThroughput|PcieReplayCounter|NvLinkState|FieldValues|MigMode\
        |PersistenceMode|ComputeMode|(Compute|Graphics)RunningProcesses_v[23]|PciInfo_v3|P2PStatus\
        |Topology(CommonAncestor|NearestGpus)|NvLink(Version|Capability|RemotePciInfo_v2|RemoteDeviceType))",
    excluded: &[],
    types: &["nvmlNvlinkVersion_t"],
    constants: &[
        "NVML_DEVICE_UUID_(V2_)?BUFFER_SIZE",
        "NVML_DEVICE_NAME_(V2_)?BUFFER_SIZE",
        "NVML_SYSTEM_(DRIVER|NVML)_VERSION_BUFFER_SIZE",
        "nvmlClocks(Event|Throttle)Reason.*",
        "NVML_NVLINK_MAX_LINKS",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_[TR]X",
    ],
    table: "Nvml",
    status: "nvmlReturn_enum",
    status_alias: "nvmlReturn_t",
    success: "NVML_SUCCESS",
    versions: None,
    shared: &[],
    is_heavy: false,
};

/// Files and buffers of GPUDirect Storage, one request at a time.
const CUFILE: Library = Library {
    module: "cufile",
    include: INCLUDE,
    headers: &["cufile.h"],
    defines: &[],
    functions: "cuFile(HandleRegister|HandleDeregister|BufRegister|BufDeregister|Read|Write|DriverOpen|DriverClose_v2\
        |DriverGetProperties|GetVersion|UseCount|SetParameterBool|GetParameterBool)",
    excluded: &[],
    types: &["CUfileDriver(Status|Control)Flags", "CUfileFeatureFlags"],
    constants: &["CUFILEOP_BASE_ERR"],
    table: "Cufile",
    status: "CUfileOpError",
    status_alias: "CUfileError_t",
    success: "CU_FILE_SUCCESS",
    versions: None,
    shared: &[Shared { module: "driver", names: &["cudaError_enum", "CUresult"] }],
    is_heavy: false,
};

/// From CUDA C++ to PTX and machine code; without the callbacks and the precompiled headers of versions after 12.0.
const NVRTC: Library = Library {
    module: "nvrtc",
    include: INCLUDE,
    headers: &["nvrtc.h"],
    defines: &[],
    functions: "nvrtc(Version|GetErrorString|GetNumSupportedArchs|GetSupportedArchs|CreateProgram|DestroyProgram\
        |CompileProgram|GetPTX(Size)?|GetCUBIN(Size)?|GetLTOIR(Size)?|GetProgramLog(Size)?|AddNameExpression\
        |GetLoweredName)",
    excluded: &[],
    types: &[],
    constants: &[],
    table: "Nvrtc",
    status: "nvrtcResult",
    status_alias: "nvrtcResult",
    success: "NVRTC_SUCCESS",
    versions: None,
    shared: &[],
    is_heavy: true,
};

/// Links PTX, machine code and intermediate code.
const NVJITLINK: Library = Library {
    module: "nvjitlink",
    include: INCLUDE,
    headers: &["nvJitLink.h"],
    // The header has the exported names as inline functions around those of one version; so they are declared like others.
    defines: &["static=", "inline="],
    functions: "nvJitLink[A-Z].*",
    excluded: &[],
    types: &[],
    constants: &[],
    table: "NvJitLink",
    status: "nvJitLinkResult",
    status_alias: "nvJitLinkResult",
    success: "NVJITLINK_SUCCESS",
    versions: None,
    shared: &[],
    is_heavy: true,
};

const CUBLAS: Library = Library {
    module: "cublas",
    include: INCLUDE,
    headers: &["cublas_v2.h"],
    defines: NO_HALF,
    functions: "cublas[A-Z].*",
    excluded: &[TWINS],
    types: &[],
    constants: &["CUBLAS_VER_(MAJOR|MINOR|PATCH)"],
    table: "Cublas",
    status: "cublasStatus_t",
    status_alias: "cublasStatus_t",
    success: "CUBLAS_STATUS_SUCCESS",
    versions: None,
    shared: &[Shared { module: "driver", names: &["CUstream_st"] }],
    is_heavy: true,
};

const CUBLASLT: Library = Library {
    module: "cublaslt",
    include: INCLUDE,
    headers: &["cublasLt.h"],
    defines: NO_HALF,
    functions: "cublasLt(Create|Destroy|Get[A-Z].*|Mat[a-z].*|HeuristicsCache.*|DisableCpu.*|LoggerSet(Level|Mask))",
    excluded: &[],
    types: &[
        "cublasLt(Epilogue|PointerMode|PointerModeMask|Order|MatmulTile|MatmulStages|MatmulSearch|ReductionScheme\
        |MatmulMatrixScale|ClusterShape|MatmulInnerShape)_t",
    ],
    constants: &["CUBLASLT_.*"],
    table: "CublasLt",
    status: "cublasStatus_t",
    status_alias: "cublasStatus_t",
    success: "CUBLAS_STATUS_SUCCESS",
    versions: None,
    shared: &[Shared {
        module: "cublas",
        names: &[
            "cublasStatus_t",
            "cublasComputeType_t",
            "cudaDataType",
            "cudaDataType_t",
            "cudaStream_t",
            "CUstream_st",
            "libraryPropertyType",
            "libraryPropertyType_t",
        ],
    }],
    is_heavy: true,
};

/// The factorisations that `torch.linalg` asks for, in the dense library.
const CUSOLVER: Library = Library {
    module: "cusolver",
    include: INCLUDE,
    headers: &["cusolverDn.h"],
    defines: NO_HALF,
    functions: "cusolverGet(Version|Property)|cusolverDn(Create|Destroy|SetStream|GetStream|CreateParams|DestroyParams\
        |(Set|Get)DeterministicMode|(Create|Destroy)GesvdjInfo|XgesvdjSet(Tolerance|MaxSweeps|SortEig)|XgesvdjGet(Residual|Sweeps)\
        |[SDCZ](potrf|potrs|getrf|getrs|geqrf|orgqr|ungqr|ormqr|unmqr|gesvd|gesvdj|gesvdjBatched|gesvdaStridedBatched)(_bufferSize)?\
        |[SDCZ](potrf|potrs)Batched|X(potrf|potrs|getrf|getrs|geqrf|gesvd|gesvdp)(_bufferSize)?)",
    excluded: &[],
    types: &[],
    constants: &["CUSOLVER_VER_(MAJOR|MINOR|PATCH)"],
    table: "Cusolver",
    status: "cusolverStatus_t",
    status_alias: "cusolverStatus_t",
    success: "CUSOLVER_STATUS_SUCCESS",
    versions: None,
    shared: &[Shared {
        module: "cublas",
        names: &[
            "cublasFillMode_t",
            "cublasOperation_t",
            "cublasSideMode_t",
            "cudaDataType",
            "cudaDataType_t",
            "cudaStream_t",
            "CUstream_st",
            "cuComplex",
            "cuFloatComplex",
            "cuDoubleComplex",
            "float2",
            "double2",
            "libraryPropertyType",
            "libraryPropertyType_t",
        ],
    }],
    is_heavy: true,
};

/// Plans of one device: none of the functions that spread a transform over several.
const CUFFT: Library = Library {
    module: "cufft",
    include: INCLUDE,
    headers: &["cufft.h", "cufftXt.h"],
    defines: NO_HALF,
    functions: "cufft(Create|Destroy|SetStream|SetAutoAllocation|SetWorkArea|GetVersion|GetProperty|GetSize|MakePlanMany\
        |MakePlanMany64|GetSizeMany64|EstimateMany|Exec[A-Z0-9]+|XtMakePlanMany|XtGetSizeMany|XtExec)",
    excluded: &[],
    types: &[],
    constants: &["CUFFT_VER_(MAJOR|MINOR|PATCH)", "CUFFT_(FORWARD|INVERSE)"],
    table: "Cufft",
    status: "cufftResult_t",
    status_alias: "cufftResult",
    success: "CUFFT_SUCCESS",
    versions: None,
    shared: &[Shared {
        module: "cublas",
        names: &[
            "cudaDataType",
            "cudaDataType_t",
            "cudaStream_t",
            "CUstream_st",
            "cuComplex",
            "cuFloatComplex",
            "cuDoubleComplex",
            "float2",
            "double2",
            "libraryPropertyType",
            "libraryPropertyType_t",
        ],
    }],
    is_heavy: true,
};

/// Collectives of several devices; its wheel has folders of its own.
const NCCL: Library = Library {
    module: "nccl",
    include: "nvidia/nccl/include",
    headers: &["nccl.h"],
    defines: NO_HALF,
    functions: "nccl[A-Z].*",
    excluded: &[],
    types: &[],
    constants: &["NCCL_.*"],
    table: "Nccl",
    status: "ncclResult_t",
    status_alias: "ncclResult_t",
    success: "ncclSuccess",
    versions: None,
    shared: &[Shared { module: "cublas", names: &["cudaStream_t", "CUstream_st"] }],
    is_heavy: true,
};
