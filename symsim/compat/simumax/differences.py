"""What SimuMax v1.2 (git 4dcaae5) does otherwise, a row each. Places are files under simumax/core."""

from __future__ import annotations

from fractions import Fraction

from symsim.compat.difference import Difference, Question
from symsim.compat.simumax.recompute import recomputed
from symsim.compat.simumax.settings import Settings, settings_of
from symsim.compat.simumax.times import timed
from symsim.errors import InputError

DENSE, MOE = "transformer/dense_module.py", "transformer/moe_module.py"
SAVED = ("saved bytes", "peak")


def differences(question: Question) -> tuple[Difference, ...]:
    """The rows that concern a job. InputError where seconds are asked for on a system that is none of SimuMax's."""
    if question.system is not None and "accelerator" not in question.given.get("system", {}):
        raise InputError(f"--compat simumax on {question.system.name}: its seconds need a system file of SimuMax, imported with the job")
    asked = settings_of(question)
    return (*_saved(question, asked), *_counts(question, asked), *recomputed(question, asked), *timed(question, asked))


def _kept(name: str, here: str, there: str, source: str, rows: dict[tuple[str, str], Fraction | int]) -> Difference:
    return Difference(name, here, there, source, SAVED, {"kept": {key: Fraction(width) for key, width in rows.items()}})


_ALWAYS = (
    _kept(
        "norm-statistics",
        "a norm keeps its input and an fp32 statistic a row",
        "its input alone",
        f"{DENSE} LayerNorm._comp_leaf_act_info_impl",
        {("norm", "rsigma"): 0, ("norm", "mu"): 0},
    ),
    _kept(
        "attention-log-sum-exp",
        "the log-sum-exp of attention's rows is fp32",
        "it has the width of activations",
        f"{DENSE} CoreAttention._comp_leaf_act_info_impl",
        {("attention", "lse"): 2},
    ),
    _kept(
        "attention-mask",
        "the causal mask and its kind are kept where the core runs again",
        "neither is there",
        f"{DENSE} CoreAttention",
        {("attention", "attention_mask"): 0, ("attention", "mask_type"): 0, ("constant", "*"): 0},
    ),
    _kept(
        "rotary-tables",
        "rotary embeddings keep their cosines and sines",
        "they keep nothing",
        f"{DENSE} RotaryEmbedding",
        {("rope", "*"): 0, ("angles", "*"): 0},
    ),
    _kept("embedding-ids", "a lookup keeps token ids, and their mask where the table is split", "nothing", f"{DENSE} Embedding", {("embed", "*"): 0}),
    _kept(
        "loss-targets",
        "the loss keeps targets and their mask beside the softmax",
        "the softmax alone",
        f"{DENSE} ParallelCE",
        {("cross_entropy", "mask"): 0, ("cross_entropy", "target"): 0},
    ),
)
_LATENT = Difference(
    "latent-alone",
    "the norm of the latent keeps it with the rotary key beside it, of which it is a view",
    "it keeps the latent alone",
    f"{DENSE} MLAAttention.kv_layernorm",
    SAVED,
    {"kept_alone": frozenset({("norm", "latent")})},
)
_DROPOUT = _kept(
    "dropout-masks",
    "dropout keeps a byte mask",
    "no dropout is modelled",
    f"{DENSE} (enable_dropout)",
    {("add", "*"): 0, ("dropout", "*"): 0, ("attention", "mask"): 0, ("attention", "dropped"): 0},
)
_GELU = Difference(
    "gelu-inputs",
    "an activation without a gate keeps what its kernels do",
    "three times its output, fused or not",
    f"{DENSE} Gelu._comp_leaf_act_info_impl",
    SAVED,
    {"kept": {("activation", "*"): Fraction(6)}, "again_typed": frozenset({"activation"})},
    strategy={"bias_activation_fusion": None},
)
_VALUES = Difference(
    "values-alone",
    "written-out attention keeps values with the joint projection of which they are a view",
    "it keeps the values alone",
    f"{DENSE} CoreAttention._comp_leaf_act_info_impl",
    SAVED,
    {"kept_alone": frozenset({("attention", "out")})},
)
_ATTENTION_OUTPUT = _kept(
    "attention-output",
    "attention and the projection after an exchange keep an output each",
    "the projection alone, before TE 2.8",
    f"{DENSE} CoreAttention._saved_output_cache_mem",
    {("attention", "core.out"): 0},
)
_NORM_IN_PASSES = Difference(
    "norm-in-passes",
    "a norm that is not fused keeps what its kernels do",
    "its input twice in fp32, its output, and two statistics a row",
    f"{DENSE} LayerNorm._comp_leaf_act_info_impl",
    (*SAVED, "step time"),
    {"kept": {("norm", "*"): Fraction(10), ("norm", "rsigma"): Fraction(8)}, "again_typed": frozenset({"norm"})},
    strategy={"norm_fusion": None},
)
_GATE_IN_PASSES = Difference(
    "gate-in-passes",
    "an activation that is not fused keeps what its kernels do",
    "three tensors of its output's size",
    f"{DENSE} Swiglu._comp_leaf_act_info_impl",
    (*SAVED, "step time"),
    {"kept": {("activation", "*"): Fraction(3)}, "again_typed": frozenset({"activation"})},
    strategy={"bias_activation_fusion": None},
)


