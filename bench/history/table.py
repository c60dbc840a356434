#!/usr/bin/env python3
"""Writes the figures of `make bench` as a page: `table.py FOLDER OUT.md`. Standard library only.

rows.json has the rows of the ratios in order, with peer and goal; one file per machine has the recorded runs; units.json has
tables with units. A cell is the newest ratio, and in brackets the lowest and highest of all runs that have the row."""
import json
import pathlib
import sys

MACHINES = [("A", "arm64-neoverse-v1-2"), ("B", "x86-64-emerald-rapids-2of16"), ("C", "x86-64-emerald-rapids-16"),
            ("D", "x86-64-emerald-rapids-2")]
HEAD = """# Performance: all rows

[Documentation](README.md) · [performance](performance.md)

`make docs` writes this page from `bench/history/`.

## Ratios

Above 1 is better than the peer or bound, whatever the unit. A cell is the newest run; in brackets the lowest and the
highest of all recorded runs of the row. **Bold** meets its goal.
"""


def cell(values, goal):
    """values: the ratios of a row, from the oldest run to the newest."""
    if not values:
        return ""
    newest = f"**{values[-1]:g}**" if goal is not None and values[-1] >= goal else f"{values[-1]:g}"
    low, high = min(values), max(values)
    return newest if low == high else f"{newest} ({low:g}–{high:g})"


def ratios(folder):
    """Lines of the first table, after those that name its machines."""
    machines = [json.loads((folder / f"{name}.json").read_text()) for _, name in MACHINES]
    runs = [[run["ratios"] for run in sorted(machine["runs"], key=lambda run: run["date"])] for machine in machines]
    out = ["| machine | |", "|---|---|"]
    out += [f"| **{letter}** | {machine['machine']} |" for (letter, _), machine in zip(MACHINES, machines)]
    out += ["", "| row | compared with | goal | " + " | ".join(letter for letter, _ in MACHINES) + " |", "|---" * (3 + len(MACHINES)) + "|"]
    for row in json.loads((folder / "rows.json").read_text()):
        cells = [cell([run[row["row"]] for run in of_machine if row["row"] in run], row["goal"]) for of_machine in runs]
        goal = "-" if row["goal"] is None else f"{row['goal']:g}"
        out.append(f"| {row['title']} | {row['peer']} | {goal} | {' | '.join(cells)} |")
    return out


def units(folder):
    out = []
    for table in json.loads((folder / "units.json").read_text()):
        out += ["", f"## {table['title']}", "", table["note"], "", "| " + " | ".join(table["columns"]) + " |", "|---" * len(table["columns"]) + "|"]
        out += ["| " + " | ".join(row) + " |" for row in table["rows"]]
    return out


def main():
    folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.write_text("\n".join([HEAD] + ratios(folder) + units(folder)) + "\n")


main()
