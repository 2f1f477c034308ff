"""What a step waits for its longest rows, beside rows drawn one by one.

    python tests/draws/longest_rows.py [STEPS]

Packed rows are cut from one stream of documents, as `document_lengths=cut:` says; with padding_free a row is a document. Each micro-batch takes
what the kernels' own formulas say of its rows; replicas that gather parameters wait for one another in every micro-batch, others at the end of
the step, and the order of a pipeline of equal stages is replayed. Prints a line a setting: milliseconds
waited beyond the rows' own mean, drawn and derived, the error in percent, what percentage of the step that is, and the error in percent of it
together with the mean micro-batches.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pipelines import steps_of

import symsim

# lengths, tokens of a row, strategy; exponential lengths and those of kinds are written to a file
SETTINGS = [
    ("lognormal:1680+0.5", 4096, "dp=8,zero=3,num_microbatches=8"),
    ("lognormal:1680+0.5", 8192, "dp=8,zero=1,num_microbatches=8"),
    ("lognormal:1680+0.5", 32768, "dp=8,zero=3,num_microbatches=8"),
    ("lognormal:400+0.5", 4096, "dp=8,zero=3,num_microbatches=8"),
    ("lognormal:4000+0.5", 4096, "dp=8,zero=3,num_microbatches=4"),
    ("lognormal:1500+1", 8192, "dp=64,zero=1,num_microbatches=1"),
    ("lognormal:3000+1", 32768, "dp=64,zero=3,num_microbatches=4"),
    ("lognormal:3000+1", 32768, "dp=16,zero=0,num_microbatches=32"),
    ("lognormal:3000+2", 16384, "dp=8,zero=1,num_microbatches=4"),
    ("lognormal:8000+0.3", 16384, "dp=2,zero=0,num_microbatches=8"),
    ("lognormal:8000+0.3", 16384, "dp=8,zero=1,pp=4,num_microbatches=32"),
    ("lognormal:3000+0.8", 32768, "dp=4,zero=1,pp=4,num_microbatches=16"),
    ("exponential:3000", 16384, "dp=8,zero=3,num_microbatches=8"),
    ("exponential:3000", 16384, "dp=8,zero=1,num_microbatches=8"),
    ("exponential:8000", 8192, "dp=8,zero=3,num_microbatches=1"),
    ("exponential:3000", 65536, "dp=32,zero=1,num_microbatches=2"),
    ("exponential:6000", 32768, "dp=16,zero=3,pp=4,num_microbatches=8"),
    ("kinds", 16384, "dp=8,zero=3,num_microbatches=8"),
    ("kinds", 8192, "dp=16,zero=1,num_microbatches=4,micro_batch_size=2"),
    ("kinds", 32768, "dp=8,zero=1,pp=4,num_microbatches=8"),
    ("3000", 8192, "dp=8,zero=3,num_microbatches=8"),
    ("lognormal:3000+0.8", 16384, "dp=64,zero=1,pp=8,num_microbatches=8"),
    ("lognormal:3000+0.8", 16384, "dp=64,zero=1,pp=8,num_microbatches=64"),
    ("lognormal:1500+1", 32768, "dp=1,zero=1,pp=16,num_microbatches=32"),
    ("exponential:6000", 32768, "dp=256,zero=1,pp=2,num_microbatches=8"),
    ("kinds", 16384, "dp=16,zero=1,pp=4,num_microbatches=32"),
    ("lognormal:3000+1", 32768, "dp=8,zero=1,pp=4,vpp=2,num_microbatches=16"),
    ("lognormal:3000+1", 32768, "dp=64,zero=1,pp=8,vpp=4,num_microbatches=32"),
    ("lognormal:3000+1", 32768, "dp=8,zero=1,pp=8,schedule=zb_h1,num_microbatches=32"),
    ("lognormal:3000+1", 32768, "dp=8,zero=1,pp=8,schedule=dualpipe,num_microbatches=32"),
    ("lognormal:3000+1", 32768, "dp=8,zero=1,pp=8,schedule=gpipe,num_microbatches=32"),
    ("lognormal:2048+0.5", 16384, "padding_free=true,dp=8,zero=3,num_microbatches=8,micro_batch_size=1"),
    ("lognormal:2048+0.5", 16384, "padding_free=true,dp=8,zero=3,num_microbatches=8,micro_batch_size=4"),
    ("lognormal:2048+0.8", 16384, "padding_free=true,dp=16,zero=1,num_microbatches=8,micro_batch_size=2"),
    ("exponential:2048", 16384, "padding_free=true,dp=64,zero=3,num_microbatches=4,micro_batch_size=2"),
    ("kinds", 16384, "padding_free=true,dp=8,zero=3,num_microbatches=8,micro_batch_size=4"),
    ("lognormal:2048+0.5", 16384, "padding_free=true,dp=16,zero=1,pp=4,num_microbatches=16,micro_batch_size=2"),
    ("lognormal:2048+0.8", 16384, "padding_free=true,dp=64,zero=1,pp=8,num_microbatches=16,micro_batch_size=2"),
    ("kinds", 16384, "padding_free=true,dp=8,zero=1,pp=8,num_microbatches=64,micro_batch_size=2"),
    ("kinds", 16384, "padding_free=true,dp=8,zero=1,pp=8,vpp=2,num_microbatches=64,micro_batch_size=2"),
]
# of a hundred documents so many have such a length
KINDS = {200: 50, 1000: 30, 4000: 15, 8000: 5}


class Documents:
    """Lengths by name: what symsim is told of them, and draws."""

    def __init__(self, name: str, directory: Path, longest: int = 10**9):
        self.name, self.told = name, name
        self.kind, _, sizes = name.partition(":")
        self.sizes = [float(x) for x in sizes.split("+")] if sizes else []
        if self.kind in ("exponential", "kinds"):
            counts = KINDS if self.kind == "kinds" else self._exponential(longest)
            path = directory / f"{name.replace(':', '_')}.json"
            path.write_text(json.dumps({str(u): n for u, n in counts.items()}))
            self.told = f"@{path}"

    def _exponential(self, longest: int) -> dict[int, int]:
        mean = self.sizes[0]
        every = max(1, round(mean / 300))
        shares = {u: math.exp(-(u - every / 2) / mean) - math.exp(-(u + every / 2) / mean) for u in range(every, min(int(16 * mean), longest), every)}
        return {u: round(share * 10**9) for u, share in shares.items() if share > 1e-9}

    def drawn(self, rng: np.random.Generator, number: int, met: bool = False) -> np.ndarray[Any, Any]:
        """met: those that a token is in, of which there are as many more as they are longer."""
        if self.kind == "lognormal":
            mean, cv = self.sizes
            variance = math.log1p(cv * cv)
            return rng.lognormal(math.log(mean) + (variance if met else -variance) / 2, math.sqrt(variance), number)
        if self.kind == "exponential":
            return rng.gamma(2 if met else 1, self.sizes[0], number)
        lengths = np.array(list(KINDS) if self.kind == "kinds" else [int(self.name)], dtype=float)
        weights = np.array(list(KINDS.values()) if self.kind == "kinds" else [1], dtype=float) * (lengths if met else 1)
        return rng.choice(lengths, number, p=weights / weights.sum())


def cut_rows(documents: Documents, row: int, number: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Keys in the reach of a token, the mean of each row that is cut from the stream."""
    left, squares = np.full(number, float(row)), np.zeros(number)
    rest = documents.drawn(rng, number, met=True) * rng.random(number)
    open_rows = np.arange(number)
    while len(open_rows):
        piece = np.minimum(left[open_rows], rest)
        squares[open_rows] += piece**2
        left[open_rows] -= piece
        open_rows = open_rows[left[open_rows] > 1e-9]
        rest = documents.drawn(rng, len(open_rows))
    return squares / row


