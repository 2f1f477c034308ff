"""The command line as a user meets it, and what stands behind MODEL, STRATEGY and --set."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import in_process
import pytest

from symsim.algebra.vocabulary import SYMBOLS
from symsim.errors import InputError
from symsim.inputs import models, shipped, strategies
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.models import format_model, load_model, override_architecture
from symsim.inputs.settings import split_settings
from symsim.inputs.shipped import list_models
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "symsim.api.cli"]

LLAMA = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}

MODEL = """name: small
hidden_size: 64
vocab_size: 256
layers: 4 * dense
attention:
  num_attention_heads: 8
mlp:
  ffn_hidden_size: 128
"""


def symsim(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=cwd, env=environment, timeout=60)


def bad(*arguments: str, cwd: Path | None = None) -> str:
    """The sentence of a command that must refuse its input."""
    done = in_process.run(*arguments, cwd=cwd)
    assert done.returncode == 2, done
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert done.stderr.startswith("symsim: ") and done.stderr.count("\n") == 1
    return done.stderr.removeprefix("symsim: ").rstrip()


def refusal(call, *arguments) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return str(caught.value)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(MODEL)
    return path


@pytest.fixture
def small() -> Architecture:
    return Architecture(name="small", hidden_size=64, vocab_size=256, layers=4, attention={"num_attention_heads": 8}, mlp={"ffn_hidden_size": 128})


# the program


def test_help_lists_the_commands_that_work():
    done = symsim("--help")
    assert done.returncode == 0
    for command in ("derive", "eval", "formula", "sweep", "compile", "bench", "list", "import", "export", "audit", "calibrate", "anchor"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize("command", ["show", "list", "import", "export", "bench", "audit", "diff", "ask", "formula", "anchor"])
def test_help_has_brackets_once_and_fits(command: str) -> None:
    """typer puts the brackets of an argument itself; a long list of choices is words of a sentence, which can be wrapped."""
    done = in_process.run(command, "--help")
    assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80
    assert not re.search(r"\{\{|\[\[|\]\]|\.\.\.\]", done.stdout)


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom symsim.api.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print(*sorted(m for m in ('sympy', 'numpy', 'pydantic', 'ruamel.yaml', 'jinja2', 'rich') if m in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)
    assert done.returncode == 0 and done.stderr.strip() == ""


def test_no_installed_packages_are_searched():
    code = (
        "import importlib.metadata, sys\n"
        "importlib.metadata.distributions = lambda *_: print('searched', file=sys.stderr) or []\n"
        "from symsim.api.cli import main\ntry:\n    main(['eval', 'llama3-8b'])\nexcept SystemExit as end:\n    assert not end.code\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)
    assert done.returncode == 0 and done.stderr.strip() == ""


def test_version():
    assert symsim("--version").stdout.startswith("symsim ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Missing command"),
        (["derve", "x"], "there is no command 'derve': did you mean 'derive'?"),
        (["sweeps", "x"], "there is no command 'sweeps': did you mean 'sweep'?"),
        (["eval"], "Missing argument 'MODEL'"),
        (["eval", "--jsn", "x"], "--jsn"),
        (["eval", "x", "y"], "extra argument"),
        (["eval", "x", "-s"], "requires an argument"),
        (["list", "model"], "there is no list of 'model': did you mean 'models'?"),
        (["eval", "nosuchmodel"], "no model or file is named 'nosuchmodel'"),
        (["eval", "h100-sxm"], "no model or file is named 'h100-sxm': it is a system, which -y gives"),
        (["derive", "llama3-8b", "h100-sxm"], "unexpected extra argument(s) (h100-sxm), and -y gives a system: -y h100-sxm"),
        (["ask", "elasticity t_step", "llama3-8b"], "MODEL comes first, and 'elasticity t_step' is none: symsim ask llama3-8b 'elasticity t_step'"),
        (["formula", "F_dense", "llama3-8b"], "MODEL comes first, and 'F_dense' is none: symsim formula llama3-8b F_dense"),
        (["diff", "llama3-8b", "tp=2", "tp=4"], "'tp=2' is a strategy and no model: symsim diff llama3-8b -s tp=2 -s tp=4"),
        (["diff", "h100-sxm", "h200-sxm"], "'h100-sxm' is a system and no model: symsim diff MODEL -y h100-sxm -y h200-sxm"),
        (["export", "llama3-8b", "megatron", "-o", "x.sh"], "KIND comes first, and 'llama3-8b' is none: symsim export megatron llama3-8b"),
        (["import", "train.sh", "megatron"], "KIND comes first, and 'train.sh' is none: symsim import megatron train.sh"),
        (["formula", "bare-gpt", "F_dense"], "bare-gpt is a model of 'symsim audit' alone; its file is one for every command: "),
        (["eval", "llama3-8b", "-y", "ideal"], "ideal is a system of 'symsim audit' alone; its file is one for every command: "),
        (["eval", ""], "MODEL is empty"),
        (["eval", "absent.yaml"], "absent.yaml: no such file"),
        (["eval", "absent.json"], "absent.json: no such file"),
        (["import", "hf", "absent.json"], "absent.json: no such file"),
        (["import", "hf", "a", "b"], "reads one config.json, and 2 files are given"),
        (["import", "huggingface", "a"], "symsim does not import 'huggingface'"),
        (["import", "hf"], "'symsim import hf' reads one config.json, and nothing is given"),
        (["import", "axolotl", "job.yaml", "--leniant"], "'symsim import axolotl' has no option --leniant: did you mean '--lenient'?"),
        (["import", "hf", "config.json", "--set", "L=2"], "'symsim import hf' has no option --set: valid names: --faithful, --json"),
        (["import", "hf", "a", "--var", "b"], "--var 'b' is not NAME=VALUE"),
    ],
)
def test_bad_usage(arguments: list[str], expected: str, tmp_path: Path):
    assert expected in bad(*arguments, cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-s", "tp=3"], "tp=3 does not divide num_attention_heads=8; valid: 1, 2, 4, 8"),
        (["-s", "tq=3"], "unknown key 'tq'"),
        (["-y", "h100"], "no system or file is named 'h100': did you mean 'h100-sxm'?"),
        (["--set", "foo"], "--set 'foo' is not NAME=VALUE"),
        (["--set", "hiden_size=8"], "did you mean 'hidden_size'?"),
        (["--set", "assume.padding=lots"], "assume.padding=lots is not a choice: 'none' is the only one"),
        (["--set", "assume.causal=sometimes"], "assume.causal=sometimes is not a choice"),
        (["--set", "hidden_size=63"], "--set: hidden_size 63 is not a multiple of num_attention_heads"),
        (["--set", "s=0"], "--set: seq_length is 0; it should be greater than 0"),
    ],
)
@pytest.mark.parametrize("command", ["eval", "derive"])
def test_bad_settings(command: str, arguments: list[str], expected: str, model: Path):
    assert expected in bad(command, str(model), *arguments)


def test_a_refused_derivation_writes_nothing(model: Path, tmp_path: Path):
    bad("derive", str(model), "-s", "tp=3", "-o", str(tmp_path / "out.md"))
    assert sorted(os.listdir(tmp_path)) == ["small.yaml"]


def test_list():
    assert [line.split()[0] for line in in_process.run("list", "models").stdout.splitlines()] == list_models()
    symbols = in_process.run("list", "symbols").stdout.splitlines()
    assert [line.split()[0] for line in symbols] == list(SYMBOLS) and SYMBOLS["h"].meaning in symbols[list(SYMBOLS).index("h")]
    assumptions = in_process.run("list", "assumptions").stdout
    assert all(f"\n{name}={a.default}  (" in "\n" + assumptions for name, a in ASSUMPTIONS.items())
    for what in ("systems", "strategies", "sources"):
        done = in_process.run("list", what)
        assert done.returncode == 0 and (done.stdout or f"no {what}" in done.stderr)


def test_a_reader_that_goes_away_is_no_error():
    process = subprocess.Popen([*COMMAND, "list", "symbols"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141
    process.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "list", "symbols"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert done.returncode == 2 and done.stderr == "symsim: standard output cannot be written: No space left on device\n"


def test_interrupt_is_quiet(tmp_path: Path):
    import signal

    fifo = tmp_path / "model.yaml"
    os.mkfifo(fifo)
    process = subprocess.Popen([*COMMAND, "eval", str(fifo)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    # opening the other end returns once the program waits in its read
    with open(fifo, "w"):
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and output == "" and "Traceback" not in errors


def test_what_is_refused_in_the_end_is_one_line_alone(tmp_path: Path):
    assert "a report is written as" in bad("derive", "megatron-22b", "-o", "report.pfd", cwd=tmp_path)


# import


def test_import_hf_writes_a_model_and_says_what_became_of_every_key(tmp_path: Path):
    config = tmp_path / "tiny-llama" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(LLAMA))
    done = in_process.run("import", "hf", str(config), "-o", str(tmp_path / "new" / "out"))
    assert done.returncode == 0 and f"{tmp_path}/new/out/model.yaml" in done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines() if line} >= set(LLAMA)
    from_directory, from_config = load_model(str(tmp_path / "new" / "out")), load_model(str(config))
    assert from_directory.architecture == from_config.architecture
    assert from_config.architecture.name == "tiny-llama" and from_config.architecture.num_layers == 32
    assert set(os.listdir(tmp_path / "new" / "out")) == {"ledger.json", "model.yaml"}
    fates = {row["key"]: row["fate"] for row in json.loads((tmp_path / "new" / "out" / "ledger.json").read_text())["keys"]}
    assert fates["hidden_size"] == "mapped" and fates.keys() >= set(LLAMA)


def test_keys_of_a_config_that_are_not_read_are_named(tmp_path: Path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA | {"hidden_siz": 8192}))
    for command, *more in (
        ("eval",),
        ("sweep", "--axis", "tp=1,2"),
        ("plan", "-y", "h100-sxm", "--world", "1", "--global-batch-size", "1", "--fix", "recompute=none,micro_batch_size=1"),
        ("diff", "-y", "h100-sxm", "-s", "tp=1", "-s", "tp=2"),
        ("compile",),
    ):
        done = in_process.run(command, str(config), *more)
        assert done.returncode == 0 and done.stderr.count("config.json: hidden_siz is not read ('symsim import hf' says why)") == 1, command
    config.write_text(json.dumps(LLAMA))
    assert "not read" not in in_process.run("eval", str(config)).stderr


def test_what_a_config_has_besides_the_decoder_is_said_once_with_the_reason(tmp_path: Path):
    config = tmp_path / "config.json"
    text = {"hidden_size": 2560, "model_type": "gemma3_text"}
    for besides in ({"vision_config": {"hidden_size": 1152}, "mm_tokens_per_image": 256}, {}):
        config.write_text(json.dumps({"model_type": "gemma3", "text_config": text, **besides}))
        said = in_process.run("eval", str(config), "--json").stderr
        assert said.count("config.json: vision_config, mm_tokens_per_image: not imported: only the text tower is") == bool(besides)
    config.write_text(json.dumps(LLAMA | {"quantization_config": {"quant_method": "fp8"}, "hidden_siz": 1}))
    reason = "quantization_config: the weights are taken as trained; a strategy sets their precision"
    assert f"config.json: {reason}; hidden_siz is not read" in in_process.run("eval", str(config)).stderr


def test_import_without_a_directory_writes_nothing(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    done = in_process.run("import", "hf", "config.json", cwd=tmp_path)
    assert done.returncode == 0 and "nothing written" in done.stderr and os.listdir(tmp_path) == ["config.json"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps(LLAMA, indent=1)[:-20], "config.json:10: not JSON"),
        ('{"model_type": "llama", "model_type": "llama"}', "config.json:1: 'model_type' is given twice"),
        ('{"model_type": "lama"}', "lama"),
        ("[]", "config.json: holds a list"),
    ],
)
def test_import_of_a_broken_config_writes_nothing(text: str, expected: str, tmp_path: Path):
    (tmp_path / "config.json").write_text(text)
    assert expected in bad("import", "hf", "config.json", "-o", "out", cwd=tmp_path)
    assert os.listdir(tmp_path) == ["config.json"]


def test_import_where_nothing_can_be_written(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert "the directory cannot be made" in bad("import", "hf", "config.json", "-o", "config.json/x", cwd=tmp_path)


# models


def test_load_model_file(model: Path, small: Architecture):
    loaded = load_model(str(model))
    assert loaded.architecture == small and loaded.where == str(model) and loaded.strategy is None


def test_load_model_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Architecture):
    (tmp_path / "small-8b.yaml").write_text(MODEL)
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "wide.yaml").write_text("tp: 8\n")
    for module in (models, shipped, strategies):
        monkeypatch.setattr(module, "models_directory", lambda: tmp_path)
    assert list_models() == ["small-8b"] and load_model("small-8b").architecture == small
    assert refusal(load_model, "smal-8b") == "no model or file is named 'smal-8b': did you mean 'small-8b'?"
    assert load_strategy("wide").tp == 8


def test_every_packaged_model_loads_under_its_own_name():
    for name in list_models():
        assert load_model(name).architecture.name == name


def test_directory_with_a_default_strategy(tmp_path: Path, model: Path):
    model.rename(tmp_path / "model.yaml")
    assert load_model(str(tmp_path)).strategy is None
    (tmp_path / "strategy.yaml").write_text("tp: 4\n")
    loaded = load_model(str(tmp_path))
    assert loaded.strategy is not None and load_strategy(loaded.strategy).tp == 4
    (tmp_path / "strategy.yaml").write_text("tp: 3\n")
    assert "tp=3 does not divide" in bad("eval", str(tmp_path))
    assert "tp=5 does not divide" in bad("eval", str(tmp_path), "-s", "tp=5")


def test_models_that_do_not_load(tmp_path: Path):
    assert "holds no model.yaml and no config.json" in refusal(load_model, str(tmp_path))
    (tmp_path / "model.txt").write_text(MODEL)
    assert "a model file ends in .yaml, .yml or .json" in refusal(load_model, str(tmp_path / "model.txt"))
    path = tmp_path / "m.yaml"
    for old, new, expected in [
        ("hidden_size: 64", "hiddn_size: 64", f"{path}:2: unknown key 'hiddn_size': did you mean 'hidden_size'?"),
        ("vocab_size: 256", "vocab_size: true", f"{path}:3: vocab_size is true; it should be a number"),
        ("hidden_size: 64", "hidden_size: '64'", f'{path}:2: hidden_size is "64"; it should be a number'),
        ("  num_attention_heads: 8", "  num_attention_heads: 8\n  sinks: 1", f"{path}:7: attention.sinks is 1; it should be true or false"),
    ]:
        path.write_text(MODEL.replace(old, new))
        assert refusal(load_model, str(path)) == expected


def test_model_files_read_back(small: Architecture):
    changed = small.model_copy(update={"name": "true", "fact": "a: 'b' # \"c\"\n\x7f é", "source": "1e3"})
    path = Path("unused")
    from symsim.inputs.reading import parse_yaml

    assert Architecture.model_validate(parse_yaml(format_model(changed), str(path)).data) == changed


# strategies


def test_inline_strategy():
    strategy = load_strategy(
        "tp=8, pp=4,sp=true,zero=1,recompute=selective,recompute_modules=core_attn+mlp,cp_comm_type=a2a+p2p,cp=8,"
        "hierarchical_context_parallel_sizes=2+4,moe_expert_capacity_factor=1.25,seq_length=8e3,"
        "pipeline_model_parallel_layout=Et*3|(tt|)*29,m|L,dp=2"
    )
    assert strategy == Strategy(
        tp=8,
        pp=4,
        sp=True,
        zero=1,
        recompute="selective",
        recompute_modules=("core_attn", "mlp"),
        cp=8,
        cp_comm_type="a2a+p2p",
        hierarchical_context_parallel_sizes=(2, 4),
        moe_expert_capacity_factor=1.25,
        seq_length=8000,
        pipeline_model_parallel_layout="Et*3|(tt|)*29,m|L",
        dp=2,
    )
    assert load_strategy(None) == load_strategy("") == Strategy()
    assert load_strategy("recompute_modules=mlp").recompute_modules == ("mlp",)


def test_aliases_are_megatrons_long_names():
    strategy = load_strategy(
        "tensor_model_parallel_size=2,pipeline_model_parallel_size=4,virtual_pipeline_model_parallel_size=2,"
        "context_parallel_size=2,expert_model_parallel_size=8,expert_tensor_parallel_size=1,sequence_parallel=true,recompute_granularity=full,"
        "data_parallel_size=16,mbs=2,gbs=64,fp8_recipe=mxfp8"
    )
    assert strategy == Strategy(
        tp=2, pp=4, vpp=2, cp=2, ep=8, etp=1, sp=True, recompute="full", dp=16, micro_batch_size=2, global_batch_size=64, fp8="mxfp8"
    )


def test_strategy_file(tmp_path: Path):
    path = tmp_path / "s.yaml"
    path.write_text("tensor_model_parallel_size: 8\nrecompute: selective\nrecompute_modules: [mlp, core_attn]\n")
    assert load_strategy(str(path)) == Strategy(tp=8, recompute="selective", recompute_modules=("mlp", "core_attn"))
    assert load_strategy(str(path), {"tp": 4}).tp == 4
    for text, expected in [
        ("tp: 8\n\ntensor_model_parallel_size: 8", f"{path}:3: tensor_model_parallel_size and tp are the same setting"),
        ("pp: 2\ntq: 8", f"{path}:2: unknown key 'tq': did you mean 'tp'?"),
        ("pp: 2\nmbs: x", f'{path}:2: micro_batch_size is "x"; it should be a whole number'),
        ("tp: 0", f"{path}:1: tp is 0; it should be greater than 0"),
        ("zero: true", f"{path}:1: zero is true; it should be a number"),
        ("recompute_modules: [mlp, mpl]", "did you mean 'mlp'?"),
    ]:
        path.write_text(text)
        assert expected in refusal(load_strategy, str(path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tp=8,tp=4", "gives tp twice"),
        ("tp=8,tensor_model_parallel_size=4", "tensor_model_parallel_size and tp are the same setting"),
        ("tp=8,pp", "'pp' is not NAME=VALUE"),
        ("tp=8,,pp=2", "an empty entry between commas"),
        ("tp=", "gives tp no value"),
        ("tensor_parallel_size=8", "did you mean 'tensor_model_parallel_size'?"),
        ("tp=eight", 'tp is "eight"; it should be a whole number'),
        ("tp=true", "tp is true; it should be a number"),
        ("tp=1.5", "tp is 1.5; it should be a whole number"),
        ("sp=1", "sp is 1; it should be true or false"),
        ("sp=yes", 'sp is "yes"; it should be true or false'),
        ("recompute=selectiv", "did you mean 'selective'?"),
        ("zero=4", "zero is 4; valid: 0, 1, 2 or 3"),
        ("nosuchfile", "is neither a file nor a list such as tp=8,pp=4"),
        ("absent.yaml", "absent.yaml: no such file"),
    ],
)
def test_strategies_that_do_not_load(text: str, expected: str):
    assert expected in refusal(load_strategy, text)


# --set


def test_settings_find_what_they_change(small: Architecture):
    asked = split_settings(
        [
            "s=8192",
            "b=2",
            "m=16",
            "tp=4",
            "assume.causal=half",
            "h=128",
            "ffn_hidden_size=256",
            "attention.kv_channels=32",
            "V=512",
            "num_layers=8",
            "layer_kinds.dense.window=16",
            "gbs=32",
        ]
    )
    assert asked.strategy == {"seq_length": 8192, "micro_batch_size": 2, "num_microbatches": 16, "tp": 4, "global_batch_size": 32}
    assert asked.assumptions == {"causal": "half"}
    changed = override_architecture(small, asked.architecture)
    assert (changed.hidden_size, changed.mlp.ffn_hidden_size, changed.head_dim, changed.vocab_size, changed.num_layers) == (128, 256, 32, 512, 8)
    assert changed.layer_kinds["dense"].window == 16
    assert override_architecture(small, {}) is small


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["seq_lenght=1"], "did you mean 'seq_length'?"),
        (["causal=half"], "did you mean 'assume.causal'?"),
        (["assume.casual=half"], "assume.casual is not an assumption: did you mean 'causal'?"),
        (["s=1", "seq_length=2"], "--set seq_length and --set s are the same setting"),
        (["tp=1", "tp=2"], "--set gives tp twice"),
        (["assume.causal=half", "assume.causal=full"], "twice"),
        (["h=1", "hidden_size=2"], "are the same setting"),
        (["edp=2"], "edp (expert data-parallel degree) cannot be set"),
        (["=2"], "is not NAME=VALUE"),
        (["tp="], "is not NAME=VALUE"),
    ],
)
def test_settings_that_do_not_read(items: list[str], expected: str):
    assert expected in refusal(split_settings, items)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("E=8", "--set moe.num_moe_experts: small has no moe"),
        ("layer_kinds.local.window=8", "small has no layer_kinds.local: valid names: dense"),
        ("layer_kinds.dense.windw=8", "unknown key 'windw' in layer_kinds.dense: did you mean 'window'?"),
        ("num_layers=0", "it should be a whole number above 0"),
        ("vocab_size=many", 'vocab_size is "many"; it should be a whole number'),
        ("vocab_size=true", "vocab_size is true; it should be a number"),
    ],
)
def test_settings_that_do_not_fit_the_model(item: str, expected: str, small: Architecture):
    assert expected in refusal(override_architecture, small, split_settings([item]).architecture)


def test_num_layers_needs_a_single_run(small: Architecture):
    several = Architecture.model_validate(
        {**small.model_dump(), "layers": "1 * dense + 3 * other", "layer_kinds": {"dense": {}, "other": {"rope": False}}}
    )
    assert "several runs of layers (dense + 3 * other)" in refusal(override_architecture, several, {("num_layers",): 8})
    pairs = Architecture.model_validate({**several.model_dump(), "layers": "2 * (dense + other)"})
    assert override_architecture(pairs, {("num_layers",): 8}).layers[0].repeat == 4
    assert "a multiple of 2 is needed" in refusal(override_architecture, pairs, {("num_layers",): 7})


# symbols that follow from a strategy, from a model's layers, or from the stages' times
DERIVED = set("n_z n_b n_k n_j n_p n_e m_x n_w n_c n_v w C cp_a2a cp_p2p edp i j t_late t_place t_slow t_uneven t_tail sum_t tc tfb".split())
DERIVED |= {*"h_ramp s_max q_u k_u u_w u_ww u_r u_rr".split(), *(name for name in SYMBOLS if name.startswith(("rho_u_", "rho_t_")))}
DERIVED |= {f"{part}{t}" for part in ("", "sum_") for t in ("tf", "ti", "tw", "tr")}


def test_every_symbol_is_a_setting_or_says_that_it_cannot_be_set():
    for name in SYMBOLS:
        try:
            asked = split_settings([f"{name}={1 if name == 'async_save' else 2}"])
        except InputError as error:
            assert "cannot be set" in str(error)
            assert name in DERIVED
        else:
            assert len(asked.strategy) + len(asked.architecture) + len(asked.symbols) + len(asked.system) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("eval", "llama3-8b", "--set", "lam=2"), "llama3-8b has no experts"),
        (("eval", "mixtral-8x7b", "-s", "ep=4", "--set", "lam=4.5"), "at most 4 times an even share"),
        (("derive", "llama3-8b", "-o", "a" * 300 + ".md"), "File name too long"),
    ],
)
def test_impossible_settings_are_refused(arguments, sentence):
    done = in_process.run(*arguments)
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (("llama3-8b", "--set", "P=5"), "position_embedding_rows has no effect on llama3-8b"),
        (
            ("llama3-8b", "-s", "fusion=eager", "--set", "assume.te_dummy_wgrad=false"),
            "assume.te_dummy_wgrad=false has no effect on llama3-8b under this strategy without a system",
        ),
        (
            ("deepseek-v3", "-y", "h100-sxm", "--set", "assume.pipeline_scatter_gather=True"),
            "assume.pipeline_scatter_gather=True has no effect on deepseek-v3 under this strategy",
        ),
        (("gpt2", "-s", "fusion=eager,cross_entropy_fusion=te"), "cross_entropy_fusion=te has no effect on gpt2 under this strategy"),
        (("gpt2", "-s", "moe_router_padding_for_quantization=true"), "moe_router_padding_for_quantization=true has no effect on gpt2"),
        (("gpt2", "--set", "assume.moe_probabilities=combine"), "assume.moe_probabilities=combine has no effect on gpt2"),
        (("gpt2", "-y", "h100-sxm", "--set", "kernels.memory.permute=0.5"), "kernels.memory.permute has no effect on gpt2"),
        (("gpt2", "-s", "seq_length=2048"), "seq_length=2048 is longer than the 1024 learned positions of gpt2"),
    ],
)
def test_settings_without_effect_and_too_few_positions_are_noted(arguments, note):
    done = in_process.run("eval", *arguments)
    assert done.returncode == 0 and note in done.stderr


NO_EFFECT = "assume.moe_probabilities=combine has no effect on gpt2 under this strategy"


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (("sweep", "gpt2", "--axis", "dp=1,2"), f"the first point: {NO_EFFECT} without a system"),
        (("diff", "gpt2", "-s", "dp=2", "-s", "dp=4", "-y", "h100-sxm"), NO_EFFECT),
        (("diff", "gpt2", "mixtral-8x7b", "-s", "dp=8", "-y", "h100-sxm"), f"first: {NO_EFFECT}"),
        (("plan", "gpt2", "--world", "2", "--global-batch-size", "8", "-y", "h100-sxm", "--fix", "tp=1"), f"the best: {NO_EFFECT}"),
    ],
)
def test_settings_without_effect_are_noted_of_other_questions(arguments, note):
    done = in_process.run(*arguments, "--set", "assume.moe_probabilities=combine")
    assert done.returncode == 0 and f"symsim: {note}\n" in done.stderr


def test_a_point_of_a_sweep_is_evaluated_as_it_was():
    done = in_process.run("sweep", "gpt2", "--set", "V=1024", "--set", "tp=2", "--axis", "dp=2,4", "--top", "1", "--by", "memory.peak")
    assert "first: -s tp=2,dp=4 --set V=1024\n" in done.stdout


def test_a_module_that_is_written_is_named(tmp_path):
    done = in_process.run("compile", "gpt2", "-o", str(tmp_path / "gpt2.py"))
    assert (done.stdout, done.stderr) == ("", f"symsim: wrote {tmp_path / 'gpt2.py'}\n") and (tmp_path / "gpt2.py").exists()


def test_a_setting_with_effect_is_not_noted():
    done = in_process.run("eval", "gpt2", "-s", "seq_length=1024", "--set", "V=1024", "--set", "assume.causal=half")
    assert done.returncode == 0 and done.stderr == ""


def test_json_gives_the_symbols_as_set():
    done = in_process.run("eval", "mixtral-8x7b", "-s", "ep=4", "--set", "lam=1.5", "--set", "V=1024", "--json")
    symbols = json.loads(done.stdout)["symbols"]
    assert (symbols["V"], symbols["lam"], symbols["L"]) == (1024, 1.5, 32)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
def test_help_on_a_full_disk_is_one_sentence():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert done.returncode == 2 and done.stderr.startswith("symsim: standard output cannot be written")


def test_closed_standard_output_is_one_sentence():
    done = subprocess.run(f"'{sys.executable}' -m symsim.api.cli list models >&-", shell=True, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert done.returncode == 2 and done.stderr == "symsim: standard output is closed\n"


def test_virtual_stages_default_to_a_round_of_microbatches():
    assert load_strategy("pp=4,vpp=5").microbatches == 4
    assert load_strategy("pp=4").microbatches == 1


def test_every_virtual_stage_has_its_own_gradient_buffer():
    """llama3-70b under tp=8, pp=4, vpp=5, dp=2: only chunk 0 of stage 0 is bucketed, and no parameter is lost."""
    object_ = json.loads(in_process.run("eval", "llama3-70b", "-s", "tp=8,sp=true,pp=4,vpp=5,dp=2,zero=1", "--json").stdout)
    buffers = object_["gradient_buffers"]
    assert [(b["stage"], b["chunk"]) for b in buffers] == [(s, c) for s in range(4) for c in range(5)]
    assert buffers[0]["buckets"] > 1 and all(b["buckets"] == 1 for b in buffers[1:])
    held = [sum(b["elements"] for b in buffers if b["stage"] == s) for s in range(4)]
    params = [p["total"] for p in object_["params"]["per_rank"]]
    assert all(0 <= have - need < 128 * 20 for have, need in zip(held, params))


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "symsim", "eval"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "MODEL" in done.stderr


def test_eval_with_a_system_gives_the_step():
    done = in_process.run("eval", "llama3-8b", "-s", "tp=2,dp=4", "-y", "h100-sxm")
    assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80
    object_ = json.loads(in_process.run("eval", "llama3-8b", "-s", "tp=2,dp=4", "-y", "h100-sxm", "--json").stdout)
    time = object_["time"]
    assert object_["system"] == "h100-sxm"
    assert time["step"] == pytest.approx(time["compute"] + time["bubble"] + sum(time["exposed"].values()) + time["optimizer"])
    assert f"{object_['tokens_per_second']:,.0f}" in done.stdout and f"{100 * object_['mfu']:.1f} %" in done.stdout


def test_derive_writes_the_json_of_eval(tmp_path: Path):
    arguments = ("llama3-8b", "-s", "tp=2,dp=4", "-y", "h100-sxm")
    path = tmp_path / "out.json"
    assert in_process.run("derive", *arguments, "-o", str(path)).returncode == 0
    assert path.read_text() == in_process.run("eval", *arguments, "--json").stdout


def test_a_changed_number_of_the_system_changes_the_step():
    arguments = ("eval", "llama3-8b", "-y", "h100-sxm", "--json")
    slower = in_process.run(*arguments, "--set", "accelerator.memory_bandwidth=1 TB/s")
    assert slower.returncode == 0, slower.stderr
    assert json.loads(slower.stdout)["time"]["step"] > json.loads(in_process.run(*arguments).stdout)["time"]["step"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("eval", "Missing argument 'MODEL': a name from 'symsim list models', a model file, "),
        ("list", "Missing argument 'WHAT': what to list: models, downloads, systems"),
        ("import", "Missing argument 'KIND': the system the files come from: megatron, swift"),
        (
            "calibrate h100-sxm",
            "Missing option '--points': measured times: .csv (docs/systems.md has the columns) or .json; 'symsim calibrate --help'",
        ),
        ("compile gpt2 -o nowhere/cost.py", "nowhere/cost.py: there is no directory nowhere"),
        ("eval m --tp 8", "there is no option --tp: -s tp=VALUE sets it in the strategy; 'symsim eval --help' lists arguments and options"),
        ("plan m --micro-batch-size 8", "there is no option --micro-batch-size: --fix micro_batch_size=VALUE sets it in the strategy; 'symsim plan"),
        (
            "eval m -s tp=8 --set b=2 --set s=4096 --strategy=pp=2",
            "--strategy is given twice, 'tp=8' and 'pp=2'; one text has all options: --strategy tp=8,pp=2",
        ),
        ("eval m -yh100-sxm -y h200-sxm", "-y is given twice, 'h100-sxm' and 'h200-sxm'"),
        ("eval m --strategies tp=8", "there is no option --strategies: did you mean '--strategy'? 'symsim eval --help' lists arguments and options"),
        ("eval m -s tp=8 pp=2", "Got unexpected extra argument(s) (pp=2), and a strategy is one text: -s tp=8,pp=2; 'symsim eval --help'"),
        ("eval m -s", "Option '-s' requires an argument; 'symsim eval --help' lists arguments and options"),
        ("", "Missing command; 'symsim --help' lists commands and options"),
    ],
)
def test_a_misused_command_says_what_would_be_right(arguments: str, said: str) -> None:
    ended = in_process.run(*arguments.split())
    assert ended.returncode == 2 and ended.stderr.startswith(f"symsim: {said}")
