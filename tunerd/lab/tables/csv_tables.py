"""CSV with any delimiter: where the table begins, what its columns are called, and its rows.

Read line by line in constant memory. What no line may do is end the reading: a line that is no
row is yielded as :class:`UnreadableLine`, and reading goes on after it.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, takewhile

from tunerd.lab.tables.header_rows import MOST_LINES, are_units, has_data, joined, like_data
from tunerd.lab.tables.rows import SkippedRows, TableRow, UnreadableLine
from tunerd.lab.tables.text_reader import TextReader, is_comment, told_by_excel

__all__ = [
    "CsvHeader",
    "columns_without_names",
    "csv_header",
    "csv_rows",
    "is_prose",
    "lines_above",
    "sniffed",
]

DELIMITERS = ",\t;|"
MOST_ABOVE, LEAST_ROWS = 40, 3
"""Records above the names of the columns at most, and alike ones that make a table."""
MISSING = frozenset({"", "NULL", "null", "N/A", "#N/A", "<NA>", "\\N"})
"""How programs write a missing value into a CSV. Not ``NA`` and ``None``, which are values of
categories too; where numbers belong those cannot be used either."""


def sniffed(sample: str, first: str) -> str:
    """The delimiter of a CSV: what splits its header and most of its lines alike.

    ``first`` wins where none does, and ties.
    """
    best, delimiter = (0.0, 0), first
    for candidate in dict.fromkeys(first + DELIMITERS):
        records = _sampled(sample, candidate)
        counts = [len(fields) for fields in records[_above(records) :]]
        if counts and counts[0] > 1:
            body = counts[1:-1] or counts[1:] or counts  # the sample may end in a line's middle
            alike = sum(count == counts[0] for count in body) / len(body)
            if (round(alike, 1), counts[0]) > best:
                best, delimiter = (round(alike, 1), counts[0]), candidate
    return delimiter


def lines_above(sample: str, delimiter: str) -> int:
    """How many records stand above the names of the columns: a title, or what a program says of
    itself. Comments do not count."""
    lines = sample.splitlines(keepends=True)
    if lines and told_by_excel(lines[0]):
        del lines[0]  # as told_delimiter takes it
    text = "".join(line for line in lines if not is_comment(line))
    return _above(_sampled(text, delimiter))


_KEYED = re.compile(r"\W*([A-Za-z_][\w.]*)\s*[:=]\s*\S")
_MOMENT = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def is_prose(sample: str, delimiter: str) -> bool:
    """Whether a text is no table, whatever stands between its fields: where the names of columns
    belong is prose, or what the line below says as well, ``threads=8`` or the time of day."""
    records = _sampled(sample, delimiter)
    comments = 0
    while comments < len(records) and is_comment(records[comments][0]):
        comments += 1
    lines = records[comments:]
    if not lines:
        return False
    first = lines[0]
    if Counter(map(len, lines)).most_common(1)[0][0] < 2:
        return re.search(r"[\s:=]", first[0].strip()) is not None
    if comments and len(records[comments - 1]) == len(first):
        return False  # that comment may have the names
    pairs = list(zip(first, lines[1] if len(lines) > 1 else (), strict=False))
    keys = [(_KEYED.match(name), _KEYED.match(value)) for name, value in pairs]
    alike = sum(bool(a and b and a[1] == b[1]) for a, b in keys)
    moments = bool(pairs) and all(_MOMENT.match(field.strip()) for field in pairs[0])
    return moments or (len(first) > 1 and 2 * alike >= len(first))


def columns_without_names(sample: str, delimiter: str) -> int:
    """How many columns a CSV has whose first line has no names of columns; 0 where it has.

    Such a line has a number in each column that has numbers below. Names of columns may be numbers
    too, but then nothing else in their line looks like what stands below it: nothing in the corner
    of a table with one setting down and one across does.
    """
    records = _sampled(sample, delimiter)
    lines = [_stripped(fields) for fields in records if not is_comment(fields[0])]
    above = takewhile(lambda fields: is_comment(fields[0]), records)
    if lines and any(len(fields) == len(lines[0]) for fields in above):
        return 0  # that comment may have them
    first, rows = lines[0] if lines else (), [row for row in lines[1:] if len(row) == len(lines[0])]
    columns = [[row[place] for row in rows if row[place]] for place in range(len(first))]
    numeric = [bool(column) and all(map(like_data, column)) for column in columns]
    if not any(numeric) or not all(map(like_data, compress(first, numeric))):
        return 0
    texts = [
        (text, column) for text, column, n in zip(first, columns, numeric, strict=True) if not n
    ]
    alike = any(_form(text) in map(_form, column) for text, column in texts if text)
    return len(first) if alike or not (any(text for text, _ in texts) or _is_across(first)) else 0


def _is_across(first: Sequence[str]) -> bool:
    """Whether a line has nothing in its corner and rising numbers behind it."""
    numbers = [float(text) for text in first[1:] if _is_number(text)]
    return not first[0] and len(numbers) == len(first) - 1 and numbers == sorted(set(numbers))


def _form(text: str) -> str:
    """What a text has in common with others that only have other numbers."""
    return re.sub(r"\d+", "0", text)


def _sampled(sample: str, delimiter: str) -> list[list[str]]:
    """Records of a sample that are not empty, up to what cannot be read."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    records: list[list[str]] = []
    with suppress(csv.Error):  # a sample cut within quotes, or too long a field
        records.extend(fields for fields in reader if fields)
    return records


