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
from symsim.inputs.systems import load_system  # noqa: E402
from symsim.report import rendered, write_report  # noqa: E402

EXAMPLES = {
    "llama3-70b": ("tp=8,sp=true,pp=4,dp=4,global_batch_size=128,seq_length=8192", "h100-sxm"),
    "mixtral-8x7b": ("tp=2,sp=true,pp=4,ep=8,etp=1,dp=8,global_batch_size=256", "h100-sxm"),
    "deepseek-v3": ("deepseek-v3-2048", "h800-sxm"),
}
SUFFIXES = (".md", ".html", ".tex")


def stale(fresh: Path, folder: Path = FOLDER) -> list[str]:
    """Names of the reports of a folder that are missing or differ from those just made in another."""
    made = sorted(p.name for p in fresh.iterdir())
    return [n for n in made if not (folder / n).is_file() or (folder / n).read_bytes() != (fresh / n).read_bytes()]


def remake(folder: Path = FOLDER) -> None:
    for model, (placed, system) in EXAMPLES.items():
        result = derive(load_model(model).architecture, load_strategy(placed, {}), system=load_system(system))
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
    with tempfile.TemporaryDirectory() as directory:
        remake(Path(directory))
        old = stale(Path(directory))
    if old:
        print(f"stale: {', '.join(old)}; 'python reports/remake.py' makes them again", file=sys.stderr)
    return int(bool(old))


if __name__ == "__main__":
    raise SystemExit(main())
