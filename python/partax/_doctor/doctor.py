"""doctor: what a program's first call will cost, why, and which line of the user's does it."""

import dataclasses
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from partax._doctor import constants, donation, host, memory, precision, repeats, retraces, slow_operations, waste
from partax._doctor.equations import bytes_of
from partax._doctor.examined import Examined, examine
from partax._doctor.finding import Figures, Finding, worst_first
from partax._doctor.liveness import peak_bytes
from partax._pytree.short_text import angled
from partax._report.table import Progress, Row, Shown, Table, Tables, counted, figure_texts, progress

# What each looks for, and the finder, which reads the program once.
_FINDERS: dict[str, Callable[[Examined], Iterable[Finding]]] = {
    "repeats": repeats.find, "constants": constants.find, "retraces": retraces.find, "memory": memory.find_too_much,
    "residuals": memory.find_residuals, "donation": donation.find, "unused": memory.find_unused,
    "precision": precision.find, "host": host.find, "slow operations": slow_operations.find,
    "scalars": slow_operations.find_scalars, "dispatch": host.find_flattening,
    "short steps": host.find_short_steps, "waste": waste.find, "branches": slow_operations.find_selected,
    "uneven loops": slow_operations.find_uneven,
}  # fmt: skip

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
_FEW_EQUATIONS = 2_000  # of a program whose peak is always told; a larger one is walked where its memory is at stake


def doctor(
    function: Callable[..., Any],
    /,
    *args: Any,
    compile: bool = False,
    measure: bool = False,
    memory_limit: int | None = None,
    **kwargs: Any,
) -> Diagnosis:
    """Reads the program of a call before it is compiled, and says why it costs what it costs, by line.

    Example:
      >>> table = jnp.zeros((1000, 1000))
      >>> diagnosis = partax.doctor(lambda i: table[i], jnp.int32(0))
      >>> for finding in diagnosis.findings:
      ...     print(finding.severity, finding.kind, finding.figures["bytes"])
      medium constant 4000000

    Nothing is run, and no array is allocated, unless `measure` is set. On a terminal with rich installed, its stages
    are shown once they have taken a second.

    Args:
      function: what `filter_jit`, `jax.jit`, `equinox.filter_jit`, `nnx.jit` or `partax.nnx.jit` returned, or any
        function, which is examined as `filter_jit` would compile it.
      *args: the arguments of the call; a `jax.ShapeDtypeStruct` may stand for any array.
      compile: whether the program is compiled too, which gives XLA's own figures.
      measure: whether advice is tried, with the seconds in the finding's figures: of repeated code a smaller part is
        compiled, in a loop and not; a small step is run on zeros, by itself and as one of 32 in a call.
      memory_limit: how many bytes the program may take; those of the device by default.
      **kwargs: the arguments of the call by name. One that is called as an option here is passed with a
        `functools.partial`.

    Returns:
      The `Diagnosis`: its `findings` are empty for a healthy program.

    Raises:
      TypeError: `function` is none, or raises when it is traced; the cause is its own exception. Or `memory_limit` is
        no number of bytes.
    """
    if memory_limit is not None and (type(memory_limit) is not int or memory_limit < 0):
        raise TypeError(f"found memory_limit={memory_limit!r}, expected a number of bytes, as in 8 << 20, or None")
    stages = len(_FINDERS) + (4 if compile else 2)  # tracing, lowering and compiling, the figures
    with progress("tracing", stages) as work:
        examined = examine(function, args, kwargs)
        examined.memory_limit = memory_limit
        examined.measure = measure
        seconds: Figures = {}
        if compile:
            work.begin("lowering")
            begin = time.perf_counter()
            lowered = examined.traced.lower()
            seconds["lower_seconds"] = time.perf_counter() - begin
            work.begin("compiling")
            begin = time.perf_counter()
            examined.compiled = lowered.compile()
            seconds["compile_seconds"] = time.perf_counter() - begin
        found = diagnosis_of(examined, work)
        return dataclasses.replace(found, figures=found.figures | seconds)


def diagnosis_of(examined: Examined, work: Progress | None = None) -> Diagnosis:
    """What all finders find in a program; `work` is told of each."""
    findings: list[Finding] = []
    work = work or Progress("", 0)
    for name, find in _FINDERS.items():
        work.begin(f"looking at {name}")
        findings += find(examined)
    work.begin("figures")
    return Diagnosis(examined.name, examined.defined, worst_first(findings), _figures(examined), examined)


def _figures(examined: Examined) -> Figures:
    figures: Figures = {
        "equations": len(examined.equations),
        "argument_bytes": sum(leaf.bytes for leaf in examined.arguments),
        "result_bytes": sum(leaf.bytes for leaf in examined.results),
        "constant_bytes": sum(map(bytes_of, examined.jaxpr.consts)),
        "trace_seconds": examined.trace_seconds,
    }
    if examined.compiled is not None or len(examined.equations) <= _FEW_EQUATIONS:
        figures["peak_bytes"] = peak_bytes(examined)
    return figures
