"""A call taken apart: traced, lowered, compiled ahead of time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from partax import _core
from partax._jax.private import direct_call
from partax._jit.at_work import at_work, during
from partax._jit.forwarded_arrays import is_of_lost_arrays, name_lost_arrays
from partax._jit.placed_target import default_device
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.short_text import array_text, counted, wrapper_text
from partax._pytree.spec_data import leaf_paths, static_values


class Program:
    """The data that all stages of a call share, without its arrays."""

    def __init__(self, wrapper: Any, call: _core.PreparedCall, outputs: Any):
        self.wrapper, self.call, self.record = wrapper, call, call.record
        described, _ = call.described()
        self.statics, self.paths = static_values(described), leaf_paths(described)
        self._outputs = jax.tree.leaves(outputs)
        forwarded, *_ = _core.output_info(outputs)
        leaves = list(call.leaves)
        infos = jax.eval_shape(lambda leaves: leaves, [leaves[i] for i in forwarded])
        self._forwarded: list[tuple[Any, Any]] = []  # the shape and the sharding of each forwarded array
        for i, info in zip(forwarded, infos, strict=True):
            self._forwarded.append((info, getattr(leaves[i], "sharding", None)))
            leaves[i] = info
        result = call.result(outputs, tuple(leaves))
        self.out_info = result if call.objects is None else result.abstract_result(call.objects)
        """The result with `jax.ShapeDtypeStruct`s for its arrays, as it was traced."""
        call.detach()

    def compiled_info(self, compiled: Any) -> Any:
        """Return the result with the shardings of a compiled program; a forwarded array has that of the argument."""
        infos = {id(old): new for old, new in zip(self._outputs, jax.tree.leaves(compiled.out_info), strict=True)}
        for info, sharding in self._forwarded:
            infos[id(info)] = info.update(sharding=sharding or SingleDeviceSharding(default_device()))
        spec, by_path, rest = flat_partition(self.out_info, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        return flat_combine(spec, {path: infos.get(id(info), info) for path, info in by_path.items()}, rest)


def trace(wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Traced":
    call = _core.prepare_call(wrapper, args, kwargs, True)
    traced = call.run(lambda target, leaves: (call.stored or target).trace(*leaves))
    return Traced(Program(wrapper, call, traced.out_info), traced)


class _Stage:
    """A stage of a call, with the stage of JAX that it wraps."""

    def __init__(self, program: Program, of_jax: Any):
        self._program, self._of_jax = program, of_jax
        self.out_info = program.out_info

    def __repr__(self) -> str:
        program = self._program
        return wrapper_text(type(self).__name__, program.wrapper, f", {counted(len(program.paths), 'array')}")

    def __getattr__(self, name: str) -> Any:
        text = f"'{type(self).__name__}' object has no attribute {name!r}"
        if name in ("fun_name", "_executable"):  # read by `jax.export` and `serialize_executable`
            text = f"{text}; to export or serialize a program, pass JAX a `jax.jit` of its arrays alone: see the guide"
        raise AttributeError(text, name=name, obj=self)


class Traced(_Stage):
    """A traced call. Same as `jax.stages.Traced`, for the user's own arguments.

    Example:
      >>> scale = partax.filter_jit(lambda x, by: x * by)
      >>> traced = scale.trace(jnp.ones(3), by=2.0)
      >>> traced.out_info, traced.statics
      (ShapeDtypeStruct(shape=(3,), dtype=float32), {'by': 2.0})

    Attributes:
      out_info: The result with `jax.ShapeDtypeStruct`s for its arrays.

    See Also:
      The guide "Ahead-of-time compilation and export".
    """

    @property
    def jaxpr(self) -> Any:
        """The traced program, a `jax.core.ClosedJaxpr` of the array leaves."""
        return self._of_jax.jaxpr

    @property
    def args_info(self) -> dict[str, Any]:
        """The `jax.stages.ArgInfo` of each array of the arguments by its path, in the order of the program's inputs."""
        return dict(zip(self._program.paths, jax.tree.leaves(self._of_jax.args_info), strict=True))

    @property
    def statics(self) -> dict[str, Any]:
        """The static values of the arguments by path; None for an object that has been deleted."""
        return self._program.statics

    def lower(self, **options: Any) -> "Lowered":
        """Lower the program.

        Example:
          >>> partax.filter_jit(lambda x: x**2).trace(jnp.ones(3)).lower().compile()(jnp.ones(3))
          Array([1., 1., 1.], dtype=float32)

        Args:
          **options: Same as in `jax.stages.Traced.lower`.

        Returns:
          The `Lowered` program.
        """
        with during(at_work, self._program.record):
            return Lowered(self._program, self._of_jax.lower(**options))


