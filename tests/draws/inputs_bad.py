"""Mutated inputs: something well-formed, changed in one to four places in ways that people, programs and attackers do."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from inputs_good import AXES, BY, WHERE
from inputs_good import case as good_case
from inputs_run import Case

from symsim.algebra.vocabulary import SYMBOLS
from symsim.api.cli import app
from symsim.evaluation.quantities import QUANTITIES
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.reading import format_yaml, parse_yaml
from symsim.inputs.shipped import models_directory
from symsim.inputs.spellings import ALIASES
from symsim.inputs.strategy import Strategy

TEXTS = (
    "", " ", "x", "x" * 3000, "\x1b[31mred\x1b[0m", "\x07\x9b2J", "\ud800", "\u202eabc", "\ufeff", "a\nb", "\0", "日本語", "🙂" * 50, "é\u0301",
    "null", "true",
    "~", "NaN", "inf", "-inf", "1e309", "0x10", "1_000", "٣", "²", "__class__", "{{7*7}}", "$(id)", "`id`", "%s%n", "../../etc/passwd", "'", '"',
    "\\", "<b>",
    "a" * 255, "a/" * 200, "=", ",", ":", "#", "@", "*", "&a", "!!int", "|", "-", "--", "--help", "1;2", "1 2", "\t", "\r", "\u2028", "\x85",
    "tp", "E", "i",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "1", "2", "3", "7", "1.5", "-0.0", "0.1", "1e-300", "1e300", "1e308", "1e309", "1e400", "9" * 19, "9" * 400, "9" * 5000, "10000",
    "65536", "1000000",
    "1000000000", "1000000000000000", "1000000000000001", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "-9223372036854775808", "1e18", "1e-5",
    "0.30000000000000004", "3.0", "00", "+4", "4.", ".5", "1e", "256", "257", "131072",
)  # fmt: skip
# what a size or a degree may well be, small, odd and at its bound
LIKELY = (
    "1",
    "2",
    "3",
    "4",
    "5",
    "7",
    "8",
    "16",
    "64",
    "100",
    "128",
    "256",
    "1024",
    "10000",
    "500000",
    "1000000",
    "1000000000000",
    "1000000000000000",
)

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 7, 64, 1.5, -0.5, 0.0, 1e308, -1e308, 1e-308, 10**6, 10**9, 10**15, 10**15 + 1, 10**19, 10**40, 10**309,
    2**63, -(2**63), [], {}, [1, 2], ["a"],
    [[[]]], {"a": 1}, {"": {}}, [None], "", "8", "1e3", "true", "x" * 500, "\x1b[31m", "\ud800", "\u202e", "日本", "a\nb", "moe", "dense", "fp8",
    "none", "mla",
)  # fmt: skip

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
                  max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False, hidden_act="silu", attention_bias=False),
    "mixtral": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
                    num_local_experts=4, num_experts_per_tok=2, sliding_window=None, hidden_act="silu"),
    "deepseek_v3": dict(hidden_size=64, intermediate_size=128, moe_intermediate_size=32, num_hidden_layers=3, num_attention_heads=4, vocab_size=256,
                        n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=16,
                        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, n_group=2, topk_group=1, hidden_act="silu"),
    "gpt2": dict(n_embd=64, n_head=4, n_layer=2, n_positions=128, vocab_size=256, activation_function="gelu_new", resid_pdrop=0.1, attn_pdrop=0.1),
    "gemma2": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
    head_dim=16,
                   sliding_window=64, layer_types=["sliding_attention", "full_attention"] * 2, hidden_activation="gelu_pytorch_tanh"),
    "qwen3_next": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
    head_dim=16,
                       linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, num_experts=4,
                       num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32, hidden_act="silu"),
    "falcon": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=256, multi_query=True, parallel_attn=True, alibi=False,
    bias=False),
    "qwen2_moe": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
    num_experts=4,
                      num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32, decoder_sparse_step=1, mlp_only_layers=[]),
    "gemma3": dict(text_config=dict(hidden_size=64, intermediate_size=128, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2,
                                    vocab_size=256, head_dim=16, sliding_window=64), vision_config=dict(hidden_size=8)),
}  # fmt: skip

COLUMNS = "op,seconds,m,n,k,groups,kind,width_in,width_out,b,heads,s_q,n_keys,d_qk,d_v,causal,bytes,ranks,precision"


def _measured() -> list[str]:
    """Times such as one measures, of every operation."""
    rows = []
    for size in (1024, 4096, 16384):
        for kind, out in (("forward", 2), ("dgrad", 2), ("wgrad", 4)):
            rows.append(f"gemm,{2 * size * 4096 * 4096 / 7e14 + 1e-5},{size},4096,4096,,{kind},2,{out},,,,,,,,,,bf16")
        rows.append(f"grouped_gemm,{16 * size * 2048 * 2048 / 6e14 + 1e-5},{size},2048,2048,8,forward,2,2,,,,,,,,,,bf16")
        for kind, times in (("forward", 4), ("backward", 10)):
            rows.append(f"attention,{times * 16 * size * size * 128 / 5e14 + 1e-5},,,,,{kind},,,1,32,{size},{size},128,128,1,,,bf16")
        for kind in ("elementwise", "permute", "cross_entropy"):
            rows.append(f"memory,{size * 40000 / 2.5e12 + 5e-6},,,,,{kind},,,,,,,,,,{size * 40000},,")
        for op, ranks in (("all_reduce", 8), ("all_reduce", 16), ("all_gather", 8), ("all_to_all", 8)):
            rows.append(f"{op},{size * 20000 / 3e11 + 2e-5 * ranks},,,,,,,,,,,,,,,{size * 20000},{ranks},")
    return [COLUMNS, *rows]


POINTS = "\n".join(_measured()) + "\n"
SMALL = b"name: small\nhidden_size: 64\nvocab_size: 256\nlayers: 2\nattention: {num_attention_heads: 4}\nmlp: {ffn_hidden_size: 128}\n"

# what a mutated file stands for now and then: not a file, or none that holds text
STRANGE: tuple[bytes | None, ...] = (
    None, b"", b"\0" * 64, b"\x7fELF\x02\x01\x01", b"\xff\xfe\x00a", b"PK\x03\x04", b"link:/dev/null", b"link:/nowhere", b"link:.",
    b"link:itself", b"mode:name: x\n",
    b"\xef\xbb\xbf", b"---\n---\n", b"a: &a [*a]\n", b"- " * 3000, b"{" * 3000, b"[" * 100000, b"? a\n", b"%YAML 9.9\n---\na: 1\n",
    b"a: !!python/object:os.system x\n",
    b"a: &a ['x','x']\nb: &b [*a,*a]\nc: [*b,*b]\n", b"\xed\xa0\x80", b"link:/dev/zero", b"link:/proc/self/mem", b"x: " + b"9" * 5000,
    b'{"a": ' * 500, b"a: |\n  \x1b[31m\n",
)  # fmt: skip


def case(kind: str, seed: int, number: int) -> Case:
    """The mutated input of a kind and a number."""
    return KINDS[kind](random.Random(f"{kind} {seed} {number}"))


# what is mutated


@cache
def _source(path: Path) -> tuple[str, dict[str, Any]]:
    """A shipped file as text and data, its prose shortened: reading it again is what most of the time goes into."""
    data = parse_yaml(path.read_text(), path.name).data
    for key in data.keys() & {"source", "fact", "title"}:
        data[key] = "t"
    if "sources" in data:
        data["sources"] = dict.fromkeys(data["sources"], "s")
    return _yaml(data), data


def _shipped(rng: random.Random, folder: str) -> tuple[str, dict[str, Any]]:
    return _source(rng.choice(sorted((models_directory() / folder).glob("*.yaml"))))


def _file(rng: random.Random, text: str, data: dict[str, Any] | None, *, as_json: bool = False) -> bytes | None:
    """The content of a file, mutated as data, as text or as bytes, or replaced by what is no such file."""
    how = rng.choices(("data", "text", "bytes", "strange"), (60 if data else 0, 25, 8, 7))[0]
    if how == "strange":
        return rng.choice(STRANGE)
    if how == "data":
        changed = deepcopy(data)
        for _ in range(rng.choice((1, 1, 2, 4))):
            _change(rng, changed)
        text = json.dumps(changed) if as_json else _yaml(changed)
    elif how == "text":
        text = _text(rng, text)
    raw = text.encode("utf-8", "surrogatepass")
    if how == "bytes":
        at = rng.randrange(len(raw) + 1)
        raw = raw[:at] + rng.choice((b"", bytes([rng.randrange(256)]), b"\xc3", b"\0", rng.randbytes(20))) + raw[at + rng.choice((0, 1, len(raw))) :]
    return raw


def _yaml(data: Any) -> str:
    try:
        return format_yaml(data) if isinstance(data, dict) else json.dumps(data)
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError):
        return json.dumps(data)


def _change(rng: random.Random, data: Any) -> None:
    """One change somewhere in nested data: a value replaced, dropped, moved, renamed, doubled, or nested."""
    holder: Any = data
    while True:
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        if not keys:
            if isinstance(holder, dict):
                holder[rng.choice(TEXTS)] = rng.choice(VALUES)
            return
        key = rng.choice(list(keys))
        if not isinstance(holder[key], (dict, list)) or not holder[key] or rng.random() < 0.25:
            break
        holder = holder[key]
    what = rng.choices(("value", "scale", "drop", "rename", "add", "nest", "swap"), (40, 28, 8, 8, 8, 3, 5))[0]
    value = holder[key]
    if what == "scale" and isinstance(value, (int, float)) and not isinstance(value, bool):
        holder[key] = rng.choice(
            (-value, value * 10**6, value * 10**14, value + 1, value - 1, value // 2, str(value), float(min(value, 10**300)) / 3)
        )
    elif what == "scale" and isinstance(value, str) and re.search("[0-9]", value):
        holder[key] = re.sub(r"[0-9]+(?:\.[0-9]+)?", rng.choice((*LIKELY, "0", "1e-25", "1e25", "0.5")), value, count=1)
    elif what == "drop":
        del holder[key]
    elif what in ("rename", "add") and isinstance(holder, dict):
        name = rng.choice((rng.choice(TEXTS), f"{key}x", str(key)[:-1], str(key).upper()))
        holder[name] = rng.choice(VALUES) if what == "add" else holder.pop(key)
    elif what == "nest":
        for _ in range(rng.choice((1, 50, 200))):
            value = [value] if rng.random() < 0.5 else {"a": value}
        holder[key] = value
    elif what == "swap":
        other = rng.choice(list(keys))
        holder[key], holder[other] = holder[other], holder[key]
    else:
        holder[key] = deepcopy(rng.choice(VALUES)) if not isinstance(value, list) or rng.random() < 0.5 else value * rng.choice((0, 2, 300))


def _text(rng: random.Random, text: str) -> str:
    """Text with pieces dropped, doubled, swapped, replaced or put in."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 1, 1, 3, 10)))
        what = rng.choice(("drop", "double", "put", "put", "number", "cut", "line", "name"))
        if what == "drop":
            text = text[:at] + text[end:]
        elif what == "double":
            text = text[:end] + text[at:end] * rng.choice((1, 1, 40)) + text[end:]
        elif what == "put":
            text = text[:at] + rng.choice(TEXTS) + text[end:]
        elif what == "number":
            numbers = list(re.finditer(r"[0-9]+(?:\.[0-9]+)?", text))
            if numbers:
                found = rng.choice(numbers)
                text = text[: found.start()] + rng.choice(NUMBERS) + text[found.end() :]
        elif what == "cut":
            text = text[:at] if rng.random() < 0.3 else text
        elif what == "name":
            words = list(re.finditer(r"[A-Za-z_]+", text))
            if words:
                found = rng.choice(words)
                text = (
                    text[: found.start()] + rng.choice((rng.choice(words)[0], found[0][:-1], found[0] + "s", rng.choice(TEXTS))) + text[found.end() :]
                )
        else:
            lines = text.split("\n")
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
            text = "\n".join(lines)
    return text