def _above(records: Sequence[Sequence[str]]) -> int:
    """How many records stand above one that has as many fields as most, all of them names, over
    numbers. 0 where that is not plain."""
    counts = Counter(len(fields) for fields in records if not _is_ruled(fields))
    width, rows = counts.most_common(1)[0] if counts else (0, 0)
    if width < 2 or rows < LEAST_ROWS or 2 * rows < counts.total():
        return 0
    for place, fields in enumerate(records[: MOST_ABOVE + 1]):
        names = [name for name in _stripped(fields) if name]
        if len(fields) == width and len(names) > 1:
            named = not any(map(_is_number, names)) and len(set(names)) == len(names)
            below = next((row for row in records[place + 1 :] if len(row) == width), ())
            return place if named and any(map(_is_number, below)) else 0
        if len(names) >= width:
            return 0
    return 0


@dataclass(frozen=True)
class CsvHeader:
    """The line of a CSV with the names of its columns."""

    fields: tuple[str, ...]
    """As they stand there, without white space around them."""
    commented: bool = False
    """Whether it is a comment, ``# tp,tokens``, as plotting programs have it."""
    line: int = 1

    @cached_property
    def known(self) -> frozenset[str]:
        """The names, in lower case."""
        return frozenset(field.lower() for field in self.fields if field)


def csv_header(file: TextReader, delimiter: str, above: int = 0) -> CsvHeader:
    """The first line that is no comment, after so many records ``above`` it; or the last comment,
    where it names what follows.

    Raises csv.Error or ValueError when that line cannot be read.
    """
    file.told_delimiter()
    comment: CsvHeader | None = None
    for fields, mistake in _csv_lines(file, delimiter):
        if file.commented:
            file.keep_one_line()
            (alone,) = csv.reader([file.taken[0].lstrip().lstrip("#/")], delimiter=delimiter)
            names = _stripped(alone)
            comment = CsvHeader((names[0] or "#", *names[1:]) if names else (), True, file.line)
            continue
        if above:
            above -= 1
            continue
        if mistake:
            raise ValueError(mistake)
        header = CsvHeader(_stripped(fields), False, file.line)
        if comment is not None and _names(comment, header):
            return comment
        given = [name for name in header.fields if name]
        grouped = len(set(given)) < len(given) or (len(given) > 1 and "" in header.fields[1:-1])
        across = len(given) > 2 and _is_across(("", *header.fields[1:]))
        return _of_several_lines(file, header, delimiter) if grouped or across else header
    return comment or CsvHeader(())


_MARK = "\ufeff"
"""The byte order mark; in files that were put together it stands before a header in the middle."""


def _stripped(fields: Sequence[str]) -> tuple[str, ...]:
    return tuple(field.strip().strip(_MARK) for field in fields)


def _of_several_lines(file: TextReader, header: CsvHeader, delimiter: str) -> CsvHeader:
    """The header with the names of the lines below it, where columns are named in groups:
    ``params,params`` over ``lr,dropout``, or a merged cell. Else as it is."""
    lines = {header.line: header.fields}
    for fields, mistake in _csv_lines(file, delimiter):
        below = _stripped(fields)
        if mistake or len(below) != len(header.fields):
            return header
        if has_data(below) or len(lines) == MOST_LINES:
            break
        lines[file.line] = below
    while len(lines) > 1 and are_units(lines[max(lines)]):
        del lines[max(lines)]
    names = joined(list(lines.values())) if len(lines) > 1 else None
    return header if names is None else CsvHeader(names, False, max(lines))


def _names(comment: CsvHeader, first: CsvHeader) -> bool:
    """Whether a comment names the columns of the row below it."""
    alike = len(comment.fields) == len(first.fields) > 1
    return alike and not any(map(_is_number, comment.fields)) and any(map(_is_number, first.fields))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_RULED = re.compile(r"[\s|+]*[-=:]{2,}[-=:\s|+]*")


def _is_ruled(fields: Sequence[str]) -> bool:
    """Whether a line only rules others off."""
    return all(_RULED.fullmatch(field.strip()) for field in fields if field.strip())


