"""The command line inside the test's own process: what a shell would see of it, without the second that a program takes to start."""

from __future__ import annotations

import io
import os
import sys
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from symsim.api.cli import main


def run(*arguments: str, cwd: Path | None = None, columns: str | None = None) -> CompletedProcess[str]:
    """`symsim ARGUMENTS` in cwd; columns: the width that the terminal says, none if it says nothing."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | ({"COLUMNS": columns} if columns else {})
    with chdir(cwd or Path.cwd()), mock.patch.dict(os.environ, environment, clear=True), redirect_stdout(out), redirect_stderr(err):
        with mock.patch.object(sys, "argv", ["symsim", *arguments]), warnings.catch_warnings():
            try:
                main()
            except SystemExit as end:
                status = end.code
    printed = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return CompletedProcess(arguments, status if isinstance(status, int) else 0, *printed)
