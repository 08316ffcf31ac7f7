"""A finding of the doctor: what it is, where, how much it costs, and what to do."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from partax._doctor.lines import Line
from partax._pytree.short_text import angled

Kind = Literal["repeat", "constant", "retrace", "memory", "donation", "checkpoint", "host", "dispatch"]
Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[str, ...] = get_args(Severity)
Figures = dict[str, int | float | str]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One cause of lost time or memory, and its remedy.

    Example:
      >>> eye = jnp.eye(1000)
      >>> [finding] = partax.doctor(lambda i: eye[i], jnp.int32(0)).findings
      >>> finding.kind, finding.severity, finding.figures
      ('constant', 'medium', {'bytes': 4000000, 'arrays': 1})
      >>> print(finding.message)
      global `eye` holds float32[1000,1000] (3.81 MiB), which the program has captured: it is compiled in as a constant

    Attributes:
      kind: The kind of the cause, such as `constant`.
      severity: `high` if it costs most of the compile time or the memory, or fails; `medium`; or `low`, if it is only
        worth knowing.
      file: The file of the user's line, or an empty string if unknown.
      line: The number of the line, from 1; 0 if unknown.
      source: The text of the line.
      path: The path of the argument or result, such as `model.layers[0].weight`, or an empty string.
      figures: The evidence by name: counts, shares (0 to 1), bytes (`..._bytes`), seconds (`..._seconds`).
      message: The cause, in one sentence.
      advice: The remedy, in one sentence.

    See Also:
      The page "Troubleshoot".
    """

    kind: Kind
    severity: Severity
    file: str
    line: int
    source: str
    path: str
    figures: Figures
    message: str
    advice: str

    @property
    def where(self) -> str:
        """The file and line, such as `train.py:41`, or the path."""
        return f"{Path(self.file).name}:{self.line}" if self.file else self.path

    def __repr__(self) -> str:
        where = f" at {self.where}" if self.where else ""
        return angled(f"partax.reports.Finding: {self.severity} {self.kind}{where}: {self.message}")

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.kind} at {self.where}" if self.where else f"{self.severity}: {self.kind}"]
        if self.source:
            lines.append(f"    {self.source}")
        lines += [f"  {self.message}", f"  -> {self.advice}"]
        return "\n".join(lines)


def finding_at(
    line: Line, kind: Kind, severity: Severity, message: str, advice: str, path: str = "", /, **figures: Any
) -> Finding:
    return Finding(kind, severity, line.file, line.line, line.source, path, figures, message, advice)


def worst_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(
        sorted(findings, key=lambda one: (SEVERITIES.index(one.severity), -float(one.figures.get("share", 0))))
    )


Finding.__module__ = "partax.reports"  # where users find it, and pickles too
