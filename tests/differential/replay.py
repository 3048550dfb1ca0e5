"""Replays random tensor operations on PyTorch and compares its answers with those in a file.

    python replay.py FILE

FILE has one call in JSON on each line, with the answers of the host (`cpu`) and of the simulated device (`cuda`). Compared
are dtype, sizes, strides, values and the first line of an error's text. `tolerance.py` says how far values may differ, and
`excuses.py` which differences are PyTorch's own: rules of its CUDA kernels, or noise of its host kernels. All other
differences are grouped into classes, and the smallest call of each class is printed. The last lines count the excuses and
the calls; the exit code is 1 when a difference has no excuse.
"""

import base64
import collections
import json
import re
import sys
import warnings

import torch

import excuses
import tolerance

warnings.simplefilter("ignore")
torch.set_num_threads(1)

DTYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
    "f64": torch.float64, "c32": torch.complex32, "c64": torch.complex64, "c128": torch.complex128,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
# Texts of Python's reader of arguments, which refuses calls that Rust's types allow, such as a number for a tensor.
READER = re.compile(r"must be Tensor, not|invalid combination of arguments|unexpected keyword|has no attribute"
                    r"|must be (int|bool|Number|tuple of ints), not")


def number(value):
    """Reads a number: infinities and NaN are texts, complex numbers are pairs."""
    if isinstance(value, str):
        return float(value)
    if isinstance(value, list):
        return complex(*(number(part) for part in value))
    return value


def tensor(stored, key="storage"):
    """Reads a tensor: a view of a storage, or the elements of an answer row by row."""
    data = bytearray(base64.b64decode(stored[key]))
    dtype = DTYPES[stored["dtype"]]
    if not data:
        return torch.empty(stored["shape"], dtype=dtype)
    flat = torch.frombuffer(data, dtype=torch.uint8).clone().view(dtype)
    if key == "data":
        return flat.reshape(stored["shape"])
    return flat.as_strided(stored["shape"], stored["stride"], stored["offset"])


def in_place(op, inputs, args):
    """The call in place on torch, as a function without arguments."""
    own, *rest = inputs
    if op == "copy":
        return lambda: own.copy_(*rest)
    if op == "fill":
        return lambda: own.fill_(args["value"])
    if op == "masked_fill":
        return lambda: own.masked_fill_(*rest, args["value"])
    if op.startswith(("scatter", "index_")):
        dim = args.pop("dim")
        return lambda: getattr(own, op + "_")(dim, *rest, **args)
    if op in ("gelu", "mish", "silu", "relu"):
        owner = torch if op == "relu" else torch._C._nn
        return lambda: getattr(owner, op + "_")(own)
    return lambda: getattr(own, op + "_")(*rest, **args)


def function(op, form, inputs, args):
    """The call on torch, as a function without arguments."""
    if "dtype" in args:
        args["dtype"] = DTYPES[args["dtype"]]
    for name in ("alpha", "beta", "value", "min", "max", "weight", "fill", "p"):
        if name in args:
            args[name] = number(args[name])
    if op in ("div_trunc", "true_divide"):
        args["rounding_mode"] = "trunc" if op == "div_trunc" else None
        op = "div"
    if form == "inplace":
        return in_place(op, inputs, args)
    if form == "out":
        *inputs, args["out"] = inputs
    if op == "masked_fill":
        return lambda: inputs[0].masked_fill(inputs[1], args["value"])
    if op in ("scatter", "scatter_add", "gather", "index_select", "index_add", "index_copy"):
        dim = args.pop("dim")
        return lambda: getattr(torch, op)(inputs[0], dim, *inputs[1:], **args)
    if op == "take_along_dim":
        return lambda: torch.take_along_dim(*inputs, args["dim"])
    if op in ("index", "index_put"):
        values = [inputs.pop()] if op == "index_put" else []
        indices = [None] * (1 + max(args["at"]))
        for dim, index in zip(args["at"], inputs[1:]):
            indices[dim] = index
        if op == "index":
            return lambda: torch.ops.aten.index(inputs[0], indices)
        return lambda: torch.ops.aten.index_put(inputs[0], indices, *values, args["accumulate"])
    if op == "einsum":
        return lambda: torch.einsum(args["equation"], *inputs)
    if op in ("fft", "ifft", "rfft", "irfft"):
        return lambda: getattr(torch.fft, op)(inputs[0], **args)
    if op in ("cat", "stack"):
        return lambda: getattr(torch, op)(inputs, **args)
    if op == "topk":
        args.pop("values_only")
        return lambda: torch.topk(inputs[0], **args)[0]
    if op == "lerp":
        return lambda: torch.lerp(inputs[0], inputs[1], args["weight"])
    if op in ("repeat", "expand", "view", "reshape"):
        return lambda: getattr(inputs[0], op)(next(iter(args.values())))
    if op == "full":
        return lambda: torch.full(args["size"], args["fill"], dtype=args["dtype"])
    if op == "eye":
        return lambda: torch.eye(args["n"], args["m"], dtype=args["dtype"])
    if op == "to":
        return lambda: inputs[0].to(args["dtype"])
    if op == "split":
        return lambda: torch.split(inputs[0], args["size"], args["dim"])
    if op in ("logsigmoid", "gelu", "mish", "silu"):
        owner = getattr(torch._C._nn, {"logsigmoid": "log_sigmoid"}.get(op, op))
        return lambda: owner(*inputs, **args)
    return lambda: getattr(torch, op)(*inputs, **args)


