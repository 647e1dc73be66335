------------------------------ MODULE LogDisk ------------------------------
(***************************************************************************)
(* One node's log on its disk, cell by cell (docs/disk_format.md): a cell  *)
(* is what reaches the disk as a whole, a sector. Files are recycled with  *)
(* what they held; a write is a marker and its frames, its unflushed cells *)
(* reach the disk in any subset; the state file has two slots. Every disk  *)
(* step is a step here (todo), and a crash may come between any two.       *)
(* Recovery reads nothing but cells, as storage/log/recovery.py and        *)
(* scan.py do, and what it finds must be what AbstractDisk.tla allows:     *)
(* Refines. SharedLogRaft.tla builds on no more than that.                 *)
(*                                                                         *)
(* A frame's chain value stands for all frames before it, so it is modelled*)
(* by them: [k: "frame", log]. Stale cells verify on their own; only chain,*)
(* marker and generation tell that they are stale.                         *)
(*                                                                         *)
(* Not here: durability of names (a file is renamed before it is used, rule*)
(* 4), checkpoint files (whole or not there), index files, log.flush=os.   *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Cells,          \* of a segment file, its header (cell 0) included
    FrameCells,     \* 1, or 2: the payload is a cell of its own
    MaxWrite,       \* frames in a write
    MaxSequence,    \* segments ever begun; segment s is in file s % 2
    MaxLength, MaxTerm,
    MaxCrashes, MaxCuts, MaxVotes, MaxIdle, MaxInstalls, MaxRot,
    Kill,           \* crashes of the process alone as well: unflushed cells stay, unflushed
    Plant

VARIABLES
    disk, cache,        \* cells of both files: durable, and as reads see them
    slots, pending,     \* the state file; a slot that is being written
    mode,               \* "up", "down", "opening", "refused"
    todo,               \* disk steps of the operation under way
    now,                \* what the process knows: the state last saved, ...
    seg, off,           \* where the next byte goes
    flushed,            \* position up to which it has flushed
    idle,               \* an idle marker is the last thing written
    ends,               \* position after each frame (0: known to the checkpoint only)
    checkpoint,         \* durable: [log, place, shipped]; the newest
    offered,            \* a shipped checkpoint that is durable and not yet switched to
    mem, lo, past,      \* AbstractDisk: the log, what of it is flushed, logs held before
    sure,               \* how much of it a durable marker, header or generation calls flushed
    term,
    crashes, cuts, votes, rots, idles, installs

vars == <<disk, cache, slots, pending, mode, todo, now, seg, off, flushed, idle, ends, checkpoint, offered,
          mem, lo, past, sure, term, crashes, cuts, votes, rots, idles, installs>>
budget == <<crashes, cuts, votes, rots, idles, installs>>
place == <<seg, off, flushed, idle>>

Disk == INSTANCE AbstractDisk

First(s, n) == SubSeq(s, 1, n)
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Room == 100
P(s, k) == s * Room + k
SegOf(p) == p \div Room
OffOf(p) == p % Room
F(s) == s % 2
Files == {0, 1}

Zero == [k |-> "zero"]
Rot == [k |-> "rot"]
Torn == [saves |-> 0]
Blank == [i \in 0..Cells - 1 |-> Zero]
Header(s, gen, end, l, fl) == [k |-> "head", seq |-> s, gen |-> gen, end |-> end, log |-> l, flushed |-> fl]
Marker(gen, pos, fl, len) == [k |-> "mark", gen |-> gen, pos |-> pos, flushed |-> fl, len |-> len]

Init ==
    /\ cache = [f \in Files |-> IF f = F(1) THEN [Blank EXCEPT ![0] = Header(1, 1, 0, <<>>, P(1, 0))] ELSE Blank]
    /\ disk = cache
    /\ now = [saves |-> 1, vote |-> 0, gen |-> 1, start |-> P(1, 0), oldest |-> 1]
    /\ slots = <<now, now>>
    /\ pending = <<>>
    /\ mode = "up" /\ todo = <<>>
    /\ seg = 1 /\ off = 1 /\ flushed = P(1, 1) /\ idle = TRUE
    /\ ends = <<>>
    /\ checkpoint = [log |-> <<>>, place |-> 0, shipped |-> FALSE]
    /\ offered = <<>>
    /\ mem = <<>> /\ lo = 0 /\ past = {} /\ sure = 0
    /\ term = 1
    /\ crashes = 0 /\ cuts = 0 /\ votes = 0 /\ rots = 0 /\ idles = 0 /\ installs = 0

Ready == mode = "up" /\ todo = <<>>

-----------------------------------------------------------------------------
(* Steps of an operation, done one by one.                                  *)

Write(f, cells) == [op |-> "write", f |-> f, cells |-> cells]
Flush(f) == [op |-> "flush", f |-> f]
Offer(c) == [op |-> "offer", c |-> c]
End(w) == [op |-> "end", w |-> w]
SlotsFor(v) ==
    LET newest == IF slots[1].saves >= slots[2].saves THEN 1 ELSE 2
        one == 3 - newest
        v2 == [v EXCEPT !.saves = now.saves + 1] IN
    IF Plant = "hard_state_not_flushed" THEN <<[op |-> "believed", v |-> v2]>>
    ELSE IF Plant = "both_slots_at_once"
    THEN <<[op |-> "slots", v |-> v2], [op |-> "slotsflushed", v |-> v2]>>
    ELSE <<[op |-> "slot", i |-> one, v |-> v2], [op |-> "slotflushed", i |-> one, v |-> v2],
           [op |-> "slot", i |-> 3 - one, v |-> v2], [op |-> "slotflushed", i |-> 3 - one, v |-> v2]>>

\* What an operation knows when it ends.
Known(s, o, fl, id, l, e, st) ==
    [seg |-> s, off |-> o, flushed |-> fl, idle |-> id, mem |-> l, ends |-> e, sure |-> st]

Step ==
    /\ mode \in {"up", "opening"} /\ todo /= <<>>
    /\ LET do == Head(todo) IN
       /\ todo' = Tail(todo)
       /\ cache' = IF do.op = "write"
                   THEN [cache EXCEPT ![do.f] = [k \in 0..Cells - 1 |-> IF k \in DOMAIN do.cells THEN do.cells[k] ELSE @[k]]]
                   ELSE cache
       /\ disk' = IF do.op = "flush" THEN [disk EXCEPT ![do.f] = cache[do.f]] ELSE disk
       /\ pending' = CASE do.op = "slot" -> <<{do.i}, do.v>>
                       [] do.op = "slots" -> <<{1, 2}, do.v>>
                       [] OTHER -> <<>>
       /\ slots' = CASE do.op = "slotflushed" -> [slots EXCEPT ![do.i] = do.v]
                     [] do.op = "slotsflushed" -> <<do.v, do.v>>
                     [] OTHER -> slots
       /\ now' = IF do.op \in {"slotflushed", "slotsflushed", "believed"} THEN do.v ELSE now
       /\ offered' = IF do.op = "offer" THEN <<do.c>> ELSE IF do.op = "end" THEN <<>> ELSE offered
       /\ IF do.op = "end"
          THEN /\ mode' = "up"
               /\ seg' = do.w.seg /\ off' = do.w.off /\ flushed' = do.w.flushed /\ idle' = do.w.idle
               /\ mem' = do.w.mem /\ ends' = do.w.ends /\ sure' = do.w.sure
               /\ lo' = Min(Max(lo, do.w.sure), Len(do.w.mem))
               /\ past' = IF Plant = "cut_ends_the_branch" THEN {} ELSE Disk!Keep(past, mem, do.w.mem)
               /\ checkpoint' = IF offered /= <<>> THEN offered[1] ELSE checkpoint
          ELSE UNCHANGED <<mode, place, mem, ends, sure, lo, past, checkpoint>>
    /\ UNCHANGED <<term, budget>>

-----------------------------------------------------------------------------
Frame(l) == [k |-> "frame", log |-> l]
Load(e) == [k |-> "load", e |-> e]
FrameCell(l, j) == IF j = 0 THEN Frame(l) ELSE Load(l[Len(l)])

\* One pwritev: a marker and n frames of the present term.
Append_(n) ==
    LET l == mem \o [j \in 1..n |-> term]
        len == n * FrameCells
        fl == IF Plant = "marker_promises_early" THEN P(seg, off + 1 + len) ELSE flushed
        cells == [k \in off..off + len |->
                    IF k = off THEN Marker(now.gen, P(seg, off), fl, len)
                    ELSE LET j == k - off - 1 IN
                         FrameCell(First(l, Len(mem) + 1 + j \div FrameCells), j % FrameCells)] IN
    /\ Ready
    /\ Len(l) <= MaxLength
    /\ off + 1 + len <= Cells
    /\ cache' = [cache EXCEPT ![F(seg)] = [k \in 0..Cells - 1 |-> IF k \in DOMAIN cells THEN cells[k] ELSE @[k]]]
    /\ off' = off + 1 + len
    /\ idle' = FALSE
    /\ mem' = l
    /\ ends' = ends \o [j \in 1..n |-> P(seg, off + 1 + j * FrameCells)]
    /\ UNCHANGED <<disk, slots, pending, mode, todo, now, seg, flushed, checkpoint, offered, lo, past, sure, term, budget>>

FlushLog ==
    /\ Ready
    /\ lo < Len(mem) \/ cache[F(seg)] /= disk[F(seg)]
    /\ disk' = [disk EXCEPT ![F(seg)] = cache[F(seg)]]
    /\ flushed' = P(seg, off)
    /\ lo' = Len(mem)
    /\ sure' = IF lo = Len(mem) THEN Len(mem) ELSE Max(sure, lo)    \* a marker had said so, and is there now
    /\ UNCHANGED <<cache, slots, pending, mode, todo, now, seg, off, idle, ends, checkpoint, offered, mem, past, term, budget>>

IdleMarker ==
    /\ Ready
    /\ idles < MaxIdle
    /\ ~idle /\ flushed = P(seg, off) /\ off < Cells
    /\ cache' = [cache EXCEPT ![F(seg)][off] = Marker(now.gen, P(seg, off), flushed, 0)]
    /\ off' = off + 1
    /\ idle' = TRUE
    /\ idles' = idles + 1
    /\ UNCHANGED <<disk, slots, pending, mode, todo, now, seg, flushed, ends, checkpoint, offered, mem, lo, past, sure,
                   term, crashes, cuts, votes, rots, installs>>

FileIsFree(s) == s <= MaxSequence /\ s - 2 < now.oldest

Roll ==
    LET next == seg + 1
        fl == P(seg, off) IN
    /\ Ready
    /\ off + 1 + FrameCells > Cells
    /\ FileIsFree(next)
    /\ todo' = (IF Plant = "roll_without_flush" THEN <<>> ELSE <<Flush(F(seg))>>)
               \o <<Write(F(next), 0 :> Header(next, now.gen, off, mem, fl)), Flush(F(next)),
                    End(Known(next, 1, P(next, 1), FALSE, mem, ends, Len(mem)))>>
    /\ UNCHANGED <<disk, cache, slots, pending, mode, now, place, ends, checkpoint, offered, mem, lo, past, sure, term, budget>>

\* The first thing of a generation is a marker, where there is room for one.
FirstMarker(p, gen) ==
    IF OffOf(p) >= Cells \/ Plant = "generation_without_marker" THEN <<>>
    ELSE <<Write(F(SegOf(p)), OffOf(p) :> Marker(gen, p, p, 0))>>
AfterMarker(p) == IF OffOf(p) >= Cells \/ Plant = "generation_without_marker" THEN OffOf(p) ELSE OffOf(p) + 1

Cut(i) ==
    LET p == IF i = 0 THEN P(1, 1) ELSE ends[i]
        keep == Plant = "cut_keeps_generation"
        v == [now EXCEPT !.gen = @ + 1, !.start = p]
        gen == IF keep THEN now.gen ELSE now.gen + 1 IN
    /\ Ready
    /\ cuts < MaxCuts
    /\ i \in Len(checkpoint.log)..Len(mem) - 1
    /\ p > 0
    /\ term < MaxTerm
    /\ term' = term + 1
    /\ cuts' = cuts + 1
    /\ past' = Disk!Keep(past, mem, First(mem, i))
    /\ mem' = First(mem, i)
    /\ lo' = Min(lo, i)
    /\ sure' = Min(sure, i)
    /\ ends' = First(ends, i)
    /\ todo' = (IF Plant = "cut_not_flushed" THEN <<>> ELSE <<Flush(F(seg))>>)
               \o (IF keep THEN <<>> ELSE SlotsFor(v))
               \o FirstMarker(p, gen)
               \o <<End(Known(SegOf(p), AfterMarker(p), p, TRUE, First(mem, i), First(ends, i), i))>>
    /\ UNCHANGED <<disk, cache, slots, pending, mode, now, place, checkpoint, offered, crashes, votes, rots, idles, installs>>

\* Hard state goes through the same two slots; it may come between a write and its flush.
SaveVote ==
    /\ Ready
    /\ votes < MaxVotes
    /\ votes' = votes + 1
    /\ todo' = SlotsFor([now EXCEPT !.vote = votes + 1])
               \o <<End(Known(seg, off, flushed, idle, mem, ends, sure))>>
    /\ UNCHANGED <<disk, cache, slots, pending, mode, now, place, ends, checkpoint, offered, mem, lo, past, sure, term,
                   crashes, cuts, rots, idles, installs>>

\* A checkpoint of flushed frames; then segments below it may go: their files are used again.
Checkpoint ==
    /\ Ready
    /\ lo > Len(checkpoint.log) /\ ends[lo] > 0
    /\ SegOf(ends[lo]) > now.oldest         \* smaller ones change nothing
    /\ checkpoint' = [log |-> First(mem, lo), place |-> ends[lo], shipped |-> FALSE]
    /\ UNCHANGED <<disk, cache, slots, pending, mode, todo, now, place, ends, offered, mem, lo, past, sure, term, budget>>

Free ==
    /\ Ready
    /\ SegOf(checkpoint.place) > now.oldest
    /\ todo' = SlotsFor([now EXCEPT !.oldest = SegOf(checkpoint.place)])
               \o <<End(Known(seg, off, flushed, idle, mem, ends, sure))>>
    /\ UNCHANGED <<disk, cache, slots, pending, mode, now, place, ends, checkpoint, offered, mem, lo, past, sure, term, budget>>

\* A shipped checkpoint: everything new is written beside the log and flushed, then one save of the state file
\* makes it the log. Its entry is of a later term and conflicts, or the log ends before it.
Install(i) ==
    LET next == seg + 1
        l == Append(First(mem, i), term + 1)
        p == P(next, 1)
        v == [now EXCEPT !.gen = @ + 1, !.start = p, !.oldest = next]
        \* Generation 0 counts only below a generation's beginning, so not before the switch, whatever opens before.
        gen == IF Plant = "installed_in_the_next_generation" THEN now.gen + 1 ELSE 0
        written == <<Offer([log |-> l, place |-> p, shipped |-> TRUE]),
                     Write(F(next), 0 :> Header(next, gen, 0, l, P(next, 0)))>>
        flush == <<Flush(F(next))>> IN
    /\ Ready
    /\ installs < MaxInstalls
    /\ i \in Len(checkpoint.log)..Len(mem)
    /\ Len(l) <= MaxLength
    /\ FileIsFree(next)
    /\ term < MaxTerm
    /\ term' = term + 1
    /\ installs' = installs + 1
    /\ todo' = written
               \o (IF Plant = "install_switched_before_flush" THEN SlotsFor(v) \o flush ELSE flush \o SlotsFor(v))
               \o FirstMarker(p, now.gen + 1)
               \o <<End(Known(next, AfterMarker(p), p, TRUE, l, [j \in 1..Len(l) |-> IF j = Len(l) THEN p ELSE 0], Len(l)))>>
    /\ UNCHANGED <<disk, cache, slots, pending, mode, now, place, ends, checkpoint, offered, mem, lo, past, sure,
                   crashes, cuts, votes, rots, idles>>

-----------------------------------------------------------------------------
(* Crashes, and rot of one cell while the node is down.                     *)

Dirty == {<<f, k>> \in Files \X (0..Cells - 1) : cache[f][k] /= disk[f][k]}
SlotOutcomes ==
    IF pending = <<>> THEN {slots}
    ELSE {<<IF 1 \in pending[1] THEN a ELSE slots[1], IF 2 \in pending[1] THEN b ELSE slots[2]>> :
            a \in {slots[1], Torn, pending[2]}, b \in {slots[2], Torn, pending[2]}}

Crash ==
    /\ mode \in {"up", "opening"}
    /\ crashes < MaxCrashes
    /\ crashes' = crashes + 1
    /\ mode' = "down" /\ todo' = <<>> /\ pending' = <<>>
    /\ slots' \in SlotOutcomes
    /\ \/ \E reached \in SUBSET Dirty :
            LET after == [f \in Files |-> [k \in 0..Cells - 1 |->
                            IF <<f, k>> \in reached THEN cache[f][k] ELSE disk[f][k]]] IN
            disk' = after /\ cache' = after
       \/ Kill /\ Dirty /= {} /\ UNCHANGED <<disk, cache>>
    /\ UNCHANGED <<now, place, ends, checkpoint, offered, mem, lo, past, sure, term, cuts, votes, rots, idles, installs>>

Rots ==
    /\ mode = "down"
    /\ rots < MaxRot
    /\ rots' = rots + 1
    /\ \E f \in Files, k \in 0..Cells - 1 :
         /\ cache[f][k] \notin {Zero, Rot}
         /\ cache' = [cache EXCEPT ![f][k] = Rot]
         /\ disk' = [disk EXCEPT ![f][k] = Rot]
    /\ UNCHANGED <<slots, pending, mode, todo, now, place, ends, checkpoint, offered, mem, lo, past, sure, term,
                   crashes, cuts, votes, idles, installs>>

-----------------------------------------------------------------------------
(* Recovery: only from cache, slots and checkpoints.                        *)

Saved == IF slots[1].saves >= slots[2].saves THEN slots[1] ELSE slots[2]

\* A shipped checkpoint counts once the state file begins with its segment.
Counting(s) ==
    IF offered /= <<>> /\ SegOf(offered[1].place) = s.oldest THEN offered[1] ELSE checkpoint

HeaderCounts(s, st) ==
    LET c == cache[F(s)][0] IN
    /\ c.k = "head"
    /\ c.seq = s
    /\ IF P(s, 0) >= st.start THEN c.gen = st.gen ELSE c.gen <= st.gen

MarkerCounts(s, k, last, st) ==
    k < Cells /\
    LET c == cache[F(s)][k] IN
    /\ c.k = "mark"
    /\ c.pos = P(s, k)
    /\ IF P(s, k) >= st.start THEN c.gen = st.gen ELSE last <= c.gen /\ c.gen <= st.gen

Verifies(s, k, end, tail) ==
    /\ k + FrameCells <= end
    /\ LET c == cache[F(s)][k] IN
       /\ c.k = "frame"
       /\ IF Plant = "chain_not_checked"
          THEN Len(c.log) = Len(tail) + 1
          ELSE First(c.log, Len(c.log) - 1) = tail
       /\ FrameCells = 1 \/ Plant = "payload_not_verified" \/ cache[F(s)][k + 1] = Load(c.log[Len(c.log)])

\* What a reader of the frame at k gets; 0 is nothing that was ever written.
EntryAt(s, k) ==
    LET c == cache[F(s)][k] IN
    IF FrameCells = 1 THEN c.log[Len(c.log)]
    ELSE IF cache[F(s)][k + 1].k = "load" THEN cache[F(s)][k + 1].e ELSE 0

\* [k, tail, ends, promise] where the scan of a segment stops. `end` is the end of the write k is in.
RECURSIVE Scan(_, _, _, _, _, _, _, _)
Scan(s, k, end, last, tail, es, promise, st) ==
    LET stop == [k |-> k, tail |-> tail, ends |-> es, promise |-> promise] IN
    IF k < end /\ Verifies(s, k, end, tail)
    THEN Scan(s, k + FrameCells, end, last, Append(tail, EntryAt(s, k)), Append(es, P(s, k + FrameCells)), promise, st)
    ELSE IF MarkerCounts(s, k, last, st) /\ (k >= end \/ cache[F(s)][k].gen /= last)
    THEN LET c == cache[F(s)][k]
             e == k + 1 + c.len
             cutoff == IF P(s, k) < st.start /\ SegOf(st.start) = s THEN Min(e, OffOf(st.start)) ELSE e IN
         Scan(s, k + 1, Min(cutoff, Cells), c.gen, tail, es, Max(promise, c.flushed), st)
    ELSE stop

\* Segment after segment; result as Scan's, with the sequence.
RECURSIVE ScanFrom(_, _, _, _, _)
ScanFrom(s, found, first, base, st) ==
    LET c == cache[F(s)][0]
        fits == \/ first /\ (base.place > 0 \/ (c.end = 0 /\ c.log = <<>>))
                \/ ~first /\ c.end = found.k /\ c.log = found.tail IN
    IF s > MaxSequence \/ s - 2 >= st.oldest THEN found    \* there is no such file
    ELSE IF HeaderCounts(s, st) /\ fits
    THEN LET es == IF first THEN [j \in 1..Len(c.log) |-> 0] ELSE found.ends
             r == Scan(s, 1, 1, c.gen, c.log, es, Max(found.promise, c.flushed), st) IN
         ScanFrom(s + 1, [s |-> s, k |-> r.k, tail |-> r.tail, ends |-> r.ends, promise |-> r.promise], FALSE, base, st)
    ELSE found

\* Markers of this generation anywhere in the rest of the last segment and in the one after.
Promises(s, from, st) ==
    IF s > MaxSequence \/ s - 2 >= st.oldest THEN {}
    ELSE {cache[F(s)][k].flushed : k \in {k \in from..Cells - 1 :
            LET c == cache[F(s)][k] IN c.k = "mark" /\ c.gen = st.gen /\ c.pos = P(s, k)}}
HeaderPromise(s, st) ==
    IF s > MaxSequence \/ s - 2 >= st.oldest THEN {}
    ELSE IF HeaderCounts(s, st) THEN {cache[F(s)][0].flushed} ELSE {}
Highest(S) == CHOOSE p \in S : \A q \in S : q <= p

Found ==
    LET st == Saved
        base == Counting(st)
        start == IF base.place > 0 THEN SegOf(base.place) ELSE st.oldest
        none == [s |-> start, k |-> 0, tail |-> <<>>, ends |-> <<>>, promise |-> Max(st.start, base.place)]
        r == ScanFrom(start, none, TRUE, base, st)
        promise == Highest({r.promise} \cup Promises(r.s, Max(r.k, 1), st)
                           \cup (IF r.k = 0 THEN {} ELSE HeaderPromise(r.s + 1, st) \cup Promises(r.s + 1, 1, st))) IN
    [r |-> r, rotten |-> IF Plant = "rot_is_torn" THEN r.k = 0 ELSE P(r.s, r.k) < promise \/ r.k = 0]

Open ==
    /\ mode = "down"
    /\ IF Saved.saves = 0 THEN mode' = "refused" /\ UNCHANGED <<todo, now, checkpoint, offered, pending>>
       ELSE LET found == Found
                r == found.r
                p == P(r.s, r.k)
                v == [Saved EXCEPT !.gen = @ + 1, !.start = p]
                same == Plant = "open_keeps_generation" IN
            IF found.rotten THEN mode' = "refused" /\ UNCHANGED <<todo, now, checkpoint, offered, pending>>
            ELSE /\ mode' = "opening"
                 /\ now' = Saved
                 /\ checkpoint' = Counting(Saved)
                 /\ offered' = <<>>
                 /\ pending' = <<>>
                 /\ LET newest == IF slots[1].saves >= slots[2].saves THEN 1 ELSE 2
                        v2 == [v EXCEPT !.saves = Saved.saves + 1]
                        save == <<[op |-> "slot", i |-> 3 - newest, v |-> v2],
                                  [op |-> "slotflushed", i |-> 3 - newest, v |-> v2],
                                  [op |-> "slot", i |-> newest, v |-> v2],
                                  [op |-> "slotflushed", i |-> newest, v |-> v2]>> IN
                    todo' = (IF Plant = "open_does_not_flush" THEN <<>> ELSE <<Flush(0), Flush(1)>>)
                            \o (IF same THEN <<>> ELSE save)
                            \o (IF same THEN <<>> ELSE FirstMarker(p, v.gen))
                            \o <<End(Known(r.s, IF same THEN r.k ELSE AfterMarker(p), p, TRUE, r.tail, r.ends,
                                           Len(r.tail)))>>
    /\ IF mode' = "opening" /\ Counting(Saved) /= checkpoint   \* the switch to a shipped one was the last that was done
       THEN LET l == offered[1].log IN
            mem' = l /\ lo' = Len(l) /\ sure' = Len(l) /\ past' = Disk!Keep(past, mem, l)
       ELSE UNCHANGED <<mem, lo, sure, past>>
    /\ UNCHANGED <<disk, cache, slots, place, ends, term, budget>>

\* Whoever writes next may be of a later term; what was lost may also come again as it was.
NewTerm ==
    /\ Ready
    /\ term < MaxTerm
    /\ idle /\ flushed = P(seg, off - 1)    \* right after an open
    /\ term' = term + 1
    /\ UNCHANGED <<disk, cache, slots, pending, mode, todo, now, place, ends, checkpoint, offered, mem, lo, past, sure, budget>>

Next ==
    \/ Step
    \/ \E n \in 1..MaxWrite : Append_(n)
    \/ FlushLog
    \/ IdleMarker
    \/ Roll
    \/ \E i \in 0..MaxLength : Cut(i)
    \/ SaveVote
    \/ Checkpoint
    \/ Free
    \/ \E i \in 0..MaxLength : Install(i)
    \/ Crash
    \/ Rots
    \/ Open
    \/ NewTerm

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold.                                                          *)

\* The one that matters: a node that is up again has a log that AbstractDisk allows.
Keeps == past' = Disk!Keep(past, mem, mem')
Extends == mode' = mode /\ Disk!IsPrefix(mem, mem') /\ lo' >= lo /\ (past' = past \/ Keeps)
Stops == mode' \in {"down", "opening", "refused"} /\ UNCHANGED <<mem, lo, past>>
Cuts == mode = "up" /\ mode' = "up" /\ Disk!IsPrefix(mem', mem) /\ lo' = Min(lo, Len(mem')) /\ Keeps
Installs ==
    /\ mode' = "up" \/ (mode = "down" /\ mode' = "opening")
    /\ offered /= <<>> /\ mem' = offered[1].log /\ lo' = Len(mem') /\ Keeps
Recovers ==
    /\ mode = "opening" /\ mode' = "up"
    /\ lo' = Len(mem') /\ Keeps
    /\ Disk!Leaves(Disk!MayHold(mem, IF rots = 0 THEN lo ELSE Min(sure, lo), past), mem')
Refines == [][Extends \/ Stops \/ Cuts \/ Installs \/ Recovers]_<<mem, lo, past, mode>>

\* A crash alone is never taken for rot.
NoFalseAlarm == rots = 0 => mode /= "refused"

\* A vote that was saved is never forgotten.
VoteNeverBack == [][now'.vote >= now.vote]_vars
=============================================================================
