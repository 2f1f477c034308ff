"""Shell scripts and argument lists: the words of the commands in them, read without running anything.

Assignments, lists, `if`, `case`, `for` over known words or numbers, and commands that only write their words are followed. What only a
run could tell (the output of a command, a file's being there, a variable that nothing sets) stays as it is written and carries its reason,
which a reader raises where it needs the value.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from symsim.errors import InputError, cut
from symsim.importers.keys import natural
from symsim.importers.shell.command import Command
from symsim.importers.shell.grammar import Branch, Case, Group, Joined, Loop, Simple, Statement, Statements, Test, parse
from symsim.importers.shell.outputs import output
from symsim.importers.shell.scope import NUMBER, WRITTEN, Scope, Value, Word
from symsim.importers.shell.slurm import begun
from symsim.importers.shell.statements import asks_for_arguments, asks_for_environment, is_test, runs, script_run, text_run, tokens_in
from symsim.importers.shell.texts import beside
from symsim.importers.shell.tokens import ASSIGNMENT, Token
from symsim.importers.shell.words import Expansion
from symsim.importers.shell.writers import printed, read_words, written
from symsim.inputs.reading import read_text

_DECLARING = frozenset(["export", "declare", "local", "readonly", "typeset"])
# NAME=$1, NAME="${1:-default}"
_NAMED = re.compile(r"([A-Za-z_]\w*)=\"?\$\{?([1-9][0-9]{0,2})(?:[:}\"].*)?", re.ASCII | re.DOTALL)
_SILENT = frozenset(["true", ":", "echo", "printf"])
_MOST_STEPS = 20_000
_MOST_WORDS = 20_000
_LONGEST_SOURCED = 2**19
# turns of a loop that counts
_MOST_TURNS = 2_000
_DEEPEST = 20


def commands(text: str, where: str, variables: Mapping[str, str] | None = None) -> list[Command]:
    """The commands of a script in their order. variables: given by the user, and so not the script's to set.

    InputError where the script cannot be read; a value that cannot be known is no error here (`Word.known` raises it).
    """
    return scripts([(text, where)], variables)


def scripts(texts: Sequence[tuple[str, str]], variables: Mapping[str, str] | None = None) -> list[Command]:
    """The commands of several scripts, each with the variables that the ones before it set, and with the arguments and the assignments of
    a line in one of those that runs it (`TP=2 bash train.sh 7B 1`)."""
    scope = Scope(dict(variables or {}))
    found: list[Command] = []
    for text, where in texts:
        call = next((one for one in found if runs(one.words, where)), None)
        scope.begin()
        if call is not None:
            found.remove(call)
            scope.positional, scope.called = [scope.said(word) for word in call.words[2:]], True
            for name, word in call.environment.items():
                scope.set(name, scope.said(word))
        found += _Reader(scope, where).read(begun(scope, text, where))
    return found


def assigned(texts: Sequence[tuple[str, str]], variables: Mapping[str, str] | None = None) -> dict[str, tuple[Word, ...]]:
    """The words that the variables of scripts stand for at their end, each as it would be unquoted."""
    scope = Scope(dict(variables or {}))
    expand = Expansion(scope, texts[-1][1])
    for text, where in texts:
        scope.begin()
        _Reader(scope, where).read(begun(scope, text, where))
    names = [name for name in scope.values if name not in scope.given and not name.startswith(WRITTEN)]
    return {name: tuple(scope.word(piece, texts[-1][1]) for piece in expand.unquoted(name)) for name in names}


class _Exit(Exception):
    """The script ends here."""


class _Leave(Exception):
    """A loop's turn ends here; all of the loop, where last is set."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.last = last


class _Unsure(Exception):
    """Whether a loop's turn ends here only a run could tell."""


