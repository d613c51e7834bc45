# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes small perf.data files, in either byte order, and finds the corpus of real ones."""

import csv
import struct
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "perf-corpus"
IP, TID, TIME, READ, CALLCHAIN, ID, CPU, PERIOD = 1, 2, 4, 16, 32, 64, 128, 256
USUAL = IP | TID | TIME | CALLCHAIN | ID | CPU | PERIOD
KERNEL, USER = 1, 2
KERNEL_MARK, USER_MARK, DEFERRED_MARK = ((1 << 64) - number for number in (128, 512, 640))


def manifest() -> list[dict[str, str]]:
    """Rows of the corpus's MANIFEST.tsv, none where it is absent."""
    path = CORPUS / "MANIFEST.tsv"
    if not path.is_file():
        return []
    with open(path) as file:
        return list(csv.DictReader(file, delimiter="\t"))


def corpus_files() -> list[Path]:
    return [CORPUS / row["file"] for row in manifest()]


@dataclass
class Recording:
    """A perf.data file in the making: call the methods in the file's order, then bytes()."""

    order: str = "<"
    pipe: bool = False
    compress: bool = False
    sample_type: int = USUAL
    read_format: int = 0
    events: tuple[tuple[int, int], ...] = ((1, 0),)  # type and config; event i has the id 100 + i
    sample_id_all: bool = True
    period: int = 1000
    features: dict[int, bytes] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)

    def pack(self, form: str, *values: int) -> bytes:
        return struct.pack(self.order + form, *values)

    def record(self, kind: int, payload: bytes, misc: int = 0) -> "Recording":
        payload += bytes(-len(payload) % 8)
        self.records.append(self.pack("IHH", kind, misc, 8 + len(payload)) + payload)
        return self

    def trailer(self, time: int, pid: int = 1, tid: int = 1) -> bytes:
        if not self.sample_id_all:
            return b""
        parts = ((TID, "ii", (pid, tid)), (TIME, "Q", (time,)), (ID, "Q", (100,)), (CPU, "II", (0, 0)))
        return b"".join(self.pack(form, *values) for bit, form, values in parts if self.sample_type & bit)

    @staticmethod
    def name(text: str) -> bytes:
        data = text.encode() + b"\0"
        return data + bytes(-len(data) % 8)

    def comm(self, time: int, tid: int, text: str) -> "Recording":
        return self.record(3, self.pack("ii", tid, tid) + self.name(text) + self.trailer(time))

    def fork(self, time: int, pid: int, parent: int) -> "Recording":
        payload = self.pack("iiiiQ", pid, parent, pid, parent, time)
        return self.record(7, payload + self.trailer(time))

    def mmap(
        self, time: int, pid: int, start: int, length: int, text: str, pgoff: int = 0, misc: int = USER
    ) -> "Recording":
        payload = self.pack("iiQQQ", pid, pid, start, length, pgoff) + self.name(text)
        return self.record(1, payload + self.trailer(time), misc)

    def ksymbol(self, time: int, start: int, length: int, text: str, gone: bool = False) -> "Recording":
        payload = self.pack("QIHH", start, length, 1, int(gone)) + self.name(text)
        return self.record(17, payload + self.trailer(time))

    def sample(
        self, time: int, ip: int, chain: tuple[int, ...] = (), *, tid: int = 1, event: int = 0, cpu: int = 0,
        period: int = 1000, mode: int = USER, read: bytes = b"",
    ) -> "Recording":  # fmt: skip
        parts = (
            (IP, self.pack("Q", ip)), (TID, self.pack("ii", tid, tid)), (TIME, self.pack("Q", time)),
            (ID, self.pack("Q", 100 + event)), (CPU, self.pack("II", cpu, 0)), (PERIOD, self.pack("Q", period)),
            (READ, read), (CALLCHAIN, self.pack(f"Q{len(chain)}Q", len(chain), *chain)),
        )  # fmt: skip
        return self.record(9, b"".join(data for bit, data in parts if self.sample_type & bit), mode)

    def deferred(self, time: int, cookie: int, chain: tuple[int, ...], tid: int = 1) -> "Recording":
        payload = self.pack(f"QQ{len(chain)}Q", cookie, len(chain), *chain)
        return self.record(22, payload + self.trailer(time, tid, tid), USER)

    def attribute(self, number: int) -> bytes:
        kind, config = self.events[number]
        flags = (1 << 20) | (1 << 18 if self.sample_id_all else 0)  # exclude_guest
        data = flags.to_bytes(8, "little")
        if self.order == ">":
            data = bytes(int(f"{byte:08b}"[::-1], 2) for byte in data)
        head = self.pack("IIQQQQ", kind, 112, config, self.period, self.sample_type, self.read_format)
        return head + data + bytes(112 - 48)

    def example(self) -> bytes:
        """A bit of everything."""
        self.features |= {3: self.string("host"), 4: self.string("6.1"), 7: self.pack("II", 2, 2)}
        self.mmap(0, -1, 0xFFFFFFFF81000000, 0x1000000, "[kernel.kallsyms]_text", 0xFFFFFFFF81000000, KERNEL)
        self.comm(1, 1, "one").mmap(2, 1, 0x400000, 0x1000, "/usr/bin/one").fork(3, 2, 1)
        self.ksymbol(4, 0xFFFFFFFFC0000000, 0x100, "bpf_prog_1234_x")
        for i in range(20):
            chain = (KERNEL_MARK, 0xFFFFFFFF81000010, USER_MARK, 0x400100 + i % 3, 0x400200)
            self.sample(10 + i, 0xFFFFFFFF81000010, chain, tid=1 + i % 2, mode=KERNEL)
        self.record(2, self.pack("QQ", 100, 3) + self.trailer(40)).record(68, b"")
        self.deferred(41, 7, (USER_MARK, 0x400300))
        return bytes(self)

    def string(self, text: str) -> bytes:
        data = self.name(text)
        return self.pack("I", len(data)) + data

    def __bytes__(self) -> bytes:
        magic = b"PERFILE2" if self.order == "<" else b"2ELIFREP"
        body = b"".join(self.records)
        if self.compress:
            body = self.packed(body)
        if self.pipe:
            attributes = [
                self.pack("IHH", 64, 0, 8 + 112 + 8) + self.attribute(i) + self.pack("Q", 100 + i)
                for i in range(len(self.events))
            ]
            return magic + self.pack("Q", 16) + b"".join(attributes) + body
        return self.as_file(magic, body)

    def as_file(self, magic: bytes, body: bytes) -> bytes:
        ids_at, count = 104, len(self.events)
        attrs_at = ids_at + 8 * count
        data_at = attrs_at + 128 * count
        bits = sum(1 << bit for bit in self.features)
        head = magic + self.pack("QQQQQQQQ", 104, 128, attrs_at, 128 * count, data_at, len(body), 0, 0)
        head += self.pack("4Q", bits, 0, 0, 0)
        ids = b"".join(self.pack("Q", 100 + i) for i in range(count))
        attrs = b"".join(self.attribute(i) + self.pack("QQ", ids_at + 8 * i, 8) for i in range(count))
        table, contents = b"", b""
        contents_at = data_at + len(body) + 16 * len(self.features)
        for bit in sorted(self.features):
            table += self.pack("QQ", contents_at + len(contents), len(self.features[bit]))
            contents += self.features[bit]
        return head + ids + attrs + body + table + contents

    def packed(self, body: bytes) -> bytes:
        """The records as COMPRESSED ones of one stream, cut where it comes."""
        stream = zstandard.ZstdCompressor().compressobj()
        out = b""
        for at in range(0, len(body), 500):
            payload = stream.compress(body[at : at + 500]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            out += self.pack("IHH", 81, 0, 8 + len(payload)) + payload
        return out
