/* Many prompts of `ashlar generate --prompts`: read at once, answered together (serve/answers.h), printed in their
 * order as soon as all before are done. */
#include "cmd/generate_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/math.h"
#include "cmd/cmd.h"
#include "cmd/progress_bar.h"
#include "serve/answers.h"
#include "serve/form.h"
#include "serve/votes.h"

struct batch {
    struct ash_generate *generate;
    struct ash_generate_chooser chooser;
    struct ash_generate_lines lines;
    struct ash_answers *answers; /* NULL: no prompt can be answered */
    size_t samples;              /* answers to each prompt */
    bool is_one;                 /* one prompt, whose answer is printed as text */
    size_t context_tokens;
    size_t printed, failed; /* prompts */
};

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static const char *text_of(const struct ash_answers_item *item)
{
    return item->text.data != NULL ? item->text.data : "";
}

static json_t *error_json(const struct ash_generate_line *line, size_t index)
{
    return json_pack("{s:I, s:O*, s:s}", "index", (json_int_t)index, "id", line->id, "error", line->err.text);
}

static json_t *answer_json(const struct ash_generate_line *line, size_t index, struct ash_answers_item *item)
{
    if (item->stop_id >= 0 && ash_ids_add(&item->ids, item->stop_id) < 0) return NULL; /* as for one prompt */
    return json_pack("{s:I, s:O*, s:s%, s:o, s:O*, s:s, s:s, s:{s:I, s:I}}", "index", (json_int_t)index, "id", line->id,
                     "text", text_of(item), item->text.size_bytes, "ids",
                     ash_generate_ids_json(item->ids.data, item->ids.count), "logprobs", item->logprobs,
                     "finish_reason", ash_finish_reason(item->finish), "finish_detail",
                     ash_generate_finish_detail(item->finish), "usage", "prompt_tokens", (json_int_t)line->count,
                     "answer_tokens", (json_int_t)item->ids.count);
}

static int print_line(json_t *json, struct ash_err *err)
{
    if (json == NULL) return ash_err_set(err, -ENOMEM, "no memory for the JSON of an answer");
    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(json);
    return 0;
}

/* Of the answers to a prompt, the one that counts; *votes_out: why, if there are several. */
static int choose(struct batch *batch, const struct ash_generate_line *line, const struct ash_answers_item *items,
                  size_t *chosen_out, json_t **votes_out, struct ash_err *err)
{
    struct ash_generate_candidate *candidates;
    int rc;

    if (batch->samples == 1) return 0;
    candidates = calloc(batch->samples, sizeof(*candidates));
    if (candidates == NULL) return ash_err_set(err, -ENOMEM, "no memory for the answers");
    for (size_t s = 0; s < batch->samples; s++)
        candidates[s] = (struct ash_generate_candidate){.text = text_of(&items[s]),
                                                        .prompt = line->ids,
                                                        .prompt_count = line->count,
                                                        .ids = items[s].ids.data,
                                                        .count = items[s].ids.count,
                                                        .logprob = items[s].logprob,
                                                        .has_ended = items[s].finish == ASH_FINISH_EOS};
    rc = ash_generate_choose(&batch->chooser, candidates, batch->samples, chosen_out, votes_out, err);
    free(candidates);
    return rc;
}

/* The answer of one prompt as text, as without a strategy. */
static int print_text(const struct batch *batch, const char *text)
{
    if (batch->generate->chat) text += strspn(text, " \t\r\n");
    fputs(text, stdout);
    if (text[0] == '\0' || text[strlen(text) - 1] != '\n') putchar('\n');
    fflush(stdout);
    return 0;
}

