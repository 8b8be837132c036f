"""Tables of figures with a name in the last column."""

from __future__ import annotations

from hpcd.cli.output.tree_tables import MIN_NAME, Column, table_rows


def test_columns_are_as_wide_as_their_figures_and_those_without_any_are_left_out() -> None:
    columns = [
        Column("time", ["0", "0"]),
        Column("calls", ["1,234,567", "8"]),
        Column("errors", ["0", "0"]),
        Column("B/s", ["-", ""]),
        Column("rank", ["0", "0"], always=True),
    ]
    rooms: list[int] = []

    def names(room: int) -> list[str]:
        rooms.append(room)
        return ["read", "write"]

    rows = [
        row.figures + row.name
        for row in table_rows(columns, "function", names, width=80, left_out=3)
    ]
    assert rows == [
        "time     calls rank  function",
        "   0 1,234,567    0  read",
        "   0         8    0  write",
        "(not shown: 3 more; --limit 0 for all)",
    ]
    list(table_rows(columns, "function", names, width=1))
    assert rooms == [80 - len("time     calls rank  "), MIN_NAME]
