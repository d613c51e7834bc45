# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The two loops over every record, compiled by numba: find the records, and fold the samples.

scan() steps from record to record. fold() counts equal samples together as it reads them, so that neither the
size of a recording nor its call chains cost memory: what differs between two samples is the event, the CPU, the
thread's name, the address and, where asked for, the call chain.

An address alone names nothing: it is a *frame* together with its mode (kernel, user, ...) and the state of the
address space it was sampled in (see spaces.py).

Called through native.py, which hands over arrays as (pointer, length): no array is made here, and nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

from rxbook.profile.walk import (
    BAD,
    BAD_SIZE,
    CHAIN,
    CHAIN_LENGTH,
    CHAIN_START,
    CHAINS_FULL,
    CHAINS_USED,
    COMM,
    COUNT,
    CPU_AT,
    DEFAULT_PERIOD,
    DEFERRED,
    DONE,
    FIELDS,
    FIRST_BAD,
    FIXED,
    FOUND_FULL,
    FRAMES_FULL,
    GROUPS_FULL,
    GROUPS_USED,
    HASH,
    ID_AT,
    IP_AT,
    LEAF,
    LONGEST_CHAIN,
    OTHER_TYPE,
    PART_AT,
    PART_LENGTH,
    PART_TID,
    PERIOD,
    PERIOD_AT,
    PLACE,
    POSITION,
    READ_FORMAT,
    SAMPLES,
    SPECIAL,
    TID_AT,
    TIME_AT,
    TRUNCATED,
    UNKNOWN,
)

_CONTEXT_MAX = (1 << 64) - 4095
_CONTEXTS = (
    (32, 3),
    (128, 1),
    (512, 2),
    (2176, 4),
    (2560, 5),
)  # PERF_CONTEXT_*: minus the value, and its mode
_DEFERRED_CONTEXT = (1 << 64) - 640
_NO_CHAIN = np.uint64(0x9E3779B97F4A7C15)


def _load(bits: int) -> Any:
    """Reading a number of so many bits at any byte offset, in the machine's byte order."""

    @intrinsic
    def load(typing_context: Any, data: Any, offset: Any) -> Any:
        result = {16: types.uint16, 32: types.uint32, 64: types.uint64}[bits]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
            place = builder.gep(start, [arguments[1]])
            return builder.load(builder.bitcast(place, ir.IntType(bits).as_pointer()), align=1)

        return result(data, types.int64), generate

    return load


_load16, _load32, _load64 = _load(16), _load(32), _load(64)


@njit(error_model="numpy", forceinline=True)
def _u16(data, at, swap):
    value = _load16(data, at)
    return ((value & 0xFF) << 8 | value >> 8) if swap else np.int64(value)


@njit(error_model="numpy", forceinline=True)
def _u32(data, at, swap):
    value = np.int64(_load32(data, at))
    if swap:
        value = (value & 0xFF) << 24 | (value & 0xFF00) << 8 | (value >> 8) & 0xFF00 | value >> 24
    return value


@njit(error_model="numpy", forceinline=True)
def _i32(data, at, swap):
    value = _u32(data, at, swap)
    return value - (1 << 32) if value >= 1 << 31 else value


@njit(error_model="numpy", forceinline=True)
def _u64(data, at, swap):
    if swap:
        return np.uint64(_u32(data, at, swap)) << np.uint64(32) | np.uint64(_u32(data, at + 4, swap))
    return _load64(data, at)


@njit(error_model="numpy", forceinline=True)
def _mix(hashed, word):
    """One more word into a 64-bit hash."""
    hashed = (hashed ^ word) * np.uint64(0xFF51AFD7ED558CCD)
    return hashed ^ (hashed >> np.uint64(32))


@njit(error_model="numpy")
def scan(data, start, end, stop, swap, actions, counts, found, state):
    """Step from record to record until one starts at or behind `stop`; `end` is where the data ends.

    actions[type]: 0 count, 1 note its offset in found, 2 end there (SPECIAL).
    """
    at = start
    number = 0
    reason = DONE
    while at < stop:
        if at + 8 > end:
            reason = TRUNCATED
            break
        size = np.int64(_u16(data, at + 6, swap))
        if size < 8:
            reason = BAD_SIZE
            break
        if at + size > end:
            reason = TRUNCATED
            break
        kind = min(_u32(data, at, swap), OTHER_TYPE)
        action = actions[kind]
        if action:
            if action == 2:
                reason = SPECIAL
                break
            if number == len(found):
                reason = FOUND_FULL
                break
            found[number] = at
            number += 1
        counts[kind] += 1
        at += size
    state[POSITION] = at
    state[COUNT] = number
    return reason


