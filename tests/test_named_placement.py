"""Operations placed by name: what follows is counted by hand, and by PyTorch's DTensor where torch is installed."""

from __future__ import annotations

import math
from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.grid.tabulate import Watched
from symsim.lowering.checks import RULES

MODEL = "llama3-8b"
WHOLE = "embedding.V=none+lm_head.V=none+loss.V=none"
VOCABULARY, HIDDEN, LAYERS, SEQUENCE = 128256, 4096, 32, 4096
TABLE = VOCABULARY * HIDDEN


def derived(strategy: str, model: Any = MODEL) -> Result:
    made = symsim.derive(model, strategy, system="h100-sxm")
    assert isinstance(made, Result)
    return made


def messages(strategy: str) -> list[dict[str, Any]]:
    return derived(strategy).to_json()["messages"]


def ends(strategy: str) -> list[tuple[str, str, int]]:
    """Messages of the embedding, the head and the loss."""
    found = messages(strategy)
    return [(m["phase"], m["op"], m["send_bytes"]) for m in found if any(w in m["what"] for w in ("embedding", "lm_head", "loss", "final_norm"))]


@pytest.mark.parametrize("fusion", ["te", "eager"])
def test_a_replicated_vocabulary_is_whole_on_every_rank(fusion):
    split, whole = derived(f"tp=4,fusion={fusion}"), derived(f"tp=4,fusion={fusion},placement={WHOLE}")
    of = lambda r: r.to_json()["params"]["per_rank"][0]["total"]  # noqa: E731
    assert of(whole) - of(split) == 2 * TABLE * 3 // 4
    assert whole.to_json()["params"]["total"] == split.to_json()["params"]["total"]
    # each rank multiplies all logits, not a quarter of them
    forward = [r.to_json()["flops"]["per_rank"][0]["forward"] for r in (split, whole)]
    assert forward[1] - forward[0] == 2 * SEQUENCE * TABLE * 3 // 4
    assert whole.to_json()["flops"]["forward"] == split.to_json()["flops"]["forward"]


def test_a_replicated_vocabulary_sends_nothing():
    """No partial sum of the lookup, no reductions of the loss, none of the head's input gradient: two all-reduces a layer and
    direction are left."""
    assert [m for m in ends("tp=4") if m[1] == "all_reduce"] != []
    assert ends(f"tp=4,placement={WHOLE}") == []
    left = messages(f"tp=4,placement={WHOLE}")
    assert {m["op"] for m in left} == {"all_reduce"} and sum(m["count"] for m in left if m["per"] == "microbatch") == 4 * LAYERS
    assert sum(m["count"] for m in messages("tp=4") if m["per"] == "microbatch") == 4 * LAYERS + 1 + 3 + 1


def test_without_its_mask_the_lookup_keeps_its_ids_alone():
    kept = [derived(s).numbers["A_embedding"] for s in ("tp=4", f"tp=4,placement={WHOLE}")]
    assert kept == [(8 + 1) * SEQUENCE, 8 * SEQUENCE]


