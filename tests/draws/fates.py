"""What becomes of every key of the seed documents: `python tests/draws/fates.py [--of SimuMax] [--not-modelled]` counts fates by importer.

The keys are those of ../shared/research/vocabulary_gap.md, section 4, with its class (1 equal, 2 another effect, 3 none, 4 ambiguous). Each
is given alone beside a small job, with several values; the fate that counts is the worst that any value gets, as `not_modelled` behind
`refused` behind the rest. A key that no value makes a row of is `unread`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from shared import SHARED  # noqa: E402

import symsim  # noqa: E402
from symsim.errors import InputError  # noqa: E402
from symsim.importers.job import Job  # noqa: E402
from symsim.importers.reading import Options, read_job  # noqa: E402

PAGE = SHARED / "research" / "vocabulary_gap.md"
WORST = ("not_modelled", "refused", "mapped", "derived", "no_cost_effect")
AS_IT_IS = object()
VALUES: tuple[Any, ...] = (AS_IT_IS, True, False, 2, 0.5, "bf16", ["core_attn"], {"2": 10, "8": 20}, "a")
# gaps of the run and of other workloads: no step of a decoder's training has them
ELSEWHERE = ("run:", "rl:", "multimodal", "inference", "other-heads", "new-architectures")
_ROW = re.compile(r"^\| `([^`]+)` \| ([1-4]) \| (.*?) \|")


def keys() -> Iterator[tuple[str, str, int, str]]:
    """(section, key, class, gap) of every row of the page."""
    section = ""
    for line in PAGE.read_text().split("## 4. Every key", 1)[1].splitlines():
        if line.startswith("### "):
            section = line[4:]
        elif row := _ROW.match(line):
            gap = re.fullmatch(r"`([^`]+)`", row[3].strip())
            yield section, row[1], int(row[2]), gap[1] if gap else ""


def written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value).lower() if isinstance(value, bool) else str(value)


def attempt(section: str, key: str, value: Any, place: Path) -> Job:
    """A small job with the key at this value."""
    imported = ROOT / "tests" / "imported"
    if section.startswith("SimuMax"):
        part = section.rpartition(" ")[2]
        paths = []
        for name in ("system", "strategy", "model"):
            data = json.loads((imported / "simumax" / "dense" / f"{name}.json").read_text())
            if name == part and value is not AS_IT_IS:
                _put(data, key, value)
            paths.append(place / f"{name}.json")
            paths[-1].write_text(json.dumps(data))
        return read_job("simumax", list(map(str, paths)), Options(lenient=True))
    if value is AS_IT_IS:
        raise InputError("nothing is given")
    if section.startswith("Merak"):
        init = {"pp": 2, "tp": 2, "dp": 2}
        if key in ("dp", "tp", "pp", "sp"):
            init[key] = value
            key = ""
        at = ", ".join(f"{name}={number!r}" for name, number in init.items())
        text = f"Merak.init({at}); MerakArguments({f'{key}={value!r}' if key else ''})"
        return symsim.load_job("merak", text, model="llama2-7b", version="head", lenient=True)
    if section.startswith("Megatron-Core"):
        model = {"num_layers": 8, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 256, "hidden_dropout": 0, "num_moe_experts": 8}
        mesh = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "sequence_parallel": True, "tp_comm_overlap": True}
        mesh |= {"virtual_pipeline_model_parallel_size": 1, "expert_model_parallel_size": 2, "moe_token_dispatcher_type": "alltoall"}
        file = place / "config.json"
        file.write_text(json.dumps({**model, **mesh, "bf16": True, key: value}))
        return read_job("megatron", [str(file), "--world-size", "16"], Options(lenient=True))
    command = "megatron sft --model Qwen/Qwen3-30B-A3B --tensor_model_parallel_size 2 --pipeline_model_parallel_size 2 --sequence_parallel true"
    return read_job("swift", [*command.split(), f"--{key}", written(value)], Options(lenient=True))


def _put(data: dict[str, Any], key: str, value: Any) -> None:
    """A dotted key of SimuMax's files, X, Y, TIER and OP being any of theirs."""
    parts = [{"X": "matmul", "Y": "default", "TIER": "high_intra_node", "OP": "all_reduce"}.get(part, part) for part in key.split(".")]
    for part in parts[:-1]:
        data = data.setdefault(part, {})
    data[parts[-1]] = value


def fate(section: str, key: str, place: Path) -> str:
    """The worst of the fates that the key has at several values."""
    found = set()
    for value in VALUES:
        try:
            job = attempt(section, key, value, place)
        except InputError:
            continue
        found |= {row.fate for row in job.rows if _same(row.key, key)}
        if WORST[0] in found:
            break
    return next((fate for fate in WORST if fate in found), "unread")


def _same(row: str, key: str) -> bool:
    plain = row.lstrip("-").replace("-", "_").rpartition(" ")[2]
    return plain.rpartition(".")[2] == key.rpartition(".")[2]


def table(of: str = "") -> list[tuple[str, str, int, str, str]]:
    """(section, key, class, gap, fate) of every key of the sections whose names begin so."""
    with tempfile.TemporaryDirectory() as place:
        return [(*one, fate(one[0], one[1], Path(place))) for one in keys() if one[0].startswith(of)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--not-modelled", action="store_true", help="name the keys of a step whose effect is not modelled")
    parser.add_argument("--of", default="", help="sections whose names begin so: SimuMax, Merak, Megatron-Core, Megatron-SWIFT")
    asked = parser.parse_args()
    if not PAGE.exists():
        sys.exit("../shared/research/vocabulary_gap.md is not on this machine")
    rows = table(asked.of)
    for section in dict.fromkeys(row[0] for row in rows):
        counted = Counter(row[4] for row in rows if row[0] == section)
        print(f"{section:48}", ", ".join(f"{n} {name}" for name, n in counted.most_common()))
    if asked.not_modelled:
        for section, key, number, gap, what in rows:
            if what in ("not_modelled", "refused", "unread") and number != 3 and not gap.startswith(ELSEWHERE):
                print(f"{section:36} {key:48} class {number} {gap:24} {what}")


if __name__ == "__main__":
    main()
