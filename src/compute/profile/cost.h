/* cost - what an op must move and compute at the least, from its arguments. */
#ifndef ASH_COMPUTE_PROFILE_COST_H
#define ASH_COMPUTE_PROFILE_COST_H

#include "compute/ops.h"

enum ash_op_id {
#define OP(family, op, parameters, arguments) ASH_OP_##family##_##op,
#include "compute/ops_list.h"
#undef OP
    ASH_OP_COUNT
};

struct ash_op_cost {
    double bytes, flops; /* 0: not counted */
    size_t M, N, K;      /* of a product; 0: it is none */
};

/* The cost of a call; args is its first argument after exec, which is read where the op has all in one struct. */
struct ash_op_cost ash_op_cost_of(enum ash_op_id id, const void *args);

#endif
