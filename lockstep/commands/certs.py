"""`lockstep certs create|add|renew|new-ca|drop-ca|show`: a cluster's authority and certificates, as files.

A directory has `ca.pem` (the authorities that are trusted, the one that issues first), `ca.key`, and a file
with key and certificate for each node (`node-1.pem`) and client (`alice.pem`). Invariants: what is there is
replaced by `renew`, `new-ca` and `drop-ca` only, and as a whole, so that a broker that reads it meanwhile
meets the old file or the new one; private keys are readable by their owner alone. Does not: talk to a broker.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lockstep.commands.options import Families, print_table
from lockstep.failures import CommandFailed, WrongUsage, os_error

if TYPE_CHECKING:
    import datetime

    from cryptography import x509

    from lockstep.broker.security.certificate_authority import CertificateAuthority, Issued

AUTHORITIES: Final = "ca.pem"
AUTHORITY_KEY: Final = "ca.key"
MAX_DAYS: Final = 36_500
PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
_NODE: Final = re.compile(r"(0|[1-9][0-9]{0,8})=(.+)")
_CLIENT: Final = re.compile(r"(?!node-|ca$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NODES_HELP: Final = "nodes with their hosts: 1=hostA,10.0.0.1,2=hostB; all names by which clients reach them"
_ROTATION: Final = """\
a new authority while the cluster runs:
  lockstep certs new-ca        ca.pem has both now: copy it to every node
  lockstep certs renew         new certificates: copy each node's to it
  lockstep certs drop-ca       ca.pem has the new one alone: copy it to every node
