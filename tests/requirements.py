"""The mark that ties a test to the requirements it proves: ``@req("P35", "N16")``.

Ids are those of docs/requirements.md; a test that names another one stops the run.
"""

from __future__ import annotations

import pytest

__all__ = ["req"]

req = pytest.mark.req
