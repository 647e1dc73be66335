--------------------------- MODULE SharedLogRaft ---------------------------
(***************************************************************************)
(* Raft over a log that is the only copy of the payloads (seed 001), as    *)
(* storage/raft and storage/group.py do it: members, terms, votes, the log *)
(* in memory and what of it a crash may leave on the disk, hard state,     *)
(* commit, speculative state and answers to clients, checkpoints shipped,  *)
(* membership changes by joint consensus.                                  *)
(*                                                                         *)
(* There are no messages in flight. A message once sent may be lost, may   *)
(* come late, twice and in any order; so what matters is what has ever     *)
(* been SAID in a term, and said[t] keeps just that: who stood with which  *)
(* log, who voted for whom, what the leader's log and commit were (within  *)
(* its term a leader only appends, so every Append it ever sent is a piece *)
(* of that log), and how far each follower said to hold it. Receiving is   *)
(* acting on any of it. A node says things only once its hard state is on  *)
(* the disk, and says them at once: that they arrive late is the           *)
(* receiver's choice.                                                      *)
(*                                                                         *)
(* The disk is the one of AbstractDisk.tla, which LogDisk.tla implements   *)
(* byte by byte. Plant is a mistake to make, "" for none: model/check.py   *)
(* demands a counterexample for each.                                      *)
(*                                                                         *)
(* Not here: time (a timeout may happen whenever it likes, so PreVote,     *)
(* CheckQuorum and transfers only remove behaviours), leases, log.flush=os.*)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Servers, Nobody,
    OldVoters,      \* the configuration of an empty log
    NewVoters,      \* what a membership change leads to
    OddTerms, EvenTerms,    \* who may stand in them: all, or fewer for longer stories in small bounds
    MaxTerm, MaxLength, MaxCrashes, MaxInstalls, MaxChanges,
    Reduced,        \* leave out orders of steps that lead to the same states (see Next)
    Plant

VARIABLES
    role, term, vote,       \* in memory
    hard,                   \* [term, vote] on the disk
    log,                    \* in memory: entries [t: term, c: {} or the voter sets of a configuration]
    persisted,              \* so much of log is known to be flushed
    past,                   \* logs held before, of which the disk may still hold something
    verified,               \* so much of log is known to be the leader's of this term: what is committed always is
    commit,
    base,                   \* the checkpoint on the disk stands for the entries up to here
    tail,                   \* what the tail machines (next offsets, producers) were fed
    led,                    \* the last term this process led: whose entries its clients wait for
    said,
    answered,               \* [i, t] of entries that a client was told are safe
    crashes, installs, changes

node == <<role, term, vote, hard, log, persisted, past, verified, commit, base, tail, led>>
vars == <<role, term, vote, hard, log, persisted, past, verified, commit, base, tail, led,
          said, answered, crashes, installs, changes>>

Terms == 1..MaxTerm
Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Prefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a
First(s, n) == SubSeq(s, 1, n)
LastTerm(l) == IF l = <<>> THEN 0 ELSE l[Len(l)].t
Entry(t) == [t |-> t, c |-> {}]

Disk == INSTANCE AbstractDisk
MayHold(n) == Disk!MayHold(log[n], persisted[n], past[n])

-----------------------------------------------------------------------------
(* Configurations: the newest in the log counts, committed or not.          *)

ConfigurationsIn(l) == {i \in 1..Len(l) : l[i].c /= {}}
LastOf(S) == CHOOSE i \in S : \A j \in S : j <= i
ConfigurationOf(l) ==
    LET where == ConfigurationsIn(l) IN
    IF where = {} THEN {OldVoters} ELSE l[LastOf(where)].c
Known(n) == ConfigurationOf(log[n])
Majority(holders, voters) == 2 * Cardinality(holders \cap voters) > Cardinality(voters)
Agreed(holders, configuration) == \A voters \in configuration : Majority(holders, voters)
\* One that the newest, still uncommitted configuration removes may stand: it may be the only one that has it.
MayStand(n) ==
    LET where == ConfigurationsIn(log[n]) IN
    \/ \E voters \in Known(n) : n \in voters
    \/ IF where = {} THEN FALSE
       ELSE /\ LastOf(where) > commit[n]
            /\ \E voters \in ConfigurationOf(First(log[n], LastOf(where) - 1)) : n \in voters

-----------------------------------------------------------------------------
Nothing == [stood |-> [n \in Servers |-> <<>>], votes |-> [n \in Servers |-> Nobody],
            leaders |-> {}, log |-> <<>>, commit |-> 0, ack |-> [n \in Servers |-> 0]]

Init ==
    /\ role = [n \in Servers |-> "follower"]
    /\ term = [n \in Servers |-> 0]
    /\ vote = [n \in Servers |-> Nobody]
    /\ hard = [n \in Servers |-> [term |-> 0, vote |-> Nobody]]
    /\ log = [n \in Servers |-> <<>>]
    /\ persisted = [n \in Servers |-> 0]
    /\ past = [n \in Servers |-> {}]
    /\ verified = [n \in Servers |-> 0]
    /\ commit = [n \in Servers |-> 0]
    /\ base = [n \in Servers |-> 0]
    /\ tail = [n \in Servers |-> <<>>]
    /\ led = [n \in Servers |-> 0]
    /\ said = [t \in Terms |-> Nothing]
    /\ answered = {}
    /\ crashes = 0 /\ installs = 0 /\ changes = 0

Clean(n) == hard[n] = [term |-> term[n], vote |-> vote[n]]
Begun(t) == said[t].leaders /= {} \/ \E n \in Servers : said[t].stood[n] /= <<>> \/ hard[n].term = t

(* Elections                                                                *)

Timeout(n) ==
    /\ IF role[n] = "leader" THEN Reduced ELSE TRUE
    /\ term[n] < MaxTerm
    /\ n \in IF term[n] % 2 = 0 THEN OddTerms ELSE EvenTerms
    /\ MayStand(n) = TRUE
    /\ role' = [role EXCEPT ![n] = "candidate"]
    /\ term' = [term EXCEPT ![n] = @ + 1]
    /\ vote' = [vote EXCEPT ![n] = n]
    /\ verified' = [verified EXCEPT ![n] = commit[n]]
    /\ UNCHANGED <<hard, log, persisted, past, commit, base, tail, led, said, answered, crashes, installs, changes>>

\* What a member tells this term's leader to hold of its log; there is nobody to tell before there is a leader.
Tell(t, n, before, verifiedHere, persistedHere) ==
    IF said[t].leaders \subseteq {n} THEN before
    ELSE Max(before, IF Plant = "ack_before_flush" THEN verifiedHere ELSE Min(verifiedHere, persistedHere))

PersistHardState(n) ==
    /\ ~Clean(n)
    /\ hard' = [hard EXCEPT ![n] = [term |-> term[n], vote |-> vote[n]]]
    /\ said' = [said EXCEPT
            ![term[n]].stood[n] = IF role[n] = "candidate" THEN <<LastTerm(log[n]), Len(log[n])>> ELSE @,
            ![term[n]].votes[n] = IF vote[n] = Nobody THEN @ ELSE vote[n],
            ![term[n]].ack[n] = Tell(term[n], n, @, verified[n], persisted[n])]
    /\ UNCHANGED <<role, term, vote, log, persisted, past, verified, commit, base, tail, led,
                   answered, crashes, installs, changes>>

