"""The description of a type, which the native type table requests once for each type."""

from typing import Any

from partax._families.describe import describe
from partax._families.fields import BUILT_IN, Description
from partax._functions.classes import traits


def describe_type(obj: Any) -> Description:
    """Called by C++."""
    description, cls = describe(obj), type(obj)
    return description if type(cls) is type and cls in BUILT_IN else description._replace(traits=traits(cls))
