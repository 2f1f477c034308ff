"""What torchtitan refuses to start with, and other systems run.

Sources: torchtitan b5bcd76c6 (2026-08-21) models/common/decoder.py, models/qwen3_5/model.py, models/kimi_k2_7/model.py; the parent of 9810191bb
(2026-02-23) models/*/__init__.py, models/*/model/args.py, models/*/infra/parallelize.py; PyTorch torch/distributed/pipelining/schedules.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy

# flavors of the last version with TOML files
_OLDER = {
    "deepseek_v3": ("16B", "236B", "671B"),
    "gpt_oss": ("20b", "120b"),
    "llama3": ("8B", "70B", "405B"),
    "llama4": ("17bx16e", "17bx128e"),
    "qwen3": ("0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B"),
}
_NEWER = ("deepseek_v3", "gpt_oss", "kimi_k2_7", "llama3", "qwen3", "qwen3_5")
_WITHOUT_STAGES = ("gpt_oss", "qwen3")
# their attention is FlexAttention
_WITHOUT_CONTEXT = ("deepseek_v3", "gpt_oss")


def check(a: Architecture, s: Strategy, name: str, flavor: str, suffix: str) -> None:
    """InputError for what the version that reads files of a suffix refuses. name, flavor: of the model, as torchtitan calls it."""
    there = [ending for ending, has in ((".toml", flavor in _OLDER.get(name, ())), (".py", name in _NEWER)) if has]
    if suffix not in there:
        version = "the last torchtitan with TOML files" if suffix == ".toml" else "torchtitan since 2026-02"
        instead = f"write a file that ends in {there[0]}" if there else f"it trains {', '.join(sorted({*_OLDER, *_NEWER}))}"
        raise InputError(f"{version} has no {name} {flavor}, as {a.name} is called there: {instead}")
    for reason in (*(_of_toml if suffix == ".toml" else _of_python)(a, s, name), *_always(a, s)):
        raise InputError(reason)


def _of_toml(a: Architecture, s: Strategy, name: str) -> Iterator[str]:
    if s.pp > 1 and name in _WITHOUT_STAGES:
        yield f"the last torchtitan with TOML files does not cut {name} into stages: write {a.name} into a file that ends in .py, or give pp=1"
    if s.cp > 1 and name in _WITHOUT_CONTEXT:
        yield f"the last torchtitan with TOML files runs {name} without context ranks: write {a.name} into a file that ends in .py, or give cp=1"


def _of_python(a: Architecture, s: Strategy, name: str) -> Iterator[str]:
    if s.pp > 1 and a.tie_word_embeddings and name != "qwen3_5":
        yield f"torchtitan does not cut a model into stages whose head is its embedding, as that of {a.name} is; give pp=1"
    if s.cp > 1 and name in ("qwen3_5", "kimi_k2_7"):
        yield f"torchtitan runs {name}, as {a.name} is called there, without context parallelism; give cp=1"


def _always(a: Architecture, s: Strategy) -> Iterator[str]:
    heads = a.attention.num_attention_heads if a.attention.kind == "mla" else a.query_groups
    if heads % s.tp:
        yield f"torchtitan splits heads of keys and values over tensor ranks and copies none: tp={s.tp} does not divide the {heads} of {a.name}"
    least = {"1f1b": s.pp if s.vpp == 1 else 1, "dualpipev": 2 * s.pp}.get(s.schedule, 1)
    if s.pp > 1 and s.microbatches < least:
        yield f"torchtitan runs schedule={s.schedule} with as many micro-batches as stages, {least}, or more; there are {s.microbatches}"
