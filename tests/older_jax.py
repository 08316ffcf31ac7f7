"""What jax before 0.10 does otherwise, so that tests of it are left out there."""

import jax
import pytest

IS_OLDER = jax.__version_info__ < (0, 10)


def not_on_older_jax(what_it_does: str) -> pytest.MarkDecorator:
    """Leaves a test out on jax before 0.10, which does this."""
    return pytest.mark.skipif(IS_OLDER, reason=f"jax before 0.10 {what_it_does}")
