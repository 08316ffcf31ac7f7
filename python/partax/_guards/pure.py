"""The list of what is known to be pure: functions and classes whose results depend on their arguments alone.

What is not in this table is not pure: it is read as the user's own code is, and where that cannot be done a function
made anew that names it is traced again. A name stands here only if it asks nothing of the world: no clock, no chance,
no file, no environment, no setting that can be changed, no state. jax's configuration is no such setting: partax looks
at its values by itself.
"""

import sys
import types
from typing import Any

from partax._guards.installed import is_installed
from partax._guards.user_objects import read

# Of jax.numpy, and of NumPy what has the same name.
_ARRAYS = """
ComplexWarning abs absolute acos acosh add all allclose amax amin angle any append apply_along_axis
apply_over_axes arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argpartition argsort
argwhere around array array_equal array_equiv array_split asarray asin asinh astype atan atan2 atanh atleast_1d
atleast_2d atleast_3d average bartlett bfloat16 bincount bitwise_and bitwise_count bitwise_invert
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman block bool bool_
broadcast_arrays broadcast_shapes broadcast_to c_ can_cast cbrt cdouble ceil character choose clip column_stack
complex128 complex64 complex_ complexfloating compress concat concatenate conj conjugate convolve copy copysign
corrcoef correlate cos cosh count_nonzero cov cross csingle cumprod cumsum cumulative_prod cumulative_sum
deg2rad degrees delete diag diag_indices diag_indices_from diagflat diagonal diff digitize divide divmod dot
double dsplit dstack dtype ediff1d einsum einsum_path equal exp exp2 expand_dims expm1 extract eye fabs
fill_diagonal finfo flatnonzero flexible flip fliplr flipud float16 float32 float4_e2m1fn float64 float6_e2m3fn
float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2
float8_e5m2fnuz float8_e8m0fnu float_ float_power floating floor floor_divide fmax fmin fmod frexp from_dlpack
frombuffer fromfunction fromiter frompyfunc fromstring full full_like gcd generic geomspace gradient greater
greater_equal hamming hanning heaviside histogram histogram2d histogram_bin_edges histogramdd hsplit hstack
hypot i0 identity iinfo imag index_exp indices inexact inner insert int1 int16 int2 int32 int4 int64 int8 int_
integer interp intersect1d invert isclose iscomplex iscomplexobj isdtype isfinite isin isinf isnan isneginf
isposinf isreal isrealobj isscalar issubdtype iterable ix_ kaiser kron lcm ldexp left_shift less less_equal
lexsort linspace log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
logspace mask_indices matmul matrix_transpose matvec max maximum mean median meshgrid mgrid min minimum mod modf
moveaxis multiply nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin
nanpercentile nanprod nanquantile nanstd nansum nanvar ndarray ndim negative nextafter nonzero not_equal number
object_ ogrid ones ones_like outer packbits pad partition percentile permute_dims piecewise place poly polyadd
polyder polydiv polyfit polyint polymul polysub polyval positive pow power prod promote_types ptp put
put_along_axis quantile r_ rad2deg radians ravel ravel_multi_index real reciprocal remainder repeat reshape
resize result_type right_shift rint roll rollaxis roots rot90 round s_ searchsorted select setdiff1d setxor1d
shape sign signbit signedinteger sin sinc single sinh size sort sort_complex spacing split sqrt square squeeze
stack std subtract sum swapaxes take take_along_axis tan tanh tensordot tile trace transpose trapezoid tri tril
tril_indices tril_indices_from trim_zeros triu triu_indices triu_indices_from true_divide trunc ufunc uint uint1
uint16 uint2 uint32 uint4 uint64 uint8 union1d unique unique_all unique_counts unique_inverse unique_values
unpackbits unravel_index unsignedinteger unstack unwrap vander var vdot vecdot vecmat vectorize vsplit vstack
where zeros zeros_like pi e inf nan newaxis euler_gamma
"""

