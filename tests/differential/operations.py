"""Writes random tensor operations with the answers that PyTorch gives on the host.

    operations.py FILE [--count N] [--seed S]

FILE is JSON as `cargo xtask ops` reads it: each case has an operation, its inputs (a view of the bytes of a storage, or a
number), its other arguments, and either the results or the text of the error. One seed is one sequence of cases.
"""

import argparse
import base64
import json
import math
import random

import torch

NAMES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "c64": torch.complex64, "c128": torch.complex128,
}
DTYPES = {dtype: name for name, dtype in NAMES.items()}
ALL = list(NAMES.values())
INTEGERS = ALL[1:6]
FLOATS = ALL[6:10]
REAL_FLOATING = FLOATS
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan, 1e-8, 1e4, -1e4, 3e38, 1e300, 0.1]
NUMBERS = [0, 1, -1, 2, 3, 7, -5, 127, 128, 255, 256, 300, -300, 2**31, -(2**31) - 1, 2**40, True, False, 0.5, 0.1, 2.0,
           -1.5, 1.7, 1e4, 65504.0, 65520.0, 1e6, 1e10, 1e39, 1e300, math.inf, -math.inf, math.nan]

UNARY = """abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frac
    isfinite isinf isnan lgamma log log10 log1p log2 logical_not neg positive reciprocal relu round rsqrt sigmoid sign
    signbit sin sinh sqrt square tan tanh trunc""".split()
