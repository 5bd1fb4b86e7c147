"""Every error that headrace raises on purpose, in one tree.

    HeadraceError
    ├── ConfigError                  the person who wrote the file must act
    │   ├── MadeOtherwise            a target table that was made in another way than the file asks for
    │   ├── UnfitSettings            column settings of one table that its columns do not fit
    │   └── UnknownTable             somebody asks about a table that the source or the replicator does not have
    ├── SourceError
    │   ├── SourceUnavailable        the server is gone or refuses us; tried again
    │   ├── PreflightFailed          the server or a table cannot be captured as it is
    │   ├── SlotLost                 the log below our position no longer exists
    │   ├── SourceReplaced           the source was restored or promoted, and lacks what was captured
    │   ├── UndecodableValue         a cell that no exact type can hold
    │   ├── DumpUnfit                files of a dump made elsewhere that are not the rows of their table
    │   └── IncompatibleSchemaChange a table changed in a way that cannot be carried over
    ├── ProtocolError                bytes that do not follow the protocol
    ├── WatermarkOutOfOrder          a watermark sequence that Algorithm 1 never produces
    ├── FoldError
    │   ├── MissingBase              a patch without the row it patches
    │   ├── UnsentColumn             a setting needs a column that a change left out
    │   ├── MalformedTransaction     one key, two rows, at the end of one transaction
    │   └── NegativeCount            a keyless row removed more often than it was there
    ├── ChangeLogError
    │   ├── CorruptSegment           bytes on disk fail their checksum
    │   ├── DiskBudgetReached        capture stops reading until consumers catch up
    │   ├── DiskFull                 the file system has no room
    │   ├── ScnNotFound              the position lies outside what the log holds
    │   └── ChangeLogLost            the log that the state points into is gone
    ├── TargetError
    │   ├── TargetUnwritable         the table's folder cannot be written
    │   ├── TargetConflict           somebody else wrote the table
    │   ├── FrontierLost             nothing says how far the tables are, and the log is not whole
    │   ├── TargetBehind             one table is older than what the log still holds
    │   ├── StoreUnavailable         an object store gives no answer; tried again
    │   ├── StoreRefused             an object store wants other settings, or has no such bucket
    │   ├── StoreUnfit               an object store lacks what commits stand on
    │   ├── ApplyInterrupted         Spark ended the work for a reason of its own
    │   ├── UnheldValue              a value that no type of a warehouse's has
    │   ├── UnplacedValue            a value that no partition of a table can have
    │   └── UnsupportedTableFeature  the table needs a reader that we are not
    ├── RelayError
    │   ├── BadRequest               a request that does not read
    │   │   └── BadFilter            its filter does not
    │   ├── NotAllowed               no token, or one whose role does not suffice
    │   ├── NotServed                a relay has no such source, table version or page
    │   ├── BlockTooLarge            the next block is larger than what was asked for
    │   ├── UnsupportedProtocol      the two sides speak no common protocol
    │   ├── RelayUnavailable         a relay gives no answer, or has nothing to serve yet; tried again
    │   ├── FellOffUpstream          a relay's upstream no longer has what the relay needs next
    │   └── ForeignUpstream          a relay's upstream serves another change log
    ├── ControlError
    │   ├── NotFound                 a control plane has no such namespace, draft, replicator or page
    │   ├── CommandRefused           what is asked for does not go with how things stand
    │   ├── RequestTooLarge          a request with more bytes than one may have
    │   ├── TooManyRequests          somebody asks more often than is answered; tried again
    │   ├── TapNotEnabled            a replicator's tap tells nothing
    │   ├── ControlStandby           another control plane is the active one; tried again
    │   └── ControlUnavailable       a control plane gives no answer; tried again
    ├── StateError                   our own small state cannot be read or written
    │   ├── StateBusy                another process holds it for long; tried again
    │   ├── StateFull                its disk has no room; tried again
    │   └── StateNewer               a newer headrace has written it
    ├── RetriesExhausted             what time may heal was tried for as long as it may be
    └── LeaseLost                    another process owns this work now

Each class says who must act through ``retry``; each instance carries a ``next_step`` for a person.
Messages name objects, counts, lengths and positions, never row values and never secrets.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

__all__ = [
    "ApplyInterrupted",
    "BadFilter",
    "BadRequest",
    "BlockTooLarge",
    "ChangeLogError",
    "ChangeLogLost",
    "CommandRefused",
    "ConfigError",
    "ControlError",
    "ControlStandby",
    "ControlUnavailable",
    "CorruptSegment",
    "DiskBudgetReached",
    "DiskFull",
    "DumpUnfit",
    "FellOffUpstream",
    "FoldError",
    "ForeignUpstream",
    "FrontierLost",
    "HeadraceError",
    "IncompatibleSchemaChange",
    "LeaseLost",
    "MadeOtherwise",
    "MalformedTransaction",
    "MissingBase",
    "NegativeCount",
    "NotAllowed",
    "NotFound",
    "NotServed",
    "PreflightFailed",
    "ProtocolError",
    "RelayError",
    "RelayUnavailable",
    "RequestEnded",
    "RequestTooLarge",
    "RetriesExhausted",
    "Retry",
    "ScnNotFound",
    "SlotLost",
    "SourceError",
    "SourceReplaced",
    "SourceUnavailable",
    "StateBusy",
    "StateError",
    "StateFull",
    "StateNewer",
    "StoreRefused",
    "StoreUnavailable",
    "StoreUnfit",
    "TapNotEnabled",
    "TargetBehind",
    "TargetConflict",
    "TargetError",
    "TargetUnwritable",
    "TooManyRequests",
    "UndecodableValue",
    "UnfitSettings",
    "UnheldValue",
    "UnknownTable",
    "UnplacedValue",
    "UnsentColumn",
    "UnsupportedProtocol",
    "UnsupportedTableFeature",
    "WatermarkOutOfOrder",
]


class Retry(Enum):
    """What a supervisor does with an error."""

    TIMED = "timed"
    """Wait, then try again: the world may have changed by itself."""
    MANUAL = "manual"
    """Stop and wait for a person: trying again changes nothing."""
    NEVER = "never"
    """Stop: trying again would be wrong."""


class HeadraceError(Exception):
    """Root of the tree.

    Args:
        message: the object and what happened to it.
        next_step: what a person does now.
    """

    retry: Retry = Retry.MANUAL

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message} Next step: {self.next_step}" if self.next_step else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__.copy())


def _rebuild(cls: type[HeadraceError], message: str, state: dict[str, Any]) -> HeadraceError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class ConfigError(HeadraceError):
    """A configuration that cannot be used; the message names the field."""

    retry = Retry.NEVER


class MadeOtherwise(ConfigError):
    """A target table was made in another way than the file asks for now: its rows would not be those asked for."""

    retry = Retry.MANUAL


class UnfitSettings(ConfigError):
    """What was asked for one table's columns does not fit them: the source changed them, or a name is wrong."""

    retry = Retry.MANUAL


