/* embed - a program of its own that uses libashlar: continues a text with the model of a Hugging Face folder.
 * Build it against an installed library:
 *     cc embed.c $(pkg-config --cflags --libs ashlar) -o embed
 * and run it:
 *     ./embed MODEL_DIR 'Once upon a time' */
#include <ashlar/ashlar.h>

#include <stdio.h>

/* Pull the answer piece by piece and print it as it comes. */
static int print_answer(struct ash_answer *answer, struct ash_err *err)
{
    enum ash_finish finish = ASH_FINISH_NOT_YET;

    while (finish == ASH_FINISH_NOT_YET) {
        struct ash_text piece;

        if (ash_answer_next(answer, &piece, &finish, err) < 0) return -1;
        fwrite(piece.data, 1, piece.size_bytes, stdout);
        fflush(stdout);
    }
    printf("\n[%s]\n", ash_finish_reason(finish));
    return 0;
}

static int run(struct ash_engine *engine, const char *prompt, struct ash_err *err)
{
    struct ash_answer *answer = NULL;
    struct ash_answer_opts opts;
    int32_t *ids = NULL;
    size_t count = 0;
    int rc;

    rc = ash_engine_encode(engine, prompt, true, &ids, &count, err);
    if (rc < 0) return rc;
    printf("[%zu tokens of at most %zu]\n%s", count, ash_engine_context(engine), prompt);
    ash_answer_opts_init(engine, &opts); /* what the model's makers recommend */
    opts.max_tokens = 50;
    rc = ash_answer_open(engine, &opts, &answer, err);
    if (rc == 0) rc = ash_answer_start_ids(answer, ids, count, err);
    if (rc == 0) rc = print_answer(answer, err);
    ash_answer_close(answer);
    ash_free(ids);
    return rc;
}

int main(int argc, char **argv)
{
    struct ash_engine *engine = NULL;
    struct ash_err err = {0};
    int rc;

    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL_DIR TEXT   (libashlar %s)\n", argv[0], ash_version());
        return 2;
    }
    rc = ash_engine_open(argv[1], NULL, &engine, &err);
    if (rc == 0) rc = run(engine, argv[2], &err);
    ash_engine_close(engine);
    if (rc < 0) fprintf(stderr, "%s: %s\n", argv[0], err.text);
    return rc < 0 ? 1 : 0;
}
