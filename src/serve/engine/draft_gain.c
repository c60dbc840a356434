/* What drafts gain: costs and shares are averages of what was measured, and rests grow while nothing is gained. */
#include "base/assert.h"
#include "base/math.h"
#include "serve/engine/draft_priv.h"

#define ACCEPT_START 0.7
#define ACCEPT_STEP 0.1 /* of the way, at each token that held or did not */
#define COST_KEEP 0.7   /* of the average, at each pass */
#define GAIN_LEAST 1.02 /* below this it rests */
#define REST_FIRST 8    /* steps */
#define REST_MOST 512

void ash_draft_model_begin_gain(struct ash_draft_model *draft)
{
    draft->accept = ACCEPT_START;
    draft->rest_next = REST_FIRST;
}

static void average(double *cost, double now)
{
    *cost = *cost <= 0 ? now : COST_KEEP * *cost + (1 - COST_KEEP) * now;
}

/* Tokens a second with `drafts` of them, beside those without; 0 where nothing is known of that. */
static double gain(const struct ash_draft_model *draft, size_t drafts)
{
    double tokens = 1, hold = 1, pass_s = draft->pass_s[0];

    for (size_t i = 1; i <= drafts; i++) {
        hold *= draft->accept;
        tokens += hold;
        pass_s = draft->pass_s[i] > 0 ? draft->pass_s[i] : pass_s; /* as fast as fewer, until it was measured */
    }
    return draft->pass_s[0] > 0 ? tokens * draft->pass_s[0] / (pass_s + (double)drafts * draft->own_s) : 0;
}

size_t ash_draft_model_depth(struct ash_draft_model *draft)
{
    size_t best = 0;
    double most = GAIN_LEAST;

    if (draft->is_broken || draft->pass_s[0] <= 0) return 0; /* a step without drafts is the measure */
    if (draft->rest > 0 && --draft->rest > 0) return 0;
    for (size_t drafts = 1; drafts <= draft->opts.most; drafts++)
        if (gain(draft, drafts) > most) {
            most = gain(draft, drafts);
            best = drafts;
        }
    if (best > 0) {
        draft->rest_next = REST_FIRST;
        return best;
    }
    draft->rest = draft->rest_next;
    draft->rest_next = ash_min(2 * draft->rest_next, REST_MOST);
    return 1; /* to see whether it is still so */
}

bool ash_draft_model_rests(const struct ash_draft_model *draft)
{
    return draft->is_broken || draft->rest > 1;
}

void ash_draft_model_learn(struct ash_draft_model *draft, size_t drafted, size_t accepted)
{
    ash_assert(drafted > 0 && accepted <= drafted);
    for (size_t i = 0; i < accepted; i++)
        draft->accept += ACCEPT_STEP * (1 - draft->accept);
    if (accepted < drafted) draft->accept -= ACCEPT_STEP * draft->accept;
}

void ash_draft_model_learn_pass(struct ash_draft_model *draft, size_t drafts, double pass_s)
{
    average(&draft->pass_s[ash_min(drafts, ASH_DRAFT_MOST)], pass_s);
}

void ash_draft_model_learn_own(struct ash_draft_model *draft, double own_s)
{
    average(&draft->own_s, own_s);
}
