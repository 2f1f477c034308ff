"""What the statements of a script hold: the words of their commands, and what their conditions ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from symsim.importers.shell.grammar import Branch, Case, Group, Loop, Simple, Statements, Test
from symsim.importers.shell.scope import Word
from symsim.importers.shell.tokens import Token

_VARIABLE = re.compile(r"\"?\$\{?([A-Za-z_][A-Za-z0-9_]*)(?::?-)?\}?\"?")
_SHELLS = ("bash", "sh")
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_PROGRAMS = (".py", "python", "python3", "torchrun", "accelerate", "deepspeed")
_POSITIONAL = re.compile(r"\$\{?[#@*1-9]")


def tokens_in(statements: Statements) -> Iterator[Token]:
    """Every word of the commands in statements and in what they hold."""
    for statement in (joined.statement for joined in statements):
        if isinstance(statement, Simple):
            yield from statement.words
        elif isinstance(statement, Branch):
            for condition, body in statement.arms:
                yield from (*tokens_in(condition), *tokens_in(body))
            yield from tokens_in(statement.otherwise)
        elif isinstance(statement, Case):
            for _, body in statement.arms:
                yield from tokens_in(body)
        elif isinstance(statement, (Loop, Group)):
            yield from tokens_in(statement.body)


def _tested(condition: Statements) -> list[Token]:
    """The words of a condition's tests and commands."""
    return [*(token for joined in condition if isinstance(joined.statement, Test) for token in joined.statement.words), *tokens_in(condition)]


def asks_for_arguments(condition: Statements) -> bool:
    """Whether it is what arguments there are."""
    return any(_POSITIONAL.search(token.source) is not None for token in _tested(condition))


def asks_for_environment(condition: Statements) -> bool:
    """Whether it is that a variable is empty."""
    words = [token.source for token in _tested(condition)]
    return any(flag == "-z" and _VARIABLE.fullmatch(word) is not None for flag, word in zip(words, words[1:], strict=False))


def is_test(simple: Simple) -> bool:
    return bool(simple.words) and simple.words[0].source in ("[", "test", "((")


def text_run(words: Sequence[Word]) -> slice | None:
    """Where the words stand that are themselves a script: behind `eval`, and behind `-c` of a shell."""
    if words[0].text == "eval":
        return slice(1, None)
    for at, (shell, dash) in enumerate(zip(words, words[1:-1], strict=False)):
        if shell.text.rpartition("/")[2] in _SHELLS and re.fullmatch(r"-[a-z]*c", dash.text):
            return slice(at + 2, at + 3)
    return None


def script_run(words: Sequence[Word]) -> int | None:
    """Where the script stands that a command starts with a shell, or with Slurm; None for another command."""
    starts = words[0].text.rpartition("/")[2] in (*_SHELLS, "sbatch", "srun", "exec", "nohup")
    if not starts and not words[0].text.startswith("./"):
        return None
    scripts = [at for at, word in enumerate(words) if word.text.endswith(_SCRIPTS) and "=" not in word.text]
    if words[0].text != "srun":
        return next(iter(scripts), None)
    # srun may start what starts the program that stands behind it
    alone = not any(word.text.endswith(_PROGRAMS) for word in words)
    return next((at for at in scripts if alone or words[at - 1].text.rpartition("/")[2] in _SHELLS), None)


def runs(words: Sequence[Word], file: str) -> bool:
    """Whether a command is the one that runs a script of this name."""
    shell, *called = [word.text.rpartition("/")[2] for word in words[:2]]
    return shell in _SHELLS and called == [file.rpartition("/")[2]]
