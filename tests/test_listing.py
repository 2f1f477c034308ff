"""`symsim list`: models, systems and strategies with their sizes and sources, and every list as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import in_process
import pytest

from symsim.api.listing import LISTS, columns
from symsim.api.result import derive
from symsim.api.shipped_lists import models_text, systems_text
from symsim.evaluation.parameters import parameters
from symsim.inputs.models import load_model
from symsim.inputs.shipped import list_models, list_strategies, list_systems
from symsim.inputs.strategy import Strategy

# tied heads, learned positions, latent attention, experts of several kinds of layers, depths of prediction, states, blocks that layers share
KINDS = ("gpt2", "gemma-3-1b", "deepseek-v3", "llama4-maverick", "kimi-linear-48b-a3b", "glm-4.5", "nemotron-h-8b", "bert-base", "zamba2-7b")

CONFIG = '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 100}'


@pytest.mark.parametrize("name", KINDS)
def test_parameters_without_a_derivation_are_those_of_one(name: str) -> None:
    model = load_model(name).architecture
    whole = derive(model, Strategy())
    assert parameters(model) == (whole.value("params.total"), whole.value("params.active"))


def test_models_stand_with_sizes_and_sources() -> None:
    rows = {row["name"]: row for row in LISTS["models"].rows()}
    assert list(rows) == list_models()
    assert rows["llama3-70b"]["params"] == {"total": 70553706496, "active": 70553706496}
    assert (rows["llama3-70b"]["num_layers"], rows["llama3-70b"]["hidden_size"]) == (80, 8192)
    some = [rows[name] for name in ("llama3-70b", "qwen3-coder-480b-a35b", "gpt3-175b")]
    assert models_text(some, False).splitlines() == [
        "llama3-70b             70.6B         80   8192  meta-llama/Meta-Llama-3-70B",
        "qwen3-coder-480b-a35b   480B  35.5B  62   6144  Qwen/Qwen3-Coder-480B-A35B-Instruct",
        "gpt3-175b               175B         96  12288  arXiv 2205.05198",
    ]
    shown = models_text(list(rows.values()), True).splitlines()
    assert shown[0].split() == ["model", "total", "active", "layers", "hidden", "source"] and max(map(len, shown)) == 80


def test_what_a_download_left_is_listed_by_its_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    none = in_process.run("list", "downloads")
    assert none.stdout == "" and str(tmp_path) in none.stderr and "HF_HUB_CACHE" in none.stderr
    for name, text in (("us--small", CONFIG), ("us--strange", '{"model_type": "rubbish"}')):
        folder = tmp_path / f"models--{name}/snapshots/a"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(text)
    small, strange = LISTS["downloads"].rows()
    alone = derive(load_model("us/small").architecture, Strategy())
    assert (small["name"], small["params"]["total"], small["num_layers"]) == ("us/small", alone.value("params.total"), 3)
    assert strange["name"] == "us/strange" and "rubbish" in strange["why"]
    first, second = in_process.run("list", "downloads").stdout.splitlines()
    assert first.split()[0] == "us/small" and second.split()[0] == "us/strange"


def test_systems_and_strategies_begin_their_lines() -> None:
    for what, names in (("systems", list_systems()), ("strategies", list_strategies())):
        lines = in_process.run("list", what).stdout.splitlines()
        assert [line.split()[0] for line in lines if not line.startswith(" ")] == names and max(map(len, lines)) <= 80
    (row,) = (row for row in LISTS["systems"].rows() if row["name"] == "h100-sxm")
    assert systems_text([row], False).splitlines()[0] == "h100-sxm  80 GiB  989.4 TFLOP/s  3.35 TB/s  450, 50 GB/s"
    assert row["memory"] == 80 * 2**30 and row["peak"]["fp8"] == 1978.9e12 and row["network"][0]["ranks"] == 8
    assert "H100 datasheet" in row["source"] and row["source"] in row["sources"].values()


def test_values_of_an_option_go_on_below_it() -> None:
    assert max(map(len, in_process.run("list", "options").stdout.splitlines())) <= 80
    assert in_process.run("list", "options").stdout.count("onebit_lamb") == 1


@pytest.mark.parametrize("what", [name for name in LISTS if name not in ("definitions", "sources", "downloads")])
def test_every_list_is_json(what: str) -> None:
    told = json.loads(in_process.run("list", what, "--json").stdout)
    assert told and all(row["name"] for row in told)
    if what == "assumptions":
        assert all(row["source"] and row["default"] in row["choices"] for row in told)


def test_on_a_terminal_the_last_column_goes_on_below() -> None:
    line = ("words " * 12).strip()
    assert columns([("b", "1", f"{line} much more")], folded=True) == f"b  1  {line}\n      much more\n"
    long = "a name that takes the room of half a line"
    assert columns([("b", "1", "few"), (long, "1", line)], folded=True) == f"{'b':40}  1  few\n{long}  1\n    {line}\n"
    for what in ("symbols", "quantities"):
        rows = LISTS[what].rows()
        assert max(map(len, LISTS[what].text(rows, True).splitlines())) <= 80
        assert len(LISTS[what].text(rows, False).splitlines()) == len(rows)
