"""Which kind of server a session is logged in to."""

from __future__ import annotations

from headrace.sources.mysql.connection import Session
from headrace.sources.mysql.vendor import Vendor
from headrace.sources.mysql.vendor_mariadb import MARIADB
from headrace.sources.mysql.vendor_mysql import MYSQL

__all__ = ["vendor_of"]


def vendor_of(session: Session) -> Vendor:
    """Return it; a server that calls itself nothing known is taken for MySQL, which refuses it."""
    return MARIADB if "mariadb" in session.version.lower() else MYSQL
