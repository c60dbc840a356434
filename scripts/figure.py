"""A figure of the documentation: boxes, text and lines as SVG, readable on light and dark pages. Standard library only."""

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 11px } .bold { font-weight: 600 } .mid { text-anchor: middle } .end { text-anchor: end }
.quiet { fill: #57606a }
.own { fill: #9ec5fe; stroke: #3b78c9 } .part { fill: #cfe3ff; stroke: #3b78c9 } .none { fill: none; stroke: #8c959f; stroke-dasharray: 3 3 }
.work { fill: #d8f0dc; stroke: #3f8f4f } .back { fill: #f6e3c5; stroke: #b07d2b } .comm { fill: #f8d0d8; stroke: #b8435f }
.update { fill: #e5d9f7; stroke: #7a55b5 } .line { stroke: #57606a; fill: none } .tip { fill: #57606a }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet { fill: #adbac7 }
  .own { fill: #2f6bb8; stroke: #8ab8f7 } .part { fill: #1d3b63; stroke: #8ab8f7 } .none { stroke: #768390 }
  .work { fill: #1f4a2a; stroke: #6fc283 } .back { fill: #54401a; stroke: #d8a758 } .comm { fill: #5c2231; stroke: #e88aa2 }
  .update { fill: #3d2b63; stroke: #b598ea } .line { stroke: #adbac7 } .tip { fill: #adbac7 }
}
"""


class Figure:
    """A drawing in pixels; (0, 0) is at the top left."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.items = width, height, title, []

    def box(self, x, y, width, height, kind, label="", text="mid"):
        self.items.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" class="{kind}"/>')
        if label:
            lines = label.split("\n")
            for i, line in enumerate(lines):
                self.text(x + width / 2, y + height / 2 + 4 + (i - (len(lines) - 1) / 2) * 14, line, text)

    def text(self, x, y, label, kind=""):
        label = label.replace("&", "&amp;").replace("<", "&lt;")
        self.items.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{label}</text>')

    def line(self, points, arrow=False):
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        tip = ' marker-end="url(#tip)"' if arrow else ""
        self.items.append(f'<polyline points="{path}" class="line"{tip}/>')

    def write(self, path):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" role="img">\n<title>{self.title}</title>\n<style>{STYLE}</style>\n'
                '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
                '<path d="M0 0 8 4 0 8z" class="tip"/></marker>\n')
        path.write_text(head + "\n".join(self.items) + "\n</svg>\n")
