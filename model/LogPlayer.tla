----------------------------- MODULE LogPlayer -----------------------------
(***************************************************************************)
(* The player (seed 000, its section 3 written afresh) as player/core and  *)
(* player/target/target_position.py do it: one log, one target, and others *)
(* that show only in where the main stream starts and how far it runs; the *)
(* players of one player_term after the other, the processes of the target *)
(* one after the other over one store, a stream for each Hello.            *)
(*                                                                         *)
(* A crash is no step of its own: whoever has a successor, player or       *)
(* process, may act on or never act again. So is what was sent on a stream *)
(* that was given up: it may come yet, in its order, or never. What a      *)
(* target has told on a stream stays told, and is heard late, often, in    *)
(* any order, or never. One call of the core, with all it hands out, is    *)
(* one step; so is one call of Marks, with the store's transaction where   *)
(* it has one. Plant is a mistake to make, "" for none.                    *)
(*                                                                         *)
(* Not here: time (whoever may be given up, may be so at any time), bytes  *)
(* (bounds are in entries), reads that fail (they are slow ones),          *)
(* retention, targets that are removed.                                    *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Length,         \* the log's positions are 1..Length, 0 is before the first
    Routes,         \* which of them may be this target's: a set of sets, one is chosen
    MaxPlayers, MaxProcesses,
    MaxTerm,        \* streams of one player
    MaxCuts,        \* streams given up without need
    MaxBatch, MaxWindow, MaxNormal, MaxCatchup,
    MaxFeed,        \* positions that the main stream brings at once
    Dummies,        \* whether they are sent beside those that end a recovery
    Others,         \* whether other targets may be behind this one, or answer before it
    Fenced,         \* whether anybody looks at terms
    Reduced,        \* forget at once what nobody will look at any more (see Tidy)
    Plant

VARIABLES
    mine,           \* the positions of this target's entries
    core,           \* of each player: what it knows of the log and the target
    streams,        \* of each player and target_term
    marks,          \* of each process of the target: its Marks, and what it is storing
    store,          \* the target's: terms and position of its mark, and what was applied
    players, processes, cuts    \* so many there were

vars == <<mine, core, streams, marks, store, players, processes, cuts>>

Positions == 1..Length
Players == 1..MaxPlayers
Processes == 1..MaxProcesses
Streams == Players \X (1..MaxTerm)
NoTerms == <<0, 0>>
Nobody == 0

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
First(s, n) == SubSeq(s, 1, n)
After(s, n) == SubSeq(s, n + 1, Len(s))
Below(s, t) == s[1] < t[1] \/ (s[1] = t[1] /\ s[2] < t[2])

Part(i) == [at |-> i, dummy |-> FALSE]
Dummy(i) == [at |-> i, dummy |-> TRUE]
Ats(parts) == [n \in 1..Len(parts) |-> parts[n].at]
Real(part) == ~part.dummy
LastOr(parts, i) == IF parts = <<>> THEN i ELSE parts[Len(parts)].at

\* The target's parts of the positions after i, up to j, in order.
Due(i, j) == SelectSeq([n \in 1..Max(0, j - i) |-> Part(i + n)], LAMBDA part : part.at \in mine)

-----------------------------------------------------------------------------
(* One player's view of the target. `batch` and `asks` are what the core    *)
(* hands out: the first is written within the step.                         *)

Away == [link |-> "disconnected", term |-> 0, ack |-> 0, state |-> "S", normal |-> <<>>, catchup |-> <<>>,
         popped |-> <<>>, sent |-> 0, writing |-> FALSE, fetched |-> 0, end |-> 0, fetching |-> FALSE,
         dropped |-> FALSE, started |-> FALSE, current |-> 0, seen |-> 0, asks |-> {}, batch |-> <<>>]

Unborn == [link |-> "unborn", term |-> 0]
Gone == [link |-> "gone", term |-> 0]
Plays(p) == core[p].link \notin {"unborn", "gone"}
HasStream(c) == c.link \in {"handshake", "answered", "open"}

Nothing == [hello |-> "none", server |-> Nobody, down |-> <<>>, answer |-> -1, refused |-> 0, told |-> {}]

Init ==
    /\ mine \in Routes
    /\ core = [p \in Players |-> IF p = 1 THEN Away ELSE Unborn]
    /\ streams = [s \in Streams |-> Nothing]
    /\ marks = [q \in Processes |-> [terms |-> NoTerms, position |-> 0, received |-> 0, work |-> <<>>]]
    /\ store = [terms |-> NoTerms, position |-> 0, applied |-> <<>>]
    /\ players = 1 /\ processes = 1 /\ cuts = 0

(* target_queue.py                                                          *)

Waits(c) == LastOr(c.catchup, c.sent)
Newest(c) == LastOr(c.normal, Waits(c))

Suspended(c) ==
    [c EXCEPT !.state = "S", !.normal = IF Plant = "suspend_keeps" THEN @ ELSE <<>>,
              !.catchup = <<>>, !.popped = <<>>]

\* The bounds, in entries: TracePlayer counts bytes, too. How many of those that wait a batch takes that has some.
Fitting(c, some, waiting) == Min(Min(MaxWindow - Len(c.popped), MaxBatch) - Len(some), Len(waiting))
HasRoom(c) == Len(c.popped) < MaxWindow
IsFull(c) == Len(c.catchup) >= MaxCatchup
Exceeds(c) == Len(c.normal) > MaxNormal

\* next_batch: from the catch-up queue, and where that ends a recovery from the normal one, too.
Popped(c) ==
    LET waiting == IF c.state = "N" THEN c.normal ELSE c.catchup
        some == First(waiting, Fitting(c, <<>>, waiting))
        left == After(waiting, Len(some))
        ends == c.state = "FC" /\ left = <<>>
        more == IF ends THEN First(c.normal, Fitting(c, some, c.normal)) ELSE <<>>
        parts == some \o more IN
    IF parts = <<>> THEN c
    ELSE [c EXCEPT
            !.state = IF ends THEN "N" ELSE @,
            !.catchup = IF c.state = "N" THEN @ ELSE left,
            !.normal = IF c.state = "N" THEN left ELSE After(@, Len(more)),
            !.popped = @ \o Ats(parts),
            !.batch = [previous |-> c.sent, parts |-> parts],
            !.sent = LastOr(parts, c.sent)]

(* recovery.py                                                              *)

Complete(c) ==
    LET d == IF Waits(c) < c.end THEN [c EXCEPT !.catchup = Append(@, Dummy(c.end))] ELSE c IN
    [d EXCEPT !.state = IF d.catchup = <<>> \/ Plant = "normal_too_soon" THEN "N" ELSE "FC"]

Advance(c) ==
    IF c.state /= "RF" \/ c.fetching THEN c
    ELSE LET extends == c.fetched >= c.end /\ c.dropped
             d == IF extends THEN [c EXCEPT !.dropped = FALSE, !.end = c.current] ELSE c IN
         IF d.fetched >= d.end THEN Complete(d)
         ELSE IF IsFull(d) THEN d
         ELSE [d EXCEPT !.fetching = TRUE,
                        !.asks = @ \cup {[term |-> d.term, first |-> d.fetched + 1, last |-> d.end]}]

(* delivery.send_next                                                        *)

SendNext(c) ==
    LET lost == Plant = "popped_not_written" /\ c.writing
        d == IF ~HasRoom(c) \/ (c.writing /\ ~lost) THEN c ELSE Popped(c) IN
    Advance(IF d.batch = <<>> \/ c.batch /= <<>> THEN d
            ELSE IF lost THEN [d EXCEPT !.batch = <<>>] ELSE [d EXCEPT !.writing = TRUE])

Begun(c, position) ==
    LET end == IF Plant = "end_read_before_rf" /\ c.seen >= 0 THEN c.seen ELSE c.current IN
    SendNext(Advance([c EXCEPT
        !.link = "open", !.ack = position, !.state = "RF", !.sent = position,
        !.writing = FALSE, !.fetching = FALSE, !.dropped = FALSE, !.seen = 0,
        !.end = IF Plant = "end_early" THEN end - 1 ELSE IF Plant = "end_late" THEN end + 1 ELSE end,
        !.fetched = IF Plant = "start_early" THEN Max(0, position - 1)
                    ELSE IF Plant = "start_late" THEN position + 1 ELSE position]))

\* What is not looked at before the next stream begins is forgotten; a batch of this step is taken back.
Left(c, link) ==
    LET d == Suspended(c) IN
    [Away EXCEPT !.link = link, !.term = c.term, !.started = c.started, !.current = c.current,
                 !.normal = d.normal, !.asks = c.asks]

\* Of the main stream, so many positions at once; then dummies, the next batch, and the bound.
Takes(c) == c.state /= "S" /\ ~c.dropped
Wanted(c, parts) ==
    IF ~Takes(c) THEN <<>>
    ELSE IF Plant = "stored_sent_again" THEN parts
    ELSE SelectSeq(parts, LAMBDA part : part.at > c.ack)

WithDummy(c) ==
    IF ~(Takes(c) /\ c.ack < c.current) THEN c
    ELSE IF Plant = "dummy_overtakes" THEN [c EXCEPT !.normal = <<Dummy(c.current)>> \o @]
    ELSE IF Newest(c) < c.current THEN [c EXCEPT !.normal = Append(@, Dummy(c.current))]
    ELSE c

Overflowed(c) ==
    Advance([c EXCEPT !.normal = <<>>, !.state = "RF", !.dropped = Plant /= "end_not_extended"])

Bounded(c) ==
    IF ~Exceeds(c) \/ c.state = "S" THEN c
    ELSE IF c.state = "N" THEN Left(c, "disconnected") ELSE Overflowed(c)

Fed(c, through, dummies) ==
    LET d == [c EXCEPT !.normal = @ \o Wanted(c, Due(c.current, through)), !.current = through] IN
    Bounded(SendNext(IF dummies THEN WithDummy(d) ELSE d))

-----------------------------------------------------------------------------
(* The player's steps. Does: the shell writes what the core hands out.      *)

Keeps(plants) == ~Reduced \/ ~Fenced \/ Plant \in plants

\* Answers to streams and reads that the player has given up are dropped when they come: forget them.
Hears(p, k) == Keeps({"term_not_checked", "late_ack"}) \/ core'[p].term = k
Does(p, c) ==
    LET s == <<p, c.term>>
        d == [c EXCEPT !.batch = <<>>,
                       !.asks = IF Keeps({"read_without_term"}) THEN @
                                ELSE {f \in @ : c.link = "open" /\ f.term = c.term}] IN
    /\ core' = [core EXCEPT ![p] = d]
    /\ streams' = [t \in Streams |->
            IF t = s /\ c.batch /= <<>> /\ streams[t].hello /= "over"
            THEN [streams[t] EXCEPT !.down = Append(@, c.batch)]
            ELSE streams[t]]
    /\ UNCHANGED <<mine, marks, store, players, processes>>

\* Whether what comes on stream s is heard by its player.
Known(p, k) == core[p].term = k \/ ~Fenced \/ Plant = "term_not_checked"

MayGreet(p) == core[p].link = "disconnected" /\ core[p].term < MaxTerm
Greet(p) ==
    LET c == core[p] IN
    /\ MayGreet(p)
    /\ core' = [core EXCEPT ![p] = [c EXCEPT
            !.link = "handshake", !.term = @ + 1,
            !.seen = IF Plant /= "end_read_before_rf" THEN 0 ELSE IF c.started THEN c.current ELSE -1]]
    /\ streams' = [s \in Streams |->
            IF s = <<p, c.term + 1>> THEN [Nothing EXCEPT !.hello = "sent"]
            ELSE IF s[1] = p /\ ~Hears(p, s[2]) THEN [streams[s] EXCEPT !.answer = -1, !.refused = 0, !.told = {}]
            ELSE streams[s]]
    /\ UNCHANGED <<mine, marks, store, players, processes, cuts>>