def test_under_sequence_parallelism_tokens_take_the_ranks_that_the_vocabulary_leaves():
    """Every rank looks up and multiplies its own tokens: no gather before the head; the tables' gradients are summed over tp at
    the end of the step, as norms' are."""
    result = derived(f"tp=4,sp=true,placement={WHOLE}")
    assert [m for m in ends(f"tp=4,sp=true,placement={WHOLE}") if m[2] > 4 * SEQUENCE] == []
    step = [m for m in result.to_json()["messages"] if m["per"] == "step"]
    norms = (2 * LAYERS + 1) * HIDDEN
    assert [(m["op"], m["axis"], m["send_bytes"]) for m in step] == [("all_reduce", "tp", 4 * (2 * TABLE + norms))]
    assert result.to_json()["flops"]["per_rank"] == derived("tp=4,sp=true").to_json()["flops"]["per_rank"]
    kept = f"tp=4,sp=true,placement={WHOLE}+lm_head.s=cp+loss.s=cp"
    assert ("forward", "all_gather", 2 * SEQUENCE * HIDDEN // 4) in ends(kept)


def test_a_vocabulary_that_ranks_do_not_divide_may_be_whole():
    architecture = symsim.load_model(MODEL).model_copy(update={"vocab_size": VOCABULARY + 1})
    with pytest.raises(InputError, match="does not divide vocab_size"):
        derived("tp=4", architecture)
    assert derived(f"tp=4,placement={WHOLE}", architecture).value("params.total") == derived("tp=4").value("params.total") + 2 * HIDDEN


def test_a_whole_feed_forward_layer():
    """Every linear map by its scope: three matrices of h f whole on each rank, and one all-reduce a layer less each way."""
    split, whole = derived("tp=4"), derived("tp=4,placement=mlp.f=none")
    of = lambda r: r.to_json()["params"]["per_rank"][0]["total"]  # noqa: E731
    assert of(whole) - of(split) == LAYERS * 3 * HIDDEN * 14336 * 3 // 4
    count = [sum(m["count"] for m in r.to_json()["messages"] if m["send_bytes"] == 2 * SEQUENCE * HIDDEN) for r in (split, whole)]
    assert count[0] - count[1] == 2 * LAYERS


def test_a_column_parallel_output_projection():
    """o_proj split by its results: its input is gathered, its output too, and no partial sum is left."""
    found = messages("tp=4,placement=attention.o_proj.a=none+attention.o_proj.h=tp")
    of_o_proj = [(m["op"], m["send_bytes"] // (SEQUENCE * HIDDEN)) for m in found if m["phase"] == "forward" and "o_proj" in m["what"]]
    assert of_o_proj == [] or {op for op, _ in of_o_proj} == {"all_gather"}
    gathers = [m for m in found if m["phase"] == "forward" and m["op"] == "all_gather"]
    assert sum(m["count"] for m in gathers) == 2 * LAYERS and math.prod({m["send_bytes"] for m in gathers}) == 2 * SEQUENCE * HIDDEN // 4


def test_it_is_shown_where_placements_are():
    result = derived(f"tp=4,placement={WHOLE}")
    assert ("V of lm_head", "none") in result.placed() and "V of loss" in result.table()


BAD = [
    ("lm_haed.V=none", "tp=4", "no operation is called 'lm_haed': did you mean 'lm_head'"),
    ("lm_head.W=none", "tp=4", "'W' cannot be placed by name"),
    ("lm_head.f=none", "tp=4", "lm_head has no dimension f: valid names: V, h, s"),
    ("lm_head.V=xp", "tp=4", "V cannot lie on 'xp': did you mean 'tp'"),
    ("lm_head.s=tp", "tp=4", "s and V of lm_head.lm_head would both lie on tp"),
    ("lm_head.V=tp*tp", "tp=4", "names an axis twice"),
    ("lm_head.V=none+lm_head.V=tp", "tp=4", "gives V of lm_head twice"),
    ("lm_head.b=none", "tp=4", "b is placed by dp"),
    ("lm_head", "tp=4", "is not NAME.DIMENSION=AXES"),
    ("attention.q_proj.a=none", "tp=4", "is one of the projections that attention.qkv makes"),
    ("attention.qkv.a=none", "tp=4", "lie side by side in one weight"),
    ("attention.s=tp", "tp=4", "attention.core needs its sequences"),
    ("lm_head.V=none+lm_head.s=tp", "tp=4,cp=2", "cp=2 splits every sequence"),
    ("attention.a=none+attention.g=none", "tp=16", "tp=16 is above num_query_groups=8"),
    ("attention.o_proj.a=none+attention.o_proj.h=tp", "tp=32", "heads|num_query_groups"),
]


@pytest.mark.parametrize(("placement", "strategy", "said"), BAD, ids=[b[0] for b in BAD])
def test_what_cannot_be_is_refused(placement, strategy, said):
    with pytest.raises(InputError, match=said):
        derived(f"{strategy},placement={placement}")


def test_a_tied_table_lies_on_the_same_axes():
    with pytest.raises(InputError, match="share one table"):
        derived("tp=4,placement=embedding.V=none", "gemma-2-27b")
    assert derived(f"tp=4,placement={WHOLE}", "gemma-2-27b").value("params.total")


@pytest.mark.parametrize("whole", [True, False])
def test_dtensor_sends_the_same(whole):
    """Embedding, head and loss as DTensors on a fake group of four ranks: parameters of one rank, and collectives of both ways."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.distributed.tensor.parallel import loss_parallel
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (4,))
        lies = [Replicate()] if whole else [Shard(0)]
        table, head = (distribute_tensor(torch.randn(64, 8, requires_grad=True), mesh, lies) for _ in range(2))
        ids = DTensor.from_local(torch.randint(0, 64, (16,)), mesh, [Replicate()])
        with CommDebugMode() as sent:
            x = torch.nn.functional.embedding(ids, table).redistribute(mesh, [Replicate()])
            x = DTensor.from_local(x.to_local(), mesh, [Replicate()])  # the lookup's masked sum knows no partial gradient
            logits = x @ head.t()
            if whole:
                torch.nn.functional.cross_entropy(logits, ids).backward()
            else:
                with loss_parallel():
                    torch.nn.functional.cross_entropy(logits, ids).backward()
        elements = table.to_local().numel() + head.to_local().numel()
    finally:
        dist.destroy_process_group()
    mine = derived(f"tp=4,fusion=eager{f',placement={WHOLE}' if whole else ''}")
    assert elements == 2 * 64 * 8 // (1 if whole else 4)
    assert mine.numbers["P_embedding_embedding"] == TABLE // (1 if whole else 4)
    ours = [m for name in ("embedding", "head") for m in _between(mine, name)]
    assert sent.get_total_counts() == len(ours)


def _between(result: Result, name: str) -> list[Any]:
    block = result.lowered.blocks[name]
    return [m for _, m in (*block.differentiated.forward_messages, *block.backward_messages) if m.axis == "tp"]


@pytest.mark.parametrize(
    ("entry", "sizes"), [("attention.o_proj.a=none", set()), ("attention.o_proj.a=tp", set()), (f"{WHOLE}+lm_head.s=cp*tp", {"seq_length"})]
)
def test_the_rule_of_a_name_reads_the_mesh_alone(entry: str, sizes: set[str]) -> None:
    """And the length that it divides: a grid or a page asks it once for each set of what it reads."""
    strategy = symsim.load_strategy(f"tp=8,cp=2,sp=true,placement={entry}")
    watched = Watched({name: getattr(strategy, name) for name in type(strategy).model_fields})
    (rule,) = (rule for rule in RULES if rule.__name__ == "_named_placement")
    rule(symsim.load_model(MODEL), watched)
    assert watched.read == {"placement", "tp", "cp", "sp", "zero", "cp_comm_type"} | sizes
