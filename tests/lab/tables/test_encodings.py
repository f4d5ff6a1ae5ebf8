"""Texts in the encodings that spreadsheets of the world write: decoded right, and told."""

from pathlib import Path

import pytest

from tunerd.lab.tables.encodings import UTF8, encoding_of, guessed_encoding
from tunerd.lab.tables.files import open_table

TEXTS = [
    ("gb18030", "线程数,模式,训练时间(秒)\n1,模式甲,2\n2,模式乙,3\n"),
    ("gb18030", "批大小,吞吐量\n1,2\n"),
    ("cp932", "スレッド数,最適化,処理時間(秒)\n1,有効,3\n"),
    ("cp932", "設定,結果\n高速,1\n"),
    ("euc_jp", "スレッド数,最適化,処理時間(秒)\n1,有効,3\n"),
    ("big5", "執行緒數,模式,訓練時間(秒)\n1,快速,2\n3,標準,3\n"),
    ("cp949", "스레드,모드,시간(초)\n1,빠름,3\n2,보통,4\n"),
    ("cp949", "노드,시간\n1,2\n"),
    ("cp1251", "потоки;режим;время, с\n1;быстрый;3,5\n"),
    ("cp1251", "Время выполнения (с);Узлов\n1,5;2\n"),
    ("cp1251", "ПОТОКИ;ВРЕМЯ\n1;2\n"),
    ("koi8-r", "потоки,режим,время\n1,быстрый,3\n"),
    ("cp866", "Потоки;Время\n1;2\n"),
    ("cp1253", "νήματα,χρόνος (s),λειτουργία\n1,2,γρήγορη\n"),
    ("cp1252", "Größe,Fäden\n1,2 €\n"),
    ("cp1252", "Débit (images/s),Nœuds,Précision\n1,2,élevée\n"),
    ("cp1252", "Temps d’exécution (s),n\n1,2\n"),
    ("cp1252", "latency (µs),temp °C,m²\n1,2,3\n"),
    ("cp1252", "energía,año,señal\n1,2,3\n"),
    ("cp1252", "ÜBERSICHT;GRÖSSE\n1;2\n"),
    ("cp1250", "Wątki,Tryb,Czas\n1,średni,2\n3,żółty,3\n"),
    ("cp1250", "vlákna,režim,čas běhu\n1,rychlý,2\n"),
    ("cp1254", "iş parçacığı,süre,yığın boyutu\n1,2,3\n"),
]


@pytest.mark.parametrize(("encoding", "text"), TEXTS)
def test_a_text_is_read_in_its_own_letters(encoding: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(text.encode(encoding))
    table = open_table(path)
    header = text.partition("\n")[0]
    assert table.columns == tuple(header.split(table.delimiter))
    (told,) = table.told()
    assert guessed_encoding((encoding, "")) in told
    assert "save it as UTF-8" in told


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8", "utf-8-sig"])
@pytest.mark.parametrize("text", [text for _, text in TEXTS if "Größe" in text or "线" in text])
def test_unicode_is_no_guess(encoding: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes((text * 2).encode(encoding))
    table = open_table(path)
    assert table.columns == tuple(text.partition("\n")[0].split(","))
    assert not any("UTF-8" in told for told in table.told())


def test_utf_8_with_a_spoilt_line_stays_utf_8() -> None:
    lines = [f"{n},größe\n".encode() for n in range(9)]
    assert encoding_of([b"".join([*lines, b"9,\xff\xfe\n"])]) == UTF8
    assert encoding_of([b"caf\xe9,\xc3\xa9\n1,2\n"]) == UTF8


def test_a_letter_may_lie_across_two_blocks_and_a_line_may_be_long() -> None:
    text = ("время выполнения," * 5_000 + "\n").encode("cp1251")
    blocks = [text[at : at + 777] for at in range(0, len(text), 777)]
    assert encoding_of(blocks)[0] == "cp1251"
    text = ("線程数时间模式," * 9_000).encode("gb18030")
    assert encoding_of([text[:50_001], text[50_001:]])[0] == "gb18030"
