"""The bytes of tables' folders: a folder on this machine, or the keys below a prefix of a bucket.

In: a location, which is a value. Out: the store that holds it, behind one port. Neighbours: `headrace.lake`, which
knows what the bytes mean, and nothing below.
"""

from headrace.store.base import Found, Store, store_of
from headrace.store.location import Bucket, Location, ObjectPath, located
from headrace.store.preflight import check_store

__all__ = [
    "Bucket",
    "Found",
    "Location",
    "ObjectPath",
    "Store",
    "check_store",
    "located",
    "store_of",
]
