#!/usr/bin/env python3
"""Writes key_vectors.json: an implementation of inbox.KeyOf that shares no code with it.

Ids are base64, because some are not text. `python3 testdata/key_vectors.py > testdata/key_vectors.json`
"""
import base64
import hashlib
import json
import re
import struct

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def lp(b: bytes) -> bytes:
    return struct.pack(">I", len(b)) + b


def time_of_id(i: bytes):
    text = i.decode("latin-1")
    if re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", text, re.I | re.A):
        return int(text.replace("-", "")[:12], 16)
    if re.fullmatch(f"[0-7][{CROCKFORD}]{{25}}", text.upper()) and text.isascii():
        n = 0
        for c in text.upper()[:10]:
            n = n * 32 + CROCKFORD.index(c)
        return n
    return None


def key(consumer: bytes, source: bytes, i: bytes, time_ms=None) -> str:
    h = hashlib.sha256(lp(consumer) + lp(source) + lp(i)).digest()
    ms = time_of_id(i)
    if ms is None:
        ms = time_ms
    if ms is not None and 0 <= ms < 1 << 47:
        return (struct.pack(">Q", ms)[2:] + h[:10]).hex()
    return (bytes([h[0] | 0x80]) + h[1:16]).hex()


CASES = [
    ("UUIDv4", "billing", "orders", b"9b2d8a0e-4c1f-4d6a-8e0b-2f6a5c7d9e10", None),
    ("UUIDv4 with a time of its own", "billing", "orders", b"9b2d8a0e-4c1f-4d6a-8e0b-2f6a5c7d9e10", 1764592087123),
    ("UUIDv7", "billing", "orders", b"019adb40-0c00-7abc-8def-0123456789ab", None),
    ("UUIDv7 in upper case is another id", "billing", "orders", b"019ADB40-0C00-7ABC-8DEF-0123456789AB", None),
    ("UUIDv7 keeps its own time", "billing", "orders", b"019adb40-0c00-7abc-8def-0123456789ab", 1),
    ("UUIDv7 of 1970", "billing", "orders", b"00000000-0000-7000-8000-000000000000", None),
    ("UUIDv7 of the last timed millisecond", "billing", "orders", b"7fffffff-ffff-7abc-bdef-0123456789ab", None),
    ("UUIDv7 beyond 2^47 ms is untimed", "billing", "orders", b"80000000-0000-7abc-8def-0123456789ab", None),
    ("UUIDv7 in braces is free text", "billing", "orders", b"{019adb40-0c00-7abc-8def-0123456789ab}", None),
    ("UUIDv7 without hyphens is free text", "billing", "orders", b"019adb400c007abc8def0123456789ab", None),
    ("version 7 with another variant is free text", "billing", "orders", b"019adb40-0c00-7abc-0def-0123456789ab", None),
    ("ULID", "billing", "orders", b"01KBDM0300F9Y3QXJ5W8N2T7ZR", None),
    ("ULID in lower case is another id", "billing", "orders", b"01kbdm0300f9y3qxj5w8n2t7zr", None),
    ("ULID beyond 2^47 ms is untimed", "billing", "orders", b"7ZZZZZZZZZZZZZZZZZZZZZZZZZ", None),
    ("ULID that overflows is free text", "billing", "orders", b"8ZZZZZZZZZZZZZZZZZZZZZZZZZ", None),
    ("26 characters with a U are free text", "billing", "orders", b"01KBDM0300F9Y3QXJ5W8N2T7ZU", None),
    ("26 characters with an I are free text", "billing", "orders", b"01KBDM0300F9Y3QXJ5W8N2T7ZI", None),
    ("free text", "billing", "orders", b"orders/4711", None),
    ("free text with a time", "billing", "orders", b"orders/4711", 1764592087123),
    ("time 0 is timed", "billing", "orders", b"orders/4711", 0),
    ("time before 1970 is untimed", "billing", "orders", b"orders/4711", -1),
    ("time of 2^47 ms is untimed", "billing", "orders", b"orders/4711", 1 << 47),
    ("empty source", "billing", "", b"orders/4711", None),
    ("empty everything", "", "", b"", None),
    ("boundaries count: a,bc", "c", "a", b"bc", None),
    ("boundaries count: ab,c", "c", "ab", b"c", None),
    ("NUL byte", "billing", "orders", b"a\x00b", None),
    ("invalid UTF-8", "billing", "orders", b"\xff\xfe", None),
    ("unicode", "Abrechnung", "aufträge", "größe-€-𝄞".encode(), None),
    ("100 kB", "billing", "orders", b"x" * 100_000, None),
    ("100 kB that differ in the last byte", "billing", "orders", b"x" * 99_999 + b"y", None),
]

print(json.dumps([
    {
        "name": name,
        "consumer": consumer,
        "source": source,
        **({"id_repeat": [base64.b64encode(i[:1]).decode(), len(i) - 1], "id": base64.b64encode(i[-1:]).decode()}
           if len(i) > 1000 else {"id": base64.b64encode(i).decode()}),
        **({"time_ms": ms} if ms is not None else {}),
        "key": key(consumer.encode(), source.encode(), i, ms),
    }
    for name, consumer, source, i, ms in CASES
], indent=1, ensure_ascii=False))
