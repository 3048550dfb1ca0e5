"""Replays random tensor operations on PyTorch and compares its answers with those in a file.

    python replay.py FILE

FILE has one call in JSON on each line, with the answers of the host (`cpu`) and of the simulated device (`cuda`). Compared
are dtype, sizes, strides, values and the first line of an error's text. Values of functions that are computed by
approximation, and of sums, may differ by a few units in the last place. Differences are grouped into classes; the smallest
call of each is printed. The last line counts; the exit code is 1 when a call differs.
"""

import base64
import collections
import json
import re
import sys
import warnings

import torch

warnings.simplefilter("ignore")
torch.set_num_threads(1)

DTYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
    "f64": torch.float64, "c32": torch.complex32, "c64": torch.complex64, "c128": torch.complex128,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
EXACT = set("""abs bitwise_not ceil conj_physical floor frac isfinite isinf isnan logical_not neg positive relu round sign
signbit square trunc nan_to_num add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign
div_trunc eq floor_divide fmax fmin fmod gcd ge gt le logical_and logical_or logical_xor lt maximum minimum mul ne nextafter
remainder sub where masked_fill copy fill clamp amax amin any all count_nonzero max min argmax argmin cummax cummin gather
scatter index_select index_copy masked_select nonzero sort argsort topk cat stack flip roll repeat expand view reshape tril
triu to select narrow squeeze unsqueeze transpose permute split chunk full arange eye""".split())


def number(value):
    if isinstance(value, str):
        return float(value)
    if isinstance(value, list):
        return complex(*(number(part) for part in value))
    return value


def tensor(stored, key="storage"):
    data = bytearray(base64.b64decode(stored[key]))
    dtype = DTYPES[stored["dtype"]]
    if not data:
        return torch.empty(stored["shape"], dtype=dtype)
    flat = torch.frombuffer(data, dtype=torch.uint8).clone().view(dtype)
    if key == "data":
        return flat.reshape(stored["shape"])
    return flat.as_strided(stored["shape"], stored["stride"], stored["offset"])


def function(op, form, inputs, args):
    """The call on torch, as a function without arguments."""
    if "dtype" in args:
        args["dtype"] = DTYPES[args["dtype"]]
    for name in ("alpha", "value", "min", "max", "weight", "fill", "p"):
        if name in args:
            args[name] = number(args[name])
    if op in ("div_trunc", "true_divide"):
        args["rounding_mode"] = "trunc" if op == "div_trunc" else None
        op = "div"
    if form == "inplace":
        if op == "copy":
            return lambda: inputs[0].copy_(inputs[1])
        if op == "fill":
            return lambda: inputs[0].fill_(args["value"])
        if op == "masked_fill":
            return lambda: inputs[0].masked_fill_(inputs[1], args["value"])
        if op.startswith(("scatter", "index_")):
            dim = args.pop("dim")
            return lambda: getattr(inputs[0], op + "_")(dim, *inputs[1:], **args)
        if op in ("logsigmoid", "gelu", "mish", "silu", "relu"):
            names = {"logsigmoid": None, "gelu": None, "mish": torch._C._nn.mish_, "silu": torch._C._nn.silu_}
            return lambda: names.get(op, torch.relu_)(inputs[0])
        return lambda: getattr(inputs[0], op + "_")(*inputs[1:], **args)
    if form == "out":
        *inputs, out = inputs
        args["out"] = out
    if op == "masked_fill":
        return lambda: inputs[0].masked_fill(inputs[1], args["value"])
    if op in ("scatter", "scatter_add", "gather", "index_select", "index_add", "index_copy"):
        dim = args.pop("dim")
        return lambda: getattr(torch, op)(inputs[0], dim, *inputs[1:], **args)
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
    if op == "to":
        return lambda: inputs[0].to(args["dtype"])
    if op == "split":
        return lambda: torch.split(inputs[0], args["size"], args["dim"])
    if op in ("logsigmoid", "gelu", "mish", "silu"):
        owner = {"logsigmoid": torch._C._nn.log_sigmoid}.get(op) or getattr(torch._C._nn, op)
        return lambda: owner(*inputs, **args)
    return lambda: getattr(torch, op)(*inputs, **args)


def replay(case):
    """The outputs of torch, or the first line of its error and the error's type."""
    inputs = [tensor(value) if isinstance(value, dict) else number(value) for value in case["in"]]
    try:
        found = function(case["op"], case["form"], inputs, dict(case["args"]))()
        return [found] if isinstance(found, torch.Tensor) else list(found)
    except Exception as error:
        return type(error).__name__, str(error).split("\n")[0]


