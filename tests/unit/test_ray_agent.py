"""What the actor of a Ray host does with messages that Ray hands over in any order."""

from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit.workers.remote.ray import InOrder


@given(st.permutations(range(8)))
def test_messages_are_handled_in_the_order_in_which_they_were_sent(order):
    handled = []
    inbox = InOrder(handled.append)
    for number in order:
        inbox.put(number, {"op": "send", "id": number})
    assert [message["id"] for message in handled] == list(range(8))
