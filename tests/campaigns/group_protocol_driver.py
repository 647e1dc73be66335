"""Runs a sequence of steps against one broker, as raw frames, and returns one text per step.

Owns: the connections of a sequence (one for all members of the new protocol, one for each classic member,
as JoinGroup and SyncGroup may wait), and the members' side: what each was told last, so that "current" and
"assigned" mean the same on every broker. Messages are kio's (`compat_tests.raw`).
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from compat_tests import raw
from compat_tests.probe import HOST
from tests.campaigns import group_protocol_answers as answers
from tests.campaigns.group_protocol_answers import Assigned, Fields, Names
from tests.campaigns.group_protocol_steps import LONG_MS, OWN_REGEX, TOPICS, RequestSequence, Step

ANSWER_SECONDS: Final = 20.0
BLOCKED_SECONDS: Final = 0.4
"""JoinGroup and SyncGroup that are not answered by then wait for other members."""
BEHIND_SECONDS: Final = 0.15
"""The broker evaluates a regex, and learns of topics and configurations, beside the requests."""
SETTLING_ROUNDS: Final = 16
SESSION_MS: Final = 45_000
Plant = Callable[[str, Fields, Fields], None]
"""A mistake: of an API, a request and its answer, which it changes."""


class Connection:
    """One connection; a request waits until the one before it was answered."""

    def __init__(self, port: int, plant: Plant | None = None) -> None:
        self._port, self._plant = port, plant
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation_ids = itertools.count(1)

    async def call(self, api: str, version: int, client_id: str = "sequence", **fields: Any) -> Fields:
        """ConnectionError, TimeoutError; the next call then connects anew."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._streams
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                writer.write(raw.request_frame(api, version, next(self._correlation_ids), fields, client_id))
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answer = raw.parse_response(api, version, await reader.readexactly(size))
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.close()
            raise ConnectionError(type(error).__name__) from error
        if self._plant is not None:
            self._plant(api, fields, answer)
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Member:
    """What the member in one slot knows. `epoch` is the generation of a classic member."""

    def __init__(self, slot: int, port: int, plant: Plant | None = None) -> None:
        self.slot = slot
        self.connection = Connection(port, plant)
        self._letters = iter("abcdefghijklmnopqrstuvwxyz" * 4)
        self.id = self.former_id = ""
        self.renew()
        self.epoch = self.former_epoch = self.older_epoch = 0
        self.assigned: Assigned = {}
        self.former: Assigned = {}
        self.is_here = self.is_absent = False
        self.classic_id = ""
        self.protocol = "range"
        self.led: list[str] = []
        """The members whose assignment it makes, when it leads a classic group."""

    @property
    def client_id(self) -> str:
        return f"m{self.slot}"

    def renew(self) -> None:
        """Another id from now on. Members sort by slot, whatever their ids."""
        self.former_id, self.id = self.id, f"m{self.slot}{next(self._letters)}"

    def epoch_called(self, word: str) -> int:
        known = {"join": 0, "leave": -1, "static_leave": -2, "below": -3, "below_zero": -1, "seven": 7}
        if word in known:
            return known[word]
        former = self.former_epoch or self.epoch - 1
        return {
            "current": self.epoch,
            "previous": former,
            "next": self.epoch + 1,
            "older": self.older_epoch or self.epoch - 2,
        }[word]

    def owned_called(self, word: str) -> Assigned | None:
        if word == "null":
            return None
        if word == "empty":
            return {}
        owned = dict(self.former or self.assigned) if word == "former" else dict(self.assigned)
        if word == "part" and owned:
            last = max(owned)
            owned[last] = owned[last][:-1]
        if word == "foreign":
            owned["missing" if "one" in owned else "one"] = (0,)
        return {topic: parts for topic, parts in owned.items() if parts}

    def told(self, epoch: int, parts: Assigned | None, *, is_join: bool) -> None:
        """An answer without an error."""
        if epoch < 0:
            self.is_here, self.is_absent = False, epoch == -2
            return
        self.is_here, self.is_absent = True, False
        if is_join:
            self.former_epoch = self.older_epoch = 0
        elif epoch != self.epoch:
            self.older_epoch, self.former_epoch = self.former_epoch, self.epoch
        self.epoch = epoch
        if parts is not None and parts != self.assigned:
            self.former, self.assigned = self.assigned, parts

    def first_partition(self, word: str) -> tuple[str, int]:
        """ "assigned", "former" or a partition by name."""
        if word == "assigned":
            found = [(topic, part) for topic, parts in sorted(self.assigned.items()) for part in parts]
            return found[0] if found else ("two", 0)
        if word == "former":
            kept = self.assigned
            found = [
                (topic, part)
                for topic, parts in sorted(self.former.items())
                for part in parts
                if part not in kept.get(topic, ())
            ]
            return found[0] if found else ("three", 2)
        topic, _, number = word.partition("-")
        return topic, int(number)


