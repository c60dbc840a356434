"""embed - the shared library from Python, with nothing but ctypes: continues a text with a model.
python3 embed.py MODEL 'Once upon a time'      (LD_LIBRARY_PATH=PREFIX/lib where it is not installed system-wide)
"""
import ctypes
import sys

lib = ctypes.CDLL("libashlar.so.0")
lib.ash_version.restype = ctypes.c_char_p
lib.ash_finish_reason.restype = ctypes.c_char_p


class Err(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 512)]


class Text(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(ctypes.c_char)), ("size_bytes", ctypes.c_size_t)]


class AnswerOpts(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("context_tokens", ctypes.c_size_t),
        ("max_tokens", ctypes.c_size_t),
        ("temperature", ctypes.c_double),
        ("top_k", ctypes.c_size_t),
        ("top_p", ctypes.c_double),
        ("min_p", ctypes.c_double),
        ("repetition_penalty", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("stops", ctypes.POINTER(ctypes.c_char_p)),
        ("stop_count", ctypes.c_size_t),
        ("keep_special", ctypes.c_bool),
        ("think_min", ctypes.c_size_t),
        ("think_max", ctypes.c_size_t),
        ("think_end", ctypes.c_char_p),
        ("think_more", ctypes.c_char_p),
        ("presence_penalty", ctypes.c_double),
        ("frequency_penalty", ctypes.c_double),
        ("json_schema", ctypes.c_char_p),
        ("regex", ctypes.c_char_p),
        ("grammar", ctypes.c_char_p),
        ("wants_logprobs", ctypes.c_bool),
    ]


def check(rc, err):
    if rc < 0:
        sys.exit(err.text.decode())


def pieces(answer, err):
    """The answer, as it is written."""
    piece, finish = Text(), ctypes.c_int(0)
    while finish.value == 0:
        check(lib.ash_answer_next(answer, ctypes.byref(piece), ctypes.byref(finish), ctypes.byref(err)), err)
        yield ctypes.string_at(piece.data, piece.size_bytes).decode()
    yield f"\n[{lib.ash_finish_reason(finish).decode()}]\n"


def main(model, prompt):
    engine, answer, err, opts = ctypes.c_void_p(), ctypes.c_void_p(), Err(), AnswerOpts()
    check(lib.ash_engine_open(model.encode(), None, ctypes.byref(engine), ctypes.byref(err)), err)
    lib.ash_answer_opts_init(engine, ctypes.byref(opts))
    assert opts.size == ctypes.sizeof(opts), "another version of the library"
    opts.max_tokens = 50
    check(lib.ash_answer_open(engine, ctypes.byref(opts), ctypes.byref(answer), ctypes.byref(err)), err)
    check(lib.ash_answer_start(answer, prompt.encode(), ctypes.byref(err)), err)
    for piece in pieces(answer, err):
        print(piece, end="", flush=True)
    lib.ash_answer_close(answer)
    lib.ash_engine_close(engine)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} MODEL TEXT   (libashlar {lib.ash_version().decode()})")
    main(sys.argv[1], sys.argv[2])