@njit(error_model="numpy", forceinline=True)
def _id_index(ids, wanted):
    """Place of an id among the sorted ids, -1 where it is unknown."""
    low = 0
    high = len(ids)
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < len(ids) and ids[low] == wanted else -1


@njit(error_model="numpy", forceinline=True)
def _state_at(keys, times, values, key, time, cache):
    """The value that holds for `key` at `time`: of the last entry for it that is not later, or -1.

    Entries are sorted by key and time. cache (of 4): key, from, to (times), value of the last answer.
    """
    if cache[0] == np.uint64(key) and cache[1] <= time and time < cache[2]:
        return np.int64(cache[3]) - 1
    low = 0
    high = len(keys)
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key or (keys[middle] == key and times[middle] <= time):
            low = middle + 1
        else:
            high = middle
    known = low > 0 and keys[low - 1] == key
    cache[0] = np.uint64(key)
    cache[1] = times[low - 1] if known else np.uint64(0)
    cache[2] = times[low] if low < len(keys) and keys[low] == key else np.uint64(0xFFFFFFFFFFFFFFFF)
    cache[3] = np.uint64(values[low - 1] + 1) if known else np.uint64(0)
    return np.int64(cache[3]) - 1


@njit(error_model="numpy", forceinline=True)
def _frame(table, frames, state, mode, space, ip):
    """Number of the frame (mode, space, ip), a new one where it was not seen before."""
    context = np.uint64(mode) << np.uint64(48) | np.uint64(space + 1)
    mask = len(table) - 1
    slot = np.int64(_mix(_mix(context * np.uint64(0xC4CEB9FE1A85EC53), ip), ip) & np.uint64(mask))
    while True:
        number = table[slot]
        if number < 0:
            break
        if frames[number, 0] == context and frames[number, 1] == ip:
            return np.int64(number)
        slot = (slot + 1) & mask
    number = np.int32(state[COUNT])
    table[slot] = number
    frames[number, 0] = context
    frames[number, 1] = ip
    state[COUNT] += 1
    return np.int64(number)


@njit(error_model="numpy", forceinline=True)
def _chain_hash(data, at, length, swap):
    hashed = _NO_CHAIN
    for i in range(length):
        hashed = _mix(hashed, _u64(data, at + 8 * i, swap))
    return hashed


@njit(error_model="numpy", forceinline=True)
def _context_mode(ip):
    """Mode that a context marker switches to, 0 where it is none that is known."""
    back = np.uint64(0) - ip
    for minus, mode in _CONTEXTS:
        if back == np.uint64(minus):
            return mode
    return 0


@njit(error_model="numpy", forceinline=True)
def _part_of(cookies, parts, cookie, tid):
    """Row in parts of the deferred chain with this cookie, -1 where the thread has none."""
    row = _id_index(cookies, cookie)
    return row if row >= 0 and (tid < 0 or parts[row, PART_TID] < 0 or parts[row, PART_TID] == tid) else -1


@njit(error_model="numpy")
def _keep_chain(
    data, at, length, swap, deferred, part_at, part_length, kernel_space, user_space, table, frames, chains, state
):  # fmt: skip
    """Append a call chain's frames and those of its deferred part, without context markers; return how many."""
    start = state[CHAINS_USED]
    used = start
    mode = 2
    for i in range(length + part_length):
        if i == length:
            mode = 2
        ip = _u64(data, at + 8 * i, swap) if i < length else deferred[part_at + i - length]
        if ip >= np.uint64(_CONTEXT_MAX):
            mode = _context_mode(ip)
            if mode == 0:  # perf, too, takes none of such a chain
                return 0
            continue
        space = kernel_space if mode == 1 else user_space
        chains[used] = _frame(table, frames, state, mode, space, ip)
        used += 1
    state[CHAINS_USED] = used
    return used - start