def differs(op, wanted, found):
    """The kind of the first difference of an output, or None."""
    if NAMES.get(wanted.dtype) != found["dtype"]:
        return f"dtype {found['dtype']} instead of {NAMES.get(wanted.dtype)}"
    if list(wanted.shape) != found["shape"]:
        return "sizes"
    if list(wanted.stride()) != found["stride"]:
        return "strides"
    ours = tensor(found, "data")
    theirs = wanted.resolve_conj().contiguous()
    if ours.is_complex():
        ours, theirs = torch.view_as_real(ours), torch.view_as_real(theirs)
    equal = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    if bool(equal.all()):
        return None
    if op in EXACT or not ours.is_floating_point():
        return "values"
    unit = torch.finfo(ours.dtype).eps
    near = (ours.double() - theirs.double()).abs() <= 16 * unit * theirs.double().abs().amax().clamp(min=unit)
    near |= (ours.double() - theirs.double()).abs() <= 16 * unit * theirs.double().abs()
    return None if bool((equal | near).all()) else "values"


def judge(case, answer, wanted):
    """The class of the difference, or None."""
    if "absent" in answer:
        return None
    if "panic" in answer:
        return ("panic", case["op"])
    refused = isinstance(wanted, tuple)
    if "error" in answer:
        text = answer["error"].split("\n")[0]
        if not refused:
            return ("refused", case["op"] + ": " + general(text))
        if wanted[0] in ("TypeError", "AttributeError") or without_kernel(text) == without_kernel(wanted[1]):
            return None
        return ("text", f"{general(text)}  |  torch: {general(wanted[1])}")
    if refused:
        # Python has no such call, or its reader of arguments refuses what Rust's types allow.
        return None if wanted[0] in ("TypeError", "AttributeError") else ("accepted", general(wanted[1]))
    if len(wanted) != len(answer["out"]):
        return ("outputs", case["op"])
    for theirs, ours in zip(wanted, answer["out"]):
        why = differs(case["op"], theirs, ours)
        if why:
            return (why.split(" ")[0], f"{case['op']} {case['form']} {NAMES.get(theirs.dtype)} {why}")
    return None


def without_kernel(text):
    """The text without the kernel's name, which differs between the host and CUDA."""
    return re.sub(r'"\w+" not implemented', "not implemented", text)


def general(text):
    text = re.sub(r"\[[-\d, ]*\]", "[N]", text)
    text = re.sub(r"(torch\.)?(u?int\d+|u?int\d+_t|bfloat16|float\d*|half|bool|complex\d*)\b", "DTYPE", text)
    text = re.sub(r"\b(Bool|Byte|Char|Short|Int|Long|Half|BFloat16|Float|Double|Complex\w+)\b", "DTYPE", text)
    return re.sub(r"-?\d+(\.\d+)?", "N", text)


def shown(case):
    def one(value):
        if not isinstance(value, dict):
            return repr(value)
        return f"{value['dtype']}{value['shape']}:{value['stride']}+{value['offset']}"
    return f"{case['op']}{'.' + case['form'] if case['form'] else ''}({', '.join(map(one, case['in']))}) {case['args']}"


def main(path):
    classes, totals, ops = {}, collections.Counter(), collections.defaultdict(collections.Counter)
    for line in open(path):
        case = json.loads(line)
        try:
            wanted = replay(case)
        except Exception as error:
            raise SystemExit(f"cannot replay {shown(case)}: {error}")
        totals["calls"] += 1
        for device in ("cpu", "cuda"):
            if device not in case:
                continue
            totals["answers"] += 1
            why = judge(case, case[device], wanted)
            if why is None:
                continue
            totals["differ"] += 1
            totals[why[0]] += 1
            key = (device, *why)
            ops[key][case["op"]] += 1
            answer = case[device].get("error", case[device])
            theirs = wanted[1] if isinstance(wanted, tuple) else [value.tolist() for value in wanted]
            entry = classes.setdefault(key, [0, len(line), None])
            entry[0] += 1
            if entry[2] is None or len(line) < entry[1]:
                ours = answer if isinstance(answer, str) else [
                    tensor(value, "data").tolist() for value in answer.get("out", [])
                ]
                entry[1:] = [len(line), (shown(case), ours, theirs)]
    for key, (count, _, (call, ours, theirs)) in sorted(classes.items(), key=lambda item: (item[0][0], -item[1][0])):
        names = ", ".join(f"{op} {n}" for op, n in ops[key].most_common(6))
        print(f"{count:6} {key[0]} {key[1]}: {key[2]}\n       in {names}\n       {call}")
        print(f"       ours: {str(ours)[:300]}\n       torch: {str(theirs)[:300]}")
    print(", ".join(f"{name} {count}" for name, count in totals.items()), f"classes {len(classes)}", sep=", ")
    return 1 if classes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
