---------------------------- MODULE AbstractDisk ----------------------------
(***************************************************************************)
(* What Raft may rely on from one node's log on disk, no more: after a     *)
(* crash it is a log that the node held at some time, and it begins with   *)
(* all that is flushed now. `past` are the logs held before that are no    *)
(* prefixes of others. One would like to say "a prefix of the log in       *)
(* memory"; but a torn write may leave frames of a former log in its place,*)
(* under a marker that is good (LogDisk found this), and they verify where *)
(* what stands before them is the same.                                    *)
(***************************************************************************)
EXTENDS Naturals, Sequences

IsPrefix(a, b) == Len(a) <= Len(b) /\ a = SubSeq(b, 1, Len(a))

\* The log is `new` from now on, and was `old`.
Keep(past, old, new) ==
    LET all == past \cup {old} IN
    {a \in all : ~IsPrefix(a, new) /\ \A b \in all : a = b \/ ~IsPrefix(a, b)}

\* Branches [lo, log]: a prefix of log, at least lo long.
MayHold(log, persisted, past) ==
    {[lo |-> persisted, log |-> held] :
        held \in {h \in past \cup {log} : IsPrefix(SubSeq(log, 1, persisted), h)}}

Leaves(may, left) == \E held \in may :
    /\ Len(left) \in held.lo..Len(held.log)
    /\ left = SubSeq(held.log, 1, Len(left))
=============================================================================
