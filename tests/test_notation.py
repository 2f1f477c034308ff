"""Every symbol of a report is explained: a meaning in words, and a value with its unit."""

from __future__ import annotations

import re

import pytest

from symsim.api.result import derive
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system
from symsim.report.content import report
from symsim.report.document import Code, Math, Table

CASES = [
    ("llama3-8b", "tp=2,sp=true,pp=2,dp=2", "h100-sxm"),
    ("llama3-8b", "vpp=2,pp=4,schedule=interleaved,precision=fp16,recompute=full", "a100-pcie-80"),
    ("llama3-8b", "cpu_offloading_num_layers=4,zero=3,dp=4", "h100-sxm"),
    ("gpt2", "zero=3,dp=4,fusion=eager", "mi300x"),
    ("deepseek-v3", "sp=true,tp=2,ep=4,pp=2,fp8=blockwise,mtp_num_layers=1", "gb200-nvl72"),
    ("mixtral-8x7b", "ep=2,cp=2,moe_expert_capacity_factor=1.25,moe_pad_expert_input_to_capacity=true", "a800-sxm"),
    ("qwen3-next-80b-a3b", "ep=2,recompute=selective", "b200-sxm"),
    ("gemma-2-9b", "recompute=full,tp=2,pp=2", None),
    ("llama4-scout", "ep=2", "h200-sxm"),
    ("bloom-7b1", "tp=2,cp=2,cp_comm_type=a2a", "h20"),
    ("gpt-oss-20b", "ep=2,dp=4,overlap_moe_expert_parallel_comm=true", "h100-sxm"),
    ("llama3-70b", "tp=2,cp=4,cp_comm_type=a2a+p2p,hierarchical_context_parallel_sizes=2+2,packed_document_length=512", None),
    ("llama3-8b", "dp=8,zero=3,num_distributed_optimizer_instances=2,optimizer_cpu_offload=true,use_precision_aware_optimizer=true", "gb300-nvl72"),
    ("qwen3-30b-a3b", "ep=4,pp=2,vpp=2,num_microbatches=4,delay_wgrad_compute=true,overlap_moe_expert_parallel_comm=true", "b200-sxm"),
    ("llama3.1-405b", "tp=8,sp=true,pp=4,vpp=2,schedule=dualpipev,num_microbatches=16", "mi300x"),
    ("phi-3-mini", "pp=4,num_microbatches=8,schedule=zb_h1", "h800-sxm"),
]


def said(cell) -> str:
    parts = cell if isinstance(cell, tuple) else (cell,)
    return "".join(p.latex if isinstance(p, Math) else p.text if isinstance(p, Code) else str(p) for p in parts)


@pytest.mark.long_after(6)
@pytest.mark.parametrize(("model", "strategy", "system"), CASES)
def test_every_symbol_has_a_meaning_and_a_unit(model: str, strategy: str, system: str | None):
    placed = load_strategy(strategy)
    made = report(derive(load_model(model).architecture, placed, system=load_system(system) if system else None))
    (notation,) = [s for s in made.sections if s.heading == "Notation"]
    (table,) = [p for p in notation.parts if isinstance(p, Table)]
    rows = [tuple(map(said, row.cells)) for row in table.rows if row.role != "group"]
    assert len(rows) > 20
    for symbol, meaning, value in rows:
        bare = re.sub(r"\\mathrm|[{}\\]", "", symbol)
        assert meaning.split(",")[0] not in (symbol, bare) and (" " in meaning or meaning in ("ranks", "hidden size")), (symbol, meaning)
        if meaning.startswith("power"):
            assert value.endswith(" W"), value
        if meaning.startswith("price"):
            assert value.endswith(" USD/h"), value
        if meaning.startswith(("bandwidth", "HBM bandwidth")):
            assert value.endswith("B/s"), (symbol, value)
        if meaning.startswith(("latency", "start and tail", "exposed", "the host's time")):
            assert value.endswith("s"), (symbol, value)
    # a meaning is no symbol's name said again
    names = {n.strip() for _, m, _ in rows for n in [m]}
    assert not names & {"bytes", "columns", "rows", "depth", "groups", "heads", "keys", "queries", "size", "sequences", "w_in", "w_out"}