def replay(case):
    """The outputs of torch, or its error's type and the first line of its text."""
    inputs = [tensor(value) if isinstance(value, dict) else number(value) for value in case["in"]]
    try:
        found = function(case["op"], case["form"], inputs, dict(case["args"]))()
        return [found] if isinstance(found, torch.Tensor) else list(found)
    except Exception as error:
        return type(error).__name__, str(error).split("\n")[0]


def magnitudes(case):
    """The call on the absolute values of its inputs in f64: the sum that rounding errors of sums are relative to.

    Of complex powers, how large the logarithm of the result is.
    """
    if case["op"] == "pow":
        operands = [tensor(value) if isinstance(value, dict) else torch.tensor(number(value)) for value in case["in"][:2]]
        base, exponent = (operand.to(torch.complex128) for operand in operands)
        return (base.log().abs() * exponent.abs()).nan_to_num(0, 0, 0)
    def one(value):
        if not isinstance(value, dict):
            return abs(number(value))
        value = tensor(value)
        if case["op"] == "nansum":
            value = value.nan_to_num(0)
        if value.dtype in (torch.int32, torch.int64) and case["op"].startswith(("scatter", "index_")):
            return value
        return value.to(torch.complex128).abs() if value.is_complex() else value.double().abs()
    inputs = [one(value) for value in case["in"]]
    if case["op"] == "index_put":
        inputs[1:-1] = [tensor(value) for value in case["in"][1:-1]]
    args = {name: value for name, value in case["args"].items() if name != "dtype"}
    for name in ("alpha", "beta", "value", "weight"):
        if name in args:
            args[name] = abs(number(args[name]))
    if case["form"] == "out":
        inputs.pop()
    op = {"sub": "add", "nansum": "sum"}.get(case["op"], case["op"])
    if case["op"] == "gelu":
        return inputs[0]
    if case["op"] == "lerp":
        weight = args.pop("weight")
        return inputs[0] * (1 + weight) + inputs[1] * weight
    found = function(op, "", inputs, args)()
    if "fft" in op:
        # The first of the results is the sum.
        return found.abs().amax(args["dim"], keepdim=True).expand_as(found)
    return found if isinstance(found, torch.Tensor) else found[0]


def computed(case):
    """The dtype of the result without an output, in which the call is computed."""
    found = replay(dict(case, form="", **{"in": case["in"][:-1]})) if case["form"] == "out" else None
    return found[0].dtype if isinstance(found, list) else None


def differs(case, wanted, found):
    """The kind of the first difference of an output, or None."""
    if NAMES.get(wanted.dtype) != found["dtype"]:
        return f"dtype {found['dtype']} instead of {NAMES.get(wanted.dtype)}"
    if list(wanted.shape) != found["shape"]:
        return "sizes"
    if list(wanted.stride()) != found["stride"]:
        return "strides"
    ours, theirs = tensor(found, "data"), wanted.resolve_conj().contiguous()
    return None if tolerance.is_near(case, ours, theirs, lambda: magnitudes(case), lambda: computed(case)) else "values"


