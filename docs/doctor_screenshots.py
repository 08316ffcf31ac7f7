"""Makes the picture in docs/images: the doctor's page of a program, as a browser shows it.

.venv/bin/python docs/doctor_screenshots.py    # needs partax[doctor] and chromium
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax

import partax

IMAGES = Path(__file__).parent / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MOST_BYTES = 200_000


# ---- A train step whose layers are written as a Python loop.


def block(w: Any, x: Any) -> Any:
    normal = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-6)
    return x + jax.nn.gelu(normal @ w["up"]) @ w["down"]


def loss(blocks: Any, x: Any, y: Any) -> Any:
    for w in blocks:
        x = block(w, x)
    return ((x - y) ** 2).mean()


@partax.filter_jit
def train_step(blocks: Any, x: Any, y: Any) -> Any:
    value, gradients = jax.value_and_grad(loss)(blocks, x, y)
    return jax.tree.map(lambda w, g: w - 1e-3 * g, blocks, gradients), value


def slow_to_compile() -> partax.Diagnosis:
    up, down = jax.ShapeDtypeStruct((512, 2048), "float32"), jax.ShapeDtypeStruct((2048, 512), "float32")
    batch = jax.ShapeDtypeStruct((256, 512), "float32")
    return partax.doctor(train_step, [{"up": up, "down": down} for _ in range(24)], batch, batch)


# ----


def screenshot(browser: str, page: Path, image: Path, height: int) -> None:
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-lcd-text",
        "--blink-settings=preferredColorScheme=1", f"--window-size=1100,{height}",
        f"--user-data-dir={page.parent / 'profile'}", f"--screenshot={image}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    size = image.stat().st_size
    print(f"{image}: {size:,} bytes")
    if size > MOST_BYTES:
        sys.exit(f"{image} has {size:,} bytes, at most {MOST_BYTES:,} are allowed: take a smaller height")


def main() -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"found none of {', '.join(BROWSERS)} on the PATH: install chromium")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "compile.html"
        found = slow_to_compile()
        print(found)
        found.html(page)
        screenshot(browser, page, IMAGES / "doctor_compile.png", height=1250)


if __name__ == "__main__":
    main()
