"""The player's decisions: no clock, no randomness, no input or output.

Source: LogPlayer paper (docs/sources.md); docs/player.md.

| module | owns |
|---|---|
| `messages` | entries, parts, batches, Hello |
| `router` | the type of a router, and the check of its results |
| `settings` | bounds and timers |
| `transitions` | the four states of a queue, as a table |
| `target_queue` | the queued and the unacknowledged parts of a target |
| `target` | one target: stream, term, last acknowledgement, recovery |
| `health` | failure detection and backoff: functions of time |
| `connections` | the opening and aborting of streams, the start of the main stream |
| `recovery` | reading the missed range of a target: start, end, extension, completion |
| `delivery` | the main stream, dummies, the next batch, acknowledgements |
| `ready` | the core's outputs |
| `player_state` | the attributes that these modules change |
| `player` | the one object a shell talks to |

**The shell of a player.** One thread of control owns a `Player`. It calls one method, then does what
`ready()` returns in the order of its attributes, and only then calls the next. No method is called from
within.

- It takes a *player_term* from a committed record that it has just raised, makes the `Player`, and `add`s the
  targets. It calls `tick` at `deadline_ms` at the latest.
- *Main stream*: reads committed records (not control records, up to the last stable offset) from
  `start_position` on and calls `feed` with what it read and how far that reached, at most about a batch's
  bound at a time, so that no queue overflows by one call; it pauses while `has_room` is False.
  `through_position` counts what was skipped, too. `feed_lost` where retention was faster.
- *Fetches* of recoveries: each has one result, `on_fetched` (some of its range, from the first position on),
  `on_fetch_failed` or `on_range_lost`, with the fetch's term.
- *Streams*: for each Hello a stream of its own, in order, with the pair (player_term, target_term). Its
  events are reported with that target_term: the response (`on_connected`, with the bounds of the log read
  after it came, at the leader), acknowledgements, `on_written`, `on_stale` with the player_term of the
  target, `on_disconnected`. Events of one stream come in their order; which of them still come after a close
  does not matter. A batch is handed to the transport before the next `ready`; there is one at a time until
  `on_written`.
- *stopped*: report it to the operator; the other targets continue. *deposed*: close everything, and end.

The shell of a target is described in `player/target/target_position.py`.

**Status** is read from the attributes: `player.current_position`, `player.targets[name]` with `link`, `term`,
`last_ack`, `queue.state`, `queue.normal`, `queue.catchup`, `queue.popped_bytes`, `overflows`
(`settings.slow_overflows` or more: it cannot keep up), `health.timed_out_streams` (above 0: it hangs),
`stopped_because`; the reason of an abort is in `PlayerReady.closes`.
"""