MayConnect(p, k) ==
    Plays(p) /\ Known(p, k) /\ core[p].link = "handshake" /\ streams[<<p, k>>].answer >= 0
Connected(p, k) ==
    LET c == core[p]
        position == streams[<<p, k>>].answer IN
    /\ MayConnect(p, k)
    /\ Does(p, IF c.started THEN Begun(c, position) ELSE [c EXCEPT !.link = "answered", !.ack = position])
    /\ UNCHANGED cuts

\* The main stream starts at the furthest behind of those that have answered: this one, or another.
Start(p, from) ==
    LET c == core[p]
        d == [c EXCEPT !.started = TRUE, !.current = from] IN
    /\ Plays(p) /\ ~c.started
    /\ \/ c.link = "answered" /\ from = c.ack
       \/ Others /\ c.link = "answered" /\ from < c.ack
       \/ Others /\ c.link /= "answered"
    /\ Does(p, IF c.link = "answered" THEN Begun(d, c.ack) ELSE d)
    /\ UNCHANGED cuts

MayFeed(p) == IF Plays(p) THEN core[p].started /\ core[p].current < Length ELSE FALSE
Feed(p, through, dummies) ==
    LET c == core[p] IN
    /\ MayFeed(p)
    /\ through \in c.current + 1..Min(Length, c.current + MaxFeed)
    /\ Does(p, Fed(c, through, dummies))
    /\ UNCHANGED cuts

