"""A request to end a recording wakes whoever waits for descriptors."""

from hpcd.daemon.capture.session import readable
from hpcd.daemon.capture.stop_request import StopRequest


def test_it_is_readable_while_it_stands() -> None:
    stop = StopRequest()
    stop.clear()
    assert not stop.is_set() and not readable([stop.descriptor], 0)
    stop.set()
    stop.set()
    assert stop.is_set() and stop.wait(0) and readable([stop.descriptor], 0) == [stop.descriptor]
    stop.clear()
    assert not stop.is_set() and not readable([stop.descriptor], 0)
