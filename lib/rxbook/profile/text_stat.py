# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf stat: counters, as a table, -x, -j, with -r and -I."""

import json
import re

import pandas as pd

from rxbook.profile.text_rows import Line, Warnings

COLUMNS = [
    "event", "value", "unit", "variance_percent", "running_percent", "interval_s", "cpu", "part",
    "metric_value", "metric_unit", "note",
]  # fmt: skip
_NOT = re.compile(r"<not (counted|supported)>")
_FIGURE = r"(?:[0-9][0-9.,']*(?: [0-9]{3})*(?:[.,][0-9]+)?|<not (?:counted|supported)>)"
_ROW = re.compile(
    r"(?:\s*(?P<interval>[0-9]+[.,][0-9]{9})\s)?"
    r"(?:\s*(?P<part>CPU[0-9]+|[SND][0-9]+(?:-[A-Z]+[0-9]+)*|\S.{0,40}?-[0-9]+)(?:\s+[0-9]+)?\s\s+)?"
    rf"\s*(?P<value>{_FIGURE})\s+(?:(?P<unit>[A-Za-z%/]+) )?\s*(?P<event>[^\s#(]\S*)"
)
_RUNNING = re.compile(r"\(([0-9.,]+)%\)$")
_VARIANCE = re.compile(r"\( ?\+- *([0-9.,]+)% ?\)$")
_TIME = re.compile(
    r"\s*(?P<value>[0-9]+[.,][0-9]+)(?: \+- [0-9.,]+)? seconds (?P<event>time elapsed|user|sys)"
    r"\s*(?:\( ?\+- *(?P<variance>[0-9.,]+)% ?\))?\s*$"
)
_METRIC = re.compile(r"\s*(?P<value>[0-9][0-9.,]*)\s*(?P<unit>\S.*)$")
_METRIC_ALONE = re.compile(r"\s+#\s+[0-9]")
_CSV_TIME = re.compile(r"\s*[0-9]+[.,][0-9]{9}|\s*summary")
_HEADS = re.compile(
    r"\s*Performance counter stats for |#\s+time\s.*counts|\s*# (Table of|Final)|\s*$|# started on"
)
_TABLE_RUN = re.compile(r"\s*[0-9.,]+ \([+-][0-9.,]+\) #")
_SEPARATORS = (",", ";", "\t", "|", "!", "@", "^", "~", ":", " ")


def is_stat(lines: list[Line]) -> bool:
    """Whether the text is of perf stat, by its heads or by its fields."""
    heads = any(
        "Performance counter stats for" in x.text or re.match(r"#\s+time\s.*counts", x.text) for x in lines
    )
    return heads or any('"counter-value"' in line.text for line in lines) or _separator(lines) is not None


def read(lines: list[Line], warnings: Warnings) -> pd.DataFrame:
    """One row per printed counter: COLUMNS, values in the printed unit, <NA> where a text does not tell them."""
    separator = _separator(lines)
    rows = []
    for line in lines:
        text = line.text
        if not text.strip() or (text.startswith("#") and not separator):
            continue
        row = _json_row(text) if text.lstrip().startswith("{") else None
        row = row or (_csv_row(text, separator) if separator else _table_row(text))
        if row:
            rows.append(row)
        elif not _is_known(text, separator):
            warnings.line(line, "not understood as a counter of perf stat")
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return _typed(frame)


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    for name in ("event", "unit", "part", "metric_unit", "note"):
        frame[name] = frame[name].astype("string")
    for name in ("value", "variance_percent", "running_percent", "interval_s", "metric_value"):
        frame[name] = pd.array([None if pd.isna(x) else float(x) for x in frame[name]], dtype="Float64")
    frame["cpu"] = [-1 if pd.isna(x) else int(x) for x in frame["cpu"]]
    return frame


def _is_known(text: str, separator: str | None) -> bool:
    """Lines that perf prints beside counters, metrics of the counter above among them."""
    if separator:
        return text.startswith("#") or text.lstrip().startswith(separator * 2)
    return any(p.match(text) for p in (_HEADS, _METRIC_ALONE, _TABLE_RUN))


def _separator(lines: list[Line]) -> str | None:
    """The separator of -x: the one with which the most lines are counters."""
    some = [line.text for line in lines[:200] if "#" not in line.text and "{" not in line.text]
    counts = {mark: sum(_csv_row(text, mark) is not None for text in some) for mark in _SEPARATORS}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else None


