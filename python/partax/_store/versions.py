"""The versions of installed libraries, and of all that they stand on."""

import functools
import hashlib
import importlib.metadata
import json
import os
import re
import sys
from importlib.metadata import Distribution

from partax._guards.installed import is_installed

_NAME = re.compile(r"[\w.-]+")
# Of RECORD: the modules and packages that lie in the folder of all; what is not the same wherever it is installed.
_MODULE = re.compile(r"^((\w+)(?:/__init__)?(?:\.[\w-]+)*\.(?:py|so|pyd)),", re.MULTILINE)
_OF_INSTALLERS = ("../", ".dist-info/", ".pyc,")


class UnversionedError(Exception):
    """Which library nobody knows the version of."""


@functools.cache  # one that is installed anew meanwhile is not what the process has imported
def versions(library: str) -> tuple[str, ...]:
    """The version and the files of a library and of each that it requires, and so on.

    Args:
      library: the name of a package that is imported.

    Returns:
      Names with their versions and a digest of what was installed, in their order.

    Raises:
      UnversionedError: the library has no distribution, one of them is installed in place and may change, or what is
        imported is none of its files.
    """
    found: dict[str, str] = {}
    waiting, known = [library], set[str]()
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
        origin = distribution.read_text("direct_url.json") or "{}"
        if json.loads(origin).get("dir_info", {}).get("editable", False):
            if name != "partax":  # whose files are read
                raise UnversionedError(f"`{name}`, which is installed in place and may change")
            continue
        record = distribution.read_text("RECORD") or ""
        modules = {module: file for file, module in _MODULE.findall(record)}
        if not record and not found:  # some systems keep none
            modules = {library: ""}
        _check_modules(distribution, modules)
        known |= modules.keys()
        # Its long description is not read, which takes ten times as long.
        header = (distribution.read_text("METADATA") or "").partition("\n\n")[0].splitlines()
        version = next((line for line in header if line.startswith("Version:")), "")
        files = sorted(it for it in record.splitlines() if not any(map(it.__contains__, _OF_INSTALLERS)))
        digest = hashlib.sha256("\n".join((origin, *files)).encode()).hexdigest()
        found[name] = f"{version} {digest}"
        required = (line.partition(":")[2] for line in header if line.startswith("Requires-Dist:"))
        waiting += [_NAME.findall(it)[0] for it in required if "extra ==" not in it]
    if library not in known:  # a folder that several distributions share
        raise UnversionedError(f"`{library}`, which is no package of one distribution")
    return tuple(sorted(f"{name} {version}" for name, version in found.items()))


def _check_modules(distribution: Distribution, files: dict[str, str]) -> None:
    """Raises where a module is imported by the name of one of a distribution's, but is another: a copy, a namesake."""
    for name, file in files.items():
        module = sys.modules.get(name)
        if module is None:
            continue
        where, installed = getattr(module, "__file__", None), str(distribution.locate_file(file))
        is_own = isinstance(where, str) and os.path.realpath(where) == os.path.realpath(installed)
        if not (is_own if file else is_installed(name)):
            raise UnversionedError(f"`{name}`, of which another is imported than the one that is installed")
