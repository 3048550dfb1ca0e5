"""Differences from PyTorch's host that are PyTorch's own, each with its reason.

An excuse is a rule about the call and both answers. The run counts the differences that each one covers. Rules of CUDA are
those of kernels whose answers on a device differ from the host's by design.
"""

import collections
import re

import torch

from tolerance import is_near

Excuse = collections.namedtuple("Excuse", "name reason covers")
Difference = collections.namedtuple("Difference", "case device answer wanted why inputs outputs magnitudes computed")
HALVES = (torch.float16, torch.bfloat16)
SUMS = ("add", "sub")
# Operations whose result at a place depends on the operands' elements there.
ELEMENTWISE = set("""add sub mul true_divide addcmul addcdiv lerp pow exp exp2 expm1 log log10 log1p log2 sin cos tan sinh cosh tanh
asin acos atan asinh acosh atanh sigmoid silu sqrt rsqrt square reciprocal logaddexp abs""".split())


def is_text(d, *words):
    return isinstance(d.wanted, tuple) and any(word in d.wanted[1] for word in words)


def differing(d):
    """Pairs of our elements and torch's at the places where an output differs."""
    for ours, theirs in zip(d.outputs, d.wanted):
        a, b = ours, theirs.resolve_conj().contiguous()
        same = (a == b) | ((a != a) & (b != b))
        yield a[~same], b[~same]


def target(d):
    """The input that the call writes, or None."""
    places = {"inplace": 0, "out": -1}
    return d.case["in"][places[d.case["form"]]] if d.case["form"] in places else None


def python_arguments(d):
    return d.why[0] == "reader"


def no_float_in_range(d):
    if d.why[0] != "values" or d.wanted[0].dtype.is_floating_point or d.wanted[0].dtype.is_complex:
        return False
    limit = 2.0 ** 63 if d.wanted[0].dtype == torch.int64 else 2.0 ** 31
    floats = [torch.view_as_real(t) if t.is_complex() else t for t in d.inputs if torch.is_tensor(t)]
    floats = [t.double() for t in floats if t.is_floating_point()]
    floats += [torch.tensor(float(t)) for t in d.inputs if isinstance(t, float)]
    return any(bool((~t.isfinite() | (t.abs() >= limit)).any()) for t in floats)


def agrees_but(d, where):
    """Whether the answers of a call on complex numbers agree but at some places."""
    if d.why[0] != "values" or not any(t.is_complex() for t in [*d.wanted, *filter(torch.is_tensor, d.inputs)]):
        return False
    for ours, theirs in zip(d.outputs, d.wanted):
        theirs, zero = theirs.resolve_conj().contiguous(), torch.zeros((), dtype=ours.dtype)
        but = where(d, ours, theirs)
        if not is_near(d.case, ours.where(~but, zero), theirs.where(~but, zero), d.magnitudes, d.computed):
            return False
    return True


def not_finite(d, ours, theirs):
    """Where both answers, or an operand of an operation by elements, are not finite."""
    places = ~ours.isfinite() & ~theirs.isfinite()
    for value in d.inputs[:-1] if d.case["form"] == "out" else d.inputs:
        value = torch.as_tensor(value)
        if d.case["op"] in ELEMENTWISE and len(value.shape) <= len(ours.shape):
            places = places | ~value.isfinite()
    return places


def complex_not_finite(d):
    return agrees_but(d, not_finite)


def overflow_of_logaddexp(d):
    return d.case["op"] == "logaddexp" and agrees_but(d, lambda d, a, b: not_finite(d, a, b) | (b != b))


def integer_division_by_zero(d):
    return d.device == "cuda" and d.why[0] == "accepted" and is_text(d, "ZeroDivisionError")


def kernels_of_cuda(d):
    op, text = d.case["op"], d.answer.get("error", "")
    if d.why[0] == "accepted":
        return (op == "abs" and is_text(d, "'Bool'")) or (op == "nansum" and is_text(d, "nansum on CPU", "'Complex")) or (
            is_text(d, "'ComplexHalf'"))
    products = ("mm", "bmm", "mv", "dot", "matmul", "addmm")
    return d.device == "cuda" and d.why[0] == "refused" and op in products and "not implemented for" in text


