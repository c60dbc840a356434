/* golden_post: adapters of PEFT, and which tokens of conversations are learned. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "golden_post.h"

#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/lora.h"
#include "post/chat/rows.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

/* ---- lora -------------------------------------------------------------------------------------------------------- */

/* The base with the adapters added to its weights. */
static int merge(struct golden *g, const char *base_dir, struct ash_model **merged_out, struct ash_err *err)
{
    struct ash_model *merged = NULL;
    int rc = ash_model_open(base_dir, &merged, err);

    if (rc == 0) rc = ash_model_own(merged, err);
    for (size_t i = 0; rc == 0 && i < ash_model_param_count(merged); i++) {
        const struct ash_param *param = ash_model_param(merged, i);

        ash_lora_merge(g->model, param->name, ash_model_values(merged) + param->offset);
    }
    if (rc == 0) ash_model_refresh(merged);
    *merged_out = merged;
    return rc;
}

void post_check_lora(struct golden *g)
{
    struct ash_lora *lora = NULL;
    struct ash_model *merged = NULL, *adapted;
    struct ash_err err = {0};
    char base[4096];
    int rc;

    post_find_model(g, post_text(g, "base"), base);
    rc = ash_lora_open_model(g->dir, base, &lora, &g->model, &err);
    if (rc == 0) {
        golden_report_equal(
            g, "trainable parameters",
            (double)ash_model_weight_count(g->model) == json_number_value(json_object_get(g->json, "trainable")), "");
        golden_check_logits(g, "logits");
        golden_check_grads(g);
        rc = merge(g, base, &merged, &err);
    }
    if (rc < 0) {
        golden_broken(g, "lora", &err);
    } else {
        adapted = g->model;
        g->model = merged;
        golden_check_logits(g, "merged_logits");
        g->model = adapted;
        golden_check_adamw(g); /* changes the adapters */
    }
    ash_model_close(merged);
    ash_model_close(g->model);
    g->model = NULL;
    ash_lora_close(lora);
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static bool check_mask_row(const struct ash_tokenizer *tokenizer, const struct ash_chat_template *template,
                           const json_t *row)
{
    json_t *variables =
        json_pack("{s:O, s:b}", "messages", json_object_get(row, "messages"), "add_generation_prompt", 0);
    const json_t *ids = json_object_get(row, "ids"), *mask = json_object_get(row, "mask");
    struct ash_chat_spans spans = {0};
    struct ash_chat_row marked = {0};
    struct ash_str text = {0};
    struct ash_err err = {0};
    bool is_equal = ash_chat_template_render_spans(template, variables, &text, &spans, &err) == 0 &&
                    ash_chat_mark(&(struct ash_chat_text){tokenizer, text.data, text.size_bytes, false}, &spans,
                                  &marked, &err) == 0 &&
                    strcmp(text.data, json_string_value(json_object_get(row, "text"))) == 0 &&
                    marked.ids.count == json_array_size(ids);

    for (size_t i = 0; is_equal && i < marked.ids.count; i++)
        is_equal = marked.ids.data[i] == json_integer_value(json_array_get(ids, i)) &&
                   marked.marks[i] == json_integer_value(json_array_get(mask, i));
    ash_chat_row_fini(&marked);
    ash_chat_spans_fini(&spans);
    ash_str_fini(&text);
    json_decref(variables);
    return is_equal;
}

void post_check_masks(struct golden *g)
{
    static const char *const places[] = {"../../../tokenizers", "../../../golden/tokenizers"};
    const char *source = post_text(g, "template");
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_chat_template *template = NULL;
    struct ash_err err = {0};
    char path[4096], what[64];
    int rc = -ENOENT;
    size_t i;
    json_t *row;

    for (size_t p = 0; p < 2 && rc < 0; p++) {
        snprintf(path, sizeof(path), "%s/%s/%s", g->dir, places[p], post_text(g, "tokenizer"));
        rc = ash_tokenizer_open(path, &tokenizer, &err);
    }
    if (rc == 0)
        rc = ash_chat_template_parse(source, strlen(source), "template", post_text(g, "bos_token"),
                                     post_text(g, "eos_token"), &template, &err);
    if (rc < 0) golden_broken(g, "masks", &err);
    json_array_foreach(json_object_get(g->json, "rows"), i, row) {
        snprintf(what, sizeof(what), "conversation %zu", i);
        if (rc == 0) golden_report_equal(g, what, check_mask_row(tokenizer, template, row), "text, ids, marks");
    }
    ash_chat_template_close(template);
    ash_tokenizer_close(tokenizer);
}
