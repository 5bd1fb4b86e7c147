"""Settings of a database that render everything differently."""

from __future__ import annotations

HOSTILE = {
    "DateStyle": "'SQL, DMY'",
    "IntervalStyle": "'iso_8601'",
    "TimeZone": "'Asia/Kolkata'",
    "extra_float_digits": "0",
    "bytea_output": "'escape'",
    "search_path": "public",
    "xmlbinary": "'hex'",
}