UpToDate(n, last) ==
    \/ Plant = "log_not_compared"
    \/ last[1] > LastTerm(log[n])
    \/ last[1] = LastTerm(log[n]) /\ last[2] >= Len(log[n])

\* A vote for c in term t: taken here, told when it is on the disk. Asked again, it is told again.
GrantVote(n, c, t) ==
    /\ n /= c
    /\ said[t].stood[c] /= <<>>
    /\ t >= term[n]
    /\ UpToDate(n, said[t].stood[c]) = TRUE
    /\ IF t > term[n] \/ Plant = "two_votes" THEN TRUE ELSE role[n] = "follower" /\ vote[n] \in {Nobody, c}
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ term' = [term EXCEPT ![n] = t]
    /\ vote' = [vote EXCEPT ![n] = c]
    /\ verified' = [verified EXCEPT ![n] = IF t > term[n] THEN commit[n] ELSE @]
    /\ said' = IF hard[n] = [term |-> t, vote |-> c] \/ Plant = "vote_not_flushed"
               THEN [said EXCEPT ![t].votes[n] = c] ELSE said
    /\ UNCHANGED <<hard, log, persisted, past, commit, base, tail, led, answered, crashes, installs, changes>>

SeeTerm(n, t) ==
    /\ t > term[n]
    /\ Begun(t)
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ term' = [term EXCEPT ![n] = t]
    /\ vote' = [vote EXCEPT ![n] = Nobody]
    /\ verified' = [verified EXCEPT ![n] = commit[n]]
    /\ UNCHANGED <<hard, log, persisted, past, commit, base, tail, led, said, answered, crashes, installs, changes>>

