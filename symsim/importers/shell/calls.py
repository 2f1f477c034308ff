"""A script on symsim's command line with arguments of its own, as one would start it: `train.sh 7B 4`, or `bash train.sh 7B --tp 4`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from symsim.errors import InputError, cut
from symsim.importers.shell.scope import NUMBER
from symsim.inputs.reading import read_text

_SHELLS = frozenset(["bash", "sh", "sbatch", "source"])
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".job", ".pbs", ".lsf", ".qsub")
_DATA = (".yaml", ".yml", ".json", ".toml", ".py")
_FILES = (*_SCRIPTS, *_DATA, ".txt", ".env")
# what asks for an argument, and what takes them all
_ASKED = re.compile(r"\$\{?!?([#@*]|[1-9][0-9]{0,2})")
_TAKEN = re.compile(r"^\s*(?:shift|(?:source|\.)\s|for\s+\w+\s*(?:;|\bdo\b|$))", re.MULTILINE)
_LONGEST = 2**20
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
# a key of another file, in dots
_KEY = re.compile(r"[+~]{0,2}[\w@/]+(?:\.[\w@/]+)+=.*|[+~].*", re.DOTALL)


def called(inputs: Sequence[str], variables: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The inputs without the arguments of a script, and the variables with them: "1", "2", .. and "#", how many they are.

    Behind `bash FILE` every word is one, and assignments before it are variables; behind a script alone, those up to the first `--` that
    name no file. InputError where --var gives one of them too, or a script asks for none.
    """
    found = _behind_shell(inputs)
    if found is None:
        files, arguments = _behind_script(inputs)
        environment: dict[str, str] = {}
    else:
        files, arguments, environment = found
    if not arguments:
        return files, {**environment, **variables}
    both = next((name for name in variables if name.isdigit()), None)
    if both is not None:
        raise InputError(f"--var {both} and the words behind the script both give its arguments; give one of them")
    _asked(files, arguments)
    places = {str(place): text for place, text in enumerate(arguments, 1)}
    return files, {**environment, **places, **variables, NUMBER: str(len(arguments))}


def _asked(files: Sequence[str], arguments: Sequence[str]) -> None:
    """InputError where a script that is given arguments asks for none."""
    scripts = [file for file in files if os.path.isfile(file) and not file.lower().endswith(_DATA)]
    texts = [read_text(file, _LONGEST) for file in scripts]
    if texts and not any(_ASKED.search(text) or _TAKEN.search(text) for text in texts):
        raise InputError(f"{scripts[-1]}: the script asks for no arguments, and no file is called '{cut(arguments[0])}'")


def _behind_shell(inputs: Sequence[str]) -> tuple[list[str], list[str], dict[str, str]] | None:
    """The files, the arguments and the assignments of `A=1 bash FILE words`; None where no shell is named."""
    at = next((at for at, text in enumerate(inputs) if text in _SHELLS and not os.path.isfile(text)), None)
    if at is None or any(text.startswith("-") for text in inputs[:at]):
        return None
    # options of the shell, or of sbatch, hold their values behind =
    file = next((place for place in range(at + 1, len(inputs)) if not inputs[place].startswith("-")), None)
    if file is None:
        raise InputError(f"behind {inputs[at]} should follow a script")
    before = [(text, _ASSIGNED.fullmatch(text)) for text in inputs[:at]]
    environment = {match[1]: match[2] for _, match in before if match is not None}
    return [*(text for text, match in before if match is None), inputs[file]], list(inputs[file + 1 :]), environment


def _behind_script(inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """The inputs without the arguments of the script among them, and the arguments."""
    dashed = next((at for at, text in enumerate(inputs) if text.startswith("-")), len(inputs))
    script = next((at for at, text in enumerate(inputs[:dashed]) if text.lower().endswith(_SCRIPTS)), dashed)
    first = next((at for at in range(script + 1, dashed) if not _is_file(inputs[at])), dashed)
    return [*inputs[:first], *inputs[dashed:]], list(inputs[first:dashed])


def _is_file(text: str) -> bool:
    return text.lower().endswith(_FILES) or _KEY.fullmatch(text) is not None or os.path.isfile(text)