brokers read changed files again within five seconds; a line in each log says so
"""


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser(
        "certs",
        help="a cluster's own authority and its certificates",
        epilog=_ROTATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    creation = commands.add_parser("create", help="make an authority, and certificates for nodes")
    creation.add_argument("--nodes", required=True, metavar="LIST", help=_NODES_HELP)
    creation.add_argument("--cluster-id", metavar="ID", help="of a cluster that there is (default: a new id)")
    _add_ca_days(creation)
    creation.set_defaults(run=_create)

    addition = commands.add_parser("add", help="make certificates for further nodes or clients")
    addition.add_argument("--nodes", default="", metavar="LIST", help=_NODES_HELP)
    addition.set_defaults(run=_add)
    for command in (creation, addition):
        command.add_argument("--clients", default="", metavar="NAMES", help="clients: alice,bob")

    renewal = commands.add_parser("renew", help="replace certificates by new ones with new keys")
    renewal.add_argument("names", nargs="*", metavar="NAME", help="node-1, alice (default: all)")
    renewal.set_defaults(run=_renew)
    for command in (creation, addition, renewal):
        command.add_argument(
            "--days", type=_days, default=365, help="validity of certificates (default %(default)s)"
        )

    successor = commands.add_parser("new-ca", help="make a second authority, which issues from now on")
    _add_ca_days(successor)
    successor.set_defaults(run=_new_ca)

    drop = commands.add_parser("drop-ca", help="trust the former authority no more")
    drop.set_defaults(run=_drop_ca)

    listing = commands.add_parser("show", help="what is there, and until when")
    listing.set_defaults(run=_show)
    for command in (creation, addition, renewal, successor, drop, listing):
        command.add_argument("--directory", type=Path, default=Path("certs"), help="(default: %(default)s)")


def _add_ca_days(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ca-days", type=_days, default=3650, help="validity of the authority (default %(default)s)"
    )


def _create(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import CertificateAuthority, CertificateError
    from lockstep.protocol.ids import format_uuid

    directory: Path = options.directory
    nodes, clients = _parse_nodes(options.nodes), _parse_clients(options.clients)
    _require_no_authority(directory)
    now = _now()
    cluster_id = options.cluster_id or format_uuid(_random_id())
    try:
        authority = CertificateAuthority.create(cluster_id, now, options.ca_days)
        made = _issue(authority, nodes, clients, now, options.days)
    except CertificateError as error:
        raise WrongUsage(str(error)) from None
    _require_new(directory, made)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise os_error(error) from None
    # In this order: a crash leaves a key that has signed nothing, which the next `create` replaces, or
    # an authority that lacks certificates, which `add` makes.
    _write(directory / AUTHORITY_KEY, authority.key_pem, PRIVATE)
    _write(directory / AUTHORITIES, _pem([authority.certificate]), PUBLIC)
    print(f"{directory / AUTHORITIES}: the authority of cluster {cluster_id}, for nodes and clients to trust")
    print(f"{directory / AUTHORITY_KEY}: its key; keep it off the nodes, who has it can make nodes")
    _write_issued(directory, made)
    _print_settings(directory, list(nodes))
    return 0


def _add(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import CertificateError

    directory: Path = options.directory
    nodes, clients = _parse_nodes(options.nodes), _parse_clients(options.clients)
    if not nodes and not clients:
        raise WrongUsage("nothing to add: --nodes 4=hostD, or --clients alice")
    try:
        made = _issue(_authority(directory), nodes, clients, _now(), options.days)
    except CertificateError as error:
        raise CommandFailed(str(error)) from None
    _require_new(directory, made)
    _write_issued(directory, made)
    if nodes:
        _print_settings(directory, list(nodes))
    return 0


def _renew(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import CertificateError, hosts_of, node_of

    directory: Path = options.directory
    authority, present, made = _authority(directory), _certificates(directory), {}
    for name in options.names or present:
        if name not in present:
            raise WrongUsage(f"there is no {directory / name}.pem; `lockstep certs show` has what there is")
        try:
            node = node_of(present[name])
            if node is None:
                made[name] = authority.issue_client(name, _now(), options.days)
                continue
            if node.cluster_id != authority.cluster_id:
                raise CommandFailed(f"{directory / name}.pem is of another cluster, {node.cluster_id}")
            made[name] = authority.issue_node(node.node_id, hosts_of(present[name]), _now(), options.days)
        except CertificateError as error:
            raise CommandFailed(str(error)) from None
    _write_issued(directory, made)
    return 0


def _new_ca(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import CertificateAuthority, CertificateError

    directory: Path = options.directory
    former = _authority(directory)
    if len(_authorities(directory)) > 1:
        raise CommandFailed(
            f"{directory / AUTHORITIES} has two authorities already: `lockstep certs renew`, then "
            "`lockstep certs drop-ca`, ends that change"
        )
    try:
        authority = CertificateAuthority.create(former.cluster_id, _now(), options.ca_days)
    except CertificateError as error:
        raise CommandFailed(str(error)) from None
    # In this order: what a crash between them leaves is the former authority, and one more that is trusted.
    _write(directory / AUTHORITIES, _pem([authority.certificate, former.certificate]), PUBLIC)
    _write(directory / AUTHORITY_KEY, authority.key_pem, PRIVATE)
    print(
        f"{directory / AUTHORITIES}: the new authority and the former one; once every node has this file, "
        "`lockstep certs renew`"
    )
    return 0


def _drop_ca(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import is_issued_by

    directory: Path = options.directory
    authority = _authority(directory)
    left = [
        name
        for name, each in _certificates(directory).items()
        if not is_issued_by(each, authority.certificate)
    ]
    if left:
        raise CommandFailed(
            f"the former authority has signed {', '.join(left)}: first `lockstep certs renew`, and copy the "
            "new files to their nodes"
        )
    _write(directory / AUTHORITIES, _pem([authority.certificate]), PUBLIC)
    print(f"{directory / AUTHORITIES}: the authority that issues now, alone")
    return 0


def _show(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import hosts_of, node_of

    directory: Path = options.directory
    authorities = _authorities(directory)
    rows = []
    for each in authorities:
        rows.append((AUTHORITIES, _common_name(each.subject), "", "", _day(each.not_valid_after_utc)))
    for name, each in _certificates(directory).items():
        node = node_of(each)
        hosts = "" if node is None else ",".join(hosts_of(each))
        what = "client" if node is None else str(node)
        rows.append((f"{name}.pem", what, hosts, _common_name(each.issuer), _day(each.not_valid_after_utc)))
    print_table(("FILE", "IS OF", "HOSTS", "SIGNED BY", "VALID UNTIL"), rows)
    return 0


# --- arguments ----------------------------------------------------------------------------------------------


def _days(text: str) -> int:
    """An argument type."""
    if not text.isdecimal() or not 1 <= int(text) <= MAX_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1 to {MAX_DAYS}")
    return int(text)


def _parse_nodes(text: str) -> dict[int, list[str]]:
    """The hosts of each node. Raises WrongUsage."""
    nodes: dict[int, list[str]] = {}
    last: list[str] | None = None
    for item in filter(None, (each.strip() for each in text.split(","))):
        node = _NODE.fullmatch(item)
        if node is not None:
            if int(node[1]) in nodes:
                raise WrongUsage(f"--nodes: node {node[1]} is there twice")
            last = nodes[int(node[1])] = [node[2]]
        elif last is None or "=" in item:
            raise WrongUsage(f"--nodes {item}: not of the form NODE=HOST, as in 1=hostA,2=hostB")
        else:
            last.append(item)
    return nodes


def _parse_clients(text: str) -> list[str]:
    """The names of clients. Raises WrongUsage."""
    names = [each.strip() for each in text.split(",") if each.strip()]
    for name in names:
        if not _CLIENT.fullmatch(name):
            raise WrongUsage(
                f"--clients {name}: letters, digits, dots, - and _, at most 64; neither ca nor node-..."
            )
    return list(dict.fromkeys(names))


def _now() -> datetime.datetime:
    import datetime

    return datetime.datetime.now(datetime.UTC)


def _random_id() -> bytes:
    from lockstep.broker.controller.topics import random_id

    return random_id()


# --- files --------------------------------------------------------------------------------------------------


def _issue(
    authority: CertificateAuthority,
    nodes: dict[int, list[str]],
    clients: list[str],
    now: datetime.datetime,
    days: int,
) -> dict[str, Issued]:
    """A certificate for each, by the name of its file. Raises CertificateError."""
    made = {f"node-{each}": authority.issue_node(each, hosts, now, days) for each, hosts in nodes.items()}
    return made | {name: authority.issue_client(name, now, days) for name in clients}


def _require_no_authority(directory: Path) -> None:
    """Raises CommandFailed if there is one. A key alone, as a crash leaves it, has signed nothing."""
    if (directory / AUTHORITIES).exists():
        raise CommandFailed(
            f"{directory / AUTHORITIES} is there already: `lockstep certs add` makes more certificates, "
            "`lockstep certs renew` new ones, and --directory names another place"
        )
    if (directory / AUTHORITY_KEY).exists() and (issued := sorted(directory.glob("*.pem"))):
        raise CommandFailed(
            f"{directory / AUTHORITIES} is missing, and {issued[0]} may be of its authority: bring it back, "
            "or --directory names another place"
        )


def _require_new(directory: Path, made: dict[str, Issued]) -> None:
    """Raises CommandFailed if one of the files is there."""
    for name in made:
        if (path := directory / f"{name}.pem").exists():
            raise CommandFailed(f"{path} is there already: `lockstep certs renew {name}` replaces it")


def _write_issued(directory: Path, made: dict[str, Issued]) -> None:
    for name, each in made.items():
        path = directory / f"{name}.pem"
        _write(path, each.key_pem + each.certificate_pem, PRIVATE)
        print(f"{path}: key and certificate, valid until {_day(each.expires)}")


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a file as a whole, in place of the one that is there."""
    import contextlib
    import os
    import tempfile

    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # its mode is 0600
    except OSError as error:
        raise os_error(error) from None
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise os_error(error) from None
        raise


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if path.name == AUTHORITY_KEY and (path.parent / AUTHORITIES).exists():
            remedy = f"bring it back, the key of {path.parent / AUTHORITIES}"
        else:
            remedy = "`lockstep certs create` makes an authority"
        raise CommandFailed(f"{path} is not there: {remedy}") from None
    except OSError as error:
        raise os_error(error) from None


