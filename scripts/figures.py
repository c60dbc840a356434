#!/usr/bin/env python3
"""Draws the figures of the documentation: `scripts/figures.py docs/figures`. `make docs` calls it. Standard library only.

Every figure has a transparent background and colours for light and dark pages. Text is at least 11 px at full size."""
import pathlib
import sys

import figures_flow
from figure import Figure


def holds(figure, y, columns, ranks=2):
    """Who holds what: a bar per column and rank, of which the given part is the rank's. columns: (name, [(begin, end)...])."""
    left, width, gap = 64, 132, 22
    for r in range(ranks):
        figure.text(left - 10, y + 36 + 28 * r, f"rank {r}", "end")
    for c, (name, parts) in enumerate(columns):
        x = left + c * (width + gap)
        figure.text(x + width / 2, y + 12, name, "mid bold")
        for r in range(ranks):
            begin, end = parts[r]
            top = y + 22 + 28 * r
            figure.box(x, top, width, 20, "none")
            figure.box(x + begin * width, top, (end - begin) * width, 20, "own")


def steps(figure, y, boxes, ranks=2):
    """What happens, in time: (kind, width, label) from left to right; comm spans the ranks, the rest is one box per rank."""
    x = 64
    for r in range(ranks):
        figure.text(54, y + 22 + 34 * r, f"rank {r}", "end")
    for kind, width, label in boxes:
        if kind == "comm":
            figure.box(x, y, width, 34 * ranks - 4, "comm", label, "mid small")
        elif kind == "gap":
            figure.text(x + width / 2, y + 34 * ranks / 2, label, "mid quiet")
        else:
            for r in range(ranks):
                text = label[r] if isinstance(label, tuple) else label
                figure.box(x, y + 34 * r, width, 30, kind, text, "mid small")
        x += width + 4


def axis(name, title, columns, boxes, notes, folder):
    figure = Figure(700, 206 + 16 * len(notes), title)
    figure.text(12, 18, "Who holds what", "quiet")
    holds(figure, 24, columns)
    figure.text(12, 122, "What happens, in time", "quiet")
    steps(figure, 130, boxes)
    for i, note in enumerate(notes):
        figure.text(64, 216 + 16 * i, note, "small quiet")
    figure.write(folder / f"{name}.svg")


WHOLE = [(0, 1), (0, 1)]
HALVES = [(0, 0.5), (0.5, 1)]


