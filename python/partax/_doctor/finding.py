"""Findings: what each is, where, how much it costs, what to do; and the diagnosis of a program, which has them."""

import dataclasses
from pathlib import Path
from typing import Any, Literal, get_args

from partax._doctor.lines import Line
from partax._doctor.trace_profile import TraceProfile
from partax._pytree.short_text import LONGEST, counted, one_line

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
      severity: `high` if it costs most of the compile time or the memory, or fails; `medium`; or `low`.
      file: The file of the user's line, or an empty string if unknown.
      line: The number of the line, from 1; 0 if unknown.
      source: The text of the line.
      path: The path of the argument or result, such as `model.layers[0].weight`, or an empty string.
      figures: The evidence by name: counts, shares (0 to 1), bytes (`..._bytes`), seconds (`..._seconds`).
      message: The cause, in one sentence.
      advice: The remedy, in one sentence.
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

    @property
    def _head(self) -> str:
        return f"{self.kind} at {self.where}" if self.where else self.kind

    def __repr__(self) -> str:
        text = f"partax.reports.Finding: {self.severity} {self._head}: {self.message}"
        return f"<{one_line(text, LONGEST - 2)}>"

    def __str__(self) -> str:
        source = f"    {self.source}\n" if self.source else ""
        return f"{self.severity}: {self._head}\n{source}  {self.message}\n  -> {self.advice}"


def finding_at(
    line: Line, kind: Kind, severity: Severity, message: str, advice: str, path: str = "", /, **figures: Any
) -> Finding:
    return Finding(kind, severity, line.file, line.line, line.source, path, figures, message, advice)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The findings of `partax.doctor` in one program, for `print`, or as a page by `html`.

    Example:
      >>> diagnosis = partax.doctor(lambda x: x + 1, jnp.ones(3))
      >>> diagnosis.findings
      ()
      >>> diagnosis.figures["equations"], diagnosis.figures["peak_bytes"]
      (1, 24)

    Attributes:
      name: The name of the function.
      defined: The file and line of its definition, such as `train.py:12`.
      findings: The findings, worst first; empty for a healthy program.
      figures: The figures of the whole program: `equations`, `argument_bytes`, `result_bytes`, `constant_bytes`,
        `trace_seconds`; `peak_bytes` up to 2,000 equations; with `compile=True` also `lower_seconds` and
        `compile_seconds`, and the peak is the figure of XLA.
      trace_profile: The `TraceProfile` with `trace_profile=True`, else None.
    """

    name: str
    defined: str
    findings: tuple[Finding, ...]
    figures: Figures
    trace_profile: TraceProfile | None = None

    def html(self, path: str | Path) -> None:
        """Write the findings to one HTML file that needs no network.

        Example:
          >>> diagnosis = partax.doctor(lambda x: x + 1, jnp.ones(3))
          >>> diagnosis.html("step.html")

        Args:
          path: The file. It is replaced as a whole or not at all.

        Raises:
          OSError: The file cannot be written.
        """
        from partax._doctor.page import write_page

        write_page(path, [self])

    @property
    def _head(self) -> str:
        head = f"{self.name} ({self.defined}): " if self.defined else f"{self.name}: "
        head += f"{self.figures['equations']} equations, " if "equations" in self.figures else ""
        return head + (counted(len(self.findings), "finding") if self.findings else "nothing found")

    def __repr__(self) -> str:
        return f"<{one_line(f'partax.reports.Diagnosis of {self._head}', LONGEST - 2)}>"

    def __str__(self) -> str:
        return "\n\n".join(map(str, filter(None, (self._head, *self.findings, self.trace_profile))))


Finding.__module__ = Diagnosis.__module__ = "partax.reports"  # where users find them, and pickles too