# kinds of cases


def _model(rng: random.Random) -> Case:
    text, data = _shipped(rng, ".")
    name = rng.choices(("m.yaml", "m.yml", "d/model.yaml", rng.choice(TEXTS)[:80].replace("/", "_").replace("\0", "") + ".yaml"), (85, 5, 5, 5))[0]
    command = rng.choices((("eval", "--json"), ("eval",), ("derive",), ("eval", "-y", "h100-sxm")), (80, 10, 3, 7))[0]
    return Case((*command, "d" if name == "d/model.yaml" else name), {_stored(name): _file(rng, text, data)})


def _stored(name: str) -> str:
    # a name with half a character stands in the file system as no byte can be decoded
    return re.sub("[\ud800-\udfff]", "?", name)


def _config(rng: random.Random) -> Case:
    kind = rng.choice(sorted(CONFIGS))
    data = {"model_type": kind, "architectures": ["X"], **CONFIGS[kind]}
    content = _file(rng, json.dumps(data, indent=1), data, as_json=True)
    if rng.random() < 0.5:
        output = rng.choice((None, "out"))
        written = ("out/model.yaml", "out") if output else (None, None)
        return Case(("import", "hf", "c.json", *(["-o", output] if output else [])), {"c.json": content}, *written)
    return Case(("eval", "c.json", "--json"), {"c.json": content})


