"""The audit: published formulas as claims, each proven or not against what symsim derives. `symsim.audit(...)` runs it."""

import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """This package, which is also Python's verb of the same name."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from symsim.audit.python import audit

        return audit(*arguments, **named)


sys.modules[__name__].__class__ = _Verb
