"""Files that other people made, opened with care; and files that hold people's names, made private.

Whatever stands where a file should be (a pipe, a device, a folder, one that never ends) is refused
in a sentence, before anything is read. Every error is an ``OSError`` whose ``strerror`` says what
is wrong.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO

__all__ = [
    "SECRET_BYTES",
    "append_to",
    "check_size",
    "give_to_owner",
    "make_folder",
    "mode_in",
    "open_regular",
    "read_bytes",
    "read_text",
]

SECRET_BYTES = 64 * 1024
"""Of a file that holds a secret, at most."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_WRITE = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW


def open_regular(path: Path, *, buffering: int = -1) -> IO[bytes]:
    """Open a regular file to read; a symbolic link to one will do.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    _check(os.stat(path), path)  # opening a device may do something to it
    descriptor = os.open(path, _READ)  # nothing waits for the other end of a pipe
    try:
        _check(os.fstat(descriptor), path)
        return open(descriptor, "rb", buffering=buffering)
    except BaseException:
        os.close(descriptor)
        raise


def check_size(file: IO[bytes], most_bytes: int, path: Path) -> None:
    """Refuse a file with more than ``most_bytes``. Raises OSError."""
    _check_bytes(os.fstat(file.fileno()).st_size, most_bytes, path)


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """All of a regular file that has at most ``most_bytes``. Raises OSError."""
    with open_regular(path) as file:
        check_size(file, most_bytes, path)
        content = file.read(most_bytes + 1) or b""
    _check_bytes(len(content), most_bytes, path)  # it grew, or never said how large it is
    return content


def read_text(path: Path, most_bytes: int) -> str:
    """As :func:`read_bytes`, as UTF-8 text; a byte order mark is left out.

    Raises:
        OSError: see there.
        UnicodeDecodeError: it is not UTF-8.
    """
    return read_bytes(path, most_bytes).decode("utf-8-sig")


def append_to(path: Path) -> int:
    """A descriptor to append to a file (and to read it), which is made when missing.

    A new file is for its owner alone; in a folder that its group may write to, for the group too.
    A symbolic link is refused: who may write into the folder could aim it at any file of ours.

    Raises:
        OSError: it cannot be written, or is a link or no regular file.
    """
    for _ in range(3):  # between the two, another process may make the file or take it away
        with suppress(FileExistsError):
            return _made(path, os.open(path, _WRITE | os.O_CREAT | os.O_EXCL, 0o600))
        with suppress(FileNotFoundError):
            return _opened(path)
    raise FileNotFoundError(errno.ENOENT, "comes and goes", str(path))


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, when missing: for its owner alone. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def mode_in(folder: Path) -> int:
    """Permissions of a new file: for its owner alone, or for the group that a folder is shared
    with, whatever the umask."""
    return 0o660 if folder.stat().st_mode & stat.S_IWGRP else 0o600


def give_to_owner(path: Path) -> None:
    """What root made belongs to whoever the folder belongs to: a command that root typed must not
    keep out the daemon's user. SQLite does so with the files that it adds."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        with suppress(OSError):  # a root without that right, as containers and NFS have
            os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def _made(path: Path, descriptor: int) -> int:
    try:
        os.fchmod(descriptor, mode_in(path.parent))
        give_to_owner(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _opened(path: Path) -> int:
    try:
        descriptor = os.open(path, _WRITE)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        refusal = "is a symbolic link, and nothing is written through one; put a file there"
        raise OSError(errno.ELOOP, refusal, str(path)) from None
    try:
        _check(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_one, name in _KINDS if is_one(status.st_mode)), "something else")
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(number, f"is {kind}, not a file", str(path))


def _check_bytes(size: int, most: int, path: Path) -> None:
    if size > most:
        raise OSError(errno.EFBIG, f"has more than {most:,} bytes", str(path))
