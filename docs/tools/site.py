"""Hooks of MkDocs (mkdocs.yml). Pages link to files of the tree, such as
../../examples/logistic.c: the site takes these files along, and links to folders of the tree become
plain text."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
UNIT = re.compile(r"(\d) (%|(?:s|ms|us|ns|kB|KiB|MB|MiB|GB|GiB)\b)")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def in_tree(page: str, target: str) -> str:
    """The path in the tree of what a page of docs/ links to."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))


def on_files(files: Files, config: Any) -> Files:
    kept = Files([f for f in files if not f.src_path.startswith("tools/")])
    for page in list(kept.documentation_pages()):
        text = Path(page.abs_src_path).read_text()
        for _, _, link in LINK.findall(text):
            path = in_tree(page.src_path, link.partition("#")[0])
            new = outside(link, path) and not kept.get_file_from_path(path)
            if new and (ROOT / path).is_file():
                kept.append(copied(path, config))
    return kept


def copied(path: str, config: Any) -> File:
    """A file of the tree as it is, under its own path; Markdown too, which is shown as text."""
    shown = path + ".txt" if path.endswith(".md") else path
    file = File(shown, str(ROOT), config["site_dir"], False)
    file.abs_src_path = str(ROOT / path)
    return file


def outside(link: str, path: str) -> bool:
    return not re.match(r"[a-z]+:|#", link) and not path.startswith("docs/") and path != "docs"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    def rewrite(found: re.Match[str]) -> str:
        mark, text, link = found.groups()
        path = in_tree(page.file.src_path, link.partition("#")[0])
        if not outside(link, path):
            return found.group(0)
        if not (ROOT / path).is_file():
            return text
        elif path.endswith(".md"):
            path += ".txt"
        folder = os.path.dirname(page.file.src_path) or "."
        return f"{mark}[{text}]({os.path.relpath(path, folder)})"

    return unbroken(LINK.sub(rewrite, markdown))


def unbroken(markdown: str) -> str:
    """A number and its % or unit stay on one line; code is left alone."""
    out, fenced = [], False
    for line in markdown.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and not line.startswith("    "):
            parts = re.split(r"(`[^`]*`)", line)
            parts[::2] = [UNIT.sub("\\1\u00a0\\2", part) for part in parts[::2]]
            line = "".join(parts)
        out.append(line)
    return "\n".join(out)
