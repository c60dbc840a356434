/* chaos - the commands of build/tests/chaos: faults in drawn jobs and drawn histories, for the tests. A user's own job is
 * disturbed by `ashlar chaos run`. */
#ifndef ASH_TESTS_CHAOS_H
#define ASH_TESTS_CHAOS_H

#include "cmd/cmd.h"

extern const struct ash_cmd ash_cmd_chaos_campaign;
extern const struct ash_cmd ash_cmd_chaos_matrix;
extern const struct ash_cmd ash_cmd_chaos_simulate;

#endif
