#!/usr/bin/env python3
"""Writes the pages of docs/reference from what the program says of itself.

    scripts/reference.py [--binary PROGRAM] [FOLDER]

PROGRAM is build/release/palimpsest unless said, FOLDER docs/reference. A new mixer, task, option or verb is on its page after one call;
a test (tests/python/test_reference.py) fails while the pages are not what the program says. Pages that are no longer made are removed.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARK = "<!-- Made by scripts/reference.py from what the program says; changes here are lost. -->"
SECTIONS = {  # in the order of the index: title, and what a page says beyond its options
    "config": ("Keys at the top", "`base`, `task` with its segments, `mixers` and `sweep` are no options with one value. They are explained in"
                                  " [Configs](../config.md), the options of each task and mixer in [Tasks](tasks.md) and [Mixers](mixers.md)."),
    "model": ("model", "The options of each mixer stand in [Mixers](mixers.md)."),
    "train": ("train", "What a step does with them is told in [Training](../training.md)."),
    "data": ("data", "Which examples a run sees, and when, is told in [Training](../training.md#which-examples)."),
    "eval": ("eval", "How answers are judged is told in [Tasks](../tasks.md#what-an-answer-can-be), how they are counted in"
                     " [Training](../training.md#evaluation)."),
    "run": ("run", "What precision rounds, and what the backends are, is told in [One recurrence family](../recurrence.md)."),
}
KEY = r"\b(?:model|train|data|eval|run|task|mixers|sweep)(?:\.[a-z_]+)+(?:=[\w.-]+)?"
WIDTH = 140
JOBS = 2  # programs at one time; each takes a good part of a second to load
EXAMPLE = "length=32"  # of a task's worked example, where the task takes it


class PagesError(Exception):
    """What keeps the pages from being made, said in one line."""


# ------ Markdown


def escaped(text):
    """Text as it is: nothing in it is markup."""
    return re.sub(r"([\\*<>|~\[\]`$]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def code(text):
    return f"`{text}`".replace("|", "\\|") if text else ""


def prose(text):
    """A meaning or a summary: keys of a config and options of a verb as code, papers as links."""
    pieces = re.split(rf"({KEY}|(?<!\S)--[a-z][\w-]*|arXiv:? ?\d{{4}}\.\d{{4,5}})", text)
    for i, piece in enumerate(pieces):
        number = re.search(r"\d{4}\.\d{4,5}$", piece)
        if i % 2 == 0:
            pieces[i] = escaped(piece)
        else:
            pieces[i] = f"[{piece}](https://arxiv.org/abs/{number[0]})" if number else code(piece)
    return "".join(pieces)


def sentence(text):
    return text[:1].upper() + text[1:].rstrip(".") + "."


def table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def wrapped(text, indent=""):
    """Lines of WIDTH; what is code stays on one."""
    text = re.sub(r"`[^`]+`", lambda found: found[0].replace(" ", "\0"), text)
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def page(title, *parts):
    """Paragraphs are wrapped; tables, headings, lists and blocks stand as they are."""
    whole = [part if part.startswith(("| ", "#", "```", "- ")) else wrapped(part) for part in parts if part]
    return "\n\n".join([f"# {title}", MARK, *whole]) + "\n"


# ------ options


def kind_of(option):
    """Its type with what is allowed: "integer, 1 to 64", "`none`, `l2`"."""
    if option["type"] == "word":
        return ", ".join(map(code, option["allowed"].split(" | ")))
    return option["type"] + (f", {option['allowed']}" if option["allowed"] else "")


def meaning_of(option):
    text = prose(option["meaning"])
    if option["used_where"]:
        text += f". *Counts where {escaped(option['used_where'])}*"
    for value, caution in option["cautions"].items():
        text += f". *Caution* with {code(value)}: {prose(caution)}"
    return text


def options_table(options):
    """Whether an option is part of the id is a column only where some are and some are not."""
    kinds = {option["identity"] for option in options}
    heads, rows = ["option", "type and range", "default", "meaning"], []
    for option in options:
        rows.append([code(option["name"]), escaped_kind(option), code(option["default"]), meaning_of(option)])
        if len(kinds) > 1:
            rows[-1].insert(3, "yes" if option["identity"] else "no")
    if len(kinds) > 1:
        heads.insert(3, "part of the id")
    return table(heads, rows)


def escaped_kind(option):
    return kind_of(option) if option["type"] == "word" else escaped(kind_of(option))


def identity_of(options):
    kinds = {option["identity"] for option in options}
    if kinds == {True}:
        return "Every option is part of a run's id."
    return "No option is part of a run's id." if kinds == {False} else ""


# ------ pages


class Program:
    def __init__(self, path):
        self.path = path

    def says(self, *arguments, refused=False):
        """What it prints; None where it refuses the call and that is expected."""
        try:
            result = subprocess.run([self.path, *arguments], capture_output=True, text=True, encoding="utf-8", timeout=120)
        except OSError as error:
            raise PagesError(f"no program '{self.path}' ({error.strerror}); scripts/build.sh release makes it, --binary names another")
        if result.returncode != 0 and refused:
            return None
        if result.returncode != 0:
            raise PagesError(f"`palimpsest {' '.join(arguments)}` failed: {result.stderr.strip()}")
        return result.stdout

    def json(self, *arguments):
        return json.loads(self.says(*arguments, "--json"))

    def described(self, kind):
        return self.each(lambda item: self.json("describe", kind, item["name"]), self.json("list", kind + "s"))

    def each(self, action, items):
        with ThreadPoolExecutor(JOBS) as pool:
            return list(pool.map(action, items))


def section_page(section, title, text):
    name, options = section["name"], section["options"]
    if name == "config":
        where, command = "These keys stand at the top of a config, outside of every section.", "palimpsest describe config"
    else:
        where = (f"{sentence(prose(section['meaning']))} These keys stand under `{name}` in a config, and are set from the command line as"
                 f" `{name}.OPTION=VALUE`.")
        command = f"palimpsest describe {name}"
    return page(title, f"{where} `{command}` prints this table.", f"{text} {identity_of(options)}".strip(), options_table(options))


def contents(items):
    return table(["name", "summary"], [[f"[{item['name']}](#{item['name']})", prose(item["summary"])] for item in items])


def mixers_page(mixers):
    parts = ["An option of a mixer stands under `mixers.NAME` in a config and holds for every layer of that mixer; a layer may have options of its own"
             " ([Configs](../config.md#keys-at-the-top)). `palimpsest describe mixer NAME` prints one of these sections. How a mixer is added is told in"
             " [Mixers](../mixers.md), and what the recurrences have in common in [One recurrence family](../recurrence.md).",
             identity_of([option for mixer in mixers for option in mixer["options"]]) + " Options of a mixer that a run does not use are no part of it.",
             contents(mixers)]
    for mixer in mixers:
        order = ("It needs positions: `model.positions`, or a convolution before it." if mixer["needs_positions"]
                 else "It knows the order of tokens by itself.")
        state = "grows with the sequence" if mixer["growing_state"] else "is of fixed size"
        parts += [f"## {mixer['name']}", sentence(prose(mixer["summary"])), "```text\n" + re.sub(r"; +", "\n", mixer["recurrence"]) + "\n```",
                  f"Its state {state}. {order}", f"Paper: {sentence(prose(mixer['paper']))}", options_table(mixer["options"])]
    return page("Mixers", *parts)


def example_of(program, name):
    """The command and the tokens of a worked example."""
    for arguments in ([EXAMPLE], []):
        if (text := program.says("describe", "task", name, *arguments, refused=bool(arguments))) is not None:
            head, _, rest = text.partition("\none example: ")[2].partition("\n\n")
            return " ".join(["palimpsest describe task", name, *arguments]), head, rest.partition("\nits events")[0].strip("\n")


def tasks_page(tasks, program):
    parts = ["An option of a task stands under `task` in a config, or in one of its segments (`task.train`, `task.valid`, `task.test`), which may"
             " set it for themselves; each segment also has its number of `examples` ([Configs](../config.md#keys-at-the-top)). What events, answers"
             " and shallow policies are is told in [Tasks](../tasks.md).",
             identity_of([option for task in tasks for option in task["options"]]), contents(tasks)]
    examples = program.each(lambda task: example_of(program, task["name"]), tasks)
    for task, (command, head, example) in zip(tasks, examples):
        parts += [f"## {task['name']}", sentence(prose(task["summary"])),
                  f"The best possible accuracy is {prose(task['ceiling'])}. Shallow policies: {', '.join(map(code, task['shallow']))}.",
                  f"Paper: {sentence(prose(task['paper']))}", options_table(task["options"]),
                  f"An example, which `{command}` prints with its events: {prose(head)}.", f"```text\n{example}\n```"]
    return page("Tasks", *parts)


# ------ the command line


COLUMN = 30  # where CLI11 puts what an entry means; on the line below where the entry is longer


def parts_of_help(text):
    """What stands before the first heading, then the entries (left, right) under each heading. Takes the help of CLI11 2.1 to 2.5."""
    before, parts, heading, entries = [], {}, None, []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if match := re.fullmatch(r"([A-Z][A-Za-z ]*):", line):
            heading, entries = match[1].capitalize(), []
            parts[heading] = entries
        elif heading is None:
            before.append(line)
        elif heading == "Exit codes":
            if match := re.match(r"\s*(\d+)\s{2,}(.*)", line):
                entries.append([match[1], match[2]])
            elif entries and not line.strip():
                heading = "After"
                parts[heading] = entries = []
            elif entries:
                entries[-1][1] += " " + line.strip()
        elif line.startswith(" " * COLUMN):
            entries[-1][1] = f"{entries[-1][1]} {line.strip()}".strip()
        elif line.startswith("  "):
            below = i + 1 < len(lines) and lines[i + 1].startswith(" " * COLUMN)
            whole = below and (len(line) <= COLUMN or line[COLUMN - 1] != " ")
            entries.append([line.strip(), ""] if whole else [line[:COLUMN].strip(), line[COLUMN:].strip()])
    return before, parts


def entry_of(left):
    """The names, type and default that the left column of help tells: "-j,--jobs INT:INT in [1 - 64]=1"."""
    names, rest = re.fullmatch(r"((?:-[\w-]+,?\s*)+|\S+)\s*(.*)", left).groups()
    found = {"names": re.findall(r"[^\s,]+", names), "type": "", "default": "", "required": False, "several": False, "excludes": []}
    if match := re.search(r"\s*Excludes: ?(.*)$", rest):
        found["excludes"], rest = match[1].split(), rest[:match.start()]
    if rest.endswith("REQUIRED"):
        found["required"], rest = True, rest[:-len("REQUIRED")].rstrip()
    if rest.endswith("..."):
        found["several"], rest = True, rest[:-3].rstrip()
    match = re.fullmatch(r"([A-Z]*)(?::(\{.*?\}|[A-Z]+ in \[.*?\]|[A-Z]+))?(?:=(.*)| \[(.*)\])?", rest.strip())
    if not match:
        raise PagesError(f"the help says '{left}', and scripts/reference.py cannot read it")
    word, check, found["default"] = match[1], match[2] or "", match[3] or match[4] or ""
    kind = {"TEXT": "text", "INT": "integer", "UINT": "integer, at least 0", "FLOAT": "number", "": ""}.get(word, word.lower())
    if check.startswith("{"):
        kind = ", ".join(map(code, check[1:-1].split(",")))
    elif check == "POSITIVE":
        kind += ", at least 1"
    elif check:
        kind += ", " + re.sub(r".*\[(.*)\]", r"\1", check).replace(" - ", " to ")
    found["type"] = kind + (", several" if found["several"] else "")
    return found


def verb_parts(program, words, level):
    before, parts = parts_of_help(program.says(*words, "--help"))
    summary, usage = before[0], next(line for line in before if line.startswith("Usage: "))
    out = [f"{'#' * level} {' '.join(words)}", sentence(prose(summary)), "```text\n" + usage.removeprefix("Usage: ").strip() + "\n```"]
    rows = []
    for left, right in parts.get("Positionals", []):
        entry = entry_of(left)
        rows.append([code(entry["names"][0]), entry["type"], "required" if entry["required"] else "", prose(right)])
    for left, right in parts.get("Options", []):
        entry = entry_of(left)
        if "--help" not in entry["names"]:
            excluded = f" (not with {', '.join(map(code, entry['excludes']))})" if entry["excludes"] else ""
            rows.append([", ".join(map(code, entry["names"])), entry["type"], code(entry["default"]), prose(right) + excluded])
    if rows:
        out.append(table(["argument or option", "value", "default", "meaning"], rows))
    for name, _ in parts.get("Subcommands", []):
        out += verb_parts(program, [*words, name], level + 1)
    return out


def commands_page(program):
    _, parts = parts_of_help(program.says("--help"))
    verbs = parts["Subcommands"]
    return page("The command line",
                "What stands here is printed by `palimpsest VERB --help` too. Results go to stdout, everything else to stderr. What a name of a run or a sweep"
                " may be is told in [Looking at results](../compare.md#names), and which signal stops a run how in"
                " [Configs](../config.md#how-it-is-stopped).",
                table(["verb", "does"], [[f"[{name}](#{name})", prose(summary)] for name, summary in verbs]),
                "Version, commit, compiler and libraries are printed by `palimpsest --version`.",
                table(["exit code", "means"], [[number, prose(text)] for number, text in parts["Exit codes"]]),
                *(part for made in program.each(lambda verb: verb_parts(program, [verb[0]], 2), verbs) for part in made))


# ------ all of it


def index_page(sections, mixers, tasks):
    def count(options):
        return f"{len(options)} option{'s' * (len(options) != 1)}"

    def links(items, name):
        return ", ".join(f"[{item['name']}]({name}.md#{item['name']})" for item in items)

    rows = [[f"[{SECTIONS[section['name']][0]}]({section['name']}.md)", prose(section["meaning"]), count(section["options"])] for section in sections]
    rows += [["[Mixers](mixers.md)", f"{len(mixers)} sequence mixers, their recurrences and papers", count([o for m in mixers for o in m["options"]])],
             ["[Tasks](tasks.md)", f"{len(tasks)} tasks, each with an example", count([o for t in tasks for o in t["options"]])],
             ["[The command line](commands.md)", "verbs and exit codes", ""]]
    reading = [
        "**Type and range.** How a value of each type is written is told in [Configs](../config.md#how-values-are-read). Both ends of a range are"
        " allowed unless *above* or *below* is said.",
        "**Counts where.** An option with these words has an effect only there. Set anywhere else it is an error"
        " ([Keys without effect](../config.md#keys-without-effect)).",
        "**Part of the id.** Another value of such an option makes another run, with an id and a folder of its own"
        " ([Which run is the same run](../config.md#which-run-is-the-same-run)).",
        "**Caution.** What the program says when this value is chosen.",
    ]
    return page("Reference",
                "Every option of a config and every verb of the program. These pages are made by `scripts/reference.py` from what the program itself"
                " says, and a test fails where they differ from it.",
                table(["page", "holds", "size"], rows),
                f"Mixers: {links(mixers, 'mixers')}.", f"Tasks: {links(tasks, 'tasks')}.",
                "## How the tables are read", "\n".join(wrapped(f"- {item}", "  ") for item in reading))


def pages(program):
    """Every page by the name of its file."""
    sections = program.each(lambda name: program.json("describe", name), SECTIONS)
    mixers, tasks = program.described("mixer"), program.described("task")
    out = {f"{section['name']}.md": section_page(section, *SECTIONS[section["name"]]) for section in sections}
    return {**out, "mixers.md": mixers_page(mixers), "tasks.md": tasks_page(tasks, program), "commands.md": commands_page(program),
            "README.md": index_page(sections, mixers, tasks)}


def write(folder, made):
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.md")):
        if old.name not in made and MARK in old.read_text(encoding="utf-8"):
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=ROOT / "docs/reference", metavar="FOLDER")
    parser.add_argument("--binary", default=str(ROOT / "build/release/palimpsest"), metavar="PROGRAM")
    options = parser.parse_args(arguments)
    try:
        made = pages(Program(options.binary))
        write(options.folder, made)
    except (PagesError, OSError) as error:
        print(f"reference.py: {error}", file=sys.stderr)
        return 1
    print(f"{len(made)} pages in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
