/* Which ops of recurrent states an exec has. */
#include "compute/backends/state_ops.h"

#include "compute/ref/ref.h"

const struct ash_state_ops *ash_state_ops_of(const struct ash_exec *exec)
{
    return exec->memory->host_visible ? &ash_ref_state : NULL;
}
