"""Stacks of Mamba, attention and feed-forward layers, by Megatron-LM's letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.megatron.hybrid import spaced
from symsim.importers.reading import load_job
from symsim.inputs.models import load_model

SIZES = ["--hidden-size", "1024", "--num-attention-heads", "8", "--vocab-size", "1024", "--bf16", "--disable-bias-linear", "--world-size", "8"]
LATENT = ["--kv-lora-rank", "64", "--q-lora-rank", "96"]
INDEXER = [*LATENT, "--dsa-indexer-topk", "512", "--dsa-indexer-n-heads", "16", "--dsa-indexer-head-dim", "64"]


def job(*words: str, lenient: bool = False) -> Job:
    return load_job("megatron", *SIZES, *words, lenient=lenient)


def kinds(found: Job) -> list[str]:
    assert found.architecture is not None
    return [kind for part in found.architecture.layers for kind in part.kinds * part.repeat]


def why(found: Job, key: str) -> str:
    return next(row.why for row in found.rows if row.key == key)


def test_nemotron_h_by_its_letters_is_the_model_that_ships() -> None:
    letters = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
    words = f"--hybrid-layer-pattern {letters} --hidden-size 4096 --ffn-hidden-size 21504 --num-attention-heads 32 --group-query-attention"
    words += " --num-query-groups 8 --kv-channels 128 --squared-relu --normalization RMSNorm --disable-bias-linear --vocab-size 131072 --bf16"
    words += " --untie-embeddings-and-output-weights --position-embedding-type none --hidden-dropout 0 --attention-dropout 0"
    found = load_job("megatron", *words.split()).architecture
    ships = load_model("nemotron-h-8b").architecture
    assert found is not None
    for part in ("layers", "layer_kinds", "mamba", "mlp", "hidden_size", "vocab_size", "position_embedding", "normalization", "norm_bias"):
        assert getattr(found, part) == getattr(ships, part), part
    assert found.attention == ships.attention.model_copy(update={"kv_channels": 128})


def test_letters_of_all_kinds() -> None:
    found = job("--hybrid-layer-pattern", "MG*-E", "--num-experts", "8", "--moe-router-topk", "2", "--num-layers", "60", "--is-hybrid-model")
    assert found.architecture is not None and kinds(found) == ["mamba", "linear", "full", "dense", "moe"]
    assert found.architecture.mamba is not None and found.architecture.mamba.mamba_num_heads == 32
    assert found.architecture.linear_attention is not None
    assert why(found, "--num-layers") == "hybrid_layer_pattern decides"
    older = job("--hybrid-override-pattern", "M*-", "--mamba-num-heads", "16", "--mamba-state-dim", "64", "--mamba-head-dim", "32")
    assert older.architecture is not None and older.architecture.mamba is not None
    assert (older.architecture.mamba.mamba_num_heads, older.architecture.mamba.mamba_state_dim) == (16, 64)
    assert why(job("--num-layers", "2", "--mamba-state-dim", "64"), "--mamba-state-dim") == "the model has no Mamba layers"


def test_bars_are_the_parts_of_a_pipeline() -> None:
    batch = ["--micro-batch-size", "1", "--global-batch-size", "16"]
    found = job("--hybrid-layer-pattern", "M-M|*-|M-|M-M-", "--pipeline-model-parallel-size", "2", *batch)
    strategy = found.placed()
    assert (strategy.pipeline_model_parallel_layout, strategy.vpp) == ("Et*3|t*2|t*2|t*4L", 2)
    assert job("--hybrid-layer-pattern", "M-M-", "--pipeline-model-parallel-size", "2").placed().pipeline_model_parallel_layout is None


def test_depths_of_prediction_are_left_out_and_said() -> None:
    found = job("--hybrid-layer-pattern", "M-*-/*-/*-", "--mtp-num-layers", "2")
    assert found.architecture is not None and found.architecture.mtp_num_layers == 0
    assert "2 depths of multi-token prediction are left out: 4 layers" in why(found, "--hybrid-layer-pattern")
    assert next(row.fate for row in found.rows if row.key == "--mtp-num-layers") == "not_modelled"


def test_shares_of_layers_and_programs_of_such_stacks(tmp_path: Path) -> None:
    assert spaced(10, 0.2, 0) == "MMM*MM*MMM" and spaced(12, 0.25, 0.25) == "MM*-MM*-M*M-"
    assert kinds(job("--num-layers", "10", "--hybrid-attention-ratio", "0.2")).count("full") == 2
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_mamba.py --num-layers 3 {' '.join(SIZES)} --spec megatron.core.x mamba_stack_spec\n")
    found = load_job("megatron", str(script))
    assert kinds(found) == ["mamba"] * 3 and why(found, "--spec") == "the modules of such stacks"


def test_an_indexer_chooses_keys() -> None:
    words = ["--multi-latent-attention", "--experimental-attention-variant", "dsa", *INDEXER, "--dsa-indexer-topk-freq", "2", "--num-layers", "4"]
    found = job(*words)
    assert found.architecture is not None and found.architecture.attention.dsa_indexer_topk == 512
    assert kinds(found) == ["dense", "dense_shared", "dense", "dense_shared"]
    assert found.architecture.layer_kinds["dense_shared"].shared_index
    stacked = job("--hybrid-layer-pattern", "D-D-", *INDEXER).architecture
    assert stacked is not None and (stacked.attention.kind, stacked.attention.dsa_indexer_n_heads) == ("mla", 16)
    plain = job("--hybrid-layer-pattern", "+-", *LATENT).architecture
    assert plain is not None and (plain.attention.kind, plain.attention.dsa_indexer_topk) == ("mla", None)


@pytest.mark.parametrize(
    ("words", "wanted", "fate"),
    [
        ("--dsa-indexer-loss-coeff 0.01", "dense", "mapped"),
        ("--dsa-indexer-loss-coeff 0.01 --dsa-indexer-use-sparse-loss", "sparse", "mapped"),
        ("--dsa-indexer-loss-coeff 0 --dsa-indexer-use-sparse-loss", None, "mapped"),
        ("--dsa-indexer-loss-coeff 0.01 --context-parallel-size 2", None, "not_modelled"),
        ("--dsa-indexer-loss-coeff 0.01 --context-parallel-size 2 --cp-comm-type allgather", "dense", "mapped"),
    ],
)
def test_the_loss_of_an_indexer(words: str, wanted: str | None, fate: str) -> None:
    found = job("--multi-latent-attention", "--experimental-attention-variant", "dsa", *INDEXER, "--num-layers", "4", *words.split())
    assert (found.strategy or {}).get("dsa_indexer_loss") == wanted
    assert next(row.fate for row in found.rows if row.key == "--dsa-indexer-loss-coeff") == fate


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--hybrid-layer-pattern M-X", "hybrid_layer_pattern is M-X; it should be a text of the letters M G \\* \\+ D - E"),
        ("--hybrid-layer-pattern M-*+", "attention of one kind"),
        ("--hybrid-layer-pattern D+", "an indexer all or none here; give D"),
        ("--hybrid-layer-pattern M --hybrid-override-pattern M", "given without hybrid_layer_pattern"),
        ("--hybrid-layer-pattern D- --q-lora-rank 64", "dsa_indexer_topk is not given, and attention has an indexer"),
        ("--num-layers 4 --experimental-attention-variant dsa --dsa-indexer-topk 4", "given with multi_latent_attention"),
        ("--num-layers 4 --hybrid-attention-ratio 0.8 --hybrid-mlp-ratio 0.5", "shares of the layers"),
        ("--hybrid-attention-ratio 0.5", "num_layers is not given"),
        ("--num-layrs 4", r"num_layers is not given \('num_layrs' may be meant for it\), and hidden_size is"),
        ("--hybrid-layer-pattern M --mamba-num-groups 5", "a divisor of the 32 heads"),
        ("--hybrid-layer-pattern M --mamba-head-dim 4096", "at most twice hidden_size=1024"),
        (f"--hybrid-layer-pattern {'M' * 20000}", "a text of the letters"),
    ],
)
def test_what_does_not_fit_is_said(words: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        job(*words.split())
