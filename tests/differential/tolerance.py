"""How far values may differ from PyTorch's, by operation.

Operations that PyTorch computes exactly (correctly rounded, or without rounding) have to agree bit by bit, but for the bits
of a NaN and the sign of a zero. Of all others an error is counted in units of the dtype's epsilon, relative to the result,
or for sums relative to the sum of the absolute values. A wider bound than that of its family has its reason beside it.
Floats of 16 bits are computed in f32 and rounded once, so that two good answers are neighbours at most: one unit.
Infinities and NaNs have to agree.
"""

import torch

# Elements are moved, compared or counted; the answer is exact in every dtype.
MOVED = set("""bitwise_not conj_physical isfinite isinf isnan logical_not neg positive bitwise_and bitwise_left_shift
bitwise_or bitwise_right_shift bitwise_xor eq ge gt le lt ne logical_and logical_or logical_xor where masked_fill copy fill
any all count_nonzero take_along_dim index gather scatter index_select index_copy masked_select nonzero sort argsort cat stack flip roll repeat
expand view reshape tril triu to select narrow squeeze unsqueeze transpose permute split chunk full arange eye add sub
nan_to_num""".split())
# One correctly rounded operation, or a selection, in real dtypes.
ROUNDED = set("""abs ceil floor frac relu round sign signbit square trunc copysign div_trunc floor_divide fmax fmin fmod gcd
maximum minimum mul nextafter remainder clamp amax amin max min argmax argmin cummax cummin topk true_divide
reciprocal""".split())
# Errors are relative to the call on absolute values: sums, and products with a sum.
SUMS = {
    # One product and one sum, which a fused instruction rounds once: 2 units.
    "add": 2, "sub": 2, "addcmul": 2, "addcdiv": 3, "lerp": 3,
    # At most 5 elements along a dimension, 5**3 in all: the order of additions differs.
    "sum": 4, "nansum": 4, "mean": 4, "cumsum": 4, "scatter_add": 4, "index_add": 4,
    "mm": 4, "bmm": 4, "mv": 4, "dot": 4, "matmul": 4, "addmm": 4, "addmv": 4, "addbmm": 8,
    "baddbmm": 4, "einsum": 4, "index_put": 4,
    # Transforms of at most 6 elements, of any length by two transforms of a power of two.
    "fft": 8, "ifft": 8, "rfft": 8, "irfft": 8,
    # torch's host forms one plus the error function, which loses the digits of small results: relative to the argument.
    "gelu": 4,
    # Relative to the largest element, below which the exponentials are taken; in 16 bits torch rounds after each step.
    "logsumexp": 4,
}
# In 16 bits torch rounds after each step of these.
STEPS = ("logsumexp",)
# Errors are relative to the result and to one: functions and ranges that cross zero, and logarithms of which torch rounds
# a part to 16 bits.
TO_ONE = ("digamma", "lgamma", "log_softmax", "logaddexp", "linspace")
# Errors are relative to the result; of complex numbers to its magnitude.
RELATIVE = {
    # Products and quotients of complex numbers, and magnitudes.
    "mul": 2, "square": 2, "true_divide": 4, "reciprocal": 4, "abs": 2, "sqrt": 3, "rsqrt": 3, "prod": 4, "cumprod": 4,
    # Libraries of functions with errors of one unit, ours and torch's: 2 units, and one of rounding.
    "exp": 3, "exp2": 3, "expm1": 3, "log": 3, "log10": 3, "log1p": 3, "log2": 3, "sin": 3, "cos": 3, "tan": 3,
    "sinh": 3, "cosh": 3, "tanh": 3, "asin": 3, "acos": 4, "atan": 3, "asinh": 3, "acosh": 3, "atanh": 3, "erf": 3,
    "erfc": 3, "atan2": 3, "hypot": 3, "pow": 3, "sigmoid": 4, "silu": 4, "gelu": 4, "logsigmoid": 4, "mish": 6,
    "logaddexp": 4, "xlogy": 4, "var": 4, "std": 4, "softmax": 4, "log_softmax": 4, "lgamma": 4, "erfinv": 4,
    "linspace": 2,
    # The exponent of a root is rounded, which counts as often as the logarithm of the sum: up to 16 for the sizes here.
    "norm": 16,
    # torch's recurrence for arguments below 10 rounds once for each step.
    "digamma": 8,
}
# A power of complex numbers is e to the power of y log(x), whose rounding counts as often as it is large.
COMPLEX = {"pow": 4}
ONE_UNIT = (torch.float16, torch.bfloat16)


def units_of(op, dtype, of_complex):
    """The bound in units, and whether it is relative to a sum; None where the answer is exact."""
    if op in SUMS:
        return SUMS[op], True
    if op in MOVED or (op in ROUNDED and not dtype.is_complex and not of_complex):
        return None
    return (COMPLEX if dtype.is_complex and op in COMPLEX else RELATIVE)[op], False


def is_near(case, ours, theirs, magnitudes, computed):
    """Whether values agree. `magnitudes` returns the call on absolute values, `computed` the dtype of a call with an output,
    which may be narrower than the output's."""
    dtype, parts = ours.dtype, (ours, theirs)
    if dtype.is_complex:
        parts = (torch.view_as_real(ours), torch.view_as_real(theirs))
    a, b = parts
    equal = (a == b) | ((a != a) & (b != b))
    if bool(equal.all()):
        return True
    first = case["in"][0] if case["in"] else None
    units = units_of(case["op"], dtype, isinstance(first, dict) and first["dtype"].startswith("c"))
    if case["op"] in ("add", "sub") and "alpha" not in case["args"] and not dtype.is_complex:
        # One rounding.
        units = None
    if units is None or not a.is_floating_point():
        return False
    units, is_sum = units
    narrow = computed()
    narrow = narrow if narrow is not None and (narrow.is_floating_point or narrow.is_complex) else a.dtype
    eps = max(torch.finfo(a.dtype).eps, torch.finfo(narrow).eps)
    is_half = a.dtype in ONE_UNIT or narrow in ONE_UNIT
    size = theirs.abs().double()
    allowed = (1 if is_half else units) * eps * (size + 1 if case["op"] in TO_ONE else size)
    if dtype.is_complex and case["op"] in COMPLEX:
        allowed = allowed * (1 + magnitudes())
    if is_sum:
        inner = torch.finfo(torch.float32).eps if is_half and case["op"] not in STEPS else eps
        allowed = allowed + units * inner * magnitudes().reshape(size.shape)
    # Results below the normal numbers have a fixed unit.
    allowed = allowed + torch.finfo(a.dtype).smallest_normal * eps
    if dtype.is_complex:
        allowed = allowed.unsqueeze(-1)
    finite = a.isfinite() & b.isfinite()
    return bool((equal | (finite & ((a.double() - b.double()).abs() <= allowed))).all())
