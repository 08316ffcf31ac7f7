"""Wrappers and what their caches hold, as tables in a notebook."""

import inspect
from typing import Any

from partax._core import JitFunction
from partax._jit.filter_jit import CacheInfo, filter_jit
from partax._pytree.short_text import short_text
from partax._report.table import Table, Tables


def cache_html(info: CacheInfo) -> str:
    """What a cache holds, as a table of one row."""
    return Tables(_cache_table(info, "")).html()


def wrapper_html(wrapper: JitFunction[..., Any]) -> str:
    """A wrapper's name, the options that were given, and what its cache holds; the first alone where it has none."""
    title = repr(wrapper)
    try:
        given = ", ".join(f"{name}={short_text(value)}" for name, value in _given(wrapper).items())
        return Tables(_cache_table(wrapper.cache_info(), f"{title} with {given}" if given else title)).html()
    except MemoryError:
        raise
    except Exception:  # of a callable that cannot be compared, as when its hash raises
        return Tables(Table(title=title)).html()


def _cache_table(info: CacheInfo, title: str) -> Table:
    columns = tuple(name.replace("_", " ") for name in info._fields)
    return Table(columns, ((tuple(f"{count:,}" for count in info),),), title=title)


def _given(wrapper: JitFunction[..., Any]) -> dict[str, Any]:
    """The options that are not as they are without being given."""
    usual = {name: it.default for name, it in inspect.signature(filter_jit).parameters.items()}
    given = {name: getattr(wrapper._options, name) for name in usual if hasattr(wrapper._options, name)}
    return {name: value for name, value in given.items() if value is not usual[name] and value != usual[name]}
