/* log - lines for the person who watches: lower case, the exact cause, values as fields. Any thread may call.
 * Library code does not log errors (it returns them); the owner of the operation does, once. */
#ifndef ASH_BASE_LOG_H
#define ASH_BASE_LOG_H

enum ash_log_level { ASH_LOG_DEBUG, ASH_LOG_INFO, ASH_LOG_WARN, ASH_LOG_ERROR };

/* Lines below this level are dropped. Default ASH_LOG_INFO. */
void ash_log_set_level(enum ash_log_level level);

/* Write "ashlar: [warning: |error: ]message" to standard error in one write. */
void ash_log(enum ash_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
