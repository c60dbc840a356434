/* diagnose_show - what `ashlar diagnose` answers. */
#ifndef ASH_CMD_DIAGNOSE_SHOW_H
#define ASH_CMD_DIAGNOSE_SHOW_H

#include <stdbool.h>
#include "observe/health/diagnose.h"

/* Print a diagnosis that was run, for people or as one JSON object. Returns 0 or -ENOMEM. */
int ash_diagnose_show(const struct ash_diagnose *diagnose, bool json, struct ash_err *err);
/* Print the differences of now to before (NULL: all is new): the verdict if it changed, new and gone findings, with the
 * time. */
void ash_diagnose_show_change(const struct ash_diagnose *before, const struct ash_diagnose *now);

#endif