def _inline(rng: random.Random) -> str:
    given = good_case(rng.randrange(10**6), 0).arguments
    return next((given[i + 1] for i, word in enumerate(given) if word == "-s" and "=" in given[i + 1]), "tp=2,sp=true,pp=2,num_microbatches=8")


def _strategy(rng: random.Random) -> Case:
    model = rng.choice(("m.yaml", "llama3-8b", "mixtral-8x7b", "deepseek-v3"))
    files: dict[str, bytes | None] = {"m.yaml": SMALL}
    if rng.random() < 0.3:
        pairs = dict(part.partition("=")[::2] for part in _inline(rng).split(",") if "=" in part)
        data: dict[str, Any] = {k: int(v) if v.isdigit() else v == "true" if v in ("true", "false") else v for k, v in pairs.items()}
        files["s.yaml"] = _file(rng, format_yaml(data), data)
        return Case(("eval", model, "-s", "s.yaml", "--json"), files)
    if rng.random() < 0.5:
        text = _text(rng, _inline(rng))
    else:
        names = [*Strategy.model_fields, *ALIASES]
        chosen = [
            f"{rng.choice(names)}={rng.choice((*(rng.choice(c) for c in (LIKELY, LIKELY, NUMBERS, TEXTS)), 'true', 'none', 'full'))}"
            for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        text = ",".join(chosen)
    return Case(("eval", model, "-s", text, "--json"), files)


def _system(rng: random.Random) -> Case:
    text, data = _shipped(rng, "systems")
    command = rng.choices((("eval", "m.yaml", "-y", "s.yaml"), ("eval", "m.yaml", "-s", "dp=16", "-y", "s.yaml", "--json")), (30, 70))[0]
    return Case(command, {"s.yaml": _file(rng, text, data), "m.yaml": SMALL})


@cache
def _settable() -> list[str]:
    return [*SYMBOLS, *Strategy.model_fields, *ALIASES, *(f"assume.{a}" for a in ASSUMPTIONS), "hidden_size", "attention.kind",
    "layer_kinds.dense.window",
            "accelerator.memory", "network.1.bandwidth", "kernels.gemm.efficiency", "B_1", "eta_1_all_reduce", "moe.num_moe_experts",
            "num_layers"]  # fmt: skip


def _set(rng: random.Random) -> Case:
    settings: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = rng.choice((rng.choice(LIKELY), rng.choice(LIKELY), rng.choice(NUMBERS), rng.choice(TEXTS), "true", "900 GB/s"))
        text = f"{rng.choice(_settable())}={value}"
        settings += ["--set", _text(rng, text) if rng.random() < 0.3 else text]
    model = rng.choice(("m.yaml", "m.yaml", "llama3-8b", "mixtral-8x7b"))
    return Case(("eval", model, *settings, *rng.choice(((), ("-y", "h100-sxm"))), *rng.choice((("--json",), ("--json",), ()))), {"m.yaml": SMALL})


EXPRESSIONS = (*WHERE, *BY, "ceil(time.step/0.1) % 2 == 0", "floor(mfu*100) // 3 < 7", "min(tp, pp, dp) + log2(world)", "1/0", "tp in (1, 2)",
"recompute == 'full'",
               "2**3**2", "-tp", "(((tp)))", "tp < pp < dp", "abs(time.step - 1)", "system == 'h100-sxm'", "1e308*1e308", "0/0", "mfu/(tp-1)",
               "ceil(1/0)")  # fmt: skip


def _expression(rng: random.Random) -> str:
    text = rng.choice(EXPRESSIONS)
    if rng.random() < 0.3:
        text = f"{text}{rng.choice((' and ', ' or ', '*', '/', '+', '//', '%', '**', ' == ', ','))}{rng.choice(EXPRESSIONS)}"
    if rng.random() < 0.2:
        text = re.sub(r"[a-z_][a-z_.]+", lambda m: rng.choice((m[0], rng.choice([*QUANTITIES, *SYMBOLS]))), text)
    return _text(rng, text) if rng.random() < 0.6 else text


def _condition(rng: random.Random) -> Case:
    asked = []
    for option in rng.sample(("--where", "--by", "--pareto", "--columns"), rng.choice((1, 1, 2))):
        asked += [option, ",".join(_expression(rng) for _ in range(rng.choice((1, 2)))) if option in ("--pareto", "--columns") else _expression(rng)]
    if "--by" in asked:
        asked += ["--top", rng.choice(("1", "3", "0", "-1", "1000000000000"))]
    return Case(("sweep", "m.yaml", "-y", "h100-sxm", "--axis=dp=1,2", "--axis=tp=1,2,4", "--backend", "numpy", *asked), {"m.yaml": SMALL})


def _axis(rng: random.Random) -> Case:
    axes = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.4:
            name = rng.choice((*Strategy.model_fields, *SYMBOLS, "hidden_size", "num_layers", "system", "assume.causal", "model"))
            values = (
                rng.choice(
                    (
                        rng.choice(LIKELY),
                        rng.choice(LIKELY),
                        rng.choice(NUMBERS),
                        rng.choice(TEXTS),
                        "1:4",
                        "1:1000000000",
                        "1:64:*2",
                        "1:2:0.1",
                        "true",
                        "full",
                    )
                )
                for _ in range(rng.choice((1, 2, 3)))
            )
            axes.append(f"{name}={','.join(values)}")
        else:
            axes.append(_text(rng, rng.choice((*AXES, "@p.csv", "tp=@p.csv", "dp=@p.csv#tp"))))
    files: dict[str, bytes | None] = {"m.yaml": SMALL}
    if any("@" in axis for axis in axes):
        files["p.csv"] = _file(rng, "tp,dp\n1,2\n2,4\n", None)
    output = rng.choice((None, None, "x.csv", "x.parquet"))
    words = [word for axis in axes for word in ("--axis", axis)]
    return Case(
        ("sweep", "m.yaml", *rng.choice(((), ("-y", "h100-sxm"))), *words, "--backend", "numpy", *(["-o", output] if output else [])), files, output
    )


def _points(rng: random.Random) -> Case:
    rows = [line.split(",") for line in POINTS.splitlines()]
    if rng.random() < 0.2:
        factor = 10.0 ** rng.randint(-6, 8)
        rows = [rows[0], *([row[0], str(float(row[1]) * factor), *row[2:]] for row in rows[1:])]
    for _ in range(rng.choice((0, 1, 1, 2, 8))):
        row = rng.choice(rows)
        # of the cells that are filled, mostly
        at = rng.choice([i for i, cell in enumerate(row) if cell] or [0]) if rng.random() < 0.8 else rng.randrange(len(row))
        row[at] = rng.choice((rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(TEXTS)))
    text = "\n".join(",".join(row) for row in rows) + "\n"
    name, content = "p.csv", _file(rng, text, None) if rng.random() < 0.25 else text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        fits = {"nccl_8": {"busbw_16MB": 100.0, "busbw_1GB": 300.0}, "nccl_16": {"busbw_16MB": 50}}
        shapes = {
            f"b=1, m={m}, k=4096, n=4096, layout={layout}, out_dtype=bf16": 0.7 for m in (512, 1024, 4096, 8192) for layout in ("TN", "NN", "NT")
        }
        simumax = {
            "op": {"matmul": {"tflops": 989, "accurate_efficient_factor": shapes}},
            "bandwidth": {"default": {"gbps": 3000, "efficient_factor": 0.9}},
        }
        data = rng.choice(({"fits": fits}, {"accelerator": simumax}))
        name, content = "p.json", _file(rng, json.dumps(data), data, as_json=True)
    output = rng.choice((None, "made.yaml"))
    op = rng.choice(("gemm", "attention", "memory", "grouped_gemm", "collective", rng.choice(TEXTS)))
    more = rng.choice(((), (), ("--op", op), ("--op", op, "--longer-than", rng.choice(NUMBERS))))
    return Case(("calibrate", "h100-sxm", "--points", name, *more, *(["-o", output] if output else [])), {name: content}, output)


PLACES = ("/dev/null", "/dev/full", "/proc/r{}", "/dev/null/r{}", "nowhere/r{}", "d{}", "here{}/x{}", "", ".", "..", "r{}{}", "R{}", "r{}.bak",
".{}", "itself{}", "old{}", "l{}", "r\n{}",
          "r\x1b[31m{}", "r\u202e{}", "r {}", "-r{}", "~/r{}", "日{}", "\ud800{}", "a" * 300 + "{}", "a/" * 300 + "r{}", "r\0{}")  # fmt: skip


def _output(rng: random.Random) -> Case:
    command, suffixes = rng.choice(
        (("derive", (".md", ".html", ".tex", ".json", ".txt", "")), ("sweep", (".csv", ".parquet", ".tsv", "")), ("compile", (".py", ".c", "")))
    )
    suffix = rng.choice(suffixes)
    place = rng.choice(PLACES).replace("{}", suffix)
    files: dict[str, bytes | None] = {"m.yaml": SMALL, f"d{suffix or '_'}": None, f"itself{suffix}": f"link:itself{suffix}".encode(),
    f"old{suffix}": b"before",
                                      f"l{suffix}": b"link:m.yaml", "here": None}  # fmt: skip
    if command == "sweep" and rng.random() < 0.2:
        files[f"old{suffix}.parts"] = rng.choice((None, b"", b"link:d"))
    more = ("--axis=tp=1,2", "--backend", "numpy", *rng.choice(((), ("--resume",)))) if command == "sweep" else ()
    return Case((command, "m.yaml", *more, "-o", place), files, place if place and "\0" not in place else None)


@cache
def _options() -> list[str]:
    import typer

    made: Any = typer.main.get_command(app)
    return sorted(
        {name for command in made.commands.values() for option in command.params for name in getattr(option, "opts", ()) if name.startswith("-")}
    )


def _arguments(rng: random.Random) -> Case:
    """The words of a command, dropped, doubled, moved, replaced by others' and by texts."""
    words = list(good_case(rng.randrange(10**6), 0).arguments)
    if rng.random() < 0.3:
        words = list(
            rng.choice(
                (
                    ("list", "models"),
                    ("list", "symbols"),
                    ("import", "hf", "m.yaml"),
                    ("calibrate", "h100-sxm", "--points", "p.csv"),
                    ("bench", "nosuch"),
                    ("--version",),
                )
            )
        )
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(words) + 1)
        what = rng.choice(("drop", "double", "put", "replace", "swap", "change"))
        fresh = rng.choice((rng.choice(TEXTS), rng.choice(NUMBERS), rng.choice(_options())))
        if what == "put" or not words:
            words.insert(at, fresh)
            continue
        at = min(at, len(words) - 1)
        if what == "drop":
            del words[at]
        elif what == "double":
            words.insert(at, words[at])
        elif what == "replace":
            words[at] = fresh
        elif what == "swap":
            other = rng.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        else:
            words[at] = _text(rng, words[at])
    # these start compilers, clusters and measurements, and take their time by design
    if any(w in ("dask", "c", "--scheduler", "--peers") for w in words) or (words[:1] == ["bench"] and "nosuch" not in words):
        words = ["list", *words]
    # of an option given twice the last counts
    output = next((words[i] for i in range(len(words) - 1, 0, -1) if words[i - 1] in ("-o", "--output")), None)
    return Case(tuple(words), {"m.yaml": SMALL, "p.csv": POINTS.encode()}, output)


# kind -> how its cases are made, in the proportion in which they are run
KINDS: dict[str, Callable[[random.Random], Case]] = {
    "model": _model, "config": _config, "strategy": _strategy, "system": _system, "set": _set, "condition": _condition, "axis": _axis,
    "points": _points,
    "output": _output, "arguments": _arguments,
}  # fmt: skip
SHARES = {"model": 16, "config": 14, "strategy": 16, "system": 10, "set": 14, "condition": 8, "axis": 8, "points": 6, "output": 2, "arguments": 6}