class Run:
    """One run of one sequence. Args: pace: how patient it is; 1 is usual."""

    def __init__(
        self,
        port: int,
        shared: Mapping[str, uuid.UUID],
        sequence: RequestSequence,
        attempt: int = 0,
        pace: float = 1.0,
        plant: Plant | None = None,
    ) -> None:
        self._sequence = sequence
        self._pace = pace
        self._names = Names(shared, f"{sequence.number}-{attempt}")
        self._group = f"g-{self._names.tag}"
        self._connection = Connection(port, plant)
        self._members = [Member(slot, port, plant) for slot in range(4)]
        self._waiting: dict[int, asyncio.Task[str]] = {}
        self._partitions: dict[str, int] = {}

    async def answers(self) -> list[str]:
        """One text per step."""
        try:
            return [await self._answer(step) for step in self._sequence.steps]
        finally:
            for task in self._waiting.values():
                task.cancel()
            await asyncio.gather(*self._waiting.values(), return_exceptions=True)
            for connection in (self._connection, *(each.connection for each in self._members)):
                connection.close()

    async def _answer(self, step: Step) -> str:
        do: Callable[[Step, Member], Awaitable[str]] = getattr(self, f"_{step.do}")
        try:
            text = await do(step, self._members[step.slot])
        except ConnectionError as error:
            text = f"closed: {error}"
        if self._waiting:
            await self._behind(0.5)
            for slot in [slot for slot, task in self._waiting.items() if task.done()]:
                try:
                    text += f" + m{slot} {self._waiting.pop(slot).result()}"
                except ConnectionError as error:
                    text += f" + m{slot} closed: {error}"
        return text

    async def _behind(self, share: float = 1.0) -> None:
        await asyncio.sleep(BEHIND_SECONDS * share * self._pace)

    # -- members of the new protocol --------------------------------------------------------------------

    async def _heartbeat(self, words: Mapping[str, Any], member: Member) -> tuple[Fields, str]:
        kind = words.get("id", "right")
        if kind == "new":
            member.renew()
        member_id = {"none": "", "unknown": "nobody", "former": member.former_id or member.id}.get(
            kind, member.id
        )
        owned = member.owned_called(words.get("owned", "null"))
        instance = f"i{member.slot}" if words.get("instance") else None
        names, regex = words.get("names"), words.get("regex")
        answer = await self._connection.call(
            "consumer_group_heartbeat",
            words["v"],
            member.client_id,
            group_id=words.get("group", self._group),
            member_id=member_id,
            member_epoch=member.epoch_called(words["epoch"]),
            instance_id=words.get("instance_id", instance),
            rack_id=words.get("rack"),
            rebalance_timeout=words.get("timeout", -1),
            subscribed_topic_names=None if names is None else [*map(self._names.real, names)],
            subscribed_topic_regex=self._names.real("z") + ".*" if regex == OWN_REGEX else regex,
            server_assignor=words.get("assignor"),
            topic_partitions=None
            if owned is None
            else [
                {"topic_id": self._names.topic_id(topic), "partitions": list(parts)}
                for topic, parts in owned.items()
            ],
        )
        return answer, kind

    async def _beat(self, step: Step, member: Member) -> str:
        words = step.words
        answer, kind = await self._heartbeat(words, member)
        if not answer["error_code"]:
            if kind == "none":
                member.id = answer["member_id"]
                self._names.called(member.id, f"made{member.slot}")
            if kind in ("right", "new", "none"):
                self._tell(member, answer, is_join=words["epoch"] == "join")
            if words.get("regex"):
                await self._behind()
        text = answers.brief_heartbeat if words.get("brief") else answers.heartbeat
        return text(answer, self._names)

    def _tell(self, member: Member, answer: Fields, *, is_join: bool = False) -> None:
        parts = answer["assignment"]
        told = None if parts is None else answers.assigned(parts["topic_partitions"], self._names)
        member.told(answer["member_epoch"], told, is_join=is_join)

    async def _settle(self, step: Step, _: Member) -> str:
        """All heartbeat as clients do until nothing has moved in two rounds; what all orders agree in."""
        quiet = 0
        here = [each for each in self._members if each.is_here]
        for _round in range(SETTLING_ROUNDS):
            before = [(each.epoch, each.assigned) for each in here]
            for member in here:
                words = {"v": 1, "epoch": "current", "owned": "right"}
                answer, _kind = await self._heartbeat(words, member)
                if answer["error_code"]:
                    return f"m{member.slot} {answers.heartbeat(answer, self._names)}"
                self._tell(member, answer)
            quiet = quiet + 1 if before == [(each.epoch, each.assigned) for each in here] else 0
            if quiet == 2:
                break
        else:
            return "never settles"
        return self._agreed(here, step.words["same"])

    def _agreed(self, here: list[Member], same: bool) -> str:
        parts = [(topic, part) for each in here for topic in each.assigned for part in each.assigned[topic]]
        words = [
            f"epochs={[each.epoch for each in here]}",
            "once" if len(parts) == len({*parts}) else "TWICE",
        ]
        if same or not any(each.is_absent for each in self._members):
            words.append(f"partitions={len(parts)}")
        if same:
            counts = sorted(sum(map(len, each.assigned.values())) for each in here)
            words.append(f"counts={counts}")
        return " ".join(words)

    # -- offsets ----------------------------------------------------------------------------------------

    async def _commit(self, step: Step, member: Member) -> str:
        words = step.words
        topics: dict[str, set[int]] = {}
        for word in words["where"]:
            topic, part = member.first_partition(word)
            topics.setdefault(topic, set()).add(part)
        wanted = [
            {
                "name": self._names.real(topic),
                "topic_id": self._names.topic_id(topic),
                "partitions": [
                    {
                        "partition_index": part,
                        "committed_offset": words["offset"] + part,
                        "committed_metadata": "",
                    }
                    for part in sorted(parts)
                ],
            }
            for topic, parts in topics.items()
        ]
        answer = await self._connection.call(
            "offset_commit",
            words["v"],
            group_id=self._group,
            generation_id_or_member_epoch=member.epoch_called(words["epoch"]),
            member_id={"right": member.id, "nobody": "", "unknown": "nobody"}[words["id"]],
            topics=wanted,
        )
        return answers.by_partition(answer, self._names)

    async def _fetch(self, step: Step, member: Member) -> str:
        words = step.words
        some = [{"name": "two", "partition_indexes": [0, 1]}, {"name": "missing", "partition_indexes": [0]}]
        topics = None if words["all"] else some
        group = {
            "group_id": self._group,
            "member_id": {"right": member.id, "null": None, "unknown": "nobody"}[words["id"]],
            "member_epoch": member.epoch_called(words["epoch"]),
            "topics": topics,
        }
        fields = {"groups": [group]} if words["v"] >= 8 else {"group_id": self._group, "topics": topics}
        answer = await self._connection.call("offset_fetch", words["v"], **fields)
        return answers.offset_fetch(answer, self._names)

    async def _offset_delete(self, step: Step, _: Member) -> str:
        topics = [{"name": step.words["topic"], "partitions": [{"partition_index": 0}]}]
        answer = await self._connection.call("offset_delete", 0, group_id=self._group, topics=topics)
        return answers.offset_delete(answer, self._names)

    # -- the group as administrators see it -------------------------------------------------------------

    async def _describe(self, step: Step, _: Member) -> str:
        answer = await self._connection.call(
            "consumer_group_describe", step.words["v"], group_ids=[self._group]
        )
        text = answers.brief_described if step.words.get("brief") else answers.described
        return text(answer, self._names)

    async def _list(self, step: Step, _: Member) -> str:
        return answers.listed(await self._connection.call("list_groups", step.words["v"]), self._group)

    async def _describe_groups(self, step: Step, _: Member) -> str:
        answer = await self._connection.call("describe_groups", step.words["v"], groups=[self._group])
        return answers.classic_described(answer, self._names)

    async def _delete_group(self, step: Step, _: Member) -> str:
        answer = await self._connection.call("delete_groups", step.words["v"], groups_names=[self._group])
        return answers.results(answer, self._names)

    async def _configure(self, step: Step, _: Member) -> str:
        change = {"name": step.words["name"], "config_operation": 0, "value": step.words["value"]}
        resource = {"resource_type": 32, "resource_name": self._group, "configs": [change]}
        answer = await self._connection.call("incremental_alter_configs", 1, resources=[resource])
        await self._behind()
        return answers.results(answer, self._names)

    async def _wait(self, step: Step, _: Member) -> str:
        await asyncio.sleep(step.words["seconds"])
        return ""

    # -- topics -----------------------------------------------------------------------------------------

    async def _topic(self, step: Step, _: Member) -> str:
        name, change = step.words["name"], step.words["change"]
        real = self._names.real(name)
        if change == "create":
            wanted = {"name": real, "num_partitions": 2, "replication_factor": 1}
            answer = await self._connection.call("create_topics", 7, topics=[wanted], timeout=10_000)
            if not answer["topics"][0]["error_code"]:
                self._partitions[name] = 2
                self._names.created(name, await self._seen(real, 2))
        elif change == "grow":
            count = self._partitions.get(name, 1) + 1
            grown = {"name": real, "count": count, "assignments": None}
            answer = await self._connection.call("create_partitions", 3, topics=[grown], timeout=10_000)
            if not answer["results"][0]["error_code"]:
                self._partitions[name] = count
                await self._seen(real, count)
        else:
            answer = await self._connection.call("delete_topics", 6, topics=[{"name": real}], timeout=10_000)
            if not answer["responses"][0]["error_code"]:
                del self._partitions[name]
                await self._seen(real, 0)
        await self._behind(0.5)
        return answers.results(answer, self._names)

    async def _seen(self, real: str, partitions: int) -> uuid.UUID:
        """Wait until the broker shows the topic with that many partitions; its id."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            wanted: Fields = {"topics": [{"name": real}], "allow_auto_topic_creation": False}
            (topic,) = (await self._connection.call("metadata", 12, **wanted))["topics"]
            if len(topic["partitions"]) == partitions:
                return topic["topic_id"] or uuid.UUID(int=0)
            await asyncio.sleep(0.01)
        raise ConnectionError(f"{real} never has {partitions} partitions")

    # -- classic members --------------------------------------------------------------------------------

    async def _classic_join(self, step: Step, member: Member) -> str:
        return await self._or_waits(member, self._join(step.words, member))

    async def _classic_sync(self, step: Step, member: Member) -> str:
        return await self._or_waits(member, self._sync(step.words, member))

    async def _or_waits(self, member: Member, call: Coroutine[Any, Any, str]) -> str:
        """The answer, or "waits" where it comes with a later step."""
        if member.slot in self._waiting:
            call.close()
            return "still waits"
        task = asyncio.ensure_future(call)
        done, _ = await asyncio.wait([task], timeout=BLOCKED_SECONDS * self._pace)
        if done:
            return task.result()
        self._waiting[member.slot] = task
        return "waits"

    async def _join(self, words: Mapping[str, Any], member: Member) -> str:
        subscribed = answers.subscription_bytes(map(self._names.real, words["names"]))
        text = ""
        for _ in range(2):
            answer = await member.connection.call(
                "join_group",
                words["v"],
                f"{member.client_id}c",
                group_id=self._group,
                session_timeout=SESSION_MS,
                rebalance_timeout=LONG_MS,
                member_id=member.classic_id,
                group_instance_id=f"i{member.slot}" if words["instance"] else None,
                protocol_type=words["type"],
                protocols=[{"name": words["protocol"], "metadata": subscribed}],
            )
            if made := answer["member_id"]:
                self._names.called(made, f"m{member.slot}c")
            text += answers.joined(answer, self._names)
            if answer["error_code"] != 79:  # a member is told its id first, and joins with it
                break
            member.classic_id = made
            text += " then "
        if answer["error_code"] == 25:
            member.classic_id = ""
        if not answer["error_code"]:
            member.classic_id = member.id = made
            member.protocol = answer["protocol_name"] or ""
            member.led = [each["member_id"] for each in answer["members"]]
            member.told(answer["generation_id"], None, is_join=False)
            member.is_here = False  # it does not settle by the new protocol's heartbeats
        return text

    async def _sync(self, words: Mapping[str, Any], member: Member) -> str:
        ordered = sorted(member.led, key=self._names.member)
        made = [
            {
                "member_id": each,
                "assignment": answers.assignment_bytes(
                    {"twelve": range(place, TOPICS["twelve"], len(ordered))},
                    b"x" if words.get("data") else None,
                ),
            }
            for place, each in enumerate(ordered)
        ]
        answer = await member.connection.call(
            "sync_group",
            words["v"],
            f"{member.client_id}c",
            group_id=self._group,
            generation_id=member.epoch_called(words.get("generation", "current")),
            member_id=member.classic_id,
            protocol_type="consumer",
            protocol_name=member.protocol,
            assignments=made,
        )
        if not answer["error_code"]:
            parts = answers.assigned_in(answer["assignment"], self._names)
            member.assigned = dict(sorted(parts.items()))
        return answers.synced(answer, self._names)

    async def _classic_beat(self, step: Step, member: Member) -> str:
        generation = member.epoch_called(step.words["generation"])
        who: Fields = {"member_id": member.classic_id, "generation_id": generation}
        if member.slot in self._waiting:
            return "still waits"
        return answers.code(await member.connection.call("heartbeat", 4, group_id=self._group, **who))

    async def _leave_group(self, step: Step, member: Member) -> str:
        by_id = {"member_id": member.id, "group_instance_id": None}
        by_instance = {"member_id": "", "group_instance_id": f"i{member.slot}"}
        who = by_id if step.words["by"] == "id" else by_instance
        answer = await self._connection.call("leave_group", 5, group_id=self._group, members=[who])
        if not answer["error_code"] and not answer["members"][0]["error_code"]:
            member.is_here = False
            member.classic_id = ""
        return answers.code(answer, answers.results(answer, self._names))
