/* ashlar data show: the tokens of examples, those that are learned in colour. */
#include "cmd/data_priv.h"

#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/str.h"
#include "text/tokenizer/tokenizer.h"
#include "train/data/examples.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar data show DIR",
    .about =
        "Prints examples that `ashlar data chat` wrote, token by token. Learned tokens are green on a terminal, and\n"
        "stands between [[ and ]] elsewhere.",
    .examples = "  ashlar data show data/chat --count 3\n"
                "  ashlar data show data/pairs --first 100 --ids",
};

struct settings {
    int64_t first, count;
    bool ids;
};

static const struct ash_opt opts_list[] = {
    {"first", ASH_OPT_INT, offsetof(struct settings, first), "0", "number of the first example", 0, 1e15, NULL},
    {"count", ASH_OPT_INT, offsetof(struct settings, count), "4", "how many", 1, 1e15, NULL},
    {"ids", ASH_OPT_BOOL, offsetof(struct settings, ids), "false", "ids and marks, a token a line", 0, 0, NULL},
};

struct show {
    struct ash_examples *examples;
    struct ash_tokenizer *tokenizer;
    const char *on, *off; /* around trained tokens */
    struct ash_str bytes;
};

static void print_bytes(const struct ash_str *bytes)
{
    for (size_t i = 0; i < bytes->size_bytes; i++) {
        unsigned char c = (unsigned char)bytes->data[i];

        if (c < 32 && c != '\n' && c != '\t')
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static void print_text(struct show *show, struct ash_example example)
{
    bool is_on = false;

    for (size_t i = 0; i < example.count; i++) {
        bool is_learned = example.targets[i] != 0;

        if (is_learned != is_on) fputs(is_learned ? show->on : show->off, stdout);
        is_on = is_learned;
        ash_str_clear(&show->bytes);
        if (ash_tokenizer_add_bytes(show->tokenizer, example.ids[i], &show->bytes) == 0) print_bytes(&show->bytes);
    }
    puts(is_on ? show->off : "");
}

static void print_ids(struct show *show, struct ash_example example)
{
    for (size_t i = 0; i < example.count; i++) {
        const char *content = ash_tokenizer_content(show->tokenizer, example.ids[i]);

        printf("%6zu  %6d  %s  %s\n", i, example.ids[i], example.targets[i] != 0 ? "learned" : "-      ",
               content != NULL ? content : "?");
    }
}

static void print_examples(struct show *show, const struct settings *settings)
{
    size_t all = ash_examples_count(show->examples), first = (size_t)settings->first;
    bool is_pairs = ash_examples_get_kind(show->examples) == ASH_EXAMPLES_PAIRS;

    for (size_t i = first; i < all && i - first < (size_t)settings->count; i++) {
        struct ash_example example = ash_examples_at(show->examples, i);
        size_t learned = 0;

        for (size_t t = 1; t < example.count; t++)
            learned += example.targets[t];
        if (is_pairs)
            printf("--- pair %zu, %s: %zu tokens, %zu learned\n", i / 2, i % 2 == 0 ? "chosen" : "rejected",
                   example.count, learned);
        else
            printf("--- example %zu of %zu: %zu tokens, %zu learned\n", i, all, example.count, learned);
        if (settings->ids)
            print_ids(show, example);
        else
            print_text(show, example);
    }
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct settings *settings = ctx;
    bool is_terminal = isatty(STDOUT_FILENO) == 1;
    struct show show = {.on = is_terminal ? "\033[32m" : "[[", .off = is_terminal ? "\033[0m" : "]]"};
    struct ash_err err = {0};
    int rc = ash_examples_open(word, &show.examples, &err);

    (void)opts;
    if (rc == 0) rc = ash_tokenizer_open(word, &show.tokenizer, &err);
    if (rc == 0) print_examples(&show, settings);
    ash_str_fini(&show.bytes);
    ash_tokenizer_close(show.tokenizer);
    ash_examples_close(show.examples);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    const struct ash_opt_table table = {"", "flags", opts_list, ASH_COUNT(opts_list)};
    struct settings settings = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&table, &settings}},
                                      .takes_word = true,
                                      .missing_word = "which folder? name one that `ashlar data chat` wrote",
                                      .respond = respond,
                                      .flags = &settings};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_data_show = {"show", "print examples, learned tokens in colour", run};
