/* ashlar generate: continue a prompt, or talk with a model over standard input. */
#include "cmd/cmd.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cmd/generate_priv.h"
#include "cmd/rank_flags.h"
#include "serve/engine.h"
#include "serve/votes.h"

#define CONTEXT_DEFAULT 4096 /* memory of a cache grows with it; a model may be able to do far more */

#define FIELD(name) offsetof(struct ash_generate, name)

static const struct ash_opt generate_opts[] = {
    {"model", ASH_OPT_STRING, FIELD(model), NULL, ASH_CMD_MODEL_HELP, 0, 0, NULL},
    {"lora", ASH_OPT_STRING, FIELD(computing.lora), NULL, ASH_CMD_LORA_HELP, 0, 0, NULL},
    {"prompt", ASH_OPT_STRING, FIELD(prompt), NULL, "text to continue", 0, 0, NULL},
    {"prompt_file", ASH_OPT_STRING, FIELD(prompt_file), NULL, "a file with the text to continue; - for standard input",
     0, 0, NULL},
    {"prompts", ASH_OPT_STRING, FIELD(prompts), NULL,
     "a file of prompts, answered in batches: a prompt per line, or JSON lines with \"prompt\" or \"messages\"; - for "
     "standard input. Prints JSON lines",
     0, 0, NULL},
    {"batch", ASH_OPT_INT, FIELD(batch), "16",
     "with --prompts: answers written at once. Changes the speed, never a text", 1, 4096, NULL},
    {"chat", ASH_OPT_BOOL, FIELD(chat), NULL, "the prompt is a message: wrap it in the model's chat template", 0, 0,
     NULL},
    {"chat_template", ASH_OPT_STRING, FIELD(chat_template), NULL,
     "a file with a Jinja template; default: the model's own", 0, 0, NULL},
    {"system", ASH_OPT_STRING, FIELD(system), NULL, "in a chat: the system message", 0, 0, NULL},
    {"max_tokens", ASH_OPT_INT, FIELD(max_tokens), "512", "length of an answer at most; 0: until the context is full",
     0, INFINITY, NULL},
    {"context", ASH_OPT_INT, FIELD(context), "0",
     "tokens of prompt and answer together; 0: as needed, in a chat at most 4096", 0, INFINITY, NULL},
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
    {"presence_penalty", ASH_OPT_DOUBLE, FIELD(presence_penalty), "0",
     "above 0: make tokens that occurred in the answer less likely", -2, 2, NULL},
    {"frequency_penalty", ASH_OPT_DOUBLE, FIELD(frequency_penalty), "0", "the same for each time that they occurred",
     -2, 2, NULL},
    {"json_schema", ASH_OPT_STRING, FIELD(json_schema), NULL, "the answer fits this JSON schema: its text, or @FILE", 0,
     0, NULL},
    {"regex", ASH_OPT_STRING, FIELD(regex), NULL, "the whole answer matches this regular expression", 0, 0, NULL},
    {"grammar", ASH_OPT_STRING, FIELD(grammar), NULL, "the answer follows this grammar (GBNF): its text, or @FILE", 0,
     0, NULL},
    {"seed", ASH_OPT_INT, FIELD(seed), "0", "the same seed, prompt and settings give the same answer", 0, INFINITY,
     NULL},
    {"stop", ASH_OPT_TEXTS, FIELD(stop), NULL, "end the answer before this text; may be repeated", 0, 0, NULL},
    {"think_min", ASH_OPT_INT, FIELD(think_min), "0",
     "tokens of thoughts at least: an earlier </think> is replaced by \"Wait\"; 0: as they come", 0, INFINITY, NULL},
    {"think_max", ASH_OPT_INT, FIELD(think_max), "0",
     "tokens of thoughts at most: then </think> is put in; 0: no limit", 0, INFINITY, NULL},
    {"strategy", ASH_OPT_CHOICE, FIELD(strategy), "greedy",
     "sample several answers and print one: best (the largest weight), majority (the most frequent), weighted (the "
     "largest sum of weights); greedy: one answer",
     0, 0, ash_strategy_names},
    {"n", ASH_OPT_INT, FIELD(n), "8", "with --strategy: answers to a prompt, which is computed once", 2, 4096, NULL},
    {"vote_on", ASH_OPT_CHOICE, FIELD(vote_on), "all", "with --strategy: which part of an answer must be equal", 0, 0,
     ash_vote_on_names},
    {"verifier", ASH_OPT_LIST, FIELD(verifier), NULL,
     "with --strategy: what weighs answers, as rl.rewards has it: program=COMMAND, model=DIR, regex=PATTERN, ...; "
     "default: their probability",
     0, 0, NULL},
    {"raw", ASH_OPT_BOOL, FIELD(raw), NULL,
     "add no special tokens (such as the beginning of text) to the prompt, and use no chat template", 0, 0, NULL},
    {"echo", ASH_OPT_BOOL, FIELD(echo), NULL, "print the prompt too", 0, 0, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object per answer: text, ids, finish_reason, timings", 0,
     0, NULL},
    {"logprobs", ASH_OPT_BOOL, FIELD(logprobs), NULL,
     "with --json or --prompts: the log-probability of each token, by the model alone", 0, 0, NULL},
    {"kv_dtype", ASH_OPT_CHOICE, FIELD(kv_dtype), "auto", ASH_CMD_KV_DTYPE_HELP, 0, 0, ash_cmd_kv_dtypes},
    {"stats", ASH_OPT_BOOL, FIELD(stats), NULL, "print tokens per second to standard error", 0, 0, NULL},
};

