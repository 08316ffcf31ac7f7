"""The versions of installed libraries, and of all that they stand on."""

import functools
import importlib.metadata
import json
import re

_NAME = re.compile(r"[\w.-]+")


class UnversionedError(Exception):
    """Which library nobody knows the version of."""


@functools.cache  # one that is installed anew meanwhile is not what the process has imported
def versions(library: str) -> tuple[str, ...]:
    """The version of a library and of each that it requires, and so on.

    Args:
      library: the name of a package that is imported.

    Returns:
      Names with their versions, in their order.

    Raises:
      UnversionedError: the library has no distribution, or one of them is installed in place and may change.
    """
    found: dict[str, str] = {}
    waiting = [library]
    try:
        importlib.metadata.distribution(library)
    except importlib.metadata.PackageNotFoundError:
        waiting = importlib.metadata.packages_distributions().get(library, [])[:1]
        if not waiting:
            raise UnversionedError(f"`{library}`, whose version nobody knows") from None
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # for another system, or another Python
            continue
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable", False):
            if name != "partax":  # whose files are read
                raise UnversionedError(f"`{name}`, which is installed in place and may change")
            continue
        # Its long description is not read, which takes ten times as long.
        header = (distribution.read_text("METADATA") or "").partition("\n\n")[0].splitlines()
        found[name] = next((line for line in header if line.startswith("Version:")), "")
        required = (line.partition(":")[2] for line in header if line.startswith("Requires-Dist:"))
        waiting += [_NAME.findall(it)[0] for it in required if "extra ==" not in it]
    return tuple(sorted(f"{name} {version}" for name, version in found.items()))
