"""Applies the environment variables that a script sets before it imports jax, which partax has imported already."""

import contextlib
import os
import sys
from typing import Any

import jax


def read_environment_when_imported() -> None:
    """Make the next import of jax, which is cached, apply the variables that have changed since."""
    sys.meta_path.insert(0, _Finder())
    sys.modules.pop("jax", None)


class _Finder:
    def __init__(self) -> None:
        self.before, self.loader = dict(os.environ), vars(jax.__spec__.loader)
        self.loader.update(create_module=lambda _: jax, exec_module=self.read)

    def find_spec(self, name: str, *_: Any) -> Any:
        return jax.__spec__ if name == "jax" else None

    def read(self, _: Any) -> None:
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        del self.loader["create_module"], self.loader["exec_module"]
        for name, text in os.environ.items():
            if name.startswith("JAX_") and self.before.get(name) != text:
                with contextlib.suppress(AttributeError, ValueError):  # unknown options and invalid values
                    now: Any = getattr(jax.config, name.lower())
                    kind = type(now) if isinstance(now, int | float) else str
                    is_set = text.lower() in ("y", "yes", "t", "true", "on", "1")
                    jax.config.update(name.lower(), is_set if kind is bool else kind(text))
