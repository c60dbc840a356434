#!/usr/bin/env python3
"""Draws the history of `make bench`: `plot.py FOLDER OUT.svg` reads FOLDER/*.json. Standard library only.

Three panels (training, prompts, decoding), a line per row and machine, from the first to the last run that has the row."""
import datetime
import json
import pathlib
import sys

PANELS = [("training step, times PyTorch fp32", "train/", ["gpt2-124m-fp32", "gpt2-124m-bf16", "llama-300m-fp32", "llama-300m-bf16"], 6),
          ("prompt of 512 tokens, times llama.cpp", "llama/prefill-", ["bf16", "q8", "q4", "q8w"], 6),
          ("decoding, times llama.cpp", "llama/decode-", ["bf16", "q8", "q4", "q8w"], 2)]
MACHINES = [("arm64-neoverse-v1-2", "2 Neoverse V1 cores", ""), ("x86-64-emerald-rapids-16", "16 Emerald Rapids cores", "6 4")]
STYLE = """
text { font: 11px system-ui, sans-serif; fill: #1f2328 } .bold { font-weight: 600 } .end { text-anchor: end } .mid { text-anchor: middle }
.grid { stroke: #d0d7de } .line { fill: none; stroke-width: 2 }
.c0 { stroke: #3b78c9 } .c1 { stroke: #b8435f } .c2 { stroke: #b07d2b } .c3 { stroke: #3f8f4f }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #444c56 }
  .c0 { stroke: #8ab8f7 } .c1 { stroke: #e88aa2 } .c2 { stroke: #d8a758 } .c3 { stroke: #6fc283 } }
"""
LEFT, WIDTH, HEIGHT, GAP = 46, 470, 150, 62


def read(folder):
    """{machine: [(time, ratios)...]} in the order of time."""
    runs = {}
    for name, _, _ in MACHINES:
        data = json.loads((folder / f"{name}.json").read_text())
        runs[name] = sorted((datetime.datetime.fromisoformat(run["date"]), run["ratios"]) for run in data["runs"])
    return runs


def panel(out, top, title, prefix, rows, most, runs, begin, end):
    def place(time, value):
        return (LEFT + (time - begin) / (end - begin) * WIDTH, top + HEIGHT - value / most * HEIGHT)

    out.append(f'<text x="{LEFT}" y="{top - 12}" class="bold">{title}</text>')
    for i in range(int(most) + 1 if most > 2 else 5):
        value = i if most > 2 else i / 2
        y = place(begin, value)[1]
        out.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:g}" y2="{y:g}" class="grid"/>'
                   f'<text x="{LEFT - 6}" y="{y + 4:g}" class="end">{value:g}</text>')
    for i, row in enumerate(rows):
        for name, _, dashes in MACHINES:
            points = [place(time, ratios[prefix + row]) for time, ratios in runs[name] if prefix + row in ratios]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            out.append(f'<polyline points="{path}" class="line c{i}" stroke-dasharray="{dashes}"/>')
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" class="line c{i}"/>' for x, y in points]
        y = top + 14 + 20 * i
        out.append(f'<line x1="{LEFT + WIDTH + 16}" x2="{LEFT + WIDTH + 40}" y1="{y}" y2="{y}" class="line c{i}"/>'
                   f'<text x="{LEFT + WIDTH + 48}" y="{y + 4}">{row}</text>')
    day = begin.replace(hour=0, minute=0)
    while day <= end:
        for hour in (0, 6, 12, 18):
            time = day.replace(hour=hour)
            if begin <= time <= end:
                label = time.strftime("%m-%d %H:%M")
                out.append(f'<text x="{place(time, 0)[0]:.1f}" y="{top + HEIGHT + 16}" class="mid">{label}</text>')
        day += datetime.timedelta(days=1)


def main():
    folder, path = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    runs = read(folder)
    times = [time for list_ in runs.values() for time, _ in list_]
    begin, end = min(times), max(times)
    height = 30 + len(PANELS) * (HEIGHT + GAP) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{height}" viewBox="0 0 700 {height}" role="img">',
           "<title>Ratios of make bench over time</title>", f"<style>{STYLE}</style>"]
    for i, (title, prefix, rows, most) in enumerate(PANELS):
        panel(out, 34 + i * (HEIGHT + GAP), title, prefix, rows, most, runs, begin, end)
    for i, (_, title, dashes) in enumerate(MACHINES):
        x = LEFT + 220 * i
        out.append(f'<line x1="{x}" x2="{x + 30}" y1="{height - 10}" y2="{height - 10}" class="line c0" stroke-dasharray="{dashes}"/>'
                   f'<text x="{x + 38}" y="{height - 6}">{title}</text>')
    path.write_text("\n".join(out) + "\n</svg>\n")


main()