\* push_quiet_dummy: a target was sent nothing for a while, and nothing is under way to it.
Quiet(p) ==
    LET c == core[p] IN
    /\ Plays(p) /\ c.state = "N" /\ c.popped = <<>> /\ Newest(c) < c.current
    /\ c.normal = <<>> \/ Plant = "quiet_on_top"
    /\ Does(p, SendNext([c EXCEPT !.normal = Append(@, Dummy(c.current))]))
    /\ UNCHANGED cuts

\* A read is answered once, with some of its range from the beginning on.
MayFetch(p, f) ==
    /\ Plays(p) /\ core[p].link = "open" /\ core[p].fetching
    /\ core[p].term = f.term \/ ~Fenced \/ Plant = "read_without_term"
Fetched(p, f, through) ==
    LET c == core[p]
        first == c.fetched + 1
        last == Min(through, c.end)
        found == SelectSeq(Due(f.first - 1, through), LAMBDA part : part.at \in first..last)
        d == [c EXCEPT !.asks = @ \ {f}, !.fetching = FALSE, !.catchup = @ \o found, !.fetched = Max(@, last)] IN
    /\ MayFetch(p, f)
    /\ f \in c.asks
    /\ through \in f.first..f.last
    /\ Does(p, IF last < first THEN d ELSE SendNext(Advance(d)))
    /\ UNCHANGED cuts

