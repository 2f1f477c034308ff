"""Adapters beside all linear layers of random Hugging Face configs, as peft puts them there on the meta device, and as symsim counts them.

    python tests/draws/adapters.py --count 200 --seed 1

Of every config the parameters that are trained under `target_modules=all-linear`, as integers: of LoRA, of rsLoRA (whose scale is another and
nothing else), of DoRA, and of OFT, in blocks of twice the rank. Models drawn are those of `huggingface.py`, of one text tower each. Exit code 1
when a count differs. Needs transformers, torch and peft.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from huggingface import INSIDE, build, draw, module_of

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.inputs.hf import SUPPORTED, read_config
from symsim.inputs.strategy import Strategy

TYPES = tuple(SUPPORTED)
KEPT = (
    "llama", "phi3", "gpt2", "mixtral", "phimoe", "llama4_text", "qwen2_moe", "deepseek_v3", "glm_moe_dsa", "granitemoeshared", "bamba", "nemotron_h",
    "gemma3n_text", "gemma4_text", "kimi_linear", "lfm2", "qwen3_next",
)  # fmt: skip
METHODS: dict[str, dict[str, bool]] = {"LoRA": {}, "rsLoRA": {"use_rslora": True}, "DoRA": {"use_dora": True}, "OFT": {}}


def theirs(config: dict[str, Any], rank: int, method: str) -> int:
    """Parameters that peft trains beside linear modules of the text tower. For types whose checkpoints are renamed it takes names of such modules for
    those of experts' parameters (utils/transformers_weight_conversion.py), and adapts what no other version does: no type, no renaming."""
    model = build(config)
    model.config.model_type = "drawn"
    rotation = peft.OFTConfig(oft_block_size=2 * rank, target_modules="all-linear")
    made = rotation if method == "OFT" else peft.LoraConfig(r=rank, target_modules="all-linear", **METHODS[method])
    decoder = next(name for name, module in model.named_modules() if module is model.get_decoder()) if config["model_type"] in INSIDE else ""
    hybrid = [name for name, module in model.named_modules() if name.endswith(".shared_transformer")]
    trained = {n.removeprefix("base_model.model."): p.numel() for n, p in peft.get_peft_model(model, made).named_parameters() if p.requires_grad}
    return sum(n for name, n in trained.items() if name.startswith((decoder, "lm_head")) and module_of(name) and not _in_no_forward(name, hybrid))


def _in_no_forward(name: str, hybrid: list[str]) -> bool:
    """Whether peft adapts what no forward runs: transformers has the adapters of all of Zamba2's shared blocks at each of them."""
    found = re.match(r"(.*\.shared_transformer)\..*_adapter_list\.(\d+)\.", name)
    return found is not None and hybrid.index(found[1]) != int(found[2])


def ours(config: dict[str, Any], rank: int, method: str) -> int:
    """Parameters that symsim counts as trained."""
    strategy = Strategy(tuner_type="lora", lora_rank=rank, fusion="eager", use_dora=method == "DoRA")
    if method == "OFT":
        strategy = Strategy(tuner_type="oft", oft_block_size=2 * rank, fusion="eager")
    return int(derive(read_config(config, "drawn", "config.json")[0], strategy).value("params.trained"))


def outcome(seed: int, index: int, types: tuple[str, ...]) -> tuple[str, str]:
    """The type of a drawn config, and whether counts are equal, or what differs, or why either refuses."""
    rng, kind = random.Random(f"{seed}/{index}"), types[index % len(types)]
    rank, method = rng.choice((1, 4, 8)), tuple(METHODS)[index // len(types) % len(METHODS)]
    for _ in range(100):
        config = draw(rng, kind)
        try:
            expected = theirs(config, rank, method)
        except Exception as error:  # noqa: BLE001 (transformers and peft refuse: any of their own exceptions)
            refusal = error
            continue
        try:
            found = ours(config, rank, method)
        except InputError as refused:
            return kind, f"refused: {refused}"
        return kind, "equal" if found == expected else f"DIFFERENT {method} {rank}: {expected} by peft, {found} here: {config}"
    return kind, f"peft has none: {type(refusal).__name__} {refusal!s:.200}"


def kept(seed: int) -> dict[str, Any]:
    """A drawn config of every type of KEPT with more than one layer, and what peft trains of it."""
    cases: dict[str, Any] = {}
    for kind in KEPT:
        rng = random.Random(f"{seed}/{kind}")
        while kind not in cases:
            config = draw(rng, kind)
            try:
                trained = {method: theirs(config, 4, method) for method in ("LoRA", "rsLoRA", "DoRA")}
                experts = read_config(config, kind, kind)[0]
            except Exception:  # noqa: BLE001, S112 (transformers, peft or symsim refuse: another is drawn)
                continue
            if experts.num_layers > 1 and (experts.moe is None or any(k.ffn == "moe" for k in experts.layer_kinds.values())):
                cases[kind] = {"config": config, "trained": trained}
    return {"source": f"peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}", "rank": 4, "cases": cases}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--write", action="store_true", help="counts of peft for tests/oracle/adapters.json, of the types of KEPT")
    given = parser.parse_args()
    if given.write:
        (Path(__file__).parents[1] / "oracle" / "adapters.json").write_text(json.dumps(kept(given.seed), separators=(",", ":")) + "\n")
        return 0
    types = tuple(given.types.split(","))
    fates = Counter[str]()
    for i in range(given.count):
        kind, said = outcome(given.seed, i, types)
        fates[said.split(":")[0].split(" ")[0]] += 1
        if said != "equal":
            print(f"{i} {kind}: {said}", flush=True)
    print(fates)
    return int(fates["DIFFERENT"] > 0)


if __name__ == "__main__":
    sys.exit(main())
