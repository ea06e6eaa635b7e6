"""Manual pages (the part of mdoc that ours use) as Markdown. An unknown macro is an error."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

INLINE = {
    "Fl", "Ar", "Cm", "Op", "Oo", "Oc", "Xr", "Ev", "Nm", "Sq", "Dq", "Pq", "Ql", "Ns", "No", "Va",
    "Vt", "Dv", "Pa", "Fn",
}  # fmt: skip
CLOSING = {".", ",", ";", ":", ")", "]", "?", "!"}
OPENING = {"(", "["}
SPACED = "\x01"  # stands for a blank that Ns may take away


def code(text: str) -> str:
    return f"`{text}`"


def words(line: str) -> list[str]:
    try:
        return shlex.split(line, posix=True) if '"' in line else line.split()
    except ValueError:
        return line.split()


def run(tokens: list[str], synopsis: bool = False) -> str:
    """One macro line as Markdown; in a synopsis as plain text."""
    mark = (lambda s: s) if synopsis else code
    out: list[str] = []
    i, macro, closers = 0, "No", []

    def put(text: str, glue: bool = False) -> None:
        if out and not glue and out[-1] not in OPENING and not (synopsis and out[-1].endswith("[")):
            out.append(SPACED)
        out.append(text)

    glue = False
    while i < len(tokens):
        token = tokens[i]
        i += 1
        if token in INLINE:
            if token == "Ns":
                glue, macro = True, "No"
                continue
            if token in ("Op", "Oo"):
                put("[", glue)
                glue = True
                if token == "Op":
                    closers.append("]")
                continue
            if token == "Oc":
                put("]", True)
                continue
            if token == "Pq":
                put("(", glue)
                glue = True
                closers.append(")")
                continue
            macro = token
            if token == "Fl" and (i >= len(tokens) or tokens[i] in INLINE):
                put(mark("-"), glue)
            continue
        if token in CLOSING:
            if i == len(tokens):  # what ends a line is behind what encloses it
                while closers:
                    put(closers.pop(), True)
            put(token, True)
            continue
        if token in OPENING:
            put(token, glue)
            glue = True
            continue
        if macro == "Fl":
            put(mark("-" + token), glue)
        elif macro == "Xr":
            section = tokens[i] if i < len(tokens) and tokens[i].isdigit() else ""
            i += 1 if section else 0
            put(reference(token, section), glue)
            macro = "No"
        elif macro in ("Sq", "Dq", "Ql", "Cm", "Ev", "Va", "Vt", "Dv", "Pa", "Nm", "Fn"):
            text = token
            while (
                i < len(tokens)
                and macro in ("Sq", "Dq", "Ql", "Nm", "Cm")
                and tokens[i] not in INLINE | CLOSING
            ):
                text += " " + tokens[i]
                i += 1
            put(mark(text + ("()" if macro == "Fn" else "")), glue)
        elif macro == "Ar":
            put(token if synopsis else f"*{token}*", glue)
        else:
            put(escape(token) if not synopsis else token, glue)
        glue = False
    for closer in reversed(closers):
        put(closer, True)
    return "".join(out).replace(SPACED, " ")


def reference(name: str, section: str) -> str:
    if name == "rill" or name.startswith("rill-"):
        return f"[{name.replace('-', ' ')}](#{name})"
    return f"`{name}({section})`"


def escape(text: str) -> str:
    text = text.replace("<", "&lt;").replace("|", r"\|")
    return re.sub(r"(?<!\w)(\w*_\w+)", r"`\1`", text).replace("*", r"\*")


class Page:
    def __init__(self, name: str) -> None:
        self.name, self.out, self.depth, self.section = name, [], 0, ""
        self.text: list[str] = []
        self.synopsis: list[str] = []

    def flush(self) -> None:
        if self.text:
            body = re.sub(r" ([.,;:)])(?= |$)", r"\1", " ".join(self.text)).replace("( ", "(")
            indent = "    " * self.depth
            if self.out and self.out[-1].startswith("\x02"):
                self.out[-1] = f"{self.out[-1][1:]}: {body}"
            else:
                self.out += ["", indent + body] if self.depth else ["", body]
            self.text = []

    def close_item(self) -> None:
        self.flush()
        if self.out and self.out[-1].startswith("\x02"):
            self.out[-1] = self.out[-1][1:]

    def heading(self, level: str, title: str) -> None:
        self.close_item()
        self.section = title
        # Every page has them: not in the site's contents.
        if title in ("EXIT STATUS", "EXAMPLES", "FILES", "SEE ALSO"):
            level = "####"
        if title not in ("NAME", "DESCRIPTION", "SYNOPSIS"):
            text = title[:1] + title[1:].lower() if title.isupper() else title
            self.out += ["", f"{level} {text}"]

    def line(self, line: str) -> None:
        if not line.startswith("."):
            self.text.append(escape(line.strip()))
            return
        macro, _, rest = line[1:].partition(" ")
        tokens = words(rest)
        if line.startswith('.\\"') or macro in ("Dd", "Dt", "Os"):
            return
        if macro in ("Sh", "Ss"):
            self.heading("###" if macro == "Sh" else "####", rest)
        elif macro == "Nd":
            self.text = []
            self.out += ["", rest[:1].upper() + rest[1:] + "."]
        elif self.section == "SYNOPSIS":
            self.synopsis_line(macro, tokens)
        elif macro == "Pp":
            self.flush()
        elif macro == "Bl":
            self.close_item()
            self.depth += 1
            self.out.append("")
        elif macro == "El":
            self.close_item()
            self.depth -= 1
            self.out.append("")
        elif macro == "It":
            self.close_item()
            term = item(tokens)
            self.out.append("\x02" + "    " * (self.depth - 1) + f"- {term}")
        elif macro == "Dl":
            self.close_item()
            indent = "    " * self.depth
            if self.out and self.out[-1] == indent + "```":  # one block for lines in a row
                self.out[-1:] = [indent + rest, indent + "```"]
            else:
                self.out += ["", indent + "```sh", indent + rest, indent + "```"]
        elif macro == "Nm" and not tokens:
            self.text.append(code(self.name.replace("-", " ")))
        elif macro == "Li":  # literally, quotes too
            body, blank, end = rest.rpartition(" ")
            self.text.append(code(body) + end if blank and end in CLOSING else code(rest))
        elif macro in INLINE:
            self.text.append(run([macro, *tokens]))
        else:
            raise ValueError(f"{self.name}: the macro {macro} is not known to docs/tools/mdoc.py")

    def synopsis_line(self, macro: str, tokens: list[str]) -> None:
        if macro == "Nm":
            self.synopsis.append(" ".join(tokens) or self.name)
        else:
            shown = run([macro, *tokens], synopsis=True)
            self.synopsis[-1] += " " + shown

    def markdown(self, text: str) -> str:
        for line in text.rstrip("\n").split("\n"):
            if self.section == "SYNOPSIS" and line.startswith((".Sh", ".Ss")):
                self.out += ["", "```text", *self.synopsis, "```"]
            self.line(line)
        self.close_item()
        heading = f"## {self.name.replace('-', ' ', 1)}"
        body = "\n".join([f'<a id="{self.name}"></a>', "", heading, *self.out])
        return re.sub(r"\n{3,}", "\n\n", body).rstrip() + "\n"


def item(tokens: list[str]) -> str:
    """The head of an item: an option with its argument is one piece of code."""
    pieces, piece, macro = [], "", "No"
    plain = not tokens or tokens[0] not in INLINE
    if plain:
        return "**" + " ".join(tokens) + "**"
    for token in tokens:
        if token == ",":
            pieces.append(piece)
            piece = ""
        elif token in INLINE:
            macro = token
        else:
            piece += (" " if piece else "") + ("-" + token if macro == "Fl" else token)
    return ", ".join(code(p) for p in [*pieces, piece])


def page(files: list[Path]) -> str:
    out = [
        "# The tool: rill",
        "",
        "Written from the manual pages (`man/`) by `docs/tools/reference`. "
        "`man rill-bench` and `rill bench --help` say the same.",
        "",
    ]
    files = sorted(files, key=lambda f: (f.stem != "rill", f.stem))
    out += [Page(file.stem).markdown(file.read_text()) for file in files]
    return "\n".join(out)
