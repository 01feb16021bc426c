#!/usr/bin/env python3
"""Lists what a program is made of, by size: its sections, and the code and data of each crate.

    host/dist/sizes.py target/release/portcullis

Needs `nm` and `readelf` of binutils, and for the crates a program with symbols, which the linker of `host/dist/make` removes. Code that the compiler merged into its caller counts as
the caller's.
"""

import collections
import re
import subprocess
import sys

SHOWN = 40


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, errors="replace").stdout


def owner(symbol):
    """Returns the crate that a symbol belongs to, by the first path in its name."""
    path = re.search(r"(?:^|[<& (])((?:[a-z_][a-z0-9_]*)(?=::))", symbol)
    if path:
        return path.group(1)
    for prefix, library in (("aws_lc", "aws-lc (C)"), ("sqlite3", "sqlite (C)"), ("mi_", "mimalloc (C)"), ("_mi_", "mimalloc (C)")):
        if symbol.startswith(prefix):
            return library
    return "other C and data"


def main():
    program = sys.argv[1]
    print("sections")
    for line in output("readelf", "--section-headers", "--wide", program).splitlines():
        found = re.match(r"\s*\[\s*\d+\] (\.\S+)\s+\S+\s+\S+\s+\S+ ([0-9a-f]+) ", line)
        if found and int(found.group(2), 16) > 100_000 and not found.group(1).startswith((".debug", ".symtab", ".strtab")):
            print(f"{int(found.group(2), 16):12,}  {found.group(1)}")
    sizes = collections.Counter()
    for line in output("nm", "--print-size", "--demangle", program).splitlines():
        words = line.split(" ", 3)
        if len(words) == 4 and len(words[2]) == 1 and words[2] in "tTrRdDwWvV":
            sizes[owner(words[3])] += int(words[1], 16)
    print(f"symbols: {sum(sizes.values()):,} bytes")
    for name, size in sizes.most_common(SHOWN):
        print(f"{size:12,}  {name}")


if __name__ == "__main__":
    main()
