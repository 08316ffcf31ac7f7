"""Finds a Python loop that is unrolled: code that is in a program many times.

Each equation has the stack of the code that has made it. One stack that has made many equations is that of a loop: the
same instruction has run as often.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from partax._doctor.finding import Figures, Finding, Severity, finding_at
from partax._doctor.flat_program import ELEMENTWISE, Call, Operation, every_operation, flat_program
from partax._doctor.lines import Line, group_by, loops_around
from partax._doctor.program import Program

# 64 layers of three equations take 1.8 s in a loop and 0.4 s scanned, 8 take 0.3 s and 0.3 s.
_FEWEST_TURNS = 8
_FEWEST_EQUATIONS = 64
_SMALLEST_SHARE = 0.2  # of the program; below, something else makes it slow
# What operates on single elements is fused, and costs the compiler a tenth of what the others cost.
_FEWEST_CHEAP = 1000
# Ten small layers with their gradients are about 100 equations and compile in 0.12 s, whatever their share is.
_MEDIUM_EQUATIONS, _HIGH_EQUATIONS = 300, 1000

_Loop = tuple[Any, ...]  # the file, the first and the last line; the file and the function if these are unknown

_LOOP = (
    "this is a Python loop: over layers, stack them (`partax.tree.stack`) and use `partax.scan_layers`; over time "
    "steps or chunks, use `partax.filter_scan`, `jax.lax.scan` or `jax.lax.map(batch_size=...)`, with arrays padded "
    "to one shape: one turn is compiled then"
)


class _Run:
    """The equations of one primitive that one stack has made."""

    def __init__(self, operations: list[Operation]) -> None:
        self.operation, self.times = operations[0], len(operations)
        self.equations = sum(operation.size for operation in operations)
        self.stack = self.operation.stack
        lines = list(reversed(self.stack)) if self.times >= _FEWEST_TURNS else []
        # The line of the user's that runs a loop of a library.
        users = {line: next((one for one in lines[i:] if one.is_users), line) for i, line in enumerate(lines)}
        self.loops = [((line.file, *loop), users[line]) for line in lines for loop in loops_around(line)]
        if not self.loops:  # of code whose source is unknown
            self.loops = [((line.file, line.function), line) for line in lines if line.is_users][:1]


def find(program: Program) -> Iterator[Finding]:
    paths: dict[int, Any] = {}  # of each call, the stacks that have led there

    def path_of(call: Call) -> Any:
        if id(call) not in paths:
            is_own = call.outer is None or call.outer.program is not call.program
            paths[id(call)] = (
                () if is_own or call.outer is None else (path_of(call.outer), call.eqn.source_info.traceback)
            )
        return paths[id(call)]

    def key_of(operation: Operation) -> Any:
        call, eqn = operation.call, operation.eqn
        return call.program, path_of(call), eqn.source_info.traceback, eqn.primitive

    runs = [_Run(operations) for operations in group_by(every_operation(program), key_of).values()]
    # An update of each array is as healthy as the number of arrays.
    runs = [run for run in runs if not any("optax" in Path(line.file).parts for line in run.stack[-1:])]
    in_loops = [run for run in runs if run.loops]
    by_innermost = group_by(in_loops, lambda run: run.loops[0][0])
    turns = {loop: _usual([(run.times, run.equations) for run in group]) for loop, group in by_innermost.items()}
    groups: dict[_Loop, list[tuple[_Run, Line]]] = {}  # equations in several loops belong to the outermost of these
    for run in in_loops:
        loop, line = next(pair for pair in reversed(run.loops) if pair[0] in turns)
        groups.setdefault(loop, []).append((run, line))
    for loop, group in groups.items():
        first = min((line for _, line in group), key=lambda line: line.line)
        is_head = len({line for _, line in group}) > 1 and len(loop) == 3 and loop[0] == first.file
        line = first._replace(line=loop[1]) if is_head else first
        yield from _finding(program, line, [run for run, _ in group], turns[loop])


def _usual(counts: Sequence[tuple[int, int]]) -> int:
    """How often most of the code has run, of counts with the equations of each: some of it runs twice in a turn."""
    code: Counter[int] = Counter()
    for times, equations in counts:
        code[times] += equations // times
    return code.most_common(1)[0][0]


def _finding(program: Program, line: Line, runs: list[_Run], turns: int) -> Iterator[Finding]:
    equations, total = sum(run.equations for run in runs), flat_program(program).size
    share, each = equations / total, equations // turns
    is_costly = equations >= _FEWEST_CHEAP or any(run.operation.treatment not in ELEMENTWISE for run in runs)
    if turns < _FEWEST_TURNS or equations < _FEWEST_EQUATIONS or share < _SMALLEST_SHARE or not is_costly:
        return
    figures: Figures = {"repetitions": turns, "equations_each": each, "equations": equations, "share": round(share, 3)}
    message = f"the same {each} equations are there {turns} times: {equations} of {total} equations ({share:.0%})"
    severity: Severity = "low" if equations < _MEDIUM_EQUATIONS else "medium" if equations < _HIGH_EQUATIONS else "high"
    yield finding_at(line, "repeat", severity, message, _LOOP, **figures)
