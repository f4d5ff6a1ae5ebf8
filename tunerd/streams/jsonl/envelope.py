"""A message as a line: ``{"key": …, "value": …, "headers": …}``, and back.

Events of other programs have no envelope: their line is the event itself.
"""

import base64
import binascii

import msgspec

from tunerd.streams.base import StreamMessage, StreamRecord, TopicContent
from tunerd.streams.jsonl.lines import FileLine

__all__ = ["LINE_LIMIT", "decode", "encode", "key_of"]

LINE_LIMIT = 4 * 1024 * 1024
"""Bytes in a line with an envelope at most; a rejected record has up to about 350 KB."""


class _JsonlEnvelope(msgspec.Struct):
    key: str | None = None
    value: msgspec.Raw = msgspec.Raw(b"null")
    headers: dict[str, str] = {}


def encode(message: StreamMessage, content: TopicContent) -> bytes:
    """Return the line with its newline. Raises ValueError if it cannot be one."""
    if content is TopicContent.EVENT:
        line = message.value or b""
        if b"\n" in line:
            line = _one_line(line)
        if not line.strip():
            raise ValueError(f"an event for {message.topic} is empty")
    else:
        key = None if message.key is None else message.key.decode()
        headers = {name: text.decode(errors="backslashreplace") for name, text in message.headers}
        line = msgspec.json.encode(_JsonlEnvelope(key, _value(message.value, content), headers))
    if content is not TopicContent.EVENT and len(line) > LINE_LIMIT:
        raise ValueError(f"a message for {message.topic} is larger than {LINE_LIMIT} bytes")
    return line + b"\n"


def decode(
    line: FileLine, content: TopicContent, cluster: str, topic: str, partition: str
) -> StreamRecord:
    """Return the line as a record. Raises ValueError if it is not an envelope."""
    key: bytes | None = None
    value: bytes | None = line.text
    headers: tuple[tuple[str, bytes], ...] = ()
    size = line.size
    if content is TopicContent.EVENT:
        pass
    elif line.sha256 is not None:
        raise ValueError(f"a line of {line.size} bytes")
    else:
        try:
            envelope = msgspec.json.decode(line.text, type=_JsonlEnvelope)
            key = None if envelope.key is None else envelope.key.encode()
            value = _bytes(envelope.value, content)
        except (msgspec.MsgspecError, binascii.Error) as error:
            raise ValueError(str(error)) from error
        headers = tuple((name, text.encode()) for name, text in envelope.headers.items())
        size = 0 if value is None else len(value)
    return StreamRecord(
        cluster, topic, partition, line.start, line.end, key, value, headers, size, line.sha256
    )


def key_of(text: bytes) -> tuple[str | None, bool]:
    """Return a line's key, and whether it frees the key. Raises ValueError."""
    envelope = msgspec.json.decode(text, type=_JsonlEnvelope)
    return envelope.key, bytes(envelope.value) == b"null"


def _value(value: bytes | None, content: TopicContent) -> msgspec.Raw:
    if value is None:
        return msgspec.Raw(b"null")
    if content is TopicContent.BYTES:
        return msgspec.Raw(b'"' + base64.b64encode(value) + b'"')
    return msgspec.Raw(_one_line(value))


def _one_line(value: bytes) -> bytes:
    """Return JSON as it is if it has no line break, else without one. Raises ValueError."""
    try:
        msgspec.json.decode(value)
        return value if b"\n" not in value else msgspec.json.format(value, indent=-1)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not JSON: {error}") from error


def _bytes(value: msgspec.Raw, content: TopicContent) -> bytes | None:
    text = bytes(value)
    if text == b"null":
        return None
    if content is TopicContent.JSON:
        return text
    return base64.b64decode(msgspec.json.decode(text, type=str), validate=True)
