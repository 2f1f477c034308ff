"""System files: what ships is complete and sourced, what is wrong is refused in one sentence that says where."""

from __future__ import annotations

import re
from copy import deepcopy
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symsim.api.cli import main
from symsim.errors import InputError
from symsim.inputs.curves import SYMBOLS
from symsim.inputs.known import TAGS, UNITS
from symsim.inputs.reading import Document, read_yaml
from symsim.inputs.settings import split_settings
from symsim.inputs.shipped import list_systems, models_directory
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System, quantities, symbol_values
from symsim.inputs.systems import changed_system, load_system

DOCS = Path(__file__).parent.parent / "docs" / "systems.md"
FITTED_AT_MOST = 14

GOOD = """\
name: two-nodes
title: two nodes of four
sources:
  vendor: the vendor's datasheet
  tests: measured on the machine
accelerator:
  peak:
    bf16: [100 TFLOP/s, datasheet, vendor]
  multiprocessors: [64, datasheet, vendor]
  memory: [40 GiB, datasheet, vendor]
  memory_bandwidth: [1 TB/s, datasheet, vendor]
kernels:
  gemm: {efficiency: [0.7, measured, tests], exposed: [0.2, measured, tests], start: [5 us, measured, tests]}
  grouped_gemm: {efficiency: [0.6, measured, tests], exposed: [0, measured, tests]}
  attention:
    forward: [0.6, measured, tests]
    backward: [0.5, measured, tests]
    uneven: [0, measured, tests]
    key: [20 ns, measured, tests]
    query: [20 ns, measured, tests]
  memory:
    elementwise: [0.8, measured, tests]
    permute: [0.4, measured, tests]
    cross_entropy: [0.4, measured, tests]
    start: [3 us, estimated, tests]
network:
  - name: inside
    ranks: 4
    bandwidth: [200 GB/s, datasheet, vendor]
    latency: [5 us, measured, tests]
    efficiency:
      default: [0.8, measured, tests]
  - name: between
    ranks: all
    bandwidth: [100 Gb/s, datasheet, vendor]
    latency: [0 us, estimated, tests]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "machine.yaml"
    path.write_text(GOOD)
    return path


def refusal(reference: object, changes: dict[tuple[str, ...], str] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load_system(str(reference), changes)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def dated(text: str) -> bool:
    return (
        re.search(r"\b(January|February|March|April|May|June|July|August|September|October|November|December|early|late) 20\d\d\b", text) is not None
    )


def test_shipped_names() -> None:
    assert list_systems() == [
        "a100-pcie-80", "a100-sxm-80", "a800-sxm", "b200-sxm", "b300-sxm", "gb200-nvl72", "gb300-nvl72", "h100-sxm", "h20", "h200-sxm", "h800-sxm",
        "mi300x",
    ]  # fmt: skip


@pytest.mark.parametrize("name", list_systems())
def test_shipped(name: str) -> None:
    system = load_system(name)
    assert system.name == name
    known = dict(quantities(system))
    assert {k.tag for k in known.values()} <= set(TAGS)
    assert {k.source for k in known.values()} == set(system.sources), "a source that no number names"
    assert system.network[-1].ranks == "all"
    chip = system.accelerator
    assert chip.peak.fp16 is not None and chip.peak.fp32 is not None and chip.power is not None and system.host is not None
    assert chip.peak.bf16.value == chip.peak.fp16.value
    if chip.peak.fp8 is not None:
        # rates with sparsity are twice the dense ones, and would show here against bf16
        assert Fraction(199, 100) < chip.peak.fp8.value / chip.peak.bf16.value < Fraction(201, 100)
    if chip.price is not None:
        assert chip.price.tag == "estimated" and dated(system.sources[chip.price.source])
    assert all("assumed" not in system.sources[k.source] or k.tag == "estimated" for k in known.values())


@pytest.mark.parametrize("name", list_systems())
def test_few_coefficients(name: str) -> None:
    """Coefficients fitted to measurements are fewer than 15 a system; equal shares of a tier were fitted as one."""
    system = load_system(name)
    network = {(tier.name, k.text) for tier in system.network for k in tier.efficiency.values() if k.tag == "measured" and k.value != 1}
    network |= {(tier.name, what) for tier in system.network for what in ("bandwidth", "latency") if getattr(tier, what).tag == "measured"}
    # what memory-bound kernels reach is read off the measured table, kind by kind; a time of zero was left at its bound
    kernels = [p for p, k in quantities(system.kernels) if k.tag == "measured" and p[0] != "memory" and k.value]
    assert len(network) + len(kernels) <= FITTED_AT_MOST


def test_datasheet_facts() -> None:
    """Numbers that other tools and papers in the field agree on."""
    expected = {
        "a100-sxm-80": (312, 2039, 108, 300),
        "a100-pcie-80": (312, 1935, 108, 31.5),
        "a800-sxm": (312, 2039, 108, 200),
        "h100-sxm": (989.4, 3350, 132, 450),
        "h800-sxm": (989.4, 3350, 132, 200),
        "h20": (148, 4000, 78, 450),
        "h200-sxm": (989.4, 4800, 132, 450),
        "b200-sxm": (2250, 8000, 148, 900),
        "b300-sxm": (2250, 8000, 148, 900),
        "gb200-nvl72": (2500, 8000, 152, 900),
        "gb300-nvl72": (2500, 8000, 160, 900),
        "mi300x": (1307.4, 5300, 304, 448),
    }
    assert set(expected) == set(list_systems())
    for name, (peak, bandwidth, processors, link) in expected.items():
        system = load_system(name)
        chip = system.accelerator
        found = (
            chip.peak.bf16.value / 10**12,
            chip.memory_bandwidth.value / 10**9,
            chip.multiprocessors.value,
            system.network[0].bandwidth.value / 10**9,
        )
        assert tuple(float(x) for x in found) == (peak, bandwidth, processors, link), name


def test_reads_a_file(file: Path) -> None:
    system = load_system(str(file))
    assert system.accelerator.memory.value == 40 * 2**30
    assert system.network[1].bandwidth.value == Fraction(100 * 10**9, 8)
    assert [tier.ranks for tier in system.network] == [4, "all"]
    values = symbol_values(system, Strategy(tp=8))
    assert (values["R_1"], values["R_2"], values["world"]) == (4, 8, 8)
    assert (values["B_1"], values["alpha_1"], values["eta_1_p2p"], values["eta_2_p2p"]) == (2e11, 5e-6, 0.8, 1.0)
    assert (values["Phi"], values["n_sm"], values["B_hbm"]) == (1e14, 64, 1e12)


@pytest.mark.parametrize(("unit", "kind"), [(u, k) for u, (k, _) in UNITS.items() if k == "bandwidth"])
def test_every_unit_of_bandwidth(file: Path, unit: str, kind: str) -> None:
    file.write_text(GOOD.replace("1 TB/s", f"3 {unit}"))
    assert load_system(str(file)).accelerator.memory_bandwidth.value == 3 * UNITS[unit][1]


REFUSED = [
    # (what is replaced, by what, what the sentence says)
    ("accelerator:\n", "accelerators:\n", ":6: unknown key 'accelerators': did you mean 'accelerator'?"),
    (GOOD[GOOD.index("network:") :], "", ": network is missing"),
    (GOOD[GOOD.index("kernels:") : GOOD.index("network:")], "", ": kernels is missing"),
    (GOOD[GOOD.index("sources:") : GOOD.index("accelerator:")], "", ": sources is missing"),
    ("    bf16: [100 TFLOP/s, datasheet, vendor]\n", "    fp16: [100 TFLOP/s, datasheet, vendor]\n", ":7: accelerator.peak.bf16 is missing"),
    ("200 GB/s", "0 GB/s", ":29: network[0].bandwidth: '0 GB/s' is zero; a bandwidth above zero is needed, such as 900 GB/s"),
    ("[64,", "[0,", ":9: accelerator.multiprocessors: '0' is zero; a plain number above zero is needed"),
    ("[64,", "[6.5,", ":9: accelerator.multiprocessors: '6.5' is not a whole number"),
    ("40 GiB", "40 GB/s", ":10: accelerator.memory: '40 GB/s' is a bandwidth; a number of bytes is needed, such as 80 GiB"),
    ("1 TB/s", "1 TB", ":11: accelerator.memory_bandwidth: '1 TB' is a number of bytes; a bandwidth is needed"),
    ("1 TB/s", "1e12", ":11: accelerator.memory_bandwidth: '1000000000000.0' is a plain number; a bandwidth is needed"),
    ("1 TB/s", "1 TBps", ":11: accelerator.memory_bandwidth: '1 TBps' has an unknown unit: did you mean 'TB/s'?"),
    ("100 TFLOP/s", "100 TFLOPS", ":8: accelerator.peak.bf16: '100 TFLOPS' has an unknown unit: did you mean 'TFLOP/s'?"),
    ("100 TFLOP/s", "fast", ":8: accelerator.peak.bf16: 'fast' is not a number with its unit, such as 989 TFLOP/s"),
    ("100 TFLOP/s", "-100 TFLOP/s", ":8: accelerator.peak.bf16: '-100 TFLOP/s' is not a number with its unit"),
    ("100 TFLOP/s", "1e999999999 TFLOP/s", ":8: accelerator.peak.bf16: '1e999999999 TFLOP/s' is not a number with its unit"),
    ("[64, datasheet, vendor]", "64", ":9: accelerator.multiprocessors: should be a list of number with unit, measured | datasheet"),
    ("[64, datasheet, vendor]", "[64, datasheet]", ":9: accelerator.multiprocessors: should be a list of number with unit"),
    ("[64, datasheet, vendor]", "[64, datasheet, vendor, 2024]", ":9: accelerator.multiprocessors: should be a list of number with unit"),
    ("[64, datasheet, vendor]", "[true, datasheet, vendor]", ":9: accelerator.multiprocessors: should be a list of number with unit"),
    ("[64, datasheet, vendor]", "{value: 64}", ":9: accelerator.multiprocessors: should be a list of number with unit"),
    ("[64, datasheet, vendor]", "[[64], datasheet, vendor]", ":9: accelerator.multiprocessors: '[64]' is not a number with its unit"),
    ("[64, datasheet, vendor]", "[64, guessed, vendor]", ":9: accelerator.multiprocessors: 'guessed' is not how a number is known"),
    ("[64, datasheet, vendor]", "[64, datasheet, vender]", "names the source 'vender', which sources does not list: did you mean 'vendor'?"),
    ("start: [5 us, measured, tests]", "start: [5 us, measured, nowhere]", ":13: kernels.gemm.start: names the source 'nowhere', which sources does"),
    ("latency: [5 us, measured, tests]", "latency: [5 us, measured, x]", ":30: network[0].latency: names the source 'x', which sources does"),
    ("    ranks: 4\n", "", ":27: network[0].ranks is missing"),
    ("ranks: 4", "ranks: four", ":28: network[0].ranks: should be a number of ranks from 2 up, or all"),
    ("ranks: 4", 'ranks: "4"', ":28: network[0].ranks: should be a number of ranks from 2 up, or all"),
    ("ranks: 4", "ranks: 4.0", ":28: network[0].ranks: should be a number of ranks from 2 up, or all"),
    ("ranks: 4", "ranks: true", ":28: network[0].ranks: should be a number of ranks from 2 up, or all"),
    ("ranks: 4", "ranks: 1", ":28: network[0].ranks: should be a number of ranks from 2 up, or all"),
    ("ranks: 4", "ranks: all", ":28: network[0].ranks: inside joins all ranks, so no tier can follow it"),
    ("ranks: all", "ranks: 6", ":34: network[1].ranks: between joins 6 ranks; twice the tier inside it (4), or a larger multiple, is needed"),
    ("ranks: all", "ranks: 4", ":34: network[1].ranks: between joins 4 ranks; twice the tier inside it (4), or a larger multiple, is needed"),
    ("default: [0.8", "al_reduce: [0.8", ":32: network[0].efficiency.al_reduce: is no collective: did you mean 'all_reduce'?"),
    ("default: [0.8", "default: [0", ":32: network[0].efficiency.default: '0' is zero"),
    ("    latency: [5 us, measured, tests]\n", "    latency: [5 us, measured, tests]\n    hops: 3\n", ":31: unknown key 'hops' in network[0]"),
    ("permute: [0.4", "permutation: [0.4", ":23: unknown key 'permutation' in kernels.memory: did you mean 'permute'?"),
    ("network:\n", "network: 3\nhost:\n", ":26: network is 3; it should be a list"),
    (GOOD[GOOD.index("network:") :], "network:\n  fast: {ranks: 8}\n", ":26: network is"),
    ("  vendor: the vendor's datasheet", "  vendor: 3", ":4: sources.vendor is 3; it should be text"),
    ("name: two-nodes", "name: 3", ":1: name is 3; it should be text"),
    ("name: two-nodes", "name: two-nodes\nname: other", ":2: 'name' is given twice (first on line 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), REFUSED)
def test_refuses(file: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    file.write_text(GOOD.replace(old, new, 1))
    sentence = refusal(file)
    assert sentence.startswith(f"{file}:")
    assert expected in sentence


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("b20-sxm", "no system or file is named 'b20-sxm': did you mean 'b200-sxm'?"),
        ("b200-sxm.yml", "b200-sxm.yml: no such file"),
        ("", "SYSTEM is empty; name a system ('symsim list systems') or a YAML file"),
        (__file__, "a system file ends in .yaml or .yml"),
    ],
)
def test_refuses_the_name(reference: str, expected: str) -> None:
    assert expected in refusal(reference)


SETTINGS = {
    "B_hbm=2 TB/s": (("accelerator", "memory_bandwidth"), 2 * 10**12),
    "Phi_bf16=1 PFLOP/s": (("accelerator", "peak", "bf16"), 10**15),
    "n_sm=100": (("accelerator", "multiprocessors"), 100),
    "W_chip=1 kW": (("accelerator", "power"), 1000),
    "c_chip=7.2 USD/h": (("accelerator", "price"), Fraction(72, 36000)),
    "B_host=10 GB/s": (("host", "bandwidth"), 10**10),
    "B_dram=10 GB/s": (("host", "memory_bandwidth"), 10**10),
    "host.memory=1 TiB": (("host", "memory"), 2**40),
    "B_1=1 TB/s": (("network", 0, "bandwidth"), 10**12),
    "alpha_2=3 us": (("network", 1, "latency"), Fraction(3, 10**6)),
    "eta_1_all_reduce=0.25": (("network", 0, "efficiency", "all_reduce"), Fraction(1, 4)),
    "network.infiniband.bandwidth=800 Gb/s": (("network", 1, "bandwidth"), 10**11),
    "network.2.efficiency.p2p=0.5": (("network", 1, "efficiency", "p2p"), Fraction(1, 2)),
    **{f"{name}=0.5{' us' if name.startswith('t') else ''}": (("kernels", *path), None) for name, path in SYMBOLS.items()},
}


@pytest.mark.parametrize("item", SETTINGS)
def test_set(item: str) -> None:
    path, value = SETTINGS[item]
    before, after = (dict(quantities(load_system("h100-sxm", asked))) for asked in ({}, split_settings([item]).system))
    assert after[path].tag == "estimated" and after[path].source == "--set" and after[path].text == item.split("=")[1]
    assert after[path].value == (Fraction(1, 2) / (10**6 if item.endswith(" us") else 1) if value is None else value)
    assert {p for p in after if after[p] != before.get(p)} == {path}, "nothing else moves"


def test_set_ranks_of_a_tier() -> None:
    for item in ("R_1=4", "network.nvlink.ranks=4"):
        assert load_system("h100-sxm", split_settings([item]).system).network[0].ranks == 4


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("B_hbm=2e12", "--set: accelerator.memory_bandwidth: '2e12' is a plain number; a bandwidth is needed, such as 900 GB/s"),
        ("B_3=1 GB/s", "--set network.3.bandwidth: h100-sxm has no tier '3'"),
        ("network.nvlnk.latency=1 us", "--set network.nvlnk.latency: h100-sxm has no tier 'nvlnk': did you mean 'nvlink'?"),
        ("R_1=0", "--set: network[0].ranks: should be a number of ranks from 2 up, or all"),
        ("accelerator.peek.bf16=1 PFLOP/s", "--set: unknown key 'peek' in accelerator: did you mean 'peak'?"),
        ("accelerator.power.max=1 kW", "--set accelerator.power.max: accelerator.power is not a group of numbers"),
        ("network.nvlink=1 GB/s", "--set network.nvlink: network is not a group of numbers"),
        ("network.nvlink.latency.first=1 us", "--set network.nvlink.latency.first: network.nvlink.latency is not a group of numbers"),
        ("accelerator.peak=1 PFLOP/s", "--set: accelerator.peak"),
        ("network.nvlink.name=other", "--set: network[0].name"),
        ("host.speed=1 GB/s", "--set: unknown key 'speed' in host"),
    ],
)
def test_set_refuses(item: str, expected: str) -> None:
    assert expected in refusal("h100-sxm", split_settings([item]).system)


@pytest.mark.parametrize("item", ["eta_1=0.5", "B_=1 GB/s", "B_0=1 GB/s", "eta_1_gather=0.5", "network=3", "network..bandwidth=1 GB/s"])
def test_set_unknown(item: str) -> None:
    with pytest.raises(InputError, match="no such setting"):
        split_settings([item])


def test_set_without_a_system(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["eval", "llama3-8b", "--set", "B_hbm=3 TB/s"])
    assert left.value.code == 2
    assert capsys.readouterr().err == ("symsim: --set accelerator.memory_bandwidth changes a system's number, and none is named: give one with -y\n")


def test_one_number_set_under_two_names() -> None:
    with pytest.raises(InputError, match="same setting"):
        split_settings(["B_hbm=1 TB/s", "accelerator.memory_bandwidth=2 TB/s"])


@settings(max_examples=300)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever is done to the text, the reader answers with a system or with one sentence."""
    text = GOOD
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 20))
        text = text[:at] + data.draw(st.text(st.sampled_from("0129eE.-[]{},: \n#'\"aGBs/xyz\t&*!|>%\u00b5\x00"), max_size=6)) + text[at + cut :]
    path = tmp_path_factory.mktemp("damaged") / "machine.yaml"
    path.write_text(text)
    try:
        system = load_system(str(path))
    except InputError as error:
        assert "\n" not in str(error)
    else:
        symbol_values(system, load_strategy("tp=2"))


