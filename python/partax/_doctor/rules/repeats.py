"""Finds code that is in a program many times: a Python loop that is unrolled, or a function that is called at k places.

Each equation has the stack of the code that has made it. One stack that has made many equations is that of a loop: the
same instruction has run as often. A function that is called in many places has one innermost line, and many stacks.
"""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from partax._doctor.finding import Figures, Finding, Severity, finding_at
from partax._doctor.flat_program import Call, FlatProgram, Place, flat_program, places_of
from partax._doctor.lines import Line, grouped, loops_around
from partax._doctor.program import Program

# A loop of fewer turns, or of less code, compiles in well under a second: 64 layers of three equations take 1.8 s in a
# loop and 0.4 s scanned, 8 take 0.3 s and 0.3 s.
_FEWEST_TURNS = 8
_FEWEST_EQUATIONS = 64
_FEWEST_UNROLLED = 32  # turns: up to 16 are common for cells of recurrent networks
_SMALLEST_SHARE = 0.2  # of the program; below, something else makes it slow
_SMALLEST_SHARE_SCATTERED = 0.4  # the eight norms of a healthy model's four blocks are a quarter of its training step
# What operates on single elements is fused, and costs the compiler a tenth of what the others cost.
_FEWEST_CHEAP = 1000
_FEWEST_OF_OPTIMIZER = 4000  # its update of each array is as healthy as the number of arrays: 60 have 1,600
# Ten small layers with their gradients are about 100 equations and compile in 0.12 s, whatever their share is.
_MEDIUM_EQUATIONS, _HIGH_EQUATIONS = 300, 1000

_COSTLY = {
    "dot_general", "conv_general_dilated", "scan", "while", "cond", "sort", "scatter", "scatter-add", "gather",
    "cumsum", "fft", "cholesky", "lu", "qr", "eigh", "svd", "triangular_solve", "reduce_window", "custom_jvp_call",
    "custom_vjp_call", "checkpoint", "dynamic_slice", "dynamic_update_slice", "reduce_sum", "reduce_max",
    "random_bits", "threefry2x32", "argmax", "select_and_scatter_add",
}  # fmt: skip


class _Loop(NamedTuple):
    file: str
    first: int  # line
    last: int


class _Run:
    """The equations of one primitive that one stack has made."""

    def __init__(self, place: Place) -> None:
        self.place = place  # of the first
        self.shape = _shape_of(place.eqn)
        self.times = self.equations = 0
        self.has_one_shape = True

    @property
    def name(self) -> str:
        return self.place.eqn.primitive.name

    def read_stack(self) -> None:
        self.stack = self.place.program.stack(self.place.at)
        self.users = [line for line in reversed(self.stack) if line.is_users]  # the innermost first
        lines = self.users if self.times >= _FEWEST_TURNS else []
        self.loops = [(_Loop(line.file, *loop), line) for line in lines for loop in loops_around(line)]


def find(program: Program) -> list[Finding]:
    runs: list[_Run] = []
    for flat in flat_program(program).all:
        runs += _runs_of(flat)
    for run in runs:
        run.read_stack()
    # How often the code of each loop has run that is in no other loop inside of it.
    of_loop = grouped((run for run in runs if run.loops), lambda run: run.loops[0][0])
    turns = {loop: _usual([(run.times, run.equations) for run in it]) for loop, it in of_loop.items()}
    groups: dict[_Loop, list[tuple[_Run, Line]]] = {}
    for run in (run for run in runs if run.loops):
        loop, line = next(it for it in reversed(run.loops) if it[0] in turns)
        groups.setdefault(loop, []).append((run, line))
    findings: list[Finding] = []
    for loop, group in groups.items():
        first = min((line for _, line in group), key=lambda line: line.line)
        line = first if len({line for _, line in group}) == 1 else first._replace(line=loop.first)
        findings += _finding(program, line, [run for run, _ in group], turns[loop], True)
    scattered = grouped((run for run in runs if run.users and not run.loops), lambda run: run.users[0][::2])
    for group in scattered.values():
        alike = grouped(group, lambda run: (run.users[0], run.name, run.stack[run.stack.index(run.users[0]) + 1 :]))
        counts = {key: (sum(run.times for run in it), sum(run.equations for run in it)) for key, it in alike.items()}
        often = [key for key, (times, _) in counts.items() if times >= _FEWEST_TURNS]
        if often:
            line = max(often, key=lambda key: counts[key][1])[0]
            called = [run for key in often for run in alike[key]]
            is_loop = all(run.times >= _FEWEST_TURNS for run in called)  # of a library
            findings += _finding(program, line, called, _usual([counts[key] for key in often]), is_loop)
    return findings + _unrolled_scans(program)


