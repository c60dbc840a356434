/* strategy - which of several answers to a prompt a response has. */
#ifndef ASH_SERVE_API_STRATEGY_H
#define ASH_SERVE_API_STRATEGY_H

#include "serve/api/call.h"

/* The mean log-probability of an answer's tokens. */
double ash_api_choice_logprob(const struct ash_api_choice *choice);
/* The answer that counts, of all to prompt number `prompt`: an index among them, into *chosen_out. texts: what votes is
 * a part of these. All are done. Returns 0, -ENOMEM, or a verifier's failure, which is the call's error then. */
int ash_strategy_choose(struct ash_api_call *call, size_t prompt, const char *const *texts, size_t *chosen_out);

#endif