def _authority(directory: Path) -> CertificateAuthority:
    """The authority that issues. Raises CommandFailed."""
    from lockstep.broker.security.certificate_authority import CertificateAuthority, CertificateError

    try:
        return CertificateAuthority.load(_read(directory / AUTHORITY_KEY), _read(directory / AUTHORITIES))
    except CertificateError as error:
        raise CommandFailed(f"{directory}: {error}") from None


def _authorities(directory: Path) -> list[x509.Certificate]:
    """The authorities that are trusted. Raises CommandFailed."""
    return _load(directory / AUTHORITIES)


def _certificates(directory: Path) -> dict[str, x509.Certificate]:
    """The certificates of nodes and clients, by the names of their files; nodes first, by number."""
    names = [path.stem for path in directory.glob("*.pem") if path.name != AUTHORITIES]
    names.sort(key=lambda name: (0, len(name), name) if name.startswith("node-") else (1, 0, name))
    return {name: _load(directory / f"{name}.pem")[0] for name in names}


def _load(path: Path) -> list[x509.Certificate]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError:
        raise CommandFailed(f"{path} has no certificate that can be read") from None


def _pem(certificates: list[x509.Certificate]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


# --- output -------------------------------------------------------------------------------------------------


def _print_settings(directory: Path, nodes: list[int]) -> None:
    """The settings of the first of the nodes; the others' differ in a number."""
    first = nodes[0]
    others = "; so for the others, each with its own node-N.pem" if len(nodes) > 1 else ""
    print(f"\nsettings of node {first}{others}:")
    is_cluster = len(nodes) > 1 or first != 1
    for line in (
        *(["lockstep.peers.tls=require"] if is_cluster else []),
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={directory / f'node-{first}.pem'}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={directory / AUTHORITIES}",
    ):
        print(line)


def _common_name(name: x509.Name) -> str:
    from cryptography.x509.oid import NameOID

    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _day(moment: datetime.datetime) -> str:
    return moment.date().isoformat()
