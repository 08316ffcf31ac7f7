"""The versions of installed libraries, and of all that they stand on."""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import re
import sys
from typing import NamedTuple

from partax._families.installed import real_path
from partax._store import UnstoredError

_NAME = re.compile(r"[\w.-]+")


class _Installed(NamedTuple):
    version: str  # and a digest of what was installed
    directory: str
    required: tuple[str, ...]  # the names of others


def versions(library: str) -> tuple[str, ...]:
    """Names with versions and a digest of what was installed: of an imported library, and all that it requires. Raise
    if it has none, may change in place, or is not what is imported.
    """
    version_by_name: dict[str, str] = {}
    waiting = [_distribution_of(library)]
    directory = _installed(waiting[0]).directory
    file = getattr(sys.modules.get(library), "__file__", None)  # None of one that several distributions share
    if not isinstance(file, str) or not str(real_path(file)).startswith(directory):
        raise UnstoredError(f"something of `{library}`, whose imported copy is not the installed one")
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in version_by_name or name == "partax":  # whose files are read
            continue
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # for another system, or another Python
            version_by_name[name], _, required = _installed(name)
            waiting += required
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
def _installed(name: str) -> _Installed:
    distribution = importlib.metadata.distribution(name)
    origin = distribution.read_text("direct_url.json") or "{}"
    if json.loads(origin).get("dir_info", {}).get("editable", False):
        raise UnstoredError(f"something of `{name}`, which is installed in place and may change")
    record = (distribution.read_text("RECORD") or "").splitlines()
    # Without what differs wherever it is installed.
    files = sorted(line for line in record if not (".dist-info/" in line or ".pyc," in line or "../" in line))
    # Its long description is not read, which takes ten times as long.
    header = (distribution.read_text("METADATA") or "").partition("\n\n")[0].splitlines()
    version = next((line for line in header if line.startswith("Version:")), "")
    digest = hashlib.blake2b("\n".join((origin, *files)).encode(), digest_size=20).hexdigest()
    required = (line.partition(":")[2] for line in header if line.startswith("Requires-Dist:"))
    names = tuple(_NAME.findall(line)[0] for line in required if "extra ==" not in line)
    return _Installed(f"{version} {digest}", real_path(str(distribution.locate_file(""))), names)
