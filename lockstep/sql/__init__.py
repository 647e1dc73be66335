"""An application whose state is in a SQL database: the high-water mark is there, too, and changes with it.

    class Accounts(SqlApplication):
        def apply_in(self, connection: Connection, committed: Committed) -> None:
            connection.execute(update(accounts).where(...))

    accounts = Accounts("postgresql+psycopg://localhost/bank", "transfers")

`application` has the class, `guard` the connection that a callback gets, `retries` the errors that pass. This
package alone needs SQLAlchemy 2, which the extra `sql` brings. Source: Waltz's AbstractClientCallbacksForJDBC
(*Waltz Internals*); docs/sql.md is for its users.
"""

try:
    import sqlalchemy as _  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        "lockstep.sql needs SQLAlchemy: pip install -e '.[sql]' in the clone, elsewhere pip install "
        "'/path/to/lockstep[sql]'",
        name=error.name,
    ) from None

from lockstep.sql.application import HighWaterMarkMismatch, Snapshot, SqlApplication, TablesMissing
from lockstep.sql.guard import ForbiddenInCallback

__all__ = ["ForbiddenInCallback", "HighWaterMarkMismatch", "Snapshot", "SqlApplication", "TablesMissing"]
