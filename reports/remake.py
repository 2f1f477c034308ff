"""Remake the reports of this folder: `python reports/remake.py`; `--check` changes nothing and fails when one is stale."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from symsim.api.result import derive  # noqa: E402
from symsim.audit.printed import audit_tables  # noqa: E402
from symsim.audit.report import audit_report  # noqa: E402
from symsim.audit.running import asked, audit  # noqa: E402
from symsim.audit.subjects import Derivations  # noqa: E402
from symsim.inputs.models import load_model  # noqa: E402
from symsim.inputs.strategies import load_strategy  # noqa: E402
from symsim.report import rendered, write_report  # noqa: E402

EXAMPLES = {
    "llama3-70b": "tp=8,pp=4,sp=true,micro_batch_size=1,num_microbatches=8,dp=2,seq_length=8192",
    "qwen3-235b-a22b": "tp=4,pp=4,ep=8,etp=1,sp=true",
    "deepseek-v3": "tp=8,pp=16,ep=8,sp=true",
}
SUFFIXES = (".md", ".html", ".tex")


def stale(folder: Path = FOLDER) -> list[str]:
    """Names of the reports that differ from what symsim writes now."""
    with tempfile.TemporaryDirectory() as directory:
        remake(Path(directory))
        made = sorted(p.name for p in Path(directory).iterdir())
        return [n for n in made if not (folder / n).is_file() or (folder / n).read_bytes() != (Path(directory) / n).read_bytes()]


def remake(folder: Path = FOLDER) -> None:
    for model, placed in EXAMPLES.items():
        result = derive(load_model(model).architecture, load_strategy(placed, {}))
        for suffix in SUFFIXES:
            write_report(result, folder / f"{model}{suffix}")


def remake_audit(folder: Path = FOLDER) -> None:
    """audit.md and audit.html: every claim of derivations/ with its verdict; tests/test_whole_audit.py holds the first to what symsim writes."""
    document = audit_report(audit(*asked(())), audit_tables((), Derivations()).found)
    for suffix in (".md", ".html"):
        (folder / f"audit{suffix}").write_bytes(rendered(document, suffix))


def main() -> int:
    if "--check" not in sys.argv[1:]:
        remake()
        remake_audit()
        return 0
    old = stale()
    if old:
        print(f"stale: {', '.join(old)}; 'python reports/remake.py' makes them again", file=sys.stderr)
    return int(bool(old))


if __name__ == "__main__":
    raise SystemExit(main())
