"""What an object store's answers mean, as errors of ours.

Texts of answers may name keys of access, so only the server's own code and status are taken from them.
"""

from __future__ import annotations

import re

from headrace.errors import StoreRefused, StoreUnavailable
from headrace.store.location import ObjectPath

__all__ = ["named"]

_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_MISSING = re.compile(r"Missing(\w+)")
_ABSENT = (None, "NoSuchKey")
"""The codes of a file that is not there; the answer to a question for its head has none."""


def named(error: Exception, path: ObjectPath) -> OSError | StoreRefused | StoreUnavailable:
    """Return what an error of the client means.

    Args:
        error: that it threw.
        path: that was asked for.
    """
    text, place = str(error), path.bucket.place
    code = found[1] if (found := _CODE.search(text)) else None
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    if isinstance(error, FileNotFoundError) and code in _ABSENT:
        return FileNotFoundError(path.name)
    if status == 412:
        return FileExistsError(path.name)
    if code == "NoSuchBucket":
        return StoreRefused(
            f"There is no bucket {place}.",
            next_step="make the bucket, or correct target.path and target.store.endpoint.",
        )
    if status in (501, 405) or code == "NotImplemented":
        return StoreRefused(
            f"The server of the bucket {place} does not know a request that headrace needs ({code or status}).",
            next_step="use a server that honours If-None-Match: * when it puts an object.",
        )
    # 409 is said while another write of the name is under way: which of them will be there is not known yet.
    if 300 <= status < 500 and status not in (408, 409, 429):
        return StoreRefused(
            f"The server of the bucket {place} refuses us ({code or status}).",
            next_step="correct the credentials and the region in target.store, and the rights that they give.",
        )
    if missing := _MISSING.search(text):
        return StoreRefused(
            f"The settings of the bucket {place} are incomplete ({missing[1]}).",
            next_step="give target.store an access_key_id and a secret_access_key, or neither.",
        )
    return StoreUnavailable(
        f"The server of the bucket {place} gave no answer that can be used ({code or status or 'no connection'}).",
        next_step="check that the endpoint is right, that it runs, and that this machine reaches it; tried again.",
    )
