"""The nodes of one command have certificates of their own cluster, which are made anew at each start."""

from __future__ import annotations

import datetime
from pathlib import Path

from lockstep.broker.node.data_directory import DataDirectory
from lockstep.broker.security.peer_certificates import PeerCertificates
from lockstep.broker.settings.peer_settings import PEER_TLS_REQUIRE, PEERS_LISTENER
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.supervisor.node_certificates import write_certificates
from lockstep.supervisor.node_plan import plan_nodes


def written(path: Path, processes: int = 2) -> list[PeerCertificates]:
    """What each node reads of its certificate, and its own setting of it."""
    plans = plan_nodes(from_texts({"log.dirs": str(path)}), processes, {"log.dirs"})
    write_certificates(path, plans)
    return [
        PeerCertificates(
            from_texts(plan.settings).security_named(PEERS_LISTENER),
            PEER_TLS_REQUIRE,
            plan.node_id,
            lambda: datetime.datetime.now(datetime.UTC),
        )
        for plan in plans
    ]


def test_each_node_has_one_of_its_number_and_one_cluster(tmp_path: Path) -> None:
    first, second = written(tmp_path)
    assert (first.identity.node_id, second.identity.node_id) == (1, 2)
    assert first.identity.cluster_id == second.identity.cluster_id
    assert not first.expiry_warnings and not first.accepts_plaintext


def test_only_this_user_reads_them_and_the_authority_has_no_file(tmp_path: Path) -> None:
    written(tmp_path)
    directory = tmp_path / "certificates"
    assert directory.stat().st_mode & 0o777 == 0o700
    modes = {each.name: each.stat().st_mode & 0o777 for each in directory.iterdir()}
    assert modes == {"ca.pem": 0o600, "node-1.pem": 0o600, "node-2.pem": 0o600}
    assert "PRIVATE KEY" not in (directory / "ca.pem").read_text()


def test_a_start_makes_new_ones_of_the_same_cluster(tmp_path: Path) -> None:
    (first, *_) = written(tmp_path)
    former = (tmp_path / "certificates" / "node-1.pem").read_text()
    (again, *_) = written(tmp_path)
    assert again.identity == first.identity
    assert (tmp_path / "certificates" / "node-1.pem").read_text() != former


def test_the_cluster_is_the_one_that_a_node_has_recorded(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "node-2").mkdir()
    node = DataDirectory(tmp_path / "node-2", 2, alone=False)
    node.record_cluster("recorded")
    node.close()
    assert {each.identity.cluster_id for each in written(tmp_path)} == {"recorded"}


def test_files_that_a_crash_has_left_do_not_hinder(tmp_path: Path) -> None:
    (tmp_path / "certificates").mkdir()
    (tmp_path / "certificates" / "node-1.pem").write_text("half")
    (tmp_path / "certificates" / "node-2.new").write_text("half")
    written(tmp_path)
    assert (tmp_path / "certificates" / "node-2.pem").stat().st_mode & 0o777 == 0o600
