"""Figures of things that happen in time: a training step, its boundary, a request in the server. figures.py draws them."""
from figure import Figure


def step_life(folder):
    figure = Figure(700, 266, "The life of a training step")
    lanes = (("compute", 34), ("network", 76), ("disk", 118))
    for name, y in lanes:
        figure.text(64, y + 19, name, "end")
    figure.text(74, 18, "time, from one boundary to the next", "quiet")
    for x, width, kind, label in ((74, 92, "work", "forward"), (170, 128, "back", "backward"), (302, 50, "comm", "norm"),
                                  (356, 50, "update", "guard"), (410, 74, "update", "AdamW"), (488, 50, "comm", "votes"),
                                  (542, 66, "part", "follow up"), (612, 64, "part", "record")):
        figure.box(x, 34, width, 30, kind, label, "mid small")
    figure.box(74, 76, 92, 30, "comm", "all-gather\nweights", "mid small")
    figure.box(190, 76, 108, 30, "comm", "sum gradients,\nsend to copies", "mid small")
    figure.box(74, 118, 224, 30, "part", "checkpoint of an earlier step", "mid small")
    figure.box(612, 118, 64, 30, "part", "next one", "mid small")
    figure.line([(644, 64), (644, 116)], True)
    # What a loss means, by moment.
    for x, end, title in ((74, 352, "made again"), (356, 484, "finished"), (488, 676, "open, then logged")):
        figure.line([(x, 166), (x, 172), (end, 172), (end, 166)])
        figure.text((x + end) / 2, 188, title, "mid bold")
    for i, (title, note) in enumerate((
            ("made again", "A loss here: nothing was overwritten. Survivors keep finished grains and make the step again."),
            ("finished", "The norm is known: every rank can finish the step alone. A loss here costs nothing of it."),
            ("open, then logged", "Validate, check, hash, log: done once, by the ranks that are there then."))):
        figure.text(128, 216 + 18 * i, title, "end small bold")
        figure.text(138, 216 + 18 * i, note, "small")
    figure.write(folder / "step-life.svg")


def step_boundary(folder):
    figure = Figure(700, 324, "The states of a rank between two steps")
    left, middle, right, width, height = 30, 276, 540, 134, 40

    def state(x, y, name, what, kind="own"):
        figure.box(x, y, width, height, kind)
        figure.text(x + width / 2, y + 17, name, "mid bold")
        figure.text(x + width / 2, y + 32, what, "mid small")

    state(left, 40, "joining", "has no state yet", "part")
    state(middle, 40, "transferring", "the state moves", "back")
    state(right, 40, "re-forming", "next epoch's group", "comm")
    state(left, 150, "spare", "beyond the mesh", "part")
    state(middle, 150, "running", "steps and follow-up", "work")
    state(right, 176, "leaving", "hands its state over", "part")
    state(middle, 260, "draining", "last save, model", "update")
    state(right, 260, "ended", "", "none")
    figure.line([(left + width, 60), (middle - 2, 60)], True)
    figure.line([(right, 60), (middle + width + 2, 60)], True)
    figure.text(220, 52, "has a place", "mid small")
    figure.text(475, 52, "group formed", "mid small")
    figure.line([(middle + 44, 80), (middle + 44, 148)], True)
    figure.text(middle + 38, 138, "in the mesh", "end small")
    figure.line([(middle, 72), (left + width + 2, 152)], True)
    figure.line([(middle + 92, 150), (middle + 92, 82)], True)
    figure.text(middle + 98, 104, "ranks leave, or join with the state", "small")
    figure.line([(middle + width, 160), (right + 36, 160), (right + 36, 82)], True)
    figure.line([(middle + width, 184), (right - 2, 184)], True)
    figure.text(475, 152, "a loss, or ranks join", "mid small")
    figure.text(475, 198, "this rank goes", "mid small")
    figure.line([(left + width, 166), (middle + 16, 82)], True)
    figure.line([(middle + 67, 190), (middle + 67, 258)], True)
    figure.text(middle + 73, 228, "the last step, or all stop", "small")
    figure.line([(right + 67, 216), (right + 67, 258)], True)
    figure.line([(middle + width, 280), (right - 2, 280)], True)
    figure.text(30, 318, "A loss in any state but ended leads to re-forming, also during a recovery. A spare changes as the first rank tells it.", "small quiet")
    figure.write(folder / "step-boundary.svg")


