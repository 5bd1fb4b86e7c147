"""A group that prints: run it as often as you like, each process is a member and prints the partitions that it owns."""

from __future__ import annotations

from headrace.client import Consumer, Event, Group, Partition, SqlGroupStore


class Mine(Consumer):
    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    def on_data_event(self, event: Event) -> None:
        line = f"{self.partition.number} {event.table} {event.key} {event.op}\n"
        print(line, end="", flush=True)  # at once: other partitions print too


if __name__ == "__main__":
    store = SqlGroupStore("postgresql+psycopg://app@db/app")
    Group("http://relay:7070", "shop", Mine, store, "mail", partitions=8).run()
