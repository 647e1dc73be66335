"""The player's decisions: no clock, no randomness, no input or output.

Source: seed 000 (docs/sources.md); docs/player.md.

| module | owns |
|---|---|
| `messages` | entries, parts, batches, Hello |
| `settings` | bounds and timers |
| `transitions` | the four states of a queue, as a table |
| `target_queue` | what waits for a target, what is popped and not acknowledged |
| `target` | one target: stream, term, last acknowledgement, recovery |
| `health` | alive, stuck, backoff: functions of time |
| `connecting` | streams opened and given up, the start of the main stream |
| `recovery` | what a target has missed: start, end, extension, completion |
| `dispatching` | the main stream, dummies, the next batch, acknowledgements |
| `routing` | what a router may return |
| `ready` | what is to be done |
| `player` | the one object a shell talks to |

**What a shell of a player does.** One thread of control owns a `Player`. It calls one method, then does what
`ready()` says in the order of its attributes, and only then calls the next. No method is called from within.

- It takes a *player_term* from a committed record that it has just raised, makes the `Player`, and `add`s the
  targets. It calls `tick` at `deadline_ms` at the latest.
- *Main stream*: reads committed records (not control records, up to the last stable offset) from
  `start_position` on and calls `feed` with what it read and how far that reached, at most about a batch's
  bound at a time, so that no queue overflows by one call; it pauses while `wants_entries` is False.
  `through_position` counts what was skipped, too. `feed_lost` where retention was faster.
- *Fetches* of recoveries: each is answered once with `fetched` (some of its range, from the first position
  on), `fetch_failed` or `range_lost`, on the term it was asked with.
- *Streams*: for each Hello a stream of its own, in order, with the pair (player_term, target_term). What
  comes in is told with that target_term: the answer (`connected`, with the bounds of the log read after it
  came, at the leader), acknowledgements, `written`, `refused` with the player_term the target says,
  `disconnected`. For one stream these come in their order; which of them still come after a close does not
  matter. A batch is handed to the transport before the next `ready`; there is one at a time until `written`.
- *stopped*: tell the operator; the others play on. *deposed*: close everything, and end.

**What a shell of a target does** is said in `player/target/marks.py`.

**Status** is read from the attributes: `player.current_position`, `player.targets[name]` with `link`, `term`,
`last_ack`, `queue.state`, `queue.normal`, `queue.catchup`, `queue.popped_bytes`, `overflows`
(`settings.slow_overflows` or more: it cannot keep up), `health.hung` (above 0: it hangs), `stopped_because`;
why a stream was given up is in `Ready.closes`.
"""
