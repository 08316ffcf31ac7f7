"""What writes a report as a page: a function of the doctor's package, which stands after this one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

writer: Callable[[str | Path, Any], None]  # partax._doctor.install sets it, when partax is imported
