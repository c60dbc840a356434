/* The folder that nodes of a job share: which ranks see the same one, whether a member answers, and that a restarted
 * job leaves nothing to the rest of the one before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/socket.h"
#include "collective/member/membership.h"

#define LONG_S 60.0 /* a limit on what comes at once */

struct folder {
    char dir[64];
    int listen_fd;
    struct ash_membership_address card;
    struct ash_membership *agent;
};

/* A job of one rank, which writes itself into the folder's contacts. */
static void start(struct folder *folder)
{
    struct ash_membership_opts opts = {.job = 7,
                                       .id = 5,
                                       .card_bytes = sizeof(folder->card),
                                       .job_dir = folder->dir,
                                       .silent_s = 3,
                                       .ready_s = LONG_S};
    struct ash_view *view = ash_view_new(1, sizeof(folder->card));
    struct ash_err err = {0};

    opts.listen_fd = folder->listen_fd = ash_socket_listen("127.0.0.1", 0, NULL);
    assert_true(folder->listen_fd >= 0);
    fcntl(folder->listen_fd, F_SETFL, O_NONBLOCK);
    folder->card = (struct ash_membership_address){.address = "127.0.0.1", .port = ash_socket_port(folder->listen_fd)};
    assert_non_null(view);
    memcpy(ash_view_card(view, 0), &folder->card, sizeof(folder->card));
    view->members[0] = (struct ash_view_member){.id = 5, .rank_before = ASH_VIEW_NEW};
    view->proposal = 9;
    assert_int_equal(ash_view_seal(view), 0);
    assert_int_equal(ash_membership_open(&opts, &folder->agent, &err), 0);
    ash_membership_begin(folder->agent, view);
}

static void stop(struct folder *folder)
{
    ash_membership_close(folder->agent);
    close(folder->listen_fd);
}

static int setup(void **state)
{
    struct folder *folder = calloc(1, sizeof(*folder));

    assert_non_null(folder);
    strcpy(folder->dir, "/tmp/ashlar-folder-XXXXXX");
    assert_non_null(mkdtemp(folder->dir));
    assert_int_equal(ash_membership_make_job_dir(folder->dir, NULL), 0);
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    struct folder *folder = *state;

    ash_dir_remove(folder->dir, NULL);
    free(folder);
    return 0;
}

static void renew(const struct folder *folder)
{
    assert_int_equal(ash_dir_remove(folder->dir, NULL), 0);
    assert_int_equal(ash_membership_make_job_dir(folder->dir, NULL), 0);
}

static void test_a_mark_is_that_of_one_start(void **state)
{
    struct folder *folder = *state;
    uint64_t mark = ash_membership_folder_mark(folder->dir);

    assert_true(mark != 0);
    assert_true(ash_membership_folder_mark(folder->dir) == mark);
    assert_int_equal(ash_membership_make_job_dir(folder->dir, NULL), 0); /* it is there already, and stays */
    assert_true(ash_membership_folder_mark(folder->dir) == mark);
    renew(folder);
    assert_true(ash_membership_folder_mark(folder->dir) != mark);
    assert_true(ash_membership_folder_mark("/nowhere/at/all") == 0);
    assert_true(ash_membership_folder_mark(NULL) == 0);
}

static void test_only_a_job_that_runs_answers(void **state)
{
    struct folder *folder = *state;
    struct ash_membership_address contacts[ASH_MEMBERSHIP_CONTACTS_MAX];
    char path[128];

    assert_false(ash_membership_is_answered(folder->dir, LONG_S)); /* no epoch was formed */
    start(folder);
    while (ash_membership_read_contacts(folder->dir, contacts) == 0)
        poll(NULL, 0, 1);
    assert_int_equal(contacts[0].port, folder->card.port);
    assert_true(ash_membership_is_answered(folder->dir, LONG_S));
    stop(folder);
    /* what is no address cannot be asked, and is no answer */
    snprintf(path, sizeof(path), "%s/contacts", folder->dir);
    assert_int_equal(ash_file_replace(path, "127.0.0.1 0\nnonsense\n", 21, NULL), 0);
    assert_false(ash_membership_is_answered(folder->dir, LONG_S));
}

/* A process that sleeps takes connections and says nothing. */
static void test_who_says_nothing_does_not_answer(void **state)
{
    struct folder *folder = *state;
    char path[128], text[64];
    int fd = ash_socket_listen("127.0.0.1", 0, NULL);

    assert_true(fd >= 0);
    snprintf(path, sizeof(path), "%s/contacts", folder->dir);
    snprintf(text, sizeof(text), "127.0.0.1 %d\n", ash_socket_port(fd));
    assert_int_equal(ash_file_replace(path, text, strlen(text), NULL), 0);
    assert_false(ash_membership_is_answered(folder->dir, 0.1));
    close(fd);
}

static int reform(struct folder *folder)
{
    struct ash_member_terms terms = {.card = &folder->card, .want_size = 1, .min_size = 1};
    struct ash_view *view = NULL;
    struct ash_err err = {0};
    int rc = ash_membership_reform(folder->agent, &terms, &view, &err);

    if (view != NULL) ash_membership_put_view(folder->agent, view);
    return rc;
}

static void test_what_is_left_of_an_earlier_start_is_out(void **state)
{
    struct folder *folder = *state;

    start(folder);
    assert_int_equal(reform(folder), 0);
    renew(folder); /* as the first node does if no member answers */
    assert_int_equal(reform(folder), -ESTALE);
    stop(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_mark_is_that_of_one_start, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_a_job_that_runs_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_says_nothing_does_not_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_left_of_an_earlier_start_is_out, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