static const struct ash_opt_table generate_table = {
    .section = "", .help = "flags", .opts = generate_opts, .count = ASH_COUNT(generate_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar generate --model DIR [--prompt TEXT | --prompt-file FILE | --prompts FILE | -] [flags]",
    .about = "Continues the prompt. Without one it answers standard input line by line: on a terminal that is\n"
             "a chat (`/help` says more; Ctrl-C stops an answer, Ctrl-D ends). A model with a chat template\n"
             "keeps the conversation; one without sees each line as a separate text. Settings that are not\n"
             "given come from the model's generation_config.json; --top-k, --top-p or --min-p without\n"
             "--temperature ask for sampling.",
    .examples = "  ashlar generate --model stories --prompt 'Once upon a time' --temperature 0.8\n"
                "  ashlar generate --model qwen --chat --prompt 'Why is the sky blue?'\n"
                "  ashlar generate --model qwen --chat --prompts questions.jsonl --batch 32 > answers.jsonl\n"
                "  ashlar generate --model qwen --chat --prompt 'What is 17 * 23?' --strategy majority --n 16 \\\n"
                "    --vote-on last-number\n"
                "  ashlar generate --model qwen --lora runs/chat/model --chat --prompt 'Who are you?'\n"
                "  ashlar generate --model qwen",
};

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

/* The context need not be larger than the prompt and the longest answer. */
static size_t one_shot_context(const struct ash_generate *generate, size_t prompt_tokens)
{
    if (generate->context > 0) return (size_t)generate->context;
    if (generate->max_tokens > 0) return prompt_tokens + (size_t)generate->max_tokens;
    return 0;
}

/* Report an answer that was cut off without a length limit by the user. */
static void report_cut(const struct ash_generate *generate, const struct ash_generate_result *result)
{
    if (result->finish == ASH_FINISH_CONTEXT)
        ash_log(ASH_LOG_INFO, "the answer is cut off: the context is full");
    else if (result->finish == ASH_FINISH_MAX_TOKENS && !ash_opts_is_set(generate->opts, "max_tokens"))
        ash_log(ASH_LOG_INFO, "the answer is cut off after %lld tokens; --max-tokens allows more, 0 as many as fit",
                (long long)generate->max_tokens);
}

/* The answer as text: its tokens, a newline at its end, then notes. */
static void print_text(const struct ash_generate *generate, const struct ash_generate_result *result)
{
    if (result->text.size_bytes == 0 || result->text.data[result->text.size_bytes - 1] != '\n') putchar('\n');
    fflush(stdout);
    report_cut(generate, result);
}

static int answer_prompt(struct ash_generate *generate, const char *text, bool *interrupted_out, struct ash_err *err)
{
    struct ash_generate_result result = {0};
    struct ash_answer *answer = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    int rc = ash_generate_encode(generate, text, &ids, &count, err);

    if (rc < 0) return rc;
    generate->answer_opts.context_tokens = one_shot_context(generate, count);
    rc = ash_answer_open(generate->engine, &generate->answer_opts, &answer, err);
    if (rc < 0) goto done;
    rc = ash_answer_start_ids(answer, ids, count, err);
    if (rc < 0) goto done;
    if (generate->echo && !generate->json) fputs(text, stdout);
    rc = ash_generate_pull(answer, !generate->json, generate->chat, &result, err);
    if (!generate->json) print_text(generate, &result);
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

    if (rc == 0 && generate->strategy != ASH_STRATEGY_GREEDY) {
        int code = ash_generate_batch(generate, text.data);

        ash_str_fini(&text);
        return code;
    }
    if (rc == 0) rc = answer_prompt(generate, text.data, &interrupted, &err);
    ash_str_fini(&text);
    if (rc < 0) return ash_cmd_fail(&err);
    return interrupted ? ash_cmd_stopped() : 0;
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

/* The model's own settings, then the flags. A filter without a temperature turns sampling on. */
static void choose_settings(struct ash_generate *generate)
{
    struct ash_answer_opts *opts = &generate->answer_opts;
    bool top_k = ash_opts_is_set(generate->opts, "top_k"), top_p = ash_opts_is_set(generate->opts, "top_p");
    bool has_strategy = generate->strategy != ASH_STRATEGY_GREEDY;
    bool min_p = ash_opts_is_set(generate->opts, "min_p"), temperature = ash_opts_is_set(generate->opts, "temperature");

    ash_answer_opts_init(generate->engine, opts);
    opts->max_tokens = (size_t)generate->max_tokens;
    opts->seed = (uint64_t)generate->seed;
    opts->stops = generate->stop.items;
    opts->stop_count = generate->stop.count;
    opts->think_min = (size_t)generate->think_min;
    opts->think_max = (size_t)generate->think_max;
    if (temperature) opts->temperature = generate->temperature;
    if (!temperature && opts->temperature == 0.0 && (top_k || top_p || min_p || has_strategy)) opts->temperature = 1.0;
    if (top_k) opts->top_k = (size_t)generate->top_k;
    if (top_p) opts->top_p = generate->top_p;
    if (min_p) opts->min_p = generate->min_p;
    if (ash_opts_is_set(generate->opts, "repetition_penalty")) opts->repetition_penalty = generate->repetition_penalty;
    opts->presence_penalty = generate->presence_penalty;
    opts->frequency_penalty = generate->frequency_penalty;
    opts->json_schema = generate->json_schema;
    opts->regex = generate->regex;
    opts->grammar = generate->grammar;
    opts->wants_logprobs = generate->logprobs;
}

/* More context than the model has is no error, but a warning. */
static void check_context(const struct ash_generate *generate)
{
    size_t most = ash_engine_context(generate->engine);

    if (generate->context > 0 && (size_t)generate->context > most)
        ash_log(ASH_LOG_WARN, "--context %lld is more than the model's %zu tokens: these are used",
                (long long)generate->context, most);
}

/* @FILE becomes the text of that file. */
static int read_form(struct ash_generate *generate, const char **value, const char *what, struct ash_err *err)
{
    int rc;

    if (*value == NULL || (*value)[0] != '@') return 0;
    rc = ash_cmd_read_text(*value + 1, what, &generate->form_text, err);
    if (rc == 0) *value = generate->form_text.data;
    return rc;
}

static int run_engine(struct ash_generate *generate)
{
    struct ash_err err = {0};
    int code, closed;

    if (read_form(generate, &generate->json_schema, "the JSON schema", &err) < 0 ||
        read_form(generate, &generate->grammar, "the grammar", &err) < 0)
        return ash_cmd_fail(&err);
    if (ash_cmd_engine_open(&generate->computing, generate->model, &generate->engine, &err) < 0)
        return ash_cmd_fail(&err);
    if (generate->chat_template != NULL && ash_engine_use_chat(generate->engine, generate->chat_template, &err) < 0) {
        (void)ash_cmd_engine_close(&generate->computing, generate->engine);
        return ash_cmd_fail(&err);
    }
    ash_cmd_use_kv_dtype(generate->engine, generate->kv_dtype);
    choose_settings(generate);
    check_context(generate);
    if (generate->prompts != NULL) {
        ash_interrupt_install();
        code = ash_generate_batch(generate, NULL);
    } else if (generate->prompt != NULL || generate->prompt_file != NULL) {
        ash_interrupt_install();
        code = run_prompt(generate);
    } else {
        generate->answer_opts.context_tokens = generate->context > 0 ? (size_t)generate->context : CONTEXT_DEFAULT;
        code = ash_generate_chat(generate);
    }
    closed = ash_cmd_engine_close(&generate->computing, generate->engine);
    return code != 0 ? code : closed;
}

/* How many prompts are given: one is enough. */
static size_t count_prompts(const struct ash_generate *generate, const char *positional)
{
    const char *const given[] = {generate->prompt, generate->prompt_file, generate->prompts, positional};
    size_t count = 0;

    for (size_t i = 0; i < ASH_COUNT(given); i++)
        count += given[i] != NULL;
    return count;
}

/* Requirements and conflicts of a conversation. */
static int check_chat(const struct ash_generate *generate, bool has_prompt)
{
    if (generate->chat_template != NULL && generate->raw)
        return ash_cmd_misuse("generate", "--chat-template and --raw exclude each other");
    if (generate->chat && generate->raw) return ash_cmd_misuse("generate", "--chat and --raw exclude each other");
    if (generate->system == NULL) return ASH_CMD_GO;
    if (has_prompt && !generate->chat) return ash_cmd_misuse("generate", "--system is a part of a chat: add --chat");
    if (generate->raw) return ash_cmd_misuse("generate", "--system and --raw exclude each other");
    return ASH_CMD_GO;
}

/* What several answers need, and what makes no sense without them. */
static int check_strategy(const struct ash_generate *generate, bool has_prompt)
{
    static const char *const others[] = {"n", "vote_on", "verifier"};
    struct ash_opts *opts = generate->opts;

    for (size_t i = 0; generate->strategy == ASH_STRATEGY_GREEDY && i < ASH_COUNT(others); i++)
        if (ash_opts_is_set(opts, others[i]))
            return ash_cmd_misuse("generate", "--%s goes with --strategy best, majority or weighted",
                                  i == 1 ? "vote-on" : others[i]);
    if (generate->strategy == ASH_STRATEGY_GREEDY) return ASH_CMD_GO;
    if (!has_prompt)
        return ash_cmd_misuse("generate", "--strategy answers a prompt, and a chat has none: add --prompt");
    if (generate->echo || generate->stats)
        return ash_cmd_misuse("generate", "--strategy has neither --echo nor --stats");
    if (ash_opts_is_set(opts, "temperature") && generate->temperature == 0.0)
        return ash_cmd_misuse("generate", "--strategy: answers at temperature 0 are all the same");
    if (generate->strategy == ASH_STRATEGY_BEST && ash_opts_is_set(opts, "vote_on"))
        return ash_cmd_misuse("generate", "--vote-on: --strategy best has no votes");
    if (generate->strategy == ASH_STRATEGY_MAJORITY && generate->verifier.count > 0)
        return ash_cmd_misuse("generate", "--verifier: a majority weighs nothing; --strategy weighted does");
    return ASH_CMD_GO;
}

/* Check combinations of flags. */
static int check_flags(struct ash_generate *generate, const char *positional)
{
    size_t count = count_prompts(generate, positional);
    int code;

    if (generate->model == NULL) return ash_cmd_misuse("generate", "--model DIR is missing");
    if (positional != NULL && strcmp(positional, "-") != 0)
        return ash_cmd_misuse("generate", "'%s' is not expected here: a prompt is given with --prompt", positional);
    if (count > 1)
        return ash_cmd_misuse("generate", "--prompt, --prompt-file, --prompts and - exclude each other: give one");
    if (positional != NULL) generate->prompt_file = "-";
    if (generate->prompts != NULL && (generate->echo || generate->stats))
        return ash_cmd_misuse("generate", "--prompts has neither --echo nor --stats");
    if ((generate->json_schema != NULL) + (generate->regex != NULL) + (generate->grammar != NULL) > 1)
        return ash_cmd_misuse("generate", "--json-schema, --regex and --grammar exclude each other: give one");
    if (generate->logprobs && !generate->json && generate->prompts == NULL)
        return ash_cmd_misuse("generate", "--logprobs are in the JSON of an answer: add --json");
    code = check_strategy(generate, count > 0);
    return code == ASH_CMD_GO ? check_chat(generate, count > 0) : code;
}

static int run(int argc, char **argv)
{
    struct ash_generate generate = {0};
    struct ash_opt_binding bindings[] = {{&generate_table, &generate},
                                         {&ash_engine_table, &generate.computing},
                                         {&ash_rank_flags_table, &generate.computing}};
    struct ash_err err = {0};
    const char *positionals[1] = {NULL};
    size_t positional_count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &generate.opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, generate.opts, argc, argv, positionals, 1, &positional_count);
    if (code == ASH_CMD_GO) code = check_flags(&generate, positionals[0]);
    if (code == ASH_CMD_GO)
        code = ash_cmd_ranks_begin(&generate.computing,
                                   &(struct ash_rank_job){generate.model, generate.kv_dtype, argc, argv});
    if (code == ASH_CMD_GO) code = run_engine(&generate);
    ash_str_fini(&generate.form_text);
    ash_opts_close(generate.opts);
    return code;
}

const struct ash_cmd ash_cmd_generate = {"generate", "continue a text, or talk with a model", run};
