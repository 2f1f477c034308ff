"""What holds for configurations of every system that are imported: the ledger, the directory, mutated inputs."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import symsim
from symsim import importers
from symsim.api.cli import app
from symsim.errors import InputError
from symsim.importers.job import Job, write_job
from symsim.importers.keys import FATES, Entry, Given, Keys, Silent, silent
from symsim.importers.ledger import ledger_text
from symsim.importers.reading import OPTIONS
from symsim.importers.registry import KINDS
from symsim.importers.rules import data_parallel, settle
from symsim.inputs.models import load_model

sys.path.insert(0, str(Path(__file__).parent / "draws"))
import imports  # noqa: E402
import imports_quick  # noqa: E402
from inputs_run import place_of_work  # noqa: E402

IMPORTED = Path(__file__).parent / "imported"


def keys(lenient: bool = False, **given: object) -> Keys:
    table = {**silent("no_cost_effect", "a label", "title"), **silent("not_modelled", "what changes", "odd")}
    return Keys("a file", {key: Given(value, f"job.yaml:{line}") for line, (key, value) in enumerate(given.items(), 1)}, table, lenient)


def test_every_key_has_a_row_in_the_order_given() -> None:
    made = keys(title="t", odd=3, tp="8", pp=None)
    assert made.integer("tp", 1, to="tp", least=1) == 8 and made.integer("pp", 2) == 2
    rows = made.finish()
    assert [(r.key, r.value, r.fate, r.to) for r in rows] == [
        ("title", "t", "no_cost_effect", ""),
        ("odd", "3", "not_modelled", ""),
        ("tp", "8", "mapped", "tp"),
        ("pp", "null", "no_cost_effect", ""),
    ]
    assert keys(odd=False).finish()[0].fate == "no_cost_effect"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"titel": 1}, "job.yaml:1: a file has no key 'titel': did you mean 'title'?"),
        ({"tp": "eight"}, "job.yaml:1: tp is eight; it should be a number"),
        ({"tp": 1.5}, "job.yaml:1: tp is 1.5; it should be a whole number from 1 up"),
        ({"tp": True}, "job.yaml:1: tp is true; it should be a number"),
        ({"tp": 10**400}, "it should be a number"),
    ],
)
def test_a_wrong_key_or_value_is_one_sentence(given: dict[str, object], sentence: str) -> None:
    made = keys(**given)
    with pytest.raises(InputError) as raised:
        made.integer("tp", 1, least=1)
        made.finish()
    assert sentence in str(raised.value)


def test_lenient_keeps_what_is_unknown_in_the_ledger() -> None:
    (row,) = keys(lenient=True, titel=1).finish()
    assert (row.fate, row.why) == ("refused", "no such key: did you mean 'title'?")


@pytest.mark.parametrize(
    ("strategy", "model", "option", "left"),
    [
        ({"sp": True}, "llama3-8b", "sp", None),
        ({"sp": True, "tp": 2, "tp_comm_overlap": True}, "llama3-8b", "tp_comm_overlap", True),
        ({"tp": 2, "tp_comm_overlap": True}, "llama3-8b", "tp_comm_overlap", None),
        ({"overlap_param_gather": True}, "llama3-8b", "overlap_param_gather", None),
        ({"distribute_saved_activations": True, "recompute": "full"}, "llama3-8b", "distribute_saved_activations", None),
        ({"distribute_saved_activations": True, "recompute": "full", "tp": 2}, "llama3-8b", "distribute_saved_activations", True),
        ({"overlap_p2p_comm": True, "pp": 2}, "llama3-8b", "overlap_p2p_comm", None),
        ({"moe_shared_expert_overlap": True}, "mixtral-8x7b", "moe_shared_expert_overlap", None),
        ({"moe_shared_expert_overlap": True}, "deepseek-v3", "moe_shared_expert_overlap", True),
        ({"ep": 8}, "llama3-8b", "ep", None),
        ({"etp": 4, "tp": 2}, "llama3-8b", "etp", None),
        ({"etp": 1, "tp": 2, "sp": True}, "mixtral-8x7b", "etp", 1),
        ({"recompute": "selective", "recompute_modules": ["core_attn", "mla_up_proj"]}, "llama3-8b", "recompute_modules", ["core_attn"]),
        ({"recompute": "full", "recompute_modules": ["core_attn"]}, "llama3-8b", "recompute_modules", None),
    ],
)
def test_what_frameworks_run_becomes_a_rule_with_a_row(strategy: dict[str, object], model: str, option: str, left: object) -> None:
    made, asked = keys(**{option: strategy[option]}), dict(strategy)
    made.note(option, to=option)
    settle(made, asked, load_model(model).architecture, "a framework")
    assert asked.get(option) == left
    (row,) = [r for r in made.finish() if r.key == option]
    assert row.fate == ("mapped" if left == strategy[option] else "derived" if left else "no_cost_effect")
    symsim.derive(model, {"num_microbatches": 4, **asked})


def test_ranks_that_the_degrees_leave() -> None:
    assert data_parallel({"tp": 2, "pp": 2}, 16) == 4 and data_parallel({"tp": 3}, 16) is None
    assert data_parallel({"ep": 8, "etp": 1}, None) == 8


def test_a_directory_holds_one_import(tmp_path: Path) -> None:
    architecture = load_model("llama3-8b").architecture
    write_job(Job("hf", (), architecture, {"tp": 2}, None, {"causal": "half"}), tmp_path)
    assert symsim.derive(tmp_path).strategy.tp == 2 and symsim.derive(tmp_path).assumptions["causal"] == "half"
    assert symsim.derive(tmp_path, "tp=4", {"causal": "full"}).assumptions["causal"] == "full"
    assert symsim.derive(tmp_path, overrides={"assume.causal": "exact"}).assumptions["causal"] == "exact"
    write_job(Job("hf", (), architecture), tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"model.yaml", "ledger.json"}


def test_a_wrong_assumption_of_a_directory_is_named(tmp_path: Path) -> None:
    write_job(Job("hf", (), load_model("llama3-8b").architecture, None, None, {"causal": "half"}), tmp_path)
    (tmp_path / "assumptions.yaml").write_text("causal: halb\n")
    with pytest.raises(InputError, match=r"assumptions.yaml:1: assume.causal=halb is not a choice: did you mean 'half'"):
        symsim.derive(tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if (IMPORTED / kind).is_dir()])
def test_the_jobs_of_a_kind_are_read_and_evaluated(kind: str, tmp_path: Path) -> None:
    for number, files in enumerate(imports.jobs(kind)):
        place = tmp_path / str(number)
        place.mkdir()
        for name, text in files.items():
            (place / name).write_text(text)
        named = [str(place / n) if n in files else n for n in (files.get("arguments.txt") or "\n".join(sorted(files))).splitlines()]
        job = symsim.load_job(kind, *named)
        told = job.to_json()
        assert json.loads(json.dumps(told)) == told and {row["fate"] for row in told["keys"]} <= set(FATES)
        write_job(job, place / "out")
        assert symsim.derive(place / "out", system=None if job.system else "h100-sxm").value("time.step") > 0


@pytest.mark.long_after(6)
@pytest.mark.parametrize("kind", imports.KINDS)
def test_mutated_jobs_end_in_an_answer_or_a_sentence(kind: str) -> None:
    with place_of_work() as place:
        found = [(number, imports.outcome(kind, number, place)) for number in range(60)]
    assert not [(number, one.fault) for number, one in found if one.fault]
    assert {one.status for _, one in found} == {0, 2}


def test_options_of_the_command_are_those_that_are_offered() -> None:
    import typer

    command = typer.main.get_command(app).commands["import"]  # type: ignore[attr-defined]
    assert set(OPTIONS) == {n for p in command.params for n in p.opts if n.startswith("--")} - {"--help"}


def test_choices_are_said_once() -> None:
    with pytest.raises(InputError, match=r"kind is zzz; it should be one of fast, slow$"):
        keys(kind="zzz").choice("kind", {"fast": 1, "slow": 2})
    with pytest.raises(InputError, match=r"it should be one of fast, slow \(did you mean 'slow'\?\)$"):
        keys(kind="slwo").choice("kind", {"fast": 1, "slow": 2})


def test_a_fault_of_a_reader_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cases that are run by the tens of thousands: a traceback, a file that is written, and a message of two lines or of a terminal's marks."""
    monkeypatch.chdir(tmp_path)
    place = imports_quick.Place(tmp_path)
    assert len(imports_quick.names("hf")) > 0
    asked = imports_quick.case("hf", 1)
    assert place.hold({"c.json": b"{}"}) and not imports_quick.direct("hf", asked, place).fault

    def acts(failure: BaseException | None, written: str = "") -> str:
        def read(*_: object) -> None:
            if written:
                Path(written).touch()
            raise failure or InputError("wrong")

        monkeypatch.setattr(imports_quick, "read_job", read)
        return imports_quick.direct("hf", asked, place).fault

    bare = InputError("wrong")
    bare.args = ("one\ntwo",)
    assert acts(None) == "" and acts(ZeroDivisionError()).startswith("traceback: ZeroDivisionError")
    assert acts(bare) == "message: too long, or not one line" and acts(MemoryError()).startswith("memory")
    assert acts(None, "RAN") == "acts: [] ['RAN']"