def words_of_cuda(d):
    pairs = (
        ("expected mat1 and mat2 to have", "expected m1 and m2 to have"),
        ("masked_fill only supports boolean masks", "masked_fill_ only supports boolean masks"),
        ("Index is supposed to be an empty tensor or a vector", "index_select(): Index is supposed to be a vector"),
        ("\"index_select_out_cuda_impl\" not implemented", "index_select(): Expected dtype int32 or int64 for index"),
        ("index out of range in self", "INDICES element is out of DATA bounds"),
        ("expand(torch.cuda.", "expand(torch."), ("expand(CUDA", "expand(CPU"),
        ("index is out of bounds for dimension with size 0", "size 0"),
        ("index is out of bounds for dimension with size 0", "index out of range in self"),
        ("index is out of bounds for dimension with size 0", "self indexing axis dim should be positive"),
        ("index out of range in self", "is out of bounds for dimension"),
        ("index_copy_(): index", "setStorage: sizes"),
        ("\"nansum_cuda\"", "nansum on CPU does not support complex inputs"),
        ("expected scalar type", "_cpu\" not implemented"), ("expected scalar type", "\"bmm\" not implemented"),
        ("unsupported operation: more than one element", "\"log_sigmoid_cpu\" not implemented"),
        ("Found dtype", "expected scalar type"), ("Found dtype", "\"log_sigmoid_cpu\" not implemented"),
    )
    text = d.answer.get("error", "").split("\n")[0]
    if d.why[0] != "text":
        return False
    if d.device == "cuda" and "(element" in text and "out of " in d.wanted[1]:
        return True
    own = d.device == "cuda" or text.startswith("\"nansum_cuda")
    return own and any(text.startswith(a) and b in d.wanted[1] for a, b in pairs)


def overlapping_output(d):
    written = target(d)
    is_refused = d.why[0] == "accepted" and is_text(d, "more than one element of the written-to tensor")
    if not (d.why[0] == "values" or is_refused) or not isinstance(written, dict):
        return False
    places = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(written["shape"], written["stride"]):
        places = places.unsqueeze(-1) + torch.arange(size) * stride
    return len(places.unique()) < places.numel()


def first_of_several_indices(d):
    """Whether both answers refuse an index out of range, but not the same one."""
    is_refused = d.why[0] == "text" and d.case["op"] in ("gather", "scatter", "scatter_add", "index_add", "index_select")
    texts = [re.sub(r"index -?\d+", "index N", text.split("\n")[0]) for text in (d.answer.get("error", ""), d.wanted[1])] if (
        is_refused) else ["", " "]
    return texts[0] == texts[1]


def index_of_nothing(d):
    if d.device != "cuda" or d.case["op"] not in ("index_add", "index_select"):
        return False
    is_refused = d.why[0] == "refused" and "for dimension with size 0" in d.answer.get("error", "")
    return is_refused or (d.why[0] == "accepted" and "out of DATA bounds" in d.wanted[1] and not d.outputs[0].numel())


def single_elements_of_the_host(d):
    is_half = d.why[0] == "values" and d.wanted[0].dtype in HALVES
    wide = [t for t in d.inputs[1:2] if torch.is_tensor(t) and t.numel() == 1 and t.dtype not in HALVES]
    return is_half and bool(wide) and d.case["op"] in ("mul", "true_divide", "add", "sub", "div_trunc", "floor_divide")


def floored_halves(d):
    return d.why[0] == "values" and d.case["op"] == "floor_divide" and d.wanted[0].dtype in HALVES


def unwritten_gelu(d):
    is_gelu = d.why[0] == "values" and d.case["op"] == "gelu" and d.case["form"] == "out"
    return is_gelu and bool((d.wanted[0] == d.inputs[-1]).all())


def order_of_writes(d):
    if d.device != "cuda" or d.why[0] != "values" or d.case["op"] not in ("scatter", "index_copy"):
        return False
    return len(d.inputs[1].unique()) < d.inputs[1].numel()


def products_of_halves(d):
    is_product = d.case["op"] in ("prod", "cumprod") or (d.case["op"] in SUMS and "alpha" in d.case["args"])
    return d.why[0] == "values" and is_product and d.wanted[0].dtype in HALVES


def truncated_halves(d):
    is_quotient = d.why[0] == "values" and d.case["op"] == "div_trunc" and d.wanted[0].dtype in HALVES
    return is_quotient and torch.is_tensor(d.inputs[1]) and d.inputs[1].numel() == 1


def limits_of_cuda(d):
    texts = d.answer.get("error", "") + (d.wanted[1] if isinstance(d.wanted, tuple) else "")
    return d.device == "cuda" and "without overflow" in texts


def numbers_of_cuda(d):
    is_half = d.why[0] == "values" and d.wanted[0].dtype in HALVES
    return d.device == "cuda" and is_half and d.case["op"] in SUMS and not torch.is_tensor(d.inputs[1])


