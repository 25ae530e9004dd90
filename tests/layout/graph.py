"""Who needs whom inside a floor, and the knots in it: components that need each other, so that none can be read, tested or taken alone.

A component is a header with the files that implement it. These are the files of its name (x.h, x.cpp, x.cu, x_impl.h); those whose name
goes on after an underscore and that have no header of their own (x_more.cpp). What any of them includes of its floor, the component
needs. A .cpp file of no header is a component too, but nobody can need it.
"""

import collections

from tree import includes, sources

HEADERS = {".h", ".cuh"}
BEGIN, END = "<!-- graph -->\n", "<!-- /graph -->\n"


def component_of(name, headers):
    """`name` and `headers`: paths below the floor, without suffix."""
    if name in headers:
        base = name.removesuffix("_impl")
        return base if base in headers else name
    stem = name
    while "_" in stem.rsplit("/", 1)[-1]:
        stem = stem.rsplit("_", 1)[0]
        if stem in headers:
            return stem
    return name


def graph(root, floor):
    """{component: the components of its floor that it needs}"""
    base = root / "src" / floor
    files = {path: path.relative_to(base).with_suffix("").as_posix() for path in sources(root, f"src/{floor}")}
    headers = {name for path, name in files.items() if path.suffix in HEADERS}
    needs = collections.defaultdict(set)
    for path, name in files.items():
        mine = component_of(name, headers)
        needs[mine]  # also without includes
        for _, quoted, header in includes(path):
            target = next((place for place in (root / "src" / header, path.parent / header) if place in files), None)
            if quoted and target:
                needs[mine].add(component_of(files[target], headers))
        needs[mine].discard(mine)
    return needs


def way(needs, start, end):
    """The shortest, both ends included; of several the first by name. None where there is no way."""
    ways = collections.deque([[start]])
    seen = {start}
    while ways:
        path = ways.popleft()
        if path[-1] == end:
            return path
        for following in sorted(needs.get(path[-1], ())):
            if following not in seen:
                seen.add(following)
                ways.append([*path, following])
    return None


def knots(needs):
    """Cycles, each beginning with its first component by name: for each need that stands in cycles, a shortest one of them."""
    found = set()
    for component, needed in needs.items():
        for following in needed:
            back = way(needs, following, component)
            if back:
                first = back.index(min(back))
                found.add((*back[first:], *back[:first]))
    return sorted(found, key=lambda cycle: (len(cycle), cycle))


def floors(root):
    return sorted(path.name for path in (root / "src").iterdir() if path.is_dir())


def knot_violations(root):
    for floor in floors(root):
        for cycle in knots(graph(root, floor)):
            yield f"src/{floor}: {' -> '.join([*cycle, cycle[0]])}"


def text(root, floors):
    """A line a component, by floors; those that need none of their floor together in one."""
    lines = []
    for floor in floors:
        needs = graph(root, floor)
        alone = [name for name in sorted(needs) if not needs[name]]
        rows = [f"{name}: {' '.join(sorted(needs[name]))}" for name in sorted(needs) if needs[name]]
        if needs:
            lines += [floor, *(f"  {row}" for row in rows), *(["  on their own: " + " ".join(alone)] if alone else [])]
    return "\n".join(lines)


def put(document, shown):
    before, rest = document.split(BEGIN, 1)
    return f"{before}{BEGIN}```\n{shown}\n```\n{END}{rest.split(END, 1)[1]}"


def write(root, floors):
    path = root / "docs/design.md"
    path.write_text(put(path.read_text(encoding="utf-8"), text(root, floors)), encoding="utf-8")
