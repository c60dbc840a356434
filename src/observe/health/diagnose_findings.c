/* Findings and notes, as they come. */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "observe/health/diagnose_priv.h"

struct ash_finding ash_finding_of(const struct ash_rule *rule)
{
    return (struct ash_finding){.layer = rule->layer,
                                .severity = rule->severity,
                                .metric = rule->metric,
                                .normal = rule->normal,
                                .means = rule->means,
                                .action = rule->action,
                                .source = rule->source};
}

/* Labels and logs are other people's: no control bytes, and UTF-8 or ASCII. */
static void make_printable(char *text)
{
    size_t bytes = strlen(text);
    bool utf8;

    bytes -= ash_utf8_incomplete_tail(text, bytes);
    text[bytes] = '\0';
    utf8 = ash_utf8_valid_prefix(text, bytes) == bytes;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];

        if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8)) text[i] = '?';
    }
}

int ash_diagnose_report(struct ash_diagnose *diagnose, const struct ash_finding *finding)
{
    if (ash_array_reserve(&diagnose->findings, &diagnose->finding_capacity, diagnose->finding_count + 1,
                          sizeof(*diagnose->findings)) < 0)
        return -ENOMEM;
    diagnose->findings[diagnose->finding_count] = *finding;
    make_printable(diagnose->findings[diagnose->finding_count].where);
    make_printable(diagnose->findings[diagnose->finding_count].value);
    diagnose->finding_count++;
    return 0;
}

/* From the weakest state to the strongest. */
static int weight_of(enum ash_check_state state)
{
    if (state == ASH_CHECK_FOUND) return 3;
    if (state == ASH_CHECK_CAUSED) return 2;
    return state == ASH_CHECK_NORMAL;
}

void ash_diagnose_note(struct ash_diagnose *diagnose, const struct ash_rule *rule, enum ash_check_state state,
                       size_t series)
{
    struct ash_check *note = diagnose->notes;

    while (note < diagnose->notes + diagnose->note_count && note->rule != rule)
        note++;
    if (note == diagnose->notes + diagnose->note_count) {
        if (diagnose->note_count == ASH_DIAGNOSE_NOTES) return;
        diagnose->note_count++;
        *note = (struct ash_check){.rule = rule, .state = state};
    }
    if (weight_of(state) > weight_of(note->state)) note->state = state;
    note->series += series;
}
