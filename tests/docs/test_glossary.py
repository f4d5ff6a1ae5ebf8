"""The glossary has every public class of the core, and no two classes share a name."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of tunerd, by its path."""
    paths = sorted((ROOT / "tunerd").rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}


def classes(folder: str) -> dict[str, list[str]]:
    """Top-level classes by name, with the files that have one so called."""
    files = defaultdict(list)
    for path, module in modules().items():
        for node in module.body if path.startswith(f"{folder}/") else []:
            if isinstance(node, ast.ClassDef):
                files[node.name].append(path)
    return files


def test_no_two_classes_share_a_name() -> None:
    shared = {name: files for name, files in classes("tunerd").items() if len(files) > 1}
    assert shared == {}


def test_every_public_class_of_the_core_is_explained() -> None:
    public = {name for name in classes("tunerd/core") if not name.startswith("_")}
    assert public - set(re.findall(r"`(\w+)`", GLOSSARY)) == set()


def test_what_is_explained_exists() -> None:
    named = set(re.findall(r"\(class(?:es)? `(\w+)`", GLOSSARY))
    assert named - set(classes("tunerd")) == set()


def test_terms_stand_in_order_and_once() -> None:
    terms = [term.lower() for term in re.findall(r"^- \*\*(.+?)\*\*: ", GLOSSARY, re.MULTILINE)]
    assert len(terms) > 250
    assert terms == sorted(set(terms))


def test_no_local_variable_has_a_name_that_says_nothing() -> None:
    """`found`, `told`, `said`, `one` and `seen` name any value at all. (Parameters are apart.)"""
    nothing = {"found", "told", "said", "one", "seen"}
    named = [
        f"{path}:{node.lineno}: {node.id}"
        for path, module in modules().items()
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Name)
        if isinstance(node.ctx, ast.Store)
        if node.id in nothing - {argument.arg for argument in function.args.args}
    ]
    assert named == []
