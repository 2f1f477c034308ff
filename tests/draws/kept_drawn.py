"""Bytes that layers keep for backward, of random configs of every type: transformers' modules on the CPU beside the eager profile.

    python tests/draws/kept_drawn.py --each 3 --seed 1
    python tests/draws/kept_drawn.py --types albert,esm --each 10

Configs are those of tests/draws/huggingface.py, without dropout; one layer of each kind is measured as tests/draws/kept.py says, of
micro-batches of two or three (in those of one, what is transposed stays where it lies in memory, and values keep the whole of what they are a
slice of). What torch or transformers cannot run is counted apart. Exit code 1 when bytes differ. Needs transformers and torch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, fields
from multiprocessing import get_context

import kept
from huggingface import SAME_CLASS, Draw, Json, _quiet, draw

from symsim.errors import InputError
from symsim.inputs.hf import SUPPORTED, read_config

OWN_ACTIVATION = ("bamba", "granitemoehybrid", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "lara_mini", "kimi_linear", "bailing_hybrid")

IN_PARTS = {*SAME_CLASS, "xlm", "flaubert"}  # no types of transformers, and those without a module a layer
LOOPS = ("dbrx", "step3p5")  # whose experts run one after the other
SECTIONED = ("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "qwen3_omni_moe_text", "paddleocr_vl_text",
             "glm4v_text", "glm4v_moe_text", "glm_ocr_text")  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    model_type: str
    fate: str  # equal, different, refused, not run
    note: str
    asked: tuple[Json, int, int, int]


class Several(Draw):
    """Of several heads: with one, what is transposed stays where it lies in memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        while self.heads == 1:
            super().__post_init__()


def without_dropout(config: Json) -> Json:
    """Masks of dropout are counted by tests of their own; here a layer runs as in inference."""
    from transformers import CONFIG_MAPPING

    cls = CONFIG_MAPPING[SAME_CLASS.get(config["model_type"], config["model_type"])]
    names = ("dropout", "pdrop", "dropout_prob", "layerdrop")
    dropouts = [f.name for f in fields(cls) if f.name.endswith(names) and not isinstance(f.default, bool) and f.name != "classifier_dropout"]
    made = config | dict.fromkeys(dropouts, 0.0)
    if isinstance(made.get("attn_config"), dict) and "attn_pdrop" in made["attn_config"]:
        made["attn_config"] = made["attn_config"] | {"attn_pdrop": 0.0}
    if made["model_type"] in OWN_ACTIVATION:  # whose convolutions and gates work by it too, which is SiLU in all models
        made["hidden_act"] = "silu"
    if made["model_type"] == "albert":  # whose groups of several layers are one module
        made["inner_group_num"] = 1
    if made["model_type"] in SECTIONED:  # positions are three numbers, each of which turns a section of a head
        head = made.get("head_dim") or made["hidden_size"] // made["num_attention_heads"]
        part = made["model_type"] in ("glm4v_text", "glm4v_moe_text") and 0.5 or 1
        half = int(head * part) // 2
        sections = [half - 2 * (half // 3), half // 3, half // 3]
        made["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections, "partial_rotary_factor": part}
        made.pop("partial_rotary_factor", None)
    return made


def outcomes(task: tuple[int, int, str]) -> list[Outcome]:
    _quiet()
    seed, index, model_type = task
    rng = random.Random(f"{seed} {index} {model_type}")
    last = Outcome(model_type, "not run", "", ({}, 0, 0, 0))
    for _ in range(40):
        config = without_dropout(draw(rng, model_type, Several))
        b, s = rng.randint(2, 3), rng.randint(8, 39)
        try:
            architecture = read_config(config, "drawn", "config.json")[0]
        except InputError as error:
            last = Outcome(model_type, "refused", str(error), (config, 0, b, s))
            continue
        kinds = [kind for segment in architecture.layers for _ in range(segment.repeat) for kind in segment.kinds]
        found = []
        for layer in sorted({kinds.index(kind) for kind in kinds}):
            asked = (config, layer, b, s)
            try:
                theirs = kept.theirs(*asked)
            except Exception as error:  # noqa: BLE001 (whatever transformers or torch raises)
                last = Outcome(model_type, "not run", f"{type(error).__name__}: {error}", asked)
                break
            try:
                ours = kept.own(*asked)
            except InputError as error:
                last = Outcome(model_type, "refused", str(error), asked)
                break
            moe = architecture.moe
            if model_type in LOOPS and moe and kinds[layer].endswith("moe"):  # docs/accuracy.md
                rows = b * s * moe.moe_router_topk
                ours = (ours[0] + (2 * architecture.hidden_size - 8) * rows - 4 * moe.num_moe_experts, ours[1])
            if (architecture.layer_kinds[kinds[layer]].compression or 0) > s:  # docs/accuracy.md
                ours = (ours[0] - 2 * b * s * architecture.head_dim, ours[1])
            ours_theirs = f"{kinds[layer]}: kept and tables, ours {ours}, transformers {theirs}: {ours[0] - theirs[0]:+d}, {ours[1] - theirs[1]:+d}"
            found.append(Outcome(model_type, "equal" if ours == theirs else "different", ours_theirs, asked))
        else:
            return found
    return [last]


def told(found: list[Outcome]) -> str:
    """A line a type, then what differs or did not run."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for one in found:
        rows[one.model_type][one.fate] += 1
    lines = [f"{name:24} " + ", ".join(f"{n} {fate}" for fate, n in sorted(row.items())) for name, row in sorted(rows.items())]
    whole = sum(rows.values(), Counter())
    clean = sum(not row["different"] and bool(row["equal"]) for row in rows.values())
    lines.append(f"layers: {dict(whole)}; types: {len(rows)}, of which {clean} have equal ones alone")
    for one in (one for one in found if one.fate != "equal"):
        config, layer, b, s = one.asked
        lines += [f"{one.fate.upper()} {one.model_type}: {one.note:.300}", f"    '{json.dumps(config)}' --layer {layer} -b {b} -s {s}"]
    return "\n".join(lines)


def main() -> int:
    from transformers import CONFIG_MAPPING

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=1, help="configs of a type")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--types", default=",".join(name for name in SUPPORTED if name not in IN_PARTS and name in CONFIG_MAPPING))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    tasks = [(given.seed, i, name) for name in given.types.split(",") for i in range(given.each)]
    with get_context("spawn").Pool(given.jobs) as pool:
        found = [one for some in pool.imap_unordered(outcomes, tasks) for one in some]
    print(told(found))
    return int(any(one.fate == "different" for one in found))


if __name__ == "__main__":
    sys.exit(main())
