"""Folders of quantised weights as others publish them, and the weights that the definition of their format gives.

quantised_folder.py make FORMAT SOURCE DIR [DTYPE]: SOURCE's matrices, quantised, as the folder DIR.
quantised_folder.py published DIR: what the weights of DIR, which Ashlar wrote, mean.
quantised_folder.py check DIR FOLDER: are FOLDER's float32 weights those of DIR, to the bit?

Nothing of Ashlar is used: codes are packed and unpacked here by the formats' own definitions (compressed-tensors,
AutoAWQ, AutoGPTQ, bitsandbytes, gpt-oss, DeepSeek), with values of Python's floats rounded to float32."""
import json, math, os, random, shutil, struct, sys

SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "U8": 1, "I8": 1, "F8_E4M3": 1}


# ---- numbers ---------------------------------------------------------------------------------------------------------
def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16_bits(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def bf16(x):
    return struct.unpack("<f", struct.pack("<I", bf16_bits(x) << 16))[0]


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def e4m3(code):
    sign, exponent, mantissa = -1 if code & 128 else 1, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


E4M3 = sorted((e4m3(c), c) for c in range(256) if c not in (127, 255, 128))
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
# The code books as bitsandbytes writes them beside the weights.
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
FP4 = [0.0, 0.0052083333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25,
       -0.0, -0.0052083333, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25]


def nearest_e4m3(x):
    low, high = 0, len(E4M3) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if E4M3[middle][0] <= x else (low, middle)
    return min((E4M3[low], E4M3[high]), key=lambda v: abs(v[0] - x))[1]


def nearest(x, values):
    return min(range(len(values)), key=lambda c: abs(values[c] - x))


# ---- safetensors -----------------------------------------------------------------------------------------------------
def read_tensors(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]])
            for n, t in header.items()}


def write_tensors(path, tensors):
    header, at, order = {}, 0, sorted(tensors, key=lambda n: -SIZES[tensors[n][0]])
    for name in order:
        dtype, shape, data = tensors[name]
        assert len(data) == SIZES[dtype] * math.prod(shape), name
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            out.write(tensors[name][2])


def floats(tensor):
    dtype, shape, data = tensor
    count = math.prod(shape)
    if dtype == "F32":
        return list(struct.unpack("<%df" % count, data))
    if dtype == "F16":
        return list(struct.unpack("<%de" % count, data))
    return [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in struct.unpack("<%dH" % count, data)]


def tensor(dtype, shape, values):
    if dtype == "BF16":
        return dtype, shape, struct.pack("<%dH" % len(values), *[bf16_bits(v) for v in values])
    code = {"F32": "f", "F16": "e", "I32": "I", "I64": "q", "U8": "B", "I8": "b", "F8_E4M3": "B"}[dtype]
    return dtype, shape, struct.pack("<%d%s" % (len(values), code), *values)


