"""SharedLogRaft's steps, as a check of long traces: each event must be what the model allows.

The same relation as model/SharedLogRaft.tla, but following one run, so that thousands of events take
seconds: what is not observed (what has been said in each term, what a disk may hold) follows from what is.
Comments name the model's actions. `tests/model/test_traces.py` lets TLC judge a part of the same traces and
the same doctored ones: both must agree. The first event that no step explains raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.model.events import NOBODY, Entry, Event, HardPair, Trace, Voters

Log = list[int]
"""Entries by number: equal numbers mean equal entries after equal logs."""


class Refused(Exception):
    """An event that is no step of the model; the text says which rule it breaks."""


class Said:
    """What has been said in one term."""

    __slots__ = ("ack", "begun", "commit", "leader", "log", "stood", "votes")

    def __init__(self) -> None:
        self.begun = False
        """A member's hard state of this term was on its disk, so that it may have said so."""
        self.stood: dict[int, tuple[int, int]] = {}
        self.votes: dict[int, int] = {}
        self.leader = NOBODY
        self.log: Log = []
        self.commit = 0
        self.ack: dict[int, int] = {}


class Member:
    """One member's state of the model."""

    __slots__ = ("commit", "hard", "log", "past", "persisted", "role", "term", "unsaved", "verified", "vote")

    def __init__(self) -> None:
        self.role, self.term, self.vote = "follower", 0, NOBODY
        self.hard: HardPair = (0, NOBODY)
        self.unsaved: list[HardPair] = []
        self.log: Log = []
        self.past: list[Log] = []
        self.persisted = self.verified = self.commit = 0