def server(folder):
    figure = Figure(700, 376, "The threads of the server and the six objects of a request's life")
    columns = ((20, 206, "reads and writes", "libmicrohttpd, one thread"), (246, 206, "workers", "a pool of threads"),
               (472, 208, "engine", "one thread"))
    for x, width, name, what in columns:
        figure.box(x, 10, width, 318, "none")
        figure.text(x + width / 2, 28, name, "mid bold")
        figure.text(x + width / 2, 43, what, "mid small quiet")

    def thing(column, y, name, what, kind):
        x, width = columns[column][:2]
        figure.box(x + 12, y, width - 24, 46, kind)
        figure.text(x + width / 2, y + 19, name, "mid bold")
        figure.text(x + width / 2, y + 35, what, "mid small")

    thing(0, 58, "1 exchange", "request and response bytes", "own")
    thing(1, 58, "2 API request", "fields of one form, checked", "work")
    thing(1, 128, "3 call", "prompts as tokens, settings", "work")
    thing(1, 198, "4 choice", "one answer: text so far", "work")
    thing(2, 198, "5 request", "ids and sampling", "back")
    thing(2, 268, "6 sequence", "tokens, pages, row of a pass", "back")
    figure.box(484, 58, 184, 46, "update")
    figure.text(576, 77, "step", "mid bold")
    figure.text(576, 93, "schedule, pass, choose", "mid small")
    figure.box(484, 128, 184, 46, "update")
    figure.text(576, 147, "take", "mid bold")
    figure.text(576, 163, "decode text, look for stops", "mid small")
    figure.box(32, 268, 182, 46, "own")
    figure.text(123, 287, "write", "mid bold")
    figure.text(123, 303, "events of what is new", "mid small")
    figure.line([(214, 81), (256, 81)], True)
    figure.line([(349, 104), (349, 126)], True)
    figure.line([(349, 174), (349, 196)], True)
    figure.line([(440, 221), (482, 221)], True)
    figure.text(461, 238, "submit", "mid small")
    figure.line([(576, 244), (576, 266)], True)
    figure.line([(668, 291), (676, 291), (676, 81), (670, 81)], True)
    figure.line([(576, 104), (576, 126)], True)
    figure.line([(484, 151), (462, 151), (462, 208), (442, 208)], True)
    figure.line([(349, 244), (349, 291), (216, 291)], True)
    figure.text(290, 307, "wake, pull", "mid small")
    figure.line([(123, 268), (123, 106)], True)
    figure.text(117, 190, "as fast as", "end small")
    figure.text(117, 205, "the client reads", "end small")
    figure.text(20, 350, "A client that leaves cancels its call; the pages of its sequences are free before the next step. A call lives", "small quiet")
    figure.text(20, 366, "until engine and writer have both let go of it. A further thread accepts connections and keeps deadlines.", "small quiet")
    figure.write(folder / "server.svg")


def apart(folder):
    figure = Figure(700, 250, "A request whose prompt one server computes, and whose answer another one writes")
    figure.box(12, 82, 92, 60, "part", "client", "mid bold")
    figure.box(162, 82, 112, 60, "own")
    figure.text(218, 107, "ashlar route", "mid bold")
    figure.text(218, 124, "new blocks?", "mid small")
    figure.box(400, 14, 288, 78, "none")
    figure.text(544, 32, "serve --role prefill", "mid bold")
    figure.box(412, 42, 124, 40, "work", "computes prompts", "mid small")
    figure.box(552, 42, 124, 40, "comm", "pages that\nothers read", "mid small")
    figure.box(400, 136, 288, 78, "none")
    figure.text(544, 206, "serve --role decode", "mid bold")
    figure.box(412, 146, 124, 40, "back", "writes answers", "mid small")
    figure.box(552, 146, 124, 40, "part", "its cache", "mid small")
    figure.line([(104, 104), (160, 104)], True)
    figure.line([(160, 122), (106, 122)], True)
    figure.line([(274, 96), (410, 58)], True)
    figure.text(330, 66, "1 prompt", "mid small")
    figure.line([(410, 74), (276, 110)], True)
    figure.text(352, 110, "2 where pages will be", "mid small")
    figure.line([(274, 128), (410, 164)], True)
    figure.text(326, 164, "3 request", "mid small")
    figure.line([(614, 144), (614, 84)], True)
    figure.text(606, 118, "4 reads pages as they come", "end small")
    figure.line([(536, 62), (550, 62)], True)
    figure.line([(550, 166), (538, 166)], True)
    figure.text(12, 240, "A page that is not there, not whole, or of other weights is computed by the decode server: the answer is the same.",
                "small quiet")
    figure.write(folder / "apart.svg")


def router(folder):
    figure = Figure(700, 292, "A router in front of three replicas, one of which is lost in the middle of a stream")
    figure.box(12, 92, 92, 60, "part", "clients", "mid bold")
    figure.box(162, 20, 224, 212, "none")
    figure.text(274, 40, "ashlar route", "mid bold")
    for y, kind, name, what in ((52, "own", "choice", "prompt, load, health"), (110, "work", "stream", "seed; digests of events sent"),
                                (168, "comm", "looks", "/ready, twice a second")):
        figure.box(176, y, 196, 48, kind)
        figure.text(274, y + 20, name, "mid bold")
        figure.text(274, y + 37, what, "mid small")
    for i, (name, what, kind) in enumerate((("replica 1", "knows blocks 1 … 9", "part"), ("replica 2", "lost at token 40", "none"),
                                            ("replica 3", "tokens 1 … 40 again, then on", "back"))):
        y = 20 + 76 * i
        figure.box(490, y, 198, 60, kind)
        figure.text(589, y + 25, name, "mid bold")
        figure.text(589, y + 44, what, "mid small")
    figure.line([(104, 122), (160, 122)], True)
    figure.text(132, 114, "request", "mid small")
    figure.line([(160, 138), (106, 138)], True)
    figure.text(132, 153, "one text", "mid small")
    figure.line([(386, 66), (488, 50)], True)
    figure.line([(386, 122), (488, 122)], True)
    figure.text(437, 115, "1 … 40", "mid small")
    figure.line([(386, 150), (488, 202)], True)
    figure.text(420, 194, "same seed", "mid small")
    figure.text(12, 258, "Events that the client has are compared with those of the next replica, and dropped; the rest is passed on. An answer is a",
                "small quiet")
    figure.text(12, 274, "function of weights, prompt and settings, so the text is that of one server. If an event differs, the stream ends with an error.",
                "small quiet")
    figure.write(folder / "router.svg")
