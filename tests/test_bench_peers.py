"""Peers' rates: a sentence for each that cannot be timed, a rate for one that can, and nothing of what it prints."""

from __future__ import annotations

import logging
import sys
import types
import warnings
from typing import Any

import pytest

from symsim.bench import peers
from symsim.bench.compared import bench_searches
from symsim.bench.peer_files import HEADS, HIDDEN, LAYERS, simumax_model, simumax_system
from symsim.bench.peer_searches import SEARCHES, Asked, PeerSearch, searched
from symsim.bench.peers import CONFIGURATIONS, PeerRate, peer_rates
from symsim.bench.setting import Bench, Limits, Setting

PACKAGES = {"simumax": "SimuMax", "calculon": "Calculon", "llm_analysis": "llm-analysis"}


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in PACKAGES:
        monkeypatch.setitem(sys.modules, package, None)  # importing it fails as if it were absent


def calculon(largest_dp: int) -> types.ModuleType:
    """A module with as much of Calculon's interface as is called, which is noisy and refuses more replicas than `largest_dp`."""

    class Llm:
        class Error(Exception):
            pass

        class Application:
            def __init__(self, shape: dict[str, int]) -> None:
                assert (shape["hidden"], shape["attn_size"], shape["num_blocks"]) == (HIDDEN, HIDDEN // HEADS, LAYERS)

        class Execution:
            @staticmethod
            def from_json(settings: dict[str, Any]) -> dict[str, Any]:
                return settings

        def __init__(self, application: Application, log: logging.Logger) -> None:
            self.log = log

        def compile(self, system: dict[str, Any], execution: dict[str, Any]) -> None:
            ranks = execution["tensor_par"] * execution["pipeline_par"] * execution["data_par"]
            assert ranks == execution["num_procs"]
            if execution["data_par"] > largest_dp:
                raise Llm.Error("too many replicas")

        def run(self, system: dict[str, Any]) -> None:
            print("printed")
            print("printed", file=sys.stderr)
            warnings.warn("warned", stacklevel=1)
            self.log.critical("logged")

        def get_total_time(self) -> float:
            return 1.5

        def get_mem_tier1_cap_req(self) -> float:
            return 2.0**34

    module: Any = types.ModuleType("calculon")
    module.Llm, module.System, module.__version__ = Llm, dict, "9.9"
    return module


def test_a_sentence_for_each_peer_that_is_not_installed() -> None:
    rates, sentences = peer_rates(0.0)
    assert rates == []
    assert len(sentences) == 3
    for (package, name), sentence in zip(PACKAGES.items(), sentences):
        assert sentence.startswith(f"{name} is not timed: no module {package} ")
        assert "github.com" in sentence


def test_a_peer_is_timed_in_silence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setitem(sys.modules, "calculon", calculon(largest_dp=8))
    rates, sentences = peer_rates(0.02)
    (rate,) = rates
    accepted = sum(dp <= 8 for _, _, dp, _, _ in CONFIGURATIONS)
    assert 0 < accepted < len(CONFIGURATIONS)
    assert (rate.name, rate.version) == ("Calculon", "9.9")
    assert rate.what.startswith(f"{accepted} of {len(CONFIGURATIONS)} configurations")
    assert rate.configurations > 0 and rate.configurations % accepted == 0
    assert rate.seconds >= 0.02
    assert [s.split()[0] for s in sentences] == ["SimuMax", "llm-analysis"]
    assert capfd.readouterr() == ("", "")
    assert not caplog.records and not recwarn.list
    assert logging.root.manager.disable == logging.NOTSET


def test_a_peer_that_refuses_everything_and_another_package_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "calculon", calculon(largest_dp=0))
    monkeypatch.setitem(sys.modules, "simumax", types.ModuleType("simumax"))
    other: Any = types.ModuleType("llm_analysis")
    other.__path__, other.__version__ = [], "0.0.1"
    monkeypatch.setitem(sys.modules, "llm_analysis", other)
    config: Any = types.ModuleType("llm_analysis.config")
    monkeypatch.setitem(sys.modules, "llm_analysis.config", config)
    monkeypatch.setitem(sys.modules, "llm_analysis.analysis", config)
    rates, (simumax, refused, differs) = peer_rates(0.0)
    assert rates == []
    # as pip installs SimuMax, which packs its top folder alone
    assert simumax.startswith("SimuMax is not timed: no module simumax.core")
    assert f"refuses all {len(CONFIGURATIONS)} configurations" in refused and "too many replicas" in refused
    assert differs.startswith("llm-analysis 0.0.1 is not timed: its interface is another (") and "d841e40" in differs


def test_a_sentence_for_each_search_that_cannot_be_asked() -> None:
    for block, peer in zip(bench_searches(Bench(Setting(), Limits({}, {}, 1))), ("SimuMax", "Calculon"), strict=True):
        assert not block.figures and block.title.startswith(f"{peer}'s own search beside symsim plan: ")
        assert block.notes[0].startswith(f"{peer} is not asked: ModuleNotFoundError: ")


def test_a_search_beside_a_plan() -> None:
    """What a peer's search found, here a strategy that is not the best, is set beside the plan's own under both models."""
    strategy = {"seq_len": 4096, "micro_batch_size": 1, "micro_batch_num": 8, "world_size": 8, "tp_size": 4, "pp_size": 1,
                "enable_sequence_parallel": True, "zero_state": 1, "enable_recompute": False, "dtype": "bf16"}  # fmt: skip
    model = {**simumax_model(), "hidden_size": 2048, "head_num": 16, "intermediate_size": 5632, "layer_num": 4}
    asked = Asked("a small model on 8 H100", 8, 16, 4096, f"{SEARCHES[0].asked.fix},pp=1", ("tp=1,2,4",), ("recompute", "none", "full"))
    files = {"strategy": strategy, "model": model, "system": simumax_system()}
    found = searched(PeerSearch("SimuMax", "simumax", asked, lambda given: (given.world, files)))
    assert found.configurations == (8, 6) and min(found.seconds) >= 0
    assert "tp=4," in found.theirs.strategy and "tp=2," in found.ours.strategy
    assert found.ours.here < found.theirs.here and found.ours.there < found.theirs.there


def test_sizes_of_simumax_and_the_rate() -> None:
    assert peers._bytes("66.5 GB") == 66.5 * 2**30
    assert PeerRate("a", "1", 30, 1.5, "").per_second == 20


def test_configurations_fill_64_to_512_ranks() -> None:
    assert len(set(CONFIGURATIONS)) == len(CONFIGURATIONS) == 24
    assert {tp * pp * dp for tp, pp, dp, _, _ in CONFIGURATIONS} == {64, 128, 256, 512}
    assert all(LAYERS % pp == 0 and m >= pp for _, pp, _, _, m in CONFIGURATIONS)