\* With the term's no-op.
BecomeLeader(n) ==
    LET t == term[n]
        l == Append(log[n], Entry(t)) IN
    /\ role[n] = "candidate"
    /\ Clean(n)
    /\ Agreed({v \in Servers : said[t].votes[v] = n}, Known(n))
    /\ Len(log[n]) < MaxLength
    /\ role' = [role EXCEPT ![n] = "leader"]
    /\ log' = [log EXCEPT ![n] = l]
    /\ tail' = [tail EXCEPT ![n] = Append(@, Entry(t))]
    /\ led' = [led EXCEPT ![n] = t]
    /\ said' = [said EXCEPT ![t].leaders = @ \cup {n}, ![t].log = l, ![t].commit = commit[n]]
    /\ UNCHANGED <<term, vote, hard, persisted, past, verified, commit, base, answered, crashes, installs, changes>>

\* CheckQuorum, removal, an election that cannot be won: a leader or candidate may stop whenever it likes.
StepDown(n) ==
    /\ ~Reduced
    /\ role[n] /= "follower"
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ UNCHANGED <<term, vote, hard, log, persisted, past, verified, commit, base, tail, led,
                   said, answered, crashes, installs, changes>>

-----------------------------------------------------------------------------
(* Answers. A waiter holds (index, term); led[n] stands for the waiters of  *)
(* the process.                                                             *)

Waited(n, t) == {i \in 1..Len(said[t].log) : said[t].log[i].t = t}
Answers(n, l, upto) ==
    IF led[n] = 0 THEN {} ELSE
    {[i |-> i, t |-> led[n]] : i \in
        {i \in Waited(n, led[n]) : i <= upto /\ (l[i].t = led[n] \/ Plant = "waiter_without_term")}}

(* The leader                                                               *)

Serving(n) ==
    /\ role[n] = "leader"
    /\ commit[n] > 0 /\ log[n][commit[n]].t = term[n]

AppendOwn(n, entry) ==
    LET l == Append(log[n], entry) IN
    /\ Len(log[n]) < MaxLength
    /\ log' = [log EXCEPT ![n] = l]
    /\ tail' = [tail EXCEPT ![n] = Append(@, entry)]
    /\ said' = [said EXCEPT ![term[n]].log = l]
    /\ answered' = IF Plant = "answer_early" THEN answered \cup {[i |-> Len(l), t |-> term[n]]} ELSE answered
    /\ UNCHANGED <<role, term, vote, hard, persisted, past, verified, commit, base, led, crashes, installs>>

