"""The versions of installed libraries, and of all that they stand on."""

import functools
import hashlib
import importlib.metadata
import json
import re
import sys
from typing import NamedTuple

from partax._functions.installed import is_installed, real_path
from partax._store import UnstoredError

_NAME = re.compile(r"[\w.-]+")
_MODULE = re.compile(r"((\w+)(?:/__init__)?(?:\.[\w-]+)*\.(?:py|so|pyd)),")  # of RECORD, in the folder of all


class _Installed(NamedTuple):
    """A distribution."""

    version: str  # and a digest of what was installed
    modules: dict[str, str] | None  # and packages, each with its file; None where the system keeps no list of them
    required: tuple[str, ...]  # the names of others


def versions(library: str) -> tuple[str, ...]:
    """Of the library of a package that is imported, and of each that it requires, and so on: names with their versions
    and a digest of what was installed. Raises where one has none, may change in place, or is not what is imported.
    """
    version_by_name: dict[str, str] = {}
    waiting, modules_seen = [_distribution_of(library)], set[str]()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        installed = None if name in version_by_name else _installed(name)
        if installed is None or name == "partax":  # whose files are read
            continue
        modules = installed.modules
        if modules is None:
            modules = {} if version_by_name else {library: ""}
        _check_modules(modules)
        modules_seen |= modules.keys()
        version_by_name[name] = installed.version
        waiting += installed.required
    if library not in modules_seen:  # a folder that several distributions share
        raise UnstoredError(f"something of `{library}`, which is not a package of one distribution")
    return tuple(sorted(f"{name} {version}" for name, version in version_by_name.items()))


@functools.cache
def _distribution_of(library: str) -> str:
    try:
        importlib.metadata.distribution(library)
    except importlib.metadata.PackageNotFoundError:
        distributions = importlib.metadata.packages_distributions().get(library)
        if not distributions:
            raise UnstoredError(f"something of `{library}`, whose version is unknown") from None
        return distributions[0]
    return library


@functools.cache  # one that is installed again meanwhile is not what the process has imported
def _installed(name: str) -> _Installed | None:
    """A distribution by its name; None where it is for another system, or another Python."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    origin = distribution.read_text("direct_url.json") or "{}"
    if json.loads(origin).get("dir_info", {}).get("editable", False) and name != "partax":
        raise UnstoredError(f"something of `{name}`, which is installed in place and may change")
    record = (distribution.read_text("RECORD") or "").splitlines()
    # Not what is another wherever it is installed.
    files = [line for line in record if not (".dist-info/" in line or ".pyc," in line or "../" in line)]
    matches = (_MODULE.match(line) for line in files if "/" not in line or "/__init__." in line)
    modules = {match[2]: str(distribution.locate_file(match[1])) for match in matches if match is not None}
    # Its long description is not read, which takes ten times as long.
    header = (distribution.read_text("METADATA") or "").partition("\n\n")[0].splitlines()
    version = next((line for line in header if line.startswith("Version:")), "")
    digest = hashlib.blake2b("\n".join((origin, *sorted(files))).encode(), digest_size=20).hexdigest()
    required = (line.partition(":")[2] for line in header if line.startswith("Requires-Dist:"))
    names = tuple(_NAME.findall(line)[0] for line in required if "extra ==" not in line)
    return _Installed(f"{version} {digest}", modules if record else None, names)


def _check_modules(modules: dict[str, str]) -> None:
    """Raises where a module is imported by the name of one of a distribution's, but is another: a copy, a namesake."""
    for name, file in modules.items():
        module = sys.modules.get(name)
        if module is None:
            continue
        where = getattr(module, "__file__", None)
        is_own = isinstance(where, str) and real_path(where) == real_path(file)
        if not (is_own if file else is_installed(name)):
            raise UnstoredError(f"something of `{name}`, of which another is imported than the one that is installed")
