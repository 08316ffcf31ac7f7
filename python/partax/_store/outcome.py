"""What the store has done for this process; at its end one line says why, if that is nothing."""

import atexit

from partax._explain.explain import report_line

_first_refusal: list[tuple[tuple[str, int], str]] = []  # its place, and the reason
_is_useful = False


def note_use() -> None:
    """Notes that a program was stored or loaded."""
    global _is_useful
    _is_useful = True


def note_refusal(site: tuple[str, int], reason: str) -> None:
    """Notes that a program is not stored."""
    if not _first_refusal:
        _first_refusal.append((site, reason))
        atexit.register(_report)


def _report() -> None:
    if not _is_useful:
        site, reason = _first_refusal[0]
        report_line(site, f"{reason} (the store has neither stored nor loaded anything in this process)")
