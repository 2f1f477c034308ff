"""`symsim show` prints one thing whole, and a hub id stands for a model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from symsim.api.cli import main
from symsim.api.showing import SHOWN, shown
from symsim.errors import InputError
from symsim.inputs.alike import ALIKE
from symsim.inputs.hub import shipped_model
from symsim.inputs.models import load_model
from symsim.inputs.shipped import list_models, list_strategies, list_systems, models_directory
from symsim.inputs.systems import load_system

CONFIG = '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 100}'


def test_a_file_is_shown_as_it_is_and_can_be_copied(tmp_path: Path) -> None:
    for kind, folder, names in (
        ("model", ".", list_models()),
        ("system", "systems", list_systems()),
        ("strategy", "strategies", list_strategies()),
    ):
        for name in names:
            assert shown(kind, name) == (models_directory() / folder / f"{name}.yaml").read_text()
    copy = tmp_path / "mine.yaml"
    copy.write_text(shown("system", "h100-sxm"))
    assert load_system(str(copy)).accelerator == load_system("h100-sxm").accelerator


def test_what_a_name_means() -> None:
    assert shown("option", "tp") == "tp=1  (integer)\n    tensor-parallel degree\n"
    assert shown("assumption", "assume.causal") == shown("assumption", "causal")
    assert "source: full: torch FlopCounterMode" in " ".join(shown("assumption", "causal").split())
    assert shown("symbol", "B_2") == "B_2  [byte/s]  B_{2}\n    bandwidth of one rank over tier 2\n"
    assert shown("symbol", "chi_1").startswith(r"chi_1  [1]  \chi_{1}") and shown("symbol", "C_2").startswith("C_2  [byte/s]")
    assert shown("symbol", "lam").startswith("lam  [1]") and shown("quantity", "time.step").startswith("time.step  [s]")


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("system", "h100-sxmm", "there is no system 'h100-sxmm': did you mean 'h100-sxm'?"),
        ("assumptions", "causal", "there is no 'assumptions' to show: did you mean 'assumption'?"),
        ("option", "tpp", "there is no option 'tpp': did you mean 'tp'?"),
        ("option", "causal", "there is no option 'causal': 'symsim show assumption causal' would be right"),
        ("h100-sxm", "", "there is no 'h100-sxm' to show: 'symsim show system h100-sxm' would be right"),
        ("B_2", "", "there is no 'B_2' to show: 'symsim show symbol B_2' would be right"),
        ("system", "", "symsim show system needs a name: 'symsim list systems' has them"),
        ("quantity", "", "symsim show quantity needs a name: 'symsim list quantities' has them"),
        ("model", "llama3-7b", "no model or file is named 'llama3-7b': did you mean 'llama3-70b'?"),
    ],
)
def test_a_name_that_there_is_not(kind: str, name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["show", kind, *filter(None, [name])])
    assert (left.value.code, capsys.readouterr().err) == (2, f"symsim: {said}\n")
    assert set(SHOWN) >= {"model", "system", "strategy", "assumption"}


def test_a_hub_id_is_the_shipped_model_of_that_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert load_model("Qwen/Qwen2.5-7B") == load_model("qwen2.5-7b")
    tuned = load_model("Qwen/Qwen2.5-7B-Instruct")
    assert tuned.architecture == load_model("qwen2.5-7b").architecture
    assert tuned.note == "Qwen/Qwen2.5-7B-Instruct is taken for qwen2.5-7b, read from Qwen/Qwen2.5-7B"
    with pytest.raises(InputError, match=r"no model or file is named 'nobody/nothing-7b'; .*nobody/nothing-7b/resolve/main/config.json"):
        load_model("nobody/nothing-7b")


@pytest.mark.parametrize(
    ("reference", "model"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-7b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        # untied, where Qwen2.5-Math-1.5B is tied
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-r1-distill-qwen-1.5b"),
        ("TechxGenus/Meta-Llama-3-8B-Instruct-AWQ", "llama3-8b"),
        ("EleutherAI/pythia-1.4b-deduped", "pythia-1.4b"),
        ("THUDM/glm-4-9b-chat", "glm-4-9b-chat"),
        ("zai-org/GLM-4-9B-0414", "glm-4-9b"),
        ("codellama/CodeLlama-7b-Python-hf", "codellama-7b"),
    ],
)
def test_a_hub_id_is_the_shipped_model_of_its_sizes(reference: str, model: str) -> None:
    found = shipped_model(reference)
    assert found is not None and found.name == model


def test_every_name_of_the_same_sizes_is_reached_and_none_is_a_shipped_models_own() -> None:
    """A row whose name has words that are dropped, or that ships by itself, would never be read."""
    for name, model in ALIKE.items():
        found = shipped_model(f"someone/{name}")
        assert found is not None and (found.name, found.exact) == (model, False), name


def test_a_download_is_read_before_another_model_is_taken_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for age, (revision, layers) in enumerate((("old", "2"), ("new", "3"))):
        folder = tmp_path / "models--Qwen--Qwen2.5-7B-Instruct/snapshots" / revision
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(CONFIG.replace('layers": 3', f'layers": {layers}'))
        os.utime(folder / "config.json", (1_000 + age, 1_000 + age))
    found = load_model("Qwen/Qwen2.5-7B-Instruct")
    assert (found.architecture.name, found.architecture.num_layers) == ("qwen2.5-7b-instruct", 3)
    assert found.note.endswith("snapshots/new/config.json")
    # the model that was read from this very id
    assert load_model("Qwen/Qwen2.5-7B").note == ""