Propose(n) ==
    /\ Serving(n)
    /\ AppendOwn(n, Entry(term[n]))
    /\ UNCHANGED changes

\* One change at a time, none before an entry of this term is committed.
ChangeMembers(n) ==
    /\ changes < MaxChanges
    /\ Serving(n)
    /\ ConfigurationOf(log[n]) = {OldVoters}
    /\ AppendOwn(n, [t |-> term[n], c |-> IF Plant = "change_without_joint" THEN {NewVoters}
                                           ELSE {OldVoters, NewVoters}])
    /\ changes' = changes + 1

FinishChange(n) ==
    /\ role[n] = "leader"
    /\ ConfigurationOf(log[n]) = {OldVoters, NewVoters}
    /\ OldVoters /= NewVoters
    /\ IF Plant = "joint_not_committed" THEN TRUE ELSE LastOf(ConfigurationsIn(log[n])) <= commit[n]
    /\ AppendOwn(n, [t |-> term[n], c |-> {NewVoters}])
    /\ UNCHANGED changes

Holders(n, i) ==
    {f \in Servers \ {n} : said[term[n]].ack[f] >= i}
    \cup (IF persisted[n] >= i \/ Plant = "leader_counts_unflushed" THEN {n} ELSE {})

LeaderCommit(n, i) ==
    /\ role[n] = "leader"
    /\ i \in commit[n] + 1..Len(log[n])
    /\ IF Plant = "commit_older_term" THEN TRUE ELSE log[n][i].t = term[n]
    /\ Agreed(Holders(n, i), Known(n))
    /\ commit' = [commit EXCEPT ![n] = i]
    /\ said' = [said EXCEPT ![term[n]].commit = i]
    /\ answered' = answered \cup Answers(n, log[n], i)
    /\ UNCHANGED <<role, term, vote, hard, log, persisted, past, verified, base, tail, led, crashes, installs, changes>>

-----------------------------------------------------------------------------
(* The follower                                                             *)

\* What becomes of log l when entries prev+1..last of a leader's log m arrive: cut only where terms differ.
Conflicts(l, m, prev, last) == {i \in prev + 1..Min(last, Len(l)) : l[i].t /= m[i].t}
KeptOf(l, m, prev, last) ==
    LET where == Conflicts(l, m, prev, last) IN
    IF where /= {} THEN (CHOOSE i \in where : \A j \in where : i <= j) - 1
    ELSE IF Plant = "cut_by_short_request" THEN Min(last, Len(l)) ELSE Len(l)

Matches(l, m, prev) == IF prev = 0 THEN TRUE ELSE prev <= Len(l) /\ l[prev].t = m[prev].t

FollowLog(n, l, kept, m, last) ==
    /\ log' = [log EXCEPT ![n] = First(l, kept) \o SubSeq(m, kept + 1, last)]
    /\ tail' = [tail EXCEPT ![n] = (IF Plant = "tail_kept" THEN @ ELSE First(@, kept)) \o SubSeq(m, kept + 1, last)]
    /\ IF kept < Len(l)
       THEN /\ past' = [past EXCEPT ![n] = Disk!Keep(@, l, First(l, kept) \o SubSeq(m, kept + 1, last))]
            /\ persisted' = [persisted EXCEPT ![n] = Min(@, kept)]
       ELSE UNCHANGED <<past, persisted>>

\* An Append of term t with the entries prev+1..last; prev = last is a probe or heartbeat.
Accept(n, t, prev, last) ==
    LET m == said[t].log
        l == log[n]
        kept == KeptOf(l, m, prev, last) IN
    /\ said[t].leaders /= {} /\ n \notin said[t].leaders
    /\ t >= term[n]
    /\ IF Plant = "prev_not_checked" THEN prev <= Len(l) ELSE Matches(l, m, prev)
    /\ Reduced /\ Plant /= "prev_not_checked" => \A j \in prev + 1..last : ~Matches(l, m, j)
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ term' = [term EXCEPT ![n] = t]
    /\ vote' = [vote EXCEPT ![n] = IF t > term[n] THEN Nobody ELSE @]
    /\ verified' = [verified EXCEPT ![n] = Max(IF t > term[n] THEN commit[n] ELSE @, last)]
    /\ FollowLog(n, l, kept, m, last)
    /\ said' = IF t = term[n] /\ Clean(n)
               THEN [said EXCEPT ![t].ack[n] = Tell(t, n, @, verified'[n], persisted'[n])] ELSE said
    /\ UNCHANGED <<hard, commit, base, led, answered, crashes, installs, changes>>

