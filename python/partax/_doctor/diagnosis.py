"""The diagnosis of one program: text, or a page."""

import dataclasses
from pathlib import Path

from partax._doctor.finding import Figures, Finding
from partax._pytree.short_text import angled


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

    See Also:
      The page "Troubleshoot".
    """

    name: str
    defined: str
    findings: tuple[Finding, ...]
    figures: Figures

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
        count = len(self.findings)
        return head + (f"{count} finding{'s' if count > 1 else ''}" if count else "nothing found")

    def __repr__(self) -> str:
        return angled(f"partax.reports.Diagnosis of {self._head}")

    def __str__(self) -> str:
        return "\n\n".join([self._head, *map(str, self.findings)])


Diagnosis.__module__ = "partax.reports"  # where users find it, and pickles too
