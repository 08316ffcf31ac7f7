"""What the doctor has found of one program: findings, worst first, and the program itself."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding
from partax._pytree.short_text import angled
from partax._report.table import Row, Shown, Table, Tables, counted, figure_texts

_HEADINGS = ("severity", "kind", "where", "what it is, and what to do")


@dataclasses.dataclass(frozen=True)
class Diagnosis(Shown):
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
      is_of_library: whether the function is one of jax or a library, and not the user's own.
    """

    name: str
    defined: str
    findings: tuple[Finding, ...]
    figures: Figures
    examined: Examined | None = dataclasses.field(default=None, repr=False, compare=False)
    is_of_library: bool = False

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
        findings = list(map(dataclasses.asdict, self.findings))
        told = {"name": self.name, "defined": self.defined, "findings": findings, "figures": self.figures}
        return json.dumps(told, **options)

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
        from partax._doctor.page import write_chrome_trace

        write_chrome_trace(path)

    @property
    def _head(self) -> str:
        head = f"{self.name} ({self.defined}): " if self.defined else f"{self.name}: "
        head += f"{self.figures['equations']} equations, " if "equations" in self.figures else ""
        return head + (counted(len(self.findings), "finding") if self.findings else "nothing found")

    def __repr__(self) -> str:
        return angled(f"partax.Diagnosis of {self._head}")

    def __str__(self) -> str:
        return "\n\n".join([self._head, *map(str, self.findings)])

    def _tables(self) -> Tables:
        rows: list[Row] = []
        for it in self.findings:
            figures = ", ".join(map(" ".join, figure_texts(it.figures)))
            first, *others = filter(None, (it.source, it.message, f"-> {it.advice}", figures))
            rows += [(it.severity, it.kind, it.where, first), *(("", "", "", text) for text in others)]
        return Tables(Table(_HEADINGS, (tuple(rows),) if rows else (), frozenset(range(4)), self._head))


Diagnosis.__module__ = "partax"  # where users find it, and pickles too
