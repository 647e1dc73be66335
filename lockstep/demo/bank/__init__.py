"""A bank whose only books are a topic: `python -m lockstep.demo.bank`.

Account N lives in partition N modulo their number, and everything that changes it stands there, in entries of
whole cents (`ledger`). What is done to accounts are transactions (`operations`):

- a deposit holds a read lock on the account, so that a deactivated one takes nothing;
- a withdrawal holds a write lock on the account's withdrawals, too: two of them never spend the same money;
- a deactivation holds a write lock on the account;
- a transfer is a withdrawal with a read lock elsewhere, on the payee's account in the payee's partition. It
  writes an entry into both partitions, appended together or not at all.

Invariants. A reader of the topic from its beginning can check them, and that is how this demo does it:

1. No account is below zero after any entry of its partition: all that leaves it stands there, in order.
2. Nothing follows an account's deactivation.
3. Of each transfer both entries are there, or none; so transfers change no total.

A deposit raises no lock: a withdrawal from a balance that is too low by now is still right.

`commands` reads what a person types and does it; `automatic` lets several processes (`teller`) transfer at
random between few accounts while it shows a live table (`table`), and audits the topic before and after.
"""