class UnknownTable(ConfigError):
    """Somebody asks about a table that the source or the replicator does not have, or not under this name alone."""


class SourceError(HeadraceError):
    """The source database, or what it sent, stands in the way."""


class SourceUnavailable(SourceError):
    """The source cannot be reached now."""

    retry = Retry.TIMED


class PreflightFailed(SourceError):
    """The source cannot be captured as it is; the message lists every finding."""


class SlotLost(SourceError):
    """The replication slot, or the log it pointed to, no longer exists: RESYNC NEEDED."""


class SourceReplaced(SourceError):
    """The source is not the one that was captured, or went back to an older state: RESYNC NEEDED."""


class UndecodableValue(SourceError):
    """A value that the column's type cannot hold exactly; names table, column and length."""


class DumpUnfit(SourceError):
    """Files of a dump that was made elsewhere cannot be the rows of their table; names table, file and column."""


class IncompatibleSchemaChange(SourceError):
    """A table changed in a way that this pipeline cannot carry over."""


class ProtocolError(HeadraceError):
    """Malformed or unknown bytes from a peer."""


class WatermarkOutOfOrder(HeadraceError):
    """A watermark arrived that the window's state does not allow; names the broken rule."""


class FoldError(HeadraceError):
    """Changes that have no defined effect."""


