"""The placement of log groups: the nodes that hold each, and its preferred leader.

A placement maps a group's id to its nodes; the first is the preferred leader. Invariants of what is
returned: group 0 has min(5, nodes) distinct nodes, each data group min(3, nodes), or one where the cluster
was founded so; over the data groups no node holds or leads two more than another. A change moves copies only
where these rules require it, because each is a whole log to be sent; the preferred leader may change freely.
Same input, same result. Does not know which nodes are alive, nor move anything: a placement gives the desired
members, `next_change` the steps.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

MAX_METADATA_VOTERS = 5
"""More voters make every change of metadata slower, and tolerate more failures than anybody plans for."""
MAX_DATA_VOTERS = 3

Placement = dict[int, tuple[int, ...]]
Choices = Sequence[tuple[int, Sequence[int]]]
"""For each slot, the node that has it and the nodes that could."""


def initial(nodes: Iterable[int], data_groups: int, replicas: int = MAX_DATA_VOTERS) -> Placement:
    """Groups 0 to `data_groups` of a new cluster, each data group with at most `replicas` nodes. Raises
    ValueError without nodes.

    Neighbours by number share a group; with as many groups as nodes, or a multiple, that is all.
    """
    ordered = _sort(nodes)
    size, count = min(replicas, len(ordered)), len(ordered)
    placement = {0: ordered[:MAX_METADATA_VOTERS]}
    for group in range(data_groups):
        placement[group + 1] = tuple(ordered[(group + step) % count] for step in range(size))
    return _balance(placement, ordered, replicas)


def replicas_of(placement: Mapping[int, tuple[int, ...]], node_count: int) -> int:
    """The nodes of each data group of this cluster, where there are so many: one, or `MAX_DATA_VOTERS`.

    One is recognised by groups that all have one node, though there are others, as in every cluster.
    """
    sizes = {len(members) for group_id, members in placement.items() if group_id}
    return 1 if node_count > 1 and sizes == {1} else MAX_DATA_VOTERS


def with_node(placement: Mapping[int, tuple[int, ...]], nodes: Iterable[int], new: int) -> Placement:
    """The same groups once `new` is one of the nodes, too."""
    before = _sort(nodes)
    return _balance(placement, _sort({*before, new}), replicas_of(placement, len(before)))


def without_node(placement: Mapping[int, tuple[int, ...]], nodes: Iterable[int], gone: int) -> Placement:
    """The same groups without `gone`. Raises ValueError where it is the last node."""
    before = _sort(nodes)
    return _balance(placement, _sort({*before} - {gone}), replicas_of(placement, len(before)))


def _sort(nodes: Iterable[int]) -> tuple[int, ...]:
    ordered = tuple(sorted(set(nodes)))
    if not ordered:
        raise ValueError("a cluster needs a node")
    return ordered


def _balance(placement: Mapping[int, tuple[int, ...]], nodes: tuple[int, ...], replicas: int) -> Placement:
    groups = {
        group_id: [node for node in placement[group_id] if node in nodes] for group_id in sorted(placement)
    }
    metadata = groups.pop(0, None)
    _fill(groups, nodes, min(replicas, len(nodes)))
    _balance_copies(groups, nodes)
    _balance_leaders(groups, nodes)
    balanced = {group_id: tuple(members) for group_id, members in groups.items()}
    if metadata is None:
        return balanced
    missing = [node for node in nodes if node not in metadata]
    return {0: tuple((metadata + missing)[:MAX_METADATA_VOTERS])} | balanced


def _copies(groups: Mapping[int, list[int]], nodes: Iterable[int]) -> Counter[int]:
    """Returns the number of groups on each node."""
    copies = Counter(dict.fromkeys(nodes, 0))
    for members in groups.values():
        copies.update(members)
    return copies


def _fill(groups: Mapping[int, list[int]], nodes: tuple[int, ...], size: int) -> None:
    """Gives each group `size` nodes: the least loaded are added, at the end, as they have no copy
    yet."""
    copies = _copies(groups, nodes)
    joined: list[tuple[list[int], int]] = []
    for members in groups.values():
        while len(members) > size:
            copies[members.pop()] -= 1
        while len(members) < size:
            least = min((node for node in nodes if node not in members), key=lambda node: copies[node])
            joined.append((members, len(members)))
            members.append(least)
            copies[least] += 1

    def choices() -> Choices:
        return [
            (members[index], [node for node in nodes if node not in members]) for members, index in joined
        ]

    # The new copies can still be moved without cost.
    for chain in _chains(choices, lambda: _copies(groups, nodes)):
        for slot, node in chain:
            members, index = joined[slot]
            members[index] = node


def _balance_copies(groups: Mapping[int, list[int]], nodes: tuple[int, ...]) -> None:
    """Move copies from the most to the least loaded until they differ by one.

    Where they differ by two, some group has the one node without the other. A follower's copy goes first.
    """
    copies = _copies(groups, nodes)
    while True:
        most = max(nodes, key=lambda node: copies[node])
        least = min(nodes, key=lambda node: copies[node])
        if copies[most] - copies[least] <= 1:
            return
        movable = [members for members in groups.values() if most in members and least not in members]
        members = min(movable, key=lambda members: members[0] == most)
        members[members.index(most)] = least
        copies[most] -= 1
        copies[least] += 1


def _balance_leaders(groups: Mapping[int, list[int]], nodes: tuple[int, ...]) -> None:
    """Moves preferred leaders within groups until no node leads two more than another.

    Where copies are even that is always reached: each node could lead a third of its copies, and flows have
    integral solutions.
    """
    ordered = list(groups.values())

    def choices() -> Choices:
        return [(members[0], members[1:]) for members in ordered]

    def leads() -> Counter[int]:
        counted = Counter(dict.fromkeys(nodes, 0))
        counted.update(members[0] for members in ordered)
        return counted

    for chain in _chains(choices, leads):
        for slot, successor in chain:
            members = ordered[slot]
            members.insert(0, members.pop(members.index(successor)))


def _chains(
    choices: Callable[[], Choices], loads: Callable[[], Counter[int]]
) -> Iterator[list[tuple[int, int]]]:
    """Chains of moves (slot, its next node), each to be made before the next, until loads are even.

    `choices` gives for each slot its node and the other candidates; several slots may have to move by one
    each.
    """
    while True:
        slots, load = choices(), loads()
        for start in sorted(load, key=lambda node: (-load[node], node)):
            chain = _shortest_chain(slots, load, start)
            if chain:
                yield chain
                break
        else:
            return


def _shortest_chain(slots: Choices, load: Mapping[int, int], start: int) -> list[tuple[int, int]]:
    """The fewest moves that take one from `start` and give one to a node with two less, if there are any."""
    came: dict[int, tuple[int, int]] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if load[node] <= load[start] - 2:
            chain = []
            while node != start:
                slot, before = came[node]
                chain.append((slot, node))
                node = before
            return chain
        for slot, (holder, others) in enumerate(slots):
            if holder != node:
                continue
            for successor in others:
                if successor != start and successor not in came:
                    came[successor] = (slot, node)
                    queue.append(successor)
    return []
