"""A compiled module and a scalar kernel give what `symsim eval` gives, at the base and elsewhere, and nothing of a user's text runs in them."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
import timeit
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symsim.api.result import Result, of
from symsim.errors import InputError
from symsim.grid.stored import shape
from symsim.program.base import read_base
from symsim.program.module import compile_module, free_names
from symsim.program.scalar import kernel_source, scalar_kernel
from symsim.program.unrolled import at_base, unroll

DEGREES = ("b", "s", "m", "u", "tp", "cp", "cp_a2a", "cp_p2p", "ep", "etp", "dp", "inst")
CASES = [
    ("llama3-8b", "", None),
    ("llama3-8b", "", "h100-sxm"),
    ("llama3-70b", "tp=8,sp=true,cp=2,pp=4,dp=8,num_microbatches=16", "h100-sxm"),
    ("llama3-70b", "tp=8,sp=true,pp=4,vpp=2,dp=8,num_microbatches=16,recompute=full", "a100-sxm-80"),
    ("llama3-8b", "dp=16,zero=3,num_distributed_optimizer_instances=4", "h100-sxm"),
    ("llama3-8b", "dp=16,zero=0,tp=2", "h100-sxm"),
    ("llama3-8b", "cp=4,cp_comm_type=a2a+p2p,hierarchical_context_parallel_sizes=2+2,dp=2,packed_document_length=1024", "h100-sxm"),
    ("mixtral-8x7b", "tp=2,sp=true,etp=1,ep=4,pp=2,dp=8,num_microbatches=8", "h100-sxm"),
    ("deepseek-v2-lite", "tp=2,sp=true,ep=4,dp=8,recompute=selective,recompute_modules=mla_up_proj+layernorm", "h100-sxm"),
    ("deepseek-v3", "ep=8,pp=8,dp=16,num_microbatches=32,schedule=dualpipe", "h800-sxm"),
    ("gemma-2-9b", "tp=2,pp=6,dp=4,num_microbatches=8", "h100-sxm"),
    ("gpt3-175b", "tp=8,sp=true,pp=8,vpp=12,dp=8,num_microbatches=16,recompute=selective", "a100-sxm-80"),
    ("llama3-70b", "pp=4,vpp=4,num_microbatches=8,schedule=interleaved_zb", "h100-sxm"),
    ("llama3-70b", "pp=4,vpp=2,num_microbatches=8,schedule=zbv", "h100-sxm"),
    ("bloom-176b", "korthikanti-175b", None),
]
# elsewhere than at the base: degrees and sizes that the derivation of the base holds for are kept, the others left out
MOVED = [
    ("llama3-70b", "tp=8,sp=true,cp=2,pp=4,dp=8,num_microbatches=16", "h100-sxm"),
    ("deepseek-v3", "tp=8,sp=true,ep=8,pp=4,dp=8,cp=2,num_microbatches=16", "h100-sxm"),
    ("deepseek-v3", "ep=8,pp=8,dp=16,num_microbatches=32,schedule=dualpipe", "h800-sxm"),
    ("mixtral-8x7b", "tp=2,sp=true,etp=1,ep=4,pp=2,dp=8,num_microbatches=8", "h100-sxm"),
    ("gemma-2-9b", "tp=2,pp=6,dp=4,num_microbatches=8", "h100-sxm"),
    ("llama3-70b", "pp=4,vpp=2,num_microbatches=8,schedule=zbv", "h100-sxm"),
    ("llama3-70b", "pp=4,vpp=2,dp=4,num_microbatches=16,schedule=interleaved_zb,pipeline_flushes=2", "h100-sxm"),
    ("llama3-8b", "pp=4,dp=4,zero=3,num_microbatches=16,pipeline_flushes=2,gradient_sync=every_flush,fusion=compile", "h100-sxm"),
]
VALUES = {
    "b": [1, 2, 3, 5],
    "s": [512, 1000, 4096, 8192],
    "m": [2, 4, 7, 16, 20, 24, 32, 40],
    "tp": [2, 4, 8],
    "cp": [2, 4],
    "ep": [2, 4, 8, 16],
    "dp": [2, 4, 8, 16, 32],
}


def quantities_of(result: Result) -> dict[str, float]:
    """What `symsim eval --json` reports, by the names of a sweep."""
    data = result.to_json()
    full = max(data["memory"]["stages"], key=lambda stage: stage["peak"])
    found = {f"memory.{part}": full[part] for part in ("weights", "gradients", "optimizer", "activations", "transient")}
    found |= {"memory.peak": data["memory"]["peak"], "world": result.strategy.world_size}
    found |= {"params.total": data["params"]["total"], "params.active": data["params"]["active"]}
    found["memory.reserve"] = sum(data["memory"]["reserve"].values())
    found["params.trained"] = data["params"].get("trained", data["params"]["total"])
    found |= {"params.per_rank": max(rank["total"] for rank in data["params"]["per_rank"])}
    found |= {f"flops.{phase}": data["flops"][phase] for phase in ("forward", "backward", "recompute")}
    found |= {"activations.saved_per_microbatch": max(data["activations"]["saved_per_microbatch"])}
    if result.system is not None:
        found |= {f"time.{part}": data["time"][part] for part in ("step", "compute", "bubble", "optimizer")}
        found |= {"time.exposed": sum(data["time"]["exposed"].values())}
        found |= {f"time.exposed.{axis}": seconds for axis, seconds in data["time"]["exposed"].items()}
        found |= {n: data[n] for n in ("tokens_per_second", "mfu", "hfu", "cost_per_trillion_tokens", "energy_per_trillion_tokens") if n in data}
        found |= {"memory.capacity": int(result.system.accelerator.memory.value)}
    return found


def assert_same(found: dict[str, Any], expected: dict[str, float]) -> None:
    """Counts equal; seconds to 1e-12 of the step, of which they are differences, and rates to 1e-12."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name.startswith("time."):
            assert abs(float(found[name]) - value) <= 1e-12 * expected["time.step"], name
        elif isinstance(value, int):
            assert float(found[name]) == value, name
        else:
            assert float(found[name]) == pytest.approx(value, rel=1e-12), name