def judge(case, answer, wanted):
    """The class of the difference, or None."""
    if "panic" in answer:
        return ("panic", case["op"])
    refused = isinstance(wanted, tuple)
    if refused and wanted[0] in ("TypeError", "AttributeError") and READER.search(wanted[1]):
        return ("reader", case["op"])
    if "absent" in answer:
        return ("absent", case["op"])
    if "error" in answer:
        text = answer["error"].split("\n")[0]
        if not refused:
            return ("refused", case["op"] + ": " + general(text))
        if without_kernel(text) == without_kernel(wanted[1]):
            return None
        return ("text", f"{general(text)}  |  torch: {general(wanted[1])}")
    if refused:
        return ("accepted", general(wanted[1]))
    if len(wanted) != len(answer["out"]):
        return ("outputs", case["op"])
    for theirs, ours in zip(wanted, answer["out"]):
        why = differs(case, theirs, ours)
        if why:
            return (why.split(" ")[0], f"{case['op']} {case['form']} {NAMES.get(theirs.dtype)} {why}")
    return None


def without_kernel(text):
    """The text without the kernel's name, which differs between the host and CUDA."""
    return re.sub(r'"\w+" not implemented', "not implemented", text)


def general(text):
    """The text without the numbers and dtypes of one call."""
    text = re.sub(r"\[[-\d, ]*\]", "[N]", text)
    text = re.sub(r"(torch\.)?(u?int\d+|u?int\d+_t|bfloat16|float\d*|half|bool|complex\d*)\b", "DTYPE", text)
    text = re.sub(r"\b(Bool|Byte|Char|Short|Int|Long|Half|BFloat16|Float|Double|Complex\w+)\b", "DTYPE", text)
    return re.sub(r"-?\d+(\.\d+)?", "N", text)


def shown(case):
    """The call on one line."""
    def one(value):
        if not isinstance(value, dict):
            return repr(value)
        return f"{value['dtype']}{value['shape']}:{value['stride']}+{value['offset']}"
    return f"{case['op']}{'.' + case['form'] if case['form'] else ''}({', '.join(map(one, case['in']))}) {case['args']}"


def report(classes):
    """Prints the classes, most frequent first."""
    for key, entry in sorted(classes.items(), key=lambda item: -item[1]["count"]):
        names = ", ".join(f"{op} {count}" for op, count in entry["ops"].most_common(6))
        print(f"{entry['count']:6} {key[0]} {key[1]}: {key[2]}\n       in {names}\n       {entry['call']}")
        print(f"       given: {str(entry['given'])[:300]}")
        print(f"       ours: {str(entry['ours'])[:300]}\n       torch: {str(entry['torch'])[:300]}")


def add_to(classes, key, case, answer, wanted, size):
    """Counts a difference; the smallest call stands for its class."""
    entry = classes.setdefault(key, {"count": 0, "ops": collections.Counter(), "size": None})
    entry["count"] += 1
    entry["ops"][case["op"]] += 1
    if entry["size"] is not None and entry["size"] <= size:
        return
    ours = answer.get("error") or [tensor(value, "data").tolist() for value in answer.get("out", [])]
    theirs = wanted[1] if isinstance(wanted, tuple) else [value.tolist() for value in wanted]
    given = [tensor(value).tolist() if isinstance(value, dict) else value for value in case["in"]]
    entry.update(size=size, call=shown(case), given=given, ours=ours, torch=theirs)


def difference(case, device, wanted, why):
    """A difference as excuses look at it."""
    answer = case[device]
    inputs = [tensor(value) if isinstance(value, dict) else number(value) for value in case["in"]]
    outputs = [tensor(value, "data") for value in answer.get("out", [])]
    return excuses.Difference(
        case, device, answer, wanted, why, inputs, outputs, lambda: magnitudes(case), lambda: computed(case))


def main(path):
    classes, totals, excused = {}, collections.Counter(), collections.Counter()
    for line in open(path):
        case = json.loads(line)
        wanted = replay(case)
        totals["calls"] += 1
        for device in ("cpu", "cuda"):
            if device not in case:
                continue
            totals["answers"] += 1
            why = judge(case, case[device], wanted)
            if why is None:
                continue
            excuse = excuses.find(difference(case, device, wanted, why))
            if excuse:
                totals["excused"] += 1
                excused[excuse] += 1
                continue
            totals["unexplained"] += 1
            totals[why[0]] += 1
            add_to(classes, (device, *why), case, case[device], wanted, len(line))
    report(classes)
    for excuse, count in excused.most_common():
        print(f"{count:6} excused: {excuse.name}: {excuse.reason}")
    print(", ".join(f"{name} {count}" for name, count in totals.items()), f"classes {len(classes)}", sep=", ")
    return 1 if classes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
