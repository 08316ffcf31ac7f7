"""Guards the promise that a page which shows a wrong output fails: what runs the blocks sees each kind of mistake."""

from __future__ import annotations

from typing import Any

import pytest
from shown_code import run_blocks

RIGHT = """
```python
x = [1, 2]
[x[0],
 x[1]]  # -> [1, 2]
len(x)  # -> 2
print("a", x)  # -> a [1, ...]
y = 3  # a comment -> of no weight
```

```text
a [1, 2]
```

```sh
not python
```

```python
>>> x[0] + y
4
>>> z = object()
>>> z
<object object at 0x...>
```

```python
assert z is not None
```
"""


def test_right_output_passes_and_names_live_on(names: dict[str, Any]) -> None:
    assert run_blocks(RIGHT, names, "page.md") == 3
    assert names["y"] == 3


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("# -> 2\n", "# -> 3\n"),
        ("# -> [1, 2]", "# -> [1, 3]"),
        ("# -> a [1, ...]", "# -> b [...]"),
        ("a [1, 2]\n```", "a [1, 3]\n```"),
        ("]\n```\n\n```sh", "]\nmore\n```\n\n```sh"),
        (">>> x[0] + y\n4", ">>> x[0] + y\n5"),
        ("assert z is not None", "assert z is None"),
    ],
)
def test_wrong_output_is_caught(names: dict[str, Any], right: str, wrong: str) -> None:
    assert right in RIGHT
    with pytest.raises(AssertionError):
        run_blocks(RIGHT.replace(right, wrong), names, "page.md")


def test_an_error_points_at_the_line_of_the_page(names: dict[str, Any]) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_blocks("text\n\n```python\nx = 1\n\nx / 0\n```\n", names, "page.md")
    assert (caught.traceback[-1].lineno, str(caught.traceback[-1].path)[-7:]) == (5, "page.md")
