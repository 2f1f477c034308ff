"""`symsim bench`: every benchmark gives figures, tables fit a terminal, and what is wrong is one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from symsim.bench import BENCHMARKS, run, walks
from symsim.bench.figures import Figure
from symsim.bench.machine import workload
from symsim.bench.setting import Model, Setting
from symsim.errors import InputError

# enough points that not all of them are known before there is a kernel
SIZES = ("micro_batch_size=1:4", "num_microbatches=4:256:4", "seq_length=64:4096:64")
SMALL = Model("llama3.2-1b", "tp=2,pp=2,dp=2,sp=true,num_microbatches=32", ("tp=2,4", "pp=2,4", "dp=2,4", "sp==tp>1"), SIZES)
TINY = Setting(
    models=(SMALL,),
    seconds=0.005,
    stream_bytes=1 << 20,
    workload_blocks=4,
    top=3,
    search=SIZES,
    search_top=3,
    process=SIZES,
    options=("tp=1,2", "zero=0,1"),
    further="overlap_grad_reduce=false,true",
    rounds=1,
    peer_seconds=0.0,
    peer_sequences=4,
)


@pytest.fixture(autouse=True, scope="module")
def nothing_collected() -> Iterator[None]:
    """A walk before every timing through all that other tests keep, in every process that is forked, takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walks, "gc", SimpleNamespace(collect=lambda: None))
        yield


@cache
def benchmark(name: str, setting: Setting = TINY) -> dict[str, Any]:
    written: list[str] = []
    run([name], False, True, written.append, setting)
    (text,) = written
    (found,) = json.loads(text)["benchmarks"]
    assert isinstance(found, dict)
    return found


# searches have none without a peer: test_bench_peers.py
@pytest.mark.long_after(3)
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "searches"])
def test_every_benchmark_gives_positive_finite_figures(name: str) -> None:
    block = benchmark(name)
    assert block["name"] == name
    assert block["figures"] and block["workload_points_per_second"] > 0
    for figure in block["figures"]:
        numbers = [figure["value"], *(figure[k] for k in ("ratio", "share", "busy") if figure[k] is not None)]
        assert all(math.isfinite(x) for x in numbers), figure
        assert figure["value"] > 0, figure
    assert not any("DIFFER" in note for note in block["notes"])


def test_kernels_of_a_grid_agree_and_know_their_operations() -> None:
    block = benchmark("grid")
    assert "all find the same 3 points" in block["notes"]
    assert "131,072 configurations" in block["title"]
    every = [f for f in block["figures"] if f["what"].endswith("every point")]
    assert every and all(f["share"] > 0 for f in every)


def test_tables_fit_a_terminal_and_come_one_by_one() -> None:
    written: list[str] = []
    run(["workload", "derive"], False, False, written.append, TINY)
    head, first, second, last = written
    assert head.startswith("symsim ") and "NumPy" in head
    assert first.startswith("workload: ") and second.startswith("derive: ")
    assert "M points/s" in last
    assert all(len(line) <= 80 for text in written for line in text.splitlines())


def test_bad_input_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"^there is no benchmark 'gird': did you mean 'grid'\?$"):
        run(["workload", "gird"], False, False, lambda text: None, TINY)
    # found in the process of the benchmark
    with pytest.raises(InputError, match="gpt3000"):
        benchmark("derive", replace(TINY, models=(replace(SMALL, name="gpt3000"),)))


def test_ratios_to_the_workload() -> None:
    points_per_second = 1e8
    assert Figure("", 5e7, "M/s").ratio(points_per_second) == 0.5
    assert Figure("", 2e-6, "us").ratio(points_per_second) == pytest.approx(200)
    assert Figure("", 1.0, "MiB").ratio(points_per_second) is None
    assert Figure("", 3e6, "M/s", limit=6e6).share == 0.5


def test_the_fixed_workload_is_what_it_was() -> None:
    assert workload(4) == pytest.approx(8.5, rel=1e-12)
