/* assert - checks for programmer errors, on in every build. Input from files, users and the network is never
 * asserted. */
#ifndef ASH_BASE_ASSERT_H
#define ASH_BASE_ASSERT_H

/* Print the failed condition and abort. */
_Noreturn void ash_assert_fail(const char *cond, const char *file, int line);

#define ash_assert(cond) ((cond) ? (void)0 : ash_assert_fail(#cond, __FILE__, __LINE__))

#define ASH_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