WRONG = [
    None,
    True,
    3,
    -1.5,
    "",
    "text",
    [],
    [1],
    ["1 GB/s", "measured"],
    {},
    {"a": 1},
    "9" * 50,
    "1e99",
    [["1"], None, {}],
    ["1e-99 GB/s", "measured", "tests"],
]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_wrong_types_anywhere(file: Path, value: object) -> None:
    """Every key in turn holds something it should not."""
    good = read_yaml(file).data

    def paths(node: object, inside: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return [deeper for key, child in items for deeper in [(*inside, key), *paths(child, (*inside, key))]]

    for path in paths(good):
        data = deepcopy(good)
        place = data
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value
        try:
            symbol_values(changed_system(Document(data, str(file)), {}), Strategy())
        except InputError as error:
            assert "\n" not in str(error) and str(error).startswith(str(file))


def table() -> list[str]:
    """Rows of the table of shipped systems in docs/systems.md."""
    rows = []
    for name in list_systems():
        system = load_system(name)
        chip = system.accelerator
        peaks = " / ".join(f"{float(rate.value) / 1e12:g}" if (rate := getattr(chip.peak, kind)) else "-" for kind in ("bf16", "fp8", "fp32"))
        tiers = "; ".join(f"{t.name} {t.ranks} x {float(t.bandwidth.value) / 1e9:g}" for t in system.network)
        known = [k for _, k in quantities(system)]
        tags = " / ".join(str(sum(k.tag == tag for k in known)) for tag in TAGS)
        rows.append(
            f"| `{name}` | {peaks} | {float(chip.memory.value) / 2**30:g} | {float(chip.memory_bandwidth.value) / 1e12:g} "
            f"| {int(chip.multiprocessors.value)} | {tiers} | {tags} |"
        )
    return rows


def test_documented_table() -> None:
    documented = [line for line in DOCS.read_text().split("## What ships")[1].splitlines() if line.startswith("| `")]
    assert documented == table()


def test_documented_example(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert example is not None
    path = tmp_path / "mymachine.yaml"
    path.write_text(example[1])
    assert isinstance(load_system(str(path)), System)


def test_packaged_with_the_models() -> None:
    assert (models_directory() / "systems").is_dir()