def axes(folder):
    axis("axis-dp", "Data parallelism: replicas",
         [("grains", HALVES), ("weights", WHOLE), ("moments", WHOLE), ("gradients", WHOLE)],
         [("work", 120, "forward"), ("back", 100, "backward\nlayer 2"), ("back", 100, "backward\nlayer 1"),
          ("comm", 92, "all-reduce\ngradients"), ("comm", 60, "norm"), ("update", 110, ("AdamW, half 0", "AdamW, half 1"))],
         ["Between nodes the all-reduce of a layer starts when its backward pass ends and overlaps the next layer's.",
          "On one node weights and moments exist once, in shared memory; each rank updates its part."], folder)
    axis("axis-fsdp", "Sharded data parallelism, ZeRO 3",
         [("grains", HALVES), ("weights", HALVES), ("moments", HALVES), ("gradients", HALVES)],
         [("comm", 78, "all-gather\nlayer"), ("work", 84, "forward\nlayer"), ("gap", 20, "…"), ("comm", 78, "all-gather\nlayer"),
          ("back", 84, "backward\nlayer"), ("comm", 92, "reduce-scatter\ngradients"), ("gap", 20, "…"),
          ("update", 96, ("AdamW, half 0", "AdamW, half 1"))],
         ["Weights are prefetched two layers ahead; gradients are reduced while the next layer computes.",
          "ZeRO 1 shards the moments only, ZeRO 2 moments and gradients. On one node nothing is copied."], folder)
    axis("axis-tp", "Tensor and sequence parallelism",
         [("heads, columns", HALVES), ("vocabulary", HALVES), ("rows between blocks", HALVES), ("moments, gradients", HALVES)],
         [("comm", 84, "all-gather\nrows"), ("work", 108, ("q k v, heads 0", "q k v, heads 1")),
          ("work", 96, ("attention 0", "attention 1")), ("work", 100, ("output, k = 0 …", "output, … k = K")),
          ("comm", 96, "reduce-scatter\nrows, in k order"), ("work", 90, ("norm, rows 0", "norm, rows 1"))],
         ["The sum over k keeps one order: between nodes it is pipelined through the ranks in tiles of rows;",
          "on one node each rank sums its rows over the operands of all, in shared memory."], folder)
    axis("axis-cp", "Context parallelism",
         [("tokens of a sequence", HALVES), ("weights", WHOLE), ("moments", WHOLE), ("gradients", WHOLE)],
         [("work", 108, ("q k v, tokens 0", "q k v, tokens 1")), ("comm", 100, "all-to-all:\nscatter heads"),
          ("work", 116, ("all tokens, heads 0", "all tokens, heads 1")), ("comm", 100, "all-to-all:\ngather heads"),
          ("work", 128, ("output, FFN, tokens 0", "output, FFN, tokens 1"))],
         ["Weight gradients are one sum over tokens in ascending order: it passes from rank to rank.",
          "On one node each rank computes some rows of every gradient over the tokens of all, and sends nothing."], folder)
    axis("axis-ep", "Expert parallelism",
         [("tokens", HALVES), ("experts", HALVES), ("other weights", WHOLE), ("moments of experts", HALVES)],
         [("work", 100, ("router, tokens 0", "router, tokens 1")), ("comm", 108, "all-to-all:\ndispatch tokens"),
          ("work", 116, ("experts 0 … 3", "experts 4 … 7")), ("comm", 108, "all-to-all:\ncombine"),
          ("work", 124, ("weighted sum 0", "weighted sum 1"))],
         ["A token crosses to another node once, whatever number of its experts is there. No token is dropped.",
          "A token adds up its experts in the order of their scores."], folder)


def pipeline(folder):
    figure = Figure(700, 250, "Pipeline parallelism: 1F1B")
    figure.text(12, 18, "Who holds what", "quiet")
    holds(figure, 24, [("layers", HALVES), ("moments", HALVES), ("gradients", HALVES), ("micro-batches in flight", [(0, 1), (0, 0.5)])])
    figure.text(12, 122, "What happens, in time (F forward, B backward, number of the micro-batch)", "quiet")
    orders = [[("F0", 1), ("F1", 1), ("", 1), ("B0", 2), ("F2", 1), ("B1", 2), ("F3", 1), ("B2", 2), ("", 1), ("B3", 2)],
              [("", 1), ("F0", 1), ("B0", 2), ("F1", 1), ("B1", 2), ("F2", 1), ("B2", 2), ("F3", 1), ("B3", 2), ("", 1)]]
    unit = 42
    for r, order in enumerate(orders):
        x, y = 64, 132 + 36 * r
        figure.text(54, y + 20, f"rank {r}", "end")
        for label, width in order:
            if label:
                figure.box(x + 1, y, width * unit - 2, 30, "work" if label[0] == "F" else "back", label)
            x += width * unit
    figure.text(64, 222, "A stage sends activations forward and their gradients back, point to point. White is idle: the bubble.",
                "small quiet")
    figure.text(64, 238, "mesh.interleave gives each rank several chunks of layers: a smaller bubble, more messages.", "small quiet")
    figure.write(folder / "axis-pp.svg")