class Lowered(_Stage):
    """A lowered call. Same as `jax.stages.Lowered`, for the user's own arguments.

    Example:
      >>> partax.filter_jit(lambda x: x**2).lower(jnp.ones(3)).compile()(jnp.ones(3))
      Array([1., 1., 1.], dtype=float32)

    Attributes:
      out_info: The result with `jax.ShapeDtypeStruct`s for its arrays.
    """

    def as_text(self, /, *args: Any, **kwargs: Any) -> str:
        """Return the program as text.

        Example:
          >>> "stablehlo.sine" in partax.filter_jit(lambda x: jnp.sin(x)).lower(jnp.ones(3)).as_text()
          True

        Args:
          *args, **kwargs: Same as in `jax.stages.Lowered.as_text`, such as `dialect`. A compiled program accepts none.

        Returns:
          StableHLO, or the requested `dialect`; for a compiled program, optimized HLO.
        """
        return self._of_jax.as_text(*args, **kwargs)

    def compiler_ir(self, /, *args: Any, **kwargs: Any) -> Any:
        """Return the program as an object of the compiler.

        Example:
          >>> type(partax.filter_jit(lambda x: x + 1).lower(jnp.ones(3)).compiler_ir()).__name__
          'Module'

        Args:
          *args, **kwargs: Same as in `jax.stages.Lowered.compiler_ir`, such as `dialect`.

        Returns:
          Same as in JAX.
        """
        return self._of_jax.compiler_ir(*args, **kwargs)

    def cost_analysis(self) -> Any:
        """Return the cost of the program as XLA counts it; for a lowered program an estimate.

        Example:
          >>> partax.filter_jit(lambda x: x + 1).lower(jnp.ones(3)).cost_analysis()["flops"]
          3.0

        Returns:
          Same as in JAX.
        """
        return self._of_jax.cost_analysis()

    def compile(self, compiler_options: dict[str, Any] | None = None) -> "Compiled":
        """Compile the program.

        Example:
          >>> partax.filter_jit(lambda x: x**2).lower(jnp.ones(2)).compile()(jnp.array([1.0, 3.0]))
          Array([1., 9.], dtype=float32)

        Args:
          compiler_options: The options of the XLA compiler by name. Default: None, for those of the wrapper.

        Returns:
          The `Compiled` program.

        Raises:
          jax.errors.JaxRuntimeError: XLA does not have an option of that name.
        """
        with during(at_work, self._program.record):
            return Compiled(self._program, self._of_jax.compile(compiler_options=compiler_options))


class Compiled(_Stage):
    """A compiled call. Same as `jax.stages.Compiled`, for the user's own arguments. Their static part must be the
    compiled one.

    Example:
      >>> compiled = partax.filter_jit(lambda x, by: x * by).lower(jnp.ones(2), by=3).compile()
      >>> compiled(jnp.array([1.0, 2.0]), by=3)
      Array([3., 6.], dtype=float32)

    Attributes:
      out_info: The result with `jax.ShapeDtypeStruct`s for its arrays, with their shardings.
    """

    def __init__(self, program: Program, compiled: Any):
        super().__init__(program, compiled)
        self.out_info = program.compiled_info(compiled)
        self._run = program.call.compiled(compiled)
        self._has_run = False

    as_text, cost_analysis = Lowered.as_text, Lowered.cost_analysis

    def memory_analysis(self) -> Any:
        """Return the memory that the program needs, in bytes, as XLA counts it.

        Example:
          >>> scale = partax.filter_jit(lambda x: 2 * x)
          >>> scale.lower(jnp.ones(3)).compile().memory_analysis().argument_size_in_bytes
          12

        Returns:
          Same as `jax.stages.Compiled.memory_analysis`.
        """
        return self._of_jax.memory_analysis()

    @property
    def input_shardings(self) -> dict[str, Any]:
        """The sharding of each array of the arguments, by its path; None for one that the program does not need."""
        shardings, _ = self._of_jax.input_shardings
        return dict(zip(self._program.paths, shardings, strict=True))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the program.

        Args:
          *args, **kwargs: Same as in a call of the wrapped function with the same trace.

        Returns:
          The result of the wrapped function.

        Raises:
          TypeError: The static part, or the shape or dtype of an array, differs from the compiled one; the message has
            the path.
        """
        try:
            result = self._run(*args, **kwargs)
        except TypeError as error:
            raise self._difference(args, kwargs) or error from None
        except (RuntimeError, ValueError) as error:
            call = self._program.call.rebind(args, kwargs) if is_of_lost_arrays(error) else None
            if call is not None:
                donated = [info.donated for info in jax.tree.leaves(self._of_jax.args_info)]
                name_lost_arrays(error, self._program.paths, call.leaves, donated)
            raise
        if not self._has_run:
            # Only now has jax made its native dispatch.
            self._run = self._program.call.compiled(direct_call(self._of_jax))
            self._has_run = True
        return result

    def _difference(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError | None:
        call = self._program.call.rebind(args, kwargs)
        if call is None:
            described, _ = self._program.call.described_of(args, kwargs)
            return _static_difference(self._program.statics, static_values(described))
        infos = jax.tree.leaves(self._of_jax.args_info)
        for path, info, leaf in zip(self._program.paths, infos, call.leaves, strict=True):
            now = jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf))
            if (now.shape, now.dtype) != (info.shape, info.dtype):
                return TypeError(
                    f"`{path}`: compiled for {array_text(info)}, called with {array_text(now)}; lower and compile "
                    "again for the new one"
                )
        return None


def _static_difference(before: dict[str, Any], now: dict[str, Any]) -> TypeError:
    for path in before:
        if path in now and not _core.static_equal(before[path], now[path]):
            return TypeError(
                f"`{path}`: compiled with {before[path]!r}, called with {now[path]!r}; static values are part of the "
                "program: lower and compile again for the new value"
            )
    paths = ", ".join(sorted(before.keys() ^ now.keys())[:5]) or "two equal objects are one, or one is two"
    return TypeError(
        f"the arguments have another structure than the compiled ones (at {paths}): lower and compile again"
    )


Traced.__module__ = Lowered.__module__ = Compiled.__module__ = "partax.stages"  # where users find them
