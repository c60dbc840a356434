/* tokenize - text to token ids and back, with the tokenizer of a model.
 *     cc tokenize.c $(pkg-config --cflags --libs ashlar) -o tokenize
 *     ./tokenize MODEL 'Once upon a time' */
#include <ashlar/ashlar.h>

#include <stdio.h>

static int show(const struct ash_engine *engine, const char *text, struct ash_err *err)
{
    int32_t *ids = NULL;
    char *back = NULL;
    size_t count = 0;
    int rc;

    rc = ash_engine_encode(engine, text, true, &ids, &count, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < count; i++) {
        char *piece = NULL;

        rc = ash_engine_decode(engine, &ids[i], 1, true, &piece, err);
        if (rc < 0) goto done;
        printf("%6d  '%s'\n", ids[i], piece);
        ash_free(piece);
    }
    rc = ash_engine_decode(engine, ids, count, false, &back, err); /* without the special tokens */
    if (rc == 0) printf("%zu tokens: %s\n", count, back);

done:
    ash_free(back);
    ash_free(ids);
    return rc;
}

int main(int argc, char **argv)
{
    struct ash_engine *engine = NULL;
    struct ash_err err = {0};
    int rc;

    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL TEXT\n", argv[0]);
        return 2;
    }
    rc = ash_engine_open(argv[1], NULL, &engine, &err);
    if (rc == 0) rc = show(engine, argv[2], &err);
    ash_engine_close(engine);
    if (rc < 0) fprintf(stderr, "%s: %s\n", argv[0], err.text);
    return rc < 0 ? 1 : 0;
}
