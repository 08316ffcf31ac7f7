"""A Python of its own, which finds the same partax and is on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import partax

PACKAGE = Path(partax.__file__).parents[1]


def python(
    *arguments: str, cwd: Path | None = None, code: int | None = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs it to its end, where it must have that exit code; with None it may have any."""
    path = os.pathsep.join([str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done
