"""Megatron-LM's optimizers, the types of their states, and clipping, as options of a strategy."""

from __future__ import annotations

from symsim.importers.megatron.settings import Settings
from symsim.importers.optimizers import OPTIMIZERS

DTYPES = {
    spelling: short
    for short, long in (("fp32", "float32"), ("fp16", "float16"), ("bf16", "bfloat16"), ("fp8", "uint8"))
    for spelling in (short, long, f"torch.{long}")
} | {"torch.float": "fp32", "torch.half": "fp16"}
_OPTIMIZERS = {"adam": "adam", "sgd": "sgd", "lion": "lion", "muon": "muon", "dist_muon": "muon"}
# bitsandbytes' Adam of forks: Ling's names one so, BigScience's has use_bnb_optimizer
_NARROW = {"adamw-bnb-8bit": "adamw_8bit", "adam-bnb-8bit": "adamw_8bit"}

# torch.set_float32_matmul_precision; low is not a value of it, and Megatron-LM's rounds take it for medium
_PRECISIONS = {"low": "medium", "medium": "medium", "high": "high", "highest": "highest"}


def _muon(read: Settings) -> None:
    """What is read with the muon optimizers only."""
    keys, of_muon = read.keys, read.options.get("optimizer") == "muon"
    modes = {name: name for name in ("blockwise", "duplicated", "distributed")}
    for key, value in (
        ("muon_tp_mode", keys.choice("muon_tp_mode", modes, None, to="muon_tp_mode")),
        ("muon_num_ns_steps", keys.integer("muon_num_ns_steps", None, to="muon_num_ns_steps", least=1)),
        ("muon_fp32_matmul_prec", keys.choice("muon_fp32_matmul_prec", _PRECISIONS, None, to="muon_fp32_matmul_prec")),
        ("muon_scalar_optimizer", keys.choice("muon_scalar_optimizer", {"adam": "adam", "lion": "lion"}, None, to="muon_scalar_optimizer")),
    ):
        if value is not None and of_muon:
            read.options[key] = value
        elif value is not None:
            keys.note(key, "no_cost_effect", why="read with the muon optimizers only")
    together = keys.flag("muon_no_split_qkv", False, to="muon_split_qkv", why="the opposite")
    if together and of_muon:
        read.options["muon_split_qkv"] = False
    elif together:
        keys.note("muon_no_split_qkv", "no_cost_effect", why="read with the muon optimizers only")


def optimizer(read: Settings) -> None:
    """Which one, clipping, the types of its states, and what of them is on the host."""
    keys, options = read.keys, read.options
    clip = keys.number("clip_grad", None, to="clip_grad")
    if clip is not None:
        if clip < 0:
            raise keys.wrong("clip_grad", "0 or more")
        options["clip_grad"] = clip
    momentum = keys.number("sgd_momentum", 0.9)
    if keys.has("optimizer"):
        name = str(keys.given["optimizer"].value)
        if name in _OPTIMIZERS:
            chosen = "sgd_momentum" if name == "sgd" and momentum else _OPTIMIZERS[name]
            options["optimizer"] = chosen
            if name == "dist_muon":
                options["zero"] = 1
            keys.note("optimizer", to="optimizer, zero" if name == "dist_muon" else "optimizer", why=chosen)
        elif name in _NARROW:
            OPTIMIZERS[_NARROW[name]].apply(keys, "optimizer", options, read.assumptions)
        else:
            keys.refuse("optimizer", f"it keeps states and makes passes of its own, which are not modelled; give {', '.join(_OPTIMIZERS)}")
    if keys.flag("use_bnb_optimizer", False, to="optimizer_bits"):
        OPTIMIZERS["adamw_8bit"].apply(keys, "use_bnb_optimizer", options, read.assumptions)
    _muon(read)
    if keys.has("sgd_momentum"):
        used = options.get("optimizer") in ("sgd", "sgd_momentum")
        keys.note("sgd_momentum", "mapped" if used else "no_cost_effect", "optimizer" if used else "", "" if used else "read with optimizer=sgd only")
    aware = bool(options.get("use_precision_aware_optimizer"))
    for key, narrow in (("main_params_dtype", ("fp8",)), ("main_grads_dtype", ("fp8", "fp16")), ("exp_avg_dtype", ()), ("exp_avg_sq_dtype", ())):
        value = keys.choice(key, DTYPES, None, to=key)
        if value in narrow:
            raise keys.wrong(key, "fp32 or bf16")
        if value is None:
            continue
        if aware:
            options[key] = value
        else:
            keys.note(key, "no_cost_effect", why="read with use_precision_aware_optimizer only")
    kept = keys.flag("store_param_remainders", None, to="store_param_remainders")
    if kept is False and aware:
        options["store_param_remainders"] = False
    share = keys.number("optimizer_offload_fraction", None, to="optimizer_offload_fraction")
    if share is not None and not 0 <= share <= 1:
        raise keys.wrong("optimizer_offload_fraction", "a share from 0 to 1")
    if share is not None and options.get("optimizer_cpu_offload"):
        options["optimizer_offload_fraction"] = share
    beside = keys.flag("overlap_cpu_optimizer_d2h_h2d", False, to="overlap_cpu_optimizer_d2h_h2d")
    slow = keys.flag("use_torch_optimizer_for_cpu_offload", False, to="host_update")
    if options.get("optimizer_cpu_offload"):
        options |= ({"overlap_cpu_optimizer_d2h_h2d": True} if beside else {}) | ({"host_update": "torch"} if slow else {})


def kept_parameters(read: Settings) -> None:
    """Fp32 parameters that Megatron-Core keeps whole, behind what says the recipe of narrow products: mixed precisions of Megatron-Bridge name one
    of FP8 without FP8 as well (training/mixed_precision.py MixedPrecisionConfig.fp8_recipe), and Megatron-Core asks for its name alone
    (optimizer_config.py use_precision_aware_optimizer_no_fp8_or_ds_fp8)."""
    keys, options = read.keys, read.options
    aware = options.get("use_precision_aware_optimizer") and not options.get("optimizer_cpu_offload")
    full = options.get("main_params_dtype", "fp32") == "fp32" and options.get("precision") == "bf16" and options.get("fp8", "none") == "none"
    if not keys.has("mixed_precision") or not aware or not full or keys.has("fp8_recipe") or options.get("zero") == 3:
        return
    options["store_param_remainders"] = False
    options.pop("main_grads_dtype", None)
    keys.note("fp8_recipe", "derived", "store_param_remainders, main_grads_dtype", "false, fp32: a recipe of FP8 is named without FP8 as well")
