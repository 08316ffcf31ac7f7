"""Guards the promise that the stories of the user guide run and print the reports that they are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import python

pytestmark = pytest.mark.nightly

STORIES = Path(__file__).parents[1] / "bench" / "stories"
TOLD = {
    "slow_first_call": [
        "as its user wrote it",
        "repeat at slow_first_call.py",
        "retrace at slow_first_call.py",
        "nothing found",
        "at full size (54203 x 8563)",
    ],
    "recreated_callables": ["closure cell 'slope' 0.1 -> 0.2", "3 traces in 3 calls", "1 traces in 3 calls"],
    "from_python_to_jit": ["sigma: weak float32 -> static float 0.1", "python_walk (", "selu ("],
}


@pytest.mark.parametrize("story", sorted(path.stem for path in STORIES.glob("*.py")))
def test_a_story_runs(story: str) -> None:
    done = python(str(STORIES / f"{story}.py"), "--quick")
    for text in TOLD[story]:
        assert text in done.stdout + done.stderr