ACTIVATIONS = {"gelu": {}, "silu": {}, "mish": {}, "logsigmoid": {}}
BINARY = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign eq floor_divide fmax
    fmin fmod gcd ge gt hypot le logaddexp logical_and logical_or logical_xor lt maximum minimum mul ne nextafter pow
    remainder sub true_divide xlogy""".split()
# Operations of real numbers whose results are the same bits everywhere.
EXACT = set("""abs bitwise_not ceil floor frac isfinite isinf isnan logical_not neg positive relu round sign signbit square
    trunc sqrt add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign eq floor_divide fmax
    fmin fmod gcd ge gt le logical_and logical_or logical_xor lt maximum minimum mul ne nextafter remainder sub true_divide
    clamp masked_fill where gather scatter index_select index_copy masked_select nonzero sort argsort topk unique cat
    stack flip roll repeat amax amin any all count_nonzero max min argmax argmin cummax cummin full to expand view reshape
    tril triu take_along_dim index index_fill fill copy full_like masked_scatter isin chunk split narrow select slice
    diagonal unsqueeze squeeze movedim transpose permute flatten unfold eye""".split())


class Writer:
    """Random inputs, by one generator of random numbers."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def dtype(self, among=ALL):
        return self.rng.choice(among)

    def sizes(self, rank=None):
        rank = self.rng.choice([0, 1, 1, 2, 2, 3, 4]) if rank is None else rank
        return [self.rng.choice([0, 1, 1, 2, 3, 4, 5, 7]) if self.rng.random() < 0.9 else 33 for _ in range(rank)]

    def value(self, dtype):
        rng = self.rng
        if dtype == torch.bool:
            return rng.random() < 0.5
        if dtype in INTEGERS:
            info = torch.iinfo(dtype)
            if rng.random() < 0.1:
                return rng.choice([info.min, info.max, 0])
            return rng.randint(max(info.min, -9), min(info.max, 9))
        if dtype.is_complex:
            return complex(self.value(torch.float32), self.value(torch.float32))
        if rng.random() < 0.12:
            return rng.choice(EDGES)
        return rng.choice([rng.gauss(0, 1), rng.gauss(0, 30), float(rng.randint(-4, 4))])

    def tensor(self, dtype=None, sizes=None, edges=True):
        """A tensor of random values and layout."""
        dtype = self.dtype() if dtype is None else dtype
        sizes = self.sizes() if sizes is None else list(sizes)
        values = [self.value(dtype) for _ in range(max(1, math.prod(sizes)))]
        if not edges:
            values = [value if not isinstance(value, float) or math.isfinite(value) else 1.5 for value in values]
        flat = torch.tensor(values, dtype=torch.complex128 if dtype.is_complex else
                            torch.float64 if dtype.is_floating_point else dtype).to(dtype)
        if dtype.is_floating_point and self.rng.random() < 0.1:
            flat = torch.where(flat.isnan(), -flat, flat)
        contiguous = flat[: math.prod(sizes)].reshape(sizes)
        return self.laid_out(contiguous)

    def laid_out(self, tensor):
        """The values in another layout: permuted, with gaps, at an offset, expanded."""
        way = self.rng.random()
        rank = tensor.dim()
        if way < 0.5 or rank == 0:
            return tensor
        if way < 0.7:
            order = self.rng.sample(range(rank), rank)
            inverse = sorted(range(rank), key=order.__getitem__)
            return tensor.permute(order).contiguous().permute(inverse)
        if way < 0.85:
            dim = self.rng.randrange(rank)
            wide = tensor.repeat_interleave(2, dim)
            offset = self.rng.randint(0, 1) if tensor.size(dim) else 0
            return wide.narrow(dim, offset, max(0, wide.size(dim) - offset))[(slice(None),) * dim + (slice(None, None, 2),)]
        dim = self.rng.randrange(rank)
        return tensor.narrow(dim, 0, min(1, tensor.size(dim))).expand(
            [size if at != dim or tensor.size(dim) == 0 else size for at, size in enumerate(tensor.shape)])

    def broadcastable(self, sizes):
        """Sizes that broadcast with others, mostly."""
        kept = list(sizes)[self.rng.randint(0, len(sizes)) if self.rng.random() < 0.3 else 0:]
        kept = [1 if self.rng.random() < 0.15 else size for size in kept]
        if kept and self.rng.random() < 0.05:
            kept[self.rng.randrange(len(kept))] = 6
        return kept

    def number(self):
        return self.rng.choice(NUMBERS)

    def dim(self, tensor):
        rank = max(1, tensor.dim())
        return self.rng.randint(-rank, rank - 1) if self.rng.random() < 0.95 else rank + self.rng.randint(0, 2)

    def dims(self, tensor):
        count = self.rng.randint(0, tensor.dim())
        return self.rng.sample(range(tensor.dim()), count)

    def index(self, below, sizes, dtype=torch.int64, negative=False):
        low = -below if negative else 0
        high = below if self.rng.random() < 0.05 else below - 1
        values = [self.rng.randint(low, max(low, high)) for _ in range(math.prod(sizes))]
        if self.rng.random() < 0.04:
            dtype = self.rng.choice(ALL)
        return torch.tensor(values, dtype=torch.int64).to(dtype).reshape(sizes)