def _runs_of(flat: FlatProgram) -> list[_Run]:
    runs: dict[Any, _Run] = {}
    keys: dict[int, Any] = {}  # of each call, the stacks that have led there

    def key_of(call: Call) -> Any:
        if id(call) not in keys:
            outer = None if call.jaxpr is flat.jaxpr else call.outer
            keys[id(call)] = () if outer is None else (key_of(outer), call.eqn.source_info.traceback)
        return keys[id(call)]

    for i, (eqn, call, weight) in enumerate(zip(flat.eqns, flat.calls, flat.weights, strict=True)):
        key = key_of(call), eqn.source_info.traceback, eqn.primitive
        run = runs.get(key)
        if run is None:
            run = runs[key] = _Run(Place(flat, i))
        run.times += 1
        run.equations += weight
        run.has_one_shape = run.has_one_shape and _shape_of(eqn) == run.shape
    return list(runs.values())


def _shape_of(eqn: Any) -> Any:
    return getattr(eqn.outvars[0].aval, "shape", ()) if eqn.outvars else ()


def _usual(counts: list[tuple[int, int]]) -> int:
    """How often most of the code has run, of counts with the equations of each: some of it runs twice in a turn."""
    code: Counter[int] = Counter()
    for times, equations in counts:
        code[times] += equations // times
    return code.most_common(1)[0][0]


def _finding(program: Program, line: Line, runs: list[_Run], turns: int, is_loop: bool) -> list[Finding]:
    covered, total = sum(run.equations for run in runs), flat_program(program).size
    share, each = covered / total, covered // turns
    is_costly = covered >= _FEWEST_CHEAP or any(run.name in _COSTLY for run in runs)
    of_optax = [run for run in runs if any("optax" in Path(line.file).parts for line in run.stack)]
    is_optimizer = 2 * sum(run.equations for run in of_optax) > covered
    smallest = _SMALLEST_SHARE if is_loop else _SMALLEST_SHARE_SCATTERED
    if turns < _FEWEST_TURNS or covered < (_FEWEST_OF_OPTIMIZER if is_optimizer else _FEWEST_EQUATIONS):
        return []
    if share < smallest or not is_costly:
        return []
    figures: Figures = {
        "repetitions": turns, "equations_each": each, "equations": covered, "share": round(share, 3),
    }  # fmt: skip
    message = f"the same {each} equations are there {turns} times: {covered} of {total} equations ({share:.0%})"
    severity = "medium" if is_optimizer else _severity(covered)
    has_one_shape = 2 * sum(run.equations for run in runs if run.has_one_shape) > covered
    advice = _advice(line, is_loop, is_optimizer, has_one_shape)
    return [finding_at(line, "repeat", severity, message, advice, **figures)]


def _severity(equations: int) -> Severity:
    return "low" if equations < _MEDIUM_EQUATIONS else "medium" if equations < _HIGH_EQUATIONS else "high"


def _advice(line: Line, is_loop: bool, is_optimizer: bool, has_one_shape: bool) -> str:
    if is_optimizer:
        return "the optimizer has an update for each array of the model: stacked layers (`partax.tree.stack`) have one"
    if not is_loop:
        advice = f"let the compiler see `{line.function.rpartition('.')[2]}` once: stack its inputs and use "
        advice += "`jax.vmap`, `partax.filter_scan` or `jax.lax.map(batch_size=...)` over them; a nested "
        return f"{advice}`partax.filter_jit` of it is traced once, though XLA still compiles each call"
    if not has_one_shape:
        advice = "this is a Python loop whose turns have other shapes: pad them to one shape, and let "
        return f"{advice}`partax.filter_scan` or `jax.lax.scan` compile one turn"
    advice = "this is a Python loop: over layers, stack them (`partax.tree.stack`) and use `partax.scan_layers`; over "
    advice += (
        "time steps or chunks, use `partax.filter_scan`, `jax.lax.scan` or `jax.lax.map(batch_size=...)`: one turn "
    )
    return f"{advice}is compiled then"


def _unrolled_scans(program: Program) -> list[Finding]:
    """Scans of which many turns are compiled one after the other."""
    findings: dict[Line, Finding] = {}
    for place in places_of(program, "scan"):
        turns = min(int(place.eqn.params["unroll"]), int(place.eqn.params["length"]))
        body = place.program.bodies[place.at][0].program
        equations = turns * body.size
        is_costly = equations >= _FEWEST_CHEAP or any(eqn.primitive.name in _COSTLY for eqn in body.eqns)
        if turns >= _FEWEST_UNROLLED and equations >= 2 * _FEWEST_EQUATIONS and is_costly:
            figures = {"repetitions": turns, "equations_each": body.size, "equations": equations}
            message = f"this scan is unrolled: {turns} turns of {body.size} equations are compiled one after the other"
            advice = "leave `unroll` out, or unroll a few turns, such as 4: more of them take longer to compile than "
            found = finding_at(place.line, "repeat", _severity(equations), message, f"{advice}they gain", **figures)
            findings.setdefault(place.line, found)  # another one of the line is the gradient's
    return list(findings.values())