_FOOTER = re.compile(r"\(?\d+ rows?\b.*", re.IGNORECASE)
AGAIN = "the header again"


def csv_rows(
    file: TextReader,
    header: CsvHeader,
    columns: Sequence[str | None],
    delimiter: str,
    not_jobs: SkippedRows,
) -> Iterator[TableRow | UnreadableLine]:
    """The rows after the header.

    Args:
        file: at its beginning.
        header: what :func:`csv_header` found.
        columns: a name for each of its fields; ``None`` for one that is left out.
        delimiter: between fields.
        not_jobs: told which lines are no rows: comments, the header again, blanks, footers.
    """
    file.told_delimiter()
    number, names = 0, columns
    given = [column for column in columns if column is not None]
    for fields, mistake in _csv_lines(file, delimiter):
        if file.line <= header.line:
            above = "a comment" if file.commented else "text above the table"
            if file.commented:
                file.keep_one_line()
            if file.line < header.line and not mistake:
                not_jobs.add(above, file.line)
            continue
        if not mistake and (why := _no_row(file, header, fields)) is not None:
            if why == AGAIN:
                names = _named_again(header, columns, fields)
            if why:
                not_jobs.add(why, file.line)
            continue
        number += 1
        reason = mistake or _other_width(fields, len(names))
        if len(file.taken) > 1 and (reason or file.ended):
            # One quotation mark too many would take the lines up to the next one with it.
            file.keep_one_line()
            reason = "opens a quotation that does not end in the line"
        elif not reason and not _is_text(fields):
            reason = "is not UTF-8"
        if reason:
            yield UnreadableLine(number, reason, file.shown())
        else:
            values = (None if (text := field.strip()) in MISSING else text for field in fields)
            row = dict(zip(names, values, strict=True))
            row.pop(None, None)
            yield TableRow(number, row if names is columns else dict.fromkeys(given) | row)  # type: ignore[arg-type]


def _other_width(fields: list[str], many: int) -> str:
    """Why a row does not fit so many columns; "" when it does. Empty fields too many are taken out:
    a comma ends each line that the loop of a program writes."""
    if not "".join(fields[many:]).strip():
        del fields[many:]
    return "" if len(fields) == many else f"has {len(fields)} fields, the header has {many}"


def _no_row(file: TextReader, header: CsvHeader, fields: Sequence[str]) -> str | None:
    """What a line is that is no row; "" for one that need not be told; ``None`` for a row."""
    many = len(header.fields)
    first = next((text for field in fields if (text := field.strip())), "")
    start = first[:1]
    if many < 2:
        return None
    if not start:
        return None if len(fields) == 1 else ""
    if file.commented and (header.commented or not is_comment(header.fields[0])):
        line = file.taken[0].lstrip()
        if header.commented or line.startswith(("# ", "//", "==")) or len(fields) != many:
            file.keep_one_line()
            again = header.commented and all(name in line for name in header.fields)
            return AGAIN if again else "a comment"
    if len(fields) == 1 and _FOOTER.fullmatch(first):
        return "a footer"
    if start in "-=+|:" and _is_ruled(fields):
        return "a ruled line"
    return AGAIN if _is_header(header, fields) else None


def _is_header(header: CsvHeader, fields: Sequence[str]) -> bool:
    """Whether most fields are names of columns, in whatever case, and none is a number."""
    known = header.known
    first, last = fields[0].strip().strip(_MARK), fields[-1].strip()
    if first.lower() not in known and last.lower() not in known:
        return False
    texts = [text.lower() for text in _stripped(fields) if text]
    alike = sum(text in known for text in texts)
    return alike >= 2 and 5 * alike >= 3 * len(texts) and not any(map(_is_number, texts))


def _named_again(
    header: CsvHeader, columns: Sequence[str | None], fields: Sequence[str]
) -> Sequence[str | None]:
    """The columns below a header that comes again, maybe in another order or with others."""
    texts = _stripped(fields)
    if texts == header.fields:
        return columns
    left: dict[str, list[str | None]] = {}
    for name, column in zip(header.fields, columns, strict=True):
        left.setdefault(name.lower(), []).append(column)
    return [those.pop(0) if (those := left.get(text.lower())) else None for text in texts]


def _csv_lines(file: TextReader, delimiter: str) -> Iterator[tuple[list[str], str]]:
    """Fields of each record that is not empty, or what is wrong with it."""
    reader = csv.reader(file, delimiter=delimiter)
    while True:
        file.taken.clear()
        try:
            fields, mistake = next(reader), ""
        except StopIteration:
            return
        except (csv.Error, ValueError) as error:
            fields, mistake = [], str(error)
        if fields or mistake:
            yield fields, mistake


def _is_text(fields: Sequence[str]) -> bool:
    try:
        "".join(fields).encode()
    except UnicodeEncodeError:
        return False
    return True