def layout_of_cuda(d):
    dtypes = {t.dtype for t in d.inputs if torch.is_tensor(t)}
    return d.device == "cuda" and d.why[0] == "strides" and (
        len(dtypes) > 1 or d.wanted[0].dtype not in dtypes or d.case["op"] == "logsigmoid")


def truth_of_cuda(d):
    is_byte = d.why[0] == "values" and d.wanted[0].dtype == torch.uint8
    return d.device == "cuda" and is_byte and d.case["op"] in ("any", "all") and d.case["form"] == "out"


def empty_places(d):
    if d.why[0] != "strides":
        return False
    def counts(shape, strides):
        return [stride for size, stride in zip(shape, strides) if size != 1]
    pairs = zip(d.wanted, d.answer["out"])
    return all(t.numel() == 0 or counts(t.shape, t.stride()) == counts(t.shape, a["stride"]) for t, a in pairs)


EXCUSES = [
    Excuse(
        "python-arguments",
        "Python's reader of arguments refuses the call before torch sees it",
        python_arguments,
    ),
    Excuse(
        "float-to-integer",
        "C++ leaves the conversion of NaN, infinities and numbers beyond the range to the processor; x86 and "
        "CUDA differ, and the host answers as CUDA",
        no_float_in_range,
    ),
    Excuse(
        "complex-not-finite",
        "C leaves open which parts of a complex result are NaN and which infinite once one is not finite; "
        "torch's vectorized kernels, its scalar ones and thrust's differ",
        complex_not_finite,
    ),
    Excuse(
        "integer-division-by-zero",
        "CUDA's kernels divide integers by zero without an error",
        integer_division_by_zero,
    ),
    Excuse(
        "kernels-of-cuda",
        "CUDA has kernels for dtypes that torch's host lacks, and lacks those of integer products; the host "
        "has the kernels of both",
        kernels_of_cuda,
    ),
    Excuse(
        "words-of-cuda",
        "torch's CUDA kernels have other texts than its host's",
        words_of_cuda,
    ),
    Excuse(
        "overlapping-output",
        "the written elements overlap in memory, so that the order of writing shows",
        overlapping_output,
    ),
    Excuse(
        "order-of-writes",
        "which of several elements for one place is kept depends on the order of a device's threads",
        order_of_writes,
    ),
    Excuse(
        "products-of-halves",
        "torch's host rounds each product to 16 bits, also that with alpha; CUDA and this library round the "
        "result",
        products_of_halves,
    ),
    Excuse(
        "numbers-of-cuda",
        "CUDA's sums of short floats and a number keep the number in f32; torch's host rounds it",
        numbers_of_cuda,
    ),
    Excuse(
        "limits-of-cuda",
        "CUDA's kernels convert numbers to the wider dtype that they compute in, torch's host to the "
        "elements' (crates/aten-cuda/src/ops/pointwise/limit.rs)",
        limits_of_cuda,
    ),
    Excuse(
        "overflow-of-logaddexp",
        "torch's host answers NaN where an exponential of a complex number overflows on the way",
        overflow_of_logaddexp,
    ),
    Excuse(
        "truncated-halves",
        "torch's host takes a divisor of one element for a number, whose quotients are not rounded before they "
        "are truncated",
        truncated_halves,
    ),
    Excuse(
        "single-elements-of-the-host",
        "torch's host takes an operand of one element for a number, which it does not round to 16 bits; CUDA "
        "rounds it",
        single_elements_of_the_host,
    ),
    Excuse(
        "floored-halves",
        "torch's host rounds each step of a division downwards to 16 bits; CUDA and this library divide in f32 "
        "(65280 // 127 in bf16: 516 on the host, 512 on an H200)",
        floored_halves,
    ),
    Excuse(
        "first-of-several-indices",
        "of several indices out of range torch's threads name any",
        first_of_several_indices,
    ),
    Excuse(
        "index-of-nothing",
        "CUDA's kernels look at the indices of a dimension without elements, its host at those of no result",
        index_of_nothing,
    ),
    Excuse(
        "unwritten-gelu",
        "torch's host does not write an output of gelu that is not contiguous",
        unwritten_gelu,
    ),
    Excuse(
        "layout-of-cuda",
        "torch's host converts operands before it looks at their layout, CUDA on the way",
        layout_of_cuda,
    ),
    Excuse(
        "truth-of-cuda",
        "torch's host converts elements to an output of bytes first, CUDA does not",
        truth_of_cuda,
    ),
    Excuse(
        "strides-of-nothing",
        "strides of dimensions of one element, and of tensors without elements, name no memory",
        empty_places,
    ),
]


def find(difference):
    """Returns the excuse of a difference, or None."""
    return next((excuse for excuse in EXCUSES if excuse.covers(difference)), None)
