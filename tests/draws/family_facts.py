"""What transformers counts of a small config of each family, as tests/oracle/families.json: parameters by module, forward FLOPs, and bytes that
layers keep.

    python tests/draws/family_facts.py laguna 'gemma4_text={"enable_moe_block": true}'      makes these rows anew, with keys that a config shall have

Of the configs drawn (`huggingface.py`) that one is taken that runs, and whose layers are of most kinds. Needs transformers and torch.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from huggingface import INSIDE, build, draw, forward_flops, parameters
from kept import theirs

from symsim.errors import InputError
from symsim.inputs.hf import read_config

PATH = Path(__file__).parents[1] / "oracle" / "families.json"
ROWS, TOKENS = 2, 11


def chosen(model_type: str, more: dict[str, Any], draws: int = 60) -> tuple[dict[str, Any], list[str]]:
    """A config that transformers builds, and the kinds of its layers."""
    best: tuple[tuple[bool, int], dict[str, Any], list[str]] | None = None
    for index in range(draws):
        config = {k: v for k, v in draw(random.Random(f"{model_type} {index}"), model_type).items() if v is not None} | more
        config |= {k: 0.0 for k in config if k.endswith(("dropout", "pdrop"))}
        # of written-out activations torch keeps more than of the one they stand for
        config |= {k: "silu" for k in config if k.startswith("hidden_act") and config[k] == "gelu_python"}
        # torch's grouped products ask for rows of 16 bytes
        widths = [k for k in config if k == "hidden_size" or k.endswith("intermediate_size") and isinstance(config[k], int)]
        config |= {k: -(-config[k] // 16) * 16 for k in widths}
        try:
            architecture = read_config(config, "drawn", "config.json")[0]
            runs = forward_flops(build(config), ROWS, TOKENS) is not None
        except Exception:  # noqa: BLE001 (either refuses: another is drawn)
            continue
        kinds = [kind for segment in architecture.layers for kind in segment.kinds * segment.repeat]
        if len(kinds) <= 4 and (best is None or (runs, len(set(kinds))) > best[0]):
            best = (runs, len(set(kinds))), config, kinds
    if best is None:
        raise InputError(f"{model_type}: no config of {draws} is built")
    return best[1], best[2]


def facts(asked: str) -> dict[str, Any]:
    model_type, _, more = asked.partition("=")
    config, kinds = chosen(model_type, json.loads(more or "{}"))
    model = build(config)
    modules = {name: many for name, many in parameters(model, model_type in INSIDE).items() if many}
    kept: dict[str, int] = {}
    # LayerNorm's kernel of the CPU keeps its statistics in 16 bits, that of a GPU in 32
    plain = read_config(config, "drawn", "config.json")[0].normalization == "RMSNorm"
    for kind in dict.fromkeys(kinds if plain else ()):
        try:
            kept[str(kinds.index(kind))] = theirs(config, kinds.index(kind), ROWS, TOKENS)[0]
        except Exception as error:  # noqa: BLE001 (what its module code raises on real tensors)
            print(f"{model_type}, layer {kinds.index(kind)}: kept bytes are not measured: {str(error)[:100]}", file=sys.stderr)
    return {"config": config, "modules": modules, "flops": forward_flops(model, ROWS, TOKENS), "kept": kept}


def main() -> None:
    import torch
    import transformers

    known = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {"families": {}}
    source = {"transformers": transformers.__version__, "torch": torch.__version__, "rows": ROWS, "tokens": TOKENS}
    later = {} if transformers.__version__ == known.get("source", source)["transformers"] else {"transformers": transformers.__version__}
    made = known["families"] | {name: facts(name) | later for name in sys.argv[1:]}
    source = known.get("source", source)  # of rows that do not say another
    lines = [f"{json.dumps(name)}:{json.dumps(made[name], separators=(',', ':'))}" for name in sorted(made)]
    PATH.write_text(f'{{"source": {json.dumps(source)}, "families": {{\n' + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
