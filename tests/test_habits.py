"""What CONTRIBUTING.md asks for exists, and what runs at a commit is what CI runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import symsim

ROOT = Path(__file__).parents[1]


def test_a_commit_is_checked_as_ci_checks() -> None:
    config = YAML(typ="safe").load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert all(repository["repo"] == "local" for repository in config["repos"]), "a hook from elsewhere is downloaded"
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert hooks and all(hook["entry"] in commands for hook in hooks)
    if shutil.which("pre-commit") and (ROOT / ".git").exists():
        assert subprocess.run(["pre-commit", "validate-config", str(ROOT / ".pre-commit-config.yaml")], capture_output=True).returncode == 0


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "CHANGELOG.md"])
def test_files_that_pages_name_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = re.findall(r"\b(?:docs|tests|\.ci)/[\w/.-]*\w", text)
    assert not [name for name in named if not (ROOT / name).exists()]


def test_the_changelog_is_of_this_version() -> None:
    versions = re.findall(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == symsim.__version__
    assert f'version = "{symsim.__version__}"' in (ROOT / "pyproject.toml").read_text()
