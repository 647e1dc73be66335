"""The certificates by which the nodes of `lockstep serve --processes` know each other.

Owns: the directory of certificates beside those of the nodes, and its files. Invariants: all are made anew at
each start of the command, before the first node starts, so none ends while it runs; only this user can read
them; the key of their CA is in no file, so no further nodes can be made; they are of the cluster that
the nodes' data are of. Does not: decide whether nodes have certificates (`node_plan`).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from lockstep.broker.node.data_directory import recorded_cluster, write_flushed
from lockstep.supervisor.node_plan import CA_FILE, NodePlan, certificate_directory, certificate_file

VALID_DAYS: Final = 7300
"""The validity of the certificates: longer than a command runs."""
_CLOCK_SKEW: Final = datetime.timedelta(days=365)
"""Certificates are valid from this time before now: a node may start again after the clock was set back."""
_PRIVATE: Final = 0o600


def write_certificates(path: Path, plans: Sequence[NodePlan]) -> None:
    """Make a CA, and a certificate for each node. Raises OSError.

    Args:
        path: the data directory of the command, which has locked it.
    """
    # Here and not above, like the library they are made with: only a start needs them.
    from cryptography.hazmat.primitives.serialization import Encoding

    from lockstep.broker.controller.topics import random_id
    from lockstep.broker.security.certificate_authority import CertificateAuthority
    from lockstep.protocol.ids import format_uuid

    directory = Path(certificate_directory(str(path)))
    directory.mkdir(mode=0o700, exist_ok=True)
    recorded = (recorded_cluster(Path(plan.directory)) for plan in plans)
    former = (_cluster_of(Path(certificate_file(str(path), plan.node_id))) for plan in plans)
    cluster_id = _first(recorded) or _first(former) or format_uuid(random_id())
    begin = datetime.datetime.now(datetime.UTC) - _CLOCK_SKEW
    ca = CertificateAuthority.create(cluster_id, begin, VALID_DAYS)
    trusted = ca.certificate.public_bytes(Encoding.PEM)
    write_flushed(directory / CA_FILE, trusted.decode(), _PRIVATE)
    for plan in plans:
        issued = ca.issue_node(plan.node_id, [], begin, VALID_DAYS - 1)
        text = (issued.key_pem + issued.certificate_pem).decode()
        write_flushed(Path(certificate_file(str(path), plan.node_id)), text, _PRIVATE)


def _cluster_of(file: Path) -> str | None:
    """The cluster of the certificate that a node had at the last start, None without one: the cluster may
    have taken its id from it, and no node have recorded that."""
    from cryptography import x509

    from lockstep.broker.security.certificate_authority import node_of

    try:
        found = node_of(x509.load_pem_x509_certificates(file.read_bytes())[0])
    except (OSError, ValueError):
        return None
    return None if found is None else found.cluster_id


def _first(ids: Iterable[str | None]) -> str | None:
    return next((each for each in ids if each), None)
