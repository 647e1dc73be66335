"""`lockstep certs create|add|renew|new-ca|drop-ca|show`: a cluster's CA and certificates, as files.

Invariant: what is there is replaced by `renew`, `new-ca` and `drop-ca` only. Does not: talk to a broker, or
know the form of the files (`certificate_directory`).
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lockstep.commands.options import Families, print_table
from lockstep.failures import CommandFailed, WrongUsage

if TYPE_CHECKING:
    import datetime

    from cryptography import x509

    from lockstep.broker.security.certificate_authority import CertificateAuthority, Issued
    from lockstep.commands.certificate_directory import CertificateDirectory

MAX_DAYS: Final = 36_500
_NODE: Final = re.compile(r"(0|[1-9][0-9]{0,8})=(.+)")
_CLIENT: Final = re.compile(r"(?!node-|ca$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NODES_HELP: Final = "nodes with their hosts: 1=hostA,10.0.0.1,2=hostB; all names by which clients reach them"
_ROTATION: Final = """\
a new CA while the cluster runs:
  lockstep certs new-ca        ca.pem has both now: copy it to every node
  lockstep certs renew         new certificates: copy each node's to it
  lockstep certs drop-ca       ca.pem has the new one alone: copy it to every node
brokers read changed files again within five seconds; a line in each log says so
"""


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser(
        "certs",
        help="a cluster's own CA and its certificates",
        description="Make a cluster's own CA, and certificates for its nodes and clients (docs/security.md).",
        epilog=_ROTATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    creation = commands.add_parser("create", help="make a CA, and certificates for nodes")
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
            "--days",
            type=_days,
            default=365,
            metavar="DAYS",
            help="validity of certificates (default %(default)s)",
        )

    successor = commands.add_parser("new-ca", help="make a second CA, which issues from now on")
    _add_ca_days(successor)
    successor.set_defaults(run=_new_ca)

    drop = commands.add_parser("drop-ca", help="stop trusting the former CA")
    drop.set_defaults(run=_drop_ca)

    listing = commands.add_parser("show", help="what is there, and until when")
    listing.set_defaults(run=_show)
    for command in (creation, addition, renewal, successor, drop, listing):
        command.add_argument(
            "--directory",
            type=Path,
            default=Path("certs"),
            metavar="DIR",
            help="of the files (default: %(default)s)",
        )


def _add_ca_days(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ca-days", type=_days, default=3650, metavar="DAYS", help="validity of the CA (default %(default)s)"
    )


def _create(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import CertificateAuthority, CertificateError
    from lockstep.protocol.ids import format_uuid

    directory = _directory(options)
    nodes, clients = _parse_nodes(options.nodes), _parse_clients(options.clients)
    if not nodes:
        raise WrongUsage("--nodes names no node: write NODE=HOST, as in 1=hostA,2=hostB")
    directory.check_no_ca()
    now = _now()
    cluster_id = options.cluster_id or format_uuid(_random_id())
    try:
        ca = CertificateAuthority.create(cluster_id, now, options.ca_days)
        made = _issue(ca, nodes, clients, now, options.days)
    except CertificateError as error:
        raise WrongUsage(str(error)) from None
    directory.check_new(made)
    directory.create(ca)
    print(f"{directory.ca_certificates}: the CA of cluster {cluster_id}, for nodes and clients to trust")
    print(f"{directory.ca_key}: its key; keep it off the nodes, who has it can make nodes")
    _write(directory, made)
    _print_settings(directory, list(nodes))
    return 0


def _add(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import CertificateError

    directory = _directory(options)
    nodes, clients = _parse_nodes(options.nodes), _parse_clients(options.clients)
    if not nodes and not clients:
        raise WrongUsage("nothing to add: --nodes 4=hostD, or --clients alice")
    try:
        made = _issue(directory.issuing_ca(), nodes, clients, _now(), options.days)
    except CertificateError as error:
        raise CommandFailed(str(error)) from None
    directory.check_new(made)
    _write(directory, made)
    if nodes:
        _print_settings(directory, list(nodes))
    return 0


def _renew(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import CertificateError, hosts_of, node_of

    directory = _directory(options)
    ca, present, made = directory.issuing_ca(), directory.certificates(), {}
    for name in options.names or present:
        path = directory.file_of(name)
        if name not in present:
            raise WrongUsage(f"there is no {path}; `lockstep certs show` has what there is")
        try:
            node = node_of(present[name])
            if node is None:
                made[name] = ca.issue_client(name, _now(), options.days)
                continue
            if node.cluster_id != ca.cluster_id:
                raise CommandFailed(f"{path} is of another cluster, {node.cluster_id}")
            made[name] = ca.issue_node(node.node_id, hosts_of(present[name]), _now(), options.days)
        except CertificateError as error:
            raise CommandFailed(str(error)) from None
    _write(directory, made)
    return 0


def _new_ca(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import CertificateAuthority, CertificateError

    directory = _directory(options)
    former = directory.issuing_ca()
    if len(directory.trusted_cas()) > 1:
        raise CommandFailed(
            f"{directory.ca_certificates} has two CAs already: `lockstep certs renew`, then "
            "`lockstep certs drop-ca`, ends that change"
        )
    try:
        ca = CertificateAuthority.create(former.cluster_id, _now(), options.ca_days)
    except CertificateError as error:
        raise CommandFailed(str(error)) from None
    directory.replace_ca(ca, former)
    print(
        f"{directory.ca_certificates}: the new CA and the former one; once every node has this file, "
        "`lockstep certs renew`"
    )
    return 0


def _drop_ca(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import is_issued_by

    directory = _directory(options)
    ca = directory.issuing_ca()
    certificates = directory.certificates()
    left = [name for name, each in certificates.items() if not is_issued_by(each, ca.certificate)]
    if left:
        raise CommandFailed(
            f"the former CA has signed {', '.join(left)}: first `lockstep certs renew`, and copy the new "
            "files to their nodes"
        )
    directory.trust(ca)
    print(f"{directory.ca_certificates}: the CA that issues now, alone")
    return 0


def _show(options: argparse.Namespace) -> int:
    from lockstep.broker.security.certificate_authority import hosts_of, node_of

    directory = _directory(options)
    file = directory.ca_certificates.name
    rows = [
        (file, _common_name(each.subject), "", "", _day(each.not_valid_after_utc))
        for each in directory.trusted_cas()
    ]
    for name, each in directory.certificates().items():
        node = node_of(each)
        hosts = "" if node is None else ",".join(hosts_of(each))
        what = "client" if node is None else str(node)
        file = directory.file_of(name).name
        rows.append((file, what, hosts, _common_name(each.issuer), _day(each.not_valid_after_utc)))
    print_table(("FILE", "IS OF", "HOSTS", "SIGNED BY", "VALID UNTIL"), rows)
    return 0


def _directory(options: argparse.Namespace) -> CertificateDirectory:
    from lockstep.commands.certificate_directory import CertificateDirectory

    return CertificateDirectory(options.directory)


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
    if not nodes and text.strip():
        raise WrongUsage(f"--nodes {text}: no node is named, as in 1=hostA,2=hostB")
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


# --- certificates -------------------------------------------------------------------------------------------


def _issue(
    ca: CertificateAuthority,
    nodes: dict[int, list[str]],
    clients: list[str],
    now: datetime.datetime,
    days: int,
) -> dict[str, Issued]:
    """A certificate for each, by the name of its file. Raises CertificateError."""
    made = {f"node-{each}": ca.issue_node(each, hosts, now, days) for each, hosts in nodes.items()}
    return made | {name: ca.issue_client(name, now, days) for name in clients}


def _write(directory: CertificateDirectory, made: dict[str, Issued]) -> None:
    for name, each in made.items():
        directory.write(name, each)
        print(f"{directory.file_of(name)}: key and certificate, valid until {_day(each.expires)}")


# --- output -------------------------------------------------------------------------------------------------


def _print_settings(directory: CertificateDirectory, nodes: list[int]) -> None:
    """The settings of the first of the nodes; the others' differ in a number."""
    first = nodes[0]
    others = "; so for the others, each with its own node-N.pem" if len(nodes) > 1 else ""
    print(f"\nsettings of node {first}{others}:")
    is_cluster = len(nodes) > 1 or first != 1
    for line in (
        *(["lockstep.peers.tls=require"] if is_cluster else []),
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={directory.file_of(f'node-{first}')}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={directory.ca_certificates}",
    ):
        print(line)


def _common_name(name: x509.Name) -> str:
    from cryptography.x509.oid import NameOID

    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _day(moment: datetime.datetime) -> str:
    return moment.date().isoformat()
