"""The one exception that carries bad input back to the user."""


class InputError(Exception):
    """Bad input: one sentence saying what is wrong, where, and what would be right.

    The command line prints it on stderr and exits with status 2; nothing has been written by then.
    """


def nearest(name: str, valid: "list[str] | tuple[str, ...]") -> str:
    """A clause naming the valid spelling closest to `name`, or listing the choices when none is close."""
    import difflib

    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    names = sorted(set(valid))
    return f"valid names: {', '.join(names[:12])}" + (", ..." if len(names) > 12 else "")