class MissingBase(FoldError):
    """A change left columns out, and the row that holds them does not exist."""

    def __init__(self, table: str, key: str, columns: list[str]) -> None:
        super().__init__(
            f"{table}: a change of key {key} left out {', '.join(columns)}, and no row holds them.",
            next_step=f"re-read the key from the source: headrace dump start FILE --table {table} --keys …",
        )
        self.table = table
        self.key = key
        self.columns = columns


class UnsentColumn(FoldError):
    """A column setting needs columns of which a change left some out."""

    def __init__(self, table: str, setting: str, columns: list[str]) -> None:
        super().__init__(
            f"{table}: {setting} needs {', '.join(columns)}, which a change left out.",
            next_step=f"ALTER TABLE {table} REPLICA IDENTITY FULL and request a dump of it, or leave the setting out.",
        )
        self.table = table
        self.setting = setting
        self.columns = columns


class MalformedTransaction(FoldError):
    """One transaction leaves one key with more than one row, or removes more than one."""


class NegativeCount(FoldError):
    """A table without a key would hold a row fewer than zero times."""


class ChangeLogError(HeadraceError):
    """The change log on disk stands in the way."""


class CorruptSegment(ChangeLogError):
    """A block before the durable end fails its checksum."""


class DiskBudgetReached(ChangeLogError):
    """The change log is as large as it may be and nothing may be removed yet."""

    retry = Retry.TIMED


class DiskFull(ChangeLogError):
    """The file system refused bytes; nothing was acknowledged to the source."""

    retry = Retry.TIMED


class ScnNotFound(ChangeLogError):
    """A position below the oldest or above the newest that the log can serve."""

    def __init__(self, scn: int, oldest: int, newest: int) -> None:
        super().__init__(
            f"SCN {scn} is not in the change log, which holds {oldest} to {newest}.",
            next_step="start again from a full dump of the tables, or from an SCN inside that range.",
        )
        self.scn = scn
        self.oldest = oldest
        self.newest = newest


class ChangeLogLost(ChangeLogError):
    """The change log is older than, or gone from under, the state that points into it."""


class TargetError(HeadraceError):
    """The target stands in the way."""


class TargetUnwritable(TargetError):
    """The target refused a write."""

    retry = Retry.TIMED


class FrontierLost(TargetError):
    """The frontier manifests are gone, and the change log no longer holds what would bring them back."""


class TargetBehind(TargetError):
    """A target table is older than what the change log still holds, as one from an old backup: changes are missing."""

    def __init__(self, table: str, scn: int, oldest: int) -> None:
        super().__init__(
            f"The target table of {table} is at SCN {scn}, and the change log begins at SCN {oldest} by now: what came "
            "between is not there any more.",
            next_step="put a newer copy of the target table there, or move it away (a warehouse's with its row in "
            f"headrace.ledger): headrace dump start FILE --table {table}.",
        )
        self.scn = scn
        self.oldest = oldest


class TargetConflict(TargetError):
    """Another writer changed the table at the same time."""

    retry = Retry.TIMED


class StoreUnavailable(TargetError):
    """An object store gave no answer; what was asked of it may have been done."""

    retry = Retry.TIMED


class StoreRefused(TargetError):
    """An object store refused credentials, or lacks the bucket."""


class StoreUnfit(TargetError):
    """An object store does not keep the promises that commits stand on."""


class ApplyInterrupted(TargetError):
    """Spark ended the work for a reason of its own; the next start goes on from the ledger."""

    retry = Retry.TIMED


