/* Shared by the subcommands: choosing one by name, reading its flags, and one-line errors.
 * The list, the flags and the errors look the same everywhere because they are printed here and nowhere else. */
#include "cmd/cmd.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/spelling.h"

#define JSON_DIGITS 12 /* bytes of a terabyte are still whole */

/* The command whose name is nearest to name, or NULL when none is near. */
static const struct ash_cmd *nearest(const struct ash_cmd *const *commands, size_t count, const char *name)
{
    const struct ash_cmd *best = NULL;
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < count; i++) {
        size_t distance = ash_spelling_nearness(name, commands[i]->name);

        if (distance >= least) continue;
        least = distance;
        best = commands[i];
    }
    return best;
}

static void print_list(FILE *out, const char *prefix, const struct ash_cmd *const *commands, size_t count)
{
    fprintf(out, "usage: %s COMMAND [arguments]\n\ncommands:\n", prefix);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n`%s COMMAND --help` explains each.\n", prefix);
}

static int refuse(const char *prefix, const struct ash_cmd *const *commands, size_t count, const char *name)
{
    const struct ash_cmd *meant = nearest(commands, count, name);

    if (meant != NULL)
        ash_log(ASH_LOG_ERROR, "there is no command '%s': did you mean `%s %s`?", name, prefix, meant->name);
    else
        ash_log(ASH_LOG_ERROR, "there is no command '%s': `%s --help` lists them", name, prefix);
    return 2;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

/* `ashlar help generate` is `ashlar generate --help`. */
static int run_named(const struct ash_cmd *command, int argc, char **argv)
{
    char help[] = "--help", *words[] = {argv[argc > 2 ? 2 : 1], help, NULL};

    return asks_for_help(argv[1]) ? command->run(2, words) : command->run(argc - 1, argv + 1);
}

/* ---- visiting ---------------------------------------------------------------------------------------------------- */

#define PROGRAM "ashlar"

/* Set while commands are visited: each is then run with --help and passes its text to the visitor. */
static const struct ash_cmd_visitor *visiting;

/* The words after the program's name. */
static const char *path_of(const char *words)
{
    words += strlen(PROGRAM);
    return *words == ' ' ? words + 1 : words;
}

static void visit_group(const char *prefix, const struct ash_cmd *const *commands, size_t count)
{
    visiting->group(visiting->ctx, path_of(prefix), commands, count);
    for (size_t i = 0; i < count; i++) {
        char help[] = "--help", name[64], *words[] = {name, help, NULL};

        snprintf(name, sizeof(name), "%s", commands[i]->name);
        commands[i]->run(2, words);
    }
}

void ash_cmd_visit(const struct ash_cmd *const *commands, size_t count, const struct ash_cmd_visitor *visitor)
{
    ash_assert(visiting == NULL);
    visiting = visitor;
    visit_group(PROGRAM, commands, count);
    visiting = NULL;
}

/* ---- choosing and reading ---------------------------------------------------------------------------------------- */

int ash_cmd_dispatch(const char *prefix, const struct ash_cmd *const *commands, size_t count, int argc, char **argv)
{
    const char *name;

    if (visiting != NULL) {
        visit_group(prefix, commands, count);
        return 0;
    }
    if (argc < 2) {
        print_list(stderr, prefix, commands, count);
        return 2;
    }
    if (asks_for_help(argv[1]) && argc == 2) {
        print_list(stdout, prefix, commands, count);
        return 0;
    }
    name = asks_for_help(argv[1]) ? argv[2] : argv[1];
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, commands[i]->name) == 0) return run_named(commands[i], argc, argv);
    return refuse(prefix, commands, count, name);
}

static void print_help(const struct ash_cmd_usage *usage, const struct ash_opts *opts)
{
    const char *line = usage->synopsis, *lead = "usage: ";

    while (line != NULL) {
        const char *end = strchr(line, '\n');

        printf("%s%.*s\n", lead, (int)(end != NULL ? end - line : (ptrdiff_t)strlen(line)), line);
        line = end != NULL ? end + 1 : NULL;
        lead = "       ";
    }
    if (usage->about != NULL) printf("\n%s\n", usage->about);
    printf("\n");
    ash_opts_print_help(opts, stdout);
    if (usage->examples != NULL) printf("\nexamples:\n%s\n", usage->examples);
}

/* "ashlar model info SRC" -> its first words in lower case: the command of --help. */
static int command_bytes(const char *synopsis)
{
    size_t used = 0, word_end = 0;

    while (synopsis[used] == ' ' || (synopsis[used] >= 'a' && synopsis[used] <= 'z')) {
        used++;
        if (synopsis[used] == ' ' || synopsis[used] == '\0' || synopsis[used] == '\n') word_end = used;
    }
    return (int)word_end;
}

