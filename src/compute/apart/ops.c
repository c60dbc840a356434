/* The ops of `apart`: those of the portable CPU path, each between enter and leave. */
#include "compute/apart/apart.h"

#include "compute/apart/memory.h"
#include "compute/cpu.h"

#define OP(family, op, parameters, arguments)                                                                          \
    static void family##_##op parameters                                                                               \
    {                                                                                                                  \
        ash_apart_enter();                                                                                             \
        ash_ops_portable.family->op arguments;                                                                         \
        ash_apart_leave();                                                                                             \
    }
#include "compute/ops_list.h"
#undef OP
#include "compute/ops_tables.h"

const struct ash_ops ash_ops_apart = {.name = "apart", .reference = &ash_ops_ref, ASH_WRAPPED_TABLES};
