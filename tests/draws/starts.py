"""Exported files of drawn strategies, through the trainers that they are written for.

    python tests/draws/starts.py TARGET --tree CHECKOUT [--python PYTHON] [--count 100] [--seed 1] [--suffix SUFFIX]

TARGET is one of `symsim export`. Strategies are members of the spaces that plans for its framework search, of drawn models and ranks, and one for
every option that moves something (tests/test_knobs.py); CHECKOUT is of the trainer, PYTHON one with what it needs to be imported
(`TARGET_started.py`). What the trainer refuses is printed, and where it makes something else of a file than what was exported. Exit code 1 when there
is any.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from shared import oracle
from test_knobs import KNOBS

import symsim
from symsim.api.python import model_of
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.exporters.export import Asked, export
from symsim.exporters.registry import TARGETS
from symsim.importers.torchtitan.tables import FLAVORS
from symsim.inputs.hub import sources
from symsim.pipeline.stages import stages
from symsim.planning.frameworks import FRAMEWORKS
from symsim.planning.space import GIVEN, options_of, space_of
from symsim.planning.space import Asked as Space

SYSTEM = "h100-sxm"
MODELS = """
    llama3-8b llama3-70b mixtral-8x7b deepseek-v3 qwen3-30b-a3b qwen3-8b gpt-oss-120b gemma-2-9b gemma-3-27b llama4-scout qwen3-next-80b-a3b
    deepseek-v2-lite gpt3-175b phi-4 olmo2-7b glm-4.5 kimi-k2 moonlight-16b-a3b granite-3.3-8b qwen2.5-72b smollm2-360m starcoder2-7b""".split()
# configurations in ../shared/oracle/params.json
CONFIGS = {
    "llama3-8b": "llama-3-8b", "llama3-70b": "llama-3-70b", "mixtral-8x7b": "mixtral-8x7b", "qwen2.5-14b": "qwen2.5-14b",
    "qwen2.5-72b": "qwen2.5-72b", "qwen3-8b": "qwen3-8b", "qwen3-235b-a22b": "qwen3-235b-a22b", "deepseek-v2-lite": "deepseek-v2-lite",
    "deepseek-v3": "deepseek-v3", "kimi-k2": "kimi-k2", "gpt-oss-20b": "gpt-oss-20b", "gpt-oss-120b": "gpt-oss-120b",
}  # fmt: skip
TITANS = [model for flavors in FLAVORS.values() for model in flavors.values()]


_OF_PARAMETERS = ("tuner_type", "task_type", "mtp_num_layers", "tie_word_embeddings")


def of_torchtitan(result: Result, lost: list[str]) -> dict[str, Any]:
    """What its Trainer says of itself."""
    s = result.strategy
    carried = not any(name in sentence for sentence in lost for name in _OF_PARAMETERS)
    replicas = s.num_distributed_optimizer_instances if s.zero else s.dp
    return {
        # what is said not to be carried
        **({"parameters": int(result.value("params.total"))} if carried else {}),
        "accumulated": 1 if s.pp > 1 else s.microbatches,
        "micro_batches": s.microbatches if s.pp > 1 else 1,
        "degrees": [replicas, s.dp // replicas, s.cp, s.tp, s.pp, s.ep],
        "layers": [list(range(chunk.first, chunk.last)) for chunk in stages(result.model, s, 0)[0].chunks],
    }


def of_swift(result: Result, lost: list[str]) -> dict[str, Any]:
    """What its arguments say of themselves."""
    return {"micro_batches": result.strategy.microbatches, "layers": result.model.num_layers}


def of_deepspeed(result: Result, lost: list[str]) -> dict[str, Any]:
    """What its engine says of itself."""
    s = result.strategy
    return {"micro_batches": s.microbatches, "micro_batch_size": s.micro_batch_size, "stage": s.zero, "data_parallel": s.dp}


@dataclass(frozen=True)
class Trainer:
    """framework: whose plans strategies are drawn of. fusion: what strategies of single options have. means: of what a trainer says it makes of a
    file, what it should be, given what the file is said not to carry."""

    framework: str
    fusion: str
    models: list[str]
    means: Callable[[Result, list[str]], Mapping[str, Any]] = lambda result, lost: {}


TRAINERS = {
    "megatron": Trainer("megatron", "te", MODELS),
    "torchtitan": Trainer("torchtitan", "compile", TITANS, of_torchtitan),
    "swift": Trainer("megatron", "te", list(CONFIGS), of_swift),
    "deepspeed": Trainer("deepspeed", "eager", MODELS, of_deepspeed),
}


def member(draw: random.Random, trainer: Trainer) -> Result | None:
    """A strategy of a plan's space; None where it cannot run."""
    loaded = model_of(draw.choice(trainer.models))
    length = loaded.architecture.position_embedding_rows or 4096
    framework = FRAMEWORKS[trainer.framework]
    asked = Space(loaded, loaded.architecture, SYSTEM, draw.choice((8, 16, 64, 128)), draw.choice((64, 128, 256)), length, framework, {})
    sizes, choices, _ = space_of(asked)
    options: dict[str, Any] = options_of(asked)
    for axis in sizes:
        row = draw.randrange(axis.size)
        options |= {name: column[row] for name, column in zip(axis.names, axis.columns)}
    for choice in choices:
        options |= dict(zip(choice.names, draw.choice(choice.rows)))
    options |= {"sp": options.get("tp", 1) > 1, "overlap_p2p_comm": options.get("vpp", 1) > 1}
    # an option more, of those that a plan does not try together
    for name in draw.sample(sorted(KNOBS), draw.randrange(3)):
        _, around, value = KNOBS[name]
        options |= {**{n: v for n, v in around.items() if n not in GIVEN}, **({name: value} if name not in GIVEN else {})}
    try:
        return asked.evaluated(options)
    except InputError:
        return None