def stored(tensor):
    """A tensor as a file holds it, with its whole storage."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    storage = tensor.untyped_storage()
    raw = torch.empty(0, dtype=torch.uint8).set_(storage, 0, [storage.nbytes()], [1])
    return {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "stride": list(tensor.stride()),
            "offset": tensor.storage_offset(), "storage": base64.b64encode(bytes(raw.tolist())).decode()}


def result(tensor):
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    flat.copy_(tensor.reshape(-1))
    data = bytes(flat.view(torch.uint8).tolist())
    return {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "stride": list(tensor.stride()),
            "data": base64.b64encode(data).decode()}


def plain(value):
    """A number as JSON can hold it."""
    if isinstance(value, complex):
        return {"re": plain(value.real), "im": plain(value.imag)}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def widened(value):
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype.is_complex:
        return value.to(torch.complex128)
    return value.to(torch.float64) if value.dtype.is_floating_point else value.clone()


def pointwise(writer, name):
    """A call of an operation of one or two operands: as a function, in place, or into an `out`."""
    rng = writer.rng
    first = writer.tensor()
    inputs = [first]
    if name in BINARY:
        inputs.append(writer.number() if rng.random() < 0.3 else writer.tensor(sizes=writer.broadcastable(first.shape)))
    function = getattr(torch, name)
    form = rng.random()
    if form < 0.6 or name == "positive":
        return name, inputs, {}, lambda *given: function(*given)
    if form < 0.8 and hasattr(torch.Tensor, name + "_"):
        return name + "_", inputs, {}, lambda *given: getattr(given[0], name + "_")(*given[1:])
    sizes = torch.broadcast_shapes(*[value.shape for value in inputs if isinstance(value, torch.Tensor)]) \
        if rng.random() < 0.9 and compatible(inputs) else writer.sizes()
    natural = natural_dtype(function, inputs) if rng.random() < 0.6 else writer.dtype()
    target = writer.tensor(natural, sizes)
    return name + "_out", [*inputs, target], {}, lambda *given: function(*given[:-1], out=given[-1])


def compatible(inputs):
    try:
        torch.broadcast_shapes(*[value.shape for value in inputs if isinstance(value, torch.Tensor)])
        return True
    except RuntimeError:
        return False


def natural_dtype(function, inputs):
    try:
        return function(*inputs).dtype
    except Exception:
        return torch.float32


def activation(writer, name):
    functional = torch.nn.functional
    function = {"gelu": functional.gelu, "silu": functional.silu, "mish": functional.mish,
                "logsigmoid": functional.logsigmoid}[name]
    return name, [writer.tensor(writer.dtype(FLOATS + ALL))], {}, function


def with_alpha(writer, name):
    first = writer.tensor()
    other = writer.number() if writer.rng.random() < 0.3 else writer.tensor(sizes=writer.broadcastable(first.shape))
    alpha = writer.number()
    return name, [first, other], {"alpha": alpha}, lambda a, b: getattr(torch, name)(a, b, alpha=alpha)


def ternary(writer, name):
    first = writer.tensor(writer.dtype(FLOATS + ALL))
    dtype = first.dtype if writer.rng.random() < 0.7 else writer.dtype()
    second = writer.tensor(dtype, writer.broadcastable(first.shape))
    if name == "lerp":
        weight = writer.number() if writer.rng.random() < 0.5 else writer.tensor(dtype, writer.broadcastable(first.shape))
        if isinstance(weight, torch.Tensor):
            return "lerp_tensor", [first, second, weight], {}, torch.lerp
        return name, [first, second], {"weight": weight}, lambda a, b: torch.lerp(a, b, weight)
    third = writer.tensor(dtype, writer.broadcastable(first.shape))
    value = writer.number()
    return name, [first, second, third], {"value": value}, lambda a, b, c: getattr(torch, name)(a, b, c, value=value)


def where(writer, _):
    condition = writer.tensor(torch.bool if writer.rng.random() < 0.9 else None)
    sides = [writer.number() if writer.rng.random() < 0.25 else writer.tensor(sizes=writer.broadcastable(condition.shape))
             for _ in range(2)]
    return "where", [condition, *sides], {}, torch.where


def clamp(writer, _):
    tensor = writer.tensor()
    args = {name: writer.number() for name in ("min", "max") if writer.rng.random() < 0.7}
    return "clamp", [tensor], args, lambda a: torch.clamp(a, **args)


def masked_fill(writer, _):
    tensor = writer.tensor()
    mask = writer.tensor(torch.bool if writer.rng.random() < 0.9 else None, writer.broadcastable(tensor.shape))
    value = writer.number()
    return "masked_fill", [tensor, mask], {"value": value}, lambda a, m: a.masked_fill(m, value)


def reduction(writer, name):
    tensor = writer.tensor()
    args = {}
    if name in ("sum", "nansum", "prod", "mean", "cumsum", "cumprod") and writer.rng.random() < 0.25:
        args["dtype"] = DTYPES[writer.dtype()]
    keywords = {"dtype": NAMES[args["dtype"]]} if "dtype" in args else {}
    if name in ("cumsum", "cumprod", "cummax", "cummin", "softmax", "log_softmax", "logcumsumexp"):
        args["dim"] = writer.dim(tensor)
        return name, [tensor], args, lambda a: getattr(torch, name)(a, args["dim"], **keywords)
    if writer.rng.random() < 0.3 and name != "logsumexp":
        return name, [tensor], args, lambda a: getattr(torch, name)(a, **keywords)
    one = name in ("prod", "argmax", "argmin", "max", "min") or writer.rng.random() < 0.4
    args["dim"] = writer.dim(tensor) if one else writer.dims(tensor)
    if name == "count_nonzero":
        return name, [tensor], args, lambda a: torch.count_nonzero(a, args["dim"])
    args["keepdim"] = writer.rng.random() < 0.5
    if name in ("var", "std"):
        args["correction"] = writer.rng.choice([0, 1, 2, -1, 1.5])
        return name, [tensor], args, lambda a: getattr(torch, name)(
            a, args["dim"], correction=args["correction"], keepdim=args["keepdim"])
    return name, [tensor], args, lambda a: getattr(torch, name)(a, args["dim"], keepdim=args["keepdim"], **keywords)


def ordering(writer, name):
    tensor = writer.tensor(writer.dtype(ALL[:10]))
    dim = writer.dim(tensor)
    if name == "topk":
        k = writer.rng.randint(0, max(1, tensor.size(dim) if tensor.dim() and -tensor.dim() <= dim < tensor.dim() else 1))
        args = {"k": k, "dim": dim, "largest": writer.rng.random() < 0.5, "values_only": True}
        return name, [tensor], args, lambda a: torch.topk(a, k, dim, args["largest"])[0]
    if name == "unique":
        return name, [tensor], {}, lambda a: torch.unique(a, return_inverse=True, return_counts=True)
    args = {"dim": dim, "descending": writer.rng.random() < 0.5, "stable": True}
    return name, [tensor], args, lambda a: getattr(torch, name)(a, dim=dim, descending=args["descending"], stable=True)


def indexing(writer, name):
    tensor = writer.tensor()
    dim = writer.dim(tensor)
    size = tensor.size(dim) if tensor.dim() and -tensor.dim() <= dim < tensor.dim() else 1
    if name in ("index_select", "index_add", "index_copy"):
        length = writer.rng.randint(0, 5)
        index = writer.index(size, [length], writer.rng.choice([torch.int64, torch.int32]))
        args = {"dim": dim}
        if name == "index_select":
            return name, [tensor, index], args, lambda a, i: torch.index_select(a, dim, i)
        shape = list(tensor.shape)
        if shape and -tensor.dim() <= dim < tensor.dim():
            shape[dim] = length
        source = writer.tensor(tensor.dtype if writer.rng.random() < 0.9 else None, shape if writer.rng.random() < 0.9 else None)
        if name == "index_add":
            args["alpha"] = writer.rng.choice([1, 2, -1, 0.5])
            return name, [tensor, index, source], args, lambda a, i, s: torch.index_add(a, dim, i, s, alpha=args["alpha"])
        return name, [tensor, index, source], args, lambda a, i, s: torch.index_copy(a, dim, i, s)
    shape = [writer.rng.randint(0, max(0, extent)) for extent in tensor.shape] if writer.rng.random() < 0.9 else writer.sizes()
    index = writer.index(size, shape)
    args = {"dim": dim}
    if name == "gather":
        return name, [tensor, index], args, lambda a, i: torch.gather(a, dim, i)
    if name == "scatter" and writer.rng.random() < 0.4:
        value = writer.number()
        return name, [tensor, index, value], args, lambda a, i, v: torch.scatter(a, dim, i, v)
    source = writer.tensor(tensor.dtype if writer.rng.random() < 0.9 else None, shape)
    # Places that come twice would keep either value.
    if name == "scatter" and len(set(index.flatten().tolist())) < index.numel():
        index = index.clone().zero_()[..., :1] if index.dim() else index
        source = source[..., :1] if source.dim() else source
        if index.numel() > 1:
            name = "scatter_add"
    return name, [tensor, index, source], args, lambda a, i, s: getattr(torch, name)(a, dim, i, s)


def selecting(writer, name):
    tensor = writer.tensor()
    if name == "nonzero":
        return name, [tensor], {}, torch.nonzero
    mask = writer.tensor(torch.bool if writer.rng.random() < 0.9 else None, writer.broadcastable(tensor.shape))
    return name, [tensor, mask], {}, torch.masked_select


def joining(writer, name):
    first = writer.tensor()
    count = writer.rng.randint(1, 3)
    others = [writer.tensor(first.dtype if writer.rng.random() < 0.6 else None,
                            first.shape if writer.rng.random() < 0.85 else None) for _ in range(count)]
    dim = writer.dim(first)
    return name, [first, *others], {"dim": dim}, lambda *given: getattr(torch, name)(list(given), dim)


def arranging(writer, name):
    tensor = writer.tensor()
    rng = writer.rng
    if name == "flip":
        args = {"dims": writer.dims(tensor)}
        return name, [tensor], args, lambda a: torch.flip(a, args["dims"])
    if name == "roll":
        dims = writer.dims(tensor)
        args = {"shifts": [rng.randint(-5, 5) for _ in dims], "dims": dims}
        if not dims:
            args["shifts"] = [rng.randint(-5, 5)]
        return name, [tensor], args, lambda a: torch.roll(a, args["shifts"], args["dims"])
    if name == "repeat":
        args = {"repeats": [rng.randint(0, 2) for _ in range(tensor.dim() + rng.randint(0, 1))]}
        return name, [tensor], args, lambda a: a.repeat(args["repeats"])
    if name in ("tril", "triu"):
        args = {"diagonal": rng.randint(-3, 3)}
        return name, [tensor], args, lambda a: getattr(torch, name)(a, args["diagonal"])
    if name == "to":
        args = {"dtype": DTYPES[writer.dtype()]}
        values = writer.tensor(edges=False)
        return name, [values], args, lambda a: a.to(NAMES[args["dtype"]])
    args = {"size": [rng.choice([-1, 1, 2, 3, size]) for size in tensor.shape]}
    return name, [tensor], args, lambda a: a.expand(args["size"])


def making(writer, name):
    rng = writer.rng
    dtype = writer.dtype()
    if name == "full":
        args = {"size": writer.sizes(), "fill": writer.number(), "dtype": DTYPES[dtype]}
        return name, [], args, lambda: torch.full(args["size"], args["fill"], dtype=dtype)
    if name == "linspace":
        args = {"start": writer.number(), "end": writer.number(), "steps": rng.randint(0, 9), "dtype": DTYPES[dtype]}
        return name, [], args, lambda: torch.linspace(args["start"], args["end"], args["steps"], dtype=dtype)
    args = {"n": rng.randint(-1, 5), "m": rng.randint(0, 5), "dtype": DTYPES[dtype]}
    return name, [], args, lambda: torch.eye(args["n"], args["m"], dtype=dtype)


def product(writer, name):
    rng = writer.rng
    dtype = writer.dtype()
    n, k, m = (rng.choice([0, 1, 2, 3, 5, 8]) for _ in range(3))
    other = k if rng.random() < 0.93 else k + 1
    second = dtype if rng.random() < 0.93 else writer.dtype()
    make = lambda dtype, *sizes: writer.tensor(dtype, sizes, edges=False)
    if name == "bmm":
        batch = rng.randint(0, 3)
        return name, [make(dtype, batch, n, k), make(second, batch, other, m)], {}, torch.bmm
    if name == "mv":
        return name, [make(dtype, n, k), make(second, other)], {}, torch.mv
    if name == "dot":
        return name, [make(dtype, k), make(second, other)], {}, torch.dot
    if name == "addmm":
        args = {"beta": rng.choice([0, 1, 0.5, 2]), "alpha": rng.choice([0, 1, 0.5, 2])}
        inputs = [make(dtype, *writer.broadcastable([n, m])), make(dtype, n, k), make(second, other, m)]
        return name, inputs, args, lambda a, b, c: torch.addmm(a, b, c, **args)
    if name == "matmul":
        first, last = writer.sizes(rng.randint(0, 2)), writer.sizes(rng.randint(0, 2))
        return name, [make(dtype, *first, n, k), make(second, *last, other, m)], {}, torch.matmul
    return name, [make(dtype, n, k), make(second, other, m)], {}, torch.mm


FAMILIES = [
    (pointwise, UNARY, 3), (pointwise, BINARY, 4), (activation, list(ACTIVATIONS), 1), (with_alpha, ["add", "sub"], 1),
    (ternary, ["addcmul", "addcdiv", "lerp"], 1), (where, ["where"], 1), (clamp, ["clamp"], 1),
    (masked_fill, ["masked_fill"], 1),
    (reduction, """sum nansum mean prod amax amin any all logsumexp count_nonzero var std max min argmax argmin cumsum
        cumprod cummax cummin softmax log_softmax""".split(), 3),
    (ordering, ["sort", "argsort", "topk", "unique"], 1),
    (indexing, ["gather", "scatter", "scatter_add", "index_select", "index_add", "index_copy"], 2),
    (selecting, ["nonzero", "masked_select"], 1), (joining, ["cat", "stack"], 1),
    (arranging, ["flip", "roll", "repeat", "tril", "triu", "to", "expand"], 1), (making, ["full", "linspace", "eye"], 1),
    (product, ["mm", "bmm", "mv", "dot", "matmul", "addmm"], 1),
]


def case(writer):
    family, names, _ = writer.rng.choices(FAMILIES, weights=[weight for *_, weight in FAMILIES])[0]
    op, inputs, args, function = family(writer, writer.rng.choice(names))
    entry = {"op": op, "in": [stored(value) if isinstance(value, torch.Tensor) else plain(value) for value in inputs],
             "args": {name: plain(value) for name, value in args.items()}}
    is_complex = any(isinstance(value, torch.Tensor) and value.dtype.is_complex for value in inputs)
    base = op.removesuffix("_out").removesuffix("_")
    wide = [widened(value) for value in inputs]
    try:
        answer = function(*inputs)
    except TypeError:
        # The form does not exist in torch.
        return None
    except Exception as error:
        entry["error"] = [type(error).__name__, str(error).split("\n")[0]]
        return entry
    answers = list(answer) if isinstance(answer, (tuple, list)) else [answer]
    entry["out"] = [result(value) for value in answers]
    floating = any(value.dtype.is_floating_point or value.dtype.is_complex for value in answers)
    entry["exact"] = not floating or (base in EXACT and not is_complex and "alpha" not in args)
    if not entry["exact"]:
        try:
            reference = function(*wide)
        except Exception:
            return None
        references = list(reference) if isinstance(reference, (tuple, list)) else [reference]
        entry["ref"] = [reference_bytes(value, answer) for value, answer in zip(references, answers)]
    return entry


def reference_bytes(reference, answer):
    dtype = torch.complex128 if answer.dtype.is_complex else torch.float64
    return result(reference.to(dtype))["data"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    writer = Writer(options.seed)
    cases = []
    while len(cases) < options.count:
        entry = case(writer)
        if entry is not None:
            cases.append(entry)
    with open(options.file, "w") as file:
        json.dump({"torch": torch.__version__, "seed": options.seed, "cases": cases}, file)


if __name__ == "__main__":
    import warnings
    warnings.simplefilter("ignore")
    main()