@njit(error_model="numpy", forceinline=True)
def _add(groups, group_table, hashed, state):
    """Number of the group with this hash, -1 - number where it is new (its row is to be filled).

    Hashes of 64 bits stand for what was hashed: of a million groups, two are mixed up once in 40 million files.
    """
    mask = len(group_table) - 1
    slot = np.int64(hashed) & mask
    while True:
        number = group_table[slot]
        if number < 0:
            break
        if groups[number, HASH] == np.int64(hashed):
            return np.int64(number)
        slot = (slot + 1) & mask
    number = np.int32(state[GROUPS_USED])
    group_table[slot] = number
    groups[number, HASH] = np.int64(hashed)
    state[GROUPS_USED] += 1
    return -1 - np.int64(number)


@njit(error_model="numpy")
def fold(
    data, start, end, base, swap, ordered, with_chains,
    layout, ids, id_events, last_values,
    comm_keys, comm_times, comm_values, space_keys, space_times, space_values,
    cookies, parts, deferred,
    frame_table, frames, group_table, groups, chains, state, caches,
):  # fmt: skip
    """Count the samples among the records from start to end, which scan() has found to be whole.

    base: what to add to an offset to get the time where there is none (ordered false).
    layout: a row per event; ids: sorted, with id_events and last_values (of PERF_SAMPLE_READ) beside them.
    comm_* and space_*: timelines by thread and by process, see _state_at.
    cookies, parts, deferred: see deferred.Deferred.

    One long function, as it is a third slower when its steps are functions of their own.
    """
    comm_cache = caches[:4]
    space_cache = caches[4:8]
    kernel_cache = caches[8:12]
    caches[:] = 0
    at = start
    reason = DONE
    while at < end:
        size = np.int64(_u16(data, at + 6, swap))
        if _u32(data, at, swap) != 9:
            at += size
            continue
        # Room for this sample, however long its chain?
        if state[COUNT] + 2 * LONGEST_CHAIN + 1 > len(frames):
            reason = FRAMES_FULL
            break
        if state[GROUPS_USED] + LONGEST_CHAIN > len(groups):
            reason = GROUPS_FULL
            break

        # Whose sample is it? The id 0 is that of perf's own.
        sample = at
        at += size
        event = 0
        id_at = layout[0, ID_AT]
        if id_at >= 0 and len(layout) > 1:
            if id_at + 8 > size:
                state[BAD] += 1
                if state[FIRST_BAD] < 0:
                    state[FIRST_BAD] = base + sample
                continue
            wanted = _u64(data, sample + id_at, swap)
            if wanted != 0:
                index = _id_index(ids, wanted)
                if index < 0:
                    state[UNKNOWN] += 1
                    continue
                event = id_events[index]

        # Where do its fields end? Behind the fixed ones stand the counts read, then the call chain.
        row = layout[event]
        place = row[FIXED]
        read_format = row[READ_FORMAT]
        read_at = sample + place
        values = 0
        if read_format >= 0 and place + 8 <= size:
            each = 1 + (read_format >> 2 & 1) + (read_format >> 4 & 1)
            times = (read_format & 1) + (read_format >> 1 & 1)
            if read_format & 8:
                values = min(np.int64(_u64(data, read_at, swap) & np.uint64(0xFFFF)), LONGEST_CHAIN - 1)
                place += 8 * (1 + times + values * each)
            else:
                place += 8 * (each + times)
        length = np.int64(0)
        if row[CHAIN] and place + 8 <= size:
            number = _u64(data, sample + place, swap)
            length = np.int64(number & np.uint64(0xFFFF))
            if number >= np.uint64(LONGEST_CHAIN):
                length = LONGEST_CHAIN
            place += 8 * (1 + length)
        elif row[CHAIN]:
            place = size + 1
        if place > size:
            state[BAD] += 1
            if state[FIRST_BAD] < 0:
                state[FIRST_BAD] = base + sample
            continue
        chain_at = sample + place - 8 * length

        # Its fields.
        mode = np.int64(_u16(data, sample + 4, swap)) & 7
        ip = _u64(data, sample + row[IP_AT], swap) if row[IP_AT] >= 0 else np.uint64(0)
        pid = np.int64(-1)
        tid = np.int64(-1)
        if row[TID_AT] >= 0:
            pid = _i32(data, sample + row[TID_AT], swap)
            tid = max(_i32(data, sample + row[TID_AT] + 4, swap), np.int64(-1))
        cpu = max(_i32(data, sample + row[CPU_AT], swap), np.int64(-1)) if row[CPU_AT] >= 0 else np.int64(-1)
        period = np.int64(row[DEFAULT_PERIOD])
        if row[PERIOD_AT] >= 0:
            period = np.int64(_u64(data, sample + row[PERIOD_AT], swap))
        time = np.uint64(base + sample)
        if ordered:
            time = _u64(data, sample + row[TIME_AT], swap) if row[TIME_AT] >= 0 else np.uint64(0)

        # Who ran, and which mappings held then?
        comm = _state_at(comm_keys, comm_times, comm_values, tid, time, comm_cache)
        if comm < 0:
            comm = -2 - tid  # nobody named the thread; tid is at least -1
        kernel_space = np.int64(-1)
        user_space = np.int64(-1)
        if mode == 1 or with_chains:
            kernel_space = _state_at(space_keys, space_times, space_values, np.int64(-1), time, kernel_cache)
        if mode != 1 or with_chains:
            user_space = _state_at(space_keys, space_times, space_values, pid, time, space_cache)
        own_space = kernel_space if mode == 1 else user_space
        hashed = _NO_CHAIN
        part_at = np.int64(0)
        part_length = np.int64(0)
        missing = False
        if with_chains and length > 0:
            if length > 1 and _u64(data, chain_at + 8 * length - 16, swap) == np.uint64(_DEFERRED_CONTEXT):
                part = _part_of(cookies, parts, _u64(data, chain_at + 8 * length - 8, swap), tid)
                missing = part < 0
                if part >= 0:
                    part_at = parts[part, PART_AT]
                    part_length = parts[part, PART_LENGTH]
                length -= 2
            hashed = _chain_hash(data, chain_at, length, swap)
            hashed = _mix(hashed, np.uint64(part_length << 32 | part_at))
            hashed = _mix(_mix(hashed, np.uint64(kernel_space)), np.uint64(user_space))
        hashed = _mix(_mix(hashed, ip), np.uint64(mode) << np.uint64(48) ^ np.uint64(own_space + 1))
        hashed = _mix(_mix(hashed, np.uint64(comm)), np.uint64(cpu + 1))

        # Each event that the sample counts for keeps a chain.
        if with_chains:
            kept = min(max(values, 1), len(layout)) * (length + part_length)
            if state[CHAINS_USED] + kept > len(chains):
                at = sample
                reason = CHAINS_FULL
                break
            state[DEFERRED] += missing

        # A group that is read as one is a sample of each of its events, whose period is what it counted since.
        group_read = read_format >= 0 and read_format & 8
        if read_format >= 0 and read_format & 4 and not group_read:
            values = 1
        per_value = 1 + (read_format >> 2 & 1) + (read_format >> 4 & 1) if group_read else 0
        value_at = read_at + (8 * (1 + times) if group_read else 0) if values else read_at
        for i in range(max(values, 1)):
            counted = event
            amount = period
            if read_format >= 0 and read_format & 4:
                if values == 0:
                    break
                here = value_at + 8 * i * per_value
                id_place = here + 8 if group_read else here + 8 * (1 + times)
                value = _u64(data, here, swap)
                index = _id_index(ids, _u64(data, id_place, swap))
                if index < 0:
                    state[UNKNOWN] += 1
                    continue
                amount = np.int64(value - last_values[index])
                last_values[index] = value
                counted = id_events[index]
                if amount == 0:
                    continue
            number = _add(groups, group_table, _mix(hashed, np.uint64(counted)), state)
            if number < 0:
                number = -1 - number
                groups[number, PLACE] = counted << 32 | cpu + 1
                groups[number, COMM] = comm
                groups[number, LEAF] = _frame(frame_table, frames, state, mode, own_space, ip)
                groups[number, CHAIN_START] = state[CHAINS_USED]
                groups[number, CHAIN_LENGTH] = 0
                if with_chains:
                    groups[number, CHAIN_LENGTH] = _keep_chain(
                        data, chain_at, length, swap, deferred, part_at, part_length,
                        kernel_space, user_space, frame_table, frames, chains, state,
                    )  # fmt: skip
                groups[number, SAMPLES] = 0
                groups[number, PERIOD] = 0
            groups[number, SAMPLES] += 1
            groups[number, PERIOD] += amount
    state[POSITION] = at
    return reason


