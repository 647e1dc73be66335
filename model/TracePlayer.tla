---------------------------- MODULE TracePlayer ----------------------------
(***************************************************************************)
(* Are recorded runs behaviours of LogPlayer? The module TraceData is      *)
(* generated: Traces, each of one target, with its bounds, which positions *)
(* are its own and how many bytes, and its events: what was seen of one    *)
(* player after a call of its core, or of one process of the target or its *)
(* store after a step. Each event is one step of LogPlayer, that of the    *)
(* call; then all that is observed must be equal. What streams bring, what *)
(* has been told and which reads are under way is left to TLC, which       *)
(* prints <<"matched", trace, event>> as far as there is a way.            *)
(*                                                                         *)
(* What the code does in one call and the model in two steps is in Also:   *)
(* a call after which the main stream starts, and one that gives a target  *)
(* up since the log has lost what it needs, and goes on behind that. What  *)
(* LogPlayer leaves out is here: targets that are removed and come back    *)
(* (Removed, Added), retention (Lost), bytes (the four bounds), a greeting *)
(* that the target finds broken (Unanswered). A read that fails is one     *)
(* that is not answered yet.                                               *)
(***************************************************************************)
EXTENDS LogPlayer, TraceData, TLC

VARIABLES which, at, steps

traceVars == <<vars, which, at, steps>>

T == Traces[which]
E == T.events[at]
S == <<E.terms[1], E.terms[2]>>

TraceInit ==
    /\ which \in DOMAIN Traces /\ at = 1 /\ steps = 0
    /\ mine = T.mine
    /\ core = [p \in Players |-> IF p = 1 THEN Away ELSE Unborn]
    /\ streams = [s \in Streams |-> Nothing]
    /\ marks = [q \in Processes |-> [terms |-> NoTerms, position |-> T.first, received |-> T.first, work |-> <<>>]]
    /\ store = [terms |-> NoTerms, position |-> T.first, applied |-> <<>>]
    /\ players = 1 /\ processes = 1 /\ cuts = 0

