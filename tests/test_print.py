"""The HTML report on paper: nothing reaches beyond the page. A browser lays it out; without one the tests skip."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import symsim
from symsim.report import write_report

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync"
)
# A4 without margins of 12 mm on both sides, at 96 px an inch
PAPER = (210 - 24) / 25.4 * 96
CASES = [
    ("qwen3-235b-a22b", "sp=true,tp=4,pp=4,ep=8,num_microbatches=16", "h100-sxm"),
    ("deepseek-v3", "ep=8,pp=4,cp=2,tp=2,sp=true,etp=1,vpp=2,fp8=blockwise,num_microbatches=16,overlap_moe_expert_parallel_comm=true", "h800-sxm"),
    ("bloom-7b1", "fusion=eager,tp=2,recompute=full", None),
]
_MEASURE = """<script>
const wide = [...document.querySelectorAll("table, math, figure, p, h1, h2, h3")].map(e => [e.getBoundingClientRect().right, e.tagName]);
wide.sort((a, b) => b[0] - a[0]);
document.title = "WIDEST " + wide[0][0] + " " + wide[0][1];
</script>"""


def widest(page: Path, width: int, folder: Path) -> float:
    """The right edge of what reaches furthest, in px, in a window of that width."""
    command = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={folder}/profile", f"--window-size={width},1000", "--dump-dom", page.as_uri()]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    return float(re.search(r"<title>WIDEST ([0-9.]+)", out)[1])


@pytest.mark.long_after(1)
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("model", "strategy", "system"), CASES)
def test_nothing_is_cut_at_the_edge_of_the_page(model: str, strategy: str, system: str | None, tmp_path: Path):
    page = tmp_path / "report.html"
    write_report(symsim.derive(model, strategy, system=system), page)
    text = page.read_text()
    assert "size: A4; margin: 12mm" in text
    # the rules of paper on a screen as wide as it
    text = text.replace("@media print", "@media all").replace("@media screen", "@media speech")
    page.write_text(text.replace("body { margin: 0;", f"body {{ width: {PAPER:.0f}px; margin: 0;").replace("</body>", f"{_MEASURE}</body>"))
    assert widest(page, 2000, tmp_path) <= PAPER + 1