MayComplete(p) == core[p].link = "open" /\ core[p].writing
Written(p) ==
    /\ MayComplete(p)
    /\ Does(p, SendNext([core[p] EXCEPT !.writing = FALSE]))
    /\ UNCHANGED cuts

MayHear(p, k, position) ==
    LET c == core[p] IN
    /\ Plays(p) /\ (Known(p, k) \/ Plant = "late_ack") /\ c.link = "open"
    /\ IF Plant = "late_ack" THEN position <= c.sent /\ position /= c.ack ELSE position > c.ack
Acknowledged(p, k, position) ==
    LET c == core[p]
        d == [c EXCEPT !.ack = position, !.popped = SelectSeq(@, LAMBDA i : i > position)] IN
    /\ position \in streams[<<p, k>>].told
    /\ MayHear(p, k, position)
    /\ Does(p, IF position > c.sent THEN Left(c, "stopped")
               ELSE IF Plant = "window_not_reopened" THEN d ELSE SendNext(d))
    /\ UNCHANGED cuts

MayBeRefused(p, k) == Known(p, k) /\ HasStream(core[p]) /\ streams[<<p, k>>].refused > 0
Refused(p, k) ==
    LET by == streams[<<p, k>>].refused IN
    /\ MayBeRefused(p, k)
    /\ IF by > p
       THEN core' = [core EXCEPT ![p] = Gone] /\ UNCHANGED <<mine, streams, marks, store, players, processes>>
       ELSE Does(p, Left(core[p], "stopped"))
    /\ UNCHANGED cuts

\* Another target has refused it.
Deposed(p) ==
    /\ Others /\ Plays(p) /\ p < players
    /\ core' = [core EXCEPT ![p] = Gone]
    /\ UNCHANGED <<mine, streams, marks, store, players, processes, cuts>>