def _saved(question: Question, asked: Settings) -> list[Difference]:
    """What kernels keep for backward."""
    found = list(_ALWAYS)
    found += [_LATENT] if question.model.attention.kind == "mla" else []
    found += [_DROPOUT] if question.model.hidden_dropout else []
    found += [] if asked.swiglu else [_GELU]
    found += _saved_by_experts(question, asked) if question.model.moe is not None else []
    found += [_ATTENTION_OUTPUT] if asked.one_attention_output else []
    found += [_VALUES] if not asked.flash else []
    found += [_scores(question)] if not asked.flash and question.strategy.cp > 1 else []
    found += [_repeated(question)] if not asked.flash and question.model.query_groups != question.model.attention.num_attention_heads else []
    found += [] if asked.strategy.get("use_fused_norm", True) else [_NORM_IN_PASSES]
    found += [] if asked.strategy.get("use_fused_swiglu", True) or not asked.swiglu else [_GATE_IN_PASSES]
    found += _saved_in_fp8(question) if question.strategy.fp8 != "none" else []
    return found


def _scores(question: Question) -> Difference:
    return _kept(
        "scores-of-a-share",
        "written-out attention keeps the scores of a rank's heads over the whole sequence",
        "of all heads over its share of it, along rows and columns",
        f"{DENSE} CoreAttention._comp_leaf_act_info_impl",
        {("attention", "probabilities"): Fraction(2, question.strategy.cp)},
    )


def _repeated(question: Question) -> Difference:
    model = question.model
    width = Fraction(2 * model.query_groups, model.attention.num_attention_heads)
    return _kept(
        "keys-repeated",
        "written-out attention keeps keys and values repeated to every query head",
        "it keeps them once",
        f"{DENSE} CoreAttention._comp_leaf_act_info_impl",
        {("attention", "repeated"): width},
    )


def _saved_in_fp8(question: Question) -> list[Difference]:
    gathered = question.strategy.tp > 1 and question.strategy.sp
    found = [
        Difference(
            "fp8-attention-output",
            "the projection after attention keeps attention's output, and no quantised copy",
            "a quantised copy beside it",
            f"{DENSE} CoreAttention._saved_output_cache_mem, LinearRow",
            SAVED,
            {"kept": {("o_proj", "out"): Fraction(1)}, "kept_twice": frozenset({("o_proj", "out")})},
        ),
        _kept(
            "fp8-shared-input",
            "the two down-projections of latent attention quantise their input each",
            "the second keeps no copy",
            f"{DENSE} MLAAttention.linear_kv_down_proj (has_cached_inputs)",
            {("kv_a_proj_with_mqa", "*"): 0},
        ),
    ]
    if gathered:
        found.append(
            Difference(
                "fp8-gathered-input",
                "a product keeps its rank's share of an input that is gathered",
                "with FP8 the gathered input, of the output layer too",
                f"{DENSE} LinearCol._comp_leaf_act_info_impl",
                SAVED,
                assumptions={"save_gathered": "true"},
            )
        )
    return found


def _saved_by_experts(question: Question, asked: Settings) -> list[Difference]:
    etp = question.strategy.expert_tp
    maps = dict.fromkeys((("permute", name) for name in ("capacity_index", "order", "index", "row_id_map")), 0)
    by_token = {("permute", "kept_map"): 8} if asked.padded else {("permute", "order"): 8}
    return [
        _kept(
            "routing",
            "the choice of experts keeps indices and probabilities",
            "nothing",
            f"{MOE} Router",
            {
                **{("top_k", "*"): 0, ("unpermute", "probabilities"): 0, ("activation", "weights"): 0, ("multiply", "weights"): 0},
                **{("permute", "probabilities"): 0, ("permute", "indices"): 0},
            },
        ),
        _kept(
            "permutation-maps",
            "permutation keeps the index tensors that it makes",
            "eight bytes for every token and expert",
            f"{MOE} Permutation._comp_leaf_act_info_impl",
            {**maps, **by_token},
        ),
        *([_combined(etp)] if etp > 1 and asked.strategy.get("enable_sequence_parallel", True) else []),
        Difference(
            "router-input",
            "the router and shared experts keep one input",
            "the router keeps its own",
            f"{MOE} Router._comp_leaf_act_info_impl",
            SAVED,
            {"kept_twice": frozenset({("router", "*")})} if asked.shared_experts else {},
        ),
    ]


def _combined(etp: int) -> Difference:
    return _kept(
        "combined-rows",
        "the combine keeps the rows that come back to a rank",
        "as many times those as experts have tensor ranks",
        f"{MOE} UnPermutation._comp_leaf_act_info_impl",
        {("unpermute", "returned"): 2 * etp},
    )


def _counts(question: Question, asked: Settings) -> list[Difference]:
    found = []
    if asked.flash:
        found.append(
            Difference(
                "attention-backward",
                "backward's five products as their einsums have them",
                "two and a half times forward whatever the heads' sizes are",
                f"{DENSE} MLACoreAttention._comp_leaf_flops_info",
                ("FLOPs", "step time"),
                {"attention_backward": Fraction(5, 2)},
            )
        )
    if question.strategy.fp8 != "none":
        found.append(
            Difference(
                "fp8-weights",
                "16-bit weights and their FP8 copies for rows and columns",
                "one byte a weight and no copy",
                f"{DENSE} LinearCol._comp_leaf_model_info_impl",
                ("weights", "peak"),
                {"fp8_weights": 1},
            )
        )
    return found