def grain(folder):
    figure = Figure(700, 300, "Grains of a global batch and the tree over their gradients")
    figure.text(12, 22, "global batch: 16 sequences in 4 grains, micro-batches of 2 sequences", "bold")
    for g in range(4):
        x = 40 + 160 * g
        figure.box(x, 34, 148, 74, "part")
        figure.text(x + 74, 50, f"grain {g}", "mid bold")
        for m in range(2):
            figure.box(x + 8 + 68 * m, 58, 64, 42, "own", "2 seq.", "mid small")
        figure.line([(x + 74, 110), (x + 74, 134)], True)
        figure.box(x + 24, 136, 100, 28, "back", f"gradient {g}", "mid")
    for left in (0, 2):
        for g in (left, left + 1):
            figure.line([(40 + 160 * g + 74, 164), (40 + 160 * left + 154, 198)], True)
        figure.box(40 + 160 * left + 104, 200, 100, 28, "update", f"{left} + {left + 1}")
    for left in (0, 2):
        figure.line([(40 + 160 * left + 154, 228), (354, 258)], True)
    figure.box(284, 260, 140, 30, "update", "(0 + 1) + (2 + 3)", "mid bold")
    figure.text(12, 204, "fixed tree", "quiet")
    figure.text(12, 150, "sum", "quiet")
    figure.text(440, 280, "the same on 1, 2 or 4 ranks", "quiet")
    figure.write(folder / "grain.svg")


def floors(folder):
    rows = [("5", [("cmd", "one file per subcommand", 620)]),
            ("4", [("train", "data, job, layout, run", 200), ("serve", "sampler, batcher, API", 150), ("plan", "cost model, search", 140),
                   ("observe, probe", "health, links", 118)]),
            ("3", [("model", "families, files, pass", 212), ("text", "tokenizer, templates", 200), ("collective", "groups, sums, ranks", 200)]),
            ("2", [("compute", "ops: ref, cpu", 212), ("fabric", "shm, libfabric", 200), ("storage", "safetensors, GGUF", 200)]),
            ("1", [("infra", "the machine, memory, GPUs", 212), ("http", "one server for all", 200), ("record", "metrics, rings, page", 200)]),
            ("0", [("base", "errors, threads, files, options, JSON, hashes", 620)])]
    figure = Figure(700, 350, "The floors of the source tree")
    for i, (number, rooms) in enumerate(rows):
        y, x = 14 + 54 * i, 58
        figure.text(40, y + 28, number, "end bold")
        for name, what, width in rooms:
            figure.box(x, y, width, 46, "part")
            figure.text(x + width / 2, y + 20, name, "mid bold")
            figure.text(x + width / 2, y + 36, what, "mid small")
            x += width + 4
    figure.text(368, 346, "A file includes headers of its own folder and of lower floors, never of higher ones.", "mid small quiet")
    figure.write(folder / "floors.svg")


def storage_tiers(folder):
    figure = Figure(700, 330, "Commands, the namespace of this machine, and the tiers")
    figure.box(60, 10, 580, 34, "work", "train · data tokenize · generate, serve, eval · model convert · store")
    figure.box(60, 76, 580, 104, "none")
    figure.text(70, 94, "namespace: one local folder per bucket", "bold")
    for x, name, what in ((76, "ranges", "files and their hashes"), (268, "journal", "what waits, pins"), (460, "exports", "in the background")):
        figure.box(x, 106, 164, 44, "own")
        figure.text(x + 82, 125, name, "mid bold")
        figure.text(x + 82, 141, what, "mid small")
    figure.text(350, 170, "local → exported → released → exported; remote until somebody asks", "mid small quiet")
    figure.box(60, 212, 580, 30, "back", "tier: stat, list, read ranges, stream, write whole or not at all, remove, sweep")
    for i, (name, what) in enumerate((("dir", "a folder"), ("stripe", "several folders"), ("shared", "Lustre, FSx, NFS"), ("s3", "any S3 server"))):
        figure.box(60 + 148 * i, 272, 136, 44, "part")
        figure.text(128 + 148 * i, 291, name, "mid bold")
        figure.text(128 + 148 * i, 307, what, "mid small")
        figure.line([(128 + 148 * i, 242), (128 + 148 * i, 270)], True)
    figure.line([(350, 44), (350, 74)], True)
    figure.line([(350, 180), (350, 210)], True)
    figure.line([(650, 27), (672, 27), (672, 227), (642, 227)], True)
    figure.write(folder / "storage-tiers.svg")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for draw in (axes, pipeline, grain, floors, storage_tiers, figures_flow.step_life, figures_flow.step_boundary, figures_flow.server,
                 figures_flow.router, figures_flow.apart):
        draw(folder)


main()
