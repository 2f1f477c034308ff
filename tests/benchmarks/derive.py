"""How long a derivation takes, and that it does not grow with layers, ranks or micro-batches.

`python tests/benchmarks/derive.py` prints CPU milliseconds, each as a ratio to the base case of the same run.
"""

from __future__ import annotations

import subprocess
import sys
import time

from symsim.architecture import Architecture, Segment
from symsim.loading import load_model
from symsim.result import derive
from symsim.strategy import Strategy

BASE = {"tp": 8, "pp": 4, "ep": 8, "sp": True}


def deep(model: Architecture, times: int) -> Architecture:
    return model.model_copy(update={"layers": tuple(Segment(repeat=s.repeat * times, kinds=s.kinds) for s in model.layers)})


def milliseconds(model: Architecture, strategy: Strategy, repeats: int = 15) -> tuple[float, int]:
    """Least CPU time of several derivations, and the number of definitions derived."""
    best, definitions = float("inf"), 0
    for _ in range(repeats):
        start = time.process_time()
        result = derive(model, strategy)
        best = min(best, time.process_time() - start)
        definitions = len(result.derivation.definitions)
    return best * 1000, definitions


def help_seconds() -> float:
    """CPU seconds of `symsim --help` in a process of its own, Python's start-up included."""
    code = (
        "import resource, subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; from symsim.cli import main; main([\"--help\"])'],"
        " stdout=subprocess.DEVNULL); u = resource.getrusage(resource.RUSAGE_CHILDREN); print(u.ru_utime + u.ru_stime)"
    )
    return min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(5))


def main() -> None:
    model = load_model("deepseek-v3").architecture
    cases = [
        ("deepseek-v3, tp=8 pp=4 ep=8", model, BASE),
        ("layers x 16 (976)", deep(model, 16), BASE),
        ("pp x 4 (16 stages)", model, {**BASE, "pp": 16}),
        ("ranks x 64 (dp=512)", model, {**BASE, "dp": 512}),
        ("micro-batches 1024", model, {**BASE, "num_microbatches": 1024}),
    ]
    base = 0.0
    print(f"{'derivation':34}{'CPU ms':>8}{'ratio':>8}{'definitions':>13}")
    for name, architecture, options in cases:
        took, definitions = milliseconds(architecture, Strategy(**options))
        base = base or took
        print(f"{name:34}{took:8.1f}{took / base:8.2f}{definitions:13}")
    print(f"\nsymsim --help: {help_seconds():.3f} CPU seconds")


if __name__ == "__main__":
    main()
