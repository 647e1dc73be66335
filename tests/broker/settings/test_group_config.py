"""Configurations of groups: Kafka's names, defaults and bounds."""

from __future__ import annotations

import pytest

from lockstep.broker.settings.group_config import GROUP_PROPERTIES, InvalidGroupConfig, group_config
from tests.support.cases import each_case


def test_every_default_is_within_its_bounds() -> None:
    for name, known in GROUP_PROPERTIES.items():
        text = known.declared.show(known.declared.default)
        assert text is not None
        assert group_config({name: f" {text} "}) == {name: text}


@each_case(
    ("name", "least", "most"),
    [
        ("consumer.session.timeout.ms", 45_000, 60_000),
        ("share.heartbeat.interval.ms", 5_000, 15_000),
        ("streams.assignment.interval.ms", 0, 15_000),
        ("share.delivery.count.limit", 2, 10),
        ("share.partition.max.record.locks", 100, 4_000),
        ("share.record.lock.duration.ms", 15_000, 60_000),
        ("streams.num.standby.replicas", 0, 2),
        ("streams.num.warmup.replicas", 0, 20),
    ],
)
def test_bounds(name: str, least: int, most: int) -> None:
    for good in (least, most):
        assert group_config({name: str(good)}) == {name: str(good)}
    for bad in (least - 1, most + 1, 2**31):
        with pytest.raises(InvalidGroupConfig, match=name):
            group_config({name: str(bad)})


def test_a_refusal_names_the_setting_of_the_broker_it_breaks() -> None:
    with pytest.raises(InvalidGroupConfig, match=r"group\.streams\.max\.standby\.replicas"):
        group_config({"streams.num.standby.replicas": "3"})
    with pytest.raises(InvalidGroupConfig, match=r"group\.consumer\.min\.session\.timeout\.ms"):
        group_config({"consumer.session.timeout.ms": "5"})


@each_case("good", ["earliest", "latest", "by_duration:PT1H", "by_duration:P2DT3H4M5.5S"])
def test_where_a_share_group_may_begin(good: str) -> None:
    assert group_config({"share.auto.offset.reset": good}) == {"share.auto.offset.reset": good}


@each_case(
    "bad", ["", "none", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-PT1H", "PT1H"]
)
def test_where_it_may_not(bad: str) -> None:
    with pytest.raises(InvalidGroupConfig, match=r"share\.auto\.offset\.reset"):
        group_config({"share.auto.offset.reset": bad})


def test_unknown_names_and_values() -> None:
    assert group_config({"streams.assignor.name": "sticky"}) == {"streams.assignor.name": "sticky"}
    with pytest.raises(InvalidGroupConfig, match=r"streams\.assignor\.name"):
        group_config({"streams.assignor.name": "other"})
    for texts in ({"no.such": "1"}, {"share.isolation.level": "x"}, {"share.renew.acknowledge.enable": "x"}):
        with pytest.raises(InvalidGroupConfig, match=next(iter(texts))):
            group_config(texts)
