"""Wrappers and what their caches hold, as tables in a notebook."""

import inspect
from typing import Any

from partax._core import JitFunction
from partax._jit.filter_jit import CacheInfo, filter_jit
from partax._pytree.short_text import short_text
from partax._report.table import Table, Tables


def html_of(shown: JitFunction[..., Any] | CacheInfo) -> str:
    """What a cache holds; of a wrapper before that its name and the options that were given, or its name alone."""
    if isinstance(shown, CacheInfo):
        return Tables(_cache_table(shown, "")).html()
    title = repr(shown)
    try:
        usual = {name: it.default for name, it in inspect.signature(filter_jit).parameters.items()}
        options = {name: getattr(shown._options, name) for name in usual if hasattr(shown._options, name)}
        given = {name: it for name, it in options.items() if it is not usual[name] and it != usual[name]}
        told = ", ".join(f"{name}={short_text(value)}" for name, value in given.items())
        return Tables(_cache_table(shown.cache_info(), f"{title} with {told}" if told else title)).html()
    except MemoryError:
        raise
    except Exception:  # of a callable that cannot be compared, as when its hash raises
        return Tables(Table(title=title)).html()


def _cache_table(info: CacheInfo, title: str) -> Table:
    columns = tuple(name.replace("_", " ") for name in info._fields)
    return Table(columns, ((tuple(f"{count:,}" for count in info),),), title=title)