MayCommit(n) ==
    LET t == term[n] IN
    IF t = 0 \/ role[n] = "leader" THEN 0
    ELSE Min(said[t].commit, Min(persisted[n], IF Plant = "commit_unverified" THEN Len(log[n]) ELSE verified[n]))

FollowCommit(n, i) ==
    /\ i \in commit[n] + 1..MayCommit(n)
    /\ n \notin said[term[n]].leaders
    /\ Reduced => i = MayCommit(n)
    /\ commit' = [commit EXCEPT ![n] = i]
    /\ answered' = answered \cup Answers(n, log[n], i)
    /\ UNCHANGED <<role, term, vote, hard, log, persisted, past, verified, base, tail, led, said,
                   crashes, installs, changes>>

-----------------------------------------------------------------------------
(* The disk. Entries are handed to it only after the hard state, so that    *)
(* no entry on the disk is of a later term than the hard state.             *)

Covered(l, i, h) ==
    IF i = 0 \/ Plant = "log_before_hard_state" THEN TRUE ELSE l[i].t <= h.term

\* A write and its flush have ended: entries up to i, handed over since the newest cut.
Flushed(n, i) ==
    /\ i \in persisted[n] + 1..Len(log[n])
    /\ Reduced => i = Len(log[n])
    /\ Covered(log[n], i, hard[n])
    /\ persisted' = [persisted EXCEPT ![n] = i]
    /\ said' = IF term[n] > 0 /\ Clean(n)
               THEN [said EXCEPT ![term[n]].ack[n] = Tell(term[n], n, @, verified[n], i)] ELSE said
    /\ UNCHANGED <<role, term, vote, hard, log, past, verified, commit, base, tail, led, answered,
                   crashes, installs, changes>>

\* The completion of a write from before a cut is ignored; the mistake is to believe it.
BelieveStale(n, i) ==
    /\ Plant = "stale_completion"
    /\ \E held \in past[n] : i <= Len(held) /\ i <= Len(log[n])
    /\ i > persisted[n]
    /\ said' = IF Clean(n) THEN [said EXCEPT ![term[n]].ack[n] = Tell(term[n], n, @, verified[n], i)] ELSE said
    /\ UNCHANGED <<role, term, vote, hard, log, persisted, past, verified, commit, base, tail, led, answered,
                   crashes, installs, changes>>

Crash(n, held, i, h) ==
    LET l == First(held.log, i) IN
    /\ crashes < MaxCrashes
    /\ held \in MayHold(n)
    /\ i \in held.lo..Len(held.log)
    /\ h \in {hard[n], [term |-> term[n], vote |-> vote[n]]}
    /\ Covered(l, IF i = held.lo THEN 0 ELSE i, h)
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ term' = [term EXCEPT ![n] = h.term]
    /\ vote' = [vote EXCEPT ![n] = IF Plant = "vote_forgotten" THEN Nobody ELSE h.vote]
    /\ hard' = [hard EXCEPT ![n] = [h EXCEPT !.vote = IF Plant = "vote_forgotten" THEN Nobody ELSE h.vote]]
    /\ log' = [log EXCEPT ![n] = l]
    /\ tail' = [tail EXCEPT ![n] = l]
    /\ persisted' = [persisted EXCEPT ![n] = i]
    /\ past' = [past EXCEPT ![n] = Disk!Keep(@, log[n], l)]
    /\ verified' = [verified EXCEPT ![n] = base[n]]
    /\ commit' = [commit EXCEPT ![n] = base[n]]
    /\ led' = [led EXCEPT ![n] = 0]
    /\ crashes' = crashes + 1
    /\ UNCHANGED <<base, said, answered, installs, changes>>

