/* ashlar generate: continue a prompt, or talk with a model over standard input. */
#include "cmd/cmd.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/generate_priv.h"

#define CONTEXT_DEFAULT 4096 /* memory of a cache grows with it; a model may be able to do far more */
#define EXIT_INTERRUPTED 130

#define FIELD(name) offsetof(struct ash_generate, name)

static const struct ash_opt generate_opts[] = {
    {"model", ASH_OPT_STRING, FIELD(model), NULL, ASH_CMD_MODEL_HELP, 0, 0, NULL},
    {"prompt", ASH_OPT_STRING, FIELD(prompt), NULL, "text to continue", 0, 0, NULL},
    {"prompt_file", ASH_OPT_STRING, FIELD(prompt_file), NULL, "a file with the text to continue; - for standard input",
     0, 0, NULL},
    {"chat", ASH_OPT_BOOL, FIELD(chat), NULL, "the prompt is a message: wrap it in the model's chat template", 0, 0,
     NULL},
    {"system", ASH_OPT_STRING, FIELD(system), NULL, "in a chat: the system message", 0, 0, NULL},
    {"max_tokens", ASH_OPT_INT, FIELD(max_tokens), "512", "length of an answer at most; 0: until the context is full",
     0, INFINITY, NULL},
    {"context", ASH_OPT_INT, FIELD(context), "0",
     "tokens of prompt and answer together; 0: what is needed, in a chat at most 4096", 0, INFINITY, NULL},
    {"temperature", ASH_OPT_DOUBLE, FIELD(temperature), NULL, "0: always the likeliest token; default: the model's own",
     0, 100, NULL},
    {"top_k", ASH_OPT_INT, FIELD(top_k), NULL, "choose among the k likeliest tokens; 0: all; default: the model's own",
     0, INFINITY, NULL},
    {"top_p", ASH_OPT_DOUBLE, FIELD(top_p), NULL,
     "choose among the likeliest tokens that together have this probability; 1: all; default: the model's own", 1e-9, 1,
     NULL},
    {"min_p", ASH_OPT_DOUBLE, FIELD(min_p), NULL,
     "leave out tokens less likely than this share of the likeliest; 0: none; default: the model's own", 0, 1, NULL},
    {"repetition_penalty", ASH_OPT_DOUBLE, FIELD(repetition_penalty), NULL,
     "above 1: make tokens that occurred less likely; default: the model's own", 1e-3, 100, NULL},
    {"seed", ASH_OPT_INT, FIELD(seed), "0", "the same seed, prompt and settings give the same answer", 0, INFINITY,
     NULL},
    {"stop", ASH_OPT_TEXTS, FIELD(stop), NULL, "end the answer before this text; may be repeated", 0, 0, NULL},
    {"raw", ASH_OPT_BOOL, FIELD(raw), NULL,
     "add no special tokens (such as the beginning of text) to the prompt, and use no chat template", 0, 0, NULL},
    {"echo", ASH_OPT_BOOL, FIELD(echo), NULL, "print the prompt too", 0, 0, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object per answer: text, ids, finish_reason, timings", 0,
     0, NULL},
    {"stats", ASH_OPT_BOOL, FIELD(stats), NULL, "print tokens per second to standard error", 0, 0, NULL},
};

