"""Finds work of which most is thrown away, and that another operation of jax's would not do in the first place."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from jax.extend.core import Literal

from partax._doctor.equations import bytes_of, scan_parts
from partax._doctor.examined import Examined
from partax._doctor.figure_text import bytes_text
from partax._doctor.finding import Finding, finding_at
from partax._doctor.flat_program import LITERAL, Call, FlatProgram, flat_programs
from partax._doctor.fusion import ELEMENTWISE, IN_PLACE, REDUCE, TREATMENT, VIEW
from partax._doctor.lines import comes_from, is_of_jax
from partax._pytree.array_text import array_text

# On two shared cores an inverse of 256 rows takes 3 ms, a product of 512 x 512 matrices 2 ms, and a sort of 2**18
# numbers 20 ms: less is hidden by all else.
_FEWEST_ROWS = 256
_FEWEST_ELEMENTS = 1 << 18
_FEWEST_CLASSES = 1024
_FEWEST_HOT = 1 << 22  # elements of the one-hot array
_SMALLEST_PART = 16  # of what was sorted or stacked, one in so many is used
_FEWEST_STACKED = 16 << 20  # bytes of a scan's steps: those of short sequences nobody misses
_MUCH_WORK = 1 << 30  # multiplications of a chain of products, which take some 10 ms
_MUCH_ADDED = 1e8  # elements that a gradient adds in all turns of a loop
_TIMES_LESS = 8  # multiplications in another order
_FEWEST_TURNS = 1000  # of a map whose turns are small: each takes a microsecond more than its work
_SMALL_TURN = 4096  # elements of its largest array
_MOST_MAPPED = 64 << 20  # bytes of all arrays of all turns
_DECOMPOSITIONS = {"cholesky", "lu", "qr", "geqrf", "householder_product", "triangular_solve", "svd", "eigh", "eig"}


def find(examined: Examined) -> Iterator[Finding]:
    """Findings of the kind `waste`: one for each line."""
    told: set[Any] = set()
    programs = flat_programs(examined)
    turns: dict[int, int] = {}
    for program in programs.all:
        for i in program.bodies:
            if program.eqns[i].primitive.name == "scan":
                turns[id(programs.inside(program, i)[0][1])] = int(program.eqns[i].params["length"])
    for program in programs.all:
        for finding in _Reader(program, turns.get(id(program), 1)).find():
            if (finding.file, finding.line) not in told:
                told.add((finding.file, finding.line))
                yield finding


class _Reader:
    """A program, with who makes and who reads each value."""

    def __init__(self, program: FlatProgram, turns: int = 1) -> None:
        self.program, self.turns = program, turns
        self.makers = {number: i for i, made in enumerate(program.writes) for number in made}
        self.readers: dict[int, list[int]] = {}
        for i, reads in enumerate(program.reads):
            for number in reads:
                self.readers.setdefault(number, []).append(i)
        self.results = set(program.results)

    def find(self) -> Iterator[Finding]:
        rules = {
            "sort": self._sorted, "scan": self._scan, "dot_general": self._product, "svd": self._full_factors,
            "reduce_sum": self._summed, "add_any": self._added,
        }  # fmt: skip
        for i, eqn in enumerate(self.program.eqns):
            rule = rules.get(eqn.primitive.name)
            if rule is not None:
                yield from rule(i, eqn)
        of_calls: dict[str, Callable[[Call], Iterator[Finding]]] = {
            "inv": self._inverse, "_diag": self._diagonal, "diagonal": self._diagonal, "trace": self._diagonal,
            "_one_hot": self._one_hot,
        }  # fmt: skip
        for call in {id(it): it for it in self.program.calls}.values():
            rule_of_call = None if call.eqn is None else of_calls.get(call.eqn.params.get("name", ""))
            if rule_of_call is not None and is_of_jax(call.jaxpr):
                yield from rule_of_call(call)

    def _found(self, line_of: int, figures: dict[str, Any], message: str, advice: str) -> Finding:
        return finding_at(self.program.line(line_of), "waste", "medium", figures, message, advice)

    def _uses(self, number: int) -> list[int]:
        """The equations that use a value, whichever way they see it; -1 for the program's result."""
        found: list[int] = [-1] if number in self.results else []
        for i in self.readers.get(number, ()):
            if self.program.treatments[i] == VIEW or self.program.eqns[i].primitive.name in ("rev", "neg"):
                found += self._uses(self.program.writes[i][0])
            else:
                found.append(i)
        return found

    def _names(self, indices: list[int]) -> set[str]:
        return {self.program.eqns[i].primitive.name if i >= 0 else "" for i in indices}

    def _inverse(self, call: Call) -> Iterator[Finding]:
        result = call.jaxpr.outvars[0]
        uses = self._uses(call.numbers[result])
        if result.aval.shape[-1] >= _FEWEST_ROWS and self._names(uses) == {"dot_general"}:
            yield self._found(
                uses[0],
                {"rows": result.aval.shape[-1]},
                f"The inverse of {array_text(result.aval)} is only multiplied: it takes three times the work of a "
                "solve, and is less accurate.",
                "Solve instead: `jnp.linalg.solve(a, b)` for `inv(a) @ b`, or `jax.scipy.linalg.cho_solve` where `a` "
                "is positive definite.",
            )

    def _diagonal(self, call: Call) -> Iterator[Finding]:
        given, result = call.jaxpr.invars[0], call.jaxpr.outvars[0]
        if len(result.aval.shape) == 2:
            uses = [i for i in self._uses(call.numbers[result]) if self._names([i]) == {"dot_general"}]
            if uses and max(result.aval.shape) >= _FEWEST_ROWS:
                yield self._found(
                    uses[0],
                    {"rows": max(result.aval.shape)},
                    f"A diagonal matrix, {array_text(result.aval)}, is multiplied as if it were full.",
                    "Multiply by the vector: `d[:, None] * m` for `diag(d) @ m`, `m * d` for `m @ diag(d)`.",
                )
        elif len(given.aval.shape) == 2 and math.prod(given.aval.shape) >= _FEWEST_ELEMENTS:
            number = call.numbers[given]
            made = self._made_of(number)
            is_for_it = all(self._is_inside(i, call) for i in self.readers.get(number, ()))
            is_dear = "dot_general" in made or self._is_jacobian(number)
            if is_for_it and number not in self.results and is_dear and not made & _DECOMPOSITIONS:
                yield self._found(
                    self.makers[number],
                    {"bytes": bytes_of(given.aval)},
                    f"Of {array_text(given.aval)} only the diagonal is used.",
                    "Compute the diagonal alone: `jnp.sum(a * b.T, 1)` for that of `a @ b`; of a Hessian or a Jacobian "
                    "one product with a unit vector at a time, by `jax.jvp` in a `jax.lax.map`, or a random estimate.",
                )

    def _is_jacobian(self, number: int) -> bool:
        i = self.makers.get(number, -1)
        return i >= 0 and comes_from(self.program.eqns[i], "_src/api.py", "jacfun")

    def _is_inside(self, index: int, call: Call) -> bool:
        at: Call | None = self.program.calls[index]
        while at is not None and at is not call:
            at = at.parent
        return at is call

    def _made_of(self, number: int) -> set[str]:
        """The operations that a value is computed by, back to those that are not elementwise."""
        found: set[str] = set()
        known, left = {LITERAL}, [number]
        while left:
            at = left.pop()
            i = self.makers.get(at, -1)
            if at in known or i < 0:
                continue
            known.add(at)
            found.add(self.program.eqns[i].primitive.name)
            if self.program.treatments[i] in ELEMENTWISE:
                left += self.program.reads[i]
        return found

    def _one_hot(self, call: Call) -> Iterator[Finding]:
        aval = call.jaxpr.outvars[0].aval
        number = call.numbers[call.jaxpr.outvars[0]]
        classes = aval.shape[-1] if aval.shape else 0
        if classes < _FEWEST_CLASSES or math.prod(aval.shape) < _FEWEST_HOT:
            return
        for i in self._uses(number):
            eqn = self.program.eqns[i]
            if i >= 0 and eqn.primitive.name == "dot_general" and not eqn.params["dimension_numbers"][1][0]:
                yield self._found(
                    i,
                    {"classes": classes, "bytes": bytes_of(aval)},
                    f"A one-hot array, {array_text(aval)}, is multiplied to look up rows, or to add them up.",
                    "Index the table: `table[ids]`, or `jnp.take(table, ids, axis=0)`; for sums `jax.ops.segment_sum`.",
                )
                return

    def _full_factors(self, index: int, eqn: Any) -> Iterator[Finding]:
        longer, shorter = sorted(eqn.invars[0].aval.shape[-2:], reverse=True)
        for number, var in zip(self.program.writes[index], eqn.outvars, strict=True):
            is_full = var.aval.shape[-2:] == (longer, longer) and longer >= 4 * shorter
            if is_full and bytes_of(var.aval) >= _FEWEST_STACKED and self._names(self._uses(number)) <= {"slice"}:
                yield self._found(
                    index,
                    {"bytes": bytes_of(var.aval)},
                    f"Of the factor {array_text(var.aval)} of this decomposition no more than {shorter:,} rows or "
                    "columns can be of use.",
                    "Set `full_matrices=False`.",
                )

    def _summed(self, index: int, eqn: Any) -> Iterator[Finding]:
        """A product of matrices that is written as a sum over a product of broadcast arrays."""
        product = self.makers.get(self.program.reads[index][0], -1)
        if product < 0 or self.program.eqns[product].primitive.name != "mul":
            return
        shape = eqn.invars[0].aval.shape
        operands = zip(self.program.eqns[product].invars, self.program.reads[product], strict=True)
        spread = [self._spread(var.aval.shape, number, shape) for var, number in operands]
        summed = set(eqn.params["axes"])
        if (
            math.prod(shape) >= _MUCH_WORK
            and all(spread)
            and spread[0] != spread[1]
            and not summed & set.union(*spread)
        ):
            yield self._found(
                index,
                {"multiplications": math.prod(shape)},
                f"A product of matrices is written as a sum over {array_text(eqn.invars[0].aval)}, a product of "
                "broadcast arrays.",
                "Use `@` or `jnp.einsum`, which libraries for matrices compute.",
            )

    def _spread(self, own: tuple[int, ...], number: int, shape: tuple[int, ...]) -> set[int]:
        """The axes along which an operand is repeated."""
        eqn = self.program.eqns[self.makers[number]] if number in self.makers else None
        given = dict(enumerate(own))
        if eqn is not None and eqn.primitive.name == "broadcast_in_dim":
            given = dict(zip(eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape, strict=True))
        return {axis for axis, length in enumerate(shape) if given.get(axis, 1) != length}

    def _added(self, index: int, eqn: Any) -> Iterator[Finding]:
        """The gradient of what a loop's body indexes: an array of zeros with one part, added in each turn."""
        size = math.prod(eqn.outvars[0].aval.shape)
        if self.turns * size < _MUCH_ADDED:
            return
        for number in self.program.reads[index]:
            i = self.makers.get(number, -1)
            is_part = i >= 0 and self.program.eqns[i].primitive.name in ("dynamic_update_slice", "scatter-add")
            onto = self.makers.get(self.program.reads[i][0], -1) if is_part else -1
            if onto >= 0 and self.program.eqns[onto].primitive.name == "broadcast_in_dim":
                yield self._found(
                    i,
                    {"elements": size, "times": self.turns},
                    f"Each of {self.turns:,} turns of this loop reads a part of {array_text(eqn.outvars[0].aval)}, "
                    "whose gradient adds an array as large in each turn of its own.",
                    "Take the parts out before the loop, by one index with all places, and have the scan go along them "
                    "as its `xs`.",
                )

    def _sorted(self, index: int, eqn: Any) -> Iterator[Finding]:
        axis = eqn.params["dimension"]
        shape = eqn.invars[0].aval.shape
        length = shape[axis]
        uses = [i for number in self.program.writes[index] for i in self._uses(number)]
        if math.prod(shape) < _FEWEST_ELEMENTS or not uses or self._names(uses) != {"slice"}:
            return
        kept = 0
        for eqn_of_use in (self.program.eqns[i] for i in uses):
            taken = math.prod(eqn_of_use.outvars[0].aval.shape) * length // math.prod(shape)
            starts, limits = eqn_of_use.params["start_indices"], eqn_of_use.params["limit_indices"]
            ends = zip(starts, limits, eqn_of_use.invars[0].aval.shape, strict=True)
            kept = max(kept, taken if all(start == 0 or limit == size for start, limit, size in ends) else length)
        if kept * _SMALLEST_PART <= length:
            yield self._found(
                index,
                {"length": length, "used": kept},
                f"All {length:,} elements of {array_text(eqn.invars[0].aval)} are sorted, of which {kept:,} are used.",
                "Take the largest alone: `jax.lax.top_k(x, k)` gives them with their indices, of `-x` the smallest; "
                "`jax.lax.approx_max_k` on accelerators.",
            )

    def _scan(self, index: int, eqn: Any) -> Iterator[Finding]:
        parts = scan_parts(eqn)
        length = int(eqn.params["length"])
        stacked = [
            (number, var)
            for number, var in zip(
                self.program.writes[index][parts.carries :], eqn.outvars[parts.carries :], strict=True
            )
            if self._takes_one(number, length)
        ]
        size = sum(bytes_of(var.aval) for _, var in stacked)
        if size >= _FEWEST_STACKED and length >= _SMALLEST_PART:
            yield self._found(
                index,
                {"bytes": size, "length": length},
                f"The scan stacks {bytes_text(size)} of its {length:,} steps, of which one step is used.",
                "Take it from the carry that the scan returns, and have the body return `None` for it.",
            )
        if parts.carries == 0 and parts.xs and length >= _FEWEST_TURNS and self._is_small(eqn, length):
            yield self._found(
                index,
                {"times": length},
                f"A map of {length:,} turns computes next to nothing in each, one after the other.",
                "Use `jax.vmap`, which computes all turns at once, or `jax.lax.map(..., batch_size=...)`, many.",
            )

    def _takes_one(self, number: int, length: int) -> bool:
        """Whether of a stacked array one step is all that is used."""
        uses = self._uses(number)
        if not uses or self._names(uses) - {"slice", "dynamic_slice"}:
            return False
        taken = [self.program.eqns[i] for i in uses]
        return all(it.invars[0].aval.shape[0] == length and it.outvars[0].aval.shape[0] == 1 for it in taken)

    def _is_small(self, eqn: Any, length: int) -> bool:
        """Whether the body of a map has small arrays, and nothing inside that takes long."""
        sizes: list[int] = []
        bodies = [eqn.params["jaxpr"]]
        while bodies:
            body = bodies.pop()
            body = getattr(body, "jaxpr", body)
            for it in body.eqns:
                inner = [value for value in it.params.values() if hasattr(getattr(value, "jaxpr", value), "eqns")]
                known = TREATMENT.get(it.primitive.name) in (*ELEMENTWISE, REDUCE, IN_PLACE)
                if inner and it.primitive.name in ("jit", "pjit", "custom_jvp_call"):
                    bodies += inner
                elif inner or not (known or it.primitive.name == "dot_general") or it.effects:
                    return False
                sizes += [math.prod(var.aval.shape) for var in (*it.invars, *it.outvars) if type(var) is not Literal]
        return bool(sizes) and max(sizes) <= _SMALL_TURN and 4 * sum(sizes) * length <= _MOST_MAPPED

    def _product(self, index: int, eqn: Any) -> Iterator[Finding]:
        for at, number in enumerate(self.program.reads[index]):
            shape = eqn.invars[at].aval.shape
            is_by_vector = len(shape) == 2 and len(eqn.invars[1 - at].aval.shape) == 1
            is_large = is_by_vector and math.prod(shape) >= _FEWEST_ELEMENTS
            if is_large and self._is_jacobian(number) and self._uses(number) == [index]:
                yield self._found(
                    index,
                    {"bytes": bytes_of(eqn.invars[at].aval)},
                    f"A Jacobian or a Hessian, {array_text(eqn.invars[at].aval)}, is only multiplied by a vector.",
                    "Compute the product alone: `jax.jvp(f, (x,), (v,))[1]` for `jacobian(f)(x) @ v`, of `jax.grad(f)` "
                    "for a Hessian; `jax.vjp` for `v @ jacobian(f)(x)`.",
                )
            first = self.makers.get(number, -1)
            inner = self.program.eqns[first] if first >= 0 else None
            if inner is None or inner.primitive.name != "dot_general" or self._uses(number) != [index]:
                continue
            shapes = _chain(inner, eqn, at)
            if shapes is None:
                continue
            now, other = shapes
            if now >= _MUCH_WORK and now >= _TIMES_LESS * other:
                yield self._found(
                    index,
                    {"multiplications": now, "other_order": other},
                    f"Products of three matrices in an order that takes {now:,} multiplications, where {other:,} would "
                    "do.",
                    "Set parentheses: `a @ (b @ c)` for `(a @ b) @ c`; `jnp.linalg.multi_dot` finds the best order.",
                )


def _chain(inner: Any, outer: Any, at: int) -> tuple[int, int] | None:
    """The multiplications of two products, of which the outer one takes the inner one, and in another order."""
    (contracted, batch), (outer_contracted, outer_batch) = (it.params["dimension_numbers"] for it in (inner, outer))
    if batch[0] or outer_batch[0] or len(contracted[0]) != 1 or len(outer_contracted[0]) != 1:
        return None
    left, right = (it.aval.shape for it in inner.invars)
    if len(left) > 2 or len(right) > 2 or len(outer.invars[1 - at].aval.shape) > 2:
        return None
    shared = left[contracted[0][0]]
    m, n = math.prod(left) // shared, math.prod(right) // shared
    joined = outer.invars[at].aval.shape[outer_contracted[at][0]]
    free_of_left = len(left) - 1
    is_right = outer_contracted[at][0] >= free_of_left  # whether the third one meets the right one
    third = math.prod(outer.invars[1 - at].aval.shape) // joined
    now = m * shared * n + m * n * third
    return now, (shared * n * third + m * shared * third if is_right else m * shared * third + shared * third * n)
