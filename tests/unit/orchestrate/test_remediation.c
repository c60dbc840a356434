/* What a node's status means for its scheduler, in each mode; an action that fails is due again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "orchestrate/remediation.h"

static char folder[] = "/tmp/remediation.XXXXXX", command[256], log_path[128];

/* Lines "FATE REASON" that the command has written, which are then removed. */
static void expect(const char *lines)
{
    char *text = NULL;
    size_t size_bytes = 0;
    struct ash_err err = {0};

    if (lines == NULL) {
        assert_int_not_equal(access(log_path, F_OK), 0);
        return;
    }
    assert_int_equal(ash_file_read(log_path, 4096, &text, &size_bytes, &err), 0);
    assert_string_equal(text, lines);
    free(text);
    unlink(log_path);
}

static struct ash_remediation make(enum ash_remediation_mode mode)
{
    return (struct ash_remediation){
        .mode = mode,
        .action = {.scheduler = ASH_SCHEDULER_COMMAND, .command = command, .share_max = 1, .seconds = 20},
        .node = "n1"};
}

static void test_full(void **state)
{
    struct ash_remediation node = make(ASH_REMEDIATION_FULL);

    (void)state;
    assert_true(ash_remediation_act(&node, ASH_NODE_HEALTHY, "none"));
    assert_true(ash_remediation_act(&node, ASH_NODE_DOUBTFUL, "xid 13"));
    expect(NULL);
    assert_true(ash_remediation_act(&node, ASH_NODE_DRAIN_RESET, "xid 79"));
    expect("reset xid 79\n");
    assert_true(ash_remediation_act(&node, ASH_NODE_TO_CHECK, "reset"));
    expect(NULL);
    assert_true(ash_remediation_act(&node, ASH_NODE_DRAIN_REPLACE, "xid 79 again"));
    expect("replace xid 79 again\n");
    assert_true(ash_remediation_act(&node, ASH_NODE_HEALTHY, "no finding is left"));
    expect("keep no finding is left\n");
    assert_true(ash_remediation_act(&node, ASH_NODE_HEALTHY, "no finding is left"));
    expect(NULL);
}

static void test_modes(void **state)
{
    struct ash_remediation drain = make(ASH_REMEDIATION_DRAIN), dry = make(ASH_REMEDIATION_DRY_RUN);

    (void)state;
    assert_true(ash_remediation_act(&drain, ASH_NODE_DRAIN_REBOOT, "xid 95"));
    expect("reboot xid 95\n");
    assert_true(ash_remediation_act(&drain, ASH_NODE_HEALTHY, "no finding is left"));
    expect(NULL);
    assert_true(ash_remediation_act(&dry, ASH_NODE_DRAIN_REBOOT, "xid 95"));
    expect(NULL);
    assert_false(dry.is_drained);
}

static void test_failure(void **state)
{
    struct ash_remediation node = make(ASH_REMEDIATION_FULL);

    (void)state;
    node.action.command = "exit 3";
    assert_false(ash_remediation_act(&node, ASH_NODE_DRAIN_RESET, "xid 79"));
    assert_false(node.is_drained);
    node.action.command = command;
    assert_true(ash_remediation_act(&node, ASH_NODE_DRAIN_RESET, "xid 79"));
    expect("reset xid 79\n");
    assert_true(node.is_drained);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_full), cmocka_unit_test(test_modes),
                                       cmocka_unit_test(test_failure)};
    int failed;

    if (mkdtemp(folder) == NULL) return 1;
    snprintf(log_path, sizeof(log_path), "%s/log", folder);
    snprintf(command, sizeof(command), "echo \"$FATE $REASON\" >> %s", log_path);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