@cache
def module_of(model: str, strategy: str, system: str | None) -> tuple[str, Any]:
    """A module's source, and its kernel."""
    source = compile_module(read_base(model, strategy or None, system, []), None)
    space: dict[str, Any] = {}
    exec(compile(source, "<module>", "exec"), space)
    return source, space["kernel"]


@cache
def result_of(model: str, strategy: str, system: str | None, settings: tuple[str, ...] = ()) -> Result:
    return of(at_base(read_base(model, strategy or None, system, settings)))


def arguments_of(kernel: Any) -> dict[str, float]:
    return kernel.__kwdefaults__ or {}


def moved(case: tuple[str, str, str | None], count: int, seed: int = 7) -> list[tuple[dict[str, int], Result]]:
    """Points at which the base's derivation holds, and what `symsim eval` makes of each."""
    draw, found = random.Random(f"{seed} {case}"), []
    base = result_of(*case)
    known = arguments_of(module_of(*case)[1])
    for _ in range(40 * count):
        point = {n: draw.choice(values) for n, values in VALUES.items() if n in known and draw.random() < 0.6}
        settings = tuple(f"{n}={v}" for n, v in point.items())
        there = read_base(*case, settings).strategy
        if shape(there, base.model) == shape(base.strategy, base.model) and point not in [p for p, _ in found]:
            try:
                found.append((point, result_of(*case, settings)))
            except InputError:
                continue
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_module_gives_what_eval_gives(case: tuple[str, str, str | None]) -> None:
    assert_same(module_of(*case)[1](), quantities_of(result_of(*case)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_scalar_kernel_gives_what_eval_gives(case: tuple[str, str, str | None]) -> None:
    result = result_of(*case)
    expected = quantities_of(result)
    free = [n for n in arguments_of(module_of(*case)[1]) if n in DEGREES]
    assert_same(scalar_kernel(read_base(case[0], case[1] or None, case[2], []), free, list(expected))(), expected)


@pytest.mark.long_after(3)
@pytest.mark.parametrize("case", MOVED, ids=lambda case: "-".join(map(str, case)))
def test_arrays_and_scalars_elsewhere(case: tuple[str, str, str | None]) -> None:
    """Other degrees and sizes, all points in one call of the module, one by one in the scalar kernel."""
    points = moved(case, 4)
    assert len(points) >= 3
    _, kernel = module_of(*case)
    defaults = arguments_of(kernel)
    names = [n for n in VALUES if n in defaults]
    columns = {n: np.array([point.get(n, defaults[n]) for point, _ in points]) for n in names}
    found = kernel(**columns)
    expected = [quantities_of(there) for _, there in points]
    scalar = scalar_kernel(read_base(*case, []), names, list(expected[0]))
    for k, (point, _) in enumerate(points):
        assert_same({n: np.broadcast_to(v, len(points))[k] for n, v in found.items()}, expected[k])
        assert_same(scalar(**point), expected[k])


def test_arrays_broadcast() -> None:
    case = MOVED[0]
    _, kernel = module_of(*case)
    found = kernel(b=np.arange(1, 4)[:, None], B_2=np.array([2.5e10, 5e10]))
    assert found["time.step"].shape == (3, 2)
    assert found["memory.peak"].shape == (3, 1)
    assert np.ndim(found["params.total"]) == 0
    for k, b in enumerate((1, 2, 3)):
        there = result_of(*case, (f"b={b}", "B_2=25 GB/s"))
        assert float(found["time.step"][k, 0]) == pytest.approx(float(there.step_numbers["t_step"]), rel=1e-12)


def test_large_whole_numbers_do_not_wrap_around() -> None:
    _, kernel = module_of(*MOVED[0])
    small, large = kernel(b=np.array([1])), kernel(b=np.array([1 << 40]))
    assert float(large["flops.forward"][0]) == pytest.approx(float(small["flops.forward"][0]) * 2.0**40)


def test_load_imbalance_and_numbers_of_the_system() -> None:
    case = ("mixtral-8x7b", "tp=2,sp=true,etp=1,ep=4,pp=2,dp=8,num_microbatches=8", "h100-sxm")
    _, kernel = module_of(*case)
    there = result_of(*case, ("lam=1.5", "B_hbm=2 TB/s"))
    assert_same(kernel(lam=1.5, B_hbm=2e12), quantities_of(there))


def test_module_needs_numpy_alone(tmp_path: Path) -> None:
    """In a Python that sees neither this repository nor the environment's variables, it imports NumPy and nothing of symsim."""
    source, kernel = module_of(*MOVED[1])
    (tmp_path / "made.py").write_text(source, encoding="utf-8")
    imported = {a.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import) for a in n.names}
    assert imported <= {"numpy", "functools"} and not any(isinstance(n, ast.ImportFrom) for n in ast.walk(ast.parse(source)))
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import made; found = made.kernel(); "
        "assert not [m for m in sys.modules if m.split('.')[0] in ('symsim', 'sympy', 'pydantic')]; print(float(found['time.step']).hex())"
    )
    done = subprocess.run([sys.executable, "-I", "-W", "error", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert float.fromhex(done.stdout.strip()) == float(kernel()["time.step"])


def test_module_reads_like_the_definitions() -> None:
    source, _ = module_of(*MOVED[1])
    assert max(map(len, source.splitlines())) <= 120
    tree = ast.parse(source)
    (kernel,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "kernel"]
    assigned = [t.id for n in kernel.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
    assert len(assigned) == len(set(assigned))
    assert {"t_step", "t_pipeline", "mfu", "A_moe", "beta_tp_all_gather", "t_stage_at_0", "M_stage_peak_at_3"} <= set(assigned)
    assert not any(isinstance(n, (ast.If, ast.For, ast.While)) for n in ast.walk(kernel))
    said = ast.get_docstring(tree) or ""
    for words in ("time.step [s]: one step", "tp [1] = 8", "causal = full", "Stage 0: the embedding, 3 dense layers", "above 1", "2^53", "Thakur"):
        assert words in said, words
    comments = [line.strip() for line in source.splitlines() if line.strip().startswith("# ")]
    assert "# one step [second]" in comments


def test_free_names_fold_the_rest() -> None:
    case = ("llama3-70b", "tp=8,sp=true,cp=2,pp=4,dp=8,num_microbatches=16", "h100-sxm")
    space: dict[str, Any] = {}
    exec(compile_module(read_base(*case, []), ["b", "tp"]), space)
    assert list(arguments_of(space["kernel"])) == ["b", "tp"]
    assert_same(space["kernel"](b=3, tp=4), quantities_of(result_of(*case, ("b=3", "tp=4"))))
    exec(compile_module(read_base(*case, []), []), space)
    assert_same(space["kernel"](), quantities_of(result_of(*case)))


def test_micro_batches_follow_the_batch_unless_they_are_free() -> None:
    case = ("llama3-8b", "tp=2,dp=4,micro_batch_size=2,global_batch_size=64", "h100-sxm")
    space: dict[str, Any] = {}
    exec(compile_module(read_base(*case, []), ["b", "dp"]), space)
    assert_same(space["kernel"](b=4, dp=8), quantities_of(result_of(*case, ("b=4", "dp=8"))))


@pytest.mark.parametrize(
    "free, words",
    [
        (["tpp"], "there is no such argument: did you mean 'tp'?"),
        (["eta_gem"], "did you mean 'eta_gemm'?"),
        (["pp"], "the stages that pp cuts are fixed"),
        (["ep"], "it is 1 here"),
        (["b", "b"], "gives b twice"),
        (["etp"], "it follows tp here"),
    ],
)
def test_wrong_free_names_are_refused_in_a_sentence(free: list[str], words: str) -> None:
    with pytest.raises(InputError) as raised:
        compile_module(read_base("llama3-8b", "tp=2,dp=2", "h100-sxm", []), free)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_lists_of_free_names() -> None:
    assert free_names(None) is None
    assert free_names("b, tp") == ["b", "tp"]
    for text in ("", "b,,tp", ","):
        with pytest.raises(InputError, match="separated by commas"):
            free_names(text)


HOSTILE = [
    '"""\nimport os; os.abort()\n"""',
    "'''\nraise SystemExit(3)\n'''",
    "back\\slash \\",
    '\\"""; raise SystemExit(3) #',
    "line\r\nraise SystemExit(3)",
    "paragraph\u2029raise SystemExit(3)\u2028\x0c\x0braise",
    "nul\x00 escape\x1b bidi\u202e lone\ud800",
    "# -*- coding: utf-7 -*-\n+AAo-raise SystemExit(3)",
    '"',
    "{}%s{0}",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_of_a_user_breaks_out(text: str) -> None:
    """Names, sources and layer kinds stand in the docstring and in comments only."""
    base = read_base("mixtral-8x7b", "tp=2,sp=true,etp=1,ep=4,pp=2,dp=8", None, [])
    kind = base.architecture.kind_names()[0]
    changes = {
        "name": text,
        "source": text,
        "fact": text,
        "layer_kinds": {text: base.architecture.layer_kinds[kind]},
        "layers": tuple(s.model_copy(update={"kinds": (text,)}) for s in base.architecture.layers),
    }
    source = compile_module(replace(base, architecture=base.architecture.model_copy(update=changes)), None)
    plain, _ = module_of("mixtral-8x7b", "tp=2,sp=true,etp=1,ep=4,pp=2,dp=8", None)
    assert_only_names_differ(ast.parse(source.encode()), ast.parse(plain))
    space: dict[str, Any] = {}
    exec(compile(source.encode(), "<module>", "exec"), space)
    assert_same(space["kernel"](), quantities_of(result_of("mixtral-8x7b", "tp=2,sp=true,etp=1,ep=4,pp=2,dp=8", None)))


def assert_only_names_differ(one: ast.Module, other: ast.Module) -> None:
    """The same statements of the same kinds at the top, and a kernel of assignments and one return alone."""
    assert [type(n) for n in one.body] == [type(n) for n in other.body]
    kernel = one.body[-1]
    assert isinstance(kernel, ast.FunctionDef)
    assert {type(n) for n in kernel.body[1:-1]} == {ast.Assign} and isinstance(kernel.body[-1], ast.Return)
    called = {n.func.id for n in ast.walk(kernel) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert called <= {n.name for n in one.body if isinstance(n, ast.FunctionDef)}


def test_scalar_kernel_of_deepseek_v3_is_fast() -> None:
    """The full model in a fraction of a millisecond (some 30 microseconds where nothing else runs)."""
    names = ["tp", "cp", "ep", "dp", "b", "m", "s"]
    unrolled = unroll(result_of(*MOVED[1]), names, ["time.step", "memory.peak"], shortest=True)
    space: dict[str, Any] = {}
    exec(kernel_source(unrolled), space)
    assert min(timeit.repeat(space["kernel"], number=20, repeat=20)) / 20 < 5e-4


def test_scalar_kernel_refuses_what_is_not_there() -> None:
    base = read_base("llama3-8b", "tp=2,dp=2", None, [])
    with pytest.raises(InputError, match="did you mean 'memory.peak'"):
        scalar_kernel(base, ["b"], ["memory.peek"])
    with pytest.raises(InputError, match="needs a system"):
        scalar_kernel(base, ["b"], ["time.step"])
    with pytest.raises(InputError, match="there is no such argument: valid names: .*tp"):
        scalar_kernel(base, ["t"], ["memory.peak"])


def test_scalar_kernel_reports_a_definition_by_its_symbol() -> None:
    result = result_of("llama3-70b", "tp=8,sp=true,cp=2,pp=4,dp=8,num_microbatches=16", "h100-sxm")
    base = read_base("llama3-70b", "tp=8,sp=true,cp=2,pp=4,dp=8,num_microbatches=16", "h100-sxm", [])
    found = scalar_kernel(base, ["b"], ["t_pipeline", "A_dense", "M_stage_weights"])()
    assert found["t_pipeline"] == pytest.approx(float(result.step_numbers["t_pipeline"]), rel=1e-12)
    assert found["A_dense"] == result.numbers["A_dense"]
    assert found["M_stage_weights"] == max(result.stage_numbers(s)["M_stage_weights"] for s in result.stages)