static const struct ash_opt_table generate_table = {
    .section = "", .help = "flags", .opts = generate_opts, .count = ASH_COUNT(generate_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar generate --model DIR [--prompt TEXT | --prompt-file FILE | -] [flags]",
    .about = "Continues the prompt. Without one it answers standard input line by line: on a terminal that is\n"
             "a chat (`/help` says more; Ctrl-C stops an answer, Ctrl-D ends). A model with a chat template\n"
             "keeps the conversation; one without sees each line as a text of its own. Settings that are not\n"
             "given come from the model's generation_config.json; --top-k, --top-p or --min-p without\n"
             "--temperature ask for sampling.",
    .examples = "  ashlar generate --model stories --prompt 'Once upon a time' --temperature 0.8\n"
                "  ashlar generate --model qwen --chat --prompt 'Why is the sky blue?'\n"
                "  ashlar generate --model qwen",
};

/* ---- pulling and printing ---------------------------------------------------------------------------------------- */

static void show_piece(const char *data, size_t size_bytes, bool *front)
{
    while (*front && size_bytes > 0 && (*data == ' ' || *data == '\n')) {
        data++;
        size_bytes--;
    }
    if (size_bytes == 0) return;
    *front = false;
    fwrite(data, 1, size_bytes, stdout);
    fflush(stdout);
}

int ash_generate_pull(struct ash_answer *answer, bool show, bool trim, struct ash_generate_result *result,
                      struct ash_err *err)
{
    bool front = trim;

    while (result->finish == ASH_FINISH_NOT_YET && !result->interrupted) {
        struct ash_text piece = {0};
        int rc = ash_answer_next(answer, &piece, &result->finish, err);

        if (rc < 0) return rc;
        if (piece.size_bytes > 0 && ash_str_add(&result->text, piece.data, piece.size_bytes) < 0)
            return ash_err_set(err, -ENOMEM, "no memory for the answer");
        if (show) show_piece(piece.data, piece.size_bytes, &front);
        result->interrupted = ash_interrupt_requested();
    }
    return 0;
}

static double per_second(size_t count, double seconds)
{
    return seconds > 0.0 ? (double)count / seconds : 0.0;
}

static double prompt_speed(const struct ash_answer_stats *stats)
{
    return per_second(stats->prompt_tokens - stats->reused_tokens, stats->prompt_s);
}

/* The first token comes out of the prompt; the others take a step each. */
static double answer_speed(const struct ash_answer_stats *stats)
{
    return per_second(stats->answer_tokens > 0 ? stats->answer_tokens - 1 : 0, stats->answer_s);
}

void ash_generate_print_stats(const struct ash_answer *answer)
{
    struct ash_answer_stats stats;

    ash_answer_get_stats(answer, &stats);
    ash_log(ASH_LOG_INFO,
            "prompt %zu tokens (%zu reused), %.1f tokens/s; first token after %.3f s; answer %zu tokens, %.1f tokens/s",
            stats.prompt_tokens, stats.reused_tokens, prompt_speed(&stats), stats.first_token_s, stats.answer_tokens,
            answer_speed(&stats));
}

static const char *finish_detail(const struct ash_generate_result *result)
{
    if (result->interrupted) return "interrupted";
    switch (result->finish) {
    case ASH_FINISH_EOS:
        return "end of text";
    case ASH_FINISH_STOP:
        return "stop string";
    case ASH_FINISH_MAX_TOKENS:
        return "max tokens";
    default:
        return "context full";
    }
}

static json_t *ids_json(const struct ash_answer *answer)
{
    size_t count = 0;
    const int32_t *ids = ash_answer_ids(answer, &count);
    json_t *list = json_array();

    for (size_t i = 0; i < count && list != NULL; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *usage_json(const struct ash_answer_stats *stats)
{
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)stats->prompt_tokens, "reused_tokens",
                     (json_int_t)stats->reused_tokens, "answer_tokens", (json_int_t)stats->answer_tokens);
}

static json_t *timings_json(const struct ash_answer_stats *stats)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "prompt_s", stats->prompt_s, "first_token_s", stats->first_token_s,
                     "answer_s", stats->answer_s, "prompt_tokens_per_s", prompt_speed(stats), "answer_tokens_per_s",
                     answer_speed(stats));
}

