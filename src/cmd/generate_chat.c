/* Conversations of `ashlar generate`: each line of standard input is a turn. On a terminal there is a prompt sign and a
 * few /commands; lines can be edited (line.h), and """ begins and ends a message of several. Elsewhere there is nothing
 * but one answer per line. */
#include "cmd/generate_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/line.h"
#include "train/data/arithmetic.h"

struct chat {
    struct ash_generate *generate;
    struct ash_answer *answer;
    bool terminal;                /* a person types */
    bool templated;               /* the model's template writes the conversation; else each line is a separate text */
    bool sums;                    /* the quick-start model: a line is a sum, and its "=" may be left out */
    struct ash_message *messages; /* role is static, content is owned */
    size_t count, capacity;
    struct ash_str message; /* the lines after """ */
    bool is_open;           /* the """ that ends them is still to come */
    size_t interrupts;      /* Ctrl-C at the prompt, one after the other */
};

#define MARK "\"\"\""
#define MARK_BYTES 3
#define SIGN "> "
#define MORE_SIGN ". "

enum turn { TURN_NEXT, TURN_END, TURN_FAILED, TURN_INTERRUPTED };

/* ---- the conversation -------------------------------------------------------------------------------------------- */

static int add_message(struct chat *chat, const char *role, const char *content)
{
    char *copy;

    if (ash_array_reserve(&chat->messages, &chat->capacity, chat->count + 1, sizeof(*chat->messages)) < 0)
        return -ENOMEM;
    copy = strdup(content);
    if (copy == NULL) return -ENOMEM;
    chat->messages[chat->count++] = (struct ash_message){role, copy};
    return 0;
}

static void drop_messages(struct chat *chat, size_t keep)
{
    while (chat->count > keep)
        free((void *)(uintptr_t)chat->messages[--chat->count].content);
}

/* Back to the beginning: only the system message is left. */
static int reset(struct chat *chat)
{
    drop_messages(chat, 0);
    if (!chat->templated || chat->generate->system == NULL) return 0;
    return add_message(chat, "system", chat->generate->system);
}

/* ---- one turn ---------------------------------------------------------------------------------------------------- */

static int start_line(struct chat *chat, const char *line, struct ash_err *err)
{
    int32_t *ids = NULL;
    size_t count = 0;
    int rc = ash_engine_encode(chat->generate->engine, line, !chat->generate->raw, &ids, &count, err);

    if (rc == 0) rc = ash_answer_start_ids(chat->answer, ids, count, err);
    ash_free(ids);
    return rc;
}

/* A sum without its "=" gets one. */
static int start_sum(struct chat *chat, const char *line, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = ash_str_adds(&text, line);

    if (rc == 0 && strchr(line, '=') == NULL) rc = ash_str_adds(&text, "=");
    rc = rc < 0 ? ash_err_set(err, rc, "no memory for the prompt") : start_line(chat, text.data, err);
    ash_str_fini(&text);
    return rc;
}

static int start_turn(struct chat *chat, const char *line, struct ash_err *err)
{
    int rc;

    if (chat->sums) return start_sum(chat, line, err);
    if (!chat->templated) return start_line(chat, line, err);
    if (add_message(chat, "user", line) < 0) return ash_err_set(err, -ENOMEM, "no memory for the conversation");
    rc = ash_answer_start_chat(chat->answer, chat->messages, chat->count, err);
    if (rc < 0) drop_messages(chat, chat->count - 1);
    return rc;
}

/* Report why the answer stops in the middle, if it does. */
static void report_cut(const struct chat *chat, enum ash_finish finish)
{
    if (finish == ASH_FINISH_CONTEXT)
        ash_log(ASH_LOG_INFO, "the context is full%s", chat->templated ? ": /reset starts a new conversation" : "");
    else if (finish == ASH_FINISH_MAX_TOKENS)
        ash_log(ASH_LOG_INFO, "the answer is cut off after %lld tokens; --max-tokens allows more, 0 as many as fit",
                (long long)chat->generate->max_tokens);
}

/* The answer becomes part of the conversation, also when it was cut short. */
static int end_turn(struct chat *chat, const char *line, const struct ash_generate_result *result, struct ash_err *err)
{
    const char *text = result->text.data != NULL ? result->text.data : "";

    if (chat->templated && add_message(chat, "assistant", text) < 0)
        return ash_err_set(err, -ENOMEM, "no memory for the conversation");
    if (chat->generate->json) {
        int rc = ash_generate_print_json(chat->generate, chat->answer, line, result, err);

        if (rc < 0) return rc;
    } else {
        putchar('\n');
    }
    fflush(stdout);
    if (chat->generate->stats) ash_generate_print_stats(chat->answer);
    if (chat->terminal) report_cut(chat, result->finish);
    return 0;
}