@njit(error_model="numpy")
def refill_frames(table, frames, used):
    """Enter the frames into a table that is empty."""
    mask = len(table) - 1
    for number in range(used):
        context = frames[number, 0]
        ip = frames[number, 1]
        slot = np.int64(_mix(_mix(context * np.uint64(0xC4CEB9FE1A85EC53), ip), ip) & np.uint64(mask))
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = np.int32(number)


@njit(error_model="numpy")
def refill_groups(table, groups, used):
    """Enter the groups into a table that is empty."""
    mask = len(table) - 1
    for number in range(used):
        slot = groups[number, HASH] & mask
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = np.int32(number)


_U1, _I4, _I8, _U8 = (types.CPointer(kind) for kind in (types.uint8, types.int32, types.int64, types.uint64))
_N = types.int64


def _scan(
    data, data_n, start, end, stop, swap, actions, actions_n, counts, counts_n, found, found_n, state, state_n
):
    return scan(
        carray(data, data_n), start, end, stop, swap != 0, carray(actions, actions_n), carray(counts, counts_n),
        carray(found, found_n), carray(state, state_n),
    )  # fmt: skip


def _fold(
    data, data_n, start, end, base, swap, ordered, with_chains, layout, layout_n,
    ids, ids_n, id_events, id_events_n, last_values, last_values_n,
    comm_keys, comm_keys_n, comm_times, comm_times_n, comm_values, comm_values_n,
    space_keys, space_keys_n, space_times, space_times_n, space_values, space_values_n,
    cookies, cookies_n, parts, parts_n, deferred, deferred_n,
    frame_table, frame_table_n, frames, frames_n, group_table, group_table_n, groups, groups_n,
    chains, chains_n, state, state_n, caches, caches_n,
):  # fmt: skip
    return fold(
        carray(data, data_n), start, end, base, swap != 0, ordered != 0, with_chains != 0,
        carray(layout, (layout_n, FIELDS)), carray(ids, ids_n), carray(id_events, id_events_n),
        carray(last_values, last_values_n), carray(comm_keys, comm_keys_n), carray(comm_times, comm_times_n),
        carray(comm_values, comm_values_n), carray(space_keys, space_keys_n), carray(space_times, space_times_n),
        carray(space_values, space_values_n),
        carray(cookies, cookies_n), carray(parts, (parts_n, 3)), carray(deferred, deferred_n),
        carray(frame_table, frame_table_n), carray(frames, (frames_n, 2)),
        carray(group_table, group_table_n), carray(groups, (groups_n, 8)),
        carray(chains, chains_n), carray(state, state_n), carray(caches, caches_n),
    )  # fmt: skip