def seconds_of(took: np.ndarray[Any, Any], strategy: symsim.Strategy) -> float:
    """Of a step, on average, of an array over steps, replicas and micro-batches."""
    waited = took.max(1, keepdims=True) if strategy.zero >= 2 else took
    name = "interleaved" if strategy.vpp > 1 and strategy.schedule == "1f1b" else strategy.schedule
    each = steps_of(name, waited.reshape(-1, took.shape[2]), strategy.pp, strategy.vpp)
    return float(each.reshape(len(took), -1).max(1).mean())


def beside(lengths: str, row: int, options: str, steps: int, directory: Path, seed: int = 1) -> dict[str, Any]:
    rng, free = np.random.default_rng(seed), "padding_free" in options
    documents = Documents(lengths, directory, row if free else 10**9)
    told = documents.told if free else f"cut:{documents.told}"
    result = symsim.derive("llama3-8b", f"document_lengths={told},seq_length={row},{options}", system="h100-sxm")
    strategy, formula = result.strategy, result.formula("t_slow")
    values = {name: float(result.values[name]) for name in formula.symbols}
    b, shape = strategy.micro_batch_size, (strategy.dp, strategy.microbatches)
    steps = max(200, min(steps, 400_000 // math.prod(shape)))
    number = steps * math.prod(shape)
    spread = float(result.values["q_u"])

    def seconds(**sizes: float) -> float:
        return float(formula.at({**values, **sizes}))

    if free:
        lengths_drawn = np.minimum(documents.drawn(rng, number * b), row).reshape(number, b)
        tokens, keys = lengths_drawn.mean(1), (lengths_drawn**2).sum(1) / lengths_drawn.sum(1)
        at_tokens, at_keys = (np.geomspace(x.min(), x.max(), 40) for x in (tokens, keys))
        table = np.array([[seconds(s=s, u=z / (1 + spread)) for z in at_keys] for s in at_tokens])
        i, j = (np.clip(np.searchsorted(grid, x) - 1, 0, 38) for grid, x in ((at_tokens, tokens), (at_keys, keys)))
        x, y = (tokens - at_tokens[i]) / np.diff(at_tokens)[i], (keys - at_keys[j]) / np.diff(at_keys)[j]
        took = (1 - x) * ((1 - y) * table[i, j] + y * table[i, j + 1]) + x * ((1 - y) * table[i + 1, j] + y * table[i + 1, j + 1])
    else:
        keys = cut_rows(documents, row, number * b, rng).reshape(number, b).mean(1)
        grid = np.linspace(keys.min(), keys.max(), 80)
        took = np.interp(keys, grid, [seconds(u=z / (1 + spread)) for z in grid])
    mean, waits = float(took.mean()), float(result.value("waits")) if strategy.pp > 1 else 0.0
    drawn = seconds_of(took.reshape(steps, *shape), strategy) - (strategy.microbatches + waits) * mean
    derived, step, slow = (float(result.value(name)) for name in ("time.exposed.lengths", "time.step", "t_slow"))
    times = strategy.microbatches + waits
    return {
        "lengths": lengths,
        "row": row,
        "options": options,
        "drawn_ms": round(drawn * 1e3, 2),
        "derived_ms": round(derived * 1e3, 2),
        "error": round(100 * (derived / drawn - 1), 1),
        "of_step": round(100 * derived / step, 1),
        "error_of_both": round(100 * ((derived + times * slow) / (drawn + times * mean) - 1), 2),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        for setting in SETTINGS:
            print(json.dumps(beside(*setting, int((sys.argv[1:] or ["4000"])[0]), Path(directory))), flush=True)