/* A person may try again; a script gets an exit code. */
static enum turn report(const struct chat *chat, const struct ash_err *err)
{
    ash_cmd_fail(err);
    if (chat->terminal && err->code == -EOVERFLOW && chat->count > (chat->generate->system != NULL))
        ash_log(ASH_LOG_INFO, "/reset starts a new conversation");
    return chat->terminal ? TURN_NEXT : TURN_FAILED;
}

static enum turn answer_line(struct chat *chat, const char *line)
{
    struct ash_generate_result result = {0};
    bool show = !chat->generate->json;
    struct ash_err err = {0};
    int rc;

    rc = start_turn(chat, line, &err);
    if (rc < 0) return report(chat, &err);
    if (show && chat->generate->echo && !chat->templated) fputs(line, stdout);
    rc = ash_generate_pull(chat->answer, show, chat->templated, &result, &err);
    if (rc < 0 && chat->templated) drop_messages(chat, chat->count - 1);
    if (rc == 0) rc = end_turn(chat, line, &result, &err);
    ash_str_fini(&result.text);
    if (rc < 0) return report(chat, &err);
    return result.interrupted && !chat->terminal ? TURN_INTERRUPTED : TURN_NEXT;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void print_chat_help(const struct chat *chat)
{
    printf("/reset      forget the conversation\n/save FILE  write it as JSON\n/help       this list\n"
           "/quit       end (so does Ctrl-D)\n" MARK " begins and ends a message of several lines.\n"
           "Ctrl-C stops an answer, or clears the line.%s\n",
           chat->templated ? "" : " This model has no chat template: it sees each line as a separate text.");
    puts(ash_line_has_editing() ? "The arrow keys edit the line and bring earlier ones back."
                                : "`rlwrap ashlar generate ...` adds line editing and history.");
}

/* {"messages": [...]}, as --prompts and `ashlar data chat` read it. */
static void save(const struct chat *chat, const char *path)
{
    json_t *messages = json_array(), *json;
    struct ash_err err = {0};

    for (size_t i = 0; i < chat->count; i++)
        json_array_append_new(
            messages, json_pack("{s:s, s:s}", "role", chat->messages[i].role, "content", chat->messages[i].content));
    json = json_pack("{s:o}", "messages", messages);
    if (json == NULL)
        ash_err_set(&err, -ENOMEM, "no memory for the conversation");
    else if (ash_path_exists(path))
        ash_err_set(&err, -EEXIST, "'%s' is there already: take another name", path);
    else if (ash_json_save(path, json, &err) == 0)
        printf("%zu messages are in %s\n", chat->count, path);
    if (err.code != 0) ash_cmd_fail(&err);
    json_decref(json);
}

/* A line that begins with a slash, typed on a terminal. */
static enum turn run_command(struct chat *chat, const char *line)
{
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0) return TURN_END;
    if (strcmp(line, "/help") == 0)
        print_chat_help(chat);
    else if (strncmp(line, "/save ", 6) == 0 && line[6] != '\0')
        save(chat, line + 6);
    else if (strcmp(line, "/reset") == 0)
        return reset(chat) < 0 ? TURN_FAILED : TURN_NEXT;
    else
        printf("there is no %s; /help lists the commands\n", line);
    return TURN_NEXT;
}

/* A line after """, up to the one that ends in it. Then all of them are one message. */
static enum turn add_line(struct chat *chat, char *line, size_t bytes)
{
    struct ash_str *message = &chat->message;
    struct ash_err err = {0};
    enum turn turn = TURN_NEXT;
    bool ends = bytes >= MARK_BYTES && strcmp(line + bytes - MARK_BYTES, MARK) == 0;

    if (ends) line[bytes - MARK_BYTES] = '\0';
    if (ash_str_adds(message, line) < 0 || (!ends && ash_str_adds(message, "\n") < 0)) {
        ash_err_set(&err, -ENOMEM, "no memory for the message");
        turn = report(chat, &err);
        ends = true;
    } else if (ends && message->data[strspn(message->data, " \t\n")] != '\0') {
        turn = answer_line(chat, message->data);
    }
    chat->is_open = !ends;
    if (ends) ash_str_clear(message);
    return turn;
}

