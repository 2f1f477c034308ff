"""Rules of exchange: the boundary tensors of an order as blocking exchanges, by hand."""

from __future__ import annotations

import pytest

from symsim.pipeline.exchanges import in_batches, one_by_one
from symsim.pipeline.orders import Batch, Entry, Exchange, Operation, interleaved_ahead, order, replay


def said(row: tuple[Entry, ...]) -> str:
    """A row in letters: F0.1 is forward of micro-batch 1 in stage 0, >1 an exchange with rank 1, {..} a batch."""

    def one(o: Operation) -> str:
        return f"{o.kind}{o.stage}.{o.microbatch}"

    words = []
    for entry in row:
        if isinstance(entry, Exchange):
            words.append(f">{entry.peer}")
        elif isinstance(entry, Batch):
            words.append("{" + " ".join(sorted(one(o) for o in entry.parcels if isinstance(o, Operation))) + "}")
        else:
            words += [one(o) for o in entry]
    return " ".join(words)


def test_a_tensor_is_received_just_before_and_sent_just_after() -> None:
    """Two ranks, two micro-batches: the first rank sends forward 1 and then receives gradient 0 of the same neighbour."""
    rows = [said(row) for row in one_by_one(order("1f1b", 2, 2))]
    assert rows == ["F0.0 >1 F0.1 >1 >1 B0.0 >1 B0.1", ">0 F1.0 B1.0 >0 >0 F1.1 B1.1 >0"]
    assert said(one_by_one(order("1f1b", 3, 1))[1]) == ">0 F1.0 >2 >2 B1.0 >0"


def test_what_is_made_and_what_is_needed_next_go_together() -> None:
    """Two ranks of two chunks, four micro-batches: rank 1 runs two forwards ahead, then one forward and one backward by turns."""
    rows = in_batches(order("interleaved", 2, 4, 2), lambda rank: interleaved_ahead(2, 2, 2, rank))
    begins = "{F1.0} F1.0 {F1.1 F2.0} F1.1 {F2.1 F3.0} F3.0 B3.0 {B2.0 F3.1} F3.1 B3.1 {B1.0 B2.1 F1.2}"
    assert said(rows[1]).startswith(begins) and said(rows[1]).endswith("B1.3 {B0.3}")


def test_where_all_forwards_are_ahead_the_first_gradient_has_a_batch_of_its_own() -> None:
    rows = in_batches(order("interleaved", 2, 2, 2), lambda rank: interleaved_ahead(2, 2, 2, rank))
    assert said(rows[0]).startswith("{} F0.0 {F1.0} F0.1 {F1.1 F2.0} F2.0 {F2.1 F3.0} F2.1 {F3.1} {B2.0} B2.0 {B1.0 B2.1}")


@pytest.mark.parametrize(("exchange", "end"), [(0, 6), (1, 10), (0.5, 8)])
def test_an_exchange_holds_up_both(exchange: float, end: float) -> None:
    """One micro-batch on three ranks, a second an operation: three forwards, three backwards, and four exchanges between them."""
    assert max(slot.end for slot in replay(one_by_one(order("1f1b", 3, 1)), lambda o: 1, exchange=exchange)) == end
