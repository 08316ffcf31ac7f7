"""A real browser for the tests of pages: which there is, and how it is run without a screen and without a network."""

from __future__ import annotations

import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
NO_BROWSER = f"needs a browser: none of {', '.join(NAMES)} is on the PATH"


def command(profile: Path, known_hosts: str, *more: str) -> list[str]:
    """Runs it with a profile of its own; it finds the named hosts and no others."""
    assert BROWSER is not None
    return [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        f"--user-data-dir={profile}", f"--host-resolver-rules=MAP * ~NOTFOUND{known_hosts}", "--window-size=1400,1000",
        *more,
    ]  # fmt: skip