# Modules all of whose names are pure, with the modules below them.
_MODULES = """
math cmath itertools enum collections.abc numbers

numpy.linalg numpy.fft ml_dtypes

jax.numpy.linalg jax._src.numpy.fft jax._src.numpy.linalg jax._src.numpy.vectorize jax._src.numpy.index_tricks jax.lax
jax._src.lax jax.nn jax._src.nn jax.random jax._src.random jax.scipy jax._src.scipy jax._src.third_party.scipy jax.ops
jax._src.ops jax.image jax._src.image jax.tree jax._src.tree jax.tree_util jax._src.tree_util jax.dtypes
jax._src.dtypes jax.sharding jax._src.partition_spec jax._src.named_sharding jax._src.api_util
jax._src.custom_derivatives jax._src.custom_batching jax._src.custom_transpose jax._src.indexing
jax._src.traceback_util jax._src.numpy.array_methods

chex._src.dataclass chex._src.pytypes diffrax einops equinox._ad equinox._better_abstract
equinox._custom_types equinox._enum equinox._errors equinox._eval_shape equinox._filters equinox._jit
equinox._make_jaxpr equinox._misc equinox._module equinox._sharding equinox._tree equinox._unvmap equinox._update
equinox._vmap_pmap equinox.internal equinox.nn flax.core flax.ids flax.linen flax.nnx flax.struct
flax.training.train_state flax.traverse_util flax.typing jaxtyping lineax optax optimistix penzai

partax._core partax._pytree.as_equinox partax._pytree.filters partax._pytree.flat_partition partax._pytree.groups
partax._pytree.partition partax._pytree.texts partax.tree
partax._transforms.branches partax._transforms.carry partax._transforms.custom_rules partax._transforms.filter_grad
partax._transforms.jvp_and_vjp partax._transforms.layers partax._transforms.loops partax._transforms.mapped
partax._transforms.programs partax._transforms.wrapper
"""
# Of other modules, which of their names are.
_NAMES = {
    # Python
    "builtins": """
ArithmeticError AssertionError AttributeError BaseException Ellipsis Exception FloatingPointError IndexError KeyError
LookupError NameError NotImplemented NotImplementedError OverflowError RuntimeError StopIteration TypeError ValueError
Warning UserWarning DeprecationWarning ZeroDivisionError RecursionError UnicodeError
abs all any ascii bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate filter float format
frozenset hex int isinstance issubclass iter len list map max min next object oct ord pow print property range repr
reversed round set slice sorted staticmethod str sum super tuple type zip __build_class__
""",
    "_operator": """
abs add and_ concat contains countOf delitem eq floordiv ge getitem gt iadd iand ifloordiv ilshift imatmul imod imul
index indexOf inv invert ior ipow irshift is_ is_not isub itruediv ixor le length_hint lshift lt matmul mod mul ne neg
not_ or_ pos pow rshift setitem sub truediv truth xor itemgetter
""",
    "operator": "itemgetter",
    "functools": "cached_property partial partialmethod reduce total_ordering wraps",
    "_functools": "partial reduce",
    "typing": """
Any Callable ClassVar Final Generic Literal NamedTuple NewType Optional ParamSpec Protocol TypeVar TypeVarTuple
TypedDict Union cast final overload _BaseGenericAlias _CallableGenericAlias _GenericAlias _LiteralGenericAlias
_UnionGenericAlias
""",
    "dataclasses": """
_dataclass_getstate _dataclass_setstate _recursive_repr _replace
FrozenInstanceError InitVar KW_ONLY MISSING dataclass field is_dataclass replace
""",
    "reprlib": "recursive_repr",
    "argparse": "Namespace",
    "abc": "ABC ABCMeta abstractmethod",
    "collections": "OrderedDict defaultdict deque namedtuple Counter ChainMap",
    "contextlib": "AbstractContextManager ContextDecorator contextmanager nullcontext",
    "types": "SimpleNamespace",
    # NumPy
    "numpy": _ARRAYS + "asanyarray ascontiguousarray common_type intc intp longdouble min_scalar_type",
    # jax
    "jax": "P ShapeDtypeStruct jit",
    "jax.numpy": _ARRAYS + "empty empty_like",
    "jaxlib._jax.pytree": "DictKey FlattenedIndexKey GetAttrKey PyTreeDef SequenceKey",
    "jax._src.sharding_impls": "NamedSharding PartitionSpec SingleDeviceSharding UnspecifiedValue AUTO",
    "jax._src.mesh": "Mesh AbstractMesh AxisType",
    "jax._src.api": """
eval_shape fwd_and_bwd grad hessian jacfwd jacobian jacrev jit jvp linear_transpose linearize make_jaxpr named_call
named_scope value_and_grad vjp vmap device_put Inline
""",
    "jax._src.pjit": "reshard with_sharding_constraint",
    "jax._src.ad_checkpoint": """
checkpoint remat checkpoint_name checkpoint_wrapper DotsSaveable SaveAnyNamesButThese SaveOnlyTheseNames dots_saveable
dots_with_no_batch_dims_saveable everything_saveable nothing_saveable offload_dot_with_no_batch_dims
save_and_offload_only_these_names save_any_names_but_these save_anything_except_these_names save_from_both_policies
save_only_these_names
""",
    "jax._src.core": "typeof ShapedArray Tracer get_aval",
    "jax._src.shard_map": "shard_map smap",
    "jax._src.source_info_util": "ExtendNameStackContextManager",
    # libraries
    "chex": "dataclass",
    "equinox.internal._getkey": "",
    "penzai.core.variables": "",  # which counts the variables that it has made
    # partax itself
    "partax": """
FlatSpec Static all_of any_of apply_updates by_path combine filter flat_combine flat_partition fold is_array
is_array_like is_inexact_array not_ partition
""",
    "partax._jit.filter_jit": "filter_jit",
    "partax._steps.steps": "function_of_chunk",
}
KEEP_RULES = {"lineax"}
"""Libraries that keep what to do with a class of the user's in tables of their own: a class of theirs is not proven."""
_names: dict[str, frozenset[str] | None] = dict.fromkeys(_MODULES.split())
_names |= {module: frozenset(names.split()) for module, names in _NAMES.items()}
_declared: set[str] = set()  # of these, what users have added


