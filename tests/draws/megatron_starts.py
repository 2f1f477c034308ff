"""Launch scripts for Megatron-LM of drawn strategies, through Megatron-LM's own validation.

    python tests/draws/megatron_starts.py --tree CHECKOUT [--python PYTHON] [--count 100] [--seed 1]

Strategies are members of the spaces that plans for Megatron-LM search, of drawn models and ranks, and one for every option that moves
something (tests/test_knobs.py); CHECKOUT is of Megatron-LM (d98e8a64), PYTHON one with torch. What validation refuses is printed. Exit code 1
when there is any.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from test_knobs import KNOBS

import symsim
from symsim.api.python import model_of
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.exporters.export import Asked, export
from symsim.planning.frameworks import FRAMEWORKS
from symsim.planning.space import Asked as Space
from symsim.planning.space import options_of, space_of

SYSTEM = "h100-sxm"
MODELS = """
    llama3-8b llama3-70b mixtral-8x7b deepseek-v3 qwen3-30b-a3b qwen3-8b gpt-oss-120b gemma-2-9b gemma-3-27b llama4-scout qwen3-next-80b-a3b
    deepseek-v2-lite gpt3-175b phi-4 olmo2-7b glm-4.5 kimi-k2 moonlight-16b-a3b granite-3.3-8b qwen2.5-72b smollm2-360m starcoder2-7b""".split()


def member(draw: random.Random) -> Result | None:
    """A strategy of a plan's space; None where it cannot run."""
    loaded = model_of(draw.choice(MODELS))
    length = loaded.architecture.position_embedding_rows or 4096
    framework = FRAMEWORKS["megatron"]
    asked = Space(loaded, loaded.architecture, SYSTEM, draw.choice((8, 16, 64, 128)), draw.choice((64, 128, 256)), length, framework, {})
    sizes, choices, _ = space_of(asked)
    options: dict[str, Any] = options_of(asked)
    for axis in sizes:
        row = draw.randrange(axis.size)
        options |= {name: column[row] for name, column in zip(axis.names, axis.columns)}
    for choice in choices:
        options |= dict(zip(choice.names, draw.choice(choice.rows)))
    options |= {"sp": options.get("tp", 1) > 1, "overlap_p2p_comm": options.get("vpp", 1) > 1}
    try:
        return asked.evaluated(options)
    except InputError:
        return None


def single() -> Iterator[Result]:
    """A strategy for every option, in surroundings in which it moves something."""
    for name, (model, around, value) in KNOBS.items():
        if " " not in model:
            try:
                result = symsim.derive(model, {"fusion": "te", **around, name: value}, system=SYSTEM)
            except InputError:
                continue
            if result.strategy.fusion == "te":
                yield result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw, drawn = random.Random(given.seed), list[Result]()
    while len(drawn) < given.count:
        drawn += [made] if (made := member(draw)) is not None else []
    with tempfile.TemporaryDirectory() as directory:
        said: dict[str, Result] = {}
        for number, result in enumerate([*drawn, *single()]):
            path = Path(directory) / f"{number}.sh"
            try:
                export("megatron", Asked(symsim.load_model(result.model.name), result.strategy, assumptions=result.assumptions), path)
            except InputError:
                continue
            said[str(path)] = result
        command = [given.python, "-W", "ignore", str(Path(__file__).with_name("megatron_started.py")), given.tree, *said]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = [line for line in told.splitlines() if line.startswith('{"script"')]
    wrong = [one for one in map(json.loads, lines) if one["error"]]
    for one in wrong:
        result = said[one["script"]]
        print(
            f"{result.model.name} -s {','.join(f'{n}={v}' for n, v in result.strategy.model_dump(exclude_defaults=True).items())}\n  {one['error']}"
        )
    print(f"{len(lines)} scripts of {len(said)}, {len(wrong)} refused")
    return int(bool(wrong) or len(lines) < len(said))


if __name__ == "__main__":
    raise SystemExit(main())
