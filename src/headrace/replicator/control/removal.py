"""What a replicator leaves behind when it is deleted: at the source, at the target, in its own folder.

In: its configuration. Out: nothing of it left, as far as it is the replicator's own and its tables are not to stay.
Each part may be done again after a crash: what is gone already is passed over.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from headrace.observe.failpoints import failpoint
from headrace.replicator import runner
from headrace.replicator.config import Config
from headrace.replicator.control.folders import ReplicatorFolder

__all__ = ["remove"]


def remove(
    folder: ReplicatorFolder,
    config: Config | None,
    *,
    drop_target: bool,
    leave_source: bool,
    check: Callable[[], None],
) -> None:
    """Remove what belongs to a replicator whose processes have ended.

    Args:
        folder: of it.
        config: with its secrets in their places; None where only the folder can be removed.
        drop_target: whether its tables go too.
        leave_source: whether slot and publication may stay.
        check: called ahead of each part, as the one before may take long; what it raises ends the work there: another
            one of the same name may stand at source and target by then.

    Raises:
        HeadraceError: source or target cannot be reached, or refuses; what was removed by then is gone.
    """
    if config is not None and not leave_source:
        check()
        runner.release_source(config)
        failpoint("control.source_released")
    if config is not None and drop_target:
        check()
        runner.drop_target(config)
        failpoint("control.target_dropped")
    check()
    if folder.root.exists():
        shutil.rmtree(folder.root)
    failpoint("control.folder_removed")
    _prune(folder.root.parent)


def _prune(name: Path) -> None:
    """Remove the folders of a name and its namespace when nothing is left in them."""
    with contextlib.suppress(OSError):
        name.rmdir()
        name.parent.rmdir()
