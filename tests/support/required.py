"""What a test needs of the machine: where it is missing, the test is skipped, or fails if all is
required.
"""

from __future__ import annotations

import os

import pytest

#: Set to `all`, it turns every such skip into a failure.
VARIABLE = "IMGEDIT_TEST_REQUIRE"


def require(present: object, missing: str) -> None:
    """Skip the calling test, naming what is `missing`, unless it is present."""
    if present:
        return
    if os.environ.get(VARIABLE) == "all":
        pytest.fail(f"missing on this machine: {missing} ({VARIABLE}=all)", pytrace=False)
    pytest.skip(f"missing on this machine: {missing}")