def _csv_row(text: str, separator: str) -> dict | None:
    """A line of -x. Event names may hold the separator: they end where run time and percentage follow."""
    parts = text.split(separator)
    row: dict = {}
    if parts and _CSV_TIME.fullmatch(parts[0]):
        head = parts.pop(0).strip()
        row["interval_s"] = None if head == "summary" else _plain(head)
    start = next((i for i, part in enumerate(parts[:3]) if _is_value(part)), None)
    if start is None:
        return None
    if start == 0 and len(parts) > 1 and parts[0].strip() == "":
        return None
    if start:
        row.update(_part(parts[0]))
        # An aggregated part is followed by the count of its CPUs.
        start += 1 if re.match(r"[SND][0-9]", parts[0]) and start == 1 else 0
    end = next((i for i in range(start + 3, len(parts) - 1) if _is_run_time(parts, i)), None)
    if end is None or not _is_value(parts[start]):
        return None
    row.update(
        _value(parts[start]), unit=parts[start + 1].strip() or None, running_percent=_plain(parts[end + 1])
    )
    if parts[end - 1].endswith("%") and end - 1 > start + 2:
        row["variance_percent"] = _plain(parts[end - 1][:-1])
        end -= 1
        metric = parts[end + 3 : end + 5]
    else:
        metric = parts[end + 2 : end + 4]
    row["event"] = separator.join(parts[start + 2 : end]).strip()
    if len(metric) == 2 and metric[0].strip():
        row.update(metric_value=_plain(metric[0]), metric_unit=metric[1].strip())
    return row if row["event"] else None


def _is_run_time(parts: list[str], place: int) -> bool:
    return bool(
        re.fullmatch(r"[0-9]+", parts[place])
        and re.fullmatch(r"[0-9]{1,3}[.,][0-9]{2}", parts[place + 1].strip())
    )


def _is_value(text: str) -> bool:
    return bool(re.fullmatch(r"\s*(?:[0-9]+(?:[.,][0-9]+)?|<not (?:counted|supported)>)\s*", text))


def _value(text: str) -> dict:
    """The counter's value, or the note why it has none."""
    missing = _NOT.search(text)
    return {"note": f"not {missing[1]}"} if missing else {"value": _plain(text)}


def _plain(text: str) -> float | None:
    """A figure without thousands separators; its decimal mark may be a comma."""
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        return None


def _part(text: str) -> dict:
    """The CPU, or the name of another part (socket, die, core, node, thread) that is counted apart."""
    text = text.strip()
    cpu = re.fullmatch(r"CPU([0-9]{1,6})", text)
    return {"cpu": int(cpu[1])} if cpu else {"part": text}


def _json_row(text: str) -> dict | None:
    # perf writes a locale's decimal commas even here.
    try:
        item = json.loads(re.sub(r"(: -?[0-9]+),([0-9]+)(?=[,} ])", r"\1.\2", text))
    except (ValueError, RecursionError):
        return None
    if not isinstance(item, dict) or not item.get("event") or "counter-value" not in item:
        return None
    parts = [
        item[key] for key in ("socket", "die", "cluster", "cache", "core", "node", "thread") if key in item
    ]
    row = {
        "event": str(item["event"]),
        "unit": str(item.get("unit") or "") or None,
        **_value(str(item["counter-value"])),
    }
    row.update(_part(f"CPU{item['cpu']}") if "cpu" in item else {"part": str(parts[0])} if parts else {})
    pairs = {
        "variance_percent": "variance", "running_percent": "pcnt-running", "interval_s": "interval",
        "metric_value": "metric-value",
    }  # fmt: skip
    row.update({ours: _plain(str(item[theirs])) for ours, theirs in pairs.items() if theirs in item})
    return {**row, "metric_unit": str(item.get("metric-unit") or "") or None}


def _table_row(text: str) -> dict | None:
    if match := _TIME.match(text):
        row = {"event": match["event"], "value": _plain(match["value"]), "unit": "seconds"}
        return row | ({"variance_percent": _plain(match["variance"])} if match["variance"] else {})
    rest, running = _without(_RUNNING, text)
    rest, variance = _without(_VARIANCE, rest)
    head, _, metric = rest.partition("#")
    match = _ROW.fullmatch(head.rstrip()) if len(head) < 200 else None
    if not match:
        return None
    missing = _NOT.search(match["value"])
    row = {
        "event": match["event"],
        "unit": match["unit"],
        "variance_percent": variance,
        "running_percent": running,
    }
    row.update({"note": f"not {missing[1]}"} if missing else {"value": _grouped(match["value"])})
    row.update(_part(match["part"]) if match["part"] else {})
    row["interval_s"] = _plain(match["interval"] or "")
    if figure := _METRIC.match(metric):
        row.update(metric_value=_grouped(figure["value"], fraction=True), metric_unit=figure["unit"].strip())
    return row


def _without(pattern: re.Pattern, text: str) -> tuple[str, float | None]:
    """The text before what the pattern finds at its end, and the figure found there."""
    text = text.rstrip()
    match = pattern.search(text)
    return (text[: match.start()], _plain(match[1])) if match else (text, None)


def _grouped(text: str, fraction: bool = False) -> float | None:
    """A figure as perf prints it in a locale, its groups of three by comma, point, space or apostrophe.

    fraction: the figure always has decimals, as metrics have. Else a lone mark before three digits groups a count,
    since perf prints counters that are no counts with two decimals.
    """
    text = text.strip().replace(" ", "").replace("'", "")
    last = max(text.rfind(","), text.rfind("."))
    if last < 0:
        return _plain(text)
    tail, mark = text[last + 1 :], text[last]
    digits = text[:last].replace(",", "").replace(".", "")
    mixed = ("," if mark == "." else ".") in text
    groups = len(tail) == 3 and not mixed and not text.startswith("0") and not fraction
    return _plain(f"{digits}{tail}" if groups else f"{digits}.{tail}")
