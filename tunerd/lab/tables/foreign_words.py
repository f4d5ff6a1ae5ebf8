"""Words of other scripts in the names of columns, as the English ones that they mean.

What is not here is left to the data. Units stand alone, between brackets or slashes; words stand
anywhere, for most of these languages have no blanks between them.
"""

import re

__all__ = ["has_unknown_words", "in_english"]


def _table(text: str) -> dict[str, str]:
    """``english: word word`` a line, by word; a blank in a word is written as ``_``."""
    pairs = (line.partition(":") for line in text.strip().splitlines())
    return {
        word.replace("_", " "): english.strip()
        for english, _, words in pairs
        for word in words.split()
    }


_WORDS = _table("""
    throughput: 吞吐量 吞吐率 吞吐 スループット 처리량 пропускная_способность
    timestamp: 时间戳 時間戳 タイムスタンプ 타임스탬프 временная_метка метка_времени
    start time: 开始时间 開始時間 開始時刻 시작_시간 время_начала
    end time: 结束时间 完成时间 結束時間 終了時刻 終了時間 종료_시간 время_окончания
    date: 日期 日付 日時 날짜 дата
    latency: 延迟 时延 延遲 遅延時間 遅延 レイテンシー レイテンシ 지연_시간 지연시간 지연 задержка
    run time: 运行时间 执行时间 執行時間 実行時間 処理時間 실행_시간 실행시간 время_выполнения
    train time: 训练时间 訓練時間 学習時間 학습_시간 время_обучения
    time: 时间 時間 耗时 用时 시간 время
    speed: 速度 속도 скорость
    performance: 性能 성능 производительность
    loss: 损失 損失 손실
    accuracy: 准确率 準確率 正解率 정확도 точность
    learning rate: 学习率 學習率 学習率 학습률
    batch size: 批次大小 批大小 批量大小 バッチサイズ 배치_크기 размер_пакета
    thread: 线程数 线程 執行緒數 執行緒 スレッド数 スレッド 스레드_수 스레드 потоков потоки
    node: 节点数 节点 節點數 節點 ノード数 ノード 노드_수 노드 узлов узлы
    gpu memory: 显存 顯存
    memory: 内存 記憶體 メモリ 메모리 память
    model: 模型 モデル 모델 модель
    mode: 模式 モード 모드 режим
    status: 状态 狀態 状態 상태 статус состояние
    mean: 平均 평균 средняя среднее
    result: 结果 結果 결과 результат
    request: 请求数 请求 請求 リクエスト 요청_수 요청 запросов
""")
_LATIN = _table("""
    thread: fäden hilos fils
    batch size: stapelgröße batchgröße tamaño_lote tamaño_de_lote tamaño_del_lote taille_lot
    batch size: taille_du_lot taille_de_lot tamanho_do_lote tamanho_lote dimensione_batch
    node: knoten nodos noeuds nœuds nós nodi
    core: kerne núcleos nucleos cœurs coeurs
    worker: trabajadores ouvriers
    run time: ausführungszeit rechenzeit laufzeit tiempo_ejecución tiempo_de_ejecución
    run time: temps_execution temps_exécution temps_d'exécution tempo_de_execução tempo_execução
    run time: tempo_di_esecuzione
    time: tiempo tempo
    duration: dauer duración durée durata duração
    throughput: durchsatz vazão débit
    speed: geschwindigkeit velocidad vitesse velocidade velocità
    latency: latenz latencia latence latência latenza
    memory: speicher speicherverbrauch memoria mémoire memória
    utilization: auslastung utilización
    learning rate: lernrate tasa_de_aprendizaje taux_d'apprentissage taxa_de_aprendizado
    accuracy: genauigkeit exactitud exactitude acurácia accuratezza
    loss: verlust pérdida perte perda perdita
    energy: energie energía énergie
    status: zustand estado état stato
    result: ergebnis resultado résultat risultato
    mean: mittelwert mittlere moyenne
    max: máxima máximo maximale
    size: größe tamaño taille tamanho dimensione
    model: modell modelo modèle modello
    timestamp: zeitstempel horodatage zeitpunkt
    start time: beginn inicio début
    end time: ende fin
""")
"""Words of languages in Latin letters: whole ones, for parts of them are others' words."""
_UNITS = _table("""
    s: 秒 초 с сек секунда секунд
    ms: 毫秒 ミリ秒 밀리초 мс
    us: 微秒 マイクロ秒 마이크로초 мкс
    min: 分 分钟 分鐘 분 мин
    hour: 小时 小時 時間 시간 час часов
    items: 件 个 個 条 次 回 건 개
    images: 张 張 枚 장
    samples: 样本 樣本 サンプル 샘플
    tokens: 词元 令牌 トークン 토큰
    requests: 请求 請求 リクエスト 요청
""")
_PER_SECOND = re.compile(r"(?:每秒|毎秒|초당)\s*(\S+?)[数數]?(?=$|[\s(\[（])|(\S+) в секунду")
_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
"""Wide letters, brackets and slashes."""


def _any_of(words: dict[str, str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


_UNIT = re.compile(rf"(?<![^\W\d_])(?:{_any_of(_UNITS)})(?![^\W\d_])", re.IGNORECASE)
_WORD = re.compile(_any_of(_WORDS).replace(r"\ ", "[ _]"), re.IGNORECASE)


_LATIN_WORD = re.compile(
    rf"(?<![^\W_])(?:{_any_of(_LATIN)})(?![^\W_])".replace(r"\ ", "[ _]"), re.IGNORECASE
)


def _plain(word: str) -> str:
    return word.lower().replace("_", " ")


def in_english(name: str, *, latin: bool = True) -> str:
    """A name with the words that are known in English; as it is where none is. Those in Latin
    letters, with which a name can be an identifier, only where ``latin``."""
    if latin:
        name = _LATIN_WORD.sub(lambda word: _LATIN[_plain(word[0])], name)
    if name.isascii():
        return name
    text = _PER_SECOND.sub(r"\1\2 per s", name.translate(_WIDE))
    if "/" in text or re.search(r"[(\[,]", text):
        text = _UNIT.sub(lambda unit: _UNITS[unit[0].lower()], text)
    return _WORD.sub(lambda word: f" {_WORDS[_plain(word[0])]} ", text).strip()


_LETTER = re.compile(r"[\u0400-\u04ff\u3041-\u30fa\u3400-\u9fff\uac00-\ud7a3]")


def has_unknown_words(name: str) -> bool:
    """Whether letters of these scripts are left, which may turn round what the known words say."""
    return _LETTER.search(in_english(name)) is not None