int ash_generate_print_json(const struct ash_generate *generate, const struct ash_answer *answer, const char *prompt,
                            const struct ash_generate_result *result, struct ash_err *err)
{
    const char *reason = result->interrupted ? "interrupted" : ash_finish_reason(result->finish);
    struct ash_answer_stats stats;
    struct ash_str text = {0};
    json_t *json = NULL;
    int rc = ash_str_adds(&text, generate->echo ? prompt : "");

    if (rc == 0) rc = ash_str_add(&text, result->text.data, result->text.size_bytes);
    ash_answer_get_stats(answer, &stats);
    if (rc == 0)
        json = json_pack("{s:s%, s:o, s:s, s:s, s:o, s:o}", "text", text.data, text.size_bytes, "ids", ids_json(answer),
                         "finish_reason", reason, "finish_detail", finish_detail(result), "usage", usage_json(&stats),
                         "timings", timings_json(&stats));
    ash_str_fini(&text);
    if (json == NULL) return ash_err_set(err, -ENOMEM, "no memory for the JSON of the answer");
    json_dumpf(json, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(json);
    return 0;
}

/* ---- one prompt -------------------------------------------------------------------------------------------------- */

/* Append the prompt to text (empty so far) from wherever it comes. */
static int read_prompt(const struct ash_generate *generate, struct ash_str *text, struct ash_err *err)
{
    int rc = ash_str_adds(text, generate->prompt != NULL ? generate->prompt : "");

    if (rc < 0) return ash_err_set(err, rc, "no memory for the prompt");
    if (generate->prompt_file != NULL) rc = ash_cmd_read_text(generate->prompt_file, "the prompt", text, err);
    if (rc == 0 && strlen(text->data) != text->size_bytes)
        rc = ash_err_set(err, -EILSEQ, "the prompt has a NUL byte at offset %zu: it is not text", strlen(text->data));
    return rc;
}

/* The ids to continue: the text, or a conversation of one message. */
static int encode_prompt(struct ash_generate *generate, const char *text, int32_t **ids_out, size_t *count_out,
                         struct ash_err *err)
{
    struct ash_message messages[2] = {{"system", generate->system}, {"user", text}};
    size_t skip = generate->system == NULL ? 1 : 0;
    char *rendered = NULL;
    int rc;

    if (!generate->chat) return ash_engine_encode(generate->engine, text, !generate->raw, ids_out, count_out, err);
    rc = ash_engine_render_chat(generate->engine, messages + skip, 2 - skip, &rendered, err);
    if (rc < 0) return rc;
    rc = ash_engine_encode(generate->engine, rendered, false, ids_out, count_out, err);
    ash_free(rendered);
    return rc;
}

/* The context need not be larger than the prompt and the longest answer. */
static size_t one_shot_context(const struct ash_generate *generate, size_t prompt_tokens)
{
    if (generate->context > 0) return (size_t)generate->context;
    if (generate->max_tokens > 0) return prompt_tokens + (size_t)generate->max_tokens;
    return 0;
}

static int answer_prompt(struct ash_generate *generate, const char *text, bool *interrupted_out, struct ash_err *err)
{
    struct ash_generate_result result = {0};
    struct ash_answer *answer = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    int rc = encode_prompt(generate, text, &ids, &count, err);

    if (rc < 0) return rc;
    generate->answer_opts.context_tokens = one_shot_context(generate, count);
    rc = ash_answer_open(generate->engine, &generate->answer_opts, &answer, err);
    if (rc < 0) goto done;
    rc = ash_answer_start_ids(answer, ids, count, err);
    if (rc < 0) goto done;
    if (generate->echo && !generate->json) fputs(text, stdout);
    rc = ash_generate_pull(answer, !generate->json, generate->chat, &result, err);
    if (!generate->json && (result.text.size_bytes == 0 || result.text.data[result.text.size_bytes - 1] != '\n'))
        putchar('\n');
    if (rc < 0) goto done;
    if (generate->json) rc = ash_generate_print_json(generate, answer, text, &result, err);
    if (generate->stats) ash_generate_print_stats(answer);
    *interrupted_out = result.interrupted;

done:
    ash_str_fini(&result.text);
    ash_answer_close(answer);
    ash_free(ids);
    return rc;
}

static int run_prompt(struct ash_generate *generate)
{
    struct ash_err err = {0};
    struct ash_str text = {0};
    bool interrupted = false;
    int rc = read_prompt(generate, &text, &err);

    if (rc == 0) rc = answer_prompt(generate, text.data, &interrupted, &err);
    ash_str_fini(&text);
    if (rc < 0) return ash_cmd_fail(&err);
    return interrupted ? EXIT_INTERRUPTED : 0;
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

/* The model's own settings, then what flags say. A filter without a temperature asks for sampling. */
static void choose_settings(struct ash_generate *generate)
{
    struct ash_answer_opts *opts = &generate->answer_opts;
    bool top_k = ash_opts_is_set(generate->opts, "top_k"), top_p = ash_opts_is_set(generate->opts, "top_p");
    bool min_p = ash_opts_is_set(generate->opts, "min_p"), temperature = ash_opts_is_set(generate->opts, "temperature");

    ash_answer_opts_init(generate->engine, opts);
    opts->max_tokens = (size_t)generate->max_tokens;
    opts->seed = (uint64_t)generate->seed;
    opts->stops = generate->stop.items;
    opts->stop_count = generate->stop.count;
    if (temperature) opts->temperature = generate->temperature;
    if (!temperature && opts->temperature == 0.0 && (top_k || top_p || min_p)) opts->temperature = 1.0;
    if (top_k) opts->top_k = (size_t)generate->top_k;
    if (top_p) opts->top_p = generate->top_p;
    if (min_p) opts->min_p = generate->min_p;
    if (ash_opts_is_set(generate->opts, "repetition_penalty")) opts->repetition_penalty = generate->repetition_penalty;
}

static int run_engine(struct ash_generate *generate)
{
    struct ash_err err = {0};
    int code;

    if (ash_cmd_engine_open(&generate->computing, generate->model, &generate->engine, &err) < 0)
        return ash_cmd_fail(&err);
    choose_settings(generate);
    if (generate->prompt != NULL || generate->prompt_file != NULL) {
        ash_interrupt_install();
        code = run_prompt(generate);
    } else {
        generate->answer_opts.context_tokens = generate->context > 0 ? (size_t)generate->context : CONTEXT_DEFAULT;
        code = ash_generate_chat(generate);
    }
    ash_engine_close(generate->engine);
    return code;
}

/* What the flags ask for must make sense together. */
static int check_flags(struct ash_generate *generate, const char *positional)
{
    if (generate->model == NULL) return ash_cmd_misuse("generate", "--model DIR is missing");
    if (positional != NULL && strcmp(positional, "-") != 0)
        return ash_cmd_misuse("generate", "'%s' is not expected here: a prompt is given with --prompt", positional);
    if (positional != NULL && generate->prompt_file == NULL)
        generate->prompt_file = "-";
    else if (positional != NULL)
        return ash_cmd_misuse("generate", "- and --prompt-file exclude each other");
    if (generate->prompt != NULL && generate->prompt_file != NULL)
        return ash_cmd_misuse("generate", "--prompt and a prompt from a file exclude each other");
    if (generate->chat && generate->raw) return ash_cmd_misuse("generate", "--chat and --raw exclude each other");
    return ASH_CMD_GO;
}

static int run(int argc, char **argv)
{
    struct ash_generate generate = {0};
    struct ash_opt_binding bindings[] = {{&generate_table, &generate}, {&ash_engine_table, &generate.computing}};
    struct ash_err err = {0};
    const char *positionals[1] = {NULL};
    size_t positional_count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &generate.opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, generate.opts, argc, argv, positionals, 1, &positional_count);
    if (code == ASH_CMD_GO) code = check_flags(&generate, positionals[0]);
    if (code == ASH_CMD_GO) code = run_engine(&generate);
    ash_opts_close(generate.opts);
    return code;
}

const struct ash_cmd ash_cmd_generate = {"generate", "continue a text, or talk with a model", run};