def _refusals() -> list[tuple[str, str]]:
    """Every sentence of a refusal in the tables of the importers, with its key."""
    names = [one.name for one in pkgutil.walk_packages(importers.__path__, "symsim.importers.")]
    tables = [value for name in names for value in vars(importlib.import_module(name)).values() if isinstance(value, dict)]
    return sorted({(key, said.why) for table in tables for key, said in table.items() if isinstance(said, Silent) and said.fate == "refused"})


@pytest.mark.parametrize(("key", "why"), _refusals())
def test_a_refusal_says_what_would_be_right(key: str, why: str) -> None:
    assert re.search(r"\b(give|leave|left out)\b|--of ", why), f"{key}: {why}"


def test_a_ledger_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        Entry("--linear-key-head-dim", "128", "mapped", "linear_attention.linear_key_head_dim", ""),
        Entry("a-key-of-forty-letters-that-goes-its-own-line", "1", "no_cost_effect", "", "names, paths and files of the run, where they lie"),
    )
    job = Job("megatron", rows)
    for columns in (160, 80, 72):
        monkeypatch.setenv("COLUMNS", str(columns))
        said = ledger_text(job)
        assert max(map(len, said.splitlines())) <= columns and "-> linear_attention.linear_key_head_dim" in " ".join(said.split())
