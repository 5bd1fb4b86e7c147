"""What the members of a group agree on, and how it moves: who owns which partition, under which generation.

Pure: a `GroupStore` keeps the state and lets one member at a time change it. Every change of a partition's owner has
a generation of its own, which rises over the whole group; what is stored under another one is refused. So a member
that was frozen, and finds out late that its lease is over, cannot move a place any more.

A partition that shall move is given up first: its owner ends its windows there and confirms, or its lease ends. Only
then it can be claimed. Another count of partitions puts each key elsewhere, so all of them have to reach one SCN, the
barrier, before any partition of the new count begins behind it. Another place for all of them takes their standing
still alone.

Source: Databus, section 3.4 (partitions of a stream over a cluster of consumers).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headrace.errors import ConfigError
from headrace.wire.place import Place

__all__ = [
    "MOST_PARTITIONS",
    "Claim",
    "GroupState",
    "PartitionState",
    "begun",
    "fair_shares",
    "leave",
    "resize",
    "rewind",
    "turn",
]

MOST_PARTITIONS = 65_536
"""As the protocol has it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A member's right to one partition.

    Attributes:
        number: of the partition, from 0.
        count: of all partitions.
        generation: fences the right: no two claims of a group have the same.
        upto: the barrier, while the group waits for all partitions to reach it.
    """

    number: int
    count: int
    generation: int
    upto: int | None = None


@dataclass(slots=True)
class PartitionState:
    """One partition.

    Attributes:
        number: from 0.
        place: the checkpoint.
        owner: a member, None while nobody has it.
        generation: of the last change of the owner.
        busy: somebody is storing a place at this moment; the partition is left alone this time.
    """

    number: int
    place: Place
    owner: str | None = None
    generation: int = 0
    busy: bool = False

    @property
    def free(self) -> bool:
        """Whether nobody owns it, and nobody can be storing its place."""
        return self.owner is None and not self.busy


@dataclass(slots=True)
class GroupState:
    """A group.

    Attributes:
        definition: what all members have to agree on.
        partitions: by number.
        members: end of the lease by member, microseconds of the store's clock.
        leases: length of each lease, as far as it was told; none that is running is longer, whatever the clock did.
        generation: the highest that was given.
        target: the count of partitions that the group is on its way to; None when it is on none.
        barrier: SCN that all partitions have to reach before; None until all of them stand still.
        rewind: SCN behind which all partitions begin again once all of them stand still; None when that is not wanted.
        dumped: SCN behind which the dump comes that was asked for last, for whoever was lost; None before one was.
    """

    definition: str
    partitions: list[PartitionState]
    members: dict[str, int] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    target: int | None = None
    barrier: int | None = None
    rewind: int | None = None
    dumped: int | None = None


def begun(definition: str, count: int, place: Place) -> GroupState:
    """Return a group of which nothing is processed behind ``place``.

    Raises:
        ConfigError: there cannot be so many partitions.
    """
    _check_count(count)
    return GroupState(definition, [PartitionState(number, place) for number in range(count)])


def turn(
    state: GroupState,
    member: str,
    now_us: int,
    lease_us: int,
    ended: Collection[Claim] = (),
    *,
    leaving: bool = False,
) -> list[Claim]:
    """Let one member take its turn: it renews its lease, and does whatever waits to be done for the group.

    Args:
        state: changed in place.
        member: whose turn it is.
        now_us: the store's clock.
        lease_us: how long the others wait for the next turn of this one.
        ended: what the member owned and delivers no more.
        leaving: claim nothing more.

    Returns:
        What the member owns and shall keep. Everything else it has to end, and to say so in a later turn.
    """
    state.members[member] = now_us + lease_us
    state.leases[member] = lease_us
    over = {claim.generation for claim in ended}
    for partition in state.partitions:
        if partition.owner == member and partition.generation in over:
            _give(state, partition, None)
    _shorten(state, now_us)
    _bury(state, now_us)
    _move_on(state)
    if leaving:
        return []
    open_ = _open(state)
    mine = [partition for partition in open_ if partition.owner == member]
    held = {name: sum(p.owner == name for p in open_) for name in state.members}
    share = fair_shares(held, len(open_))[member]
    for partition in open_:
        if len(mine) < share and partition.free:
            _give(state, partition, member)
            mine.append(partition)
    if state.barrier is None:
        # On the way to a barrier partitions only grow fewer: none changes hands for the balance.
        mine = mine[:share]
    count = len(state.partitions)
    return [Claim(p.number, count, p.generation, state.barrier) for p in mine]


def leave(state: GroupState, member: str) -> None:
    """Give up everything that a member owns, and forget it."""
    state.members.pop(member, None)
    _bury(state, 0)


def resize(state: GroupState, count: int) -> None:
    """Set out for another count of partitions; for the one that there is, call off what was set out for.

    Until the last has reached the barrier all of them stand where they may go on as before.

    Raises:
        ConfigError: there cannot be so many.
    """
    _check_count(count)
    if count == len(state.partitions):
        state.target = state.barrier = None
    else:
        state.target = count


def rewind(state: GroupState, scn: int) -> None:
    """Set out to deliver everything behind an SCN again, or to begin there."""
    state.rewind, state.barrier = scn, None


def fair_shares(held: Mapping[str, int], partitions: int) -> dict[str, int]:
    """Return how many partitions each member shall own: equal within one, and as few as can be change hands.

    Args:
        held: how many each member owns now.
        partitions: of all.
    """
    least, more = divmod(partitions, len(held))
    ranked = sorted(held, key=lambda name: (-held[name], name))
    return {name: least + (rank < more) for rank, name in enumerate(ranked)}


def _open(state: GroupState) -> list[PartitionState]:
    """Return the partitions on which somebody shall work now."""
    if state.rewind is not None:
        return []
    if state.target is None:
        return state.partitions
    if state.barrier is None:
        return []
    return [p for p in state.partitions if p.place < Place(state.barrier)]


def _shorten(state: GroupState, now_us: int) -> None:
    """Let no lease end later than one that begins now: the clock was set back since."""
    for name, lease_us in state.leases.items():
        if name in state.members:
            state.members[name] = min(state.members[name], now_us + lease_us)


def _bury(state: GroupState, now_us: int) -> None:
    """Forget members whose lease is over, and free what members own that are no more."""
    state.members = {name: until for name, until in state.members.items() if until > now_us}
    state.leases = {name: us for name, us in state.leases.items() if name in state.members}
    for partition in state.partitions:
        owner = partition.owner
        if owner is not None and owner not in state.members and not partition.busy:
            _give(state, partition, None)


def _move_on(state: GroupState) -> None:
    """Take the next step towards another place or another count, when everybody is ready for it."""
    if not all(partition.free for partition in state.partitions):
        return
    if state.rewind is not None:
        count = state.target or len(state.partitions)
        state.partitions = begun(state.definition, count, Place(state.rewind)).partitions
        state.target = state.barrier = state.rewind = None
    if state.target is None:
        return
    if state.barrier is None:
        state.barrier = max(partition.place.scn for partition in state.partitions)
    barrier = Place(state.barrier)
    if all(partition.place >= barrier for partition in state.partitions):
        state.partitions = begun(state.definition, state.target, barrier).partitions
        state.target = state.barrier = None


def _give(state: GroupState, partition: PartitionState, owner: str | None) -> None:
    state.generation += 1
    partition.owner, partition.generation = owner, state.generation


def _check_count(count: int) -> None:
    if not 1 <= count <= MOST_PARTITIONS:
        raise ConfigError(
            f"A group cannot have {count} partitions.",
            next_step=f"take 1 to {MOST_PARTITIONS} partitions.",
        )
