"""`symsim eval` says what a step is made of, and when its pipeline has too few micro-batches."""

from __future__ import annotations

import pytest

from symsim.api.result import derive
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.report.content import report
from symsim.report.document import Paragraph


def table(strategy: str, model: str = "llama3-8b") -> str:
    text = derive(load_model(model).architecture, load_strategy(strategy)).table()
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("tp=1", "seq_length=4096 (default), micro_batch_size=1 (default), num_microbatches=1 (default): 4,096 tokens a step"),
        ("seq_length=8192,dp=2", "seq_length=8192, micro_batch_size=1 (default), num_microbatches=1 (default): 16,384 tokens a step"),
        ("micro_batch_size=2,dp=2,global_batch_size=32", "seq_length=4096 (default), micro_batch_size=2, num_microbatches=8: 131,072 tokens a step"),
        ("pp=2,vpp=2", "num_microbatches=2 (default): 8,192 tokens a step"),
        ("num_microbatches=4,seq_length=4096", "seq_length=4096, micro_batch_size=1 (default), num_microbatches=4: 16,384 tokens a step"),
    ],
)
def test_the_batch_is_always_stated(strategy: str, said: str):
    assert said in table(strategy)


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (
            "tp=8,pp=4,dp=4",
            "1 micro-batch a step keeps at most 1 of 4 pipeline stages busy: set num_microbatches (such as 16) or global_batch_size (such as 64).",
        ),
        (
            "pp=8,num_microbatches=3,micro_batch_size=2",
            "3 micro-batches a step keep at most 3 of 8 pipeline stages busy: set num_microbatches (such as 32)",
        ),
    ],
)
def test_a_pipeline_that_waits_is_named_with_what_to_set(strategy: str, said: str):
    assert said in table(strategy)
    made = report(derive(load_model("llama3-8b").architecture, load_strategy(strategy)))
    assert said.split(":")[0] in "".join(str(s) for p in made.sections[0].parts if isinstance(p, Paragraph) for s in p.spans)


@pytest.mark.parametrize("strategy", ["tp=8,dp=4", "pp=4,num_microbatches=4", "pp=2,global_batch_size=8", "pp=2,vpp=2"])
def test_a_pipeline_with_enough_is_not(strategy: str):
    assert "pipeline stages busy" not in table(strategy)
