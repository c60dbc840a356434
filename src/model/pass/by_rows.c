/* Sums whose terms are dealt out along tp, of ranks that share memory: they see each other's activations and weights,
 * so a sum goes through nobody. Each rank tells where its terms are and adds up some of the rows, over everyone's
 * terms, in the order that a chain through the ranks has (chain.c). */
#include "model/pass/pass_priv.h"

struct ash_range ash_rows_share(const struct ash_pass *pass, struct ash_range rows)
{
    size_t first = rows.count * pass->tp.rank / pass->tp.size;

    return (struct ash_range){rows.first + first, rows.count * (pass->tp.rank + 1) / pass->tp.size - first};
}

/* ---- who has which terms ----------------------------------------------------------------------------------------- */

/* Of the sum at hand. A rank that begins with a sum is through with the one before it, so the place of the one before
 * that is free. */
static struct ash_posted *posted_by(const struct ash_pass *pass, size_t rank)
{
    return pass->common.posted[pass->common.sums % 2] + rank * ASH_PROJECT_OUTS_MAX;
}

static void await_all(struct ash_pass *pass, uint64_t number)
{
    for (size_t r = 0; r < pass->tp.size; r++)
        ash_share_wait(pass, r, ASH_SHARE_SUMS, number);
}

static size_t distance_of(const void *data, const void *base)
{
    return data != NULL ? (size_t)((const char *)data - (const char *)base) : ASH_POSTED_NONE;
}

static const void *at_distance(const void *base, size_t distance)
{
    return distance != ASH_POSTED_NONE ? (const char *)base + distance : NULL;
}

void ash_terms_post(struct ash_pass *pass, const struct ash_terms *terms, size_t count)
{
    const void *weights = pass->tp.weights[pass->tp.rank];
    struct ash_posted *posted;

    await_all(pass, pass->common.sums++);
    posted = posted_by(pass, pass->tp.rank);
    for (size_t i = 0; i < count; i++)
        posted[i] = (struct ash_posted){.terms = terms[i],
                                        .x = distance_of(terms[i].x, pass->common.memory.data),
                                        .weight = distance_of(terms[i].product.b.data, weights)};
    ash_share_say(pass, ASH_SHARE_SUMS, pass->common.sums);
}

void ash_terms_await(struct ash_pass *pass)
{
    await_all(pass, pass->common.sums);
}

struct ash_terms ash_terms_of(const struct ash_pass *pass, size_t rank, size_t round)
{
    const struct ash_posted *posted = &posted_by(pass, rank)[round];
    struct ash_terms terms = posted->terms;

    terms.x = at_distance(pass->common.memory.data, posted->x);
    terms.product.b.data = at_distance(pass->tp.weights[rank], posted->weight);
    return terms;
}

/* ---- the sums ---------------------------------------------------------------------------------------------------- */

void ash_chain_by_rows(struct ash_pass *pass, const struct ash_chain *chain)
{
    struct ash_range rows = ash_rows_share(pass, chain->rows);
    float *sums = chain->out + ((ptrdiff_t)rows.first - (ptrdiff_t)pass->own.first) * (ptrdiff_t)chain->cols;

    ash_terms_post(pass, chain->terms, chain->rounds);
    if (chain->meanwhile != NULL) chain->meanwhile(pass, chain->ctx);
    ash_terms_await(pass);
    if (pass->failed < 0 || rows.count == 0) return;
    for (size_t i = 0; i < chain->rounds; i++)
        for (size_t r = 0; r < pass->tp.size; r++) {
            struct ash_terms terms = ash_terms_from(ash_terms_of(pass, r, i), rows.first - chain->rows.first);

            chain->step(pass, chain->ctx, &terms, rows, i == 0 && r == 0, sums);
        }
    ash_chain_end(pass, chain, rows.count, sums);
}
