"""Parts, dummies and batches say where they stand."""

from lockstep.player.core.messages import Batch, Entry, Hello, Part, dummy


def test_a_dummy_is_a_part_without_a_payload() -> None:
    assert dummy(7).is_dummy
    assert (dummy(7).position, dummy(7).size_bytes) == (7, 0)
    assert not Part(7, b"", 0).is_dummy  # an empty payload is one


def test_a_batch_ends_where_its_last_part_stands() -> None:
    assert Batch(2, (dummy(5), dummy(9)), 0).last_position == 9


def test_an_entry_and_a_hello_hold_what_they_are_made_of() -> None:
    assert (Entry(3, b"x").position, Entry(3, b"x").payload) == (3, b"x")
    hello = Hello("log", 2, 5, 40)
    assert (hello.log_id, hello.player_term, hello.target_term, hello.first_position) == ("log", 2, 5, 40)