class Relation:
    """Takes a trace event by event."""

    def __init__(self, voters: tuple[int, ...]) -> None:
        self._voters: Voters = (voters,)
        self._members: dict[int, Member] = {}
        self._said: dict[int, Said] = {}
        self._entries: list[tuple[int, int, Voters | None, int]] = [(0, 0, None, 0)]
        """By number: index, term, configuration, the configuration in force's number (0 the first)."""
        self._numbers: dict[tuple[int, int, Voters | None], int] = {}
        self._places: dict[tuple[int, int], int] = {}
        self._chosen: Log = []

    # -- logs -------------------------------------------------------------------------------------------

    def _append(self, log: Log, added: Iterable[Entry]) -> Log:
        number = log[-1] if log else 0
        grown = list(log)
        for term, voters in added:
            key = (number, term, voters)
            found = self._numbers.get(key)
            if found is None:
                index, before, _, configuration = self._entries[number]
                if term < before:
                    raise Refused(f"LogMatching: term {term} after {before}")
                found = self._numbers[key] = len(self._entries)
                self._entries.append((index + 1, term, voters, configuration if voters is None else found))
                if self._places.setdefault((index + 1, term), found) != found:
                    raise Refused(f"LogMatching: another entry {index + 1} of term {term}")
            number = found
            grown.append(number)
        return grown

    def _term(self, log: Log, index: int) -> int:
        return self._entries[log[index - 1]][1] if index else 0

    def _configuration(self, log: Log) -> tuple[int, Voters]:
        """(index, voter sets) of the configuration in force at a log's end."""
        number = self._entries[log[-1]][3] if log else 0
        index, _, voters, _ = self._entries[number]
        return index, voters if voters is not None else self._voters

    def _said_in(self, term: int) -> Said:
        return self._said.setdefault(term, Said())

    # -- events -----------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """The next event. Refused."""
        member = self._members.get(event.member)
        if member is None:
            self._members[event.member] = self._born(event)
            return
        if event.kept > len(member.log):
            raise Refused("more of the log kept than there was")
        log = (
            self._append(member.log[: event.kept], event.added)
            if self._changes(member, event)
            else member.log
        )
        if event.kind == "start":
            self._restart(member, event, log)
            return
        self._enter_term(member, event)
        if event.kind == "install":
            self._install(member, event, log)
        elif log is not member.log:
            if event.role == "leader":
                self._extend(member, event, log)
            else:
                self._follow(member, event, log)
        elif event.role == "leader" and self._said_in(event.term).leader != event.member:
            raise Refused("BecomeLeader: no no-op")
        self._verify(member, event)
        self._flush(member, event)
        self._commit(member, event)
        self._tell(member, event)

    def _born(self, event: Event) -> Member:
        """With nothing; or, where a damaged node comes back as another member, with what was left of a log
        and the term it had been in. Without a vote, and no voter until it is made one."""
        known = len(self._entries)
        member = Member()
        member.log = self._append([], event.added)
        member.term, member.hard, member.persisted = event.term, event.hard, event.persisted
        member.commit = member.verified = event.commit
        if len(self._entries) > known or (event.term and not self._said_in(event.term).begun):
            raise Refused("a member begins with nothing, or with what was left")
        if event.kind != "start" or event.hard != (event.term, NOBODY) or event.voted_for != NOBODY:
            raise Refused("a new member has not voted")
        if event.persisted != len(member.log) or self._term(member.log, len(member.log)) > event.term:
            raise Refused("what a new member has is on its disk, and not of a later term than its own")
        if member.log[: event.commit] != self._chosen[: event.commit] or event.commit > len(member.log):
            raise Refused("a new member's checkpoint is of what is committed")
        return member

    @staticmethod
    def _changes(member: Member, event: Event) -> bool:
        return bool(event.added) or event.kept != len(member.log)

    def _enter_term(self, member: Member, event: Event) -> None:
        """Timeout, SeeTerm, GrantVote, BecomeLeader, StepDown, PersistHardState."""
        if event.term < member.term:
            raise Refused("a term goes back")
        said = self._said_in(event.term)
        if event.term > member.term:
            self._enter_later_term(member, event, said)
        elif event.voted_for != member.vote:
            if member.vote != NOBODY or member.role != "follower" or event.voted_for == event.member:
                raise Refused("GrantVote: a vote is given once in a term")
            self._grant(member, event, said)
        if (event.term, event.voted_for) != (member.term, member.vote):
            member.unsaved.append((event.term, event.voted_for))
        member.term, member.vote = event.term, event.voted_for
        clean = self._persist_hard_state(member, event, said)
        self._take_role(member, event, said, clean)

    def _enter_later_term(self, member: Member, event: Event, said: Said) -> None:
        if event.voted_for == event.member:
            stepped = event.term == member.term + 1 or self._said_in(event.term - 1).begun
            if not stepped or not self._may_stand(member, event.member):
                raise Refused("Timeout: it may not stand in this term")
        elif not said.begun:
            raise Refused("SeeTerm: nobody was in this term")
        elif event.voted_for != NOBODY:
            self._grant(member, event, said)
        member.verified = member.commit

    def _persist_hard_state(self, member: Member, event: Event, said: Said) -> bool:
        """What is on the disk then may be said: whether this is the newest."""
        if event.hard != member.hard:
            if event.hard not in member.unsaved:
                raise Refused("PersistHardState: nobody asked for this hard state")
            member.unsaved = member.unsaved[member.unsaved.index(event.hard) + 1 :]
            member.hard = event.hard
            self._said_in(event.hard[0]).begun = True
        own, clean = event.member, member.hard == (event.term, event.voted_for)
        if clean and event.voted_for == own and event.role != "follower" and said.leader != own:
            said.votes[own] = own
            said.stood.setdefault(own, (self._term(member.log, len(member.log)), len(member.log)))
        elif clean and event.voted_for not in (own, NOBODY):
            said.votes[own] = event.voted_for
        return clean

    def _may_stand(self, member: Member, own: int) -> bool:
        index, voters = self._configuration(member.log)
        if any(own in each for each in voters):
            return True
        return index > member.commit and any(
            own in each for each in self._configuration(member.log[: index - 1])[1]
        )

    def _grant(self, member: Member, event: Event, said: Said) -> None:
        stood = said.stood.get(event.voted_for)
        if stood is None:
            raise Refused("GrantVote: for nobody who stood")
        if stood < (self._term(member.log, len(member.log)), len(member.log)):
            raise Refused("GrantVote: for a log that is behind")

    def _take_role(self, member: Member, event: Event, said: Said, clean: bool) -> None:
        own = event.member
        if event.role == "candidate" and event.voted_for != own:
            raise Refused("a candidate votes for itself")
        if event.role == "candidate" and said.leader == own:
            raise Refused("a leader does not stand in its own term")
        if event.role == "leader" and said.leader != own:
            if event.voted_for != own or not clean:
                raise Refused("BecomeLeader: its vote is not on the disk")
            voted = {voter for voter, candidate in said.votes.items() if candidate == own}
            if not _agreed(voted, self._configuration(member.log)[1]):
                raise Refused("BecomeLeader: no majority")
            if said.leader != NOBODY:
                raise Refused("ElectionSafety: two leaders in a term")
            said.leader, said.commit, said.log = own, member.commit, member.log
            self._complete(event.term, member.log)
        elif event.role == "leader" and member.role != "leader":
            raise Refused("a leader that stopped leads no more in this term")
        member.role = event.role

    def _complete(self, term: int, log: Log) -> None:
        """LeaderCompleteness, at the election; later commits of older terms are looked at as they come."""
        for older, said in self._said.items():
            if (
                older < term
                and said.commit
                and log[said.commit - 1 : said.commit] != said.log[said.commit - 1 : said.commit]
            ):
                raise Refused("LeaderCompleteness: a new leader lacks what is committed")

    # -- logs change ------------------------------------------------------------------------------------

    def _extend(self, member: Member, event: Event, log: Log) -> None:
        """BecomeLeader's no-op, Propose, ChangeMembers, FinishChange."""
        said = self._said_in(event.term)
        if event.kept < len(member.log):
            raise Refused("a leader cuts nothing")
        for index in range(event.kept + 1, len(log) + 1):
            if self._term(log, index) != event.term:
                raise Refused("a leader writes entries of its own term")
            number = log[index - 1]
            first = index == 1 or self._term(log, index - 1) != event.term
            if first:
                continue
            if self._term(log, max(member.commit, event.commit)) != event.term:
                raise Refused("Propose: before the no-op is committed")
            if self._entries[number][2] is not None:
                at, now = self._configuration(log[: index - 1])
                wanted = self._entries[number][2]
                assert wanted is not None
                joint = len(now) == 2 and wanted == now[:1]
                if at > max(member.commit, event.commit) or not (joint or now[0] in wanted):
                    raise Refused("ChangeMembers: one at a time, by joint consensus")
        member.log = said.log = log

    def _follow(self, member: Member, event: Event, log: Log) -> None:
        """Accept: what is new or differs is a piece of this term's leader's log."""
        said = self._said_in(event.term)
        if said.leader in (NOBODY, event.member):
            raise Refused("Accept: there is no leader to follow")
        if not event.added:
            raise Refused("Accept: cut without a conflict")
        if event.kept < member.commit:
            raise Refused("Accept: what is committed is cut")
        if log[-1:] != said.log[len(log) - 1 : len(log)]:
            raise Refused("Accept: not the leader's log")
        if event.kept < len(member.log):
            member.past.append(member.log)
            member.persisted = min(member.persisted, event.kept)
        member.log = log

    def _install(self, member: Member, event: Event, log: Log) -> None:
        said = self._said_in(event.term)
        if len(log) <= member.commit or event.commit != len(log) or event.persisted != len(log):
            raise Refused("Install: at or below the commit index")
        shipped = max(said.commit, len(self._chosen) if said.leader == NOBODY else 0)
        if len(log) > shipped or log[-1] != (
            self._chosen[len(log) - 1] if len(log) <= len(self._chosen) else 0
        ):
            raise Refused("Install: of what is not committed")
        member.past.append(member.log)
        member.log = log
        member.persisted = member.commit = len(log)
        member.verified = max(member.verified, len(log))

    # -- the disk ---------------------------------------------------------------------------------------

    def _flush(self, member: Member, event: Event) -> None:
        """Flushed, as far as the hard state allows."""
        if not member.persisted <= event.persisted <= len(member.log):
            raise Refused("Flushed: what is on the disk does not go away, and ends with the log")
        if event.persisted > member.persisted:
            if self._term(member.log, event.persisted) > member.hard[0]:
                raise Refused("Flushed: entries of a later term than the hard state")
            member.persisted = event.persisted

    def _restart(self, member: Member, event: Event, log: Log) -> None:
        """Crash: a log held before that begins with what is flushed, a hard state since the last sure one."""
        pair = (event.term, event.voted_for)
        if pair != member.hard and pair not in member.unsaved:
            raise Refused("Crash: a hard state that was never asked for, or forgotten")
        lo = member.persisted
        flushed = len(log) >= lo and log[:lo] == member.log[:lo]
        switched = event.commit == len(log) > member.commit and log == self._chosen[: len(log)]
        held = flushed and any(log == one[: len(log)] for one in (member.log, *member.past))
        if not switched and not held:
            raise Refused("Crash: the disk cannot hold this log")
        if event.commit > member.commit and not switched:
            raise Refused("Crash: a checkpoint of what is not committed")
        if log and self._term(log, len(log)) > event.term:
            raise Refused("Crash: entries of a later term than the hard state")
        if event.persisted != len(log) or event.role != "follower":
            raise Refused("Crash: what was recovered is on the disk, and follows")
        if log != member.log:
            member.past.append(member.log)
        member.log, member.persisted = log, len(log)
        member.term, member.vote = member.hard = pair
        self._said_in(event.term).begun = True
        member.unsaved = []
        member.role, member.commit = "follower", event.commit
        member.verified = event.commit

    # -- commit and answers -----------------------------------------------------------------------------

    def _verify(self, member: Member, event: Event) -> None:
        if event.role != "follower":
            return
        said = self._said_in(event.term)
        if event.verified < member.verified or event.verified > len(member.log):
            raise Refused("verified goes back, or beyond the log")
        if event.verified > max(member.verified, member.commit):
            at = event.verified - 1
            if said.leader in (NOBODY, event.member) or member.log[at] != said.log[at : at + 1].pop():
                raise Refused("verified: not the leader's log")
        member.verified = event.verified

    def _commit(self, member: Member, event: Event) -> None:
        """LeaderCommit, FollowCommit; StateMachineSafety and LeaderCompleteness with them."""
        index = event.commit
        if index < member.commit or index > len(member.log):
            raise Refused("commit goes back, or beyond the log")
        if index == member.commit:
            return
        said = self._said_in(event.term)
        if said.leader == event.member:
            if self._term(member.log, index) != event.term:
                raise Refused("LeaderCommit: an entry of an older term")
            holders = {other for other, ack in said.ack.items() if ack >= index and other != event.member}
            if member.persisted >= index:
                holders.add(event.member)
            if not self._counted(holders, member.log, index):
                raise Refused("LeaderCommit: no majority holds it")
            self._choose(event.term, member.log, index)
            said.commit = index
        elif index > min(said.commit, member.verified, member.persisted):
            raise Refused("FollowCommit: beyond the leader's commit, or what is verified and flushed here")
        member.commit = index

    def _counted(self, holders: set[int], log: Log, index: int) -> bool:
        """By the configuration in force when it was counted: the last, or the one before this very event."""
        if _agreed(holders, self._configuration(log)[1]):
            return True
        at = self._configuration(log)[0]
        return at > index and at == len(log) and _agreed(holders, self._configuration(log[: at - 1])[1])

    def _choose(self, term: int, log: Log, index: int) -> None:
        known = min(index, len(self._chosen))
        if known and log[known - 1] != self._chosen[known - 1]:
            raise Refused("StateMachineSafety: another entry is committed there")
        if index > len(self._chosen):
            self._chosen.extend(log[len(self._chosen) : index])
        for later, said in self._said.items():
            if (
                later > term
                and said.leader != NOBODY
                and said.log[index - 1 : index] != log[index - 1 : index]
            ):
                raise Refused("LeaderCompleteness: a later leader lacks it")

    def _tell(self, member: Member, event: Event) -> None:
        """Acknowledgements leave once the hard state is on the disk."""
        said = self._said_in(event.term)
        if member.hard == (event.term, event.voted_for) and said.leader not in (NOBODY, event.member):
            held = min(member.verified, member.persisted)
            if held > said.ack.get(event.member, 0):
                said.ack[event.member] = held


def _agreed(holders: set[int], configuration: Voters) -> bool:
    return all(2 * len(holders.intersection(voters)) > len(voters) for voters in configuration)


def judge(trace: Trace) -> str:
    """Empty where every event is a step of the model, else which is not and why."""
    relation = Relation(trace.voters)
    for number, event in enumerate(trace.events):
        try:
            relation.take(event)
        except Refused as refused:
            return f"event {number}, member {event.member}: {refused}"
    return ""