-----------------------------------------------------------------------------
(* Checkpoints: only of what is committed and flushed here; shipped by a    *)
(* leader up to its commit; taken only above the own commit, in one switch. *)

Checkpoint(n, i) ==
    /\ MaxInstalls > 0
    /\ i \in base[n] + 1..Min(commit[n], persisted[n])
    /\ base' = [base EXCEPT ![n] = i]
    /\ UNCHANGED <<role, term, vote, hard, log, persisted, past, verified, commit, tail, led,
                   said, answered, crashes, installs, changes>>

Shippable(t) == IF Plant = "install_uncommitted" THEN Len(said[t].log) ELSE said[t].commit

Install(n, i) ==
    LET t == term[n]
        m == said[t].log
        l == log[n]
        has == i <= Len(l) /\ l[i].t = m[i].t IN
    /\ installs < MaxInstalls
    /\ t > 0 /\ role[n] = "follower" /\ Clean(n)
    /\ n \notin said[t].leaders
    /\ i \in 1..Shippable(t)
    /\ IF Plant = "install_below_commit" THEN TRUE ELSE i > commit[n] /\ ~has
    /\ log' = [log EXCEPT ![n] = First(m, i)]
    /\ tail' = [tail EXCEPT ![n] = First(m, i)]
    /\ persisted' = [persisted EXCEPT ![n] = i]
    /\ past' = [past EXCEPT ![n] = Disk!Keep(@, l, First(m, i))]
    /\ verified' = [verified EXCEPT ![n] = i]
    /\ commit' = [commit EXCEPT ![n] = i]
    /\ base' = [base EXCEPT ![n] = i]
    /\ said' = [said EXCEPT ![t].ack[n] = Max(@, i)]
    /\ answered' = answered \cup Answers(n, First(m, i), i)
    /\ installs' = installs + 1
    /\ UNCHANGED <<role, term, vote, hard, led, crashes, changes>>

-----------------------------------------------------------------------------
CrashOf(n) ==
    \E held \in MayHold(n) : \E i \in held.lo..Len(held.log) :
        \E h \in {hard[n], [term |-> term[n], vote |-> vote[n]]} : Crash(n, held, i, h)

NextOf(n) ==
    \/ Timeout(n)
    \/ PersistHardState(n)
    \/ \E t \in Terms : SeeTerm(n, t)
    \/ \E t \in Terms, c \in Servers : GrantVote(n, c, t)
    \/ BecomeLeader(n)
    \/ StepDown(n)
    \/ Propose(n)
    \/ ChangeMembers(n)
    \/ FinishChange(n)
    \/ \E i \in 1..MaxLength : LeaderCommit(n, i)
    \/ \E t \in Terms : \E last \in 0..Len(said[t].log) : \E prev \in 0..last : Accept(n, t, prev, last)
    \/ \E i \in 1..MaxLength : FollowCommit(n, i)
    \/ \E i \in 1..MaxLength : Flushed(n, i)
    \/ \E i \in 1..MaxLength : BelieveStale(n, i)
    \/ CrashOf(n)
    \/ \E i \in 1..MaxLength : Checkpoint(n, i)
    \/ \E i \in 1..MaxLength : Install(n, i)

\* A node that has not yet flushed its hard state says nothing and writes nothing, so nobody can tell when it
\* does: with Reduced it does so (or crashes) before anybody else takes a step. For the same reason a flush
\* then takes all there is, a follower's commit moves as far as it may, and a leader that stops stands again.
\* model/README.md argues each; a smaller run without Reduced stands beside.
Dirty == {n \in Servers : ~Clean(n)}
Next ==
    IF Reduced /\ Dirty /= {}
    THEN \E n \in Dirty : PersistHardState(n) \/ CrashOf(n)
    ELSE \E n \in Servers : NextOf(n)
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold.                                                          *)

