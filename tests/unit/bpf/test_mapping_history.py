"""The mapping at an address at a moment: the history against a model that sees all in order."""

from __future__ import annotations

from hpcd.bpf.events import mapping_history
from hpcd.bpf.events.mapping_history import ReportKind
from hpcd.model.region import Region
from tests.soak import mappings
from tests.soak.mappings import code
from tests.support.reported_history import ReportedHistory


def test_no_address_is_another_modules_in_any_order_of_events() -> None:
    assert mappings.run(20_000, 17) == []


def test_a_library_in_the_place_of_another_is_told_by_the_time() -> None:
    history = ReportedHistory()
    history.on_exec(1, 10)
    history.on_map(1, 14, code(2, 0x9000, 4))
    history.on_map(1, 17, code(3, 0x9000, 2))
    for time, inode in ((14, 2), (16, 2), (17, 3), (90, 3)):
        region = history.lookup(1, 0x9100, time)
        assert region and region.inode == inode
    rest = history.lookup(1, 0xB100, 18)
    assert rest and rest.inode == 2
    assert [r.start for r in history.at(1, 18) or ()] == [0x9000, 0xB000]
    assert history.lookup(1, 0x9100, 12) is None


def test_a_reading_says_nothing_of_moments_while_it_went_on() -> None:
    history = ReportedHistory()
    history.on_exec(1, 1)
    history.on_map(1, 2, code(2, 0x9000, 1))
    history.on_read(1, 10, 20, (code(3, 0x9000, 1),))  # mapped at 15, seen by the reading
    history.on_map(1, 15, code(3, 0x9000, 1))
    for time, inode in ((12, 2), (15, 3), (25, 3)):
        region = history.lookup(1, 0x9000, time)
        assert region and region.inode == inode
    assert [history.changes_after(1, time) for time in (1, 5, 12, 16)] == [2, 10, 15, 20]
    assert history.changes_after(1, 20) > 1 << 60


def test_lost_reports_leave_nothing_to_be_wrong_about() -> None:
    history = ReportedHistory()
    history.on_exec(1, 1)
    history.on_map(1, 2, code(2, 0x9000, 1))
    history.clear(5)
    assert history.at(1, 3) is None
    history.on_map(1, 6, code(3, 0x9000, 1))
    assert history.at(1, 7) is None  # what else it has is not known
    history.on_read(1, 8, 9, (code(3, 0x9000, 1),))
    assert history.lookup(1, 0x9000, 9)


def test_reports_are_read_when_somebody_asks_for_their_process() -> None:
    asked: list[bytes] = []

    def read(record: bytes) -> tuple[int, Region | None]:
        asked.append(record)
        return (1, None) if record == b"fork" else (0, code(record[0], record[1] << 12, 1))

    history = ReportedHistory(read)
    for time, kind, record in (
        (10, ReportKind.FORK, b"fork"),
        (12, ReportKind.EXEC, b"exec"),
        (20, ReportKind.MAP, b"\x04\x0a"),  # another CPU's come first
        (14, ReportKind.MAP, b"\x03\x09"),
    ):
        history.on_report(2, time, kind, record)
    assert (history.program_of(2, 12), asked) == ("", [])
    assert (history.program_of(2, 30), asked) == ("/lib/3.so", [b"\x03\x09"])
    assert [region.inode for region in history.at(2, 16) or ()] == [3]
    assert len(asked) == 5
    assert (history.program_of(2, 30), len(asked)) == ("/lib/3.so", 5)
    assert [region.inode for region in history.at(2, 20) or ()] == [3, 4]


def test_a_process_that_ended_is_forgotten_but_not_the_next_one_of_its_pid() -> None:
    history = ReportedHistory(lambda _: (0, code(2, 0x9000, 1)))
    for pid in (1, 2):
        history.on_report(pid, 10, ReportKind.EXEC, b"")
        history.on_report(pid, 11, ReportKind.MAP, b"")
        history.on_report(pid, 30, ReportKind.EXEC, b"")
    assert history.lookup(1, 0x9000, 12)  # of the other one nothing was asked
    for pid in (1, 2):
        history.forget(pid, 20)
        assert history.lookup(pid, 0x9000, 12) is None
        assert history.executed_after(pid, 20)
        history.forget(pid, 30)
    assert not (history._unread or history._unread_count or history._entries or history._count)


def test_memory_is_bounded() -> None:
    history = ReportedHistory()
    for pid in range(3 * mapping_history._MAX_ENTRIES):
        history.on_exec(pid, pid)
    assert sum(map(len, history._entries.values())) <= mapping_history._MAX_ENTRIES
    assert history.at(0, 0) is None
    history = ReportedHistory()
    for pid in range(mapping_history._MAX_ENTRIES + 5):
        history.on_report(pid, pid, ReportKind.EXEC, b"")
    assert (history.at(3, 3), history.at(5, 5)) == (None, [])


def test_programs_begun_are_told_by_their_time() -> None:
    history = ReportedHistory()
    assert not history.executed_after(1, 0)
    history.on_exec(1, 10)
    history.on_map(1, 11, code(2, 0x9000, 1))
    assert history.executed_after(1, 9)
    assert not history.executed_after(1, 10)


def test_a_program_is_the_first_that_its_exec_maps() -> None:
    history = ReportedHistory()
    history.on_map(1, 5, code(1, 0x1000, 1))
    assert history.program_of(1, 9) == ""
    history.on_exec(1, 10)
    assert history.program_of(1, 11) == ""
    history.on_map(1, 12, code(2, 0x1000, 1))
    history.on_map(1, 13, code(3, 0x9000, 1))
    assert history.program_of(1, 14) == code(2, 0x1000, 1).path
    assert history.program_of(1, 9) == history.program_of(2, 14) == ""