\* Broken, silent, stuck, not answered in time. It has to come where nobody is at the other end any more.
Broken(p) ==
    LET s == streams[<<p, core[p].term>>] IN
    s.hello = "over" \/ (s.hello \notin {"none", "sent"} /\ s.server /= processes)
GiveUp(p) ==
    /\ HasStream(core[p])
    /\ IF Broken(p) THEN UNCHANGED cuts ELSE cuts < MaxCuts /\ cuts' = cuts + 1
    /\ Does(p, Left(core[p], "disconnected"))

\* Another player, while the one before may play on.
NewPlayer ==
    /\ players < MaxPlayers
    /\ players' = players + 1
    /\ core' = [core EXCEPT ![players + 1] = Away]
    /\ UNCHANGED <<mine, streams, marks, store, processes, cuts>>

-----------------------------------------------------------------------------
(* The target                                                               *)

\* Once a Hello is persisted, nothing of another stream is stored any more, and players before this one get
\* no further than to be refused: forget what they have under way.
TidyStreams(before, s) ==
    IF Keeps({"target_term_not_checked", "transaction_without_terms", "any_hello"}) THEN before
    ELSE [t \in Streams |->
            IF t[1] < s[1] THEN Nothing
            ELSE IF t /= s /\ before[t].hello = "served" THEN [before[t] EXCEPT !.hello = "over", !.down = <<>>]
            ELSE before[t]]
TidyCores(s) ==
    IF Keeps({"term_not_checked", "any_hello"}) THEN core
    ELSE [p \in Players |-> IF p < s[1] THEN Gone ELSE core[p]]
TidyMarks(before, q) ==
    IF Keeps({"target_term_not_checked", "transaction_without_terms", "any_hello"}) THEN before
    ELSE [r \in Processes |-> IF r < q THEN [before[r] EXCEPT !.work = <<>>] ELSE before[r]]

\* hello, the store's terms, settled. With Reduced they are one step, of the newest process: what can come in between,
\* or to one that was replaced, says something only to those that a newer stream has made an end of.
Hello(s, q) ==
    LET m == marks[q] IN
    /\ streams[s].hello = "sent"
    /\ q = processes \/ (q < processes /\ ~Reduced)
    /\ IF ~Below(m.terms, s) /\ Fenced /\ Plant /= "any_hello"
       THEN /\ streams' = [streams EXCEPT ![s].hello = "over", ![s].down = <<>>, ![s].refused = m.terms[1]]
            /\ UNCHANGED <<core, marks, store>>
       ELSE IF ~Reduced
       THEN /\ marks' = [marks EXCEPT ![q].terms = s]
            /\ streams' = [streams EXCEPT ![s].hello = "greeted", ![s].server = q]
            /\ UNCHANGED <<core, store>>
       ELSE /\ store' = [store EXCEPT !.terms = s]
            /\ marks' = TidyMarks([marks EXCEPT ![q] =
                    [terms |-> s, position |-> store.position, received |-> store.position, work |-> <<>>]], q)
            /\ streams' = TidyStreams([streams EXCEPT ![s].hello = "served", ![s].server = q,
                                                      ![s].answer = store.position], s)
            /\ core' = TidyCores(s)
    /\ UNCHANGED <<mine, players, processes, cuts>>

\* Until here older streams' transactions go on; another process may have been greeted by a newer stream.
Persist(s) ==
    /\ streams[s].hello = "greeted"
    /\ IF Below(store.terms, s) \/ ~Fenced \/ Plant = "any_hello"
       THEN store' = [store EXCEPT !.terms = s] /\ streams' = [streams EXCEPT ![s].hello = "persisted"]
       ELSE streams' = [streams EXCEPT ![s].hello = "over"] /\ UNCHANGED store
    /\ UNCHANGED <<mine, core, marks, players, processes, cuts>>

\* What older streams had under way has ended.
Settle(s) ==
    LET q == streams[s].server IN
    /\ streams[s].hello = "persisted" /\ marks[q].terms = s
    /\ marks' = [marks EXCEPT ![q] =
            [terms |-> s, position |-> store.position, received |-> store.position, work |-> <<>>]]
    /\ streams' = [streams EXCEPT ![s].hello = "served", ![s].answer = store.position]
    /\ UNCHANGED <<mine, core, store, players, processes, cuts>>

