"""What the doctor has found, as data: findings, worst first, and the program that they are about."""

import dataclasses
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from partax._tree.short_text import angled

if TYPE_CHECKING:
    from partax._doctor.examined import Examined

Kind = Literal[
    "repeat", "constant", "retrace", "memory", "donation", "unused", "checkpoint", "precision", "host", "slow-op",
    "switch", "dispatch",
]  # fmt: skip
Severity = Literal["high", "medium", "low"]
KINDS: tuple[str, ...] = get_args(Kind)
SEVERITIES: tuple[str, ...] = get_args(Severity)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that costs time or memory, and what to do.

    Example:
      >>> eye = jnp.eye(1000)
      >>> [finding] = partax.doctor(lambda i: eye[i], jnp.int32(0)).findings
      >>> finding.kind, finding.severity, finding.figures
      ('constant', 'medium', {'bytes': 4000000, 'arrays': 1})
      >>> print(finding.message)
      global `eye` holds float32[1000,1000] (3.81 MiB), which the program has captured: it is compiled in as a constant

    Attributes:
      kind: what it is about.
      severity: `high` where it costs most of the compile time or the memory, or fails; `low` where it is worth to know.
      file: the file of the user's line, or an empty string where no line is known.
      line: the line, from 1; 0 where none is known.
      source: the text of the line.
      path: the argument or result that it is about, such as `model.layers[0].weight`, or an empty string.
      figures: what makes it believable, by name: counts, shares (0 to 1), bytes (`..._bytes`), seconds
        (`..._seconds`).
      message: what was found, in one sentence.
      advice: what to do, in one sentence.
    """

    kind: Kind
    severity: Severity
    file: str
    line: int
    source: str
    path: str
    figures: dict[str, int | float | str]
    message: str
    advice: str

    @property
    def where(self) -> str:
        """The place in short, as `train.py:41`, or the path."""
        return f"{Path(self.file).name}:{self.line}" if self.file else self.path

    def __repr__(self) -> str:
        where = f" at {self.where}" if self.where else ""
        return angled(f"partax.Finding: {self.severity} {self.kind}{where}: {self.message}")

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.kind} at {self.where}" if self.where else f"{self.severity}: {self.kind}"]
        if self.source:
            lines.append(f"    {self.source}")
        lines += [f"  {self.message}", f"  -> {self.advice}"]
        return "\n".join(lines)


def worst_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings by severity, then by the share of the program that they are about."""
    return tuple(sorted(findings, key=lambda it: (SEVERITIES.index(it.severity), -float(it.figures.get("share", 0)))))


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What `partax.doctor` has found of one program. `str` gives text, `_repr_html_` a table in notebooks.

    Example:
      >>> diagnosis = partax.doctor(lambda x: x + 1, jnp.ones(3))
      >>> diagnosis.findings
      ()
      >>> diagnosis.figures["equations"], diagnosis.figures["peak_bytes"]
      (1, 24)

    Attributes:
      name: the function's name.
      defined: where it is defined, such as `train.py:12`.
      findings: worst first; empty for a healthy program.
      figures: of the whole program: `equations`, `argument_bytes`, `result_bytes`, `constant_bytes`, `trace_seconds`;
        `peak_bytes` up to 2,000 equations; with `compile=True` also `lower_seconds` and `compile_seconds`, and the
        peak is XLA's own figure.
      examined: the traced program itself, of which pictures are drawn; it keeps the arguments alive.
    """

    name: str
    defined: str
    findings: tuple[Finding, ...]
    figures: dict[str, int | float | str]
    examined: "Examined | None" = dataclasses.field(default=None, repr=False, compare=False)

    def to_json(self, **options: Any) -> str:
        """The diagnosis as JSON.

        Example:
          >>> import json
          >>> diagnosis = partax.doctor(lambda x: x + 1, jnp.ones(3))
          >>> sorted(json.loads(diagnosis.to_json()))
          ['defined', 'figures', 'findings', 'name']

        Args:
          **options: of `json.dumps`, such as `indent`.

        Returns:
          An object with the public attributes of this class.
        """
        return json.dumps(
            {
                "name": self.name,
                "defined": self.defined,
                "findings": [dataclasses.asdict(finding) for finding in self.findings],
                "figures": self.figures,
            },
            **options,
        )

    def html(self, path: str | Path) -> None:
        """Writes one HTML file that needs no network: the findings, then pictures of the program.

        Example:
          >>> diagnosis = partax.doctor(lambda x: x + 1, jnp.ones(3))
          >>> diagnosis.html("step.html")

        Args:
          path: the file, which is replaced as a whole or left as it was.

        Raises:
          ImportError: `partax[doctor]` is not installed.
          OSError: the file cannot be written.
        """
        from partax._doctor.page import write_page

        write_page(path, [self])

    def chrome_trace(self, path: str | Path) -> None:
        """Writes the timeline of this process as trace events, which Perfetto and chrome://tracing open.

        Example:
          >>> diagnosis = partax.doctor(lambda x: x + 1, jnp.ones(3))
          >>> diagnosis.chrome_trace("step.json")

        Args:
          path: the file, which is replaced as a whole or left as it was.

        Raises:
          OSError: the file cannot be written.
        """
        from partax._doctor.timeline import write_chrome_trace

        write_chrome_trace(path)

    @property
    def _head(self) -> str:
        count = len(self.findings)
        head = f"{self.name} ({self.defined}): " if self.defined else f"{self.name}: "
        head += f"{self.figures.get('equations', 0)} equations, "
        return head + ("nothing found" if count == 0 else f"{count} finding{'s' if count > 1 else ''}")

    def __repr__(self) -> str:
        return angled(f"partax.Diagnosis of {self._head}")

    def __str__(self) -> str:
        return "\n\n".join([self._head, *map(str, self.findings)])

    def __rich__(self) -> Any:
        from partax._doctor.text import rich_diagnosis

        return rich_diagnosis(self)

    def _repr_html_(self) -> str:
        left = ' style="text-align: left; vertical-align: top"'  # notebooks have it at the right
        rows = "".join(
            f"<tr><td{left}>{it.severity}</td><td{left}>{it.kind}</td>"
            f"<td{left}><code>{html.escape(it.where)}</code><br><code>{html.escape(it.source)}</code></td>"
            f"<td{left}>{html.escape(it.message)}<br><b>{html.escape(it.advice)}</b></td></tr>"
            for it in self.findings
        )
        head = html.escape(self._head)
        return f"<p>{head}</p><table>{rows}</table>" if rows else f"<p>{head}</p>"


for _public in (Finding, Diagnosis):
    _public.__module__ = "partax"  # where users find them, and pickles too