def pure(*modules: str) -> None:
    """Adds modules to those whose functions and classes are known to be pure.

    Example:
      >>> partax.pure("mylib.ops")

    A function made anew (a lambda in a loop, a partial) gets the program of an equal earlier one only if all that it
    can read is proven to be as it was. partax looks into functions, but not into what is written in C, has hidden state
    or reads a file. By this you promise that the results of a module's functions depend on their arguments alone.

    Args:
      *modules: names, as `mylib.ops`; the modules below are included.

    Raises:
      TypeError: one of them is no text.
    """
    for module in modules:
        if not isinstance(module, str):
            raise TypeError(f"pure: found a `{type(module).__name__}`, expected the name of a module, as 'mylib.ops'")
        _names[module] = None
        _declared.add(module)


def is_listed(module: Any, name: Any) -> bool:
    """Whether a name of a module, or what is defined inside of it, is in the table."""
    if type(module) is not str or type(name) is not str:
        return False
    listed = module
    while listed and listed not in _names:
        listed = listed.rpartition(".")[0]
    names = _names.get(listed, frozenset())
    is_there = names is None or (listed == module and name.partition(".")[0] in names)
    return is_there and (listed in _declared or is_installed(module.partition(".")[0]))  # else it is a namesake


def module_of(value: Any) -> str:
    """The name of the module that defines a value or, as methods of C types have none, its class."""
    module = read(value, "__module__") or read(type(value), "__module__")
    return module if type(module) is str else ""


def package_of(value: Any) -> str:
    """The first part of the name of a module, or of that which the code of a function, or a value's class, is of."""
    if issubclass(type(value), types.ModuleType):
        module = vars(value).get("__name__")
    else:
        module = value.__globals__.get("__name__") if type(value) is types.FunctionType else module_of(value)
    return module.partition(".")[0] if type(module) is str else ""


def is_pure(value: Any) -> bool:
    """Whether a function or class is in the table, and found by its module and name."""
    module = module_of(value)
    name = read(value, "__qualname__") or read(value, "__name__")
    if not is_listed(module, name):
        return False
    first, *rest = name.split(".")
    found = read(sys.modules.get(module), "__dict__", {}).get(first)  # a module may make up what it has not
    for part in rest:
        found = read(found, part)
    return found is value


def is_pure_code(function: types.FunctionType) -> bool:
    """Whether the code of a function is that of a pure module: then only what it holds counts."""
    module_globals = function.__globals__
    name = module_globals.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    known = issubclass(type(module), types.ModuleType) and module.__dict__ is module_globals
    # What others have executed in its scope is none of it.
    is_own = known and function.__code__.co_filename == module_globals.get("__file__")
    return is_own and is_listed(name, function.__code__.co_qualname)


def is_listed_module(module: Any) -> bool:
    """Whether a value is a module that is in the table, or below one all of which is, and not another of its name."""
    name = vars(module).get("__name__") if type(module) is types.ModuleType else None
    return type(name) is str and sys.modules.get(name) is module and (name in _names or is_listed(name, ""))