\* What of a batch is not known yet, where the batch reaches back to what is known.
Fresh(batch, received) == SelectSeq(batch.parts, LAMBDA part : part.at > received)
Follows(batch, received) ==
    LET known == Len(batch.parts) - Len(Fresh(batch, received)) IN
    known = Len(batch.parts) \/ received = IF known = 0 THEN batch.previous ELSE batch.parts[known].at

MayReceive(s) == streams[s].hello = "served" /\ streams[s].down /= <<>>
Receive(s) ==
    LET q == streams[s].server
        m == marks[q]
        batch == Head(streams[s].down)
        fresh == Fresh(batch, m.received)
        last == LastOr(fresh, m.received)
        unfenced == ~Fenced \/ Plant = "target_term_not_checked" IN
    /\ MayReceive(s)
    /\ IF (m.terms = s \/ unfenced) /\ Follows(batch, m.received)
       THEN /\ marks' = [marks EXCEPT ![q].received = last, ![q].work = Append(@,
                    [stream |-> s, terms |-> m.terms, parts |-> SelectSeq(fresh, Real), last |-> last])]
            /\ streams' = [streams EXCEPT
                    ![s].down = Tail(@),
                    ![s].told = IF Plant = "ack_before_store" THEN @ \cup {last} ELSE @]
       ELSE /\ streams' = [streams EXCEPT ![s].hello = "over", ![s].down = <<>>]
            /\ UNCHANGED marks
    /\ UNCHANGED <<mine, core, store, players, processes, cuts>>

Stores(work) == store.terms = work.terms \/ ~Fenced \/ Plant = "transaction_without_terms"
MarkOf(work) ==
    IF Plant = "dummy_not_stored" THEN Max(store.position, LastOr(work.parts, 0)) ELSE work.last

\* One transaction: committed with the mark, and then acknowledged; or failed.
Store(q) ==
    LET work == Head(marks[q].work)
        s == work.stream
        stored == Max(marks[q].position, work.last) IN
    /\ marks[q].work /= <<>>
    /\ IF Stores(work)
       THEN /\ store' = [store EXCEPT !.position = MarkOf(work), !.applied = @ \o work.parts]
            /\ marks' = [marks EXCEPT ![q].work = Tail(@), ![q].position = stored]
            /\ streams' = [streams EXCEPT ![s].told =
                    IF Keeps({"term_not_checked", "late_ack"}) \/ core[s[1]].term = s[2] THEN @ \cup {stored} ELSE @]
       ELSE /\ streams' = [streams EXCEPT ![s].hello = "over", ![s].down = <<>>]
            /\ marks' = [marks EXCEPT ![q].work = Tail(@)]
            /\ UNCHANGED store
    /\ UNCHANGED <<mine, core, players, processes, cuts>>

\* Another process over the same store, while the one before may run on with the streams it has.
NewProcess ==
    /\ processes < MaxProcesses
    /\ processes' = processes + 1
    /\ marks' = [marks EXCEPT ![processes + 1] =
            [terms |-> store.terms, position |-> store.position, received |-> store.position, work |-> <<>>]]
    /\ UNCHANGED <<mine, core, streams, store, players, cuts>>

-----------------------------------------------------------------------------
Play(p) ==
    \/ Greet(p)
    \/ \E k \in 1..MaxTerm : Connected(p, k)
    \/ \E k \in 1..MaxTerm : Refused(p, k)
    \/ \E from \in 0..Length : Start(p, from)
    \/ \E through \in Positions, dummies \in IF Dummies THEN BOOLEAN ELSE {FALSE} : Feed(p, through, dummies)
    \/ Plays(p) /\ \E f \in core[p].asks : \E through \in f.first..f.last : Fetched(p, f, through)
    \/ Written(p)
    \/ Dummies /\ Quiet(p)
    \/ Deposed(p)
    \/ \E k \in 1..MaxTerm : \E position \in streams[<<p, k>>].told : Acknowledged(p, k, position)
    \/ GiveUp(p)

