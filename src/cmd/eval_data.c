/* ashlar eval --data: loss, perplexity and bits per byte on token shards. */
#include "cmd/eval_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "post/eval/loss.h"

static int print_totals(const struct ash_loss_totals *totals, bool as_json, struct ash_err *err)
{
    double loss = totals->loss / (double)totals->tokens, perplexity = exp(loss);
    double bits_per_byte = totals->bytes > 0 ? totals->loss / log(2.0) / (double)totals->bytes : 0.0;
    json_t *json;

    if (!as_json) {
        printf("loss           %.5f nats per token\nperplexity     %.4f\nbits per byte  %.5f\ntokens         %zu in "
               "%zu window%s of %zu\n",
               loss, perplexity, bits_per_byte, totals->tokens, totals->windows, totals->windows == 1 ? "" : "s",
               totals->seq_tokens);
        return 0;
    }
    json = json_pack("{s:f, s:f, s:f, s:I, s:I, s:I}", "loss", loss, "perplexity", perplexity, "bits_per_byte",
                     bits_per_byte, "tokens", (json_int_t)totals->tokens, "bytes", (json_int_t)totals->bytes, "windows",
                     (json_int_t)totals->windows);
    if (json == NULL) return ash_err_set(err, -EDOM, "the loss is not a number: the weights are broken");
    json_dumpf(json, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(json);
    return 0;
}

int ash_eval_data(struct ash_eval *eval, struct ash_err *err)
{
    struct ash_eval_watch watch;
    const struct ash_loss_opts opts = {.engine = eval->engine,
                                       .model = eval->model,
                                       .data = eval->data,
                                       .seq_tokens = (size_t)eval->seq_tokens,
                                       .windows = (size_t)eval->windows,
                                       .seed = (uint64_t)eval->arithmetic.seed,
                                       .progress = ash_eval_watch_start(&watch, "windows")};
    struct ash_loss_totals totals;
    int rc = ash_loss_measure(&opts, &totals, err);

    ash_progress_bar_clear(&watch.bar);
    return rc < 0 ? rc : print_totals(&totals, eval->json, err);
}