static enum turn take_line(struct chat *chat, char *line, size_t bytes)
{
    struct ash_err err = {0};

    if (strlen(line) != bytes) {
        ash_err_set(&err, -EILSEQ, "the line has a NUL byte: it is not text");
        return report(chat, &err);
    }
    while (bytes > 0 && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r'))
        line[--bytes] = '\0';
    if (chat->is_open) return add_line(chat, line, bytes);
    if (chat->terminal && strncmp(line, MARK, MARK_BYTES) == 0)
        return add_line(chat, line + MARK_BYTES, bytes - MARK_BYTES);
    if (line[strspn(line, " \t")] == '\0') return TURN_NEXT;
    if (chat->terminal && line[0] == '/') return run_command(chat, line);
    return answer_line(chat, line);
}

/* No line came: the input has ended, or a signal. On a terminal the first Ctrl-C clears the line, the next one ends. */
static enum turn take_end(struct chat *chat)
{
    bool is_interrupt = ash_interrupt_requested();

    if (chat->terminal) putchar('\n');
    if (!chat->terminal || !is_interrupt || ash_interrupt_signal() != SIGINT || chat->interrupts++ > 0)
        return is_interrupt && !chat->terminal ? TURN_INTERRUPTED : TURN_END;
    chat->is_open = false;
    ash_str_clear(&chat->message);
    clearerr(stdin);
    ash_log(ASH_LOG_INFO, "Ctrl-C again, or Ctrl-D, ends the conversation");
    return TURN_NEXT;
}

/* Ctrl-C that stopped an answer has been forgotten when the next line is read. */
static enum turn read_turns(struct chat *chat, struct ash_line *reader)
{
    enum turn turn = TURN_NEXT;

    while (turn == TURN_NEXT) {
        char *line = NULL;
        ssize_t bytes;

        ash_interrupt_install();
        reader->sign = chat->is_open ? MORE_SIGN : SIGN;
        bytes = ash_line_next(reader, &line);
        if (bytes < 0) {
            turn = take_end(chat);
            continue;
        }
        chat->interrupts = 0;
        turn = take_line(chat, line, (size_t)bytes);
    }
    return turn;
}

/* Was the model trained on data of `ashlar data arithmetic`? Decided by its tokenizer. */
static bool knows_sums(const struct ash_engine *engine)
{
    const char *json = ash_arithmetic_tokenizer();
    struct ash_tokenizer *sums = NULL;
    bool same = false;

    if (ash_tokenizer_parse(json, strlen(json), "arithmetic", &sums, NULL) == 0)
        same = ash_tokenizer_hash(sums) == ash_tokenizer_hash(ash_engine_tokenizer(engine));
    ash_tokenizer_close(sums);
    return same;
}

static int open_chat(struct chat *chat, struct ash_err *err)
{
    struct ash_generate *generate = chat->generate;

    chat->terminal = isatty(STDIN_FILENO) != 0 && !generate->json;
    chat->templated = !generate->raw && ash_engine_has_chat(generate->engine);
    chat->sums = !generate->raw && !chat->templated && knows_sums(generate->engine);
    if (generate->chat && !chat->templated)
        return ash_err_set(err, -ENOTSUP, "--chat: '%s' has no chat template", generate->model);
    if (generate->system != NULL && !chat->templated)
        return ash_err_set(err, -ENOTSUP, "--system: '%s' has no chat template", generate->model);
    if (reset(chat) < 0) return ash_err_set(err, -ENOMEM, "no memory for the conversation");
    return ash_answer_open(generate->engine, &generate->answer_opts, &chat->answer, err);
}

int ash_generate_chat(struct ash_generate *generate)
{
    struct chat chat = {.generate = generate};
    struct ash_line reader = {0};
    struct ash_err err = {0};
    enum turn end = TURN_FAILED;
    int rc = open_chat(&chat, &err);

    if (rc == 0) rc = ash_line_init(&reader, SIGN, chat.terminal, &err);
    if (rc < 0) {
        ash_cmd_fail(&err);
    } else {
        if (chat.terminal) ash_log(ASH_LOG_INFO, "type a line and press enter; /help says more, Ctrl-D ends");
        end = read_turns(&chat, &reader);
    }
    ash_line_fini(&reader);
    ash_answer_close(chat.answer);
    drop_messages(&chat, 0);
    ash_str_fini(&chat.message);
    free(chat.messages);
    return end == TURN_END ? 0 : end == TURN_INTERRUPTED ? ash_cmd_stopped() : 1;
}