CommittedIn(t) == First(said[t].log, said[t].commit)
ChosenTerm == CHOOSE t \in Terms : \A u \in Terms : said[u].commit <= said[t].commit
Chosen == CommittedIn(ChosenTerm)

ElectionSafety == \A t \in Terms : Cardinality(said[t].leaders) <= 1

LogMatching ==
    \A a, b \in Servers : \A i \in 1..Min(Len(log[a]), Len(log[b])) :
        log[a][i].t = log[b][i].t => First(log[a], i) = First(log[b], i)

LeaderCompleteness ==
    \A t, u \in Terms : t < u /\ said[u].leaders /= {} => Prefix(CommittedIn(t), said[u].log)

\* Also: commit is never truncated; a state machine is fed nothing but the one committed sequence.
StateMachineSafety ==
    LET chosen == Chosen IN
    /\ \A t \in Terms : Prefix(CommittedIn(t), chosen)
    /\ \A n \in Servers : commit[n] <= Len(log[n]) /\ Prefix(First(log[n], commit[n]), chosen)

\* Surely on the disk of n, whatever a crash leaves.
SurelyHolds(n, i, e) == \A held \in MayHold(n) : held.lo >= i /\ held.log[i] = e
\* On a majority of every configuration that was in force since.
CommittedIsDurable ==
    LET chosen == Chosen IN
    \A i \in 1..Len(chosen) :
        LET holders == {n \in Servers : SurelyHolds(n, i, chosen[i])} IN
        \A j \in {i} \cup {j \in ConfigurationsIn(chosen) : j > i} :
            Agreed(holders, ConfigurationOf(First(chosen, j)))

AnsweredIsCommitted ==
    LET chosen == Chosen IN
    \A a \in answered : a.i <= Len(chosen) /\ chosen[a.i].t = a.t

\* What was said to the leader is on the disk, as long as the node is of that term.
AckedIsDurable ==
    \A n \in Servers : term[n] > 0 /\ role[n] = "follower" /\ n \notin said[term[n]].leaders =>
        LET t == term[n] IN
        \A i \in 1..said[t].ack[n] : SurelyHolds(n, i, said[t].log[i])

VotesAreDurable ==
    \A t \in Terms, n \in Servers : said[t].votes[n] /= Nobody =>
        \/ hard[n].term > t
        \/ hard[n] = [term |-> t, vote |-> said[t].votes[n]]

HardStateCoversLog ==
    \A n \in Servers : LastTerm(First(log[n], persisted[n])) <= hard[n].term

TailFollowsLog == \A n \in Servers : tail[n] = log[n]

\* Commit goes back only by a crash, and then to the checkpoint, which never goes back; so does a term.
NeverBack ==
    [][\A n \in Servers :
        /\ base'[n] >= base[n]
        /\ hard'[n].term >= hard[n].term
        /\ commit'[n] >= commit[n] \/ (crashes' /= crashes /\ commit'[n] = base[n])]_vars

\* To bound a story (Raft paper, figure 8): in the first two terms nobody follows and nothing is committed.
NobodyFollowed ==
    /\ \A t \in Terms : t <= 2 => said[t].commit = 0
    /\ \A n \in Servers : term[n] <= 2 => \A i \in 1..Len(log[n]) : log[n][i].t = led[n]
    /\ \A n \in Servers : led[n] = 2 /\ term[n] = 3 => \A i \in 1..Len(log[n]) : log[n][i].t = 2
    /\ \A n \in Servers : led[n] = 0 => Len(log[n]) <= 1

Symmetry == Permutations(Servers)
=============================================================================
