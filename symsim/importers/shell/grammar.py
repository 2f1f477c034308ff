"""Shell scripts as statements: a small part of the shell's grammar, read and never run.

script     = statement { (";" | "&" | newline | "&&" | "||" | "|") statement }
statement  = "if" .. "fi" | "case" .. "esac" | "for" .. "done" | "while" .. "done" | NAME "()" group | group | "[[" .. "]]" | command
command    = { NAME ["+"] "=" word | NAME ["+"] "=(" { word } ")" } { word | redirection }
"""

from __future__ import annotations

from dataclasses import dataclass

from symsim.errors import InputError, cut
from symsim.importers.shell.tokens import Token, tokens_of

_DEEPEST = 40
_REDIRECT = frozenset(["&>>", "&>", ">>", "<<<", "<<", ">&", "<&", ">|", "<>", "<", ">"])
_ENDS = frozenset(["then", "elif", "else", "fi", "do", "done", "esac", "}", ")", ";;"])


@dataclass(frozen=True)
class Simple:
    """A command with the assignments before it. output: the file that it writes into, behind what is there where added. text: what it reads,
    of lines in the script."""

    words: tuple[Token, ...]
    line: int
    output: Token | None = None
    added: bool = False
    text: Token | None = None


@dataclass(frozen=True)
class Test:
    """`[[ .. ]]`; words and operators inside."""

    words: tuple[Token, ...]
    line: int


@dataclass(frozen=True)
class Branch:
    """`if` and `elif`: conditions with what follows each; otherwise: after `else`."""

    arms: "tuple[tuple[Statements, Statements], ...]"
    otherwise: "Statements"
    line: int


@dataclass(frozen=True)
class Case:
    """`case`: patterns with what follows each."""

    subject: Token
    arms: "tuple[tuple[tuple[Token, ...], Statements], ...]"
    line: int


@dataclass(frozen=True)
class Loop:
    """`for NAME in words`, `for (( .. ))` (name is "((", words what it holds), or `while` and `until` (name is None) with their condition.
    ends: the loop ends where the condition holds."""

    name: str | None
    words: tuple[Token, ...]
    condition: "Statements"
    body: "Statements"
    line: int
    ends: bool = False


@dataclass(frozen=True)
class Group:
    """`{ .. }` or `( .. )`; a function where it has a name."""

    body: "Statements"
    line: int
    name: str = ""


Statement = Simple | Test | Branch | Case | Loop | Group


@dataclass(frozen=True)
class Joined:
    """A statement and what joins it to the one before: `;`, `&&` or `||`. negated: it stands behind `!`."""

    statement: Statement
    joint: str
    negated: bool


Statements = tuple[Joined, ...]


def parse(text: str, where: str, line: int = 1) -> Statements:
    """The statements of a script; InputError names the line of what cannot be read."""
    return _Parser(tokens_of(text, where, line), where).script()


