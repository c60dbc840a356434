/* chat - a conversation: each line of standard input is a message, each answer follows it. What was said before is kept
 * in the conversation's memory and not computed again.
 *     cc chat.c $(pkg-config --cflags --libs ashlar) -o chat
 *     ./chat MODEL */
#include <ashlar/ashlar.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS_MAX 64
#define LINE_BYTES 4096
#define ANSWER_BYTES 16384

/* Everything said so far. Contents are owned. */
struct talk {
    struct ash_message messages[TURNS_MAX];
    size_t count;
};

static void say(struct talk *talk, const char *role, const char *content)
{
    talk->messages[talk->count].role = role;
    talk->messages[talk->count++].content = strdup(content);
}

static void forget(struct talk *talk)
{
    while (talk->count > 0)
        free((char *)talk->messages[--talk->count].content);
}

/* Stream the answer to the screen, and keep it in text. */
static int answer_once(struct ash_answer *answer, const struct talk *talk, char *text, struct ash_err *err)
{
    enum ash_finish finish = ASH_FINISH_NOT_YET;
    size_t used = 0;
    int rc = ash_answer_start_chat(answer, talk->messages, talk->count, err);

    while (rc == 0 && finish == ASH_FINISH_NOT_YET) {
        struct ash_text piece;

        rc = ash_answer_next(answer, &piece, &finish, err);
        if (rc < 0) break;
        fwrite(piece.data, 1, piece.size_bytes, stdout);
        fflush(stdout);
        if (used + piece.size_bytes < ANSWER_BYTES) memcpy(text + used, piece.data, piece.size_bytes);
        if (used + piece.size_bytes < ANSWER_BYTES) used += piece.size_bytes;
    }
    text[used] = '\0';
    putchar('\n');
    return rc;
}

static int converse(struct ash_engine *engine, struct ash_err *err)
{
    static char line[LINE_BYTES], text[ANSWER_BYTES];
    struct ash_answer_stats stats;
    struct ash_answer_opts opts;
    struct ash_answer *answer = NULL;
    struct talk talk = {.count = 0};
    int rc;

    ash_answer_opts_init(engine, &opts);
    opts.max_tokens = 100;
    rc = ash_answer_open(engine, &opts, &answer, err);
    while (rc == 0 && talk.count + 2 <= TURNS_MAX && fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        say(&talk, "user", line);
        rc = answer_once(answer, &talk, text, err);
        say(&talk, "assistant", text);
        ash_answer_get_stats(answer, &stats);
        fprintf(stderr, "[%zu tokens of prompt, %zu of them known; %zu of answer]\n", stats.prompt_tokens,
                stats.reused_tokens, stats.answer_tokens);
    }
    forget(&talk);
    ash_answer_close(answer);
    return rc;
}

int main(int argc, char **argv)
{
    struct ash_engine *engine = NULL;
    struct ash_err err = {0};
    int rc;

    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL < LINES\n", argv[0]);
        return 2;
    }
    rc = ash_engine_open(argv[1], NULL, &engine, &err);
    if (rc == 0) rc = converse(engine, &err);
    ash_engine_close(engine);
    if (rc < 0) fprintf(stderr, "%s: %s\n", argv[0], err.text);
    return rc < 0 ? 1 : 0;
}
