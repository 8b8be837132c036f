"""What a merge does with each record, compiled by numba.

Each function does what a function of numpy calls beside its caller does, with the same result to
the byte, in one pass. Only :func:`hpcd.analysis.trace.compiled.kernels` imports it: without numba
and for measurements too small to be worth loading it numpy does the work.

Arrays have the types and shapes that the callers document.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from hpcd.analysis.trace.blocks import BLOCK_RECORDS, MAX_STEP
from hpcd.analysis.trace.intervals import LONGEST_NS
from hpcd.measurement import record_kernels
from hpcd.measurement.codec import TIME_UNIT_NS

reading = record_kernels
"""What reading a measurement does, compiled likewise."""

_compiled = numba.njit(cache=True, nogil=True)
_LONGEST = float(LONGEST_NS)
_UNIT = np.uint64(TIME_UNIT_NS)
_MOST = np.int64(MAX_STEP)


@_compiled
def _bytes_of(value: Any) -> Any:
    if value < 1 << 8:
        return 1
    if value < 1 << 16:
        return 2
    return 3 if value < 1 << 24 else 4


@_compiled
def expand(start: Any, time_ns: Any, node: Any, event: Any, value: Any, length: Any) -> Any:
    """Entries of records with the ends of intervals: where lines begin, ticks, node, event, value,
    and whether all are of event 0 and value 1."""
    total = len(node)
    for at in range(len(node)):
        if length[event[at]] * value[at] > 0:
            total += 1
    starts = np.empty(len(start), np.int64)
    ticks, nodes = np.empty(total, np.int64), np.empty(total, np.uint32)
    events, values = np.empty(total, np.uint16), np.empty(total, np.uint64)
    plain = True
    to = 0
    for line in range(len(start) - 1):
        starts[line] = to
        for at in range(start[line], start[line + 1]):
            code, amount, when = event[at], value[at], time_ns[at]
            plain = plain and code == 0 and amount == 1
            ticks[to], nodes[to], events[to], values[to] = when // _UNIT, node[at], code, amount
            to += 1
            lasts = length[code] * amount
            if lasts > 0:
                end = when + np.uint64(min(lasts, _LONGEST))
                if at + 1 < start[line + 1]:
                    end = min(end, max(time_ns[at + 1], when))
                ticks[to], nodes[to], events[to], values[to] = end // _UNIT, node[at], code, 0
                to += 1
    starts[len(start) - 1] = to
    return starts, ticks, nodes, events, values, plain


@_compiled
def slots(event: Any, slot_of: Any, used: Any, most: Any) -> Any:
    """Give every event a slot; how many are used, or -1 where there are more events than slots."""
    for at in range(len(event)):
        if slot_of[event[at]] < 0:
            if used == most:
                return -1
            slot_of[event[at]] = used
            used += 1
    return used


@_compiled
def count(
    line: Any, start: Any, node: Any, event: Any, value: Any, slot_of: Any, nodes: Any,
    records: Any, more: Any,
) -> Any:  # fmt: skip
    """Count records, and what their values are above 1, by slot of the event, line and node."""
    for row in range(len(line)):
        first = np.int64(line[row]) * nodes
        for at in range(start[row], start[row + 1]):
            slot, key = slot_of[event[at]], first + node[at]
            records[slot, key] += np.uint32(1)
            if value[at] != 1:
                more[slot, key] += value[at] - np.uint64(1)


@_compiled
def line_cells(start: Any, node: Any, event: Any, value: Any, slot_of: Any, nodes: Any) -> Any:
    """Sums of records line by line: where each line's begin, nodes times slots plus the slots of
    their events, ascending, how many records, and the sums of their values."""
    lines, slots, longest = len(start) - 1, np.int64(0), np.int64(0)
    for slot in slot_of:
        slots = max(slots, np.int64(slot) + 1)
    for line in range(lines):
        longest = max(longest, start[line + 1] - start[line])
    counted, added = np.zeros(nodes * slots, np.uint32), np.zeros(nodes * slots, np.uint64)
    touched = np.empty(longest, np.int64)
    first = np.zeros(lines + 1, np.int64)
    keys = np.empty(len(node), np.int64)
    records, sums = np.empty(len(node), np.uint64), np.empty(len(node), np.uint64)
    to = 0
    for line in range(lines):
        number = 0
        for at in range(start[line], start[line + 1]):
            key = np.int64(node[at]) * slots + slot_of[event[at]]
            if counted[key] == 0:
                touched[number] = key
                number += 1
            counted[key] += np.uint32(1)
            added[key] += value[at]
        for key in np.sort(touched[:number]):
            keys[to], records[to], sums[to] = key, counted[key], added[key]
            counted[key] = 0
            added[key] = 0
            to += 1
        first[line + 1] = to
    return first, keys[:to], records[:to], sums[:to]


@_compiled
def united_sums(
    line: Any, node: Any, event: Any, records: Any, value: Any, lines: Any, slot_of: Any,
    event_of: Any, table: Any,
) -> Any:  # fmt: skip
    """Sums by line, node and event, ascending, each once; equal ones are added.

    ``slot_of`` are places of events in ``event_of``, ascending; ``table``
    ``uint64[nodes * events, 2]`` is 0 and is so again at the end.
    """
    slots = len(event_of)
    first = np.zeros(lines + 1, np.int64)
    for at in range(len(line)):
        first[line[at] + 1] += 1
    for row in range(lines):
        first[row + 1] += first[row]
    order, following = np.empty(len(line), np.int64), first[:-1].copy()
    for at in range(len(line)):
        order[following[line[at]]] = at
        following[line[at]] += 1
    out_line, out_node = np.empty(len(line), np.uint32), np.empty(len(line), np.uint32)
    out_event, touched = np.empty(len(line), np.uint16), np.empty(len(line), np.int64)
    out_records, out_value = np.empty(len(line), np.uint64), np.empty(len(line), np.uint64)
    to = 0
    for row in range(lines):
        number = 0
        for place in range(first[row], first[row + 1]):
            at = order[place]
            key = np.int64(node[at]) * slots + slot_of[event[at]]
            if table[key, 0] == 0:
                touched[number] = key
                number += 1
            table[key, 0] += records[at]
            table[key, 1] += value[at]
        for key in np.sort(touched[:number]):
            out_line[to], out_node[to], out_event[to] = row, key // slots, event_of[key % slots]
            out_records[to], out_value[to] = table[key, 0], table[key, 1]
            table[key, 0] = 0
            table[key, 1] = 0
            to += 1
    return out_line[:to], out_node[:to], out_event[:to], out_records[:to], out_value[:to]


@_compiled
def _put_planes(data: Any, to: Any, values: Any, planes: Any) -> Any:
    """Write so many byte planes of ``values`` from ``to`` on; where they end."""
    for plane in range(planes):
        shift = np.uint32(8 * plane)
        target = data[to : to + len(values)]
        for at in range(len(values)):
            target[at] = np.uint8(values[at] >> shift)
        to += len(values)
    return to


@_compiled
def _put_places(data: Any, to: Any, times: Any, nodes: Any, steps: Any, chained: Any) -> Any:
    """Write the planes of a block's times and nodes from ``to`` on: where they end, the least step,
    and how many planes there are of each."""
    step, code = steps[: len(times)], chained[: len(times)]
    for at in range(len(times) - 1):
        step[at + 1] = np.uint32(times[at + 1] - times[at])
    smallest = np.uint32(_MOST)
    for at in range(1, len(step)):
        smallest = min(smallest, step[at])
    step[0] = smallest
    code[0] = nodes[0] + np.uint32(1)
    for at in range(1, len(code)):
        again = nodes[at] == nodes[at - 1] and code[at - 1] != 0
        code[at] = np.uint32(0) if again else nodes[at] + np.uint32(1)
    greatest, top = np.uint32(0), np.uint32(0)
    for at in range(len(step)):
        step[at] -= smallest
        greatest |= step[at]
        top |= code[at]
    wide, wide_node = _bytes_of(greatest), _bytes_of(top)
    to = _put_planes(data, to, step, wide)
    return _put_planes(data, to, code, wide_node), smallest, wide, wide_node


@_compiled
def place_planes(cuts: Any, time: Any, node: Any) -> Any:
    """Times and nodes of blocks before they are compressed: their bytes, where each block begins
    and the last ends, least steps, planes of times and of nodes."""
    number = len(cuts) - 1
    data = np.empty(8 * len(time), np.uint8)
    begin, least = np.zeros(number + 1, np.int64), np.zeros(number, np.uint32)
    wide, wide_node = np.zeros(number, np.uint16), np.zeros(number, np.uint16)
    steps, chained = np.empty(BLOCK_RECORDS, np.uint32), np.empty(BLOCK_RECORDS, np.uint32)
    to = 0
    for block in range(number):
        a, b = cuts[block], cuts[block + 1]
        to, least[block], wide[block], wide_node[block] = _put_places(
            data, to, time[a:b], node[a:b], steps, chained
        )
        begin[block + 1] = to
    return data, begin, least, wide, wide_node


@_compiled
def _put_codes(
    data: Any, to: Any, times: Any, events: Any, values: Any, codes: Any, rest: Any
) -> Any:
    """Write the planes of a block's codes and other values from ``to`` on: where they end, and how
    many planes there are of each."""
    code = codes[: len(times)]
    top, others, greatest = np.uint32(0), 0, np.uint64(0)
    for at in range(len(code)):
        amount, kind = values[at], np.uint32(3)
        if amount <= np.uint64(1):
            kind = np.uint32(1) - np.uint32(amount)
        elif at + 1 < len(code) and amount == np.uint64(times[at + 1] - times[at]):
            kind = np.uint32(2)
        else:
            rest[others] = amount
            greatest |= amount
            others += 1
        code[at] = np.uint32(events[at]) << np.uint32(2) | kind
        top |= code[at]
    wide, wide_other = _bytes_of(top), 0
    to = _put_planes(data, to, code, wide)
    while greatest > 0:
        shift = np.uint64(8 * wide_other)
        for at in range(others):
            data[to + at] = np.uint8(rest[at] >> shift)
        to += others
        greatest >>= np.uint64(8)
        wide_other += 1
    return to, wide, wide_other


@_compiled
def code_planes(cuts: Any, time: Any, event: Any, value: Any) -> Any:
    """Codes of blocks before they are compressed: their bytes, where each block begins and the last
    ends, planes of codes and of other values."""
    number = len(cuts) - 1
    data = np.empty(11 * len(time), np.uint8)
    begin = np.zeros(number + 1, np.int64)
    wide, wide_other = np.zeros(number, np.uint16), np.zeros(number, np.uint16)
    codes = np.empty(BLOCK_RECORDS, np.uint32)
    rest = np.empty(BLOCK_RECORDS, np.uint64)
    to = 0
    for block in range(number):
        a, b = cuts[block], cuts[block + 1]
        to, wide[block], wide_other[block] = _put_codes(
            data, to, time[a:b], event[a:b], value[a:b], codes, rest
        )
        begin[block + 1] = to
    return data, begin, wide, wide_other


@_compiled
def examine(
    rows: Any, first: Any, begin: Any, end: Any, time_ns: Any, event: Any, counts: Any, last: Any,
    slot_of: Any, used: Any,
) -> Any:  # fmt: skip
    """Of records of lines, which lie in stretches: how many there are, -1 where a line's are not in
    order or begin before the ``last`` of it; and how many slots their events need, each its own."""
    total = np.int64(0)
    for line in range(len(rows)):
        before = np.uint64(0)
        if counts[rows[line]] > 0:
            before = np.uint64(last[rows[line]]) * _UNIT
        back = False
        for stretch in range(first[line], first[line + 1]):
            total += end[stretch] - begin[stretch]
            for at in range(begin[stretch], end[stretch]):
                back |= time_ns[at] < before
                before = time_ns[at]
                if slot_of[event[at]] < 0:
                    slot_of[event[at]] = used
                    used += 1
        if back:
            return np.int64(-1), used
    return total, used


@_compiled
def lay_out(
    rows: Any, stretches: Any, records: Any, meaning: Any, lines: Any, table: Any, slots: Any,
    buffers: Any,
) -> Any:  # fmt: skip
    """Entries of records with the ends of intervals, where blocks of them begin, and their sums.

    ``rows`` are the lines; ``stretches`` where each line's stretches begin, and where these begin
    and end in the columns ``records``; they are in order (:func:`examine`). ``meaning`` are the
    part's number of each node, the length of each event and its slot; ``lines`` the entries, first
    and last ticks of all lines so far; ``table`` ``uint64[nodes * slots, 2]`` is 0, and so again
    at the end.

    Fills ``buffers``: where each line's entries begin, ticks, nodes, events, values, where blocks
    begin, and sums. Returns how many entries, blocks and sums there are, and whether all entries
    are of event 0 and value 1.
    """
    first, begin, end = stretches
    time_ns, node, event, value = records
    number, length, slot_of = meaning
    counts, earliest, latest = lines
    start, times, nodes, events, values, cuts, sums = buffers
    sum_key, sum_row, sum_records, sum_value = sums
    to = cells = made = np.int64(0)
    odd = np.uint64(0)
    for line in range(len(rows)):
        row = rows[line]
        start[line] = to
        first_cell = cells
        # Whether the record before is a wait is not foreseen by any processor: its end is written
        # in any case, and written over where there is none.
        waits, until = np.int64(0), np.uint64(0)
        place, code = np.uint32(0), np.uint16(0)
        for stretch in range(first[line], first[line + 1]):
            for at in range(begin[stretch], end[stretch]):
                now, amount = time_ns[at], value[at]
                times[to], nodes[to], events[to], values[to] = (
                    min(until, now) // _UNIT,
                    place,
                    code,
                    0,
                )
                to += waits
                code, place = event[at], number[node[at]]
                times[to], nodes[to], events[to], values[to] = now // _UNIT, place, code, amount
                to += 1
                odd |= np.uint64(code) | (amount ^ np.uint64(1))
                key = np.int64(place) * slots + slot_of[code]
                # Written in any case, too: a new one every dozen records is not foreseen either.
                sum_key[cells], sum_row[cells] = key, row
                cells += np.int64(table[key, 0] == 0)
                table[key, 0] += np.uint64(1)
                table[key, 1] += amount
                lasts = length[code] * amount
                waits = np.int64(lasts > 0)
                until = now + np.uint64(min(lasts, _LONGEST))
        if waits:
            times[to], nodes[to], events[to], values[to] = until // _UNIT, place, code, 0
            to += 1
        for cell in range(first_cell, cells):
            key = sum_key[cell]
            sum_records[cell], sum_value[cell] = table[key, 0], table[key, 1]
            table[key, 0] = 0
            table[key, 1] = 0
        a = start[line]
        if counts[row] == 0:
            earliest[row] = times[a]
        counts[row] += to - a
        latest[row] = times[to - 1]
        regular = a
        for at in range(a, to):
            if at == regular or times[at] - times[at - 1] > _MOST:
                cuts[made] = at
                made += 1
            if at == regular:
                regular += BLOCK_RECORDS
    start[len(rows)] = cuts[made] = to
    return to, made, cells, odd == 0


@_compiled
def overview(line: Any, start: Any, time: Any, node: Any, state: Any, first: Any, last: Any) -> Any:
    """Entries of lines' overviews up to the middle before their last records: pieces of line,
    shift, index of the first entry and number of entries, and all their nodes.

    ``state`` are shift, records, entries and the next entry of each line so far, ``first`` and
    ``last`` times and nodes of its first and last records.
    """
    shifts, seen, made, following = state
    lines = len(line)
    pieces = np.empty((lines, 4), np.int64)
    total = np.int64(0)
    for place in range(lines):
        row, begin, end = line[place], start[place], start[place + 1]
        before = last[0][row]
        if shifts[row] < 0:
            gap, shift = (time[end - 1] - time[begin]) // (end - begin), np.int64(0)
            while np.int64(1) << shift < gap:
                shift += 1
            shifts[row], following[row] = shift, time[begin] >> shift
            first[0][row], first[1][row] = time[begin], node[begin]
            last[0][row], last[1][row] = time[begin], node[begin]
            before = time[begin]
        seen[row] += end - begin
        while made[row] + (time[end - 1] >> shifts[row]) - following[row] > 2 * seen[row] + 64:
            shifts[row] += 1
            made[row] //= 2
            following[row] = -(-following[row] // 2)
        if end - begin > 1:
            before = time[end - 2]
        upto = ((before + time[end - 1]) >> (shifts[row] + 1)) + 1
        pieces[place, 0], pieces[place, 1] = row, shifts[row]
        pieces[place, 2], pieces[place, 3] = following[row], max(upto - following[row], 0)
        total += pieces[place, 3]
    values = np.empty(total, np.uint32)
    to = 0
    for place in range(lines):
        row, shift = line[place], pieces[place, 1] + 1
        at_entry, before, owner = following[row], last[0][row], last[1][row]
        for at in range(start[place], start[place + 1]):
            upto = ((before + time[at]) >> shift) + 1
            while at_entry < upto:
                values[to] = owner
                to += 1
                at_entry += 1
            before, owner = time[at], node[at]
        following[row] += pieces[place, 3]
        made[row] += pieces[place, 3]
        last[0][row], last[1][row] = before, owner
    return pieces, values


@_compiled
def unite(parent: Any, frame: Any, start: Any, seed: Any) -> Any:
    """The union of trees that begin at ``start``, in the order in which its nodes are met: parents,
    frames, and the node of the union of each of theirs. ``seed`` is an odd number that nobody can
    foresee, so that no tree is made to be slow."""
    size = np.int64(16)
    while size < 2 * len(parent):
        size *= 2
    # Nodes by parent and frame, in a table with open addressing; 0 is a free place, for the root is
    # nobody's child.
    table = np.zeros(size, np.uint32)
    mask = np.uint64(size - 1)
    ids = np.zeros(len(parent), np.uint32)
    parents, frames = np.zeros(len(parent), np.uint32), np.zeros(len(parent), np.uint64)
    used = np.uint32(1)
    for tree in range(len(start) - 1):
        first = start[tree]
        for at in range(first + 1, start[tree + 1]):
            above = ids[first + parent[at]]
            key = (frame[at] ^ np.uint64(above) * np.uint64(0x9E3779B97F4A7C15)) * seed
            key = (key ^ key >> np.uint64(32)) * seed
            place = (key ^ key >> np.uint64(29)) & mask
            while True:
                found = table[place]
                if found == 0:
                    table[place] = used
                    parents[used], frames[used] = above, frame[at]
                    ids[at] = used
                    used += np.uint32(1)
                    break
                if parents[found] == above and frames[found] == frame[at]:
                    ids[at] = found
                    break
                place = (place + np.uint64(1)) & mask
    return parents[:used].copy(), frames[:used].copy(), ids


@_compiled
def inclusive_extremes(parent: Any, line_start: Any, node: Any, value: Any, mean: Any) -> Any:
    """Of each node's inclusive values over all lines: how many are not 0, the sum of squared
    distances to ``mean``, the least and the most of those, where, and the first line of 0."""
    nodes = len(parent)
    count, whole = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    squares = np.zeros(nodes)
    least, most = np.full(nodes, np.inf), np.full(nodes, -np.inf)
    least_line, most_line = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    total, reached = np.zeros(nodes), np.zeros(nodes, np.bool_)
    touched = np.empty(nodes, np.int64)
    # Children of a node on this line that have not been added to it; -1 of one that is added.
    missing = np.zeros(nodes, np.int64)
    for line in range(len(line_start) - 1):
        number = 0
        for cell in range(line_start[line], line_start[line + 1]):
            amount = np.float64(value[cell])
            if amount == 0:
                continue
            at = np.int64(node[cell])
            total[at] += amount
            while not reached[at]:
                reached[at] = True
                touched[number] = at
                number += 1
                if at == 0:
                    break
                at = np.int64(parent[at])
                missing[at] += 1
        # Each node once, after all its children: a path may be long, and most of it is shared.
        for place in range(number):
            at = touched[place]
            while at != 0 and missing[at] == 0:
                missing[at] = -1
                above = np.int64(parent[at])
                total[above] += total[at]
                missing[above] -= 1
                at = above
        for place in range(number):
            at = touched[place]
            amount = total[at]
            total[at] = 0.0
            reached[at] = False
            missing[at] = 0
            if amount == 0:
                continue
            if count[at] == line:
                whole[at] = line + 1
            count[at] += 1
            squares[at] += (amount - mean[at]) ** 2
            if amount < least[at]:
                least[at], least_line[at] = amount, line
            if amount > most[at]:
                most[at], most_line[at] = amount, line
    return count, squares, least, most, least_line, most_line, whole