class _Parser:
    def __init__(self, tokens: list[Token], where: str) -> None:
        self.tokens, self.where, self.at, self.depth = tokens, where, 0, 0

    def error(self, what: str) -> InputError:
        line = self.tokens[min(self.at, len(self.tokens) - 1)].line if self.tokens else 1
        return InputError(f"{self.where}:{line}: {what}")

    def script(self) -> Statements:
        found = self.list()
        if self.at < len(self.tokens):
            raise self.error(f"'{cut(self.tokens[self.at].source)}' has no beginning")
        return found

    def peek(self) -> str:
        """The next word or operator as written; empty at the end."""
        return self.tokens[self.at].source if self.at < len(self.tokens) else ""

    def expect(self, word: str, opened: int, what: str) -> None:
        if self.peek() != word:
            raise InputError(f"{self.where}:{opened}: '{what}' has no '{word}'")
        self.at += 1

    def list(self) -> Statements:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.error("nested too deeply")
        found: list[Joined] = []
        joint = ";"
        while True:
            while self.peek() in ("\n", ";", "&", "|", "|&", "&&", "||") and self.at < len(self.tokens):
                mark = self.peek()
                joint = mark if mark in ("&&", "||") else joint if mark == "\n" else ";"
                self.at += 1
            if self.at >= len(self.tokens) or self.peek() in _ENDS:
                self.depth -= 1
                return tuple(found)
            negated = self.peek() == "!"
            self.at += negated
            if self.at < len(self.tokens):
                found.append(Joined(self.statement(), joint, negated))
            joint = ";"

    def statement(self) -> Statement:
        line, word = self.tokens[self.at].line, self.peek()
        if word in ("if", "case", "for", "while", "until", "select", "{", "(", "[["):
            self.at += 1
            if word == "if":
                return self.branch(line)
            if word == "case":
                return self.case(line)
            if word in ("{", "("):
                body = self.list()
                self.expect("}" if word == "{" else ")", line, word)
                self.redirections()
                return Group(body, line)
            return self.test(line) if word == "[[" else self.loop(word, line)
        if word == "function" or [t.operator for t in self.tokens[self.at + 1 : self.at + 3]] == ["(", ")"]:
            return self.function(word, line)
        return self.simple(line)

    def branch(self, line: int) -> Branch:
        arms = []
        while True:
            condition = self.list()
            self.expect("then", line, "if")
            arms.append((condition, self.list()))
            if self.peek() == "elif":
                self.at += 1
                continue
            otherwise: Statements = ()
            if self.peek() == "else":
                self.at += 1
                otherwise = self.list()
            self.expect("fi", line, "if")
            self.redirections()
            return Branch(tuple(arms), otherwise, line)

    def case(self, line: int) -> Case:
        if self.at >= len(self.tokens):
            raise self.error("a word should follow 'case'")
        subject = self.tokens[self.at]
        self.at += 1
        self.newlines()
        self.expect("in", line, "case")
        arms: list[tuple[tuple[Token, ...], Statements]] = []
        while True:
            self.newlines()
            if self.peek() == "esac":
                self.at += 1
                return Case(subject, tuple(arms), line)
            patterns = []
            self.at += self.peek() == "("
            while self.peek() != ")":
                if self.at >= len(self.tokens):
                    raise InputError(f"{self.where}:{line}: 'case' has no 'esac'")
                if not self.tokens[self.at].operator:
                    patterns.append(self.tokens[self.at])
                self.at += 1
            self.at += 1
            arms.append((tuple(patterns), self.list()))
            self.at += self.peek() == ";;"

    def loop(self, word: str, line: int) -> Loop:
        name, words = None, []
        condition: Statements = ()
        if word in ("while", "until"):
            condition = self.list()
        else:
            name = self.peek()
            words += self.tokens[self.at : self.at + 1] if name == "((" else []
            self.at += 1
            self.newlines()
            if self.peek() == "in":
                self.at += 1
                while self.at < len(self.tokens) and not self.tokens[self.at].operator:
                    words.append(self.tokens[self.at])
                    self.at += 1
            elif name != "((":
                words += tokens_of('"$@"', self.where, line)
        while self.peek() in ("\n", ";"):
            self.at += 1
        self.expect("do", line, word)
        body = self.list()
        self.expect("done", line, word)
        self.redirections()
        return Loop(name, tuple(words), condition, body, line, word == "until")

    def function(self, word: str, line: int) -> Group:
        if word == "function":
            self.at += 1
            word = self.peek()
        self.at += 1
        self.at += 2 * (self.peek() == "(")
        self.newlines()
        if self.peek() not in ("{", "("):
            raise self.error(f"the body of the function {cut(word)} should follow in braces")
        body = self.statement()
        assert isinstance(body, Group)
        return Group(body.body, line, word)

    def test(self, line: int) -> Test:
        words = []
        while self.peek() != "]]":
            if self.at >= len(self.tokens):
                raise InputError(f"{self.where}:{line}: '[[' has no ']]'")
            words.append(self.tokens[self.at])
            self.at += 1
        self.at += 1
        return Test(tuple(words), line)

    def simple(self, line: int) -> Simple:
        words = []
        output, added, text = None, False, None
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.operator in _REDIRECT:
                target = self.redirected()
                if token.operator in (">", ">|", ">>") and target is not None and not target.source.startswith("/dev/"):
                    output, added = target, token.operator == ">>"
                text = target if token.operator in ("<<", "<<<") else text
                continue
            if token.operator:
                if token.operator == "(":
                    raise self.error("'(' should be in quotes here")
                break
            words.append(token)
            self.at += 1
        if not words and self.at < len(self.tokens) and self.tokens[self.at].operator == "(":
            raise self.error("'(' is not expected here")
        return Simple(tuple(words), line, output, added, text)

    def redirections(self) -> None:
        while self.at < len(self.tokens) and self.tokens[self.at].operator in _REDIRECT:
            self.redirected()

    def redirected(self) -> Token | None:
        """What stands behind the operator here, where it is a word."""
        self.at += 1
        if self.at >= len(self.tokens) or self.tokens[self.at].operator:
            return None
        self.at += 1
        return self.tokens[self.at - 1]

    def newlines(self) -> None:
        while self.peek() == "\n":
            self.at += 1
