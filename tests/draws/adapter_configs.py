"""Random configs of peft's adapters on random Hugging Face models, as peft trains them on the meta device, and as `symsim import merak` reads them.

    python tests/draws/adapter_configs.py --count 300 --seed 1

A config names linear modules by their last words, by more of their names, in single layers, by a pattern, or all; leaves some out; gives some another
rank, by names or patterns; trains biases, norms, the embedding or the output layer beside them; or adapts experts' parameters, by their names or by
those of the modules that there were before. Trained parameters are compared as integers. Exit code 1 when a count differs. Needs transformers, torch
and peft.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import peft
import torch
import transformers
from huggingface import build, draw

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.importers.reading import load_job

# whose decoder is the whole model, and whose modules `symsim/importers/called.py` knows by name
TYPES = """llama mistral qwen2 qwen3 gemma2 phi3 olmo2 cohere granite smollm3 starcoder2 qwen2_moe qwen3_moe mixtral gpt_oss deepseek_v3 glm4_moe
    granitemoehybrid lfm2 bamba jamba""".split()


def drawn(rng: random.Random, model: torch.nn.Module) -> dict[str, Any]:
    """Of a LoraConfig what a user may write."""
    linear = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and not n.endswith("lm_head")]
    experts = [n for n, _ in model.named_parameters() if re.search(r"experts\.(gate_up_proj|down_proj)$", n)]
    norm = "input_layernorm" if hasattr(model.model.layers[0], "input_layernorm") else "norm"
    before = ("w1", "w2", "w3", "gate") if model.config.model_type == "mixtral" else ("gate_proj", "up_proj", "down_proj", "gate")
    ends = sorted({n.rsplit(".", 1)[-1] for n in linear} | ({*before} if experts else set()))
    made: dict[str, Any] = {"r": rng.choice((1, 4, 8)), "target_modules": sorted(rng.sample(ends, rng.randint(1, len(ends))))}
    if rng.random() < 0.3:
        made["target_modules"] = sorted({n.split(".", rng.randint(1, 3))[-1] for n in rng.sample(linear, min(3, len(linear)))})
    elif rng.random() < 0.2:
        made["target_modules"] = rf".*\.({'|'.join(made['target_modules'])})"
    elif rng.random() < 0.1:
        made["target_modules"] = "all-linear"
    elif rng.random() < 0.3:
        made["layers_to_transform"] = rng.choice((0, [0, len(model.model.layers) - 1]))
    if rng.random() < 0.3:
        made["exclude_modules"] = rng.choice(([rng.choice(ends)], [rng.choice(linear)], rf".*\.{rng.randrange(4)}\..*"))
    if rng.random() < 0.4:
        made["bias"] = rng.choice(("all", "lora_only"))
    if rng.random() < 0.4:
        made["modules_to_save"] = rng.choice((["lm_head"], ["embed_tokens"], ["embed_tokens", "lm_head"], ["norm"], [norm]))
    if experts and rng.random() < 0.5:
        made["target_parameters"] = sorted({rng.choice(experts).split(".", 2)[-1] if rng.random() < 0.5 else rng.choice(experts).split(".", 4)[-1]})
    elif rng.random() < 0.3:
        made["use_dora"] = True
    if rng.random() < 0.5:
        named = [*ends, *rng.sample(linear, min(3, len(linear))), *(rng.sample(experts, 1) if experts else ())]
        named += [rng.choice(linear).split(".", rng.randint(1, 3))[-1], r"model\.layers\.[0-1]\..*", r"self_attn\..*", r"(q|k|gate|up)_proj"]
        named += [rf"{rng.randrange(4)}\..*_proj", r".*experts\..*", "experts", "gate_up_proj", "gate.weight"]
        made["rank_pattern"] = {name: rng.choice((1, 2, 3, 16)) for name in rng.sample(named, rng.randint(1, 4))}
        made["alpha_pattern"] = {rng.choice(named): 7}
    return made


def theirs(model: torch.nn.Module, config: dict[str, Any]) -> int:
    """What peft trains, which writes ranks of its own into what it is given."""
    found = peft.get_peft_model(model, peft.LoraConfig(**deepcopy(config))).named_parameters()
    return sum(p.numel() for _, p in found if p.requires_grad)


def ours(model: dict[str, Any], config: dict[str, Any]) -> int:
    with TemporaryDirectory() as place:
        at = Path(place)
        (at / "config.json").write_text(json.dumps(model))
        (at / "lora.json").write_text(json.dumps(config))
        (at / "train.py").write_text("Merak.init(1, 1, 1)\nMerakArguments(lora_config='lora.json')")
        job = load_job("merak", str(at / "train.py"), model=place)
    assert job.architecture is not None
    return int(derive(job.architecture, job.placed()).value("params.trained"))


def outcome(rng: random.Random, kind: str) -> tuple[str, dict[str, Any]]:
    """Equal, different or refused, and the case."""
    for _ in range(100):
        model = draw(rng, kind)
        try:
            config = drawn(rng, built := build(model))
            expected = theirs(built, config)
        except Exception:  # noqa: BLE001, S112 (transformers and peft refuse: any of their own exceptions)
            continue
        case = {"model": model, "adapters": config, "trained": expected}
        try:
            found = ours(model, config)
        except InputError as refused:
            return "refused", {"why": str(refused), **case}
        return ("equal" if found == expected else "different"), {"here": found, **case}
    return "not drawn", {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--write", action="store_true", help="equal cases of every type for tests/oracle/adapter_configs.json")
    given = parser.parse_args()
    fates, kept, types = Counter[str](), list[dict[str, Any]](), given.types.split(",")
    for i in range(given.count):
        fate, case = outcome(random.Random(f"{given.seed}/{i}"), types[i % len(types)])
        fates[fate] += 1
        kept += [case] * (fate == "equal")
        if fate != "equal":
            print(i, types[i % len(types)], fate, json.dumps(case), flush=True)
    if given.write:
        source = f"peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}"
        cases = [{name: case[name] for name in ("model", "adapters", "trained")} for case in kept]
        (Path(__file__).parents[1] / "oracle" / "adapter_configs.json").write_text(json.dumps({"source": source, "cases": cases}) + "\n")
    print(fates)
    return int(fates["different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
