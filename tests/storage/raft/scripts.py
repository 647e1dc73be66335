"""Stories about a Raft group as text files: what is done, and what follows from it, sentence by sentence.

A line that begins with `>` is a command, the indented lines below it are what happened; everything else is
prose for the reader. `python -m tests.storage.raft.scripts --rewrite` writes down what happens now: read the
difference before committing it. In the manner of etcd's data-driven tests.

Commands (members are numbers, A>B is the way from A to B):
  group 1 2 3 [learners=4] [idle=5] [depth=2] [bytes=3]    a group of voters; the idle belong to none yet
  pass MS            time passes; whose deadline comes acts (member N waits 1 + (N-1)/8 election timeouts)
  run                flush and deliver until nothing is left;  live MS  the same while time passes
  flush N...         its writes reach the disk, one after the other; `flush N once` only the oldest
  deliver A>B...     what is on that way arrives in order; `deliver A>B last` only the newest
  drop A>B...        what is on that way is lost;  double A>B  is there twice;  hold A>B, release  comes later
  cut A>B...         from now on nothing arrives there;  isolate N  both ways with all;  heal
  propose N VALUE... | members N voters=.. learners=.. | transfer A>B | checkpoint N | campaign N
  crash N [kept=K] | restart N | unreachable A>B | lease N
  show               every member with its log as term:value;  matches N  what a leader knows of the others
`quietly` before a command leaves out what follows from it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    Install,
    InstallResponse,
    Message,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.types import NotLeader
from tests.storage.raft.world import LawBroken, Node, World

FOLDER = Path(__file__).parent / "scripts"


def _entries(first: int, last: int) -> str:
    return f"entry {first}" if first == last else f"entries {first} to {last}"


def _votes(message: VoteRequest | VoteResponse) -> str:
    me, to, term = message.sender, message.to, message.term
    if isinstance(message, VoteRequest):
        last = f"its last entry is {message.last_index} of term {message.last_term}"
        if message.pre:
            return f"{me} asks {to} whether it would vote in term {term}; {last}"
        return f"{me} wants {to}'s vote in term {term}{', as the leader told it' * message.transfer}; {last}"
    if message.granted:
        return f"{me} {'would vote' if message.pre else 'votes'} for {to} in term {term}"
    return f"{me} {'would not vote' if message.pre else 'does not vote'} for {to}; it is in term {term}"


def sentence(message: Message) -> str:
    """A message, for people."""
    me, to = message.sender, message.to
    match message:
        case VoteRequest() | VoteResponse():
            return _votes(message)
        case Append():
            prev = f"entry {message.prev_index} of term {message.prev_term}"
            if message.last_index == message.prev_index:
                return f"{me} asks {to} whether it has {prev}; committed is {message.commit_index}"
            terms = ", ".join(f"{term} from {first}" for first, term in message.runs)
            what = _entries(message.prev_index + 1, message.last_index)
            return f"{me} sends {to} {what} (term {terms}) after {prev}; committed is {message.commit_index}"
        case AppendResponse():
            if message.match_index >= 0:
                return f"{me} tells {to} that it holds everything up to {message.match_index}"
            hint = f"perhaps {message.hint_index} of term {message.hint_term}"
            return f"{me} tells {to} that its entry {message.prev_index} is another or missing; {hint}"
        case Heartbeat():
            return f"{me} is still there for {to}; committed is {message.commit_index}"
        case HeartbeatResponse():
            return f"{me} hears {to} in term {message.term}; it holds everything up to {message.match_index}"
        case TimeoutNow():
            return f"{me} tells {to} to stand for election"
        case Install():
            what = f"up to {message.index} of term {message.last_term}, chunk {message.chunk}"
            return f"{me} ships {to} a checkpoint {what}"
        case InstallResponse():
            return f"{me} {'stored' if message.accepted else 'refuses'} chunk {message.chunk} from {to}"
    raise AssertionError(message)


def _configuration(configuration: Configuration) -> str:
    def names(members: tuple[int, ...]) -> str:
        return " ".join(map(str, members))

    text = f"voters {names(configuration.voters)}"
    if configuration.joint:
        text += f", together with {names(configuration.old_voters)}"
    return text + (f", learners {names(configuration.learners)}" if configuration.learners else "")


def _times(count: int) -> str:
    return "" if count < 2 else f", its cut number {count}"


class Story(World):
    """A world that says what happens in it."""

    def __init__(
        self, voters: list[int], learners: list[int], idle: list[int], settings: RaftSettings
    ) -> None:
        self.lines: list[str] = []
        self.seen: dict[int, dict[str, object]] = {}
        self.cut_off: set[tuple[int, int]] = set()
        self.held: list[Message] = []
        configuration = Configuration(tuple(voters), (), tuple(learners))
        super().__init__(configuration, voters + learners + idle, settings, lambda n: 0)
        for node in self.nodes.values():
            self.note(node)
        self.lines.clear()

    def draw_of(self, member: int) -> Callable[[int], int]:
        return lambda n: (member - 1) * n // 8

    def send(self, message: Message) -> None:
        super().send(message)
        self.lines.append(sentence(message))

    def note(self, node: Node) -> None:
        """Say what has changed of a member since the last time."""
        raft, me = node.raft, node.member
        now: dict[str, object] = {
            "role": f"{me} is {raft.role.value} in term {raft.term}"
            + (f", led by {raft.leader_id}" if raft.leader_id not in (-1, me) else ""),
            "members": f"{me} goes by {_configuration(raft.configuration)}",
            "cut": f"{me} cuts its log after {node.cut_after[1]}{_times(node.cut_after[0])}",
            "log": f"{me}'s log ends with entry {raft.last_index} of term {raft.terms.last_term}",
            "flushed": f"{me} has flushed everything up to {raft.persisted_index}",
            "commit": f"{me} knows that everything up to {raft.commit_index} is committed",
            "serving": f"{me} {'serves' if raft.is_serving else 'serves no more'}",
        }
        before = self.seen.get(me, now)
        self.lines += [str(text) for key, text in now.items() if text and text != before.get(key)]
        self.seen[me] = now

    def acted(self, node: Node) -> None:
        """Order: what changed, then what was said because of it."""
        said, self.lines = self.lines, []
        self.note(node)
        self.told += self.lines + said
        self.lines = []

    told: list[str]

    # --- commands -----------------------------------------------------------------------------------------

    def ways(self, words: list[str]) -> list[tuple[int, int]]:
        pairs = [word.split(">") for word in words if ">" in word]
        return [(int(sender), int(to)) for sender, to in pairs]

    def waiting(self, way: tuple[int, int]) -> list[Message]:
        return [message for message in self.network if (message.sender, message.to) == way]

    def take(self, message: Message) -> None:
        self.network = [other for other in self.network if other is not message]

    def arrive(self, message: Message) -> None:
        self.take(message)
        node = self.nodes[message.to]
        if node.alive and (message.sender, message.to) not in self.cut_off:
            self.deliver(message)
            self.acted(node)

    def do_pass(self, words: list[str], live: bool = False) -> None:
        end_ms = self.now_ms + int(words[0])
        while True:
            node = min(self.up(), key=lambda each: (each.raft.deadline_ms, each.member))
            if node.raft.deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, node.raft.deadline_ms)
            node.tick()
            self.acted(node)
            if live:
                self.do_run([])
        self.now_ms = end_ms

    def do_live(self, words: list[str]) -> None:
        self.do_run([])
        self.do_pass(words, live=True)

    def do_run(self, _words: list[str]) -> None:
        while True:
            for node in self.up():
                while node.flush():
                    self.acted(node)
            if not self.network:
                return
            for message in list(self.network):
                self.arrive(message)

    def do_flush(self, words: list[str]) -> None:
        for word in words:
            if word != "once":
                node = self.nodes[int(word)]
                while node.flush():
                    self.acted(node)
                    if "once" in words:
                        break

    def do_deliver(self, words: list[str]) -> None:
        for way in self.ways(words):
            for message in self.waiting(way)[-1:] if "last" in words else self.waiting(way):
                self.arrive(message)

    def do_drop(self, words: list[str]) -> None:
        for way in self.ways(words):
            for message in self.waiting(way):
                self.take(message)

    def do_hold(self, words: list[str]) -> None:
        for way in self.ways(words):
            for message in self.waiting(way):
                self.take(message)
                self.held.append(message)

    def do_release(self, _words: list[str]) -> None:
        self.network += self.held
        self.held.clear()

    def do_double(self, words: list[str]) -> None:
        for way in self.ways(words):
            self.network += self.waiting(way)

    def do_cut(self, words: list[str]) -> None:
        self.cut_off |= set(self.ways(words))

    def do_isolate(self, words: list[str]) -> None:
        me = int(words[0])
        self.cut_off |= {way for other in self.nodes for way in ((me, other), (other, me))}

    def do_heal(self, _words: list[str]) -> None:
        self.cut_off.clear()

    def do_propose(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        for value in words[1:]:
            node.propose(value)
            self.acted(node)

    def do_members(self, words: list[str]) -> None:
        kinds = {
            kind: [int(each) for each in ids.split(",") if each] for kind, ids in _options(words).items()
        }
        node = self.nodes[int(words[0])]
        node.raft.change_members(kinds.get("voters", []), kinds.get("learners", []))
        node.drain()
        self.acted(node)

    def do_transfer(self, words: list[str]) -> None:
        ((leader, target),) = self.ways(words)
        node = self.nodes[leader]
        node.raft.transfer(target, node.clock_ms())
        node.drain()
        self.acted(node)

    def do_checkpoint(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        node.checkpoint()
        self.told.append(f"{node.member} has a checkpoint up to {node.base_index}")

    def do_campaign(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        node.raft.campaign(node.clock_ms())
        node.drain()
        self.acted(node)

    def do_crash(self, words: list[str]) -> None:
        self.nodes[int(words[0])].crash(int(_options(words).get("kept", "0")))

    def do_restart(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        node.start()
        self.acted(node)

    def do_unreachable(self, words: list[str]) -> None:
        ((leader, peer),) = self.ways(words)
        self.nodes[leader].raft.report_unreachable(peer)
        self.nodes[leader].drain()
        self.acted(self.nodes[leader])

    def do_lease(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        has = node.raft.has_lease(node.clock_ms())
        self.told.append(f"{node.member} {'has' if has else 'does not have'} the lease")

    def do_matches(self, words: list[str]) -> None:
        leader = self.nodes[int(words[0])]
        for member in self.nodes:
            progress = leader.raft.progress(member)
            if progress is not None:
                self.told.append(
                    f"{member} matches up to {progress.match_index}, is sent {progress.next_index} next, "
                    f"state {progress.state.value}"
                )

    def do_show(self, _words: list[str]) -> None:
        for node in self.nodes.values():
            if not node.alive:
                self.told.append(f"{node.member} is down")
                continue
            raft = node.raft
            log = "".join(f" {entry.term}:{_content(entry.value)}" for _, entry in sorted(node.log.items()))
            self.told.append(
                f"{node.member} is {raft.role.value} in term {raft.term}, committed {raft.commit_index}, "
                f"flushed {raft.persisted_index}, log after {node.base_index}:{log}"
            )


def _content(value: object) -> str:
    if isinstance(value, Configuration):
        return f"({_configuration(value)})"
    return "·" if value is None else str(value)


def _options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=") for word in words if "=" in word)


def _group(words: list[str]) -> Story:
    options = _options(words)
    settings = RaftSettings(
        pipeline_depth=int(options.get("depth", 1)), max_append_bytes=int(options.get("bytes", 100))
    )
    learners, idle = (
        [int(each) for each in options.get(kind, "").split(",") if each] for kind in ("learners", "idle")
    )
    return Story([int(word) for word in words if word.isdigit()], learners, idle, settings)


def play(text: str) -> str:
    """The script with what happens now below each command."""
    story: Story | None = None
    told: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        told.append(line)
        if not line.startswith("> "):
            continue
        words = line[2:].split()
        quietly = words[0] == "quietly"
        name, *rest = words[quietly:]
        if name == "group":
            story = _group(rest)
            continue
        assert story is not None, "a script begins with its group"
        story.told = []
        try:
            getattr(story, f"do_{name}")(rest)
            story.laws.leases(story)
        except (NotLeader, ConfigurationRejected, LawBroken) as error:
            story.told.append(f"{type(error).__name__}: {error}")
        if not quietly:
            told += [f"  {line}" for line in story.told]
    return "\n".join(told) + "\n"


def main(arguments: list[str]) -> int:
    """Prints which scripts tell another story now; with --rewrite they tell it from now on."""
    changed = 0
    for path in sorted(FOLDER.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        now = play(text)
        if now != text:
            changed += 1
            print(path.name)
            if "--rewrite" in arguments:
                path.write_text(now, encoding="utf-8")
    return 1 if changed and "--rewrite" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
