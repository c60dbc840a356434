#!/usr/bin/env bash
# The same answer, whatever else runs: drawn requests (greedy, sampled, schemas, adapters, several answers, log-probabilities) go to servers of
# drawn shape (sequences, rows of a step, pages, prefix cache, tiers, drafts, threads, ranks of tp, pp and ep, roles, replicas) at a drawn
# concurrency, while servers are killed, clients leave and weights are swapped. Texts, ids and the bits of the log-probabilities are those of
# one at a time on one thread, and of `ashlar eval`. ASHLAR_TEST_REQUESTS draws more (5000: some minutes), ASHLAR_TEST_SEED others. Skips
# where Node.js is not to be had.
command -v node > /dev/null || { echo "SKIP: needs node"; exit 77; }
. "$SOURCE/tests/e2e/lib.bash"
total=${ASHLAR_TEST_REQUESTS:-160} seed=${ASHLAR_TEST_SEED:-1}
node "$SOURCE/tests/e2e/serve_same.mjs" "$ASHLAR" "$stories" "$SCRATCH" "$total" "$seed" || fail "seed $seed: an answer changed"
finish
