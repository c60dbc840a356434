/* sample - how an answer is chosen: temperature, top-p, a seed, strings that end it; and what it took.
 *     cc sample.c $(pkg-config --cflags --libs ashlar) -o sample
 *     ./sample MODEL 'Once upon a time' 3 */
#include <ashlar/ashlar.h>

#include <stdio.h>
#include <stdlib.h>

static int print_one(struct ash_engine *engine, const struct ash_answer_opts *opts, const char *prompt,
                     struct ash_err *err)
{
    enum ash_finish finish = ASH_FINISH_NOT_YET;
    struct ash_answer *answer = NULL;
    struct ash_answer_stats stats;
    struct ash_text piece;
    int rc = ash_answer_open(engine, opts, &answer, err);

    if (rc == 0) rc = ash_answer_start(answer, prompt, err);
    while (rc == 0 && finish == ASH_FINISH_NOT_YET) {
        rc = ash_answer_next(answer, &piece, &finish, err);
        if (rc == 0) fwrite(piece.data, 1, piece.size_bytes, stdout);
    }
    if (rc == 0) {
        ash_answer_get_stats(answer, &stats);
        printf("\n[seed %llu: %zu tokens, %s]\n", (unsigned long long)opts->seed, stats.answer_tokens,
               ash_finish_reason(finish));
        fprintf(stderr, "[%.0f tokens/s]\n", stats.answer_s > 0 ? (double)stats.answer_tokens / stats.answer_s : 0);
    }
    ash_answer_close(answer);
    return rc;
}

static int print_all(struct ash_engine *engine, const char *prompt, int count, struct ash_err *err)
{
    static const char *const stops[] = {".", "!"}; /* one sentence */
    struct ash_answer_opts opts;
    int rc = 0;

    ash_answer_opts_init(engine, &opts);
    opts.max_tokens = 40;
    opts.temperature = 0.8;
    opts.top_p = 0.95;
    opts.stops = stops;
    opts.stop_count = 2;
    for (int i = 0; i < count && rc == 0; i++) {
        opts.seed = (uint64_t)i;
        rc = print_one(engine, &opts, prompt, err);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct ash_engine *engine = NULL;
    struct ash_engine_opts opts;
    struct ash_err err = {0};
    int rc;

    if (argc != 4) {
        fprintf(stderr, "usage: %s MODEL TEXT COUNT\n", argv[0]);
        return 2;
    }
    ash_engine_opts_init(&opts);
    opts.threads = 1; /* the answers are the same with any number */
    rc = ash_engine_open(argv[1], &opts, &engine, &err);
    if (rc == 0) rc = print_all(engine, argv[2], (int)strtol(argv[3], NULL, 10), &err);
    ash_engine_close(engine);
    if (rc < 0) fprintf(stderr, "%s: %s\n", argv[0], err.text);
    return rc < 0 ? 1 : 0;
}
