// Goes over the elements. Known here: STORED, the elements' type; INPUTS and OUTPUTS, how many there are; DIMS, how many
// dimensions a launch may have; WORK and PACK, the elements of a thread and of an access; CALL, which calls the function.
namespace jiterator {

typedef Stored<STORED> Element;
typedef Element::Value Value;

const int THREADS = 128;
const int OPERANDS = OUTPUTS + INPUTS;

struct Params {
    char* data[OPERANDS];  // the outputs first
    uint32_t count;
    uint32_t dims;
    uint32_t dtype[INPUTS];
    uint32_t width[INPUTS];  // bytes of an element
    uint32_t size[DIMS];
    uint32_t multiplier[DIMS];
    uint32_t shift[DIMS];
    uint32_t stride[DIMS][OPERANDS];  // bytes
};

struct alignas(sizeof(STORED) * PACK) Packed {
    STORED at[PACK];
};

// An element of any dtype as a value, rounded to the common dtype.
template <typename From>
__device__ Value rounded(const char* at) {
    Value value = convert<Value>(Stored<From>::up(*reinterpret_cast<const From*>(at)));
    return Element::up(Element::down(value));
}

__device__ Value cast(const char* at, uint32_t dtype) {
    switch (dtype) {
        case 0: return rounded<uint8_t>(at);
        case 1: return rounded<int8_t>(at);
        case 2: return rounded<int16_t>(at);
        case 3: return rounded<int32_t>(at);
        case 4: return rounded<int64_t>(at);
        case 5: return rounded<Half>(at);
        case 6: return rounded<float>(at);
        case 7: return rounded<double>(at);
#if COMPLEX
        case 8: return rounded<ComplexHalf>(at);
        case 9: return rounded<std::complex<float>>(at);
        case 10: return rounded<std::complex<double>>(at);
#endif
        case 15: return rounded<BFloat16>(at);
        default: return rounded<Bool>(at);
    }
}

__device__ Value load(const Params& params, int input, uint32_t offset) {
    const char* at = params.data[OUTPUTS + input] + offset;
#if CAST
    return cast(at, params.dtype[input]);
#else
    return Element::up(*reinterpret_cast<const STORED*>(at));
#endif
}

// Where element `index` of each operand begins, in bytes.
__device__ void place(const Params& params, uint32_t index, uint32_t (&offset)[OPERANDS]) {
#if CONTIGUOUS
    for (int at = 0; at < OPERANDS; ++at) {
        offset[at] = index * (at < OUTPUTS ? uint32_t(sizeof(STORED)) : params.width[at < OUTPUTS ? 0 : at - OUTPUTS]);
    }
#else
    for (int at = 0; at < OPERANDS; ++at) offset[at] = 0;
    for (uint32_t dim = 0; dim < params.dims; ++dim) {
        // The quotient by a multiplication: there is no division of integers in hardware.
        uint32_t quotient = (__umulhi(index, params.multiplier[dim]) + index) >> params.shift[dim];
        uint32_t rest = index - quotient * params.size[dim];
        index = quotient;
        for (int at = 0; at < OPERANDS; ++at) offset[at] += rest * params.stride[dim][at];
    }
#endif
}

}  // namespace jiterator

extern "C" __global__ void __launch_bounds__(128) KERNEL(const __grid_constant__ jiterator::Params params EXTRAS) {
    using namespace jiterator;
    const uint32_t begin = blockIdx.x * (THREADS * WORK);
    Value in[INPUTS];
    Value out[OUTPUTS];
#if PACK > 1
    if (begin + THREADS * WORK <= params.count) {
        for (int step = 0; step < WORK / PACK; ++step) {
            const uint32_t at = begin / PACK + threadIdx.x + step * THREADS;
            Packed packed[OPERANDS];
            for (int input = 0; input < INPUTS; ++input) {
                packed[OUTPUTS + input] = reinterpret_cast<const Packed*>(params.data[OUTPUTS + input])[at];
            }
            for (int lane = 0; lane < PACK; ++lane) {
                for (int input = 0; input < INPUTS; ++input) in[input] = Element::up(packed[OUTPUTS + input].at[lane]);
                CALL;
                for (int output = 0; output < OUTPUTS; ++output) packed[output].at[lane] = Element::down(out[output]);
            }
            for (int output = 0; output < OUTPUTS; ++output) {
                reinterpret_cast<Packed*>(params.data[output])[at] = packed[output];
            }
        }
        return;
    }
#endif
#pragma unroll
    for (int step = 0; step < WORK; ++step) {
        const uint32_t index = begin + threadIdx.x + step * THREADS;
        if (index < params.count) {
            uint32_t offset[OPERANDS];
            place(params, index, offset);
            for (int input = 0; input < INPUTS; ++input) in[input] = load(params, input, offset[OUTPUTS + input]);
            CALL;
            for (int output = 0; output < OUTPUTS; ++output) {
                *reinterpret_cast<STORED*>(params.data[output] + offset[output]) = Element::down(out[output]);
            }
        }
    }
}