static int print_answer(struct batch *batch, size_t index, struct ash_answers_item *items, struct ash_err *err)
{
    const struct ash_generate_line *line = &batch->lines.items[index];
    json_t *votes = NULL, *json;
    size_t chosen = 0;
    int rc = choose(batch, line, items, &chosen, &votes, err);

    if (rc < 0) return rc;
    if (batch->is_one && !batch->generate->json) {
        json_decref(votes);
        return print_text(batch, text_of(&items[chosen]));
    }
    json = answer_json(line, index, &items[chosen]);
    if (votes != NULL && json != NULL)
        json_object_update_new(json,
                               json_pack("{s:s, s:I, s:o}", "strategy", ash_strategy_names[batch->generate->strategy],
                                         "chosen", (json_int_t)chosen, "votes", votes));
    return print_line(json, err);
}

/* Print answers up to the first prompt that is not done. */
static int print_done(struct batch *batch, struct ash_err *err)
{
    int rc = 0;

    for (; rc == 0 && batch->printed < batch->lines.count; batch->printed++) {
        const struct ash_generate_line *line = &batch->lines.items[batch->printed];
        struct ash_answers_item *items;

        if (line->err.code != 0) {
            batch->failed++;
            rc = print_line(error_json(line, batch->printed), err);
            continue;
        }
        items = ash_answers_of(batch->answers, batch->printed);
        if (items == NULL) break;
        rc = print_answer(batch, batch->printed, items, err);
        ash_answers_forget(batch->answers, batch->printed);
    }
    return rc;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int answer_all(struct batch *batch, const struct ash_answers_opts *opts,
                      const struct ash_answers_prompt *prompts, struct ash_err *err)
{
    struct ash_progress_bar progress;
    size_t count = batch->lines.count;
    int rc = ash_answers_open(batch->generate->engine, opts, prompts, count, &batch->answers, err);

    ash_progress_bar_init(&progress);
    while (rc == 0 && batch->printed < count) {
        rc = ash_answers_step(batch->answers, err);
        if (rc == 0) rc = print_done(batch, err);
        ash_progress_bar_count(&progress, batch->printed, count, "prompts");
        if (rc == 0 && ash_interrupt_requested()) rc = -ECANCELED;
    }
    ash_progress_bar_clear(&progress);
    ash_answers_close(batch->answers);
    return rc;
}

static int answer_lines(struct batch *batch, struct ash_err *err)
{
    const struct ash_answers_opts opts = {.answer = &batch->generate->answer_opts,
                                          .context_tokens = batch->context_tokens,
                                          .samples = batch->samples,
                                          .concurrent = (size_t)batch->generate->batch};
    struct ash_answers_prompt *prompts = calloc(batch->lines.count, sizeof(*prompts));
    size_t requests = 0;
    int rc;

    if (prompts == NULL) return ash_err_set(err, -ENOMEM, "no memory for the prompts");
    for (size_t i = 0; i < batch->lines.count; i++) {
        const struct ash_generate_line *line = &batch->lines.items[i];

        if (line->err.code == 0) prompts[i] = (struct ash_answers_prompt){line->ids, line->count};
        requests += line->err.code == 0;
    }
    rc = requests > 0 ? answer_all(batch, &opts, prompts, err) : print_done(batch, err);
    free(prompts);
    return rc;
}

int ash_generate_batch(struct ash_generate *generate, const char *text)
{
    size_t most = ash_engine_context(generate->engine);
    struct batch batch = {.generate = generate, .context_tokens = most, .samples = 1, .is_one = text != NULL};
    struct ash_err err = {0};
    int rc;

    if (generate->context > 0) batch.context_tokens = ash_min((size_t)generate->context, most);
    rc = ash_generate_lines_read(&batch.lines, generate, text, batch.context_tokens, &err);
    if (generate->strategy != ASH_STRATEGY_GREEDY) batch.samples = (size_t)generate->n;
    if (rc == 0 && batch.samples > 1)
        rc = ash_generate_chooser_open(&batch.chooser, generate, batch.context_tokens, &err);
    if (rc == 0) rc = answer_lines(&batch, &err);
    ash_generate_lines_fini(&batch.lines);
    ash_generate_chooser_close(&batch.chooser);
    return rc == -ECANCELED ? ash_cmd_stopped() : rc < 0 ? ash_cmd_fail(&err) : batch.failed > 0;
}
