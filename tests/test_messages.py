"""What a user gave is shown in one line of bounded length, and never as something that a terminal obeys."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from symsim.api.cli import main
from symsim.errors import InputError, nearest

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
MODEL = """\
name: {name}
source: {source}
hidden_size: 64
vocab_size: 256
layers: 2
attention: {{num_attention_heads: 4}}
mlp: {{ffn_hidden_size: 128}}
"""


def said(*arguments: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
        main(list(arguments))
    return left.value.code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "llama3-8b", "-s", f"{'x' * 5000}=1"],
        ["eval", "x" * 5000],
        ["eval", "llama3-8b", "-s", f"tp=1,pipeline_model_parallel_layout={'E|' * 3000}"],
        ["eval", "llama3-8b", "--set", f"assume.causal={'y' * 5000}"],
        ["eval", "llama3-8b", "--set", "num_layers=" + "9" * 4000],
        ["eval", "llama3-8b", "-y", "z" * 5000],
        ["derive", "llama3-8b", "-o", "q" * 3000],
        ["sweep", "llama3-8b", "--axis", f"{'w' * 5000}=1,2"],
        ["sweep", "llama3-8b", "--axis", "tp=1,2", "--search", "v" * 5000],
        ["list", "u" * 5000],
        ["t" * 5000],
        ["eval", "llama3-8b", f"--{'s' * 5000}"],
        ["eval", "llama3-8b", "-s", "a \x1b[31mred\x07\x9b=1"],
        ["eval", "llama3-8b\u202e\ud800"],
        ["eval", "llama3-8b", "-y", "h100-sxm", "--set", "eta_gemm=\ud800"],
        ["\x1b]0;title\x07"],
        ["sweep", "llama3-8b", "--axis", "tp=1,2", "--top", "1\x1b[2J"],
    ],
    ids=lambda arguments: re.sub(r"[^\w =-]", "?", " ".join(arguments))[:50],
)
def test_a_refusal_is_one_line_that_a_terminal_can_show(arguments: list[str]):
    status, out, err = said(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("symsim: ") and err.endswith("\n") and err.count("\n") == 1
    assert len(err) <= 301 and not OBEYED.search(err[:-1])


def test_what_is_cut_keeps_both_ends():
    message = str(InputError(f"/a/place:7: the value '{'x' * 900}' is not a size; valid: 1, 2, 4"))
    assert message.startswith("/a/place:7: the value 'xxx") and message.endswith("xxx' is not a size; valid: 1, 2, 4") and "..." in message
    assert len(str(InputError("many words " * 90 + "and the end"))) <= 292
    assert str(InputError("two\nlines\tand \x1b[0m")) == "two lines and \\x1b[0m"


def test_of_many_names_the_nearest_are_given():
    many = [f"{letter}{number}" for letter in "abcdefgh" for number in range(9)]
    assert nearest("h", ["auto", "scan", "bounds"]) == "valid names: auto, bounds, scan"
    listed = nearest("wwwwwwh", many).removeprefix("valid names: ").split(", ")
    assert listed[-1] == "..." and len(listed) == 6 and all(name.startswith("h") for name in listed[:-1])
    assert len(nearest("x", ["y" * 500])) < 80


@pytest.mark.parametrize("suffix", ["md", "html", "tex", "json"])
def test_no_output_carries_what_a_terminal_obeys(suffix: str, tmp_path: Path):
    model = tmp_path / "m.yaml"
    model.write_text(MODEL.format(name=r'"a\x1b[31mb\u202ec\x07"', source=r'"\x9b2J"'))
    for arguments in (["eval", str(model)], ["derive", str(model)]):
        status, out, err = said(*arguments)
        assert status == 0 and "31mb" in out and not OBEYED.search(out.replace("\n", ""))
    status, _, err = said("derive", str(model), "-o", str(tmp_path / f"r.{suffix}"))
    written = (tmp_path / f"r.{suffix}").read_text()
    assert status == 0 and "31mb" in written and not OBEYED.search(written.replace("\n", ""))


def test_no_row_of_a_sweep_carries_what_a_terminal_obeys(tmp_path: Path):
    from symsim.inputs.shipped import models_directory

    text = (models_directory() / "systems" / "h100-sxm.yaml").read_text()
    system = tmp_path / "s.yaml"
    system.write_text(re.sub("^name: .*", r'name: "h\\x1b[31m"', text, flags=re.MULTILINE))
    asked = ["sweep", "llama3-8b", "--axis", f"system={system}", "--axis", "tp=8"]
    status, out, err = said(*asked, "-o", str(tmp_path / "x.csv"))
    assert status == 0 and not OBEYED.search(err.replace("\n", "")), err
    assert not OBEYED.search((tmp_path / "x.csv").read_text().replace("\n", ""))
    status, out, err = said(*asked, "--top", "1", "--by", "mfu")
    assert status == 0 and not OBEYED.search((out + err).replace("\n", ""))