def pack(codes, bits):
    """Codes as one stream of bits in words of 32."""
    stream = 0
    for i, code in enumerate(codes):
        stream |= code << bits * i
    return [stream >> 32 * w & 0xFFFFFFFF for w in range((len(codes) * bits + 31) // 32)]


# ---- formats: each gives the tensors that are stored, and the weights that they mean -------------------------------------
def scaled(out, stem, rows, cols, w, block, top, encode, decode, names, scale_dtype):
    """Codes and a scale for each block of rows x columns."""
    br, bc = block[0] or rows, block[1] or cols
    across, down = -(-cols // bc), -(-rows // br)
    rounding = {"F32": f32, "BF16": bf16, "F16": f16}[scale_dtype]
    scales = []
    for i in range(down):
        for j in range(across):
            most = max(abs(w[r * cols + c]) for r in range(i * br, min(rows, i * br + br))
                       for c in range(j * bc, min(cols, j * bc + bc)))
            scales.append(rounding(most / top) or 1.0)
    at = lambda r, c: scales[r // br * across + c // bc]
    codes = [encode(w[r * cols + c] / at(r, c)) for r in range(rows) for c in range(cols)]
    dtype, suffix, scale_suffix = names
    shape = [1] if len(scales) == 1 and not block[0] else [down, across]
    out[stem + suffix] = tensor(dtype, [rows, cols], codes)
    out[stem + scale_suffix] = tensor(scale_dtype, shape, scales)
    return [f32(decode(codes[r * cols + c]) * at(r, c)) for r in range(rows) for c in range(cols)]


def fp8(block, suffix=".weight_scale", scale_dtype="F32"):
    return lambda out, stem, rows, cols, w: scaled(out, stem, rows, cols, w, block, 448, nearest_e4m3, e4m3,
                                                   ("F8_E4M3", ".weight", suffix), scale_dtype)


def int8(out, stem, rows, cols, w):
    return scaled(out, stem, rows, cols, w, (1, 0), 127, lambda x: max(-127, min(127, round(x))), float,
                  ("I8", ".weight", ".weight_scale"), "F32")


def pairs(codes):
    return [codes[i] | codes[i + 1] << 4 for i in range(0, len(codes), 2)]


def nvfp4(is_modelopt):
    def quantise(out, stem, rows, cols, w):
        if cols % 16:
            return None
        factor = f32(max(abs(x) for x in w) / (448 * 6)) or 1.0  # of ModelOpt; compressed-tensors stores its inverse
        if not is_modelopt:
            factor = f32(1 / factor)
        codes, scales, means = [], [], []
        for at in range(0, rows * cols, 16):
            most = max(abs(x) for x in w[at:at + 16]) / 6
            code = nearest_e4m3(most / factor if is_modelopt else most * factor)
            scale = f32(e4m3(code) * factor) if is_modelopt else f32(e4m3(code) / factor)
            scales.append(code)
            for x in w[at:at + 16]:
                codes.append(nearest(x / scale if scale else 0, E2M1))
                means.append(f32(E2M1[codes[-1]] * scale))
        out[stem + (".weight" if is_modelopt else ".weight_packed")] = tensor("U8", [rows, cols // 2], pairs(codes))
        out[stem + ".weight_scale"] = tensor("F8_E4M3", [rows, cols // 16], scales)
        out[stem + (".weight_scale_2" if is_modelopt else ".weight_global_scale")] = tensor(
            "F32", [] if is_modelopt else [1], [factor])
        return means
    return quantise


def mx_blocks(w):
    codes, scales, means = [], [], []
    for at in range(0, len(w), 32):
        most = max(abs(x) for x in w[at:at + 32])
        exponent = math.frexp(most)[1] - 3 if most else -127  # the largest of e2m1 has exponent 2
        scales.append(exponent + 127)
        for x in w[at:at + 32]:
            codes.append(nearest(x / 2.0**exponent, E2M1))
            means.append(f32(E2M1[codes[-1]] * 2.0**exponent))
    return codes, scales, means


def mxfp4(out, stem, rows, cols, w):
    if cols % 32:
        return None
    codes, scales, means = mx_blocks(w)
    out[stem + ".weight_packed"] = tensor("U8", [rows, cols // 2], pairs(codes))
    out[stem + ".weight_scale"] = tensor("U8", [rows, cols // 32], scales)
    return means


def mxfp4_experts(out, stem, shape, w):
    """[expert, input, output] as gpt-oss publishes them: [expert, output, input]."""
    experts, inputs, outputs = shape
    turned = [w[(e * inputs + i) * outputs + o] for e in range(experts) for o in range(outputs) for i in range(inputs)]
    codes, scales, means = mx_blocks(turned)
    out[stem + "_blocks"] = tensor("U8", [experts, outputs, inputs // 32, 16], pairs(codes))
    out[stem + "_scales"] = tensor("U8", [experts, outputs, inputs // 32], scales)
    return [means[(e * outputs + o) * inputs + i] for e in range(experts) for i in range(inputs) for o in range(outputs)]


def groups_of(rows, cols, w, group_of, count, bits, is_symmetric, rounding=f16):
    """Scales and zero points [group][row], codes [row][col] and what they mean."""
    most = (1 << bits) - 1
    scales, zeros = [[0.0] * rows for _ in range(count)], [[0] * rows for _ in range(count)]
    codes, means = [], []
    for r in range(rows):
        members = [[] for _ in range(count)]
        for c in range(cols):
            members[group_of[c]].append(w[r * cols + c])
        for g in range(count):
            low, high = min(members[g] + [0]), max(members[g] + [0])
            if is_symmetric:
                scales[g][r] = rounding(max(abs(low), abs(high)) / (most // 2)) or rounding(0.01)
                zeros[g][r] = (most + 1) // 2
            else:
                scales[g][r] = rounding((high - low) / most) or rounding(0.01)
                zeros[g][r] = max(1, min(most, round(-low / scales[g][r])))
        for c in range(cols):
            g = group_of[c]
            code = max(0, min(most, round(w[r * cols + c] / scales[g][r]) + zeros[g][r]))
            codes.append(code)
            means.append(f32((code - zeros[g][r]) * scales[g][r]))
    return scales, zeros, codes, means


def packed(bits, group, is_symmetric, acts=False):
    def quantise(out, stem, rows, cols, w):
        size = group or cols
        if cols % size:
            return None
        order = [c // size for c in range(cols)]
        if acts:
            random.Random(5).shuffle(order)
        count = cols // size
        scales, zeros, codes, means = groups_of(rows, cols, w, order, count, bits, is_symmetric, bf16)
        lines = [pack(codes[r * cols:r * cols + cols], bits) for r in range(rows)]
        out[stem + ".weight_packed"] = tensor("I32", [rows, len(lines[0])], [x for line in lines for x in line])
        out[stem + ".weight_scale"] = tensor("BF16", [rows, count],
                                             [scales[g][r] for r in range(rows) for g in range(count)])
        out[stem + ".weight_shape"] = tensor("I64", [2], [rows, cols])
        if acts:
            out[stem + ".weight_g_idx"] = tensor("I32", [cols], order)
        if not is_symmetric:
            columns = [pack(zeros[g], bits) for g in range(count)]
            out[stem + ".weight_zero_point"] = tensor(
                "I32", [len(columns[0]), count], [columns[g][i] for i in range(len(columns[0])) for g in range(count)])
        return means
    return quantise


def gptq(bits, group, acts=False, less_one=1):
    def quantise(out, stem, rows, cols, w):
        if cols * bits % 32 or rows * bits % 32:
            return None
        size = group or cols
        count = -(-cols // size)
        order = [c // size for c in range(cols)]
        if acts:
            random.Random(7).shuffle(order)
        scales, zeros, codes, means = groups_of(rows, cols, w, order, count, bits, False)
        lines = [pack([codes[r * cols + c] for c in range(cols)], bits) for r in range(rows)]
        stored = [pack([z - less_one for z in zeros[g]], bits) for g in range(count)]
        out[stem + ".qweight"] = tensor("I32", [len(lines[0]), rows],
                                        [lines[r][i] for i in range(len(lines[0])) for r in range(rows)])
        out[stem + ".qzeros"] = tensor("I32", [count, len(stored[0])], [x for line in stored for x in line])
        out[stem + ".scales"] = tensor("F16", [count, rows], [x for line in scales for x in line])
        out[stem + ".g_idx"] = tensor("I32", [cols], order)
        return means
    return quantise


def awq(out, stem, rows, cols, w):
    size = 32
    if rows % 8 or cols % size:
        return None
    count = cols // size
    scales, zeros, codes, means = groups_of(rows, cols, w, [c // size for c in range(cols)], count, 4, False)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    line = lambda values: [sum(values[at + order[i]] << 4 * i for i in range(8)) for at in range(0, rows, 8)]
    out[stem + ".qweight"] = tensor("I32", [cols, rows // 8],
                                    [x for c in range(cols) for x in line([codes[r * cols + c] for r in range(rows)])])
    out[stem + ".qzeros"] = tensor("I32", [count, rows // 8], [x for g in range(count) for x in line(zeros[g])])
    out[stem + ".scales"] = tensor("F16", [count, rows], [x for line in scales for x in line])
    return means


def bnb4(kind, is_nested):
    def quantise(out, stem, rows, cols, w):
        book, block = [f32(v) for v in (NF4 if kind == "nf4" else FP4)], 64
        tops = [max(abs(x) for x in w[at:at + block]) for at in range(0, len(w), block)]
        state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [rows, cols]}
        if is_nested:
            offset = f32(sum(tops) / len(tops))
            nested = [f32(max(abs(t - offset) for t in tops[at:at + 256])) or 1.0 for at in range(0, len(tops), 256)]
            levels = [f32(i / 128 - 1) for i in range(256)]
            marks = [nearest((t - offset) / nested[i // 256], levels) for i, t in enumerate(tops)]
            tops = [f32(f32(levels[m] * nested[i // 256]) + offset) for i, m in enumerate(marks)]
            state.update(nested_blocksize=256, nested_dtype="float32", nested_offset=offset)
            out[stem + ".weight.absmax"] = tensor("U8", [len(marks)], marks)
            out[stem + ".weight.nested_absmax"] = tensor("F32", [len(nested)], nested)
            out[stem + ".weight.nested_quant_map"] = tensor("F32", [256], levels)
        else:
            tops = [f32(t) for t in tops]
            out[stem + ".weight.absmax"] = tensor("F32", [len(tops)], tops)
        codes = [nearest(x / (tops[i // block] or 1), book) for i, x in enumerate(w)]
        out[stem + ".weight"] = tensor("U8", [len(w) // 2, 1], [codes[i] << 4 | codes[i + 1] for i in range(0, len(w), 2)])
        out[stem + ".weight.quant_map"] = tensor("F32", [16], book)
        text = json.dumps(state).encode()
        out[stem + ".weight.quant_state.bitsandbytes__" + kind] = ("U8", [len(text)], text)
        return [f32(book[c] * tops[i // block]) for i, c in enumerate(codes)]
    return quantise


def bnb8(out, stem, rows, cols, w):
    tops = [f32(max(abs(x) for x in w[r * cols:r * cols + cols])) or 1.0 for r in range(rows)]
    codes = [round(w[r * cols + c] / tops[r] * 127) for r in range(rows) for c in range(cols)]
    out[stem + ".weight"] = tensor("I8", [rows, cols], codes)
    out[stem + ".SCB"] = tensor("F32", [rows], tops)
    out[stem + ".weight_format"] = tensor("U8", [], [0])
    step = f32(7.874015718698502e-3)
    return [f32(f32(c * tops[i // cols]) * step) for i, c in enumerate(codes)]


def compressed(layout, **weights):
    return {"quant_method": "compressed-tensors", "format": layout, "quantization_status": "compressed",
            "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


FORMATS = {
    "fp8-block": (fp8((128, 128), ".weight_scale_inv"),
                  {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}),
    "fp8-small-block": (fp8((24, 40), ".weight_scale_inv", "BF16"),
                        {"quant_method": "fp8", "weight_block_size": [24, 40]}),
    "fp8-tensor": (fp8((0, 0)), {"quant_method": "fp8", "activation_scheme": "static"}),
    "fbgemm": (fp8((1, 0)), {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}),
    "ct-fp8-channel": (fp8((1, 0), scale_dtype="BF16"),
                       compressed("float-quantized", num_bits=8, type="float", strategy="channel")),
    "ct-fp8-tensor": (fp8((0, 0), scale_dtype="BF16"),
                      compressed("float-quantized", num_bits=8, type="float", strategy="tensor")),
    "ct-fp8-block": (fp8((16, 32)), compressed("float-quantized", num_bits=8, type="float", strategy="block",
                                               block_structure=[16, 32])),
    "ct-int8": (int8, compressed("int-quantized", num_bits=8, type="int", strategy="channel")),
    "ct-w4": (packed(4, 32, True), compressed("pack-quantized", num_bits=4, type="int", group_size=32)),
    "ct-w4-zeros": (packed(4, 16, False), compressed("pack-quantized", num_bits=4, type="int", group_size=16)),
    "ct-w4-order": (packed(4, 16, False, True), compressed("pack-quantized", num_bits=4, type="int", actorder="group")),
    "ct-w8-channel": (packed(8, 0, True), compressed("pack-quantized", num_bits=8, type="int", strategy="channel")),
    "ct-w3": (packed(3, 32, False), compressed("pack-quantized", num_bits=3, type="int", group_size=32)),
    "ct-nvfp4": (nvfp4(False), compressed("nvfp4-pack-quantized", num_bits=4, type="float", group_size=16)),
    "ct-mxfp4": (mxfp4, compressed("mxfp4-pack-quantized", num_bits=4, type="float", group_size=32)),
    "modelopt-nvfp4": (nvfp4(True), {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}),
    "modelopt-fp8": (fp8((0, 0)), {"quant_method": "modelopt", "quant_algo": "FP8"}),
    "mxfp4": (None, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}),
    "gptq": (gptq(4, 32), {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}),
    "gptq-order": (gptq(4, 32, True), {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}),
    "gptq-2": (gptq(2, 16), {"quant_method": "gptq", "bits": 2, "group_size": 16}),
    "gptq-3": (gptq(3, 32), {"quant_method": "gptq", "bits": 3, "group_size": 32}),
    "gptq-8": (gptq(8, 0), {"quant_method": "gptq", "bits": 8, "group_size": -1}),
    "gptq-v2": (gptq(4, 64, False, 0), {"quant_method": "gptq", "bits": 4, "group_size": 64,
                                        "checkpoint_format": "gptq_v2"}),
    "bnb-nf4": (bnb4("nf4", False), {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}),
    "bnb-fp4-nested": (bnb4("fp4", True), {"quant_method": "bitsandbytes", "load_in_4bit": True,
                                           "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": True}),
    "bnb-int8": (bnb8, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
}


# ---- folders ---------------------------------------------------------------------------------------------------------
def make(kind, source, folder, dtype):
    quantise, settings = FORMATS[kind]
    os.makedirs(folder)
    for name in os.listdir(source):
        if name.endswith(".json") and not name.startswith("reference"):
            shutil.copy(os.path.join(source, name), folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config.pop("torch_dtype", None)
    config["dtype"] = dtype
    config["quantization_config"] = settings
    json.dump(config, open(path, "w"), indent=2)
    rounding = {"float32": f32, "bfloat16": bf16, "float16": f16}[dtype]
    stored, means, count = {}, {}, 0
    for name, (kind_of, shape, data) in read_tensors(os.path.join(source, "model.safetensors")).items():
        values = floats((kind_of, shape, data))
        got = None
        if quantise is None and len(shape) == 3:
            got = mxfp4_experts(stored, name, shape, values)
        elif quantise is not None and len(shape) == 2 and "_proj" in name:
            got = quantise(stored, name[:-len(".weight")], shape[0], shape[1], values)
        if got is None:
            stored[name] = (kind_of, shape, data)
            means[name] = (kind_of, shape, data)
        else:
            means[name] = tensor("F32", shape, [rounding(x) for x in got])
            count += 1
    write_tensors(os.path.join(folder, "model.safetensors"), stored)
    write_tensors(os.path.join(folder, "means.bin"), means)
    print(count)


def check(folder, other):
    means, found = read_tensors(os.path.join(folder, "means.bin")), read_tensors(os.path.join(other, "model.safetensors"))
    assert sorted(means) == sorted(found), "other tensors"
    for name, want in means.items():
        got = found[name]
        assert got[0] == "F32" and got[1] == want[1], (name, got[:2], want[:2])
        for i, (a, b) in enumerate(zip(floats(want), floats(got))):
            if struct.pack("<f", a) != struct.pack("<f", b) and not a == b == 0:
                sys.exit(f"{name}: weight {i} is {b!r}, the definition gives {a!r}")
    if "quantization_config" in json.load(open(os.path.join(other, "config.json"))):
        sys.exit("config.json still says that the weights are quantised")


# ---- folders that Ashlar wrote ---------------------------------------------------------------------------------------
def lines(tensor):
    """The rows of words of a matrix."""
    _, (rows, cols), data = tensor
    words = struct.unpack("<%dI" % (rows * cols), data)
    return [words[r * cols:r * cols + cols] for r in range(rows)]


def unpaired(data):
    return [E2M1[b >> s & 15] for b in data for s in (0, 4)]


def published(folder):
    """Writes what the weights of a folder mean, as compressed-tensors and gpt-oss define them."""
    config = json.load(open(os.path.join(folder, "config.json")))
    settings = config["quantization_config"]
    rounding = f16 if config.get("dtype", config.get("torch_dtype")) == "float16" else bf16
    stored, means = read_tensors(os.path.join(folder, "model.safetensors")), {}
    layout = settings.get("format", settings["quant_method"])
    scale_of = {"float-quantized": None, "nvfp4-pack-quantized": 16, "mxfp4-pack-quantized": 32, "mxfp4": 32,
                "awq": settings.get("group_size")}[layout]
    for name, (kind, shape, data) in stored.items():
        stem = name.rsplit(".weight", 1)[0]
        if name.endswith(("_scale", "_scales", ".scales", ".qzeros")):
            continue
        if layout == "float-quantized" and kind == "F8_E4M3":
            assert stored[name + "_scale"][:2] == ("BF16", [shape[0], 1]), name
            scales, cols = floats(stored[name + "_scale"]), shape[1]
            means[name] = tensor("F32", shape, [rounding(f32(e4m3(c) * scales[i // cols])) for i, c in enumerate(data)])
        elif name.endswith(".weight_packed"):
            rows, cols = shape[0], shape[1] * 2
            kind_of, scale_shape, scales = stored[stem + ".weight_scale"]
            assert scale_shape == [rows, cols // scale_of], (name, scale_shape)
            if layout == "nvfp4-pack-quantized":
                factor = floats(stored[stem + ".weight_global_scale"])[0]
                scales = [f32(e4m3(c) / factor) for c in scales]
            else:
                assert kind_of == "U8"
                scales = [2.0 ** (c - 127) for c in scales]
            means[stem + ".weight"] = tensor("F32", [rows, cols],
                                             [rounding(f32(v * scales[i // scale_of])) for i, v in enumerate(unpaired(data))])
        elif name.endswith(".qweight"):
            order, stem = [0, 2, 4, 6, 1, 3, 5, 7], name[:-len(".qweight")]
            codes, zeros = [[[w >> 4 * order.index(r % 8) & 15 for r in range(shape[1] * 8) for w in [line[r // 8]]]
                             for line in lines(stored[part])] for part in (name, stem + ".qzeros")]
            scales, cols, rows = floats(stored[stem + ".scales"]), shape[0], shape[1] * 8
            means[stem + ".weight"] = tensor("F32", [rows, cols], [
                rounding(f32((codes[c][r] - zeros[c // scale_of][r]) * scales[c // scale_of * rows + r]))
                for r in range(rows) for c in range(cols)])
        elif name.endswith("_blocks"):
            experts, outputs, groups, _ = shape
            scales, values = stored[name[:-len("_blocks")] + "_scales"][2], unpaired(data)
            values = [rounding(f32(v * 2.0 ** (scales[i // 32] - 127))) for i, v in enumerate(values)]
            inputs = groups * 32
            means[name[:-len("_blocks")]] = tensor("F32", [experts, inputs, outputs], [
                values[(e * outputs + o) * inputs + i]
                for e in range(experts) for i in range(inputs) for o in range(outputs)])
        else:
            means[name] = tensor("F32", shape, floats((kind, shape, data)))
    write_tensors(os.path.join(folder, "means.bin"), means)


def random_model(folder, config):
    """A llama or gpt-oss model of drawn weights."""
    config = json.load(open(config))
    config.update(hidden_size=64, intermediate_size=160, num_hidden_layers=1, vocab_size=64)
    if "layer_types" in config:
        config.update(intermediate_size=96, layer_types=config["layer_types"][:1])
    os.makedirs(folder)
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    draw = random.Random(11)
    h, f, d = 64, config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [64, h], "lm_head.weight": [64, h], "model.norm.weight": [h],
              layer + "input_layernorm.weight": [h], layer + "post_attention_layernorm.weight": [h],
              layer + "self_attn.q_proj.weight": [q, h], layer + "self_attn.k_proj.weight": [kv, h],
              layer + "self_attn.v_proj.weight": [kv, h], layer + "self_attn.o_proj.weight": [h, q]}
    if config["model_type"] == "gpt_oss":
        experts, mlp = config["num_local_experts"], layer + "mlp."
        shapes.update({layer + "self_attn.sinks": [config["num_attention_heads"]],
                       mlp + "router.weight": [experts, h], mlp + "router.bias": [experts],
                       mlp + "experts.gate_up_proj": [experts, h, 2 * f],
                       mlp + "experts.gate_up_proj_bias": [experts, 2 * f],
                       mlp + "experts.down_proj": [experts, f, h], mlp + "experts.down_proj_bias": [experts, h]})
        for name, size in (("q", q), ("k", kv), ("v", kv), ("o", h)):
            shapes[layer + f"self_attn.{name}_proj.bias"] = [size]
    else:
        for name, shape in (("gate", [f, h]), ("up", [f, h]), ("down", [h, f])):
            shapes[layer + f"mlp.{name}_proj.weight"] = shape
    write_tensors(os.path.join(folder, "model.safetensors"), {
        n: tensor("F32", s, [f32(draw.gauss(0, 0.05)) for _ in range(math.prod(s))]) for n, s in shapes.items()})


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(*sys.argv[2:5], sys.argv[5] if len(sys.argv) > 5 else "float32")
    elif sys.argv[1] == "check":
        check(*sys.argv[2:4])
    elif sys.argv[1] == "published":
        published(sys.argv[2])
    elif sys.argv[1] == "random":
        random_model(*sys.argv[2:4])
    else:
        print("\n".join(FORMATS))