class UnplacedValue(TargetError):
    """A partition column holds a value that the table's format has no text for."""

    def __init__(self, table: str, column: str, what: str) -> None:
        super().__init__(
            f"{table}.{column} holds {what}, for which a table that is partitioned by it has no partition.",
            next_step=(
                "partition by a computed column in its place, such as "
                f"compute: {{part: \"nullif({column}, '')\"}}, move the target table away and copy it again."
            ),
        )
        self.table = table
        self.column = column


class UnheldValue(TargetError):
    """A column holds a value that no type of the warehouse's has."""

    def __init__(self, table: str, column: str, what: str) -> None:
        super().__init__(
            f"{table}.{column} holds {what}, which no type of the target's has.",
            next_step=(
                "let floats, dates and times lie there as text (target.extremes: text) after moving its tables and "
                "headrace.ledger away, or leave the column out, or mend the value at the source."
            ),
        )
        self.table = table
        self.column = column


class UnsupportedTableFeature(TargetError):
    """The table uses a feature that this reader or writer does not know."""


class RelayError(HeadraceError):
    """A relay and who asks it do not come together."""


class BadRequest(RelayError):
    """A request of a relay or a control plane that does not read; the message names the parameter."""

    retry = Retry.NEVER


class BadFilter(BadRequest):
    """A filter that does not read, or speaks of what is not there; the message names the part and the place."""


class NotAllowed(RelayError):
    """A relay or a control plane knows no such token, or its role does not suffice."""


class NotServed(RelayError):
    """A relay has no such source, table version or page."""


class BlockTooLarge(RelayError):
    """The next block is larger than the bytes that were asked for."""

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(
            f"The next block takes {needed_bytes:,} bytes, more than were asked for.",
            next_step=f"ask with max_bytes={needed_bytes} or more.",
        )
        self.needed_bytes = needed_bytes


class UnsupportedProtocol(RelayError):
    """The two sides speak no common protocol."""

    retry = Retry.NEVER


class RelayUnavailable(RelayError):
    """A relay gives no answer, or has nothing to serve yet."""

    retry = Retry.TIMED


class FellOffUpstream(RelayError):
    """A relay's upstream no longer holds what the relay needs next."""


class ForeignUpstream(RelayError):
    """A relay's upstream serves another change log than the one that the relay has copied so far."""


class ControlError(HeadraceError):
    """A control plane and who asks it do not come together."""


class NotFound(ControlError):
    """A control plane has no such namespace, draft, replicator or page."""

    retry = Retry.NEVER


class CommandRefused(ControlError):
    """A command does not go with how things stand; the message says how they do."""


class RequestTooLarge(ControlError):
    """A request has more bytes than one may have."""

    retry = Retry.NEVER


class ControlStandby(ControlError):
    """Another control plane is the active one, and this one changes nothing."""

    retry = Retry.TIMED


class ControlUnavailable(ControlError):
    """A control plane gives no answer."""

    retry = Retry.TIMED


class TooManyRequests(ControlError):
    """Somebody asks more often than a control plane answers; the header ``retry-after`` says when it does again."""

    retry = Retry.TIMED


class TapNotEnabled(ControlError):
    """Somebody listens to the tap of a replicator that tells nothing."""


class StateError(HeadraceError):
    """Progress, requests or the ledger cannot be read or written."""


class RequestEnded(StateError):
    """Somebody steers a dump request that has ended."""

    retry = Retry.NEVER


class StateBusy(StateError):
    """Another process holds progress and requests for longer than `state.wait_s`; nothing was written."""

    retry = Retry.TIMED


class StateFull(StateError):
    """Progress or requests cannot be written because their disk has no room; whoever starts again finds everything."""

    retry = Retry.TIMED


class StateNewer(StateError):
    """A state database has tables of a newer headrace; nothing was read or written."""

    retry = Retry.NEVER


class RetriesExhausted(HeadraceError):
    """What time may heal was tried for as long as `retry.for_s` allows; names the last error."""


class LeaseLost(HeadraceError):
    """Another process holds the lease; this one must stop writing."""

    retry = Retry.NEVER