class _Reader:
    """Goes through the statements of one script."""

    def __init__(self, scope: Scope, where: str, deep: int = 0, around: tuple[str, ...] = ()) -> None:
        # around: the scripts that lead here, none of which is followed again
        self.scope, self.where, self.deep, self.around = scope, where, deep, (*around, where)
        self.expand = Expansion(scope, where)
        self.expand.written = lambda text, line: output(text, self.where, line, self.expand, self.simple)
        self.found: list[Command] = []
        self.functions: dict[str, Group] = {}
        self.steps = 0
        # whether the last statement is only taken to succeed
        self.presumed = False
        # loops around, each of whose turns is known
        self.turning = 0

    def read(self, text: str) -> list[Command]:
        try:
            statements = parse(self.expand.clean(text), self.where)
            for token in tokens_in(statements):
                if (named := _NAMED.fullmatch(token.source)) is not None:
                    self.scope.asked.setdefault(int(named[2]), named[1])
            self.all(statements)
        except _Exit:
            pass
        return self.found

    def all(self, statements: Statements) -> bool | None:
        """Whether the last of the statements succeeds; None where only a run could tell."""
        result: bool | None = True
        for joined in statements:
            if joined.joint == "&&" and result is False or joined.joint == "||" and result is True:
                continue
            result = self.uncertain(joined) if joined.joint != ";" and result is None else self.one(joined)
        return result

    def uncertain(self, joined: Joined) -> bool | None:
        """A statement that runs or not: what it sets is not known."""
        self.alternatives([(joined,), ()], joined.statement.line, "the condition before it")
        return None

    def one(self, joined: Joined) -> bool | None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise InputError(f"{self.where}:{joined.statement.line}: the script is too long to be followed")
        result = self.statement(joined.statement)
        # mkdir, cd and such are taken to succeed, so that what is joined to them by && runs and by || does not
        self.presumed = result is None and isinstance(joined.statement, Simple) and not is_test(joined.statement)
        if self.presumed:
            result = True
        return result if result is None or not joined.negated else not result

    def statement(self, statement: Statement) -> bool | None:
        if isinstance(statement, Simple):
            return self.simple(statement)
        if isinstance(statement, Test):
            return self.expand.test(statement.words, True)
        if isinstance(statement, Branch):
            return self.branch(statement)
        if isinstance(statement, Case):
            return self.case(statement)
        if isinstance(statement, Loop):
            return self.loop(statement)
        if statement.name:
            self.functions[statement.name] = statement
            return True
        return self.all(statement.body)

    def branch(self, branch: Branch) -> bool | None:
        open_arms: list[Statements] = []
        self.expand.doubt = ""
        bodies = [*(body for _, body in branch.arms), branch.otherwise]
        for condition, body in branch.arms:
            held = self.all(condition)
            if held is False:
                self.skip(body)
                continue
            if held is True and not open_arms:
                self.skip(*(other for other in bodies if other is not body))
                try:
                    return self.all(body)
                except _Exit:
                    # a script that ends without arguments of its own, or a variable of its environment, is read as if it had them
                    if not asks_for_arguments(condition) and not asks_for_environment(condition):
                        raise
                    if self.scope.called and not asks_for_environment(condition):
                        self.ended(branch)
                        raise
                    return None
            open_arms.append(body)
            if held is True:
                break
        else:
            open_arms.append(branch.otherwise)
        if len(open_arms) == 1:
            return self.all(open_arms[0])
        self.alternatives(open_arms, branch.line, "the condition", self.expand.doubt)
        return None

    def ended(self, branch: Branch) -> None:
        """InputError where a script ends for the arguments that the user gives."""
        count = self.scope.given.get(NUMBER)
        if count is not None and self.deep == 0:
            raise InputError(f"{self.where}:{branch.line}: the script ends here, given {count} argument{'s' * (count != '1')}")

    def case(self, case: Case) -> bool | None:
        subject = self.expand.text(case.subject)
        why = self.scope.reason(subject)
        if why is not None:
            self.alternatives([*(body for _, body in case.arms), ()], case.line, "'case'", why)
            return None
        for patterns, body in case.arms:
            if any(fnmatch.fnmatchcase(self.scope.plain(subject), self.scope.plain(self.expand.text(p))) for p in patterns):
                self.skip(*(other for _, other in case.arms if other is not body))
                return self.all(body)
        self.skip(*(body for _, body in case.arms))
        return True

    def skip(self, *bodies: Statements) -> None:
        """Variables that only these bodies set have no value: the script has them itself, and no environment gives them."""
        for body in bodies:
            self.scope.skipped |= {match[1] for token in tokens_in(body) if (match := ASSIGNMENT.match(token.source)) is not None}

    def alternatives(self, bodies: Sequence[Statements], line: int, what: str, why: str = "") -> None:
        """One of the bodies runs, and which is not known: what they set differently is not known either."""
        before, arguments = dict(self.scope.values), (self.scope.positional, self.scope.shifted)
        ends = []
        for body in bodies:
            self.scope.values = dict(before)
            self.scope.positional, self.scope.shifted = arguments
            found = len(self.found)
            try:
                self.all(body)
            except _Exit:
                continue
            except _Leave:
                raise _Unsure from None
            finally:
                self.found[found:] = [one if one.why else replace(one, why=why) for one in self.found[found:]]
            ends.append(self.scope.values)
        self.scope.positional, self.scope.shifted = arguments
        if not ends:
            self.scope.values = before
            raise _Exit
        merged = ends[0]
        for name in sorted({name for end in ends for name in end}):
            if any(not self.scope.same(end.get(name), merged.get(name)) for end in ends):
                told = f"{self.where}:{line}: ${name}: it depends on {what}, which only a run could tell; --var {name}=VALUE gives it"
                merged[name] = self.scope.unknown(f"${name}", why or told)
        self.scope.values = merged

    def loop(self, loop: Loop) -> bool | None:
        """Follow the turns of a loop where all are known; else what it sets is not, and so it is said."""
        before, arguments, found = dict(self.scope.values), (self.scope.positional, self.scope.shifted), len(self.found)
        steps = self.steps
        self.turning += 1
        try:
            all(self.turn(loop.body) for _ in self.turns(loop))
            return True
        except _Unsure:
            pass
        finally:
            self.turning -= 1
        self.scope.values, self.steps = before, steps
        self.scope.positional, self.scope.shifted = arguments
        del self.found[found:]
        outer, self.turning = self.turning, 0
        self.alternatives([loop.body, ()], loop.line, "a loop")
        self.turning = outer
        return None

    def turn(self, body: Statements) -> bool:
        """One turn of a loop; False where it is the last."""
        try:
            self.all(body)
        except _Leave as leave:
            return not leave.last
        return True

    def turns(self, loop: Loop) -> Iterator[None]:
        """The turns of a loop, each once what it sets is set. _Unsure where only a run could tell whether there is another."""
        if loop.name == "((":
            yield from self.counting(loop)
        elif loop.name is None:
            for _ in range(_MOST_TURNS):
                held = self.all(loop.condition)
                # a command that is asked again and again (`while kill -0 $PID`) fails at last
                if held is None or self.presumed:
                    raise _Unsure
                if held is loop.ends:
                    return
                yield
            raise _Unsure
        else:
            pieces = [piece for token in loop.words for piece in self.expand.fields(token)]
            if any(self.scope.reason(piece) is not None for piece in pieces):
                raise _Unsure
            for piece in pieces:
                self.scope.set(loop.name, piece)
                yield

    def counting(self, loop: Loop) -> Iterator[None]:
        """The turns of `for ((i=0; i<N; i++))`, which only sets variables."""
        parts = loop.words[0].parts[0].text.split(";") if loop.words else []
        found = len(self.found)
        if len(parts) != 3:
            raise _Unsure
        self.expand.counted(parts[0], loop.line)
        for _ in range(_MOST_TURNS):
            held = self.expand.counted(parts[1], loop.line)
            if held is None or self.steps > _MOST_STEPS // 2:
                raise _Unsure
            if held is False:
                return
            yield
            if len(self.found) > found:
                raise _Unsure
            self.expand.counted(parts[2], loop.line)
        raise _Unsure

    def simple(self, simple: Simple) -> bool | None:
        if len(simple.words) == 1 and simple.words[0].source == "((":
            return self.expand.arithmetic_test(simple.words[0])
        prefix: dict[str, Value] = {}
        rest = list(simple.words)
        while rest and (match := ASSIGNMENT.match(rest[0].source)) is not None:
            prefix[match[1]] = self.assigned(rest[0], match)
            rest = rest[1:]
        if not rest:
            for name, value in prefix.items():
                self.scope.set(name, value)
            return True
        if rest[0].source in _DECLARING:
            for token in rest[1:]:
                match = ASSIGNMENT.match(token.source)
                if match is not None:
                    self.scope.set(match[1], self.assigned(token, match))
                if rest[0].source == "export":
                    self.scope.exported.add(match[1] if match is not None else token.source)
            return True
        if rest[0].source in ("[", "test"):
            closing = rest[0].source == "[" and rest[-1].source == "]"
            return self.expand.test(tuple(rest[1:-1] if closing else rest[1:]), False)
        pieces = [piece for token in rest for piece in self.expand.fields(token)]
        if len(pieces) > _MOST_WORDS:
            raise InputError(f"{self.where}:{simple.line}: a command of more than {_MOST_WORDS} words")
        if simple.text is not None and [self.scope.plain(piece) for piece in pieces[:1]] == ["read"]:
            return self.read_into(pieces[1:], self.expand.text(simple.text), prefix.get("IFS"), simple.line)
        if simple.output is not None:
            self.wrote(simple, simple.output, pieces)
        return self.command(pieces, prefix, simple.line)

    def read_into(self, pieces: list[str], text: str, separator: Value | None, line: int) -> bool | None:
        """`read A B <<< TEXT`: its first line by variables, what is left into the last."""
        where, apart = f"{self.where}:{line}", separator if isinstance(separator, str) else " "
        known = all(self.scope.reason(piece) is None for piece in (*pieces, text, apart))
        found = read_words([self.scope.plain(piece) for piece in pieces], self.scope.plain(text), self.scope.plain(apart)) if known else None
        if found is None:
            self.unknown([self.scope.word(piece, where) for piece in pieces], where, "is read")
            return None
        for name, value in found.items():
            self.scope.set(name, self.scope.marked(value, where))
        return True

    def wrote(self, simple: Simple, output: Token, pieces: list[str]) -> None:
        """Keep what a command writes into a file: `cat > FILE << END`, or words of its own."""
        name = WRITTEN + self.scope.plain(self.expand.text(output))
        words = [self.scope.plain(piece) for piece in pieces]
        if words == ["cat"] and simple.text is not None:
            text = self.expand.text(simple.text)
        else:
            known = written(words) if all(self.scope.reason(piece) is None for piece in pieces) else None
            if known is None:
                self.scope.values.pop(name, None)
                return
            text = self.scope.marked(known, f"{self.where}:{simple.line}")
        held = self.scope.values.get(name, "") if simple.added else ""
        self.scope.set(name, (held if isinstance(held, str) else "") + text)

    def assigned(self, token: Token, match: re.Match[str]) -> Value:
        """The value that NAME=.., NAME+=.. or NAME=( .. ) gives."""
        name, index, more = match[1], match[2], match[3]
        held = self.scope.get(name)
        if index is not None:
            return self.scope.unknown(f"${name}", f"{self.where}:{token.line}: ${name} is set element by element; --var {name}=VALUE gives it")
        if token.array is not None:
            added = [piece for element in token.array for piece in self.expand.fields(element)]
            return [*(held if isinstance(held, list) else [held] if isinstance(held, str) else []), *added] if more else added
        self.expand.naming = name
        value = self.expand.text(token, match.end())
        self.expand.naming = ""
        if not more or held is None:
            return value
        return [*held, value] if isinstance(held, list) else held + value

    def command(self, pieces: list[str], prefix: dict[str, Value], line: int) -> bool | None:
        where = f"{self.where}:{line}"
        words = [self.scope.word(piece, where) for piece in pieces]
        name = words[0].text if words else ":"
        if name == "printf" and [word.text for word in words[1:2]] == ["-v"]:
            text = printed([word.text for word in words[3:]]) if all(word.why is None for word in words) else None
            if text is not None and words[2].text.isidentifier():
                self.scope.set(words[2].text, self.scope.marked(text, where))
            else:
                self.unknown(words[2:3], where, "is printed")
        if name in _SILENT:
            return True
        if name == "false":
            return False
        if name in ("exit", "return"):
            raise _Exit
        if name in ("break", "continue"):
            if self.turning and len(words) == 1:
                raise _Leave(name == "break")
            return True
        if name == "shift":
            return self.shift(words)
        if name == "set":
            # options of the shell, but for new arguments
            if [word.text for word in words[1:2]] == ["--"]:
                self.scope.positional, self.scope.shifted, self.scope.called = [*pieces[2:]], 0, True
            return True
        if name in ("source", ".") and len(words) > 1:
            file = beside(words[1], self.around)
            self.scope.sources |= file is None
            return self.sourced(file, line) if file is not None else None
        if name == "unset":
            for word in words[1:]:
                self.scope.values.pop(word.text, None)
            return True
        if name == "read":
            self.unknown(words[1:], where, "is read")
            return True
        if name in self.functions:
            return self.called(self.functions[name], pieces[1:])
        inner = text_run(words)
        if inner is not None:
            return self.again(pieces[inner], line)
        at = script_run(words)
        if at is not None and (file := beside(words[at], self.around)) is not None:
            submitted = [word.text for word in words[1:at] if word.why is None] if name == "sbatch" else []
            return self.sourced(file, line, pieces[at + 1 :], prefix, submitted)
        self.found.append(Command(tuple(words), line, self.scope.environment(prefix, where), self.scope.files(where)))
        return None

    def sourced(
        self, file: str, line: int, started: Sequence[str] | None = None, prefix: Mapping[str, Value] = {}, submitted: Sequence[str] = ()
    ) -> bool | None:
        """Follow another script: one that is sourced, or started, with its arguments and what is exported alone. submitted: sbatch's options."""
        self.deeper(line, "scripts that start or source each other too often")
        scope, outer = self.scope, (self.scope.values, self.scope.positional, self.scope.shifted, self.scope.called)
        reader = _Reader(scope, file, self.deep, self.around)
        reader.functions, reader.steps = self.functions if started is None else {}, self.steps
        if started is not None:
            scope.values = {name: value for name, value in scope.values.items() if name in scope.exported or name.startswith(WRITTEN)} | dict(prefix)
            scope.exported |= prefix.keys()
            scope.positional, scope.shifted, scope.called = [*started], 0, True
        try:
            self.found += reader.read(begun(scope, read_text(file, _LONGEST_SOURCED), file, submitted))
        finally:
            self.deep -= 1
            self.steps = reader.steps
            if started is not None:
                scope.values, scope.positional, scope.shifted, scope.called = outer
        return True

    def shift(self, words: Sequence[Word]) -> bool:
        """`shift`, `shift N`. InputError where N is not known."""
        count = natural(words[1].known()) if len(words) > 1 else 1
        return count is not None and self.scope.shift(count)

    def unknown(self, words: Sequence[Word], where: str, how: str) -> None:
        """Say of variables that a command gives them a value."""
        for name in (word.text for word in words if re.fullmatch(r"[A-Za-z_]\w*", word.text, re.ASCII)):
            self.scope.set(name, self.scope.unknown(f"${name}", f"{where}: ${name} {how}; --var {name}=VALUE gives it"))

    def called(self, function: Group, arguments: list[str]) -> bool | None:
        self.deeper(function.line, f"the function {cut(function.name)} calls itself too often")
        scope = self.scope
        before, scope.positional, scope.shifted, scope.called = (scope.positional, scope.shifted, scope.called), [*arguments], 0, True
        outer, self.turning = self.turning, 0
        try:
            return self.all(function.body)
        except _Exit:
            return None
        finally:
            self.deep -= 1
            self.turning = outer
            scope.positional, scope.shifted, scope.called = before

    def again(self, pieces: list[str], line: int) -> bool | None:
        """`eval TEXT`, `bash -c TEXT`: the text's own statements."""
        self.deeper(line, "'eval' inside 'eval' too often")
        try:
            return self.all(parse(" ".join(map(self.scope.again, pieces)), self.where, line))
        finally:
            self.deep -= 1

    def deeper(self, line: int, what: str) -> None:
        if self.deep >= _DEEPEST:
            raise InputError(f"{self.where}:{line}: {what}")
        self.deep += 1


__all__ = ["Command", "assigned", "commands", "scripts"]
