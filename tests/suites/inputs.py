"""Makes input files for programs whose suites come without them.

The values are made up, but always the same. A name says what is in the file and how large it is.
"""

import random
import re


def bfs_graph(nodes):
    """A graph for Rodinia's bfs: per node where its edges start and how many it has, then edges."""
    dice = random.Random(nodes)
    degrees = [dice.randint(1, 6) for _ in range(nodes)]
    lines, start = [str(nodes)], 0
    for degree in degrees:
        lines.append(f"{start} {degree}")
        start += degree
    lines += ["", "0", "", str(start)]
    # The first edge of a node leads to its successor, so that all of them are reached.
    for node, degree in enumerate(degrees):
        ends = [(node + 1) % nodes] + [dice.randrange(nodes) for _ in range(degree - 1)]
        lines += [f"{end} {dice.randint(1, 10)}" for end in ends]
    return "\n".join(lines) + "\n"


def numbers(lowest, highest):
    """Returns a maker of files with numbers in that range, one a line."""

    def make(*sizes):
        count = 1
        for size in sizes:
            count *= size
        dice = random.Random(count)
        return "".join(f"{dice.uniform(lowest, highest):.6f}\n" for _ in range(count))

    return make


def image(width, height):
    """A gray picture with speckle, as text (PGM)."""
    dice = random.Random(width)
    rows = (" ".join(str(dice.randint(40, 215)) for _ in range(width)) for _ in range(height))
    return f"P2\n{width} {height}\n255\n" + "\n".join(rows) + "\n"


def words(size):
    """Bytes of which some are far more frequent, for Rodinia's huffman."""
    dice = random.Random(size)
    return "".join(chr(97 + min(int(dice.expovariate(0.5)), 25)) for _ in range(size))


def keys(count):
    """Keys for Rodinia's b+tree: their number, then each."""
    return "\n".join(map(str, [count, *range(count)])) + "\n"


def searches(count, width):
    """Commands for Rodinia's b+tree: one search of `count` keys and one of as many ranges."""
    return f"j {count} {width}\nk {count}\n"


def domain(columns, rows):
    """A mesh for Rodinia's cfd: per cell its area, and per face its neighbor and its normal."""
    lines = [str(columns * rows)]
    for cell in range(columns * rows):
        row, column = divmod(cell, columns)
        faces = [(column - 1, row, -1, 0), (column + 1, row, 1, 0)]
        faces += [(column, row - 1, 0, -1), (column, row + 1, 0, 1)]
        line = ["1.0"]
        for there, across, x, y in faces:
            is_inside = 0 <= there < columns and 0 <= across < rows
            # Cells count from one; -2 is the far field.
            line.append(str(across * columns + there + 1 if is_inside else -2))
            line += [f"{x}.0", f"{y}.0", "0.0"]
        lines.append(" ".join(line))
    return "\n".join(lines) + "\n"


def hurricanes(count):
    """Records of 49 bytes for Rodinia's nn: date, number, name, latitude, longitude and more."""
    dice = random.Random(count)
    lines = []
    for number in range(count):
        latitude, longitude = dice.uniform(7, 63), dice.uniform(0, 358)
        head = f"1980 {1 + number % 12:2} {1 + number % 28:2} {6 * (number % 4):2} {number % 28:2}"
        name = f"{'NOEL':<9}"
        tail = f"{dice.randint(10, 160):4} {dice.randint(0, 900):4}"
        lines.append(f"{head} {name}{latitude:5.1f} {longitude:5.1f} {tail}"[:48].ljust(48) + "\n")
    return "".join(lines)


MAKERS = {
    r"bfs/graph(\d+)\.txt": bfs_graph,
    r"hotspot/temp_(\d+)": lambda size: numbers(320, 345)(size, size),
    r"hotspot/power_(\d+)": lambda size: numbers(0, 0.01)(size, size),
    r"hotspot3D/temp_(\d+)x(\d+)": lambda size, layers: numbers(320, 345)(size, size, layers),
    r"hotspot3D/power_(\d+)x(\d+)": lambda size, layers: numbers(0, 0.01)(size, size, layers),
    r"srad/image\.pgm": lambda: image(502, 458),
    r"huffman/(\d+)\.in": words,
    r"b\+tree/keys(\d+)\.txt": keys,
    r"b\+tree/searches(\d+)x(\d+)\.txt": searches,
    r"nn/cane4_\d\.db": lambda: hurricanes(10691),
    r"cfd/domain(\d+)x(\d+)": domain,
    r"dwt2d/(\d+)\.bmp": lambda size: words(3 * size * size),
}


def make(folder, name):
    """Makes the input `name` in `folder` unless it is there."""
    path = folder / name
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    for pattern, maker in MAKERS.items():
        if found := re.fullmatch(pattern, name):
            path.write_text(maker(*map(int, found.groups())), encoding="ascii")
            return
    raise KeyError(f"no maker of the input {name}")