def single(trainer: Trainer) -> Iterator[Result]:
    """A strategy for every option, in surroundings in which it moves something."""
    for name, (model, around, value) in KNOBS.items():
        if " " not in model:
            try:
                result = symsim.derive(model, {"fusion": trainer.fusion, **around, name: value}, system=SYSTEM)
            except InputError:
                continue
            if result.strategy.fusion == trainer.fusion:
                yield result


def hub(directory: Path) -> None:
    """A config.json of every model, where ms-swift is told that the hub put it."""
    known = oracle("params.json")["models"]
    for model, name in CONFIGS.items():
        place = directory / "hub" / sources()[model]
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps({"model_type": known[name]["model_type"], **known[name]["config_written"]}))


def started(target: str, drawn: list[Result], given: argparse.Namespace) -> tuple[list[tuple[Result, list[str]]], list[str]]:
    """The strategies whose files could be written, with what these do not carry, and what the trainer said of each."""
    suffix = given.suffix or TARGETS[target].suffix.split()[0]
    with tempfile.TemporaryDirectory() as directory:
        written: dict[str, tuple[Result, list[str]]] = {}
        for number, result in enumerate(drawn):
            path = Path(directory) / f"job_{number}{suffix}"
            try:
                _, lost = export(target, Asked(symsim.load_model(result.model.name), result.strategy, assumptions=result.assumptions), path)
            except InputError:
                continue
            written[str(path)] = (result, lost)
        if target == "swift":
            hub(Path(directory))
        here = Path(__file__).with_name(f"{target}_started.py")
        told = subprocess.run(
            [given.python, "-W", "ignore", str(here), given.tree, *written], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
        ).stdout
    return list(written.values()), [line for line in told.splitlines() if line.startswith('{"script"')]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=sorted(TRAINERS))
    parser.add_argument("--tree", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--suffix", default="")
    given = parser.parse_args()
    trainer, draw, drawn = TRAINERS[given.target], random.Random(given.seed), list[Result]()
    while len(drawn) < given.count:
        drawn += [made] if (made := member(draw, trainer)) is not None else []
    written, said = started(given.target, [*drawn, *single(trainer)], given)
    wrong = 0
    for (result, lost), line in zip(written, said):
        answer = json.loads(line)
        means = answer["means"]
        other = {name: (means.get(name), value) for name, value in trainer.means(result, lost).items() if means.get(name) != value}
        if answer["error"] or other:
            wrong += 1
            options = ",".join(f"{name}={value}" for name, value in result.strategy.model_dump(exclude_defaults=True).items())
            print(f"{result.model.name} -s {options}\n  {answer['error'] or other}")
    print(f"{len(said)} files of {len(written)}, {wrong} refused or taken otherwise")
    return int(bool(wrong) or len(said) < len(written))


if __name__ == "__main__":
    raise SystemExit(main())
