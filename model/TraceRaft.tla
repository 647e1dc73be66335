----------------------------- MODULE TraceRaft -----------------------------
(***************************************************************************)
(* Are recorded runs behaviours of SharedLogRaft? The module TraceData is  *)
(* generated: Traces, each a sequence of events, what was seen of one      *)
(* member after each of its steps. Between two events the member of the    *)
(* next one takes a few steps of SharedLogRaft (an Append, say, cuts,      *)
(* extends and commits at once), each aimed at what is seen next; then all *)
(* that is observed must be equal. TLC prints <<"matched", trace, event>>  *)
(* and goes on as long as there is a way.                                  *)
(***************************************************************************)
EXTENDS SharedLogRaft, TraceData

VARIABLES which, at, steps, before

traceVars == <<vars, which, at, steps, before>>

Events == Traces[which]
E == Events[at]
Target == First(before, E.kept) \o E.added
MostSteps == 8
Crashed == MostSteps + 1

TraceInit == Init /\ which \in DOMAIN Traces /\ at = 1 /\ steps = 0 /\ before = <<>>

Seen(n) ==
    /\ term[n] = E.term /\ vote[n] = E.vote /\ role[n] = E.role
    /\ hard[n] = E.hard
    /\ log[n] = Target
    /\ commit[n] = E.commit
    /\ persisted[n] = E.persisted
    /\ role[n] = "follower" => verified[n] = E.verified

Matched ==
    /\ Seen(E.n)
    /\ E.kind = "start" => steps = Crashed
    /\ PrintT(<<"matched", which, at>>)
    /\ at' = at + 1
    /\ steps' = 0
    /\ before' = IF at < Len(Events) THEN log[Events[at + 1].n] ELSE <<>>
    /\ UNCHANGED vars

\* Whatever the leader writes: entries, or configurations one at a time and by joint consensus.
MayChangeTo(n, configuration) ==
    LET where == ConfigurationsIn(log[n])
        now == ConfigurationOf(log[n]) IN
    /\ IF where = {} THEN TRUE ELSE LastOf(where) <= commit[n]
    /\ IF Cardinality(now) = 2 THEN configuration \subseteq now ELSE now \subseteq configuration

Write(n) ==
    LET entry == Target[Len(log[n]) + 1] IN
    /\ Len(log[n]) < Len(Target)
    /\ entry.t = term[n]
    /\ Serving(n)
    /\ entry.c /= {} => MayChangeTo(n, entry.c)
    /\ AppendOwn(n, entry)
    /\ UNCHANGED changes

Restart(n) ==
    \/ /\ E.commit = base[n]
       /\ CrashOf(n) /\ log'[n] = Target /\ term'[n] = E.term /\ vote'[n] = E.vote
       /\ steps' = Crashed
    \/ /\ E.commit > base[n]
       /\ \/ Checkpoint(n, E.commit)
          \/ E.commit > commit[n] /\ Install(n, E.commit)   \* the switch was made, and then the crash came
       /\ steps' = steps + 1

\* A new member: with nothing, or, where a damaged node comes back as another member, with what was left of a log
\* and the term it had been in; without a vote, and no voter until it is made one.
Born(n) ==
    /\ log[n] = <<>> /\ term[n] = 0
    /\ E.role = "follower" /\ E.vote = Nobody /\ E.hard = [term |-> E.term, vote |-> Nobody]
    /\ IF E.term = 0 THEN TRUE ELSE Begun(E.term)
    /\ \E m \in Servers : Prefix(Target, log[m])
    /\ E.persisted = Len(Target) /\ LastTerm(Target) <= E.term
    /\ E.commit <= Len(Target) /\ Prefix(First(Target, E.commit), Chosen)
    /\ log' = [log EXCEPT ![n] = Target] /\ tail' = [tail EXCEPT ![n] = Target]
    /\ persisted' = [persisted EXCEPT ![n] = E.persisted]
    /\ term' = [term EXCEPT ![n] = E.term]
    /\ hard' = [hard EXCEPT ![n] = E.hard]
    /\ commit' = [commit EXCEPT ![n] = E.commit] /\ base' = [base EXCEPT ![n] = E.commit]
    /\ verified' = [verified EXCEPT ![n] = E.commit]
    /\ steps' = steps + 1
    /\ UNCHANGED <<role, vote, past, led, said, answered, crashes, installs, changes>>

Aimed(n) ==
    \/ E.term > term[n] /\ E.vote = n /\ term[n] + 1 = E.term /\ Timeout(n)
    \/ E.term > term[n] /\ E.vote = n /\ SeeTerm(n, E.term - 1)
    \/ E.term > term[n] /\ E.vote /= n /\ SeeTerm(n, E.term)
    \/ E.vote \in Servers \ {n} /\ vote[n] /= E.vote /\ GrantVote(n, E.vote, E.term)
    \/ E.term = term[n] /\ E.hard = [term |-> term[n], vote |-> vote[n]] /\ PersistHardState(n)
    \/ E.role = "leader" /\ E.term = term[n] /\ BecomeLeader(n)
    \/ E.role /= "leader" /\ StepDown(n)
    \/ role[n] = "leader" /\ Write(n)
    \/ E.commit > commit[n] /\ LeaderCommit(n, E.commit)
    \/ E.role = "follower" /\ E.term > 0 /\
         \E last \in {Len(Target), E.verified} : last <= Len(said[E.term].log) /\ Accept(n, E.term, 0, last)
    \/ E.role = "follower" /\ E.commit > commit[n] /\ FollowCommit(n, E.commit)
    \/ E.persisted > persisted[n] /\ Flushed(n, E.persisted)
    \/ E.kind = "install" /\ Install(n, E.commit)

TraceStep ==
    /\ at <= Len(Events)
    /\ UNCHANGED which
    /\ \/ Matched
       \/ /\ steps < MostSteps
          /\ IF E.kind = "start" THEN Restart(E.n)
             ELSE IF E.kind = "birth" THEN ~Seen(E.n) /\ Born(E.n)
             ELSE ~Seen(E.n) /\ Aimed(E.n) /\ steps' = steps + 1
          /\ UNCHANGED <<at, before>>

TraceSpec == TraceInit /\ [][TraceStep]_traceVars
=============================================================================