def _refill_frames(table, table_n, frames, frames_n, used):
    refill_frames(carray(table, table_n), carray(frames, (frames_n, 2)), used)
    return 0


def _refill_groups(table, table_n, groups, groups_n, used):
    refill_groups(carray(table, table_n), carray(groups, (groups_n, 8)), used)
    return 0


def _signature(*arguments: Any) -> Any:
    """Of an entry: each pointer is followed by the array's length."""
    flat = [
        part for kind in arguments for part in ((kind, _N) if isinstance(kind, types.CPointer) else (kind,))
    ]
    return types.int64(*flat)


_FOLD = _signature(
    _U1, _N, _N, _N, _N, _N, _N, _I8, _U8, _I8, _U8, _I8, _U8, _I8, _I8, _U8, _I8,
    _U8, _I8, _U8, _I4, _U8, _I4, _I8, _I4, _I8, _U8,
)  # fmt: skip

ENTRIES: dict[str, tuple[Callable[..., int], Any]] = {
    "scan": (_scan, _signature(_U1, _N, _N, _N, _N, _U1, _I8, _I8, _I8)),
    "fold": (_fold, _FOLD),
    "refill_frames": (_refill_frames, _signature(_I4, _U8, _N)),
    "refill_groups": (_refill_groups, _signature(_I4, _I8, _N)),
}


def compiled() -> dict[str, Any]:
    """The entries as functions that C could call."""
    return {name: cfunc(signature)(function) for name, (function, signature) in ENTRIES.items()}