int ash_cmd_parse(const struct ash_cmd_usage *usage, struct ash_opts *opts, int argc, char **argv,
                  const char **positionals, size_t max_positionals, size_t *positional_count_out)
{
    struct ash_err err = {0};
    bool help = false;
    size_t count = 0;

    if (visiting != NULL) {
        char path[64];

        snprintf(path, sizeof(path), "%.*s", command_bytes(usage->synopsis), usage->synopsis);
        visiting->settings(visiting->ctx, path_of(path), opts);
        return 0;
    }
    if (ash_opts_set_env(opts, &err) < 0 ||
        ash_opts_parse_args(opts, argc - 1, argv + 1, positionals, max_positionals, &count, &help, &err) < 0) {
        ash_log(ASH_LOG_ERROR, "%s (`%.*s --help` explains)", err.text, command_bytes(usage->synopsis),
                usage->synopsis);
        return 2;
    }
    if (help) {
        print_help(usage, opts);
        return 0;
    }
    *positional_count_out = count;
    return ASH_CMD_GO;
}

/* The exit code of a command whose settings are read. */
static int respond(const struct ash_cmd_form *form, const struct ash_opts *opts, const char *word)
{
    const char *synopsis = form->usage->synopsis;

    if (word != NULL || form->missing_word == NULL) return form->respond(form->flags, opts, word);
    ash_log(ASH_LOG_ERROR, "%s (`%.*s --help` explains)", form->missing_word, command_bytes(synopsis), synopsis);
    return 2;
}

int ash_cmd_run(const struct ash_cmd_form *form, int argc, char **argv)
{
    const char **words = calloc((size_t)argc + 1, sizeof(*words));
    size_t most = form->respond_words != NULL ? (size_t)argc : form->takes_word, count = 0, bindings = 0;
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    int code;

    while (bindings < ASH_CMD_BINDINGS_MAX && form->bindings[bindings].table != NULL)
        bindings++;
    if (words == NULL) ash_err_set(&err, -ENOMEM, "out of memory");
    if (words == NULL || ash_opts_open(form->bindings, bindings, &opts, &err) < 0) {
        free(words);
        return ash_cmd_fail(&err);
    }
    code = ash_cmd_parse(form->usage, opts, argc, argv, words, most, &count);
    if (code == ASH_CMD_GO && form->respond_words != NULL)
        code = form->respond_words(form->flags, opts, words, count);
    else if (code == ASH_CMD_GO)
        code = respond(form, opts, words[0]);
    ash_opts_close(opts);
    free(words);
    return code;
}

static int read_stream(FILE *file, struct ash_str *text)
{
    char chunk[65536];
    size_t bytes, start = text->size_bytes;
    int rc = 0;

    while (rc == 0 && (bytes = fread(chunk, 1, sizeof(chunk), file)) > 0) {
        rc = ash_str_add(text, chunk, bytes);
        if (text->size_bytes - start > ASH_CMD_TEXT_MAX_BYTES) rc = -EFBIG;
    }
    return rc == 0 && ferror(file) ? -errno : rc;
}

int ash_cmd_read_text(const char *path, const char *what, struct ash_str *text, struct ash_err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    FILE *file = is_stdin ? stdin : fopen(path, "rbe");
    int rc = file != NULL ? ash_str_adds(text, "") : -errno;

    if (rc == 0) rc = read_stream(file, text);
    if (file != NULL && !is_stdin) fclose(file);
    if (rc == -EFBIG)
        return ash_err_set(err, rc, "%s has more than the limit of %zu bytes: '%s'", what, ASH_CMD_TEXT_MAX_BYTES,
                           name);
    return rc < 0 ? ash_err_set(err, rc, "cannot read %s from '%s': %s", what, name, strerror(-rc)) : 0;
}

int ash_cmd_read_secret(const char **secret, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc;

    if (*secret == NULL || (*secret)[0] != '@') return 0;
    rc = ash_cmd_read_text(*secret + 1, "the token", &text, err);
    if (rc == 0) text.data[strcspn(text.data, "\r\n")] = '\0';
    if (rc == 0 && text.data[0] == '\0') rc = ash_err_set(err, -EINVAL, "'%s' holds no token", *secret + 1);
    if (rc < 0) {
        ash_str_fini(&text);
        return rc;
    }
    *secret = text.data;
    return 0;
}

int ash_cmd_print_json(json_t *json, struct ash_err *err)
{
    char *text = json != NULL ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(JSON_DIGITS)) : NULL;

    json_decref(json);
    if (text == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    puts(text);
    free(text);
    return 0;
}

int ash_cmd_stopped(void)
{
    int number = ash_interrupt_signal();

    return ASH_CMD_EXIT_SIGNAL + (number != 0 ? number : SIGTERM);
}

int ash_cmd_fail(const struct ash_err *err)
{
    ash_log(ASH_LOG_ERROR, "%s", err->text);
    return 1;
}

int ash_cmd_misuse(const char *command, const char *fmt, ...)
{
    char text[ASH_ERR_TEXT_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    ash_log(ASH_LOG_ERROR, "%s (`ashlar %s --help` explains)", text, command);
    return 2;
}
