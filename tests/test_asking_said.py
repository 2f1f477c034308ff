"""What ask says of questions that have no answer: which it is, what was typed, and what does it instead."""

from __future__ import annotations

import re
from functools import cache

import in_process
import pytest

import symsim
from symsim.api.result import Result
from symsim.asking.moving import moving
from symsim.errors import InputError

ASKED = ("llama3-8b", "-s", "tp=2,sp=true,dp=4,global_batch_size=64", "-y", "h100-sxm")


@cache
def _result() -> Result:
    return symsim.derive(ASKED[0], ASKED[2], system=ASKED[4])


def test_of_several_questions_the_bad_one_is_named() -> None:
    done = in_process.run("ask", *ASKED, "largest b where fits", "largest lam where t_step < 2 s")
    assert done.returncode == 2
    assert done.stderr == "symsim: 'largest lam where t_step < 2 s': --set lam: llama3-8b has no experts whose load could be uneven\n"


def test_several_questions_in_python_are_one_sentence() -> None:
    for asked in (["N over s=1,2", "largest b where fits"], ("N over s=1,2",)):
        with pytest.raises(
            InputError, match=r"a question is one text: several are asked one by one, as \[result\.ask\(text\) for text in questions\]"
        ):
            symsim.ask(ASKED[0], asked, ASKED[2], ASKED[4])  # type: ignore[arg-type]


def test_what_a_run_needs_is_said_for_the_command_line() -> None:
    done = in_process.run("ask", *ASKED, "needed B_1 for run.cost < 1e6")
    assert done.returncode == 2 and "run.cost needs a run: --set tokens=15T, steps or days says how long it is" in done.stderr


SAID = (
    ("largest s where M_peak <= 80", "'M_peak <= 80': M_peak is in bytes, and 80 has no unit: write 80 GiB (or GB, MiB, B)"),
    ("largest s where 80 >= M_peak and t_step < 4 s", "'80 >= M_peak': M_peak is in bytes, and 80 has no unit: write 80 GiB"),
    ("crossing t_step = 2 over B_1", "'t_step = 2': t_step is in seconds, and 2 has no unit: write 2 s (or ms, us)"),
    ("largest s where M_peak + 2 <= 80 GiB", "'M_peak + 2': M_peak is in bytes, and 2 has no unit"),
    ("largest B_1 where B_1 <= 400", "'B_1 <= 400': B_1 is in bytes a second, and 400 has no unit: write 400 GB/s (or TB/s)"),
    ("largest s where fit", "'fit' is no condition: did you mean 'fits'?"),
    ("largest s where fit and b >= 1", "'fit' is no condition: did you mean 'fits'?"),
    ("largest s where M_peak", "'M_peak' is no condition: M_peak <= 80 GiB is one"),
    (
        "needed accelerator.memory for fits",
        "what fits needs of it is memory.peak + memory.reserve, here 49.38 GiB; symsim sweep --axis 'accelerator.memory=",
    ),
    (
        "largest global_batch_size where fits",
        "global_batch_size is a setting and no symbol of a formula: symsim sweep --axis global_batch_size=VALUE",
    ),
    ("smallest recompute where fits", "symsim sweep --axis recompute=VALUE,VALUE looks at its values"),
    ("smallest zero where fits", "symsim sweep --axis zero=VALUE,VALUE looks at its values"),
    ("smallest assume.causal where fits", "symsim sweep --axis assume.causal=VALUE,VALUE looks at its values"),
    ("smallest assume.casual where fits", "there is no symbol 'assume.casual' that could move: did you mean 'assume.causal'?"),
    ("largest world where fits", "world follows from the degrees and cannot be moved: dp can, as world = tp*cp*pp*dp"),
)


@pytest.mark.parametrize(("question", "said"), SAID)
def test_one_sentence_says_what_would_be_right(question: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as raised:
        _result().ask(question)
    assert len(str(raised.value)) < 280


def test_nothing_and_counts_need_no_unit() -> None:
    assert _result().largest("b", "t_bubble >= 0 and max(t_bubble, 0) <= 1 s and N <= 1e12 and mfu > 0.1").value is not None


@pytest.mark.long
def test_a_long_row_that_cannot_run_hides_no_answer() -> None:
    """Groups of queries divide 32 heads: none of the many below 1,000,000,000 does, and that the condition holds nowhere was no answer."""
    assert _result().largest("g", "N <= 1e12").value == 32


def test_a_micro_batch_is_looked_for_within_the_batch() -> None:
    """From the largest integer down none of 20,000 divides a batch of 64: that the condition holds nowhere was no answer."""
    fitting, every = _result().largest("b", "fits"), _result().largest("b", "N <= 1e12")
    assert fitting.value == 2 and fitting.beyond == 4 and every.value == 16
    assert moving(_result(), "b").bounds() == (1, 64)
