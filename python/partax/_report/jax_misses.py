"""jax's own explanations of cache misses, several lines each, as one line in the form of partax's."""

import re
from collections import Counter

from partax._pytree.call_site import call_site, site_text

_KINDS = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint", "c": "complex"}
_SHOWN = 3

_traces: Counter[tuple[str, str]] = Counter()


def one_line(text: str) -> str | None:
    """What jax logs of a miss, as `train.py:41 step: trace 2, because x: float32[2] -> float32[3]`; else None."""
    if "TRACING CACHE MISS" not in text:
        return None
    named = re.search(r"^\s*(?:for )?(\S+) (?:id=\d+ )?defined at (.+?)$", text, re.MULTILINE)
    name, defined = named.groups() if named else ("a function", "")
    _traces[name, defined] += 1
    number = _traces[name, defined]
    if "seen another function defined on the same line" in text:
        reason = "because the function has been made anew"
    elif number == 1 or "never seen function" in text:
        reason = "the first"
    else:
        found = list(dict.fromkeys(filter(None, map(_difference, text.splitlines()))))
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        reason = f"because {'; '.join(found[:_SHOWN])}{more}" if found else "for a reason that jax does not tell"
    site = call_site("flax", "logging")  # above what stands between the user and jax, and between jax and here
    return f"{site_text(site)} {name}: trace {number}, {reason}"


def _difference(line: str) -> str | None:
    found = re.match(r"\s*\* at (.+), now (.+?) and before (.+?)(?:, so .*)?$", line)
    if found is None:
        return None
    path, *sides = found.groups()
    statics = [match.group(1) for side in sides if (match := re.search(r"Static\(val=(.*)\)$", side))]
    now, before = statics if len(statics) == 2 else map(_type_text, sides)
    keys = re.search(r"symmetric difference of key sets: \{(.*)\}", line)
    return f"{_path(path)}: {before} -> {now}" + (f" (keys {keys.group(1)})" if keys else "")


def _path(path: str) -> str:
    """A path in (args, kwargs), which is how jax names a place in the structure, by what the user calls it."""
    inside = path.removeprefix("input path ")
    if inside == path:
        return path
    named = re.match(r"\[1\]\['(\w+)'\](.*)$", inside)
    if named:
        return named.group(1) + named.group(2)
    if inside.startswith("[0]"):
        return "args" + inside[3:]
    return "the keyword arguments" if inside == "[1]" else "kwargs" + inside[3:]


def _type_text(text: str) -> str:
    plain = re.match(r"(bf|[fiuc])(\d+)(\[.*)$", text)
    if plain:
        return f"{_KINDS[plain.group(1)]}{plain.group(2)}{plain.group(3)}"
    return re.sub(r"<class '([\w.]+)'>", lambda match: match.group(1).rpartition(".")[2], text)
