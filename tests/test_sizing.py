"""Sizes of clusters: the best of each against a plan of its own, their runs against `symsim run`, which is the answer, and the curve."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import symsim
from symsim.planning.plan import Plan, plan
from symsim.planning.sizing import Need, cheapest, fastest, most_tokens, sized, smallest
from tests.in_process import run

MODEL, SYSTEM = "smollm2-360m", "h100-sxm"
FIXED = "cp=1,pp=1,vpp=1,tp=1,overlap_grad_reduce=true,recompute=none"


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [plan(MODEL, SYSTEM, world=n, global_batch_size=32, fix=FIXED, top=1) for n in (2, 8)]


def test_a_run_is_that_of_symsim_run(plans: list[Plan]) -> None:
    for made in plans:
        own = sized(made, Need(tokens=1e11, numbers={"mtbf": "1000 h"})).run
        there = symsim.run(MODEL, made.best[0].text, SYSTEM, tokens="100B", overrides={**made.settings(made.best[0]), "mtbf": "1000 h"})
        assert own is not None and {"days", "cost", "goodput"} <= own.keys() and own == there.numbers
        assert own["cost"] > sized(made, Need(tokens=1e11)).run["cost"]  # type: ignore[index]


def test_the_smallest_the_cheapest_and_the_fastest_are_of_those_that_do(plans: list[Plan]) -> None:
    few, many = (sized(p, Need(tokens=1e11)) for p in plans)
    assert few.run is not None and many.run is not None and few.run["days"] > many.run["days"] and few.run["cost"] < many.run["cost"]
    for days, answers in ((100.0, (2, 2, 8)), ((few.run["days"] + many.run["days"]) / 2, (8, 8, 8)), (many.run["days"] / 2, (None, None, None))):
        sizes = [sized(p, Need(tokens=1e11, days=days)) for p in plans]
        assert tuple(found.world if found else None for found in (smallest(sizes), cheapest(sizes), fastest(sizes))) == answers
    spent = [sized(p, Need(tokens=1e11, budget=(few.run["cost"] + many.run["cost"]) / 2)) for p in plans]
    assert [s.does for s in spent] == [True, False] and smallest(spent) is spent[0] is fastest(spent)


def test_a_budget_and_days_are_spent(plans: list[Plan]) -> None:
    sizes = [sized(p, Need(budget=1000.0)) for p in plans]
    for size in sizes:
        assert size.run is not None and size.run["cost"] == pytest.approx(1000, rel=1e-3) and size.run["cost"] <= 1000
    assert sizes[0].run["tokens"] > sizes[1].run["tokens"] and most_tokens(sizes) is sizes[0]  # type: ignore[index]
    both = sized(plans[0], Need(budget=1000.0, days=3.0))
    assert both.run is not None and both.run["days"] == pytest.approx(3, rel=1e-3) and both.run["cost"] < 1000


def test_what_does_not_fit_or_never_ends_is_no_answer(plans: list[Plan]) -> None:
    none = sized(replace(plans[0], fits=False), Need(tokens=1e9))
    never = sized(plans[0], Need(tokens=1e9, numbers={"mtbf": "1 s"}))
    assert (none.does, none.why, never.does) == (False, "nothing fits", False) and "never ends" in never.why
    assert smallest([none, never]) is None is cheapest([none, never])


def test_the_command_prints_sizes_of_several_systems_and_draws_them(tmp_path: Path) -> None:
    asked = ["plan", MODEL, "-y", SYSTEM, "-y", "a100-sxm-80", "--world", "2,8", "--global-batch-size", "32", "--fix", FIXED]
    ended = run(*asked, "--tokens", "100B", "--days", "30", "--plot", str(tmp_path / "curve.svg"))
    assert ended.returncode == 0 and "wrote" in ended.stderr
    assert max(len(line) for line in ended.stdout.splitlines() if ": -s " not in line) <= 80
    answers = {
        line.split(":")[0].strip(): line for line in ended.stdout.splitlines() if line.startswith(("  smallest:", "  cheapest:", "  fastest:"))
    }
    assert "h100-sxm 2," in answers["smallest"] and "h100-sxm 8," in answers["fastest"] and answers.keys() >= {"cheapest"}
    picture = ElementTree.fromstring((tmp_path / "curve.svg").read_text())
    points = picture.findall(".//{http://www.w3.org/2000/svg}circle/{http://www.w3.org/2000/svg}title")
    assert len(points) == 4 and all("world=" in (p.text or "") for p in points)


def test_the_command_as_json_and_as_a_page(tmp_path: Path) -> None:
    asked = ["plan", MODEL, "-y", SYSTEM, "--world", "2", "--global-batch-size", "32", "--fix", FIXED]
    ended = run(*asked, "--days", "3", "--json", "--plot", str(tmp_path / "curve.html"))
    (found,) = json.loads(ended.stdout)["sizes"]
    assert (found["world"], found["system"], found["does"]) == (2, SYSTEM, True) and found["run"]["days"] == pytest.approx(3, rel=1e-3)
    page = (tmp_path / "curve.html").read_text()
    assert page.startswith("<!doctype html>") and "<svg" in page and "What can be trained in 3 days" in page


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--tokens", "15Q"], "--tokens 15Q is not read; it is given as 15T"),
        (["--days", "0"], "--days 0: it lies between"),
        (["--budget", "much"], "--budget much is not read; it is given as 2M"),
        (["--set", "mtbf=1000h"], "--set mtbf is of a run, and nothing says how long it is: give --tokens, --days or --budget"),
        (["--tokens", "1B", "--why-not", "tp=1"], "--why-not is of one number of accelerators"),
        (["--plot", "curve.png"], "--plot curve.png: a picture ends in .svg or .html"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(asked: list[str], said: str) -> None:
    ended = run("plan", MODEL, "-y", SYSTEM, "--world", "2", "--global-batch-size", "32", "--fix", FIXED, *asked)
    assert ended.returncode == 2 and said in ended.stderr and ended.stderr.count("\n") == 1


def test_a_budget_needs_a_price() -> None:
    ended = run("plan", MODEL, "-y", "a800-sxm", "--world", "2", "--global-batch-size", "32", "--fix", FIXED, "--budget", "1M")
    assert ended.returncode == 2 and "--budget: system a800-sxm has no price" in ended.stderr


ASKED = ["plan", MODEL, "-y", SYSTEM, "--world", "2,8", "--global-batch-size", "32", "--fix", FIXED]


def test_each_size_has_its_certificate_and_what_should_be_known_of_its_best() -> None:
    """In words and as data, as a plan of that size alone; what is the same of several sizes is said once."""
    wide = "cp=1,pp=1,vpp=1"
    asked = [*(wide if text == FIXED else text for text in ASKED), "--tokens", "100B"]
    ended, told = run(*asked), json.loads(run(*asked, "--json").stdout)
    words = " ".join(ended.stdout.split())
    for size in told["sizes"]:
        alone = plan(MODEL, SYSTEM, world=size["world"], global_batch_size=32, fix=wide, top=1).certificate
        assert size["certificate"] == alone.to_json() and alone.bound is not None
        said = f"{size['world']}: of {alone.configurations:,} configurations {sum(alone.refused.values()):,} are refused"
        named = words[words.index(said) + len(said) :].partition("), bounds")[0]
        assert sum(int(n.replace(",", "")) for n in re.findall(r"[0-9]{1,3}(?:,[0-9]{3})*", named)) == sum(alone.refused.values())
        assert said in words and f"bounds exclude {alone.slower:,} as slower and {alone.larger:,} as too large" in words
        assert f"{alone.evaluated:,} are evaluated; none of those excluded as slower is above {alone.bound:,.0f} tokens" in words
    assert told["answers"] == {"smallest": {"world": 2, "system": SYSTEM}} | {
        what: {"world": world, "system": SYSTEM} for what, world in (("cheapest", 2), ("fastest", 8))
    }
    odd = symsim.sizing("lfm2-350m", SYSTEM, world=[1, 2], global_batch_size=8, fix=FIXED)
    assert " ".join(repr(odd).split()).count("1, 2: no file starts it: Megatron-LM cannot say the layers of lfm2-350m: conv has") == 1
    assert "1, 2: no file starts it" in odd._repr_html_() and "no file starts it" not in ended.stdout
    assert [size["unwritten"] != "" for size in odd.to_json()["sizes"]] == [True, True] and "answers" not in odd.to_json()


def test_the_size_that_answers_is_written_for_a_trainer(tmp_path: Path, plans: list[Plan]) -> None:
    """The one of eight, which alone does it in the days; a plan of eight writes the same."""
    few, many = (sized(p, Need(tokens=1e11)).run for p in plans)
    assert few is not None and many is not None
    days = ["--tokens", "100B", "--days", str((few["days"] + many["days"]) / 2)]
    ended = run(*ASKED, *days, "--export", "megatron", str(tmp_path / "train.sh"))
    assert ended.returncode == 0 and f"wrote {tmp_path / 'train.sh'}" in ended.stderr
    own = ["8" if text == "2,8" else text for text in ASKED]
    again = run(*own, "--export", "megatron", str(tmp_path / "own.sh"))
    assert again.returncode == 0 and (tmp_path / "train.sh").read_text() == (tmp_path / "own.sh").read_text()
    for further, said in (
        (
            ["--tokens", "100B"],
            "the cheapest is 2 of h100-sxm, the fastest is 8 of h100-sxm; nothing is written: one --world and one -y",
        ),
        (["--tokens", "100T", "--days", "1"], "none of these sizes does it, so nothing is written"),
        ([], "--export writes one strategy, and nothing chooses among sizes: give a run (--tokens, --days or --budget)"),
    ):
        ended = run(*ASKED, *further, "--export", "megatron", str(tmp_path / "none.sh"))
        assert ended.returncode == 2 and said in ended.stderr and not (tmp_path / "none.sh").exists()