-----------------------------------------------------------------------------
(* The bounds, in entries and bytes: they take the place of LogPlayer's.   *)

\* Of this target's parts from position i to j: T.through[n + 1] is the bytes of all up to n.
Bytes(i, j) == T.through[j + 1] - T.through[i]
BytesIn(ats) == IF ats = <<>> THEN 0 ELSE Bytes(ats[1], ats[Len(ats)])
PartBytes(parts) == BytesIn(Ats(parts))

TraceFitting(c, some, waiting) ==
    LET most == Min(Min(T.window[1] - Len(c.popped), T.batch[1]) - Len(some), Len(waiting))
        bytes == Min(T.window[2] - BytesIn(c.popped), T.batch[2])
        from == (some \o waiting)[1].at IN
    Cardinality({n \in 1..most : (n = 1 /\ some = <<>>) \/ Bytes(from, waiting[n].at) <= bytes})
TraceHasRoom(c) == Len(c.popped) < T.window[1] /\ BytesIn(c.popped) < T.window[2]
TraceIsFull(c) == Len(c.catchup) >= T.catchup[1] \/ PartBytes(c.catchup) >= T.catchup[2]
TraceExceeds(c) == Len(c.normal) > T.normal[1] \/ PartBytes(c.normal) > T.normal[2]

-----------------------------------------------------------------------------
(* What is observed.                                                       *)

Queue(ats) == IF ats = <<>> THEN <<0, 0, 0>> ELSE <<Len(ats), ats[1], ats[Len(ats)]>>
RealIn(parts) == Len(SelectSeq(parts, Real))

SeenBatch(s) ==
    LET down == streams[s].down
        batch == down[Len(down)] IN
    IF E.batch = <<>> \/ streams[s].hello = "over" THEN TRUE
    ELSE /\ down /= <<>>
         /\ E.batch = <<batch.previous, LastOr(batch.parts, 0), Len(batch.parts), RealIn(batch.parts)>>

SeenPlayer(p) ==
    LET c == core[p] IN
    /\ c.link = E.link
    /\ E.link /= "gone" =>
        /\ c.term = E.term /\ c.state = E.state /\ c.started = E.started
        /\ E.started => c.current = E.current
        /\ E.normal = Queue(Ats(c.normal)) /\ E.catchup = Queue(Ats(c.catchup)) /\ E.popped = Queue(c.popped)
        /\ E.link \in {"answered", "open"} => c.ack = E.ack
        /\ E.link = "open" =>
            /\ c.sent = E.sent /\ c.writing = E.writing /\ c.fetching = E.reads
            /\ c.fetched = E.fetched /\ c.end = E.end /\ c.dropped = E.dropped
        /\ E.batch /= <<>> => c.link = "open" /\ c.writing
        /\ SeenBatch(<<p, E.term>>)

LastApplied == Ats(After(store.applied, Len(store.applied) - Len(E.parts)))

SeenTarget(q) ==
    LET m == marks[q]
        stream == IF E.call = "process" THEN Nothing ELSE streams[S] IN
    /\ store.terms = <<E.stored_terms[1], E.stored_terms[2]>>
    /\ store.position = E.stored /\ Len(store.applied) = E.applied
    /\ Len(m.work) = E.work
    /\ E.call /= "process" => stream.server = IF E.call = "refuses" THEN Nobody ELSE q
    /\ CASE E.call = "process" -> m.terms = S /\ m.position = E.position /\ m.received = E.received
         [] E.call = "hello" -> m.terms = S /\ stream.hello = "greeted"
         [] E.call = "refuses" -> stream.hello = "over" /\ stream.refused = E.by
         [] E.call = "persisted" -> stream.hello = "persisted"
         [] E.call = "unanswered" -> TRUE
         [] E.call = "settled" -> /\ stream.hello = "served" /\ stream.answer = E.position
                                  /\ m.position = E.position /\ m.received = E.received
         [] E.call = "receive" -> /\ stream.hello = "served" /\ m.received = E.received
                                  /\ Ats(m.work[Len(m.work)].parts) = E.parts
         [] E.call = "store" -> m.position = E.position /\ E.position \in stream.told /\ LastApplied = E.parts
         [] OTHER -> stream.hello = "over"

-----------------------------------------------------------------------------
(* Steps that LogPlayer leaves out.                                        *)

\* A target that is not there is like one that is stopped: the main stream goes on without it.
Removed(p) == Plays(p) /\ Does(p, Left(core[p], "stopped")) /\ UNCHANGED cuts
Added(p) ==
    /\ Plays(p) /\ core[p].link = "stopped" /\ E.term >= core[p].term
    /\ Does(p, [core[p] EXCEPT !.link = "disconnected", !.term = E.term])
    /\ UNCHANGED cuts

\* It answers, and the log begins behind what it needs.
Lacks(p, k) == E.first > streams[<<p, k>>].answer + 1
Lost(p, k) == MayConnect(p, k) /\ Lacks(p, k) /\ Does(p, Left(core[p], "stopped")) /\ UNCHANGED cuts

\* A stream that is over when it is to be answered: what older ones had under way is forgotten all the same.
Unanswered(q) ==
    /\ marks[q].terms = S /\ streams[S].server = q /\ streams[S].hello \in {"greeted", "persisted"}
    /\ marks' = [marks EXCEPT ![q].work = <<>>]
    /\ UNCHANGED <<mine, core, streams, store, players, processes, cuts>>

-----------------------------------------------------------------------------
Nothings == UNCHANGED vars

LacksMain(p) == core[p].link = "open" /\ core[p].ack + 1 < E.first

CalledPlayer(p) ==
    CASE E.call = "born" -> p = players + 1 /\ NewPlayer
      [] E.call = "tick" -> Greet(p) \/ GiveUp(p) \/ Quiet(p) \/ Nothings
      [] E.call = "connected" -> IF Lacks(p, E.of) THEN Lost(p, E.of) ELSE Connected(p, E.of)
      [] E.call = "disconnected" -> core[p].term = E.of /\ GiveUp(p)
      [] E.call = "range_lost" -> core[p].term = E.of /\ core[p].link = "open" /\ GiveUp(p)
      [] E.call = "stale" -> Refused(p, E.of)
      [] E.call = "fetched" -> \E f \in core[p].asks : f.term = E.of /\ Fetched(p, f, E.fetched)
      [] E.call = "written" -> core[p].term = E.of /\ Written(p)
      [] E.call = "acknowledged" -> \E i \in {E.ack, E.sent} : Acknowledged(p, E.of, i)
      [] E.call = "feed" -> \E dummies \in BOOLEAN : Feed(p, E.current, dummies)
      [] E.call = "feed_lost" -> IF LacksMain(p) THEN GiveUp(p) ELSE Feed(p, E.current, FALSE)
      [] E.call = "add" -> Added(p)
      [] E.call = "remove" -> Removed(p)
      [] E.call = "other" -> Deposed(p) \/ Nothings
      [] OTHER -> Nothings

\* The first player is there from the beginning; a player is born without targets.
Born(p) == p = 1 /\ players = 1 /\ core[1] = Away /\ Nothings

Also(p) ==
    \/ E.call = "born" /\ Removed(p)
    \/ E.call \in {"tick", "connected", "stale", "remove", "other"} /\ Start(p, E.current)
    \/ E.call = "feed_lost" /\ Feed(p, E.current, FALSE)

CalledTarget(q) ==
    CASE E.call = "process" -> IF q = 1 THEN processes = 1 /\ Nothings ELSE q = processes + 1 /\ NewProcess
      [] E.call \in {"hello", "refuses"} -> Hello(S, q)
      [] E.call \in {"persisted", "unpersisted"} -> Persist(S)
      [] E.call = "settled" -> Settle(S)
      [] E.call = "unanswered" -> Unanswered(q)
      [] E.call \in {"receive", "drop"} -> Receive(S)
      [] OTHER -> marks[q].work /= <<>> /\ Head(marks[q].work).stream = S /\ Store(q)

Matched ==
    /\ IF E.p = 0 THEN SeenTarget(E.q) ELSE SeenPlayer(E.p)
    /\ PrintT(<<"matched", which, at>>)
    /\ at' = at + 1 /\ steps' = 0
    /\ UNCHANGED vars

TraceStep ==
    /\ at <= Len(T.events)
    /\ UNCHANGED which
    /\ \/ steps > 0 /\ Matched
       \/ /\ steps = 0 /\ steps' = 1 /\ UNCHANGED at
          /\ IF E.p = 0 THEN CalledTarget(E.q) ELSE CalledPlayer(E.p) \/ (E.call = "born" /\ Born(E.p))
       \/ steps = 1 /\ steps' = 2 /\ UNCHANGED at /\ E.p /= 0 /\ Also(E.p)

TraceSpec == TraceInit /\ [][TraceStep]_traceVars

AppliedIsDue == store.applied = Due(T.first, store.position)
=============================================================================
