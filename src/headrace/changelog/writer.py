"""The one writer of a change log.

In: blocks in commit order. Out: segment files, and a tail that tells readers what is durable. The order is: `append`
(bytes written), `sync` (bytes durable, then the tail published, then readers see them), and only after that may the
caller acknowledge anything to the source. Used from one thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType

from headrace.changelog.active import ActiveSegment, Sync, Write
from headrace.changelog.chain import Link
from headrace.changelog.config import ChangeLogSettings
from headrace.changelog.identity import identify
from headrace.changelog.jobs import job_file, jobs
from headrace.changelog.lock import take_lock
from headrace.changelog.order import check_follows, split_open
from headrace.changelog.progress import Progress
from headrace.changelog.recovery import recover
from headrace.changelog.refusals import write_refusals
from headrace.changelog.retention import Sealed, droppable
from headrace.changelog.segment import (
    NO_SEGMENT,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    SegmentName,
    list_segments,
)
from headrace.changelog.tail import Tail, TailFile, TailRecord, TailView
from headrace.durable import make_folder
from headrace.errors import (
    ChangeLogError,
    CorruptSegment,
    DiskBudgetReached,
)
from headrace.model.block import Block
from headrace.observe.failpoints import failpoint
from headrace.wire.block import (
    BlockHeader,
    Readable,
    decode_block,
    encode_under_header,
    join_indexes,
    read_header,
    read_index,
)

__all__ = ["ChangeLogWriter"]


@dataclass(frozen=True, slots=True)
class _Syncing:
    """A sync under way, and what readers may see after it."""

    done: Future[None]
    active: ActiveSegment
    link: Link
    progress: Progress


class ChangeLogWriter:
    """Appends blocks. Open it with `open`; every later opener of the folder makes this one refuse to write.

    Attributes:
        generation: the fencing number; rises with each opening of the folder.
    """

    def __init__(
        self,
        folder: Path,
        settings: ChangeLogSettings,
        lock: int,
        sync: Sync,
        write: Write,
        clock: Callable[[], float],
        written_at: Mapping[SegmentName, float],
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._lock = lock
        self._sync = sync
        self._write = write
        self._clock = clock
        self._broken: str = ""
        self._active: ActiveSegment | None = None
        self._syncing: _Syncing | None = None
        self._beside = ThreadPoolExecutor(1, "change-log-sync")
        before = _last_record(folder)
        newest = max((name.generation for name in list_segments(folder)), default=0)
        self.generation = max(before.generation, newest) + 1
        # Whoever wrote before is shut out first, and only then is its work read: bytes it writes later do
        # not count, and what it was told is durable is read here.
        self._tail = TailFile(folder, replace(before, generation=self.generation))
        found = recover(folder, before, sync)
        self._links = found.links
        self._written_at = {
            link.name: written_at.get(link.name, clock() - self._age_s(link))
            for link in self._links
        }
        self._progress = found.progress
        identify(folder, begins=not self._links and not self._progress.last_scn)
        self._publish(self._links[-1] if self._links else None, self._progress)
        self._tail.flush()
        self._remove_leftovers()

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: ChangeLogSettings | None = None,
        *,
        sync: Sync = os.fdatasync,
        write: Write = os.pwrite,
        clock: Callable[[], float] = time.monotonic,
    ) -> ChangeLogWriter:
        """Take over the log in ``folder``, or begin one; torn and unfinished ends are cut off.

        Args:
            folder: made when it does not exist.
            settings: sizes and ages.
            sync: makes the bytes of a descriptor durable; a test may leave that out.
            write: writes bytes at an offset; a test may refuse.
            clock: seconds that pass, whatever the time of day is set to.

        Raises:
            LeaseLost: another process writes this log.
            CorruptSegment: damage before the durable end.
            ChangeLogLost: segments are gone that the tail names.
            DiskFull: when there is no room even to begin.
        """
        settings = settings or ChangeLogSettings()
        settings.validate()
        return cls._taken_over(folder, settings, -1, sync, write, clock, {})

    @classmethod
    def _taken_over(
        cls,
        folder: Path,
        settings: ChangeLogSettings,
        lock: int,
        sync: Sync,
        write: Write,
        clock: Callable[[], float],
        written_at: Mapping[SegmentName, float],
    ) -> ChangeLogWriter:
        """Return a writer that holds ``lock``, taken now when it is negative, and knows the age of some segments."""
        with write_refusals(f"Change log {folder}"):
            make_folder(folder)
            held = take_lock(folder) if lock < 0 else lock
            try:
                return cls(folder, settings, held, sync, write, clock, written_at)
            except BaseException:
                os.close(held)
                raise

    @property
    def tail(self) -> Tail:
        """What is durable, and what readers see."""
        return self._tail.record.tail

    @property
    def appended(self) -> Tail:
        """What will be durable after the next `sync`."""
        return _tail(self.tail.oldest_scn, self._progress)

    @property
    def durable(self) -> tuple[Path | None, int]:
        """Newest segment with durable blocks and how many of its bytes are durable."""
        record = self._tail.record
        path = None if record.segment == NO_SEGMENT else self._folder / str(record.segment)
        return path, record.length

    @property
    def used_bytes(self) -> int:
        """Bytes of all segments, as the disk budget counts them."""
        return sum(link.length for link in self._links)

    def append(self, block: Block) -> None:
        """Write a block behind the others; nobody sees it before `sync`.

        After an error nothing of the block is in the log, and the same block may be appended again.

        Raises:
            ProtocolError: the block does not follow what was appended before.
            DiskBudgetReached: there is no room before a job has applied more.
            DiskFull: the file system has no room.
            LeaseLost: another writer has taken over.
            ChangeLogLost: the folder was removed.
        """
        self._check()
        check_follows(block, self._progress, self._folder)
        self._append([encode_under_header(piece) for piece in split_open(block)])

    def append_stored(self, data: Readable) -> None:
        """Write a block as another log of the source stores it, byte by byte; else as `append`.

        Args:
            data: one block, whose checksums have been checked.

        Raises:
            HeadraceError: as `append`.
        """
        self._check()
        header = read_header(data)
        shape = Block(join_indexes([read_index(data, header)]), (), (), header.covered_scn)
        check_follows(shape, self._progress, self._folder)
        if len(split_open(shape)) == 1:
            self._append([(header, [data])])
        else:
            self._append([encode_under_header(piece) for piece in split_open(decode_block(data))])

    def begin_at(self, scn: int, commit_us: int) -> None:
        """Begin an empty log behind an SCN, as if everything up to there had been dropped; durable when it returns.

        Args:
            scn: becomes the oldest SCN that the log serves.
            commit_us: no transaction up to there committed later, microseconds since 1970 UTC.

        Raises:
            ValueError: the log holds something.
            DiskFull: or another `ChangeLogError`: it cannot be written.
        """
        self._check()
        if self._links or self._progress.last_scn:
            raise ValueError("only an empty log begins anew")
        self._progress = Progress(scn, scn, scn, commit_us)
        self._segment_for(0)
        self.sync()

    def begin_sync(self) -> None:
        """Let what is appended become durable on a thread of the log's own; readers see it after the next `sync`.

        Raises:
            DiskFull: or another `ChangeLogError`: a sync before this one failed; the log must be opened again.
            LeaseLost: another writer had taken over when the sync before this one ended.
            ChangeLogLost: the folder was removed then.
        """
        active = self._unsynced()
        if active is not None:
            failpoint("log.before_sync")
            done = self._beside.submit(active.sync, self._sync)
            self._syncing = _Syncing(done, active, self._links[-1], self._progress)

    def sync(self) -> Tail:
        """Make everything appended durable, show it to readers, and return the new tail.

        Raises:
            DiskFull: or another `ChangeLogError`; the log must then be opened again.
            LeaseLost: another writer has taken over; nothing may be acknowledged.
            ChangeLogLost: the folder was removed.
        """
        active = self._unsynced()
        if active is not None:
            failpoint("log.before_sync")
            self._synced(active, partial(active.sync, self._sync))
            failpoint("log.after_sync")
            # Had somebody taken over before the bytes were written, they would not be in its log.
            self._tail.check()
            self._publish(self._links[-1], self._progress)
        return self.tail

    def keep(self, retain_bytes: int, retain_s: float) -> None:
        """Retain so many bytes, and for so long, for late readers from now on."""
        self._settings = replace(self._settings, retain_bytes=retain_bytes, retain_s=retain_s)

    def retain(self) -> int:
        """Drop old segments that nobody needs and return how many.

        Raises:
            DiskBudgetReached: the log is larger than its budget and nothing more may go.
            StateError: a job's position cannot be read.
        """
        self._check()
        return self._drop(0) + self._make_room(0)

    def close(self) -> None:
        """Release the log. What was not synced may or may not be found by the next writer."""
        lock = self._let_go()
        if lock >= 0:
            os.close(lock)

    def reopened(self) -> ChangeLogWriter:
        """Return a writer that has opened the log as after a crash; this one is closed.

        The lock changes hands: nobody else can write in between, and a child process that has just been forked and
        still holds a copy of it does no harm.

        Raises:
            LeaseLost: another writer has taken over.
            ChangeLogError: as `open`; the log is then closed, and may be opened again in the same way.
        """
        if self._lock >= 0:
            # Where the lock was lost unnoticed, the generation tells; it must not be outbid.
            self._tail.check()
        lock = self._let_go()
        return self._taken_over(
            self._folder,
            self._settings,
            lock,
            self._sync,
            self._write,
            self._clock,
            self._written_at,
        )

    def _let_go(self) -> int:
        """Close everything but the lock and return it, negative when it was closed before."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            self._beside.shutdown()
            if self._active is not None:
                self._active.close()
                self._active = None
            self._tail.flush()
            self._tail.close()
        return lock

    def __enter__(self) -> ChangeLogWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self) -> None:
        """Refuse to go on after a failed sync, and when somebody else writes."""
        self._check_open()
        self._tail.check()

    def _check_open(self) -> None:
        """Refuse to go on after a failed sync."""
        if self._lock < 0:
            raise ValueError("the change log is closed")
        if self._broken:
            raise ChangeLogError(
                f"The change log {self._folder} stopped at a failed sync: {self._broken}",
                next_step="open it again; the source sends what was not acknowledged once more.",
            )

    def _append(self, pieces: Sequence[tuple[BlockHeader, Sequence[Readable]]]) -> None:
        """Write blocks, each with its header and in parts."""
        parts = [part for _, piece in pieces for part in piece]
        size = sum(len(part) for part in parts)
        self._make_room(size)
        active = self._segment_for(size)
        with write_refusals(f"Segment {active.header.name} of the change log"):
            active.append(parts)
        for header, _ in pieces:
            self._progress = self._progress.then(header)
        self._links[-1] = Link(active.header, active.length)
        self._written_at[active.header.name] = self._clock()

    def _make_room(self, size: int) -> int:
        """Drop what may go when the budget would be passed; refuse when that is not enough."""
        if self._fits(size):
            return 0
        dropped = self._drop(size)
        if not self._fits(size) and self._is_all_applied():
            # The segment that grows never goes, and one block may have made it as large as the budget.
            self._begin_segment(size)
            self.sync()
            dropped += self._drop(size)
        if not self._fits(size):
            raise self._budget_reached(size)
        return dropped

    def _fits(self, size: int) -> bool:
        return self.used_bytes + size <= self._settings.budget_bytes

    def _is_all_applied(self) -> bool:
        """Whether the log holds something, and nobody needs any of it."""
        holds = bool(self._links) and self._links[-1].length > SEGMENT_HEADER_BYTES
        return holds and self._applied_scn() >= self._progress.last_scn

    def _applied_scn(self) -> int:
        # An open transaction has been applied by nobody, whatever the jobs say.
        return min([self.tail.complete_scn, *jobs(self._folder).values()])

    def _segment_for(self, size: int) -> ActiveSegment:
        """Return the segment to write to, a new one when the old one is full."""
        active = self._active
        # Also one that is empty may be too small: readers have mapped it as it was made.
        if active is not None and active.length + size <= active.size:
            return active
        return self._begin_segment(size)

    def _begin_segment(self, size: int) -> ActiveSegment:
        """Return a new segment with room for at least ``size`` bytes; the one before it will not grow."""
        active = self._active
        if active is not None:
            self._settle()
            # A segment counts as whole for ever once another one follows.
            self._synced(active, partial(active.sync, self._sync))
        with write_refusals(f"A new segment of the change log {self._folder}"):
            fresh = ActiveSegment(
                self._folder,
                self._next_header(),
                max(self._settings.roll_bytes, SEGMENT_HEADER_BYTES + size),
                self._write,
            )
        # First of all: from here on a start takes it for the newest, and what came behind the one before would be lost.
        self._active = fresh
        self._links.append(Link(fresh.header, fresh.length))
        if active is not None:
            with write_refusals(f"Segment {active.header.name} of the change log"):
                active.close()
        return fresh

    def _next_header(self) -> SegmentHeader:
        last = self._links[-1] if self._links else None
        known = [last.name.number if last else 0, self._tail.record.segment.number, self._highest]
        at = self._progress
        return SegmentHeader(
            SegmentName(self.generation, max(known) + 1),
            last.name if last else NO_SEGMENT,
            last.length if last else 0,
            at.last_scn,
            at.complete_scn,
            at.covered_scn,
            at.commit_us,
            time.time_ns() // 1000,
        )

    def _unsynced(self) -> ActiveSegment | None:
        """Settle what was begun, and return the segment whose end no sync has covered yet, if there is one.

        Where there is one, `TailFile.check` is for after its sync: only then does the answer count.
        """
        self._check_open()
        self._settle()
        if self._active is None or self._is_published(self._links[-1]):
            self._tail.check()
            return None
        return self._active

    def _settle(self) -> None:
        """Wait for a sync that was begun, and show readers what it made durable."""
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            self._synced(syncing.active, syncing.done.result)
            failpoint("log.after_sync")
            self._tail.check()
            self._publish(syncing.link, syncing.progress)

    def _synced(self, active: ActiveSegment, sync: Callable[[], None]) -> None:
        try:
            with write_refusals(f"Segment {active.header.name} of the change log"):
                sync()
        except ChangeLogError as error:
            # What the kernel has dropped cannot be synced again: only a new opening knows what is there.
            self._broken = error.message
            raise

    def _is_published(self, link: Link) -> bool:
        return (link.name, link.length) == (self._tail.record.segment, self._tail.record.length)

    def _publish(self, last: Link | None, progress: Progress) -> None:
        """Show readers the log up to the end of ``last``, which is durable."""
        oldest = self._links[0].header if self._links else None
        self._tail.publish(
            TailRecord(
                self.generation,
                0,
                last.name if last else NO_SEGMENT,
                last.length if last else 0,
                oldest.name.number if oldest else 0,
                _tail(oldest.base_scn if oldest else 0, progress),
            )
        )

    def _drop(self, room: int) -> int:
        """Drop what `droppable` allows and return the number of segments."""
        record = self._tail.record
        names = [link.name for link in self._links]
        whole = names.index(record.segment) if record.segment in names else 0
        now = self._clock()
        sealed = [
            Sealed(link.length, after.header.base_scn, now - self._written_at[link.name])
            for link, after in zip(self._links[:whole], self._links[1 : whole + 1], strict=True)
        ]
        count = droppable(sealed, self.used_bytes, self._applied_scn(), self._settings, room)
        if not count:
            return 0
        gone, self._links = self._links[:count], self._links[count:]
        oldest = self._links[0].header
        tail = replace(record.tail, oldest_scn=oldest.base_scn)
        # Readers are told first, and the disk too: a tail on disk never names a segment that is gone.
        self._tail.publish(replace(record, first_number=oldest.name.number, tail=tail))
        self._tail.flush()
        for link in gone:
            (self._folder / str(link.name)).unlink(missing_ok=True)
            del self._written_at[link.name]
        return count

    def _budget_reached(self, size: int) -> DiskBudgetReached:
        behind = min(jobs(self._folder).items(), key=lambda job: job[1], default=None)
        waits, gone = "no job is registered", ""
        if behind is not None:
            waits = f"job {behind[0]} has applied SCN {behind[1]}"
            # One of a replicator that was renamed holds the log for nobody.
            gone = (
                f"; where there is no such job any more, delete {job_file(self._folder, behind[0])}"
            )
        return DiskBudgetReached(
            f"The change log {self._folder} holds {self.used_bytes} bytes and may hold "
            f"{self._settings.budget_bytes}; {size} more do not fit, and nothing may go: {waits} of "
            f"{self.tail.complete_scn}. Nothing is lost: the source keeps what was not acknowledged.",
            next_step=f"let the job catch up, or raise changelog.budget{gone}.",
        )

    def _remove_leftovers(self) -> None:
        """Delete segments outside the chain and drafts; their numbers are not used again."""
        kept = {link.name for link in self._links}
        names = list_segments(self._folder)
        self._highest = max((name.number for name in names), default=0)
        for name in names:
            if name not in kept:
                (self._folder / str(name)).unlink(missing_ok=True)
        for draft in self._folder.glob("*.tmp"):
            draft.unlink(missing_ok=True)

    def _age_s(self, link: Link) -> float:
        """Return how old what an earlier writer left is, as the file system says; nothing is younger than new."""
        return max(0.0, time.time() - (self._folder / str(link.name)).stat().st_mtime)


def _tail(oldest_scn: int, progress: Progress) -> Tail:
    return Tail(oldest_scn, progress.complete_scn, progress.covered_scn, progress.commit_us)


def _last_record(folder: Path) -> TailRecord:
    """Return the last published tail; an empty one when it never was or is damaged."""
    try:
        return TailView(folder).read() or TailRecord()
    except CorruptSegment:
        return TailRecord()
