#!/usr/bin/env python3
"""Curves of a run of `ashlar rl`: mean reward of sampled answers, greedy accuracy, entropy, as one SVG.
usage: rl_plot.py RUN/curves.jsonl OUT.svg"""
import json
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 300, 56, 40, 150, 44


def line(points, x, y, colour, dots=False):
    path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
    out = [f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{path}"/>']
    if dots:
        out += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3.2" fill="{colour}"/>' for a, b in points]
    return out


def smooth(points, width=10):
    return [(points[i][0], sum(v for _, v in points[max(0, i - width + 1):i + 1]) / min(width, i + 1))
            for i in range(len(points))]


def main(source, target):
    rows = [json.loads(text) for text in open(source, encoding="utf-8")]
    last = max(row["step"] for row in rows)
    x = lambda step: LEFT + (WIDTH - LEFT - RIGHT) * step / max(1, last)
    y = lambda value: TOP + (HEIGHT - TOP - BOTTOM) * (1 - value)
    sampled = smooth([(r["step"], r["reward"]) for r in rows if "reward" in r])
    greedy = [(r["step"], r["eval"]) for r in rows if "eval" in r]
    entropy = smooth([(r["step"], min(1.0, r["entropy"] / 2)) for r in rows if "entropy" in r])
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'font-size="12" fill="#333">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">make rl: right sums learned from rewards</text>']
    for k in range(6):
        out += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(k / 5):.1f}" y2="{y(k / 5):.1f}" stroke="#ddd"/>',
                f'<text x="{LEFT - 8}" y="{y(k / 5) + 4:.1f}" text-anchor="end">{20 * k} %</text>']
    for k in range(5):
        out.append(f'<text x="{x(last * k / 4):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
                   f'{round(last * k / 4)}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>')
    named = []  # where names are already: lines that end together have theirs below each other
    for points, colour, name, dots in ((greedy, "#1769aa", "greedy, held out", True),
                                       (sampled, "#c75b12", "sampled, reward", False),
                                       (entropy, "#888", "entropy / 2", False)):
        if not points:
            continue
        out += line(points, x, y, colour, dots)
        at = y(points[-1][1]) + 4
        while any(abs(at - other) < 14 for other in named):
            at += 14
        named.append(at)
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{at:.1f}" fill="{colour}">{name}</text>')
    out.append("</svg>")
    with open(target, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