Next ==
    \/ \E p \in Players : Play(p)
    \/ \E s \in Streams : (\E q \in Processes : Hello(s, q)) \/ Persist(s) \/ Settle(s) \/ Receive(s)
    \/ \E q \in Processes : Store(q)
    \/ NewPlayer
    \/ NewProcess

Spec == Init /\ [][Next]_vars

\* What the newest player and the newest process owe; nobody owes it of those before, nor a fault.
Owed ==
    \/ \E p \in Players :
        /\ p = players
        /\ \/ MayGreet(p)
           \/ \E k \in 1..MaxTerm : MayConnect(p, k) \/ MayBeRefused(p, k)
           \/ core[p].link = "answered"
           \/ MayFeed(p)
           \/ IF Plays(p) THEN \E f \in core[p].asks : MayFetch(p, f) ELSE FALSE
           \/ MayComplete(p)
           \/ \E k \in 1..MaxTerm : \E i \in streams[<<p, k>>].told : MayHear(p, k, i)
           \/ HasStream(core[p]) /\ Broken(p)
    \/ \E s \in Streams :
        \/ streams[s].hello = "sent"
        \/ streams[s].server = processes /\ (streams[s].hello = "greeted" \/ MayReceive(s))
        \/ streams[s].hello = "persisted" /\ streams[s].server = processes /\ marks[processes].terms = s
    \/ marks[processes].work /= <<>>

\* Something happens as long as anything is owed. That is weak fairness of all of it together, which is enough,
\* since nothing here goes in circles; said like this because TLC is slow with ENABLED.
Fair == []<>(~Owed) \/ []<><<TRUE>>_vars
FairSpec == Spec /\ Fair

-----------------------------------------------------------------------------
(* What must hold.                                                          *)

AppliedInOrderOnce == store.applied = Due(0, store.position)

\* A target refuses what does not follow, and so would hide a player's mistake: what it is sent is judged first.
Rightful(batch) ==
    SelectSeq(batch.parts, Real) = Due(batch.previous, LastOr(batch.parts, batch.previous))
    /\ \A n \in 1..Len(batch.parts) :
        batch.parts[n].at > IF n = 1 THEN batch.previous ELSE batch.parts[n - 1].at
StreamBringsWhatIsDue ==
    \A s \in Streams :
        LET down == streams[s].down IN
        streams[s].hello = "served" /\ streams[s].answer >= 0 /\ marks[streams[s].server].terms = s =>
            \A n \in 1..Len(down) :
                /\ Rightful(down[n])
                /\ down[n].previous = IF n = 1 THEN marks[streams[s].server].received
                                      ELSE LastOr(down[n - 1].parts, 0)

OlderStreamsAreOver ==
    \A q \in Processes : \A n \in 1..Len(marks[q].work) : marks[q].work[n].stream = marks[q].work[n].terms

AckedIsStored ==
    /\ \A s \in Streams : \A i \in streams[s].told : i <= store.position
    /\ \A p \in Players : Plays(p) => core[p].ack <= store.position

QueueIsWhatItsStateSays ==
    \A p \in Players : Plays(p) =>
        LET c == core[p] IN
        /\ c.state = "S" => c.normal = <<>> /\ c.catchup = <<>> /\ c.popped = <<>>
        /\ c.state = "FC" => c.catchup /= <<>>
        /\ c.state = "N" => c.catchup = <<>>
        /\ c.link = "open" <=> c.state /= "S"
        /\ Len(c.popped) <= MaxWindow
        /\ Len(c.normal) <= MaxNormal

NewestIsNotStopped == core[players].link \notin {"stopped", "gone"}

AcksGoForward ==
    [][\A p \in Players :
        core[p].link = "open" /\ core'[p].link = "open" /\ core'[p].term = core[p].term
            => core'[p].ack >= core[p].ack]_vars

TermsNeverBack == [][store'.terms = store.terms \/ Below(store.terms, store'.terms)]_vars

\* Faults are counted, so they stop; then all is acknowledged, for good.
Delivered == \E p \in Players : p = players /\ Plays(p) /\ core[p].started /\ \A i \in mine : i <= core[p].ack
AllIsDelivered == <>[]Delivered
=============================================================================
