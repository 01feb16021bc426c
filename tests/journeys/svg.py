#!/usr/bin/env python3
"""Makes an animated picture of a recording that `play.py --casts` has kept.

    tests/journeys/svg.py CAST SVG [--rows N] [--columns N]

The picture shows the terminal after each part of what was said, for as long as it takes to read, and then begins again. A
part begins with a line in bold. The picture needs no script, so that it moves wherever pictures are shown; where it must
not move, it shows the first screen.
"""

import argparse
import json
import pathlib
import re
import sys
from xml.sax.saxutils import escape

# Measures in pixels, and times in seconds.
LINE, CHARACTER, MARGIN, SIZE = 18, 8.0, 16, 13.2
FOR_A_PART, FOR_A_LINE = 1.5, 0.35
MOST_BYTES = 200_000

CONTROL = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")


def lines_of(cast, columns):
    """Returns what stood in the terminal in the end: a list of lines, each a list of (bold, text)."""
    lines, bold = [[]], False
    text = "".join(json.loads(line)[2] for line in cast.splitlines()[1:])
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\n)", text.replace("\r\n", "\n")):
        control = CONTROL.fullmatch(part)
        if control and control[2] == "m":
            bold = control[1] == "1"
        elif part == "\n":
            lines.append([])
        elif part and not part.startswith("\x1b"):
            # What was written over is not shown.
            if "\r" in part:
                lines[-1], part = [], part.rsplit("\r", 1)[1]
            while part:
                free = columns - sum(len(said) for _, said in lines[-1])
                lines[-1].append((bold, part[:free]))
                part = part[free:]
                if part:
                    lines.append([])
    while lines and not lines[-1]:
        lines.pop()
    return lines


def screens(lines, rows):
    """Returns the screens with the seconds that each is shown: one after each part."""
    begins = [at for at, line in enumerate(lines) if line and line[0][0] and not (at and lines[at - 1])] or [0]
    shown, before = [], 0
    # The command and what it says first are one part.
    for end in [*begins[2:], len(lines)]:
        while end - before > rows:
            before += rows
            shown.append((lines[before - rows:before], FOR_A_PART + FOR_A_LINE * rows))
        shown.append((lines[max(0, end - rows):end], FOR_A_PART + FOR_A_LINE * (end - before)))
        before = end
    return shown


def picture(lines, columns, rows, title):
    parts = screens(lines, rows)
    total = sum(seconds for _, seconds in parts)
    width, height = int(columns * CHARACTER + 2 * MARGIN), rows * LINE + 2 * MARGIN
    rules, groups, at = [], [], 0.0
    for index, (screen, seconds) in enumerate(parts):
        begin, end = 100 * at / total, 100 * (at + seconds) / total
        at += seconds
        # Each screen is hidden before and after its time; the first is what is seen where nothing moves.
        hidden = "hidden" if index else "visible"
        before = "" if begin == 0 else f"0%{{visibility:hidden}}{begin:.3f}%{{visibility:hidden}}"
        rules.append(f"@keyframes s{index}{{{before}{begin + 0.001:.3f}%,{end:.3f}%{{visibility:visible}}"
                     f"{min(end + 0.001, 100):.3f}%,100%{{visibility:{'visible' if end > 99.999 else 'hidden'}}}}}")
        rules.append(f"#s{index}{{visibility:{hidden};animation:s{index} {total:.1f}s step-end infinite}}")
        texts = []
        for row, line in enumerate(screen):
            y = MARGIN + LINE * (row + 1) - 4
            spans = "".join(f"<tspan class='b'>{escape(said)}</tspan>" if bold else escape(said) for bold, said in line)
            if spans:
                texts.append(f"<text x='{MARGIN}' y='{y}'>{spans}</text>")
        groups.append(f"<g id='s{index}'>{''.join(texts)}</g>")
    style = (f"text{{font:{SIZE}px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d7dce2;white-space:pre}}"
             ".b{font-weight:bold;fill:#ffffff}" + "".join(rules)
             + "@media (prefers-reduced-motion:reduce){g{animation:none!important}}")
    return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
            f"xml:space='preserve' role='img'><title>{escape(title)}</title><style>{style}</style>"
            f"<rect width='100%' height='100%' rx='8' fill='#16191f'/>\n" + "\n".join(groups) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cast", type=pathlib.Path)
    parser.add_argument("svg", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=26)
    parser.add_argument("--columns", type=int, default=118)
    given = parser.parse_args()
    cast = given.cast.read_text()
    head = json.loads(cast.splitlines()[0])
    made = picture(lines_of(cast, given.columns), given.columns, given.rows, head["title"])
    if len(made.encode()) > MOST_BYTES:
        sys.exit(f"the picture has {len(made.encode())} bytes; at most {MOST_BYTES} are kept in the repository")
    given.svg.write_text(made)


if __name__ == "__main__":
    main()
